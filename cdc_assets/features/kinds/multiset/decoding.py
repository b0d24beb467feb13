"""Tables without a key: what remains of a window is how many equal rows enter or leave (see `deliveries`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import COUNT, DELIVERY, FILE, PLACE
from cdc_assets.decoding.deliveries import counted, delivered, groupable
from cdc_assets.decoding.split import TableKind
from cdc_assets.errors import TableHeld
from cdc_assets.formats.changes import position_column
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, POSITION, Op
from cdc_assets.model.reports import Report
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows

_META = (OP, COMMIT_TS, POSITION, LINE, FILE, DELIVERY, PLACE, COUNT)


class MultisetKind(TableKind):
    """Equal rows by their count."""

    NAME = "multiset"
    EQUAL_ROWS = True
    STAGED: ClassVar[Mapping[str, str]] = {COUNT: "bigint"}

    def count_directions(self, changes: pa.Table) -> tuple[int, int]:
        """Return the numbers of rows that enter and that leave, equal ones counted."""
        counts = changes.column(COUNT)
        entering = pc.sum(pc.if_else(pc.greater(counts, 0), counts, 0)).as_py() or 0
        return entering, entering - (pc.sum(counts).as_py() or 0)

    def replayed(self, net: pa.Table, others: Callable[[], pa.Table], schema: TableSchema) -> pa.Table:
        """Return the rows that the records add to the net of all others: rows are counted, not identified."""
        without = others()
        if not without.num_rows:
            return net
        negated = pc.negate(without.column(COUNT))
        without = without.set_column(without.schema.get_field_index(COUNT), pa.field(COUNT, pa.int64()), negated)
        both = pa.concat_tables([net, without])
        frame = pl.from_arrow(both.select([*(column.name for column in schema.stored), COUNT]))
        assert isinstance(frame, pl.DataFrame)
        by = [groupable(frame, column.name).alias(f"_cdc_value_{n}") for n, column in enumerate(schema.stored)]
        summed = frame.with_row_index("_cdc_row").group_by(by).agg(pl.col(COUNT).sum(), pl.col("_cdc_row").first())
        summed = summed.filter(pl.col(COUNT) != 0)
        rows = both.take(summed.get_column("_cdc_row").to_arrow())
        counts = summed.get_column(COUNT).to_arrow().cast(pa.int64())
        return rows.set_column(rows.schema.get_field_index(COUNT), pa.field(COUNT, pa.int64()), counts)

    def apart(self, changes: pa.Table, step: ApplyRows, empty: bool) -> tuple[pa.Table, pa.Table]:
        """Return no rows: some of them stand for several, or are to be removed."""
        return changes.slice(0, 0), changes

    def reduce(
        self, changes: pa.Table, schema: TableSchema, table: TableId, files: Sequence[DataFile] = ()
    ) -> tuple[pa.Table, Report]:
        """Net the rows that enter and leave: one output row per distinct row, with COUNT added, zero counts left out.

        `files` are those that FILE numbers. The report counts copies that may be rows of two dispatchers, or one row
        that came twice, and rows of a transaction that may have been sent again. Raises TableHeld for changes that do
        not say which rows leave.
        """
        ops = set(changes.column(OP).unique().to_pylist())
        if ops & {Op.UPDATE, Op.DELETE_KEY}:
            raise TableHeld(
                f"{table} has no key, and its updates do not have the row before them, so a changed row cannot be "
                "found. Set output-old-value = true ([sink.csv], [sink.open] or [sink.debezium]) in the changefeed "
                f'and start it again, or name the columns that identify a row in the setting keys ("{table}").',
                table=str(table),
            )
        names = [name for name in changes.column_names if name not in _META]
        row, at = [f"_cdc_value_{place}" for place in range(len(names))], position_column(changes)
        copies = delivered(changes, names, at)
        once, undecided = counted(copies, at, ["_cdc_sign", *row], files)
        net = once.group_by(row).agg(
            (pl.col("n").cast(pl.Int64) * pl.col("_cdc_sign")).sum().alias(COUNT),
            pl.col("_cdc_row").min(),  # the first, whatever the order in which groups come
            pl.col("_cdc_row").get(pl.col(at).arg_max()).alias("_cdc_last"),
        )
        net = net.filter(pl.col(COUNT) != 0).sort("_cdc_row")
        rows = changes.take(net.get_column("_cdc_row").to_arrow())
        last = net.get_column("_cdc_last").to_arrow()
        for name in {COMMIT_TS, PLACE}.intersection(rows.column_names):
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), changes.column(name).take(last))
        counts = net.get_column(COUNT).to_arrow().cast(pa.int64())
        return rows.append_column(pa.field(COUNT, pa.int64()), counts), Report(
            undecided=undecided, run_again=_count_run_again(changes, copies, names, files)
        )


KIND = MultisetKind()


# --- equal rows counted -----------------------------------------------------------------------------------------------


def _count_run_again(changes: pa.Table, copies: pl.DataFrame, names: Sequence[str], files: Sequence[DataFile]) -> int:
    frame = pl.from_arrow(changes)
    assert isinstance(frame, pl.DataFrame)
    several = copies.filter(pl.col("n") > 1)
    return count_run_again(frame, several, position_column(changes), [groupable(frame, name) for name in names], files)


_TRIED = 1000
"""Places where a run may begin again that are looked at in a transaction."""


def count_run_again(
    changes: pl.DataFrame, several: pl.DataFrame, position: str, row: Sequence[pl.Expr], files: Sequence[DataFile]
) -> int:
    """Return the number of rows in the first run of a transaction that comes once more behind it.

    `several` are the rows that a delivery has more than once, with DELIVERY, the column `position` and FILE, which
    numbers `files`. `row` are the values that make a row.
    """
    transaction = (DELIVERY, position)
    logs = [number for number, file in enumerate(files) if file.in_log]
    doubtful = several.filter(pl.col(FILE).is_in(logs)).select(transaction).unique()
    if doubtful.is_empty():
        return 0
    doubtful_changes = changes.join(doubtful, on=transaction, how="semi", nulls_equal=True).sort(FILE, LINE, OP)
    coded = doubtful_changes.select(*transaction, pl.struct(pl.col(OP), *row).hash().alias("_cdc_code"))
    runs = coded.group_by(transaction, maintain_order=True).agg(pl.col("_cdc_code")).get_column("_cdc_code")
    return sum(first_run(codes.to_numpy()) for codes in runs)


def first_run(codes: npt.NDArray[np.uint64]) -> int:
    """Return the length of the shortest beginning that is followed by itself, 0 where none is."""
    repeat_starts = np.flatnonzero(codes[1 : len(codes) // 2 + 1] == codes[:1]) + 1
    for start in repeat_starts[:_TRIED].tolist():
        if np.array_equal(codes[:start], codes[start : 2 * start]):
            return int(start)
    return 0
