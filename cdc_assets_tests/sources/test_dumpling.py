"""A dump's directory: what is in it, what is odd, and the rows of all its tables."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.ddl import created
from cdc_assets.decoding.validate import check
from cdc_assets.errors import BucketMissing, MalformedDump
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP
from cdc_assets.model.dumps import Dump, DumpFile, DumpOptions
from cdc_assets.model.schema import TableId
from cdc_assets.sources import connect_dump
from cdc_assets.sources.dumpling.directory import read_dump
from cdc_assets.sources.dumpling.splits import splits_of
from cdc_assets_tests.cases import Case, assert_equal_tables, cases
from cdc_assets_tests.dump_cases import opener, rows_of_dump, tables_of
from cdc_assets_tests.dump_writer import Writing, metadata_file, write_dump

AT = 434217889191428107
ORDERS = TableId("shop", "orders")
SCHEMA = created("create table orders (id int primary key, v varchar(20))")
ROWS = [(str(number), "x") for number in range(10)]


def dump_of(directory: Path, at: int | None = None) -> Dump:
    return read_dump(opener(directory), at)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A dump of one table in two chunks."""
    write_dump(tmp_path / "dump", {ORDERS: (SCHEMA, ROWS)}, AT, Writing(), chunk_rows=5)
    return tmp_path / "dump"


def problem(directory: Path) -> str:
    listed_dump = dump_of(directory)
    assert not listed_dump.tables
    return listed_dump.problems[ORDERS]


# --- whole dumps ------------------------------------------------------------------------------------------------------


WRITINGS = [
    ("csv", "", Writing()),
    ("csv", "gzip", Writing(options=DumpOptions(escape_backslash=False, output_dialect="snowflake"))),
    ("csv", "snappy", Writing(options=DumpOptions(separator="|+|", delimiter="", header=False), terminator="\n")),
    ("sql", "", Writing(statement_bytes=500)),
    ("sql", "zstd", Writing(options=DumpOptions(escape_backslash=False), complete_insert=True)),
    ("parquet", "", Writing()),
]
RECORDED = [
    pytest.param(
        case,
        *writing,
        marks=() if (place + number) % 2 == 0 else pytest.mark.soak,
        id=f"{case}-{'-'.join(writing[:2])}",
    )
    for place, case in enumerate(cases())
    for number, writing in enumerate(WRITINGS)
]
"""Of each case every second way to write it, of the next one the others; the soak has all."""


@pytest.mark.parametrize(("case", "kind", "compression", "how"), RECORDED)
def test_a_dump_of_recorded_tables_holds_what_the_source_held(
    case: Case, kind: str, compression: str, how: Writing, tmp_path: Path
) -> None:
    contents = case.expected()
    write_dump(tmp_path, tables_of(contents), AT, how, kind, compression, chunk_rows=40)
    dump = dump_of(tmp_path)
    assert dump.problems == {}
    assert [table.id for table in dump.tables] == sorted(contents)
    for table, decoded in rows_of_dump(dump, tmp_path, how.options).items():
        assert [reject for block in decoded for reject in block.rejects] == []
        if decoded:
            rows = pa.concat_tables([block.changes for block in decoded])
            assert set(rows.column(COMMIT_TS).to_pylist()) == {AT}
            assert_equal_tables(contents[table], rows.drop_columns([OP, COMMIT_TS, LINE]))
            schema = next(dumped_table.schema for dumped_table in dump.tables if dumped_table.id == table)
            assert [check(block.changes, schema, "", notes=block.notes).total for block in decoded] == [0] * len(
                decoded
            )
        else:
            assert not contents[table].rows


def test_a_dump_has_its_tso_its_tables_and_what_it_leaves_out(directory: Path) -> None:
    for name in ("shop.v-schema.sql", "shop.v-schema-view.sql", "shop.s-schema-sequence.sql", "notes.txt"):
        (directory / name).write_text("CREATE TABLE `v` (\n`a` int);\n")
    dump = dump_of(directory)
    assert (dump.at, dump.started, dump.finished) == (AT, "2022-06-28 17:49:54", "2022-06-28 17:49:57")
    (table,) = dump.tables
    assert table.id == ORDERS
    assert [file.number for file in table.files] == ["000000000", "000000001"]
    assert table.size == sum(file.size for file in table.files) > 0
    assert dump.left_out == (TableId("shop", "s"), TableId("shop", "v"))
    assert dump.ignored == {"no name of a dump's file": 1}
    assert dump.problems == {}
    assert dump.warnings == ()


def test_a_table_without_a_file_was_empty(directory: Path) -> None:
    (directory / "shop.empty-schema.sql").write_text(
        "CREATE TABLE `empty` (\n  `a` int(11) NOT NULL\n) ENGINE=InnoDB;\n"
    )
    files_by_table = {table.id.table: len(table.files) for table in dump_of(directory).tables}
    assert files_by_table == {"empty": 0, "orders": 2}


