"""Avro messages -> Records: those of one registered schema are read side by side, the rest by fastavro, into the same.

    00 id(4, big-endian) record            Confluent's framing; the id is a number
    01 uuid(16) record                     Confluent's too; the id is the schema's GUID
    03 00 uuid(16) record                  AWS Glue's; the id is a UUID

What TiCDC's records are made of is read a field at a time of all of them:

    field   : (branch, 00 or 02)? value      the branch where the field may be null, in either order
    long    : zig-zag varint                 int alike
    string  : length as a long, its bytes    bytes alike; a decimal's are its unscaled digits, big-endian
    double  : eight bytes, little-endian     float: four

A schema with anything else has no plan, and a record that does not end where its bytes do is not sound: fastavro reads
those, and says what is wrong with them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException

from cdc_assets.formats.json_records import parsed_records
from cdc_assets.formats.records import CellKind, Kinds, Marks, RecordColumn, Records, bits, bounds
from cdc_assets.formats.servers import avro_reason
from cdc_assets.formats.words import pieces, signed, varints
from cdc_assets.model.schema import TableId

__all__ = [
    "AvroRecords",
    "RecordSchema",
    "SchemaRecords",
    "avro_records",
    "ids_of_schemas",
    "record_schema",
    "table_named_by",
    "unframed",
]

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

_FEW = 16
"""Fewer messages of a schema are read one by one."""
_ID_HEAD, _GUID_HEAD, _GLUE_HEAD, _UUID_BYTES = 5, 17, 18, 16
_NUMBERS = ("int", "long")
_TEXTS = ("string", "bytes")
_FLOATS: Mapping[str, tuple[str, int]] = {"float": ("<f4", 4), "double": ("<f8", 8)}
_DECIMAL_BYTES = 16
_DIGITS = 38
_BEYOND = 32
"""Bytes that may be read beyond the end of the last record."""
_TROUBLE = (
    *(ValueError, EOFError, IndexError, KeyError, TypeError, ArithmeticError, StopIteration, AttributeError),
    *(RecursionError, MemoryError, UnicodeError, SchemaParseException, SchemaResolutionError),
)
"""Exceptions that a schema or a record of other make may raise in fastavro."""


class SchemaRecords(NamedTuple):
    """Records of one registered schema; no `schema` where the registry has none that can be read, or they name none."""

    id: str | None
    schema: RecordSchema | None
    records: Records


def avro_records(values: pa.BinaryArray, registry: Mapping[str, str]) -> Iterator[SchemaRecords]:
    """Yield all messages as records by the schema that each names; `registry` has the text of a schema by its id."""
    framed = _framed(values)
    for number in range(-1, len(framed.names)):
        chosen = np.flatnonzero(framed.numbers == number)
        if not len(chosen):
            continue
        if number < 0:
            for records in parsed_records(values.take(pa.array(chosen)), _refuse_unframed):
                yield SchemaRecords(None, None, records.moved(chosen[records.messages]))
            continue
        name, schema = framed.names[number], _schema_or_none(framed.names[number], registry)
        if schema is not None and schema.plan is not None and len(chosen) >= _FEW:
            plan_records = _side_by_side(framed, chosen, schema.plan)
            if len(plan_records):
                yield SchemaRecords(name, schema, plan_records)
                chosen = np.setdiff1d(chosen, plan_records.messages, assume_unique=True)
        payloads = pieces(pa.py_buffer(framed.data), framed.starts[chosen], framed.stops[chosen])
        for records in parsed_records(payloads, _reader_of(name, registry)) if len(chosen) else ():
            yield SchemaRecords(name, schema, records.moved(chosen[records.messages]))


# --- framing ----------------------------------------------------------------------------------------------------------


class _Framing(NamedTuple):
    """Bounds of the records in `data`, and the index of each record's schema id in `names`, -1 for none."""

    data: Bytes
    starts: Places
    stops: Places
    numbers: Places
    names: Sequence[str]


