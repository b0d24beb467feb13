"""Columns of the setting `columns` on Iceberg: by row delta, MERGE, first load and counted rows, across DDL."""

from __future__ import annotations

import dataclasses
import random
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import pytest

from cdc_assets.errors import TableHeld
from cdc_assets.lake import Lake, windows
from cdc_assets.model.layout import INGESTED_AT, LAKE_COLUMNS, PLACE
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn, DeleteRows, RetypeColumn
from cdc_assets_tests.lake.table_source import ID, NOTE, SCHEMA, Source

BOTH = tuple(LAKE_COLUMNS.values())
KEYLESS = TableSchema((Column("id", "BIGINT"), NOTE), ())


def apply(source: Source, hi: int, names: tuple[str, ...], *files: list[tuple[Any, ...]]) -> None:
    """Apply a window with these columns."""
    step, opener = source.window(hi, *files)
    step = dataclasses.replace(step, lake_columns=names)
    source.lake.commit(step, source.lake.stage(step, opener))


def made(lake: Lake, name: str, names: tuple[str, ...] = (), schema: TableSchema = SCHEMA) -> Source:
    """Return the source of a table that was made with these columns."""
    source = Source(lake, TableId("shop", name), schema, create=False)
    lake.run(dataclasses.replace(source.birth, lake_columns=names))
    return source


def rows_of(source: Source, *left_out: str) -> list[tuple[Any, ...]]:
    table = source.lake.read(source.name)
    table = table.drop_columns([name for name in left_out if name in table.column_names])
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.mark.parametrize("schema", [SCHEMA, KEYLESS], ids=["keyed", "without key"])
def test_every_writer_fills_the_columns_and_leaves_the_rows_of_the_source(schema: TableSchema, lake: Lake) -> None:
    keyed, rng, alive, ts = bool(schema.key), random.Random(7), dict[int, tuple[str, int]](), 101
    writers: dict[str, AbstractContextManager[Any]] = {"a": nullcontext()}
    if keyed:  # rows without key are counted, which only Spark does
        writers["b"] = patch.object(windows, "row_delta_of", return_value=None)
    sources = {name: made(lake, name, BOTH if name == "a" else (), schema) for name in writers}
    for number in range(5):
        rows: list[tuple[Any, ...]] = []
        for _ in range(rng.randrange(3, 9)):
            key = rng.randrange(8)
            op = "I" if key not in alive else rng.choice("UD") if keyed else "D"
            rows.append((op, ts, key, alive.pop(key)[0] if op == "D" and not keyed else f"{op}{ts}"))
            if op == "D":
                alive.pop(key, None)
            else:
                alive[key] = (f"{op}{ts}", ts)
            ts += 1
        names = (BOTH, BOTH[:1], (), BOTH, BOTH[1:])[number]
        for name, writer in writers.items():
            with writer:
                apply(sources[name], ts - 1, names, rows)
            assert sources[name].columns() == ["id", "note", "_cdc_commit_ts", *names]
            assert rows_of(sources[name], *BOTH) == sorted(((key, *row) for key, row in alive.items()), key=repr)
        assert rows_of(sources["a"], INGESTED_AT) == rows_of(sources[name], INGESTED_AT)
        written = lake.read(sources["a"].name).to_pylist()
        new = {row["id"]: row for row in written if row["_cdc_commit_ts"] >= rows[0][1]}
        for line, (op, at, key, _) in enumerate(rows, 1):
            if op != "D" and key in alive and alive[key][1] == at:
                assert PLACE not in names or new[key][PLACE] == f"r/100/CDC000001.csv:{line}"
                assert INGESTED_AT not in names or new[key][INGESTED_AT] is not None


def test_a_first_load_writes_the_columns_into_data_files(lake: Lake) -> None:
    source = made(lake, "a", BOTH)
    with patch.object(windows, "_write", side_effect=AssertionError):
        apply(source, 120, BOTH, [("I", 101, 1, "a"), ("I", 102, 2, "b")], [("U", 103, 2, "c")])
    assert rows_of(source, INGESTED_AT) == [
        (1, "a", 101, "r/100/CDC000001.csv:1"),
        (2, "c", 103, "r/100/CDC000002.csv:1"),
    ]


def test_the_columns_stay_last_and_keep_their_values_across_ddl_and_repeated_windows(lake: Lake) -> None:
    source = made(lake, "a", ("_cdc_place",))
    apply(source, 120, ("_cdc_place",), [("I", 101, 1, "12")])
    amount = Column("amount", "INT")
    source.change(130, TableSchema((ID, NOTE, amount), ("id",)), AddColumn(amount, None))
    assert source.columns() == ["id", "note", "amount", "_cdc_commit_ts", PLACE]
    number = Column("note", "BIGINT")
    source.change(140, TableSchema((ID, number, amount), ("id",)), RetypeColumn(NOTE, number))
    assert rows_of(source) == [(1, 12, None, 101, "r/100/CDC000001.csv:1")]
    apply(source, 150, BOTH, [("I", 145, 2, 13, 1)])
    assert source.columns() == ["id", "note", "amount", "_cdc_commit_ts", *BOTH]
    assert rows_of(source, INGESTED_AT)[1] == (2, 13, 1, 145, "r/100/CDC000001.csv:1")
    source.change(160, source.schema, DeleteRows(None))
    assert rows_of(source) == []
    apply(source, 170, (), [("I", 165, 3, 14, 1)])
    assert source.columns() == ["id", "note", "amount", "_cdc_commit_ts"]


@pytest.mark.parametrize("name", [*BOTH, "_CDC_Place", "_file", "_POS", "_row_id"])
def test_a_column_of_the_source_with_such_a_name_holds_its_table(name: str, lake: Lake) -> None:
    schema = TableSchema((ID, Column(name, "VARCHAR", precision=9)), ("id",))
    with pytest.raises(TableHeld, match="reserved for the lake's own columns"):
        made(lake, "a", BOTH, schema)
