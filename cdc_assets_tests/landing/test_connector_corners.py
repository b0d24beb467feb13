"""What connectors of Debezium do now and then: each a little stream, landed and applied."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cdc_assets.model.schema import TableId
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

TABLE = TableId("public", "t")
ID = {"type": "int32", "optional": False, "field": "id"}
V = {"type": "int32", "optional": True, "field": "v"}
PLACEHOLDER = "__debezium_unavailable_value"

Row = Mapping[str, Any]


class Stream:
    """What PostgreSQL's connector sends of one table, and the lake that it is applied to."""

    def __init__(self, *fields: Mapping[str, Any]) -> None:
        self.fields: Sequence[Mapping[str, Any]] = fields or (ID, V)
        self.log = MemoryLog([])
        self.feed = TopicFeed.of(self.log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")

    def send(self, op: str, lsn: int, *, made: int | None = None, snapshot: str = "false", **after: Any) -> None:
        """Send a row as it is after a change that was made at a time; of a delete its key."""
        place = {"lsn": lsn, "sequence": json.dumps([str(lsn)] * 2), "snapshot": snapshot}
        source = {"connector": "postgresql", "name": "px", "db": "d", "schema": "public", "table": "t", **place}
        images = {"before": after, "after": None} if op == "d" else {"before": None, "after": after}
        payload = {**images, "source": {**source, "ts_ms": 1000 + lsn if made is None else made}, "op": op}
        structs = [{"type": "struct", "fields": self.fields, "optional": True, "field": name} for name in images]
        key = {"schema": {"type": "struct", "fields": [ID]}, "payload": {"id": after["id"]}}
        self.put(key, {"schema": {"type": "struct", "fields": structs}, "payload": payload})

    def put(self, key: Any, value: Any) -> None:
        coded = [base64.b64encode(json.dumps(one).encode()).decode() for one in (key, value)]
        line = {"topic": "px.public.t", "partition": 0, "offset": len(self.log.lines), "timestamp_ms": 0}
        self.log.lines.append({**line, "key_b64": coded[0], "value_b64": coded[1]})

    def applied(self) -> list[str]:
        """Apply what was sent; return why tables are held."""
        return [one.reason for one in self.feed.apply().tables if one.reason]

    @property
    def rows(self) -> dict[int, dict[str, Any]]:
        names = [one["field"] for one in self.fields]
        return {row["id"]: {name: row[name] for name in names[1:]} for row in self.feed.lake.read(TABLE).to_pylist()}


def array_of(kind: str, **more: Any) -> Mapping[str, Any]:
    return {"type": "array", "items": {"type": kind, "optional": True, **more}, "optional": True, "field": "v"}


@pytest.mark.parametrize(
    ("field", "value", "unchanged"),
    [
        (array_of("int32"), [1, 2], list(PLACEHOLDER.encode())),
        (array_of("int64"), [1, 2], list(PLACEHOLDER.encode())),
        (array_of("double"), [0.5], [float(one) for one in PLACEHOLDER.encode()]),
        (array_of("string"), ["a"], [PLACEHOLDER]),
        (array_of("bytes"), ["AAE="], [base64.b64encode(PLACEHOLDER.encode()).decode()]),
        (
            array_of("string", name="io.debezium.data.Uuid"),
            ["00000000-0000-0000-0000-000000000001"],
            ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        ),
        (
            {"type": "map", "optional": True, "field": "v", "keys": {"type": "string"}, "values": {"type": "string"}},
            {"a": "b"},
            {PLACEHOLDER: PLACEHOLDER},
        ),
        (
            {"type": "string", "name": "io.debezium.data.Json", "optional": True, "field": "v"},
            '{"a":"b"}',
            json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":")),
        ),
    ],
    ids=lambda one: None,
)
def test_a_long_value_that_did_not_change_is_kept_in_columns_of_every_type(
    field: Row, value: Any, unchanged: Any
) -> None:
    other = {"type": "int32", "optional": True, "field": "n"}
    stream = Stream(ID, field, other)
    stream.send("c", 1, id=1, v=value, n=1)
    assert stream.applied() == []
    before = stream.rows[1]["v"]
    stream.send("u", 2, id=1, v=unchanged, n=2)
    assert stream.applied() == []
    assert stream.rows == {1: {"v": before, "n": 2}}
