"""Rows of PostgreSQL's connector that lack something: columns of the row before, key columns, long values, digits."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.formats.values import MAYBE_UNCHANGED
from cdc_assets_tests.landing.test_connector_corners import ID, PLACEHOLDER, TABLE, MariaDb, Stream
from cdc_assets_tests.topic_feed import TopicFeed

_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def field(column: str, kind: str, *, optional: bool = True, **more: Any) -> Mapping[str, Any]:
    return {"type": kind, "optional": optional, "field": column, **more}


# --- the row before ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "zero", "other"),
    [
        ({"type": "int32"}, 0, 5),
        ({"type": "int32", "default": 7}, 7, 5),
        ({"type": "string"}, "", "b"),
        ({"type": "boolean"}, False, True),
        ({"type": "int32", "name": "io.debezium.time.Date"}, 0, 19000),
    ],
    ids=lambda _: None,
)
def test_an_update_with_the_columns_of_another_index_before_it_deletes_no_other_row(
    kind: Mapping[str, Any], zero: Any, other: Any
) -> None:
    """By REPLICA IDENTITY USING INDEX the row before has its other columns as NULL, their default, or zero."""
    key = {**kind, "optional": False, "field": "k"}
    stream = Stream(key, field("id", "int32"), field("code", "string", optional=False), field("v", "string"))
    for number, (lsn, value) in enumerate([(1, zero), (2, other)]):
        stream.send("c", lsn, key={"k": value}, key_fields=[key], k=value, id=number, code=f"c{number}", v="kept")
    before = {"k": zero, "id": None, "code": "c1", "v": None}
    stream.send("u", 3, key={"k": other}, key_fields=[key], before=before, k=other, id=1, code="new", v="kept")
    assert stream.applied() == []
    rows = stream.feed.lake.read(TABLE).to_pylist()
    assert sorted((row["id"], row["code"], row["v"]) for row in rows) == [(0, "c0", "kept"), (1, "new", "kept")]


def test_an_update_with_the_whole_row_before_it_is_one_of_its_row() -> None:
    stream = Stream(ID, field("v", "string"))
    stream.send("c", 1, id=0, v="a")
    stream.send("c", 2, id=1, v="b")
    stream.send("u", 3, before={"id": 0, "v": "a"}, id=0, v="c")
    assert stream.applied() == []
    assert stream.rows == {0: {"v": "c"}, 1: {"v": "b"}}


# --- the key ----------------------------------------------------------------------------------------------------------

PLAN, SITE = field("plan", "int32", optional=False), field("site", "int32", optional=False)


def plans(stream: Stream) -> list[tuple[int, int, Any]]:
    return sorted((row["plan"], row["site"], row["v"]) for row in stream.feed.lake.read(TABLE).to_pylist())


@pytest.mark.parametrize("full", [True, False], ids=["with the row before", "without"])
def test_a_key_column_that_rows_lack_comes_from_the_key_of_their_message(full: bool) -> None:
    """As with column.exclude.list, or a transformation of values alone."""
    stream = Stream(PLAN, field("v", "string"))

    def send(op: str, lsn: int, plan: int, site: int, v: str | None, before: str | None = None) -> None:
        old = {"plan": plan, "v": before} if full and before else None
        stream.send(op, lsn, key={"plan": plan, "site": site}, key_fields=[PLAN, SITE], before=old, plan=plan, v=v)

    for lsn, (plan, site) in enumerate([(1, 1), (1, 2), (2, 1)], 1):
        send("c", lsn, plan, site, f"{plan} {site}")
    assert stream.applied() == []
    send("u", 10, 1, 1, "changed", before="1 1")
    send("d", 11, 1, 2, "1 2" if full else None)
    send("c", 12, 3, 1, "3 1")
    assert stream.applied() == []
    assert plans(stream) == [(1, 1, "changed"), (2, 1, "2 1"), (3, 1, "3 1")]


@pytest.mark.parametrize("is_stated", [True, False])
def test_without_schema_blocks_the_type_of_such_a_column_comes_from_the_setting_schemas(
    is_stated: bool, tmp_path: Path
) -> None:
    stream, texts = Stream(), tmp_path / "schemas.sql"
    texts.write_text(f"CREATE TABLE public.t (plan int, {'site bigint, ' * is_stated}v text);")
    uri = "kafka://127.0.0.1:9092/px?protocol=debezium-json"
    stream.feed = TopicFeed.of(stream.log, sink_uri=uri, name="c", schemas=texts)
    for lsn, (op, site, v) in enumerate([("c", 1, "a"), ("c", 2, "b"), ("u", 2, "c")], 1):
        place = {"lsn": lsn, "sequence": f'["{lsn}","{lsn}"]', "snapshot": "false", "ts_ms": lsn}
        source = {"connector": "postgresql", "name": "px", "db": "d", "schema": "public", "table": "t", **place}
        value = {"before": None, "after": {"plan": 1, "v": v}, "source": source, "op": op}
        stream.put({"plan": 1, "site": site}, value)
    outcome = stream.feed.apply()
    if is_stated:
        assert plans(stream) == [(1, 1, "a"), (1, 2, "c")]
    else:
        assert any(
            "site" in reason for reason in (*outcome.problems.values(), *(table.reason for table in outcome.tables))
        )


def test_a_key_column_that_rows_of_mariadb_lack_comes_from_the_key_of_their_message() -> None:
    source = MariaDb()
    source.ddl("CREATE TABLE t (plan INT, site INT, v VARCHAR(9), PRIMARY KEY (plan, site))")

    def send(op: str, site: int, before: str | None, after: str | None) -> None:
        sides = [None if v is None else {"plan": 1, "v": v} for v in (before, after)]
        payload = {"before": sides[0], "after": sides[1], "source": source.source(), "op": op, "ts_ms": 1}
        source.put({"plan": 1, "site": site}, payload, "mx.public.t")

    send("c", 1, None, "a")
    send("c", 2, None, "b")
    send("u", 2, "b", "c")
    assert source.applied() == []
    assert plans(source) == [(1, 1, "a"), (1, 2, "c")]
    send("d", 1, "a", None)
    assert source.applied() == []
    assert plans(source) == [(1, 2, "c")]


# --- long values ------------------------------------------------------------------------------------------------------


def _items(kind: str, **more: Any) -> Mapping[str, Any]:
    return {"items": {"type": kind, "optional": True, **more}}


VALUES: Mapping[str, tuple[Mapping[str, Any], Any, bool]] = {
    "numeric(9,2)[]": (
        field("v", "array", **_items("bytes", name=_DECIMAL, parameters={"scale": "2"})),
        ["fQ=="],
        True,
    ),
    "numeric[]": (
        field("v", "array", **_items("struct", name="io.debezium.data.VariableScaleDecimal")),
        [{"scale": 2, "value": "fQ=="}],
        True,
    ),
    "enum[]": (field("v", "array", **_items("string", name="io.debezium.data.Enum")), ["sad"], True),
    "boolean[]": (field("v", "array", **_items("boolean")), [True], True),
    "timestamp[]": (field("v", "array", **_items("int64", name="io.debezium.time.MicroTimestamp")), [1], True),
    "smallint[]": (field("v", "array", **_items("int16")), [1], True),
    "integer[]": (field("v", "array", **_items("int32")), [1], False),
    "date[]": (field("v", "array", **_items("int32", name="io.debezium.time.Date")), [1], False),
    "uuid[]": (
        field("v", "array", **_items("string", name="io.debezium.data.Uuid")),
        ["b68a35a7-17ad-35b3-af2a-000000000000"],
        False,
    ),
    "inet[] or text[]": (field("v", "array", **_items("string")), ["a"], True),
    "text[]": (
        field("v", "array", **_items("string"), parameters={"__debezium.source.column.type": "_TEXT"}),
        ["a"],
        False,
    ),
    "numeric": (
        field("v", "struct", name="io.debezium.data.VariableScaleDecimal"),
        {"scale": 0, "value": "Bw=="},
        True,
    ),
    "text": (field("v", "string"), "a", False),
    "integer": (field("v", "int32"), 1, False),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("mode", ["", "warn", "fail"])
def test_a_null_that_may_stand_for_a_long_value_is_counted_where_its_type_has_no_stand_in(name: str, mode: str) -> None:
    """The types as a connector 3.5 on PostgreSQL 16 sends them: NULL in place of a value that did not change."""
    column, value, is_counted = VALUES[name]
    stream = Stream(ID, column, field("n", "int32"))
    uri = "kafka://127.0.0.1:9092/px?protocol=debezium-json"
    uri += f"&event.converting.failure.handling.mode={mode}" if mode else ""
    stream.feed = TopicFeed.of(stream.log, sink_uri=uri, name="c")
    stream.send("c", 1, id=1, v=value, n=1)
    stream.send("c", 2, id=2, v=None, n=1)
    stream.send("u", 3, id=1, v=None, n=2)
    stream.send("u", 4, before={"id": 2, "v": value, "n": 1}, id=2, v=None, n=2)  # REPLICA IDENTITY FULL
    assert stream.applied() == []
    assert [row["n"] for row in stream.rows.values()] == [2, 2]
    (life,) = stream.feed.lake.applied()
    (notes,) = [fidelity.notes for fidelity in stream.feed.ledger.fidelity("c", life) if fidelity.column == "v"]
    assert notes == ({MAYBE_UNCHANGED: 1} if is_counted and mode != "fail" else {})


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("other", [PLACEHOLDER, "short"], ids=["with a stand-in", "alone"])
def test_a_null_that_comes_with_a_new_key_is_counted_like_one_of_an_update(name: str, other: str) -> None:
    """The connector sends a change of the key as a delete and an insert of the same record of the log."""
    column, value, is_counted = VALUES[name]
    stream = Stream(ID, column, field("t", "string"))
    stream.send("c", 1, id=1, v=value, t="short")
    stream.send("c", 2, id=2, v=None, t="short")
    stream.send("d", 3, id=1, v=None, t=None)
    stream.send("c", 3, id=7, v=None, t=other)
    stream.send("d", 4, id=2, v=value, t="short")  # REPLICA IDENTITY FULL
    stream.send("c", 4, id=8, v=None, t="short")
    stream.send("d", 5, id=8, v=None, t=None)
    stream.send("c", 6, id=9, v=None, t="short")
    assert stream.applied() == []
    assert {key: row["t"] for key, row in stream.rows.items()} == {7: "short", 9: "short"}
    (life,) = stream.feed.lake.applied()
    (notes,) = [fidelity.notes for fidelity in stream.feed.ledger.fidelity("c", life) if fidelity.column == "v"]
    assert notes == ({MAYBE_UNCHANGED: 1} if is_counted else {})


# --- digits -----------------------------------------------------------------------------------------------------------


def _encoded(number: int) -> str:
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


_LONG = int("7" * 997)
_ANY_SCALE: Mapping[str, Any] = {"name": "io.debezium.data.VariableScaleDecimal"}


def _scaled(scale: int, digits: int) -> Mapping[str, Any]:
    return {"name": _DECIMAL, "parameters": {"scale": str(scale), "connect.decimal.precision": str(digits)}}


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        (field("v", "struct", **_ANY_SCALE), {"scale": 3, "value": _encoded(_LONG)}, f"{'7' * 994}.777"),
        (field("v", "struct", **_ANY_SCALE), {"scale": 0, "value": _encoded(10**4000 + 1)}, f"1{'0' * 3999}1"),
        (field("v", "struct", **_ANY_SCALE), {"scale": 900, "value": _encoded(-1)}, f"-0.{'0' * 899}1"),
        (field("v", "bytes", **_scaled(3, 1000)), _encoded(_LONG), f"{'7' * 994}.777"),
        (field("v", "bytes", **_scaled(0, 1000)), _encoded(10**999 + 1), f"1{'0' * 998}1"),
        (field("v", "bytes", **_scaled(-5, 1000)), _encoded(_LONG), f"{'7' * 997}00000"),
        (field("v", "bytes", **_scaled(1000, 1000)), _encoded(3), f"0.{'0' * 999}3"),
        (
            field("v", "array", **_items("struct", **_ANY_SCALE)),
            [{"scale": 3, "value": _encoded(_LONG)}],
            f'["{"7" * 994}.777"]',
        ),
        (
            field("v", "array", **_items("bytes", **_scaled(3, 1000))),
            [_encoded(_LONG)],
            f'["{"7" * 994}.777"]',
        ),
    ],
    ids=lambda _: None,
)
def test_all_digits_of_a_numeric_are_kept(column: Mapping[str, Any], value: Any, expected: str) -> None:
    stream = Stream(ID, column)
    stream.send("c", 1, id=1, v=value)
    assert stream.applied() == []
    assert stream.rows == {1: {"v": expected}}
