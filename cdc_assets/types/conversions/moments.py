"""Dates and times of the years 0000 to 9999 as microseconds, and the texts and numbers that TiDB takes for them.

Python's own dates begin with the year 1, so a moment of the year 0 is computed 400 years later, where the calendar is
the same.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from cdc_assets.types.conversions.described import Change
from cdc_assets.types.zones import zone_of

_EPOCH = date(1970, 1, 1).toordinal()
DAY_MICROS = 86_400_000_000
_SECOND = 1_000_000
_CYCLE = 146_097
_LAST = 2_932_896
_LAST_INSTANT = ((1 << 31) - 1) * _SECOND + _SECOND - 1


# --- moments ----------------------------------------------------------------------------------------------------------


class Moment(NamedTuple):
    """Microseconds since 1970 on the clock of a place. Raises ValueError outside the years 0000 to 9999."""

    micros: int

    @property
    def day(self) -> date:
        """The date; of the year 0 that of the year 400."""
        days = self.micros // DAY_MICROS
        if days > _LAST:
            raise ValueError(self.micros)
        return date.fromordinal(days + _EPOCH + (_CYCLE if days + _EPOCH < 1 else 0))

    @property
    def year(self) -> int:
        """The year, 0 to 9999."""
        return self.day.year - (400 if self.micros // DAY_MICROS + _EPOCH < 1 else 0)

    @property
    def clock(self) -> str:
        """The time of day as HH:MM:SS."""
        seconds = self.micros % DAY_MICROS // _SECOND
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"

    def date_text(self) -> str:
        """Print YYYY-MM-DD."""
        return _date_text(self.micros // DAY_MICROS)

    def text(self, digits: int) -> str:
        """Print date and time with this many fraction digits."""
        return f"{self.date_text()} {self.clock}{_fraction(self.micros % _SECOND, digits)}"

    def number(self, digits: int, only_date: bool) -> Decimal:
        """Return YYYYMMDD, or YYYYMMDDHHMMSS with this many fraction digits."""
        text = self.date_text() if only_date else self.text(digits)
        return Decimal(re.sub(r"[-: ]", "", text))

    def rounded(self, digits: int) -> Moment:
        """Round to this many fraction digits, half up."""
        moment = Moment(round_half_up(self.micros, digits))
        if moment.micros // DAY_MICROS > _LAST:
            raise ValueError(moment.micros)
        return moment


@lru_cache(maxsize=4096)  # the rows of a table have few dates
def _date_text(days: int) -> str:
    moment = Moment(days * DAY_MICROS)
    return f"{moment.year:04d}-{moment.day:%m-%d}"


def moment_of(value: int, change: Change) -> Moment:
    """Return the moment of a DATE (days), DATETIME or TIMESTAMP (microseconds) in the session that ran the DDL."""
    if change.old.type == "DATE":
        return Moment(value * DAY_MICROS)
    if change.old.type == "DATETIME":
        return Moment(value)
    seen = (datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=value)).astimezone(zone_of(change.zone))
    return _naive(seen)


def instant(moment: Moment, zone: str) -> int:
    """Return the microseconds of a TIMESTAMP: of the earlier instant where a clock shows a time twice.

    Raises ValueError for a time that the clock skips, and outside 1970 to 2038.
    """
    local = datetime(1970, 1, 1) + timedelta(microseconds=moment.micros)
    utc_time = local.replace(tzinfo=zone_of(zone)).astimezone(timezone.utc)
    micros = (utc_time - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
    if not _SECOND <= micros <= _LAST_INSTANT or _naive(utc_time.astimezone(zone_of(zone))) != moment:
        raise ValueError(local)
    return micros


def _naive(seen: datetime) -> Moment:
    return Moment((seen.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1))


def round_half_up(micros: int, digits: int) -> int:
    """Round to this many fraction digits; half goes to the later, also before zero."""
    unit: int = 10 ** (6 - digits)
    return (micros + unit // 2) // unit * unit


def _fraction(micros: int, digits: int) -> str:
    return f".{micros:06d}"[: digits + 1] if digits else ""


def _moment(year: int, month: int, day: int, clock: tuple[int, int, int] = (0, 0, 0), micros: int = 0) -> Moment | None:
    """Return a moment, None for a zero or partial date, which the lake keeps as NULL."""
    hour, minute, second = clock
    if not (hour < 24 and minute < 60 and second < 60):
        raise ValueError(clock)
    if month > 12 or day > 31:
        raise ValueError((year, month, day))
    if not (month and day):
        return None
    days = date(year or 400, month, day).toordinal() - (0 if year else _CYCLE) - _EPOCH
    return Moment(days * DAY_MICROS + ((hour * 60 + minute) * 60 + second) * _SECOND + micros).rounded(6)


# --- texts and numbers that stand for moments -------------------------------------------------------------------------

_MARK = r"[!-/:-@\[-`{-~]"
_DATED = re.compile(
    rf"(\d{{4}}|\d\d){_MARK}(\d{{1,2}}){_MARK}(\d{{1,2}})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?)?",
    re.ASCII,
)
_PACKED = re.compile(r"(\d{5,12}|\d{14})", re.ASCII)
_PACKED_FRACTION = re.compile(r"(\d{11,12}|\d{14})\.(\d*)", re.ASCII)


def moment_from_text(text: str, digits: int) -> Moment | None:
    """Read a date or a time with separators or without, its fraction rounded to this many digits.

    Other forms that TiDB knows (zones, several separators in a row, fractions of a shorter form) raise ValueError.
    """
    text = text.strip()
    match = _DATED.fullmatch(text)
    if match is not None:
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
        if len(match[1]) == 2 and (year or month or day):
            year = _full_year(year)
        return _moment(year, month, day, (hour, minute, second), _digits(match[7] or "", digits))
    packed = _PACKED.fullmatch(text) or _PACKED_FRACTION.fullmatch(text)
    if packed is None:
        raise ValueError(text)
    fraction = packed[2] if packed.re is _PACKED_FRACTION else ""
    year, month, day, *clock = _fields(packed[1])
    hour, minute, second = (*clock, 0, 0, 0)[:3]
    return _moment(year, month, day, (hour, minute, second), _digits(fraction, digits))


def _fields(text: str) -> list[int]:
    """YYYYMMDD and YYYYMMDDHHMMSS, or YYMMDD and as much of HHMMSS as there is."""
    century = 4 if len(text) in (8, 14) else 2
    parts = [int(text[at : at + 2]) for at in range(century, len(text), 2)]
    year = int(text[:century])
    return [year if century == 4 else _full_year(year), *parts]


def _full_year(year: int) -> int:
    return year + (2000 if year < 70 else 1900)


def _digits(fraction: str, digits: int) -> int:
    """Return the microseconds of a fraction, rounded by the digit after the last one that counts."""
    digits_value, unit = int(fraction[:digits].ljust(digits, "0") or 0), int(10 ** (6 - digits))
    return (digits_value + (fraction[digits : digits + 1] >= "5")) * unit


def moment_from_number(number: int) -> Moment | None:
    """Read YYMMDD, YYYYMMDD, YYMMDDHHMMSS or YYYYMMDDHHMMSS (`tidb:pkg/types/time.go`, parseDateTimeFromNum)."""
    if number == 0:
        return None
    if number < 10_000_101_000_000:
        number = _widened(number)
    whole, clock = divmod(number, 1_000_000)
    if whole > 99_991_231:
        raise ValueError(number)
    fields = clock // 10_000, clock // 100 % 100, clock % 100
    return _moment(whole // 10_000, whole // 100 % 100, whole % 100, fields)


_SHORT_NUMBERS = (
    (101, 691_231, 20_000_000, 1_000_000),
    (700_101, 991_231, 19_000_000, 1_000_000),
    (991_232, 99_991_231, 0, 1_000_000),
    (101_000_000, 691_231_235_959, 20_000_000_000_000, 1),
    (700_101_000_000, 991_231_235_959, 19_000_000_000_000, 1),
    (991_231_235_960, 10_000_101_000_000, 0, 1),
)
"""(lowest, highest, what is added, what is multiplied by) to get at YYYYMMDDHHMMSS."""


def _widened(number: int) -> int:
    for low, high, add, factor in _SHORT_NUMBERS:
        if low <= number <= high:
            return (number + add) * factor
    raise ValueError(number)


# --- times ------------------------------------------------------------------------------------------------------------

_CLOCK = re.compile(r"(-?)\s*(?:(\d+)\s+)?(\d+)(?:\s*:\s*(\d+))?(?:\s*:\s*(\d+))?\s*(?:\.(\d*))?", re.ASCII)
_BEGINS_DATED = re.compile(rf"(?:\d{{12}}|\d{{14}})(?!\d)|\d+{_MARK}\d+{_MARK}\d+[ T]", re.ASCII)
_LONGEST = (838 * 3600 + 59 * 60 + 59) * _SECOND


def time_micros(text: str) -> int:
    """Return the microseconds of a TIME as the lake keeps it."""
    sign, hours, minutes, seconds, fraction = re.fullmatch(
        r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?", text, re.ASCII
    ).groups()  # type: ignore[union-attr]  # the lake holds no other form
    total = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * _SECOND + int((fraction or "").ljust(6, "0"))
    return -total if sign else total


def time_text(micros: int, digits: int) -> str:
    """Print a TIME with this many fraction digits."""
    if abs(micros) > _LONGEST:
        raise ValueError(micros)
    seconds, rest = divmod(abs(micros), _SECOND)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{'-' if micros < 0 else ''}{clock}{_fraction(rest, digits)}"


def time_number(micros: int, digits: int) -> Decimal:
    """Return HHMMSS with this many fraction digits."""
    return Decimal(time_text(micros, digits).replace(":", ""))


def time_from_text(text: str, digits: int) -> int:
    """Read `D HH:MM:SS`, `HH:MM:SS`, `HHMMSS`, or the time of a date and time, rounded to this many digits."""
    text = text.strip()
    match = _CLOCK.fullmatch(text)
    micros = _clock(match, digits) if match is not None else None
    if micros is not None:
        return micros
    if _BEGINS_DATED.match(text) is None:
        raise ValueError(text)
    moment = moment_from_text(text, 6)
    if moment is None:
        raise ValueError(text)
    return round_half_up(moment.micros % DAY_MICROS, digits)


def _clock(match: re.Match[str], digits: int) -> int | None:
    """Return the microseconds, None for what is too large or no time."""
    sign, days, first, second, third, fraction = match.groups()
    hours, minutes, seconds = int(first), int(second or 0), int(third or 0)
    if days is None and second is None:
        hours, minutes, seconds = hours // 10_000, hours // 100 % 100, hours % 100
    hours += 24 * int(days or 0)
    if hours > 838 or minutes > 59 or seconds > 59:
        return None
    total = ((hours * 60 + minutes) * 60 + seconds) * _SECOND + _digits(fraction or "", digits)
    return -total if sign else total
