"""Splits of a step -> the rows in them that belong to its window. What flows through the river is a `Split`.

    read_splits   bytes -> changes, as the split's wire format decodes them
    due           the rows with lo < position <= hi, of a name while the table had it
    without_excluded  those whose keys are not forgotten
    in_shape      the same rows with the columns that the step's table has
    file_stats    what a file holds, whichever of it is due
    with_key      rows by their keys, as the collations of these compare
    split         rows by a hash: several tasks share a window, and what is reduced together meets in one of them
    TableKind     what is made of the rows for a table of some kind

Rows are filtered before they are validated, so that a row is validated by the windows that take it only. A record's
images share their position, so no record is cut in two. Without commit-ts every row of a file is due.
"""

from __future__ import annotations

import math
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import ClassVar

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import DELIVERY, FILE
from cdc_assets.decoding.own_columns import LAST_CHANGE, OwnColumn
from cdc_assets.errors import MalformedData, as_cdc_error
from cdc_assets.features.dumps.formats import snapshot_rows
from cdc_assets.formats import SplitReader, Wire, commit_stamps, decode_among, decode_together
from cdc_assets.formats.changes import position_column, shape_of
from cdc_assets.formats.decoded import COMMIT_TS, LINE, MOVED, OP, POSITION, UNCHANGED, Content, Decoded
from cdc_assets.formats.redaction import OF_FORGOTTEN, without_quotes, without_values
from cdc_assets.model.reports import FileStats, KeyRange, Reject, Report
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import DataFile, in_shares
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso
from cdc_assets.types.collations import is_plain, normal_form
from cdc_assets.types.frames import exact
from cdc_assets.types.key_digests import excluded_rows
from cdc_assets.types.mysql_types import arrow_type

MAX_REJECTS = 20
"""Rejects that a report carries in full; all are counted."""

_TOGETHER_BYTES = 1 << 20
"""Messages of several splits that have fewer bytes are decoded at once."""

_NOTHING = Decoded(pa.table({}))

# The handler that polars sets when it is imported makes the system go on with a call in which Ctrl-C comes (its issue
# 21739): whoever waits for an answer of the JVM or a lock would wait on to its end.
signal.siginterrupt(signal.SIGINT, True)

Interval = tuple[Tso, Tso]
"""[since, until) in which the table had a name."""


@dataclass(frozen=True, slots=True)
class Split:
    """A file of a step, or a block of its records, on its way through the stages.

    `decoded` is what its data say and `changes` what the stages left of that. `rejects` are the first of the
    `reject_count` records of the window that do not fit. `stray` is a row that cannot belong where it lies, and
    `refused` what is wrong with all of the file: either fails the window in any case, and no row of the file counts.
    The rows of a `foreign` file are those of another table of its directory, or all in the dump before the feed.
    `schema` has the columns as `changes` have them; what is not decoded of a `confidential` file is shown nowhere.
    `excluded` counts the records of forgotten keys that were left out.
    """

    position: int
    file: DataFile
    table: TableId
    schema: TableSchema
    wire: Wire
    data: Content
    decoded: Decoded
    changes: pa.Table
    rejects: tuple[Reject, ...] = ()
    reject_count: int = 0
    stray: Reject | None = None
    refused: Reject | None = None
    foreign: bool = False
    confidential: bool = False
    excluded: int = 0

    def through(self, stage: Callable[[Split], Split]) -> Split:
        """Return the result of a stage for the file; one that is foreign or was refused passes as it is."""
        if self.refused is not None or self.foreign:
            return self
        try:
            with concerning_file(self.file, quoted=not self.confidential):
                return stage(self)
        except MalformedData as error:
            return self.refusing(error)

    def refusing(self, error: MalformedData) -> Split:
        """Return the file as one that cannot be trusted at all."""
        line, column = int(error.where.get("line", 0)), str(error.where.get("column", ""))
        message, place = error.message.replace(self.file.name, self.file.place), ""
        if self.file.messages is not None:
            place = self.file.place
        return replace(self, refused=Reject(self.file.name, line, message, column=column, place=place))


