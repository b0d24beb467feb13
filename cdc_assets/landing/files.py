"""Files of a landing: the columns of its table, rows sorted and cut into row groups, and where they are written.

    LANDED               the columns
    runs, cut            rows -> row groups
    split_of             a row group -> the split that it is
    Files, LandingStore         what a place for a landing can do
    Spool.take(rows)     take rows; those of a table's partition become a row group once they are enough for one
    Spool.take_ahead(…)  the same while messages are read, once it is worth it
    Spool.join(written)  take files that were written elsewhere
    Spool.finish()       write what is left, by table, and close the file
    Spool.abandon()      stop, and leave no file
    event_rows, read_event_rows   events and the state <-> rows

A message stands once for each table that it speaks of, with the table's row events in it. Rows are sorted by (table,
topic, partition, offset), and a row group holds one table only, of one partition: it is what a split reads.

A file is in no snapshot until it is committed, so a landing is as whole as if all of it had been written at once, and
no more of it is in memory than what fills no row group yet.

Beside the messages that are events, each landing adds two of its own: `offsets`, the whole map of next offsets with the
marks and ends, of which the newest counts; and `splits`, what lies where in the files of rows that it added.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, Full, Queue
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.io.encryption import decrypt, decrypt_text, encrypt, encrypt_text, has_encrypted
from cdc_assets.lake.row_groups import RowFiles, RowGroups
from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.model.landed import (
    DeliveryEnd,
    EventKind,
    FirstMessage,
    Landed,
    LandedEvent,
    LandedMessage,
    LandedSplit,
    LogStart,
    Omission,
    Stream,
    StreamEnd,
)
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

Numbers = npt.NDArray[np.int64]
Place = tuple["str | int", ...]
"""Schema, table, topic, partition and kind of rows."""

PART = "part"
"""The column that separates rows from events: each file has one of both."""

LANDED = pa.schema(
    [
        pa.field(PART, pa.string(), nullable=False),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("ordinals", pa.list_(pa.int32())),
        pa.field("timestamp", pa.int64()),
        pa.field("timestamp_type", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())]))),
        pa.field("kind", pa.string()),
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("last_position", pa.int64()),
        pa.field("commit_ts", pa.int64()),
        pa.field("source", pa.string()),
        pa.field("source_position", pa.string()),
        pa.field("shape", pa.string()),
        pa.field("query", pa.string()),
        pa.field("type", pa.int32()),
        pa.field("claim", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("delivery", pa.int64()),
    ]
)
"""Columns of the landing table.

`position` and `last_position` bound those of the row events. `claim` is where a large message lay whose key and value
stand here. `query` is a DDL's text, or the JSON of an event that landing makes itself. Of protocols by offset landing
gives the position; what messages have of it is in `commit_ts`, `source`, `source_position` and `shape`. The kind of a
row is `row`, or `repeat` where it had come before and is not applied again. `delivery` is equal for rows of a table
and partition that were delivered together, of protocols by commit-ts (see `DeliveryStarts`).
"""

GROUP_BYTES = 24 << 20
"""About how many bytes of messages a row group holds at most."""
_LEAST_RUN = 64
"""Rows are copied where fewer than this, on average, follow each other as they should."""
_GROUPED_BY = ("schema", "table", "topic", "partition", "kind")
ROW, REPEAT = "row", "repeat"


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of one table in a partition, in the order of offsets; `place` is that of all that one row group may take."""

    place: Place
    rows: pa.Table
    size: int


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows that one row group takes."""

    rows: pa.Table
    size: int


def size_of(rows: pa.Table) -> Numbers:
    """Return the bytes of each row's key and value."""
    sizes = [pc.binary_length(rows.column(name)).fill_null(0).to_numpy() for name in ("key", "value")]
    total: Numbers = sizes[0].astype(np.int64) + sizes[1].astype(np.int64)
    return total


