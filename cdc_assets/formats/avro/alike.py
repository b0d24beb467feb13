"""Messages whose values are records of one registered schema, read side by side; what stands alone is read by itself.

read_alike(values, options) -> for each schema its messages, what their fields are, and their commit-ts
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_assets.formats.avro.columns import BEYOND, Records, read_records
from cdc_assets.formats.avro.record import COMMIT_TS_FIELD
from cdc_assets.formats.avro.wire import Registered, registered
from cdc_assets.formats.message_options import MessageOptions

__all__ = ["Alike", "ids_of", "read_alike"]

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_HEAD = 5
_FEW = 16
"""Fewer messages of a schema are read one by one."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Sound records of one schema: `messages` are their positions among the values, `places` among `records`."""

    id: int
    schema: Registered
    messages: Places
    places: Places
    records: Records
    commit_ts: Places | None

    def among(self, kept: Mask) -> Alike:
        """Return some of the messages."""
        ts = None if self.commit_ts is None else self.commit_ts[kept]
        return Alike(self.id, self.schema, self.messages[kept], self.places[kept], self.records, ts)

    def has(self, name: str) -> bool:
        """Return whether the records have a field."""
        return any(field.name == name for field in self.records.fields)

    def array(self, name: str) -> pa.Array:
        """Return a field of messages that are `readable`."""
        return self.records.array(name, self.places)

    def readable(self) -> Mask:
        """Mark messages whose texts are UTF-8, and whose decimals have 38 digits at the most."""
        return self.records.readable(self.places)


def _ids(data: npt.NDArray[np.uint8], starts: Places, stops: Places) -> Places:
    framed = (stops - starts >= _HEAD) & (data[starts] == 0)
    found = np.zeros(len(starts), np.int64)
    for byte in range(1, _HEAD):
        found = found << 8 | data[starts + byte]
    return np.where(framed, found, -1)


def _body_of(values: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], Places, Places]:
    """Return the bytes of values one after the other, and where each begins and ends; a null is empty.

    BEYOND zeros follow, which may be looked at.
    """
    count = len(values)
    if not count:
        return np.zeros(BEYOND, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, offsets_of, bytes_of = values.buffers()
    offsets = np.frombuffer(offsets_of, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + BEYOND, np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(bytes_of, np.uint8)[first:last]
    return data, offsets[:-1] - first, offsets[1:] - first


def ids_of(values: pa.Array) -> Places:
    """Return the number of the schema of each value in Confluent's framing, -1 for any other value."""
    return _ids(*_body_of(values))


def read_alike(values: pa.Array, options: MessageOptions) -> Iterator[Alike]:
    """Yield what can be read side by side; the messages that are in none of it are to be read one by one."""
    data, starts, stops = _body_of(values)
    ids = _ids(data, starts, stops)
    numbers, counts = np.unique(ids, return_counts=True)
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        if number < 0 or count < _FEW:
            continue
        try:
            schema: Any = registered(str(number), options)
        except ValueError:
            continue
        if schema.plan is None:
            continue
        chosen = np.flatnonzero(ids == number)
        records = read_records(data, starts[chosen] + _HEAD, stops[chosen], schema.plan)
        ts = records.numbers(COMMIT_TS_FIELD)
        sound = records.sound if ts is None else records.sound & (ts >= 0)
        found = Alike(number, schema, chosen[sound], np.flatnonzero(sound), records, None if ts is None else ts[sound])
        if ts is not None or not found.has(COMMIT_TS_FIELD):
            yield found
