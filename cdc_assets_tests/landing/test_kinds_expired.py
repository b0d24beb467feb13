"""Kinds of tables that are switched on when landed rows have expired, or were only put together."""

from __future__ import annotations

import pytest

from cdc_assets.landing.maintenance import LandingLimits, maintain_landing
from cdc_assets.landing.retention import Retention, TableNeed
from cdc_assets.model.progress import Lack
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets_tests.folding import fold_differences
from cdc_assets_tests.landing.test_landing import URI, Broker, broker, mark, row
from cdc_assets_tests.landing.test_landing_upkeep import NOW, at, landed_in_turns
from cdc_assets_tests.topic_feed import TopicFeed

KINDS = ("", "log", "scd2")


def switched_on(kind: str, limits: LandingLimits) -> tuple[TopicFeed, Outcome]:
    """Apply to all kinds but one, let the landing be maintained, and apply to all from then on."""
    kinds = [other_kind for other_kind in KINDS[1:] if other_kind != kind]
    first = {"shop.*": {"kinds": kinds, "mirror": bool(kind)}}
    feed = landed_in_turns(TopicFeed.of(Broker(), sink_uri=URI, history=first), range(90, 95))
    maintain_landing(feed.landing, lambda _: TableNeed(at(92)), NOW, limits)
    log, store, lake, ledger = feed.log, feed.store, feed.lake, feed.ledger
    assert isinstance(log, Broker)
    feed = TopicFeed.of(log, sink_uri=URI, history={"shop.*": list(KINDS[1:])}, store=store)
    feed.lake, feed.ledger = lake, ledger
    broker(feed).send(0, row(at(95), 95, 95), mark(at(95, 9)))
    return feed, feed.apply()


def rows(feed: TopicFeed, kind: str) -> int:
    return len(feed.lake.read(TableId("shop", f"t__{kind}" if kind else "t")))


@pytest.mark.parametrize("kind", KINDS)
def test_where_rows_have_expired_a_table_begins_where_the_others_stand(kind: str) -> None:
    feed, outcome = switched_on(kind, LandingLimits(Retention(7.5)))
    name = f"shop.t__{kind}" if kind else "shop.t"
    assert [table.reason for table in outcome.tables if table.reason] == []
    history_findings = [
        (finding.table, finding.detail) for finding in outcome.findings if finding.rule == "history-since"
    ]
    assert history_findings == [(name, f"from {at(94, 9)}")]
    lacks = {table.life.kind: table.gap.filling.lack for table in outcome.tables if table.gap is not None}
    assert lacks == ({} if kind else {"": Lack.LATE})
    assert {kind: rows(feed, kind) for kind in KINDS} == {**dict.fromkeys(KINDS, 6), kind: 1}


@pytest.mark.parametrize("kind", KINDS)
def test_where_rows_were_put_together_a_table_is_whole(kind: str) -> None:
    feed, outcome = switched_on(kind, LandingLimits(small_files=2))
    assert [finding for finding in outcome.findings if finding.rule == "history-since"] == []
    assert {kind: rows(feed, kind) for kind in KINDS} == dict.fromkeys(KINDS, 6)
    assert fold_differences(feed.lake) == []