def concerning_file(file: DataFile, *, quoted: bool) -> AbstractContextManager[None]:
    """Raise an unforeseen error in the bytes of a file as MalformedData of that file: damage has many forms."""

    def meaning(cause: str) -> MalformedData:
        return MalformedData(
            f"{file.name} cannot be decoded ({cause}). If it is as it was written, report this with the file; else "
            "restore it.",
            path=file.name,
        )

    return as_cdc_error(meaning, quoted)


def may_quote(step: ApplyRows) -> bool:
    """Return whether errors may repeat what rows of a step have: none is masked, and none is kept out."""
    siblings = (schema for tables in step.reading.siblings.values() for _, schema in tables)
    own = (schema for _, schema in step.reading.schemas.values())
    return not step.reading.excluded and not any(schema.confidential for schema in (step.schema, *own, *siblings))


# --- read and decode --------------------------------------------------------------------------------------------------


def read_splits(step: ApplyRows, positions: Iterable[int], reader: SplitReader) -> Iterator[Split]:
    """Yield the files at these positions of the step, in that order, block by block, each decoded or refused.

    A file that is refused behind rows that were yielded is yielded once more, as refused. Raises InputError for a file
    that is gone.
    """
    quoted, files = may_quote(step), step.files

    def alike(position: int) -> tuple[str, Tso, bool]:
        file = files[position]
        return file.root, file.version, file.messages is not None and file.size < _TOGETHER_BYTES

    for (*_, is_small), run in groupby(positions, alike):
        most_bytes = _TOGETHER_BYTES if is_small else 0
        for share in in_shares(run, lambda position: files[position].size, len(files), most_bytes):
            splits = [_opened(step, position, reader) for position in share]
            if decoded := _decoded_together(splits, quoted=quoted):
                yield from (
                    _with_block(split, split.table, block) for split, block in zip(splits, decoded, strict=True)
                )
                continue
            splits.reverse()
            while splits:
                yield from _blocks(splits.pop(), step, reader, quoted=quoted)


def _opened(step: ApplyRows, position: int, reader: SplitReader) -> Split:
    file = step.files[position]
    table, schema = step.reading.schemas[file.root, file.version]
    data: Content = b"" if file.piece else reader.read(file.path)
    wire = reader.wire(file.path)
    wire = wire.having(step.reading.former) if step.reading.former else wire
    return Split(position, file, table, schema, wire, data, _NOTHING, _NOTHING.changes)


def _decoded_together(splits: Sequence[Split], *, quoted: bool) -> list[Decoded]:
    """Return the changes of each of several splits, [] where each has to be decoded by itself."""
    first, contents = splits[0], [split.data for split in splits]
    if len(splits) == 1:
        return []
    try:
        with concerning_file(first.file, quoted=quoted):
            return decode_together(first.wire, contents, first.table, first.schema)
    except MalformedData:
        return []


def _blocks(split: Split, step: ApplyRows, reader: SplitReader, *, quoted: bool) -> Iterator[Split]:
    """Yield a file block by block, decoded or refused."""
    try:
        with concerning_file(split.file, quoted=quoted):
            blocks = _brought(split, reader) if split.file.piece else _decoded(split, step)
            for owner, block in blocks:
                yield _with_block(split, owner, block)
    except MalformedData as error:
        stamps = _stamps_in_base(split, step)
        yield split.refusing(error) if stamps is None else _older(split, stamps)


def _stamps_in_base(split: Split, step: ApplyRows) -> list[Tso] | None:
    """Return the commit-ts of a file that is older than the dump as a whole, None for any other.

    Its columns need not be known then: the dump came after the DDL that states them.
    """
    if split.file.piece or split.file.version > step.reading.base_at:
        return None
    stamps = commit_stamps(split.wire, split.data)
    older = [stamp for stamp in stamps if stamp is not None and stamp <= step.reading.base_at]
    return older if len(older) == len(stamps) else None


