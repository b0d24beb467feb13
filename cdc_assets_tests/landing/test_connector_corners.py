"""What connectors of Debezium do now and then: each a little stream, landed and applied."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import BadSettings
from cdc_assets.model.schema import TableId
from cdc_assets.types.rules import Grade
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
        self.feed.lake.may_lack_rows = True  # deletes of rows that were never sent

    def send(
        self,
        op: str,
        lsn: int,
        *,
        table: str = "t",
        made: int | None = None,
        snapshot: str = "false",
        key: Row | None = None,
        key_fields: Sequence[Mapping[str, Any]] = (ID,),
        keyed: bool = True,
        partition: int = 0,
        before: Row | None = None,
        **after: Any,
    ) -> None:
        """Send a row as it is after a change that was made at a time; of a delete its key."""
        place = {"lsn": lsn, "sequence": json.dumps([str(lsn)] * 2), "snapshot": snapshot}
        source = {"connector": "postgresql", "name": "px", "db": "d", "schema": "public", "table": table, **place}
        images = {"before": after, "after": None} if op == "d" else {"before": before, "after": after}
        payload = {**images, "source": {**source, "ts_ms": 1000 + lsn if made is None else made}, "op": op}
        structs = [{"type": "struct", "fields": self.fields, "optional": True, "field": name} for name in images]
        named = {"schema": {"type": "struct", "fields": key_fields}, "payload": key or {"id": after["id"]}}
        self.put(
            named,
            {"schema": {"type": "struct", "fields": structs}, "payload": payload},
            f"px.public.{table}",
            partition,
        )
        if not keyed:
            self.log.lines[-1]["key_b64"] = None

    def put(self, key: Any, value: Any, topic: str = "px.public.t", partition: int = 0) -> None:
        coded = [base64.b64encode(json.dumps(part).encode()).decode() for part in (key, value)]
        offset = sum((line["topic"], line["partition"]) == (topic, partition) for line in self.log.lines)
        line = {"topic": topic, "partition": partition, "offset": offset, "timestamp_ms": 0}
        self.log.lines.append({**line, "key_b64": coded[0], "value_b64": coded[1]})

    def applied(self) -> list[str]:
        """Apply what was sent; return why tables are held."""
        return [table.reason for table in self.feed.apply().tables if table.reason]

    @property
    def rows(self) -> dict[int, dict[str, Any]]:
        names = [field["field"] for field in self.fields]
        return {row["id"]: {name: row[name] for name in names[1:]} for row in self.feed.lake.read(TABLE).to_pylist()}


def array_of(kind: str, **more: Any) -> Mapping[str, Any]:
    return {"type": "array", "items": {"type": kind, "optional": True, **more}, "optional": True, "field": "v"}


@pytest.mark.parametrize(
    ("field", "value", "unchanged"),
    [
        (array_of("int32"), [1, 2], list(PLACEHOLDER.encode())),
        (array_of("int64"), [1, 2], list(PLACEHOLDER.encode())),
        (array_of("double"), [0.5], [float(byte) for byte in PLACEHOLDER.encode()]),
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
    ids=lambda _: None,
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


_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_NUMERIC = {f"__debezium.source.column.{name}": text for name, text in (("type", "NUMERIC"), ("length", "9"))}


@pytest.mark.parametrize(
    ("field", "sent", "kept"),
    [
        ({"type": "string", "parameters": _NUMERIC}, "NaN", None),
        ({"type": "double", "parameters": _NUMERIC}, "Infinity", None),
        (
            {"type": "bytes", "name": _DECIMAL, "parameters": {"scale": "-2", "connect.decimal.precision": "5"}},
            "Aw==",
            Decimal(300),
        ),
        (
            {"type": "bytes", "name": _DECIMAL, "parameters": {"scale": "2046", "connect.decimal.precision": "5"}},
            base64.b64encode((300 * 10**2046).to_bytes(852, "big")).decode(),
            Decimal(300),
        ),
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, (1 << 63) - 1, None),
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, -1 << 63, None),
        (
            {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": str((1 << 31) - 1)}},
            "/wM=",
            b"\x03\xff",
        ),
        ({"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "65"}}, "BQ==", b"\0" * 8 + b"\5"),
    ],
    ids=["not a number", "infinity", "negative scale", "its bits", "latest", "earliest", "no width", "wide"],
)
def test_values_at_the_edge_of_their_type_are_kept_or_null(field: Row, sent: Any, kept: Any) -> None:
    stream = Stream(ID, {**field, "optional": True, "field": "v"})
    stream.send("c", 1, id=1, v=sent)
    assert stream.applied() == []
    assert stream.rows == {1: {"v": kept}}


def _struct(name: str, **members: Any) -> tuple[Row, Any]:
    return {"type": "struct", "name": f"io.debezium.time.Structured{name}"}, members


_DAY = {"year": 2024, "month": 2, "day": 29}
_NONE = {"year": None, "month": None, "day": None}
_CLOCK = {"hour": 1, "minute": 2, "second": 3, "nanos": 456789000, "precision": 6}
_PICOS = {"hour": 1, "minute": 2, "second": 3, "picoseconds": 456789012345, "precision": 6}
_CLOCK_OF_NOON = {"hour": 12, "minute": 0, "second": 0, "nanos": 0}
_NO_CLOCK = {"hour": None, "minute": None, "second": None, "nanos": None}
_SPAN = {"years": 1, "months": -2, "days": 3, "hours": 4, "minutes": 5, "seconds": 6, "nanos": 789000000}
_LONG_SPAN = {name: value for name, value in _SPAN.items() if name != "nanos"} | {"picoseconds": 789000000001}
_NOON = datetime(2024, 2, 29, 12, tzinfo=timezone.utc)
_ZONED = {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}
_NUMBER = {"type": "bytes", "name": _DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "9"}}


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (_struct("Date", **_DAY, specialValue=None), date(2024, 2, 29)),
        (_struct("Date", **_NONE, specialValue="POSITIVE_INFINITY"), None),
        (_struct("Date", **{**_DAY, "year": 10000}, specialValue=None), None),
        (_struct("Timestamp", **_DAY, **_CLOCK, specialValue=None), datetime(2024, 2, 29, 1, 2, 3, 456789)),
        (_struct("Timestamp", **_NONE, **_NO_CLOCK, specialValue="NEGATIVE_INFINITY"), None),
        (
            _struct("ZonedTimestamp", **_DAY, hour=14, minute=0, second=0, nanos=0, offsetSeconds=7200, zoneId=None),
            _NOON,
        ),
        (_struct("ZonedTimestamp", **_DAY, hour=12, minute=0, second=0, nanos=0, offsetSeconds=0, zoneId=None), _NOON),
        (
            _struct("ZonedTimestamp", **_NONE, **_NO_CLOCK, offsetSeconds=None, specialValue="POSITIVE_INFINITY"),
            None,
        ),
        (_struct("Time", **_CLOCK), "01:02:03.456789"),
        (_struct("TimePrecision6", **_PICOS), "01:02:03.456789"),
        (_struct("DateSourceColumn76", **_DAY, specialValue=None), date(2024, 2, 29)),
        (_struct("TimestampPrecision6", **_DAY, **_PICOS), datetime(2024, 2, 29, 1, 2, 3, 456789)),
        (
            _struct("ZonedTimestampPrecision0SourceColumn76", **_DAY, **{**_PICOS, "hour": 3}, offsetSeconds=7200),
            datetime(2024, 2, 29, 1, 2, 3, 456789, tzinfo=timezone.utc),
        ),
        (_struct("DurationSourceColumn76", **_LONG_SPAN), "P1Y-2M3DT4H5M6.789000000001S"),
        (_struct("ZonedTime", **{**_CLOCK, "nanos": 0}, offsetSeconds=-5400), "01:02:03-01:30"),
        (_struct("Duration", **_SPAN), "P1Y-2M3DT4H5M6.789S"),
        ((_ZONED, "2024-02-29T14:00:00+02:00"), _NOON),
        ((_ZONED, "2024-02-29T06:30:00.000000-0530"), _NOON),
        ((_ZONED, "2024-03-01T00:00:00+12"), _NOON),
        ((_ZONED, "2024-02-29T12:00:00Z"), _NOON),
        ((_NUMBER, 12.34), Decimal("12.34")),
        ((_NUMBER, 0.1), Decimal("0.10")),
        ((_NUMBER, -7), Decimal("-7.00")),
        ((array_of("bytes", name=_DECIMAL, parameters={"scale": "2"}), [0.5, None]), '["0.50",null]'),
    ],
    ids=lambda _: None,
)
def test_values_are_read_in_each_way_in_which_connectors_write_them(sent: tuple[Row, Any], kept: Any) -> None:
    """`time.precision.mode` = structured, offsets of zones, and JsonConverter's `decimal.format` = NUMERIC."""
    field, value = sent
    stream = Stream(ID, {**field, "optional": True, "field": "v"})
    stream.send("c", 1, id=1, v=value)
    assert stream.applied() == []
    assert stream.rows == {1: {"v": kept}}


