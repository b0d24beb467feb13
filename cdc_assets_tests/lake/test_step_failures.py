"""What Spark and Java raise at a step of one table: the table stops with the reason, and the others go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from cdc_assets.errors import StepFailed, TableHeld
from cdc_assets.lake import Lake, schema, windows
from cdc_assets.lake.commit import CommitTarget
from cdc_assets.lake.label import Label
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn, DeleteRows, Predicate, RetypeColumn
from cdc_assets.model.steps import ChangeTable, ExchangePartition
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.pipeline.planner import PlanRequest
from cdc_assets_tests.lake.table_source import ID, NOTE, ORDERS, SCHEMA, Source
from cdc_assets_tests.little_feed import FIRST, LittleFeed

NUMBER, TEXT = Column("i", "INT"), Column("v", "VARCHAR", precision=20)
PLAIN = TableSchema((NUMBER, TEXT), ())


def compared(op: str, bound: int, name: str = "i", part: str = "") -> Predicate:
    """`column op bound`, false for NULL; of a date's part where that is given."""
    kind = "date" if part else "int"
    value = Predicate("column", value=name, type=kind, nullable=True)
    if part:
        value = Predicate(part, (value,), type="int", nullable=True)
    return Predicate(op, (value, Predicate("literal", value=str(bound), type="int")), nullable=True)


BOUNDS = [
    ("<", 2**31, True),
    ("=", 2**31, False),
    *(
        pytest.param(*bound, marks=pytest.mark.soak)
        for bound in (
            (">=", -(2**31) - 1, True),
            (">=", -(2**63), True),
            (">=", 2**31, False),
            ("<", -(2**31), False),
            (">=", -(2**31), True),
            ("<", 2**31 - 1, True),
            ("<", 2**63, True),
        )
    ),
]
"""Either side of what a column holds, and of 64 bits; the others beside them in the soak."""


@pytest.mark.parametrize(("op", "bound", "all_numbers"), BOUNDS)
def test_a_partition_is_exchanged_whatever_its_bound_is_to_the_column(
    lake: Lake, op: str, bound: int, all_numbers: bool
) -> None:
    source, other = Source(lake, schema=PLAIN), Source(lake, TableId("shop", "other"), PLAIN)
    source.apply(110, [("I", 105, 1, "a"), ("I", 106, None, "n")])
    other.apply(110, [("I", 105, 2, "b")])
    condition = compared(op, bound)
    lake.run(ExchangePartition(source.life, other.life, 120, condition, True, PLAIN))
    lake.run(ExchangePartition(other.life, source.life, 120, condition, False, PLAIN))
    leaving = [(1, "a")] if all_numbers else []
    assert other.rows() == leaving
    assert source.rows() == sorted({(1, "a"), (2, "b"), (None, "n")} - set(leaving), key=repr)


def test_bounds_beyond_64_bits_and_beyond_those_of_a_dates_part_delete_what_they_should(lake: Lake) -> None:
    wide = TableSchema((Column("i", "BIGINT"), Column("d", "DATE")), ())
    source = Source(lake, schema=wide)
    source.apply(110, [("I", 105, 2**40, "2024-02-29"), ("I", 106, None, "2024-03-01")])
    source.change(120, wide, DeleteRows(compared(">=", 2**63)))
    source.change(130, wide, DeleteRows(compared(">=", 2**31, "d", "year")))
    assert len(source.rows()) == 2
    source.change(140, wide, DeleteRows(Predicate("not", (compared("<", 2**63),))))
    assert [row[0] for row in source.rows()] == [2**40]
    source.change(150, wide, DeleteRows(compared("<", 2**31, "d", "year")))
    assert source.rows() == []


def test_values_that_cannot_be_converted_hold_their_table_with_the_reason(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "no number")])
    number = Column("note", "INT")
    with pytest.raises(TableHeld, match="no number") as raised:
        orders.change(210, TableSchema((ID, number), ("id",)), RetypeColumn(NOTE, number))
    assert "Traceback" not in str(raised.value)
    assert lake.state.find(orders.life).label.progress.tso == 200


