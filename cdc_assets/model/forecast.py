"""Forecast when a table will have caught up, from the progress of its newest runs. Pure.

rate    seconds of the source that a run applies in a second of the clock, from the end of one run to that of the
        next: above 1 the table catches up, below it falls behind
pause   a time without runs, ten times as long as it usually is between two: it says nothing of the rate, nor do the
        runs before it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, median_low

from cdc_assets.model.tso import Tso, seconds_behind, wall_clock_ms
from cdc_assets.model.wording import seconds_text

MOST_POINTS = 12
"""Most ends of runs that are kept for a table."""
_FEWEST_POINTS = 3
_UP_TO_DATE_SECONDS = 60.0
_PAUSE = 10
_STEADY = 0.05
"""A table whose rate is so close to 1 keeps its distance."""

Point = tuple[float, Tso]
"""The end of a run, in seconds since 1970, and the TSO through which the table was applied then."""


class Pace:
    """The trend of a table; the values are the words that people and programs read."""

    UP_TO_DATE, CATCHING_UP, KEEPING, FALLING_BEHIND, UNKNOWN = (
        "up to date", "catching up", "keeping its distance", "falling behind", "not known"
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Forecast:
    """A table's `pace`, its lag, and the rate: in the middle, at the slowest and at the fastest of the newest runs.

    `seconds` is when it will have caught up at the rate in the middle, `soonest` and `latest` at the others; None for
    never, or where that is not known.
    """

    pace: str
    lag_seconds: float
    rate: float | None = None
    slowest: float | None = None
    fastest: float | None = None
    seconds: float | None = None
    soonest: float | None = None
    latest: float | None = None

    @property
    def sentence(self) -> str:
        """The forecast for a person, "" where there is nothing to say."""
        if self.pace == Pace.CATCHING_UP and self.seconds is not None and self.soonest is not None:
            latest = "never at its slowest" if self.latest is None else f"at the latest in {seconds_text(self.latest)}"
            return (
                f"catches up in about {seconds_text(self.seconds)} (at the soonest in {seconds_text(self.soonest)}, "
                f"{latest}): each second it applies {self.rate:.2f} s of changes"
            )
        if self.pace == Pace.FALLING_BEHIND and self.rate is not None:
            return (
                f"falls behind: each second it applies {self.rate:.2f} s of changes ({self.slowest:.2f} to "
                f"{self.fastest:.2f}), and is {seconds_text(self.lag_seconds)} behind the present"
            )
        if self.pace == Pace.KEEPING:
            return f"stays {seconds_text(self.lag_seconds)} behind the present: it applies as much as comes"
        return ""


def forecast(points: Sequence[Point], checkpoint: Tso, now: float, target_seconds: float | None = None) -> Forecast:
    """Return the time when a table will be at most `target_seconds` behind, by the ends of its newest runs.

    Of a table that stands at the feed's newest known `checkpoint` only the time since the run before counts, in which
    that checkpoint was read: what lies between the checkpoint and the present is the feed's, and no run shortens it. If
    most of the lag is the feed's, as of one that stands still, such a table is up to date.
    Without a target that is twice the time between two runs, and a minute at least. A run that found nothing new gives
    no point, so a table of which nothing comes any more keeps what was said of it until then.
    """
    if not points:
        return Forecast(Pace.UNKNOWN, 0.0)
    points = _since_pause(points)
    ends = [end for end, _ in points]
    lag = own = seconds_behind(points[-1][1], ends[-1])
    at_checkpoint = points[-1][1] >= checkpoint and len(ends) > 1
    if at_checkpoint:
        own = min(lag, ends[-1] - ends[-2])
    between = [later - earlier for earlier, later in pairwise(ends) if later > earlier]
    usual = 2 * median(between) if between else 0.0
    allowed = max(_UP_TO_DATE_SECONDS, usual) if target_seconds is None else target_seconds
    if own <= allowed or (at_checkpoint and lag - own > max(own, allowed)):
        return Forecast(Pace.UP_TO_DATE, lag)
    if len(points) < _FEWEST_POINTS or now - ends[-1] > max(allowed, 10 * usual):
        return Forecast(Pace.UNKNOWN, lag)
    rates = sorted(
        (wall_clock_ms(through) - wall_clock_ms(before)) / 1000 / (later - earlier)
        for (earlier, before), (later, through) in pairwise(points)
        if later > earlier
    )
    rate, slowest, fastest = median(rates), rates[0], rates[-1]
    if abs(rate - 1) <= _STEADY:
        return Forecast(Pace.KEEPING, lag, rate, slowest, fastest)
    if rate < 1:
        return Forecast(Pace.FALLING_BEHIND, lag, rate, slowest, fastest)
    remaining_seconds = [None if speed <= 1 else (lag - allowed) / (speed - 1) for speed in (rate, fastest, slowest)]
    return Forecast(Pace.CATCHING_UP, lag, rate, slowest, fastest, *remaining_seconds)


def _since_pause(points: Sequence[Point]) -> Sequence[Point]:
    """Return the points since the newest pause."""
    between = [later - earlier for (earlier, _), (later, _) in pairwise(points)]
    if not between:
        return points
    long = _PAUSE * max(_UP_TO_DATE_SECONDS, median_low(between))
    begin = max((place for place, seconds in enumerate(between, 1) if seconds > long), default=0)
    return points[begin:]