@pytest.mark.parametrize(
    "sent",
    [
        (_ZONED, "2024-02-29T14:00:00+2"),
        (_ZONED, "2024-02-29+02:00"),
        (_ZONED, "2024-02-29T14:00:00+02:00:00:00"),
        _struct("ZonedTimestamp", **_DAY, **_CLOCK, offsetSeconds=None, zoneId="Europe/Berlin"),
        _struct("ZonedTimestamp", **_DAY, **_CLOCK, zoneId="Europe/Berlin"),
    ],
    ids=lambda _: None,
)
def test_a_moment_whose_offset_cannot_be_read_holds_its_table(sent: tuple[Row, Any]) -> None:
    field, value = sent
    stream = Stream(ID, {**field, "optional": True, "field": "v"})
    stream.send("c", 1, id=1, v=value)
    (reason,) = stream.applied()
    assert f'column "v" has a value that is not of the type {field["name"]}' in reason


def test_structs_of_moments_are_read_by_the_types_of_ddl_and_of_the_setting_schemas(tmp_path: Path) -> None:
    source, mode = MariaDb(), "protocol=debezium-json&time.precision.mode=structured"
    source.feed = TopicFeed.of(source.log, sink_uri=f"kafka://127.0.0.1:9092/mx?{mode}", name="c")
    source.ddl("CREATE TABLE t (id INT PRIMARY KEY, d DATE, m DATETIME(6), t TIME(3), i TIMESTAMP NULL)")
    span = {"years": 0, "months": 0, "days": 0, "hours": -30, "minutes": 0, "seconds": 0, "nanos": -500000000}
    zoned = {**_DAY, "hour": 12, "minute": 0, "second": 0, "nanos": 0, "offsetSeconds": 0}
    source.row(id=1, d=_DAY, m={**_DAY, **_CLOCK}, t=span, i=zoned)
    source.row(id=2, d={"year": 0, "month": 0, "day": 0}, m=None, t=None, i=None)
    assert source.applied() == []
    moment = datetime(2024, 2, 29, 1, 2, 3, 456789)
    assert source.rows[1] == {"d": date(2024, 2, 29), "m": moment, "t": "-30:00:00.500", "i": _NOON}
    assert source.rows[2]["d"] is None
    stream, texts = Stream(), tmp_path / "schemas.sql"
    texts.write_text("CREATE TABLE public.t (id int PRIMARY KEY, d date, i timestamptz, s interval);")
    uri = f"kafka://127.0.0.1:9092/px?{mode}"
    stream.feed = TopicFeed.of(stream.log, sink_uri=uri, name="c", schemas=texts)
    place = {"lsn": 1, "sequence": '["1","1"]', "snapshot": "false", "ts_ms": 1}
    origin = {"connector": "postgresql", "name": "px", "db": "d", "schema": "public", "table": "t", **place}
    after = {"id": 1, "d": _DAY, "i": zoned, "s": _SPAN}
    stream.put({"id": 1}, {"before": None, "after": after, "source": origin, "op": "c"})
    assert stream.applied() == []
    (row,) = stream.feed.lake.read(TABLE).to_pylist()
    assert (row["d"], row["i"], row["s"]) == (date(2024, 2, 29), _NOON, "P1Y-2M3DT4H5M6.789S")


