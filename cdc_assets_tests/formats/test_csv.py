"""CSV: what TiCDC's rules write is read back, and what contradicts them is refused with line, column and way out."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.formats.changes import NULL_OR_TEXT
from cdc_assets.formats.csv import decode as csv_format
from cdc_assets.formats.csv.decode import decode, row_columns
from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, Decoded, Op
from cdc_assets.formats.dialect import count_byte
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.table_filter import hidden_columns
from cdc_assets.types.mysql_values import BAD_UTF8, ZERO_DATE

TABLE = TableId("shop", "orders")
ID = Column("id", "INT", nullable=False, is_pk=True)
NAME = Column("name", "VARCHAR", precision=20)
AMOUNT = Column("amount", "DECIMAL", precision=10, scale=2)
DAY = Column("day", "DATE")
SCHEMA = TableSchema((ID, NAME, AMOUNT, DAY), ("id",))
PLAIN = CsvOptions(include_commit_ts=True)
ROW = b'"I","orders","shop",100,1,"a","1.50","2020-01-02"\r\n'


def read(
    data: bytes | str, options: CsvOptions = PLAIN, schema: TableSchema = SCHEMA, table: TableId = TABLE
) -> Decoded:
    raw = data if isinstance(data, bytes) else data.encode()
    return decode(raw, "shop/orders/9/CDC1.csv", table, schema, options)


def rows(decoded_rows: Decoded, *names: str) -> list[Any]:
    """The changes as tuples of the named columns, or as bare values of one."""
    columns = [decoded_rows.changes.column(name).to_pylist() for name in names]
    return columns[0] if len(names) == 1 else list(zip(*columns, strict=True))


def refused(data: bytes | str, options: CsvOptions = PLAIN, schema: TableSchema = SCHEMA) -> MalformedData:
    with pytest.raises(MalformedData) as caught:
        read(data, options, schema)
    return caught.value


# --- the rules, written down once more as an encoder ------------------------------------------------------------------


def write(value: object, options: CsvOptions) -> bytes:
    """A field by the rules: only strings are quoted or escaped."""
    if value is None:
        return options.null.encode()
    if isinstance(value, int):
        return str(value).encode()
    assert isinstance(value, str)
    if options.quote:
        return f"{options.quote}{value.replace(options.quote, options.quote * 2)}{options.quote}".encode()
    whole = "".join(f"\\{chr(byte)}" for byte in options.delimiter.encode())
    text = value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
    return text.replace(options.delimiter, whole).encode()


def record(values: Sequence[object], options: CsvOptions) -> bytes:
    return options.delimiter.encode().join(write(value, options) for value in values) + options.terminator.encode()


TWO = TableSchema((ID, Column("a", "TEXT"), Column("b", "LONGTEXT")), ("id",))
EXOTIC = st.sampled_from(
    ["\\N", "\\", '"', "'", "|", "||", "[*]", "¦", "\r\n", "\n", "\r", ",", "", "NULL", "\x01", "𝒳", "a,b"]
)
TEXT = st.none() | st.text(max_size=6) | st.lists(EXOTIC, max_size=4).map("".join)
QUOTED = st.builds(
    CsvOptions,
    delimiter=st.sampled_from([",", "|", "\t", "||", "[*]", "¦", "::"]),
    quote=st.sampled_from(['"', "'", "`"]),
    null=st.sampled_from(["\\N", "", "NULL", "\\", "a,b", "|"]),
    terminator=st.sampled_from(["\r\n", "\n", "<E>", "\r"]),
    include_commit_ts=st.just(True),
)


@settings(max_examples=300, deadline=None)
@given(QUOTED, st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
@example(PLAIN, [("\\N", None), ("", "x"), ('"', "\r\n")])
@example(replace(PLAIN, null="a,b"), [("a,b", None)])
@example(replace(PLAIN, delimiter="||", null="|"), [("|", None), (None, "||")])
def test_with_quotes_every_text_comes_back(options: CsvOptions, pairs: list[tuple[str | None, str | None]]) -> None:
    data = b"".join(record(("I", "orders", "shop", 7, n, a, b), options) for n, (a, b) in enumerate(pairs))
    decoded_rows = read(data, options, TWO)
    assert rows(decoded_rows, "id", "a", "b") == [(n, a, b) for n, (a, b) in enumerate(pairs)]
    assert (decoded_rows.rejects, decoded_rows.tail) == ((), None)


BARE = st.builds(
    CsvOptions,
    delimiter=st.sampled_from([",", "|", "[*]", "¦", "ab"]),
    quote=st.just(""),
    null=st.just("\\N"),
    terminator=st.sampled_from(["\r\n", "\n"]),
    include_commit_ts=st.just(True),
)


def unmistakable(text: str | None, options: CsvOptions) -> bool:
    """Half a delimiter at a value's end runs into the delimiter after it; the bytes do not say which."""
    return text is None or not any(text.endswith(options.delimiter[:size]) for size in range(1, len(options.delimiter)))


