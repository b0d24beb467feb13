"""Recorded connectors: every variant equals the database at every mark, but for what its messages cannot give."""

from __future__ import annotations

import pytest

from cdc_assets_tests.connector_topics import Recording, recordings

RECORDINGS = recordings()
ALWAYS = ("M_mariadb/default", "M_mariadb/iso3", "P_postgres/default")
"""What is always tried; the others are the same database in other settings, and are part of the soak."""


def some() -> list[object]:
    told = [one for one in RECORDINGS if one.case == "M_mariadb" or one.has_schemas]
    return [
        pytest.param(one, id=str(one), marks=() if str(one) in ALWAYS else (pytest.mark.soak,)) for one in told
    ] or [pytest.param(None, marks=pytest.mark.skip(reason="no recorded connectors beside the checkout"))]


@pytest.mark.parametrize("recording", some())
def test_a_connector_s_topics_equal_its_database_at_every_mark(recording: Recording) -> None:
    feed = recording.feed()
    for mark in recording.marks:
        feed.log.lines = recording.lines_at(mark)
        feed.apply()
        found = [one for one in recording.differences(feed, mark) if not one.startswith("public.doc")]
        assert (mark.number, found) == (mark.number, [])
