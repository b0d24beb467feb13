"""Every change of a table's rows, once: a table of its own beside the mirror, to which windows only add.

    _change_type       INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE: the words of Iceberg's changelog views
    _cdc_position      what orders the changes: the commit-ts, or the position that landing gave
    _cdc_commit_ts, _cdc_commit_time   when the source made the change: as a TSO, as a moment
    _cdc_place         where the change stands in the input
    _cdc_absent        the columns that the input left out: NULL here, whatever they are in the source
    _cdc_partitions    of a TRUNCATE: the partitions that it emptied

Two images of one key at one position are the two sides of an update; in a table without key, those of one record. Where
the input does not say whether a row is new, its image is an UPDATE_AFTER. What came twice is known as for the mirror:
by key, position and direction, or by the count of equal rows (`deliveries`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import DELIVERY, FILE, PLACE
from cdc_assets.decoding.deliveries import counted, delivered
from cdc_assets.decoding.own_columns import ABSENT, CHANGE_TYPE, COMMIT_TIME, MOMENTS, PARTITIONS, OwnColumn
from cdc_assets.decoding.split import TableKind
from cdc_assets.formats.changes import position_column
from cdc_assets.formats.decoded import COMMIT_TS, LINE, MOVED, OP, POSITION, UNCHANGED, Op
from cdc_assets.model.reports import Report
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows
from cdc_assets.types.frames import exact

_META = (OP, COMMIT_TS, POSITION, LINE, FILE, DELIVERY, PLACE, UNCHANGED, MOVED)


class LogKind(TableKind):
    """Every change."""

    NAME = "log"
    EQUAL_ROWS = LANDS = APPENDS = PLACES = True
    OWN = (
        OwnColumn(CHANGE_TYPE, pa.string(), "INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE or TRUNCATE"),
        OwnColumn(POSITION, pa.int64(), "position of the change (TSO), by which changes are ordered"),
        OwnColumn(COMMIT_TS, pa.int64(), "commit-ts (TSO) of the change"),
        OwnColumn(COMMIT_TIME, MOMENTS, "time of the change at the source"),
        OwnColumn(
            PLACE, pa.string(), "place of the change in the input: file and line, or topic, partition and offset"
        ),
        OwnColumn(ABSENT, pa.list_(pa.string()), "columns that the input left out, which are NULL here"),
        OwnColumn(PARTITIONS, pa.list_(pa.string()), "partitions that a TRUNCATE emptied, NULL for all rows"),
    )
    STAGED: ClassVar[Mapping[str, str]] = {column.name: column.spark for column in OWN if column.name != COMMIT_TS}

    def reduce(
        self, changes: pa.Table, schema: TableSchema, table: TableId, files: Sequence[DataFile] = ()
    ) -> tuple[pa.Table, Report]:
        """Leave one of each change: of copies that of the later file, in a table without key as many as there were."""
        at = position_column(changes)
        if not schema.key:
            # Equal changes of a table without key stay as often as they happened.
            names = [name for name in changes.column_names if name not in _META]
            row = [f"_cdc_value_{place}" for place in range(len(names))]
            copies = delivered(changes, names, at, every=True)
            once = counted(copies, at, ["_cdc_sign", *row], files)[0]
            places = copies.select(at, "_cdc_sign", *row, "_cdc_rows").explode("_cdc_rows")
            ranked = places.sort("_cdc_rows").with_columns(
                pl.int_range(pl.len()).over([at, "_cdc_sign", *row]).alias("_cdc_rank")
            )
            matches = ranked.join(once.select(at, "_cdc_sign", *row, "n"), on=[at, "_cdc_sign", *row], nulls_equal=True)
            chosen = matches.filter(pl.col("_cdc_rank") < pl.col("n")).get_column("_cdc_rows").sort()
            return changes.take(chosen.to_arrow().cast(pa.int64())), Report()
        frame = pl.from_arrow(changes.select([*schema.key, OP, at, FILE, LINE]))
        assert isinstance(frame, pl.DataFrame)
        frame = frame.with_row_index("_cdc_row").with_columns(pl.col(OP).sign())
        identity = [*map(exact, schema.key), at, OP]
        if not frame.select(identity).is_duplicated().any():
            return changes, Report()
        last = frame.sort(FILE, LINE).unique(subset=identity, keep="last", maintain_order=False)
        return changes.take(last.get_column("_cdc_row").sort().to_arrow()), Report()

    def finished(self, changes: pa.Table, step: ApplyRows) -> pa.Table:
        """Return the changes in their order as rows of the log, with OP, FILE and LINE beside."""
        schema, at = step.schema, position_column(changes)
        if POSITION not in changes.column_names:
            changes = changes.append_column(POSITION, changes.column(at))
        frame = pl.from_arrow(changes.select([*schema.key, OP, POSITION, FILE, LINE]))
        assert isinstance(frame, pl.DataFrame)
        frame = frame.with_row_index("_cdc_row")
        identity = [*(map(exact, schema.key) if schema.key else (FILE, LINE)), POSITION]
        # Where few leave, little is looked at.
        leaving_rows, entering_rows = frame.filter(pl.col(OP) < 0), frame.filter(pl.col(OP) > 0)
        after = entering_rows.join(leaving_rows, on=identity, how="semi", nulls_equal=True)
        before = leaving_rows.join(after, on=identity, how="semi", nulls_equal=True)
        has_both = pl.repeat(False, len(frame), dtype=pl.Boolean, eager=True).alias("_cdc_both")
        for side in (after, before):
            has_both = has_both.scatter(side.get_column("_cdc_row"), True)
        frame = frame.with_columns(has_both)
        both = pl.col("_cdc_both")
        entering = (
            pl.when(both | (pl.col(OP) != int(Op.INSERT))).then(pl.lit("UPDATE_AFTER")).otherwise(pl.lit("INSERT"))
        )
        leaving = pl.when(both).then(pl.lit("UPDATE_BEFORE")).otherwise(pl.lit("DELETE"))
        words = frame.select(pl.when(pl.col(OP) > 0).then(entering).otherwise(leaving).alias(CHANGE_TYPE))
        # What leaves comes first: keys that a collation takes for equal are other ones here, and no two sides.
        order = frame.sort(POSITION, pl.col(OP) > 0, FILE, LINE).get_column("_cdc_row")
        changes = changes.append_column(CHANGE_TYPE, words.get_column(CHANGE_TYPE).to_arrow().cast(pa.string()))
        moments = pc.shift_right(changes.column(COMMIT_TS), pa.scalar(18, pa.int64()))
        changes = changes.append_column(COMMIT_TIME, pc.multiply(moments, 1000).cast(MOMENTS))
        # What a change leaves out: the columns of a patch, or all but the key's.
        names = pa.list_(pa.string())
        absent = pa.chunked_array([pa.nulls(changes.num_rows, names)])
        if UNCHANGED in changes.column_names:
            absent = changes.column(UNCHANGED).cast(names)
        keys_only = pc.equal(changes.column(OP), pa.scalar(int(Op.DELETE_KEY), pa.int8()))
        if pc.any(keys_only, min_count=0).as_py():
            others = pa.scalar([column.name for column in schema.stored if column.name not in schema.key], names)
            absent = pc.if_else(keys_only, others, absent)
        changes = changes.append_column(ABSENT, absent)
        changes = changes.append_column(PARTITIONS, pa.nulls(changes.num_rows, pa.list_(pa.string())))
        return changes if order.is_sorted() else changes.take(order.to_arrow())

    def apart(self, changes: pa.Table, step: ApplyRows, empty: bool) -> tuple[pa.Table, pa.Table]:
        """Return all changes: each is a row of the log."""
        return changes, changes.slice(0, 0)

    def count_directions(self, changes: pa.Table) -> tuple[int, int]:
        """Return the numbers of rows that the log gets: all of the changes."""
        return changes.num_rows, 0

    def replayed(self, net: pa.Table, others: Callable[[], pa.Table], schema: TableSchema) -> pa.Table:
        """Return the changes that the records add to all others."""
        without = others()
        if not without.num_rows:
            return net
        frame, rest = (pl.from_arrow(changes.select([FILE, LINE, OP])) for changes in (net, without))
        assert isinstance(frame, pl.DataFrame)
        assert isinstance(rest, pl.DataFrame)
        added = frame.with_row_index("_cdc_row").join(rest, on=[FILE, LINE, OP], how="anti")
        return net.take(added.get_column("_cdc_row").to_arrow())


KIND = LogKind()
