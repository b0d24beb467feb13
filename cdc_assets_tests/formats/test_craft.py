"""Craft: recorded vectors, round trips of an independent writer, and messages that are none."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.changes import LOST_FLOAT
from cdc_assets.formats.craft.messages import classify, decode, schemas
from cdc_assets.formats.decoded import COMMIT_TS, LINE, Decoded, Op
from cdc_assets.formats.messages import lines_of
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets_tests.craft_writer import Cell, Row, ddl, message, overwritten, resolved, uvarint
from cdc_assets_tests.topics import messages_of, rows_of

OPTIONS = MessageOptions(protocol="craft")
T = TableId("test", "t")
KEYED = TableSchema((Column("id", "INT", is_pk=True, nullable=False), Column("name", "VARCHAR")), ("id",))

FOUR = (
    "018a80f0f482a0da8106010300010101010100009c01000000000200000201020602030f0a400206026e657701020602030f"
    "0a400206026e657702020602030f0a400206026f6c6402020602030f0a400206026e657701020602030f0a400206026e6577"
    "05040101020474657374747069646e616d65023a15041c1c1b00011c021c00011c011c11"
)
BACK = (
    "018d80f0f482a0da8106fdffffffffffffffff01010101000000020001020402030f0a400206026e657701020402030f0a40"
    "0206026e65770404010204746573747469646e616d65023615021c00011c011c0a"
)
ALL_TYPES = (
    "018a80f0f482a0da81060101000201170402020202020202020202020202020202020202020202080101080405f6010c0a0b"
    "070d0f0ffc01fc01f501f701f801100f0fe1010ac00140c001404040404040404040414041404040c0014040400204041410"
    "100e34141226040c0608041002020201000a02ff01ff01ffffffffffffffffff01000000000000000000000000000002c031"
    "32332e343530323032332d31312d33302031323a33343a35362e313233343536323032332d31312d33302d31323a33343a35"
    "36323032332d31312d33302031323a33343a3536ce1f68c3a96c6c6f00ff107465787401027b2261223a20317d0203515b31"
    "2c325d1904010202020201010302020202010202020202020202020203746573747479647475746962756664646563637464"
    "61746d747379766376627478626c6a73656e737462696e75656d766563021a7e01de0301de0309"
)
FLOAT_LAST = "0101010100020102040203040a40021002000000000000f83f04040102017465737474696466020a100126012607"
FLOAT_THEN_INT = (
    "01010101000201030402020304030a404002100202000000000e00f83f0e05040102010174657374746964666e020a140130013007"
)


def said(*values: bytes | None) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = classify(messages_of([(None, value) for value in values]), OPTIONS).to_pylist()
    return messages


def decoded(schema: TableSchema, *values: bytes, table: TableId = T, options: MessageOptions = OPTIONS) -> Decoded:
    messages = messages_of([(None, value) for value in values])
    return decode(rows_of(messages, classify(messages, options), table), "landed", table, schema, options)


def changes(decoded_rows: Decoded) -> list[tuple[Any, ...]]:
    assert decoded_rows.rejects == ()
    return [tuple(row.values()) for row in decoded_rows.changes.to_pylist()]


# --- what messages speak of -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "commit_ts"),
    [
        ("01d480f0f482a0da810603010101021a19010005", 433305438660591700),
        ("019880c0a3b597c1ba0603010101021a19010005", 465283339124736024),
        ("019091d8e18ebba7c51603010101021a19010005", 1624284170621946000),
    ],
)
def test_a_mark_has_its_commit_ts(raw: str, commit_ts: int) -> None:
    [spoken_message] = said(bytes.fromhex(raw))
    assert (spoken_message["kind"], spoken_message["commit_ts"], spoken_message["table"]) == (
        "resolved",
        commit_ts,
        None,
    )


def test_a_ddl_has_its_text_and_action() -> None:
    create = "019980c0a3b597c1ba06020100010117435245415445204441544142415345206074797065736001057479706573021a0b013205"
    alter = (
        "01d580f0f482a0da810602010002051e616c746572207461626c6520742061646420636f6c756d6e207820696e74020401746573747"
        "4021a09014005"
    )
    first, second = said(bytes.fromhex(create), bytes.fromhex(alter))
    assert (first["schema"], first["table"], first["type"]) == ("types", "", 1)
    assert first["query"] == "CREATE DATABASE `types`"
    assert (second["schema"], second["table"], second["type"]) == ("test", "t", 5)
    assert second["query"] == "alter table t add column x int"


def test_a_message_of_two_tables_has_a_line_for_each() -> None:
    first, second = said(bytes.fromhex(FOUR))
    assert (first["table"], first["ordinals"]) == ("t", [0, 1, 2])
    assert (second["table"], second["ordinals"]) == ("p", [3])
    assert (first["commit_ts"], first["last_commit_ts"]) == (433305438660591626, 433305438660591630)


def test_what_is_no_message_is_bad_and_says_why() -> None:
    sound = bytes.fromhex(FOUR)
    messages = said(None, b"", b"{}", sound[:-1], sound, b"\x02" + sound[1:])
    assert [spoken_message["kind"] for spoken_message in messages] == ["bad"] * 4 + ["row", "row", "bad"]
    assert all(
        spoken_message["reason"].startswith("it is not a message of the protocol Craft: ")
        for spoken_message in messages
        if spoken_message["reason"]
    )


def test_a_message_of_empty_tables_is_refused_at_once() -> None:
    tables = bytes(1 << 20)
    begun = time.process_time()
    [spoken_message] = said(b"\x01" + tables + uvarint(len(tables) - 1)[::-1])
    assert spoken_message["kind"] == "bad"
    assert time.process_time() - begun < 20


# --- rows -------------------------------------------------------------------------------------------------------------


def test_insert_update_and_delete() -> None:
    change_rows = changes(decoded(KEYED, bytes.fromhex(FOUR)))
    ts = 433305438660591626
    assert change_rows == [
        (Op.INSERT, ts, 1, 1, "new"),
        (Op.DELETE, ts + 1, 2, 1, "old"),
        (Op.INSERT, ts + 1, 2, 1, "new"),
        (Op.DELETE, ts + 4, 3, 1, "new"),
    ]


def test_commit_ts_may_step_back_in_a_message() -> None:
    decoded_rows = decoded(KEYED, bytes.fromhex(BACK))
    assert decoded_rows.changes.column(COMMIT_TS).to_pylist() == [433305438660591629, 433305438660591626]


def test_a_delete_may_bring_its_key_only() -> None:
    raw = bytes.fromhex("018f80f0f482a0da810601010002020104030a02020304010274657374746964021a03010e010e07")
    options = MessageOptions(protocol="craft", delete_only_output_handle_key_columns=True)
    decoded_rows = decoded(KEYED, raw, options=options)
    assert changes(decoded_rows) == [(Op.DELETE_KEY, 433305438660591631, 1, 1, None)]
    full = message([Row(9, "test", "t", None, [Cell("id", 3, 11, 2), Cell("name", 15, 64, b"x")])])
    [reject] = decoded(KEYED, raw, full).rejects
    assert "delete-only-output-handle-key-columns" in reject.reason


def test_every_type_of_the_vector() -> None:
    kinds = {
        "yd": "INT", "tu": "TINYINT", "ti": "TINYINT", "bu": "BIGINT", "f": "FLOAT", "d": "DOUBLE", "dec": "DECIMAL",
        "ct": "DATETIME", "da": "DATE", "tm": "TIME", "ts": "TIMESTAMP", "y": "YEAR", "vc": "VARCHAR",
        "vb": "VARBINARY", "tx": "TEXT", "bl": "BLOB", "js": "JSON", "en": "ENUM", "st": "SET", "bi": "BIT",
        "nu": "VARCHAR", "em": "VARCHAR", "vec": "VECTOR",
    }  # fmt: skip
    special = {"tu": {"unsigned": True}, "bu": {"unsigned": True}, "dec": {"precision": 10, "scale": 3}}
    special |= {
        "ct": {"scale": 6},
        "en": {"elems": ("a", "b")},
        "st": {"elems": ("x", "y", "z")},
        "bi": {"precision": 8},
    }
    columns = tuple(Column(name, kind, **special.get(name, {})) for name, kind in kinds.items())  # type: ignore[arg-type]
    decoded_rows = decoded(TableSchema(columns, ("yd",)), bytes.fromhex(ALL_TYPES))
    assert decoded_rows.rejects == ()
    row = {name: str(value) for name, value in decoded_rows.changes.to_pylist()[0].items() if not name.startswith("_")}
    assert row == {
        "yd": "1", "tu": "255", "ti": "-128", "bu": "18446744073709551615", "f": "None", "d": "-2.25",
        "dec": "123.450", "ct": "2023-11-30 12:34:56.123456", "da": "2023-11-30", "tm": "-12:34:56",
        "ts": "2023-11-30 12:34:56+00:00", "y": "2023", "vc": "héllo", "vb": "b'\\x00\\xff\\x10'", "tx": "text",
        "bl": "b'\\x01\\x02'", "js": '{"a": 1}', "en": "b", "st": "x,y", "bi": "81", "nu": "None", "em": "",
        "vec": "[1.0, 2.0]",
    }  # fmt: skip
    assert decoded_rows.notes == {("f", LOST_FLOAT): 1}


FLOATS = TableSchema((Column("f", "FLOAT"), Column("n", "INT", nullable=False)), ("n",))


def test_a_float_is_read_only_where_nothing_may_have_overwritten_it() -> None:
    f, n = Column("f", "FLOAT"), Column("n", "INT")
    last = decoded(TableSchema((Column("id", "INT"), f), ("id",)), bytes.fromhex(FLOAT_LAST))
    assert last.changes.column("f").to_pylist() == [1.5]
    before = decoded(TableSchema((Column("id", "INT"), f, n), ("id",)), bytes.fromhex(FLOAT_THEN_INT))
    assert before.changes.column("f").to_pylist() == [None]
    images = overwritten([[Cell("n", 3, 11, n), Cell("f", 4, 64, 1.5)] for n in (1, 2)])
    decoded_rows = decoded(FLOATS, message([Row(1, "test", "t", image) for image in images]))
    assert decoded_rows.changes.column("f").to_pylist() == [None, 1.5]
    assert decoded_rows.notes == {("f", LOST_FLOAT): 1}


def test_a_float_of_a_writer_that_overwrites_nothing_is_whole_unless_it_looks_overwritten() -> None:
    rows = [(1, 1.5), (7, 1.5), (0, 1.5), (3, 2.0), (4, 0.0)]
    whole = message([Row(1, "test", "t", [Cell("n", 3, 11, n), Cell("f", 4, 64, f)]) for n, f in rows])
    decoded_rows = decoded(FLOATS, whole)
    assert decoded_rows.changes.column("f").to_pylist() == [
        1.5,
        None,
        1.5,
        2.0,
        0.0,
    ]  # the 0 behind 1.5 is its next byte


@given(
    st.lists(
        st.tuples(
            st.integers(-(1 << 31), (1 << 31) - 1),
            st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
        ),
        min_size=1,
        max_size=16,
    ),
    st.integers(12, 80),
)
def test_no_float_is_ever_wrong(rows: list[tuple[int, float | None, float | None, float | None]], size: int) -> None:
    columns = (Column("n", "INT"), Column("f", "FLOAT"), Column("d", "DOUBLE"), Column("g", "FLOAT"))
    types = ((3, 11), (4, 64), (5, 64), (4, 64))
    images = [
        [Cell(column.name, *kind, cell) for column, kind, cell in zip(columns, types, row, strict=True)] for row in rows
    ]
    raw = message([Row(1, "test", "t", image) for image in overwritten(images, size)])
    decoded_changes = decoded(TableSchema(columns), raw).changes
    for name, sent in (("f", [row[1] for row in rows]), ("g", [row[3] for row in rows])):
        read = decoded_changes.column(name).to_pylist()
        assert all(value is None or value == true for value, true in zip(read, sent, strict=True))
    assert decoded_changes.column("g")[-1].as_py() == rows[-1][3]  # no number follows
    assert decoded_changes.column("d").to_pylist() == [row[2] for row in rows]


def keyed(number: int, name: bytes) -> list[Cell]:
    return [Cell("id", 3, 11, number), Cell("name", 15, 64, name)]


def test_images_of_a_row_come_in_any_order_and_a_deleted_row_as_a_group_of_its_own_kind() -> None:
    new, old = keyed(2, b"new"), keyed(1, b"old")
    turned = decoded(KEYED, message([Row(5, "test", "t", None, groups=[(2, old), (1, new)])]))
    assert sorted(changes(turned)) == sorted(changes(decoded(KEYED, message([Row(5, "test", "t", new, old)]))))
    deleted = decoded(KEYED, message([Row(5, "test", "t", None, groups=[(3, old)])]))
    assert changes(deleted) == changes(decoded(KEYED, message([Row(5, "test", "t", None, old)])))
    for kinds in ((2, 3), (1, 1), (2, 2)):
        twice = message([Row(5, "test", "t", None, groups=[(kinds[0], old), (kinds[1], new)])])
        assert {reject.reason for reject in decoded(KEYED, twice).rejects} == {
            "it has two images that are not the new and the old one"
        }


def test_a_value_that_the_schema_cannot_hold_is_a_reject_of_its_row_alone() -> None:
    rows = [
        Row(1, "test", "t", [Cell("id", 3, 11, 1), Cell("name", 10, 64, b"2020-01-01")]),
        Row(2, "test", "t", [Cell("id", 3, 11, 2), Cell("name", 15, 64, b"x")]),
        Row(3, "test", "t", [Cell("id", 3, 11, 3), Cell("name", 15, 64, b"x"), Cell("more", 3, 64, 1)]),
        Row(4, "test", "t", [Cell("name", 15, 64, b"x")]),
        Row(5, "test", "t", [Cell("id", 8, 11, 1 << 40), Cell("name", 15, 64, b"x")]),
        Row(6, "test", "t", [Cell("id", 3, 11, 6), Cell("name", 15, 64, b"\xff")]),
    ]
    decoded_rows = decoded(KEYED, message(rows))
    assert decoded_rows.changes.column(LINE).to_pylist() == [2, 6]
    assert [(reject.line, reject.column) for reject in decoded_rows.rejects] == [
        (1, "name"),
        (3, "more"),
        (4, "id"),
        (5, "id"),
    ]
    assert "DATE" in decoded_rows.rejects[0].reason
    assert decoded_rows.changes.column("name").to_pylist() == ["x", "\ufffd"]


def test_a_column_that_selectors_leave_out_is_told_from_an_unknown_one() -> None:
    hidden = replace(KEYED, columns=tuple(replace(c, selected=c.name == "id") for c in KEYED.columns))
    (reject,) = decoded(hidden, message([Row(1, "test", "t", keyed(1, b"x"))])).rejects
    assert 'column "name" has a value, although column-selectors' in reject.reason


def test_a_line_leads_back_to_its_message() -> None:
    messages = messages_of([(None, resolved(3)), (None, bytes.fromhex(FOUR)), (None, bytes.fromhex(BACK))])
    spoken = classify(messages, OPTIONS)
    messages_and_ordinals = zip(*lines_of(rows_of(messages, spoken, T)), strict=True)
    assert list(messages_and_ordinals) == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 1)]
    assert spoken.column("message").to_pylist()[-2:] == [2, 2]  # where the commit-ts steps back, two lines


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_rows_give_types_and_key_of_their_table_approximately() -> None:
    rows = [
        Row(5, "test", "t", [Cell("a", 8, 43, 1), Cell("b", 254, 65, b"x"), Cell("c", 246, 64, b"1.50")]),
        Row(4, "test", "t", [Cell("a", 8, 43, 1), Cell("b", 254, 65, b"x"), Cell("c", 246, 64, b"1.50")]),
    ]
    [event] = schemas(messages_of([(None, ddl(1, "test", None, 1, "x")), (None, message(rows))]), OPTIONS)
    assert (event.message, event.table, event.version, event.schema.key) == (1, T, 4, ("a",))
    assert [(c.name, c.type, c.precision, c.scale, c.nullable) for c in event.schema.columns] == [
        ("a", "BIGINT", None, None, False),
        ("b", "BINARY", None, None, True),
        ("c", "DECIMAL", 38, 2, True),
    ]
    assert any('"c"' in sentence for sentence in event.approximate)


def test_deletes_of_their_key_only_show_no_columns() -> None:
    key = Cell("a", 8, 43, 1)
    rows = [Row(5, "test", "t", None, [key]), Row(6, "test", "t", [key, Cell("b", 254, 65, b"x")])]
    of_keys = replace(OPTIONS, delete_only_output_handle_key_columns=True)
    sent = messages_of([(None, message(rows))])
    assert [[c.name for c in schema_event.schema.columns] for schema_event in schemas(sent, of_keys)] == [["a", "b"]]
    assert [schema_event.version for schema_event in schemas(sent, OPTIONS)] == [5, 6]


# --- round trips ------------------------------------------------------------------------------------------------------

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.sampled_from(["id", "name", "n2", "größe"])


@st.composite
def _images(draw: st.DrawFn) -> list[Cell]:
    key = Cell("id", 8, 11, draw(INTEGERS))
    name = Cell("name", 15, 64, draw(st.none() | st.text(max_size=200).map(str.encode)))
    wide = Cell("u", 8, 192, draw(st.none() | st.integers(0, (1 << 64) - 1)))
    number = Cell("d", 5, 64, draw(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
    return [key, name, wide, number]


@st.composite
def _rows(draw: st.DrawFn) -> Row:
    new, old = draw(st.sampled_from([(True, False), (True, True), (False, True)]))
    return Row(
        draw(st.integers(1, (1 << 63) - 1)),
        "test",
        draw(st.sampled_from(["t", "u", "表格"])),
        draw(_images()) if new else None,
        draw(_images()) if old else None,
        draw(st.sampled_from([-1, 77])),
    )


WIDE = TableSchema(
    (
        Column("id", "BIGINT", nullable=False, is_pk=True),
        Column("name", "VARCHAR"),
        Column("u", "BIGINT", unsigned=True),
        Column("d", "DOUBLE"),
    ),
    ("id",),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(_rows(), min_size=1, max_size=6), min_size=1, max_size=5))
def test_what_is_written_is_read_again(sent: list[list[Row]]) -> None:
    messages = messages_of([(None, message(rows)) for rows in sent])
    spoken = classify(messages, OPTIONS)
    for name in ("t", "u", "表格"):
        table = TableId("test", name)
        decoded_rows = decode(rows_of(messages, spoken, table), "landed", table, WIDE, OPTIONS)
        wanted: list[tuple[Any, ...]] = []
        # where the commit-ts steps back in a message, its rows are told of in two lines
        table_rows = [row for rows in sent for row in rows if row.table == name]
        for line, row in enumerate(table_rows, 1):
            for op, cells in ((Op.DELETE, row.old), (Op.INSERT, row.new)):
                if cells is not None:
                    values = [c.value.decode() if isinstance(c.value, bytes) else c.value for c in cells]
                    wanted.append((int(op), row.ts, line, *values))
        assert changes(decoded_rows) == wanted
