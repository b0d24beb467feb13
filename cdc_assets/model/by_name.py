"""Values by table name, however the name is spelled: TiDB takes names that differ in letter case for one table's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TypeVar

from cdc_assets.model.schema import TableId

__all__ = ["ByName"]

V = TypeVar("V")


class ByName(MutableMapping[TableId, V]):
    """A mapping that is asked in any letter case; iterating gives the names as they were put in last."""

    def __init__(self, items: Mapping[TableId, V] | None = None) -> None:
        self._items: dict[TableId, tuple[TableId, V]] = {}
        self.update(items or {})

    def __getitem__(self, name: TableId) -> V:
        return self._items[name.folded][1]

    def __setitem__(self, name: TableId, value: V) -> None:
        self._items[name.folded] = (name, value)

    def __delitem__(self, name: TableId) -> None:
        del self._items[name.folded]

    def __iter__(self) -> Iterator[TableId]:
        return iter([name for name, _ in self._items.values()])

    def __len__(self) -> int:
        return len(self._items)

    def spelled(self, name: TableId) -> TableId:
        """Return the name as it is spelled here, or as it was given where it is not here."""
        found = self._items.get(name.folded)
        return name if found is None else found[0]