@settings(max_examples=300, deadline=None)
@given(BARE, st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
@example(replace(PLAIN, quote=""), [("\\N", None), ("\\\\n", "\n\r\\r"), ("", ",,")])
def test_without_quotes_every_text_comes_back(options: CsvOptions, pairs: list[tuple[str | None, str | None]]) -> None:
    kept = [pair for pair in pairs if all(unmistakable(text, options) for text in pair)]
    data = b"".join(record(("I", "orders", "shop", 7, n, a, b), options) for n, (a, b) in enumerate(kept))
    decoded_rows = read(data, options, TWO)
    assert rows(decoded_rows, "id", "a", "b") == [(n, a, b) for n, (a, b) in enumerate(kept)]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), min_size=1, max_size=5), st.sampled_from(["base64", "hex"]))
def test_bytes_come_back_from_both_encodings(raws: list[bytes], method: str) -> None:
    options = replace(PLAIN, binary_encoding_method=method, delimiter="|")
    coded = [base64.b64encode(raw).decode() if method == "base64" else raw.hex() for raw in raws]
    data = b"".join(record(("I", "orders", "shop", 7, n, text), options) for n, text in enumerate(coded))
    assert rows(read(data, options, TableSchema((ID, Column("v", "BLOB")))), "v") == raws


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_row_becomes_a_change_in_table_order() -> None:
    decoded_rows = read(ROW)
    assert decoded_rows.changes.column_names == [OP, COMMIT_TS, LINE, "id", "name", "amount", "day"]
    assert rows(decoded_rows, OP, COMMIT_TS, LINE, "id", "name", "amount") == [(1, 100, 1, 1, "a", Decimal("1.50"))]


def test_an_empty_file_has_no_changes_and_the_same_columns() -> None:
    assert read(b"").changes.schema == read(ROW).changes.schema


def test_operations_are_insert_delete_and_update_without_image_before() -> None:
    data = ROW + ROW.replace(b'"I"', b'"D"') + ROW.replace(b'"I"', b'"U"')
    assert rows(read(data), OP) == [Op.INSERT, Op.DELETE, Op.UPDATE]


def test_without_commit_ts_it_is_null() -> None:
    assert rows(read(ROW.replace(b"100,", b""), CsvOptions()), COMMIT_TS) == [None]


def test_lines_count_records_not_line_breaks() -> None:
    assert rows(read(ROW.replace(b'"a"', b'"a\r\nb\nc"') + ROW), LINE, "name") == [(1, "a\r\nb\nc"), (2, "a")]


def test_quoted_marker_is_text_and_bare_marker_is_null() -> None:
    assert rows(read(ROW.replace(b'"a"', b'"\\N"') + ROW.replace(b'"a"', b"\\N")), "name") == ["\\N", None]


def test_the_is_update_flag_is_read_and_not_handed_on() -> None:
    options = replace(PLAIN, output_old_value=True)
    data = ROW.replace(b'"I"', b'"D"').replace(b"100,", b"100,true,") + ROW.replace(b"100,", b"100,true,")
    assert rows(read(data, options), OP, "name") == [(Op.DELETE, "a"), (Op.INSERT, "a")]


def test_old_values_of_7_5_2_have_no_is_update_flag() -> None:
    options = replace(PLAIN, output_old_value=True, output_is_update=False)
    assert rows(read(ROW, options), "name") == ["a"]


def test_a_byte_order_mark_is_skipped_and_noted() -> None:
    decoded_rows = read(b"\xef\xbb\xbf" + ROW)
    assert rows(decoded_rows, "id") == [1]
    assert list(decoded_rows.notes.values()) == [1]


def test_a_value_of_a_hundred_megabytes_is_read() -> None:
    decoded_rows = read(ROW.replace(b'"a"', b'"' + b"x" * 100_000_000 + b'"') + ROW)
    assert [len(name) for name in rows(decoded_rows, "name")] == [100_000_000, 1]


