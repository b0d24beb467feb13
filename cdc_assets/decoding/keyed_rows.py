"""Rows of given keys, which are equal as the collations of the columns compare.

rows_of_keys  which rows have one of some keys
WantedKeys    the same of rows whose key had other types at their time
find_keys     the keys of quarantined records that fit now
read_replay   the changes of these keys, from the records' windows on
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import FILE
from cdc_assets.decoding.split import with_key
from cdc_assets.decoding.upgrade import carried
from cdc_assets.decoding.window import Window, decode_window, reduced, rejected
from cdc_assets.errors import TableHeld
from cdc_assets.features.dumps.formats import lines_before
from cdc_assets.features.kinds.decoding import kind_of
from cdc_assets.formats import SplitReader
from cdc_assets.formats.decoded import LINE
from cdc_assets.model.layout import DELETED_AT
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.steps import ApplyRows, ChangeTable
from cdc_assets.model.wording import with_column

_ROW = "_cdc_row"

MAX_KEYS = 100_000
"""Most keys by which a replay selects rows; with more it merges all rows that it reads, which is equally correct."""


def rows_of_keys(rows: pa.Table, keys: pa.Table, schema: TableSchema) -> pa.Array:
    """Return the numbers of the rows whose key is among `keys`, in their order."""
    return _rows_of(rows, with_key(keys, schema, ())[0], schema)


def _rows_of(rows: pa.Table, keys: pl.DataFrame, schema: TableSchema) -> pa.Array:
    frame, by = with_key(rows, schema, ())
    return frame.with_row_index(_ROW).join(keys, on=by, how="semi", nulls_equal=True).get_column(_ROW).to_arrow()


def of_keys(rows: pa.Table, keys: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the rows whose key is among `keys`."""
    return rows.take(rows_of_keys(rows, keys, schema))


