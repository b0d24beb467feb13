"""Texts: what TiDB prints for any value, and what fits into a text, a binary and a JSON column."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from cdc_assets.types.addresses import ADDRESSES, address_bytes, address_text
from cdc_assets.types.conversions.described import Change
from cdc_assets.types.conversions.documents import float_text, json_text, read_json
from cdc_assets.types.conversions.moments import moment_of, time_micros, time_text
from cdc_assets.types.families import BINARY, CHARACTER, DATED, MEMBERS

_BLANK = " \t\n\r"
_OWN_BYTES = ("gbk", "gb18030")


def text_of(value: Any, change: Change) -> str:
    """Return a lake value as TiDB prints it, padded with zeros where its column is ZEROFILL.

    Raises ValueError for bytes that are not text.
    """
    old = change.old
    if isinstance(value, bytes):
        # The lake knows the new column's charset for UTF-8 and ASCII only.
        if (change.new.collation or "").startswith(_OWN_BYTES) and not value.isascii():
            raise ValueError(value)
        return value.decode()
    if isinstance(value, str):
        return value
    if old.type == "DATE":
        return moment_of(value, change).date_text()
    if old.type in DATED:
        return moment_of(value, change).text(old.scale or 0)
    if isinstance(value, float):
        small = old.type == "FLOAT"
        # The shortest digits of 32 or 64 bits, without exponent.
        digits = pa.array([value], pa.float32()).cast(pa.string())[0].as_py() if small else repr(value)
        text = f"{Decimal(digits):f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    text = f"{value:f}" if isinstance(value, Decimal) else str(int(value))
    return text.zfill((old.precision or 0) + bool(old.scale)) if old.zerofill else text


def shown(value: Any, change: Change) -> str:
    """Return a value for a message."""
    if isinstance(value, bytes):
        return repr(value)
    try:
        return repr(text_of(value, change)) if change.old.type in DATED else repr(value)
    except (ValueError, ArithmeticError):
        return repr(value)


def into_text(value: Any, change: Change) -> str:
    """A text over its length may lose trailing spaces only; CHAR loses all of them."""
    new, text = change.new, text_of(value, change)
    size = new.precision
    if size is not None and new.type not in ("CHAR", "VARCHAR", "VAR_STRING"):
        if len(text.encode()) > size:
            raise ValueError(text)
    elif size is not None and len(text) > size:
        if text[size:].strip(_BLANK):
            raise ValueError(text)
        text = text[:size]
    return text.rstrip(" ") if new.type == "CHAR" else text


def into_binary(value: Any, change: Change) -> bytes:
    """BINARY is padded with zero bytes."""
    new, size = change.new, change.new.precision
    if change.old.type in ADDRESSES:
        raw = address_bytes(value, change.old.type)
    else:
        raw = value if isinstance(value, bytes) else _encoded(text_of(value, change), change)
    if size is not None and len(raw) > size:
        raise ValueError(raw)
    return raw.ljust(size or 1, b"\0") if new.type == "BINARY" else raw


def _encoded(text: str, change: Change) -> bytes:
    """Characters become bytes of the old column's charset, which the lake knows for UTF-8 and ASCII only."""
    if (change.old.collation or "").startswith(_OWN_BYTES) and not text.isascii():
        raise ValueError(text)
    return text.encode()


def into_address(value: Any, change: Change) -> str:
    """Bytes and texts are read as a UUID or address, which MariaDB prints in one form."""
    if change.old.type not in (*CHARACTER, *BINARY, *MEMBERS, "INET4"):
        raise ValueError(value)
    return address_text(value, change.new.type)


def into_json(value: Any, change: Change) -> str:
    """Texts and members are read as JSON; times have six fraction digits; decimals and floats are floats."""
    old = change.old
    if old.type in (*CHARACTER, *BINARY, *MEMBERS):
        return json_text(read_json(text_of(value, change)))
    if old.type == "BIT":
        width = ((old.precision or 1) + 7) // 8
        return json_text(int(value).to_bytes(width, "big").decode())
    if old.type in ("DECIMAL", "FLOAT", "DOUBLE"):
        return float_text(float(value))
    if old.type == "TIME":
        return json_text(time_text(time_micros(value), 6))
    if old.type == "DATE" or old.type not in DATED:
        text = text_of(value, change)
        return json_text(text) if old.type == "DATE" else text
    return json_text(moment_of(value, change).text(6))
