"""The value of an added column in rows from before its ADD COLUMN.

`ColumnDefault` of the ADD's own schema file is right for all types but BIT and binary ones, whose bytes JSON destroyed:
those are read from the text. TIMESTAMP defaults are UTC in `ColumnDefault`, in the session's zone in the text.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from cdc_assets.errors import MalformedData
from cdc_assets.model.schema import Column, Default
from cdc_assets.model.tso import Tso, wall_clock_ms
from cdc_assets.types.mysql_types import default_text, defaults_to_now, implicit_default

__all__ = ["NoDefault", "added_default", "stored_default"]

_BINARY = ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")


class NoDefault(Exception):
    """The value that old rows have cannot be known."""


def stored_default(column: Column, text: Default | None) -> object:
    """Return `ColumnDefault`, or the BIT and binary default as the text gives it: a decimal number, or bytes."""
    if text is None or text.kind not in ("bits", "hex", "number", "string"):
        return column.default
    if column.type == "BIT":
        return int.from_bytes(_bytes(text), "big") if text.kind != "number" else int(text.text)
    if column.type in _BINARY and (text.kind in ("bits", "hex") or "\ufffd" in str(column.default)):
        return _plain(_bytes(text))
    return column.default


def _plain(raw: bytes) -> str | bytes:
    """Bytes that JSON could have carried stay a string, as `ColumnDefault` has it."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _bytes(text: Default) -> bytes:
    if text.kind == "bits":
        return int(text.text or "0", 2).to_bytes((len(text.text) + 7) // 8, "big")
    if text.kind == "hex":
        return bytes.fromhex(text.text if len(text.text) % 2 == 0 else "0" + text.text)
    return text.text.encode()


def added_default(column: Column, text: Default | None, numbered: bool, made: Tso) -> tuple[object, str]:
    """Return (value of old rows as a text for `mysql_types.values`, how it was guessed or "").

    `column` has its default from `stored_default`. `numbered` is AUTO_INCREMENT or AUTO_RANDOM, `made` when
    the column was added. Raises NoDefault.
    """
    if numbered:
        raise NoDefault("old rows are numbered in an order that the files do not record")
    if text is not None and text.kind == "expression":
        raise NoDefault(f"the default ({text.text}) is evaluated by the source for each old row")
    if defaults_to_now(column) or (text is not None and text.kind == "now") or _today(column):
        return _now(column, made)
    if column.default is None:
        return (None, "") if column.nullable else (_implicit(column), "")
    if isinstance(column.default, bytes):
        padded = column.default.ljust(column.precision or 1, b"\0") if column.type == "BINARY" else column.default
        return padded, ""
    try:
        return _in_order(default_text(column), column), ""
    except MalformedData as problem:
        raise NoDefault(problem.message) from problem


def _today(column: Column) -> bool:
    return column.type == "DATE" and str(column.default).upper().startswith("CUR")


def _implicit(column: Column) -> object:
    if column.type == "ENUM" and not column.elems:
        raise NoDefault("old rows get the first member of the ENUM, and its members are not known")
    if column.type == "VECTOR":
        raise NoDefault("a VECTOR that is NOT NULL has no implicit default")
    return implicit_default(column)


def _in_order(text: object, column: Column) -> object:
    """A SET prints its members in the order of their definition."""
    if column.type == "SET" and column.elems and isinstance(text, str):
        chosen = {one.lower() for one in text.split(",")}
        return ",".join(one for one in column.elems if one.lower() in chosen)
    return text


def _now(column: Column, made: Tso) -> tuple[object, str]:
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=wall_clock_ms(made))
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    if column.type == "DATE":
        return text[:10], "the date of the DDL by its TSO, in UTC"
    if column.type not in ("TIMESTAMP", "DATETIME"):
        raise NoDefault(f"{column.type} cannot default to the time of the statement")
    if column.scale:
        text += f".{moment.microsecond:06d}"[: column.scale + 1]
    zone = "" if column.type == "TIMESTAMP" else ", in UTC instead of the session's zone"
    return text, f"the time of the DDL by its TSO{zone}"
