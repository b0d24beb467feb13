"""Canal-JSON data files: one object for each row change, every value a string or null.

    {"id":0,"database":"shop","table":"orders","pkNames":["id"],"isDdl":false,"type":"UPDATE","es":1774915083040,…,
     "sqlType":{…},"mysqlType":{…},"old":[{…}],"data":[{…}],"_tidb":{"commitTs":465283339528437785}}

Values that differ from CSV: binaries have a code point for each byte (ISO-8859-1), ENUM is the number of its member
from 1 (0 for the empty invalid value), SET the sum of 2^position. Member names are in `mysqlType` with
content-compatible, else in the schema's `elems`. `old` may hold only the columns that changed; `_tidb` is there with
the TiDB extension.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import MalformedData
from cdc_assets.formats import LINE, NOT_WRITTEN, Decoded, Op, json_lines, shape_of
from cdc_assets.formats.canal_json.options import CanalJsonOptions
from cdc_assets.formats.canal_json.parsed import parse_records
from cdc_assets.formats.canal_json.uniform import KINDS, MEMBERS, find_shape, read_alike
from cdc_assets.formats.members import members, named
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.families import CHARACTER
from cdc_assets.types.mysql_types import LOSSY, changed_in_key, misfit, values

__all__ = [
    "EXTENSION",
    "FILE_EXPANSION",
    "REPLACED",
    "commit_stamps",
    "decode",
    "raw_records",
    "record_beginning",
    "record_identity",
]

Rows = npt.NDArray[np.int64]
"""Positions of rows."""

EXTENSION = ".json"

FILE_EXPANSION = 4
"""Bytes in a file for one in memory: each record repeats names and types."""
REPLACED = "U+FFFD, which Canal-JSON also writes for invalid UTF-8"


def decode(data: bytes, path: str, table: TableId, schema: TableSchema, options: CanalJsonOptions) -> Decoded:
    """Return the changes of a file: an UPDATE with `old` as a DELETE and an INSERT of the same line, else as an UPDATE.

    Columns that no record holds, hidden by a column selector or virtual, are absent from `changes`. Commit-ts is null
    without the TiDB extension. Raises MalformedData for rows of another table, for columns that the schema lacks, and
    where the records contradict the terminator, the extension, or what `old` and DELETE should hold.
    """
    frame = json_lines.frame(data, options.terminator)
    rejects = _Rejects(path, frame)
    tail = _find_tail(frame, path, options.terminator)
    records = _read_records(frame, schema, rejects)
    batches = [_images(batch, rows, table, schema, rejects) for batch, rows in records]
    _check_extension(batches, options, rejects)
    hidden = _hidden(batches, schema, options)
    if hidden & schema.exact or len(hidden) == len(schema.stored):
        name = min(hidden & schema.exact or hidden)
        raise MalformedData(
            f'{path}: no record has the column "{name}", which every record must have. '
            "The schema file of its version and the file do not belong together, or a column selector hides the key.",
            path=path,
            column=name,
        )
    visible = [column for column in schema.stored if column.name not in hidden]
    notes: dict[tuple[str, str], int] = {(name, NOT_WRITTEN): 1 for name in sorted(hidden)}
    tables = [_changes(batch, visible, schema, options, rejects, notes) for batch in batches]
    changes = pa.concat_tables([shape_of(visible).empty_table(), *tables])
    lines = changes.column(LINE).to_numpy()
    if (np.diff(lines) < 0).any():  # records that a parser had to read stand among others
        changes = changes.take(pa.array(np.argsort(lines, kind="stable")))
    return Decoded(changes, rejects.in_order(), tail, notes)


def raw_records(data: bytes, lines: Collection[int] | None, options: CanalJsonOptions) -> dict[int, bytes]:
    """Return the bytes of the records with these numbers (None: all), without terminator."""
    frame = json_lines.frame(data, options.terminator)
    lines = range(1, len(frame) + 1) if lines is None else lines
    return {line: frame[line - 1] for line in lines if 1 <= line <= len(frame)}


def commit_stamps(data: bytes, options: CanalJsonOptions) -> list[int | None]:
    """Return the commit-ts of each record, whatever its columns are; None where it cannot be read, or the end is."""
    frame = json_lines.frame(data, options.terminator)
    found = [_stamp(raw) for raw in raw_records(data, None, options).values()]
    return [*found, *([None] if _find_tail(frame, "", options.terminator) is not None else [])]


def _stamp(raw: bytes) -> int | None:
    try:
        stamp = json.loads(raw)["_tidb"]["commitTs"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return stamp if isinstance(stamp, int) else None


def record_beginning(raw: bytes) -> bytes:
    """Return what comes before the time of writing."""
    return raw.partition(b',"ts":')[0]


def record_identity(raw: bytes) -> object:
    """Return the record without its time of writing; the order of members within others does not count."""
    try:
        return record_beginning(raw), {**json.loads(raw), "ts": None}
    except (ValueError, TypeError, RecursionError):
        return raw


# --- records ----------------------------------------------------------------------------------------------------------


@dataclass
class _Rejects:
    """The records that do not fit, by line; the first reason counts."""

    path: str
    frame: json_lines.Frame
    found: dict[int, Reject] = field(default_factory=dict)

    def add(self, line: int, reason: str, column: str = "", commit_ts: int | None = None) -> None:
        """Note why the record of that line is not applied, unless a reason is known already."""
        if line not in self.found:
            raw = self.frame[line - 1]
            self.found[line] = Reject(self.path, line, reason, raw, column, commit_ts or _commit_ts(raw))

    def in_order(self) -> tuple[Reject, ...]:
        """Return them by line."""
        return tuple(self.found[line] for line in sorted(self.found))


def _commit_ts(raw: bytes) -> int | None:
    """Read the commit-ts of a record that need not be whole: an unescaped quote stands in no text."""
    found = re.search(rb'"_tidb":\{"commitTs":(\d{1,19})[,}]', raw)
    return int(found[1]) if found and int(found[1]) < 1 << 63 else None


def _find_tail(frame: json_lines.Frame, path: str, terminator: str) -> Reject | None:
    """Return what follows the last terminator; raises MalformedData where records end with another one."""
    if not frame.tail.strip():
        return None
    line = len(frame) + 1
    fed = b"\n" in frame.tail and "\n" not in terminator[:-1]
    if fed or re.search(rb'\}[^\w\s":,{}\[\]]{0,9}\s*\{"id":', frame.tail):
        raise MalformedData(
            f"{path} record {line}: records should end with {terminator!r}, but another one follows without it. "
            "Give the terminator ([sink] terminator) as the changefeed has it.",
            path=path,
            line=line,
        )
    reason = "the last record has no terminator after it: the file was cut off, or is still being written"
    return Reject(path, line, reason, frame.tail, commit_ts=_commit_ts(frame.tail) or _least_commit_ts(frame.tail))


def _least_commit_ts(raw: bytes) -> int | None:
    """Return the least commit-ts of the record's millisecond: `es` is written before what is cut off as a rule."""
    found = re.search(rb'"es":(\d{1,14}),', raw)
    return int(found[1]) << 18 if found else None


