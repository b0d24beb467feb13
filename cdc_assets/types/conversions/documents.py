"""JSON as TiDB reads and prints it (`tidb:pkg/types/json_binary.go`).

A number is an integer of 64 bits where its text is one, else a float: 1.50 becomes 1.5, and 1e3 becomes 1000. A whole
float is printed without a point, as TiDB did at first; the number is the same where a later one prints `1000.0`.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

_MAX_DEPTH = 100


def read_json(text: str) -> Any:
    """Return the document; a lone surrogate becomes U+FFFD. Raises ValueError for what is not JSON or nested deeper."""
    value = json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_refuse)
    depth, layer = 0, [value]
    while layer and depth <= _MAX_DEPTH + 1:
        depth += 1
        lists = [node.values() if isinstance(node, dict) else node for node in layer if isinstance(node, dict | list)]
        layer = [inner for some in lists for inner in some]
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deep")
    return value


def _number(text: str) -> int | float:
    if text.lstrip("-").isdigit() and -(1 << 63) <= int(text) < 1 << 64:
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _refuse(name: str) -> Any:
    raise ValueError(name)


def json_text(value: Any) -> str:
    """Print a document: a space after colon and comma, members in the order of their names' bytes."""
    if isinstance(value, dict):
        members = sorted(((_sound(name), member) for name, member in value.items()), key=lambda pair: pair[0])
        return "{" + ", ".join(f"{_quoted(name)}: {json_text(member)}" for name, member in members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(json_text, value)) + "]"
    if isinstance(value, str):
        return _quoted(_sound(value))
    if isinstance(value, float):
        return float_text(value)
    return json.dumps(value)


def _sound(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\u2028", r"\u2028").replace("\u2029", r"\u2029")


def float_text(number: float) -> str:
    """Print the shortest digits; with an exponent below 1e-6 and from 1e21 on."""
    if number and not 1e-6 <= abs(number) < 1e21:
        digits, _, exponent = f"{Decimal(repr(number)).normalize():e}".partition("e")
        return f"{digits}e{exponent.lstrip('+')}"
    text = f"{Decimal(repr(number)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
