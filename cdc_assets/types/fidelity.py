"""What the lake keeps of each column of a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_assets.errors import MalformedData
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.types.mysql_types import Grade, fidelity, spark_type, type_text

__all__ = ["ColumnFidelity", "column_fidelity", "fidelity_report"]


def column_fidelity(schema: TableSchema) -> tuple[ColumnFidelity, ...]:
    """Return what the lake keeps of each column; none for a table with a type that is not known."""
    from cdc_assets.types.mysql_types import Grade

    try:
        rows = fidelity_report(schema, {})
    except MalformedData:
        return ()
    kept = {column.name: column.kept for column in schema.columns if column.kept}
    return tuple(
        dataclasses.replace(row, grade=Grade.CHANGED, rule=f"{_KEPT.format(kept[row.column])} {row.rule}".strip())
        if row.column in kept
        else row
        for row in rows
    )


_KEPT = "the source dropped it at {} and the lake keeps it: old values, NULL in rows written since;"


@dataclass(frozen=True, slots=True)
class ColumnFidelity:
    """One column: its types (the lake's in Spark's words, "" when absent), the grade, the rule, what happened so far.

    `notes` counts values by the rule that changed them; a column is only as good as its grade says when it is empty.
    """

    column: str
    source: str
    lake: str
    grade: Grade
    rule: str
    notes: Mapping[str, int] = field(default_factory=dict)


def fidelity_report(schema: TableSchema, notes: Mapping[tuple[str, str], int]) -> tuple[ColumnFidelity, ...]:
    """Return a row for each column of the schema, virtual ones too, with the notes of decoding, by (column, rule)."""
    return tuple(
        _row(column, {rule: n for (name, rule), n in notes.items() if name == column.name})
        for column in schema.columns
        if not column.hidden
    )


def _row(column: Column, counts: Mapping[str, int]) -> ColumnFidelity:
    kept = fidelity(column)
    lake = "" if kept.grade is Grade.ABSENT else spark_type(column)
    return ColumnFidelity(column.name, type_text(column), lake, kept.grade, kept.rule, counts)
