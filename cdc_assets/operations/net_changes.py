"""Fold several changes of a key into its net change: its last image, or its deletion.

A change with some columns only is laid over the image before it. What no change of the range tells stays absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import FILE
from cdc_assets.decoding.own_columns import ABSENT, CHANGE_TYPE, PARTITIONS
from cdc_assets.errors import ExtractRefused, TableHeld
from cdc_assets.features.kinds.decoding import mirror_kind
from cdc_assets.formats.decoded import LINE, MOVED, OP, POSITION, UNCHANGED, Op
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.operations.table_rows import ALL_LEAVE, LEAVES
from cdc_assets.types.frames import exact

_ROWS = 100_000
_NEW_KEY = "INSERT"
"""The type of an image whose absent columns are those of the key that its row had before: others leave none out."""


class Fold:
    """Rows that are reduced again and again as more come, so seldom that each is so a few times at most."""

    def __init__(self, reduce: Callable[[pa.Table], pa.Table], rows: pa.Table) -> None:
        self._reduce, self._tables, self._rows, self._reduced = reduce, [rows], rows.num_rows, rows.num_rows

    def add(self, rows: pa.Table) -> None:
        """Add rows behind the others."""
        self._tables.append(rows)
        self._rows += rows.num_rows
        if self._rows >= max(_ROWS, 2 * self._reduced):
            self.result()

    def result(self) -> pa.Table:
        """Return the net of all rows."""
        if len(self._tables) > 1:
            self._tables = [self._reduce(pa.concat_tables(self._tables))]
            self._rows = self._reduced = self._tables[0].num_rows
        return self._tables[0]


@dataclass(frozen=True, slots=True)
class NetChanges:
    """The net of changes of a table by its key. `patch` says what becomes of a patch whose row is not there.

    `keyed_since` is the position from which on the table has that key: two rows may have had one value of it before.
    """

    name: TableId
    schema: TableSchema
    patch: Op
    keyed_since: Tso = 0

    def of_pieces(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the net of changes that come in the order of their positions; raises ExtractRefused."""
        fold: Fold | None = None
        for piece in pieces:
            fold = fold or Fold(self.of, piece.slice(0, 0))
            fold.add(piece)
        if fold is None:
            return
        net = fold.result()
        moved = pc.and_(pc.equal(net.column(CHANGE_TYPE), _NEW_KEY), pc.is_valid(net.column(ABSENT)))
        if pc.any(moved, min_count=0).as_py():
            raise ExtractRefused(
                f"{self.name}: rows got another key within the range, by changes that leave out what was the same "
                "under the key before, so their last change is no whole row. Leave out --net."
            )
        yield net

    def of(self, changes: pa.Table) -> pa.Table:
        """Return the last change of each key since the last TRUNCATE of all rows, which is there too."""
        if any(changes.column(PARTITIONS).to_pylist()):
            raise ExtractRefused(
                f"{self.name}: partitions were emptied within the range, and no change says which rows went. Extract "
                "without --net, or up to there and from there on."
            )
        words = changes.column(CHANGE_TYPE).to_pylist()
        last = max((place for place, word in enumerate(words) if word == ALL_LEAVE), default=-1)
        rows = changes.slice(last + 1)
        if pc.any(pc.less(rows.column(POSITION), self.keyed_since), min_count=0).as_py():
            raise ExtractRefused(
                f"{self.name}: rows are told apart by {', '.join(self.schema.key)} since {self.keyed_since}, and by "
                "another key before that, so the range has no net by one key. Extract the net through "
                f"{self.keyed_since - 1}, and from there on."
            )
        reduced = self._reduced(rows) if rows.num_rows else rows
        words = pc.if_else(
            pc.equal(reduced.column(CHANGE_TYPE), "UPDATE_BEFORE"), "DELETE", reduced.column(CHANGE_TYPE)
        )
        reduced = reduced.set_column(reduced.column_names.index(CHANGE_TYPE), CHANGE_TYPE, words)
        return pa.concat_tables([changes.slice(last, 1) if last >= 0 else changes.slice(0, 0), reduced])

    def _reduced(self, rows: pa.Table) -> pa.Table:
        """Return one change a key, by position."""
        leaves = pc.is_in(rows.column(CHANGE_TYPE), pa.array(LEAVES))
        patches = pc.and_(pc.invert(leaves), pc.is_valid(rows.column(ABSENT)))
        has_patches = pc.any(patches, min_count=0).as_py()
        enters = pc.if_else(patches, int(self.patch), int(Op.UPDATE))
        ops = pc.cast(pc.if_else(leaves, int(Op.DELETE), enters), pa.int8())
        numbered = rows.append_column(OP, ops).append_column(LINE, pa.array(range(rows.num_rows), pa.int64()))
        numbered = numbered.append_column(FILE, pa.array([0] * rows.num_rows, pa.int32()))
        if has_patches:
            moved = pc.and_(patches, pc.equal(rows.column(CHANGE_TYPE), _NEW_KEY))
            absent = pc.if_else(patches, rows.column(ABSENT), pa.scalar(None, pa.list_(pa.string())))
            numbered = numbered.append_column(UNCHANGED, absent)
            numbered = numbered.append_column(MOVED, pc.if_else(moved, _NEW_KEY, pa.scalar(None, pa.string())))
        try:
            last = mirror_kind(self.schema).reduce(numbered, self.schema, self.name)[0]
        except TableHeld as error:
            raise ExtractRefused(f"{error} Leave out --net.") from error
        newest_rows = last.sort_by([(POSITION, "ascending")])
        if not has_patches:
            return newest_rows.select(rows.column_names)
        # What changes leave out is in ABSENT; those that leave have what they had.
        absent = pc.if_else(
            pc.less(newest_rows.column(OP), 0), newest_rows.column(ABSENT), newest_rows.column(UNCHANGED)
        )
        moved = pc.and_(pc.is_valid(newest_rows.column(MOVED)), pc.is_valid(absent))
        was_insert = pc.equal(newest_rows.column(CHANGE_TYPE), _NEW_KEY)
        plain = pc.if_else(pc.and_(was_insert, pc.is_valid(absent)), "UPDATE_AFTER", newest_rows.column(CHANGE_TYPE))
        words = pc.if_else(pc.fill_null(moved, False), _NEW_KEY, plain)
        for name, values in ((ABSENT, absent), (CHANGE_TYPE, words)):
            place = newest_rows.schema.get_field_index(name)
            newest_rows = newest_rows.set_column(place, newest_rows.schema.field(place), values)
        return newest_rows.select(rows.column_names)


def counted_rows(changes: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the rows of a table without key after changes of it: as many equal ones as entered and did not leave."""
    names = [column.name for column in schema.stored]
    frame = pl.from_arrow(changes.select([*names, CHANGE_TYPE]))
    assert isinstance(frame, pl.DataFrame)
    enters = ~pl.col(CHANGE_TYPE).is_in(LEAVES)
    unmatched = (
        frame.with_row_index("_cdc_row")
        .group_by(map(exact, names))
        .agg(pl.col("_cdc_row").filter(enters).last(), (2 * enters.cast(pl.Int64) - 1).sum().alias("_cdc_count"))
        .filter(pl.col("_cdc_count") > 0)
        .sort("_cdc_row")
    )
    places = unmatched.select(pl.col("_cdc_row").repeat_by("_cdc_count").explode()).to_series()
    return changes.take(places.to_arrow().cast(pa.int64()))
