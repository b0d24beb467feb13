"""Avro messages: what they speak of, the schemas that rows show, and the changes of a table.

The key is a record of the handle key, the value one of the row's columns, with the extension also `_tidb_op` and
`_tidb_commit_ts`. A delete has no value, so neither operation nor commit-ts: only its offset says when it was. The
images before (`avro-include-before-value`) are in `_ticdc_before`; then a delete is a row with the operation "d".
Names are sanitized (what is not a letter, digit or underscore is an underscore, and a leading digit gets one before
it): rows are of the table whose name reads the same, and so are columns.

    01 JSON, 02 ts(8)        a message without key is a marker: a DDL, a watermark
    03 ts(8)                 with a key it is a delete with its commit-ts (new architecture)

Where Confluent's serializers put the id of a schema into a header, the record stands bare: `whole` puts it in front.

Each type has `connect.parameters` with `tidb_type`; nullable columns are unions, in either order. Defaults are no
values of their types and are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.avro_records import (
    RecordSchema,
    SchemaRecords,
    avro_records,
    ids_of_schemas,
    record_schema,
    table_named_by,
    unframed,
)
from cdc_assets.formats.changes import Cells, Faults, Images, changes_of, row_images, side_by_side, unknown_column
from cdc_assets.formats.column_codes import shown_schema
from cdc_assets.formats.decoded import Decoded, Op
from cdc_assets.formats.json_records import parsed_records
from cdc_assets.formats.members import allowed_members
from cdc_assets.formats.messages import (
    CORRUPTED,
    Classification,
    Kind,
    MessageCodec,
    SchemaEvent,
    by_row,
    classified,
    in_order,
    one_row_messages,
    position_text,
    position_texts,
    unpacked_array,
)
from cdc_assets.formats.records import CellKind, Marks, Path, Records, bits
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.families import BINARY, CHARACTER, INTEGER

__all__ = ["as_described", "classify", "decode", "sanitized", "schema_ids", "schemas", "whole"]

Places = npt.NDArray[np.int64]

_HEADERS = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""Use of a schema id -> the header that carries it (Confluent's `HeaderSchemaIdSerializer`)."""
_MARK_BYTES = 9
"""Length in bytes of a watermark, and of a delete with its commit-ts."""
_MOST_TSO = (1 << 63) - 1
_MOST_ACTIONS = np.uint64(1 << 31)
_DIGITS = 38
_NONE = -1
"""Stands for a commit-ts that is not known."""


