"""When a table will have caught up, by the ends of its newest runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.ledger import Ledger, _with_point
from cdc_assets.model.forecast import MOST_POINTS, Pace, Point, forecast
from cdc_assets.model.ledger_entries import TableState
from cdc_assets.model.progress import State
from cdc_assets.model.schema import TableId

NOW = 1_750_000_000.0
LIVE = int(NOW * 1000) << 18
"""The checkpoint of a feed that does not stand still."""


def points(rates: list[float], lag: float, every: float = 100.0) -> list[Point]:
    """Runs that end every so often, the last one now, so far behind; each applied so many seconds a second."""
    samples, end, moment = [(NOW, NOW - lag)], NOW, NOW - lag
    for rate in reversed(rates):
        end, moment = end - every, moment - rate * every
        samples.append((end, moment))
    return [(end, int(moment * 1000) << 18) for end, moment in reversed(samples)]


def test_a_table_that_applies_three_seconds_a_second_halves_its_lag_in_time() -> None:
    progress_forecast = forecast(points([3.0, 3.0, 3.0], lag=4200), LIVE, NOW)
    assert progress_forecast.pace == Pace.CATCHING_UP
    assert (progress_forecast.seconds, progress_forecast.soonest, progress_forecast.latest) == (2000.0, 2000.0, 2000.0)


def test_the_spread_of_the_rates_is_that_of_the_forecast() -> None:
    progress_forecast = forecast(points([0.5, 2.0, 5.0], lag=1200), LIVE, NOW, target_seconds=200)
    assert (progress_forecast.seconds, progress_forecast.soonest, progress_forecast.latest) == (1000.0, 250.0, None)
    assert "about 16.7 min (at the soonest in 4.2 min, never at its slowest)" in progress_forecast.sentence


def test_a_table_whose_runs_apply_less_than_comes_falls_behind() -> None:
    progress_forecast = forecast(points([0.4, 0.5, 0.6], lag=9000), LIVE, NOW)
    assert (progress_forecast.pace, progress_forecast.rate, progress_forecast.seconds) == (
        Pace.FALLING_BEHIND,
        0.5,
        None,
    )
    assert progress_forecast.sentence.startswith(
        "falls behind: each second it applies 0.50 s of changes (0.40 to 0.60)"
    )


def test_a_table_that_is_behind_by_what_comes_between_two_runs_is_up_to_date() -> None:
    assert forecast(points([1.0, 1.0, 1.0], lag=150), LIVE, NOW).pace == Pace.UP_TO_DATE
    assert forecast(points([1.0, 1.0, 1.0], lag=5000), LIVE, NOW).pace == Pace.KEEPING


def test_nothing_is_said_by_two_runs_or_by_runs_of_long_ago() -> None:
    assert forecast(points([3.0], lag=9000), LIVE, NOW).pace == Pace.UNKNOWN
    assert forecast(points([3.0, 3.0], lag=9000), LIVE, NOW + 30 * 86400).pace == Pace.UNKNOWN
    assert forecast([], LIVE, NOW).pace == Pace.UNKNOWN


def test_a_table_at_the_checkpoint_of_a_feed_that_lags_or_stands_still_is_up_to_date() -> None:
    recorded = points([900.0, 0.5, 2.0], lag=234 * 86400, every=20)
    checkpoint = recorded[-1][1]
    assert forecast(recorded, checkpoint, NOW).pace == Pace.UP_TO_DATE
    assert forecast(recorded, checkpoint, NOW).sentence == ""
    assert forecast(recorded, checkpoint + 1, NOW).pace == Pace.CATCHING_UP


def test_a_table_at_the_checkpoint_of_a_stopped_feed_does_not_fall_behind_by_rare_runs() -> None:
    stopped = points([0.1, 0.1, 0.13], lag=69 * 86400)
    stopped = [(end - 500 * (number < 3), through) for number, (end, through) in enumerate(stopped)]
    assert forecast(stopped, stopped[-1][1], NOW).pace == Pace.UP_TO_DATE
    assert forecast(stopped, stopped[-1][1] + 1, NOW).pace == Pace.FALLING_BEHIND


def test_runs_of_which_each_is_longer_than_the_target_fall_behind_at_the_checkpoint_too() -> None:
    behind = points([0.5, 0.5, 0.5], lag=7200, every=3600)
    assert forecast(behind, behind[-1][1], NOW, target_seconds=300).pace == Pace.FALLING_BEHIND


def after_a_pause(rates: list[float], lag: float, pause: float) -> list[Point]:
    """Runs that kept up until they paused, and those since, the last one now."""
    since = points(rates, lag)
    begin = since[0][0] - pause
    before = [(end, int((end - 5) * 1000) << 18) for end in (begin - 100 * number for number in range(7, -1, -1))]
    return [*before, *since]


def test_runs_from_before_a_pause_say_nothing_of_the_rate() -> None:
    progress_forecast = forecast(after_a_pause([20.0, 20.0, 20.0], 9500, pause=36_000), LIVE, NOW)
    assert (progress_forecast.pace, progress_forecast.rate, progress_forecast.slowest) == (Pace.CATCHING_UP, 20.0, 20.0)
    assert forecast(after_a_pause([20.0], 9500, pause=36_000), LIVE, NOW).pace == Pace.UNKNOWN
    assert forecast(after_a_pause([1.0], 5, pause=36_000), LIVE, NOW).pace == Pace.UP_TO_DATE


def test_runs_with_news_at_odd_times_are_no_pauses() -> None:
    ends = [NOW - seconds for seconds in (4000, 3400, 3300, 2500, 2450, 1200, 700, 0)]
    progress_forecast = forecast([(end, int((end - 9000) * 1000) << 18) for end in ends], LIVE, NOW, target_seconds=60)
    assert (progress_forecast.pace, progress_forecast.lag_seconds) == (Pace.KEEPING, 9000)


@given(st.lists(st.floats(0.01, 20), min_size=2, max_size=11), st.floats(0, 1e6))
def test_the_latest_is_never_before_the_soonest(rates: list[float], lag: float) -> None:
    progress_forecast = forecast(points(rates, lag), LIVE, NOW)
    if progress_forecast.seconds is not None:
        assert progress_forecast.soonest is not None
        assert progress_forecast.soonest <= progress_forecast.seconds
        assert progress_forecast.latest is None or progress_forecast.seconds <= progress_forecast.latest


def test_the_ledger_keeps_the_newest_ends_of_runs_that_brought_a_table_forward() -> None:
    ledger, name = Ledger("sqlite://"), TableId("shop", "t")
    for through in (5, 5, 6):
        ledger.record_states("feed", [TableState(name, 1, through, State.APPLIED, life="shop.t@1", checkpoint=99)], {})
    (state,) = ledger.states()["feed"]
    assert [through for _, through in state.points] == [5, 6]
    kept: list[list[float]] = []
    for run in range(30):
        kept = _with_point(kept, run * 60.0, run + 1)
    assert [through for _, through in kept] == list(range(31 - MOST_POINTS, 31))
    assert _with_point(kept, 3600.0, 3) == [[3600.0, 3]]


def test_rounds_of_a_run_that_lives_on_are_no_points_of_their_own() -> None:
    kept: list[list[float]] = []
    for second in range(100):
        kept = _with_point(kept, float(second), second + 1)
    assert [end for end, _ in kept] == [0.0, 30.0, 60.0, 90.0, 99.0]