@pytest.mark.parametrize(
    "names",
    [("payload",), ("schema", "payload"), ("schema",), ("before", "after"), ("op", "source", "ts_ms"), ("table",)],
)
@pytest.mark.parametrize("blocks", ["key and value", "value", "key", ""])
def test_columns_of_a_key_may_be_called_as_what_is_around_it(
    names: tuple[str, ...], blocks: str, tmp_path: Path
) -> None:
    fields = [{"type": "string", "optional": False, "field": name} for name in names]
    stream, texts = Stream(*fields, V), tmp_path / "schemas.sql"
    columns = ", ".join(f'"{name}" text NOT NULL' for name in names)
    keyed = ", ".join(f'"{name}"' for name in names)
    texts.write_text(f"CREATE TABLE public.t ({columns}, v int, PRIMARY KEY ({keyed}));")
    given: dict[str, Any] = {} if "value" in blocks else {"schemas": texts}
    stream.feed = TopicFeed.of(
        stream.log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c", **given
    )
    images = [{"type": "struct", "fields": stream.fields, "field": side} for side in ("before", "after")]
    for lsn, (op, value) in enumerate([("c", "a"), ("c", "b"), ("u", "b"), ("d", "a"), ("c", "c"), ("d", "c")], 1):
        key: dict[str, Any] = dict.fromkeys(names, value)
        place = {"lsn": lsn, "sequence": json.dumps([str(lsn)] * 2), "snapshot": "false", "ts_ms": lsn}
        source = {"connector": "postgresql", "name": "px", "db": "d", "schema": "public", "table": "t", **place}
        sides = (
            {"before": {**key, "v": None}, "after": None} if op == "d" else {"before": None, "after": {**key, "v": lsn}}
        )
        payload = {**sides, "source": source, "op": op}
        stream.put(
            {"schema": {"type": "struct", "fields": fields}, "payload": key} if "key" in blocks else key,
            {"schema": {"type": "struct", "fields": images}, "payload": payload} if "value" in blocks else payload,
        )
    assert stream.applied() == []
    rows = stream.feed.lake.read(TABLE).to_pylist()
    assert [(*(row[name] for name in names), row["v"]) for row in rows] == [(*("b" for _ in names), 3)]