def runs(rows: pa.Table) -> Iterator[Run]:
    """Sort rows and cut them at tables, topics, partitions and kinds."""
    if not rows.num_rows:
        return
    codes, offsets = codes_of(rows, _GROUPED_BY), rows.column("offset").to_numpy()
    order = np.lexsort((offsets, codes))
    rows, codes = in_runs(rows, order), codes[order]  # mostly they come so, or in long runs: nothing is copied then
    sizes = size_of(rows)
    starts = np.flatnonzero(np.diff(codes)) + 1
    for start, stop in zip([0, *starts.tolist()], [*starts.tolist(), rows.num_rows], strict=True):
        run_rows = rows.slice(start, stop - start)
        first = run_rows.slice(0, 1).select(_GROUPED_BY).to_pylist()[0]
        place = tuple(value if isinstance(value, int) else value or "" for value in first.values())
        yield Run(place, run_rows, int(sizes[start:stop].sum()))


def cut(rows: pa.Table, group_bytes: int = GROUP_BYTES) -> Iterator[RowGroup]:
    """Cut a run of rows where so many bytes of messages are full, never within a message."""
    sizes, offsets = size_of(rows), rows.column("offset").to_numpy()
    pieces = ((np.cumsum(sizes) - sizes) // group_bytes)[np.searchsorted(offsets, offsets)]
    inner = (np.flatnonzero(np.diff(pieces)) + 1).tolist()
    for first, last in zip([0, *inner], [*inner, rows.num_rows], strict=True):
        yield RowGroup(rows.slice(first, last - first), int(sizes[first:last].sum()))


def in_runs(rows: pa.Table | pa.RecordBatch, places: Numbers) -> pa.Table | pa.RecordBatch:
    """Return the rows at these places; what follows each other is not copied, as long as that makes few pieces."""
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    if len(breaks) * _LEAST_RUN > len(places):
        return (rows.combine_chunks() if isinstance(rows, pa.Table) else rows).take(pa.array(places))
    starts = [0, *breaks.tolist()]
    sizes = np.diff([*starts, len(places)]).tolist()
    slices = [rows.slice(int(places[start]), size) for start, size in zip(starts, sizes, strict=True)]
    if len(slices) == 1:
        return slices[0]
    return pa.concat_tables(slices) if isinstance(rows, pa.Table) else pa.Table.from_batches(slices)


def codes_of(rows: pa.Table, names: Sequence[str]) -> Numbers:
    """Return a number for each row that is the same where columns are, and grows as they do; no text is like a null."""
    codes: Numbers = np.zeros(rows.num_rows, np.int64)
    for name in names:
        column = rows.column(name).combine_chunks()
        coded = (column.fill_null("") if column.null_count else column).dictionary_encode()
        values = coded.dictionary.to_pylist()
        ranks = np.empty(len(values), np.int64)
        ranks[sorted(range(len(values)), key=values.__getitem__)] = np.arange(len(values))
        codes = codes * len(values) + ranks[coded.indices.to_numpy()]
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1) if len(values) > 1 else codes
    return codes


def split_of(group: RowGroup, number: int, file: str = "") -> LandedSplit | None:
    """Return the split that a file's row group of this number is; None for what had come before."""
    rows = group.rows
    if rows.column("kind")[0].as_py() == REPEAT:
        return None
    ends = rows.slice(0, 1).to_pylist()[0], rows.slice(rows.num_rows - 1, 1).to_pylist()[0]
    return LandedSplit(
        TableId(ends[0]["schema"], ends[0]["table"]),
        Partition(ends[0]["topic"], ends[0]["partition"]),
        ends[0]["offset"],
        ends[1]["offset"],
        pc.min(rows.column("position")).as_py(),
        pc.max(rows.column("last_position")).as_py(),
        pc.sum(pc.list_value_length(rows.column("ordinals"))).as_py() or 0,
        group.size,
        file,
        number,
        pc.max(rows.column("timestamp")).as_py() or 0,
    )


def splits_of(groups: Iterable[RowGroup], file: str) -> list[LandedSplit]:
    """Return the splits of a file whose row groups are these, in this order."""
    splits = (split_of(group, number, file) for number, group in enumerate(groups))
    return [split for split in splits if split is not None]


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a landing table as it stands: `events` in the order in which they were added.

    `identity` is the table's own id, "" where there is no table. `digest` is that of all next offsets, "" before the
    first landing. `landed_ms` is when the newest landing was committed.
    """

    identity: str = ""
    events: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    digest: str = ""
    landed_ms: int = 0


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Files that are written and in no snapshot yet: names with their bytes."""

    rows: tuple[tuple[str, int], ...] = ()
    events: tuple[tuple[str, int], ...] = ()


