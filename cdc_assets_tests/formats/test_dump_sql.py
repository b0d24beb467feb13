"""INSERT statements of Dumpling: whatever it writes reads back, and what it cannot have written is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.ddl import created
from cdc_assets.errors import MalformedData
from cdc_assets.features.dumps.formats import dump_format
from cdc_assets.formats.decoded import LINE
from cdc_assets.model.dumps import DumpOptions, DumpSplit
from cdc_assets.model.schema import TableSchema
from cdc_assets_tests.dump_contents import AT, TABLE, assert_reads_back, contents, file_of, read
from cdc_assets_tests.dump_writer import COMPRESSORS, Row, Writing, dumped, sql_file

WRITINGS = st.builds(
    Writing,
    options=st.builds(
        DumpOptions, escape_backslash=st.booleans(), timezone=st.sampled_from(["UTC", "+08:00", "Asia/Shanghai"])
    ),
    complete_insert=st.booleans(),
    statement_bytes=st.sampled_from([1, 60, 1_000_000]),
)
PLAIN = created("create table t (id int primary key, v varchar(20), n decimal(5,2))")
ROWS: list[Row] = [("1", "one", "1.00"), ("2", None, None), ("3", "it's (x),\n;", "3.50")]


def written(rows: list[Row] = ROWS, statement_bytes: int = 60, **given_options: object) -> bytes:
    options = replace(DumpOptions(), **given_options)  # type: ignore[arg-type]
    return sql_file("t", PLAIN.columns, rows, Writing(options=options, statement_bytes=statement_bytes))


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
    file, data = file_of(sql_file("t", dumped(schema), rows, how), "sql", compression)
    cuts = cuts if dump_format("sql").can_cut(how.options) and not compression else []
    assert_reads_back(read(file, data, schema, how.options, cuts, block_bytes), schema, rows, how.options.timezone)


def refused(data: bytes, schema: TableSchema = PLAIN, **given_options: object) -> MalformedData:
    file, stored = file_of(data, "sql")
    with pytest.raises(MalformedData) as refusal:
        read(file, stored, schema, replace(DumpOptions(), **given_options))  # type: ignore[arg-type]
    assert refusal.value.where["path"] == file.path
    return refusal.value


@pytest.mark.parametrize("escape", [True, False])
def test_a_file_that_was_cut_off_is_refused_wherever_it_was(escape: bool) -> None:
    data = written(escape_backslash=escape)
    whole = {0, *(at + 3 for at in range(len(data)) if data[at : at + 3] in (b");\n", b"*/;"))}
    for size in range(len(data)):
        if size not in whole and size - 1 not in whole:
            assert "cut off" in str(refused(data[:size], escape_backslash=escape)), data[:size]


@pytest.mark.parametrize(
    ("data", "line", "says"),
    [
        (written().replace(b"`t`", b"`other`"), 3, "where s.t is expected"),
        (written().replace(b"`t`", b"`x`.`t`"), 3, "where s.t is expected"),
        (written().replace(b"`t` ", b"`t` (`id`,`v`) "), 3, 'lacks the column "n"'),
        (written().replace(b"`t` ", b"`t` (`id`,`v`,`n`,`z`) "), 3, 'names the column "z"'),
        (written().replace(b"(1,'one'", b"(1,one"), 4, '"one" is neither in delimiters'),
        (written().replace(b"(1,'one',1.00),", b"(1,'one',1.00)"), 4, "does not end as a row"),
        (written().replace(b"(2,", b"\n(2,"), 5, "is not where it belongs"),
        (written().replace(b"(2,", b"DROP TABLE `t`;\n(2,"), 5, "neither a row nor the beginning"),
        (
            written(statement_bytes=1).replace(b"INSERT INTO `t` VALUES\n(3", b"INSERT INTO `u` VALUES\n(3"),
            7,
            "neither",
        ),
        (written([("1", "c:\\d", "1.00")], escape_backslash=False), 4, 'a backslash before "d"'),
        (written([("1", "a\nb", "1.00")], escape_backslash=False), 4, "does not end as a row"),
        (b"/* nothing */;\n(1,'x',1.00);\n", 2, "is not where it belongs"),
        (b'"id","v","n"\n1,"one",1.00\n', 1, "neither a row nor the beginning"),
    ],
)
def test_what_dumpling_does_not_write_is_refused_with_its_line(data: bytes, line: int, says: str) -> None:
    error = refused(data)
    assert says in str(error)
    assert error.where["line"] == line


def test_escapes_are_refused_where_none_are_expected() -> None:
    assert "line 4" in str(refused(written([("1", "it's", "1.00")]), escape_backslash=False))


def test_rows_without_a_column_list_have_the_columns_that_are_not_generated() -> None:
    schema = created("create table t (a int primary key, s int as (a*2) stored, v int as (a) virtual, b int)")
    file, data = file_of(sql_file("t", dumped(schema), [("1", "2")], Writing()), "sql")
    (block,) = read(file, data, schema, DumpOptions())
    assert block.changes.column_names[3:] == ["a", "b"]


@pytest.mark.parametrize("name", ["it's", "a`b", "x, y) VALUES (", "back\\slash", "x'00'"])
def test_odd_names_are_no_rows(name: str) -> None:
    schema = TableSchema((replace(PLAIN.columns[1], name=name), replace(PLAIN.columns[0], name=f"{name}2")))
    rows: list[Row] = [("x'0'", "1"), (None, "2")]
    file, data = file_of(sql_file("t", schema.columns, rows, Writing(complete_insert=True)), "sql")
    assert_reads_back(read(file, data, schema, DumpOptions()), schema, rows)


def test_a_quote_in_a_name_is_refused_where_line_ends_are_raw() -> None:
    schema = TableSchema((replace(PLAIN.columns[1], name="it's"),))
    data = sql_file("t", schema.columns, [("x",)], Writing(complete_insert=True))
    assert "Dump the table as CSV" in str(refused(data, schema, escape_backslash=False))


def test_rows_that_do_not_fit_name_their_line_in_the_file_and_keep_their_bytes() -> None:
    rows: list[Row] = [(str(number), "x", "many" if number % 40 == 9 else "1.00") for number in range(100)]
    data = written(rows, statement_bytes=1_000_000).replace(b"many", b"-1e9")
    file, stored = file_of(data, "sql")
    rejects = [
        reject for block in read(file, stored, PLAIN, DumpOptions(), cuts=[300, 700]) for reject in block.rejects
    ]
    lines = data.split(b"\n")
    assert [(reject.line, reject.raw) for reject in rejects] == [(line, lines[line - 1]) for line in (13, 53, 93)]


@pytest.mark.parametrize(("escape", "start", "end"), [(True, 0, 9999), (False, 0, 9999), (True, 200, 500)])
def test_records_are_found_again_by_their_lines(escape: bool, start: int, end: int) -> None:
    options = DumpOptions(escape_backslash=escape)
    rows: list[Row] = [(str(number), "a\nb", None) for number in range(50)]
    file, data = file_of(written(rows, statement_bytes=1_000_000, escape_backslash=escape), "sql")
    split = DumpSplit(file, start, min(end, file.size))

    def read_range(since: int, until: int) -> bytes:
        return data[since:until]

    (block,) = dump_format("sql").read(split, read_range, TABLE, PLAIN, options, AT)
    lines, ids = (block.changes.column(name).to_pylist() for name in (LINE, "id"))
    raws = dump_format("sql").raw_records(split, read_range, lines, options)
    assert [int(raws[line][1:].split(b",")[0]) for line in lines] == ids
    assert lines[0] + dump_format("sql").lines_before(split, read_range, options) == ids[0] + 4