def keys_like(keys: pa.Table, rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return keys in the types that rows of an earlier or a later time have; those that are no value there are none."""
    return _alike(keys, rows, schema).drop_null()


def _alike(keys: pa.Table, rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return `keys` in the types of the key columns of `rows`, with NULL for values that these cannot hold."""
    columns = []
    for name, values in zip(schema.key, keys.columns, strict=True):
        kind = rows.schema.field(name).type
        try:
            columns.append(values.cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            columns.append(pa.chunked_array([_cast(value, kind) for value in values], kind))
    return pa.table(columns, names=list(schema.key))


def _cast(value: pa.Scalar, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([value.cast(kind).as_py()], kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(1, kind)


@dataclass(frozen=True)
class WantedKeys:
    """Keys whose rows are looked for: columns of a table's key in the types of now, and how their values compare."""

    keys: pa.Table
    schema: TableSchema

    @cached_property
    def _compared(self) -> pl.DataFrame:
        return with_key(self.keys, self.schema, ())[0]

    def numbers(self, rows: pa.Table) -> pa.Array:
        """Return the rows, by their number, that have one of the keys.

        Values of before a DDL are those that they became, or become those that are meant.
        """
        cast = self._as_now(rows)
        became = _rows_of(cast, self._compared, self.schema)
        if rows.schema.types == cast.schema.types:
            return became
        were = rows_of_keys(rows, keys_like(self.keys, rows, self.schema), self.schema)
        return pc.unique(pa.concat_arrays([became, were])).sort()

    def among(self, rows: pa.Table) -> set[int]:
        """Return the keys, by their number, that some of the rows have."""
        cast = self._as_now(rows)
        key_numbers = rows_of_keys(self.keys, cast, self.schema).to_pylist()
        if rows.schema.types != cast.schema.types:
            key_numbers += rows_of_keys(_alike(self.keys, rows, self.schema), rows, self.schema).to_pylist()
        return set(key_numbers)

    def _as_now(self, rows: pa.Table) -> pa.Table:
        """Return rows in the types of the keys."""
        frame, like = pl.from_arrow(rows), pl.from_arrow(self.keys.schema.empty_table())
        assert isinstance(frame, pl.DataFrame)
        assert isinstance(like, pl.DataFrame)
        cast = pl.DataFrame([frame.get_column(name).cast(kind, strict=False) for name, kind in like.schema.items()])
        return cast.to_arrow().cast(self.keys.schema)


# --- records that did not fit -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordReplay:
    """Windows and DDL of a table from `frame.lo` to `frame.hi`, read again for quarantined records that may fit now.

    All changes of the records' keys from there on are reduced together, so that an old record cannot undo newer ones. A
    table without key gets the difference that the records make instead. Until then the lake's row of such a key may be
    one that the source no longer has, or be missing.

    `frame` has the table's present schema and no files. `targets` are the lines of quarantined records by file. `keys`
    are those to be merged, None for all; `whole` says that the files no longer are what they were, so that lines do not
    give the keys. `alone` says that no others may be merged, because rows of some were forgotten.
    """

    frame: ApplyRows
    steps: tuple[ApplyRows | ChangeTable, ...]
    targets: Mapping[str, frozenset[int]]
    whole: bool = False
    keys: pa.Table | None = None
    alone: bool = False

    @property
    def windows(self) -> tuple[tuple[int, ApplyRows], ...]:
        """The windows with their places in `steps`."""
        return tuple((place, step) for place, step in enumerate(self.steps) if isinstance(step, ApplyRows))


@dataclass(frozen=True, slots=True)
class RecordLookup:
    """Quarantined records as the files have them now: the keys of those that fit, and the reasons why others do not.

    `bad` are the reasons of these, each with the record's place, by (file, line).
    `keys` is None where all keys of the range are to be merged.
    """

    keys: pa.Table | None
    bad: Mapping[tuple[str, int], str] = field(default_factory=dict)


def find_keys(replay: RecordReplay, reader: SplitReader) -> RecordLookup:
    """Read the quarantined records' files again.

    Raises MalformedData for a file that cannot be trusted at all, and TableHeld where all keys would have to be merged
    and rows of some were forgotten.
    """
    bad: dict[tuple[str, int], str] = {}
    seen: set[tuple[str, int]] = set()
    keys: list[pa.Table] = []
    for place, step in replay.windows:
        share = [position for position, file in enumerate(step.files) if file.name in replay.targets]
        window = decode_window(replace(step, sets_aside=True), reader, share)
        if window.report.failed:
            raise rejected(step, window.report)
        for r in (reject for reject in window.rejects if reject.line in replay.targets[reject.path]):
            where = with_column(r.place or f"{r.path} line {r.line}", r.column, r.reason)
            bad[r.path, r.line] = f"{where}: {r.reason}"
        changes = window.changes.filter(_targets(window.changes, step, replay.targets, reader))
        before = {position: lines_before(reader, step.files[position]) for position in share}
        places = zip(changes.column(FILE).to_pylist(), changes.column(LINE).to_pylist(), strict=True)
        seen.update((step.files[position].name, line + before[position]) for position, line in places)
        if not kind_of(replay.frame).EQUAL_ROWS:
            keys.append(_to_present(changes, replay, place).select(list(replay.frame.schema.key)))
    lost = any((path, line) not in seen | bad.keys() for path, lines in replay.targets.items() for line in lines)
    if keys and not (replay.whole or lost or sum(table.num_rows for table in keys) > MAX_KEYS):
        return RecordLookup(pa.concat_tables(keys), bad)
    if keys and replay.alone:
        life = replay.frame.life
        raise TableHeld(
            f"{life}: rows of it were forgotten after these records had been set aside, and their lines no longer say "
            "which keys they have, or these are too many: all that was read since would be merged, forgotten rows, "
            f"too. Keep the forgotten keys out (cdc-assets forget {life.source} KEY… --until forever), then rebuild it "
            f"(cdc-assets rebuild {life}).",
            table=str(life),
        )
    return RecordLookup(None, bad)


def read_replay(replay: RecordReplay, reader: SplitReader, place: int) -> Window:
    """Return the changes to be merged of the window at a place in `steps`, reduced, in the columns of now.

    Records that still do not fit are left out. The report fails for a file that cannot be trusted at all.
    """
    step = replay.steps[place]
    assert isinstance(step, ApplyRows)
    decoded_window = decode_window(replace(step, sets_aside=True), reader)
    # A patch of a later window is none of a row that was marked before, so deletes stay until all are reduced.
    marks, kind = DELETED_AT in step.lake_columns, kind_of(replay.frame)
    window = reduced(step, [replace(decoded_window, rejects=())], is_part=marks)

    def others() -> pa.Table:
        rest = decoded_window.changes.filter(pc.invert(_targets(decoded_window.changes, step, replay.targets, reader)))
        return reduced(step, [Window(rest)]).changes

    changes = _to_present(kind.replayed(window.changes, others, step.schema), replay, place)
    offset = sum(len(earlier.files) for earlier_place, earlier in replay.windows if earlier_place < place)
    files = pc.add(changes.column(FILE), pa.scalar(offset, pa.int32()))
    changes = changes.set_column(changes.schema.get_field_index(FILE), pa.field(FILE, pa.int32()), files)
    if replay.keys is not None:
        changes = of_keys(changes, replay.keys, replay.frame.schema)
    return replace(window, changes=changes)


def _targets(
    changes: pa.Table, step: ApplyRows, targets: Mapping[str, Collection[int]], reader: SplitReader
) -> pa.Array:
    """Mark the rows of quarantined records."""
    mask = pa.repeat(pa.scalar(False), changes.num_rows)
    for position, file in enumerate(step.files):
        if file.name in targets:
            before = lines_before(reader, file)
            lines = pa.array(sorted(line - before for line in targets[file.name]), pa.int64())
            is_of_file = pc.equal(changes.column(FILE), pa.scalar(position, pa.int32()))
            mask = pc.or_(mask, pc.and_(is_of_file, pc.is_in(changes.column(LINE), lines)))
    return mask


def _to_present(changes: pa.Table, replay: RecordReplay, place: int) -> pa.Table:
    """Carry changes of a window over all that was done to the table's columns after it."""
    for step in replay.steps[place + 1 :]:
        if isinstance(step, ChangeTable):
            changes = carried(changes, step)
    names = [name for name in changes.column_names if name.startswith("_cdc_")]
    return changes.select([*names, *(column.name for column in replay.frame.schema.stored)])