class Files(Protocol):
    """Writes files of rows of one feed's landing."""

    def write_rows(self, groups: Iterable[RowGroup], *, packed: bool = False) -> tuple[str, int]:
        """Write rows as one file, a row group each as it comes; return its name and bytes.

        A `packed` file has fewer bytes and takes more CPU. Raises what `groups` raises, and leaves no file then.
        """

    def discard(self, added: NewFiles) -> None:
        """Remove files that will not be committed."""


class LandingStore(Files, Protocol):
    """A place for one feed's landing."""

    def stored(self) -> TableFiles:
        """Return the state of the landing now."""

    def read_events(self, files: Sequence[str]) -> pa.Table:
        """Return the events of files, in the order of the files."""

    @property
    def fetch(self) -> Callable[[str, int], pa.Table]:
        """Reads a row group of a file, on executors too; raises InputError when the file is gone."""

    def elsewhere(self) -> Files:
        """Return the part of it that writes rows wherever a task runs: picklable."""

    def write_events(self, events: pa.Table) -> tuple[str, int]:
        """Write events as one file; return its name and bytes."""

    def commit(self, added: NewFiles, before: str, digest: str, changed: str) -> None:
        """Add files in one commit that carries `digest` and the text of what `changed`.

        Raises TableMoved, with nothing done, where the digest of all next offsets is not `before`.
        """

    def replace(self, added: NewFiles, old: Sequence[str], digest: str) -> None:
        """Put files in place of others in one commit, and say the same of the next offsets as before.

        Raises TableMoved, with nothing done, where the digest of all next offsets is another one, or an old file is not
        there any more.
        """

    def sweep(self, before_ms: int) -> int:
        """Expire snapshots older than `before_ms`, and remove older files that none refers to; return how many."""

    def read_rows(self, file: str, columns: Sequence[str]) -> pa.Table:
        """Return columns of a file that say what its rows are, not what their messages say."""

    def drop_past(self) -> None:
        """Remove the files that only earlier states have, and these states."""

    def stored_files(self) -> Sequence[tuple[str, int]]:
        """Return all files that are there, whatever refers to them, each with its bytes."""


@dataclass(frozen=True, slots=True)
class LandedFiles:
    """Writes files of rows, which are in no snapshot until they are committed: picklable."""

    files: RowFiles
    encryption_key: EncryptionKey | None = None

    def write_rows(self, groups: Iterable[RowGroup], *, packed: bool = False) -> tuple[str, int]:
        """Write rows as one file, a row group each as it comes; return its location and bytes."""
        return self.files.write((encrypted_rows(group.rows, self.encryption_key) for group in groups), packed=packed)

    def discard(self, added: NewFiles) -> None:
        """Remove files that will not be committed."""
        self.files.remove(name for name, _ in (*added.rows, *added.events))


@dataclass(frozen=True, slots=True)
class LandedGroups:
    """Reads row groups of a landing, wherever a task runs: picklable."""

    groups: RowGroups
    encryption_key: EncryptionKey | None = None

    def __call__(self, location: str, group: int) -> pa.Table:
        """Return one row group as its messages came.

        Raises InputError if the file does not exist, and BadSettings for encrypted messages without the right key.
        """
        rows = self.groups(location, group)
        if self.encryption_key is None and not has_encrypted(rows.column("value")):
            return rows
        return decrypted_rows(rows, self.encryption_key)


def encrypted_rows(rows: pa.Table, key: EncryptionKey | None) -> pa.Table:
    """Return rows of the landing with what messages say encrypted: bytes, headers, texts of DDL and reasons.

    Without a key they stay as they are.
    """
    return (
        rows
        if key is None
        else _with_contents(rows, lambda data: encrypt(data, key), lambda text: encrypt_text(text, key))
    )


