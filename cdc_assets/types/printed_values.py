"""Equal values that connectors print in several ways: a form of each type by which they are compared.

A connector of MySQL or MariaDB reads a snapshot from the server's texts, and changes from the binary log:

    JSON    spaces, 1e15 or 1.0E15, "23:24:25.000000" or "23:24:25", "base64:type252:YWJj" or "YWJj"; MariaDB's JSON is
            LONGTEXT, whose texts are equal
    FLOAT   six digits in the snapshot, all of them in the log; those of FLOAT(M, D) are equal
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

from cdc_assets.model.schema import Column

_TIME = re.compile(r"((?:\d{4}-\d\d-\d\d )?-?\d{2,3}:\d\d:\d\d)(\.\d{6})")
_BYTES = re.compile(r"base64:type\d{1,3}:")
_EXACT_DIGITS = 17


def _json(text: str) -> str:
    """Return a document with sorted members, without spaces, and with numbers, times and bytes as their values."""
    try:
        return json.dumps(_document(json.loads(text, parse_float=_number)), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> float | dict[str, str]:
    """Return a double, or the digits and the exponent of a number that has more of them than a double keeps."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    all_digits = (whole + fraction).lstrip("-0")
    digits = all_digits.rstrip("0")
    if len(digits) <= _EXACT_DIGITS and math.isfinite(float(text)):
        return float(text)
    power = int(exponent or 0) - len(fraction) + len(all_digits) - len(digits)
    return {"": f"{'-' * whole.startswith('-')}{digits}e{power}"}


def _document(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _document(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_document(member) for member in value]
    if isinstance(value, str) and (time := _TIME.fullmatch(value)) is not None:
        return time[1] + time[2].rstrip("0").rstrip(".")
    if isinstance(value, str) and (prefix := _BYTES.match(value)) is not None:
        return "".join(value[prefix.end() :].split())
    return value


def _float(value: float) -> float:
    """Return a value of FLOAT as the server prints it: the one with its first six digits."""
    number: float = struct.unpack("f", struct.pack("f", float(f"{value:.6g}")))[0]
    return number


_FORMS: Mapping[str, Callable[[Any], Any]] = {"JSON": _json, "FLOAT": _float}

OF_BOTH = frozenset({"JSON"})
"""Types of which a stored value has a form, too. A stored FLOAT is compared as it is: one with more digits than six
comes from the log, which deletes it with these."""


def form_of(column: Column) -> Callable[[Any], Any] | None:
    """Return the function that gives the form of a column's values, None where equal values are printed in one way.

    Masked values have none: they were made of what was printed.
    """
    exact = column.mask is not None or (column.type == "FLOAT" and column.scale is not None)
    return None if exact else _FORMS.get(column.type)
