"""The rows of a table as of one snapshot, data file by data file: with PyIceberg, without a JVM, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files, schema_to_pyarrow
from pyiceberg.table import FileScanTask, StaticTable

from cdc_assets.lake.failures import answering

if TYPE_CHECKING:
    from cdc_assets.lake.lake_table import LakeTable
    from cdc_assets.lake.state import LakeState

__all__ = ["TableScan"]


class TableScan:
    """A table as of a metadata file: what is committed later is not seen, and its rows stay as they are.

    Raises LakeUnavailable where the warehouse does not answer, or maintenance has removed a file meanwhile.
    """

    def __init__(self, state: LakeState, lake_table: LakeTable) -> None:
        self.snapshot_id = lake_table.snapshot_id
        self.progress = lake_table.label.progress
        self.rows = lake_table.rows
        with answering():
            self._table = StaticTable.from_metadata(lake_table.metadata_location, state.io(lake_table))

    @property
    def columns(self) -> dict[str, str]:
        """The types of its columns in Iceberg's words, by name in their order."""
        return {field.name: str(field.field_type) for field in self._table.schema().fields}

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """Return the Arrow types of columns."""
        return schema_to_pyarrow(self._table.schema().select(*columns), include_field_ids=False)

    def pieces(self, condition: str = "") -> Sequence[FileScanTask]:
        """Return its data files, each with its delete files; of those that have no row for a condition, none."""
        with answering():
            return tuple(self._table.scan(condition or AlwaysTrue()).plan_files())

    def read(self, piece: FileScanTask, columns: Sequence[str], condition: str = "") -> Iterator[pa.Table]:
        """Yield the rows of a data file that fulfil a condition (of Iceberg's expressions), batch by batch."""
        scan = self._table.scan(condition or AlwaysTrue(), tuple(columns))
        with answering():
            reader = ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter)
            # What PyIceberg has in public holds a whole data file at once, of several gigabytes once it is decoded.
            deletes = _read_all_delete_files(self._table.io, [piece])
            for batch in reader._record_batches_from_scan_tasks_and_deletes([piece], deletes):
                yield pa.Table.from_batches([batch]).select(list(columns))

    def where(self, condition: str, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Yield the rows that fulfil a condition, batch by batch; of all columns if none is named."""
        for piece in self.pieces(condition):
            yield from self.read(piece, columns or list(self.columns), condition)

    def count(self, condition: str) -> int:
        """Return how many rows there are in files of which all rows fulfil a condition, or none. Reads no data file."""
        pieces = self.pieces(condition)
        return sum(one.file.record_count - sum(gone.record_count for gone in one.delete_files) for one in pieces)
