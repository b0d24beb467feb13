"""Messages that are none, or nearly none: in every protocol they are reported, and nothing beside them suffers."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.errors import CdcError
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets_tests.topics import Topic, messages_of, rows_of, topics

NAMES = ("craft", "open-protocol", "canal-json", "canal-json-compat", "canal-json-noext", "simple", "simple-avro")
TOPICS = [topic for topic in topics(*NAMES) if topic.case.name in ("A_all_types", "D_keys", "E_partitions")]
KEYED = TableSchema((Column("id", "INT", is_pk=True, nullable=False), Column("name", "VARCHAR")), ("id",))


def mutated(rng: random.Random, value: bytes) -> bytes:
    """Return the value with a few bytes changed, cut out, put in, or cut off."""
    raw = bytearray(value)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(raw)) if raw else 0
        match rng.randrange(5):
            case 0:
                raw[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                raw[at : at + 1] = b"\xff" * rng.randint(1, 10)
            case 2:
                del raw[at : at + rng.randint(1, 9)]
            case 3:
                raw[at:at] = rng.choice([rng.randbytes(rng.randint(1, 9)), b"null", b'"', b"[", b"{}", b"-1", b"\n"])
            case _:
                raw = raw[:at] if rng.random() < 0.5 else raw[at:]
    return bytes(raw)


def torn(rng: random.Random, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
    if key is not None and rng.random() < 0.4:
        return mutated(rng, key), value
    return key, None if rng.random() < 0.02 else mutated(rng, value or b"")


def lines(spoken: pa.RecordBatch, message: int) -> list[dict[str, Any]]:
    messages = [spoken_message for spoken_message in spoken.to_pylist() if spoken_message["message"] == message]
    return [{name: value for name, value in message.items() if name != "message"} for message in messages]


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param(topic, marks=pytest.mark.soak if topic.case.name == "E_partitions" else (), id=str(topic))
        for topic in TOPICS
    ],
)
def test_no_mutation_of_a_message_raises_or_touches_its_neighbour(topic: Topic) -> None:
    rng = random.Random(str(topic))
    pairs = list(zip(*(topic.messages.column(name).to_pylist() for name in ("key", "value")), strict=True))
    schemas = {TableId(file.table.schema, file.table.table) for file in topic.listing.schema_files}
    known = {file.path: topic.rows[file.path] for file in topic.listing.data_files}
    assert known
    for _ in range(25):
        at = rng.randrange(len(pairs))
        batch = [*(torn(rng, *rng.choice(pairs)) for _ in range(20)), pairs[at]]
        messages = messages_of(batch)
        spoken = topic.format.classify(messages, topic.options)
        topic.format.schemas(messages, topic.options)
        assert set(spoken.column("message").to_pylist()) == set(range(21))
        assert lines(spoken, 20) == lines(topic.spoken, at)
        for table in {
            TableId(message["schema"], message["table"]) for message in spoken.to_pylist() if message["kind"] == "row"
        }:
            schema = topic.schema_of(table) if table in schemas else KEYED
            rows = rows_of(messages, spoken, table)
            try:
                decoded_rows = topic.format.decode(rows, "landed", table, schema, topic.options)
            except CdcError:
                continue
            count = pa.compute.sum(pa.compute.list_value_length(rows.column("ordinals"))).as_py()
            seen = {
                *decoded_rows.changes.column("_cdc_line").to_pylist(),
                *(reject.line for reject in decoded_rows.rejects),
            }
            assert seen == set(range(1, count + 1))


@pytest.mark.parametrize("protocol", sorted({topic.options.protocol for topic in TOPICS}))
def test_an_empty_batch_says_nothing(protocol: str) -> None:
    topic = next(topic for topic in TOPICS if topic.options.protocol == protocol)
    nothing = topic.messages.slice(0, 0)
    spoken = topic.format.classify(nothing, topic.options)
    assert spoken.num_rows == 0
    assert topic.format.schemas(nothing, topic.options) == ()
    decoded_rows = topic.format.decode(rows_of(nothing, spoken), "landed", TableId("a", "b"), KEYED, topic.options)
    assert decoded_rows.changes.num_rows == 0
    assert decoded_rows.changes.column_names == ["_cdc_op", "_cdc_commit_ts", "_cdc_line", "id", "name"]
