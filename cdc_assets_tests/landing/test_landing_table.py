"""The landing table in the lake: no JVM, one commit a landing, whoever races and whatever comes between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import BadRequestError, CommitFailedException, CommitStateUnknownException

from cdc_assets.errors import BadSettings, InputError, LakeUnavailable, TableMoved
from cdc_assets.lake.row_groups import WrittenFile
from cdc_assets.lake.table_files import referenced_files
from cdc_assets.landing import iceberg
from cdc_assets.landing.iceberg import LandingTable
from cdc_assets.landing.landing import Landing
from cdc_assets.landing.maintenance import LandingLimits, maintain_landing
from cdc_assets.landing.retention import Retention, TableNeed
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.lake.test_lost_answers import changes_something
from cdc_assets_tests.landing.test_landing import URI, Broker, broker, ddl, mark, row
from cdc_assets_tests.servers.counted import counted
from cdc_assets_tests.servers.lakes import Stores
from cdc_assets_tests.topic_feed import TopicFeed


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[TopicFeed]:
    table = LandingTable(LakeSettings.from_warehouse(tmp_path), "shop")
    yield TopicFeed.of(Broker(), sink_uri=URI, store=table)
    table.close()


def store(feed: TopicFeed) -> LandingTable:
    assert isinstance(feed.store, LandingTable)
    return feed.store


def another(feed: TopicFeed) -> LandingTable:
    return LandingTable(store(feed).table.settings, "shop")


def landing_on(feed: TopicFeed, table: LandingTable) -> Landing:
    return Landing(lambda: feed.log, feed.source.options.messages, table, lambda _: True, lambda _: b"")


def rows(table: LandingTable) -> list[tuple[int, int]]:
    landed_rows = table.table.load().scan(row_filter="part = 'rows'").to_arrow()
    return sorted(
        zip(landed_rows.column("partition").to_pylist(), landed_rows.column("offset").to_pylist(), strict=True)
    )


def test_what_is_landed_is_read_by_another_process(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), row(130, 2, 8), mark(150))
    feed.apply()
    other = another(feed)
    landed = landing_on(feed, other).landed()
    assert (landed.proven, dict(landed.marks)) == (150, {("cdc", 0): 150})
    assert [event.kind.value for event in landed.events] == ["schema", "ddl"]
    (split,) = landed.splits
    assert (str(split.table), split.first, split.last, split.low, split.high, split.rows) == (
        "shop.t",
        1,
        2,
        120,
        130,
        2,
    )
    assert other.fetch(split.file, split.group).column("offset").to_pylist() == [1, 2]
    assert other.table.identifier == ("_cdc_landing", "shop")
    other.close()


def test_the_footer_of_a_landed_file_is_read_once_for_the_rows_of_all_its_tables(
    feed: TopicFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150))
    broker(feed).send(1, row(130, 2, 8), mark(150))
    footers, opened = list[bool](), pq.ParquetFile
    feed.landing.advance()
    splits = feed.landing.landed().splits

    def counted(source: Any, metadata: Any) -> Any:
        footers.append(metadata is None)
        return opened(source, metadata=metadata)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    read = [store(feed).fetch(split.file, split.group).column("offset").to_pylist() for split in (*splits, *splits)]
    assert len({split.file for split in splits}) == 1
    assert read == [[1], [0], [1], [0]]
    assert footers == [True, False, False, False]


def test_a_landing_of_another_version_is_refused_by_a_sentence(
    feed: TopicFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150))
    with monkeypatch.context() as earlier:
        earlier.setattr(iceberg, "_WRITTEN", "0")
        feed.apply()
    other = another(feed)
    with pytest.raises(
        BadSettings, match=r"landing _cdc_landing\.shop is of version 0, and this software reads version 1"
    ):
        landing_on(feed, other).landed()
    other.close()


def test_of_two_that_land_at_once_one_wins(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150))
    feed.apply()
    broker(feed).send(0, row(160, 2, 8), mark(170))
    rival, table = another(feed), store(feed).table
    try_once = table.try_once

    def overtaken(*given: object) -> None:
        table.try_once = try_once  # type: ignore[method-assign]
        landing_on(feed, rival).advance()
        try_once(*given)  # type: ignore[arg-type]

    table.try_once = overtaken  # type: ignore[assignment,method-assign]
    feed.apply()
    assert rows(rival) == [(0, 1), (0, 3)]
    rival.close()


def test_a_compaction_that_comes_between_does_no_harm(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150))
    feed.apply()
    rival, table = another(feed), store(feed).table
    broker(feed).send(0, row(160, 2, 8), mark(170))
    try_once = table.try_once

    def overtaken(*given: object) -> None:
        table.try_once = try_once  # type: ignore[method-assign]
        kept = rival.stored()
        again = rival.table.write("rows", [rival.fetch(kept.rows[0], 0)])
        rival.table.replace([again], kept.rows, {"cdc.landing.next": kept.digest}, lambda _: True)
        try_once(*given)  # type: ignore[arg-type]

    table.try_once = overtaken  # type: ignore[assignment,method-assign]
    commits = feed.landing.advance().commits
    assert (commits, rows(rival)) == (1, [(0, 1), (0, 3)])
    rival.close()


def land(feed: TopicFeed, *times: int) -> None:
    for at in times:
        broker(feed).send(0, *([ddl(100)] if not at else []), row(120 + at, at, 7), mark(150 + at))
        feed.landing.advance()


def snapshots(feed: TopicFeed) -> int:
    return len(store(feed).table.load().metadata.snapshots)


def test_landings_leave_few_snapshots_and_those_whose_files_were_replaced(
    feed: TopicFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a landing costs grows with the snapshots that there are, and one comes every few seconds."""
    table = store(feed).table
    monkeypatch.setattr(table, "_most_past", 1)
    land(feed, 0, 1, 2, 3, 4, 5)
    assert snapshots(feed) == 1
    files = store(feed).stored().rows
    limits = LandingLimits(Retention(1e6), small_files=2, removed_days=1e6)
    maintain_landing(feed.landing, lambda _: TableNeed(None), 1 << 42, limits)
    land(feed, 6, 7, 8)
    assert snapshots(feed) == 3  # rows and events are put together in a commit each
    assert {Path(file).name for file in files} <= {Path(file).name for file in referenced_files(table.load(), table.io)}
    assert len(rows(store(feed))) == 9


