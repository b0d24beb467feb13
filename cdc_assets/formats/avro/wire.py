"""Bytes of a key or value -> what they are: a record with its registered schema, or a marker of TiCDC's.

    00 id(4, big-endian) record            Confluent's framing; the id is a number
    03 00 uuid(16) record                  AWS Glue's; the id is a UUID
    01 JSON, 02 ts(8), 03 ts(8)            markers: a DDL, a watermark, a delete with its commit-ts (new architecture)

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
from fastavro.schema import SchemaParseException

from cdc_assets.formats.avro.columns import Field, plan_of
from cdc_assets.formats.message_options import MessageOptions

__all__ = ["DELETE_MARK", "Framed", "Registered", "framed", "read_record", "registered", "sanitized"]

DELETE_MARK = 9
"""Bytes of a delete marker: 03 and a commit-ts."""

_TROUBLE = (ValueError, EOFError, IndexError, KeyError, TypeError, ArithmeticError, StopIteration, AttributeError)


@dataclass(frozen=True)
class Registered:
    """A schema of the registry: its JSON, the same as fastavro reads by it, and as many records are read at once."""

    document: Mapping[str, Any]
    parsed: Any
    plan: tuple[Field, ...] | None

    @property
    def schema_and_table(self) -> tuple[str, str]:
        """The sanitized names of database and table: the record's, whose namespace begins with the changefeed's."""
        space, name = str(self.document.get("namespace") or ""), str(self.document["name"])
        full = f"{space}.{name}" if space and "." not in name else name
        left, _, table = full.rpartition(".")
        return left.rpartition(".")[2], table

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
    if data[:1] == b"\0" and len(data) >= 5:
        return Framed(str(int.from_bytes(data[1:5], "big")), data[5:])
    if data[:2] == b"\3\0" and len(data) >= 18:
        return Framed(str(UUID(bytes=data[2:18])), data[18:])
    raise ValueError(f"it begins with {data[:5].hex(' ') or 'nothing'}, which is not the framing of a schema registry")


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
        # TiCDC's defaults are not values of their types: base64 for bytes, texts for numbers
        parsed = fastavro.parse_schema(document, named_schemas={}, _write_hint=False, _ignore_default_error=True)
        return Registered(document, parsed, plan_of(document))
    except (*_TROUBLE, SchemaParseException) as error:
        raise ValueError(f"a schema of the registry cannot be read: {str(error)[:200]}") from None


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
