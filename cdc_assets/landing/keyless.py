"""Rows without key in topics of several partitions: which of them a connector has sent again.

    KeylessRows(before, read).decide(pieces) -> Decided

A producer puts messages without key into any partition. After a restart a row comes again in another partition, where
it may be newer than all before. Copies of a row have its place in the source's log and its contents; rows of one
statement may share both. So as many rows are new as the run of the connector that sent most of them has sent, less
those that are landed.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.json_records import json_value, print_json
from cdc_assets.formats.messages import Kind, dialect_of, is_of_snapshot
from cdc_assets.landing.files import ROW, LandingStore
from cdc_assets.landing.order import RESTART_MS, ROW_PLACES, Line, Piece, run_in, sent_ms
from cdc_assets.model.landed import Landed
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId

_DOUBTFUL = (
    "a row of {}, which has no key, came several times at one place of the source's log with the same contents, in "
    "messages that do not name the run of the connector: those sent a second or more apart are taken for copies"
)
_UNKNOWN = (
    "it may be a copy of a row that came in another partition before a restart: its table has no key, its topic "
    "several partitions, and {}. Let the topic have one partition and a connector with a new topic.prefix bring the "
    "table; or accept that such rows count twice (accept_unordered)"
)
_EXPIRED = "rows of that time are no longer kept"
_UNTOLD = "neither the run of the connector nor the time of sending tells copies from equal rows of one statement"

_Log = tuple[TableId, str]
"""A table and the source whose log its rows stand in."""
_LineKey = tuple[int, int]
"""The number of a piece, and of a line in it."""


class _Sending(NamedTuple):
    """A row that was sent: its run, when that was, its contents, and its line; None for one that is landed."""

    run: str
    ms: int
    content: str
    line: _LineKey | None
    is_new: bool


@dataclass
class Decided:
    """Which lines are copies, and why others cannot be told; `doubts` counts rows by a sentence."""

    copies: dict[_LineKey, bool] = field(default_factory=dict)
    unknown: dict[_LineKey, str] = field(default_factory=dict)
    doubts: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        """Return whether anything is decided."""
        return bool(self.copies or self.unknown)

    def line(self, line: Line) -> Line:
        """Return a line as it was decided; one that its own partition would call too late is none if it is a copy."""
        key = line.piece, line.line
        if key in self.unknown:
            return line._replace(repeated=False, late=self.unknown[key])
        is_copy = self.copies.get(key)
        return line if is_copy is None else line._replace(repeated=is_copy, late="" if is_copy else line.late)


class KeylessRows:
    """What decides about rows without key; `accepted` says that a row counts where it may be a copy."""

    def __init__(self, before: Landed, store: LandingStore, options: MessageOptions, *, accepted: bool) -> None:
        self._before, self._store, self._options, self._accepted = before, store, options, accepted

    def decide(self, pieces: Sequence[Piece]) -> Decided:
        """Decide about the rows of tables that have rows in several partitions."""
        decided, lines = Decided(), defaultdict[_Log, dict[str, list[_LineKey]]](lambda: defaultdict(list))
        partitions, reached = defaultdict[_Log, set[Partition]](set), dict[_Log, str]()
        for number, piece in enumerate(pieces if self._options.in_source_order else ()):
            for log, place, line in _keyless_lines(piece):
                lines[log][place].append((number, line))
                partitions[log].add(piece.partition)
        for stream, end in self._before.streams.items() if lines else ():
            log = stream.table, stream.source
            if end.newest and not is_of_snapshot(end.newest):
                partitions[log].add(stream.partition)
                reached[log] = max(end.newest, reached.get(log, ""))
        for log, places in lines.items():
            if len(partitions[log]) > 1:
                known = {place for place in places if place <= reached.get(log, "")}
                landed, least = self._landed(log, known) if known else ({}, "")
                for place, held in places.items():
                    if place in known or len(held) > 1:
                        sent = [self._sending(pieces[line[0]], line) for line in held]
                        expired = place in known and place not in landed and place <= least
                        self._decide_place(log, [*landed.get(place, ()), *sent], decided, expired)
        return decided

    def _decide_place(self, log: _Log, sent: Sequence[_Sending], decided: Decided, expired: bool) -> None:
        """Decide about the rows at one place; `expired` says that what was landed of it is no longer kept."""
        table, source = log
        by_content = defaultdict[str, list[_Sending]](list)
        for one in sent:
            by_content[one.content].append(one)
        for same in by_content.values():
            mine = [one.line for one in same if one.line is not None]
            counts = _counts_of_runs(same, one_row=dialect_of(source) in ROW_PLACES)
            if expired or counts is None:
                if self._accepted:
                    decided.copies.update(dict.fromkeys(mine, False))
                else:
                    reason = _UNKNOWN.format(_EXPIRED if expired else _UNTOLD)
                    decided.unknown.update(dict.fromkeys(mine, reason))
                continue
            if len(same) > 1 and not all(one.run for one in same) and dialect_of(source) not in ROW_PLACES:
                decided.doubts[_DOUBTFUL.format(table)] += len(mine)
            new = max(0, max(counts) - sum(one.is_new for one in same))
            decided.copies.update({line: number >= new for number, line in enumerate(mine)})

    def _sending(self, piece: Piece, line: _LineKey) -> _Sending:
        message = piece.spoken.column("message")[line[1]].as_py()
        value = piece.batch.column("value")[message].as_py()
        return _Sending(piece.runs[message], sent_ms(value), self._content(value), line, False)

    def _content(self, value: bytes | None) -> str:
        """Return what is equal for copies of a row; "" where what is landed of it may be masked."""
        if self._options.masked or value is None:
            return ""
        held = json_value(value)
        payload = held.get("payload", held)
        text = print_json([payload.get(name) for name in ("op", "before", "after")])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _landed(self, log: _Log, places: set[str]) -> tuple[Mapping[str, list[_Sending]], str]:
        """Return what is landed of a table at some places, rows and copies of them by place.

        With it the place through which rows of the table are no longer kept, "" where none expired.
        """
        table, source = log
        groups = defaultdict[str, set[int]](set)
        for split in self._before.splits:
            if split.table == table:
                groups[split.file].add(split.group)
        wanted, found = pa.array(sorted(places)), defaultdict[str, list[_Sending]](list)
        kept, columns = list[str](), ("schema", "table", "source", "source_position")
        for file, numbers in groups.items():
            held = _of(self._store.read_rows(file, columns), table, source).column("source_position")
            kept += [] if (least := pc.min(held).as_py()) is None else [least]
            for number in sorted(numbers) if pc.any(pc.is_in(held, wanted)).as_py() else ():
                rows = _of(self._store.fetch(file, number), table, source)
                rows = rows.filter(pc.is_in(rows.column("source_position"), wanted))
                for one in rows.select(["kind", "value", "headers", "source_position"]).to_pylist():
                    sending = _Sending(
                        run_in(one["headers"] or ()), sent_ms(one["value"]), self._content(one["value"]), None,
                        one["kind"] == ROW,
                    )  # fmt: skip
                    found[one["source_position"]].append(sending)
        return found, min(kept, default=max(places)) if table in self._before.expired else ""


def _of(rows: pa.Table, table: TableId, source: str) -> pa.Table:
    mask = pc.and_(pc.equal(rows.column("schema"), table.schema), pc.equal(rows.column("table"), table.table))
    return rows.filter(pc.and_(mask, pc.equal(pc.fill_null(rows.column("source"), ""), source)))


def _keyless_lines(piece: Piece) -> Iterator[tuple[_Log, str, int]]:
    """Yield table and source, place and line of rows without key that stand in the log, behind any snapshot."""
    spoken = piece.spoken
    keyed = piece.batch.column("key").is_valid().take(spoken.column("message"))
    mask = pc.and_(pc.equal(spoken.column("kind"), Kind.ROW.value), pc.invert(keyed))
    lines = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))
    names = ("schema", "table", "source", "source_position", "phase", "read_at")
    columns = (spoken.column(name).take(pa.array(lines)).to_pylist() for name in names)
    for line, schema, table, source, place, phase, read_at in zip(lines.tolist(), *columns, strict=True):
        if place and phase is None and read_at is None and not is_of_snapshot(place):
            yield (TableId(schema, table), source or ""), place, line


def _counts_of_runs(same: Sequence[_Sending], *, one_row: bool) -> list[int] | None:
    """Return how many of equal rows each run of a connector has sent, None where nothing tells runs apart.

    Where messages do not name it, those sent a second or more after the ones before are of the next run; of a log in
    which a place names `one_row` each has sent one.
    """
    if all(one.run for one in same):
        return list(Counter(one.run for one in same).values())
    if one_row or len(same) == 1:
        return [1]
    moments = sorted(one.ms for one in same)
    if not moments[0]:
        return None
    counts = [1]
    for before, now in pairwise(moments):
        counts[-1:] = [counts[-1], 1] if now - before >= RESTART_MS else [counts[-1] + 1]
    return counts
