"""Name the loss that makes a lake value equal to its source value: the rules that decoding counts, applied in
reverse.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.upgrade import default_array
from cdc_assets.formats.changes import LOST_FLOAT, NULL_OR_TEXT, SIX_DIGITS
from cdc_assets.formats.values import DEFAULTED, MAYBE_ZERO_DATE, ROUNDED
from cdc_assets.formats.values.ticdc import TOO_LARGE
from cdc_assets.model.schema import Column
from cdc_assets.types.fidelity import Guess
from cdc_assets.types.mysql_types import default_text, defaults_to_now, values
from cdc_assets.types.mysql_values import AMBIGUOUS_TIME, BAD_UTF8

SAME_JSON = "the same JSON value, printed in another way"
OTHER_CENTURY = "a year below 100, which TiCDC's Debezium encoder sends as one of 1970 to 2069"
MADE_NULL = "NULL in rows of the dump: "
"""The beginning of the rule that all values of a column are NULL in some rows."""
_ALL_DIGITS = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_TORN = re.compile("\ufffd+")
_MARKERS = ("", "\\N", "NULL", "null")
_EPOCHS: Mapping[type, date] = {date: date(1970, 1, 1), datetime: datetime(1970, 1, 1)}


def loss_between(column: Column, rules: Collection[str], zone: str, lake: Any, source: Any) -> str:
    """Return the rule by which a feed made the lake's value of the source's, "" where none does.

    `rules` are those that were counted for the column. `zone` is that in which the feed's writer prints TIMESTAMP.
    """
    if column.type == "JSON" and _is_same_json(lake, source):
        return SAME_JSON
    if column.type == "TIMESTAMP" and _is_earlier(lake, source, zone):
        return AMBIGUOUS_TIME
    for rule in rules:
        applies = _RULES.get(rule)
        if applies(column, lake, source) if applies is not None else lake is None and rule.startswith(MADE_NULL):
            return rule
    return ""


def is_guess(guess: Guess | None, lake: Any) -> bool:
    """Return whether a value of the lake may be one that was guessed when a DDL was carried out."""
    if guess is None or not guess.defaults:
        return guess is not None
    return any(default_array(column, default, 1)[0].as_py() == lake for column, default in guess.defaults)


def _is_same_json(lake: Any, source: Any) -> bool:
    try:
        lake_json, source_json = (
            json.loads(text, parse_float=Decimal, parse_constant=_refused) for text in (lake, source)
        )
    except (TypeError, ValueError):
        return False
    return repr(_ordered(lake_json)) == repr(_ordered(source_json))


def _refused(text: str) -> Any:
    raise ValueError(text)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted((name, _ordered(member)) for name, member in value.items()))
    if isinstance(value, list):
        return [_ordered(member) for member in value]
    if isinstance(value, Decimal):
        return value.normalize(_ALL_DIGITS)
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


def _is_zero_date(column: Column, lake: Any, source: Any) -> bool:
    """Return whether a zero date came as the column's default, or as the day from which days are counted."""
    return source is None and (lake == _EPOCHS.get(type(lake)) or _is_default(column, lake, source))


def _is_rounded(column: Column, lake: Any, source: Any) -> bool:
    """Return whether two DECIMALs are the same double: the nearest one, which is printed with no more digits."""
    return lake is not None and source is not None and float(lake) == float(source)


def _has_six_digits(column: Column, lake: Any, source: Any) -> bool:
    if lake is None or source is None or not math.isclose(lake, source, rel_tol=1e-5):
        return False
    return bool(max(abs(lake), abs(source)) >= 1e15 or min(abs(lake), abs(source)) < 1e-15)


def _is_replaced(column: Column, lake: Any, source: Any) -> bool:
    """Return whether the texts may be the same bytes, which are not UTF-8.

    U+FFFD stands for each such byte where a changefeed writes JSON, as Go does it, and for up to three that begin a
    character here. A source that knows the charset of the bytes gives their text.
    """
    if not isinstance(lake, str) or not isinstance(source, str) or "\ufffd" not in lake:
        return False
    if _TORN.split(lake) == _TORN.split(source):
        runs = zip(_TORN.findall(lake), _TORN.findall(source), strict=True)
        return all(
            len(lake_run) <= 3 * len(source_run) and len(source_run) <= 3 * len(lake_run)
            for lake_run, source_run in runs
        )
    for charset in ("latin-1", "cp1252", "gb18030"):
        with suppress(UnicodeEncodeError):
            data = source.encode(charset)
            by_byte = re.sub("[\udc80-\udcff]", "\ufffd", data.decode("utf-8", "surrogateescape"))
            if lake in (by_byte, data.decode("utf-8", "replace")):
                return True
    return False


def _is_too_large(column: Column, lake: Any, source: Any) -> bool:
    """Return whether a DECIMAL as a double, rounded to its scale, has more digits than the column."""
    if lake is not None or source is None:
        return False
    scale = column.scale or 0
    sent = Fraction(Decimal(repr(abs(float(source)))))
    return bool(sent + Fraction(1, 2 * 10**scale) >= 10 ** ((column.precision or 10) - scale))


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
    LOST_FLOAT: lambda column, lake, source: column.type == "FLOAT" and lake is None,
    DEFAULTED: _is_default,
    MAYBE_ZERO_DATE: _is_zero_date,
    NULL_OR_TEXT: _is_marker,
    OTHER_CENTURY: _is_of_another_century,
    ROUNDED: _is_rounded,
    TOO_LARGE: _is_too_large,
    SIX_DIGITS: _has_six_digits,
}

DIFFERING_RULES = frozenset(_RULES)
"""Rules by which values of the lake and of its source differ; by others both are the same, such as NULL."""
