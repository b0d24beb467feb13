"""Connectors' rows of one shape, read side by side: the same as read one by one, whatever they hold."""

from __future__ import annotations

import base64
import json
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.formats import MessageOptions, json_records
from cdc_assets.formats.debezium_json.connectors import classify, decode
from cdc_assets.formats.decoded import Decoded
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets_tests.topics import messages_of, rows_of

OPTIONS = MessageOptions(protocol="debezium-json")
TABLE = TableId("shop", "t")
_TIME, _CONNECT = "io.debezium.time", "org.apache.kafka.connect.data"
DECIMAL = f"{_CONNECT}.Decimal"


def coded(number: int, size: int) -> str:
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


_WIDE = st.integers(-(1 << 70), 1 << 70)
_TEXTS = st.text(st.sampled_from('aß😀"\\\n\u0001,{}: '), max_size=5) | st.just("__debezium_unavailable_value")
_MOMENTS = st.sampled_from(
    [
        "2022-02-22T01:02:03Z",
        "2022-02-22T01:02:03.5Z",
        "0001-01-01T00:00:00Z",
        "2022-02-22T01:02:03.1234567Z",
        "2022-02-30T00:00:00Z",
        "infinity",
        "2022-02-22 01:02:03Z",
        "12022-02-22T01:02:03Z",
        "2022-02-22T01:02:03+00:00",
    ]
)
Field = tuple[dict[str, Any], st.SearchStrategy[Any], tuple[Column, ...]]
FIELDS: dict[str, Field] = {
    "small": ({"type": "int16"}, st.integers(-40000, 40000), (Column("", "SMALLINT"), Column("", "int16"))),
    "tiny": ({"type": "int16"}, st.integers(-300, 300) | st.booleans(), (Column("", "TINYINT"),)),
    "large": (
        {"type": "int64"},
        _WIDE,
        (Column("", "BIGINT"), Column("", "BIGINT", unsigned=True), Column("", "int64")),
    ),
    "number": ({"type": "int32"}, _WIDE, (Column("", "INT", unsigned=True), Column("", "VARCHAR"))),
    "bits": ({"type": "boolean"}, st.booleans(), (Column("", "BIT", precision=1), Column("", "boolean"))),
    "real": ({"type": "double"}, st.floats() | _WIDE, (Column("", "DOUBLE"), Column("", "double"))),
    "single": ({"type": "float"}, st.floats(), (Column("", "FLOAT"), Column("", "float"))),
    "text": (
        {"type": "string"},
        _TEXTS,
        (Column("", "VARCHAR", precision=9), Column("", "string"), Column("", "VARBINARY")),
    ),
    "one": (
        {"type": "string", "name": "io.debezium.data.Enum"},
        st.sampled_from(["a", "b,c", "b\\,c", "d"]),
        (Column("", "ENUM", elems=("a", "b,c")),),
    ),
    "bytes": (
        {"type": "bytes"},
        st.binary(max_size=4).map(lambda content: base64.b64encode(content).decode()) | _TEXTS,
        (Column("", "BLOB"), Column("", "bytes")),
    ),
    "amount": (
        {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}},
        st.sampled_from([1, 2, 3, 7, 8, 9]).flatmap(
            lambda size: st.integers(-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1).map(
                lambda number: coded(number, size)
            )
        )
        | st.sampled_from(["", "=AAA", "A===", "AA=A", "AB==", "A-==", "é"]),
        (
            Column("", "DECIMAL", precision=15, scale=2),
            Column("", "DECIMAL", precision=9, scale=0),
            Column("", DECIMAL, precision=20, scale=2),
            Column("", "BIGINT", unsigned=True),
        ),
    ),
    "day": (
        {"type": "int32", "name": f"{_TIME}.Date"},
        st.integers(-800_000, 3_000_000),
        (Column("", "DATE"), Column("", f"{_TIME}.Date"), Column("", "DATETIME")),
    ),
    "at": (
        {"type": "int64", "name": f"{_TIME}.Timestamp"},
        st.integers(-(1 << 47), 1 << 48) | _WIDE,
        (Column("", "DATETIME", scale=3), Column("", f"{_TIME}.Timestamp"), Column("", "DATE")),
    ),
    "nanos": (
        {"type": "int64", "name": f"{_TIME}.NanoTimestamp"},
        st.integers(-(1 << 63), 1 << 63),
        (Column("", "DATETIME", scale=6), Column("", f"{_TIME}.NanoTimestamp")),
    ),
    "zoned": (
        {"type": "string", "name": f"{_TIME}.ZonedTimestamp"},
        _MOMENTS,
        (Column("", "TIMESTAMP", scale=0), Column("", f"{_TIME}.ZonedTimestamp"), Column("", "VARCHAR")),
    ),
    "clock": (
        {"type": "int64", "name": f"{_TIME}.MicroTime"},
        st.integers(-(10**12), 10**12),
        (Column("", "TIME", scale=3),),
    ),
    "list": (
        {"type": "array", "items": {"type": "int32"}},
        st.lists(st.integers(0, 9), max_size=2),
        (Column("", "array", elems=("int32",)),),
    ),
}
_WILD = st.sampled_from([0, -0.0, 7, 1.5, True, "7", "x", [], {}, {"a": 1}])
_PHASES = st.sampled_from(["false", "true", "last", "incremental", True, False, None])
_PLACES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "mysql": st.fixed_dictionaries(
        {
            "file": st.sampled_from(["bin.000001", "x.y.12", "7", "", "a\nb.3", "bin.x"]),
            "pos": st.integers(-1, 1 << 66),
        },
        optional={"row": st.none() | st.integers(0, 3)},
    ),
    "postgresql": st.fixed_dictionaries(
        {"lsn": st.none() | st.integers(0, 1 << 65)},
        optional={
            "sequence": st.sampled_from(['["1","22"]', '[null,"22"]', '["1",null]', "[1,2]", '["1"]', None, "x"])
        },
    ),
    "other": st.just({}),
}


