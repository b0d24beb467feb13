"""Tables repaired from their source: they are equal to it then, and so are what stands beside them and what follows."""

from __future__ import annotations

import json
import random
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.decoding import FILE
from cdc_assets.decoding.states import END_TS
from cdc_assets.features.cuts.operations import make_cut
from cdc_assets.features.verification.operations_choice import RowChoice
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP
from cdc_assets.ledger import Ledger
from cdc_assets.model.comparison import DIFFERENT, EQUAL, REPAIRED
from cdc_assets.model.progress import Life, MissingRows
from cdc_assets.model.quarantine import QuarantinedRow
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows, RowReading
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import deficits_at
from cdc_assets_tests import keyed_feed
from cdc_assets_tests.folding import fold_differences
from cdc_assets_tests.keyed_feed import Mended
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.operations.test_verify import CONFIGS, TYPES, Applied, dumped_at
from cdc_assets_tests.states import state_differences


def with_faults(right: pa.Table, key: tuple[str, ...], seed: int) -> pa.Table:
    """Return rows of which one is missing, one is there twice, and some have another value in one column."""
    rows = right.to_pylist()
    if len(rows) < 4:
        return right.slice(1)
    columns = [name for name in right.column_names if name not in (*key, COMMIT_TS)]
    for number, name in enumerate(columns):
        row = rows[(seed + number) % len(rows)]
        others = [other[name] for other in rows if other[name] not in (None, row[name])]
        row[name] = others[number % len(others)] if others and row[name] is not None else None
    return pa.Table.from_pylist([*rows[1:], rows[2]], right.schema)


def seed(applied: Applied) -> set[TableId]:
    """Put faults into every table with rows, and return these."""
    names = set()
    for number, (life, table) in enumerate(applied.lake.tables.items()):
        if not life.kind and table.name is not None and table.rows.num_rows:
            table.rows = with_faults(table.rows, table.schema.key, number)
            names.add(table.name)
    return names


def life_of(applied: Applied, name: TableId, kind: str = "") -> Life:
    return next(
        life for life, table in applied.lake.tables.items() if life.source.born_as == name and life.kind == kind
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("A_all_types/csv-ts", "scd2"),
        ("D_keys/na-selector", "log"),
        pytest.param("E_partitions/canal-ext", "log", marks=pytest.mark.soak),
        pytest.param("E_partitions/canal-ext", "scd2", marks=pytest.mark.soak),
        pytest.param("F_names/csv-ts", "log", marks=pytest.mark.soak),
    ],
)
def test_what_differs_is_equal_once_it_is_repaired_and_its_history_with_it(
    name: str, kind: str, tmp_path: Path
) -> None:
    applied = Applied(CONFIGS[name], history={"*": kind})
    source = dumped_at(applied.final, tmp_path)
    before = {table: comparison.state for table, comparison in applied.compared(source).items()}
    labels = {life: table.progress for life, table in applied.lake.tables.items()}
    faulty = {table for table in seed(applied) if before[table] == EQUAL}
    repaired = applied.compared(source, repair=True)
    assert {table for table, comparison in repaired.items() if comparison.state == REPAIRED} == faulty
    assert {table: comparison.state for table, comparison in applied.compared(source).items()} == before
    assert {life: table.progress for life, table in applied.lake.tables.items()} == labels
    assert fold_differences(applied.lake) == []
    for life, states in applied.lake.tables.items():
        if life.kind == "scd2" and states.name is not None:
            assert list(state_differences(states.rows, states.lives, applied.lake.tables[life.source].rows)) == []


def test_a_fault_that_the_states_have_too_ends_there_with_a_state_of_the_sources_values(tmp_path: Path) -> None:
    applied = Applied(CONFIGS["A_all_types/csv-ts"], history={"*": "scd2"})
    source, life = dumped_at(applied.final, tmp_path), life_of(applied, TYPES, "scd2")
    for table in (applied.lake.tables[life.source], applied.lake.tables[life]):
        rows = table.rows.to_pylist()
        row = next(row for row in rows if row.get(END_TS) is None and row["id"] == 1)
        row["i"] = 4711
        table.rows = pa.Table.from_pylist(rows, table.rows.schema)
    count = applied.lake.tables[life].rows.num_rows
    assert applied.compared(source, str(TYPES), repair=True)[TYPES].state == REPAIRED
    states = [row for row in applied.lake.tables[life].rows.to_pylist() if row["id"] == 1]
    assert [(row["i"] == 4711, row[END_TS]) for row in states[-2:]] == [(True, applied.final.ts), (False, None)]
    assert applied.lake.tables[life].rows.num_rows == count + 1


