"""Dumpling's CSV: whatever it writes in any dialect reads back, and what its options cannot have written is refused."""

from __future__ import annotations

import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.ddl import created
from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.features.dumps.formats import dump_format
from cdc_assets.formats.changes import NULL_OR_TEXT, SIX_DIGITS
from cdc_assets.formats.decoded import LINE
from cdc_assets.model.dumps import DumpOptions, DumpSplit
from cdc_assets.model.schema import TableSchema
from cdc_assets_tests.dump_contents import AT, TABLE, assert_reads_back, contents, file_of, read
from cdc_assets_tests.dump_writer import COMPRESSORS, Row, Writing, csv_file, dumped

OPTIONS = st.builds(
    DumpOptions,
    separator=st.sampled_from([",", "|+|", "\t", "→", "||"]),
    delimiter=st.sampled_from(['"', "'", "<>", "”", ""]),
    null_value=st.sampled_from(["\\N", "NULL", ""]),
    header=st.booleans(),
    escape_backslash=st.booleans(),
    output_dialect=st.sampled_from(["default", "snowflake", "redshift", "bigquery"]),
    timezone=st.sampled_from(["UTC", "+08:00"]),
)
WRITINGS = st.builds(
    Writing, options=OPTIONS, terminator=st.sampled_from(["\r\n", "\n"]), quoted_unsigned=st.booleans()
)
PLAIN = created("create table t (id int primary key, v varchar(20), n decimal(5,2))")
ROWS: list[Row] = [("1", "one", "1.00"), ("2", None, None), ("3", "", "3.50")]


def written(rows: list[Row] = ROWS, **given_options: object) -> bytes:
    return csv_file(PLAIN.columns, rows, Writing(options=replace(DumpOptions(), **given_options)))  # type: ignore[arg-type]


@given(
    contents(),
    WRITINGS,
    st.sampled_from(list(COMPRESSORS)),
    st.lists(st.integers(1, 400), max_size=3),
    st.sampled_from([None, 1, 50]),
)
def test_what_dumpling_writes_reads_back(
    table: tuple[TableSchema, list[Row]], how: Writing, compression: str, cuts: list[int], block_bytes: int | None
) -> None:
    schema, rows = table
    if not how.options.delimiter:
        if not how.options.escape_backslash:
            return  # refused below
        alike = {how.options.null_value, how.options.null_value.encode()} if how.options.null_value != "\\N" else set()
        rows = [row for row in rows if not alike.intersection(row)]
    file, data = file_of(csv_file(dumped(schema), rows, how), "csv", compression)
    cuts = cuts if dump_format("csv").can_cut(how.options) and not compression else []
    blocks = read(file, data, schema, how.options, cuts, block_bytes)
    assert_reads_back(blocks, schema, rows, how.options.timezone)


def refused(data: bytes, schema: TableSchema, **given_options: object) -> MalformedData:
    options = replace(DumpOptions(), **given_options)  # type: ignore[arg-type]
    file, stored = file_of(data, "csv")
    with pytest.raises(MalformedData) as refusal:
        read(file, stored, schema, options)
    assert refusal.value.where["path"] == file.path
    return refusal.value


@pytest.mark.parametrize(
    ("writes", "reads", "line", "says"),
    [
        ({"separator": ";"}, {}, 1, "where a header is expected"),
        ({"delimiter": "'"}, {}, 1, "where a header is expected"),
        ({"delimiter": ""}, {}, 1, "where a header is expected"),
        ({"header": False}, {}, 1, "set header to false"),
        ({}, {"header": False}, 1, "line 1 is a header"),
        ({"separator": ";", "header": False}, {"header": False}, 1, "1 field where 3 are expected"),
        ({"delimiter": "'", "header": False}, {"header": False}, 1, "is neither in delimiters"),
        ({"null_value": "NULL"}, {}, 3, '"NULL" is neither in delimiters'),
        ({"escape_backslash": False}, {}, 4, 'a backslash before "d"'),
    ],
)
def test_another_dialect_is_refused_with_its_first_line(
    writes: dict[str, object], reads: dict[str, object], line: int, says: str
) -> None:
    rows: list[Row] = [("1", "one", "1.00"), ("2", None, None), ("3", "c:\\d", "3.50")]
    error = refused(written(rows, **writes), PLAIN, **reads)
    assert error.where["line"] == line
    assert says in str(error)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\r\nb", "line 2 has field 2 goes on"),
        ("a\rb", "a CR that is not escaped"),
        ("a\0b", "a NUL that is not escaped"),
        ('say "x"', "line 2 has field 2 goes on"),
    ],
)
def test_texts_without_escapes_are_refused_where_escapes_are_expected(text: str, says: str) -> None:
    assert says in str(refused(written([("1", text, "1.00")], escape_backslash=False), PLAIN))