def decrypted_rows(rows: pa.Table, key: EncryptionKey | None) -> pa.Table:
    """Return rows of the landing with their messages in clear; raises BadSettings without the right key."""
    return _with_contents(rows, lambda data: decrypt(data, key), lambda text: decrypt_text(text, key))


def _with_contents(rows: pa.Table, of_bytes: Callable[[bytes], bytes], of_text: Callable[[str], str]) -> pa.Table:
    for name in ("key", "value"):
        values = [None if content is None else of_bytes(content) for content in rows.column(name).to_pylist()]
        rows = rows.set_column(rows.column_names.index(name), LANDED.field(name), pa.array(values, pa.binary()))
    headers = rows.column("headers").to_pylist()
    if any(headers):
        made = [
            None
            if some is None
            else [{**header, "value": header["value"] and of_bytes(header["value"])} for header in some]
            for some in headers
        ]
        field = LANDED.field("headers")
        rows = rows.set_column(rows.column_names.index("headers"), field, pa.array(made, field.type))
    kinds = rows.column("kind").to_pylist()
    for name in _TEXTS:
        texts = rows.column(name).to_pylist()
        pairs = zip(texts, kinds, strict=True)
        own = [text if text is None or kind in OWN_KINDS else of_text(text) for text, kind in pairs]
        if own != texts:
            rows = rows.set_column(rows.column_names.index(name), LANDED.field(name), pa.array(own, pa.string()))
    return rows


_TEXTS = ("query", "reason", "shape")
"""Columns of texts that messages have, or that are made of what they have."""
OWN_KINDS = ("offsets", "splits")
"""Events that a landing makes itself: how far it is, and what lies where."""

_WAITING = 2
"""Row groups that wait to be written; who reads faster waits for them."""
_LOOK_SECONDS = 0.1


class _Abandoned(Exception):
    """Ends the writing of a file that nobody wants any more."""


@dataclass(frozen=True, slots=True)
class SpooledFiles:
    """Files of rows, each a name with its bytes, and the splits in them."""

    files: tuple[tuple[str, int], ...] = ()
    splits: tuple[LandedSplit, ...] = ()


@dataclass
class _Pending:
    """Rows of one table in a partition that fill no row group yet."""

    rows: list[pa.Table] = field(default_factory=list)
    size: int = 0


class _SpooledFile:
    """A file that a thread writes, of row groups that are given one after the other."""

    def __init__(self, store: Files) -> None:
        self._groups: Queue[RowGroup | None] = Queue(_WAITING)
        self._abandoned = False
        self._pool = ThreadPoolExecutor(1, "cdc-assets-landing")
        self._written: Future[tuple[str, int]] = self._pool.submit(lambda: store.write_rows(self._given()))

    def _given(self) -> Iterator[RowGroup]:
        while True:
            with suppress(Empty):
                group = self._groups.get(timeout=_LOOK_SECONDS)
                if group is None:
                    return
                yield group
            if self._abandoned:
                raise _Abandoned

    def put(self, group: RowGroup | None) -> None:
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
        self._file: _SpooledFile | None = None
        self._pending: dict[Place, _Pending] = {}
        self._splits: list[LandedSplit | None] = []
        self._joined: list[SpooledFiles] = []
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

    def _put(self, group: RowGroup) -> None:
        self._splits.append(split_of(group, len(self._splits)))
        if self._file is None:
            self._file = _SpooledFile(self.store)
        self._file.put(group)

    def join(self, written: SpooledFiles) -> None:
        """Take files that were written elsewhere: they are this landing's now."""
        self._joined.append(written)

    def finish(self) -> SpooledFiles:
        """Return all that was taken, as one file, none where nothing was; behind it the files that joined."""
        try:
            all_of_it = [self._finished(), *self._joined]
            self._joined = []
            files = tuple(file for written in all_of_it for file in written.files)
            return SpooledFiles(files, tuple(split for written in all_of_it for split in written.splits))
        finally:
            self.abandon()

    def _finished(self) -> SpooledFiles:
        groups = [
            group
            for _, held in sorted(self._pending.items(), key=lambda entry: entry[0])
            for group in cut(pa.concat_tables(held.rows), self.group_bytes)
        ]
        if self._file is None and not groups:
            return SpooledFiles()
        splits = [*self._splits, *(split_of(group, len(self._splits) + at) for at, group in enumerate(groups))]
        if self._file is None:
            written = self.store.write_rows(groups)
        else:
            for group in groups:
                self._file.put(group)
            written = self._file.finish()
        return SpooledFiles((written,), tuple(replace(split, file=written[0]) for split in splits if split is not None))

    def abandon(self) -> None:
        """Forget what was taken, and leave no file of it."""
        if self._file is not None:
            self._file.close()
        gone = tuple(file for written in self._joined for file in written.files)
        self._clear()
        if gone:
            self.store.discard(NewFiles(gone))


