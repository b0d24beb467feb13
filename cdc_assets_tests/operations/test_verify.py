"""Tables compared with their source: recorded ones are equal to it in every type, and every fault is named."""

from __future__ import annotations

import json
import pickle
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from cdc_assets.errors import BadSettings, BucketMissing, CdcError, SetupError, StepFailed, StorageUnavailable
from cdc_assets.features.cuts.operations import make_cut
from cdc_assets.features.forgetting.operations import forget
from cdc_assets.features.verification import operations as comparing
from cdc_assets.features.verification import operations_losses as losses
from cdc_assets.features.verification.operations import VerifyOptions, verify
from cdc_assets.features.verification.operations_choice import parse_choice
from cdc_assets.features.verification.operations_losses import (
    MADE_NULL,
    OTHER_CENTURY,
    SAME_JSON,
    is_guess,
    loss_between,
)
from cdc_assets.features.verification.operations_ranges import RowRate
from cdc_assets.features.verification.report import comparison_lines
from cdc_assets.formats.changes import LOST_FLOAT, NULL_OR_TEXT, SIX_DIGITS
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.formats.dump.parquet import NULL_OR_ZERO_DATE
from cdc_assets.formats.values import DEFAULTED, MAYBE_ZERO_DATE, ROUNDED
from cdc_assets.formats.values.connect import OUT_OF_RANGE
from cdc_assets.formats.values.ticdc import TOO_LARGE
from cdc_assets.landing.landing import Executors
from cdc_assets.ledger import Ledger
from cdc_assets.model.comparison import DIFFERENT, EQUAL, NOT_COMPARED, TableComparison
from cdc_assets.model.dumps import DumpOptions
from cdc_assets.model.schema import Column, TableId
from cdc_assets.model.schema_changes import AddColumn, RetypeColumn
from cdc_assets.model.steps import ApplyRows, ChangeTable, RowReading, Step
from cdc_assets.model.tso import FOREVER, Tso
from cdc_assets.operations.release import release
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.sources import InitialSource, connect_dump, connect_server
from cdc_assets.sources.mysql_protocol import rows as reading
from cdc_assets.types.fidelity import guesses
from cdc_assets.types.mysql_values import AMBIGUOUS_TIME, BAD_UTF8, ZERO_DATE
from cdc_assets_tests.cases import Checkpoint, Config, cases, expected_tables
from cdc_assets_tests.dump_cases import opener
from cdc_assets_tests.edge_tables import PROTOCOLS, edge_tables, settings_of, statements, write_feed
from cdc_assets_tests.joined_feed import create_text, dump_of
from cdc_assets_tests.keyed_feed import Mended
from cdc_assets_tests.landing.test_connector_corners import MariaDb
from cdc_assets_tests.landing.test_shares import Tasks
from cdc_assets_tests.loaded import drop, load
from cdc_assets_tests.mariadb import PASSWORD, Server
from cdc_assets_tests.memory_lake import Driver, MemoryForgetting, MemoryLake
from cdc_assets_tests.replay import AsOf, replayed
from cdc_assets_tests.tidb import TidbStandIn
from cdc_assets_tests.topic_feed import TopicFeed

CONFIGS = {str(config): config for case in cases() for config in case.configs if config.options.wire.has_commit_ts}
CHOSEN = ("A_all_types/csv-ts", "D_keys/na-selector", "E_partitions/canal-ext", "F_names/csv-ts")
"""Compared in every run; the others in the soak."""
PARTITIONS = "E_partitions/canal-ext"


def some(*names: str) -> list[object]:
    return [pytest.param(config, id=name, marks=() if name in names else pytest.mark.soak)
            for name, config in CONFIGS.items()]  # fmt: skip


class Applied:
    """A recorded changefeed, applied to a lake in memory."""

    def __init__(self, config: Config, through: int = -1, **given: Any) -> None:
        self.config, self.final = config, config.checkpoints[-1]
        checkpoint = replace(self.final, ts=config.checkpoints[through].ts)
        self.lake, ledger = replayed(config, checkpoint, **given)
        settings = config.settings(self.final.bucket, **given)
        self.source = AsOf(settings, checkpoint.ts)
        self.pipeline = Pipeline(settings, self.source, self.lake, ledger)

    def go_on(self) -> None:
        """Apply the changefeed to its end."""
        self.source.checkpoint = self.final.ts
        self.pipeline.apply("test")

    def compared(
        self, connect: Callable[[Tso], InitialSource], *tables: str, **options: object
    ) -> dict[TableId, TableComparison]:
        how = VerifyOptions(**options)  # type: ignore[arg-type]
        comparisons = verify(self.pipeline, self.lake, connect, how, tables, say=self.say)
        return {comparison.table: comparison for comparison in comparisons}

    def say(self, table: TableId, side: str, rows: int) -> None:
        pass

    def rows_of(self, name: TableId) -> pa.Table:
        return self.lake.read(name)

    def put(self, name: TableId, rows: pa.Table) -> None:
        next(table for table in self.lake.tables.values() if table.name == name).rows = rows


def dumped_at(checkpoint: Checkpoint, into: Path) -> Callable[[Tso], InitialSource]:
    dump_of(checkpoint, into)
    source = connect_dump(opener(into), DumpOptions())
    return lambda at: source


def unequal(config: Config, comparisons: Mapping[TableId, TableComparison]) -> list[TableComparison]:
    """What is not equal and should be: all but what the files cannot give."""
    return [
        comparison
        for name, comparison in comparisons.items()
        if comparison.state != EQUAL
        and name not in config.allow.tables
        and not (config.options.use_table_id_as_path and "not show such a table" in comparison.reason)  # DROP DATABASE
    ]


@pytest.mark.parametrize("config", some(*CHOSEN))
def test_what_is_applied_is_equal_to_a_dump_of_the_source(config: Config, tmp_path: Path) -> None:
    applied = Applied(config)
    comparisons = applied.compared(dumped_at(applied.final, tmp_path))
    assert unequal(config, comparisons) == []
    assert sum(comparison.source_rows for comparison in comparisons.values()) > 0


