"""Bytes of a key or value -> what they are: a record with its registered schema, or a marker of TiCDC's.

    00 id(4, big-endian) record            Confluent's framing; the id is a number
    01 uuid(16) record                     Confluent's too; the id is the schema's GUID
    03 00 uuid(16) record                  AWS Glue's; the id is a UUID
    01 JSON, 02 ts(8), 03 ts(8)            markers: a DDL, a watermark, a delete with its commit-ts (new architecture)

Where Confluent's serializers put the id into a header, the record stands bare: `whole` puts it in front again. Only a
message without key is a marker of the first two kinds.

Names are sanitized: what is not a letter, digit or underscore is an underscore, and a leading digit gets one before it.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException

from cdc_assets.formats.avro.columns import Field, plan_of
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.model.schema import TableId

__all__ = [
    "DELETE_MARK",
    "Framed",
    "Registered",
    "framed",
    "read_record",
    "registered",
    "sanitized",
    "table_named_by",
    "whole",
]

DELETE_MARK = 9
"""Bytes of a delete marker: 03 and a commit-ts."""

_ID_HEAD, _GUID_HEAD = 5, 17
_HEADERS = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""What an id stands for -> the header that has it (Confluent's `HeaderSchemaIdSerializer`)."""

_TROUBLE = (
    *(ValueError, EOFError, IndexError, KeyError, TypeError, ArithmeticError, StopIteration, AttributeError),
    *(RecursionError, MemoryError, UnicodeError, SchemaParseException, SchemaResolutionError),
)
"""Exceptions that a schema or a record of other make may raise in fastavro."""


@dataclass(frozen=True)
class Registered:
    """A schema of the registry: its JSON, the same as fastavro reads by it, and as many records are read at once."""

    document: Mapping[str, Any]
    parsed: Any
    plan: tuple[Field, ...] | None

    @property
    def schema_and_table(self) -> tuple[str, str]:
        """The sanitized names of database and table: the record's, whose namespace begins with the changefeed's."""
        return _names_of(self.document)

    @property
    def fields(self) -> tuple[Mapping[str, Any], ...]:
        """The fields, in order."""
        return tuple(self.document["fields"])


@dataclass(frozen=True, slots=True)
class Framed:
    """The id of a registered schema, and the record's bytes."""

    id: str
    payload: bytes


def framed(data: bytes) -> Framed:
    """Cut the framing off; raises ValueError for bytes without one."""
    if data[:1] == b"\0" and len(data) >= _ID_HEAD:
        return Framed(str(int.from_bytes(data[1:_ID_HEAD], "big")), data[_ID_HEAD:])
    if data[:1] == b"\1" and len(data) >= _GUID_HEAD:
        return Framed(str(UUID(bytes=data[1:_GUID_HEAD])), data[_GUID_HEAD:])
    if data[:2] == b"\3\0" and len(data) >= 18:
        return Framed(str(UUID(bytes=data[2:18])), data[18:])
    raise ValueError(f"it begins with {data[:5].hex(' ') or 'nothing'}, which is not the framing of a schema registry")


def whole(messages: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages with the ids of their schemas in front of keys and values, where headers have them."""
    headers = messages.column("headers")
    if headers.null_count == len(headers) or not len(pc.list_flatten(headers)):
        return messages
    held = headers.to_pylist()
    for column, name in _HEADERS.items():
        ids = [_id_in(one, name) for one in held]
        if any(ids):
            bare = messages.column(column).to_pylist()
            framed_ = [one if one is None else head + one for head, one in zip(ids, bare, strict=True)]
            place = messages.schema.get_field_index(column)
            messages = messages.set_column(place, messages.schema.field(place), pa.array(framed_, pa.binary()))
    return messages


def _id_in(headers: list[dict[str, Any]] | None, name: str) -> bytes:
    """Return the id that headers have, as it stands in front of a record; the first of that name counts."""
    value = next((one["value"] for one in headers or () if one["name"] == name), None) or b""
    fits = (value[:1], len(value)) in ((b"\0", _ID_HEAD), (b"\1", _GUID_HEAD))
    return value if fits else b""


def registered(schema_id: str, options: MessageOptions) -> Registered:
    """Return a schema by its id; raises ValueError where the registry does not have it, or it is not a record."""
    text = options.registry.get(schema_id)
    if text is None:
        raise ValueError(f"the schema registry has no schema {schema_id}")
    return _parsed(text)


@lru_cache(maxsize=4096)  # by text: key and value records of a table have one name and different fields
def _parsed(text: str) -> Registered:
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("type") != "record":
            raise ValueError("it is not a record")
        # TiCDC's defaults are not values of their types: base64 for bytes, whole numbers and texts for doubles. Without
        # the hint that it was parsed a schema is parsed again where it is used, and its defaults are checked there.
        parsed = fastavro.parse_schema(document, named_schemas={}, _write_hint=True, _ignore_default_error=True)
        if not all(_names_of(document)):
            raise ValueError("its name and namespace do not name a database and a table")
        return Registered(document, parsed, plan_of(document))
    except _TROUBLE as error:
        raise ValueError(f"a schema of the registry cannot be read: {str(error)[:200]}") from None


def _names_of(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the sanitized names of database and table in a record's schema, "" for one that it does not name."""
    space, name = document.get("namespace"), document.get("name")
    full = str(name or "")
    if space and "." not in full:
        full = f"{space}.{full}"
    left, _, table = full.rpartition(".")
    return left.rpartition(".")[2], table


def table_named_by(schema_id: str, options: MessageOptions) -> TableId | None:
    """Return the table that a schema names, whether or not it can be read; None where it names none."""
    try:
        document = json.loads(options.registry.get(schema_id) or "null")
        names = _names_of(document)
    except (ValueError, AttributeError, RecursionError):
        return None
    return TableId(*names) if all(names) else None


def read_record(data: Framed, options: MessageOptions) -> tuple[Registered, dict[str, Any]]:
    """Return a record and its schema; raises ValueError for bytes that are not such a record, or more than it."""
    schema = registered(data.id, options)
    source = io.BytesIO(data.payload)
    try:
        record = fastavro.schemaless_reader(source, schema.parsed, None)
    except _TROUBLE as error:
        raise ValueError(
            f"it is not a record of schema {data.id}: {str(error)[:200] or type(error).__name__}"
        ) from None
    if source.tell() != len(data.payload) or not isinstance(record, dict):
        raise ValueError(f"it has {len(data.payload) - source.tell()} bytes more than a record of schema {data.id}")
    return schema, record


def sanitized(name: str) -> str:
    """Return a name as Avro has it."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{found}" if found[:1].isdigit() else found