def _read_records(frame: json_lines.Frame, schema: TableSchema, rejects: _Rejects) -> list[tuple[pa.RecordBatch, Rows]]:
    """Return all records that have the right shape, with their lines, which ascend within a batch.

    A file of records that are all alike, as TiCDC writes them, never meets a parser.
    """
    shape = find_shape(frame, schema)
    alike = read_alike(frame, shape, schema) if shape is not None else ()
    found = [(batch, positions + 1) for batch, positions in alike]
    known = np.zeros(len(frame), dtype=bool)
    for _, lines in found:
        known[lines - 1] = True
    if known.all():
        return found
    parsed = parse_records(frame, np.flatnonzero(~known) + 1, schema, rejects.path)
    for line, reason, column in parsed.refused:
        rejects.add(line, reason, column)
    start = 0
    for batch in parsed.records.to_batches():
        found.append((batch, parsed.lines[start : start + batch.num_rows]))
        start += batch.num_rows
    return found


# --- images -----------------------------------------------------------------------------------------------------------


class _Batch(NamedTuple):
    """Records whose frame is right. `after` has a text for each record, `before` for each of `updates` (positions)."""

    lines: Rows
    kinds: pa.Array
    commit_ts: pa.Array
    after: Mapping[str, pa.Array]
    updates: Rows
    before: Mapping[str, pa.Array]
    types: Mapping[str, pa.Array]