def _digits(scale: int, precision: int) -> Row:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": _DECIMAL, "parameters": parameters, "optional": True, "field": "v"}


_ANY_DIGITS = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "optional": True, "field": "v"}


@pytest.mark.parametrize(
    ("before", "first", "after", "second", "kept"),
    [
        (_digits(2, 5), "fQ==", _ANY_DIGITS, {"scale": 5, "value": "AeII"}, ["1.25", "1.23400"]),
        (V, 7, _ANY_DIGITS, {"scale": 1, "value": "DQ=="}, ["7", "1.3"]),
        (V, -7, _digits(2, 12), "fQ==", [Decimal("-7.00"), Decimal("1.25")]),
        ({**V, "type": "int64"}, 1 << 62, _digits(1, 40), "DQ==", ["4611686018427387904.0", "1.3"]),
    ],
    ids=["numeric(5,2) to numeric", "integer to numeric", "integer to numeric(12,2)", "bigint to numeric(40,1)"],
)
def test_a_number_s_type_that_grows_to_a_numeric_keeps_the_values_of_old_rows(
    before: Row, first: Any, after: Row, second: Any, kept: list[Any]
) -> None:
    stream = Stream(ID, before)
    stream.send("c", 1, id=1, v=first)
    assert stream.applied() == []
    stream.fields = ID, after
    stream.send("c", 2, id=2, v=second)
    assert stream.applied() == []
    assert [stream.rows[number]["v"] for number in (1, 2)] == kept


@pytest.mark.parametrize("more", [{}, {"timestamp": 1695817046353}], ids=["without time", "with time"])
def test_notifications_of_a_connector_beside_its_tables_are_passed_over(more: Row) -> None:
    data = {"connector_name": "px", "data_collections": "public.t"}
    stream = Stream()
    stream.send("c", 1, id=1, v=1)
    notification = {
        "id": "c5",
        "aggregate_type": "Initial Snapshot",
        "type": "IN_PROGRESS",
        "additional_data": data,
        **more,
    }
    stream.put(None, notification, "px.notifications")
    stream.send("c", 2, id=2, v=2)
    outcome = stream.feed.apply()
    assert outcome.problems == {}
    assert stream.rows == {1: {"v": 1}, 2: {"v": 2}}


@pytest.mark.parametrize(
    "more", [{}, {"ts_ms": 1695817046353}, {"partition_id": "a"}], ids=lambda members: "".join(members)
)
def test_transactions_are_passed_over_as_versions_of_connectors_write_them(more: Row) -> None:
    stream = Stream()
    stream.send("c", 1, id=1, v=1)
    for status, collections in (("BEGIN", None), ("END", [{"data_collection": "public.t", "event_count": 1}])):
        transaction = {"status": status, "id": "571", "event_count": None, "data_collections": collections, **more}
        stream.put({"id": "571"}, transaction, "px.transaction")
    outcome = stream.feed.apply()
    assert (outcome.problems, stream.rows) == ({}, {1: {"v": 1}})


# --- names ------------------------------------------------------------------------------------------------------------


def test_tables_whose_names_differ_in_case_only_are_not_mixed() -> None:
    stream = Stream()
    stream.send("c", 1, id=1, v=1)
    assert stream.applied() == []
    stream.send("c", 2, table="T", id=1, v=2)
    (reason,) = stream.applied()
    assert "public.t and public.T are two tables" in reason
    assert stream.rows == {1: {"v": 1}}


