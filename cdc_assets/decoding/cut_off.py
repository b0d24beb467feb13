"""A last record without terminator: was the file's writer interrupted, which writes all of it again, or is it damaged?

A writer that dies while a file is not yet flushed goes on from its checkpoint, and that is below every row of the file:
they come again, in the order of their commit-ts, and so does all that the file would have held. A file that was cut
off by anything else is followed by what comes after it, and what it lost is nowhere.

So nothing is lost with a cut record if later files have two whole records: one from before the cut, which proves that
the feed was repeated from below it on, and one of which the cut record may be the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.compute as pc

from cdc_assets.decoding.split import Split, may_be_due
from cdc_assets.formats import (
    LINE,
    Decoded,
    SplitReader,
    position_column,
    raw_records,
    record_beginning,
    record_identity,
)
from cdc_assets.model.reports import Reject
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows


def lost_tail(split: Split, tail: Reject, step: ApplyRows, reader: SplitReader) -> Reject | None:
    """Return the record that a file was cut off in, where the window may have lost something with it."""
    if not may_be_due(tail, split, step) or _is_delivered_again(split, tail, step, reader):
        return None
    return tail


def _is_delivered_again(split: Split, tail: Reject, step: ApplyRows, reader: SplitReader) -> bool:
    """Return whether later files repeat the feed from before the record that was cut off.

    False where there is no whole record to go by, and without commit-ts: rows may be alike then.
    """
    line = _witness(split.decoded, step)
    if line is None:
        return False
    witness, begun = raw_records(split.wire, split.data, {line})[line], record_beginning(split.wire, tail.raw)
    start, identity = record_beginning(split.wire, witness), record_identity(split.wire, witness)
    proven = continued = False
    for file in _later(split.position, step):
        for record in raw_records(split.wire, reader.read(file.path), None).values():
            if not proven and record.startswith(start) and record_identity(split.wire, record) == identity:
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
        at = changes.column(position_column(changes))
        changes = changes.filter(pc.less(at, pc.max(at)))
    line: int | None = pc.max(changes.column(LINE)).as_py()
    return line


def _later(position: int, step: ApplyRows) -> Iterator[DataFile]:
    """Yield the files that were written after one, by their numbers and the storage's clock."""
    mine = step.files[position]
    for place, file in enumerate(step.files):
        if file.size == 0 or place == position:
            continue
        if file.sequence == mine.sequence:
            later = place > position
        elif not step.schema.key:
            later = False  # two writers may have rows that are alike
        else:
            later = not file.modified or not mine.modified or file.modified >= mine.modified
        if later:
            yield file
