"""Rows without key in topics of several partitions: which of them a connector has sent again.

    KeylessRows(before, store, options).decide(pieces, lines, streams) -> Verdicts

A producer puts messages without key into its partitions in turn. After a restart a row comes again in another
partition, where it may be newer than all before. Or a row that the producer had lost comes behind newer ones. So rows
of one place in the source's log are compared over all partitions: a place has as many rows of one content as the run
of the connector that sent most of them has sent. What its own partition knows for a copy is taken for a new row only
where fewer are landed.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.json_records import json_value, print_json
from cdc_assets.formats.messages import Kind, dialect_of, is_of_snapshot
from cdc_assets.landing.files import LandingStore
from cdc_assets.landing.order import RESTART_MS, ROW_PLACES, Line, Piece, runs_of, sent_ms
from cdc_assets.model.landed import EventKind, Landed, Stream, StreamEnd
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
_NO_RUN = "neither the run of the connector nor the time of sending tells copies from equal rows of one statement"
_OTHER_CONTENTS = "the rows that were landed of its place in the source's log have other values"

_Log = tuple[TableId, str]
"""A table and the source whose log its rows stand in."""


class _Sending(NamedTuple):
    """A row that was sent: its partition, run and time, its content, a digest of all its bytes.

    `line` is its number in the lines of the landing, None for a landed row. `is_copy` says that its own partition knows
    it for a copy, `is_exact` that its time is stated in nanoseconds, so that no other row has the same bytes.
    """

    partition: Partition
    run: str
    ms: int
    content: str
    digest: bytes
    line: int | None = None
    is_copy: bool = False
    is_exact: bool = False


_SENT_NS = re.compile(rb'"op":"[a-z]"(?:,"ts_[mu]s":\d+)*,"ts_ns":\d')


@dataclass
class Verdicts:
    """Decisions about lines by number: copies, and undecidable lines with the reason. `doubts` counts rows by a
    sentence.
    """

    copies: dict[int, bool] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)
    doubts: Counter[str] = field(default_factory=Counter)

    def apply(self, lines: list[Line]) -> None:
        """Write the verdicts into the lines; a copy is in its place wherever it comes."""
        for number, reason in self.unknown.items():
            lines[number] = lines[number]._replace(repeated=False, late=reason)
        for number, is_copy in self.copies.items():
            line = lines[number]
            lines[number] = line._replace(repeated=is_copy, late="" if is_copy else line.late)


@dataclass(frozen=True)
class KeylessRows:
    """Decides about rows without key; `accepted` means that a row counts where it may be a copy."""

    before: Landed
    store: LandingStore
    options: MessageOptions
    accepted: bool = False

    def decide(self, pieces: Sequence[Piece], lines: Sequence[Line], streams: Mapping[Stream, StreamEnd]) -> Verdicts:
        """Decide about the rows of tables that have rows in several partitions; `streams` are the ends behind them."""
        verdicts, sent = Verdicts(), defaultdict[_Log, dict[str, list[int]]](lambda: defaultdict(list))
        for log, place, number in self._rows(pieces, lines):
            sent[log][place].append(number)
        reached, partitions, anew = dict[_Log, str](), Counter[_Log](), set[_Log]()
        for stream, end in streams.items() if sent else ():
            log = stream.table, stream.source
            before = self.before.streams.get(stream, StreamEnd()).newest
            reached[log] = max(before, reached.get(log, ""))
            partitions[log] += bool(end.newest) and not is_of_snapshot(end.newest)
            anew.update([log] if end.anew else ())
        bad = {(event.table, event.source_position) for event in self.before.events if event.kind is EventKind.BAD}
        for log, places in sent.items():
            if partitions[log] < 2 or log in anew:  # places of a log that was started over do not compare
                continue
            decidable = {place for place in places if place <= reached[log] and (log[0], place) not in bad}
            landed, least = self._landed(log, decidable) if decidable else ({}, "")
            for place, numbers in places.items():
                is_repeated = len(numbers) > 1 or any(lines[number].repeated for number in numbers)
                if (place in decidable or is_repeated) and (log[0], place) not in bad:
                    rows = [
                        self._sending(pieces[lines[number].piece], lines[number], number, log) for number in numbers
                    ]
                    is_gone = place in decidable and place not in landed and place <= least
                    decide_place(log, landed.get(place, []), rows, verdicts, accepted=self.accepted, is_gone=is_gone)
        return verdicts

    def _rows(self, pieces: Sequence[Piece], lines: Sequence[Line]) -> Iterator[tuple[_Log, str, int]]:
        """Yield table and source, place and number of lines with a row without key in the log, behind any snapshot."""
        if not any(piece.batch.column("key").null_count for piece in pieces):
            return
        names = ("kind", "message", "schema", "table", "source", "source_position", "phase", "read_at")
        columns = [[piece.spoken.column(name).to_pylist() for name in names] for piece in pieces]
        keyed = [piece.batch.column("key").is_valid().to_pylist() for piece in pieces]
        for number, line in enumerate(lines):
            kind, message, schema, table, source, place, phase, read_at = (
                column[line.line] for column in columns[line.piece]
            )
            if kind != Kind.ROW.value or keyed[line.piece][message] or not place:
                continue
            if phase is None and read_at is None and not is_of_snapshot(place):
                yield (TableId(schema, table), source or ""), place, number

    def _sending(self, piece: Piece, line: Line, number: int, log: _Log) -> _Sending:
        message = piece.spoken.column("message")[line.line].as_py()
        value = piece.batch.column("value")[message].as_py() or b""
        return _Sending(
            piece.partition, piece.runs[message], sent_ms(value), self._content(value, log), _digest(value), number,
            line.repeated, bool(_SENT_NS.search(value)),
        )  # fmt: skip

    def _content(self, value: bytes, log: _Log) -> str:
        """Return a text that is equal for copies of a row; "" where its place names it."""
        if not value or dialect_of(log[1]) in ROW_PLACES:
            return ""
        envelope = json_value(value)
        payload = envelope.get("payload", envelope)
        return print_json([payload.get(name) for name in ("op", "before", "after")])

    def _landed(self, log: _Log, places: set[str]) -> tuple[Mapping[str, list[_Sending]], str]:
        """Return the landed rows of a table at some places, by place.

        With it the place through which rows of the table are no longer kept, "" where none expired.
        """
        table, source = log
        groups = defaultdict[str, set[int]](set)
        for split in self.before.splits:
            if split.table == table:
                groups[split.file].add(split.group)
        sought, landed = pa.array(sorted(places)), defaultdict[str, list[_Sending]](list)
        least_places = list[str]()
        for file, numbers in groups.items():
            columns = ("schema", "table", "source", "source_position")
            stated = _of(self.store.read_rows(file, columns), table, source).column("source_position")
            least_places += [] if (least := pc.min(stated).as_py()) is None else [least]
            for number in sorted(numbers) if pc.any(pc.is_in(stated, sought)).as_py() else ():
                rows = _of(self.store.fetch(file, number), table, source)
                rows = rows.filter(pc.is_in(rows.column("source_position"), sought)).combine_chunks()
                names = ("topic", "partition", "value", "source_position")
                columns_of = (rows.column(name).to_pylist() for name in names)
                runs = runs_of(rows.column("headers"))
                for topic, partition, value, place, run in zip(*columns_of, runs, strict=True):
                    landed[place].append(
                        _Sending(
                            Partition(topic, partition), run, sent_ms(value), self._content(value or b"", log),
                            _digest(value or b""),
                        )
                    )  # fmt: skip
        return landed, min(least_places, default=max(places)) if table in self.before.expired else ""


def decide_place(
    log: _Log,
    landed: Sequence[_Sending],
    rows: Sequence[_Sending],
    verdicts: Verdicts,
    *,
    accepted: bool,
    is_gone: bool,
) -> None:
    """Decide about `rows` of one place, of which others are `landed`, or were once and are no longer kept (`is_gone`).

    Those of which nothing tells whether they are copies count where that is `accepted`.
    """
    one_row = dialect_of(log[1]) in ROW_PLACES
    counted = list(landed)
    seen: dict[tuple[Partition, bytes], int | None] = {(row.partition, row.digest): None for row in landed}
    for row in rows:  # bytes that a partition has once more were sent once, but for rows of one statement in a row
        before = seen.get(place := (row.partition, row.digest), 0)
        is_next = before is not None and row.line == before + 1
        if place not in seen or not (row.is_exact or (row.is_copy and not is_next)):
            counted.append(row)
        seen[place] = row.line
    runs = None if is_gone else _numbered_runs(counted, one_row=one_row)
    contents = {row.content for row in landed}
    strange = bool(landed) and contents.isdisjoint(row.content for row in rows)
    for content in dict.fromkeys(row.content for row in rows):
        content_lines = sorted(
            (row.is_copy, row.line) for row in rows if row.content == content and row.line is not None
        )
        alike = [number for number, row in enumerate(counted) if row.content == content]
        reason = _EXPIRED if is_gone else _NO_RUN if runs is None and len(alike) > 1 else ""
        if strange and not reason:
            same_runs = runs is not None and {runs[number] for number in alike} <= set(runs[: len(landed)])
            reason = "" if same_runs else _OTHER_CONTENTS
        if reason:
            open_rows = [line for is_copy, line in content_lines if not is_copy]
            if accepted:
                verdicts.copies.update(dict.fromkeys(open_rows, False))
            else:
                verdicts.unknown.update(dict.fromkeys(open_rows, _UNKNOWN.format(reason)))
            continue
        most = 1 if one_row or runs is None else max(Counter(runs[number] for number in alike).values(), default=0)
        new = max(0, most - sum(row.content == content for row in landed))
        verdicts.copies.update({line: number >= new for number, (_, line) in enumerate(content_lines)})
        if len(alike) > 1 and not one_row and not all(counted[number].run for number in alike):
            verdicts.doubts[_DOUBTFUL.format(log[0])] += sum(not is_copy for is_copy, _ in content_lines)


def _of(rows: pa.Table, table: TableId, source: str) -> pa.Table:
    mask = pc.and_(pc.equal(rows.column("schema"), table.schema), pc.equal(rows.column("table"), table.table))
    return rows.filter(pc.and_(mask, pc.equal(pc.fill_null(rows.column("source"), ""), source)))


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=8).digest()


def _numbered_runs(rows: Sequence[_Sending], *, one_row: bool) -> list[str] | None:
    """Return the run of the connector that sent each row, None where nothing tells runs apart.

    Where messages do not name it, rows sent a second or more after the ones before are of the next run.
    """
    if one_row or all(row.run for row in rows):
        return [row.run for row in rows]
    if not all(row.ms for row in rows):
        return None
    moments = sorted({row.ms for row in rows})
    number, of = 0, {moments[0]: "0"}
    for before, now in pairwise(moments):
        number += now - before >= RESTART_MS
        of[now] = str(number)
    return [of[row.ms] for row in rows]