def test_what_is_repaired_is_in_the_journal_and_in_the_log_without_its_values(tmp_path: Path) -> None:
    applied = Applied(CONFIGS["A_all_types/csv-ts"], history={"*": "log"})
    source = dumped_at(applied.final, tmp_path)
    rows = applied.rows_of(TYPES).to_pylist()
    rows[0]["vc"] = "a wrong value"
    applied.put(TYPES, pa.Table.from_pylist(rows[:-1], applied.rows_of(TYPES).schema))
    (comparison,) = applied.compared(source, str(TYPES), repair=True, run="of a test").values()
    name, text = comparison.repair.split(": ", 1)
    assert text == "2 rows; values of vc (1)"
    entries = applied.pipeline.ledger.journal(applied.pipeline.settings.name)
    journaled = [entry for entry in entries if entry.action == "repair"]
    assert {(entry.query, entry.run) for entry in journaled} == {
        (f"{name} as of {applied.final.ts}: {text}", "of a test")
    }
    log = applied.lake.tables[life_of(applied, TYPES, "log")].rows.to_pylist()
    words = [row["_change_type"] for row in log if row["_cdc_place"] == name]
    assert sorted(words) == ["INSERT", "UPDATE_AFTER", "UPDATE_BEFORE"]


def test_masked_columns_are_repaired_with_masked_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_KEY", "of a test")
    masks = {f"{TYPES}.vc": {"hash": {"key": {"env": "MASK_KEY"}}}, f"{TYPES}.c": {"redact": "last4"}}
    applied = Applied(CONFIGS["A_all_types/csv-ts"], privacy=masks, history={"*": "log"})
    source, right = dumped_at(applied.final, tmp_path), applied.rows_of(TYPES)
    rows = right.to_pylist()
    rows[0] |= {"vc": "plain", "c": "plain", "i": 4711}
    applied.put(TYPES, pa.Table.from_pylist(rows[:-1], right.schema))
    assert applied.compared(source, str(TYPES), repair=True)[TYPES].state == REPAIRED
    left = applied.rows_of(TYPES).drop_columns([COMMIT_TS]).sort_by("id")
    assert left.equals(right.drop_columns([COMMIT_TS]).sort_by("id"))
    assert len(left.column("vc")[0].as_py() or "") in (0, 64)


# --- what is not repaired ---------------------------------------------------------------------------------------------


@pytest.fixture
def faulty(tmp_path: Path) -> tuple[Applied, Any]:
    applied = Applied(CONFIGS["A_all_types/csv-ts"])
    source = dumped_at(applied.final, tmp_path)
    applied.put(TYPES, applied.rows_of(TYPES).slice(1))
    return applied, source


def refused(applied: Applied, source: Any, name: TableId = TYPES) -> str:
    before = applied.rows_of(name)
    (comparison,) = applied.compared(source, str(name), repair=True).values()
    assert comparison.state == DIFFERENT
    assert applied.rows_of(name).equals(before)
    return comparison.repair


def test_a_table_with_records_in_quarantine_is_not_repaired(faulty: tuple[Applied, Any]) -> None:
    applied, source = faulty
    life, when = life_of(applied, TYPES), datetime.now(timezone.utc)
    for line in (1, 2):
        row = QuarantinedRow(life, TYPES, "file", line, "i", "no", life.version, None, life.version, "run", when)
        applied.lake.kept[life, row.file, row.line] = row
    assert "records of it in quarantine" in refused(applied, source)


def test_a_table_whose_columns_differ_is_not_repaired(faulty: tuple[Applied, Any]) -> None:
    applied, source = faulty
    applied.put(TYPES, applied.rows_of(TYPES).drop_columns(["dc"]))
    assert "its columns differ" in refused(applied, source)


