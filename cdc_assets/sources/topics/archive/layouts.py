"""Layouts of archives. A layout is a module with one name, LAYOUT.

What a name below the prefix says is a Span without its end, or None for a file that holds no messages; a layout whose
names say nothing gives the spans of a file by its contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from cdc_assets.errors import BadSettings
from cdc_assets.model.offsets import Partition
from cdc_assets.sources.topics.topic_options import TopicOptions

if TYPE_CHECKING:
    import pyarrow as pa

Read = Callable[[str], Iterator[bytes]]
"""Path below the prefix -> the bytes of the file in pieces of a few megabytes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of an archive."""

    path: str
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets from `start` to before `stop` of a partition, which lie in a file."""

    partition: Partition
    start: int
    stop: int
    path: str


class Layout(Protocol):
    """The names and contents of an archive's files."""

    def opened(self, options: TopicOptions) -> Layout:
        """Return the layout for a feed; raises BadSettings for options that it does not know."""

    def spans(self, entries: Sequence[Entry], read: Read, concerns: Callable[[str], bool]) -> list[Span]:
        """Return the ranges of offsets of each file, of the topics that `concerns` accepts.

        Raises InputError where files contradict each other, BadSettings where they lose what the protocol needs.
        """

    def messages(self, span: Span, read: Read) -> Iterator[pa.Table]:
        """Yield the messages of a span's file with the columns of `message_schema`, others than the span's too.

        A table holds about what a piece of the file does. Raises InputError for a file that is not of the layout,
        at its end too: nothing counts before it is reached.
        """


LAYOUTS: Mapping[str, str] = {
    "aiven": "cdc_assets.sources.topics.archive.aiven",
    "confluent": "cdc_assets.sources.topics.archive.confluent",
    "records": "cdc_assets.sources.topics.archive.records",
}
"""Name of a layout -> module."""


def layout_of(options: TopicOptions) -> Layout:
    """Return the layout of a feed's archive; raises BadSettings that lists the known ones."""
    assert options.archive is not None
    name = options.archive.layout.partition(":")[0]
    if name not in LAYOUTS:
        raise BadSettings(
            f'archive layout "{name}" is not known; known are {", ".join(sorted(LAYOUTS))}. Give one of them.'
        )
    layout: Layout = import_module(LAYOUTS[name]).LAYOUT
    return layout.opened(options)
