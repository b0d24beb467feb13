"""A person decides a held DDL: the lake keeps the decision, and the next run follows it. On the lake in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from cdc_assets.cli import commands
from cdc_assets.errors import BadSettings
from cdc_assets.lake import LakeState
from cdc_assets.lake.namespaces import format_decision, parse_decisions
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life
from cdc_assets.model.releases import Release, SettingsChange, releases_of
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import HoldTable
from cdc_assets.model.tso import Tso
from cdc_assets.operations.release import decide, propose_release, release, undo
from cdc_assets.pipeline.outcome import Outcome, TableOutcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.report.plan_text import describe_plan, step_title
from cdc_assets.report.text import step_lines
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.schema_documents import document, file_column, write_schema

ORDERS = TableId("shop", "orders")
LIFE = Life(ORDERS, 100)
CREATE = "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY,`n` INT)"
TOML = '[sink]\nterminator = "\\n"\n[sink.csv]\ninclude-commit-ts = true\n'
KEY = {"ColumnType": "BIGINT", "ColumnPrecision": "20", "ColumnNullable": "false", "ColumnIsPk": "true"}
Columns = list[dict[str, str]]


def columns(*names: str) -> Columns:
    """`id` is the key, the others are INT."""
    others: Columns = [file_column(name, "INT", "11") for name in names]
    return [{"ColumnName": "id", **KEY}, *others]


def row(op: str, ts: Tso, *values: object, table: str = "orders") -> str:
    return ",".join([f'"{op}"', f'"{table}"', '"shop"', str(ts), *map(str, values)])


@dataclass
class Feed:
    """A changefeed's prefix that a test writes, and the pipeline over it."""

    path: Path
    lake: MemoryLake = field(default_factory=MemoryLake)
    ledger: Ledger = field(default_factory=lambda: Ledger("sqlite://"))
    policies: dict[str, str] = field(default_factory=dict)

    def schema(self, version: Tso, query: str, kind: int, listed: Columns, table: str = "orders") -> None:
        write_schema(self.path, document("shop", table, version, Query=query, Type=kind, TableColumns=listed))

    def data(self, version: Tso, number: int, *lines: str, table: str = "orders") -> None:
        self._write(f"shop/{table}/{version}/CDC{number:020d}.csv", "".join(f"{line}\n" for line in lines))

    def _write(self, path: str, text: str) -> None:
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        (self.path / path).write_text(text)

    def checkpoint(self, tso: Tso) -> None:
        self._write("metadata", json.dumps({"checkpoint-ts": tso}))

    @property
    def uri(self) -> str:
        return f"{self.path}?protocol=csv&date-separator=none"

    def pipeline(self) -> Pipeline:
        config = self.path.parent / "changefeed.toml"
        config.write_text(TOML)
        given: Mapping[str, Any] = {"policies": self.policies}
        settings = ChangefeedSettings(sink_uri=SecretStr(self.uri), changefeed_config=config, **given)
        return Pipeline(settings, settings.open_source(), self.lake, self.ledger)

    def apply(self, checkpoint: Tso) -> Outcome:
        self.checkpoint(checkpoint)
        return self.pipeline().apply("run")

    def table(self, outcome: Outcome, name: str = "orders") -> TableOutcome:
        return next(table for table in outcome.tables if table.name.table == name)

    def rows(self, name: str = "orders") -> list[dict[str, Any]]:
        lake_rows = self.lake.read(TableId("shop", name)).drop_columns(["_cdc_commit_ts"]).to_pylist()
        return sorted(lake_rows, key=lambda lake_row: int(lake_row["id"]))


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """A table of two rows."""
    made = Feed(tmp_path / "feed")
    made.schema(100, CREATE, 3, columns("n"))
    made.data(100, 1, row("I", 110, 1, 5), row("I", 111, 2, 6))
    return made


@pytest.fixture
def hidden(feed: Feed) -> Feed:
    """The same after a DDL that an event filter hides: `n` is gone, `m` is new, and a row came after it."""
    feed.schema(200, "", 0, columns("m"))
    feed.data(200, 1, row("I", 210, 3, 7))
    return feed


# --- what each way does -----------------------------------------------------------------------------------------------


