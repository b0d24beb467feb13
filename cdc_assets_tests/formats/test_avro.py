"""Avro messages that no recording has: images before, other framings, damage, types as the registry states them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.formats import MessageOptions, avro_records
from cdc_assets.formats.avro import classify, decode, sanitized, schema_ids, schemas
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, Op
from cdc_assets.formats.messages import Kind
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets_tests.topics import messages_of, rows_of

TABLE = TableId("my db", "1.t")
SCHEMA = TableSchema(
    (
        Column("id", "BIGINT", True, nullable=False, is_pk=True),
        Column("d-1", "DECIMAL", False, 38, 2),
        Column("e", "SET", elems=("a", "b,c")),
    ),
    ("id",),
)


def typed(kind: str, tidb: str, **more: Any) -> dict[str, Any]:
    parameters = {"tidb_type": tidb} | {name: more.pop(name) for name in ("length", "allowed") if name in more}
    return {"type": kind, "connect.parameters": parameters, **more}


ID: dict[str, Any] = {"name": "id", "type": typed("long", "BIGINT UNSIGNED")}
FIELDS: list[dict[str, Any]] = [
    ID,
    {"name": "d_1", "type": ["null", typed("bytes", "DECIMAL", logicalType="decimal", precision=38, scale=2)]},
    {"name": "e", "type": [typed("string", "SET", allowed="a,b\\,c"), "null"], "default": "a"},
]
EXTENSION: list[dict[str, Any]] = [{"name": "_tidb_op", "type": "string"}, {"name": "_tidb_commit_ts", "type": "long"}]


def record(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": "_1_t", "namespace": "default.my_db", "fields": fields}


BEFORE: dict[str, Any] = {
    "name": "_ticdc_before",
    "type": ["null", {**record(FIELDS), "name": "_1_t_before"}],
    "default": None,
}
BY_ID = {
    "1": record([ID]),
    "2": record([*FIELDS, *EXTENSION]),
    "3": record([*FIELDS, BEFORE, *EXTENSION]),
    "00000000-0000-0000-0000-0000000000ff": record([*FIELDS, *EXTENSION]),
    "5": record(FIELDS),
    "6": record([*FIELDS, *EXTENSION, {"name": "_tidb_corrupted", "type": "boolean"}]),
}
OPTIONS = MessageOptions(protocol="avro", registry={name: json.dumps(document) for name, document in BY_ID.items()})


def encoded(schema_id: str, row: dict[str, Any], head: bytes | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(BY_ID[schema_id], named_schemas={}), row)
    return (b"\0" + int(schema_id).to_bytes(4, "big") if head is None else head) + out.getvalue()


def row(number: int, e: str | None = "a", **more: Any) -> dict[str, Any]:
    return {"id": number, "d_1": None, "e": e, "_tidb_op": "c", "_tidb_commit_ts": 7, **more}


KEY = encoded("1", {"id": -1})


def decoded(*messages: tuple[bytes | None, bytes | None]) -> Any:
    batch = messages_of(messages)
    return decode(rows_of(batch, classify(batch, OPTIONS)), "p", TABLE, SCHEMA, OPTIONS)


def test_a_row_is_an_insert_and_a_tombstone_a_delete_by_its_key() -> None:
    changes = decoded((KEY, encoded("2", row(-1, "b,c"))), (KEY, None)).changes
    assert changes.column(OP).to_pylist() == [Op.INSERT, Op.DELETE_KEY]
    assert changes.column(COMMIT_TS).to_pylist() == [7, None]
    assert [str(value) for value in changes.column("id").to_pylist()] == [str(2**64 - 1)] * 2
    assert changes.column("e").to_pylist() == ["b,c", None]


def test_images_before_make_updates_and_deletes_whole() -> None:
    old = {"id": 1, "d_1": None, "e": "a"}
    update = encoded("3", {**row(2, None), "_ticdc_before": old, "_tidb_op": "u"})
    delete = encoded("3", {**row(2, None), "_ticdc_before": None, "_tidb_op": "d"})
    changes = decoded((KEY, update), (KEY, delete)).changes
    assert changes.column(OP).to_pylist() == [Op.DELETE, Op.INSERT, Op.DELETE]
    assert changes.column("e").to_pylist() == ["a", None, None]


def test_a_row_whose_checksum_does_not_fit_is_rejected_as_ticdc_says_so() -> None:
    decoded_rows = decoded(*((KEY, encoded("6", row(at, _tidb_corrupted=at == 1))) for at in range(2)))
    (reject,) = decoded_rows.rejects
    assert ([int(value) for value in decoded_rows.changes.column("id").to_pylist()], reject.line) == ([0], 2)
    assert "corruption-handle-level" in reject.reason


def test_a_delete_marker_has_its_commit_ts() -> None:
    changes = decoded((KEY, b"\3" + (9).to_bytes(8, "big"))).changes
    assert (changes.column(OP).to_pylist(), changes.column(COMMIT_TS).to_pylist()) == ([Op.DELETE_KEY], [9])


def test_without_the_extension_rows_have_no_commit_ts() -> None:
    changes = decoded((KEY, encoded("5", {"id": 1, "d_1": None, "e": None}))).changes
    assert (changes.column(OP).to_pylist(), changes.column(COMMIT_TS).to_pylist()) == ([Op.INSERT], [None])


def test_glue_frames_with_a_uuid() -> None:
    head = b"\3\0" + bytes(15) + b"\xff"
    changes = decoded((KEY, encoded("00000000-0000-0000-0000-0000000000ff", row(1), head))).changes
    assert changes.num_rows == 1


def test_many_rows_that_glue_frames_are_read_as_any_others() -> None:
    head, name = b"\3\0" + bytes(15) + b"\xff", "00000000-0000-0000-0000-0000000000ff"
    batch = messages_of([(KEY, encoded(name, row(number), head)) for number in range(40)])
    spoken = classify(batch, OPTIONS)
    assert spoken.column("shape").unique().to_pylist() == [f"1/{name}"]
    changes = decode(rows_of(batch, spoken), "p", TABLE, SCHEMA, OPTIONS).changes
    assert [str(value) for value in changes.column("id").to_pylist()] == [str(number) for number in range(40)]


def test_markers_name_no_schema_and_a_record_without_key_does() -> None:
    markers = [(None, b"\1" + bytes(16)), (None, b"\2" + bytes(8)), (KEY, b"\3" + bytes(8)), (KEY, None), (None, None)]
    assert schema_ids(messages_of(markers), OPTIONS) == {"1": 2}
    assert schema_ids(messages_of([(None, b"\0\0\0\0\2x")]), OPTIONS) == {"2": 0}


def test_a_row_without_key_is_bad_and_names_its_table() -> None:
    row_, delete = classify(messages_of([(None, encoded("2", row(1))), (None, None)]), OPTIONS).to_pylist()
    assert [(message["kind"], message["table"]) for message in (row_, delete)] == [
        (Kind.BAD.value, "_1_t"),
        (Kind.BAD.value, None),
    ]
    assert "without primary key" in row_["reason"]


def test_markers_are_ddl_and_marks() -> None:
    ddl = b'\1{"query":"DROP TABLE t","type":4,"schema":"s","table":"t","commitTs":5}'
    mark = bytes.fromhex("02067504bb6dd400ac")
    spoken = classify(messages_of([(None, ddl), (None, mark)]), OPTIONS).to_pylist()
    assert [(message["kind"], message["commit_ts"], message["query"]) for message in spoken] == [
        ("ddl", 5, "DROP TABLE t"),
        ("resolved", 465283339550720172, None),
    ]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ((None, None), "no key"),
        ((None, b"\1{"), "it is not JSON"),
        ((None, b"\1{}"), "schema"),
        ((KEY, b""), "not the framing"),
        ((KEY, b"\0\0\0\0\x09\2"), "no schema 9"),
        ((KEY, encoded("2", row(1))[:-1]), "not a record of schema 2"),
        ((KEY, encoded("2", row(1)) + b"x"), "1 bytes more"),
        ((KEY, encoded("2", row(1, _tidb_commit_ts=-5))), "not a TSO"),
        ((b"\0\0\0\0\x09\2", None), "no schema 9"),
    ],
)
def test_what_is_no_message_is_bad_with_the_reason(message: tuple[bytes | None, bytes | None], says: str) -> None:
    (line,) = classify(messages_of([message]), OPTIONS).to_pylist()
    assert line["kind"] == Kind.BAD.value
    assert says in line["reason"]
    assert (line["table"] == "_1_t") == (message[0] == KEY)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    for message in ((KEY, b"\0\0\0\0\2" + data), (data, None), (KEY, data), (None, data), (b"\0\0\0\0\1" + data, None)):
        batch = messages_of([message])
        spoken = classify(batch, OPTIONS)
        assert spoken.num_rows == 1
        decoded_rows = decode(rows_of(batch, spoken), "p", TABLE, SCHEMA, OPTIONS)
        assert decoded_rows.changes.num_rows + len(decoded_rows.rejects) >= rows_of(batch, spoken).num_rows
        schemas(batch, OPTIONS)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (encoded("2", row(1, _tidb_op="x")), '_tidb_op is "x"'),
        (encoded("2", row(1)), 'column "e"'),
    ],
)
def test_a_row_that_does_not_fit_is_rejected_with_its_bytes(value: bytes, says: str) -> None:
    batch = messages_of([(KEY, value)])
    less = TableSchema(SCHEMA.columns[:2], ("id",))
    decoded_rows = decode(rows_of(batch, classify(batch, OPTIONS)), "p", TABLE, less, OPTIONS)
    assert says in decoded_rows.rejects[0].reason
    assert decoded_rows.rejects[0].raw == value


def test_a_column_that_selectors_leave_out_is_told_from_an_unknown_one() -> None:
    batch = messages_of([(KEY, encoded("2", row(1)))])
    hidden = replace(SCHEMA, columns=(SCHEMA.columns[0], *(replace(c, selected=False) for c in SCHEMA.columns[1:])))
    (reject,) = decode(rows_of(batch, classify(batch, OPTIONS)), "p", TABLE, hidden, OPTIONS).rejects
    assert 'column "d-1" has a value, although column-selectors' in reject.reason


def test_a_row_of_another_table_is_rejected() -> None:
    batch = messages_of([(KEY, encoded("2", row(1)))])
    decoded_rows = decode(rows_of(batch, classify(batch, OPTIONS)), "p", TableId("my db", "u"), SCHEMA, OPTIONS)
    assert "it is a row of my_db._1_t, not of my db.u" in decoded_rows.rejects[0].reason


def test_registered_schemas_give_columns_and_key_and_what_is_doubtful() -> None:
    (event,) = schemas(messages_of([(KEY, encoded("2", row(1))), (KEY, None)]), OPTIONS)
    assert (event.table, event.version, event.schema.key) == (TableId("my_db", "_1_t"), 7, ("id",))
    assert event.schema.columns == (
        Column("id", "BIGINT", True, nullable=False),
        Column("d_1", "DECIMAL", False, 38, 2),
        Column("e", "SET", elems=("a", "b,c")),
    )
    assert any("collations" in sentence for sentence in event.approximate)


@pytest.mark.parametrize(("name", "expected"), [("a-b", "a_b"), ("123", "_123"), ("表格", "__"), ("my db", "my_db")])
def test_names_are_sanitized_as_ticdc_does(name: str, expected: str) -> None:
    assert sanitized(name) == expected


# --- side by side -----------------------------------------------------------------------------------------------------

_WIDE = record(
    [
        ID,
        {"name": "d_1", "type": ["null", typed("bytes", "DECIMAL", logicalType="decimal", precision=38, scale=2)]},
        {"name": "e", "type": [typed("string", "SET", allowed="a,b\\,c"), "null"], "default": "a"},
        {"name": "f", "type": ["null", typed("double", "DOUBLE")]},
        {"name": "b", "type": ["null", typed("bytes", "BLOB")]},
        {"name": "n", "type": typed("int", "INT")},
        {"name": "t", "type": ["null", typed("bytes", "BIT", length="12")]},
        *EXTENSION,
    ]
)
_MANY = MessageOptions(protocol="avro", registry={"1": json.dumps(BY_ID["1"]), "6": json.dumps(_WIDE)})
_COLUMNS = TableSchema(
    (
        *SCHEMA.columns,
        Column("f", "DOUBLE"),
        Column("b", "BLOB"),
        Column("n", "INT"),
        Column("t", "BIT", precision=12),
    ),
    ("id",),
)
_long = st.integers(-(2**63), 2**63 - 1)
_wide_rows = st.fixed_dictionaries(
    {
        "id": _long,
        "d_1": st.none() | st.decimals(-(10**30), 10**30, places=2),
        "e": st.none() | st.sampled_from(["a", "b,c", "", "ünbekannt"]),
        "f": st.none() | st.floats(allow_nan=False),
        "b": st.none() | st.binary(max_size=20),
        "n": st.integers(-(2**31), 2**31 - 1),
        "t": st.none() | st.integers(0, 4095).map(lambda number: number.to_bytes(2, "big")),
        "_tidb_op": st.sampled_from(["c", "u", "d"]),
        "_tidb_commit_ts": st.integers(0, 2**62),
    }
)
_damage = st.none() | st.tuples(st.floats(0, 1), st.integers(0, 255)) | st.just("deleted")


def _wide_message(row: dict[str, Any], damage: Any) -> tuple[bytes, bytes | None]:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(_WIDE, named_schemas={}), row)
    value = bytearray(b"\0\0\0\0\6" + out.getvalue())
    if damage == "deleted":
        return encoded("1", {"id": row["id"]}), None
    if damage is not None:
        value[min(len(value) - 1, int(damage[0] * len(value)))] = damage[1]
    return encoded("1", {"id": row["id"]}), bytes(value)


@given(st.lists(st.tuples(_wide_rows, _damage), min_size=1, max_size=8))
def test_records_read_side_by_side_are_those_read_one_by_one(rows: list[tuple[dict[str, Any], Any]]) -> None:
    batch = messages_of([_wide_message(*wide_row) for wide_row in rows])
    results = []
    for few in (1, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(avro_records, "_FEW", few)
            spoken = classify(batch, _MANY)
            table_rows = rows_of(batch, spoken, TableId("my_db", "_1_t"))
            made = decode(table_rows, "p", TableId("my_db", "_1_t"), _COLUMNS, _MANY)
            results.append((spoken.to_pylist(), made.changes.to_pylist(), made.rejects, dict(made.notes)))
    assert results[0] == results[1]


# --- schemas of any content -------------------------------------------------------------------------------------------

DEFAULTS: list[dict[str, Any]] = [
    {"name": "d", "type": ["null", typed("double", "DOUBLE")], "default": None},
    {"name": "n", "type": [typed("double", "DOUBLE"), "null"], "default": 25000000000},
    {"name": "s", "type": typed("double", "DOUBLE"), "default": "25000000000"},
    {"name": "b", "type": typed("bytes", "BLOB"), "default": 5},
]


@pytest.mark.parametrize("count", [1, 40])
def test_defaults_of_registered_schemas_are_not_checked(count: int) -> None:
    document = record([ID, *DEFAULTS])
    options = MessageOptions(protocol="avro", registry={"1": json.dumps(record([ID])), "2": json.dumps(document)})
    bare = record([ID, *({**field, "default": None} for field in DEFAULTS)])
    for field in bare["fields"]:
        field.pop("default", None)
    out = io.BytesIO()
    values = {"id": 1, "d": None, "n": 0.5, "s": 2.5, "b": b"x"}
    fastavro.schemaless_writer(out, fastavro.parse_schema(bare, named_schemas={}), values)
    batch = messages_of([(KEY, b"\0\0\0\0\2" + out.getvalue())] * count)
    spoken = classify(batch, options)
    assert spoken.column("kind").to_pylist() == ["row"] * count
    [event] = schemas(batch, options)
    decoded_rows = decode(rows_of(batch, spoken), "p", TABLE, event.schema, options)
    assert decoded_rows.rejects == ()
    read = {name: decoded_rows.changes.column(name).to_pylist() for name in values if name != "id"}
    assert read == {name: [value] * count for name, value in values.items() if name != "id"}


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=4)
    | st.sampled_from(["record", "string", "long", "array", "null", "_1_t", "decimal", "uuid", "enum", "fixed"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["type", "name", "fields", "logicalType", "items", "precision", "scale", "size",
                                       "symbols", "namespace", "default", "connect.parameters"]), inner, max_size=4),
    max_leaves=6,
)  # fmt: skip


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every node of a document."""
    parts = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [path, *(place for name, part in parts for place in places(part, (*path, name)))]