@pytest.mark.parametrize("start", [0, 1, 70_000])
def test_a_frequent_byte_is_counted_in_all_of_a_long_file(start: int) -> None:
    data = b'"I",1\r\n' * 100_000
    for end in (start, start + 1, start + (1 << 18), len(data) - 6, None):
        assert count_byte(data, b'"', start, end) == data.count(b'"', start, end)


def test_notes_count_what_the_type_table_changed() -> None:
    data = ROW.replace(b"2020-01-02", b"0000-00-00") + ROW.replace(b'"a"', b'"\xff"') + ROW
    assert dict(read(data).notes) == {("day", ZERO_DATE): 1, ("name", BAD_UTF8): 1}


def test_without_quotes_an_empty_marker_is_null_or_text_by_the_column_and_counted() -> None:
    options = replace(PLAIN, quote="", null="")
    schema = TableSchema((ID, Column("must", "VARCHAR", nullable=False), Column("may", "VARCHAR")), ("id",))
    decoded_rows = read("I,orders,shop,7,1,,\r\n", options, schema)
    assert rows(decoded_rows, "must", "may") == [("", None)]
    assert dict(decoded_rows.notes) == {("may", NULL_OR_TEXT): 1}


# --- records that do not fit ------------------------------------------------------------------------------------------


def test_a_value_that_does_not_fit_rejects_its_record_with_the_exact_bytes() -> None:
    broken = b'"I","orders","shop",101,2,"x\r\ny","12,50","2020-01-02"'
    decoded_rows = read(ROW + broken + b"\r\n" + ROW)
    assert rows(decoded_rows, LINE) == [1, 3]
    assert [(r.line, r.column, r.reason, r.raw, r.commit_ts) for r in decoded_rows.rejects] == [
        (2, "amount", '"12,50" is not DECIMAL(10,2)', broken, 101)
    ]


def test_a_row_with_too_few_fields_among_good_ones_is_rejected() -> None:
    decoded_rows = read(ROW + b'"I","orders","shop",101,"x\r\ny"\r\n' + ROW)
    assert rows(decoded_rows, LINE) == [1, 3]
    assert [(r.line, r.reason, r.commit_ts) for r in decoded_rows.rejects] == [
        (2, "5 fields where 8 are expected", 101)
    ]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'"I"', b'"X"', '"X" is not an operation'),
        (b"100", b"1x0", '"1x0" is not a commit-ts'),
        (b"100", b"\\N", '"None" is not a commit-ts'),
        (b'"2020-01-02"', b'"2020-99-02"', '"2020-99-02" is not DATE'),
    ],
)
def test_what_cannot_be_read_is_rejected(old: bytes, new: bytes, reason: str) -> None:
    decoded_rows = read(ROW + ROW.replace(old, new))
    assert rows(decoded_rows, LINE) == [1]
    assert decoded_rows.rejects[0].reason.startswith(reason)


def test_a_key_that_a_rule_would_change_is_rejected() -> None:
    schema = TableSchema((replace(DAY, is_pk=True), NAME, AMOUNT, replace(DAY, name="other")), ("day", "name"))
    zero = b'"I","orders","shop",7,"0000-00-00","a","1.50","2020-01-02"\r\n'
    torn = b'"I","orders","shop",7,"2020-01-01","\xff","1.50","0000-00-00"\r\n'
    decoded_rows = read(zero + torn + zero.replace(b"0000", b"2020").replace(b"-00", b"-01"), schema=schema)
    assert [(r.line, r.column) for r in decoded_rows.rejects] == [(1, "day"), (2, "name")]
    assert not decoded_rows.notes


@pytest.mark.parametrize("cut", range(1, len(ROW)))
def test_a_last_record_without_terminator_is_the_tail(cut: int) -> None:
    decoded_rows = read(ROW.replace(b'"a"', b'"\r\n"') + ROW[:cut])
    assert rows(decoded_rows, LINE) == [1]
    assert decoded_rows.tail is not None
    assert (decoded_rows.tail.line, decoded_rows.tail.raw) == (2, ROW[:cut])
    digits = ROW[ROW.index(b"100,") : cut].partition(b",")[0]
    whole = cut > ROW.index(b"100,") + 3
    # Of a commit-ts that is cut off itself only a lower bound is known: TSOs have 18 digits.
    assert decoded_rows.tail.commit_ts == (100 if whole else int(digits.ljust(18, b"0")) if digits else None)


