"""A last record without terminator: was the file's writer interrupted, which writes all of it again, or is it damaged?

A writer that dies while a file is not yet flushed goes on from its checkpoint, and that is below every row of the file:
they come again, in the order of their commit-ts, and so does all that the file would have held. A file that was cut
off by anything else is followed by what comes after it, and what it lost is nowhere.

So a cut is settled by a whole record before it that a later file has again, which proves that the feed was repeated
from below it on, and by a whole record there that the cut one may be the beginning of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.compute as pc

from cdc_assets.formats import COMMIT_TS, LINE, Decoded, record_reader
from cdc_assets.model.reports import Reject
from cdc_assets.model.sink_options import SinkOptions
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows

__all__ = ["is_delivered_again", "sequence_of"]


def sequence_of(file: DataFile) -> tuple[object, ...]:
    """Return what files share whose numbers go on: the dates of one directory, not its versions and dispatchers."""
    return file.root, file.version, file.partition, file.dispatcher, len(file.path.rsplit("/", 1)[-1])


def is_delivered_again(
    tail: Reject,
    position: int,
    data: bytes,
    decoded: Decoded,
    step: ApplyRows,
    options: SinkOptions,
    read: Callable[[str], bytes],
) -> bool:
    """Tell whether later files repeat the feed from before the record that was cut off.

    `data` and `decoded` are the file at `position` of the step, `read` returns the bytes of another. False where there
    is no whole record to go by, and without commit-ts: rows may be alike then.
    """
    line = _witness(decoded, step)
    if line is None:
        return False
    records = record_reader(options.protocol)
    is_copy, begun = _says(records(data, {line}, options)[line], options), _beginning(tail.raw, options)
    proven = continued = False
    for file in _later(position, step):
        for record in records(read(file.path), None, options).values():
            if not proven and is_copy(record):
                proven = True
            else:
                continued = continued or record.startswith(begun)
        if proven and continued:
            return True
    return False


def _witness(decoded: Decoded, step: ApplyRows) -> int | None:
    """Return the line of a row that comes again only if the feed is repeated from below it.

    With a key that is any, so the last one. Without, rows of one transaction may be alike, but not one of an older
    transaction than the last.
    """
    changes = decoded.changes
    if not changes.num_rows or step.positions is not None:
        return None
    if not step.schema.key:
        changes = changes.filter(pc.less(changes.column(COMMIT_TS), pc.max(changes.column(COMMIT_TS))))
    line: int | None = pc.max(changes.column(LINE)).as_py()
    return line


def _later(position: int, step: ApplyRows) -> Iterator[DataFile]:
    """Yield the files that were written after one, as far as numbers and the storage's clock tell."""
    mine = step.files[position]
    for place, file in enumerate(step.files):
        if file.size == 0 or place == position:
            continue
        if sequence_of(file) == sequence_of(mine):
            later = place > position
        elif not step.schema.key:
            later = False  # two writers may have rows that are alike
        else:
            later = not file.modified or not mine.modified or file.modified >= mine.modified
        if later:
            yield file


def _beginning(raw: bytes, options: SinkOptions) -> bytes:
    """Return what a record has in common with its copies from the start: of JSON, what comes before the time of day."""
    return raw.partition(b',"ts":')[0] if options.protocol == "canal-json" else raw


def _says(raw: bytes, options: SinkOptions) -> Callable[[bytes], bool]:
    """Return what tells copies of a record: of JSON, times of writing and the order of members differ in each."""
    if options.protocol != "canal-json":
        return raw.__eq__
    begun, members = _beginning(raw, options), _members(raw)
    return lambda other: _beginning(other, options) == begun and _members(other) == members


def _members(raw: bytes) -> Any:
    try:
        return {**json.loads(raw), "ts": None}
    except (ValueError, TypeError, RecursionError):
        return raw