def _older(split: Split, stamps: list[Tso]) -> Split:
    """Return the file as one that has nothing for the table, with what is known of its rows."""
    lines = pa.array(range(1, len(stamps) + 1), pa.int64())
    rows = pa.table({COMMIT_TS: pa.array(stamps, pa.int64()), LINE: lines})
    return replace(split, decoded=Decoded(rows), foreign=True)


def _decoded(split: Split, step: ApplyRows) -> Iterator[tuple[TableId, Decoded]]:
    """Yield whose rows a file has, and its changes: a file of a feed is one block."""
    siblings = step.reading.siblings.get((split.file.root, split.file.version), ())
    yield decode_among(split.wire, split.data, split.file.path, ((split.table, split.schema), *siblings))


def _brought(split: Split, reader: SplitReader) -> Iterator[tuple[TableId, Decoded]]:
    """Yield the rows of a dump's split, all of one table."""
    for block in snapshot_rows(reader, split.file, split.table, split.schema):
        yield split.table, block


def _with_block(split: Split, owner: TableId, block: Decoded) -> Split:
    if owner != split.table:
        return replace(split, decoded=block, foreign=True)
    places = pa.repeat(pa.scalar(split.position, pa.int32()), block.changes.num_rows)
    confidential, schema = split.schema.confidential, split.schema.in_lake
    return replace(
        split,
        schema=schema,
        decoded=block,
        changes=block.changes.append_column(FILE, places),
        confidential=confidential,
    )


# --- filter -----------------------------------------------------------------------------------------------------------


def due(step: ApplyRows, split: Split) -> Split:
    """Leave the rows of the window, and say which of its records decoding found broken and which row is a stray."""
    intervals = _intervals(step, split)
    changes = split.changes if step.positions is not None else _in_window(split.changes, step, intervals)
    rejects = tuple(reject for reject in split.decoded.rejects if _is_due(reject, step, intervals))
    stray = _stray(split, step)
    return replace(split, changes=changes, rejects=rejects, reject_count=len(rejects), stray=stray)


def without_excluded(step: ApplyRows, split: Split) -> Split:
    """Leave out rows of forgotten keys, before anything looks at their values, and count their records.

    A record that cannot be decoded has no key that is known, so bytes and values of all of them are as those of masked
    rows.
    """
    changes, decoded = split.changes, split.decoded
    shown = {id(reject): without_values(reject, split.schema, OF_FORGOTTEN) for reject in decoded.rejects}
    tail = (
        None
        if decoded.tail is None
        else replace(without_values(decoded.tail, split.schema, OF_FORGOTTEN), raw=decoded.tail.raw)
    )
    decoded = replace(decoded, rejects=tuple(shown.values()), tail=tail)
    rejects = tuple(shown[id(reject)] for reject in split.rejects)
    for exclusion in step.reading.excluded:
        if changes.num_rows and (not exclusion.versions or (split.file.root, split.file.version) in exclusion.versions):
            # Without commit-ts all rows of a window are at its end.
            at = step.hi if step.positions is not None else changes.column(position_column(changes))
            changes = changes.filter(pc.invert(excluded_rows(changes, split.schema, exclusion, at)))
    lines = (pc.count_distinct(rows.column(LINE)).as_py() for rows in (split.changes, changes))
    before, after = lines
    return replace(split, changes=changes, decoded=decoded, rejects=rejects, excluded=before - after, confidential=True)


def without_reason(split: Split) -> Split:
    """Return a file that was refused as a whole with its place alone: what is wrong may be with a forgotten row."""
    if split.refused is None:
        return split
    bare = without_values(split.refused, split.schema, OF_FORGOTTEN)
    place = f"{bare.path} line {bare.line}" if bare.line else bare.path
    return replace(split, refused=replace(bare, reason=without_quotes(place, OF_FORGOTTEN)))


def may_be_due(tail: Reject, split: Split, step: ApplyRows) -> bool:
    """Return whether a window may have lost something with a tail, whose commit-ts is the least that it can be."""
    ts = tail.commit_ts
    if ts is None or step.positions is not None:
        return True
    return ts <= step.hi and any(ts < until for _, until in _intervals(step, split))


