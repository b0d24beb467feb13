"""YDB changefeeds: records as YDB's own tests and documentation have them, and feeds made by its rules."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.decoded import OP, UNCHANGED, Decoded, Op
from cdc_assets.formats.messages import Kind, position_text
from cdc_assets.formats.values.ydb import NULL_OR_JSON, TEN_DIGITS
from cdc_assets.formats.ydb_json import classify, decode, schemas
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.sources.topics.schemas import tables_by_text
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

OPTIONS = MessageOptions(protocol="ydb-json")
TABLE = TableId("shop", "orders")
PAIR = "CREATE TABLE `shop/orders` (key Uint32 NOT NULL, value Uint32, PRIMARY KEY (key));"


def schema_of(text: str = PAIR) -> TableSchema:
    return tables_by_text(text, "schemas.sql", OPTIONS)[TABLE]


def messages(*records: str, keys: tuple[str, ...] = ()) -> pa.RecordBatch:
    full_keys = [*keys, *[None] * (len(records) - len(keys))]
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["shop/orders/updates"] * len(records)),
            "key": pa.array([None if key is None else key.encode() for key in full_keys], pa.binary()),
            "value": pa.array([record.encode() for record in records], pa.binary()),
            "ordinals": pa.array([[0]] * len(records), pa.list_(pa.int32())),
        }
    )


def decoded(*records: str, schema: TableSchema | None = None, keys: tuple[str, ...] = ()) -> Decoded:
    return decode(messages(*records, keys=keys), "split", TABLE, schema or schema_of(), OPTIONS)


def rows(decoded_rows: Decoded) -> list[tuple[Any, ...]]:
    patches = (
        decoded_rows.changes.column(UNCHANGED).to_pylist() if UNCHANGED in decoded_rows.changes.column_names else []
    )
    return [
        (row[OP], row["key"], row["value"], patches[place] if patches else None)
        for place, row in enumerate(decoded_rows.changes.to_pylist())
    ]


PUBLISHED = [
    ('{"update":{"value":10},"key":[1]}', (Op.INSERT, 1, 10, None)),
    ('{"reset":{"value":10},"key":[1]}', (Op.INSERT, 1, 10, None)),
    ('{"erase":{},"key":[1]}', (Op.DELETE_KEY, 1, None, None)),
    ('{"update":{},"newImage":{"value":10},"key":[1]}', (Op.INSERT, 1, 10, None)),
    ('{"update":{},"newImage":{"value":100},"key":[1],"oldImage":{"value":10}}', (Op.INSERT, 1, 100, None)),
    ('{"erase":{},"key":[1],"oldImage":{"value":100}}', (Op.DELETE_KEY, 1, None, None)),
    ('{"key":[1],"update":{"value":null},"ts":[1670792400890,562949953607163]}', (Op.INSERT, 1, None, None)),
    ('{"user":"me","key":[4294967295],"update":{"value":1}}', (Op.INSERT, 4294967295, 1, None)),
]


@pytest.mark.parametrize(("record", "expected"), PUBLISHED)
def test_a_published_record_means_what_is_documented(record: str, expected: tuple[Any, ...]) -> None:
    assert rows(decoded(record)) == [expected]


def test_what_a_record_is_follows_from_its_members() -> None:
    spoken = classify(
        messages(
            '{"resolved":[1670792500000,0]}',
            '{"tableChanges":[{"table":{"schemaVersion":2,"columns":{"key":"Uint64"},"primaryKeyColumnNames":["key"]}}],'
            '"ts":[10,20]}',
            '{"key":[1],"update":{},"ts":[1,18446744073709551615]}',
            '{"hello":1}',
            '{"resolved":[1,18446744073709551616]}',
            "not JSON",
        ),
        OPTIONS,
    ).to_pylist()
    assert [message["kind"] for message in spoken] == [
        Kind.RESOLVED,
        Kind.SCHEMA,
        Kind.ROW,
        Kind.BAD,
        Kind.BAD,
        Kind.BAD,
    ]
    assert spoken[0]["source_position"] == position_text(1670792500000, 0)
    assert spoken[2]["source_position"] == position_text(1, 2**64 - 1)
    assert "none of the members" in spoken[3]["reason"]


@pytest.mark.parametrize(
    "record",
    [
        '{"columns":{"key":"Uint64","v":"Utf8"},"primaryKeyColumnNames":["key"],"columnFamilies":{}}',
        '{"columns":{"key":{"type":"Uint64"},"v":{"type":"Utf8","family":"x"}},"primaryKeyColumnNames":"key"}',
    ],
)
def test_a_schema_record_is_read_in_all_its_spellings(record: str) -> None:
    (schema_event,) = schemas(messages(f'{{"tableChanges":[{{"table":{record}}}],"ts":[1,2]}}'), OPTIONS)
    assert [(column.name, column.type) for column in schema_event.schema.columns] == [("key", "Uint64"), ("v", "Utf8")]
    assert (schema_event.table, schema_event.schema.key) == (TABLE, ("key",))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('{"key":[1,2],"update":{"value":1}}', "its key is [1,2], and the table's (key)"),
        ('{"key":[1],"update":{"extra":200}}', 'column "extra" is not in the table'),
        ('{"update":{},"key":[1],"oldImage":{"value":10}}', "KEYS_ONLY and OLD_IMAGE"),
        ('{"key":[1],"update":{"value":"ten"}}', "not of the type Uint32"),
        ('{"key":[1],"update":{"value":1},"reset":{}}', "it is not a row"),
    ],
)
def test_what_does_not_fit_is_named(record: str, reason: str) -> None:
    decoded_rows = decoded(record)
    assert (decoded_rows.changes.num_rows, len(decoded_rows.rejects)) == (0, 1)
    assert reason in decoded_rows.rejects[0].reason


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("Int8", "128"), ("Uint8", "-1"), ("Int16", "-32769"), ("Uint16", "65536"), ("Int32", "2147483648"),
        ("Uint32", "4294967296"), ("Int64", "9223372036854775808"), ("Uint64", "18446744073709551616"),
        ("Float", "1e39"), ("Double", "1e400"), ("Double", "NaN"), ("Decimal(5,2)", '"12345.67"'),
        ("Utf8", '"\\ud800"'), ("Date", '"2022-13-01"'), ("Int32", "1.5"),
    ],
)  # fmt: skip
def test_a_value_beyond_its_type_is_rejected(kind: str, value: str) -> None:
    schema = schema_of(f"CREATE TABLE `shop/orders` (key Uint32 NOT NULL, value {kind}, PRIMARY KEY (key));")
    decoded_rows = decoded(f'{{"key":[1],"update":{{"value":{value}}}}}', schema=schema)
    assert (decoded_rows.changes.num_rows, len(decoded_rows.rejects)) == (0, 1)


def test_numbers_of_json_keep_their_digits() -> None:
    schema = schema_of("CREATE TABLE `shop/orders` (key Uint32 NOT NULL, value Json, PRIMARY KEY (key));")
    decoded_rows = decoded(
        '{"key":[1],"update":{"value":{"a":[1.10,1e5,12345678901234567890123,"1.0"]}}}', schema=schema
    )
    assert decoded_rows.changes.column("value").to_pylist() == ['{"a":[1.10,1e5,12345678901234567890123,"1.0"]}']


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b'{"key":[1],"update":{"value":"\xff"}}', "it is not UTF-8 at byte 30"),
        (b'{"key":[1],"update":{"value":"\\udc00"}}', "half of a surrogate pair"),
        (b'{"key":[1', "it is not JSON"),
        (b"[1]", "it is not an object"),
        (b'{"payload":{"op":"c","source":{"connector":"mysql"}}}', 'its connector is "mysql", not ydb'),
        (b'{"before":null,"after":{},"op":"c","source":{"connector":"postgresql"}}', "none of the members"),
        (b'{"database":"a","table":"b","type":"INSERT","data":[{}]}', "none of the members"),
    ],
)
def test_a_message_of_none_of_ydb_s_shapes_is_bad(record: bytes, reason: str) -> None:
    batch = messages("{}")
    (spoken,) = classify(batch.set_column(2, "value", pa.array([record], pa.binary())), OPTIONS).to_pylist()
    assert spoken["kind"] == Kind.BAD
    assert reason in spoken["reason"]


ALL_TYPES = """shop/orders:
  key: Uint64
  value: Uint32
  b: Bool
  dec: Decimal(22,9)
  d: Date
  d2: Date
  dt: Datetime
  ts: Timestamp
  iv: Interval
  d32: Date32
  dt64: Datetime64
  f: Double
  s: String
  u: Utf8
  j: Json
  id: Uuid