Sent = tuple[bytes | None, bytes | None]
"""Key and value."""


@st.composite
def feeds(draw: st.DrawFn) -> tuple[TableSchema, list[Sent]]:
    """A table, and some shapes of messages, of each a few."""
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=4, unique=True))
    columns = [Column("id", "BIGINT", nullable=False, is_pk=True)]
    for name in names:
        chosen = draw(st.sampled_from(FIELDS[name][2]))
        columns.append(Column(name, **{key: getattr(chosen, key) for key in _COLUMN}))
    schema = TableSchema(tuple(columns), ("id",) if draw(st.integers(0, 5)) else ())
    messages = []
    for _ in range(draw(st.integers(1, 3))):
        messages += _shape(draw, names)
    messages += [(messages[0][0], None)] * draw(st.integers(0, 2))  # tombstones
    return schema, draw(st.permutations(messages))


_COLUMN = ("type", "unsigned", "precision", "scale", "elems")


def _shape(draw: st.DrawFn, names: list[str]) -> list[Sent]:
    connector, wrapped = draw(st.sampled_from(sorted(_PLACES))), draw(st.booleans())
    sides = draw(st.sampled_from(["c", "u", "uu", "d", "dk", "r", "x", "both"]))
    held = names if draw(st.integers(0, 9)) else names[1:]
    defaulted = draw(st.integers(0, 5)) == 0
    fields = [{"type": "int64", "optional": False, "field": "id"}]
    fields += [
        {**FIELDS[name][0], "optional": True, "field": name, **({"default": 7} if defaulted else {})} for name in held
    ]
    block = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": "after"}]}
    with_schema = draw(st.booleans())
    made: list[Sent] = []
    for _ in range(draw(st.integers(1, 5))):
        wild = draw(st.integers(0, 9)) == 0
        row = {name: draw(st.none() | (_WILD if wild else FIELDS[name][1])) for name in held}
        after, before = {"id": draw(st.integers(0, 3)), **row}, {"id": draw(st.integers(0, 3)), **row}
        if sides == "dk":
            before = {**dict.fromkeys(before), "id": 1 if draw(st.integers(0, 5)) else None}
        place = draw(_PLACES[connector])
        source = {
            "connector": connector,
            "name": "px",
            "ts_ms": draw(st.integers(0, 1 << 44)),
            "db": "shop",
            "table": "t",
            "snapshot": draw(_PHASES),
            **({"schema": None} if with_schema else {}),
            **place,
        }
        if wild:
            source[draw(st.sampled_from(sorted(source)))] = draw(_WILD | st.none())
        payload = {
            "before": before if sides in ("uu", "d", "dk", "both") else None,
            "after": None if sides in ("d", "dk") else after,
            "source": source,
            "op": {"uu": "u", "dk": "d", "x": draw(st.sampled_from("curdtmz")), "both": "c"}.get(sides, sides),
        }
        key: Any = {"id": 1, "__extra": "é"} if draw(st.integers(0, 9)) == 0 else {"id": draw(st.integers(0, 3))}
        if wrapped:
            key = {"schema": {"type": "struct"}, "payload": draw(st.sampled_from([key, key, key, None, 5]))}
        in_ascii = draw(st.booleans())
        coded_key = None if draw(st.integers(0, 7)) == 0 else _bytes(key, True)
        made.append((coded_key, _bytes({"schema": block, "payload": payload} if wrapped else payload, in_ascii)))
    return made


def _bytes(value: Any, in_ascii: bool) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=in_ascii).encode()


def read(schema: TableSchema, sent: list[Sent]) -> tuple[list[Any], Decoded]:
    batch = messages_of(sent)
    spoken = classify(batch, OPTIONS)
    return spoken.to_pylist(), decode(rows_of(batch, spoken, TABLE), "split", TABLE, schema, OPTIONS)