def between(changes: pa.Table, lo: Tso, hi: Tso) -> pa.Table:
    """Return the rows with lo < position <= hi."""
    return changes.filter(_inside(changes, lo, hi))


def _inside(changes: pa.Table, lo: Tso, hi: Tso) -> pa.ChunkedArray:
    at = changes.column(position_column(changes))
    return pc.and_(pc.greater(at, pa.scalar(lo, pa.int64())), pc.less_equal(at, pa.scalar(hi, pa.int64())))


def _intervals(step: ApplyRows, split: Split) -> list[Interval]:
    return [(since, until) for name, since, until in step.reading.names if name.folded == split.table.folded]


def _in_window(changes: pa.Table, step: ApplyRows, intervals: Iterable[Interval]) -> pa.Table:
    held = None
    for since, until in intervals:
        inside = _inside(changes, max(step.lo, since - 1), min(step.hi, until - 1))
        held = inside if held is None else pc.or_(held, inside)
    return changes.slice(0, 0) if held is None else changes.filter(held)


def _is_due(reject: Reject, step: ApplyRows, intervals: Iterable[Interval]) -> bool:
    """A record of unknown commit-ts is due in every window; one of a name's other holder is not this table's."""
    ts = reject.commit_ts
    if ts is None or step.positions is not None:
        return True
    return step.lo < ts <= step.hi and any(since <= ts < until for since, until in intervals)


def _stray(split: Split, step: ApplyRows) -> Reject | None:
    """The first row that cannot have been written with the columns of its directory."""
    file, changes = split.file, split.changes
    for since, until in step.reading.unexplained.get((file.root, file.version), ()):
        if since > step.hi or not changes.num_rows:
            continue
        rows = between(changes, since - 1, min(until - 1, step.hi))
        if rows.num_rows:
            at, line = (rows.column(name)[0].as_py() for name in (position_column(rows), LINE))
            reason = (
                f"the row of commit-ts {at} is filed under version {file.version}, whose columns were not in force "
                "then: a DDL is not in the changefeed, because an event filter hides it or its schema file was "
                "removed. Restore that schema file, or rebuild the table."
            )
            return Reject(file.path, line, reason, commit_ts=at)
    return None


# --- the shape of what comes out --------------------------------------------------------------------------------------


def in_shape(changes: pa.Table, schema: TableSchema, of_source: bool = True) -> pa.Table:
    """Return the columns by name in the order of the schema, between those of the river; hidden columns become null.

    `of_source` says that they have their names in the source, and not yet those in the lake.
    """
    arrays = {name: changes.column(name) for name in (OP, COMMIT_TS, LINE)}
    renames: dict[str, str] = {}
    for column in schema.stored:
        kind, name = arrow_type(column), column.name
        if of_source and column.origin and not column.kept:
            renames[column.origin], name = name, column.origin
        if name in changes.column_names and not (of_source and column.kept):
            array = changes.column(name)
            arrays[column.name] = array if array.type == kind else array.cast(kind)
        else:
            arrays[column.name] = pa.chunked_array([pa.nulls(changes.num_rows, kind)])
    own = (FILE, DELIVERY, POSITION, UNCHANGED, MOVED)
    arrays |= {name: changes.column(name) for name in own if name in changes.column_names}
    if renames and UNCHANGED in arrays:
        lists = [names and [renames.get(name, name) for name in names] for names in arrays[UNCHANGED].to_pylist()]
        arrays[UNCHANGED] = pa.chunked_array([pa.array(lists, pa.list_(pa.string()))])
    return pa.table(arrays)


def no_changes(schema: TableSchema, deliveries: bool) -> pa.Table:
    """Return no rows with the columns that `in_shape` gives, DELIVERY where rows have it."""
    own = [pa.field(name, pa.int32()) for name in ((FILE, DELIVERY) if deliveries else (FILE,))]
    return pa.schema([*shape_of(schema.stored), *own]).empty_table()


