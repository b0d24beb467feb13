"""Times as texts."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.model.tso import iso_time, parse_iso_time, tso_time


@given(st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.just(timezone(timedelta(hours=2)))))
def test_a_time_is_read_as_it_was_written_to_the_millisecond(moment: datetime) -> None:
    assert parse_iso_time(iso_time(moment)) == moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@pytest.mark.parametrize("text", ["2026-01-31T13:45:00", "2026-01-31 13:45:00Z", "2026-01-31T15:45:00.000+02:00"])
def test_times_of_positions_and_of_clocks_have_one_form(text: str) -> None:
    moment = parse_iso_time(text)
    assert iso_time(moment) == tso_time(int(moment.timestamp() * 1000) << 18) == "2026-01-31T13:45:00.000Z"