def test_what_a_router_of_topics_puts_into_keys_is_no_column() -> None:
    stream = Stream()
    for number in (1, 2):
        key = {"id": number, "__dbz__physicalTableIdentifier": "px.public.t"}
        stream.send("c", number, key=key, id=number, v=1)
    stream.send("u", 3, key={**key, "id": 1}, id=1, v=2)
    stream.send("d", 4, key=key, id=2, v=None)
    assert stream.applied() == []
    assert stream.rows == {1: {"v": 2}}


def test_keys_of_a_connector_s_own_that_do_not_identify_rows_hold_the_table() -> None:
    stream = Stream()
    for number in (1, 2):
        stream.send("r", 100, snapshot="true", key={"v": 7}, id=number, v=7)
    (reason,) = stream.applied()
    assert "another row of the same snapshot has the key" in reason
    assert "message.key.columns" in reason


def test_a_delete_without_its_own_key_holds_the_table() -> None:
    stream = Stream()
    stream.send("c", 1, key={"v": 7}, id=1, v=7)
    stream.send("d", 2, key={"v": None}, id=1, v=None)
    (reason,) = stream.applied()
    assert "it is a delete that does not have the key (v)" in reason


@pytest.mark.parametrize(
    ("deleted", "by_index"),
    [
        ({"id": 0, "u": 2, "s": "new", "n": None}, True),
        ({"id": 0, "u": 0, "s": "old", "n": None}, True),
        ({"id": 0, "u": 0, "s": "new", "n": None}, False),
        ({"id": 0, "u": 0, "s": "", "n": None}, False),
        ({"id": 0, "u": 2, "s": "new", "n": 3}, False),
        ({"id": 0, "u": 2, "s": "old", "n": 3}, False),
        ({"id": 1, "u": 2, "s": "new", "n": None}, False),
    ],
)
def test_a_delete_that_has_other_columns_than_the_key_holds_the_table(deleted: Row, by_index: bool) -> None:
    u = {"type": "int32", "optional": False, "field": "u"}
    s = {"type": "string", "optional": False, "default": "new", "field": "s"}
    stream = Stream(ID, u, s, {"type": "int32", "optional": True, "field": "n"})
    stream.send("c", 10, id=1, u=2, s="old", n=3)
    assert stream.applied() == []
    stream.send("d", 20, **deleted)
    reasons = stream.applied()
    assert [("REPLICA IDENTITY USING INDEX" in reason) for reason in reasons] == [True] * by_index
    assert (1 in stream.rows) == (deleted["id"] == 0)


@pytest.mark.parametrize(
    ("field", "unsaid"),
    [
        ({"type": "string", "name": "io.debezium.data.Json"}, "{}"),
        ({"type": "array", "items": {"type": "int32", "optional": True}}, []),
        ({"type": "string", "name": "io.debezium.time.ZonedTime"}, "00:00:00Z"),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "1970-01-01T00:00:00Z"),
        ({"type": "boolean", "default": True}, True),
    ],
    ids=lambda _: None,
)
def test_a_delete_of_the_key_zero_is_one_whatever_comes_for_columns_of_which_the_log_says_nothing(
    field: Row, unsaid: Any
) -> None:
    stream = Stream(ID, {**field, "optional": False, "field": "v"})
    stream.send("c", 10, id=0, v=unsaid)
    stream.send("d", 20, id=0, v=unsaid)
    assert stream.applied() == []
    assert stream.rows == {}


@pytest.mark.parametrize(
    ("identities", "is_known"),
    [
        ("public.t:FULL", True),
        ("public.a:DEFAULT, public.*:full", True),
        ("public.u:FULL,public.t:DEFAULT", True),
        ("public.u:FULL", False),
        ("(:FULL,t:FULL", False),
        ("public.t:INDEX i", False),
    ],
)
def test_a_delete_of_the_key_zero_is_one_where_the_configuration_says_that_it_has_the_key(
    identities: str, is_known: bool
) -> None:
    stream = Stream(ID, {"type": "int32", "optional": False, "field": "v"})
    uri = f"kafka://127.0.0.1:9092/px?protocol=debezium-json&replica.identity.autoset.values={identities}"
    stream.feed = TopicFeed.of(stream.log, sink_uri=uri, name="c")
    stream.send("c", 10, id=0, v=5)
    stream.send("c", 11, id=1, v=6)
    stream.send("d", 20, id=0, v=5)
    assert ["replica.identity.autoset.values" in reason for reason in stream.applied()] == [True] * (not is_known)
    assert stream.rows == ({1: {"v": 6}} if is_known else {})


