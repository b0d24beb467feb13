"""Topics in Dagster without a run: what the sensor asks for, what it lands itself, and the asset of the landing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from cdc_assets.defs import build_changefeed_defs
from cdc_assets.defs.catch_up import catch_up_job
from cdc_assets.defs.resources import ConfiguredFeed, S3Credentials
from cdc_assets.defs.sensor import checkpoint_sensor
from cdc_assets.formats.messages import Kind
from cdc_assets.landing.landing import Landing
from cdc_assets.sources.topics.archive.reader import ArchiveReader
from cdc_assets.sources.topics.source import TopicsSource
from cdc_assets_tests.archived_topic import ArchivedTopic
from cdc_assets_tests.defs.test_sensor import why
from cdc_assets_tests.topic_feed import archive_of
from cdc_assets_tests.topics import Topic, topics

NAME = "shop"
JOB = f"{NAME}_catch_up"
TOPIC = next(topic for topic in topics("simple") if topic.case.name == "D_keys")


class Watched:
    """A topic that comes into an archive, an instance, and a sensor whose clock the test turns."""

    def __init__(self, topic: Topic, directory: Path, instance: dg.DagsterInstance, **given: Any) -> None:
        self.feed = ArchivedTopic(topic, directory, name=NAME, **{"stalled_after_seconds": 10**9, **given})
        self.instance = instance
        self.now = 1_800_000_000
        self.cursor: str | None = None
        self.source = ConfiguredFeed(self.feed.settings, self.feed.lake)
        partitions = dg.DynamicPartitionsDefinition(name=f"cdc_{NAME}")
        job = catch_up_job(self.source, JOB)
        self._sensor = checkpoint_sensor(self.source, partitions, job, NAME, S3Credentials(), lambda: self.now)

    def tick(self, seconds: int = 0) -> dg.SensorResult | dg.SkipReason:
        self.now += seconds
        with dg.build_sensor_context(self.instance, cursor=self.cursor) as context:
            result = self._sensor(context)
        assert isinstance(result, (dg.SensorResult, dg.SkipReason))
        if isinstance(result, dg.SensorResult):
            self.cursor = result.cursor
        return result

    def asked(self, seconds: int = 0) -> list[tuple[list[str], str]]:
        """Return the tables of the runs that a tick asks for, none for all, with their attempts."""
        result = self.tick(seconds)
        requests = (result.run_requests or []) if isinstance(result, dg.SensorResult) else []
        configs = [request.run_config["ops"][f"{JOB}_tables"]["config"] for request in requests]
        assert all(config["keep_alive"] for config in configs)
        return [
            (config["tables"], request.tags["cdc/attempt"]) for config, request in zip(configs, requests, strict=True)
        ]

    def why(self, seconds: int = 0) -> str:
        return why(self.tick(seconds))


@pytest.fixture
def watched(tmp_path: Path, instance: dg.DagsterInstance) -> Watched:
    return Watched(TOPIC, tmp_path, instance)


def without(topic: Topic, kind: Kind, lines: int) -> list[dict[str, Any]]:
    """Return the first lines of a topic but for those of a kind, offsets anew."""
    kept = [
        line
        for line, event in zip(topic.lines[:lines], topic.spoken.slice(0, lines).to_pylist(), strict=True)
        if event["kind"] != kind.value
    ]
    offsets: dict[tuple[str, int], int] = {}
    sent_lines = []
    for line in kept:
        place = line["topic"], line["partition"]
        offsets[place] = offsets.get(place, -1) + 1
        sent_lines.append({**line, "offset": offsets[place]})
    return sent_lines


def marks_after(topic: Topic, lines: int, offsets: dict[Any, int]) -> list[dict[str, Any]]:
    """Return the newest mark of each partition, behind the offsets that are there."""
    newest = {}
    for line, event in zip(topic.lines[:lines], topic.spoken.slice(0, lines).to_pylist(), strict=True):
        if event["kind"] == Kind.RESOLVED.value:
            newest[line["topic"], line["partition"]] = line
    return [{**line, "offset": offsets.get(place, 0)} for place, line in newest.items()]


def test_topics_that_are_empty_ask_for_nothing_and_say_what_is_missing(watched: Watched) -> None:
    assert "no messages at all" in watched.why()


def test_what_comes_into_topics_is_asked_for_before_anything_is_landed(watched: Watched) -> None:
    watched.feed.write(50)
    assert watched.asked() == [([], "1")]
    assert "messages not landed" in watched.why(5)


def test_a_run_that_lands_nothing_is_asked_for_again_later_each_time(watched: Watched) -> None:
    watched.feed.write(50)
    watched.asked()
    attempts = [attempt for _ in range(10) for _, attempt in watched.asked(30)]
    assert attempts[:2] == ["2", "3"]


def test_while_a_run_is_under_way_nothing_more_is_asked_for(watched: Watched) -> None:
    watched.feed.write(50)
    watched.asked()
    create_run_for_test(
        watched.instance, job_name=JOB, status=dg.DagsterRunStatus.STARTED, tags={"cdc/changefeed": NAME}
    )
    watched.feed.write(80)
    assert watched.asked(300) == []


def test_what_was_landed_is_planned_and_new_messages_are_asked_for_though_no_table_is_due(watched: Watched) -> None:
    watched.feed.write(len(TOPIC.lines) // 2)
    watched.feed.land()
    result = watched.tick()
    assert isinstance(result, dg.SensorResult)
    assert result.dynamic_partitions_requests
    assert len(result.run_requests or []) == 1


def test_marks_alone_start_no_run_and_are_landed_by_the_sensor(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    watched = Watched(TOPIC, tmp_path, instance, landing={"mark_interval_seconds": 0})
    lines = without(TOPIC, Kind.RESOLVED, 60)
    archive_of(lines, watched.feed.archive, "1.jsonl")
    watched.feed.land()
    ends = {(line["topic"], line["partition"]): line["offset"] + 1 for line in lines}
    archive_of(marks_after(TOPIC, 60, ends), watched.feed.archive, "2.jsonl")
    result = watched.tick()
    assert isinstance(result, dg.SensorResult)
    assert [
        run_request.run_config["ops"][f"{JOB}_tables"]["config"]["tables"] for run_request in result.run_requests or []
    ] == [[]]
    with watched.source.pipeline(S3Credentials()) as pipeline:
        assert pipeline.source.fence() > 0
        assert pipeline.landing is not None
        assert pipeline.landing.behind() == 0


def test_messages_that_expired_unread_are_reported_and_requested_so_that_a_run_fails_by_them(watched: Watched) -> None:
    watched.feed.write(50)
    watched.feed.land()
    for file in watched.feed.archive.iterdir():
        file.unlink()
    archive_of(TOPIC.lines[60:90], watched.feed.archive, "later.jsonl")
    assert len(watched.asked()) == 1
    assert "expired before they were read" in watched.why(5)


@pytest.mark.filterwarnings("ignore")  # Dagster says what is new in it
def test_a_run_that_cannot_land_fails_with_the_sentence(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    feed = ArchivedTopic(TOPIC, tmp_path, name=NAME)
    feed.write(50)
    feed.land()
    for file in feed.archive.iterdir():
        file.unlink()
    archive_of(TOPIC.lines[60:90], feed.archive, "later.jsonl")
    job = build_changefeed_defs(feed.settings, feed.lake).resolve_job_def(JOB)
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    shown = failure.step_failure_data.user_failure_data
    assert shown is not None
    assert "expired before they were read" in str(shown.description)


def test_an_idle_tick_asks_the_log_and_the_catalog_and_nothing_else(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.feed.write()
    watched.feed.land()
    watched.tick()
    watched.tick(30)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("an idle tick reads no message, and plans only what it looks at again")

    monkeypatch.setattr(ArchiveReader, "read", never)
    monkeypatch.setattr(TopicsSource, "fence", never)
    monkeypatch.setattr(Landing, "advance", never)
    watched.tick(1)


@pytest.mark.filterwarnings("ignore")  # Dagster says what is new in it
def test_the_landing_stands_between_topics_and_ddl_and_lands_by_itself(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    feed = ArchivedTopic(TOPIC, tmp_path, name=NAME)
    feed.write()
    defs = build_changefeed_defs(feed.settings, feed.lake)
    graph = defs.resolve_asset_graph()
    assert graph.get(dg.AssetKey([NAME, "ddl"])).parent_keys == {dg.AssetKey([NAME, "landing"])}
    assert graph.get(dg.AssetKey([NAME, "landing"])).parent_keys == {dg.AssetKey([NAME, "topics"])}
    job = defs.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(asset_selection=[dg.AssetKey([NAME, "landing"])], instance=instance)
    (event,) = result.asset_materializations_for_node(f"{NAME}__landing")
    assert event.metadata["messages"].value == len(TOPIC.lines)
    assert event.metadata["messages_behind"].value == 0
    offsets = event.metadata["offsets"]
    assert isinstance(offsets, dg.TableMetadataValue)
    landed = {record.data["partition"]: record.data["landed to"] for record in offsets.records}
    assert landed == {
        f"{line['topic']}[{line['partition']}]": line["offset"] + 1 for line in sorted(TOPIC.lines, key=_offset)
    }
    assert event.metadata["checkpoint_ts"].value == str(max(commit_ts(TOPIC, Kind.RESOLVED)))


def commit_ts(topic: Topic, kind: Kind) -> list[int]:
    return [event["commit_ts"] for event in topic.spoken.to_pylist() if event["kind"] == kind.value]


def _offset(line: dict[str, Any]) -> int:
    return int(line["offset"])