@pytest.mark.parametrize("column", ["k", "mail"])
def test_a_table_with_a_masked_column_of_another_type_in_the_source_is_not_repaired(
    column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hashes are other ones than those of the feed's values: no change of the feed would find such a row."""
    monkeypatch.setenv("MASK_KEY", "of a test")
    privacy = {f"shop.*.{name}": {"hash": {"key": {"env": "MASK_KEY"}}} for name in ("k", "mail")}
    mended, text = Mended(tmp_path, MemoryLake(), ["whole"], privacy=privacy), keyed_feed._create
    other = {"k": ("`k` INT", "`k` VARCHAR(20)"), "mail": ("`mail` VARCHAR(40)", "`mail` VARBINARY(40)")}[column]
    (table,) = mended.lake.tables.values()
    before = table.rows
    monkeypatch.setattr(keyed_feed, "_create", lambda name: text(name).replace(*other))
    comparison = mended.compared(repair=True)["whole"]
    assert (comparison.state, "its columns differ" in comparison.repair) == (DIFFERENT, True)
    assert any(f'"{column}" is ' in sentence and " in the source" in sentence for sentence in comparison.columns)
    assert table.rows.equals(before)


def test_a_table_that_was_written_to_since_is_not_repaired(faulty: tuple[Applied, Any]) -> None:
    applied, source = faulty

    def write(table: TableId, side: str, rows: int) -> None:
        lake_table = applied.lake.tables[life_of(applied, TYPES)]
        lake_table.past.append((lake_table.ddl, lake_table.rows, lake_table.recipe))

    applied.say = write  # type: ignore[method-assign]
    assert "was written to since" in refused(applied, source)


@pytest.mark.parametrize("quiet", [True, False])
def test_a_run_between_the_comparison_and_the_repair_loses_nothing(quiet: bool, tmp_path: Path) -> None:
    mended = Mended(tmp_path, MemoryLake(), ["whole"], history={"shop.whole": ["log", "scd2"]})
    mended.differ()
    ran = list[str]()

    def run(table: TableId, side: str, rows: int) -> None:
        if side == "source" and not ran:
            ran.append(side)
            mended.feed.write([("U", "whole", key, "later") for key in (1, 3)])
            mended.apply()

    comparison = mended.compared(repair=True, quiet=quiet, say=run)["whole"]
    assert (comparison.state, "another run moved it on" in comparison.repair) == (DIFFERENT, True)
    tables = {life.kind: table for life, table in mended.lake.tables.items()}
    later = {kind: [row for row in table.rows.to_pylist() if row["v"] == "later"] for kind, table in tables.items()}
    assert {kind: len(rows) for kind, rows in later.items()} == {"": 2, "log": 2, "scd2": 2}
    assert "repair" not in {str(row["_cdc_place"])[:6] for row in tables["log"].rows.to_pylist()}
    assert mended.compared(repair=True)["whole"].state == REPAIRED
    assert mended.compared()["whole"].state == EQUAL
    assert fold_differences(mended.lake) == []
    assert list(state_differences(tables["scd2"].rows, tables["scd2"].lives, tables[""].rows)) == []


def test_a_row_too_many_whose_key_another_row_has_by_its_collation_leaves_alone(tmp_path: Path) -> None:
    mended = Mended(tmp_path, MemoryLake(), ["folded"], history={"shop.folded": ["log", "scd2"]})
    table = next(table for life, table in mended.lake.tables.items() if not life.kind)
    rows = table.rows.to_pylist()
    table.rows = pa.Table.from_pylist([*rows, {**rows[0], "k": "ANT"}, {**rows[0], "k": "Ant"}], table.rows.schema)
    comparison = mended.compared(repair=True)["folded"]
    assert (comparison.state, comparison.extra) == (REPAIRED, 2)
    assert mended.compared()["folded"].state == EQUAL
    assert fold_differences(mended.lake) == []
    states = next(table for life, table in mended.lake.tables.items() if life.kind == "scd2")
    assert list(state_differences(states.rows, states.lives, table.rows)) == []


def test_a_rebuild_names_the_repairs_that_it_loses(tmp_path: Path) -> None:
    applied = Applied(CONFIGS["E_partitions/canal-ext"])
    source, name = dumped_at(applied.final, tmp_path), TableId("part", "r")
    applied.put(name, applied.rows_of(name).slice(1))
    repaired = applied.compared(source, str(name), repair=True)[name].repair.partition(": ")[0]
    lines = list[str]()
    rebuild(applied.pipeline, MemoryRebuilds(applied.lake), [str(name)], "run", lines.append)
    lost = f"without 1 repair of before: {repaired}"
    assert any(lost in line for line in lines)
    entries = applied.pipeline.ledger.journal(applied.pipeline.settings.name)
    assert [entry.life for entry in entries if lost in entry.query] == [str(life_of(applied, name))]
    lines.clear()
    rebuild(applied.pipeline, MemoryRebuilds(applied.lake), [str(name)], "run", lines.append)
    assert not any("repair" in line for line in lines)


@pytest.mark.parametrize("kind", ["", "log", "scd2"])
def test_a_table_that_had_a_repair_is_rebuilt_with_all_that_stand_beside_it(kind: str, tmp_path: Path) -> None:
    mended = Mended(tmp_path, MemoryLake(), ["folded"], history={"shop.*": ["log", "scd2"]})
    table = next(
        table for life, table in mended.lake.tables.items() if not life.kind and life.born_as.table == "folded"
    )
    table.rows = table.rows.slice(1)
    assert mended.compared(repair=True)["folded"].state == REPAIRED
    repaired = {life for life, table in mended.lake.tables.items() if table.repaired >= 0}
    assert {life.kind for life in repaired} == {"", "log", "scd2"}
    name = f"shop.folded__{kind}" if kind else "shop.folded"
    done = rebuild(mended.pipeline(), MemoryRebuilds(mended.lake), [name], "run", lambda _: None)
    assert {swapped.life for swapped in done} == repaired
    assert fold_differences(mended.lake) == []
    assert {table.repaired for table in mended.lake.tables.values()} == {-1}


@pytest.mark.parametrize("kinds", [[], ["log", "scd2"]], ids=["mirror", "with history"])
def test_a_table_of_which_a_window_proved_missing_rows_is_complete_once_it_is_repaired(
    kinds: list[str], tmp_path: Path
) -> None:
    mended = Mended(tmp_path, MemoryLake(), ["folded"], history={"shop.*": kinds} if kinds else {})
    mended.lake.may_lack_rows = True
    table = next(table for life, table in mended.lake.tables.items() if not life.kind)
    lost = table.rows.column("k")[0].as_py()
    table.rows, table.missing = table.rows.slice(1), MissingRows(table.ddl + 1, 1, lost, "a file")
    (comparison,) = mended.compared().values()
    assert (comparison.state, comparison.missing) == (DIFFERENT, 1)
    (outcome,) = [table for table in mended.pipeline().apply("test").tables if not table.life.kind]
    assert outcome.gap is not None
    assert "verify --repair" in outcome.incomplete
    assert mended.compared(repair=True)["folded"].state == REPAIRED
    assert [table.gap for table in mended.lake.tables.values()] == [None] * (1 + len(kinds))
    assert [table.gap for table in mended.pipeline().apply("test").tables] == [None] * (1 + len(kinds))
    assert mended.compared()["folded"].state == EQUAL
    mended.feed.rows["folded"].append(("past the log", "x"))  # by a tool, once more
    mended.feed.write([("D", "folded", "past the log", "x")])
    mended.apply()
    assert all(table.gap is not None for table in mended.pipeline().apply("test").tables)


@pytest.mark.parametrize("kinds", [[], ["log", "scd2"]], ids=["mirror", "with history"])
@pytest.mark.parametrize("emptied", [True, False])
def test_a_gap_that_a_decision_made_ends_with_a_repair_of_all_rows(
    kinds: list[str], tmp_path: Path, *, emptied: bool
) -> None:
    more = {"history": {"shop.*": kinds} if kinds else {}, "policies": {"truncate table": "skip"}}
    mended = Mended(tmp_path, MemoryLake(), ["folded"], **more)
    mended.feed.at += 1 << 18
    mended.feed.ddl("folded", "TRUNCATE TABLE `folded`", 11)
    if emptied:
        mended.feed.rows["folded"].clear()
    mended.apply()

    def gaps() -> set[bool]:
        return {table.gap is not None for table in mended.pipeline().apply("test").tables}

    assert gaps() == {True}
    assert mended.compared(choice=RowChoice(one_of=2), repair=True)["folded"].state in (EQUAL, REPAIRED)
    assert gaps() == {True}
    assert mended.compared(repair=True)["folded"].state == REPAIRED
    assert gaps() == {False}
    assert mended.compared()["folded"].state == EQUAL
    planned = mended.pipeline().planner.plan()[1]
    assert all(deficits_at(mended.lake, planned, life, mended.feed.at - 1) for life in mended.lake.tables)
    mended.apply()
    assert make_cut(mended.pipeline(), "sound", whole=True).exact
    assert fold_differences(mended.lake) == []


@pytest.mark.soak
@pytest.mark.parametrize("number", range(10))
def test_more_than_a_thousand_seeded_faults_are_named_and_repaired(number: int, tmp_path: Path) -> None:
    applied, chance = Applied(CONFIGS["A_all_types/csv-ts"]), random.Random(number)
    source, right = dumped_at(applied.final, tmp_path), applied.rows_of(TYPES)
    rows, wanted = right.to_pylist(), set()
    columns = [name for name in right.column_names if name not in ("id", COMMIT_TS)]
    known = {name: {repr(value): value for value in right.column(name).to_pylist()} for name in columns}
    for row in rows:
        for column in chance.sample(columns, 20):
            others = [value for value in known[column].values() if value not in (None, row[column])]
            if column == "js":  # the same JSON in other words is no fault
                others = [text for text in others if json.loads(text) != json.loads(row[column] or "null")]
            if others and row[column] is not None:
                row[column] = chance.choice(others)
                wanted.add(("differing", str(row["id"]), column))
    for _ in range(30):
        row = dict(chance.choice(rows), id=chance.randrange(1 << 40, 1 << 50))
        rows.append(row)
        wanted.add(("extra", str(row["id"]), ""))
    for row in chance.sample(rows[: right.num_rows], 30):
        rows.remove(row)
        wanted = {difference for difference in wanted if difference[1] != str(row["id"])} | {
            ("missing", str(row["id"]), "")
        }
    applied.put(TYPES, pa.Table.from_pylist(rows, right.schema))
    (comparison,) = applied.compared(source, str(TYPES), shown=1000, repair=True).values()
    named = {
        (row.kind, row.key["id"], value.column if value else "")
        for row in comparison.rows
        for value in row.values or [None]
    }
    assert (comparison.state, named ^ wanted, len(wanted) > 100) == (REPAIRED, set(), True)
    assert applied.compared(source, str(TYPES))[TYPES].state == EQUAL


@pytest.mark.parametrize("kind", ["log", "scd2"])
@pytest.mark.parametrize("was_there", [False, True], ids=["new", "switched off"])
def test_a_history_table_that_a_repair_passed_over_is_not_built_from_the_feed_as_if_it_had_the_repair(
    kind: str, was_there: bool, tmp_path: Path
) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")

    def applied(at: int, *rows: tuple[str, int, int | str, str], **history: str) -> dict[str, str]:
        feed.rows("s.t", FIRST, rows)
        feed.publish(FIRST + at)
        outcome = feed.pipeline_into(lake, ledger, history=history).apply("test")
        return {str(table.name): table.reason for table in outcome.tables}

    feed.create("s.t")
    applied(10, ("I", FIRST + 1, 1, "one"), **({"s.t": kind} if was_there else {}))
    applied(20, ("I", FIRST + 12, 2, "two"))
    mirror, other = Life(TableId("s", "t"), FIRST), Life(TableId("s", "t"), FIRST, kind)
    schema, images = lake.tables[mirror].schema, lake.tables[mirror].rows.slice(0, 1)
    own = {OP: [1], LINE: [1], FILE: [0]}
    fixed = images.set_column(1, "v", pa.array(["of the source"]))
    for name, values in own.items():
        fixed = fixed.append_column(name, pa.array(values, pa.int8() if name == OP else pa.int64()))
    step = ApplyRows(mirror, FIRST + 20, FIRST + 20, (), RowReading(), schema, FIRST)
    lake.repair(step, fixed, "repair:of-a-test")
    reasons = applied(30, ("U", FIRST + 21, 2, "zwei"), **{"s.t": kind})
    if was_there:
        assert "a repair (verify --repair) gave its mirror rows" in reasons[f"s.t__{kind}"]
        del lake.tables[other]
        reasons = applied(40, ("U", FIRST + 31, 2, "drei"), **{"s.t": kind})
    assert set(reasons.values()) == {""}
    assert (lake.tables[other].since or 0) >= FIRST + 20
    assert applied(50, ("U", FIRST + 41, 2, "vier"), **{"s.t": kind})[f"s.t__{kind}"] == ""