def _framed(values: pa.BinaryArray) -> _Framing:
    data, starts, stops = _body_of(values)
    numbers, names, sizes = np.full(len(starts), -1), list[str](), stops - starts
    records, first, second = starts.copy(), data[starts], data[starts + 1]
    numbered = np.flatnonzero((first == 0) & (sizes >= _ID_HEAD))
    if len(numbered):
        ids = np.zeros(len(numbered), np.int64)
        for byte in range(1, _ID_HEAD):
            ids = ids << 8 | data[starts[numbered] + byte]
        distinct_ids, schema_index = (ids[:1], 0) if (ids == ids[0]).all() else np.unique(ids, return_inverse=True)
        numbers[numbered], records[numbered] = schema_index, starts[numbered] + _ID_HEAD
        names += map(str, distinct_ids.tolist())
    for head, mask in ((_GUID_HEAD, first == 1), (_GLUE_HEAD, (first == 3) & (second == 0))):
        messages = np.flatnonzero(mask & (sizes >= head))
        for message in messages.tolist():
            begin = int(starts[message]) + head
            name = str(UUID(bytes=data[begin - _UUID_BYTES : begin].tobytes()))
            if name not in names:
                names.append(name)
            numbers[message], records[message] = names.index(name), begin
    return _Framing(data, records, stops, numbers, names)


