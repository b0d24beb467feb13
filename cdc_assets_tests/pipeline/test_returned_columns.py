"""Rows that go and come by their partition, where the column that parts them was dropped once and came back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.operations.extract import extract
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.returned_columns import PARTED, PLAIN, ReturnedColumns
from cdc_assets_tests.schema_documents import document, file_column, write_schema


@pytest.mark.parametrize("returned", [{PARTED}, {PLAIN}, {PARTED, PLAIN}], ids=["parted", "plain", "both"])
@pytest.mark.parametrize("mirror", [True, False], ids=["beside a mirror", "alone"])
def test_rows_of_partitions_by_a_column_that_came_back_move_in_history_tables(
    tmp_path: Path, returned: set[str], mirror: bool
) -> None:
    feed, lake = ReturnedColumns(tmp_path, returned).feed, MemoryLake()
    kinds = ["log", "scd2"] if mirror else ["scd2"]
    outcome = feed.pipeline_into(lake, history={"shop.*": {"kinds": kinds, "mirror": mirror}}).apply("test")
    assert [(str(table.name), table.reason) for table in outcome.tables if table.reason] == []
    mismatches = ReturnedColumns.differences(lambda name: lake.read(TableId(*name.split("."))), returned, kinds)
    assert mismatches == []


@pytest.mark.parametrize("returned", [{PARTED}, {PLAIN}, {PARTED, PLAIN}], ids=["parted", "plain", "both"])
def test_an_extract_from_the_feed_has_rows_of_partitions_by_a_column_that_came_back(
    tmp_path: Path, returned: set[str]
) -> None:
    settings = ReturnedColumns(tmp_path, returned).feed.settings()
    pipeline = Pipeline(settings, settings.open_source(), MemoryLake(), Ledger("sqlite://"))
    for name, expected in (
        (PARTED, [("DELETE", 1, 5), ("INSERT", 3, 6), ("TRUNCATE", None, None), ("TRUNCATE", None, None)]),
        (PLAIN, [("DELETE", 3, 6), ("INSERT", 1, 5)]),
    ):
        rows = extract(pipeline, name, FIRST + 35, FIRST + 70).changes.to_pylist()
        assert [(row["_change_type"], row["id"], row["v"]) for row in rows] == expected


_TEXT = file_column("v", "VARCHAR", "40")
_ID = file_column("id", "INT", is_key=True)


def _returned(directory: Path, *later: tuple[str, dict[str, str]], at_once: bool = False) -> LittleFeed:
    """A table whose column `v` is dropped and added with a default; then the DDL of `later`, and one more change."""
    feed = LittleFeed(directory)
    feed.create("shop.t")
    feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "two"), ("D", FIRST + 3, 2, "two")])
    feed.rows("shop.t", FIRST, [("I", FIRST + 4, 3, "three")])
    new = {**_TEXT, "ColumnDefault": "5"}
    add = "ADD COLUMN `v` VARCHAR(40) DEFAULT '5'"
    steps = [("DROP COLUMN `v`", None), (add, new)]
    steps = [(f"DROP COLUMN `v`, {add}", new)] if at_once else steps
    for number, (clause, column) in enumerate([*steps, *later]):
        columns = [_ID] if column is None else [_ID, column]
        query = f"ALTER TABLE `t` {clause}"
        write_schema(feed.bucket, document("shop", "t", FIRST + 10 + number, Query=query, Type=5, TableColumns=columns))
    feed.rows("shop.t", FIRST + 9 + len(steps) + len(later), [("U", FIRST + 20, 1, "7")])
    feed.publish(FIRST + 30)
    return feed


_RENAMED = ("RENAME COLUMN `v` TO `w`", {**_TEXT, "ColumnName": "w", "ColumnDefault": "5"})
_RETYPED = ("MODIFY COLUMN `w` INT DEFAULT 5", file_column("w", "INT", ColumnDefault="5"))


@pytest.mark.parametrize("at_once", [False, True], ids=["two DDLs", "one DDL"])
@pytest.mark.parametrize("later", [(), (_RENAMED,), (_RENAMED, _RETYPED)], ids=["as it is", "renamed", "retyped"])
@pytest.mark.parametrize("logged", [False, True], ids=["feed", "log"])
def test_changes_from_before_a_column_came_back_have_its_default_in_an_extract(
    tmp_path: Path, later: tuple[tuple[str, dict[str, str]], ...], at_once: bool, logged: bool
) -> None:
    more: dict[str, Any] = {"history": {"*": "log"}} if logged else {}
    settings, lake = _returned(tmp_path, *later, at_once=at_once).settings(**more), MemoryLake()
    pipeline = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))
    pipeline.apply("test")
    name, default = ("v", "5") if not later else ("w", "5" if len(later) == 1 else 5)
    newest = type(default)(7)
    for net in (False, True):
        table_extract = extract(pipeline, "shop.t", FIRST, FIRST + 30, net=net)
        assert table_extract.source == ("log" if logged else "feed")
        rows = [
            (row["id"], row["_change_type"], row[name], row["_cdc_absent"]) for row in table_extract.changes.to_pylist()
        ]
        gone = (2, "DELETE", default, None)
        begun = [(1, "INSERT", default, None), (2, "INSERT", default, None)]
        last = [(3, "INSERT", default, None), (1, "UPDATE_AFTER", newest, None)]
        assert rows == [*([] if net else begun), gone, *last]
        (mirror,) = [table for life, table in lake.tables.items() if not life.kind]
        assert sorted((row["id"], row[name]) for row in mirror.rows.to_pylist()) == [(1, newest), (3, default)]


@pytest.mark.parametrize("mask", ["null", {"constant": "x"}, {"redact": "length"}], ids=str)
def test_the_default_of_a_masked_column_that_came_back_is_masked_in_an_extract(tmp_path: Path, mask: object) -> None:
    feed, extracts = _returned(tmp_path), list[list[object]]()
    for kinds in ([], ["log"]):
        pipeline = feed.pipeline_into(
            MemoryLake(), history={"*": {"kinds": kinds}} if kinds else {}, privacy={"shop.t.v": mask}
        )
        pipeline.apply("test")
        extracts.append(extract(pipeline, "shop.t", FIRST, FIRST + 30).changes.to_pylist())
    assert extracts[0] == extracts[1]


def test_a_column_that_was_dropped_is_not_among_those_that_a_change_leaves_out(tmp_path: Path) -> None:
    """A deleted key is all that this feed has of a row: the column that went is no column of the extract."""
    feed = LittleFeed(tmp_path, "canal-json")
    feed.toml.write_text("[sink]\ndelete-only-output-handle-key-columns = true\n")
    feed.create("shop.t")
    path = feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "one"), ("D", FIRST + 2, 1, "")])
    path.write_bytes(path.read_bytes().replace(b'{"id":"1","v":""}', b'{"id":"1"}'))
    write_schema(
        feed.bucket,
        document("shop", "t", FIRST + 10, Query="ALTER TABLE `t` DROP COLUMN `v`", Type=6, TableColumns=[_ID]),
    )
    feed.publish(FIRST + 30)
    for kinds in ([], ["log"]):
        pipeline = feed.pipeline_into(MemoryLake(), history={"*": {"kinds": kinds}} if kinds else {})
        outcome = pipeline.apply("test")
        assert [table.reason for table in outcome.tables if table.reason] == []
        changes = extract(pipeline, "shop.t", FIRST, FIRST + 30).changes
        assert [(row["id"], row["_change_type"], row["_cdc_absent"]) for row in changes.to_pylist()] == [
            *[(1, "INSERT", None), (1, "DELETE", None)]
        ]