@pytest.mark.parametrize("identity", ["FULL", "DEFAULT"])
def test_a_table_that_is_held_at_a_delete_of_the_key_zero_goes_on_once_its_identity_is_stated(identity: str) -> None:
    stream = Stream(ID, {"type": "int32", "optional": False, "field": "v"})
    stream.send("c", 10, id=0, v=5)
    stream.send("c", 11, id=1, v=6)
    stream.send("d", 20, id=0, v=5)
    (reason,) = stream.applied()
    assert "replica.identity.autoset.values = SCHEMA.TABLE:FULL, or DEFAULT" in reason
    held, uri = stream.feed, "kafka://127.0.0.1:9092/px?protocol=debezium-json"
    uri += f"&replica.identity.autoset.values=public.t:{identity}"
    stream.feed = TopicFeed.of(stream.log, held.store, sink_uri=uri, name="c")
    stream.feed.lake, stream.feed.ledger = held.lake, held.ledger
    assert stream.applied() == []
    assert stream.rows == {1: {"v": 6}}


def test_a_key_that_is_no_object_is_refused_by_the_converter_s_name() -> None:
    stream = Stream()
    stream.send("c", 1, id=1, v=7)
    stream.log.lines[0]["key_b64"] = base64.b64encode(b"1").decode()
    with pytest.raises(BadSettings, match=r"key\.converter"):
        stream.applied()


# --- logs that begin anew ---------------------------------------------------------------------------------------------


def test_a_row_that_is_newer_than_all_but_stands_below_holds_its_table() -> None:
    stream = Stream()
    stream.send("c", 5000, made=1000, id=1, v=1)
    assert stream.applied() == []
    stream.send("u", 40, made=2000, id=1, v=2)  # another server, whose log is younger
    stream.send("u", 50, made=2001, id=1, v=3)
    (reason,) = stream.applied()
    assert "or reads another log, as after a failover" in reason
    assert "px.public.t[0] offset 1" in reason
    assert stream.rows == {1: {"v": 1}}


def test_what_follows_in_a_log_that_begins_anew_is_not_compared_with_ddl_of_before() -> None:
    stream = Stream()
    stream.send("c", 5000, made=1000, id=1, v=1)
    source = {"connector": "postgresql", "name": "px", "db": "d", "schema": "public", "table": "t", "ts_ms": 1001}
    place = {"lsn": 5001, "sequence": '["5001","5001"]', "snapshot": "false"}
    stream.put(None, {"before": None, "after": None, "source": {**source, **place}, "op": "t"})
    for lsn in (40, 50, 60):
        stream.send("c", lsn, made=2000 + lsn, id=lsn, v=2)
        stream.applied()
    assert [message.offset for message in stream.feed.landing.landed().open_bad] == [2]


def test_a_row_that_comes_again_is_as_old_as_it_was() -> None:
    stream = Stream()
    for lsn in (10, 20, 30):
        stream.send("c", lsn, id=lsn, v=1)
    for lsn in (20, 30, 40):
        stream.send("c", lsn, id=lsn, v=1)
    assert stream.applied() == []
    assert sorted(stream.rows) == [10, 20, 30, 40]


@pytest.mark.parametrize("count", [1, 300])
@pytest.mark.parametrize("in_one_go", [True, False])
def test_rows_of_an_incremental_snapshot_that_come_again_bring_no_row_back(in_one_go: bool, count: int) -> None:
    stream, ids = Stream(), range(count)

    def read(at: int, made: int, value: int) -> None:
        for ident in ids:
            stream.send("r", at, snapshot="incremental", made=made, id=ident, v=value)

    for ident in ids:
        stream.send("c", 10 + ident, id=ident, v=1)
    read(1000, 5000, 2)
    stream.send("d", 1001, made=5001, id=0)
    if not in_one_go:
        assert stream.applied() == []
    read(1000, 5000, 2)
    stream.send("d", 1001, made=5001, id=0)
    assert stream.applied() == []
    assert stream.rows == {ident: {"v": 2} for ident in ids[1:]}
    read(2000, 6000, 3)  # another one
    if not in_one_go:
        assert stream.applied() == []
    read(2000, 6000, 3)
    assert stream.applied() == []
    assert stream.rows == {ident: {"v": 3} for ident in ids}


def test_the_last_row_is_known_again_however_often_it_comes() -> None:
    stream = Stream()
    for _ in range(3):
        stream.send("c", 10, id=1, v=1)
        stream.send("t", 20, id=0)
        assert stream.applied() == []
    stream.send("c", 30, id=2, v=1)
    assert stream.applied() == []
    assert sorted(stream.rows) == [2]


