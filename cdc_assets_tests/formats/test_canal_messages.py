"""Canal-JSON as messages: marks, DDL, rows by their two ends, large messages, and what has no extension."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.canal_json.messages import classify, decode, schemas
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets_tests.topics import Topic, messages_of, rows_of, topics

OPTIONS = MessageOptions(protocol="canal-json", enable_tidb_extension=True)
T = TableId("test", "t")
SCHEMA = TableSchema((Column("id", "INT", nullable=False, is_pk=True), Column("v", "VARCHAR")), ("id",))


def message(data: dict[str, Any], table: str = "t", kind: str = "INSERT", **extension: Any) -> bytes:
    whole: dict[str, Any] = {"id": 0, "database": "test", "table": table, "pkNames": ["id"], "isDdl": False}
    whole |= {"type": kind, "es": 1774915083040, "ts": 5, "sql": "", "sqlType": {"id": 4, "v": 12}}
    whole |= {"mysqlType": {"id": "int", "v": "varchar"}, "old": None, "data": [data]}
    whole |= {"_tidb": extension} if extension else {}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def said(*values: bytes | None, options: MessageOptions = OPTIONS) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = classify(messages_of([(None, value) for value in values]), options).to_pylist()
    return messages


def test_a_row_speaks_of_its_table_whatever_its_name_is() -> None:
    names = ["t", 'a"b', "back\\slash", "表格", "]", ',"_tidb":{"commitTs":1}}']
    messages = said(*(message({"id": "1", "v": names[5]}, name, commitTs=7) for name in names))
    assert [
        (spoken_message["kind"], spoken_message["table"], spoken_message["commit_ts"]) for spoken_message in messages
    ] == [("row", name, 7) for name in names]


def test_a_row_of_no_database_is_bad() -> None:
    (spoken_message,) = said(message({"id": "1"}, commitTs=7).replace(b'"database":"test"', b'"database":""'))
    assert (spoken_message["kind"], "names no table" in spoken_message["reason"]) == ("bad", True)


def test_a_text_at_the_end_is_no_extension() -> None:
    text = '"}],"_tidb":{"commitTs":1}}'
    [spoken_message] = said(message({"id": "1", "v": text}, commitTs=9))
    assert spoken_message["commit_ts"] == 9
    [spoken_message] = said(message({"id": "1", "v": text}))
    assert (spoken_message["kind"], spoken_message["table"]) == ("bad", "t")
    assert "commitTs" in spoken_message["reason"]


def test_claims_and_rows_of_their_key_only() -> None:
    whole = {"id": "1", "v": "x"}
    claim, key_only, neither = said(
        message(whole, commitTs=7, onlyHandleKey=False, claimCheckLocation="s3://claims/0a.json"),
        message(whole, commitTs=7, onlyHandleKey=True),
        message(whole, commitTs=7, onlyHandleKey=False),
    )
    assert (claim["kind"], claim["claim"]) == ("row", "s3://claims/0a.json")
    assert (key_only["kind"], key_only["table"], key_only["ordinals"]) == ("bad", "t", [0])
    assert "claim-check" in key_only["reason"]
    assert (neither["kind"], neither["claim"]) == ("row", None)


TAILS = [
    {"onlyHandleKey": False, "claimCheckLocation": ""},
    {"onlyHandleKey": True},
    {"onlyHandleKey": False, "claimCheckLocation": "s3://claims/0a.json"},
    {},
]


@pytest.mark.parametrize("tail", TAILS, ids=str)
def test_a_row_that_is_damaged_between_its_ends_speaks_of_its_table(tail: dict[str, Any]) -> None:
    torn = message({"id": "1", "v": "x"}, commitTs=7, **tail).replace(b'"x"', b'"x')
    (spoken_message,) = said(torn)
    assert (
        spoken_message["schema"],
        spoken_message["table"],
        spoken_message["commit_ts"],
        spoken_message["claim"],
    ) == (
        "test",
        "t",
        7,
        tail.get("claimCheckLocation") or None,
    )
    assert spoken_message["kind"] == ("bad" if tail == TAILS[1] else "row")
    batch = messages_of([(None, torn)])
    decoded_rows = decode(rows_of(batch, classify(batch, OPTIONS), T), "landed", T, SCHEMA, OPTIONS)
    assert (len(decoded_rows.changes), len(decoded_rows.rejects)) == (0, spoken_message["kind"] == "row")


def test_a_damaged_row_without_the_extension_speaks_of_its_table() -> None:
    (spoken_message,) = said(
        message({"id": "1", "v": "x"}).replace(b'"x"', b'"x'), options=MessageOptions(protocol="canal-json")
    )
    assert (spoken_message["kind"], spoken_message["table"], spoken_message["commit_ts"]) == (
        "row",
        "t",
        1774915083040 << 18,
    )


@pytest.mark.parametrize("number", ["0", "99999999999999"])
def test_a_row_without_a_time_is_bad(number: str) -> None:
    raw = message({"id": "1", "v": "x"}).replace(b"1774915083040", number.encode())
    (spoken_message,) = said(raw, options=MessageOptions(protocol="canal-json"))
    assert (spoken_message["kind"], spoken_message["table"]) == ("bad", None)


def test_the_key_of_a_large_row_is_enough_for_its_delete_alone() -> None:
    options = replace(OPTIONS, large_message_handle_option="handle-key-only")
    text = '"onlyHandleKey":true'
    rows = [
        message({"id": "1"}, kind="DELETE", commitTs=7, onlyHandleKey=True),
        message({"id": "2", "v": text}, commitTs=8, onlyHandleKey=False),
        message({"id": "3"}, commitTs=9, onlyHandleKey=True),
    ]
    batch = messages_of([(None, row) for row in rows])
    spoken = classify(batch, options)
    assert spoken.column("kind").to_pylist() == ["row", "row", "bad"]
    decoded_rows = decode(rows_of(batch, spoken, T), "landed", T, SCHEMA, options)
    assert decoded_rows.rejects == ()
    assert decoded_rows.changes.column("v").to_pylist() == [None, text]


@pytest.mark.parametrize("compression", ["snappy", "lz4"])
def test_all_values_may_be_compressed(compression: str) -> None:
    options = MessageOptions(
        protocol="canal-json", enable_tidb_extension=True, large_message_handle_compression=compression
    )
    packed = pa.Codec(compression).compress(message({"id": "1", "v": "x" * 300}, commitTs=7), asbytes=True)
    batch = messages_of([(None, packed)])
    decoded_rows = decode(rows_of(batch, classify(batch, options), T), "landed", T, SCHEMA, options)
    assert decoded_rows.changes.column("v").to_pylist() == ["x" * 300]


def test_a_message_over_several_lines_is_one_row_and_keeps_its_bytes() -> None:
    pretty = json.dumps(json.loads(message({"id": "2", "v": "b"}, commitTs=8)), indent=1).encode()
    torn = message({"id": "3", "v": "c"}, commitTs=9).replace(b'"c"', b'"\n"')
    batch = messages_of([(None, message({"id": "1", "v": "a"}, commitTs=7)), (None, pretty), (None, torn)])
    spoken = classify(batch, OPTIONS)
    decoded_rows = decode(rows_of(batch, spoken, T), "landed", T, SCHEMA, OPTIONS)
    assert decoded_rows.changes.column("v").to_pylist() == ["a", "b"]
    assert [(reject.line, reject.raw) for reject in decoded_rows.rejects] == [(3, torn)]


SAME_COLUMNS = [topic for topic in topics("canal-json-noext") if topic.case.name in ("A_all_types", "D_keys")]


@pytest.mark.parametrize("topic", SAME_COLUMNS, ids=str)
def test_without_the_extension_rows_are_the_same_without_commit_ts(topic: Topic) -> None:
    [other] = [candidate for candidate in topics("canal-json") if candidate.case == topic.case]
    tables = {
        TableId(spoken_message["schema"], spoken_message["table"])
        for spoken_message in topic.spoken.to_pylist()
        if spoken_message["kind"] == "row"
    }
    assert {spoken_message["kind"] for spoken_message in topic.spoken.to_pylist()} == {"row", "ddl"}
    for table in tables:
        schema, change_lists = topic.schema_of(table), []
        for side in (topic, other):
            rows = rows_of(side.messages, side.spoken, table)
            changes = side.format.decode(rows, "landed", table, schema, side.options).changes
            change_lists.append(sorted(map(repr, changes.drop([COMMIT_TS]).to_pylist())))
        assert change_lists[0] == change_lists[1]


def test_rows_give_types_and_primary_key_of_their_table() -> None:
    raw = message({"id": "1", "v": "1.50"}, commitTs=7).replace(b'"v":"varchar"', b"\"v\":\"set('a','b')\"")
    [event] = schemas(messages_of([(None, raw)]), OPTIONS)
    assert (event.table, event.version, event.schema.key) == (T, 7, ("id",))
    assert event.schema.columns == (
        Column("id", "INT", nullable=False, is_pk=True),
        Column("v", "SET", elems=("a", "b")),
    )
    assert event.approximate


def test_deletes_of_their_key_only_show_no_columns() -> None:
    sent = messages_of(
        [(None, message({"id": "1"}, kind="DELETE", commitTs=6)), (None, message({"id": "1", "v": "a"}, commitTs=7))]
    )
    of_keys = replace(OPTIONS, delete_only_output_handle_key_columns=True)
    assert [[c.name for c in schema_event.schema.columns] for schema_event in schemas(sent, of_keys)] == [["id", "v"]]
    assert [schema_event.version for schema_event in schemas(sent, OPTIONS)] == [6, 7]


@pytest.mark.parametrize("spaced", [": null", ":\tnull", " : null", " :null"])
def test_a_null_behind_white_space_is_one_in_every_message(spaced: str) -> None:
    first, second = (message({"id": str(key), "v": None}, commitTs=7, rowkey="") for key in (1, 2))
    second = second.replace(b'"v":null', b'"v"' + spaced.encode())
    batch = messages_of([(None, first), (None, second)])
    decoded_rows = decode(rows_of(batch, classify(batch, OPTIONS), T), "landed", T, SCHEMA, OPTIONS)
    assert decoded_rows.rejects == ()
    assert decoded_rows.changes.column("id").to_pylist() == [1, 2]
