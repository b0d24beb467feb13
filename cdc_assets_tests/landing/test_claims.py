"""Files of large messages, in every protocol that has them: the message's own is taken, any other is refused."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.errors import MalformedData
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.messages import Kind, codec_of, read_claim
from cdc_assets.landing.partition_reader import whole_message
from cdc_assets_tests.topics import Topic, messages_of, topics

TOPICS = [
    topic for topic in topics("canal-json", "open-protocol", "simple", "simple-avro") if topic.case.name == "D_keys"
]


def lone_rows(topic: Topic) -> list[dict[str, Any]]:
    """Messages of one row each, as landing has them."""
    held = [parts for message in topic.messages.to_pylist() for parts in alone(topic, message["key"], message["value"])]
    messages = messages_of(held)
    spoken = topic.format.classify(messages, topic.options).to_pylist()
    rows = [line for line in spoken if line["kind"] == Kind.ROW.value]
    return [{**line, "key": held[line["message"]][0], "value": held[line["message"]][1]} for line in rows[:12]]


def alone(topic: Topic, key: bytes | None, value: bytes) -> list[tuple[bytes | None, bytes]]:
    """A message's row events, each as a message; only those of the Open Protocol have several."""
    if topic.name != "open-protocol":
        return [(key, value)]
    keys, values = frames(key or b"", 8), frames(value, 0)
    return [((key or b"")[:8] + framed_key, other) for framed_key, other in zip(keys, values, strict=True)]


def frames(data: bytes, at: int) -> list[bytes]:
    key_frames = []
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at : at + 8], "big")
        key_frames.append(data[at:end])
        at = end
    return key_frames


def file_of(row: dict[str, Any], value: bytes | None = None) -> bytes:
    coded = [None if part is None else base64.b64encode(part).decode() for part in (row["key"], value or row["value"])]
    return json.dumps({"key": coded[0], "value": coded[1]}).encode()


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"key":null}', b'{"key":null,"value":1234}', b'{"key":1234,"value":"YQ=="}']
)
def test_a_file_without_texts_of_a_message_is_none(content: bytes) -> None:
    with pytest.raises(MalformedData, match="holds no message"):
        read_claim(content, MessageOptions(protocol="canal-json"))


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_the_file_of_a_message_is_taken_and_that_of_another_is_not(topic: Topic) -> None:
    codec, rows = codec_of(topic.options), lone_rows(topic)
    assert len(rows) > 2
    for row in rows:
        assert whole_message(file_of(row), row, codec, topic.options) == (row["key"], row["value"])
        for other in rows:
            if other["value"] != row["value"] or other["key"] != row["key"]:
                with pytest.raises(MalformedData, match="the file holds a "):
                    whole_message(file_of(other), row, codec, topic.options)


def test_a_row_of_a_message_of_several_is_put_in_its_place() -> None:
    topic = next(topic for topic in TOPICS if topic.name == "open-protocol")
    first, second, third = lone_rows(topic)[:3]
    (side, columns), *_ = json.loads(second["value"][8:]).items()
    piece = json.dumps({side: {name: column for name, column in columns.items() if column.get("h")}}).encode()
    cut = len(piece).to_bytes(8, "big") + piece
    assert len(cut) < len(second["value"])
    key = first["key"] + second["key"][8:] + third["key"][8:]
    before, after = (first["value"] + value + third["value"] for value in (cut, second["value"]))
    row = {**second, "key": key, "value": before, "ordinals": [1]}
    assert whole_message(file_of(second), row, codec_of(topic.options), topic.options) == (key, after)
    with pytest.raises(MalformedData, match="the file holds a "):
        whole_message(file_of(third), row, codec_of(topic.options), topic.options)


def test_a_compressed_message_is_taken_and_one_that_is_so_twice_is_not() -> None:
    topic = next(topic for topic in TOPICS if topic.name == "canal-json")
    options = replace(topic.options, large_message_handle_compression="lz4")
    packed = pa.Codec("lz4")
    row = lone_rows(topic)[0]
    once = bytes(packed.compress(row["value"], asbytes=True))
    twice = bytes(packed.compress(once, asbytes=True))
    row = {**row, "value": once}
    assert whole_message(file_of(row), row, codec_of(options), options) == (row["key"], once)
    for other in (twice, topic.messages.column("value")[0].as_py()):
        with pytest.raises(MalformedData, match="what cannot be read"):
            whole_message(file_of(row, other), row, codec_of(options), options)
