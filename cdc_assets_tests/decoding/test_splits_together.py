"""Small splits of messages are decoded at once: what comes of each is what it has when it is decoded alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from cdc_assets.decoding import split, window
from cdc_assets.errors import MalformedData
from cdc_assets.formats import UniformReader, decode, decode_together, landed
from cdc_assets.formats.decoded import Decoded
from cdc_assets.formats.landed import MESSAGES, Frame
from cdc_assets.history.history import read_history
from cdc_assets.model.steps import ApplyRows
from cdc_assets_tests.connector_writer import Source
from cdc_assets_tests.formats.test_broken_messages import mutated
from cdc_assets_tests.landing.test_barriers import Lines, feed_of
from cdc_assets_tests.landing.test_generated_connectors import follow
from cdc_assets_tests.landing.test_landing import URI, Broker, ddl, mark, row, rows_of
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.topic_feed import TopicFeed
from cdc_assets_tests.topics import Topic, topics

_TOPICS = topics(
    "craft", "open-protocol", "canal-json", "canal-json-compat", "canal-json-noext", "simple", "simple-avro",
    "debezium", "avro",
)  # fmt: skip
_SPLITS = 3
_OFTEN = ("D_keys", "H_bank")


def _marked(topic: Topic, often: Sequence[str] = _OFTEN) -> Any:
    return pytest.param(topic, id=str(topic), marks=() if topic.case.name in often else pytest.mark.soak)


def _frames(topic: Topic, path: str, damage: Callable[[bytes], bytes]) -> list[Frame]:
    """The rows of a recorded table as messages of several splits."""
    rows, positions = topic.rows[path], pa.array(topic.of_rows[path], pa.int64())
    count = rows.num_rows
    own = {"position": positions, "last_position": positions, "offset": pa.array(range(count), pa.int64())}
    own |= {name: rows.column(name) for name in rows.schema.names}
    own["value"] = pa.array([None if value is None else damage(value) for value in own["value"].to_pylist()])
    table = pa.table({field.name: own.get(field.name, pa.nulls(count, field.type)) for field in MESSAGES})
    cuts = [count * number // _SPLITS for number in range(_SPLITS + 1)]
    return [Frame.of(table.slice(a, b - a), -1, 2**62) for a, b in pairwise(cuts)]


def _contents(decoded: Decoded) -> Any:
    assert decoded.deliveries is not None
    rows = [{name: value for name, value in row.items() if value is not None} for row in decoded.changes.to_pylist()]
    return rows, decoded.deliveries.to_pylist(), decoded.rejects, decoded.notes, decoded.stated


def _seen(topic: Topic, damage: Callable[[bytes], bytes] = bytes) -> Iterator[bool]:
    """Yield for each table and version whether its splits were decoded at once, and check that they were right."""
    schemas = read_history(topic.listing.schema_files, topic.listing.checkpoint).decoding
    for file in topic.listing.data_files:
        ((table, schema),) = schemas[file.root, file.version]
        frames, together = _frames(topic, file.path, damage), list[Decoded]()
        refused = False
        try:
            together = decode_together(topic.options, frames, table, schema)
            alone = [decode(topic.options, frame, file.path, table, schema) for frame in frames]
        except MalformedData:
            refused = True
        if together:
            assert list(map(_contents, together)) == list(map(_contents, alone))
        else:
            assert refused or any(decoded.rejects or decoded.notes for decoded in alone)
        yield bool(together)


@pytest.mark.parametrize("topic", [_marked(topic) for topic in _TOPICS])
def test_splits_have_the_rows_that_each_has_alone(topic: Topic) -> None:
    assert any(_seen(topic))


@pytest.mark.parametrize("topic", [_marked(topic, ("D_keys",)) for topic in _TOPICS])
def test_damaged_splits_have_what_each_has_alone(topic: Topic) -> None:
    """Damage that nobody can tell from a value is in the rows of its split, all other is told of it."""
    damages = random.Random(str(topic))
    list(_seen(topic, lambda value: mutated(damages, value) if damages.random() < 0.01 else value))


@pytest.fixture
def joint(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The splits that a feed decoded at once, each checked against what it has alone."""
    counts = list[int]()

    def checked(wire: Any, splits: Sequence[Any], table: Any, schema: Any) -> list[Decoded]:
        together = decode_together(wire, splits, table, schema)
        alone = [decode(wire, content, "", table, schema) for content in splits] if together else []
        assert list(map(_contents, together)) == list(map(_contents, alone))
        assert len({(frame.since, frame.until) for frame in splits}) == 1
        counts.append(len(together))
        return together

    monkeypatch.setattr(split, "decode_together", checked)
    return counts


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 30))])
def test_partitions_of_a_connector_have_the_rows_that_each_has_alone(joint: list[int], seed: int) -> None:
    follow(Source(seed, 3))
    assert any(joint)