def test_a_catalog_that_keeps_all_snapshots_takes_landings_all_the_same(
    feed: TopicFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store(feed).table, "_most_past", 2)
    land(feed, 0)
    refusals, catalog = list[int](), store(feed).table._catalog
    commit = catalog.commit_table

    def keeping(table: Any, requirements: Any, updates: Any) -> Any:
        if any(update.action == "remove-snapshots" for update in updates):
            refusals.append(len(table.metadata.snapshots))
            raise BadRequestError("this catalog does not allow external snapshot management")
        return commit(table, requirements, updates)

    monkeypatch.setattr(catalog, "commit_table", keeping)
    land(feed, *range(1, 10))
    assert (snapshots(feed), refusals) == (10, [3, 5, 9])
    assert len(rows(store(feed))) == 10


def test_of_two_that_remove_the_same_snapshots_both_go_on(feed: TopicFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg refuses to remove one that is not there; a name that a person gave keeps its snapshot."""
    land(feed, 0, 1, 2, 3)
    table, rival = store(feed).table, another(feed).table
    (first, *_) = table.load().metadata.snapshots
    table.load().manage_snapshots().create_tag(first.snapshot_id, "audit").commit()
    commit = table._catalog.commit_table

    def overtaken(*given: Any) -> Any:
        monkeypatch.setattr(table._catalog, "commit_table", commit)
        rival.expire(1 << 62)
        return commit(*given)

    monkeypatch.setattr(table._catalog, "commit_table", overtaken)
    table.expire(1 << 62)
    assert snapshots(feed) == 2
    land(feed, 4)
    assert len(rows(store(feed))) == 5
    rival.close()


def test_a_commit_that_took_effect_and_was_refused_when_it_was_asked_again_can_be_read(
    feed: TopicFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg deletes the manifests of a commit that was refused."""
    land(feed, 0)
    catalog = store(feed).table._catalog
    commit = catalog.commit_table

    def answered_twice(*given: Any) -> Any:
        monkeypatch.setattr(catalog, "commit_table", commit)
        commit(*given)
        return commit(*given)

    monkeypatch.setattr(catalog, "commit_table", answered_twice)
    land(feed, 1, 2)
    assert rows(store(feed)) == [(0, 1), (0, 3), (0, 5)]


@pytest.mark.parametrize("error", [CommitFailedException, CommitStateUnknownException])
@pytest.mark.parametrize("what", ["landing", "upkeep"])
def test_what_took_effect_and_was_answered_otherwise_is_neither_undone_nor_repeated(
    feed: TopicFeed, what: str, error: type[Exception]
) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150))
    feed.apply()
    broker(feed).send(0, row(160, 2, 8), mark(170))
    if what == "upkeep":
        feed.apply()
    table = store(feed).table
    try_once = table.try_once

    def unanswered(*given: object) -> None:
        table.try_once = try_once  # type: ignore[method-assign]
        try_once(*given)  # type: ignore[arg-type]
        raise error("the answer was lost, and the client asked again")

    table.try_once = unanswered  # type: ignore[assignment,method-assign]
    if what == "landing":
        feed.landing.advance()
    else:
        with suppress(TableMoved):
            maintain_landing(feed.landing, lambda _: TableNeed(None), 1, LandingLimits(Retention(1e6), small_files=2))
    other = another(feed)
    landed = landing_on(feed, other).landed()
    offsets = [
        offset for split in landed.splits for offset in other.fetch(split.file, split.group)["offset"].to_pylist()
    ]
    assert sorted(offsets) == [1, 3]
    assert rows(other) == [(0, 1), (0, 3)]
    assert landed.proven == 170
    other.close()


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "server"), [("rest", "uri"), ("glue", "glue.endpoint")])
def test_what_is_landed_through_a_catalog_that_loses_answers_is_there_once(
    kind: str, server: str, stores: Stores
) -> None:
    """Snapshots are removed by what a catalog of its kind takes, and no commit is undone that took effect."""
    changed = list[bool]()

    def is_lost(head: list[bytes]) -> bool:
        if changes_something(head):
            changed.append(len(changed) % 4 == 3)
            return changed[-1]
        return False

    with counted(stores.rest.uri if kind == "rest" else stores.glue, is_lost) as way:
        table = LandingTable(stores.settings(kind, **{server: way.endpoint}), "shop")
        table.table._most_past = 2
        feed = TopicFeed.of(Broker(), sink_uri=URI, store=table)
        for at in range(12):
            broker(feed).send(0, *([ddl(100)] if not at else []), row(120 + at, at, 7), mark(150 + at))
            for _ in range(4):
                with suppress(TableMoved, LakeUnavailable):
                    feed.landing.advance()
                    break
        assert rows(table) == [(0, 1 + 2 * at) for at in range(12)]
        assert any(changed)
        assert snapshots(feed) < 9
        table.close()


