"""Settings that decide values: where they change and matter, the table is held; it never has two readings of a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_assets.ddl import created
from cdc_assets.errors import BadSettings
from cdc_assets.features.quarantine.operations import replay
from cdc_assets.formats.protocols import PROTOCOLS
from cdc_assets.lake.label import Label
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Phase, Progress, State
from cdc_assets.model.recipe import Recipe, Setting
from cdc_assets.model.schema import TableId
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.operations.release import release, undo
from cdc_assets.pipeline.outcome import Outcome, TableOutcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.connector_topics import Recording, recordings
from cdc_assets_tests.dump_writer import Writing, write_dump
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.schema_documents import document, file_column, write_schema
from cdc_assets_tests.topic_feed import TopicFeed, settings_of
from cdc_assets_tests.topics import topics

NOON = "2024-07-01 12:00:00"
TOKYO = "Asia/Tokyo"
TYPES: dict[str, dict[str, str]] = {
    "INT": {"ColumnPrecision": "11"},
    "VARCHAR": {"ColumnPrecision": "40"},
    "TIMESTAMP": {},
    "DATETIME": {},
    "BLOB": {},
}


class ZonedFeed(LittleFeed):
    """Tables of a key `id` and columns of other types, in CSV or Canal-JSON."""

    def table(
        self,
        name: str,
        columns: Sequence[tuple[str, str]],
        at: int = FIRST,
        query: str = "",
        kind: int = 3,
        key: bool = True,
    ) -> None:
        schema, _, table = name.partition(".")
        head = file_column("id", "INT", "11", ColumnNullable="false" if key else "true", ColumnIsPk=str(key).lower())
        rest = [{"ColumnName": name, "ColumnType": type_, **TYPES[type_]} for name, type_ in columns]
        words = ["`id` INT NOT NULL PRIMARY KEY" if key else "`id` INT", *(f"`{a}` {_sql(b)}" for a, b in columns)]
        query = query or f"CREATE TABLE `{table}` ({','.join(words)})"
        write_schema(self.bucket, document(schema, table, at, Query=query, Type=kind, TableColumns=[head, *rest]))

    def lines(self, name: str, rows: Sequence[tuple[str, int, Sequence[str]]], version: int = FIRST) -> None:
        """Write a file of rows: (I, U or D; commit-ts; values as they stand in CSV)."""
        schema, _, table = name.partition(".")
        number = self._files[name, version] = self._files.get((name, version), 0) + 1
        directory = self.bucket / schema / table / str(version)
        directory.mkdir(parents=True, exist_ok=True)
        texts = [f'"{op}","{table}","{schema}",{ts},{",".join(values)}\r\n' for op, ts, values in rows]
        (directory / f"CDC{number:020d}.csv").write_text("".join(texts), newline="")


def _sql(kind: str) -> str:
    return f"{kind}(40)" if kind == "VARCHAR" else kind


class Site:
    """A feed, its lake and its ledger: applied with whatever settings stand in the file then."""

    def __init__(self, directory: Path) -> None:
        self.feed = ZonedFeed(directory)
        self.lake = MemoryLake()
        self.ledger = Ledger("sqlite://")

    def pipeline(self, **settings: Any) -> Pipeline:
        return self.feed.pipeline_into(self.lake, self.ledger, **settings)

    def apply(self, through: int, **settings: Any) -> Outcome:
        self.feed.publish(through)
        return self.pipeline(**settings).apply("run")

    def moments(self, name: str = "shop.t", column: str = "a") -> dict[int, str | None]:
        rows = self.lake.read(TableId(*name.split("."))).to_pylist()
        return {row["id"]: _hour(row[column]) for row in rows}

    def rebuild(self, *tables: str, **settings: Any) -> None:
        rebuild(self.pipeline(**settings), MemoryRebuilds(self.lake), list(tables))


def _hour(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(timezone.utc).strftime("%d %H")


def _one(outcome: Outcome, name: str = "shop.t") -> TableOutcome:
    return next(table for table in outcome.tables if str(table.name) == name)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made_site = Site(tmp_path)
    made_site.feed.table("shop.t", [("a", "TIMESTAMP")])
    made_site.feed.lines("shop.t", [("I", FIRST + 5, ["1", f'"{NOON}"'])])
    return made_site


def _second(site: Site, at: int = FIRST + 15, key: int = 2) -> None:
    site.feed.lines("shop.t", [("I", at, [str(key), f'"{NOON}"'])])


def test_a_zone_that_changes_half_way_holds_the_table_before_anything_is_written(site: Site) -> None:
    assert _one(site.apply(FIRST + 9)).state is State.APPLIED
    _second(site)
    table = _one(site.apply(FIRST + 20, tz=TOKYO))
    assert table.state is State.HELD
    assert site.moments() == {1: "01 12"}
    for part in ('"UTC"', f'"{TOKYO}"', '"a"', str(FIRST + 9)):
        assert part in table.reason
    assert any("cdc-assets rebuild shop.t" in way for way in table.ways)
    assert any(f"cdc-assets release shop.t {FIRST + 10} --new-settings" in way for way in table.ways)


def test_a_table_is_held_also_while_nothing_is_due(site: Site) -> None:
    site.apply(FIRST + 9)
    assert _one(site.apply(FIRST + 9, tz=TOKYO)).state is State.HELD


def test_a_zone_that_is_set_back_holds_nothing(site: Site) -> None:
    site.apply(FIRST + 9)
    _second(site)
    site.apply(FIRST + 20, tz=TOKYO)
    assert _one(site.apply(FIRST + 20, tz="UTC")).state is State.APPLIED
    assert site.moments() == {1: "01 12", 2: "01 12"}


@pytest.mark.parametrize("spelling", ["UTC", "Etc/UTC", "+00:00", "Zulu"])
def test_another_name_of_the_zone_and_a_default_that_is_given_hold_nothing(site: Site, spelling: str) -> None:
    site.apply(FIRST + 9)
    _second(site)
    assert _one(site.apply(FIRST + 20, tz=spelling)).state is State.APPLIED


def test_a_zone_matters_to_tables_with_a_timestamp_alone(site: Site) -> None:
    site.feed.table("shop.u", [("a", "DATETIME")])
    site.feed.lines("shop.u", [("I", FIRST + 5, ["1", f'"{NOON}"'])])
    site.apply(FIRST + 9)
    site.feed.lines("shop.u", [("I", FIRST + 15, ["2", f'"{NOON}"'])])
    outcome = site.apply(FIRST + 20, tz=TOKYO)
    assert [_one(outcome, name).state for name in ("shop.t", "shop.u")] == [State.HELD, State.APPLIED]


def test_a_table_without_rows_and_a_new_one_take_the_settings_of_now(site: Site) -> None:
    site.feed.table("shop.empty", [("a", "TIMESTAMP")])
    site.apply(FIRST + 9)
    site.feed.table("shop.late", [("a", "TIMESTAMP")], at=FIRST + 12)
    for name, version in (("shop.empty", FIRST), ("shop.late", FIRST + 12)):
        site.feed.lines(name, [("I", FIRST + 15, ["1", f'"{NOON}"'])], version)
    outcome = site.apply(FIRST + 20, tz=TOKYO)
    for name in ("shop.empty", "shop.late"):
        assert _one(outcome, name).state is State.APPLIED
        assert site.moments(name) == {1: "01 03"}
    assert _one(site.apply(FIRST + 20, tz="UTC"), "shop.late").state is State.HELD


def test_a_column_that_comes_later_begins_with_the_settings_of_its_first_rows(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.feed.table("shop.t", [])
    site.feed.lines("shop.t", [("I", FIRST + 5, ["1"])])
    site.apply(FIRST + 9)
    site.feed.table("shop.t", [("a", "TIMESTAMP")], FIRST + 12, "ALTER TABLE `t` ADD COLUMN `a` TIMESTAMP", 5)
    site.feed.lines("shop.t", [("I", FIRST + 15, ["2", f'"{NOON}"'])], FIRST + 12)
    assert _one(site.apply(FIRST + 20, tz=TOKYO)).state is State.APPLIED
    assert site.moments() == {1: None, 2: "01 03"}
    assert _one(site.apply(FIRST + 20)).state is State.HELD


@pytest.mark.parametrize("before", ["DATETIME", None])
def test_values_that_a_ddl_gives_to_rows_are_read_with_the_settings_of_now(tmp_path: Path, before: str | None) -> None:
    site = Site(tmp_path)
    site.feed.table("shop.t", [("a", before)] if before else [])
    site.feed.lines("shop.t", [("I", FIRST + 5, ["1", f'"{NOON}"'] if before else ["1"])])
    site.apply(FIRST + 9)
    text = "MODIFY a TIMESTAMP" if before else f"ADD a TIMESTAMP NOT NULL DEFAULT '{NOON}'"
    site.feed.table("shop.t", [("a", "TIMESTAMP")], FIRST + 10, f"ALTER TABLE t {text}", 7 if before else 5)
    assert _one(site.apply(FIRST + 12)).state is State.APPLIED
    site.feed.lines("shop.t", [("I", FIRST + 15, ["2", f'"{NOON}"'])], FIRST + 10)
    table = _one(site.apply(FIRST + 20, tz=TOKYO))
    assert table.state is State.HELD
    assert 'equal texts in "a"' in table.reason
    assert site.moments() == {1: "01 12"}
    release(site.pipeline(tz=TOKYO), "shop.t", FIRST + 13, "new-settings")
    assert _one(site.apply(FIRST + 20, tz=TOKYO)).state is State.APPLIED
    assert site.moments() == {1: "01 12", 2: "01 03"}


def test_the_label_of_a_ddl_has_the_settings_by_which_it_gave_values() -> None:
    label = Label(Progress(FIRST, Phase.ROWS), FIRST, recipe=Recipe({"terminator": Setting("x")}, ("id",)))
    after = label.through_ddl(FIRST + 10, FIRST + 10, Recipe({"tz": Setting(TOKYO)}))
    assert after.recipe == Recipe({"terminator": Setting("x"), "tz": Setting(TOKYO)}, ("id",))
    assert after.through_ddl(FIRST + 20, FIRST + 20, emptied=True).recipe == Recipe(key=("id",))


@pytest.mark.parametrize("before", ["DATETIME", None])
def test_a_ddl_from_before_a_released_change_gives_values_as_formerly(tmp_path: Path, before: str | None) -> None:
    site = Site(tmp_path)
    rest = [("b", before)] if before else []
    site.feed.table("shop.t", [("a", "TIMESTAMP"), *rest])
    site.feed.lines("shop.t", [("I", FIRST + 5, ["1", *[f'"{NOON}"'] * (1 + len(rest))])])
    site.apply(FIRST + 9)
    text = "MODIFY b TIMESTAMP" if before else f"ADD b TIMESTAMP NOT NULL DEFAULT '{NOON}'"
    columns = [("a", "TIMESTAMP"), ("b", "TIMESTAMP")]
    site.feed.table("shop.t", columns, FIRST + 10, f"ALTER TABLE t {text}", 7 if before else 5)
    site.apply(FIRST + 20, tz=TOKYO)
    release(site.pipeline(tz=TOKYO), "shop.t", FIRST + 12, "new-settings")
    assert _one(site.apply(FIRST + 20, tz=TOKYO)).state is State.APPLIED
    assert site.moments(column="b") == {1: "01 12"}
    site.rebuild("shop.t", tz=TOKYO)
    assert site.moments(column="b") == {1: "01 12"}


def test_a_ddl_that_the_changefeed_hides_gives_values_in_its_zone(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.feed.table("shop.t", [("a", "DATETIME")])
    site.feed.lines("shop.t", [("I", FIRST + 5, ["1", f'"{NOON}"'])])
    site.feed.table("shop.t", [("a", "TIMESTAMP")], FIRST + 10, "ALTER TABLE t COMMENT 'x'", 17)
    assert _one(site.apply(FIRST + 20, tz=TOKYO)).state is State.APPLIED
    assert site.moments() == {1: "01 03"}


def test_a_column_that_went_leaves_no_setting_behind(site: Site) -> None:
    site.apply(FIRST + 9)
    site.feed.table("shop.t", [], FIRST + 12, "ALTER TABLE `t` DROP COLUMN `a`", 6)
    site.feed.lines("shop.t", [("I", FIRST + 15, ["2"])], FIRST + 12)
    site.apply(FIRST + 20)
    assert _one(site.apply(FIRST + 20, tz=TOKYO)).state is State.APPLIED
    site.feed.table("shop.t", [("b", "TIMESTAMP")], FIRST + 22, "ALTER TABLE `t` ADD COLUMN `b` TIMESTAMP", 5)
    site.feed.lines("shop.t", [("I", FIRST + 25, ["3", f'"{NOON}"'])], FIRST + 22)
    assert _one(site.apply(FIRST + 30, tz=TOKYO)).state is State.APPLIED
    assert site.moments(column="b") == {1: None, 2: None, 3: "01 03"}


def test_a_table_that_was_truncated_has_no_reading(site: Site) -> None:
    site.apply(FIRST + 9)
    site.feed.table("shop.t", [("a", "TIMESTAMP")], FIRST + 12, "TRUNCATE TABLE `t`", 11)
    site.apply(FIRST + 13)
    site.feed.lines("shop.t", [("I", FIRST + 15, ["2", f'"{NOON}"'])], FIRST + 12)
    assert _one(site.apply(FIRST + 20, tz=TOKYO)).state is State.APPLIED
    assert site.moments() == {2: "01 03"}


def test_a_log_has_the_settings_of_its_rows_after_its_source_was_truncated(site: Site) -> None:
    log: dict[str, Any] = {"history": {"shop.t": "log"}}
    site.apply(FIRST + 9, **log)
    site.feed.table("shop.t", [("a", "TIMESTAMP")], FIRST + 12, "TRUNCATE TABLE `t`", 11)
    site.apply(FIRST + 20, **log)
    tables = {str(table.name): table.state for table in site.apply(FIRST + 20, tz=TOKYO, **log).tables}
    assert tables == {"shop.t": State.APPLIED, "shop.t__log": State.HELD}


def test_a_renamed_table_keeps_its_settings(site: Site) -> None:
    site.apply(FIRST + 9)
    site.feed.table("shop.r", [("a", "TIMESTAMP")], FIRST + 12, "RENAME TABLE `t` TO `r`", 14)
    site.apply(FIRST + 13)
    assert _one(site.apply(FIRST + 13, tz=TOKYO), "shop.r").state is State.HELD


def test_rows_that_came_by_exchange_bring_the_settings_with_which_they_were_read(site: Site) -> None:
    parts = "PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (10))"
    words = f"CREATE TABLE `p` (`id` INT NOT NULL PRIMARY KEY,`a` TIMESTAMP) {parts}"
    site.feed.table("shop.p", [("a", "TIMESTAMP")], query=words)
    site.apply(FIRST + 9)
    assert _one(site.apply(FIRST + 9, tz=TOKYO), "shop.p").state is State.APPLIED
    text = "ALTER TABLE `shop`.`p` EXCHANGE PARTITION `p0` WITH TABLE `shop`.`t`"
    site.feed.table("shop.p", [("a", "TIMESTAMP")], FIRST + 12, text, 42)
    site.apply(FIRST + 20)
    assert site.moments("shop.p") == {1: "01 12"}
    assert _one(site.apply(FIRST + 20, tz=TOKYO), "shop.p").state is State.HELD


# --- what a person says -----------------------------------------------------------------------------------------------


def test_a_release_says_from_when_and_rows_before_are_read_as_formerly(site: Site) -> None:
    site.apply(FIRST + 9)
    _second(site, FIRST + 15, 2)
    _second(site, FIRST + 25, 3)
    site.feed.publish(FIRST + 30)
    release(site.pipeline(tz=TOKYO), "shop.t", FIRST + 20, "new-settings", who="me")
    assert _one(site.apply(FIRST + 30, tz=TOKYO)).state is State.APPLIED
    assert site.moments() == {1: "01 12", 2: "01 12", 3: "01 03"}
    assert _one(site.apply(FIRST + 30)).state is State.HELD  # and back again is another change


def test_a_rebuild_reads_rows_from_before_a_released_change_as_formerly(site: Site) -> None:
    test_a_release_says_from_when_and_rows_before_are_read_as_formerly(site)
    site.lake.tables.clear()
    assert _one(site.apply(FIRST + 30, tz=TOKYO)).state is State.APPLIED
    assert site.moments() == {1: "01 12", 2: "01 12", 3: "01 03"}


def test_a_release_that_was_used_and_is_undone_holds_the_table_until_it_is_rebuilt(site: Site) -> None:
    test_a_release_says_from_when_and_rows_before_are_read_as_formerly(site)
    undo(site.pipeline(tz=TOKYO), "shop.t", FIRST + 20)
    assert _one(site.apply(FIRST + 30, tz=TOKYO)).state is State.HELD
    site.rebuild("shop.t", tz=TOKYO)
    assert site.moments() == {1: "01 03", 2: "01 03", 3: "01 03"}
    assert _one(site.apply(FIRST + 30, tz=TOKYO)).state is State.APPLIED


def test_a_zone_may_change_twice(site: Site) -> None:
    test_a_release_says_from_when_and_rows_before_are_read_as_formerly(site)
    _second(site, FIRST + 35, 4)
    berlin = "Europe/Berlin"
    release(site.pipeline(tz=berlin), "shop.t", FIRST + 31, "new-settings")
    assert _one(site.apply(FIRST + 40, tz=berlin)).state is State.APPLIED
    assert site.moments() == {1: "01 12", 2: "01 12", 3: "01 03", 4: "01 10"}
    site.rebuild("shop.t", tz=berlin)
    assert site.moments() == {1: "01 12", 2: "01 12", 3: "01 03", 4: "01 10"}
    assert _one(site.apply(FIRST + 40, tz=berlin)).state is State.APPLIED


def test_a_pattern_releases_all_its_tables(site: Site) -> None:
    site.feed.table("shop.u", [("a", "TIMESTAMP")])
    site.feed.lines("shop.u", [("I", FIRST + 5, ["1", f'"{NOON}"'])])
    site.apply(FIRST + 9)
    release(site.pipeline(tz=TOKYO), "shop.*", FIRST + 10, "new-settings")
    outcome = site.apply(FIRST + 20, tz=TOKYO)
    assert {table.state for table in outcome.tables} == {State.APPLIED}


def test_a_release_is_undone_and_is_refused_where_nothing_has_changed(site: Site) -> None:
    site.apply(FIRST + 9)
    with pytest.raises(BadSettings, match="nothing to release"):
        release(site.pipeline(), "shop.t", FIRST + 10, "new-settings")
    release(site.pipeline(tz=TOKYO), "shop.t", FIRST + 10, "new-settings")
    undo(site.pipeline(tz=TOKYO), "shop.t", FIRST + 10)
    assert _one(site.apply(FIRST + 20, tz=TOKYO)).state is State.HELD


def test_a_rebuild_reads_all_with_the_new_settings_and_records_them(site: Site) -> None:
    site.apply(FIRST + 9)
    _second(site)
    site.apply(FIRST + 20, tz=TOKYO)
    site.rebuild("shop.t", tz=TOKYO)
    assert site.moments() == {1: "01 03", 2: "01 03"}
    assert _one(site.apply(FIRST + 20, tz=TOKYO)).state is State.APPLIED
    assert _one(site.apply(FIRST + 20)).state is State.HELD


# --- other settings ---------------------------------------------------------------------------------------------------


def test_a_key_that_is_set_otherwise_holds_the_table(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.feed.table("shop.t", [("v", "VARCHAR"), ("w", "VARCHAR")], key=False)
    site.feed.lines("shop.t", [("I", FIRST + 5, ["1", '"x"', '"y"'])])
    first = {"keys": {"shop.t": ("id",)}}
    site.apply(FIRST + 9, **first)
    site.feed.lines("shop.t", [("I", FIRST + 15, ["2", '"x"', '"y"'])])
    assert _one(site.apply(FIRST + 20, **first)).state is State.APPLIED
    table = _one(site.apply(FIRST + 20, keys={"shop.t": ("v", "w")}))
    assert table.state is State.HELD
    assert 'keys "id"' in table.reason
    assert _one(site.apply(FIRST + 20)).state is State.HELD
    assert not any("--new-settings" in way for way in table.ways)


def test_a_key_of_the_source_that_is_given_too_holds_nothing(site: Site) -> None:
    site.apply(FIRST + 9)
    assert _one(site.apply(FIRST + 9, keys={"shop.t": ("id",)})).state is State.APPLIED


@pytest.mark.parametrize(
    ("collation", "state"), [("utf8mb4_general_ci", State.HELD), ("utf8mb4_0900_as_cs", State.APPLIED)]
)
def test_collations_matter_to_keys_of_text(tmp_path: Path, collation: str, state: State) -> None:
    site = Site(tmp_path)
    column = file_column("k", "VARCHAR", "40", ColumnNullable="false")
    query = f"CREATE TABLE `t` (`k` VARCHAR(40) COLLATE {collation} PRIMARY KEY)"
    columns = [{**column, "ColumnIsPk": "true"}]
    write_schema(site.feed.bucket, document("shop", "t", FIRST, Query=query, Type=3, TableColumns=columns))
    site.feed.lines("shop.t", [("I", FIRST + 5, ['"x"'])])
    site.apply(FIRST + 9)
    assert _one(site.apply(FIRST + 9, new_collations=True)).state is State.APPLIED
    assert _one(site.apply(FIRST + 9, new_collations=False)).state is state


def _null(site: Site, text: str) -> None:
    site.feed.toml.write_text(f"[sink.csv]\ninclude-commit-ts = true\nnull = '{text}'\n")


def _encoding(site: Site, text: str) -> None:
    site.feed.toml.write_text(f"[sink.csv]\ninclude-commit-ts = true\nbinary-encoding-method = '{text}'\n")


@pytest.mark.parametrize(
    ("change", "text", "column", "state"),
    [
        (_null, "NULL", "VARCHAR", State.HELD),
        (_null, "NULL", "DATETIME", State.APPLIED),
        (_encoding, "hex", "BLOB", State.HELD),
        (_encoding, "hex", "VARCHAR", State.APPLIED),
    ],
)
def test_words_of_csv_matter_to_the_types_that_take_them(
    tmp_path: Path, change: Callable[[Site, str], None], text: str, column: str, state: State
) -> None:
    site = Site(tmp_path)
    site.feed.table("shop.t", [("a", column)])
    value = f'"{NOON}"' if column == "DATETIME" else '"abcd"'
    site.feed.lines("shop.t", [("I", FIRST + 5, ["1", value])])
    assert _one(site.apply(FIRST + 9)).state is State.APPLIED
    change(site, text)
    assert _one(site.apply(FIRST + 9)).state is state


# --- dumps ------------------------------------------------------------------------------------------------------------

BEFORE = "CREATE TABLE `t` (`id` INT NOT NULL PRIMARY KEY,`a` {})"


@pytest.mark.parametrize(("kind", "state"), [("TIMESTAMP", State.HELD), ("DATETIME", State.APPLIED)])
def test_the_zone_of_a_dump_matters_after_the_import_too(tmp_path: Path, kind: str, state: State) -> None:
    site, name, text = Site(tmp_path), TableId("shop", "t"), BEFORE.format(kind)
    write_dump(tmp_path / "dump", {name: (created(text), [("1", NOON)])}, FIRST, Writing(), texts={name: text})
    site.feed.table("shop.t", [("a", kind)], query=" ", kind=0)
    initial = {"dump": str(tmp_path / "dump")}
    assert _one(site.apply(FIRST + 9, initial=initial)).state is State.APPLIED
    assert _one(site.apply(FIRST + 9, initial={**initial, "tz": "Etc/UTC"})).state is State.APPLIED
    table = _one(site.apply(FIRST + 9, initial={**initial, "tz": TOKYO}))
    assert table.state is state
    if state is State.HELD:
        assert "initial.tz" in table.reason
        assert not any("--new-settings" in way for way in table.ways)
        site.rebuild("shop.t", initial={**initial, "tz": TOKYO})
        assert _one(site.apply(FIRST + 9, initial={**initial, "tz": TOKYO})).state is State.APPLIED
        assert site.moments() == {1: "01 03"}
    assert _one(site.apply(FIRST + 9)).state is State.APPLIED  # nothing of it is read any more


def test_the_zone_of_a_dump_does_not_matter_to_moments_that_its_files_have_as_instants(tmp_path: Path) -> None:
    site, text = Site(tmp_path), BEFORE.format("TIMESTAMP")
    write_dump(tmp_path / "dump", {TableId("shop", "t"): (created(text), [("1", NOON)])}, FIRST, Writing(), "parquet")
    file = next((tmp_path / "dump").glob("*.parquet"))
    pq.write_table(pq.read_table(file).cast(pa.schema([("id", pa.int32()), ("a", pa.timestamp("us", "UTC"))])), file)
    site.feed.table("shop.t", [("a", "TIMESTAMP")], query=" ", kind=0)
    initial = {"dump": str(tmp_path / "dump")}
    assert _one(site.apply(FIRST + 9, initial=initial)).state is State.APPLIED
    site.feed.lines("shop.t", [("I", FIRST + 10, ["2", f'"{NOON}"'])])
    assert _one(site.apply(FIRST + 19, initial={**initial, "tz": TOKYO})).state is State.APPLIED
    site.rebuild("shop.t", initial=initial)
    assert site.moments() == {1: "01 12", 2: "01 12"}


# --- topics -----------------------------------------------------------------------------------------------------------


def _went_on(feed: TopicFeed, **given: Any) -> TopicFeed:
    """Return the feed with other settings, as another run opens it."""
    next_feed = TopicFeed(
        ChangefeedSettings(**{**feed.settings.model_dump(), "sink_uri": feed.settings.sink_uri, **given}),
        feed.log,
        feed.recorded,
        feed.store,
    )
    next_feed.lake, next_feed.ledger = feed.lake, feed.ledger
    return next_feed


ALL_TYPES = {topic.name: topic for topic in topics(*PROTOCOLS) if topic.case.name == "A_all_types"}


@pytest.mark.parametrize(
    ("protocol", "state"),
    [("craft", State.HELD), ("open-protocol", State.HELD), ("simple", State.APPLIED), ("debezium", State.APPLIED)],
)
def test_a_zone_matters_to_the_protocols_that_do_not_write_it(protocol: str, state: State) -> None:
    topic = ALL_TYPES[protocol]
    feed = TopicFeed(settings_of(topic), topic=topic)
    feed.send()
    feed.apply()
    zoned = {
        life for life, table in feed.lake.tables.items() if any(c.type == "TIMESTAMP" for c in table.schema.stored)
    }
    outcome = _went_on(feed, tz="America/New_York").apply()
    assert zoned
    assert {table.life for table in outcome.tables if table.state is State.HELD} == (
        zoned if state is State.HELD else set()
    )


MARIADB = [recording for recording in recordings() if not recording.postgres]
ALWAYS = ("default", "iso3")
"""A connector whose messages have schema blocks, and one whose messages have none."""
MOMENTS = {"DATE", "DATETIME", "TIME"}


@pytest.mark.parametrize(
    "recording",
    [
        pytest.param(recording, marks=() if recording.variant in ALWAYS else pytest.mark.soak, id=str(recording))
        for recording in MARIADB
    ],
)
def test_modes_of_a_connector_matter_where_messages_have_no_schema_block(recording: Recording) -> None:
    feed = recording.feed()
    feed.send(lines=recording.lines)
    feed.apply()
    now = recording.connector.get("time.precision.mode", "")
    uri = re.sub(r"&time\.precision\.mode=\w+", "", recording.uri)
    other = "isostring" if now != "isostring" else "connect"
    outcome = _went_on(feed, sink_uri=f"{uri}&time.precision.mode={other}").apply()
    dated = {
        life
        for life, table in feed.lake.tables.items()
        if table.rows.num_rows and any(column.type in MOMENTS for column in table.schema.stored)
    }
    held = {table.life for table in outcome.tables if "time.precision.mode" in table.reason}
    assert dated
    assert held == (set() if recording.has_schemas else dated)


# --- records in quarantine --------------------------------------------------------------------------------------------


def test_records_in_quarantine_are_replayed_with_the_settings_of_their_time(site: Site) -> None:
    site.feed.lines("shop.t", [("I", FIRST + 6, ["7", '"no moment"'])])
    assert _one(site.apply(FIRST + 9, quarantine=True)).quarantined == 1
    (path,) = site.feed.bucket.glob("shop/t/*/CDC00000000000000000002.csv")
    path.write_bytes(path.read_bytes().replace(b"no moment", NOON.encode()))
    (refused,) = replay(site.pipeline(tz=TOKYO, quarantine=True))
    assert 'tz "Asia/Tokyo"' in refused.reason
    assert site.moments() == {1: "01 12"}
    release(site.pipeline(tz=TOKYO, quarantine=True), "shop.t", FIRST + 10, "new-settings")
    (done,) = replay(site.pipeline(tz=TOKYO, quarantine=True))
    assert done.reason == ""
    assert done.rows == 1
    assert site.moments() == {1: "01 12", 7: "01 12"}