def comparable(decoded_rows: Decoded) -> tuple[Any, ...]:
    """What was read, in values that compare: not-a-number is a text."""
    rows = decoded_rows.changes.to_pylist()
    return (
        [{name: repr(row[name]) for name in sorted(row)} for row in rows],
        decoded_rows.rejects,
        dict(decoded_rows.notes),
    )


def check_both_ways(schema: TableSchema, sent: list[Sent]) -> None:
    """Read messages side by side and one by one, and compare all of it."""
    with patch.object(json_records, "FEW", 1 << 40):
        spoken, alone = read(schema, sent)
    with patch.object(json_records, "FEW", 1):
        assert read(schema, sent)[0] == spoken
        assert comparable(read(schema, sent)[1]) == comparable(alone)


_DAMAGE = st.sampled_from([b"", b'"', b"{", b"}", b",", b"\\", b"1", b"-", b"\xff", b"null"])


@settings(max_examples=60, deadline=None)
@given(
    feeds(),
    st.integers(0, 1 << 30),
    _DAMAGE,
)
def test_damage_is_found_side_by_side_as_one_by_one(feed: tuple[TableSchema, list[Sent]], at: int, put: bytes) -> None:
    schema, sent = feed
    chosen = at % len(sent)
    key, value = sent[chosen]
    value = value or b"{}"
    cut = at % len(value)
    sent = [*sent[:chosen], (key, value[:cut] + put + value[cut + 1 :]), *sent[chosen + 1 :]]
    check_both_ways(schema, sent)


def row(number: int, **more: Any) -> tuple[bytes | None, bytes]:
    source = {"connector": "postgresql", "name": "px", "ts_ms": 1, "db": "d", "schema": "shop", "table": "t"}
    place = {"snapshot": "false", "lsn": number, "sequence": f'["{number}","{number}"]'}
    after = {"id": number, "text": 'a "long" way\n', **more}
    fields = [{"type": "int64", "field": "id"}, {"type": "string", "optional": True, "field": "text"}]
    block = {"fields": [{"type": "struct", "fields": fields, "field": "after"}]}
    payload = {"before": None, "after": after, "source": {**source, **place}, "op": "u"}
    return _bytes({"id": number}, True), _bytes({"schema": block, "payload": payload}, True)


def test_no_message_of_a_plain_table_is_read_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(values: pa.BinaryArray, *_: Any) -> Any:
        assert not len(values)
        return iter(())

    monkeypatch.setattr(json_records, "parsed_records", alone)
    schema = TableSchema((Column("id", "int64"), Column("text", "string")), ("id",))
    spoken, decoded_rows = read(schema, [row(number) for number in range(300)])
    assert {message["source_position"][:20] for message in spoken} == {f"{2:020d}"}
    assert decoded_rows.changes.column("id").to_pylist() == list(range(300))
    assert set(decoded_rows.changes.column("text").to_pylist()) == {'a "long" way\n'}


@pytest.mark.parametrize("name", ["schema", "table"])
def test_a_row_of_a_table_without_name_is_bad_among_others(name: str) -> None:
    sent: list[Sent] = [row(number) for number in range(3)]
    key, value = row(1)
    held = json.loads(value)
    held["payload"]["source"][name] = ""
    sent[1] = key, _bytes(held, True)
    schema = TableSchema((Column("id", "int64"), Column("text", "string")), ("id",))
    check_both_ways(schema, sent)
    assert [message["kind"] for message in read(schema, sent)[0]] == ["row", "bad", "row"]


def test_a_file_without_rows_of_a_table_has_its_columns() -> None:
    schema = TableSchema((Column("id", "int64"), Column("text", "string")), ("id",))
    without_rows: list[list[Sent]] = [[], [(None, b"{")], [(row(1)[0], None)]]
    for sent in without_rows:
        check_both_ways(schema, sent)
        changes = read(schema, sent)[1].changes
        assert changes.num_rows == 0
        assert {"id", "text"} <= {*changes.schema.names}


def test_small_numbers_of_a_wide_decimal_are_read_side_by_side() -> None:
    fields = [{"type": "int64", "field": "id"}, {**FIELDS["amount"][0], "optional": True, "field": "amount"}]
    block = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": "after"}]}
    sent = list[Sent]()
    for number in range(300):
        key, value = row(number)
        payload = {**json.loads(value)["payload"], "after": {"id": number, "amount": coded(number, 2)}}
        sent.append((key, _bytes({"schema": block, "payload": payload}, True)))
    schema = TableSchema((Column("id", "BIGINT"), Column("amount", "DECIMAL", precision=50, scale=2)), ("id",))
    decoded_rows = read(schema, sent)[1]
    assert decoded_rows.rejects == ()
    assert decoded_rows.changes.column("amount").to_pylist()[:3] == ["0.00", "0.01", "0.02"]
