"""Rows on their way into a file of the landing: row groups are written as they fill, while messages are read on.

    Spool.take(rows)     take rows; those of a table's partition become a row group once they are enough for one
    Spool.take_ahead(…)  the same while messages are read, once it is worth it
    Spool.join(written)  take files that were written elsewhere
    Spool.finish()       write what is left, by table, and close the file
    Spool.abandon()      stop, and leave no file

A file is in no snapshot until it is committed, so a landing is as whole as if all of it had been written at once, and
no more of it is in memory than what fills no row group yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, Full, Queue

import pyarrow as pa

from cdc_assets.landing.rows import GROUP_BYTES, Group, Place, cut, runs, split_of
from cdc_assets.landing.store import Added, Files
from cdc_assets.model.landed import LandedSplit

__all__ = ["Spool", "Written"]

_WAITING = 2
"""Row groups that wait to be written; who reads faster waits for them."""
_LOOK_SECONDS = 0.1


class _Abandoned(Exception):
    """Ends the writing of a file that nobody wants any more."""


@dataclass(frozen=True, slots=True)
class Written:
    """Files of rows, each a name with its bytes, and the splits in them."""

    files: tuple[tuple[str, int], ...] = ()
    splits: tuple[LandedSplit, ...] = ()


@dataclass
class _Pending:
    """Rows of one table in a partition that fill no row group yet."""

    rows: list[pa.Table] = field(default_factory=list)
    size: int = 0


class _File:
    """A file that a thread writes, of row groups that are given one after the other."""

    def __init__(self, store: Files) -> None:
        self._groups: Queue[Group | None] = Queue(_WAITING)
        self._abandoned = False
        self._pool = ThreadPoolExecutor(1, "cdc-assets-landing")
        self._written: Future[tuple[str, int]] = self._pool.submit(lambda: store.write_rows(self._given()))

    def _given(self) -> Iterator[Group]:
        while True:
            with suppress(Empty):
                group = self._groups.get(timeout=_LOOK_SECONDS)
                if group is None:
                    return
                yield group
            if self._abandoned:
                raise _Abandoned

    def put(self, group: Group | None) -> None:
        """Give a row group, None behind the last. Raises what writing raised."""
        while True:
            if self._written.done():
                self._written.result()
            with suppress(Full):
                return self._groups.put(group, timeout=_LOOK_SECONDS)

    def finish(self) -> tuple[str, int]:
        """Return the file's name and bytes once all is written."""
        self.put(None)
        return self._written.result()

    def close(self) -> None:
        """Stop, whether or not all is written, and wait for the thread."""
        self._abandoned = True
        self._pool.shutdown(wait=True)


class Spool:
    """The rows of one landing at a time, none at first. `finish` and `abandon` leave it so again.

    A row group holds about `group_bytes` of messages at most.
    """

    def __init__(self, store: Files, group_bytes: int = GROUP_BYTES) -> None:
        self.store = store
        self.group_bytes = group_bytes
        self._clear()

    def _clear(self) -> None:
        self._file: _File | None = None
        self._pending: dict[Place, _Pending] = {}
        self._splits: list[LandedSplit | None] = []
        self._joined: list[Written] = []
        self._taken_bytes = 0

    def take_ahead(self, rows: list[pa.Table], stored_bytes: int) -> None:
        """Take tables of rows out of a list once they are worth it; `stored_bytes` counts all of the landing so far.

        To sort and cut costs as much for ten rows as for thousands, and an archive may have ten in a file.
        """
        if stored_bytes - self._taken_bytes >= self.group_bytes // 2:
            self._taken_bytes = stored_bytes
            self.take(rows)

    def take(self, rows: list[pa.Table]) -> None:
        """Take tables of rows out of a list; of a partition they come in the order of offsets."""
        for run in runs(pa.concat_tables(rows)) if rows else ():
            held = self._pending.setdefault(run.place, _Pending())
            held.rows.append(run.rows)
            held.size += run.size
            if held.size >= self.group_bytes:
                *full, last = cut(pa.concat_tables(held.rows), self.group_bytes)
                held.rows, held.size = [last.rows], last.size
                for group in full:
                    self._put(group)
        rows.clear()

    def _put(self, group: Group) -> None:
        self._splits.append(split_of(group, len(self._splits)))
        if self._file is None:
            self._file = _File(self.store)
        self._file.put(group)

    def join(self, written: Written) -> None:
        """Take files that were written elsewhere: they are this landing's now."""
        self._joined.append(written)

    def finish(self) -> Written:
        """Return all that was taken, as one file, none where nothing was; behind it the files that joined."""
        try:
            all_of_it = [self._finished(), *self._joined]
            self._joined = []
            files = tuple(file for written in all_of_it for file in written.files)
            return Written(files, tuple(split for written in all_of_it for split in written.splits))
        finally:
            self.abandon()

    def _finished(self) -> Written:
        left = [
            group
            for _, held in sorted(self._pending.items(), key=lambda one: one[0])
            for group in cut(pa.concat_tables(held.rows), self.group_bytes)
        ]
        if self._file is None and not left:
            return Written()
        splits = [*self._splits, *(split_of(group, len(self._splits) + at) for at, group in enumerate(left))]
        written = self._rest(left)
        return Written((written,), tuple(replace(one, file=written[0]) for one in splits if one is not None))

    def _rest(self, groups: Sequence[Group]) -> tuple[str, int]:
        if self._file is None:
            return self.store.write_rows(groups)
        for group in groups:
            self._file.put(group)
        return self._file.finish()

    def abandon(self) -> None:
        """Forget what was taken, and leave no file of it."""
        if self._file is not None:
            self._file.close()
        gone = tuple(file for written in self._joined for file in written.files)
        self._clear()
        if gone:
            self.store.discard(Added(gone))
