"""Which table a person means."""

from __future__ import annotations

from collections.abc import Iterable

from cdc_assets.model.names import fold_name
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId

__all__ = ["is_called"]


def is_called(text: str, names: Iterable[Life | TableId | str | None]) -> bool:
    """Return whether a person's text is one of the names (`schema.table`) or identities (`schema.table@version`).

    Names that differ in letter case only are the same table, as in TiDB. None is not a name.
    """
    return fold_name(text) in {fold_name(str(name)) for name in names if name is not None}