"""


def test_every_type_is_read_by_its_definition() -> None:
    schema = tables_by_text(ALL_TYPES, "schemas.txt", OPTIONS)[TABLE]
    schema = TableSchema(schema.columns, ("key",))
    record = {
        "key": [18446744073709551615],
        "reset": {
            "value": 1,
            "b": True,
            "dec": "12.5",
            "d": "2022-02-22T00:00:00.000000Z",
            "d2": "2022-02-22",
            "dt": "2022-12-12T00:00:00.000000Z",
            "ts": "2022-12-12T00:00:00.123456Z",
            "iv": -5,
            "d32": -1,
            "dt64": 1,
            "f": "-inf",
            "s": "AP8=",
            "u": "AP8=",
            "j": {"a": [1, None]},
            "id": "65df1ec1-a97d-47b2-ae56-3c023da6ee8c",
        },
    }
    decoded_rows = decoded(json.dumps(record), schema=schema)
    assert decoded_rows.rejects == ()
    (row,) = decoded_rows.changes.to_pylist()
    utc = timezone.utc
    assert {name: row[name] for name in ("key", *record["reset"])} == {
        "key": Decimal(18446744073709551615),
        "value": 1,
        "b": True,
        "dec": Decimal("12.500000000"),
        "d": date(2022, 2, 22),
        "d2": date(2022, 2, 22),
        "dt": datetime(2022, 12, 12, tzinfo=utc),
        "ts": datetime(2022, 12, 12, 0, 0, 0, 123456, tzinfo=utc),
        "iv": -5,
        "d32": date(1969, 12, 31),
        "dt64": datetime(1970, 1, 1, 0, 0, 1, tzinfo=utc),
        "f": float("-inf"),
        "s": b"\x00\xff",
        "u": "AP8=",
        "j": '{"a":[1,null]}',
        "id": "65df1ec1-a97d-47b2-ae56-3c023da6ee8c",
    }


@pytest.mark.parametrize("kind", ["Json", "JsonDocument", "Yson"])
def test_a_null_of_a_document_may_be_json_s(kind: str) -> None:
    schema = schema_of(f"CREATE TABLE `shop/orders` (key Uint32 NOT NULL, a {kind}, b Utf8, PRIMARY KEY (key));")
    decoded_rows = decoded(
        '{"key":[1],"reset":{"a":null,"b":null}}',
        '{"key":[2],"update":{"b":null}}',
        '{"key":[3],"reset":{"a":"null"}}',
        schema=schema,
    )
    assert decoded_rows.rejects == ()
    assert decoded_rows.changes.column("a").to_pylist() == [None, None, '"null"']
    assert decoded_rows.notes == {("a", NULL_OR_JSON): 1}


def test_a_double_of_ten_digits_may_be_rounded() -> None:
    schema = schema_of("CREATE TABLE `shop/orders` (key Uint32 NOT NULL, value Double, PRIMARY KEY (key));")
    texts = ["-0.001234567891", "1.234567891e-12", "1234567891", "0.12345678912", "100000000.5", "0.5", "1e100", "null"]
    records = [f'{{"key":[{at}],"reset":{{"value":{text}}}}}' for at, text in enumerate(texts)]
    assert decoded(*records, schema=schema).notes == {("value", TEN_DIGITS): 4}
    assert decoded(*records[3:4], *records[5:], schema=schema).notes == {}


def test_a_key_alone_is_a_row_whose_other_columns_were_not_written() -> None:
    decoded_rows = decoded('{"update":{},"key":[1]}', '{"reset":{},"key":[2]}')
    assert rows(decoded_rows) == [(Op.INSERT, 1, None, ["value"]), (Op.INSERT, 2, None, None)]


def test_debezium_s_flavour_names_its_key() -> None:
    source = '"source":{"txId":18446744073709551615,"connector":"ydb","step":1755883683690,"snapshot":false}'
    decoded_rows = decoded(
        f'{{"payload":{{"op":"c",{source},"after":{{"value":7,"key":3}}}}}}',
        f'{{"payload":{{"op":"d",{source}}}}}',
        keys=('{"payload":{"key":3}}', '{"payload":{"key":3}}'),
    )
    assert rows(decoded_rows) == [(Op.INSERT, 3, 7, None), (Op.DELETE_KEY, 3, None, None)]


def test_a_document_table_s_record_says_the_kinds_of_its_values() -> None:
    schema = tables_by_text("shop/orders:\n  key: Utf8\n  value: DyNumber\n  raw: String\n", "", OPTIONS)[TABLE]
    schema = TableSchema(schema.columns, ("key",))

    def record(event: str, **images: Any) -> str:
        change = {"Keys": {"key": {"S": "k"}}, "SequenceNumber": "000000000000000000001", **images}
        return json.dumps({"eventSource": "ydb:document-table", "eventName": event, "dynamodb": change})

    image = {"value": {"N": "4.5"}, "raw": {"B": "AP8="}}
    decoded_rows = decoded(
        record("INSERT", NewImage=image), record("MODIFY", NewImage={}), record("REMOVE"), schema=schema
    )
    assert [(row[OP], row["key"], row["value"], row["raw"]) for row in decoded_rows.changes.to_pylist()] == [
        (Op.INSERT, "k", "4.5", b"\x00\xff"),
        (Op.INSERT, "k", None, None),
        (Op.DELETE_KEY, "k", None, None),
    ]
    assert "KEYS_ONLY" in decoded(record("MODIFY"), schema=schema).rejects[0].reason


# --- feeds by the written rules ---------------------------------------------------------------------------------------


class Producer:
    """A table with a changefeed in mode UPDATES: a scan goes on beside changes, then barriers come; rows expire.

    A row that the scan has not reached is sent with its old values before its first change, or as it is erased not at
    all. What expires is erased in batches of one transaction.
    """

    def __init__(self, seed: int, partitions: int = 3) -> None:
        self.random, self.partitions = Random(seed), partitions
        self.rows: dict[int, dict[str, int | None]] = {key: {"a": key, "b": None} for key in range(12)}
        self.lines: list[dict[str, Any]] = []
        self.offsets = [0] * partitions
        self.step, self.unscanned = 1000, list(self.rows)
        self.at_barriers: list[tuple[int, dict[int, dict[str, int | None]]]] = []

    def send(self, partition: int, record: dict[str, Any]) -> None:
        value = base64.b64encode(json.dumps(record).encode()).decode()
        offset = self.offsets[partition]
        self.offsets[partition] += 1
        self.lines.append(
            {"topic": "shop/orders/updates", "partition": partition, "offset": offset, "timestamp_ms": 0,
             "key_b64": None, "value_b64": value, "headers": []}
        )  # fmt: skip

    def scan(self, key: int | None = None) -> None:
        key = self.unscanned[0] if key is None else key
        self.unscanned.remove(key)
        self.send(key % self.partitions, {"update": self.rows[key], "key": [key], "ts": [999, 1]})

    def change(self) -> None:
        self.step += self.random.randint(0, 2)
        key = self.random.randint(0, 14)
        if key in self.unscanned:
            self.scan(key)
        kind, column = self.random.choice(["update", "update", "reset", "erase"]), self.random.choice("ab")
        value = self.random.choice([None, self.random.randint(0, 99)])
        image: dict[str, int | None] = {} if kind == "erase" else {column: value}
        self.send(key % self.partitions, {kind: image, "key": [key], "ts": [self.step, len(self.lines)]})
        if kind == "erase":
            self.rows.pop(key, None)
            return
        base = self.rows.get(key) if kind == "update" else None
        self.rows[key] = {**(base or {"a": None, "b": None}), **image}

    def expire(self) -> None:
        """Erase the rows whose `a` is old, as a table's TTL does."""
        self.step += 1
        age = self.random.randint(0, 99)
        for key in [key for key, row in self.rows.items() if row["a"] is not None and row["a"] < age]:
            if key in self.unscanned and self.random.random() < 0.5:
                self.unscanned.remove(key)
            elif key in self.unscanned:
                self.scan(key)
            self.send(key % self.partitions, {"erase": {}, "key": [key], "ts": [self.step, 1]})
            del self.rows[key]

    def barrier(self) -> None:
        self.step += 1
        state = {key: dict(row) for key, row in self.rows.items()}
        for partition in range(self.partitions):
            self.send(partition, {"resolved": [self.step, 0]})
        self.at_barriers.append((len(self.lines), state))
        self.step += 1