def test_a_dump_without_any_rows_is_one_of_empty_tables_and_says_so(directory: Path) -> None:
    for path in directory.glob("*.csv"):
        path.unlink()
    dump = dump_of(directory)
    assert (dump.rowless, [table.files for table in dump.tables], dump.problems) == (True, [()], {})
    (warning,) = dump.warnings
    assert "count as empty" in warning
    assert "--no-data" in warning


def test_a_database_gives_its_tables_their_collation(directory: Path) -> None:
    text = (
        "/*!40101 SET NAMES binary*/;\nCREATE DATABASE `shop` /*!40100 DEFAULT CHARACTER SET gbk COLLATE gbk_bin */;\n"
    )
    (directory / "shop-schema-create.sql").write_text(text)
    (directory / "shop.orders-schema.sql").write_text(
        "CREATE TABLE `orders` (\n  `id` int(11),\n  `v` varchar(20)\n);\n"
    )
    (table,) = dump_of(directory).tables
    assert table.schema.column("v").collation == "gbk_bin"


# --- metadata ---------------------------------------------------------------------------------------------------------


def test_a_dump_without_metadata_is_refused_until_its_tso_is_stated(directory: Path) -> None:
    (directory / "metadata").unlink()
    with pytest.raises(MalformedDump, match=r"it has no `metadata`.*initial\.at"):
        dump_of(directory)
    assert dump_of(directory, AT).at == AT


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (metadata_file(AT, finished=""), "no `Finished dump at`"),
        (metadata_file(AT).replace(str(AT).encode(), b"2020-07-02 17:12:45"), 'the position "2020-07-02 17:12:45"'),
        (metadata_file(AT, log="mysql-bin.000003"), 'the log "mysql-bin.000003", which is not of TiDB'),
        (b"", "no `Finished dump at`"),
        (b"Finished dump at: 2022-06-28 17:49:57\n", "no position of a TiDB cluster"),
        (metadata_file(2**63), "the position"),
    ],
)
def test_a_metadata_file_without_a_tso_is_refused_until_it_is_stated(directory: Path, data: bytes, says: str) -> None:
    (directory / "metadata").write_bytes(data)
    with pytest.raises(MalformedDump, match=says):
        dump_of(directory)
    assert dump_of(directory, AT).at == AT


def test_a_stated_tso_may_not_contradict_the_metadata(directory: Path) -> None:
    with pytest.raises(MalformedDump, match=f"has the TSO {AT}, and 7 is given"):
        dump_of(directory, 7)


@pytest.mark.parametrize(
    "text",
    [
        "SHOW BINARY LOG STATUS:\n\tLog: tidb-binlog\n\tPos: 5\n\tGTID:\n\nFinished dump at: 2024\n",
        "SHOW MASTER STATUS:\r\n\tLog: tidb-binlog\r\n\tPos: 5\r\n\r\nFinished dump at: 2024\r\n",
        "SHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: 5\n\tGTID:\n\nSHOW MASTER STATUS: /* AFTER CONNECTION POOL "
        "ESTABLISHED */\n\tLog: tidb-binlog\n\tPos: 9\n\tGTID:\n\nFinished dump at: 2024\n",
        "SHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: 5\n\nSHOW SLAVE STATUS:\n\tHost: h\n\tLog: x\n\tPos: 9\n\n"
        "Finished dump at: 2024\n",
    ],
)
def test_the_first_block_of_metadata_is_the_dumps(directory: Path, text: str) -> None:
    (directory / "metadata").write_bytes(text.encode())
    assert dump_of(directory).at == 5


def test_an_empty_directory_and_one_without_a_dump_are_distinguished(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(BucketMissing, match="holds nothing"):
        dump_of(tmp_path / "nowhere")
    with pytest.raises(MalformedDump, match="dump/metadata is there: give the directory of that dump"):
        dump_of(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metadata").write_bytes(metadata_file(AT))
    with pytest.raises(MalformedDump, match="no file of a table"):
        dump_of(tmp_path / "other")


def test_a_finished_dump_of_databases_without_tables_is_one(tmp_path: Path) -> None:
    write_dump(tmp_path / "bare", {}, AT, Writing())
    (tmp_path / "bare" / "shop-schema-create.sql").write_bytes(b"CREATE DATABASE `shop`;\n")
    listed_dump = dump_of(tmp_path / "bare")
    assert (listed_dump.tables, listed_dump.problems) == ((), {})
    assert any("no table" in text for text in listed_dump.warnings)


# --- tables that cannot be taken --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ({"shop.orders-schema.sql": None}, "has no schema file shop.*-schema.sql"),
        ({"shop.orders.000000000.sql": b"x"}, "are the same chunk"),
        ({"shop.orders.000000000.csv.gz": b"x"}, "are the same chunk"),
        ({"shop.orders.000000007.csv.gz": b"x"}, "were written in different ways"),
        ({"shop.orders.0000000000007.csv": b"x"}, "are numbered in different ways"),
        ({"shop.orders.csv": b"x"}, "are numbered in different ways"),
        ({"shop.orders-schema.sql.gz": b"x"}, "it has 2 schema files"),
        ({"shop.orders.000000007.csv": b""}, "is empty, and Dumpling writes no file without rows"),
        ({"shop.orders.000000007.csv.lz4": b"x"}, "compressed with lz4, which cannot be read"),
        ({"shop.orders.000000007.csv.foo": b"x"}, "not a known compression"),
        ({"shop.orders-schema.sql": b"CREATE TABLE `orders` (\n  `id` int"}, "does not end with a semicolon"),
        ({"shop.orders-schema.sql": b"CREATE TABLE `other` (\n  `id` int);\n"}, 'creates the table "other"'),
        ({"shop.orders-schema.sql": b"CREATE TABLE `orders` (\n  `id` tesseract);\n"}, "TESSERACT, which is not known"),
        ({"shop.orders-schema.sql": b"/*!40101 SET NAMES binary*/;\n"}, "0 CREATE TABLEs where one is expected"),
        ({"shop.orders-schema.sql": b"CREATE TABLE `orders` (\n  `\xff` int);\n"}, "cannot be read"),
        ({"shop.orders-schema.sql": None, "shop.orders-schema.sql.gz": b"no gzip"}, "not a whole gzip file"),
    ],
)
def test_files_that_do_not_belong_together_hold_their_table(
    directory: Path, spoil: dict[str, bytes | None], says: str
) -> None:
    for name, data in spoil.items():
        if data is None:
            (directory / name).unlink()
        else:
            (directory / name).write_bytes(data)
    assert says in problem(directory)