def test_another_snapshot_behind_streamed_rows_holds_its_table_once() -> None:
    stream = Stream()
    stream.send("r", 100, snapshot="first", id=1, v=1)
    stream.send("r", 100, snapshot="last", id=2, v=1)
    stream.send("d", 110, id=2)
    assert stream.applied() == []
    for number in (1, 3, 4):
        stream.send("r", 500, snapshot="true", made=9000, id=number, v=7)
    (reason,) = stream.applied()
    assert "the connector has taken another snapshot" in reason
    assert [message.offset for message in stream.feed.landing.landed().open_bad] == [3]


@pytest.mark.parametrize("in_one_go", [True, False])
def test_a_snapshot_that_begins_anew_begins_with_an_empty_table(in_one_go: bool) -> None:
    stream = Stream()
    stream.send("r", 100, snapshot="first", id=1, v=1)
    stream.send("r", 100, snapshot="true", id=2, v=1)
    if not in_one_go:
        assert stream.applied() == []
        assert stream.rows == {1: {"v": 1}, 2: {"v": 1}}
    stream.send("r", 200, snapshot="first", id=1, v=5)  # row 2 was deleted before
    if not in_one_go:
        assert stream.applied() == []
    stream.send("r", 200, snapshot="last", id=3, v=5)
    stream.send("c", 210, id=4, v=6)
    assert stream.applied() == []
    assert stream.rows == {1: {"v": 5}, 3: {"v": 5}, 4: {"v": 6}}


@pytest.mark.parametrize("first", [0, 1])
def test_a_snapshot_that_begins_anew_in_several_partitions_holds_its_table(first: int) -> None:
    stream = Stream()
    stream.send("r", 100, snapshot="first", partition=first, id=1, v=1)
    stream.send("r", 200, snapshot="first", partition=1 - first, id=2, v=5)  # row 1 was deleted before
    stream.send("c", 210, partition=1 - first, id=3, v=6)
    (reason,) = stream.applied()
    assert "it begins another snapshot of its table" in reason
    assert stream.rows == {1: {"v": 1}}


def test_rows_without_envelope_are_refused_by_the_transformation_s_name() -> None:
    stream = Stream()
    stream.put({"id": 1}, {"id": 1, "v": 2})
    with pytest.raises(BadSettings, match="ExtractNewRecordState"):
        stream.applied()


# --- DDL as a person wrote it -----------------------------------------------------------------------------------------


class MariaDb(Stream):
    """What MariaDB's connector sends of one table and, without schema blocks, of its DDL."""

    def __init__(self) -> None:
        self.log = MemoryLog([])
        self.feed = TopicFeed.of(self.log, sink_uri="kafka://127.0.0.1:9092/mx?protocol=debezium-json", name="c")
        self.place = 100

    def source(self) -> dict[str, Any]:
        self.place += 10
        place = {"file": "bin.000001", "pos": self.place, "row": 0, "snapshot": "false", "ts_ms": 1000 + self.place}
        return {"connector": "mariadb", "name": "mx", "db": "public", "table": "t", **place}

    def ddl(self, text: str) -> None:
        changes = [{"type": "ALTER", "id": '"public"."t"', "table": {"columns": []}}]
        held = {"ts_ms": 1, "databaseName": "public", "schemaName": None, "ddl": text, "tableChanges": changes}
        self.put({"databaseName": "public"}, {"source": self.source(), **held}, "mx")

    def row(self, **after: Any) -> None:
        payload = {"before": None, "after": after, "source": self.source(), "op": "c", "ts_ms": 1}
        self.put({"id": after["id"]}, payload, "mx.public.t")

    @property
    def rows(self) -> dict[int, dict[str, Any]]:
        held = self.feed.lake.read(TABLE).to_pylist()
        return {row["id"]: {n: v for n, v in row.items() if n not in ("id", "_cdc_commit_ts")} for row in held}


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER ONLINE TABLE t ADD b INT",
        "ALTER ONLINE IGNORE TABLE t ADD b INT",
        "ALTER TABLE IF EXISTS t WAIT 5 ADD COLUMN IF NOT EXISTS b INT, DROP COLUMN IF EXISTS nothing",
        "ALTER TABLE public.t NOWAIT ADD (b INT), ALGORITHM=INSTANT, LOCK=NONE",
        "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, b INT)",
    ],
)
def test_ddl_has_the_effect_that_it_has_in_mariadb(statement: str) -> None:
    source = MariaDb()
    source.ddl("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)")
    source.row(id=1)
    source.ddl(statement)
    source.row(id=2, b=5)
    assert source.applied() == []
    assert source.rows[2] == {"b": 5}
    assert (1 in source.rows) == (not statement.startswith("CREATE"))