# --- events -----------------------------------------------------------------------------------------------------------

_OFFSETS, _SPLITS = OWN_KINDS

ByTopic = dict[str, dict[str, int]]


def event_rows(
    events: Iterable[LandedEvent], state: Landed, splits: Iterable[LandedSplit], before: Landed | None = None
) -> pa.Table:
    """Return the rows of a landing's events: those of messages, then the state, then the splits that it adds.

    Of tables, of which there may be thousands, the state has only those that are otherwise than `before`.
    """
    rows: list[dict[str, Any]] = [_row(event) for event in events]
    rows.append({PART: "events", "kind": _OFFSETS, "query": _format_state(state, before or Landed())})
    listed = [_flat(split) for split in splits]
    if listed:
        rows.append({PART: "events", "kind": _SPLITS, "query": json.dumps(listed)})
    return pa.Table.from_pylist(rows, schema=LANDED)


def _row(event: LandedEvent) -> dict[str, Any]:
    return {
        PART: "events",
        "topic": event.partition.topic,
        "partition": event.partition.number,
        "offset": event.offset,
        "key": event.key,
        "value": event.value,
        "kind": event.kind.value,
        "schema": None if event.table is None else event.table.schema,
        "table": None if event.table is None else event.table.table,
        "position": event.position,
        "query": event.query,
        "type": event.type,
        "reason": event.reason,
        "delivery": event.delivery,
        **{name: getattr(event, name) or None for name in ("source", "source_position", "shape", "commit_ts")},
    }


def read_event_rows(landed: Landed, rows: pa.Table, live: Iterable[str]) -> Landed:
    """Return the landing with more rows of events, and only with splits of files that are still there.

    Events come in the order in which they were landed.
    """
    events, splits, there = [*landed.events], [*landed.splits], frozenset(live)
    state = landed
    for row in rows.to_pylist():
        if row["kind"] == _OFFSETS:
            state = _parse_state(row["query"], state)
        elif row["kind"] == _SPLITS:
            splits += [_parse_split(fields) for fields in json.loads(row["query"])]
        else:
            events.append(_event(row))
    present = tuple(split for split in splits if split.file in there)
    return replace(state, identity=landed.identity, events=tuple(events), splits=present)


def _event(row: Mapping[str, Any]) -> LandedEvent:
    return LandedEvent(
        EventKind(row["kind"]),
        Partition(row["topic"], row["partition"]),
        row["offset"],
        row["position"] or 0,
        None if row["schema"] is None else TableId(row["schema"], row["table"]),
        row["query"] or "",
        row["type"] or 0,
        row["key"],
        row["value"],
        row["reason"] or "",
        row["source"] or "",
        row["source_position"] or "",
        row["shape"] or "",
        row["commit_ts"] or 0,
        row["delivery"],
    )


# --- the state --------------------------------------------------------------------------------------------------------


def digest_of(offsets: Mapping[Partition, int]) -> str:
    """Return a digest of all next offsets."""
    return hashlib.sha256(json.dumps(_by_topic(offsets), sort_keys=True).encode()).hexdigest()


