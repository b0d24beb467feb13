"""What landing keeps: no row that is needed goes, and every answer that lacks rows says so or is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cdc_assets.errors import ExtractRefused, RebuildRefused
from cdc_assets.lake.row_groups import is_packed
from cdc_assets.landing.iceberg import LandingTable
from cdc_assets.landing.maintenance import LandingLimits, LandingUpkeep, landing_due, maintain_landing
from cdc_assets.landing.retention import APPLIED, Needs, Retention, TableNeed, bytes_kept
from cdc_assets.model.offsets import Partition
from cdc_assets.model.progress import AppliedState, Phase, Progress, State
from cdc_assets.model.schema import TableId
from cdc_assets.operations.explain import explain
from cdc_assets.operations.extract import extract
from cdc_assets.operations.landings import (
    HELD,
    INCOMPLETE,
    SET_ASIDE,
    WITHOUT_KEY,
    landing_needs,
    recorded_needs,
    taken_through,
)
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.report.tables import TableStatus
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.connector_writer import URI as CONNECTOR_URI
from cdc_assets_tests.connector_writer import Source as Connector
from cdc_assets_tests.lake_contents import contents_of
from cdc_assets_tests.landing.test_generated_connectors import TABLE, held, turns
from cdc_assets_tests.landing.test_generated_topics import any_history, any_style, faults
from cdc_assets_tests.landing.test_keyless_connectors import message, rows, send
from cdc_assets_tests.landing.test_landing import URI, Broker, broker, ddl, mark, row, rows_of
from cdc_assets_tests.landing.test_landing_upkeep import NOW, at, landed_in_turns
from cdc_assets_tests.message_writer import marks
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.source import Ddl
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

AT_ONCE = Retention(at_once=True)
T = TableId("shop", "t")


def needs_of(feed: TopicFeed) -> Needs:
    """Return what the lake needs of the landing as it stands."""
    pipeline = feed.pipeline()
    return landing_needs(pipeline, feed.landing, pipeline.planner.plan()[1])


def maintained(feed: TopicFeed, retention: Retention = AT_ONCE) -> LandingUpkeep:
    """Maintain the landing by what the lake needs of it."""
    return maintain_landing(feed.landing, needs_of(feed), NOW, LandingLimits(retention))


def kept(feed: TopicFeed, retention: Retention = AT_ONCE) -> dict[str, int]:
    """Return the reasons for which bytes stay."""
    return bytes_kept(feed.landing.landed(), needs_of(feed), retention, NOW)


def rebuilt(feed: TopicFeed, *tables: str) -> str:
    """Rebuild tables; return why that was refused, "" where it was not."""
    pipeline = feed.pipeline()
    try:
        rebuild(pipeline, MemoryRebuilds(feed.lake), list(tables), "rebuild")
    except RebuildRefused as refused:
        return refused.message
    return ""


# --- generated orders -------------------------------------------------------------------------------------------------

SEEDS = [pytest.param(seed, marks=() if seed in (2, 48) else pytest.mark.soak) for seed in range(100)]


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_equal_their_source_and_a_rebuild_is_refused_or_right(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    source, style = any_history(random), any_style(random)
    toml = tmp_path / "changefeed.toml"
    toml.write_text(style.toml)
    feed = TopicFeed.of(log := MemoryLog([]), sink_uri=style.uri, changefeed_config=toml, name="c")
    ddls = {event.ts for event in source.log if isinstance(event, Ddl)}
    expired = 0
    for at_mark, _ in marks(source, style, Picks(random.randbytes(600)), log):
        if random.random() < 0.7:
            before = [source.contents(at_mark - 1)] if at_mark in ddls else []
            assert list(faults(feed, *before, source.contents(at_mark))) == [], (style, at_mark)
            if random.random() < 0.6:
                expired += maintained(feed).rows_expired
    assert list(faults(feed, source.contents(at_mark))) == []
    assert expired
    for name in feed.lake.names():
        assert "nothing was changed" in (rebuilt(feed, str(name)) or "nothing was changed")
        actual = {table: contents_of(feed.lake.read(table)) for table in feed.lake.names()}
        assert actual == source.contents(at_mark), name


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_connectors_table_is_equal_and_a_rebuild_is_refused_or_right(seed: int, partitions: int) -> None:
    source = Connector(seed, partitions)
    feed = TopicFeed.of(log := MemoryLog([]), sink_uri=CONNECTOR_URI, name="c")
    for _ in turns(source, log, feed):
        if TABLE in feed.lake.names():
            maintained(feed)
            refused = rebuilt(feed, str(TABLE))
            assert bool(refused) == bool(feed.landing.landed().expired)
            assert "existed and is missing" not in refused  # messages are no files that a person could restore
            assert held(feed, source) == source.rows


@pytest.mark.parametrize("fails", ["write_events", "replace"])
def test_a_maintenance_that_dies_takes_nothing(feed: TopicFeed, fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    landed_in_turns(feed, range(90, 96))
    broker(feed).send(0, row(at(97), 97, 97))
    feed.apply()
    before = feed.landing.landed()

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(feed.store, fails, killed)
        maintained(feed)
    assert feed.landed_in().landed().splits == before.splits
    assert rebuilt(feed, "shop.t") == ""
    assert maintained(feed).rows_expired == 6
    assert [split.low for split in feed.landed_in().landed().splits] == [at(97)]


# --- what stays -------------------------------------------------------------------------------------------------------


@pytest.fixture
def feed() -> TopicFeed:
    return TopicFeed.of(Broker(), sink_uri=URI)


def test_applied_rows_go_at_once_and_with_days_once_they_are_old(feed: TopicFeed) -> None:
    landed_in_turns(feed, range(60, 66))
    assert kept(feed) == {APPLIED: 6 * len(row(at(60), 60, 60))}
    assert maintained(feed, Retention(1000)).rows_expired == 0
    assert maintained(feed).rows_expired == 6
    assert feed.landing.landed().splits == ()
    broker(feed).send(0, row(at(70), 70, 70), mark(at(70, 9)))
    feed.apply()
    assert len(rows_of(feed)) == 7


def held_by_a_ddl(feed: TopicFeed) -> Outcome:
    broker(feed).send(
        0, ddl(at(91), "ALTER TABLE `t` FROBNICATE").replace(b'"CREATE"', b'"ALTER"'), row(at(92), 1, 1), mark(at(93))
    )
    return feed.apply()


def held_by_a_record(feed: TopicFeed) -> Outcome:
    broker(feed).send(0, row(at(91), 1, 1).replace(b'"v":"1"', b'"v":"one"'), mark(at(93)))
    return feed.apply()


@pytest.mark.parametrize("hold", [held_by_a_ddl, held_by_a_record])
@pytest.mark.parametrize("retention", [AT_ONCE, Retention(0)], ids=["at once", "days"])
def test_a_held_table_keeps_all_its_rows(
    feed: TopicFeed, hold: Callable[[TopicFeed], Outcome], retention: Retention
) -> None:
    landed_in_turns(feed, range(60, 63))
    outcome = hold(feed)
    assert [table.state.value for table in outcome.tables] == ["held"]
    assert HELD in kept(feed, retention)
    assert maintained(feed, retention).rows_expired == 0


@pytest.mark.parametrize("retention", [AT_ONCE, Retention(0)], ids=["at once", "days"])
def test_a_table_with_records_in_quarantine_keeps_all_its_rows(retention: Retention) -> None:
    feed = landed_in_turns(TopicFeed.of(Broker(), sink_uri=URI, quarantine=True), range(60, 63))
    outcome = held_by_a_record(feed)
    assert outcome.quarantined == 1
    assert list(kept(feed, retention)) == [SET_ASIDE]
    assert maintained(feed, retention).rows_expired == 0


def test_an_incomplete_table_keeps_its_rows_beyond_their_application() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI, initial={"complete": []})
    broker(feed).send(0, row(at(60), 1, 1), mark(at(61)))
    feed.apply()
    assert list(kept(feed)) == [INCOMPLETE]
    assert maintained(feed).rows_expired == 0
    assert maintained(feed, Retention(30)).rows_expired == 1


def test_rows_wait_for_each_kind_of_their_table(feed: TopicFeed) -> None:
    both = TopicFeed.of(broker(feed), sink_uri=URI, history={"shop.*": "log"}, store=feed.store)
    landed_in_turns(feed, range(60, 63))
    both.lake, both.ledger = feed.lake, feed.ledger
    assert needs_of(both)(T).through == 0
    assert maintained(both).rows_expired == 0
    both.apply()
    assert maintained(both).rows_expired == 3


def test_rows_without_key_stay_for_days_where_a_connector_may_send_them_again() -> None:
    table = TableNeed(at(70), for_days=WITHOUT_KEY)
    feed = landed_in_turns(TopicFeed.of(Broker(), sink_uri=URI), range(60, 63))
    for retention, expired in ((AT_ONCE, 3), (Retention(50, at_once=True), 0)):
        due = landing_due(feed.landing, lambda _: table, NOW, LandingLimits(retention))
        assert due.rows_expire == expired


def test_a_table_that_stands_at_a_ddl_may_still_take_rows_of_that_position(feed: TopicFeed) -> None:
    planned = landed_in_turns(feed, range(60, 62)).apply().plan
    (life,) = planned.history.lives
    standing = {life: AppliedState(Progress(at(61), Phase.DDL), at(61), T)}
    assert taken_through(T, planned, standing) == at(61) - 1


@pytest.mark.parametrize(
    ("state", "more", "reason"),
    [
        (State.APPLIED, {}, APPLIED),
        (State.HELD, {}, HELD),
        (State.APPLIED, {"quarantined": 1}, SET_ASIDE),
        (State.APPLIED, {"incomplete": "rows are missing"}, INCOMPLETE),
        (State.APPLIED, {"incomplete": "rows are missing", "accepted": True}, APPLIED),
    ],
)
def test_status_says_why_bytes_stay(feed: TopicFeed, state: State, more: dict[str, Any], reason: str) -> None:
    landed = landed_in_turns(feed, range(60, 63)).landing.landed()
    name, at_end = TableId("shop", "t"), at(62)
    status = TableStatus(name, 0, at_end, state, life="shop.t@0", changefeed="c", checkpoint=at_end, rows=0, **more)
    size = sum(split.size for split in landed.splits)
    assert bytes_kept(landed, recorded_needs([status], landed), AT_ONCE, NOW) == {reason: size}


# --- what an answer lacks ---------------------------------------------------------------------------------------------


def test_every_answer_over_rows_that_went_says_so(feed: TopicFeed, tmp_path: Path) -> None:
    landed_in_turns(feed, range(60, 63))
    maintained(feed)
    broker(feed).send(0, row(at(70), 60, 7), mark(at(70, 9)))
    feed.apply()
    before = rows_of(feed)
    refused = rebuilt(feed, "shop.t")
    assert f"rows of shop.t through {at(62)} have expired" in refused
    assert "nothing was changed" in refused
    assert rows_of(feed) == before
    explained = explain(feed.pipeline(), feed.lake, "shop.t", ["60"])
    assert [change.position for change in explained.changes] == [at(70)]
    assert any(f"through {at(62)} have expired" in sentence for sentence in explained.gone)
    with pytest.raises(ExtractRefused, match=f"through {at(62)}"):
        extracted(feed, at(59), at(70, 9))
    assert extracted(feed, at(62), at(70, 9)) == 1


def extracted(feed: TopicFeed, since: int, until: int) -> int:
    result: Any = extract(feed.pipeline(), "shop.t", since, until)
    return sum(len(piece) for piece in result.pieces())


def test_where_rows_came_is_known_though_they_went(feed: TopicFeed) -> None:
    landed_in_turns(feed, range(60, 62))
    before = feed.landing.landed().first_rows
    maintained(feed)
    assert feed.landing.landed().splits == ()
    assert feed.landed_in().landed().first_rows == before == {(Partition("cdc", 0), T): (at(60), 1)}
    maintain_landing(feed.landing, lambda _: TableNeed(0), NOW, LandingLimits(small_files=1))  # of events
    assert feed.landed_in().landed().first_rows == before


def test_a_table_of_a_single_row_that_went_is_not_built_anew() -> None:
    feed = TopicFeed.of(MemoryLog([]), sink_uri=CONNECTOR_URI, name="c")
    send(feed.log, [message("postgresql", 10, "c", 1)])
    feed.apply()
    assert list(kept(feed)) == [WITHOUT_KEY]
    maintain_landing(feed.landing, lambda _: TableNeed(1 << 62), NOW, LandingLimits(AT_ONCE))
    assert feed.landing.landed().splits == ()
    assert "expired" in rebuilt(feed, "public.t")
    assert rows(feed).total() == 1


# --- packed files -----------------------------------------------------------------------------------------------------


def test_packed_files_are_written_once(feed: TopicFeed) -> None:
    landed_in_turns(feed, range(90, 95))
    packed = Retention(packed=True)
    assert maintained(feed, packed).row_files == 1
    assert [file.endswith("-packed.parquet") for file in feed.store.stored().rows] == [True]
    assert not landing_due(feed.landing, needs_of(feed), NOW, LandingLimits(packed))
    assert rebuilt(feed, "shop.t") == ""
    assert len(rows_of(feed)) == 5


def test_packed_files_of_the_lake_are_smaller_and_have_the_same_messages(tmp_path: Path) -> None:
    table = LandingTable(LakeSettings.from_warehouse(tmp_path), "shop")
    feed = TopicFeed.of(Broker(), sink_uri=URI, store=table)
    broker(feed).send(0, ddl(at(89)), *(row(at(90, n), n, n * 7919 % 10_007) for n in range(3000)), mark(at(91)))
    feed.apply()
    before, (file,) = feed.landing.landed(), table.stored().rows
    messages = table.fetch(file, 0)
    maintained(feed, Retention(packed=True))
    (packed,) = table.stored().rows
    assert is_packed(packed)
    assert table.fetch(packed, 0) == messages
    assert feed.landed_in().landed().splits == before.splits
    assert Path(packed).stat().st_size < Path(file).stat().st_size
    table.close()