def _images(batch: pa.RecordBatch, lines: Rows, table: TableId, schema: TableSchema, rejects: _Rejects) -> _Batch:
    _check_table(batch, lines, table, rejects.path)
    fit = np.ones(len(lines), dtype=bool)

    def refuse(mask: pa.Array, reason: Callable[[int], str]) -> None:
        for row in _rows(mask):
            rejects.add(int(lines[row]), reason(row))
            fit[row] = False

    kinds, old, data = batch.column("type"), batch.column("old"), batch.column("data")
    refuse(batch.column("isDdl"), lambda _: "isDdl is true: TiCDC writes no DDL into data files")
    refuse(
        pc.invert(pc.is_in(kinds, pa.array(KINDS))), lambda row: f"type {kinds[row]} is not INSERT, UPDATE or DELETE"
    )
    refuse(_not_one(data), lambda _: "data does not hold exactly one row")
    refuse(pc.and_(pc.is_valid(old), _not_one(old, or_none=True)), lambda _: "old does not hold exactly one row")
    _refuse_by_extension(batch.column("_tidb"), refuse)
    if not fit.all():
        batch, lines = batch.filter(pa.array(fit)), lines[fit]
        kinds, old, data = batch.column("type"), batch.column("old"), batch.column("data")
    updates = _rows(pc.and_(pc.equal(kinds, "UPDATE"), pc.greater(pc.list_value_length(old), 0)))
    members = [column.name for column in schema.stored if column.type in MEMBERS]
    types = batch.column("mysqlType")
    return _Batch(
        lines,
        kinds,
        pc.struct_field(batch.column("_tidb"), "commitTs"),
        _fields(data),
        updates,
        _fields(old.take(pa.array(updates))),
        {name: pc.struct_field(types, [types.type.get_field_index(name)]) for name in members},
    )


def _refuse_by_extension(extension: pa.StructArray, refuse: Callable[[pa.Array, Callable[[int], str]], None]) -> None:
    """Refuse records without a sound commit-ts, and those that say that the row is not in them."""
    commit_ts, members = pc.struct_field(extension, "commitTs"), {field.name for field in extension.type}
    refuse(pc.less(commit_ts, pa.scalar(0, pa.int64())), lambda row: f"its commitTs {commit_ts[row]} is not a TSO")
    if "onlyHandleKey" in members:
        refuse(pc.struct_field(extension, "onlyHandleKey"), lambda _: "onlyHandleKey: the row is not whole")
    if "claimCheckLocation" in members:
        elsewhere = pc.not_equal(pc.struct_field(extension, "claimCheckLocation"), "")
        refuse(elsewhere, lambda _: "claimCheckLocation: the row is not whole, but kept in another place")


def _rows(mask: pa.Array) -> Rows:
    found: Rows = np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))
    return found


def _not_one(lists: pa.ListArray, or_none: bool = False) -> pa.Array:
    """Mark lists without exactly one row (or, if so asked, more than one), and those whose row is null."""
    lengths = pc.list_value_length(lists).fill_null(0)
    wrong = pc.greater(lengths, 1) if or_none else pc.not_equal(lengths, 1)
    rows = lists.flatten()
    if rows.null_count:
        parents = pc.list_parent_indices(lists).filter(pc.is_null(rows))
        wrong = pc.or_(wrong, pc.is_in(pa.array(np.arange(len(lists))), parents.cast(pa.int64())))
    return wrong


def _fields(lists: pa.ListArray) -> dict[str, pa.Array]:
    rows = lists.flatten()
    return dict(zip((inner.name for inner in rows.type), rows.flatten(), strict=True))


def _check_table(batch: pa.RecordBatch, lines: Rows, table: TableId, path: str) -> None:
    same = pc.and_(pc.equal(batch.column("database"), table.schema), pc.equal(batch.column("table"), table.table))
    others = _rows(pc.invert(same.fill_null(False)))
    if len(others):
        row, line = int(others[0]), int(lines[others[0]])
        raise MalformedData(
            f"{path} record {line} is a row of {batch.column('database')[row]}.{batch.column('table')[row]}; "
            f"the directory belongs to {table}. Two changefeeds may share the prefix, or the file was moved.",
            path=path,
            line=line,
            table=str(table),
        )


