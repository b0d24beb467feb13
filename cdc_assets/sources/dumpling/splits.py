"""Files of a dump cut for tasks, and the rows of a split as changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from cdc_assets.features.dumps.formats import dump_format
from cdc_assets.formats.decoded import Decoded
from cdc_assets.model.dumps import DumpFile, DumpOptions, DumpSplit, DumpTable
from cdc_assets.model.tso import Tso
from cdc_assets.sources import Generators
from cdc_assets.sources.dumpling.generated import filled

if TYPE_CHECKING:
    from cdc_assets.io.storage import Opener

SPLIT_BYTES = 64 << 20
"""About so many bytes of a file are read by one task."""


def splits_of(file: DumpFile, options: DumpOptions, split_bytes: int = SPLIT_BYTES) -> tuple[DumpSplit, ...]:
    """Return the file in pieces of about `split_bytes`, or whole where it is compressed or rows may span lines."""
    if file.compression or not dump_format(file.kind).can_cut(options):
        return (DumpSplit(file, 0, file.size),)
    count = max(1, round(file.size / split_bytes))
    bounds = [file.size * number // count for number in range(count + 1)]
    return tuple(DumpSplit(file, start, end) for start, end in pairwise(bounds))


def read_split(
    split: DumpSplit,
    read_range: Callable[[str, int, int], bytes],
    table: DumpTable,
    options: DumpOptions,
    at: Tso,
    generators: Generators,
) -> Iterator[Decoded]:
    """Yield the rows of a split, block by block, all as inserts of commit-ts `at`.

    `read_range` returns bytes of a file (`Opener.read_range`), `generators` are those of the table
    (`generated.generators`). Raises MalformedData for a file that cannot be trusted, also behind rows that were yielded
    before.
    """
    of_file = partial(read_range, split.file.path)
    for decoded in dump_format(split.file.kind).read(split, of_file, table.id, table.schema, options, at):
        yield filled(decoded, table.schema, generators)


@dataclass(frozen=True, slots=True)
class DirectoryReader:
    """Reads data files of a dump."""

    opener: Opener
    options: DumpOptions

    @property
    def reconnects(self) -> int:
        """0: there is no connection."""
        return 0

    def read(self, split: DumpSplit, table: DumpTable, at: Tso, generators: Generators) -> Iterator[Decoded]:
        """Yield the rows of a split; raises MalformedData, and what `Opener.read_range` raises."""
        return read_split(split, self.opener.read_range, table, self.options, at, generators)

    def lines_before(self, split: DumpSplit) -> int:
        """Return the number of records of its file before a split; reads all that is before it."""
        of_file = partial(self.opener.read_range, split.file.path)
        return dump_format(split.file.kind).lines_before(split, of_file, self.options)

    def records(self, split: DumpSplit, lines: Collection[int]) -> dict[int, bytes]:
        """Return records of a split as its file has them."""
        of_file = partial(self.opener.read_range, split.file.path)
        return dump_format(split.file.kind).raw_records(split, of_file, lines, self.options)