def test_a_held_table_keeps_what_it_has_and_names_the_ways_out(hidden: Feed) -> None:
    outcome = hidden.apply(300)
    table = hidden.table(outcome)
    assert (table.state, table.through) == ("held", 199)
    assert hidden.rows() == [{"id": 1, "n": 5}, {"id": 2, "n": 6}]
    assert [way.split(": ")[-1] for way in table.ways if "cdc-assets" in way] == [
        'cdc-assets release shop.orders 200 --apply "DDL"',
        "cdc-assets release shop.orders 200 --skip",
        "cdc-assets release shop.orders 200 --rebuild",
    ]


def test_a_decided_hold_names_the_run_that_carries_it_out_until_the_decision_is_taken_back(hidden: Feed) -> None:
    held = hidden.table(hidden.apply(300))

    def ways() -> tuple[str, ...]:
        return next(iter(hidden.ledger.states().values()))[0].ways

    release(hidden.pipeline(), "shop.orders", 200, "skip")
    (way,) = ways()
    assert way.startswith("run `cdc-assets apply`")
    undo(hidden.pipeline(), "shop.orders", 200)
    assert ways() == held.ways
    release(hidden.pipeline(), "shop.orders", 200, "skip")
    assert hidden.table(hidden.apply(301)).state == "applied"
    assert ways() == ()


@pytest.mark.parametrize(
    ("way", "text", "rows"),
    [
        ("apply", "ALTER TABLE `orders` RENAME COLUMN `n` TO `m`", [(1, 5), (2, 6), (3, 7)]),
        ("apply", "ALTER TABLE `orders` DROP COLUMN `n`, ADD COLUMN `m` INT DEFAULT 9", [(1, 9), (2, 9), (3, 7)]),
        ("skip", "", [(1, None), (2, None), (3, 7)]),
        ("rebuild", "", [(3, 7)]),
    ],
)
@pytest.mark.parametrize("before", [True, False], ids=["after a run", "before any run"])
def test_a_hidden_rename_is_released(
    hidden: Feed, way: str, text: str, rows: list[tuple[int, int | None]], before: bool
) -> None:
    hidden.checkpoint(300)
    if before:
        hidden.apply(300)
    hidden.schema(200, "", 0, columns("m"))
    release(hidden.pipeline(), "shop.orders", 200, way, text)
    assert hidden.apply(300).complete
    assert hidden.rows() == [{"id": number, "m": value} for number, value in rows]


def test_a_release_counts_for_ever(hidden: Feed) -> None:
    hidden.apply(300)
    release(hidden.pipeline(), "shop.orders", 200, "apply", "ALTER TABLE `orders` RENAME COLUMN `n` TO `m`")
    hidden.apply(300)
    hidden.data(200, 2, row("I", 310, 4, 8))
    hidden.schema(400, "ALTER TABLE `orders` ADD COLUMN `k` INT", 5, columns("m", "k"))
    assert hidden.apply(500).complete
    assert [tuple(lake_row.values()) for lake_row in hidden.rows()] == [
        (1, 5, None),
        (2, 6, None),
        (3, 7, None),
        (4, 8, None),
    ]


@pytest.mark.parametrize(("way", "rows"), [("skip", [(1, None), (2, None), (3, 7)]), ("rebuild", [(3, 7)])])
def test_a_ddl_that_a_row_refuses_is_released_by_the_ways_that_are_named(
    feed: Feed, way: str, rows: list[tuple[int, int | None]]
) -> None:
    """As of a row that was written while TiDB converted the column: the DDL and the row are both right."""
    texts = [columns("n")[0], file_column("n", "VARCHAR", "9")]
    feed.schema(200, "ALTER TABLE `orders` MODIFY COLUMN `n` VARCHAR(9)", 12, texts)
    feed.data(200, 1, row("U", 210, 2, '"x7"'))
    assert feed.apply(250).complete
    feed.schema(300, "ALTER TABLE `orders` MODIFY COLUMN `n` INT", 12, columns("n"))
    feed.data(300, 1, row("I", 310, 3, 7))
    table = feed.table(feed.apply(400))
    assert "TiDB let both pass" in table.reason
    assert [way_out for way_out in table.ways if "cdc-assets release" in way_out and way_out.endswith(f" 300 --{way}")]
    release(feed.pipeline(), "shop.orders", 300, way)
    assert feed.apply(400).complete
    assert feed.rows() == [{"id": number, "n": value} for number, value in rows]