def _check_extension(batches: list[_Batch], options: CanalJsonOptions, rejects: _Rejects) -> None:
    records = sum(len(batch.lines) for batch in batches)
    without = sum(batch.commit_ts.null_count for batch in batches)
    if not records or without == (0 if options.enable_tidb_extension else records):
        return
    if options.enable_tidb_extension and without < records:
        for batch in batches:
            for row in _rows(pc.is_null(batch.commit_ts)):
                rejects.add(int(batch.lines[row]), "it has no commitTs, which the TiDB extension gives every record")
        return
    came, wanted = ("no", "true") if options.enable_tidb_extension else ("a", "no")
    todo = "remove it" if options.enable_tidb_extension else "add it"
    raise MalformedData(
        f"{rejects.path}: the records have {came} member _tidb, but the sink URI has {wanted} enable-tidb-extension. "
        f"If the changefeed was created so, {todo} in the sink URI given here.",
        path=rejects.path,
    )


def _hidden(batches: list[_Batch], schema: TableSchema, options: CanalJsonOptions) -> set[str]:
    """Return the columns that no record holds; none where all records are meant to hold the key only."""
    kinds = {kind for batch in batches for kind in batch.kinds.unique().to_pylist()}
    if not kinds or (options.delete_only_output_handle_key_columns and kinds == {"DELETE"}):
        return set()
    images = [(batch.after, batch.before) for batch in batches]
    return {
        column.name
        for column in schema.stored
        if all(side[column.name].null_count == len(side[column.name]) for image in images for side in image)
    }


# --- changes ----------------------------------------------------------------------------------------------------------


def _changes(
    batch: _Batch,
    visible: list[Column],
    schema: TableSchema,
    options: CanalJsonOptions,
    rejects: _Rejects,
    notes: dict[tuple[str, str], int],
) -> pa.Table:
    """Convert the images of a batch and put them in order: by record, the image before an update first."""
    count = len(batch.lines)
    record_of = np.concatenate([np.arange(count), batch.updates])
    ops = _ops(batch)
    arrays = []
    for column in visible:
        after = _whole(batch, column, schema, options, rejects, ops)
        before = _before(batch, column, options, rejects.path)
        texts = pa.concat_arrays([after, before]) if len(before) else after
        written = pc.equal(texts, json_lines.NULL)
        if written.true_count:
            texts = pc.if_else(written, pa.scalar(None, pa.string()), texts)
        types = batch.types.get(column.name)
        if types is not None:
            types = types.take(pa.array(record_of)) if len(before) else types
        result = _converted(texts, column, types, options, column.name in schema.exact)
        for mask, reason in result.faults:
            for row in _rows(mask):
                record = record_of[row]
                commit_ts = batch.commit_ts[record].as_py()
                rejects.add(int(batch.lines[record]), reason(str(texts[row])), column.name, commit_ts)
        for rule, mask in result.notes.items():
            notes[column.name, rule] = notes.get((column.name, rule), 0) + mask.true_count
        arrays.append(result.array)
    ops = np.concatenate([ops, np.full(len(batch.updates), Op.DELETE, dtype=np.int8)])
    meta = [pa.array(ops), batch.commit_ts.take(pa.array(record_of)), pa.array(batch.lines[record_of])]
    changes = pa.Table.from_arrays([*meta, *arrays], schema=shape_of(visible))
    return _in_order(changes, batch, record_of, rejects)


def _in_order(changes: pa.Table, batch: _Batch, record_of: Rows, rejects: _Rejects) -> pa.Table:
    if not len(batch.updates) and not rejects.found:
        return changes
    order = np.argsort(2 * record_of + (np.arange(len(record_of)) < len(batch.lines)), kind="stable")
    if rejects.found:
        order = order[~np.isin(batch.lines[record_of[order]], list(rejects.found))]
    return changes.take(pa.array(order))


def _ops(batch: _Batch) -> npt.NDArray[np.int8]:
    codes = pc.index_in(batch.kinds, pa.array(KINDS)).to_numpy(zero_copy_only=False)
    ops: npt.NDArray[np.int8] = np.array([Op.INSERT, Op.UPDATE, Op.DELETE], dtype=np.int8)[codes]
    ops[batch.updates] = Op.INSERT
    return ops


