"""The targets of topics: landing and applying beside reading alone and beside files, looking, memory, files a day."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from cdc_assets_tests.bench import scenarios as files
from cdc_assets_tests.bench.feeds import Feed
from cdc_assets_tests.bench.measuring import Cost, contend, run
from cdc_assets_tests.bench.messages import LEAST_PER_SECOND, rates
from cdc_assets_tests.bench.scenarios import PYTHON, SCENARIOS, Figure, Place, _best, _check, _laps, _scenario, _whole
from cdc_assets_tests.bench.topics import PARTITIONS, archive, broker_cpu_seconds, play, sink_uri, write_archive
from cdc_assets_tests.bench.translated import TRANSLATIONS
from cdc_assets_tests.kafka_broker import Broker, running_broker

__all__ = ["ON_A_BROKER", "SCENARIOS"]

ON_A_BROKER = ("topics", "archived-topic", "by-offset", "many-tables-topic", "idle-topic", "topic-memory")
"""Scenarios that start a broker, or the command with a JVM."""

_LANDINGS_A_DAY = 24 * 3600 // 30


@_scenario
def messages(place: Place) -> Iterator[Figure]:
    """Messages of topics to Arrow, on one core: by protocol, beside fastavro, and by byte beside Canal-JSON."""
    rate_by_protocol = {}
    for rate in rates(place.of(320_000, 160)):
        rate_by_protocol[rate.protocol] = rate
        per = 100_000 / rate.events
        notes = {"classify": round(per * rate.classify_seconds, 3), "decode": round(per * rate.decode_seconds, 3)}
        limit = 100_000 / LEAST_PER_SECOND if rate.protocol == "craft" else None
        what = f"{rate.protocol}: 100,000 row events, CPU"
        yield Figure("messages", what, per * rate.seconds, limit=limit, notes=notes)
    avro, canal = rate_by_protocol["avro"], rate_by_protocol["canal-json"]
    yield Figure("messages", "avro to fastavro alone", avro.seconds / avro.beside_seconds, "x", 1 / 0.6)
    changed = rate_by_protocol["canal-json, partial old"]
    whole = "canal-json, partial old to whole images, by event"
    yield Figure("messages", whole, changed.seconds / changed.events / (canal.seconds / canal.events), "x", 2)
    by_byte = canal.seconds / canal.value_bytes
    for name, limit in (("debezium-json", 2.0), ("ydb-json", 1.5)):
        seconds_per_byte = rate_by_protocol[name].seconds / rate_by_protocol[name].value_bytes
        yield Figure("messages", f"{name} to Canal-JSON, by byte", seconds_per_byte / by_byte, "x", limit)


@_scenario
def topics(place: Place) -> Iterator[Figure]:
    """A topic of Canal-JSON on a broker beside the same changes in files, and landing beside reading alone."""
    feed, right, root = place.feed("canal", protocol="canal-json"), place.feed("csv"), place.at("lakes")
    changes, keys = place.of(1_000_000, 100), place.of(500_000, 50)
    for written_feed in (feed, right):  # what DuckDB reads is CSV
        written_feed.append(changes, keys, fill=keys, files=4)
    with running_broker() as broker:
        count, uri = play(feed, broker, "bench"), sink_uri(broker.address, "bench")
        lakes = [str(root / str(n)) for n in range(3)]
        cost, measured = contend("topic", uri=uri, address=broker.address, held_in="bench", count=count, lakes=lakes)
        read, landed = (_best(measured[who]) for who in ("consume", "land"))
        spent = [min(lap["cpu_seconds"] for lap in measured[who]) for who in ("consume", "land")]
        yield Figure("topics", f"{count:,} messages by consume() alone", read, notes=_laps(measured["consume"], cost))
        yield Figure("topics", f"{count:,} messages landed", landed, notes=_laps(measured["land"], cost))
        yield Figure("topics", "landing to consume()", landed / read, "x", 2)
        yield Figure("topics", "the same in CPU seconds", spent[1] / spent[0], "x")
        over = _applied(broker, uri, place)
        _check(feed, root.parent / "topic", right=right)
        yield Figure("topics", "landed and applied, process start to exit", over[0].wall_seconds, notes=over[1])
    beside = files._apply(feed, root / "files")
    _check(feed, root / "files", right=right)
    yield Figure("topics", "the same from files, process start to exit", beside.wall_seconds, notes=_whole(beside))
    yield from _beside_files("topics", over[0], beside, 2.5)


@_scenario
def archived_topic(place: Place) -> Iterator[Figure]:
    """A topic in two files of an archive, beside the same messages on a broker."""
    feed, right, directory = place.feed("canal", protocol="canal-json"), place.feed("csv"), place.at("archive")
    changes, keys = place.of(1_000_000, 100), place.of(500_000, 50)
    for written_feed in (feed, right):  # what DuckDB reads is CSV
        written_feed.append(changes, keys, fill=keys, files=4)
    archive(feed, directory, 2)
    files_of_messages = ["--archive", str(directory), "--archive-layout", "records"]
    lake = place.at("archived")
    with running_broker() as broker:
        play(feed, broker, "bench")
        uri = sink_uri(broker.address, "bench")
        over, notes = _applied(broker, uri, place)
        cost = run([*PYTHON, "apply", "--sink-uri", uri, *files_of_messages, "--warehouse", str(lake), "--json"])
    _check(feed, lake, right=right)
    yield Figure("archived-topic", "an archive, process start to exit", cost.wall_seconds, notes=_whole(cost))
    yield Figure("archived-topic", "the same on a broker", over.wall_seconds, notes=notes)
    yield Figure("archived-topic", "an archive to a broker, CPU seconds", cost.cpu_seconds / over.cpu_seconds, "x", 1.3)
    yield Figure("archived-topic", "the same in peak memory", cost.peak_rss_mb / over.peak_rss_mb, "x", 1.3)


@_scenario
def by_offset(place: Place) -> Iterator[Figure]:
    """Archives of the protocols that are landed by offset, in turns with Canal-JSON with TiDB's extension."""
    feed, right = place.feed("canal", protocol="canal-json"), place.feed("csv")
    changes, keys = place.of(300_000, 100), place.of(150_000, 50)
    for each in (feed, right):  # what DuckDB reads is CSV
        each.append(changes, keys, fill=keys, files=4)
    costs: dict[str, list[Cost]] = {protocol: [] for protocol in TRANSLATIONS}
    for _ in range(place.of(2)):
        for protocol, translation in TRANSLATIONS.items():
            directory, lake = place.at("archive"), place.at("lake")
            flags = ["--archive", str(directory), "--archive-layout", "records"]
            flags += translation.flags(feed, place.at("settings"))
            write_archive(translation.messages(feed), directory, 2, translation.topic)
            words = ["apply", "--sink-uri", translation.uri, *flags, "--warehouse", str(lake), "--json"]
            costs[protocol].append(run([*PYTHON, *words]))
            _check(feed, lake, right=right, stamped=translation.stamped)
    cost_by_protocol = {
        protocol: min(protocol_costs, key=lambda cost: cost.cpu_seconds) for protocol, protocol_costs in costs.items()
    }
    beside = cost_by_protocol[next(iter(TRANSLATIONS))]
    for protocol, cost in cost_by_protocol.items():
        yield Figure("by-offset", f"{changes:,} changes, {protocol}", cost.wall_seconds, notes=_whole(cost))
        if cost is not beside:
            spent, held = cost.cpu_seconds / beside.cpu_seconds, cost.peak_pss_mb / max(1, beside.peak_pss_mb)
            yield Figure("by-offset", f"{protocol} to the first, CPU seconds", spent, "x", 1.2)
            yield Figure("by-offset", f"{protocol} to the first, peak memory", held, "x", 1.2)