@pytest.mark.parametrize(("default", "filled"), [(" DEFAULT 4", 4), ("", None)])
def test_an_unknown_ddl_is_released_by_what_it_did(feed: Feed, default: str, filled: int | None) -> None:
    listed = columns("n", "k")
    listed[-1]["ColumnDefault"] = "UUID()"  # an expression, which the source evaluated for each old row
    feed.schema(200, "ALTER TABLE `orders` SHUFFLE", 999, listed)
    assert feed.table(feed.apply(300)).state == "held"
    release(feed.pipeline(), "shop.orders", 200, "apply", f"ALTER TABLE orders ADD COLUMN k INT{default}")
    assert feed.apply(300).complete
    assert feed.rows() == [{"id": 1, "n": 5, "k": filled}, {"id": 2, "n": 6, "k": filled}]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ALTER TABLE other ADD COLUMN k INT", "shop.other"),
        ("ALTER TABLE orders ADD COLUMN k INT DEFUALT 4", "DEFUALT"),
        ("ALTER TABLE orders ADD COLUMN k INT DEFAULT 4 FOO", "FOO"),
    ],
)
def test_a_released_text_that_would_be_passed_over_in_part_is_refused(feed: Feed, text: str, sentence: str) -> None:
    feed.schema(200, "ALTER TABLE `orders` SHUFFLE", 999, columns("n", "k"))
    feed.apply(300)
    with pytest.raises(BadSettings, match=sentence):
        release(feed.pipeline(), "shop.orders", 200, "apply", text)
    ways = " NULL COMMENT 'k' AFTER n, ADD CONSTRAINT `c` CHECK (k > 0)"
    release(feed.pipeline(), "shop.orders", 200, "apply", f"ALTER TABLE `shop`.`Orders` ADD COLUMN k INT{ways}")
    assert feed.apply(300).complete


def test_a_partition_of_another_hash_is_released(feed: Feed) -> None:
    feed.schema(
        50, f"{CREATE} PARTITION BY KEY (`id`) PARTITIONS 2".replace("orders", "parts"), 3, columns("n"), "parts"
    )
    feed.data(50, 1, row("I", 60, 1, 5, table="parts"), row("I", 210, 2, 6, table="parts"), table="parts")
    feed.schema(200, "ALTER TABLE `parts` TRUNCATE PARTITION `p0`", 23, columns("n"), "parts")
    outcome = feed.apply(300)
    assert (feed.table(outcome).state, feed.table(outcome, "parts").state) == ("applied", "held")
    release(feed.pipeline(), "shop.parts", 200, "rebuild")
    assert feed.apply(300).complete
    assert feed.rows("parts") == [{"id": 2, "n": 6}]


def test_a_plan_of_a_release_has_its_text_once_and_the_condition_in_sql(feed: Feed) -> None:
    feed.schema(200, "ALTER TABLE `orders` TRUNCATE PARTITION `p1`", 54, columns("n"))
    assert feed.table(feed.apply(300)).state == "held"
    text = "ALTER TABLE orders PARTITION BY RANGE (id) (PARTITION p1 VALUES LESS THAN (2)), TRUNCATE PARTITION p1"
    release(feed.pipeline(), "shop.orders", 200, "apply", text)
    pipeline = feed.pipeline()
    lines = list(step_lines(describe_plan(pipeline.planner.plan()[1])))
    assert lines[0].endswith("change: delete rows where (`id` < 2) (released: apply a text of yours)")
    assert "\n".join(lines).count(text) == 1
    assert [step_title(step) for step in pipeline.planner.plan()[1].steps][:1] == ["delete rows where (`id` < 2)"]


def test_a_late_ddl_is_applied_when_it_is_released(feed: Feed) -> None:
    assert feed.apply(300).complete
    feed.schema(200, "TRUNCATE TABLE `orders`", 11, columns("n"))
    feed.data(200, 1, row("I", 310, 3, 7))
    assert feed.table(feed.apply(400)).state == "held"
    release(feed.pipeline(), "shop.orders", 200, "apply")
    assert feed.apply(400).complete
    assert feed.rows() == [{"id": 3, "n": 7}]