def whole(messages: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages with the ids of their schemas in front of keys and values, where headers have them."""
    headers = messages.column("headers")
    if headers.null_count == len(headers) or not len(pc.list_flatten(headers)):
        return messages
    listed = headers.to_pylist()
    for column, name in _HEADERS.items():
        ids = [_id_in(header_list, name) for header_list in listed]
        if any(ids):
            bare = messages.column(column).to_pylist()
            framed = [record if record is None else head + record for head, record in zip(ids, bare, strict=True)]
            place = messages.schema.get_field_index(column)
            messages = messages.set_column(place, messages.schema.field(place), pa.array(framed, pa.binary()))
    return messages


def _id_in(headers: list[dict[str, Any]] | None, name: str) -> bytes:
    """Return the id that headers have, as it stands in front of a record; the first of that name counts."""
    value = next((header["value"] for header in headers or () if header["name"] == name), None) or b""
    fits = (value[:1], len(value)) in ((b"\0", 5), (b"\1", 17))
    return value if fits else b""


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return the table and kind of each message (CLASSIFIED); names are sanitized, a tombstone has no commit-ts."""
    keys, sent = messages.column("key"), messages.column("value")
    values, key_ids = unpacked_array(sent, options), ids_of_schemas(keys)
    keyed = bits(pc.is_valid(keys))
    packed = keyed & bits(pc.and_(pc.is_null(values), pc.is_valid(sent)))
    deletes = keyed & ~packed & _are_deletes(values)
    bad: list[tuple[int, str]] = [(int(message), _PACKED) for message in np.flatnonzero(packed)]
    lines = [
        classified(_markers(values, np.flatnonzero(~keyed), bad)),
        *_lines_of_deletes(keys, values, key_ids, np.flatnonzero(deletes), options, bad),
    ]
    for name, schema, records in _read(values, keyed & ~packed & ~deletes, options):
        stamps, ids = _require_stamps(records), key_ids.take(pa.array(records.messages))
        _require_framing(records, ids, keys)
        bad += [(message, reason) for _, message, reason in records.refused()]
        if schema is not None and records.sound.any():
            ts, mask = stamps[records.sound], pa.array(records.sound)
            shape = pc.binary_join_element_wise(ids.filter(mask), name, "/")
            lines.append(_lines_of_rows(records.messages[records.sound], schema, ts, shape=shape))
    return in_order([*lines, classified(_bad_lines(bad, keys, values, options))])


_PACKED = "its value is not compressed as large-message-handle-compression says"


def _read(values: pa.Array, mask: Marks, options: MessageOptions) -> Iterator[SchemaRecords]:
    """Yield the records of some messages."""
    places = np.flatnonzero(mask)
    some = values if len(places) == len(values) else values.take(pa.array(places))
    for schema_records in avro_records(some, options.registry):
        yield schema_records._replace(records=schema_records.records.moved(places[schema_records.records.messages]))


def _are_deletes(values: pa.Array) -> Marks:
    """Mark the values of deletes of messages with a key: those that have none, and marks of deletes."""
    marked = pc.and_(pc.equal(pc.binary_length(values), _MARK_BYTES), pc.equal(pc.binary_slice(values, 0, 1), b"\3"))
    return bits(pc.or_kleene(pc.is_null(values), marked))


def _require_stamps(records: Records) -> Places:
    """Return the commit-ts of records, _NONE without the extension; those with one that is no TSO are refused."""
    absent = records.kinds(COMMIT_TS_FIELD) == CellKind.ABSENT
    ts, sound = records.tsos(COMMIT_TS_FIELD)
    records.require(
        absent | sound,
        lambda place: f"its commit-ts {records.shown(place, COMMIT_TS_FIELD)} is not a TSO",
    )
    return np.where(absent | ~records.sound, _NONE, ts)


def _require_framing(records: Records, ids: pa.StringArray, keys: pa.BinaryArray) -> None:
    """Refuse records whose keys name no schema."""
    records.require(bits(pc.is_valid(ids)), lambda place: unframed(keys[int(records.messages[place])].as_py()))


def _lines_of_rows(messages: Places, schema: RecordSchema, stamps: Places, **more: pa.Array) -> pa.RecordBatch:
    schemas_, tables = (pa.repeat(name, len(messages)) for name in schema.schema_and_table)
    ts = pa.array(stamps, pa.int64(), mask=stamps == _NONE)
    return one_row_messages(messages, schemas_, tables, ts, **{"source_position": position_texts(ts), **more})


def _lines_of_deletes(
    keys: pa.Array,
    values: pa.Array,
    key_ids: pa.StringArray,
    deletes: Places,
    options: MessageOptions,
    bad: list[tuple[int, str]],
) -> Iterator[pa.RecordBatch]:
    """Yield the lines of deletes by the schemas of their keys; one without commit-ts stands behind the row before it.

    Those that cannot be told are put among the bad ones.
    """
    stamps, ids = (
        _stamps_of_deletes(values.take(pa.array(deletes))),
        key_ids.take(pa.array(deletes)).dictionary_encode(),
    )
    codes = ids.indices.fill_null(len(ids.dictionary)).to_numpy()
    bad += [(int(message), unframed(keys[int(message)].as_py())) for message in deletes[codes == len(ids.dictionary)]]
    for code, name in enumerate(ids.dictionary.to_pylist()):
        mask = codes == code
        try:
            schema = record_schema(name, options.registry)
        except ValueError as error:
            bad += [(int(message), str(error)) for message in deletes[mask]]
            continue
        bad += [
            (int(deletes[place]), "its commit-ts is not a TSO")
            for place in np.flatnonzero(mask)
            if stamps[place] < _NONE
        ]
        mask &= stamps >= _NONE
        ts = pa.array(stamps[mask], pa.int64(), mask=stamps[mask] == _NONE)
        yield _lines_of_rows(deletes[mask], schema, stamps[mask], source_position=position_texts(ts).fill_null(""))


def _stamps_of_deletes(values: pa.Array) -> Places:
    """Return the commit-ts in the values of deletes, _NONE in no value, less than that where it is beyond 63 bits."""
    raw = [None if value is None else int.from_bytes(value[1:], "big") for value in values.to_pylist()]
    return np.array([_NONE if ts is None else ts if ts <= _MOST_TSO else _NONE - 1 for ts in raw], np.int64)


_FRAMES = (b"\0", b"\3")
"""First bytes of records from a registry with numbered schemas; no marker begins with them."""
_NO_KEY = (
    "it has no key, as of a table without primary key by TiCDC's new architecture, so that nothing says which row is "
    "deleted. Leave such tables to another changefeed, of another protocol"
)


def _markers(values: pa.Array, places: Places, bad: list[tuple[int, str]]) -> Iterator[Classification]:
    """Yield the lines of messages without key, which TiCDC writes with `avro-enable-watermark`; of others why not."""
    first = pc.binary_slice(values.take(pa.array(places)), 0, 1)
    for message in places[~bits(pc.equal(first, b"\1"))].tolist():
        value = values[message].as_py() or b""
        mark = int.from_bytes(value[1:], "big")
        if value[:1] != b"\2" or len(value) != _MARK_BYTES:
            bad.append(
                (message, _NO_KEY if value[:1] in (b"", *_FRAMES) else "it has no key, and its value is no marker")
            )
        elif mark > _MOST_TSO:
            bad.append((message, f"its commit-ts {mark} is not a TSO"))
        else:
            yield Classification(message, Kind.RESOLVED, commit_ts=mark, source_position=position_text(mark))
    ddl = places[bits(pc.equal(first, b"\1"))]
    for records in parsed_records(pc.binary_slice(values.take(pa.array(ddl)), 1, 1 << 31)):
        texts = [records.column(name) for name in ("schema", "table", "query")]
        (action, numbered), (commit_ts, stamped) = records.whole_numbers("type"), records.tsos("commitTs")
        for column in texts:
            numbered &= column.are(CellKind.TEXT)
        records.require(numbered & (action < _MOST_ACTIONS), "its DDL lacks schema, table, query or type")
        records.require(
            stamped,
            lambda place, records=records: f"its commit-ts {records.shown(place, 'commitTs')} is not a TSO",  # type: ignore[misc]
        )
        bad += [(int(ddl[message]), reason) for _, message, reason in records.refused()]
        for place in np.flatnonzero(records.sound).tolist():
            schema, table, query = (column.texts[place].as_py() for column in texts)
            ts, own = int(commit_ts[place]), {"query": query, "type": int(action[place])}
            message = int(ddl[records.messages[place]])
            yield Classification(
                message, Kind.DDL, TableId(schema, table), None, ts, source_position=position_text(ts), **own
            )


def _bad_lines(
    bad: Sequence[tuple[int, str]], keys: pa.Array, values: pa.Array, options: MessageOptions
) -> Iterator[Classification]:
    """Yield the lines of messages that cannot be read: of the table that the schema of key or value names."""
    places = pa.array([message for message, _ in bad], pa.int64())
    ids = [ids_of_schemas(column.take(places)).to_pylist() for column in (keys, values)]
    for (message, reason), *names in zip(bad, *ids, strict=True):
        tables = (table_named_by(name, options.registry) for name in names)
        table = next((table for table in tables if table is not None), None)
        yield Classification(message, Kind.BAD, table, reason=f"it is not an Avro message: {reason}")


def schema_ids(messages: pa.RecordBatch, options: MessageOptions) -> dict[str, int]:
    """Return the ids of schemas that messages name, each with the first message that does."""
    keys, values = messages.column("key"), unpacked_array(messages.column("value"), options)
    first_messages = dict[str, int]()
    is_marker = pc.and_(pc.is_null(keys), pc.invert(pc.is_in(pc.binary_slice(values, 0, 1), pa.array(_FRAMES))))
    for named in (keys, pc.if_else(is_marker, pa.scalar(None, pa.binary()), values)):
        ids = ids_of_schemas(named).dictionary_encode()
        codes = ids.indices.fill_null(-1).to_numpy()
        for code, message in zip(*(column.tolist() for column in np.unique(codes, return_index=True)), strict=True):
            if code >= 0:
                name = ids.dictionary[code].as_py()
                first_messages[name] = min(message, first_messages.get(name, message))
    return first_messages


# --- rows -------------------------------------------------------------------------------------------------------------


class _AvroSide(NamedTuple):
    """Images of rows: the records and the member in which their columns are; `whole` ones have all columns."""

    records: Records
    path: Path
    whole: bool


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table; an update without an image before it is an INSERT, to be taken by its key.

    A delete without value is a DELETE_KEY, and `_cdc_commit_ts` is null where a message has none. A row that cannot be
    read, or that has a column which the schema lacks, is a Reject with the message's value (a delete's key).
    """
    rows = by_row(rows)
    keys, sent = rows.column("key"), rows.column("value")
    faults = Faults(path, lambda line: sent[line - 1].as_py() or keys[line - 1].as_py() or b"")
    values, fields = unpacked_array(sent, options), {sanitized(column.name) for column in schema.stored}
    deletes = _are_deletes(values)
    images, sides = [_NO_IMAGES], list[_AvroSide]()

    def add(records: Records, made: Images, *of: _AvroSide) -> None:
        faults.add_refused(records, "it is not a row of Avro")
        images.append(made)
        sides.extend(of)

    for _, registered, records in _read(values, ~deletes, options):
        ops = records.column(OP_FIELD)
        is_operation = ~ops.given | ops.are_among(CellKind.TEXT, ("c", "u", "d"))
        records.require(is_operation, lambda place, ops=ops: f'its {OP_FIELD} is "{ops.shown(place)}"')  # type: ignore[misc]
        records.require(~bits(pc.equal(records.column(_CORRUPTED_FIELD).texts, "true")), CORRUPTED)
        gone = ops.equal("d")
        before = records.are_objects(BEFORE) & ~gone
        _require_row(records, registered, table)
        for side in ((), (BEFORE,)):
            _require_columns(records, side, fields, schema)
        stamps, mask = _require_stamps(records), records.sound
        sound = records.among(mask)
        made = row_images(sound.messages + 1, stamps[mask], np.ones(len(sound), bool), before[mask])
        made.ops[: len(sound)][gone[mask]] = Op.DELETE
        add(records, made, _AvroSide(sound, (), True), _AvroSide(sound.among(before[mask]), (BEFORE,), True))
    for _, registered, records in _read(keys, deletes, options):
        _require_row(records, registered, table)
        _require_columns(records, (), fields, schema)
        stamps = _stamps_of_deletes(values.take(pa.array(records.messages)))
        records.require(stamps >= _NONE, "its commit-ts is not a TSO")
        sound = records.among(records.sound)
        some = np.ones(len(sound), bool)
        add(records, row_images(sound.messages + 1, stamps[records.sound], ~some, some), _AvroSide(sound, (), False))
    by_key, key = replace(options, delete_only_output_handle_key_columns=True), schema.exact
    sides = [side for side in sides if len(side.records)]
    cells = {column.name: _cells(sides, column, column.name in key) for column in schema.stored}
    return changes_of(side_by_side(images), lambda column: cells[column.name], schema, by_key, faults)


_NO_IMAGES = row_images(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0, bool))


def _require_row(records: Records, schema: RecordSchema | None, table: TableId) -> None:
    """Refuse records of another table."""
    names = schema.schema_and_table if schema is not None else ("", "")
    own = TableId(*names).folded == TableId(sanitized(table.schema), sanitized(table.table)).folded
    records.require(own, f"it is a row of {'.'.join(names)}, not of {table}")


def _require_columns(records: Records, path: Path, fields: set[str], schema: TableSchema) -> None:
    """Refuse records with columns that the table lacks."""
    for name in records.members(*path):
        if name not in fields and name not in EXTENSION:
            own = next((column.name for column in schema.columns if sanitized(column.name) == name), name)
            reason = unknown_column(schema, own, "the table's schema at this place")
            records.require(records.kinds(*path, name) == CellKind.ABSENT, reason)


def _cells(sides: Sequence[_AvroSide], column: Column, in_key: bool) -> Cells:
    """Return the cells of a column. A row of a schema that has it not was written when the table did not: NULL."""
    name = sanitized(column.name)
    has_column = [name in side.records.members(*side.path) for side in sides]
    strict = in_key or not any(has and side.whole for has, side in zip(has_column, sides, strict=True))
    arrays, absent = [pa.nulls(0)], [np.zeros(0, bool)]
    for has, side in zip(has_column, sides, strict=True):
        array = side.records.array(*side.path, name) if has else pa.nulls(len(side.records))
        arrays.append(_typed(array, column))
        absent.append(np.full(len(array), not has and (strict or not side.whole)))
    lacking = np.concatenate(absent)
    # Columns of several rows stand one after the other: as texts, or bytes, where they are of several types.
    kinds = {array.type for array in arrays if not pa.types.is_null(array.type)}
    if len(kinds) > 1:
        kinds = {pa.binary() if pa.binary() in kinds else pa.string()}
        arrays = [array if array.type in kinds else _texts(array, column) for array in arrays]
    (kind,) = kinds or {pa.string()}
    return Cells(
        pa.concat_arrays([array.cast(kind) for array in arrays]), lacking if lacking.any() else None, named=True
    )


def _typed(array: pa.Array, column: Column) -> pa.Array:
    """Return a column of some rows in the type in which all that is sent so is read."""
    if pa.types.is_null(array.type):
        return array
    if pa.types.is_integer(array.type):
        if column.type not in (*INTEGER, "YEAR"):
            return array.cast(pa.string())
        return array.view(pa.uint64()) if column.unsigned else array
    if pa.types.is_floating(array.type):
        fits = column.type in ("FLOAT", "DOUBLE")
    elif pa.types.is_decimal(array.type):
        fits = column.type == "DECIMAL" and (column.precision or 0) <= _DIGITS and array.type.precision <= _DIGITS
        array = array.cast(pa.decimal128(_DIGITS, array.type.scale)) if fits else array
    else:
        fits = column.type != "BIT"
    return array if fits else _texts(array, column)


def _texts(array: pa.Array, column: Column) -> pa.StringArray:
    if pa.types.is_string(array.type) or pa.types.is_integer(array.type):
        return array.cast(pa.string())
    if pa.types.is_binary(array.type) and column.type != "BIT":
        return array
    return pa.array([None if value is None else _text(value) for value in array.to_pylist()], pa.string())


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return str(int.from_bytes(value, "big"))
    return str(value) if isinstance(value, bool) else format(value, "f")


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the tables in the registered schemas of rows: one for each pair of key and value schema.

    `version` is the least commit-ts of such a row, 0 without the extension.
    """
    least: dict[tuple[str, str], tuple[int, int]] = {}
    keys, values = messages.column("key"), unpacked_array(messages.column("value"), options)
    key_ids = ids_of_schemas(keys)
    for name, _, records in _read(values, bits(pc.is_valid(keys)) & ~_are_deletes(values), options):
        if name is None:
            continue  # classify calls them bad
        stamps = np.maximum(_require_stamps(records), 0)
        ids = key_ids.take(pa.array(records.messages)).dictionary_encode()
        codes = ids.indices.fill_null(-1).to_numpy()
        for code, key_id in enumerate(ids.dictionary.to_pylist()):
            places = np.flatnonzero(records.sound & (codes == code))
            if len(places):
                first = places[np.argmin(stamps[places])]
                row = int(stamps[first]), int(records.messages[first])
                least[key_id, name] = min(row, least.get((key_id, name), row))
    events = list[SchemaEvent]()
    for (key_id, value_id), (version, message) in sorted(least.items(), key=lambda item: item[1][1]):
        try:
            value, key = (record_schema(schema_id, options.registry) for schema_id in (value_id, key_id))
            schema, doubts = table_schema(value, key)
            events.append(SchemaEvent(message, TableId(*value.schema_and_table), version, schema, doubts))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # decode rejects it
    return tuple(events)


