"""A column's change of type."""

from __future__ import annotations

from typing import NamedTuple

from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column


class Change(NamedTuple):
    """`zone` is the time zone of the session that ran the DDL: a name of the zone database, or `+08:00`."""

    old: Column
    new: Column
    zone: str


def members_of(column: Column) -> tuple[str, ...]:
    """Return the members of an ENUM or SET; raises TableHeld if no file and no text lists them."""
    if column.elems is None:
        raise TableHeld(
            f'column "{column.name}": the members of its {column.type} are in no schema file and no DDL text, so what '
            "its values became is unknown. Rebuild the table from here.",
            column=column.name,
        )
    return column.elems
