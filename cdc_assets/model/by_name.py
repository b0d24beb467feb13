"""Values by table name in any letter case: to TiDB, names that differ in case only are the same table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TypeVar

from cdc_assets.model.schema import TableId

V = TypeVar("V")


class ByName(MutableMapping[TableId, V]):
    """A mapping with case-insensitive lookup; iterating gives the names as they were set last."""

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
        """Return the name as it is spelled in this mapping, or as given if it is not in it."""
        item = self._items.get(name.folded)
        return name if item is None else item[0]
