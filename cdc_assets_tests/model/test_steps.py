"""Steps as values: what they are equal by, and that sets of them cost what they should."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from cdc_assets.model.cuts import TagTable
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn, Predicate
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import (
    AddedStep,
    ApplyRows,
    ChangeTable,
    CreateTable,
    DropTable,
    ExchangePartition,
    HoldTable,
    RecoverTable,
    RenameTable,
    RowReading,
    Step,
)

NAME = TableId("s", "t")
LIFE, OTHER = Life(NAME, 1), Life(TableId("s", "u"), 1)
COLUMN = Column("j", "JSON", default={"any": ["JSON"]})
SCHEMA = TableSchema((COLUMN,))
ROWS = ApplyRows(LIFE, 1, 9, (), RowReading({("s/t", 1): (NAME, SCHEMA)}, ((NAME, 1, 9),)), SCHEMA, 1, {"s/t": 3})
STEPS: tuple[Step, ...] = (
    CreateTable(LIFE, 9, NAME, SCHEMA),
    ChangeTable(LIFE, 9, (AddColumn(COLUMN, {}),), SCHEMA, SCHEMA),
    ChangeTable(LIFE, 9, (AddColumn(COLUMN, {}),), SCHEMA, SCHEMA, early=True),
    RenameTable(LIFE, 9, NAME),
    DropTable(LIFE, 9),
    TagTable(LIFE, 9, "report"),
    RecoverTable(LIFE, 9, NAME),
    ExchangePartition(LIFE, OTHER, 9, Predicate("column", value="j"), True, SCHEMA),
    ROWS,
    HoldTable(LIFE, 9, "why"),
)


def test_every_kind_of_step_is_in_a_set_what_it_is_as_a_value() -> None:
    assert {AddedStep if isinstance(step, AddedStep) else type(step) for step in STEPS} == set(get_args(Step))
    assert len({*STEPS}) == len(STEPS)
    assert {*STEPS} == {replace(step) for step in STEPS}


@pytest.mark.parametrize(
    "other", [replace(ROWS, positions={}), replace(ROWS, hi=10), replace(ROWS, reading=RowReading())]
)
def test_windows_that_differ_in_anything_are_two(other: ApplyRows) -> None:
    assert len({ROWS, other}) == 2


def test_the_hash_of_a_window_does_not_look_at_its_files() -> None:
    file = DataFile("s/t/1/CDC1.csv", "s/t", 1, "s/t/1", 1, 100)
    assert hash(replace(ROWS, files=(file,), reading=RowReading(beside=(file,)))) == hash(ROWS)
