"""Columns of the source by any name, in every statement by which rows are written.

`checked_statements` looks for such names in each statement that any test runs; `make soak` carries some out.
"""

from __future__ import annotations

from typing import Any

import pytest

from cdc_assets.lake import Lake
from cdc_assets.model.kinds import HistoryRule
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import DeleteRows, Predicate
from cdc_assets_tests.lake.table_source import ID, Source
from cdc_assets_tests.own_aliases import foreign_names

NAMES = ("t", "S", "b", "d", "n", "f", "p", "r", "ts", "c0", "c1", "k0", "v", "changes", "leaving", "count", "name")
"""Names such as SQL that is written in a hurry has."""
KEYED = TableSchema((ID, *(Column(name, "INT") for name in NAMES)), ("id",))
KEYLESS = TableSchema(tuple(Column(name, "INT") for name in NAMES))
KEYS = tuple(Column(name, "INT", nullable=False, is_pk=True) for name in NAMES)


def below(name: str, bound: int) -> DeleteRows:
    sides = (Predicate("column", value=name, type="int"), Predicate("literal", value=str(bound), type="int"))
    return DeleteRows(Predicate("<", sides))


def row(*numbers: int) -> tuple[Any, ...]:
    """Values of all columns: the last number stands for the rest."""
    return (*numbers, *[numbers[-1]] * (len(NAMES) - len(numbers)))


@pytest.fixture
def merges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each window be written by a MERGE of Spark."""
    from cdc_assets.lake import windows

    monkeypatch.setattr(windows, "row_delta_of", lambda *_, **__: None)


@pytest.mark.soak
def test_rows_without_key_leave_whatever_their_columns_are_called(lake: Lake) -> None:
    source = Source(lake, schema=KEYLESS)
    source.apply(200, [("I", 110, *row(1)), ("I", 111, *row(2)), ("I", 112, *row(2)), ("I", 113, *row(3))])
    source.apply(300, [("D", 210, *row(2)), ("I", 211, *row(4))])
    assert source.rows() == [row(1), row(2), row(3), row(4)]
    source.change(400, KEYLESS, below("c0", 3))
    assert source.rows() == [row(3), row(4)]


@pytest.mark.soak
@pytest.mark.parametrize("schema", [KEYED, TableSchema(KEYS, NAMES)], ids=["values", "keys"])
@pytest.mark.usefixtures("merges")
def test_rows_with_a_key_change_whatever_their_columns_are_called(lake: Lake, schema: TableSchema) -> None:
    first = (9,) if schema is KEYED else ()
    source = Source(lake, schema=schema)
    source.apply(200, [("I", 110, *first, *row(1)), ("I", 111, *(10,) * len(first), *row(2))])
    source.apply(300, [("D", 210, *first, *row(1)), ("I", 220, *(11,) * len(first), *row(3))])
    source.change(400, schema, below("c1", 3))
    assert source.rows() == [(*(11,) * len(first), *row(3))]


@pytest.mark.soak
@pytest.mark.usefixtures("merges")
@pytest.mark.parametrize("kind", ["scd2", "log"])
def test_histories_are_kept_whatever_the_columns_are_called(lake: Lake, kind: str) -> None:
    source = Source(lake, schema=KEYED, rule=HistoryRule("shop.orders", (kind,)))
    source.apply(200, [("I", 110, 1, *row(1)), ("I", 111, 2, *row(5))])
    source.apply(300, [("U", 210, 1, *row(2)), ("D", 220, 2, *row(5)), ("I", 221, 3, *row(7))])
    if kind == "scd2":
        source.change(400, KEYED, below("c0", 3))
        table = lake.state.catalog.load_table(lake.state.find(source.life).identifier).scan().to_arrow()
        rows = table.select(["c0", "__START_AT", "__END_AT"]).to_pylist()
        assert sorted((lake_row["c0"], lake_row["__END_AT"] is None) for lake_row in rows) == [
            (1, False),
            (2, False),
            (5, False),
            (7, True),
        ]


def test_the_check_of_statements_sees_names_that_columns_may_have() -> None:
    merge = (
        "MERGE INTO a.b _cdc_t USING (SELECT true AS _cdc_x, NULL AS {c}) _cdc_s "
        "ON CASE WHEN (c0 < 3) THEN true END = _cdc_s._cdc_x WHEN MATCHED THEN DELETE"
    )
    assert foreign_names(merge.format(c="_cdc_c0")) == []
    assert foreign_names(merge.format(c="c0")) == ["c0"]
    assert foreign_names("SELECT t._file FROM a.b t") == ["t"]
