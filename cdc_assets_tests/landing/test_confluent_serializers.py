"""Rows of TiCDC's Avro as Confluent's own serializers write them: the id in front or in a header."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cdc_assets.model.schema import TableId
from cdc_assets_tests.avro_writer import BIGINT, INT, TEXT, tidb
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

URI = "kafka://127.0.0.1:9092/cdc?protocol=avro&enable-tidb-extension=true"
ORDERS = TableId("shop", "orders")
AMOUNT = tidb("bytes", "DECIMAL", logicalType="decimal", precision=12, scale=2)
PLACES = {"front": prefix_schema_id_serializer, "header": header_schema_id_serializer}


def schema(fields: dict[str, Any], *more: dict[str, Any]) -> str:
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "orders", "namespace": "default.shop", "fields": [*named, *more]})


EXTENSION = {"name": "_tidb_op", "type": "string"}, {"name": "_tidb_commit_ts", "type": "long"}
KEY = schema({"id": INT})
FIRST = schema({"id": INT, "note": ["null", TEXT], "amount": ["null", AMOUNT]}, *EXTENSION)
WIDER = schema({"id": BIGINT, "note": [TEXT, "null"], "amount": ["null", AMOUNT], "n": ["null", INT]}, *EXTENSION)


class Producer:
    """A producer of Confluent's, whose messages go into a log."""

    def __init__(self, place: str) -> None:
        self.client = SchemaRegistryClient.new_client({"url": "mock://here"})
        self.log = MemoryLog()
        self._conf = {"schema.id.serializer": PLACES[place], "auto.register.schemas": True}

    def send(self, key: dict[str, Any], value: dict[str, Any] | None, written: str) -> None:
        headers: list[tuple[str, str | bytes | None]] = []
        texts = [
            AvroSerializer(self.client, text, conf=self._conf)(row, SerializationContext("cdc", field, headers))
            for row, text, field in ((key, KEY, MessageField.KEY), (value, written, MessageField.VALUE))
        ]
        line = {"topic": "cdc", "partition": 0, "offset": len(self.log.lines), "timestamp_ms": 1}
        named = [None if part is None else base64.b64encode(part).decode() for part in texts]
        held = [[name, base64.b64encode(value).decode()] for name, value in headers if isinstance(value, bytes)]
        self.log.lines.append({**line, "key_b64": named[0], "value_b64": named[1], "headers": held})

    def registered(self, schema_id: str) -> str | None:
        if schema_id.isdigit():
            return self.client.get_schema(int(schema_id)).schema_str
        return self.client.get_schema_by_guid(str(UUID(schema_id))).schema_str


@pytest.mark.parametrize("place", PLACES)
def test_rows_of_confluents_serializers_are_the_source(place: str) -> None:
    producer = Producer(place)
    for number in range(40):
        row = {"id": number, "note": f"n{number}", "amount": Decimal(number).scaleb(-2)}
        producer.send({"id": number}, {**row, "_tidb_op": "c", "_tidb_commit_ts": 100 + number}, FIRST)
    producer.send({"id": 3}, None, FIRST)
    wide = {"id": 4, "note": None, "amount": Decimal("-1.50"), "n": 7, "_tidb_op": "u", "_tidb_commit_ts": 200}
    producer.send({"id": 4}, wide, WIDER)
    feed = TopicFeed.of(producer.log, sink_uri=URI)
    feed.landing = feed.landed_in(registry=producer.registered)
    assert [table.reason for table in feed.apply().tables if table.state.stopped] == []
    lake_rows = {row["id"]: row for row in feed.lake.read(ORDERS).to_pylist()}
    assert lake_rows.keys() == set(range(40)) - {3}
    assert [lake_rows[4][name] for name in ("note", "amount", "n")] == [None, Decimal("-1.50"), 7]
    assert [lake_rows[39][name] for name in ("note", "amount", "n")] == ["n39", Decimal("0.39"), None]
