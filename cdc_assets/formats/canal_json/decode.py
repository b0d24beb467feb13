"""Canal-JSON data files: one object for each row change, every value a string or null.

    {"id":0,"database":"shop","table":"orders","pkNames":["id"],"isDdl":false,"type":"UPDATE","es":1774915083040,…,
     "sqlType":{…},"mysqlType":{…},"old":[{…}],"data":[{…}],"_tidb":{"commitTs":465283339528437785}}

Values that differ from CSV: binaries have a code point for each byte (ISO-8859-1), ENUM is the number of its member
from 1 (0 for the empty invalid value), SET the sum of 2^position. Member names are in `mysqlType` with
content-compatible, else in the schema's `elems`. `old` may hold only the columns that changed; `_tidb` is there with
the TiDB extension.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import MalformedData
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.canal_json.file_records import KINDS, RecordFrame, cut_file, file_records
from cdc_assets.formats.canal_json.options import CanalJsonOptions
from cdc_assets.formats.canal_json.row_records import row_records
from cdc_assets.formats.changes import (
    Cells,
    Faults,
    Images,
    RowSides,
    changes_of,
    of_unknown_column,
    row_images,
    unknown_column,
)
from cdc_assets.formats.decoded import Decoded, Op
from cdc_assets.formats.json_records import json_value
from cdc_assets.formats.members import members, named
from cdc_assets.formats.records import CellKind, Marks, Path, RecordColumn, Records, bits
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.families import BINARY, CHARACTER, MEMBERS

__all__ = [
    "EXTENSION",
    "FILE_EXPANSION",
    "KINDS",
    "REPLACED",
    "TEXT_NULL",
    "commit_stamps",
    "decode",
    "raw_records",
    "read_changes",
    "record_beginning",
    "record_identity",
]

Rows = npt.NDArray[np.int64]

EXTENSION = ".json"

FILE_EXPANSION = 4
"""Bytes in a file for one in memory: each record repeats names and types."""
REPLACED = "U+FFFD, which Canal-JSON also writes for invalid UTF-8"
TEXT_NULL = (
    "the text null, which TiCDC 8.5.4 and 8.5.5 send as NULL: the column is NOT NULL. In columns that may be NULL it "
    "is NULL in the lake"
)
_WITH_TEXT_NULL = frozenset((*CHARACTER, *BINARY, "JSON"))
"""Types of which a value may be the text null."""


def decode(data: bytes, path: str, table: TableId, schema: TableSchema, options: CanalJsonOptions) -> Decoded:
    """Return the changes of a file: an UPDATE with `old` as a DELETE and an INSERT of the same line, else as an UPDATE.

    Columns that no record holds, hidden by a column selector or virtual, are absent from `changes`. Commit-ts is null
    without the TiDB extension. Raises MalformedData for rows of another table, for columns that the schema lacks, and
    where the records contradict the terminator, the extension, or what `old` and DELETE should hold.
    """
    frame = cut_file(data, options.terminator)
    tail = _find_tail(frame, path, options.terminator)
    records = _records(frame, schema)
    file_changes = read_changes(records, lambda line: frame[line - 1], path, table, schema, options)
    return replace(file_changes, tail=tail)


def raw_records(data: bytes, lines: Collection[int] | None, options: CanalJsonOptions) -> dict[int, bytes]:
    """Return the bytes of the records with these numbers (None: all), without terminator."""
    frame = cut_file(data, options.terminator)
    lines = range(1, len(frame) + 1) if lines is None else lines
    return {line: frame[line - 1] for line in lines if 1 <= line <= len(frame)}


def commit_stamps(data: bytes, options: CanalJsonOptions) -> list[int | None]:
    """Return the commit-ts of each record, whatever its columns are; None where it cannot be read, or the end is."""
    frame = cut_file(data, options.terminator)
    stamps = dict[int, int]()
    for records in _of_lines(frame, np.arange(len(frame))):
        commit_ts, whole = records.whole_numbers("_tidb", "commitTs")
        stamps |= zip(records.messages[whole].tolist(), commit_ts[whole].tolist(), strict=True)
    record_stamps = [stamps.get(record) for record in range(len(frame))]
    return [*record_stamps, *([None] if _find_tail(frame, "", options.terminator) is not None else [])]


def record_beginning(raw: bytes) -> bytes:
    """Return the part before the time of writing."""
    return raw.partition(b',"ts":')[0]


def record_identity(raw: bytes) -> object:
    """Return the record without its time of writing; the order of members within others does not count."""
    try:
        return record_beginning(raw), {**json_value(raw), "ts": None}
    except (ValueError, TypeError):
        return raw


# --- the end of a file ------------------------------------------------------------------------------------------------


def _commit_ts(raw: bytes) -> int | None:
    """Read the commit-ts of a record that need not be whole: an unescaped quote stands in no text."""
    match = re.search(rb'"_tidb":\{"commitTs":(\d{1,19})[,}]', raw)
    return int(match[1]) if match and int(match[1]) < 1 << 63 else None


def _find_tail(frame: RecordFrame, path: str, terminator: str) -> Reject | None:
    """Return the bytes after the last terminator; raises MalformedData where records end with another one."""
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
    match = re.search(rb'"es":(\d{1,14}),', raw)
    return int(match[1]) << 18 if match else None


def _records(frame: RecordFrame, schema: TableSchema) -> Iterator[Records]:
    """Yield the records of a file: first those that are alike throughout, as nearly all are."""
    open_ = np.ones(len(frame), bool)
    for records in file_records(frame, schema):
        open_[records.messages] = False
        yield records
    yield from _of_lines(frame, np.flatnonzero(open_))


def _of_lines(frame: RecordFrame, places: Rows) -> Iterator[Records]:
    """Yield some records of a file."""
    for some, values in frame.arrays(places):
        for records in row_records(values):
            records.messages = some[records.messages]
            yield records


# --- rows -------------------------------------------------------------------------------------------------------------


def read_changes(
    parts: Iterable[Records],
    raw: Callable[[int], bytes],
    path: str,
    table: TableId,
    schema: TableSchema,
    options: MessageOptions,
    *,
    deletes_are_cut: bool = False,
) -> Decoded:
    """Return the changes in records, whose messages are their lines from 0; `raw` gives the bytes of one.

    With `deletes_are_cut` one may have the key only of a row that was too large for a message: more it does not need.

    Raises MalformedData as `decode` does.
    """
    faults, strange = Faults(path, raw), set[str]()
    sides = RowSides()
    for records in parts:
        _require_rows(records, table, path)
        _require_whole(records, deletes_are_cut)
        for side in ("data", "old"):
            _require_columns(records, side, schema, faults, strange, options.places)
        faults.add_refused(records, "the record is not a row change")
        rows = records.among(records.sound)
        before = rows.column("type").equal("UPDATE") & (rows.lengths("old") == 1)
        sides.take(_images(rows, before), (rows, ("data", 0)), (rows.among(before), ("old", 0)))
    images = sides.images
    if strange and not len(images) and options.places == "files":
        raise MalformedData(
            f"{path}: the records have the columns {_listed(strange)}, which are not among those of the schema "
            f"file: {_listed(column.name for column in schema.stored)}. The file lies in another version's directory, "
            "or its schema file was replaced.",
            path=path,
            column=min(strange),
        )
    _check_extension(images, options, faults)
    names = [column.name for column in schema.stored]
    texts = {name: sides.column(name) for name in names}
    absent = {name: column.are(CellKind.ABSENT) for name, column in texts.items()}
    _check_columns(images, {name: mask for name, mask in absent.items() if mask.any()}, schema, options, path)

    def cells(column: Column) -> Cells:
        whole, lacking = texts[column.name].texts, absent[column.name]
        if column.type not in MEMBERS:
            whole, notes = _with_text_null(texts[column.name], column)
            notes = {} if column.name in schema.exact else notes
            return Cells(whole, lacking if lacking.any() else None, "latin-1", notes=notes)
        types = RecordColumn.joined([records.column("mysqlType", column.name) for records, _ in sides.sides])
        return _cells_of_members(whole, lacking, types.texts, column)

    done = changes_of(images, cells, schema, options, faults)
    rejects = (
        reject if reject.commit_ts else replace(reject, commit_ts=_commit_ts(reject.raw)) for reject in done.rejects
    )
    return replace(done, rejects=tuple(rejects), notes=_noted(done, schema))


def _require_rows(records: Records, table: TableId, path: str) -> None:
    """Refuse what is no row; raises MalformedData for one of another table."""
    spaces, names, kinds = (records.column(name) for name in ("database", "table", "type"))
    for name, column in (("database", spaces), ("table", names), ("type", kinds)):
        _require(records, column.are(CellKind.TEXT), (name,), "a string")
    is_ddl = records.column("isDdl")
    _require(records, is_ddl.are(CellKind.BOOL) | is_ddl.are(CellKind.ABSENT), ("isDdl",), "true or false")
    for side in ("old", "data"):
        _require(records, (records.lengths(side) >= 0) | (records.kinds(side) <= CellKind.NULL), (side,), "a list")
    other = records.sound & ~(spaces.equal(table.schema) & names.equal(table.table))
    if other.any():
        place = int(np.flatnonzero(other)[0])
        line = int(records.messages[place]) + 1
        raise MalformedData(
            f"{path} record {line} is a row of {spaces.shown(place)}.{names.shown(place)}; "
            f"the directory belongs to {table}. Two changefeeds may share the prefix, or the file was moved.",
            path=path,
            line=line,
            table=str(table),
        )
    records.require(~bits(pc.equal(is_ddl.texts, "true")), "isDdl is true: TiCDC writes no DDL into data files")
    is_row = bits(pc.is_in(kinds.texts, pa.array(KINDS)))
    records.require(is_row, lambda place: f"type {kinds.shown(place)} is not INSERT, UPDATE or DELETE")
    single = (records.lengths("data") == 1) & records.are_objects("data", 0)
    records.require(single, "data does not hold exactly one row")
    lengths = records.lengths("old")
    records.require((lengths < 1) | (lengths == 1) & records.are_objects("old", 0), "old does not hold exactly one row")
    # Records without a commit-ts are told when all are read.
    has_extension = records.kinds("_tidb") > CellKind.NULL
    _require(records, ~has_extension | records.are_objects("_tidb"), ("_tidb",), "an object")
    _, sound = records.tsos("_tidb", "commitTs")
    sound |= records.kinds("_tidb", "commitTs") == CellKind.ABSENT
    records.require(
        ~has_extension | sound, lambda place: f"its commitTs {records.shown(place, '_tidb', 'commitTs')} is not a TSO"
    )


def _require(records: Records, mask: Marks, path: Path, kind: str) -> None:
    records.require(mask, lambda place: f'its member "{path[-1]}" is {records.shown(place, *path)[:80]}, not {kind}')


def _require_whole(records: Records, deletes_are_cut: bool) -> None:
    """Refuse records that say that the row is not in them."""
    enough = {"onlyHandleKey": records.column("type").equal("DELETE")} if deletes_are_cut else {}
    for name, none in (("onlyHandleKey", "false"), ("claimCheckLocation", "")):
        column = records.column("_tidb", name)
        is_whole = ~column.given | bits(pc.equal(column.texts, none)) | enough.get(name, False)
        records.require(
            is_whole, f'its member "{name}" says that the row is not whole: TiCDC writes that in messages only'
        )


def _require_columns(
    records: Records, side: str, schema: TableSchema, faults: Faults, strange: set[str], places: str
) -> None:
    """Refuse rows with columns that the table lacks, which become `strange`, or with what is no text."""
    names = {column.name for column in schema.stored}
    for name in records.members(side, 0):
        kinds = records.kinds(side, 0, name)
        if name in names:
            _require(records, kinds <= CellKind.TEXT, (side, 0, name), "a string")
            continue
        after = ("data", 0) if side == "old" else None
        is_hidden = records.sound & of_unknown_column(records, name, (side, 0), after, schema)
        where = ("the schema file of this version",) if places == "files" else ()
        faults.refuse(records, is_hidden, name, unknown_column(schema, name, *where))
        strange |= {name} if is_hidden.any() else set()


def _listed(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(f'"{name}"' for name in listed[:8]) + (", …" if len(listed) > 8 else "")


def _images(rows: Records, before: Marks) -> Images:
    kinds = rows.column("type")
    stamps, _ = rows.tsos("_tidb", "commitTs")
    images = row_images(rows.messages + 1, np.where(stamps > 0, stamps, -1), np.ones(len(rows), bool), before)
    images.ops[: len(rows)][kinds.equal("UPDATE") & ~before] = Op.UPDATE
    images.ops[: len(rows)][kinds.equal("DELETE")] = Op.DELETE
    return images


def _check_extension(images: Images, options: MessageOptions, faults: Faults) -> None:
    without = images.commit_ts < 0
    if not len(images) or (~without if options.enable_tidb_extension else without).all():
        return
    if options.enable_tidb_extension and not without.all():
        faults.mark(without, images, lambda _: "it has no commitTs, which the TiDB extension gives every record")
        return
    came, expected = ("no", "true") if options.enable_tidb_extension else ("a", "no")
    todo = "remove it" if options.enable_tidb_extension else "add it"
    raise MalformedData(
        f"{faults.path}: the records have {came} member _tidb, but the sink URI has {expected} enable-tidb-extension. "
        f"If the changefeed was created so, {todo} in the sink URI given here.",
        path=faults.path,
    )


def _check_columns(
    images: Images, absent: Mapping[str, Marks], schema: TableSchema, options: MessageOptions, path: str
) -> None:
    """Raise MalformedData where images lack columns otherwise than the options say."""
    if not len(images):
        return
    deletes, before = images.ops < 0, images.after >= 0
    partial = options.only_output_updated_columns or options.content_compatible
    of_keys = options.delete_only_output_handle_key_columns
    hidden = set() if of_keys and (deletes & ~before).all() else {name for name, mask in absent.items() if mask.all()}
    if hidden & schema.exact or len(hidden) == len(schema.stored):
        name = min(hidden & schema.exact or hidden)
        cause = "The schema file of its version and the file do not belong together, or a"
        raise MalformedData(
            f'{path}: no record has the column "{name}", which every record must have. '
            f"{cause if options.places == 'files' else 'A'} column selector hides the key.",
            path=path,
            column=name,
        )
    for name, mask in absent.items():
        lacking = mask & ~before
        if name in hidden:
            continue
        if name not in schema.exact and not of_keys and lacking.any() and deletes[lacking].all():
            line = int(images.lines[lacking][0])
            raise MalformedData(
                f'{path} record {line}: a DELETE lacks the column "{name}". If the changefeed writes only '
                "the key of deleted rows, give delete-only-output-handle-key-columns = true as it has it.",
                path=path,
                line=line,
                column=name,
            )
        if (mask & before).any() and not partial:
            line = int(images.lines[mask & before][0])
            raise MalformedData(
                f'{path} record {line}: old lacks the column "{name}". If the changefeed writes only the columns '
                "that changed, give only-output-updated-columns = true or content-compatible = true as it has it.",
                path=path,
                line=line,
                column=name,
            )


def _noted(done: Decoded, schema: TableSchema) -> Mapping[tuple[str, str], int]:
    """Count the texts in which something may have been replaced, too."""
    notes = dict(done.notes)
    for column in schema.stored:
        if column.type in CHARACTER and column.name in done.changes.column_names:
            replaced = pc.match_substring(done.changes.column(column.name), "\ufffd")
            notes |= {(column.name, REPLACED): pc.sum(replaced).as_py()} if pc.any(replaced).as_py() else {}
    return notes


# --- values -----------------------------------------------------------------------------------------------------------


def _with_text_null(cells: RecordColumn, column: Column) -> tuple[pa.StringArray, Mapping[str, Marks]]:
    """Return the texts of a column, and which are the text null that TiCDC wrote as if it were NULL, as a note.

    TiCDC 8.5.4 and 8.5.5 do so (ticdc#3958). Where a column may be NULL the two cannot be told apart.
    """
    mask = cells.are(CellKind.NULL)
    if column.nullable or column.type not in _WITH_TEXT_NULL or not mask.any():
        return cells.texts, {}
    return pc.if_else(pa.array(mask), pa.scalar("null", cells.texts.type), cells.texts), {TEXT_NULL: mask}


def _cells_of_members(texts: pa.StringArray, absent: Marks, types: pa.StringArray, column: Column) -> Cells:
    # Numbers of ENUM and SET become names, null where a number has none; declared types may differ in a file.
    names = pa.nulls(len(texts), pa.string())
    for text in types.unique().to_pylist():
        member_names = named(texts, column.type, members(text, column))
        names = pc.if_else(
            pc.is_null(types) if text is None else pc.equal(types, text).fill_null(False), member_names, names
        )
    wrong = bits(pc.and_(pc.is_null(names), pc.is_valid(texts)))
    declared = types.unique().to_pylist()
    fault = (wrong, lambda image: _misnamed(str(texts[image]), column, declared))
    return Cells(names, absent if absent.any() else None, named=True, faults=(fault,) if wrong.any() else ())


def _misnamed(text: str, column: Column, declared: Iterable[str | None]) -> str:
    declared_members = [members(type_text, column) for type_text in declared]
    if all(names is not None and None not in names for names in declared_members):
        counts = "/".join(sorted({str(len(names or ())) for names in declared_members}))
        return f'"{text}" is not a number for members of {column.type}, which has {counts}'
    return (
        f'"{text}" stands for members of {column.type} whose names are not known: Canal-JSON gives numbers, and '
        "neither the schema file (ColumnElems, from TiCDC 8.5.4) nor a DDL text that was seen gives the names. "
        "Let the changefeed include the CREATE TABLE, or set content-compatible = true in it."
    )
