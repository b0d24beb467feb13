"""Times as they are shown and kept: ISO 8601 in UTC, to the millisecond, such as 2026-01-31T13:45:00.000Z."""

from __future__ import annotations

from datetime import datetime, timezone


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
