"""DDL of columns on real Spark and Iceberg: what existing rows read afterwards, and what holds the table."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal

import pytest

from cdc_assets.errors import TableHeld
from cdc_assets.lake import Lake
from cdc_assets.model.progress import Phase, Progress
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import (
    AddColumn,
    DeleteRows,
    DropColumn,
    MoveColumns,
    RenameColumn,
    RetypeColumn,
    SetDefault,
)
from cdc_assets.model.steps import (
    ChangeTable,
)
from cdc_assets_tests.lake.table_source import ID, NOTE, ORDERS, SCHEMA, Source

DEFAULTS: list[tuple[Column, object, object]] = [
    (Column("c", "INT"), "5", 5),
    (Column("c", "BIGINT", unsigned=True), "18446744073709551615", Decimal(18446744073709551615)),
    (Column("c", "VARCHAR", precision=9), "it's", "it's"),
    (Column("c", "VARCHAR", precision=9), "", ""),
    (Column("c", "DECIMAL", precision=10, scale=2), "1.50", Decimal("1.50")),
    (Column("c", "DECIMAL", precision=50, scale=2), "1.50", "1.50"),
    (Column("c", "DATETIME", scale=3), "2020-01-02 03:04:05.006", datetime(2020, 1, 2, 3, 4, 5, 6000)),
    (Column("c", "TIMESTAMP"), "2020-01-02 03:04:05", datetime(2020, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),
    (Column("c", "DATE"), "2020-02-29", date(2020, 2, 29)),
    (Column("c", "DATE", nullable=False), "0000-00-00", None),
    (Column("c", "BIT", precision=1), "1", True),
    (Column("c", "BIT", precision=9), "257", 257),
    (Column("c", "FLOAT"), "1.25", 1.25),
    (Column("c", "DOUBLE"), "-1e300", -1e300),
    (Column("c", "BINARY", precision=3), b"\x00a\xff", b"\x00a\xff"),
    (Column("c", "ENUM", elems=("x", "y")), "y", "y"),
    (Column("c", "TIME"), "-838:59:59", "-838:59:59"),
    (Column("c", "VECTOR"), "[1,2.5]", [1.0, 2.5]),
    (Column("c", "JSON"), None, None),
]


def test_rows_from_before_an_added_column_read_its_default_of_any_type(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    columns = [replace(column, name=f"c{i}") for i, (column, _, _) in enumerate(DEFAULTS)]
    changes = [AddColumn(column, default) for column, (_, default, _) in zip(columns, DEFAULTS, strict=True)]
    scalars = [i for i, (column, _, _) in enumerate(DEFAULTS) if column.type != "VECTOR"]
    schema = TableSchema((ID, NOTE, *(columns[i] for i in scalars)), ("id",))
    result = orders.change(210, schema, *(changes[i] for i in scalars))
    assert orders.rows() == [(1, "a", *(DEFAULTS[i][2] for i in scalars))]
    assert not any("REPLACE" in statement for statement in result.statements)
    vector = next(i for i, (column, _, _) in enumerate(DEFAULTS) if column.type == "VECTOR")
    orders.change(220, TableSchema((*schema.columns, columns[vector]), ("id",)), changes[vector])
    assert orders.rows()[0][-1] == [1.0, 2.5]


def test_columns_end_in_the_order_of_the_schema_with_the_commit_ts_last(lake: Lake) -> None:
    orders = Source(lake)
    first = Column("first", "INT")
    orders.change(110, TableSchema((first, ID, NOTE), ("id",)), AddColumn(first), MoveColumns(("first", "id", "note")))
    assert orders.columns() == ["first", "id", "note", "_cdc_commit_ts"]


def test_two_columns_exchange_names_and_keep_their_values(lake: Lake) -> None:
    a, b = Column("a", "INT"), Column("B.c`", "INT")
    orders = Source(lake, schema=TableSchema((ID, a, b), ("id",)))
    orders.apply(200, [("I", 110, 1, 10, 20)])
    after = TableSchema((ID, replace(b, name="a"), replace(a, name="B.c`")), ("id",))
    orders.change(210, after, RenameColumn("a", "B.c`"), RenameColumn("B.c`", "a"), MoveColumns(("id", "a", "B.c`")))
    assert lake.read(ORDERS).select(["a", "B.c`"]).to_pylist() == [{"a": 20, "B.c`": 10}]


def test_a_dropped_and_added_column_starts_anew(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    orders.change(210, SCHEMA, DropColumn("note"), AddColumn(NOTE))
    assert orders.rows() == [(1, None)]


def test_a_widened_type_is_no_rewrite(lake: Lake) -> None:
    old = (Column("i", "INT"), Column("f", "FLOAT"), Column("d", "DECIMAL", precision=5, scale=2))
    new = (Column("i", "BIGINT"), Column("f", "DOUBLE"), Column("d", "DECIMAL", precision=9, scale=2))
    orders = Source(lake, schema=TableSchema((ID, *old), ("id",)))
    orders.apply(200, [("I", 110, 1, 7, "0.5", "1.20")])
    changes = [RetypeColumn(a, b) for a, b in zip(old, new, strict=True)]
    result = orders.change(210, TableSchema((ID, *new), ("id",)), *changes)
    assert orders.rows() == [(1, 7, 0.5, Decimal("1.20"))]
    assert not any("REPLACE" in statement for statement in result.statements)


def test_a_type_that_iceberg_cannot_widen_is_rewritten_and_all_else_stays(lake: Lake) -> None:
    old = (Column("i", "INT"), Column("d", "DECIMAL", precision=5, scale=2), Column("t", "DATE"), Column("gone", "INT"))
    new = (Column("s", "VARCHAR", precision=9), Column("d", "DECIMAL", precision=9, scale=1), Column("t", "DATETIME"))
    added = Column("added", "INT", default="4")
    orders = Source(lake, schema=TableSchema((ID, *old), ("id",)))
    orders.apply(200, [("I", 110, 1, -7, "1.25", "2020-01-02", 9), ("I", 120, 2, None, None, None, None)])
    before = lake.state.find(orders.life)
    orders.change(
        210,
        TableSchema((new[0], ID, *new[1:], added), ("id",)),
        RenameColumn("i", "s"),
        RetypeColumn(replace(old[0], name="s"), new[0]),
        RetypeColumn(old[1], new[1]),
        RetypeColumn(old[2], new[2]),
        DropColumn("gone"),
        AddColumn(added, "4"),
        MoveColumns(("s", "id", "d", "t", "added")),
    )
    assert orders.rows() == [("-7", 1, Decimal("1.3"), datetime(2020, 1, 2), 4), (None, 2, None, None, 4)]
    after = lake.state.find(orders.life)
    assert (after.location, after.life, after.name) == (before.location, before.life, before.name)
    assert after.label.progress == Progress(210, Phase.DDL)
    table = lake.state.catalog.load_table(("shop", "orders"))
    assert table.schema().find_field("d").doc == "DECIMAL(9,1)"
    assert table.format_version == 3
    orders.apply(300, [("U", 250, "x", 1, "2.0", None, 5)])
    assert orders.rows()[0][:3] == ("x", 1, Decimal("2.0"))


def test_a_ddl_carried_out_twice_changes_nothing(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "5")])
    number = Column("note", "INT")
    step = ChangeTable(orders.life, 210, (RetypeColumn(NOTE, number),), TableSchema((ID, number), ("id",)), SCHEMA)
    lake.run(step)
    again = lake.run(step)
    assert again.snapshot_before == again.snapshot_after
    assert orders.rows() == [(1, 5)]


def test_a_ddl_at_the_very_tso_that_rows_reached_is_still_carried_out(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    orders.change(200, SCHEMA, DeleteRows(None))
    applied = lake.applied()[orders.life]
    assert orders.rows() == []
    assert (applied.progress, applied.ddl) == (Progress(200, Phase.ROWS), 200)


def test_a_new_default_changes_no_row_and_is_documented(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    orders.change(210, TableSchema((ID, replace(NOTE, default="x")), ("id",)), SetDefault("note", "x"))
    assert orders.rows() == [(1, "a")]
    field = lake.state.catalog.load_table(("shop", "orders")).schema().find_field("note")
    assert field.doc == 'VARCHAR(20) DEFAULT "x"'


def test_columns_that_do_not_lead_to_the_schema_hold_the_table(lake: Lake) -> None:
    orders = Source(lake)
    with pytest.raises(TableHeld, match="schema file"):
        orders.change(210, TableSchema((ID, NOTE, Column("x", "INT")), ("id",)), SetDefault("note", None))
    assert lake.applied()[orders.life].progress == Progress(100, Phase.DDL)


def test_a_column_with_a_name_of_the_lake_itself_holds_the_table(lake: Lake) -> None:
    with pytest.raises(TableHeld, match="_CDC_commit_ts"):
        Source(lake, schema=TableSchema((ID, Column("_CDC_commit_ts", "INT")), ("id",)))