# --- a record's schema -> the schema of a table -----------------------------------------------------------------------


OP_FIELD, COMMIT_TS_FIELD, BEFORE = "_tidb_op", "_tidb_commit_ts", "_ticdc_before"
_CORRUPTED_FIELD = "_tidb_corrupted"
EXTENSION = frozenset(
    (
        *(OP_FIELD, COMMIT_TS_FIELD, "_tidb_commit_physical_time", BEFORE),
        *("_tidb_row_level_checksum", _CORRUPTED_FIELD, "_tidb_checksum_version"),
    )
)
"""Fields that are not columns."""
_UNKNOWN_DIGITS = (65, 30)
"""Precision and scale of a DECIMAL that arrives as text."""

_PLAIN: Mapping[str, tuple[str, int | None]] = {
    "TEXT": ("LONGTEXT", 4294967295),
    "BLOB": ("LONGBLOB", 4294967295),
    "DATE": ("DATE", None),
    "JSON": ("JSON", None),
    "FLOAT": ("FLOAT", 12),
    "DOUBLE": ("DOUBLE", 22),
    "TiDBVECTORFloat32": ("VECTOR", None),
}
_DOUBTS = {
    "LONGTEXT": "which text type it is, and its length",
    "LONGBLOB": "which binary type it is, and its length",
    "INT": "which integer of 4 bytes or less it is",
}