@pytest.mark.parametrize("text", ["DROP", "TRUNCATE"])
def test_rows_of_a_partition_by_texts_that_the_server_compares_by_a_collation_of_its_own_hold_the_table(
    text: str,
) -> None:
    source = MariaDb()
    partitions = "PARTITION BY LIST COLUMNS (r) (PARTITION a VALUES IN ('a', 'b'), PARTITION c VALUES IN ('c'))"
    source.ddl(f"CREATE TABLE t (id INT, r VARCHAR(5), PRIMARY KEY (id, r)) {partitions}")
    source.row(id=1, r="B")
    source.ddl(f"ALTER TABLE t {text} PARTITION a")
    (reason,) = source.applied()
    assert 'texts of "r" compare by the collation unknown' in reason


def test_rows_that_a_foreign_key_changes_without_a_word_in_the_log_are_told_under_the_column_s_newest_name() -> None:
    source = MariaDb()
    source.ddl("CREATE TABLE t (id INT PRIMARY KEY, up INT REFERENCES t (id) ON DELETE CASCADE, other INT)")
    source.ddl("ALTER TABLE t RENAME COLUMN up TO above")
    source.row(id=1, above=None, other=1)
    (finding,) = [finding for finding in source.feed.apply().findings if finding.rule == "unsent-cascades"]
    assert (finding.table, finding.detail) == ("public.t", "above: ON DELETE CASCADE")
    (life,) = source.feed.lake.applied()
    grades = {fidelity.column: (fidelity.grade, fidelity.rule) for fidelity in source.feed.ledger.fidelity("c", life)}
    assert "(ON DELETE CASCADE) are not in the binary log" in grades["above"][1]
    assert (grades["above"][0], grades["other"][0]) == (Grade.CHANGED, Grade.LOSSLESS)


def test_an_index_that_is_replaced_changes_no_column() -> None:
    source = MariaDb()
    source.ddl("CREATE TABLE t (id INT PRIMARY KEY, b INT)")
    source.ddl("CREATE OR REPLACE UNIQUE INDEX i ON t (b)")
    source.row(id=1, b=1)
    assert source.applied() == []
    assert source.rows == {1: {"b": 1}}


def test_a_boolean_of_a_ddl_is_a_small_number() -> None:
    source = MariaDb()
    source.ddl("CREATE TABLE t (id INT PRIMARY KEY, b BOOLEAN, c TINYINT(1))")
    source.row(id=1, b=True, c=1)
    source.row(id=2, b=False, c=None)
    assert source.applied() == []
    assert source.rows == {1: {"b": 1, "c": 1}, 2: {"b": 0, "c": None}}


def test_rows_of_a_table_whose_first_ddl_cannot_be_read_are_not_forgotten() -> None:
    source = MariaDb()
    source.ddl("CREATE STRANGE TABLE t (id INT PRIMARY KEY)")
    source.row(id=1)
    problems = source.feed.apply().problems
    assert any("public.t has rows in mx.public.t[0]" in problem for problem in problems.values())


def test_a_newest_row_that_is_sent_again_and_again_is_one() -> None:
    stream = Stream()
    stream.send("c", 10, partition=1, id=1, v=1)
    stream.send("c", 10, partition=1, id=1, v=1)
    stream.send("t", 20, partition=0, key={"id": 1}, id=1)
    assert stream.applied() == []
    for _ in range(3):
        stream.send("c", 10, partition=1, id=1, v=1)
        assert stream.applied() == []
    stream.send("c", 30, partition=1, id=2, v=2)
    assert stream.applied() == []
    assert stream.rows == {2: {"v": 2}}


def test_a_damaged_message_in_the_topic_of_a_table_stops_no_other() -> None:
    stream = Stream(ID, {"type": "int32", "optional": True, "field": "v"})
    stream.send("c", 1, id=1, v=1)
    assert stream.applied() == []
    stream.put({"id": 1}, "no message", topic="px.public.other")
    stream.send("c", 2, id=2, v=2)
    outcome = stream.feed.apply()
    assert [table.reason for table in outcome.tables if table.reason] == []
    assert stream.rows == {1: {"v": 1}, 2: {"v": 2}}
    assert any("px.public.other" in place for place in outcome.problems)
    stream.put({"id": 1}, "no message")
    stream.send("c", 3, id=3, v=3)
    (reason,) = stream.applied()
    assert "a connector sends each table to a topic of its name" in reason
    assert stream.rows == {1: {"v": 1}, 2: {"v": 2}}
