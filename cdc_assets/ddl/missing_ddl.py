"""Signs in the columns of DDL that is not in the changefeed, after which the old values are unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cdc_assets.ddl.schema import held
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.splits import SchemaFile


def refuse_taken_names(before: TableSchema, file: SchemaFile, taken: Iterable[str]) -> None:
    """Raise TableHeld for a text that gives columns the names of others that stay, unless it is a repeated DDL."""
    if not _same_columns(before, file) and " EXISTS " not in file.query.upper():
        raise held(
            file,
            f"The table already has {', '.join(sorted(taken))}, so a DDL before this one is not in the "
            "changefeed and what became of the old values is not known",
        )


def refuse_unknown_columns(file: SchemaFile, changed: Iterable[str], origin: Mapping[str, Column | None]) -> None:
    """Raise TableHeld for a text that changes a column that no text added: its definition was not known before."""
    unknown = sorted(name for name in changed if name in origin and origin[name] is None)
    if unknown:
        raise held(
            file,
            f"The table has no {', '.join(unknown)} before it, so the DDL that added it is not in the changefeed and "
            "what old rows got is not known",
        )


def _same_columns(before: TableSchema, file: SchemaFile) -> bool:
    """Return whether the table has the file's columns: a repeated DDL."""
    table_columns, theirs = (sorted((c.name.lower(), c.type) for c in some) for some in (before.columns, file.columns))
    return table_columns == theirs


NEXT_TIME = "With output-column-id = true in the changefeed the files say it from then on"
"""What a hold for columns without a text says beside its reason."""


def refuse_swapped(file: SchemaFile, gone: Sequence[Column], retyped: Mapping[str, tuple[Column, Column]]) -> None:
    """Raise TableHeld for columns that exchanged types without a text: they may have exchanged names instead."""
    changed = {name: (a, b) for name, (a, b) in retyped.items() if None in (a.id, b.id)}
    left = {column.type for column in gone}
    for name, (_, new) in sorted(changed.items()):
        if new.type in left | {old.type for other, (old, _) in changed.items() if other != name}:
            raise held(
                file,
                f'The column "{new.name}" has another type, which another column had, and no text says whether they '
                f"exchanged names. {NEXT_TIME}",
                column=new.name,
            )