def sanitized(name: str) -> str:
    """Return a name as Avro has it."""
    avro_name = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{avro_name}" if avro_name[:1].isdigit() else avro_name


def _columns_of(record: RecordSchema) -> tuple[str, ...]:
    """Return the fields that are columns."""
    return tuple(str(field["name"]) for field in record.fields if field["name"] not in EXTENSION)


def table_schema(value: RecordSchema, key: RecordSchema | None) -> tuple[TableSchema, tuple[str, ...]]:
    """Return the table in a row's schema and its key's, and what is doubtful; raises ValueError."""
    names = _columns_of(key) if key is not None else ()
    fields = (field for field in value.fields if field["name"] not in EXTENSION)
    columns = (_column(str(field["name"]), field["type"], field["name"] in names) for field in fields)
    doubt = "names with other characters than letters, digits and underscores, defaults, collations, virtual columns, "
    doubt += "partitions, and unique keys besides the handle key"
    return shown_schema(columns, names, doubt)


def _column(name: str, declared: Any, in_key: bool) -> tuple[Column, str]:
    kinds = declared if isinstance(declared, list) else [declared]
    nullable = "null" in kinds
    (kind,) = [branch for branch in kinds if branch != "null"]
    parameters = kind.get("connect.parameters") or {} if isinstance(kind, dict) else {}
    type_, unsigned = re.subn(r" UNSIGNED$", "", str(parameters.get("tidb_type") or ""))
    base = kind.get("type") if isinstance(kind, dict) else kind
    shape = _shape(type_, str(base), kind if isinstance(kind, dict) else {}, parameters)
    column = Column(name, nullable=nullable and not in_key, unsigned=bool(unsigned), **shape)
    if type_ in ("DATETIME", "TIMESTAMP", "TIME"):
        return column, f"the fraction digits of {type_}, taken for 6"
    if type_ == "DECIMAL" and base == "string":
        return column, "the digits of DECIMAL, taken for 65 with 30 after the point"
    return column, _DOUBTS.get(column.type, "")