def file_stats(split: Split) -> FileStats:
    """Return statistics of a file, under the size that was read: one that was seen half will not be taken for known.

    Ranges of keys are told where all of its rows are taken by the window: what is left out may be forgotten rows, whose
    keys are named nowhere.
    """
    decoded = split.decoded
    bounds = pc.min_max(decoded.changes.column(position_column(decoded.changes))).as_py()
    seen = [r.commit_ts for r in (*decoded.rejects, decoded.tail) if r is not None and r.commit_ts is not None]
    lows = [t for t in (bounds["min"], *seen) if t is not None]
    highs = [t for t in (bounds["max"], *seen) if t is not None]
    lines = decoded.changes.column(LINE)
    rows = (pc.count_distinct(lines).as_py() if len(lines) else 0) + len(decoded.rejects)
    low, high = min(lows) if lows else None, max(highs) if highs else None
    whole = split.file.piece or split.file.bounds is not None  # what a source cuts out is whole
    size = split.file.size if whole else len(split.data)
    all_taken = not split.foreign and split.changes.num_rows == decoded.changes.num_rows
    keys = key_ranges(decoded.changes, split.schema) if all_taken else ()
    return FileStats(split.file.path, size, split.file.etag, rows, low, high, decoded.notes, keys)


def key_ranges(changes: pa.Table, schema: TableSchema) -> tuple[KeyRange, ...]:
    """Return the ranges of key columns of numbers, days and times; texts, masked columns and NULLs have none.

    Equal values have equal numbers in the same unit, so a value whose number is outside of a range is not there.
    """
    ranges = []
    for name in schema.key if changes.num_rows else ():
        values = changes.column(name) if name in changes.column_names else None
        unit = _unit(values.type) if values is not None and schema.column(name).mask is None else ""
        if values is not None and unit and not values.null_count:
            extremes = pc.min_max(values)
            ranges.append(KeyRange(name, unit, _whole_number(extremes["min"]), _whole_number(extremes["max"])))
    return tuple(ranges)


def _unit(kind: pa.DataType) -> str:
    """Return in what values of a type are counted where they are ordered as numbers, "" for others."""
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return "number"
    return str(kind) if pa.types.is_date32(kind) or pa.types.is_timestamp(kind) else ""


def _whole_number(value: pa.Scalar) -> int:
    number: int = math.floor(value.as_py()) if _unit(value.type) == "number" else value.value
    return number


# --- rows by their keys, as the collation of each column compares ----------------------------------------------------


def with_key(changes: pa.Table, schema: TableSchema, besides: tuple[str, ...]) -> tuple[pl.DataFrame, list[str]]:
    """The key's columns in their collation's normal form, and some others, with the names of the former."""
    frame = pl.from_arrow(changes.select([*besides, *schema.key]))
    assert isinstance(frame, pl.DataFrame)
    by = [exact(name) for name in schema.key]
    for position, name in enumerate(schema.key):
        collation = schema.column(name).compares_by
        if collation and not is_plain(collation) and pa.types.is_string(changes.schema.field(name).type):
            by[position] = f"_cdc_key_{position}"
            normal = normal_form(changes.column(name).combine_chunks(), collation)
            frame = frame.with_columns(pl.Series(by[position], normal))
    return frame, by


def split(changes: pa.Table, schema: TableSchema, buckets: int) -> list[pa.Table]:
    """Cut changes by a hash of their key, so that all of one key are in the same bucket, whoever splits them.

    Keys that are equal by their collation are so here.
    """
    if not changes.num_rows:
        return [changes] * buckets
    hashed = bucket_of(*with_key(changes, schema, ()), buckets)
    rows = hashed.arg_sort()
    bounds = hashed.gather(rows).search_sorted(pl.Series(range(buckets + 1), dtype=hashed.dtype), side="left").to_list()
    places = rows.to_arrow()
    return [changes.take(places[low:high]) for low, high in pairwise(bounds)]


