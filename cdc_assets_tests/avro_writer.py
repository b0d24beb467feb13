"""Avro topics as TiCDC writes them, with the registry that their schemas are in: for what no recording has.

broker = AvroBroker()
orders = broker.table("shop", "orders", {"id": INT, "note": TEXT}, key=("id",))
broker.send(0, orders.row(100, id=1, note="a"), orders.delete(id=1), mark(200))
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro

from cdc_assets.formats.avro import sanitized
from cdc_assets_tests.topic_feed import MemoryLog

__all__ = ["BIGINT", "INT", "TEXT", "AvroBroker", "AvroTable", "Message", "ddl", "mark", "tidb"]

Message = tuple[bytes | None, bytes | None]
"""Key and value."""


def tidb(base: str, kind: str, **more: Any) -> dict[str, Any]:
    """Return the type of a field as TiCDC writes it; `length` and `allowed` are parameters of it."""
    parameters = {"tidb_type": kind} | {name: more.pop(name) for name in ("length", "allowed") if name in more}
    return {"type": base, "connect.parameters": parameters, **more}


INT, BIGINT, TEXT = tidb("int", "INT"), tidb("long", "BIGINT"), tidb("string", "TEXT")


@dataclass
class AvroBroker(MemoryLog):
    """A log whose messages are added to the end of a partition of one topic, and the schemas that they name."""

    registry: dict[str, str] = field(default_factory=dict)
    topic: str = "cdc"

    def send(self, partition: int, *messages: Message, topic: str = "") -> None:
        """Add messages to the end of a partition."""
        name = topic or self.topic
        offset = sum((line["topic"], line["partition"]) == (name, partition) for line in self.lines)
        for key, value in messages:
            texts = [None if part is None else base64.b64encode(part).decode() for part in (key, value)]
            line = {"topic": name, "partition": partition, "offset": offset, "timestamp_ms": 1}
            self.lines.append({**line, "key_b64": texts[0], "value_b64": texts[1]})
            offset += 1

    def table(
        self, schema: str, table: str, columns: Mapping[str, Any], key: tuple[str, ...], *, extended: bool = True
    ) -> AvroTable:
        """Register the schemas of a table. Columns are nullable but for those of the key.

        `extended` stands for `enable-tidb-extension`.
        """
        name = {"type": "record", "name": sanitized(table), "namespace": f"default.{sanitized(schema)}"}
        fields = [
            {
                "name": sanitized(name),
                "type": kind if name in key else ["null", kind],
                **({} if name in key else {"default": None}),
            }
            for name, kind in columns.items()
        ]
        extension = [{"name": "_tidb_op", "type": "string"}, {"name": "_tidb_commit_ts", "type": "long"}] * extended
        names = {sanitized(name) for name in key}
        keys = [avro_field for avro_field in fields if avro_field["name"] in names]
        return AvroTable(
            self._register({**name, "fields": keys}), self._register({**name, "fields": [*fields, *extension]})
        )

    def _register(self, document: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        text = json.dumps(document)
        known = next((name for name, registered_text in self.registry.items() if registered_text == text), None)
        if known is None:
            known = str(len(self.registry) + 1)
            self.registry[known] = text
        return int(known), json.loads(text)


@dataclass(frozen=True)
class AvroTable:
    """A table with the schemas of its keys and rows."""

    key: tuple[int, dict[str, Any]]
    value: tuple[int, dict[str, Any]]

    def row(self, ts: int, op: str = "c", /, **values: Any) -> Message:
        """Return a row event; columns that are not given are NULL."""
        names = [avro_field["name"] for avro_field in self.value[1]["fields"]]
        held = {**dict.fromkeys(names), **values, "_tidb_op": op, "_tidb_commit_ts": ts}
        return _framed(self.key, values), _framed(self.value, held)

    def delete(self, **key: Any) -> Message:
        """Return a tombstone."""
        return _framed(self.key, key), None


def mark(ts: int) -> Message:
    """Return a watermark, as `avro-enable-watermark` adds it."""
    return None, b"\2" + ts.to_bytes(8, "big")


def ddl(ts: int, schema: str, table: str, query: str, action: int = 3) -> Message:
    """Return a DDL, which comes with watermarks only."""
    return None, b"\1" + json.dumps(
        {"query": query, "type": action, "schema": schema, "table": table, "commitTs": ts}
    ).encode()


def _framed(schema: tuple[int, dict[str, Any]], row: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    out.write(b"\0" + schema[0].to_bytes(4, "big"))
    parsed = fastavro.parse_schema(schema[1], named_schemas={}, _write_hint=False)
    names = {avro_field["name"] for avro_field in schema[1]["fields"]}
    fastavro.schemaless_writer(out, parsed, {name: value for name, value in row.items() if name in names})
    return out.getvalue()