@pytest.mark.parametrize("seed", range(6))
def test_a_generated_feed_equals_its_table_at_every_barrier(seed: int, tmp_path: Path) -> None:
    producer = Producer(seed)
    while producer.unscanned:
        producer.random.choice([producer.scan, producer.change, producer.scan, producer.change, producer.expire])()
    for _ in range(4):
        for _ in range(producer.random.randint(0, 12)):
            producer.random.choice([producer.change] * 5 + [producer.expire])()
        producer.barrier()
    producer.change()
    path = tmp_path / "schemas.sql"
    path.write_text("CREATE TABLE `shop/orders` (id Uint32 NOT NULL, a Int64, b Int64, PRIMARY KEY (id));")
    uri = "kafka://127.0.0.1:2135/shop/orders/updates?protocol=ydb-json"
    feed = TopicFeed.of(MemoryLog([]), sink_uri=uri, name="ydb", schemas=path)
    for count, state in producer.at_barriers:
        more = producer.random.randint(0, 1)  # what follows a barrier in one partition waits for the next one
        feed.log.lines = producer.lines[: count + more]
        outcome = feed.apply()
        assert [(table.name, table.reason) for table in outcome.tables if table.reason] == []
        held = feed.lake.read(TABLE).to_pylist()
        assert {row["id"]: {"a": row["a"], "b": row["b"]} for row in held} == state


@pytest.mark.parametrize("record", [b'{"x":1}', b'{"update":', b'{"update":{"a":"\xff"},"key":[5]}'])
def test_a_record_that_cannot_be_read_holds_its_table_at_what_is_before_it(record: bytes, tmp_path: Path) -> None:
    path = tmp_path / "schemas.sql"
    path.write_text(PAIR)
    producer = Producer(0, 1)
    producer.send(0, {"update": {"value": 1}, "key": [1]})
    producer.send(0, {})
    producer.lines[-1]["value_b64"] = base64.b64encode(record).decode()
    producer.send(0, {"update": {"value": 2}, "key": [2]})
    uri = "kafka://127.0.0.1:2135/shop/orders/updates?protocol=ydb-json"
    feed = TopicFeed.of(MemoryLog(producer.lines), sink_uri=uri, name="ydb", schemas=path)
    (table,) = feed.apply().tables
    assert table.reason.startswith("shop/orders/updates[0] offset 1 cannot be read: ")
    assert feed.lake.read(TABLE).column("key").to_pylist() == [1]
