"""The rows of a table as of one snapshot, data file by data file: with PyIceberg, without a JVM, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
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

    def pieces(self) -> Sequence[FileScanTask]:
        """Return its data files, each with its delete files."""
        with answering():
            return tuple(self._table.scan().plan_files())

    def read(self, piece: FileScanTask, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows of a data file, batch by batch."""
        scan = self._table.scan(selected_fields=tuple(columns))
        with answering():
            reader = ArrowScan(self._table.metadata, self._table.io, scan.projection(), AlwaysTrue())
            # What PyIceberg has in public holds a whole data file at once, of several gigabytes once it is decoded.
            deletes = _read_all_delete_files(self._table.io, [piece])
            for batch in reader._record_batches_from_scan_tasks_and_deletes([piece], deletes):
                yield pa.Table.from_batches([batch]).select(list(columns))

    def between(self, column: str, low: int, high: int) -> Iterator[pa.Table]:
        """Yield the rows whose value is in (low, high], batch by batch, of the files that may have some."""
        with answering():
            pieces = tuple(self._table.scan(f"{column} > {low} AND {column} <= {high}").plan_files())
        value = pc.field(column)
        for piece in pieces:
            for rows in self.read(piece, list(self.columns)):
                yield rows.filter((value > low) & (value <= high))
