"""Small splits of messages are decoded at once: what comes of each is what it has when it is decoded alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.formats import decode, decode_together, landed
from cdc_assets.formats.decoded import Decoded
from cdc_assets.formats.landed import MESSAGES, Frame
from cdc_assets.history.history import read_history
from cdc_assets_tests.landing.test_landing import URI, Broker, ddl, mark, row, rows_of
from cdc_assets_tests.topic_feed import TopicFeed
from cdc_assets_tests.topics import Topic, topics

_TOPICS = topics(
    "craft", "open-protocol", "canal-json", "canal-json-compat", "canal-json-noext", "simple", "simple-avro",
    "debezium", "avro",
)  # fmt: skip
_SPLITS = 3
_OFTEN = ("D_keys", "H_bank")


def _marked(topic: Topic) -> Any:
    return pytest.param(topic, id=str(topic), marks=() if topic.case.name in _OFTEN else pytest.mark.soak)


def _frames(topic: Topic, path: str) -> list[Frame]:
    """The rows of a recorded table as messages of several splits."""
    rows, positions = topic.rows[path], pa.array(topic.of_rows[path], pa.int64())
    count = rows.num_rows
    own = {"position": positions, "last_position": positions, "offset": pa.array(range(count), pa.int64())}
    own |= {name: rows.column(name) for name in rows.schema.names}
    table = pa.table({field.name: own.get(field.name, pa.nulls(count, field.type)) for field in MESSAGES})
    cuts = [count * number // _SPLITS for number in range(_SPLITS + 1)]
    return [Frame.of(table.slice(a, b - a), -1, 2**62) for a, b in pairwise(cuts)]


def _contents(decoded: Decoded) -> Any:
    assert decoded.deliveries is not None
    rows = [{name: value for name, value in row.items() if value is not None} for row in decoded.changes.to_pylist()]
    return rows, decoded.deliveries.to_pylist(), decoded.rejects, decoded.notes


def _seen(topic: Topic) -> Iterator[bool]:
    """Yield for each table and version whether its splits were decoded at once, and check that they were right."""
    schemas = read_history(topic.listing.schema_files, topic.listing.checkpoint).decoding
    for file in topic.listing.data_files:
        ((table, schema),) = schemas[file.root, file.version]
        frames = _frames(topic, file.path)
        together = decode_together(topic.options, frames, table, schema)
        alone = [decode(topic.options, frame, file.path, table, schema) for frame in frames]
        if together:
            assert list(map(_contents, together)) == list(map(_contents, alone))
        else:
            assert any(decoded.rejects or decoded.notes for decoded in alone)
        yield bool(together)


@pytest.mark.parametrize("topic", [_marked(topic) for topic in _TOPICS])
def test_splits_have_the_rows_that_each_has_alone(topic: Topic) -> None:
    assert any(_seen(topic))


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