def bounds(changes: pa.Table, schema: TableSchema) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest value of each key column of integers."""
    ranges: dict[str, tuple[int, int]] = {}
    for name in schema.key:
        array = changes.column(name)
        if pa.types.is_integer(array.type) and array.null_count == 0 and len(array):
            extremes = pc.min_max(array).as_py()
            ranges[name] = (extremes["min"], extremes["max"])
    return ranges


# --- rows by a hash of some columns: how tasks share a window --------------------------------------------------------

_SEED = 7


def bucket_of(frame: pl.DataFrame, by: Sequence[str], buckets: int) -> pl.Series:
    """Return the number of each row's bucket; it is the same wherever `hash_probe` is."""
    return frame.select((pl.struct(by).hash(_SEED) % buckets).alias("bucket")).get_column("bucket")


def hash_probe() -> int:
    """Return this machine's hash of a known value: machines that disagree must not share a window."""
    sample = pl.DataFrame({"a": [7, None], "b": ["key", ""]})
    first, second = sample.select(pl.struct("a", "b").hash(_SEED)).to_series().to_list()
    return int(first) ^ (int(second) >> 1)


# --- rows by the kind of their table ----------------------------------------------------------------------------------


class TableKind(ABC):
    """A kind of table: how the changes of a window are reduced for it, and which of them are staged.

    What is said here counts for a table with a key that has the source's rows as they are; what is otherwise stands in
    the kind's module (`kinds`).
    """

    NAME: ClassVar[str]
    """The name of the module, by which its writer is found."""

    EQUAL_ROWS: ClassVar[bool] = False
    """Rows may be equal: a row that leaves is found by its values, and what comes twice is known by its count only."""

    LANDS: ClassVar[bool] = False
    """The rows that enter an empty table are data files of it, as they are."""

    APPENDS: ClassVar[bool] = False
    """Whether entering rows are appended as data files, whatever rows the table has."""

    ENDS: ClassVar[bool] = False
    """A change writes the row before it again, with its end: how many rows a window writes is not known from it."""

    PLACES: ClassVar[bool] = False
    """Changes have PLACE, and one whose input does not tell inserts from updates is an Op.UPDATE."""

    OWN: ClassVar[tuple[OwnColumn, ...]] = (LAST_CHANGE,)
    """The columns that its tables have after those of the source."""

    STAGED: ClassVar[Mapping[str, str]] = {}
    """Columns that a staged change has beside those of every kind, with their types in Spark."""

    PARTITION: ClassVar[str] = ""
    """The column by whose being NULL files are kept apart, "" for none."""

    def refuses(self, schema: TableSchema) -> str:
        """Return the reason why a table of these columns cannot have one beside it, a sentence; "" if it can."""
        return ""

    @abstractmethod
    def reduce(
        self, changes: pa.Table, schema: TableSchema, table: TableId, files: Sequence[DataFile] = ()
    ) -> tuple[pa.Table, Report]:
        """Return the reduced changes of a window, which are not none, and the report on them.

        `files` are those that FILE numbers. Raises TableHeld for changes that the kind cannot take.
        """

    def finished(self, changes: pa.Table, step: ApplyRows) -> pa.Table:
        """Return the rows that a table takes in of reduced changes, when nothing more is reduced with them."""
        return changes

    @abstractmethod
    def apart(self, changes: pa.Table, step: ApplyRows, empty: bool) -> tuple[pa.Table, pa.Table]:
        """Return the finished changes that are rows of the table as they are, and those that are to be staged.

        That is asked where LANDS, for a table that is `empty`, or APPENDS.
        """

    def replayed(self, net: pa.Table, others: Callable[[], pa.Table], schema: TableSchema) -> pa.Table:
        """Return the rows that a table takes in of records that fit now, of a window's reduced changes.

        `net` is all of the window with the records in it, `others` gives it without them. By the net of all changes of
        a key an old record cannot undo newer ones.
        """
        return net

    def count_directions(self, changes: pa.Table) -> tuple[int, int]:
        """Return the numbers of rows of reduced changes that enter and that leave."""
        entering = pc.sum(pc.greater(changes.column(OP), pa.scalar(0, pa.int8()))).as_py() or 0
        return entering, changes.num_rows - entering