def test_a_late_ddl_is_left_out_when_it_is_skipped(feed: Feed) -> None:
    assert feed.apply(300).complete
    feed.schema(200, "TRUNCATE TABLE `orders`", 11, columns("n"))
    assert feed.table(feed.apply(400)).state == "held"
    release(feed.pipeline(), "shop.orders", 200, "skip")
    assert feed.apply(400).complete
    assert [lake_row["id"] for lake_row in feed.rows()] == [1, 2]


def test_rows_up_to_a_late_ddl_cannot_be_dropped(feed: Feed) -> None:
    assert feed.apply(300).complete
    feed.schema(200, "TRUNCATE TABLE `orders`", 11, columns("n"))
    feed.apply(400)
    with pytest.raises(BadSettings, match="would still be held"):
        release(feed.pipeline(), "shop.orders", 200, "rebuild")
    assert releases_of(feed.lake.decisions()) == {}


def test_who_waits_for_a_held_table_goes_on_with_it(feed: Feed) -> None:
    feed.policies = {"drop table": "hold"}
    feed.schema(200, "DROP TABLE `shop`.`orders`", 4, columns("n"))
    feed.schema(250, CREATE, 3, columns("n"))
    feed.data(250, 1, row("I", 260, 9, 9))
    states = {table.life: table for table in feed.apply(300).tables}
    assert [table.state for table in states.values()] == ["held", "held"]
    assert "waits for" in states[Life(ORDERS, 250)].reason
    assert states[Life(ORDERS, 250)].ways == states[LIFE].ways
    release(feed.pipeline(), "shop.orders", 200, "apply")
    assert feed.apply(300).complete
    assert feed.rows() == [{"id": 9, "n": 9}]


# --- policies, carried out --------------------------------------------------------------------------------------------


def test_a_kept_table_can_be_read_until_its_name_is_taken(feed: Feed) -> None:
    feed.policies = {"drop table": "keep"}
    feed.schema(200, "DROP TABLE `shop`.`orders`", 4, columns("n"))
    assert feed.apply(220).complete
    assert [lake_row["id"] for lake_row in feed.rows()] == [1, 2]
    feed.schema(250, CREATE, 3, columns("n"))
    feed.data(250, 1, row("I", 260, 9, 9))
    assert feed.apply(300).complete
    assert feed.rows() == [{"id": 9, "n": 9}]
    assert feed.lake.tables[LIFE].name is None


def test_a_kept_column_has_its_old_values_and_is_null_in_rows_written_since(feed: Feed) -> None:
    feed.policies = {"drop column": "keep"}
    feed.schema(200, "ALTER TABLE `orders` DROP COLUMN `n`, ADD COLUMN `k` INT", 61, columns("k"))
    feed.data(200, 1, row("I", 210, 3, 7))
    assert feed.apply(220).complete
    feed.schema(250, "ALTER TABLE `orders` ADD COLUMN `n` INT", 5, columns("k", "n"))
    feed.data(250, 1, row("I", 260, 4, 8, 1))
    assert feed.apply(300).complete
    rows = [(1, None, 5), (2, None, 6), (3, 7, None), (4, 8, 1)]
    assert feed.rows() == [dict(zip(("id", "k", "n"), values, strict=True)) for values in rows]


def test_one_go_and_many_give_the_same_kept_column(feed: Feed, tmp_path: Path) -> None:
    feed.policies = {"drop column": "keep"}
    feed.schema(200, "ALTER TABLE `orders` DROP COLUMN `n`", 6, columns())
    feed.data(200, 1, row("I", 210, 3))
    feed.schema(250, "ALTER TABLE `orders` ADD COLUMN `k` INT DEFAULT 2", 5, columns("k"))
    feed.data(250, 1, row("I", 260, 4, 8))
    for checkpoint in (150, 205, 230, 250, 300):
        assert feed.apply(checkpoint).complete
    once = replace(feed, lake=MemoryLake(), ledger=Ledger("sqlite://"))
    assert once.apply(300).complete
    assert once.rows() == feed.rows()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "version", "way", "text", "message"),
    [
        ("shop.orders", 201, "skip", "", "is held at 200"),
        ("shop.none", 200, "skip", "", "no table is called shop.none; known are shop.orders"),
        ("shop.orders", 200, "forget", "", "known are apply, skip, rebuild"),
        ("shop.orders", 200, "skip", "ALTER TABLE orders", "belongs to the way apply"),
        ("shop.orders", 200, "apply", "ALTER TABLE `orders` RENAME COLUMN `n` TO `z`", "would still be held"),
        ("shop.orders", 200, "apply", "what?", "would still be held"),
        ("shop.orders", 200, "apply", "", "would still be held"),
    ],
)
def test_what_releases_nothing_is_refused_and_not_kept(
    hidden: Feed, table: str, version: Tso, way: str, text: str, message: str
) -> None:
    hidden.apply(300)
    with pytest.raises(BadSettings, match=message):
        release(hidden.pipeline(), table, version, way, text)
    assert releases_of(hidden.lake.decisions()) == {}