def _applied(broker: Broker, uri: str, place: Place) -> tuple[Cost, dict[str, Any]]:
    """Land and apply a topic into an empty lake; what the broker used of the processors stands apart."""
    spent, lake = broker_cpu_seconds(broker), place.at("topic")
    cost = run([*PYTHON, "apply", "--sink-uri", uri, "--warehouse", str(lake), "--json"])
    return cost, {**_whole(cost), "broker_cpu_seconds": round(broker_cpu_seconds(broker) - spent, 2)}


def _beside_files(name: str, topic: Cost, beside: Cost, limit: float) -> Iterator[Figure]:
    yield Figure(name, "a topic to files", topic.wall_seconds / beside.wall_seconds, "x", limit)
    yield Figure(name, "the same in CPU seconds", topic.cpu_seconds / beside.cpu_seconds, "x")


@_scenario
def many_tables_topic(place: Place) -> Iterator[Figure]:
    """Many tables in one topic, beside the same changes in files."""
    name, shape = "many-tables-topic", {"tables": place.of(200, 3)}
    feed, right = place.feed("canal", protocol="canal-json", **shape), place.feed("csv", **shape)
    changes = place.of(5_000, 20)
    for written_feed in (feed, right):
        written_feed.append(changes, max(10, changes // 2), zipf=0.8)
    with running_broker() as broker:
        play(feed, broker, "bench", mixed=True)
        over, notes = _applied(broker, sink_uri(broker.address, "bench"), place)
        _check_all(feed, place, "topic", right)
    what = f"{feed.tables} tables in a topic, process start to exit"
    yield Figure(name, what, over.wall_seconds, notes={"changes": changes, **notes})
    beside = files._apply(feed, place.at("files"))
    _check_all(feed, place, "files", right)
    yield Figure(name, "the same from files, process start to exit", beside.wall_seconds, notes=_whole(beside))
    yield from _beside_files(name, over, beside, 2)


def _check_all(feed: Feed, place: Place, lake: str, right: Feed) -> None:
    _check(feed, place.directory / lake, range(feed.tables), right=right)


@_scenario
def idle_topic(place: Place) -> Iterator[Figure]:
    """A look at a topic that has nothing new, as the sensor takes it."""
    feed, lake = place.feed("canal", protocol="canal-json", tables=place.of(100, 2)), place.at("lake")
    feed.append(20, 10)
    with running_broker() as broker:
        play(feed, broker, "bench")
        cost, measured = contend("look_at_topic", uri=sink_uri(broker.address, "bench"), lake=str(lake), times=30)
    assert measured["behind"] == 0, measured
    notes = {"cpu_seconds": round(measured["cpu_seconds"], 4), **files._memory(cost)}
    yield Figure("idle-topic", "a look without news, in a process", measured["wall_seconds"], limit=0.05, notes=notes)


@_scenario
def topic_memory(place: Place) -> Iterator[Figure]:
    """Four times the messages, landed: by commit-ts, and by offset with DDL among them."""
    for what, protocol in (("by commit-ts", "canal-json"), ("by offset", "canal-noext")):
        peaks = []
        for times in (1, 4):
            feed = place.feed(f"{protocol}-{times}", protocol="canal-json")
            count = place.of(400_000 * times, 100)
            feed.append(count, count // 2, fill=count // 2, files=4)
            with running_broker() as broker:
                extension = protocol == "canal-json"
                held = play(feed, broker, "bench", extension=extension, pace_ms=5)
                uri = sink_uri(broker.address, "bench", extension)
                cost, landed = contend("land", uri=uri, lake=str(place.at(f"lake-{protocol}-{times}")))
            assert landed["rows"] == held - 1 - (PARTITIONS if extension else 0), landed  # a DDL, and marks
            peaks.append(cost)
        notes = {**_whole(peaks[1]), "peak_rss_mb_of_a_quarter": peaks[0].peak_rss_mb}
        more = peaks[1].peak_rss_mb / max(1, peaks[0].peak_rss_mb)
        yield Figure("topic-memory", f"four times the messages {what}, peak memory", more, "x", 1.5, notes=notes)


@_scenario
def landing_kept(place: Place) -> Iterator[Figure]:
    """What the landing of a topic keeps of applied messages, by the setting, and what that takes."""
    feed, directory = place.feed("canal", protocol="canal-json"), place.at("archive")
    changes = place.of(200_000, 100)
    feed.append(changes, max(1, changes // 2), fill=changes // 2, files=4)
    archive(feed, directory, 2)
    uri, bytes_by_choice = sink_uri("none:9092", "bench"), dict[str, float]()
    for keep in ("days", "compact", "applied"):
        cost, kept = contend(
            "keep_landed", uri=uri, archive=str(directory), lake=str(place.at(f"kept-{keep}")), keep=keep
        )
        bytes_by_choice[keep] = kept["bytes"]
        notes = {name: round(value, 2) for name, value in kept.items()} | _whole(cost)
        yield Figure("landing-kept", f"{changes:,} changes, keep: {keep}", kept["bytes"] / 1e6, "MB", notes=notes)
    for keep, limit in (("compact", 0.95), ("applied", 0.05)):
        share = bytes_by_choice[keep] / bytes_by_choice["days"]
        yield Figure("landing-kept", f"{keep} to days, bytes", share, "x", limit)


@_scenario
def files_a_day(place: Place) -> Iterator[Figure]:
    """What landings of many tables add to a lake, counted over some of them, at a landing every 30 seconds."""
    tables, landings = place.of(2_000, 5), 6
    cost, measured = contend("landings", tables=tables, count=landings, directory=str(place.at("landings")))
    assert measured["landed"] == tables * landings, measured
    per_day = {kind: _LANDINGS_A_DAY * count / landings for kind, count in measured["added"].items()}
    notes = {"tables": tables, "landings": landings, "counted": json.dumps(measured["added"]), **_whole(cost)}
    what = f"{tables:,} tables, a landing every 30 s"
    yield Figure("files-a-day", f"{what}: data files a day", per_day["data"], "", 10_000, notes)
    yield Figure("files-a-day", f"{what}: files of metadata a day", per_day["metadata"], "")
