"""The fidelity of each column of a table: what the lake keeps of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cdc_assets.errors import MalformedData
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import AddColumn, DeleteRows, DropColumn, RenameColumn, RetypeColumn, SchemaChange
from cdc_assets.model.tso import Tso
from cdc_assets.types.conversions import needs_conversion
from cdc_assets.types.mysql_types import fidelity, spark_type, type_text
from cdc_assets.types.rules import Grade

_T = TypeVar("_T")


def column_fidelity(
    schema: TableSchema,
    ddl: Iterable[tuple[Tso, Sequence[SchemaChange]]] = (),
    inferred: Sequence[str] = (),
    unsent: Mapping[str, str] | None = None,
    rewritten: Mapping[str, Tso] | None = None,
) -> tuple[ColumnFidelity, ...]:
    """Return the fidelity of each column after DDL; none for a table with a type that is not known.

    `ddl` are the versions with their changes, in order. `inferred` are sentences on what the table's first columns
    leave open where they were taken from its rows; those on one column begin with its name in quotes. `unsent` are
    columns of foreign keys by which the source changes rows without a word in its log, and what these do. `rewritten`
    are columns whose type changed shortly after rows did (see `rewritten_columns`).
    """
    masked = {column.name for column in schema.columns if column.mask is not None}
    try:
        rows = fidelity_report(schema, {})
    except MalformedData:
        return ()
    notes = {column.name: _KEPT.format(column.kept) for column in schema.columns if column.kept}
    notes |= {name: f"{notes.get(name, '')} {guess.text};".strip() for name, guess in guesses(ddl).items()}
    notes = {name: text for name, text in notes.items() if name not in masked}  # a guess may name a default
    for column in schema.columns:
        for doubt in (sentence for sentence in inferred if sentence.startswith(f'"{column.name}": ')):
            text = doubt.partition(": ")[2]
            notes[column.name] = f"{notes.get(column.name, '')} taken from rows, {text};".strip()
    for name, at in (rewritten or {}).items():
        notes[name] = f"{notes.get(name, '')} {_REWRITTEN.format(at)};".strip()
    for name, effect in (unsent or {}).items():
        notes[name] = f"{notes.get(name, '')} {UNSENT.format(effect)};".strip()
    return tuple(
        dataclasses.replace(
            row,
            grade=Grade.MASKED if row.column in masked else Grade.CHANGED,
            rule=f"{notes[row.column]} {row.rule}".strip(),
        )
        if row.column in notes
        else row
        for row in rows
    )


def log_fidelity(*, tells_inserts: bool) -> tuple[ColumnFidelity, ...]:
    """Return the losses of a log table, because the messages do not tell inserts from updates."""
    if tells_inserts:
        return ()
    rule = (
        "messages do not tell inserts from updates: every image that enters is an UPDATE_AFTER, those of a dump and "
        "of a DDL apart"
    )
    return (ColumnFidelity("_change_type", "", "string", Grade.CHANGED, rule),)


UNSENT = (
    "rows that its foreign key changes or deletes ({}) are not in the binary log of MariaDB, or of MySQL before 9.6: "
    "they stay as they were"
)
_REWRITTEN = (
    "approximate in rows that changed in the ten minutes before {}: while TiDB rewrites a column for its new type, "
    "such a row may keep the value that its session wrote, where the feed has the old value, converted here"
)
_KEPT = "the source dropped it at {} and the lake keeps it: old values, NULL in rows written since;"


@dataclass(frozen=True, slots=True)
class ColumnFidelity:
    """One column: its types (the lake's in Spark's words, "" if absent), the grade, the rule, counted losses so far.

    `notes` counts values by the rule that changed them; the grade holds in full only while it is empty.
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
    own_fidelity = fidelity(column)
    lake = "" if column.virtual or column.in_lake is None else spark_type(column.in_lake)
    return ColumnFidelity(column.name, type_text(column), lake, own_fidelity.grade, own_fidelity.rule, counts)


def rewritten_columns(
    ddl: Iterable[tuple[Tso, Sequence[SchemaChange]]], rows_before: Callable[[Tso], bool]
) -> dict[str, Tso]:
    """Return the columns, by their newest names, that TiDB rewrote for another type when rows had just changed.

    `ddl` are the versions of TiDB with their changes, in order; `rows_before` says whether rows changed in the ten
    minutes before a version. TiDB converts a column row by row while sessions go on writing (ticdc#5548).
    """

    def note(versions: dict[str, Tso], at: Tso, change: SchemaChange) -> None:
        match change:
            case RetypeColumn(old, new) if needs_conversion(old, new) and rows_before(at):
                versions[new.name] = at

    return _carried(ddl, note)


def _carried(
    ddl: Iterable[tuple[Tso, Sequence[SchemaChange]]], note: Callable[[dict[str, _T], Tso, SchemaChange], None]
) -> dict[str, _T]:
    """Return the notes of `note` on columns, by their newest names, until they or all rows go."""
    notes: dict[str, _T] = {}
    for at, changes in ddl:
        renamed = {change.old: change.new for change in changes if isinstance(change, RenameColumn)}
        notes = {renamed.get(name, name): note_text for name, note_text in notes.items()}
        for change in changes:
            match change:
                case DropColumn(name):
                    notes.pop(name, None)
                case DeleteRows(None):
                    notes.clear()
                case _:
                    note(notes, at, change)
    return notes


@dataclass(frozen=True, slots=True)
class Guess:
    """Values of a column in existing rows that a DDL left to guess, in words.

    `defaults` are the columns as they were added, with the values that were guessed for them; none where the values
    are not known, since they were converted.
    """

    text: str
    defaults: tuple[tuple[Column, Any], ...] = ()


def guesses(ddl: Iterable[tuple[Tso, Sequence[SchemaChange]]]) -> dict[str, Guess]:
    """Return the guesses that DDL left open about existing rows, by column under its newest name.

    `ddl` are the versions with their changes, in order.
    """

    def note(guessed: dict[str, Guess], at: Tso, change: SchemaChange) -> None:
        match change:
            case AddColumn(Column(name=name) as column, default, guess) if guess:
                guessed[name] = Guess(f"approximate in rows from before {at}: {guess}", ((column, default),))
            case RetypeColumn(_, Column(name=name), _, guess) if guess or name in guessed:
                texts = [guessed[name].text] if name in guessed else []
                texts += [f"approximate in rows from before {at}: {guess}"] if guess else []
                guessed[name] = Guess("; ".join(texts))

    return _carried(ddl, note)