def test_a_table_that_is_held_by_its_rows_is_not_released(feed: Feed) -> None:
    feed.data(100, 2, row("I", 112, 3, '"x"'))
    assert feed.table(feed.apply(300)).state == "held"
    with pytest.raises(BadSettings, match="by its rows, not by a DDL"):
        release(feed.pipeline(), "shop.orders", 100, "skip")


def test_a_table_that_waits_for_a_file_is_not_released(feed: Feed) -> None:
    feed._write("shop/orders/meta/schema_200_0000000001.json", "{")
    assert feed.table(feed.apply(300)).state == "held"
    with pytest.raises(BadSettings, match="not by a DDL of its own"):
        release(feed.pipeline(), "shop.orders", 200, "skip")


def test_a_table_is_found_by_its_identity_too(hidden: Feed) -> None:
    hidden.apply(300)
    release(hidden.pipeline(), "shop.orders@100", 200, "skip")
    assert hidden.apply(300).complete


def test_the_second_release_takes_the_place_of_the_first_until_it_is_used(hidden: Feed) -> None:
    hidden.apply(300)
    release(hidden.pipeline(), "shop.orders", 200, "skip")
    release(hidden.pipeline(), "shop.orders", 200, "rebuild")
    assert [kept_release.way for kept_release in releases_of(hidden.lake.decisions()).values()] == ["rebuild"]
    hidden.apply(300)
    with pytest.raises(BadSettings, match="is not held at version 200"):
        release(hidden.pipeline(), "shop.orders", 200, "skip")


def test_a_release_is_taken_back_until_it_is_used(hidden: Feed) -> None:
    hidden.apply(300)
    release(hidden.pipeline(), "shop.orders", 200, "skip")
    undo(hidden.pipeline(), "shop.orders", 200)
    assert hidden.table(hidden.apply(300)).state == "held"
    release(hidden.pipeline(), "shop.orders", 200, "skip")
    hidden.apply(300)
    with pytest.raises(BadSettings, match="cannot be undone"):
        undo(hidden.pipeline(), "shop.orders", 200)
    with pytest.raises(BadSettings, match="no release at version 7"):
        undo(hidden.pipeline(), "shop.orders", 7)


