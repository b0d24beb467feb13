"""A connector's messages -> their payload, as records, and the schema block that they have in common.

    {"schema":{…},"payload":{…}}     with the converter's schemas; the block is the same for all rows of a schema
    {…}                              the payload itself, without

Each message says which of both it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.debezium_json.columns import ConnectorSettings, columns_of
from cdc_assets.formats.json_records import json_records, json_value, print_json
from cdc_assets.formats.records import CellKind, Marks, Path, RecordColumn, Records, bits, explained
from cdc_assets.formats.values.connect import Field
from cdc_assets.types.connect_types import STRUCTURED

__all__ = ["NO_JSON_KEY", "ROUTED", "Envelope", "KeyKind", "MessageKeys", "SchemaBlock", "envelopes", "envelopes_among"]

_TROUBLE = (ValueError, KeyError, TypeError, AttributeError)
"""Exceptions that a malformed schema block raises."""


@dataclass(frozen=True, slots=True)
class SchemaBlock:
    """The columns of a table, in order, none for messages without them; `digest` is equal for equal ones."""

    columns: Mapping[str, Field] = field(default_factory=dict)
    digest: str = ""

    def __bool__(self) -> bool:
        return bool(self.columns)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Messages of one block, whose payloads are below `base`; paths lead on from there."""

    records: Records
    base: Path
    block: SchemaBlock

    def among(self, mask: Marks) -> Envelope:
        """Return some of the messages."""
        return self if mask.all() else replace(self, records=self.records.among(mask))

    @property
    def sound(self) -> Envelope:
        """Mask of the messages that are not refused."""
        return self.among(self.records.sound)

    def by_members(self, *path: str) -> Iterator[tuple[tuple[str, ...], Envelope]]:
        """Yield messages whose objects at a path have the same members, and these."""
        for mask in self.records.by_members(*self.base, *path):
            some = self.among(mask)
            yield some.members(*path), some

    def members(self, *path: str) -> tuple[str, ...]:
        """Return the members of objects at a path."""
        return self.records.members(*self.base, *path)

    def column(self, *path: str) -> RecordColumn:
        """Return the cells at a path."""
        return self.records.column(*self.base, *path)

    def kinds(self, *path: str) -> npt.NDArray[np.uint8]:
        """Return of what kind the cells at a path are."""
        return self.records.kinds(*self.base, *path)

    def are_objects(self, *path: str) -> Marks:
        """Mark the objects at a path."""
        return self.records.are_objects(*self.base, *path)


def envelopes_among(values: pa.BinaryArray, mask: Marks, *, of_keys: bool = False) -> Iterator[Envelope]:
    """Yield some values of messages, or keys, by their blocks."""
    numbers = np.flatnonzero(mask)
    for rows in envelopes(values if mask.all() else values.take(pa.array(numbers)), of_keys=of_keys):
        yield replace(rows, records=rows.records.moved(numbers[rows.records.messages]))


def envelopes(values: pa.BinaryArray, *, of_keys: bool = False) -> Iterator[Envelope]:
    """Yield values of messages, or keys, by their blocks, of no values an envelope of none; refuse other messages."""
    for records in json_records(values, "schema"):
        members = {*records.members()}
        bare = np.full(len(records), "payload" not in members or not members <= {"schema", "payload"})
        if of_keys:  # a table's key may have columns of these names: the converter's schema is an object, or null
            bare |= ~np.isin(records.kinds("schema"), (CellKind.NULL, CellKind.JSON))
        if bare.all():  # of none, too
            yield Envelope(records, (), SchemaBlock())
            continue
        if bare.any():
            yield Envelope(records.among(bare), (), SchemaBlock())
        records = records.among(~bare)
        for mask, text in records.by_value("schema"):
            some, block = records.among(mask), SchemaBlock()
            try:
                block = _block(text, of_keys)
            except _TROUBLE as error:
                some.require(False, f"its schema is none: {explained(error)}")
            yield Envelope(some, ("payload",), block)


# --- schema blocks ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _block(text: str | bytes | None, of_key: bool) -> SchemaBlock:
    """Return the columns that a block describes: of a key all its fields, of a value those of an image."""
    held: Any = None if text is None else json_value(text)
    fields = held.get("fields") or () if isinstance(held, dict) else ()
    for block in [held] if of_key and fields else fields:
        if of_key or (block.get("field") in ("after", "before") and block.get("type") == "struct"):
            columns = {str(column["field"]): _field(column) for column in block["fields"]}
            described = [(name, field.meaning, sorted(field.parameters.items())) for name, field in columns.items()]
            return SchemaBlock(columns, hashlib.blake2b(repr(described).encode(), digest_size=12).hexdigest())
    return SchemaBlock()


