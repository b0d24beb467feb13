"""The messages of a file in pages: decoded once, read by ranges of offsets, in little memory."""

from __future__ import annotations

import tempfile
import threading
import weakref
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import InputError
from cdc_assets.model.offsets import Partition
from cdc_assets.sources.topics import message_schema

__all__ = ["MessagePages"]

_MEMORY_BYTES = 16 << 20
"""A file with more messages than that is kept on the disk."""


class _Page(NamedTuple):
    """A record batch: its first and last offset, and where it is in the store."""

    first: int
    last: int
    at: int
    size: int


class MessagePages:
    """Messages of a file that are added table by table; after `put_in_order` those of a partition are in order.

    `path` is the file's, for messages.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._store = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)  # noqa: SIM115  # until nobody has the pages
        weakref.finalize(self, self._store.close)
        self._lock = threading.Lock()
        self._pages: dict[Partition, list[_Page]] = {}
        self._disordered = set[Partition]()

    def add(self, messages: pa.Table) -> None:
        """Add messages with the columns of `message_schema`, of any partitions."""
        places = messages.select(["topic", "partition"])
        for place in places.group_by(["topic", "partition"]).aggregate([]).to_pylist():
            partition = Partition(place["topic"], place["partition"])
            own = pc.and_(
                pc.equal(messages.column("topic"), partition.topic),
                pc.equal(messages.column("partition"), partition.number),
            )
            self._append(partition, messages.filter(own))

    def put_in_order(self) -> None:
        """Sort the partitions that are not in order, and leave out what the file holds twice.

        Raises InputError where two messages have one offset.
        """
        for partition in sorted(self._disordered):
            tables = [self._load(page) for page in self._pages.pop(partition)]
            messages = self._once(pa.concat_tables(tables).sort_by("offset"), partition)
            rows = max(1, messages.num_rows * _MEMORY_BYTES // max(1, messages.nbytes))
            for start in range(0, messages.num_rows, rows):
                self._append(partition, messages.slice(start, rows))
        self._disordered.clear()

    def read(self, partition: Partition, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield the messages of a partition from the offset `start` to before `stop`."""
        for page in self._pages.get(partition, ()):
            if page.last < start or page.first >= stop:
                continue
            messages = self._load(page)
            low, high = np.searchsorted(messages.column("offset").to_numpy(), (start, stop))
            if low < high:
                yield messages.slice(low, high - low)

    def _append(self, partition: Partition, messages: pa.Table) -> None:
        (batch,) = messages.combine_chunks().to_batches()
        offsets, pages = batch.column("offset").to_numpy(), self._pages.setdefault(partition, [])
        if (np.diff(offsets) <= 0).any() or (pages and pages[-1].last >= offsets[0]):
            self._disordered.add(partition)
        data = batch.serialize()
        at = self._store.seek(0, 2)
        self._store.write(data)
        pages.append(_Page(int(offsets[0]), int(offsets[-1]), at, data.size))

    def _load(self, page: _Page) -> pa.Table:
        with self._lock:
            self._store.seek(page.at)
            data = self._store.read(page.size)
        return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(data), message_schema())])

    def _once(self, messages: pa.Table, partition: Partition) -> pa.Table:
        """Leave out what is there twice."""
        offsets = messages.column("offset").to_numpy()
        again = np.flatnonzero(np.diff(offsets) == 0)
        for name in ("key", "value"):
            column = messages.column(name)
            if column.take(pa.array(again)) != column.take(pa.array(again + 1)):
                raise InputError(
                    f"{self._path} has two messages of {partition} at offset {offsets[again[0]]}; expected one. "
                    "Remove what does not belong to this archive.",
                    file=self._path,
                    offset=int(offsets[again[0]]),
                )
        return messages.take(pa.array(np.flatnonzero(np.diff(offsets, prepend=-1) != 0)))