@pytest.mark.parametrize("letter", string.ascii_letters)
def test_no_letter_behind_a_backslash_is_taken_for_an_escape_that_dumpling_does_not_write(letter: str) -> None:
    data = written([("1", f"c:\\{letter}in", "1.00")], escape_backslash=False)
    if letter in "nr":  # looks like what Dumpling writes
        assert read(*file_of(data, "csv"), PLAIN, DumpOptions())
    else:
        assert f'a backslash before "{letter}"' in str(refused(data, PLAIN))


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("escape", [True, False])
def test_a_last_row_without_line_end_was_cut_off(header: bool, escape: bool) -> None:
    data = written(header=header, escape_backslash=escape)
    for size in range(1, len(data)):
        left = data[:size]
        if not left.endswith(b"\n"):
            error = refused(left, PLAIN, header=header, escape_backslash=escape)
            assert "cut off" in str(error), size


def test_a_file_that_was_cut_off_within_its_compression_is_refused() -> None:
    file, stored = file_of(written(), "csv", "gzip")
    with pytest.raises(MalformedData, match="not a whole gzip file"):
        read(replace(file, size=file.size - 9), stored, PLAIN, DumpOptions())


def test_a_file_that_became_shorter_is_refused() -> None:
    file, stored = file_of(written(), "csv")
    with pytest.raises(MalformedData, match="changed while it was read"):
        read(file, stored[:-1], PLAIN, DumpOptions())


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("create table t (id int primary key, v text)", 'names the column "n"'),
        ("create table t (id int primary key, v text, n decimal(5,2), x int)", 'lacks the column "x"'),
        ("create table t (a int, b text)", "where a header is expected"),
    ],
)
def test_a_header_with_other_columns_than_the_schema_is_refused(sql: str, says: str) -> None:
    assert says in str(refused(written(), created(sql)))


def test_columns_are_found_by_their_names() -> None:
    swapped = created("create table t (N decimal(5,2), id int primary key, v varchar(20))")
    file, data = file_of(written(), "csv")
    (block,) = read(file, data, swapped, DumpOptions())
    assert block.changes.column("id").to_pylist() == [1, 2, 3]
    assert block.changes.column_names[3:] == ["N", "id", "v"]


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("taken", ["none", "stored"])
def test_generated_columns_are_missing_or_there(header: bool, taken: str) -> None:
    schema = created("create table t (a int primary key, s int as (a*2) stored, v int as (a) virtual, b int)")
    columns = dumped(schema) if taken == "none" else schema.stored
    rows = [("1", "2")] if taken == "none" else [("1", "7", "2")]
    file, data = file_of(csv_file(columns, rows, Writing(options=DumpOptions(header=header))), "csv")
    (block,) = read(file, data, schema, DumpOptions(header=header))
    assert block.changes.column_names[3:] == [column.name for column in columns]


def test_rows_that_do_not_fit_name_their_line_in_the_file_and_keep_their_bytes() -> None:
    rows: list[Row] = [(str(number), "x", "many" if number % 40 == 9 else "1.00") for number in range(100)]
    data = written(rows)
    file, stored = file_of(data, "csv")
    blocks = read(file, stored, PLAIN, DumpOptions(), cuts=[300, 700])
    rejects = [(reject.line, reject.raw, reject.column, reject.reason) for block in blocks for reject in block.rejects]
    reason = '"many" is not DECIMAL(5,2)'
    assert rejects == [(line, b'%d,"x",many' % (line - 2), "n", reason) for line in (11, 51, 91)]