def test_other_tables_go_on_beside_one_that_cannot_be_read(directory: Path) -> None:
    (directory / "shop.bad-schema.sql").write_text("CREATE TABLE")
    dump = dump_of(directory)
    assert [table.id for table in dump.tables] == [ORDERS]
    assert list(dump.problems) == [TableId("shop", "bad")]


def test_a_result_of_sql_without_a_schema_is_a_problem(directory: Path) -> None:
    (directory / "result.000000000.csv").write_bytes(b"x")
    listed_dump = dump_of(directory)
    assert "without --sql" in listed_dump.problems[TableId("result", "000000000")]


def test_numbers_that_outgrow_their_width_are_of_one_dump(directory: Path) -> None:
    for number in ("000000001", "000000000"):
        (directory / f"shop.orders.{number}.csv").unlink()
    for number in ("0001", "9999", "10000"):
        (directory / f"shop.orders.{number}.csv").write_bytes(b'"id","v"\r\n')
    assert [file.number for file in dump_of(directory).tables[0].files] == ["0001", "10000", "9999"]


def test_files_from_before_the_dump_are_reported(directory: Path) -> None:
    os.utime(directory / "metadata", (10_000, 10_000))
    for path in directory.glob("*.*"):
        os.utime(path, (9_999, 9_999))
    assert dump_of(directory).warnings == ()
    os.utime(directory / "shop.orders.000000001.csv", (5_000, 5_000))
    (warning,) = dump_of(directory).warnings
    assert "shop.orders.000000001.csv first, are older than its beginning" in warning


@pytest.mark.parametrize(
    "name", ["../../etc", "a/b", "..", "x.y", "-schema", "100%", "a\nb", "meta", "naïve ß", "'\"`"]
)
def test_a_table_of_any_name_is_read_and_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    table = TableId(f"{name}db", name)
    write_dump(tmp_path / "dump", {table: (SCHEMA, ROWS)}, AT, Writing())
    assert [path.parent for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "dump"] * 4
    dump = dump_of(tmp_path / "dump")
    (table_blocks,) = rows_of_dump(dump, tmp_path / "dump", DumpOptions()).items()
    assert table_blocks[0] == table
    assert sum(block.changes.num_rows for block in table_blocks[1]) == 10


def test_a_file_is_cut_where_its_rows_allow_it() -> None:
    file = DumpFile("s.t.0.csv", ORDERS, "csv", "", "0", 1000)
    assert [(split.start, split.end) for split in splits_of(file, DumpOptions(), 300)] == [
        (0, 333),
        (333, 666),
        (666, 1000),
    ]
    assert len(splits_of(file, DumpOptions(escape_backslash=False), 300)) == 1
    assert len(splits_of(replace(file, compression="gzip"), DumpOptions(), 300)) == 1
    assert len(splits_of(replace(file, size=0), DumpOptions(), 300)) == 1


# --- as a source ------------------------------------------------------------------------------------------------------


def test_a_task_elsewhere_reads_what_the_source_of_a_dump_lists(directory: Path) -> None:
    source = connect_dump(opener(directory), DumpOptions())
    dump, reader = source.dump(), pickle.loads(pickle.dumps(source.reader))
    table = dump.tables[0]
    decoded = [
        block
        for file in table.files
        for split in source.splits(file)
        for block in reader.read(split, table, dump.at, source.generators(table))
    ]
    assert source.promised(table) == table.schema
    assert [row for block in decoded for row in block.changes["id"].to_pylist()] == list(range(10))
