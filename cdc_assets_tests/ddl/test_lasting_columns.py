"""Columns of tables that only grow: what the source drops stays, and what comes back goes on or has another name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pyarrow as pa

from cdc_assets.ddl.kept_columns import beside_mirror, column_lives, lasting
from cdc_assets.decoding.split import in_shape
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, UNCHANGED
from cdc_assets.model.kinds import ColumnLife
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import (
    AddColumn,
    ContinueColumn,
    DeleteRows,
    DropColumn,
    MoveColumns,
    Predicate,
    Rekey,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    SetDefault,
)

ID = Column("i", "INT", nullable=False, is_pk=True)
A = Column("a", "INT")
TEXT = Column("a", "VARCHAR", precision=9)


def schema(*columns: Column, key: tuple[str, ...] = ("i",)) -> TableSchema:
    return TableSchema(columns, key)


Ddl = tuple[TableSchema, Sequence[SchemaChange]]


def play(*ddl: Ddl) -> tuple[TableSchema, tuple[SchemaChange, ...]]:
    """The lake's columns after the DDLs, of versions 1, 2, …, beginning with the first's columns; the last changes."""
    table_schema, changes = ddl[0][0], tuple[SchemaChange, ...]()
    for version, (after, source) in zip(count(1), ddl[1:], strict=False):
        table_schema, changes = lasting(table_schema, after, source, version)
    return table_schema, changes


def names(table_schema: TableSchema) -> list[tuple[str, str, int]]:
    return [(column.name, column.origin, column.kept) for column in table_schema.columns]


BEGIN = (schema(ID, A), ())
DROP = (schema(ID), [DropColumn("a")])


def test_a_dropped_column_stays_behind_the_others() -> None:
    table_schema, changes = play(BEGIN, DROP)
    assert names(table_schema) == [("i", "", 0), ("a", "", 1)]
    assert changes == (MoveColumns(("i", "a")),)
    assert table_schema.column("a").nullable


def test_a_column_that_comes_back_goes_on_if_its_type_fits() -> None:
    again = replace(A, name="A", default="5")
    table_schema, changes = play(BEGIN, DROP, (schema(ID, again), [AddColumn(again, "5")]))
    assert names(table_schema) == [("i", "", 0), ("A", "", 0)]
    assert changes == (RenameColumn("a", "A"), ContinueColumn(again, "5"), MoveColumns(("i", "A")))


def test_one_of_another_type_gets_a_name_of_its_own_and_goes_on_under_it() -> None:
    add = (schema(ID, TEXT), [AddColumn(TEXT, "x")])
    table_schema, changes = play(BEGIN, DROP, add)
    assert names(table_schema) == [("i", "", 0), ("a__2", "a", 0), ("a", "", 1)]
    assert changes[0] == AddColumn(replace(TEXT, name="a__2", origin="a"), "x")
    table_schema, changes = play(BEGIN, DROP, add, DROP, add)
    assert names(table_schema) == [("i", "", 0), ("a__2", "a", 0), ("a", "", 1)]
    assert changes[0] == ContinueColumn(replace(TEXT, name="a__2", origin="a"), "x")
    number = replace(A, type="BIGINT")
    table_schema, _ = play(BEGIN, DROP, add, DROP, (schema(ID, number), [AddColumn(number)]))
    assert names(table_schema) == [("i", "", 0), ("a__3", "a", 0), ("a", "", 1), ("a__2", "a", 3)]


def test_a_column_renamed_to_a_kept_name_gets_one_of_its_own_too() -> None:
    b = replace(A, name="b")
    table_schema, changes = play(
        (schema(ID, A, b), ()), (schema(ID, b), [DropColumn("a")]), (schema(ID, A), [RenameColumn("b", "a")])
    )
    assert names(table_schema) == [("i", "", 0), ("a__2", "a", 0), ("a", "", 1)]
    assert changes == (RenameColumn("b", "a__2"),)


def test_changes_are_of_the_lakes_names() -> None:
    add = (schema(ID, TEXT), [AddColumn(TEXT)])
    longer, where = replace(TEXT, precision=30), Predicate("column", value="a")
    source: list[SchemaChange] = [
        RetypeColumn(TEXT, longer),
        SetDefault("a", "x"),
        DeleteRows(where),
        Rekey(("i", "a")),
    ]
    table_schema, changes = play(BEGIN, DROP, add, (schema(ID, longer, key=("i", "a")), source))
    lake_column = replace(TEXT, name="a__2", origin="a")
    assert table_schema.key == ("i", "a__2")
    assert changes == (
        RetypeColumn(lake_column, replace(lake_column, precision=30)),
        SetDefault("a__2", "x"),
        DeleteRows(replace(where, value="a__2")),
        Rekey(("i", "a__2")),
    )
    table_schema, changes = play(BEGIN, DROP, add, (schema(ID, replace(TEXT, name="c")), [RenameColumn("a", "c")]))
    assert names(table_schema) == [("i", "", 0), ("c", "", 0), ("a", "", 1)]
    assert changes == (RenameColumn("a__2", "c"),)


KEPT_A, KEPT_B = (replace(A, name=name, kept=1) for name in "ab")
ORDER = MoveColumns(("i", "a", "b"))
ANEW: Sequence[SchemaChange] = [DropColumn("a"), AddColumn(A), ORDER]


def test_a_column_of_which_the_mirror_begins_anew_goes_on_beside_it() -> None:
    kept = schema(ID, KEPT_A, KEPT_B)
    table_schema, changes = beside_mirror(kept, kept, schema(ID, A, KEPT_B), ANEW, 2)
    assert names(table_schema) == [("i", "", 0), ("a", "", 0), ("b", "", 1)]
    assert changes == (ContinueColumn(A), ORDER)
    table_schema, changes = beside_mirror(
        kept, kept, schema(ID, TEXT, KEPT_B), [DropColumn("a"), AddColumn(TEXT), ORDER], 2
    )
    assert names(table_schema) == [("i", "", 0), ("a__2", "a", 0), ("a", "", 1), ("b", "", 1)]
    assert changes == (AddColumn(replace(TEXT, name="a__2", origin="a")), MoveColumns(("i", "a__2", "a", "b")))
    alone = schema(ID, KEPT_A)
    _, changes = beside_mirror(alone, alone, schema(ID, A), ANEW[:2], 2)
    assert changes[0] == ContinueColumn(A)


def test_a_column_with_which_the_mirror_goes_on_keeps_its_values_beside_it() -> None:
    kept, again = schema(ID, KEPT_A, KEPT_B), replace(A, name="A")
    table_schema, changes = beside_mirror(kept, kept, schema(ID, A, KEPT_B), [ORDER], 2)
    assert (names(table_schema), changes) == ([("i", "", 0), ("a", "", 0), ("b", "", 1)], (ORDER,))
    renamed: Sequence[SchemaChange] = [RenameColumn("a", "A"), MoveColumns(("i", "A", "b"))]
    table_schema, changes = beside_mirror(kept, kept, schema(ID, again, KEPT_B), renamed, 2)
    assert (names(table_schema), changes) == ([("i", "", 0), ("A", "", 0), ("b", "", 1)], tuple(renamed))


def test_a_column_that_the_mirror_keeps_or_drops_beside_kept_ones_stays() -> None:
    before, later = schema(ID, A, KEPT_B), replace(KEPT_A, kept=2)
    ways: list[Ddl] = [(schema(ID, KEPT_B), [DropColumn("a")]), (schema(ID, KEPT_B, later), [])]
    for after, dropped in ways:
        table_schema, changes = beside_mirror(before, before, after, dropped, 2)
        assert names(table_schema) == [("i", "", 0), ("b", "", 1), ("a", "", 2)]
        assert changes == (MoveColumns(("i", "b", "a")),)


def test_rows_have_the_values_of_the_source_under_the_lakes_names() -> None:
    table_schema, _ = play(BEGIN, DROP, (schema(ID, TEXT), [AddColumn(TEXT)]))
    rows = pa.table(
        {
            OP: pa.array([1], pa.int8()),
            COMMIT_TS: [9],
            LINE: [1],
            "i": pa.array([1], pa.int32()),
            "a": ["x"],
            UNCHANGED: pa.array([["a"]], pa.list_(pa.string())),
        }
    )
    (row,) = in_shape(rows, table_schema).to_pylist()
    assert (row["i"], row["a__2"], row["a"], row[UNCHANGED]) == (1, "x", None, ["a__2"])
    again = in_shape(in_shape(rows, table_schema), table_schema, of_source=False)
    assert again.select(["a__2", "a"]).to_pylist() == [{"a__2": "x", "a": None}]


def lives(*ddl: Ddl) -> set[tuple[str, str, int, int | None]]:
    return {(life.column, life.source, life.since, life.until) for life in lived(*ddl)}


def lived(*ddl: Ddl) -> tuple[ColumnLife, ...]:
    table_schema = ddl[0][0]
    past = tuple(ColumnLife(column.name, column.name, 0) for column in table_schema.columns)
    for version, (after, source) in zip(count(1), ddl[1:], strict=False):
        table_schema, changes = lasting(table_schema, after, source, version)
        past = column_lives(past, table_schema, changes, version)
    return past


def test_lives_say_from_which_types_values_of_a_column_were_converted() -> None:
    big, text = replace(A, type="BIGINT"), replace(TEXT, name="b")
    widened: Ddl = (schema(ID, big), [RetypeColumn(A, big)])
    changed: Ddl = (schema(ID, text), [RenameColumn("a", "b"), RetypeColumn(replace(big, name="b"), text)])
    longer = replace(text, precision=20)
    past_lives = lived(BEGIN, widened, changed, (schema(ID, longer), [RetypeColumn(text, longer)]))
    assert [(life.column, life.types) for life in past_lives] == [("i", ()), ("b", ((1, "INT"), (2, "BIGINT")))]
    assert [past_lives[1].former_type(at) for at in range(4)] == ["INT", "BIGINT", None, None]
    past_lives = lived(BEGIN, DROP, (schema(ID, A), [AddColumn(A)]), widened)
    assert [(life.since, life.until, life.types) for life in past_lives[1:]] == [
        (0, 1, ((3, "INT"),)),
        (2, None, ((3, "INT"),)),
    ]


def test_lives_say_when_the_source_had_which_column() -> None:
    back, text = (schema(ID, A), [AddColumn(A)]), (schema(ID, TEXT), [AddColumn(TEXT)])
    always = ("i", "i", 0, None)
    assert lives(BEGIN, DROP) == {always, ("a", "a", 0, 1)}
    assert lives(BEGIN, DROP, back) == {always, ("a", "a", 0, 1), ("a", "a", 2, None)}
    assert lives(BEGIN, DROP, text) == {always, ("a", "a", 0, 1), ("a__2", "a", 2, None)}
    renamed = (schema(ID, replace(TEXT, name="c")), [RenameColumn("a", "c")])
    assert lives(BEGIN, DROP, text, renamed) == {always, ("a", "a", 0, 1), ("c", "c", 2, None)}