_STRUCT_NAME = re.compile(r"(Precision\d+)?(SourceColumn[0-9a-f]+)?$")
"""Suffixes that newer versions add to the names of time structs: the precision and the column."""


def _field(block: Mapping[str, Any]) -> Field:
    items, default = block.get("items"), block.get("default")
    name = str(block.get("name") or "")
    field = Field(
        str(block["type"]),
        _STRUCT_NAME.sub("", name) if name.startswith(STRUCTURED) else name,
        dict(block.get("parameters") or {}),
        bool(block.get("optional")),
        _field(items) if isinstance(items, dict) else None,
        default if default is None or isinstance(default, str) else print_json(default),
    )
    columns_of({"": field}, ConnectorSettings())  # raises where parameters are none of its type
    return field


ROUTED = "__dbz__physicalTableIdentifier"
"""Field that ByLogicalTableRouter adds to keys unless `key.field.name` renames it."""
NO_JSON_KEY = "Let the connector have key.converter = JsonConverter"


class KeyKind(NamedTuple):
    """The columns of keys that are alike, in order: by name the field of the key's schema block, None without one."""

    fields: Mapping[str, Field | None]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.fields)

    def beside(self, columns: Collection[str]) -> dict[str, Field | None]:
        """Return the columns of the key that rows with these columns lack, as where a column list leaves them out."""
        return {name: field for name, field in self.fields.items() if name not in columns}

    def shape(self, columns: Collection[str], text: str) -> str:
        """Return a shape that is equal for rows whose messages describe the columns of this text, and their key."""
        meanings = [[name, field.meaning if field else ""] for name, field in self.beside(columns).items()]
        return _shape_text(text if not meanings else f"{text} {print_json(meanings)}", self.names)


class MessageKeys:
    """The keys of messages, which are read only where they matter."""

    def __init__(self, keys: pa.BinaryArray) -> None:
        self.keys = keys

    @cached_property
    def given(self) -> Marks:
        """Mark the messages that have a key."""
        return bits(pc.fill_null(pc.not_equal(self.keys, b"null"), False))

    @cached_property
    def _read(self) -> tuple[Sequence[KeyKind], npt.NDArray[np.int64], Mapping[int, str]]:
        """Return kinds of keys, of which kind each is, and what is wrong with any.

        A router of topics puts another field into keys, by which rows of several tables differ: it is no column.
        """
        kinds = [KeyKind({})]
        numbers, faults = np.zeros(len(self.keys), np.int64), dict[int, str]()
        for rows in envelopes_among(self.keys, self.given, of_keys=True) if self.given.any() else ():
            for names, some in rows.by_members():
                is_empty = some.kinds() == CellKind.NULL
                some.records.require(is_empty | some.are_objects(), "it is a value alone")
                faults |= {message: f"its key is no object of columns: {reason}. {NO_JSON_KEY}"
                           for _, message, reason in some.records.refused()}  # fmt: skip
                numbers[some.records.messages] = len(kinds)
                kinds.append(KeyKind({name: rows.block.columns.get(name) for name in names if name != ROUTED}))
        return kinds, numbers, faults

    def of(self, rows: Envelope, mask: Marks) -> tuple[Sequence[KeyKind], npt.NDArray[np.int64]]:
        """Return kinds of keys, and of which each row's is; refuse those of a mask whose key cannot be read."""
        kinds, numbers, faults = self._read
        if faults:
            wrong = np.isin(rows.records.messages, list(faults)) & mask
            rows.records.require(~wrong, lambda place: faults[int(rows.records.messages[place])])
        return kinds, numbers[rows.records.messages]

    def column(self, rows: Envelope, name: str) -> RecordColumn:
        """Return a column of the keys of rows, absent where a row has no key with it."""
        own = np.zeros(len(self.keys), bool)
        own[rows.records.messages] = True
        places, parts, count = np.full(len(self.keys), -1), list[RecordColumn](), 0
        for some in envelopes_among(self.keys, own & self.given, of_keys=True) if (own & self.given).any() else ():
            places[some.records.messages] = np.arange(count, count + len(some.records))
            parts.append(some.column(name))
            count += len(some.records)
        cells = RecordColumn.joined([*parts, RecordColumn.absent(1)])
        indexes = places[rows.records.messages] % (count + 1)
        return RecordColumn(cells.kinds[indexes], cells.texts.take(pa.array(indexes)))


@lru_cache(maxsize=1024)
def _shape_text(columns: str, key: tuple[str, ...]) -> str:
    return f"{columns} {print_json(list(key))}"
