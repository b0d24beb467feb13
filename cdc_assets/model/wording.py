"""Numbers and places in sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence

SECRET_NAME = re.compile(
    "key|secret|token|password|credential|signature|sas(?!l)|connection.string|user.info", re.IGNORECASE
)
"""Parts of the names of options whose values no message shows: of stores, topics and registries."""


def counted(count: int, noun: str, more: str = "") -> str:
    """Return a count with its noun: `1 table`, `1,200 tables`; `more` is an irregular plural."""
    return f"{count:,} {noun if count == 1 else more or f'{noun}s'}"


def first_of(names: Sequence[str], noun: str, shown: int = 10) -> str:
    """Return the first names, joined by commas, with a count of the others: `a, b and 3 more tables`."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {counted(more, f'more {noun}')}" if more > 0 else "")


def range_text(numbers: range) -> str:
    """Return the numbers of a range that is not empty: `7`, or `7 to 9`."""
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def seconds_text(seconds: float) -> str:
    """Return a duration in a readable unit: `0.4 s`, `12.0 min`, `3.5 h`, `40.2 days`."""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds / 86400:,.1f} days"


def reason_of(names: Sequence[str], reason: str) -> str:
    """Return a reason behind the names of the tables that have it, unless it begins with one of these."""
    begins = reason.startswith(tuple(f"{name}{end}" for name in names for end in " @:"))
    return reason if begins else f"{first_of(names, 'table')}: {reason}"


def with_column(place: str, column: str, reason: str) -> str:
    """Return a place with the column that does not fit there, unless the reason behind it begins with that column."""
    named = not column or reason.startswith(f'column "{column}"')
    return place if named else f'{place}, column "{column}"'