@given(st.data())
def test_a_schema_of_any_content_holds_its_own_messages_only(data: st.DataObject) -> None:
    text = json.dumps(BY_ID["3"])
    document = json.loads(text)
    *parents, last = data.draw(st.sampled_from([path for path in places(document) if path]))
    node = document
    for name in parents:
        node = node[name]
    node[last] = data.draw(JUNK)
    texts = st.sampled_from([json.dumps(document), text[: data.draw(st.integers(0, len(text)))], "[" * 5000, "", "3"])
    options = MessageOptions(protocol="avro", registry={**OPTIONS.registry, "3": data.draw(texts)})
    sound, other = encoded("2", row(1)), encoded("3", {**row(2), "_ticdc_before": None})
    batch = messages_of([(KEY, sound), (KEY, other), *[(KEY, other)] * data.draw(st.sampled_from([0, 20]))])
    spoken = classify(batch, options)
    lines = spoken.to_pylist()
    assert {line["message"] for line in lines} == set(range(len(batch)))
    assert lines[0]["kind"] == "row"
    for line in lines:
        assert line["kind"] != Kind.BAD.value or (line["schema"], line["table"]) == ("my_db", "_1_t")
    schemas(batch, options)
    own = spoken.filter(pc.equal(spoken.column("table"), "_1_t"))
    decoded_rows = decode(rows_of(batch, own), "p", TABLE, SCHEMA, options)
    assert 1 in decoded_rows.changes.column(LINE).to_pylist()


def test_a_record_that_was_cut_off_is_told_alike_whenever_it_is_read() -> None:
    schema = record([{"name": "v", "type": "double"}])
    read = avro_records._reader_of("1", {"1": json.dumps(schema)})
    with pytest.raises(ValueError, match=r"^it is not a record of schema 1: its bytes end too early$"):
        read(b"\0\0")


@pytest.mark.parametrize(
    ("connector", "reason"),
    [("sqlserver", "for SQL Server; read are those for MySQL"), ("postgresql", "value.converter = ")],
)
def test_schemas_of_a_debezium_connector_are_refused_by_its_server(connector: str, reason: str) -> None:
    source = {"type": "record", "name": "Source", "namespace": f"io.debezium.connector.{connector}", "fields": []}
    fields = [{"name": "op", "type": "string"}, {"name": "source", "type": source}]
    document = {"type": "record", "name": "Envelope", "namespace": "ms.erp.dbo.orders", "fields": fields}
    text = json.dumps({**document, "connect.name": "ms.erp.dbo.orders.Envelope"})
    with pytest.raises(ValueError, match=reason):
        avro_records.record_schema("1", {"1": text})