def _shape(kind: str, base: str, declared: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    if kind in _PLAIN:
        name, precision = _PLAIN[kind]
        return {"type": name, "precision": precision}
    if kind in ("INT", "BIGINT"):
        return {"type": kind}
    if kind == "YEAR":
        return {"type": kind, "precision": 4}
    if kind in ("DATETIME", "TIMESTAMP", "TIME"):
        return {"type": kind, "scale": 6}
    if kind == "DECIMAL":
        exact = base == "bytes"
        return {
            "type": kind,
            "precision": int(declared["precision"]) if exact else _UNKNOWN_DIGITS[0],
            "scale": int(declared.get("scale", 0)) if exact else _UNKNOWN_DIGITS[1],
        }
    if kind == "BIT":
        return {"type": kind, "precision": int(parameters["length"])}
    if kind in ("ENUM", "SET"):
        return {"type": kind, "elems": allowed_members(str(parameters.get("allowed", "")))}
    if not kind:
        raise ValueError("it has no tidb_type")
    return {"type": kind}  # the type table refuses it by its name


# --- what a person knows of the table ---------------------------------------------------------------------------------


def as_described(
    shown: TableSchema, doubts: tuple[str, ...], created: TableSchema
) -> tuple[TableSchema, tuple[str, ...]]:
    """Return the table in a row's schema by the names and types of its CREATE TABLE, and what stays doubtful.

    A column that has become another one since is taken as the row shows it.
    """
    described = {sanitized(column.name): column for column in created.stored}
    described_columns, open_doubts = list[Column](), list[str]()
    for column in shown.columns:
        definition = described.get(column.name)
        is_same = definition is not None and _may_be(column, definition)
        name = column.name if definition is None else definition.name
        described_columns.append(definition if definition is not None and is_same else replace(column, name=name))
        open_doubts += [doubt for doubt in doubts if not is_same and doubt.startswith(f'"{column.name}": ')]
    names = {column.name: own.name for column, own in zip(shown.columns, described_columns, strict=True)}
    key = tuple(names[name] for name in shown.key)
    if set(key) == set(created.key):
        whole = tuple(described_columns) == created.stored
        columns = created.columns if whole else tuple(described_columns)
        return replace(created, columns=columns), tuple(open_doubts)
    indexes = tuple(replace(index, columns=tuple(names[name] for name in index.columns)) for index in shown.indexes)
    return replace(shown, columns=tuple(described_columns), key=key, indexes=indexes), tuple(open_doubts)


def _may_be(shown: Column, created: Column) -> bool:
    """Return whether a column of a CREATE TABLE looks like this in a row's schema."""
    if shown.type in ("LONGTEXT", "LONGBLOB"):
        return created.type in (CHARACTER if shown.type == "LONGTEXT" else BINARY)
    if shown.type == "INT":
        return created.type in INTEGER[:-1] and shown.unsigned == created.unsigned
    if shown.type == "DECIMAL":
        digits = shown.precision, shown.scale
        return created.type == "DECIMAL" and digits in (_UNKNOWN_DIGITS, (created.precision, created.scale or 0))
    is_same_type = shown.type == created.type and shown.unsigned == created.unsigned
    return is_same_type and (
        shown.elems == created.elems and (shown.type != "BIT" or shown.precision == created.precision)
    )


CODEC = MessageCodec(
    classify=classify,
    decode=decode,
    schemas=schemas,
    schema_ids=schema_ids,
    whole=whole,
    written=sanitized,
    as_described=as_described,
)
