"""Type changes and partitions of dates on real Spark: the values of the Arrow path, and what holds a table."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from cdc_assets import ddl
from cdc_assets.decoding.upgrade import evolve_rows
from cdc_assets.errors import TableHeld
from cdc_assets.lake import Lake
from cdc_assets.model.progress import Phase, Progress
from cdc_assets.model.schema import Column, Partitioning, TableId, TablePartition, TableSchema
from cdc_assets.model.schema_changes import DeleteRows, RetypeColumn
from cdc_assets.model.steps import ExchangePartition
from cdc_assets_tests.lake.table_source import ID, ORDERS, Source
from cdc_assets_tests.types.test_conversions import col

TURNED: list[tuple[str, str, str, tuple[object, ...]]] = [
    ("a", "FLOAT", "DECIMAL(10,2)", ("2.675", "1.005", None)),
    ("b", "DOUBLE", "INT", ("2.5", "-2.5", "3.5")),
    ("c", "BIT(8)", "VARCHAR(3)", ("65", "200", None)),
    ("d", "TIMESTAMP", "DATETIME", ("2020-01-01 20:00:00", None, "2020-06-30 23:59:59")),
    ("e", "DATETIME(3)", "BIGINT", ("2020-02-29 23:59:59.999", None, "0000-03-01 00:00:00.500")),
    ("f", "DATETIME(6)", "VARCHAR(30)", ("0000-02-29 23:59:59.600000", "9999-12-31 23:59:59.999999", None)),
    ("g", "TIME(3)", "INT", ("12:59:59.500", "-01:02:03.500", None)),
    ("h", "TEXT", "JSON", ("1e3", '{"b": 1.50, "a": []}', None)),
    ("i", "JSON", "INT", ("true", "2.5", '"2.5"')),
    ("j", "VARCHAR(40)", "VARCHAR(3)", ("abc  ", "de", None)),
    ("k", "INT", "TINYINT", ("127", "-128", None)),
    ("l", "BIGINT UNSIGNED", "VARCHAR(20)", ("18446744073709551615", "0", None)),
    ("m", "DATE", "TIMESTAMP", ("2020-02-29", None, "1999-12-31")),
]


def _schema(types: dict[str, str]) -> TableSchema:
    return TableSchema((ID, *(replace(col(text), name=name) for name, text in types.items())), ("id",))


def test_rows_change_on_executors_as_they_do_in_arrow(lake: Lake) -> None:
    before = _schema({name: old for name, old, _, _ in TURNED})
    after = _schema({name: new for name, _, new, _ in TURNED})
    orders = Source(lake, schema=before)
    orders.apply(200, [("I", 110, n, *(values[n] for *_, values in TURNED)) for n in range(3)])
    rows = lake.read(ORDERS)
    changes = [
        RetypeColumn(old, new, "Asia/Shanghai", "a guess" if old.type == "TIMESTAMP" else "")
        for old, new in zip(before.stored[1:], after.stored[1:], strict=True)
    ]
    expected = evolve_rows(rows, changes, after)
    result = orders.change(210, after, *changes)
    assert lake.read(ORDERS).select(expected.column_names).sort_by("id").equals(expected.sort_by("id"))
    assert any("d is approximate: a guess" in statement for statement in result.statements)


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [("VARCHAR(40)", "VARCHAR(3)", "abcd"), ("INT", "TINYINT", "300"), ("VARCHAR(40)", "INT", "12x")],
)
def test_a_value_that_the_new_type_refuses_holds_the_table_with_its_reason(
    lake: Lake, old: str, new: str, value: str
) -> None:
    before, after = _schema({"v": old}), _schema({"v": new})
    orders = Source(lake, schema=before)
    orders.apply(200, [("I", 110, 1, value), ("I", 110, 2, None)])
    with pytest.raises(TableHeld, match=rf'column "v": .*{value}.* cannot become {new.split("(")[0]}'):
        orders.change(210, after, RetypeColumn(before.column("v"), after.column("v")))
    assert orders.rows()[1] == (2, None)
    assert lake.applied()[orders.life].progress == Progress(200, Phase.ROWS)


def test_a_narrower_type_that_fits_is_no_rewrite(lake: Lake) -> None:
    before, after = _schema({"v": "VARCHAR(40)", "n": "INT"}), _schema({"v": "VARCHAR(3)", "n": "TINYINT"})
    orders = Source(lake, schema=before)
    orders.apply(200, [("I", 110, 1, "abc", "-128"), ("I", 110, 2, None, None)])
    turned = [RetypeColumn(old, new) for old, new in zip(before.stored[1:], after.stored[1:], strict=True)]
    result = orders.change(210, after, *turned)
    assert orders.rows() == [(1, "abc", -128), (2, None, None)]
    assert not any("REPLACE" in statement for statement in result.statements)


def test_null_of_a_column_that_is_not_null_any_more_is_filled_and_without_one_nothing_is_rewritten(lake: Lake) -> None:
    before = _schema({"v": "INT", "n": "VARCHAR(3)"})
    after = replace(before, columns=(ID, *(replace(column, nullable=False) for column in before.stored[1:])))
    orders = Source(lake, schema=before)
    orders.apply(200, [("I", 110, 1, "7", "a")])
    turned = [RetypeColumn(old, new) for old, new in zip(before.stored[1:], after.stored[1:], strict=True)]
    result = orders.change(210, after, *turned)
    assert not any("REPLACE" in statement for statement in result.statements)
    orders.change(220, before)
    orders.apply(230, [("I", 221, 2, None, "b"), ("I", 222, 3, "9", None)])
    orders.change(240, after, *turned)
    assert orders.rows() == [(1, 7, "a"), (2, 0, "b"), (3, 9, "")]


# --- partitions of dates ----------------------------------------------------------------------------------------------

DAY = Column("d", "DATE")
PARTS = Partitioning(
    "RANGE",
    ("year(`d`)",),
    (TablePartition("p0", ("2020",)), TablePartition("p1", ("2021",)), TablePartition("p2", (None,))),
)
DATED = TableSchema((ID, DAY), ("id",), (), PARTS)


def test_a_partition_goes_where_every_row_has_its_date(lake: Lake) -> None:
    orders = Source(lake, schema=DATED)
    orders.apply(200, [("I", 110, 1, "2019-12-31"), ("I", 110, 2, "2020-01-01")])
    orders.change(210, DATED, DeleteRows(ddl.partition_predicate(PARTS, ("p0",), DATED)))
    assert orders.rows() == [(2, date(2020, 1, 1))]


def test_a_partition_is_held_while_a_row_may_be_of_a_partial_date(lake: Lake) -> None:
    parted, plain = Source(lake, schema=DATED), Source(lake, TableId("shop", "archive"), DATED)
    parted.apply(200, [("I", 110, 1, "2020-00-00"), ("I", 110, 2, "2019-01-01")])
    plain.apply(200, [("I", 110, 7, "2019-06-01")])
    gone = ddl.partition_predicate(PARTS, ("p0",), DATED)
    for source, other, split in ((parted, plain, True), (plain, parted, False)):
        with pytest.raises(TableHeld, match="partial date"):
            lake.run(ExchangePartition(source.life, other.life, 300, gone, split, DATED))
    with pytest.raises(TableHeld, match="partial date"):
        parted.change(210, DATED, DeleteRows(gone))
    assert parted.rows() == [(1, None), (2, date(2019, 1, 1))]
    parted.change(210, DATED, DeleteRows(None))
    assert parted.rows() == []