def test_a_cut_inside_a_value_that_ends_like_a_record_is_the_tail() -> None:
    cut = b'"I","orders","shop",101,2,"line\r\n'
    decoded_rows = read(ROW + cut)
    assert decoded_rows.tail is not None
    assert (rows(decoded_rows, LINE), decoded_rows.tail.raw, decoded_rows.tail.commit_ts) == ([1], cut, 101)


# --- files that contradict the options --------------------------------------------------------------------------------


def test_another_delimiter_is_named_with_what_was_used() -> None:
    error = refused(ROW.replace(b",", b";"))
    assert "line 1 has 1 field where 8 are expected" in error.message
    assert 'delimiter ","' in error.message
    assert "[sink.csv]" in error.message
    assert error.where["line"] == 1


@pytest.mark.parametrize(
    ("data", "options", "sentence"),
    [
        (ROW.replace(b'"', b"'"), PLAIN, "starts with \"'I'"),
        (ROW.replace(b'"', b""), PLAIN, 'the quote " is expected'),
        (ROW, replace(PLAIN, quote=""), "I, U or D without quotes is expected"),
        (ROW.replace(b"\r\n", b"\n") * 2, PLAIN, "ends its records with LF"),
        (ROW * 2, replace(PLAIN, terminator="\n"), "ends its records with CRLF"),
        (ROW.replace(b"100,", b""), PLAIN, "include-commit-ts seems to be off"),
        (ROW.replace(b"100,", b"465283339528437785,"), CsvOptions(), "include-commit-ts seems to be on"),
        (ROW.replace(b"100,", b"465283339528437785,false,"), PLAIN, "output-old-value is on"),
        (ROW.replace(b"100,", b"465283339528437785,"), replace(PLAIN, output_old_value=True), "7.5.2"),
        (ROW.replace(b'"a",', b"").replace(b"100", b"465283339528437785"), PLAIN, "virtual generated columns"),
        (ROW.replace(b"100,", b'465283339528437785,"1",'), PLAIN, "output-handle-key"),
        (ROW.replace(b'"orders"', b'"Orders"'), PLAIN, 'names the table "Orders"'),
        (ROW.replace(b'"shop"', b'"other"'), PLAIN, 'names the schema "other"'),
        (ROW.decode().encode("utf-16"), PLAIN, "UTF-16"),
    ],
)
def test_bytes_that_contradict_the_options_are_refused_by_a_sentence(
    data: bytes, options: CsvOptions, sentence: str
) -> None:
    message = refused(data, options).message
    assert sentence in message
    assert "TOML" not in message or "[sink" in message


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"delimiter": "----"}, "1 to 3 bytes without"),
        ({"delimiter": "\n"}, "without line breaks"),
        ({"quote": '""'}, "one character, not a line break, or none"),
        ({"delimiter": '"|'}, "part of delimiter"),
        ({"terminator": ""}, "terminator is empty"),
        ({"null": "0"}, "a number or boolean"),
        ({"binary_encoding_method": "octal"}, "octal"),
    ],
)
def test_options_that_cannot_be_read_back_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence):
        read(ROW, replace(PLAIN, **change))


# --- which columns a row has ------------------------------------------------------------------------------------------

HEAD = b"ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,"
HEADED = replace(PLAIN, output_field_header=True)


def test_a_header_is_a_record_without_change() -> None:
    assert rows(read(HEAD + b"id,name,amount,day\r\n" + ROW, HEADED), LINE, "id") == [(2, 1)]


def test_a_header_alone_is_an_empty_file_and_half_a_header_a_tail() -> None:
    assert read(HEAD + b"id,name,amount,day\r\n", HEADED).changes.num_rows == 0
    tail = read(HEAD, HEADED).tail
    assert tail is not None
    assert (tail.line, tail.raw) == (1, HEAD)


def test_a_header_shows_which_columns_are_written_and_in_which_order() -> None:
    decoded_rows = read(HEAD + b'day,id,amount\r\n"I","orders","shop",100,"2020-01-02",1,"1.50"\r\n', HEADED)
    assert decoded_rows.changes.column_names[3:] == ["id", "amount", "day"]
    assert [column for column, _ in decoded_rows.notes] == ["name"]


def test_a_columns_name_in_a_header_may_hold_the_delimiter() -> None:
    schema = TableSchema((replace(ID, name="a,b"), replace(ID, name="a")))
    decoded_rows = read(HEAD + b'a,a,b\r\n"I","orders","shop",100,1,2\r\n', HEADED, schema)
    assert rows(decoded_rows, "a", "a,b") == [(1, 2)]