_NUMBERS = ("next", "marks", "ends", "restarts", "marks_at", "unfinished")
"""The maps of the state from a partition to a number."""
_MAPS: Mapping[str, tuple[Callable[..., Any], int, Callable[..., Any]]] = {
    "began": (TableId, 2, int),
    "expired": (TableId, 2, int),
    "barriers": (Partition, 2, str),
    "unawaited": (Partition, 2, lambda since, until: (since, until)),
    "firsts": (Partition, 2, FirstMessage),
    "newest": (Partition, 2, LandedMessage),
    "starts": (Partition, 2, LogStart),
    "omissions": (lambda *key: OffsetRange(Partition(*key[:2]), *key[2:]), 4, Omission),
    "streams": (lambda *key: Stream(Partition(*key[:2]), TableId(*key[2:4]), key[4]), 5, StreamEnd),
    "deliveries": (lambda *key: (Partition(*key[:2]), TableId(*key[2:])), 4, DeliveryEnd),
    "emptied": (lambda *key: (Partition(*key[:2]), TableId(*key[2:])), 4, lambda low, first: (low, first)),
}
"""The other maps of the state -> the function that makes a key, its number of fields, and the function that makes a
value of the rest."""
_GROWING = ("began", "streams", "deliveries", "emptied", "omissions")
"""Maps of which a landing writes what has changed: there may be thousands of tables, and one that began before a
decision leaves that as it is."""
_ATOMS = (int, str)
_PLAIN = ("landed_by", "proven", "landed_ms", "ignored", "topic_ids", "last", "ahead")


def _format_state(state: Landed, before: Landed) -> str:
    written: dict[str, Any] = {name: _by_topic(getattr(state, name)) for name in _NUMBERS}
    for name in _MAPS:
        earlier = getattr(before, name) if name in _GROWING else {}
        entries = sorted(getattr(state, name).items())
        written[name] = [[*_flat(key), *_flat(value)] for key, value in entries if earlier.get(key) != value]
    return json.dumps({**written, **{name: getattr(state, name) for name in _PLAIN}, "sources": state.sources})


def _flat(value: Any) -> list[Any]:
    """Return the numbers and texts of a value, in the order of its fields."""
    if isinstance(value, _ATOMS):
        return [value]
    flat = list[Any]()
    for part in value if isinstance(value, tuple) else [getattr(value, name) for name in value.__match_args__]:
        flat += (part,) if isinstance(part, _ATOMS) else _flat(part)
    return flat


def _parse_state(text: str, landed: Landed) -> Landed:
    state = json.loads(text)
    fields: dict[str, Any] = {name: _partitions(state[name]) for name in _NUMBERS}
    for name, (key, width, value) in _MAPS.items():
        entries = {key(*entry[:width]): value(*entry[width:]) for entry in state[name]}
        fields[name] = {**getattr(landed, name), **entries} if name in _GROWING else entries
    # What is gone stays gone, also where a landing is committed that began before it went.
    fields["expired"] = _later(landed.expired, fields["expired"])
    fields["deliveries"] = open_deliveries(fields["deliveries"], fields["marks"], fields["marks_at"])
    return replace(landed, **fields, **{name: state[name] for name in _PLAIN}, sources=tuple(state["sources"]))


def _later(first: Mapping[TableId, Tso], second: Mapping[TableId, Tso]) -> dict[TableId, Tso]:
    return {table: max(first.get(table, 0), second.get(table, 0)) for table in {**first, **second}}


def _by_topic(values: Mapping[Partition, int]) -> ByTopic:
    topics: ByTopic = {}
    for partition, value in sorted(values.items()):
        topics.setdefault(partition.topic, {})[str(partition.number)] = value
    return topics


def _partitions(by_topic: ByTopic) -> dict[Partition, int]:
    return {Partition(topic, int(number)): value for topic, some in by_topic.items() for number, value in some.items()}


def open_deliveries(
    ends: Mapping[tuple[Partition, TableId], DeliveryEnd],
    marks: Mapping[Partition, Tso],
    marks_at: Mapping[Partition, int],
) -> dict[tuple[Partition, TableId], DeliveryEnd]:
    """Return the ends that are needed on: other tables begin a delivery with their next row in any case."""
    return {
        (partition, table): end
        for (partition, table), end in ends.items()
        if end.greatest > marks.get(partition, 0) or end.offset > marks_at.get(partition, -1)
    }


# --- splits -----------------------------------------------------------------------------------------------------------


def _parse_split(values: list[Any]) -> LandedSplit:
    schema, table, topic, number, *rest = values
    return LandedSplit(TableId(schema, table), Partition(topic, number), *rest)