def _whole(
    batch: _Batch,
    column: Column,
    schema: TableSchema,
    options: CanalJsonOptions,
    rejects: _Rejects,
    ops: npt.NDArray[np.int8],
) -> pa.Array:
    """Return the column's texts; records that lack it are deletes of which only the key is known, or rejected."""
    texts = batch.after[column.name]
    if not texts.null_count:
        return texts
    deletes = pc.equal(batch.kinds, "DELETE")
    lacking = pc.is_null(texts)
    rest = lacking
    keyed = column.name in schema.exact
    if options.delete_only_output_handle_key_columns and not keyed:
        ops[_rows(pc.and_(lacking, deletes))] = Op.DELETE_KEY
        rest = pc.and_not(lacking, deletes)
    elif not keyed and pc.all(pc.or_(pc.invert(lacking), deletes), min_count=0).as_py():
        line = int(batch.lines[_rows(lacking)[0]])
        raise MalformedData(
            f'{rejects.path} record {line}: a DELETE lacks the column "{column.name}". If the changefeed writes only '
            "the key of deleted rows, give delete-only-output-handle-key-columns = true as it has it.",
            path=rejects.path,
            line=line,
            column=column.name,
        )
    for row in _rows(rest):
        rejects.add(
            int(batch.lines[row]), f'it lacks the column "{column.name}"', column.name, batch.commit_ts[row].as_py()
        )
    return texts


def _before(batch: _Batch, column: Column, options: CanalJsonOptions, path: str) -> pa.Array:
    """Return the column's texts before each update; what a partial `old` leaves out did not change."""
    texts = batch.before[column.name]
    if not texts.null_count:
        return texts
    lacking = pc.is_null(texts)
    if not (options.only_output_updated_columns or options.content_compatible):
        line = int(batch.lines[batch.updates[_rows(lacking)[0]]])
        raise MalformedData(
            f'{path} record {line}: old lacks the column "{column.name}". If the changefeed writes only the columns '
            "that changed, give only-output-updated-columns = true or content-compatible = true as it has it.",
            path=path,
            line=line,
            column=column.name,
        )
    return pc.if_else(lacking, batch.after[column.name].take(pa.array(batch.updates)), texts)


# --- values -----------------------------------------------------------------------------------------------------------


class _Converted(NamedTuple):
    """Values of the lake's type; `faults` are masks with the reason for a text, `notes` masks by rule."""

    array: pa.Array
    faults: list[tuple[pa.Array, Callable[[str], str]]]
    notes: dict[str, pa.Array]


def _converted(
    texts: pa.Array, column: Column, types: pa.Array | None, options: CanalJsonOptions, in_key: bool
) -> _Converted:
    faults: list[tuple[pa.Array, Callable[[str], str]]] = []
    if types is not None:
        names = _names(texts, column, types)
        wrong = pc.and_(pc.is_null(names), pc.is_valid(texts))
        faults.append((wrong, lambda text: _misnamed(text, column, types.unique().to_pylist())))
        texts = names
    done = values(texts, column, timezone=options.timezone, binary="latin-1")
    notes = dict(done.notes)
    if done.bad is not None:
        faults.append((done.bad, lambda text: misfit(text, column)))
    if in_key:
        lossy = sorted(LOSSY & notes.keys())
        faults.extend((notes.pop(rule), f'"{{}}" {changed_in_key(rule)}'.format) for rule in lossy)
    if column.type in CHARACTER:
        replaced = pc.match_substring(done.array, "\ufffd")
        if replaced.true_count:
            notes[REPLACED] = replaced
    return _Converted(done.array, faults, notes)


def _misnamed(text: str, column: Column, declared: Iterable[str | None]) -> str:
    known = [members(type_text, column) for type_text in declared]
    if all(names is not None and None not in names for names in known):
        counts = "/".join(sorted({str(len(names or ())) for names in known}))
        return f'"{text}" is not a number for members of {column.type}, which has {counts}'
    return (
        f'"{text}" stands for members of {column.type} whose names are not known: Canal-JSON gives numbers, and '
        "neither the schema file (ColumnElems, from TiCDC 8.5.4) nor a DDL text that was seen gives the names. "
        "Let the changefeed include the CREATE TABLE, or set content-compatible = true in it."
    )


def _names(texts: pa.Array, column: Column, types: pa.Array) -> pa.Array:
    """Turn numbers of ENUM and SET into names, null where a number has none; declared types may differ in a file."""
    names = pa.nulls(len(texts), pa.string())
    for text in types.unique().to_pylist():
        found = named(texts, column.type, members(text, column))
        names = pc.if_else(pc.is_null(types) if text is None else pc.equal(types, text).fill_null(False), found, names)
    return names