def test_partitions_of_ydb_have_the_rows_that_each_has_alone(joint: list[int], tmp_path: Path) -> None:
    lines = Lines()
    for number in range(30):
        lines.change(number % 3, number % 7, number, 100 + number)
        lines.send(number % 3, {"erase": {}, "key": [number % 5], "ts": [100 + number, number]})
    lines.barrier(200, 0, 1, 2)
    feed_of(lines, tmp_path).apply()
    assert any(joint)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The messages of each call of the decoder."""
    messages, decode_frame = list[int](), landed.decode

    def counted(frame: Frame, *more: Any) -> Decoded:
        messages.append(frame.messages.num_rows)
        return decode_frame(frame, *more)

    monkeypatch.setattr(landed, "decode", counted)
    return messages


def _sent(*more: bytes) -> TopicFeed:
    """A feed with a row in each of three partitions, and more in the last of them."""
    broker = Broker()
    broker.send(0, ddl(100), row(120, 1, 7), mark(150))
    broker.send(1, row(121, 2, 8))
    broker.send(2, row(122, 3, 9), *more)
    return TopicFeed.of(broker, sink_uri=URI)


def test_the_partitions_of_a_small_window_are_decoded_at_once(calls: list[int]) -> None:
    feed = _sent()
    feed.apply()
    assert rows_of(feed) == [(1, 7), (2, 8), (3, 9)]
    assert calls[-1] == 3


def test_a_record_that_does_not_fit_is_told_with_its_own_place(calls: list[int]) -> None:
    feed = _sent(row(123, 4, 2**40))
    (table,) = feed.apply().tables
    assert "cdc[2] offset 1" in table.reason
    assert calls[-4:] == [4, 1, 1, 2]


def test_splits_whose_changes_cannot_be_told_apart_are_decoded_one_by_one(
    calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    decode_frame = landed.decode

    def turned(frame: Frame, *more: Any) -> Decoded:
        decoded = decode_frame(frame, *more)
        rows = pa.array(range(decoded.changes.num_rows)[::-1], pa.int64())
        assert decoded.deliveries is not None
        return replace(decoded, changes=decoded.changes.take(rows), deliveries=decoded.deliveries.take(rows))

    monkeypatch.setattr(landed, "decode", turned)
    feed = _sent()
    feed.apply()
    assert rows_of(feed) == [(1, 7), (2, 8), (3, 9)]
    assert calls[-4:] == [3, 1, 1, 1]


class _Data(bytes):
    """Bytes of a file that count themselves."""

    held = 0

    def __new__(cls, data: bytes) -> _Data:
        cls.held += 1
        return super().__new__(cls, data)

    def __del__(self) -> None:
        type(self).held -= 1


def test_a_large_file_is_not_held_while_the_next_one_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, held = LittleFeed(tmp_path, "canal-json"), list[int]()
    feed.create("s.t")
    for number in range(4):
        feed.rows("s.t", FIRST, [("I", FIRST + 1 + number, number, "x")])
    feed.publish(FIRST + 9)
    pipeline = feed.pipeline_into(MemoryLake())
    (step,) = (step for step in pipeline.planner.plan()[1].steps if isinstance(step, ApplyRows))
    reader = pipeline.source.reader

    def read(path: str) -> _Data:
        held.append(_Data.held)
        return _Data(cast(bytes, reader.read(path)))

    monkeypatch.setattr(window, "_BATCH_BYTES", 100)  # of the changes alone each file has less
    decoded = window.decode_window(step, UniformReader(reader.wire(""), read))
    assert decoded.changes.num_rows == 4
    assert held == [0, 0, 0, 0]