def test_history_tables_beside_a_table_are_not_compared(tmp_path: Path) -> None:
    applied = Applied(CONFIGS[PARTITIONS], history={"*": "log"})
    assert any(life.kind for life in applied.lake.applied())
    comparisons = applied.compared(dumped_at(applied.final, tmp_path))
    assert {(name.table, comparison.state) for name, comparison in comparisons.items()} == {
        (name, EQUAL) for name in ("r", "rc_renamed", "ex", "flat", "h")
    }


def test_tables_that_the_settings_exclude_are_not_missed(tmp_path: Path) -> None:
    applied = Applied(CONFIGS[PARTITIONS], tables={"exclude": ["*.H"]})
    compared = applied.compared(dumped_at(applied.final, tmp_path))
    assert TableId("part", "ex") in compared
    assert TableId("part", "h") not in compared


def test_tables_without_mirror_are_not_called_unknown_to_the_changefeed(tmp_path: Path) -> None:
    applied = Applied(CONFIGS[PARTITIONS], history={"*.h": {"kinds": ["log"], "mirror": False}})
    comparison = applied.compared(dumped_at(applied.final, tmp_path))[TableId("part", "h")]
    assert (comparison.state, "it has no mirror" in comparison.reason) == (NOT_COMPARED, True)


@pytest.mark.parametrize("config", some("A_all_types/csv-ts"))
def test_masked_tables_are_compared_by_their_masked_values(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASK_KEY", "key")
    applied = Applied(config, privacy={"*.*.*": {"hash": {"key": {"env": "MASK_KEY"}}}})
    connect = dumped_at(applied.final, tmp_path)
    compared = applied.compared(connect)
    comparisons = {
        name: comparison for name, comparison in compared.items() if not comparison.reason.startswith("it is held: ")
    }
    assert unequal(config, comparisons) == []
    plain = {
        name: min({*table.rows.column_names} - {COMMIT_TS, *table.schema.key, *comparisons[name].left_out}, default="")
        for table in applied.lake.tables.values()
        if (name := table.name) is not None and name in comparisons and comparisons[name].source_rows
    }
    name = next((name for name, column in plain.items() if column), None)
    if name is None:  # each one has a key or a partition column that cannot be masked
        assert {comparison.state for comparison in compared.values()} == {NOT_COMPARED}
        return
    rows = applied.rows_of(name)
    place = rows.column_names.index(plain[name])
    changed = pa.array(["another"] * rows.num_rows)
    applied.put(name, rows.set_column(place, rows.column_names[place], changed))
    assert applied.compared(connect)[name].state == DIFFERENT


# --- a server ---------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def databases_end_with_their_test(request: pytest.FixtureRequest) -> Iterator[None]:
    if "mariadb" not in request.fixturenames:
        yield
        return
    server = request.getfixturevalue("mariadb")
    yield
    names = {name.schema for config in CONFIGS.values() for name in config.case.expected()}
    drop(server, "edges", *names)


@pytest.fixture
def tidb(mariadb: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[Applied], TidbStandIn]:
    """Load what the source of a recorded changefeed had at the end."""

    def loaded(applied: Applied) -> TidbStandIn:
        assert applied.final.expected is not None
        contents = expected_tables(applied.final.expected)
        load(mariadb, contents)
        standing = TidbStandIn(mariadb, {name: create_text(table) for name, table in contents.items()})
        monkeypatch.setattr(pymysql, "connect", standing.connect)
        for database in sorted({name.schema for name in contents}):
            mariadb.run(f"DROP DATABASE IF EXISTS `{database}@{applied.final.ts}`")
            standing.keep(applied.final.ts, database)
        return standing

    return loaded


def read_by(server: Server, *databases: str) -> Callable[[Tso], InitialSource]:
    return lambda at: connect_server(
        server.uri, PASSWORD, at, [f"{database}.*" for database in databases], range_bytes=4 << 20
    )


@pytest.mark.parametrize("config", some("A_all_types/canal-ext", "D_keys/csv-ts"))
def test_every_type_is_equal_to_the_source_at_the_fence(
    config: Config, tidb: Callable[[Applied], TidbStandIn], mariadb: Server
) -> None:
    applied = Applied(config)
    standing = tidb(applied)
    comparisons = applied.compared(read_by(mariadb, *standing.databases))
    assert unequal(config, comparisons) == []
    assert {comparison.at for comparison in comparisons.values()} == {applied.final.ts}
    assert f"SET SESSION tidb_snapshot = '{applied.final.ts}'" in standing.asked


def test_a_server_without_snapshots_is_compared_only_if_it_is_quiet(quiet: Applied, mariadb: Server) -> None:
    source = read_by(mariadb, "part")
    with pytest.raises(BadSettings, match="say so with --quiet"):
        quiet.compared(source)
    comparisons = quiet.compared(source, quiet=True)
    assert unequal(quiet.config, comparisons) == []
    assert {comparison.at for comparison in comparisons.values()} == {0}


def test_what_garbage_collection_has_passed_says_how_to_keep_it(
    tidb: Callable[[Applied], TidbStandIn], mariadb: Server
) -> None:
    applied = Applied(CONFIGS[PARTITIONS])
    standing = tidb(applied)
    standing.collect(applied.final.ts + 1)
    with pytest.raises(BucketMissing, match=r"garbage-collected.*gc-ttl.*tidb_gc_life_time"):
        applied.compared(read_by(mariadb, *standing.databases))


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small tables be compared by ranges of their keys, as large ones are."""
    monkeypatch.setattr("cdc_assets.features.verification.operations._SAMPLED", 1)
    monkeypatch.setattr("cdc_assets.features.verification.operations_ranges._FEWEST", 9)


def without_its_first_row(monkeypatch: pytest.MonkeyPatch) -> Applied:
    """Return what is applied where the first row of the table of all types is forgotten, and kept out."""
    monkeypatch.setenv("PRIVACY_KEY", "one key")
    applied = Applied(CONFIGS["A_all_types/csv-ts"], privacy_key={"env": "PRIVACY_KEY"})
    least = str(min(applied.rows_of(TYPES).column("id").to_pylist()))
    forget(applied.pipeline, MemoryForgetting(applied.lake), str(TYPES), [[least]], until=FOREVER)
    return applied


class Collected:
    """Collects the garbage of a TiDB through a newer TSO when the fourth range of a table is read of it."""

    def __init__(self, applied: Applied, standing: TidbStandIn, newer: Tso) -> None:
        self.applied, self.standing, self.newer, self.asked, self._ranges = applied, standing, newer, 0, 0

    def say(self, table: TableId, side: str, rows: int) -> None:
        self._ranges += side == "source" and rows > 0
        if self._ranges == 4 and not self.asked:
            self.asked = len(self.standing.asked)
            self.standing.collect(self.newer)
            self.applied.source.checkpoint = self.newer


@pytest.mark.usefixtures("ranges")
@pytest.mark.parametrize("by", ["driver", "executors"])
@pytest.mark.parametrize("state", [EQUAL, DIFFERENT])
def test_ranges_that_are_left_when_garbage_is_collected_are_compared_at_a_newer_tso(
    state: str,
    by: str,
    tidb: Callable[[Applied], TidbStandIn],
    mariadb: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    applied = without_its_first_row(monkeypatch)
    if by == "executors":
        applied.lake.tasks = Tasks()
    standing, newer = tidb(applied), applied.final.ts + 10
    if state == DIFFERENT:
        mariadb.run("DELETE FROM types.all_types ORDER BY id DESC LIMIT 1")
    standing.keep(newer, "types")
    collected = Collected(applied, standing, newer)
    monkeypatch.setattr(applied, "say", collected.say)
    (comparison,) = applied.compared(read_by(mariadb, "types"), str(TYPES), threads=1).values()
    count = applied.rows_of(TYPES).num_rows
    assert (comparison.state, comparison.at, list(comparison.earlier)) == (state, newer, [applied.final.ts])
    assert (comparison.lake_rows, comparison.extra, comparison.excluded) == (count, int(state == DIFFERENT), 1)
    assert 0 < sum(comparison.earlier.values()) < count
    assert any(f"as of {applied.final.ts}, and were equal" in line for line in comparison_lines(comparison))
    before, after = standing.asked[: collected.asked], standing.asked[collected.asked :]
    both = {sql for sql in before if "FROM `types`.`all_types` WHERE" in sql} & set(after)
    assert len(both) <= 1  # the range that was being read


@pytest.mark.usefixtures("ranges")
@pytest.mark.parametrize("change", ["another cluster", "rows forgotten", "not cut into ranges"])
def test_ranges_that_were_equal_are_compared_again_where_they_are_not_known_to_be(
    change: str, tidb: Callable[[Applied], TidbStandIn], mariadb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = without_its_first_row(monkeypatch)
    standing, newer = tidb(applied), applied.final.ts + 10
    standing.keep(newer, "types")
    collected = Collected(applied, standing, newer)

    def say(table: TableId, side: str, rows: int) -> None:
        before = collected.asked
        collected.say(table, side, rows)
        if before == collected.asked:
            return
        if change == "another cluster":
            standing.cluster = "another"
        elif change == "rows forgotten":
            key = str(max(applied.rows_of(TYPES).column("id").to_pylist()))
            forget(applied.pipeline, MemoryForgetting(applied.lake), str(TYPES), [[key]], until=FOREVER)
        else:
            monkeypatch.setattr("cdc_assets.features.verification.operations_ranges._FEWEST", 1 << 20)

    monkeypatch.setattr(applied, "say", say)
    (comparison,) = applied.compared(read_by(mariadb, "types"), str(TYPES), threads=1).values()
    assert (comparison.state, comparison.at, comparison.earlier) == (EQUAL, newer, {})
    assert comparison.lake_rows == comparison.source_rows == applied.rows_of(TYPES).num_rows
    assert comparison.excluded == (2 if change == "rows forgotten" else 1)


@pytest.fixture
def quiet(mariadb: Server) -> Applied:
    """A changefeed that is applied, whose source is a server that has no TSO."""
    applied = Applied(CONFIGS[PARTITIONS])
    assert applied.final.expected is not None
    load(mariadb, expected_tables(applied.final.expected))
    return applied


def test_a_quiet_source_that_is_written_to_before_its_rows_are_read_is_said_to_be_none(
    quiet: Applied, mariadb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are read twice are the same then: the server says when it was written to, to the second."""
    name, written, clock = TableId("part", "r"), list[str](), [0.0]

    def write(table: TableId, side: str, rows: int) -> None:
        if not written:
            written.append(side)
            clock[0] += 60
            mariadb.run("DELETE FROM part.r LIMIT 1")

    monkeypatch.setattr(quiet, "say", write)
    monkeypatch.setattr(comparing, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    comparison = quiet.compared(read_by(mariadb, "part"), "part.r", quiet=True)[name]
    assert (comparison.state, "was written to" in comparison.reason, written) == (NOT_COMPARED, True, ["lake"])
    comparison = quiet.compared(read_by(mariadb, "part"), "part.r", quiet=True)[name]
    assert (comparison.state, comparison.extra) == (DIFFERENT, 1)


def test_a_table_that_the_user_may_not_read_is_named_and_the_others_are_compared(
    quiet: Applied, mariadb: Server
) -> None:
    mariadb.run(
        "CREATE OR REPLACE USER poor@'%' IDENTIFIED BY 'poor'",
        *(f"GRANT SELECT ON part.{name} TO poor@'%'" for name in ("flat", "h")),
        "GRANT SELECT (id) ON part.r TO poor@'%'",
        "RENAME TABLE part.ex TO part.ex_base",
        "CREATE VIEW part.ex AS SELECT * FROM part.ex_base",
        "GRANT SELECT ON part.ex TO poor@'%'",
    )
    uri = mariadb.uri.replace("reader@", "poor@")
    comparisons = quiet.compared(
        lambda at: connect_server(uri, "poor", at, ["part.*"], range_bytes=1 << 20), quiet=True
    )
    assert {name.table: comparison.reason.partition(" (")[0] for name, comparison in comparisons.items()} == {
        "flat": "",
        "h": "",
        "r": f'the source\'s table cannot be read: mysql://127.0.0.1:{mariadb.port} refuses the user "poor"',
        "ex": "the source has no table of that name, but a view or a sequence.",
        "rc_renamed": "the source does not show such a table: it has none, or its user may not see it.",
    }


@pytest.mark.parametrize("by", [Driver, Tasks])
def test_a_connection_that_breaks_in_the_midst_of_a_table_is_opened_again_and_counted(
    by: Callable[[], Executors], quiet: Applied, mariadb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet.lake, "tasks", by())
    stream, broken = reading._stream, list[str]()

    def breaking(address: Any, at: Tso, sql: str, skipped: int) -> Iterator[Any]:
        for block in stream(address, at, sql, skipped):
            yield block[:1]
            if not broken:
                broken.append(sql)
                raise StorageUnavailable("gone")
            yield block[1:]

    monkeypatch.setattr(reading, "_stream", breaking)
    monkeypatch.setattr(reading, "_PAUSES_SECONDS", (0.0,))
    comparison = quiet.compared(read_by(mariadb, "part"), "part.r", quiet=True)[TableId("part", "r")]
    assert (comparison.state, comparison.reconnects) == (EQUAL, 1)
    assert "connected again 1 time" in next(comparison_lines(comparison))


@pytest.mark.parametrize("error", [StorageUnavailable("no answer"), BadSettings("no PyMySQL"), StepFailed("lost")])
def test_an_executor_without_a_way_to_the_source_proves_nothing_and_says_who_has_one(
    error: CdcError, quiet: Applied, mariadb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stream(*of: Any) -> Iterator[Any]:
        raise error

    monkeypatch.setattr(reading, "_stream", stream)
    monkeypatch.setattr(reading, "_PAUSES_SECONDS", ())
    monkeypatch.setattr(quiet.lake, "tasks", Tasks())
    sentence = rf"{error.message}.* PyMySQL .*setting decode: driver\."
    if isinstance(error, SetupError):
        with pytest.raises(BadSettings, match=sentence):
            quiet.compared(read_by(mariadb, "part"), "part.r", quiet=True)
        return
    comparison = quiet.compared(read_by(mariadb, "part"), "part.r", quiet=True)[TableId("part", "r")]
    assert comparison.state == NOT_COMPARED
    assert re.search(sentence, comparison.reason)


def test_a_quiet_source_that_is_written_to_is_said_to_be_none(
    quiet: Applied, mariadb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = TableId("part", "r")
    mariadb.run("UPDATE part.r SET v = 'other' LIMIT 1")

    def write(table: TableId, side: str, rows: int) -> None:
        if side == "source":
            mariadb.run("DELETE FROM part.r")

    monkeypatch.setattr(quiet, "say", write)
    comparisons = quiet.compared(read_by(mariadb, "part"), "part.r", quiet=True)
    assert (comparisons[name].state, "was written to" in comparisons[name].reason) == (NOT_COMPARED, True)


@pytest.mark.parametrize(
    ("where", "sample"),
    [("id > -5 AND id<=20", ""), ("`ID` >= -3", "20%"), ("dt >= '2000-01-01'", "")],
)
def test_rows_that_are_chosen_are_the_same_on_both_sides(
    where: str, sample: str, tidb: Callable[[Applied], TidbStandIn], mariadb: Server
) -> None:
    applied = Applied(CONFIGS["A_all_types/csv-ts"])
    standing = tidb(applied)
    source = read_by(mariadb, *standing.databases)
    everything = applied.compared(source, str(TYPES))[TYPES].source_rows
    for moment in range(3 if sample else 1):
        (comparison,) = applied.compared(source, str(TYPES), choice=parse_choice(where, sample, moment)).values()
        assert (comparison.state, comparison.lake_rows) == (EQUAL, comparison.source_rows)
        assert 0 < comparison.source_rows < everything
    assert any("MOD(`id`, 5) IN (" in sql for sql in standing.asked) == bool(sample)


def test_a_sample_misses_no_row_of_its_own_and_is_no_proof_of_the_others(tmp_path: Path) -> None:
    applied = Applied(CONFIGS["D_keys/csv-ts"])
    source, name = dumped_at(applied.final, tmp_path), TableId("keysdb", "pk_vc")
    rows = applied.rows_of(name)
    counts = [
        applied.compared(source, str(name), choice=parse_choice("", "50%", moment))[name].source_rows
        for moment in (0, 1)
    ]
    assert sum(counts) == rows.num_rows


def test_processes_that_share_a_rate_keep_it_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(time, "sleep", pauses.append)
    for _ in range(4):
        pickle.loads(pickle.dumps(RowRate(100).divided(4))).wait(50)
    assert pauses == [2.0] * 4
    RowRate(None).divided(4).wait(50)
    assert len(pauses) == 4


def test_a_choice_of_rows_is_said_in_words() -> None:
    texts = [parse_choice(where, sample).text for where in ("", "id>3 AND `d`<'2024-01-01'") for sample in ("", "5%")]
    conditions = "rows with id > 3 AND d < 2024-01-01"
    assert texts == ["", "one of 20 rows", conditions, f"one of 20 {conditions}"]


@pytest.mark.parametrize(
    "where", ["id", "id ! 3", "id = 3 AND", "id = 3 OR id = 4", "id = 'x' --", "id = 1; DROP", "a=b"]
)
def test_what_is_no_condition_is_refused(where: str) -> None:
    with pytest.raises(BadSettings, match="--where is"):
        parse_choice(where)


@pytest.mark.parametrize("where", ["vc = 3", "nothing = 3", "id = 3.5", "id = '2020-01-01'", "dt = '0'"])
def test_a_condition_that_a_table_cannot_have_is_refused(where: str, tmp_path: Path) -> None:
    applied = Applied(CONFIGS["A_all_types/csv-ts"])
    with pytest.raises(BadSettings, match="--where"):
        applied.compared(dumped_at(applied.final, tmp_path), str(TYPES), choice=parse_choice(where))


@pytest.mark.parametrize("sample", ["0%", "101%", "1", "a%"])
def test_what_is_no_share_is_refused(sample: str) -> None:
    with pytest.raises(BadSettings, match="--sample is"):
        parse_choice("", sample)


# --- types at their edges ---------------------------------------------------------------------------------------------


class Edges:
    """Random tables of every type in a server, and in a lake by a changefeed."""

    def __init__(self, server: Server, directory: Path, protocol: str, seed: int, count: int) -> None:
        self.tables, self.lake, self.server = edge_tables(seed, count), MemoryLake(), server
        server.run(*statements("edges", self.tables))
        write_feed(directory, protocol, self.tables)
        settings = settings_of(directory, protocol)
        self.pipeline = Pipeline(settings, settings.open_source(), self.lake, Ledger("sqlite://"))
        assert [table.reason for table in self.pipeline.apply("test").tables if table.reason] == []

    def compared(self) -> dict[TableId, TableComparison]:
        options = VerifyOptions(quiet=True)
        comparisons = verify(self.pipeline, self.lake, read_by(self.server, "edges"), options)
        return {comparison.table: comparison for comparison in comparisons}

    def change(self, seed: int) -> set[tuple[str, str]]:
        """Give a row another value in every column but the key, without one in one column; return which changed."""
        chance, changed = random.Random(seed), set()
        for table in self.lake.tables.values():
            rows, schema = table.rows.to_pylist(), table.schema
            names = [column.name for column in schema.stored if column.name not in schema.key]
            chance.shuffle(names)
            for name in names if schema.key else names[:1]:
                row = chance.choice(rows)
                others = [other_row[name] for other_row in rows if other_row[name] != row[name]]
                if others and table.name is not None:
                    row[name] = chance.choice(others)
                    changed.add((table.name.table, name if schema.key else ""))
            table.rows = pa.Table.from_pylist(rows, table.rows.schema)
        return changed


@pytest.mark.parametrize(
    ("protocol", "seed", "count"),
    [("csv", 1, 5), ("canal-json", 2, 5)]
    + [pytest.param(protocol, seed, 20, marks=pytest.mark.soak) for protocol in PROTOCOLS for seed in range(10, 16)],
)
def test_tables_of_every_type_at_its_edges_are_equal_and_every_changed_value_is_found(
    protocol: str, seed: int, count: int, mariadb: Server, tmp_path: Path
) -> None:
    edges = Edges(mariadb, tmp_path, protocol, seed, count)
    comparisons = edges.compared()
    assert [comparison for comparison in comparisons.values() if comparison.state != EQUAL] == []
    assert {name: (comparison.lake_rows, comparison.left_out) for name, comparison in comparisons.items()} == {
        table.name: (len(table.rows), {}) for table in edges.tables
    }
    assert {loss.split(": ")[1] for comparison in comparisons.values() for loss in comparison.losses} <= {
        AMBIGUOUS_TIME,
        ZERO_DATE,
    }
    changed = edges.change(seed)
    named = {
        (comparison.table.table, value.column if value else "")
        for comparison in edges.compared().values()
        for row in comparison.rows
        for value in row.values or [None]
    }
    assert (named, len(changed) > count) == (changed, True)


# --- faults -----------------------------------------------------------------------------------------------------------

TYPES = TableId("types", "all_types")


def test_a_fault_in_each_column_of_every_type_is_named(tmp_path: Path) -> None:
    applied = Applied(CONFIGS["A_all_types/csv-ts"])
    source = dumped_at(applied.final, tmp_path)
    right = applied.rows_of(TYPES)
    rows, wanted = right.to_pylist(), set()
    for number, column in enumerate(name for name in right.column_names if name not in ("id", "_cdc_commit_ts")):
        row = next(row for row in rows[number % len(rows) :] + rows if row[column] is not None)
        others = [other[column] for other in rows if other[column] not in (None, row[column])]
        row[column] = others[number % len(others)] if others else None
        wanted.add((str(row["id"]), column))
    applied.put(TYPES, pa.Table.from_pylist(rows, right.schema))
    (comparison,) = applied.compared(source, str(TYPES)).values()
    assert {(row.key["id"], value.column) for row in comparison.rows for value in row.values} == wanted
    assert (comparison.state, comparison.missing, comparison.extra, comparison.losses) == (DIFFERENT, 0, 0, {})


def test_rows_that_are_missing_and_rows_too_many_are_named(tmp_path: Path) -> None:
    applied = Applied(CONFIGS["A_all_types/csv-ts"])
    source = dumped_at(applied.final, tmp_path)
    right = applied.rows_of(TYPES)
    applied.put(TYPES, pa.concat_tables([right.slice(1), right.slice(5, 1)]))
    (comparison,) = applied.compared(source, str(TYPES)).values()
    ids = right["id"].to_pylist()
    assert {(row.kind, row.key["id"]) for row in comparison.rows} == {("missing", str(ids[0])), ("extra", str(ids[5]))}


def test_a_column_that_is_cut_is_named_and_the_others_are_compared(tmp_path: Path) -> None:
    applied = Applied(CONFIGS["A_all_types/csv-ts"])
    source = dumped_at(applied.final, tmp_path)
    applied.put(TYPES, applied.rows_of(TYPES).drop_columns(["dc"]))
    (comparison,) = applied.compared(source, str(TYPES)).values()
    assert (comparison.state, comparison.columns) == (DIFFERENT, ('"dc" is not in the lake',))
    assert (comparison.rows, comparison.source_rows) == ((), comparison.lake_rows)


def test_a_table_that_is_not_applied_or_not_at_the_source_is_not_compared(tmp_path: Path) -> None:
    applied = Applied(CONFIGS["D_keys/csv-ts"])
    dump_of(applied.final, tmp_path)
    next(tmp_path.glob("keysdb.pk_int-schema.sql")).unlink()
    for file in tmp_path.glob("keysdb.pk_int.*"):
        file.unlink()
    source = connect_dump(opener(tmp_path), DumpOptions())
    comparisons = applied.compared(lambda at: source, "keysdb.nokey", "keysdb.pk_int")
    assert {name.table: (comparison.state, comparison.reason) for name, comparison in comparisons.items()} == {
        "nokey": (NOT_COMPARED, f"it is not applied through {applied.final.ts}. Apply the changefeed first."),
        "pk_int": (NOT_COMPARED, "the source does not show such a table: it has none, or its user may not see it."),
    }
    with pytest.raises(BadSettings, match=r"no table is called keysdb\.nothing"):
        applied.compared(lambda at: source, "keysdb.nothing")


@pytest.mark.parametrize(("above", "state"), [(1, DIFFERENT), (0, NOT_COMPARED)])
def test_a_table_that_differs_does_so_while_the_changefeed_goes_on(
    above: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DDL that is listed late is another matter: the table was not what it should have been."""
    applied = Applied(CONFIGS["A_all_types/csv-ts"])
    source, plans = dumped_at(applied.final, tmp_path), [applied.pipeline.planner.plan()]
    applied.put(TYPES, applied.rows_of(TYPES).slice(1))
    listing, plan = plans[0]
    life = next(life for life, table in applied.lake.tables.items() if table.name == TYPES)
    table, hi = applied.lake.tables[life], applied.final.ts + above
    step: Step = ChangeTable(life, hi, (), table.schema, table.schema)
    if above:
        step = ApplyRows(life, applied.final.ts, hi, (), RowReading(), table.schema, table.ddl)
    plans.append((listing, replace(plan, steps=(step,), checkpoint=hi)))
    monkeypatch.setattr(applied.pipeline.planner, "plan", lambda: plans.pop(0))
    assert applied.compared(source, str(TYPES))[TYPES].state == state


def test_an_empty_directory_is_no_dump_and_no_matter_of_garbage_collection(tmp_path: Path) -> None:
    applied, source = Applied(CONFIGS[PARTITIONS]), connect_dump(opener(tmp_path), DumpOptions())
    with pytest.raises(BucketMissing, match=r"holds nothing; expected the directory .* may be listed\.$"):
        applied.compared(lambda at: source)


def test_a_dump_of_another_time_is_not_compared(tmp_path: Path) -> None:
    applied = Applied(CONFIGS[PARTITIONS])
    earlier = applied.config.checkpoints[0]
    comparisons = applied.compared(dumped_at(earlier, tmp_path))
    assert {comparison.state for comparison in comparisons.values()} == {NOT_COMPARED}
    assert f"above {earlier.ts}" in comparisons[TableId("part", "r")].reason


class CutThen:
    """A recorded changefeed with a cut at its first checkpoint, applied to its end."""

    def __init__(self) -> None:
        self.applied = Applied(CONFIGS[PARTITIONS], through=0)
        self.then, made = self.applied.config.checkpoints[0], make_cut(self.applied.pipeline, "then")
        assert made.at == self.then.ts
        self.applied.go_on()
        self.names = {table.name for table in made.taken}


@pytest.mark.parametrize("named", ["", "then"])
def test_a_dump_is_compared_with_tables_as_they_are_in_a_cut_of_its_tso(named: str, tmp_path: Path) -> None:
    shop = CutThen()
    comparisons = shop.applied.compared(dumped_at(shop.then, tmp_path), cut=named)
    equal = {name for name, comparison in comparisons.items() if comparison.state == EQUAL}
    assert equal == shop.names
    assert {comparisons[name].cut for name in equal} == {"then"}
    assert {comparisons[name].at for name in equal} == {shop.then.ts}
    assert shop.applied.pipeline.ledger.comparisons(shop.applied.pipeline.settings.name).keys() & equal == set()
    life = next(life for life, table in shop.applied.lake.tables.items() if table.tags["then"][2].num_rows)
    number, at, rows = shop.applied.lake.tables[life].tags["then"]
    shop.applied.lake.tables[life].tags["then"] = (number, at, rows.slice(1))
    comparisons = shop.applied.compared(dumped_at(shop.then, tmp_path / "again"), cut=named, repair=not named)
    (wrong,) = (comparison for comparison in comparisons.values() if comparison.state == DIFFERENT)
    assert (wrong.missing, "was compared in a cut" in wrong.repair) == (1, not named)


def test_a_cut_is_compared_with_a_source_of_its_own_time_only(tmp_path: Path) -> None:
    shop = CutThen()
    dump = dumped_at(shop.then, tmp_path / "then")
    for options, sentence in (
        ({"cut": "now"}, "there is no cut now; known are then"),
        ({"cut": "then", "quiet": True}, "--quiet is of a source as it is now"),
        ({"cut": "then", "repair": True}, "--repair writes into tables of now"),
    ):
        with pytest.raises(BadSettings, match=sentence):
            shop.applied.compared(dump, **options)
    with pytest.raises(BadSettings, match="Give a dump of that TSO"):
        shop.applied.compared(dumped_at(shop.applied.final, tmp_path / "final"), cut="then")
    with pytest.raises(BadSettings, match="one of the tables of the cut"):
        shop.applied.compared(dump, "part.nothing", cut="then")


@pytest.mark.usefixtures("ranges")
def test_the_snapshot_of_a_large_table_is_kept_while_it_is_read(tmp_path: Path) -> None:
    applied, pins = Applied(CONFIGS["A_all_types/csv-ts"]), list[int]()
    say = partial(list.append, pins)
    applied.say = lambda table, side, rows: say(len(applied.lake.pins))  # type: ignore[method-assign]
    applied.compared(dumped_at(applied.final, tmp_path), str(TYPES))
    assert ({*pins}, applied.lake.pins) == ({1}, [])


def test_a_null_that_stands_for_a_zero_date_on_both_sides_is_a_counted_loss(tmp_path: Path) -> None:
    applied = Applied(CONFIGS["A_all_types/csv-ts"])
    (comparison,) = applied.compared(dumped_at(applied.final, tmp_path), "types.zerodates").values()
    assert (comparison.state, comparison.losses) == (EQUAL, {f"{column}: {ZERO_DATE}": 2 for column in ("d", "dt")})


# --- losses -----------------------------------------------------------------------------------------------------------

INSTANT, EARLIER = (datetime(2024, 10, 27, hour, 30, tzinfo=timezone.utc) for hour in (1, 0))


@pytest.mark.parametrize(
    ("column", "rules", "lake", "source", "loss"),
    [
        (Column("t", "TIMESTAMP"), (), EARLIER, INSTANT, AMBIGUOUS_TIME),
        (Column("t", "TIMESTAMP"), (), INSTANT, EARLIER, ""),
        (Column("t", "TIMESTAMP"), (), EARLIER, INSTANT.replace(minute=31), ""),
        (Column("j", "JSON"), (), '{"a":1,"b":[1.50]}', '{"b": [1.5], "a": 1}', SAME_JSON),
        (Column("j", "JSON"), (), '{"a":1}', '{"a": 2}', ""),
        (Column("j", "JSON"), (), '{"a":true}', '{"a": 1}', ""),
        (Column("j", "JSON"), (), None, "null", ""),
        (Column("j", "JSON"), (), '{"a":{}}', '{"a": []}', ""),
        (Column("f", "FLOAT"), (SIX_DIGITS,), 1.2345679e20, 1.23457e20, SIX_DIGITS),
        (Column("f", "FLOAT"), (SIX_DIGITS,), 1.2345679e20, 1.2e20, ""),
        (Column("f", "FLOAT"), (SIX_DIGITS,), 1.2345679e-20, 1.23457e-20, SIX_DIGITS),
        (Column("f", "FLOAT"), (SIX_DIGITS,), 100000.1, 100000.2, ""),
        (Column("j", "JSON"), (), f'{{"a":1.{"3" * 30}1}}', f'{{"a": 1.{"3" * 30}2}}', ""),
        (Column("c", "TEXT"), (NULL_OR_TEXT,), None, "\\N", NULL_OR_TEXT),
        (Column("c", "TEXT"), (NULL_OR_TEXT,), None, "text", ""),
        (Column("n", "INT", default="7"), (DEFAULTED,), 7, None, DEFAULTED),
        (Column("n", "INT", default="7"), (DEFAULTED,), 8, None, ""),
        (Column("n", "DATE", nullable=False), (MAYBE_ZERO_DATE,), date(1970, 1, 1), None, MAYBE_ZERO_DATE),
        (Column("n", "DATE", default="2020-01-01"), (MAYBE_ZERO_DATE,), date(2020, 1, 1), None, MAYBE_ZERO_DATE),
        (Column("n", "DATETIME", nullable=False), (MAYBE_ZERO_DATE,), datetime(1970, 1, 1), None, MAYBE_ZERO_DATE),
        (Column("n", "DATE", nullable=False), (MAYBE_ZERO_DATE,), date(1970, 1, 2), None, ""),
        (Column("n", "INT"), (), None, 5, ""),
        (Column("d", "DATE"), (OTHER_CENTURY,), date(2001, 2, 28), date(1, 2, 28), OTHER_CENTURY),
        (Column("d", "DATE"), (OTHER_CENTURY,), date(2001, 2, 28), date(1, 3, 28), ""),
        (Column("d", "DATE"), (OTHER_CENTURY,), date(2001, 2, 28), date(1901, 2, 28), ""),
        (Column("d", "DATE"), (ZERO_DATE,), None, date(2001, 2, 28), ""),
        (Column("m", "DECIMAL", precision=20, scale=0), (TOO_LARGE,), None, Decimal("9" * 20), TOO_LARGE),
        (Column("m", "DECIMAL", precision=20, scale=0), (TOO_LARGE,), None, Decimal("1" * 20), ""),
        (Column("m", "DECIMAL", precision=65, scale=2), (TOO_LARGE,), None, f"{'9' * 63}.99", TOO_LARGE),
        (Column("m", "DECIMAL", precision=65, scale=2), (TOO_LARGE,), None, "5.00", ""),
        (
            Column("m", "DECIMAL", precision=20, scale=2),
            (ROUNDED,),
            Decimal("123456789012345680.00"),
            Decimal("123456789012345678.90"),
            ROUNDED,
        ),
        (
            Column("m", "DECIMAL", precision=20, scale=2),
            (ROUNDED,),
            Decimal("123456789012345.66"),
            Decimal("123456789012345.67"),
            "",
        ),
        (Column("m", "DECIMAL", precision=40, scale=2), (ROUNDED,), f"1{'0' * 20}.00", f"1{'0' * 20}.01", ROUNDED),
        (Column("m", "DECIMAL", precision=40, scale=2), (ROUNDED,), "5.00", "5.01", ""),
        (Column("f", "FLOAT"), (LOST_FLOAT,), None, 1.5, LOST_FLOAT),
        (Column("f", "FLOAT"), (LOST_FLOAT,), 1.25, 1.5, ""),
        (Column("c", "TEXT"), (BAD_UTF8,), "a\ufffd\ufffdb\ufffd", "a\ufffdb\ufffd", BAD_UTF8),  # E2 82, by Go and here
        (Column("c", "TEXT"), (BAD_UTF8,), "\ufffd" * 3, "\ufffd", BAD_UTF8),
        (Column("c", "TEXT"), (BAD_UTF8,), "\ufffd" * 4, "\ufffd", ""),
        (Column("c", "TEXT"), (BAD_UTF8,), "a\ufffdb", "a\ufffd\ufffdc", ""),
        (Column("c", "TEXT"), (BAD_UTF8,), "caf\ufffd 1\ufffd", "café 1€", BAD_UTF8),
        (Column("c", "TEXT"), (BAD_UTF8,), "\ufffd\ufffd\ufffd\ufffd", "汉字", BAD_UTF8),
        (Column("c", "TEXT"), (BAD_UTF8,), "caf\ufffd", "cafés", ""),
        (Column("c", "TEXT"), (BAD_UTF8,), "a\ufffdb\ufffd\ufffd", "a€b", ""),
        (Column("c", "TEXT"), (BAD_UTF8,), "a\ufffdb", "a€c", ""),
        (Column("c", "TEXT"), (BAD_UTF8,), "\ufffd", "any text", ""),
        (Column("c", "TEXT"), (BAD_UTF8,), "\ufffd", "", ""),
        (Column("c", "TEXT"), (BAD_UTF8,), "a", "b", ""),
        (Column("c", "TEXT"), (NULL_OR_ZERO_DATE, OUT_OF_RANGE), None, "text", ""),
        (Column("g", "INT"), (f"{MADE_NULL}it is generated",), None, 5, f"{MADE_NULL}it is generated"),
        (Column("g", "INT"), (f"{MADE_NULL}it is generated",), 6, 5, ""),
    ],
)
def test_only_the_loss_itself_explains_a_value(
    column: Column, rules: tuple[str, ...], lake: object, source: object, loss: str
) -> None:
    assert loss_between(column, rules, "Europe/Berlin", lake, source) == loss


def test_every_loss_that_explains_a_value_leaves_another_one_that_it_does_not() -> None:
    marks = [mark for mark in test_only_the_loss_itself_explains_a_value.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    cases = [case for mark in marks for case in mark.args[1]]
    explained = {rule for *_, rule in cases if rule}
    refused = {rule for _, rules, _, _, loss in cases if not loss for rule in rules}
    assert {*losses._RULES} <= explained & refused


def test_a_value_that_a_ddl_left_to_guess_explains_that_value_alone() -> None:
    at, column = 7, Column("n", "INT")
    added = (at, (AddColumn(column, "5", "it is a guess"),))
    guess = guesses([added])["n"]
    assert (is_guess(guess, 5), is_guess(guess, 6), is_guess(None, 5)) == (True, False, False)
    converted = guesses([added, (at + 1, (RetypeColumn(column, Column("n", "VARCHAR", precision=9)),))])["n"]
    assert is_guess(converted, "5")
    assert "it is a guess" in converted.text


MASKED_NOW = [
    ({"shop.whole.mail": {"redact": "domain"}, "shop.whole.note": "drop", "shop.whole.card": None}, {"v"}),
    ({"shop.whole.mail": {"redact": "last4"}}, {"v", "card", "note"}),
]


@pytest.mark.parametrize(("privacy", "same"), MASKED_NOW)
def test_columns_that_were_masked_otherwise_in_a_cut_are_left_out_and_the_others_compared(
    tmp_path: Path, privacy: dict[str, Any], same: set[str]
) -> None:
    mended = Mended(tmp_path, MemoryLake(), ["whole"])
    make_cut(mended.pipeline(), "then")
    mended.more["privacy"] = privacy
    other = [column.partition("whole.")[2] for column in privacy]
    comparison = mended.compared(cut="then")["whole"]
    assert (comparison.state, comparison.columns, sorted(comparison.left_out)) == (EQUAL, (), sorted(other))
    assert all("masked otherwise" in reason for reason in comparison.left_out.values())
    mended.differ()
    comparison = mended.compared(cut="then")["whole"]
    assert (comparison.state, comparison.missing, comparison.differing) == (DIFFERENT, 1, 1)
    assert {value.column for row in comparison.rows for value in row.values} <= {"k", *same}


def test_a_key_that_was_masked_otherwise_in_a_cut_is_not_compared(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MASK_KEY", "a key of masks")
    mended = Mended(tmp_path, MemoryLake(), ["whole"])
    make_cut(mended.pipeline(), "then")
    mended.more["privacy"] = {"shop.whole.k": {"hash": {"key": {"env": "MASK_KEY"}}}}
    comparison = mended.compared(cut="then")["whole"]
    assert (comparison.state, '"k"' in comparison.reason, "masked otherwise" in comparison.reason) == (
        NOT_COMPARED,
        True,
        True,
    )


def test_rows_from_before_a_mask_are_no_difference_and_are_not_repaired(tmp_path: Path) -> None:
    mended = Mended(tmp_path, MemoryLake(), ["whole"])
    mended.more["privacy"] = {"shop.whole.mail": None}
    (hold,) = mended.pipeline().planner.plan()[1].steps
    release(mended.pipeline(), "shop.whole", hold.at, "new-settings")
    mended.feed.write([("U", "whole", 2, "later")])
    mended.apply()
    before = mended.lake.read(TableId("shop", "whole"))
    comparison = mended.compared(repair=True)["whole"]
    assert (comparison.state, list(comparison.left_out)) == (EQUAL, ["mail"])
    assert mended.lake.read(TableId("shop", "whole")) == before


@pytest.mark.parametrize(
    ("lists", "left"),
    [
        ({}, {"other.x", "public.y"}),
        ({"database.include.list": "public"}, {"public.y"}),
        ({"database.exclude.list": "oth.*"}, {"public.y"}),
        ({"schema.include.list": "public"}, {"public.y"}),
        ({"table.include.list": "public.t,public.z"}, set()),
        ({"table.include.list": r"public\.t, PUBLIC\.[xy]{1\,2}"}, {"public.y"}),
        ({"table.exclude.list": ".*[.]x"}, {"public.y"}),
        ({"database.include.list": "public", "table.exclude.list": "public.y"}, set()),
    ],
    ids=lambda _: None,
)
def test_tables_that_the_connector_s_lists_leave_out_are_none_of_the_changefeed_s(
    lists: Mapping[str, str], left: set[str], tmp_path: Path
) -> None:
    source, config = MariaDb(), tmp_path / "connector.json"
    config.write_text(json.dumps({"connector.class": "MariaDbConnector", "topic.prefix": "mx", **lists}))
    uri = "kafka://127.0.0.1:9092/mx?protocol=debezium-json"
    source.feed = TopicFeed.of(source.log, sink_uri=uri, changefeed_config=config, name="c")
    source.ddl("CREATE TABLE t (id INT PRIMARY KEY)")
    source.row(id=1)
    assert source.applied() == []
    into = tmp_path / "dump"
    into.mkdir()
    (into / "metadata").write_text(
        "Started dump at: 2026-01-01 00:00:00\nSHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: 461000000000000000\n"
        "\tGTID:\n\nFinished dump at: 2026-01-01 00:00:01\n"
    )
    for name in ("public.t", "public.y", "other.x"):
        database, _, table = name.partition(".")
        (into / f"{database}-schema-create.sql").write_text(f"CREATE DATABASE `{database}`;\n")
        (into / f"{name}-schema.sql").write_text(f"CREATE TABLE `{table}` (`id` INT PRIMARY KEY);\n")
        (into / f"{name}.000000000.sql").write_text(f"INSERT INTO `{table}` VALUES\n(1);\n")
    server = connect_dump(opener(into), DumpOptions())
    feed = source.feed
    comparisons = verify(
        feed.pipeline(), feed.lake, lambda _: server, VerifyOptions(quiet=True), (), say=lambda *_: None
    )
    assert {str(comparison.table) for comparison in comparisons} == {"public.t", *left}
