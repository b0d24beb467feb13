"""Timestamps of TiDB's timestamp oracle: milliseconds since 1970 and an 18-bit counter in one integer."""

from __future__ import annotations

import datetime as dt
import time
from datetime import datetime, timezone

Tso = int
"""A TiDB timestamp: milliseconds since 1970 in the upper 46 bits, a logical counter in the lower 18."""

FOREVER: Tso = 2**63 - 1
"""Above every TSO."""


def wall_clock_ms(tso: Tso) -> int:
    """Return the wall-clock part of a TSO as milliseconds since 1970, UTC."""
    return tso >> 18


def seconds_between(since: Tso, until: Tso) -> float:
    """Return the wall-clock time between two TSO in seconds; 0 where `until` is the earlier one or `since` is 0.

    0 is the progress of a table to which nothing is applied yet.
    """
    return max(0, wall_clock_ms(until) - wall_clock_ms(since)) / 1000 if since else 0.0


def seconds_behind(tso: Tso, now: float) -> float:
    """Return the lag of a TSO behind the wall clock (`now`: seconds since 1970).

    For a checkpoint this is TiCDC's part of the lag, which grows without end when the changefeed stalls.
    """
    return max(0.0, now - wall_clock_ms(tso) / 1000)


def tso_now() -> Tso:
    """Return the first TSO of the present millisecond."""
    return time.time_ns() // 1_000_000 << 18


def tso_moment(tso: Tso) -> dt.datetime:
    """Return the wall-clock time of a TSO in UTC, to the millisecond."""
    return dt.datetime.fromtimestamp(wall_clock_ms(tso) / 1000, dt.timezone.utc)


def tso_time(tso: Tso) -> str:
    """Return the wall-clock time of a TSO as ISO text in UTC, to the millisecond."""
    return iso_time(tso_moment(tso))


def last_tso(ms: int) -> Tso:
    """Return the last TSO of a millisecond since 1970: what was committed by then is at or below it."""
    return (ms << 18) | 0x3FFFF


def iso_time(moment: datetime) -> str:
    """Return the text of a time with a zone."""
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_now() -> str:
    """Return the text of the present time."""
    return iso_time(datetime.now(timezone.utc))


def parse_iso_time(text: str) -> datetime:
    """Return the time that a text in ISO form means, in UTC where it names no zone; raises ValueError.

    Python 3.10 reads no Z.
    """
    moment = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
