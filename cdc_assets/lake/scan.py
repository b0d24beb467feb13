"""The rows of a table as of one snapshot, data file by data file: with PyIceberg, without a JVM, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo
from pyiceberg.expressions.parser import parse
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files, schema_to_pyarrow
from pyiceberg.table import FileScanTask, StaticTable

from cdc_assets.errors import InputError, LakeUnavailable
from cdc_assets.features.columns.decoding import living_rows
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.lake.failures import answering
from cdc_assets.model.layout import DELETED_AT

if TYPE_CHECKING:
    from cdc_assets.lake.lake_table import LakeTable
    from cdc_assets.lake.state import LakeState


class TableScan:
    """A table as of a metadata file, or a snapshot in it: its rows stay as they are, whatever is committed later.

    Of a mirror that marks deleted rows these are left out, unless they are wanted `with_marked`.

    Raises LakeUnavailable where the warehouse does not answer, FileNotFoundError where a file was removed meanwhile.
    """

    def __init__(
        self, state: LakeState, lake_table: LakeTable, snapshot_id: int | None = None, *, with_marked: bool = False
    ) -> None:
        self.snapshot_id = lake_table.snapshot_id if snapshot_id is None else snapshot_id
        label = lake_table.label
        self.rows = lake_table.rows
        with answering():
            self._table = StaticTable.from_metadata(lake_table.metadata_location, state.io(lake_table))
        self._past, self._schema = snapshot_id, self._table.schema()
        if snapshot_id is not None:
            past = self._table.snapshot_by_id(snapshot_id)
            if past is None:
                raise InputError(f"{lake_table.life} has no snapshot {snapshot_id} any more: it expired.")
            if past.schema_id is not None:
                self._schema = self._table.schemas()[past.schema_id]
            label = state.label_of(lake_table, snapshot_id)
            counts = past.summary.additional_properties if past.summary is not None else {}
            deleted = int(counts.get("total-position-deletes", "0"))
            self.rows = int(counts["total-records"]) - deleted if "total-records" in counts else None
        self.progress, self.recipe = label.progress, label.recipe
        self._leaves_out = DELETED_AT in self.columns and not with_marked

    @property
    def columns(self) -> dict[str, str]:
        """The types of its columns in Iceberg's words, by name in their order."""
        return {field.name: str(field.field_type) for field in self._schema.fields}

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """Return the Arrow types of columns."""
        return schema_to_pyarrow(self._schema.select(*columns), include_field_ids=False)

    def pieces(self, equal: Mapping[str, object] = {}, condition: str = "") -> Sequence[FileScanTask]:
        """Return its data files, each with its delete files; those that by their bounds have no such row are left out.

        Rows are wanted that fulfil a condition of Iceberg's expressions, and have these numbers by column.
        """
        with answering():
            scan = self._table.scan(_such_rows(equal, condition), snapshot_id=self._past)
            return tuple(scan.plan_files())

    def read_file(
        self, piece: FileScanTask, columns: Sequence[str], equal: Mapping[str, object] = {}, condition: str = ""
    ) -> Iterator[pa.Table]:
        """Yield the rows of a data file that fulfil a condition and have these numbers, batch by batch."""
        read = tuple(dict.fromkeys((*columns, DELETED_AT))) if self._leaves_out else tuple(columns)
        scan = self._table.scan(_such_rows(equal, condition), read, snapshot_id=self._past)
        with answering():
            reader = ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter)
            # What PyIceberg has in public holds a whole data file at once, of several gigabytes once it is decoded.
            deletes = _read_all_delete_files(self._table.io, [piece])
            for batch in reader._record_batches_from_scan_tasks_and_deletes([piece], deletes):
                rows = pa.Table.from_batches([batch])
                yield (living_rows(rows) if self._leaves_out else rows).select(list(columns))

    def where(
        self, condition: str, columns: Sequence[str] = (), equal: Mapping[str, object] = {}
    ) -> Iterator[pa.Table]:
        """Yield the rows that fulfil a condition and have these numbers, batch by batch; by default all columns.

        Raises LakeUnavailable where a file was removed meanwhile, too: what was read of the snapshot is not all.
        """
        try:
            for piece in self.pieces(equal, condition):
                yield from self.read_file(piece, columns or list(self.columns), equal, condition)
        except FileNotFoundError as gone:
            raise LakeUnavailable(
                "a file of the table was removed while it was read, by maintenance or because rows were forgotten "
                f"({gone}). Try again."
            ) from gone

    def count(self, condition: str) -> int:
        """Return the number of rows in files of which all rows fulfil a condition, or none.

        Data files are read only of a mirror that marks deleted rows.
        """
        if self._leaves_out:
            return sum(rows.num_rows for rows in self.where(condition, [COMMIT_TS]))
        pieces = self.pieces(condition=condition)
        with answering():  # it reads whole Puffin files, which may have an earlier vector of a data file, too
            hidden = _read_all_delete_files(self._table.io, pieces)
        vectors = (hidden.get(piece.file.file_path) for piece in pieces)
        places = [len(np.unique(np.concatenate([part.to_numpy() for part in parts]))) for parts in vectors if parts]
        return sum(piece.file.record_count for piece in pieces) - sum(places)


def _such_rows(equal: Mapping[str, object], condition: str) -> BooleanExpression:
    """Return the filter for rows; a number is an int or a Decimal, as the column has it."""
    expression: BooleanExpression = parse(condition) if condition else AlwaysTrue()
    for name, value in equal.items():
        expression = And(expression, EqualTo(name, value))  # type: ignore[call-arg, arg-type]  # by place, as it documents
    return expression