def _body_of(values: pa.BinaryArray) -> tuple[Bytes, Places, Places]:
    """Return the bytes of values one after the other, and where each begins and ends; a null is empty.

    _BEYOND zeros follow, which may be looked at.
    """
    starts, stops = bounds(values)
    first, last = (int(starts[0]), int(stops[-1])) if len(values) else (0, 0)
    data = np.zeros(last - first + _BEYOND, np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(values.buffers()[2], np.uint8)[first:last]
    starts, stops = starts - first, stops - first
    return data, starts, np.where(bits(values.is_valid()), stops, starts) if values.null_count else stops


def ids_of_schemas(values: pa.BinaryArray) -> pa.StringArray:
    """Return the id of the schema that each value names, null for one without framing."""
    framed = _framed(values)
    return pa.array(framed.names, pa.string()).take(pa.array(framed.numbers, mask=framed.numbers < 0))


def unframed(data: bytes) -> str:
    """Return the sentence on a value without framing."""
    return f"it begins with {data[:5].hex(' ') or 'nothing'}, which is not the framing of a schema registry"


def _refuse_unframed(data: bytes) -> Any:
    raise ValueError(unframed(data))


# --- schemas ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field: its type, which branch of a union is null (None for no union), the scale of a decimal (None else)."""

    name: str
    type: str
    null: int | None = None
    scale: int | None = None


@dataclass(frozen=True)
class RecordSchema:
    """A schema of the registry: its JSON, the same as fastavro reads by it, and as many records are read at once."""

    document: Mapping[str, Any]
    parsed: Any
    plan: tuple[AvroField, ...] | None

    @property
    def schema_and_table(self) -> tuple[str, str]:
        """The sanitized names of database and table: the record's, whose namespace begins with the changefeed's."""
        return _names_of(self.document)

    @property
    def fields(self) -> tuple[Mapping[str, Any], ...]:
        """The fields, in order."""
        return tuple(self.document["fields"])


def record_schema(schema_id: str, registry: Mapping[str, str]) -> RecordSchema:
    """Return a schema by its id; raises ValueError where the registry does not have it, or it is not a record."""
    text = registry.get(schema_id)
    if text is None:
        raise ValueError(f"the schema registry has no schema {schema_id}")
    return _parsed_schema(text)


def _schema_or_none(schema_id: str, registry: Mapping[str, str]) -> RecordSchema | None:
    try:
        return record_schema(schema_id, registry)
    except ValueError:
        return None


@lru_cache(maxsize=4096)  # by text: key and value records of a table have one name and different fields
def _parsed_schema(text: str) -> RecordSchema:
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("type") != "record":
            raise ValueError("it is not a record")
        if str(document.get("connect.name", "")).endswith((".Envelope", ".Key", ".Value")):
            raise ValueError(avro_reason(text.encode()))
        # TiCDC's defaults are not values of their types: base64 for bytes, whole numbers and texts for doubles. Without
        # the hint that it was parsed a schema is parsed again where it is used, and its defaults are checked there.
        parsed = fastavro.parse_schema(document, named_schemas={}, _write_hint=True, _ignore_default_error=True)
        if not all(_names_of(document)):
            raise ValueError("its name and namespace do not name a database and a table")
        return RecordSchema(document, parsed, _plan_of(document))
    except _TROUBLE as error:
        raise ValueError(f"a schema of the registry cannot be read: {str(error)[:200]}") from None


def _names_of(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the sanitized names of database and table in a record's schema, "" for one that it does not name."""
    space, name = document.get("namespace"), document.get("name")
    full = str(name or "")
    if space and "." not in full:
        full = f"{space}.{full}"
    space_name, _, table = full.rpartition(".")
    return space_name.rpartition(".")[2], table


def table_named_by(schema_id: str | None, registry: Mapping[str, str]) -> TableId | None:
    """Return the table that a schema names, whether or not it can be read; None where it names none."""
    try:
        document = json.loads(registry.get(schema_id or "") or "null")
        names = _names_of(document)
    except (ValueError, AttributeError, RecursionError):
        return None
    return TableId(*names) if all(names) else None


def _plan_of(document: Mapping[str, Any]) -> tuple[AvroField, ...] | None:
    """Return the fields of a record's schema in order, None where one is of another kind than those above."""
    fields = [_field(declaration) for declaration in document["fields"]]
    return None if None in fields else tuple(field for field in fields if field is not None)


def _field(declared: Mapping[str, Any]) -> AvroField | None:
    kind, null = declared["type"], None
    if isinstance(kind, list):
        if len(kind) != 2 or kind.count("null") != 1:
            return None
        null = kind.index("null")
        kind = kind[1 - null]
    bare = kind if isinstance(kind, dict) else {"type": kind}
    base, logical = bare.get("type"), bare.get("logicalType")
    if base not in (*_NUMBERS, *_TEXTS, *_FLOATS) or (logical is not None and (base, logical) != ("bytes", "decimal")):
        return None
    return AvroField(str(declared["name"]), str(base), null, int(bare.get("scale", 0)) if logical else None)


# --- one by one -------------------------------------------------------------------------------------------------------

_KNOWN = frozenset((type(None), bool, int, float, str, bytes, Decimal, dict, list))


def _reader_of(schema_id: str, registry: Mapping[str, str]) -> Callable[[bytes], Any]:
    """Return the reader of a record of a schema; it raises ValueError for bytes that are none, or more than it."""

    def read(payload: bytes) -> Any:
        schema, source = record_schema(schema_id, registry), io.BytesIO(payload)
        try:
            record: Any = fastavro.schemaless_reader(source, schema.parsed, None)
        except _TROUBLE as error:
            reason = "its bytes end too early" if isinstance(error, EOFError) else str(error) or type(error).__name__
            raise ValueError(f"it is not a record of schema {schema_id}: {reason[:200]}") from None
        if source.tell() != len(payload):
            raise ValueError(f"it has {len(payload) - source.tell()} bytes more than a record of schema {schema_id}")
        _refuse_strange(record)
        return record

    return read


def _refuse_strange(record: Mapping[str, Any]) -> None:
    """Raise ValueError for a value of a logical type that TiCDC does not write."""
    for held in record.values():
        if type(held) not in _KNOWN:
            raise ValueError(f"it holds a {type(held).__name__}, which no record of TiCDC does")
        if type(held) is dict:
            _refuse_strange(held)


# --- side by side -----------------------------------------------------------------------------------------------------


class AvroRecords(Records):
    """Records of one schema that were read side by side; `rows` are their places among `columns`."""

    def __init__(self, columns: _FieldColumns, rows: Places, messages: Places) -> None:
        super().__init__(messages)
        self._columns, self._rows = columns, rows
        self._arrays = dict[str, pa.Array]()

    def _some(self, mask: Marks) -> AvroRecords:
        return AvroRecords(self._columns, self._rows[mask], self.messages[mask])

    def _field(self, path: tuple[str | int, ...]) -> AvroField | None:
        return self._columns.fields.get(str(path[0])) if len(path) == 1 else None

    def members(self, *path: str | int) -> tuple[str, ...]:
        return () if path else tuple(self._columns.fields)

    def kinds(self, *path: str | int) -> Kinds:
        field = self._field(path)
        if field is None:
            return np.full(len(self), CellKind.JSON if not path else CellKind.ABSENT, np.uint8)
        kind = CellKind.TEXT if field.type in _TEXTS and field.scale is None else CellKind.NUMBER
        nulls = self._columns.held[field.name][2]
        cell_kinds = np.full(len(self), kind, np.uint8)
        return cell_kinds if nulls is None else np.where(nulls[self._rows], np.uint8(CellKind.NULL), cell_kinds)

    def array(self, *path: str | int) -> pa.Array:
        field = self._field(path)
        if field is None:
            return pa.nulls(len(self))
        if field.name not in self._arrays:
            self._arrays[field.name] = self._columns.array(field.name, self._rows)
        return self._arrays[field.name]

    def column(self, *path: str | int) -> RecordColumn:
        array = self.array(*path)
        if pa.types.is_decimal(array.type):
            array = pa.array(
                [None if number is None else format(number, "f") for number in array.to_pylist()], pa.string()
            )
        return RecordColumn(self.kinds(*path), array if pa.types.is_binary(array.type) else array.cast(pa.string()))

    def by_members(self, *path: str | int) -> Iterator[Marks]:
        yield np.ones(len(self), bool)

    def lengths(self, *path: str | int) -> Places:
        return np.full(len(self), -1)

    def are_objects(self, *path: str | int) -> Marks:
        return np.full(len(self), not path)

    def whole_numbers(self, *path: str | int) -> tuple[npt.NDArray[np.uint64], Marks]:
        field = self._field(path)
        if field is None or field.type not in _NUMBERS:
            return np.zeros(len(self), np.uint64), np.zeros(len(self), bool)
        values, _, nulls = self._columns.held[field.name]
        whole = values[self._rows] >= 0
        return values[self._rows].view(np.uint64), whole if nulls is None else whole & ~nulls[self._rows]

    def readable(self) -> Marks:
        """Mark records whose texts are UTF-8, and whose decimals have 38 digits at the most."""
        marks = np.ones(len(self), bool)
        for field in self._columns.fields.values():
            if field.type == "string" or field.scale is not None:
                try:
                    self.array(field.name)
                except ValueError:
                    marks &= [self._is_readable(field.name, row) for row in self._rows.tolist()]
        return marks

    def _is_readable(self, name: str, row: int) -> bool:
        try:
            self._columns.array(name, np.array([row]))
        except ValueError:
            return False
        return True


def _side_by_side(framed: _Framing, chosen: Places, plan: Sequence[AvroField]) -> AvroRecords:
    """Return those of some messages that are records of a plan, in UTF-8."""
    reader = _FieldReader(framed.data, framed.starts[chosen], framed.stops[chosen])
    held = {field.name: reader.field(field) for field in plan}
    rows = np.flatnonzero(reader.sound & (reader.at == reader.stops))
    records = AvroRecords(_FieldColumns({field.name: field for field in plan}, framed.data, held), rows, chosen[rows])
    return records.among(records.readable())


@dataclass(frozen=True, slots=True)
class _FieldColumns:
    """Fields of many records: their values, or where their texts begin, where texts end, and which are null."""

    fields: Mapping[str, AvroField]
    data: Bytes
    held: Mapping[str, tuple[Places, Places, Marks | None]]

    def array(self, name: str, chosen: Places) -> pa.Array:
        """Return a field of some records: int64, float64, string, binary, or a decimal of 38 digits.

        Raises ValueError for texts that are not UTF-8 and decimals beyond 38 digits.
        """
        field = self.fields[name]
        values, ends, nulls = self.held[name]
        mask = None if nulls is None else nulls[chosen]
        if field.type in _NUMBERS:
            return pa.array(values[chosen], pa.int64(), mask=mask)
        if field.type in _FLOATS:
            return pa.array(values.view(np.float64)[chosen], pa.float64(), mask=mask)
        if field.scale is not None:
            return _decimals(self.data, values[chosen], ends[chosen], field.scale, mask)
        texts = pieces(pa.py_buffer(self.data), values[chosen], ends[chosen])
        if field.type == "string":
            texts = texts.cast(pa.string())
        return texts if mask is None or not mask.any() else _nulled(texts, mask)


def _nulled(array: pa.Array, mask: Marks) -> pa.Array:
    """Put nulls in place of values that are empty."""
    _, offsets, data = array.buffers()
    valid = pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [valid, offsets, data])


class _FieldReader:
    """Goes through all records side by side: `at` is where each of them is."""

    def __init__(self, data: Bytes, at: Places, stops: Places) -> None:
        self.data, self.at, self.stops = data, at, stops
        self.sound: Marks = np.ones(len(at), bool)
        self._all = np.arange(len(at))

    def field(self, field: AvroField) -> tuple[Places, Places, Marks | None]:
        """Return values (or where texts begin), where texts end, and which are null; step behind the field."""
        nulls = None
        if field.null is not None:
            branch = self.data[self.at]
            self.sound &= (branch == 0) | (branch == 2)
            nulls = branch == 2 * field.null
            self._step(np.ones(len(self.at), np.int64))
        rows = self._all if nulls is None or not nulls.any() else np.flatnonzero(~nulls)
        values = np.zeros(len(self.at), np.int64)
        if field.type in _FLOATS:
            kind, size = _FLOATS[field.type]
            words = np.ndarray((len(self.data) - size + 1,), kind, self.data, strides=(1,))
            values[rows] = words[self.at[rows]].astype(np.float64).view(np.int64)
            self._step(np.where(nulls, 0, size) if nulls is not None else np.full(len(values), size))
            return values, values, nulls
        values[rows] = self._long(rows)
        if field.type in _NUMBERS:
            if field.type == "int":
                self.sound &= (values >= -(1 << 31)) & (values < 1 << 31)
            return values, values, nulls
        self.sound &= values >= 0
        starts = self.at.copy()
        self._step(np.maximum(values, 0))
        return starts, self.at.copy(), nulls

    def _step(self, sizes: Places) -> None:
        rest = self.stops - self.at
        self.sound &= sizes <= rest
        self.at += np.minimum(sizes, rest)

    def _long(self, rows: Places) -> Places:
        """Read a varint of some records."""
        at = self.at[rows]
        numbers, sizes, sound = varints(self.data, at)
        rest = self.stops[rows] - at
        self.sound[rows] &= sound & (sizes <= rest)
        self.at[rows] = at + np.minimum(sizes, rest)
        return signed(numbers)


def _decimals(data: Bytes, starts: Places, ends: Places, scale: int, mask: Marks | None) -> pa.Array:
    """Return big-endian numbers of two's complement as decimals; raises ValueError for one beyond 38 digits."""
    sizes = ends - starts
    if (sizes > _DECIMAL_BYTES).any():
        raise ValueError("a decimal of more than 16 bytes")
    places = ends[:, None] - 1 - np.arange(_DECIMAL_BYTES)  # the last byte first: little-endian
    sign = np.where((sizes > 0) & (data[np.minimum(starts, len(data) - 1)] >= 0x80), 0xFF, 0).astype(np.uint8)
    digits = np.where(places >= starts[:, None], data[np.maximum(places, 0)], sign[:, None])
    valid = None if mask is None or not mask.any() else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    body = pa.py_buffer(np.ascontiguousarray(digits))
    decimals = pa.Array.from_buffers(pa.decimal128(_DIGITS, scale), len(starts), [valid, body])
    try:
        decimals.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ValueError(str(error)) from None
    return decimals
