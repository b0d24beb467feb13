"""An archive of topics as a log: its ends are those of its files, ranges are read out of the files that hold them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import InputError
from cdc_assets.io.storage import Opener
from cdc_assets.model.offsets import Ends, LogEnds, OffsetRange, Partition
from cdc_assets.sources.topics import BATCH_BYTES
from cdc_assets.sources.topics.archive.layouts import Entry, Layout, Span, layout_of
from cdc_assets.sources.topics.archive.named import is_keyed_delete
from cdc_assets.sources.topics.topic_options import TopicOptions


@dataclass
class ArchiveReader:
    """Reads archived topics. Files never change: what was learned of one counts as long as it is the same.

    With `of_connector` tombstones that the sink connector left out are put back behind their deletes.
    """

    opener: Opener
    layout: Layout
    of_connector: bool = False
    spans: Mapping[Partition, tuple[Span, ...]] = field(default_factory=dict)
    _entries: tuple[Entry, ...] = field(default=(), repr=False)
    _etags: Mapping[str, str] = field(default_factory=dict, repr=False)
    _newest: tuple[str, pa.Table] | None = field(default=None, repr=False)

    proves_ends = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the file that was read last, and what only a new look at the archive needs."""
        return {**self.__dict__, "_newest": None, "_entries": (), "_etags": {}}

    def ends(self, concerns: Callable[[str], bool]) -> Ends:
        """Return the first offset of each partition and the one behind its last, by the files that are there.

        Raises InputError where two files have different messages at one offset.
        """
        entries = tuple(sorted((Entry(path, size, etag) for path, size, etag, _ in self.opener.entries()), key=_path))
        if entries != self._entries:
            found: dict[Partition, list[Span]] = {}
            for span in self.layout.spans(entries, self.opener.read, concerns):
                found.setdefault(span.partition, []).append(span)
            self.spans = {one: tuple(sorted(some, key=lambda s: (s.start, s.stop))) for one, some in found.items()}
            self._newest = None
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

    def read(self, wanted: OffsetRange, batch_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range; those that lie in two files once. `ends` must have been called before."""
        at, spans = wanted.start, self.spans.get(wanted.partition, ())
        for span, following in zip_longest(spans, spans[1:]):
            first = at - self.of_connector  # a tombstone is known by the delete before it
            if span.stop <= first or span.start >= wanted.stop:
                continue
            messages = self._messages(span, first, min(span.stop, wanted.stop))
            if self.of_connector:
                is_cut = following is None or span.stop > wanted.stop
                messages = _with_tombstones(messages, None if is_cut else following.start)
                offsets = messages.column("offset")
                messages = messages.filter(pc.and_(pc.greater_equal(offsets, at), pc.less(offsets, wanted.stop)))
            if messages.num_rows:
                at = messages.column("offset")[-1].as_py() + 1
                yield from _batches(messages, batch_bytes)

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
        one, other = (self._messages(span, start, stop) for span in (earlier, later))
        offsets, mine, theirs = np.intersect1d(
            one.column("offset").to_numpy(), other.column("offset").to_numpy(), return_indices=True
        )
        one, other = one.take(pa.array(mine)), other.take(pa.array(theirs))
        for name in ("key", "value"):
            if one.column(name) == other.column(name):
                continue
            pairs = zip(one.column(name).to_pylist(), other.column(name).to_pylist(), strict=True)
            offset = int(offsets[next(place for place, (first, second) in enumerate(pairs) if first != second)])
            raise InputError(
                f"{earlier.path} and {later.path} have different messages of {later.partition} at offset {offset}: the "
                "topic was created anew, or files of two topics lie together. Remove what does not belong to this "
                "archive; where the topic was created anew, give its files an archive and a changefeed (another name) "
                "of their own, and rebuild its tables there from a dump or from the changefeed's start.",
                file=later.path,
                offset=offset,
            )

    def _messages(self, span: Span, start: int, stop: int) -> pa.Table:
        if self._newest is None or self._newest[0] != span.path:
            self._newest = (span.path, self.layout.messages(span, self.opener.read))
        messages = self._newest[1]
        offsets = messages.column("offset")
        mine = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, stop))
        mine = pc.and_(mine, pc.equal(messages.column("topic"), span.partition.topic))
        mine = pc.and_(mine, pc.equal(messages.column("partition"), span.partition.number))
        return _once(messages.filter(mine).sort_by("offset"), span)


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


def _once(messages: pa.Table, span: Span) -> pa.Table:
    """Leave out what an archive holds twice; raises InputError where two messages have one offset."""
    offsets = messages.column("offset").to_numpy()
    again = np.flatnonzero(np.diff(offsets) == 0)
    if not len(again):
        return messages
    for name in ("key", "value"):
        column = messages.column(name)
        if column.take(pa.array(again)) != column.take(pa.array(again + 1)):
            raise InputError(
                f"{span.path} has two messages of {span.partition} at offset {offsets[again[0]]}; expected one. "
                "Remove what does not belong to this archive.",
                file=span.path,
                offset=int(offsets[again[0]]),
            )
    return messages.take(pa.array(np.flatnonzero(np.diff(offsets, prepend=-1) != 0)))


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
    left_out = {"offset": pc.add(deletes.column("offset"), 1), "value": pa.nulls(deletes.num_rows, pa.binary())}
    for name, column in left_out.items():
        place = deletes.schema.get_field_index(name)
        deletes = deletes.set_column(place, deletes.schema.field(place), column)
    return pa.concat_tables([messages, deletes]).sort_by("offset")


def _batches(messages: pa.Table, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    sizes = [pc.binary_length(messages.column(name)).fill_null(0).to_numpy() for name in ("key", "value")]
    total = np.cumsum(sizes[0].astype(np.int64) + sizes[1])
    cuts = np.flatnonzero(np.diff((total - total[0]) // batch_bytes)) + 1
    for start, stop in pairwise([0, *cuts.tolist(), messages.num_rows]):
        yield messages.slice(start, stop - start).combine_chunks().to_batches()[0]


def connect(options: TopicOptions, access: Mapping[str, Any]) -> ArchiveReader:
    """Open an archive by fsspec's options; raises BadSettings for a layout that loses what the protocol needs."""
    archive = options.archive
    assert archive is not None
    protocol, prefix = archive.location
    opener = Opener(protocol, prefix.rstrip("/"), archive.uri.rstrip("/"), access)
    return ArchiveReader(opener, layout_of(options), options.messages.of_connector)
