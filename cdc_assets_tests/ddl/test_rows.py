"""What a DDL does to rows, from hand-made files to the tables of a lake in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.operations.release import release
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.schema_documents import document, file_column, write_schema

ID = file_column("id", "INT", "11", is_key=True)
V = file_column("v", "VARCHAR", "40")
W = file_column("w", "INT", "11")
CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(40))"


class Feed:
    """A bucket of `protocol` that a test writes, and the lake that it is applied to. Tables are of database `s`."""

    def __init__(self, directory: Path, protocol: str = "csv", **settings: Any) -> None:
        self.bucket, self.protocol, self.numbers = directory / "bucket", protocol, 0
        self.bucket.mkdir()
        toml = directory / "changefeed.toml"
        toml.write_text("[sink.csv]\ninclude-commit-ts = true\n")
        uri = f"file://{self.bucket}?protocol={protocol}&date-separator=none"
        uri += "&enable-tidb-extension=true" if protocol == "canal-json" else ""
        given: dict[str, Any] = {"sink_uri": uri, **settings}
        self.settings = ChangefeedSettings(name="small", changefeed_config=toml, **given)
        self.lake, self.ledger = MemoryLake(), Ledger("sqlite://")

    def ddl(
        self, at: Tso, query: str, kind: int, columns: Sequence[dict[str, str]] = (ID, V), table: str = "t"
    ) -> None:
        write_schema(self.bucket, document("s", table, at, Query=query, Type=kind, TableColumns=list(columns)))

    def rows(
        self, version: Tso, *rows: tuple[str, Tso, dict[str, object]], table: str = "t", spelling: str = ""
    ) -> None:
        """Write a file of rows (I, U or D; commit-ts; values by column); `spelling` is the name that they carry."""
        self.numbers += 1
        directory = self.bucket / "s" / table / str(version)
        directory.mkdir(parents=True, exist_ok=True)
        write = self._csv if self.protocol == "csv" else self._canal
        extension = "csv" if self.protocol == "csv" else "json"
        text = "".join(write(spelling or table, *row) + "\r\n" for row in rows)
        (directory / f"CDC{self.numbers:020d}.{extension}").write_text(text, newline="")

    def apply(self, checkpoint: Tso) -> Outcome:
        (self.bucket / "metadata").write_text(json.dumps({"checkpoint-ts": checkpoint}))
        return Pipeline(self.settings, self.settings.open_source(), self.lake, self.ledger).apply("test")

    def table(self, name: str = "t") -> list[tuple[object, ...]]:
        rows = self.lake.read(TableId("s", name)).drop_columns(["_cdc_commit_ts"])
        return sorted(tuple(row.values()) for row in rows.to_pylist())

    def _csv(self, table: str, op: str, ts: Tso, row: dict[str, object]) -> str:
        values = [str(value) if isinstance(value, int) else f'"{value}"' for value in row.values()]
        return ",".join([f'"{op}"', f'"{table}"', '"s"', str(ts), *values])

    def _canal(self, table: str, op: str, ts: Tso, row: dict[str, object]) -> str:
        message = {"id": 0, "database": "s", "table": table, "pkNames": ["id"], "isDdl": False}
        message |= {"type": {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[op], "es": 1, "ts": 1, "sql": ""}
        kinds = {name: "int" if isinstance(value, int) else "varchar" for name, value in row.items()}
        image = [{name: str(value) for name, value in row.items()}]
        message |= {"sqlType": dict.fromkeys(row, 12), "mysqlType": kinds, "old": image if op == "U" else None}
        return json.dumps({**message, "data": image, "_tidb": {"commitTs": ts}})


def states(outcome: Outcome) -> set[str]:
    return {table.state for table in outcome.tables}


@pytest.fixture(params=["csv", "canal-json"])
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Feed:
    return Feed(tmp_path, request.param)


# --- expression indexes -----------------------------------------------------------------------------------------------

HIDDEN = file_column("_V$_e_0", "VARCHAR", "40")
RENAMED = {**HIDDEN, "ColumnName": "_V$_renamed_0"}


def test_the_hidden_column_of_an_expression_index_is_no_column(feed: Feed) -> None:
    feed.ddl(2, CREATE[:-1] + ",INDEX `e`((LOWER(`v`))))", 3, (ID, V, HIDDEN))
    feed.rows(2, ("I", 3, {"id": 1, "v": "A"}))
    assert states(feed.apply(4)) == {"applied"}
    feed.ddl(5, "ALTER TABLE `t` RENAME INDEX `e` TO `renamed`", 18, (ID, V, RENAMED))
    feed.rows(5, ("I", 6, {"id": 2, "v": "B"}))
    feed.ddl(7, "ALTER TABLE `t` ADD COLUMN `w` INT", 5, (ID, V, RENAMED, W))
    feed.rows(7, ("I", 8, {"id": 3, "v": "C", "w": 7}))
    assert states(feed.apply(9)) == {"applied"}
    feed.ddl(10, "ALTER TABLE `t` DROP INDEX `renamed`", 8, (ID, V, W))
    feed.rows(10, ("D", 11, {"id": 1, "v": "A", "w": 0}))
    assert states(feed.apply(12)) == {"applied"}
    assert feed.table() == [(2, "B", None), (3, "C", 7)]


@pytest.mark.parametrize("query", ["ALTER TABLE `t` ADD UNIQUE INDEX `e`((LOWER(`v`)))", ""])
def test_an_expression_index_that_comes_later_leaves_the_columns(feed: Feed, query: str) -> None:
    feed.ddl(2, CREATE, 3)
    feed.rows(2, ("I", 3, {"id": 1, "v": "A"}))
    assert states(feed.apply(4)) == {"applied"}
    feed.ddl(5, query, 7 if query else 0, (ID, V, HIDDEN))
    feed.rows(5, ("U", 6, {"id": 1, "v": "B"}), ("I", 3, {"id": 1, "v": "A"}))  # the second one delivered again
    assert states(feed.apply(7)) == {"applied"}
    assert feed.table() == [(1, "B")]


def test_a_column_that_a_text_defines_under_such_a_name_is_a_column(feed: Feed) -> None:
    feed.ddl(2, "CREATE TABLE `t` (`id` INT PRIMARY KEY,`_V$_e_0` VARCHAR(40))", 3, (ID, HIDDEN))
    feed.rows(2, ("I", 3, {"id": 1, "_V$_e_0": "A"}))
    assert states(feed.apply(4)) == {"applied"}
    assert feed.table() == [(1, "A")]


# --- letter case of names ---------------------------------------------------------------------------------------------


def test_a_rename_finds_its_table_in_any_letter_case(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.ddl(2, CREATE.replace("`t`", "`Orders`"), 3, table="Orders")
    feed.rows(2, ("I", 3, {"id": 1, "v": "A"}), table="Orders")
    feed.ddl(5, "ALTER TABLE `ORDERS` RENAME `Sales`", 14, table="Sales")
    feed.ddl(7, "RENAME TABLE `S`.`sales` TO `s`.`SALES`", 14, table="SALES")
    feed.rows(7, ("I", 8, {"id": 2, "v": "B"}), table="SALES")
    assert states(feed.apply(9)) == {"applied"}
    assert feed.table("SALES") == [(1, "A"), (2, "B")]


def test_tables_that_swap_names_are_found_in_any_letter_case(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    for at, name in ((2, "a"), (3, "B")):
        feed.ddl(at, CREATE.replace("`t`", f"`{name}`"), 3, table=name)
        feed.rows(at, ("I", 4, {"id": at, "v": name}), table=name)
    for name, source in (("tmp", "A"), ("A", "b"), ("b", "A")):
        feed.ddl(5, f"RENAME TABLE `s`.`{source}` TO `s`.`{name}`", 47, table=name)
    assert states(feed.apply(9)) == {"applied"}
    assert (feed.table("A"), feed.table("b")) == ([(3, "B")], [(2, "a")])


def test_create_like_and_exchange_find_the_other_table_in_any_letter_case(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    parts = " PARTITION BY RANGE (`id`) (PARTITION `Low` VALUES LESS THAN (10),PARTITION `p1` VALUES LESS THAN (20))"
    v = {**V, "ColumnName": "v", "ColumnType": "ENUM"}
    text = "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`v` ENUM('A','B'))"
    feed.ddl(2, text.format("Base") + parts, 3, (ID, v), "Base")
    feed.ddl(3, "CREATE TABLE `c` LIKE `BASE`", 3, (ID, v), "c")
    feed.ddl(4, "ALTER TABLE `c` REMOVE PARTITIONING", 72, (ID, v), "c")
    feed.rows(2, ("I", 5, {"id": 1, "v": "A"}), ("I", 5, {"id": 11, "v": "B"}), table="Base")
    feed.rows(4, ("I", 5, {"id": 2, "v": "B"}), table="c")
    feed.ddl(6, "ALTER TABLE `base` EXCHANGE PARTITION `low` WITH TABLE `C`", 42, (ID, v), "Base")
    feed.ddl(6, "", 0, (ID, v), "c")
    assert states(feed.apply(9)) == {"applied"}
    assert (feed.table("Base"), feed.table("c")) == ([(2, "B"), (11, "B")], [(1, "A")])


def test_a_name_that_files_spell_in_two_ways_is_one_table(tmp_path: Path) -> None:
    feed = Feed(tmp_path, keys={"S.Orders": ("id",)})
    bare = file_column("id", "INT", "11")
    feed.ddl(2, "CREATE TABLE `Orders` (`id` INT,`v` VARCHAR(40))", 3, (bare, V), "orders")
    feed.ddl(2, "", 0, (bare, V), "Orders")
    feed.rows(2, ("I", 3, {"id": 1, "v": "A"}), ("I", 4, {"id": 2, "v": "A"}), table="Orders")
    feed.rows(2, ("U", 4, {"id": 1, "v": "B"}), table="Orders")
    assert states(feed.apply(5)) == {"applied"}
    feed.ddl(6, "DROP TABLE `ORDERS`", 4, (bare, V), "orders")
    assert states(feed.apply(7)) == {"dropped"}
    (table,) = feed.lake.tables.values()
    assert sorted(table.rows.column("v").to_pylist()) == ["A", "B"]


def test_names_are_folded_as_tidb_folds_them() -> None:
    assert TableId("Straße", "ΣΑΣ İ").folded == TableId("straße", "σασ i")


# --- tables that come back --------------------------------------------------------------------------------------------


def gone_twice(tmp_path: Path, *between: tuple[str, int]) -> Feed:
    """A table with row 1 that was dropped, another of its name with row 2, then some DDL from version 20 on."""
    feed = Feed(tmp_path)
    feed.ddl(2, CREATE, 3)
    feed.rows(2, ("I", 3, {"id": 1, "v": "A"}))
    feed.ddl(10, "DROP TABLE `t`", 4)
    feed.ddl(12, CREATE, 3)
    feed.rows(12, ("I", 13, {"id": 2, "v": "B"}))
    for at, (query, kind) in enumerate(between, 20):
        feed.ddl(at, query, kind, table="u" if kind == 14 else "t")
    return feed


TRUNCATE, DROP = ("TRUNCATE TABLE `t`", 11), ("DROP TABLE `t`", 4)


def test_a_flashback_after_a_truncate_never_brings_an_older_table(tmp_path: Path) -> None:
    feed = gone_twice(tmp_path, TRUNCATE)
    feed.ddl(30, "FLASHBACK TABLE `T` TO `back`", 25, table="back")
    (held,) = [table for table in feed.apply(40).tables if table.state == "held"]
    assert held.name == TableId("s", "back")
    assert "TRUNCATE of version 20" in held.reason
    assert feed.table() == []


@pytest.mark.parametrize(
    ("between", "query", "expected"),
    [
        ((DROP,), "RECOVER TABLE `T`", [(2, "B")]),
        ((DROP,), "RECOVER TABLE `t` 5", [(2, "B")]),
        ((TRUNCATE, DROP), "FLASHBACK TABLE `t`", []),
        ((DROP,), "RECOVER TABLE BY JOB 93", None),
        ((TRUNCATE, ("RENAME TABLE `t` TO `u`", 14)), "FLASHBACK TABLE `t`", None),
        ((DROP,), "FLASHBACK TABLE `t` TO TIMESTAMP '2026-01-01'", None),
    ],
)
def test_the_newest_that_went_comes_back_or_the_table_is_held(
    tmp_path: Path, between: tuple[tuple[str, int], ...], query: str, expected: object
) -> None:
    feed = gone_twice(tmp_path, *between)
    feed.ddl(30, query, 25)
    reached = states(feed.apply(40))
    if expected is None:
        assert "held" in reached
    else:
        assert "held" not in reached
        assert feed.table() == expected


def test_what_came_back_once_does_not_uncover_an_older_table(tmp_path: Path) -> None:
    feed = gone_twice(tmp_path, DROP)
    feed.ddl(30, "FLASHBACK TABLE `t` TO `u`", 25, table="u")
    feed.ddl(31, "FLASHBACK TABLE `t`", 25)
    outcome = feed.apply(40)
    assert feed.table("u") == [(2, "B")]
    assert [t.name.table for t in outcome.tables if t.state == "held"] == ["t"]


def test_by_job_takes_the_only_table_that_went_and_only_with_its_columns(tmp_path: Path) -> None:
    for number, columns in enumerate([(ID, V), (ID, V, W)]):
        (tmp_path / str(number)).mkdir()
        feed = Feed(tmp_path / str(number))
        feed.ddl(2, CREATE, 3)
        feed.rows(2, ("I", 3, {"id": 1, "v": "A"}))
        feed.ddl(10, "DROP TABLE `t`", 4)
        feed.ddl(30, "RECOVER TABLE BY JOB 93", 25, columns)
        assert ("held" in states(feed.apply(40))) == (len(columns) == 3)


def test_a_dropped_database_keeps_its_tables(tmp_path: Path) -> None:
    feed = gone_twice(tmp_path)
    feed.ddl(20, "DROP DATABASE `s`", 2, (), table="")
    feed.ddl(21, "CREATE DATABASE `s`", 1, (), table="")
    feed.ddl(30, "RECOVER TABLE `t`", 25)
    assert "held" in states(feed.apply(40))


# --- collations -------------------------------------------------------------------------------------------------------

K = file_column("k", "VARCHAR", "9", is_key=True)


@pytest.mark.parametrize(
    ("collation", "new", "rows", "rules"),
    [
        ("utf8mb4_general_ci", None, ["A "], {"text-key"}),
        ("utf8mb4_general_ci", True, ["A "], set()),
        ("utf8mb4_general_ci", False, ["A ", "a"], set()),
        ("utf8mb4_bin", None, ["A ", "a"], {"text-key"}),
        ("utf8mb4_unicode_ci", None, ["A "], {"text-key", "approximate-key"}),
        ("utf8mb4_0900_ai_ci", True, ["A ", "a"], {"approximate-key"}),
        ("utf8mb4_unicode_ci", False, ["A ", "a"], set()),
        ("utf8mb4_0900_bin", None, ["A ", "a"], set()),
    ],
)
def test_keys_of_text_compare_as_the_settings_say_and_assumptions_are_reported(
    tmp_path: Path, collation: str, new: bool | None, rows: list[str], rules: set[str]
) -> None:
    feed = Feed(tmp_path, new_collations=new)
    feed.ddl(2, f"CREATE TABLE `t` (`k` VARCHAR(9) COLLATE {collation} PRIMARY KEY)", 3, (K,))
    feed.rows(2, ("I", 3, {"k": "a"}))
    feed.apply(4)
    feed.rows(2, ("I", 5, {"k": "A "}))
    outcome = feed.apply(6)
    assert feed.table() == [(row,) for row in rows]
    reported = {finding.rule for finding in outcome.findings if finding.table == "s.t"}
    assert reported & {"text-key", "approximate-key"} == rules


def test_without_new_collations_another_collation_is_no_other_key(tmp_path: Path) -> None:
    feed = Feed(tmp_path, new_collations=False)
    feed.ddl(2, "CREATE TABLE `t` (`k` VARCHAR(9) PRIMARY KEY)", 3, (K,))
    feed.ddl(4, "ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8MB4 COLLATE UTF8MB4_GENERAL_CI", 22, (K,))
    feed.rows(4, ("I", 5, {"k": "a"}), ("I", 6, {"k": "A"}))
    assert states(feed.apply(7)) == {"applied"}
    assert feed.table() == [("A",), ("a",)]


# --- keys of the settings ---------------------------------------------------------------------------------------------

KEYLESS = ({**ID, "ColumnIsPk": "false"}, V)


def test_a_key_of_the_settings_is_found_in_any_letter_case_and_follows_a_rename(tmp_path: Path) -> None:
    feed = Feed(tmp_path, keys={"S.T": ("ID",)})
    feed.ddl(2, "CREATE TABLE `t` (`id` INT,`v` VARCHAR(40))", 3, KEYLESS)
    feed.rows(2, ("I", 3, {"id": 1, "v": "a"}))
    assert states(feed.apply(4)) == {"applied"}
    feed.ddl(5, "ALTER TABLE `t` RENAME COLUMN `id` TO `n`", 12, ({**KEYLESS[0], "ColumnName": "n"}, V))
    feed.rows(5, ("U", 6, {"n": 1, "v": "b"}))
    assert states(feed.apply(7)) == {"applied"}
    assert feed.table() == [(1, "b")]


def test_a_key_of_the_settings_without_its_column_holds_its_table_alone(tmp_path: Path) -> None:
    feed = Feed(tmp_path, keys={"s.t": ("id",), "s.u": ("none",)})
    for name in ("t", "u"):
        feed.ddl(2, f"CREATE TABLE `{name}` (`id` INT,`v` VARCHAR(40))", 3, KEYLESS, table=name)
        feed.rows(2, ("I", 3, {"id": 1, "v": "a"}), table=name)
    tables_by_name = {str(table.name): table for table in feed.apply(4).tables}
    assert (tables_by_name["s.t"].state, tables_by_name["s.u"].state) == ("applied", "held")
    assert 'names the column "none", which the table does not store; it has id, v' in tables_by_name["s.u"].reason
    feed.ddl(5, "ALTER TABLE `t` DROP COLUMN `id`", 6, (V,))
    feed.rows(5, ("I", 6, {"v": "b"}))
    assert states(feed.apply(7)) == {"held"}


# --- names that another table takes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["RENAME TABLE `s`.`x` TO `s`.`t`", "ALTER TABLE `x` RENAME `t`"])
def test_a_table_whose_name_an_unknown_one_takes_takes_none_of_its_rows(tmp_path: Path, text: str) -> None:
    feed = Feed(tmp_path)
    feed.ddl(2, CREATE, 3)
    feed.rows(2, ("I", 3, {"id": 1, "v": "a"}))
    feed.ddl(5, text, 14)
    feed.rows(5, ("I", 6, {"id": 2, "v": "b"}))
    (table,) = feed.apply(7).tables
    assert (table.state, feed.table()) == ("held", [(1, "a")])
    assert "no DDL says what became of s.t@2" in table.reason


@pytest.mark.parametrize("clause", ["DROP PARTITION `p0`", "TRUNCATE PARTITION `p0`"])
def test_rows_without_a_date_are_null_in_the_source_when_a_person_says_so(feed: Feed, clause: str) -> None:
    day = file_column("d", "DATE")
    parts = (
        "PARTITION BY RANGE (YEAR(`d`)) (PARTITION `p0` VALUES LESS THAN (2000),PARTITION `p1` VALUES LESS THAN (2020))"
    )
    feed.ddl(2, f"CREATE TABLE `t` (`id` INT,`d` DATE) {parts}", 3, (KEYLESS[0], day))
    feed.rows(2, ("I", 3, {"id": 1, "d": "0000-00-00"}), ("I", 3, {"id": 2, "d": "2010-01-01"}))
    text = f"ALTER TABLE `t` {clause}"
    feed.ddl(5, text, 20 if "DROP" in clause else 23, (KEYLESS[0], day))
    (table,) = feed.apply(6).tables
    assert table.state == "held"
    assert any("--apply" in way for way in table.ways)
    pipeline = Pipeline(feed.settings, feed.settings.open_source(), feed.lake, feed.ledger)
    release(pipeline, "s.t", 5, "apply", text)
    assert states(feed.apply(6)) == {"applied"}
    assert [row[0] for row in feed.table()] == [2]


# --- numbers that no table has ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", ["8193", "999999999", "9" * 5000])
def test_a_number_of_partitions_that_no_table_has_is_not_understood(feed: Feed, count: str) -> None:
    feed.ddl(2, f"{CREATE} PARTITION BY HASH (`id`) PARTITIONS {count}", 3)
    feed.rows(2, ("I", 3, {"id": 1, "v": "a"}))
    assert (states(feed.apply(4)), feed.table()) == ({"applied"}, [(1, "a")])
    feed.ddl(5, f"ALTER TABLE `t` COALESCE PARTITION {count}", 64)
    assert states(feed.apply(6)) == {"held"}


def test_a_view_that_is_gone_leaves_its_name_to_a_table(feed: Feed) -> None:
    feed.ddl(2, "CREATE VIEW `t` AS SELECT 1", 21)
    feed.ddl(3, "DROP VIEW `T`", 24)
    feed.ddl(5, "", 0)
    feed.rows(5, ("I", 6, {"id": 1, "v": "a"}))
    assert (states(feed.apply(7)), feed.table()) == ({"applied"}, [(1, "a")])


def test_who_wants_the_name_of_a_held_table_waits_however_it_is_spelled(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    for name in ("T", "x"):
        feed.ddl(2, f"CREATE TABLE `{name}` (`id` INT PRIMARY KEY,`v` VARCHAR(40))", 3, table=name)
    assert states(feed.apply(4)) == {"applied"}
    feed.ddl(5, "ALTER TABLE `T` FROBNICATE", 5, table="T")
    feed.ddl(6, "RENAME TABLE `s`.`T` TO `s`.`u`", 14, table="u")
    feed.ddl(7, "RENAME TABLE `s`.`x` TO `s`.`t`", 14)
    feed.rows(7, ("I", 8, {"id": 1, "v": "a"}))
    tables_by_life = {str(table.life): table for table in feed.apply(9).tables}
    assert tables_by_life["s.T@2"].state == "held"
    assert tables_by_life["s.x@2"].reason.startswith("waits for s.T@2, which is held")
