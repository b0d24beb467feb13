"""Which loss makes a value of the lake equal to that of its source: the rules that decoding counts, turned round."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.sifting import NULL_OR_TEXT, SIX_DIGITS
from cdc_assets.formats.values.ticdc import DEFAULTED, ROUNDED
from cdc_assets.model.schema import Column
from cdc_assets.types.mysql_types import (
    AMBIGUOUS_TIME,
    BAD_UTF8,
    NO_SUCH_DATE,
    ZERO_DATE,
    default_text,
    defaults_to_now,
    values,
)

__all__ = ["OTHER_CENTURY", "SAME_JSON", "loss_between"]

SAME_JSON = "the same JSON value, printed in another way"
OTHER_CENTURY = "a year below 100, which TiCDC's Debezium encoder sends as one of 1970 to 2069"
_NULLED = ("NULL", "became null")
_NULLED_HERE_TOO = (ZERO_DATE, NO_SUCH_DATE)
"""What the readers of the source make NULL themselves: beside a value of the source it explains nothing."""
_MARKERS = ("", "\\N", "NULL", "null")


def loss_between(column: Column, rules: Collection[str], zone: str, lake: Any, source: Any) -> str:
    """Return the rule by which a feed made the lake's value of the source's, "" where none does.

    `rules` are those that were counted for the column. `zone` is that in which the feed's writer prints TIMESTAMP.
    """
    if column.type == "JSON" and _is_same_json(lake, source):
        return SAME_JSON
    if column.type == "TIMESTAMP" and _is_earlier(lake, source, zone):
        return AMBIGUOUS_TIME
    for rule in rules:
        known = _RULES.get(rule)
        if known(column, lake, source) if known is not None else _is_nulled(rule, lake):
            return rule
    return ""


def _is_nulled(rule: str, lake: Any) -> bool:
    return lake is None and rule not in _NULLED_HERE_TOO and any(word in rule for word in _NULLED)


def _is_same_json(lake: Any, source: Any) -> bool:
    try:
        mine, theirs = (json.loads(text, parse_float=Decimal, parse_constant=_refused) for text in (lake, source))
    except (TypeError, ValueError):
        return False
    return repr(_ordered(mine)) == repr(_ordered(theirs))


def _refused(text: str) -> Any:
    raise ValueError(text)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted((name, _ordered(member)) for name, member in value.items()))
    if isinstance(value, list):
        return [_ordered(member) for member in value]
    if isinstance(value, Decimal):
        return value.normalize()
    return value


def _is_earlier(lake: Any, source: Any, zone: str) -> bool:
    """Return whether the source's instant is the later one of a repeated hour, and the lake's the earlier one."""
    if not (isinstance(lake, datetime) and isinstance(source, datetime)) or not timedelta(0) < source - lake:
        return False
    try:
        clock = pc.local_timestamp(pa.array([lake, source], pa.timestamp("us", zone))).to_pylist()
    except pa.ArrowInvalid:
        return False
    return bool(clock[0] == clock[1])


def _is_default(column: Column, lake: Any, source: Any) -> bool:
    if source is not None or defaults_to_now(column):
        return source is None and defaults_to_now(column)
    text = default_text(column)
    if text is None:
        return False
    kind = pa.binary() if isinstance(text, bytes) else pa.string()
    return bool(values(pa.array([text], kind), column).array[0].as_py() == lake)


def _are_close(lake: Any, source: Any, tolerance: float) -> bool:
    return lake is not None and source is not None and math.isclose(lake, source, rel_tol=tolerance)


def _is_replaced(column: Column, lake: Any, source: Any) -> bool:
    return isinstance(lake, str) and "\ufffd" in lake


def _is_marker(column: Column, lake: Any, source: Any) -> bool:
    text = source.decode("utf-8", "replace") if isinstance(source, bytes) else source
    return (lake is None and text in _MARKERS) or (source is None and lake in _MARKERS)


def _is_of_another_century(column: Column, lake: Any, source: Any) -> bool:
    return (
        isinstance(lake, date)
        and isinstance(source, date)
        and source.year < 100
        and 1970 <= lake.year < 2070
        and lake.year % 100 == source.year
        and lake.replace(year=2000) == source.replace(year=2000)
    )


_RULES: Mapping[str, Callable[[Column, Any, Any], bool]] = {
    BAD_UTF8: _is_replaced,
    DEFAULTED: _is_default,
    NULL_OR_TEXT: _is_marker,
    OTHER_CENTURY: _is_of_another_century,
    ROUNDED: lambda column, lake, source: _are_close(lake, source, 1e-15),
    SIX_DIGITS: lambda column, lake, source: _are_close(lake, source, 1e-5),
}