@pytest.mark.parametrize(
    ("data", "options", "sentence"),
    [
        (HEAD + b"id,name,amount,day\r\n" + ROW, PLAIN, "Set output-field-header"),
        (ROW, HEADED, "output-field-header is on"),
        (HEAD + b"id,nam\r\n" + ROW, HEADED, 'names "nam"'),
        (HEAD + b"id,id\r\n" + ROW, HEADED, "names a column twice"),
        (HEAD + b"id\r\n" + ROW, replace(HEADED, include_commit_ts=False, output_old_value=True), "is-update"),
    ],
)
def test_a_header_that_contradicts_schema_or_options_is_refused(
    data: bytes, options: CsvOptions, sentence: str
) -> None:
    message = refused(data, options).message
    assert sentence in message
    assert "TOML" not in message or "[sink" in message


def test_virtual_columns_are_in_no_row() -> None:
    schema = replace(SCHEMA, columns=(ID, Column("v", "INT", virtual=True), NAME, AMOUNT, DAY))
    assert read(ROW, schema=schema).changes.column_names[3:] == ["id", "name", "amount", "day"]


def test_the_handle_key_is_skipped_where_it_is_written() -> None:
    options = replace(PLAIN, output_handle_key=True)
    assert rows(read(ROW.replace(b"100,", b'100,"1",'), options), "id") == [1]


def test_the_new_architecture_writes_no_handle_key() -> None:
    assert rows(read(ROW, replace(PLAIN, output_handle_key=True)), "id") == [1]


def test_a_missing_virtual_column_is_not_taken_for_a_missing_handle_key() -> None:
    options = replace(PLAIN, output_handle_key=True)
    assert "handle key" in refused(ROW.replace(b"100,", b'100,"1",').replace(b',"2020-01-02"', b""), options).message


def test_columns_hidden_by_a_selector_are_absent() -> None:
    options = replace(PLAIN, column_selectors=((("shop.*",), ("*", "!name")),))
    assert read(ROW.replace(b'"a",', b""), options).changes.column_names[3:] == ["id", "amount", "day"]


@pytest.mark.parametrize(
    ("selectors", "hidden"),
    [
        ((), set()),
        (((("other.*",), ("id",)),), set()),
        (((("*.*",), ("*", "!name")),), {"name"}),
        (((("*.*",), ("!name", "*")),), set()),
        (((("SHOP.Orders",), ("ID", "d*")),), {"name", "amount"}),
        (((("*.*", "!shop.orders"), ("id",)), (("shop.o?ders",), ("[a-i]*",))), {"name"}),
        (((('`shop`."orders"',), ("*", "!/^(a|d)/")),), {"amount", "day"}),
        (((("shop",), ("id",)),), set()),
    ],
)
def test_column_selectors_match_as_tidbs_filters_do(selectors: Any, hidden: set[str]) -> None:
    names = [column.name for column in SCHEMA.stored]
    assert hidden_columns(selectors, (TABLE.schema, TABLE.table), names) == hidden


def test_a_layout_lists_ticdcs_columns_first() -> None:
    options = replace(PLAIN, output_old_value=True, output_handle_key=True)
    assert row_columns(options, TABLE, SCHEMA).meta == ("op", "table", "schema", "commit-ts", "is-update", "handle-key")


def test_names_may_hold_any_structure() -> None:
    table = TableId('s"h', "o||d\r\n")
    options = replace(PLAIN, delimiter="||")
    data = record(("I", table.table, table.schema, 7, 1, "a", "1.50", "2020-01-02"), options)
    assert rows(read(data, options, table=table), "id") == [1]


def test_the_format_is_a_plug() -> None:
    assert csv_format.EXTENSION == ".csv"
    assert isinstance(read(ROW).changes, pa.Table)


# --- commit-ts alone --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [False, True])
def test_commit_ts_is_known_of_records_whose_columns_are_not(header: bool) -> None:
    options = replace(PLAIN, output_field_header=header)
    data = (b"ticdc-meta$operation,a\r\n" if header else b"") + ROW + b'"I","orders","shop",200,"\r\n",1,2,3,4,5\r\n'
    assert csv_format.commit_stamps(data, options) == [100, 200]
    assert csv_format.commit_stamps(data + b'"I","orders"\r\n' + ROW[:-2], options) == [100, 200, None, None]
    assert csv_format.commit_stamps(data, replace(options, include_commit_ts=False)) == [None, None]
