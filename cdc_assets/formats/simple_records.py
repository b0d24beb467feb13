"""The Avro encoding of the Simple protocol: bare values of one fixed schema, no registry and no header.

Each message is branch 11 of a union of records. Records are read into dictionaries with the members of the JSON
encoding. Every length and count is compared with what is left of the message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

__all__ = ["AvroReader", "read_head", "read_message"]

_BRANCH = b"\x16"


class AvroReader:
    """A place in bytes of Avro. All methods raise ValueError past their end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        """Return so many bytes."""
        if not 0 <= count <= len(self.data) - self.at:
            raise ValueError(f"a length of {count} is beyond its end")
        self.at += count
        return self.data[self.at - count : self.at]

    def text(self) -> bytes:
        """Return the value of bytes or a string: its length, and as many bytes."""
        return self.take(self.long())

    def long(self) -> int:
        """Return a zig-zag varint of at most 64 bits."""
        data, at = self.data, self.at
        value = shift = 0
        while at < len(data) and shift < 70:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                if value >> 64:
                    break
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise ValueError("a number has no end, or is beyond 64 bits")

    def branch(self, count: int) -> int:
        """Return the number of the branch or symbol that follows, of so many."""
        branch = self.long()
        if not 0 <= branch < count:
            raise ValueError(f"{branch} is not a branch of {count}")
        return branch


_Read = Callable[[AvroReader], Any]


def _string(at: AvroReader) -> str:
    return at.text().decode("utf-8")


def _boolean(at: AvroReader) -> bool:
    return at.take(1) != b"\0"


def _float(at: AvroReader) -> float:
    return float(struct.unpack("<f", at.take(4))[0])


def _double(at: AvroReader) -> float:
    return float(struct.unpack("<d", at.take(8))[0])


def _null(at: AvroReader) -> None:
    return None


_long: _Read = AvroReader.long
_bytes: _Read = AvroReader.text


def _enum(*symbols: str) -> _Read:
    return lambda at: symbols[at.branch(len(symbols))]


def _union(*branches: _Read) -> _Read:
    return lambda at: branches[at.branch(len(branches))](at)


def _record(**fields: _Read) -> _Read:
    members = tuple(fields.items())
    return lambda at: {name: read(at) for name, read in members}


def _blocks(at: AvroReader) -> int:
    """Read the number of items of a block of an array or a map; 0 ends it."""
    count = at.long()
    if count < 0:
        count = -count
        at.long()
    if count > len(at.data) - at.at:
        raise ValueError(f"a count of {count} is beyond its end")
    return count


def _array(item: _Read) -> _Read:
    def read(at: AvroReader) -> list[Any]:
        items: list[Any] = []
        while count := _blocks(at):
            items += [item(at) for _ in range(count)]
        return items

    return read


def _map(item: _Read) -> _Read:
    def read(at: AvroReader) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while count := _blocks(at):
            for _ in range(count):
                name = _string(at)
                if name in members:
                    raise ValueError(f'the column "{name}" appears twice')
                members[name] = item(at)
        return members

    return read


def _unsigned(at: AvroReader) -> int:
    return at.long() & ((1 << 64) - 1)


_DATA_TYPE = _record(
    mysqlType=_string,
    charset=_string,
    collate=_string,
    length=_long,
    decimal=_union(_null, _long),
    elements=_union(_null, _array(_string)),
    unsigned=_union(_null, _boolean),
    zerofill=_union(_null, _boolean),
)
_STATED = _record(name=_string, dataType=_DATA_TYPE, nullable=_boolean, default=_union(_null, _bytes))


def _column(at: AvroReader) -> dict[str, Any]:
    """Read a column, with its default as JSON has it: of BIT a number, and no bytes that are not UTF-8."""
    column: dict[str, Any] = _STATED(at)
    if column["default"] is not None:
        is_bit = column["dataType"]["mysqlType"].lower() == "bit"
        default = column["default"]
        column["default"] = int.from_bytes(default, "big") if is_bit else default.decode("utf-8", "replace")
    return column


_INDEX = _record(name=_string, unique=_boolean, primary=_boolean, nullable=_boolean, columns=_array(_string))
_TABLE = _record(
    database=_string, table=_string, tableID=_long, version=_long, columns=_array(_column), indexes=_array(_INDEX)
)
_CHECKSUM = _record(version=_long, corrupted=_boolean, current=_long, previous=_long)
_WATERMARK = _record(version=_long, commitTs=_long, buildTs=_long)
_BOOTSTRAP = _record(version=_long, buildTs=_long, tableSchema=_TABLE)
_DDL = _record(
    version=_long,
    type=_enum("CREATE", "ALTER", "ERASE", "RENAME", "TRUNCATE", "CINDEX", "DINDEX", "QUERY"),
    sql=_string,
    commitTs=_long,
    buildTs=_long,
    tableSchema=_union(_null, _TABLE),
    preTableSchema=_union(_null, _TABLE),
)
_HEAD = _record(
    version=_long,
    database=_string,
    table=_string,
    tableID=_long,
    type=_enum("INSERT", "UPDATE", "DELETE"),
    commitTs=_long,
    buildTs=_long,
    schemaVersion=_long,
    claimCheckLocation=_union(_null, _string),
    handleKeyOnly=_union(_null, _boolean),
)
_TIMESTAMP = _record(location=_string, value=_string)
_VALUES = _union(_null, _map(_union(_null, _long, _float, _double, _string, _bytes, _TIMESTAMP, _unsigned)))
_REST = _record(checksum=_union(_null, _CHECKSUM), data=_VALUES, old=_VALUES)

_KINDS = ("WATERMARK", "BOOTSTRAP", "DDL", "DML")
_PAYLOADS = (_WATERMARK, _BOOTSTRAP, _DDL, _HEAD)


def read_head(value: bytes) -> dict[str, Any]:
    """Return a message as the JSON encoding has it, a row without its columns. Raises ValueError."""
    return _read(value, with_columns=False)


def read_message(value: bytes) -> dict[str, Any]:
    """Return a message as the JSON encoding has it; columns are numbers, texts, bytes or locations with times."""
    return _read(value, with_columns=True)


def _read(value: bytes, *, with_columns: bool) -> dict[str, Any]:
    at = AvroReader(value)
    if at.take(1) != _BRANCH:
        raise ValueError("it does not begin with the branch of a message")
    kind, payload = at.branch(len(_KINDS)), at.branch(len(_PAYLOADS))
    if kind != payload:
        raise ValueError("its type is not that of its payload")
    message: dict[str, Any] = _PAYLOADS[payload](at)
    if payload == _KINDS.index("DML"):
        if not with_columns:
            return message
        message |= _REST(at)
    if at.at != len(value):
        raise ValueError("it has trailing bytes")
    return {"type": _KINDS[kind], "commitTs": 0, **message}
