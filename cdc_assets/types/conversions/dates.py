"""Into dates and times, from texts, numbers and each other. A date is cut out of a time, a fraction is rounded."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from cdc_assets.errors import TableHeld
from cdc_assets.types.conversions.described import Change
from cdc_assets.types.conversions.documents import read_json
from cdc_assets.types.conversions.moments import (
    DAY_MICROS,
    Moment,
    instant,
    moment_from_number,
    moment_from_text,
    moment_of,
    round_half_up,
    time_from_text,
    time_micros,
    time_text,
)
from cdc_assets.types.conversions.texts import text_of
from cdc_assets.types.families import BINARY, CHARACTER, DATED, INTEGER

_LONGEST = 8_385_959


def _point(value: Any, change: Change) -> Moment | None:
    """Return the moment, rounded to the new column's digits but for a DATE; None for a zero or partial date."""
    old, digits = change.old, change.new.scale or 0
    if old.type in DATED:
        moment = moment_of(value, change)
        return moment if change.new.type == "DATE" else moment.rounded(digits)
    if old.type == "TIME":
        raise TableHeld(
            f'column "{change.new.name}": a TIME that becomes a date takes the day on which the DDL ran in its '
            "session, which no file records. Rebuild the table from here.",
            column=change.new.name,
        )
    if old.type in (*INTEGER, "YEAR"):
        return moment_from_number(int(value))
    return moment_from_text(_unquoted(value, change), digits)


def _unquoted(value: Any, change: Change) -> str:
    """Return a text, or what stands in a JSON text; any other JSON as it is printed."""
    text = text_of(value, change)
    if change.old.type != "JSON":
        return text
    document = read_json(text)
    return document if isinstance(document, str) else text


def into_date(value: Any, change: Change) -> int | None:
    """Return the days since 1970."""
    moment = _point(value, change)
    return None if moment is None else moment.micros // DAY_MICROS


def into_datetime(value: Any, change: Change) -> int | None:
    """Return the microseconds since 1970 on the clock."""
    moment = _point(value, change)
    return None if moment is None else moment.micros


def into_timestamp(value: Any, change: Change) -> int | None:
    """Return the instant in microseconds since 1970; a TIMESTAMP keeps it in whatever zone."""
    if change.old.type == "TIMESTAMP":
        return round_half_up(value, change.new.scale or 0)
    moment = _point(value, change)
    return None if moment is None else instant(moment, change.zone)


def into_time(value: Any, change: Change) -> str:
    """A number is read by its digits, `HHMMSS`."""
    old, digits = change.old, change.new.scale or 0
    if old.type == "TIME":
        return time_text(round_half_up(time_micros(value), digits), digits)
    if old.type in DATED:
        return time_text(round_half_up(moment_of(value, change).micros % DAY_MICROS, digits), digits)
    text = _unquoted(value, change)
    if old.type not in (*CHARACTER, *BINARY, "JSON"):
        whole = int(Decimal(text).quantize(Decimal(1), ROUND_HALF_UP))
        if whole < -_LONGEST or _LONGEST < whole < 10_000_000_000:
            raise ValueError(text)
    return time_text(time_from_text(text, digits), digits)
