"""Moments as people give them: a TSO, a time, the name of a cut."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings
from cdc_assets.features.cuts.pipeline import moments
from cdc_assets.model.tso import Tso, last_tso, parse_iso_time

if TYPE_CHECKING:
    from cdc_assets.pipeline.pipeline import Pipeline

_MS = timedelta(milliseconds=1)
_LAST: Tso = (1 << 63) - 1


def position_of(pipeline: Pipeline, text: str) -> Tso:
    """Return the position that a text means, which may be a cut of the changefeed. Raises BadSettings."""
    return parse_moment(text, moments(pipeline.lake))


def parse_moment(text: str, cuts: Mapping[str, Tso]) -> Tso:
    """Return the position that a text means: a TSO, a time in ISO form, or the name of one of these cuts.

    A time without zone is UTC, and means its last TSO: what was committed in its millisecond is included. Raises
    BadSettings.
    """
    if text in cuts:
        return cuts[text]
    if text.isdecimal() and len(text) != len("20260131") and int(text) <= _LAST:
        return int(text)
    try:
        moment = parse_iso_time(text)
    except ValueError:
        cut_names = f": {', '.join(sorted(cuts))}" if cuts else " (there is none yet)"
        raise BadSettings(
            f'"{text}" is no moment; expected a TSO, a time such as 2026-01-31, 2026-01-31T13:45:00 or '
            f"2026-01-31T13:45:00+02:00, or the name of a cut{cut_names}."
        ) from None
    return last_tso((moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // _MS)
