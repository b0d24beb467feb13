"""Which table a person means."""

from __future__ import annotations

from collections.abc import Iterable

from cdc_assets.errors import BadSettings
from cdc_assets.model.names import fold_name
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId

__all__ = ["is_called", "no_such_table"]


def is_called(text: str, names: Iterable[Life | TableId | str | None]) -> bool:
    """Return whether a person's text is one of the names (`schema.table`) or identities (`schema.table@version`).

    Names that differ in letter case only are the same table, as in TiDB. None is not a name.
    """
    return fold_name(text) in {fold_name(str(name)) for name in names if name is not None}


def no_such_table(text: str, names: Iterable[TableId | None]) -> BadSettings:
    """Return the error for a text that is no table's, with the present names of the tables."""
    known = ", ".join(sorted({str(name) for name in names if name is not None}))
    return BadSettings(f"no table is called {text}; known are {known or 'none'}. Give a name or an identity.")
