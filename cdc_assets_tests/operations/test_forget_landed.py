"""Rows forgotten in a landing, whatever of it is applied, and what a landing knows of messages that are gone."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.errors import ForgetRefused, TableMoved
from cdc_assets.features.forgetting.operations import forget
from cdc_assets.features.quarantine.operations import replay
from cdc_assets.landing.maintenance import LandingLimits, maintain_landing
from cdc_assets.landing.retention import Retention, TableNeed
from cdc_assets.model.forgetting import ForgetReport
from cdc_assets.model.offsets import OffsetRange
from cdc_assets.model.progress import State
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import FOREVER
from cdc_assets.operations.change_files import write_extract
from cdc_assets.operations.explain import explain
from cdc_assets.operations.extract import extract
from cdc_assets_tests.landing.test_landing import URI, Broker, broker, canal, ddl, mark, row, rows_of
from cdc_assets_tests.memory_lake import MemoryForgetting
from cdc_assets_tests.topic_feed import TopicFeed
from cdc_assets_tests.topics import topics

VALUES = (4711, 4712)
"""Values of the forgotten key that are nowhere else."""


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> TopicFeed:
    monkeypatch.setenv("PRIVACY_KEY", "one key")
    return TopicFeed.of(Broker(), sink_uri=URI, privacy_key={"env": "PRIVACY_KEY"})


def altered(at: int, how: str) -> bytes:
    query = f"ALTER TABLE `t` {how}"
    return canal("ALTER", at, isDdl=True, sql=query, pkNames=None, sqlType=None, mysqlType=None)


def forgotten(feed: TopicFeed, key: str = "7", **more: Any) -> ForgetReport:
    return forget(feed.pipeline(), MemoryForgetting(feed.lake), "shop.t", [[key]], **more)


def left(feed: TopicFeed) -> list[int]:
    """Return which of the values some message of the landing has."""
    messages = [group.column("value").to_pylist() for groups in feed.store.files.values() for group in groups]
    return [value for value in VALUES if str(value).encode() in repr(messages).encode()]


def test_rows_that_are_landed_above_the_fence_are_not_lost_and_not_left(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 7, 4711), row(121, 8, 1), mark(150), row(160, 7, 4712), row(161, 9, 2))
    feed.apply()
    with pytest.raises(ForgetRefused, match=r"cdc\[0\] offset 4 of the landing has rows of the keys that are not app"):
        forgotten(feed)
    with pytest.raises(ForgetRefused, match="not applied yet"):
        forgotten(feed, until=155)
    assert left(feed) == [*VALUES]
    assert forgotten(feed, until=FOREVER).messages == 2
    assert left(feed) == []
    broker(feed).send(0, mark(170))
    feed.apply()
    assert rows_of(feed) == [(8, 1), (9, 2)]


def test_a_key_that_is_given_again_after_the_moment_is_not_emptied_before_it_is_applied(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 7, 4711), mark(150))
    feed.apply()
    broker(feed).send(0, row(180, 7, 4712), mark(190))
    with pytest.raises(ForgetRefused, match="offset 3 of the landing has rows"):
        forgotten(feed, until=160)
    feed.apply()
    assert rows_of(feed) == [(7, 4712)]


def test_a_message_that_gives_a_row_the_key_is_not_emptied_before_the_row_has_left_its_own(feed: TopicFeed) -> None:
    rows = {"data": [{"id": "7", "v": "4712"}], "old": [{"id": "8", "v": "4711"}]}
    broker(feed).send(0, ddl(100), row(120, 8, 4711), mark(130))
    feed.apply()
    broker(feed).send(0, canal("UPDATE", 140, **rows), mark(150))
    with pytest.raises(ForgetRefused, match=r"offset 3 of the landing has rows of the keys that are not applied yet"):
        forgotten(feed, until=FOREVER)
    feed.apply()
    assert forgotten(feed, until=FOREVER).lost == ("shop.t",)
    assert (left(feed), rows_of(feed)) == ([4711], [])
    again = TopicFeed(feed.settings, feed.log, store=feed.store)
    assert [table.state for table in again.apply().tables] == [State.HELD]


def test_rows_that_are_landed_behind_what_holds_their_table_are_not_left(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 7, 4711), mark(150))
    feed.apply()
    broker(feed).send(0, altered(170, "TURN `v`"), row(180, 7, 4712), mark(190))
    assert [table.state for table in feed.apply().tables] == [State.HELD]
    assert forgotten(feed, until=FOREVER).complete
    assert left(feed) == []


def test_messages_of_the_keys_are_found_by_the_type_that_the_key_had_then(feed: TopicFeed) -> None:
    texts = {"sqlType": {"id": 12, "v": 4}, "mysqlType": {"id": "varchar(20)", "v": "int"}}
    broker(feed).send(0, ddl(100), row(120, 7, 4711), row(121, 8, 1), mark(130))
    broker(feed).send(0, altered(140, "MODIFY COLUMN `id` VARCHAR(20)"))
    broker(feed).send(0, canal("INSERT", 150, data=[{"id": "x", "v": "4712"}], **texts), mark(160))
    outcome = feed.apply()
    assert [table.state for table in outcome.tables] == [State.APPLIED]
    assert forgotten(feed, "x").complete
    assert left(feed) == [4711]
    assert forgotten(feed, "7").complete
    assert (left(feed), [str(key) for key, _ in rows_of(feed)]) == ([], ["8"])


def test_messages_from_before_another_key_are_found_by_the_columns_that_the_key_has_now(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 4711, 7), row(121, 7, 1), mark(130))
    broker(feed).send(0, altered(140, "DROP PRIMARY KEY, CHANGE COLUMN `v` `w` INT NOT NULL, ADD PRIMARY KEY (`w`)"))
    renamed = {"sqlType": {"id": 4, "w": 4}, "mysqlType": {"id": "int", "w": "int"}, "pkNames": ["w"]}
    broker(feed).send(0, canal("INSERT", 150, data=[{"id": "4712", "w": "8"}], **renamed), mark(160))
    assert [table.state for table in feed.apply().tables] == [State.APPLIED]
    report = forgotten(feed, "7", until=FOREVER)
    assert (report.complete, report.messages, left(feed)) == (True, 1, [4712])
    (table,) = feed.lake.tables.values()
    assert sorted(table.rows.column("id").to_pylist()) == [7, 4712]


def test_a_record_behind_a_message_that_is_emptied_keeps_its_place_and_is_not_taken_for_another(
    feed: TopicFeed,
) -> None:
    feed.settings = feed.settings.model_copy(update={"quarantine": True})
    bad = canal("INSERT", 125, data=[{"id": "8", "v": "no number"}])
    broker(feed).send(0, ddl(100), row(120, 7, 4711), bad, row(130, 9, 2), mark(150))
    feed.apply()
    before = feed.lake.quarantined(raw=True)
    assert forgotten(feed, until=FOREVER).messages == 1
    replay(feed.pipeline())
    assert feed.lake.quarantined(raw=True) == before
    assert [record.raw for record in before] == [bad]
    assert rows_of(feed) == [(9, 2)]


def test_a_record_is_not_replayed_where_other_rows_were_in_messages_that_were_emptied(feed: TopicFeed) -> None:
    feed.settings = feed.settings.model_copy(update={"quarantine": True})
    moved = {"data": [{"id": "8", "v": "4712"}], "old": [{"id": "7", "v": "4711"}]}
    bad = canal("INSERT", 125, data=[{"id": "9", "v": "no number"}])
    broker(feed).send(0, ddl(100), row(120, 7, 4711), bad, canal("UPDATE", 140, **moved), mark(150))
    feed.apply()
    assert forgotten(feed, until=FOREVER).lost == ("shop.t",)
    (done,) = replay(feed.pipeline())
    assert "other rows of it through 140 are not landed any more" in done.reason
    assert len(feed.lake.quarantined()) == 1


def test_a_message_that_does_not_fit_is_known_by_its_decoded_key_or_named_by_its_place(feed: TopicFeed) -> None:
    feed.settings = feed.settings.model_copy(update={"quarantine": True})
    other, own = (canal("INSERT", at, data=[{"id": key, "v": "no 7"}]) for at, key in ((125, "8"), (126, "7")))
    broker(feed).send(0, ddl(100), row(120, 7, 4711), other, own, mark(150))
    feed.apply()
    report = forgotten(feed, "7")
    assert (report.complete, report.messages, [record.commit_ts for record in feed.lake.quarantined()]) == (
        True,
        2,
        [125],
    )
    broker(feed).send(0, canal("INSERT", 160, data=[{"id": "seven", "v": "7"}]), mark(170))
    feed.apply()
    report = forgotten(feed, "7")
    assert (report.complete, report.messages, len(report.unknown)) == (False, 0, 2)
    report = forgotten(feed, "7", records=report.unknown)
    assert (report.complete, report.messages, len(feed.lake.quarantined())) == (True, 1, 1)


class Interrupted(Broker):
    """A log of which something else comes between reading and committing."""

    between: Callable[[], object] | None = None

    def read(self, wanted: OffsetRange, batch_bytes: int = 1000) -> Iterator[pa.RecordBatch]:
        yield from super().read(wanted, batch_bytes)
        between, self.between = self.between, None
        if between is not None:
            between()


def test_a_landing_that_began_before_rows_went_does_not_say_that_they_are_there(feed: TopicFeed) -> None:
    feed.log = log = Interrupted()
    log.send(0, ddl(100), row(120, 7, 4711), mark(150))
    feed.apply()
    other = feed.landed_in()
    log.send(0, row(160, 8, 1), mark(170))
    log.between = lambda: maintain_landing(other, lambda _: TableNeed(150), int(time.time() * 1000))
    feed.apply()
    assert (left(feed), feed.landing.landed().expired) == ([], {TableId("shop", "t"): 120})


def test_a_run_whose_landed_rows_are_written_anew_meanwhile_plans_again(feed: TopicFeed) -> None:
    log = broker(feed)
    log.send(0, ddl(100), row(120, 7, 4711), row(121, 8, 1), mark(150))
    feed.apply()
    log.send(0, row(160, 7, 4712), row(161, 8, 2), mark(170))
    pipeline, reports = feed.pipeline(), list[ForgetReport]()

    def forget_first(*_: object) -> None:
        if not reports:
            reports.append(forgotten(feed, until=FOREVER))

    pipeline._watch = forget_first
    outcome = pipeline.apply("run")
    assert (reports[0].messages, {table.state for table in outcome.tables}) == (2, {State.APPLIED})
    assert feed.ledger.unread(pipeline.settings.name) == ()
    (table,) = feed.lake.tables.values()
    assert [(lake_row["id"], lake_row["v"]) for lake_row in table.rows.to_pylist()] == [(8, 2)]


def test_rows_that_expire_while_a_run_reads_them_are_said_to_have_expired_and_no_file_to_be_lost(
    feed: TopicFeed,
) -> None:
    broker(feed).send(0, ddl(100), row(120, 7, 1), mark(150))
    feed.apply()
    broker(feed).send(0, row(160, 8, 2), mark(170))
    pipeline = feed.pipeline()

    def expire(*_: object) -> None:
        maintain_landing(
            feed.landed_in(), lambda _: TableNeed(None), int(time.time() * 1000), LandingLimits(removed_days=-1)
        )

    pipeline._watch = expire
    (table,) = pipeline.apply("run").tables
    assert (table.state, feed.ledger.unread(pipeline.settings.name)) == (State.HELD, ())
    assert "expired" in table.reason


def written_anew_once(feed: TopicFeed, monkeypatch: pytest.MonkeyPatch) -> list[ForgetReport]:
    """Let a row be forgotten when the next row group is read, so that its file is written anew right before that."""
    reports, fetch = list[ForgetReport](), feed.store._fetch

    def after_forgetting(file: str, group: int) -> pa.Table:
        monkeypatch.setattr(feed.store, "_fetch", fetch)
        reports.append(forgotten(feed))
        return fetch(file, group)

    monkeypatch.setattr(feed.store, "_fetch", after_forgetting)
    return reports


def test_an_extract_whose_landed_rows_are_written_anew_meanwhile_begins_again(
    feed: TopicFeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker(feed).send(0, ddl(100), row(120, 7, 4711), row(121, 8, 1), mark(150))
    feed.apply()
    reports, pipeline = written_anew_once(feed, monkeypatch), feed.pipeline()
    changes = partial(extract, pipeline, "shop.t", 0, 150)
    source_extract, rows = write_extract(changes, str(tmp_path / "out"), "jsonl", {})
    assert ([report.messages for report in reports], source_extract.source, rows) == ([1], "feed", 1)
    (line,) = (tmp_path / "out" / "changes.jsonl").read_text().splitlines()
    assert json.loads(line)["id"] == 8


def test_changes_are_explained_though_their_file_is_written_anew_meanwhile(
    feed: TopicFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker(feed).send(0, ddl(100), row(120, 7, 4711), row(121, 8, 1), mark(150))
    feed.apply()
    reports, pipeline = written_anew_once(feed, monkeypatch), feed.pipeline()
    explained = explain(pipeline, feed.lake, "shop.t", ["8"])
    assert ([report.messages for report in reports], explained.gone) == ([1], ())
    assert [(change.position, change.kind) for change in explained.changes] == [(121, "insert")]


def test_rows_are_forgotten_though_upkeep_puts_their_file_together_with_others_meanwhile(
    feed: TopicFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker(feed).send(0, ddl(100), row(120, 7, 4711), mark(150))
    feed.apply()
    broker(feed).send(0, row(160, 8, 1), mark(170))
    feed.apply()
    fetch, reads = feed.store._fetch, itertools.count()

    def after_upkeep(file: str, group: int) -> pa.Table:
        if next(reads) in (0, 3, 6):
            limits = LandingLimits(Retention(1e6), small_files=1, removed_days=-1)
            with monkeypatch.context() as undone:
                undone.setattr(feed.store, "_fetch", fetch)
                maintain_landing(feed.landed_in(), lambda _: TableNeed(150), int(time.time() * 1000), limits)
        return fetch(file, group)

    monkeypatch.setattr(feed.store, "_fetch", after_upkeep)
    report = forgotten(feed)
    assert (report.complete, report.messages, left(feed)) == (True, 1, [])


def test_a_record_of_a_landed_window_is_replayed_after_other_rows_of_its_file_were_forgotten(feed: TopicFeed) -> None:
    feed.settings = feed.settings.model_copy(update={"quarantine": True})
    bad = canal("INSERT", 125, data=[{"id": "8", "v": "no number"}])
    broker(feed).send(0, ddl(100), row(120, 7, 4711), bad, row(130, 8, 3), mark(150))
    feed.apply()
    assert forgotten(feed).messages == 1
    (done,) = replay(feed.pipeline())
    assert ("is not INT" in done.reason, done.waiting) == (True, 1)
    feed.store.files = {name: [of_number(group) for group in groups] for name, groups in feed.store.files.items()}
    (done,) = replay(feed.pipeline())
    assert (done.reason, done.waiting, rows_of(feed)) == ("", 0, [(8, 3)])


def of_number(group: pa.Table) -> pa.Table:
    """Return messages with a number where the bad record has none, as if a later decoder could read that."""
    values = [value and value.replace(b"no number", b"2") for value in group.column("value").to_pylist()]
    place = group.column_names.index("value")
    return group.set_column(place, group.schema.field("value"), pa.array(values, group.schema.field("value").type))


def test_rows_of_other_tables_in_the_same_message_are_applied_before_it_is_emptied_and_none_beside_it_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "one key")
    topic = next(topic for topic in topics("craft") if topic.case.name == "A_all_types")
    feed = TopicFeed.recording(topic, privacy_key={"env": "PRIVACY_KEY"})
    feed.send(len(topic.lines) * 3 // 4)

    def forget_row() -> ForgetReport:
        return forget(feed.pipeline(), MemoryForgetting(feed.lake), "types.zerodates", [["1"]], until=FOREVER)

    feed.pipeline().apply(select=lambda plan: [step for step in plan.steps if step.life.born_as.table == "zerodates"])
    with pytest.raises(ForgetRefused, match=r"offset \d+ \(types.all_types\) of the landing has rows of another"):
        forget_row()
    feed.apply()
    report = forget_row()
    lost = feed.landing.landed().expired
    assert (report.complete, report.messages, {str(name) for name in lost}) == (
        True, 1, {"types.zerodates", "types.all_types"}
    )  # fmt: skip
    assert max(lost.values()) < feed.fence
    feed.send()
    assert {table.state for table in feed.apply().tables} == {State.APPLIED}
    assert feed.differences(except_for={"types.zerodates"}) == []


class Orders:
    """A seed's order of rows, marks, runs, upkeep and forgetting, some of which come between those of a run."""

    def __init__(self, seed: int) -> None:
        self.random, self.log, self.ts, self.value = random.Random(seed), Interrupted(), 100, 40_000
        self.feed = TopicFeed.of(self.log, sink_uri=URI, privacy_key={"env": "PRIVACY_KEY"})
        self.rows: dict[int, int] = {}
        self.values: dict[int, set[int]] = {key: set() for key in (1, 2, 3)}
        self.kept_out: set[int] = set()
        self.log.send(0, ddl(self.ts), mark(101))
        self.feed.apply()

    def put(self) -> None:
        """Send a new row, or one that is changed, perhaps under another key."""
        self.ts, self.value = self.ts + 10, self.value + 1
        old, key = self.random.choice((None, *self.rows)), self.random.choice((1, 2, 3))
        if old is None or (key != old and key in self.rows):
            self.log.send(0, row(self.ts, key, self.value))
        else:
            was = self.rows.pop(old)
            images = {"data": [{"id": str(key), "v": str(self.value)}], "old": [{"id": str(old), "v": str(was)}]}
            self.log.send(0, canal("UPDATE", self.ts, **images))
            self.values[old].add(self.value)  # it stands in a message of both keys
        self.rows[key] = self.value
        self.values[key].add(self.value)

    def mark(self) -> None:
        self.ts += 10
        self.log.send(0, mark(self.ts))

    def apply(self) -> None:
        self.log.between = self.random.choice((None, None, self.maintain, self.forget))
        self.feed.apply()

    def maintain(self) -> None:
        (table,) = self.feed.lake.tables.values()
        with suppress(TableMoved):
            maintain_landing(self.feed.landed_in(), lambda _: TableNeed(table.progress.tso), int(time.time() * 1000))

    def forget(self) -> None:
        """Forget a key; where that is said to be done, no byte of its values may be left."""
        key, until = self.random.choice((1, 2, 3)), self.random.choice((None, FOREVER))
        with suppress(ForgetRefused, TableMoved):
            report = forgotten(self.feed, str(key), **({} if until is None else {"until": until, "name": f"of-{key}"}))
            assert report.complete
            left = repr([[group.to_pylist() for group in some] for some in self.feed.store.files.values()])
            left += repr([table.rows.to_pylist() for table in self.feed.lake.tables.values()])
            assert [value for value in self.values[key] if f'"{value}"' in left or f"'v': {value}" in left] == []
            if self.rows.get(key) in self.values[key]:
                del self.rows[key]
            self.kept_out |= {key} if until is not None else set()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_in_any_order_nothing_is_left_of_forgotten_keys_and_no_other_row_is_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "one key")
    orders = Orders(seed)
    for _ in range(14):
        steps = (orders.put, orders.put, orders.mark, orders.apply, orders.apply, orders.forget, orders.maintain)
        orders.random.choice(steps)()
    orders.log.between = None
    orders.mark()
    orders.feed.apply()
    wanted = {key: value for key, value in orders.rows.items() if key not in orders.kept_out}
    assert dict(rows_of(orders.feed)) == wanted
