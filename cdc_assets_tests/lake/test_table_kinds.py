"""Rows by a condition, rows without a key, and keys by their collation, on real Spark and Iceberg."""

from __future__ import annotations

import pytest

from cdc_assets.errors import TableHeld
from cdc_assets.lake import Lake
from cdc_assets.model.progress import Phase, Progress
from cdc_assets.model.reports import AlikeKeys
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import (
    DeleteRows,
)
from cdc_assets.model.steps import (
    ExchangePartition,
)
from cdc_assets_tests.lake.table_source import ID, NOTE, ORDERS, SCHEMA, Source, id_below


def test_a_partition_is_deleted_by_its_condition(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a"), ("I", 110, 2, "b"), ("I", 110, 3, None)])
    orders.change(210, SCHEMA, DeleteRows(id_below(3)))
    assert orders.rows() == [(3, None)]
    assert lake.applied()[orders.life].progress == Progress(210, Phase.DDL)


@pytest.mark.parametrize("crash", [0, 1], ids=["after the first table", "after both"])
def test_exchanging_a_partition_swaps_rows_however_often_it_is_begun(lake: Lake, crash: int) -> None:
    parted, plain = Source(lake), Source(lake, TableId("shop", "archive"))
    parted.apply(200, [("I", 110, i, "p") for i in (1, 2, 3)])
    plain.apply(200, [("I", 110, 1, "n")])
    steps = [
        ExchangePartition(parted.life, plain.life, 300, id_below(3), True, SCHEMA),
        ExchangePartition(plain.life, parted.life, 300, id_below(3), False, SCHEMA),
    ]
    for step in steps[: crash + 1]:
        lake.run(step)
    for step in steps:
        lake.run(step)
    assert parted.rows() == [(1, "n"), (3, "p")]
    assert plain.rows() == [(1, "p"), (2, "p")]


BAG = TableSchema((Column("a", "INT"), Column("b", "VARCHAR", precision=9), Column("f", "FLOAT")))


def test_a_table_without_key_holds_equal_rows_as_often_as_the_source(lake: Lake) -> None:
    bag = Source(lake, schema=BAG)
    bag.apply(
        200,
        [
            ("I", 110, 1, "x", "0.1"),
            ("I", 110, 1, "x", "0.1"),
            ("I", 120, None, None, None),
            ("I", 130, None, None, None),
        ],
    )
    bag.apply(
        300,
        [("D", 210, 1, "x", "0.1"), ("D", 220, None, None, None), ("I", 230, 2, "y", None), ("I", 231, 2, "y", None)],
    )
    assert [row[:2] for row in bag.rows()] == [(1, "x"), (2, "y"), (2, "y"), (None, None)]
    bag.apply(400, [("D", 310, 2, "y", None)])
    assert lake.state.named(ORDERS).rows == 3


def test_a_delete_that_finds_no_equal_row_holds_the_table(lake: Lake) -> None:
    bag = Source(lake, schema=BAG)
    bag.apply(200, [("I", 110, 1, "x", None)])
    with pytest.raises(TableHeld, match="no key"):
        bag.apply(300, [("D", 210, 1, "x", None), ("D", 220, 1, "x", None)])
    assert len(bag.rows()) == 1


PRINTED = TableSchema((Column("c0", "INT"), Column("doc", "JSON"), Column("f", "FLOAT"), Column("n", "JSON")))


def test_rows_without_key_leave_by_the_forms_of_their_values(lake: Lake) -> None:
    bag = Source(lake, schema=PRINTED)
    spaced, compact = '{"a": 1e15, "b": [1, 2]}', '{"a":1.0E15,"b":[1,2]}'
    bag.apply(
        200,
        [
            *[("I", 110, 1, spaced, "16777200", "[]")] * 3,
            ("I", 111, 1, compact, "16777216", "[]"),
            ("I", 112, 2, None, None, "[1, 1]"),
            ("I", 113, 2, None, None, None),
            ("I", 114, 3, spaced, "0.1", "[]"),
        ],
    )
    bag.apply(
        300,
        [
            *[("D", 210, 1, compact, "16777216", "[]")] * 3,
            ("D", 211, 2, None, None, "[1,1]"),
            *[("I", 220, 3, spaced, "0.1", "[]")] * 2,
            *[("D", 230, 3, compact, "0.1", "[]")] * 2,
        ],
    )
    assert [row[0] for row in bag.rows()] == [1, 2, 3]
    with pytest.raises(TableHeld, match="2 of 3 deleted rows"):
        bag.apply(500, [*[("D", 410, 3, compact, "0.1", "[]")] * 2, ("D", 411, 3, compact, "0.2", "[]")])


def test_keys_match_by_their_collation(lake: Lake) -> None:
    name = Column("id", "VARCHAR", precision=9, nullable=False, is_pk=True, collation="utf8mb4_general_ci")
    orders = Source(lake, schema=TableSchema((name, NOTE), ("id",)))
    orders.apply(200, [("I", 110, "a", "1"), ("I", 110, "b", "1")])
    orders.apply(300, [("U", 210, "A", "2"), ("D", 220, "B", "1")])
    assert orders.rows() == [("A", "2")]


def test_keys_that_meet_a_living_one_of_other_letters_are_counted(lake: Lake) -> None:
    text = Column("code", "VARCHAR", precision=9, collation="utf8mb4_general_ci")
    orders = Source(lake, schema=TableSchema((NOTE, ID, text), ("id", "code")))
    first = orders.window(200, [("I", 110, "x", n, code) for n in (1, 2, 3) for code in ("a", None)])
    staged = lake.stage(*first)
    assert (lake.commit(first[0], staged).alike.count, staged.report.alike.count) == (0, 0)
    changed = [("D", 210, "x", 1, "a"), ("I", 210, "y", 1, "A"), ("I", 211, "y", 2, "a"), ("I", 212, "y", 4, "a")]
    assert orders.apply(300, changed).alike == AlikeKeys()
    met = orders.apply(400, [("I", 310, "z", 2, "A "), ("I", 311, "z", 3, "A"), ("I", 312, "z", 1, "A")])
    assert met.alike == AlikeKeys(2, '2, "A "')
    within = orders.window(500, [("I", 410, "z", 5, "a"), ("I", 411, "z", 5, "A")])
    assert lake.stage(*within).report.alike == AlikeKeys(1, '5, "A"')


def test_a_composite_key_with_a_nullable_column_matches_null(lake: Lake) -> None:
    other = Column("other", "INT")
    orders = Source(lake, schema=TableSchema((ID, other, NOTE), ("id", "other")))
    orders.apply(200, [("I", 110, 1, None, "a"), ("I", 110, 1, 1, "b")])
    orders.apply(300, [("U", 210, 1, None, "A")])
    assert sorted(row[2] for row in orders.rows()) == ["A", "b"]