# --- in the lake ------------------------------------------------------------------------------------------------------

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=64)
releases = st.builds(
    Release,
    st.builds(Life, st.builds(TableId, names, names), st.integers(1, 2**62)),
    st.integers(1, 2**62),
    st.sampled_from(["apply", "skip", "rebuild"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3000),
    names,
)


@given(releases, releases, st.sampled_from(["a", "a.b", "default"]))
def test_releases_are_read_back_as_they_were(first_release: Release, other: Release, changefeed: str) -> None:
    properties = {
        **format_decision(changefeed, first_release),
        **format_decision(f"{changefeed}.b", other),
        "exists": "true",
    }
    assert parse_decisions(properties, changefeed).of(Release) == (first_release,)
    assert all(len(key) <= 255 and len(value) <= 1000 for key, value in properties.items())


def test_a_change_of_settings_is_read_back_as_it_was_and_no_other_changefeeds() -> None:
    change = SettingsChange("shop.*", 7, {"tz": "Europe/Berlin", "charset": ""}, "ann", "2026-01-02T03:04:05+00:00")
    other = SettingsChange("shop.*", 8, {})
    kept = {
        **format_decision("a", change),
        **format_decision("a", other),
        **format_decision("a.b", replace(change, who="")),
    }
    assert parse_decisions(kept, "a").of(SettingsChange) == (change, other)
    assert parse_decisions(kept, "a").of(Release) == ()


def test_the_catalog_keeps_releases_for_everybody_without_a_jvm(tmp_path: Path) -> None:
    lake = LakeSettings.from_warehouse(tmp_path)
    long = Release(
        LIFE, 200, "apply", "ALTER TABLE `orders` " + "COMMENT 'ä', " * 300, "me", "2026-01-01T00:00:00+00:00"
    )
    other = Release(Life(TableId("s", "x.y"), 7), 8, "skip")
    state = LakeState(lake, "default")
    assert releases_of(state.decisions.read()) == {}
    state.decisions.keep(long)
    state.decisions.keep(other)
    again = LakeState(lake, "default")
    assert releases_of(again.decisions.read()) == {(LIFE, 200): long, (other.life, 8): other}
    assert releases_of(LakeState(lake, "another").decisions.read()) == {}
    again.decisions.keep(replace(long, way="skip", text=""))
    assert releases_of(state.decisions.read())[LIFE, 200] == replace(long, way="skip", text="")
    again.decisions.remove(long)
    assert releases_of(state.decisions.read()) == {(other.life, 8): other}
    for lake_state in (state, again):
        lake_state.close()


# --- command line -----------------------------------------------------------------------------------------------------


def run(feed: Feed, *arguments: str) -> tuple[int, str]:
    """The lake on disk is empty: nothing was applied yet."""
    warehouse = str(feed.path.parent / "lake")
    target = ["--warehouse", warehouse]
    target += (
        [] if "--list" in arguments else ["--sink-uri", feed.uri, "--config", str(feed.path.parent / "changefeed.toml")]
    )
    done = CliRunner().invoke(commands, ["release", *target, *arguments], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.return_value, done.output


def test_the_command_line_shows_what_happens_next_and_lists_what_was_decided(hidden: Feed) -> None:
    hidden.checkpoint(300)
    hidden.pipeline()
    code, text = run(hidden, "shop.orders", "200", "--skip", "--who", "me")
    assert code == 0
    assert "drop column n; add column m" in text
    assert "(released: skip)" in text
    code, text = run(hidden, "--list")
    assert code == 0
    assert text.splitlines()[1].split()[:5] == ["default", "shop.orders@100", "200", "skip", "me"]
    code, text = run(hidden, "shop.orders", "200", "--undo")
    assert code == 1
    assert "hold" in text


def test_a_dry_run_shows_what_would_follow_and_records_nothing(hidden: Feed) -> None:
    hidden.checkpoint(300)
    hidden.pipeline()
    code, text = run(hidden, "shop.orders", "200", "--skip", "--dry-run")
    assert code == 0
    assert "(released: skip)" in text
    assert len(run(hidden, "--list")[1].splitlines()) == 1


@pytest.mark.parametrize(("way", "deletes"), [("skip", False), ("rebuild", True)])
def test_a_proposal_says_whether_it_deletes_rows(hidden: Feed, way: str, deletes: bool) -> None:
    hidden.apply(300)
    proposal = propose_release(hidden.pipeline(), "shop.orders", 200, way)
    assert proposal.deletes_rows is deletes
    assert releases_of(hidden.lake.decisions()) == {}
    assert proposal.record(hidden.pipeline()) == hidden.pipeline().planner.plan()[1]
    assert list(releases_of(hidden.lake.decisions())) == [(LIFE, 200)]


def test_undoing_is_proposed_with_the_hold_that_comes_back(hidden: Feed) -> None:
    hidden.apply(300)
    release(hidden.pipeline(), "shop.orders", 200, "skip")
    _, proposal = decide(hidden.pipeline(), "shop.orders", 200, ["undo"], None)
    assert [step.reason for step in proposal.plan.steps if isinstance(step, HoldTable)]
    assert list(releases_of(hidden.lake.decisions())) == [(LIFE, 200)]


@pytest.mark.parametrize(
    "arguments",
    [("shop.orders", "200"), ("--skip",), ("shop.orders", "200", "--skip", "--rebuild"), ("t", "1", "--skip")],
)
def test_the_command_line_refuses_what_is_no_decision(hidden: Feed, arguments: tuple[str, ...]) -> None:
    hidden.checkpoint(300)
    hidden.pipeline()
    with pytest.raises(BadSettings):
        run(hidden, *arguments)