def test_of_two_that_put_the_same_files_together_one_wins(feed: TopicFeed) -> None:
    for at in range(3):
        broker(feed).send(0, *([ddl(100)] if not at else []), row(120 + at, at, 7), mark(150 + at))
        feed.apply()
    rival, table = another(feed), store(feed).table
    limits, try_once = LandingLimits(Retention(1e6), small_files=2, removed_days=1e6), table.try_once

    def overtaken(*given: object) -> None:
        table.try_once = try_once  # type: ignore[method-assign]
        maintain_landing(landing_on(feed, rival), lambda _: TableNeed(None), 1 << 42, limits)
        try_once(*given)  # type: ignore[arg-type]

    table.try_once = overtaken  # type: ignore[assignment,method-assign]
    with pytest.raises(TableMoved):
        maintain_landing(feed.landing, lambda _: TableNeed(None), 1 << 42, limits)
    assert rows(rival) == [(0, 1), (0, 3), (0, 5)]
    assert [len(feed.landing.landed().splits), len(rival.stored().rows)] == [3, 1]
    rival.close()


def test_files_whose_offsets_moved_are_refused(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), mark(150))
    feed.apply()
    with pytest.raises(TableMoved, match="another run committed first"):
        store(feed).table.append(
            [WrittenFile("nowhere", 0)], {}, lambda properties: properties["cdc.landing.next"] == "other"
        )


def test_rows_that_are_gone_say_so(feed: TopicFeed, tmp_path: Path) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150))
    feed.apply()
    (split,) = feed.landing.landed().splits
    Path(split.file).unlink()
    with pytest.raises(InputError, match="no longer exists"):
        store(feed).fetch(split.file, split.group)
