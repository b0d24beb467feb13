"""Files of a step -> the changes in each, as its format decodes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from cdc_assets.decoding import FILE
from cdc_assets.errors import CdcError, MalformedData
from cdc_assets.formats import Decoded, SplitReader, Wire, decode_among
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows

__all__ = ["Split", "concerning", "read_splits"]

_NOTHING = Decoded(pa.table({}))


@dataclass(frozen=True, slots=True)
class Split:
    """A file of a step on its way through the stages.

    `decoded` is what its bytes say and `changes` what the stages left of that. `rejects` are the first of the
    `reject_count` records of the window that do not fit. `stray` is a row that cannot belong where it lies, and
    `refused` what is wrong with all of the file: either fails the window in any case, and no row of the file counts.
    The rows of a `foreign` file are those of another table of its directory.
    """

    position: int
    file: DataFile
    table: TableId
    schema: TableSchema
    wire: Wire
    data: bytes
    decoded: Decoded
    changes: pa.Table
    rejects: tuple[Reject, ...] = ()
    reject_count: int = 0
    stray: Reject | None = None
    refused: Reject | None = None
    foreign: bool = False

    def through(self, stage: Callable[[Split], Split]) -> Split:
        """Return what a stage makes of the file; one that is foreign or was refused passes as it is."""
        if self.refused is not None or self.foreign:
            return self
        try:
            with concerning(self.file):
                return stage(self)
        except MalformedData as error:
            line, column = int(error.where.get("line", 0)), str(error.where.get("column", ""))
            return replace(self, refused=Reject(self.file.path, line, error.message, column=column))


def read_splits(step: ApplyRows, positions: Iterable[int], reader: SplitReader) -> Iterator[Split]:
    """Yield the files at these positions of the step, in that order, each decoded or refused.

    Raises InputError for a file that is gone.
    """
    for position in positions:
        file = step.files[position]
        table, schema = step.schemas[file.root, file.version]
        data, wire = reader.read(file.path), reader.wire(file.path)
        split = Split(position, file, table, schema, wire, data, _NOTHING, _NOTHING.changes)
        yield split.through(partial(_decoded, step))


def _decoded(step: ApplyRows, split: Split) -> Split:
    siblings = step.siblings.get((split.file.root, split.file.version), ())
    tables = ((split.table, split.schema), *siblings)
    table, found = decode_among(split.wire, split.data, split.file.path, tables)
    if table != split.table:
        return replace(split, decoded=found, foreign=True)
    places = pa.repeat(pa.scalar(split.position, pa.int32()), found.changes.num_rows)
    return replace(split, decoded=found, changes=found.changes.append_column(FILE, places))


@contextmanager
def concerning(file: DataFile) -> Iterator[None]:
    """Let whatever goes wrong with the bytes of a file concern that file: damage has more forms than are foreseen."""
    try:
        yield
    except (CdcError, ImportError, MemoryError):
        raise
    except Exception as error:
        raise MalformedData(
            f"{file.path} cannot be decoded ({type(error).__name__}: {error}). If it is as TiCDC wrote it, report this "
            "with the file; else restore it.",
            path=file.path,
        ) from error