def test_a_table_whose_rows_would_go_to_main_unguarded_is_held(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    lake.workbench.sessions.side().sql("ALTER TABLE lake.shop.orders SET TBLPROPERTIES ('write.wap.enabled'='false')")
    sparks = patch.object(windows, "row_delta_of", return_value=None)
    with sparks, pytest.raises(TableHeld, match=r"write\.wap\.enabled"):
        orders.apply(300, [("I", 210, 2, "b")])
    assert orders.rows() == [(1, "a")]
    orders.apply(300, [("I", 210, 2, "b")])  # a row delta goes to main in its own guarded commit
    assert orders.rows() == [(1, "a"), (2, "b")]


def test_what_java_raises_at_a_step_fails_that_table_and_no_other(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = LittleFeed(tmp_path)
    for name in ("shop.a", "shop.b"):
        feed.create(name)
        feed.rows(name, FIRST, [("I", FIRST + 1, 1, "x")])
        feed.ddl(name, FIRST + 2, f"ALTER TABLE `{name[-1]}` ADD COLUMN `w` INT", 5, wide=True)
    feed.publish(FIRST + 9)

    change = schema.change

    def broken(target: CommitTarget, step: ChangeTable, label: Label, refuse_beside: Callable[[], None]) -> None:
        if step.life.born_as == TableId("shop", "a"):
            target.session.sql("SELECT raise_error('broken')").collect()
        change(target, step, label, refuse_beside)

    monkeypatch.setattr(schema, "change", broken)
    settings = feed.settings("default")
    source, request = settings.open_source(), PlanRequest(fuse=False)
    outcome = Pipeline(settings, source, lake, Ledger("sqlite://"), request=request).apply("test")
    a, b = sorted(outcome.tables, key=lambda table: table.name)
    assert (a.state, type(a.error), b.state) == ("failed", StepFailed, "applied")
    assert "broken" in a.reason
    assert "\tat " not in a.reason
    assert lake.read(TableId("shop", "b")).column_names[:3] == ["id", "v", "w"]


def test_a_table_whose_rows_were_all_deleted_takes_rows_again(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a"), ("I", 111, 2, "b")])
    orders.apply(300, [("D", 210, 1, "a"), ("D", 211, 2, "b")])
    assert lake.state.named(ORDERS).rows == 0
    orders.apply(400, [("I", 310, 2, "c"), ("I", 311, 3, "d")])
    assert orders.rows() == [(2, "c"), (3, "d")]
    orders.change(450, SCHEMA, DeleteRows(compared(">=", 0, "id")))
    orders.apply(500, [("I", 460, 2, "e")])
    assert orders.rows() == [(2, "e")]
    assert lake.state.named(ORDERS).rows == 1


def test_a_ddl_that_deletes_some_rows_and_adds_a_column_leaves_a_snapshot_with_that_column(lake: Lake) -> None:
    orders, other = Source(lake), Source(lake, TableId("shop", "other"))
    orders.apply(200, [("I", 110, 1, "7"), ("I", 111, 2, "8")])
    more = Column("more", "INT")
    wide = TableSchema((ID, NOTE, more), ("id",))
    orders.change(210, wide, AddColumn(more, "5"), DeleteRows(compared("<", 2, "id")))
    assert orders.rows() == [(2, "8", 5)]
    assert lake.state.named(ORDERS).rows == 1
    other.change(215, wide, AddColumn(more))
    lake.run(ExchangePartition(other.life, orders.life, 220, compared("<", 9, "id"), True, wide))
    assert other.rows() == [(2, "8", 5)]
    number = Column("note", "INT")
    orders.change(230, TableSchema((ID, number, more), ("id",)), RetypeColumn(NOTE, number))
    assert orders.rows() == [(2, 8, 5)]
