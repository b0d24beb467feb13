"""Equal values that connectors print in several ways: a form of each type by which they are compared.

A connector of MySQL or MariaDB reads a snapshot from the server's texts, and changes from the binary log:

    JSON    spaces, 1e15 or 1.0E15, "23:24:25.000000" or "23:24:25"; MariaDB's JSON is LONGTEXT, whose texts are equal
    FLOAT   six digits in the snapshot, all of them in the log
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

_TIME = re.compile(r"((?:\d{4}-\d\d-\d\d )?-?\d{2,3}:\d\d:\d\d)(\.\d{1,6})")
_EXACT_DIGITS = 17


def _json(text: str) -> str:
    """Return a document with sorted members, without spaces, and with numbers and times as their values."""
    try:
        return json.dumps(_document(json.loads(text, parse_float=_number)), sort_keys=True, default=_decimal)
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> float | Decimal:
    """Return a double, or a number that has more digits than a double keeps."""
    mantissa = text.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0")
    return float(text) if len(mantissa) <= _EXACT_DIGITS else Decimal(text).normalize()


def _decimal(value: Any) -> Any:
    return {"": str(value)}


def _document(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _document(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_document(member) for member in value]
    if isinstance(value, str) and (time := _TIME.fullmatch(value)) is not None:
        return time[1] + time[2].rstrip("0").rstrip(".")
    return value


def _float(value: float) -> float:
    """Return a value of FLOAT as the server prints it: the one with its first six digits."""
    number: float = struct.unpack("f", struct.pack("f", float(f"{value:.6g}")))[0]
    return number


FORMS: Mapping[str, Callable[[Any], Any]] = {"JSON": _json, "FLOAT": _float}
"""By type: the form of a value."""

OF_BOTH = frozenset({"JSON"})
"""Types of which a stored value has a form, too. A stored FLOAT is compared as it is: one with more digits than six
comes from the log, which deletes it with these."""