@pytest.mark.parametrize(("escape", "start", "end"), [(True, 0, 9999), (False, 0, 9999), (True, 200, 500)])
def test_records_are_found_again_by_their_lines(escape: bool, start: int, end: int) -> None:
    options = DumpOptions(escape_backslash=escape)
    file, data = file_of(written([(str(number), "a\nb", None) for number in range(50)], escape_backslash=escape), "csv")
    split = DumpSplit(file, start, min(end, file.size))

    def read_range(since: int, until: int) -> bytes:
        return data[since:until]

    (block,) = dump_format("csv").read(split, read_range, TABLE, PLAIN, options, AT)
    lines, ids = (block.changes.column(name).to_pylist() for name in (LINE, "id"))
    raws = dump_format("csv").raw_records(split, read_range, lines, options)
    assert [int(raws[line].split(b",")[0]) for line in lines] == ids
    assert lines[0] + dump_format("csv").lines_before(split, read_range, options) == ids[0] + 2


@pytest.mark.parametrize(
    "options",
    [
        {"separator": ""},
        {"separator": "1"},
        {"separator": '"'},
        {"separator": ',"'},
        {"separator": "\n"},
        {"delimiter": "\\"},
        {"delimiter": "n"},
        {"delimiter": "5"},
        {"delimiter": "''", "escape_backslash": False},
        {"null_value": "a,b"},
        {"null_value": "-1"},
        {"null_value": "true"},
        {"output_dialect": "oracle"},
    ],
)
def test_options_with_which_rows_cannot_be_separated_are_refused(options: dict[str, object]) -> None:
    file, data = file_of(b"1\r\n", "csv")
    with pytest.raises(BadSettings, match="The CSV options of the dump have"):
        read(file, data, PLAIN, replace(DumpOptions(), **options))  # type: ignore[arg-type]


def test_texts_with_neither_delimiter_nor_escapes_are_refused() -> None:
    options = DumpOptions(delimiter="", escape_backslash=False)
    file, data = file_of(b"id,v,n\r\n1,x,1.00\r\n", "csv")
    with pytest.raises(BadSettings, match='where a value of "v" ends'):
        read(file, data, PLAIN, options)
    numbers = created("create table t (a int, b double)")
    file, data = file_of(b"a,b\r\n1,\\N\r\n", "csv")
    assert_reads_back(read(file, data, numbers, options), numbers, [("1", None)])


def test_a_byte_order_mark_is_stepped_over() -> None:
    file, data = file_of(b"\xef\xbb\xbf" + written(), "csv")
    assert_reads_back(read(file, data, PLAIN, DumpOptions()), PLAIN, ROWS)


def test_a_text_like_the_null_marker_is_noted_where_nothing_separates_them() -> None:
    options = DumpOptions(delimiter="", null_value="NULL")
    file, data = file_of(csv_file(PLAIN.columns, [("1", "NULL", None)], Writing(options=options)), "csv")
    (block,) = read(file, data, PLAIN, options)
    assert dict(block.notes) == {("v", NULL_OR_TEXT): 1}


@pytest.mark.parametrize("text", ["1.23457e15", "-3.40282e38", "1e-16"])
def test_a_float_with_lost_digits_is_noted_and_in_a_key_rejected(text: str) -> None:
    schema = created("create table t (id int primary key, f float, d double)")
    file, data = file_of(csv_file(schema.columns, [("1", text, text), ("2", "0", "0")], Writing()), "csv")
    (block,) = read(file, data, schema, DumpOptions())
    assert dict(block.notes) == {("f", SIX_DIGITS): 1}
    (block,) = read(file, data, replace(schema, key=("f",)), DumpOptions())
    assert [(reject.line, reject.column) for reject in block.rejects] == [(2, "f")]


def test_a_zero_date_in_the_key_is_rejected() -> None:
    schema = created("create table t (d date primary key, a int)")
    file, data = file_of(csv_file(schema.columns, [("0000-00-00", "1"), ("2024-01-01", "2")], Writing()), "csv")
    (block,) = read(file, data, schema, DumpOptions())
    assert [(reject.line, reject.column) for reject in block.rejects] == [(2, "d")]
