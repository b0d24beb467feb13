"""An archive of topics as a log: its ends are those of its files, ranges are read out of the files that hold them."""

from __future__ import annotations

import tempfile
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BucketMissing, InputError
from cdc_assets.io.storage import Opener
from cdc_assets.model.offsets import Ends, LogEnds, OffsetRange, Partition
from cdc_assets.sources.topics import BATCH_BYTES, PUT_BACK, message_schema
from cdc_assets.sources.topics.archive.layouts import Entry, Layout, Span, layout_of
from cdc_assets.sources.topics.archive.named import is_keyed_delete
from cdc_assets.sources.topics.topic_options import TopicOptions


@dataclass
class ArchiveReader:
    """Reads archived topics. Files never change: what was learned of one counts as long as it is the same.

    With `of_connector` tombstones that the sink connector left out are put back behind their deletes. The files that
    were read last are kept in pages, so that ranges of them are not decoded anew.
    """

    opener: Opener
    layout: Layout
    of_connector: bool = False
    spans: Mapping[Partition, tuple[Span, ...]] = field(default_factory=dict)
    _entries: tuple[Entry, ...] = field(default=(), repr=False)
    _etags: Mapping[str, str] = field(default_factory=dict, repr=False)
    _sizes: Mapping[str, int] = field(default_factory=dict, repr=False)
    _recent: dict[str, MessagePages] = field(default_factory=dict, repr=False)

    proves_ends = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the files that were read last, and what only a new look at the archive needs."""
        return {**self.__dict__, "_recent": {}, "_entries": (), "_etags": {}}

    def ends(self, concerns: Callable[[str], bool]) -> Ends:
        """Return the first offset of each partition and the one behind its last, by the files that are there.

        Raises BucketMissing where the archive does not exist, and InputError where two files have different messages at
        one offset.
        """
        entries = tuple(sorted((Entry(path, size, etag) for path, size, etag, _ in self.opener.entries()), key=_path))
        if not entries and not self.opener.is_there():
            raise BucketMissing(
                f"the archive {self.opener.uri} does not exist; expected the directory of the archived topics. Correct "
                "the archive's uri (--archive).",
                file=self.opener.uri,
            )
        if entries != self._entries:
            spans_by_partition: dict[Partition, list[Span]] = {}
            self._sizes, self._recent = {entry.path: entry.size for entry in entries}, {}
            for span in self.layout.spans(entries, self._pieces, concerns):
                spans_by_partition.setdefault(span.partition, []).append(span)
            self.spans = {
                partition: tuple(sorted(some, key=lambda s: (s.start, s.stop)))
                for partition, some in spans_by_partition.items()
            }
            for some in self.spans.values():
                for earlier, later in _overlapping(some):
                    self._refuse_different(earlier, later)
            self._etags = {entry.path: f"{entry.path} {entry.size} {entry.etag}" for entry in entries}
            self._entries = entries
        return {
            partition: LogEnds(spans[0].start, max(span.stop for span in spans), self._etags[spans[0].path])
            for partition, spans in self.spans.items()
            if concerns(partition.topic)
        }

    def read(self, offset_range: OffsetRange, batch_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range; those that lie in two files once. `ends` must have been called before."""
        at, spans = offset_range.start, self.spans.get(offset_range.partition, ())
        for span, following in zip_longest(spans, spans[1:]):
            first = at - self.of_connector  # a tombstone is known by the delete before it
            if span.stop <= first or span.start >= offset_range.stop:
                continue
            behind = None if following is None or span.stop > offset_range.stop else following.start
            for messages in self._messages(span, first, min(span.stop, offset_range.stop), behind):
                offsets = messages.column("offset")
                due = messages.filter(pc.and_(pc.greater_equal(offsets, at), pc.less(offsets, offset_range.stop)))
                if due.num_rows:
                    at = due.column("offset")[-1].as_py() + 1
                    yield from _batches(due, batch_bytes)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Archives have none."""
        return {}

    def missing_because(self, topic: str) -> str:
        """Archives hold every message: what is missing is lost."""
        return ""

    def keeps_deletes_ms(self, topic: str) -> int:
        """Archives are not compacted."""
        return _FOREVER_MS

    def _refuse_different(self, earlier: Span, later: Span) -> None:
        """Raise InputError where files that have some offsets of a partition both have different messages there."""
        start, stop = later.start, min(earlier.stop, later.stop)
        for earlier_messages in self._messages(earlier, start, stop):
            first, last = earlier_messages.column("offset")[0].as_py(), earlier_messages.column("offset")[-1].as_py()
            for other in self._messages(later, first, last + 1):
                offset = _first_different(earlier_messages, other)
                if offset is None:
                    continue
                raise InputError(
                    f"{earlier.path} and {later.path} have different messages of {later.partition} at offset {offset}: "
                    "the topic was created anew, or files of two topics lie together. Remove what does not belong to "
                    "this archive; where the topic was created anew, give its files an archive and a changefeed "
                    "(another name) of their own, and rebuild its tables there from a dump or from the changefeed's "
                    "start.",
                    file=later.path,
                    offset=offset,
                )

    def _messages(self, span: Span, start: int, stop: int, behind: int | None = None) -> Iterator[pa.Table]:
        """Yield the messages of a span from `start` to before `stop`, in order.

        `behind` is the offset of the message after them, None where that is not known.
        """
        pages = self._recent.get(span.path)
        if pages is None:
            pages = MessagePages(span.path)
            for table in self.layout.messages(span, self._pieces):
                pages.add(table)
            pages.put_in_order()
            for path in [*self._recent][: 1 - _RECENT_FILES]:
                self._recent.pop(path, None)
            self._recent[span.path] = pages
        message_tables = pages.read(span.partition, start, stop)
        if not self.of_connector:
            yield from message_tables
            return
        for messages, following in pairwise(chain(message_tables, (None,))):
            assert messages is not None
            yield _with_tombstones(messages, behind if following is None else following.column("offset")[0].as_py())

    def _pieces(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        for start in range(0, self._sizes[path], _PIECE_BYTES):
            yield self.opener.read_range(path, start, min(start + _PIECE_BYTES, self._sizes[path]))


_RECENT_FILES = 3
_PIECE_BYTES = 8 << 20
_FOREVER_MS = 1 << 62


def _overlapping(spans: Sequence[Span]) -> Iterator[tuple[Span, Span]]:
    """Yield the pairs of files that have offsets in common; `spans` are in order of their first ones."""
    open_spans = list[Span]()
    for later in spans:
        open_spans = [earlier for earlier in open_spans if earlier.stop > later.start]
        yield from ((earlier, later) for earlier in open_spans if earlier.path != later.path)
        open_spans.append(later)


def _path(entry: Entry) -> str:
    return entry.path


def _first_different(messages: pa.Table, other: pa.Table) -> int | None:
    """Return the first offset that both have with another key or value; None if there is none."""
    offsets, indexes, other_indexes = np.intersect1d(
        messages.column("offset").to_numpy(), other.column("offset").to_numpy(), return_indices=True
    )
    messages, other = messages.take(pa.array(indexes)), other.take(pa.array(other_indexes))
    for name in ("key", "value"):
        if messages.column(name) != other.column(name):
            pairs = zip(messages.column(name).to_pylist(), other.column(name).to_pylist(), strict=True)
            return int(offsets[next(place for place, (first, second) in enumerate(pairs) if first != second)])
    return None


def _with_tombstones(messages: pa.Table, behind: int | None) -> pa.Table:
    """Put a tombstone where an offset is missing directly behind the delete of a row with a key.

    `behind` is the offset of the message after the last one, None where that is not known.
    """
    if not messages.num_rows:
        return messages
    offsets = messages.column("offset").to_numpy()
    following = np.append(offsets[1:], offsets[-1] + 1 if behind is None else behind)
    places = pa.array(np.flatnonzero(following - offsets == 2))
    columns = (messages.column(name).take(places).to_pylist() for name in ("key", "value"))
    are_deletes = [is_keyed_delete(*pair) for pair in zip(*columns, strict=True)]
    deletes = messages.take(places).filter(pa.array(are_deletes, pa.bool_()))
    if not deletes.num_rows:
        return messages
    left_out = {
        "offset": pc.add(deletes.column("offset"), 1),
        "value": pa.nulls(deletes.num_rows, pa.binary()),
        "timestamp_type": pa.repeat(PUT_BACK, deletes.num_rows),
    }
    for name, column in left_out.items():
        place = deletes.schema.get_field_index(name)
        deletes = deletes.set_column(place, deletes.schema.field(place), column)
    return pa.concat_tables([messages, deletes]).sort_by("offset")


def _batches(messages: pa.Table, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    sizes = [pc.binary_length(messages.column(name)).fill_null(0).to_numpy() for name in ("key", "value")]
    total = np.cumsum(sizes[0].astype(np.int64) + sizes[1])
    starts = np.flatnonzero(np.diff((total - total[0]) // batch_bytes)) + 1
    for start, stop in pairwise([0, *starts.tolist(), messages.num_rows]):
        yield messages.slice(start, stop - start).combine_chunks().to_batches()[0]


def connect(options: TopicOptions, access: Mapping[str, Any]) -> ArchiveReader:
    """Open an archive by fsspec's options; raises BadSettings for a layout that loses what the protocol needs."""
    archive = options.archive
    assert archive is not None
    protocol, prefix = archive.location
    opener = Opener(protocol, prefix.rstrip("/"), archive.uri.rstrip("/"), access)
    return ArchiveReader(opener, layout_of(options), options.messages.of_connector)


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
            messages = pa.concat_tables(tables).sort_by("offset")
            # What the file holds twice is left out.
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
            messages = messages.take(pa.array(np.flatnonzero(np.diff(offsets, prepend=-1) != 0)))
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
