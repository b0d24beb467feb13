"""A landing whose files are tables of this process: the same verbs as the lake's."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

import pyarrow as pa

from cdc_assets.errors import InputError, TableMoved
from cdc_assets.landing.files import LANDED, Files, NewFiles, RowGroup, TableFiles

__all__ = ["MemoryStore"]


_STORES: WeakValueDictionary[int, MemoryStore] = WeakValueDictionary()
"""The stores of this process, for whoever gets a part of one as bytes."""


@dataclass(frozen=True)
class _Elsewhere:
    store: int

    def write_rows(self, groups: Iterable[RowGroup], *, packed: bool = False) -> tuple[str, int]:
        return _STORES[self.store].write_rows(groups, packed=packed)

    def discard(self, added: NewFiles) -> None:
        _STORES[self.store].discard(added)


@dataclass(eq=False)
class MemoryStore:
    """`files` are open to look into, `changes` what each commit says it changed."""

    files: dict[str, list[pa.Table]] = field(default_factory=dict)
    state: TableFiles = field(default_factory=lambda: TableFiles("landing-1"))
    changes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def stored(self) -> TableFiles:
        return self.state

    def read_events(self, files: Sequence[str]) -> pa.Table:
        self.reads += files
        return pa.concat_tables([LANDED.empty_table(), *(self.files[file][0] for file in files)])

    @property
    def fetch(self) -> Callable[[str, int], pa.Table]:
        return self._fetch

    def _fetch(self, file: str, group: int) -> pa.Table:
        if file not in self.files:
            raise InputError(f"{file} is gone", file=file, gone=True)
        return self.files[file][group]

    def write_rows(self, groups: Iterable[RowGroup], *, packed: bool = False) -> tuple[str, int]:
        held = list(groups)
        name = f"rows-{next(self._numbers)}{'-packed.parquet' if packed else ''}"
        self.files[name] = [group.rows for group in held]
        return name, sum(group.size for group in held)

    def elsewhere(self) -> Files:
        _STORES[id(self)] = self
        return _Elsewhere(id(self))

    def write_events(self, events: pa.Table) -> tuple[str, int]:
        name = f"events-{next(self._numbers)}"
        self.files[name] = [events]
        return name, events.nbytes

    def commit(self, added: NewFiles, before: str, digest: str, changes: str) -> None:
        if self.state.digest != before:
            raise TableMoved("another run landed first")
        rows, events = ([name for name, _ in some] for some in (added.rows, added.events))
        self.state = TableFiles(
            self.state.identity,
            (*self.state.events, *events),
            (*self.state.rows, *rows),
            digest,
            int(time.time() * 1000),
        )
        self.changes.append(changes)

    def replace(self, added: NewFiles, old: Sequence[str], digest: str) -> None:
        if self.state.digest != digest or not {*old} <= {*self.state.events, *self.state.rows}:
            raise TableMoved("another run landed first, or put the same files together")
        rows, events = ([name for name, _ in some] for some in (added.rows, added.events))
        kept = [
            tuple(file_name for file_name in some if file_name not in old)
            for some in (self.state.events, self.state.rows)
        ]
        self.state = replace(self.state, events=(*kept[0], *events), rows=(*kept[1], *rows))

    def sweep(self, before_ms: int) -> int:
        gone = set(self.files) - {*self.state.events, *self.state.rows}
        for name in gone:
            del self.files[name]
        return len(gone)

    def read_rows(self, file: str, columns: Sequence[str]) -> pa.Table:
        return pa.concat_tables(self.files[file]).select(list(columns))

    def drop_past(self) -> None:
        self.sweep(0)

    def stored_files(self) -> Sequence[tuple[str, int]]:
        return [(name, sum(group.nbytes for group in groups)) for name, groups in self.files.items()]

    def discard(self, added: NewFiles) -> None:
        for name, _ in (*added.rows, *added.events):
            del self.files[name]
