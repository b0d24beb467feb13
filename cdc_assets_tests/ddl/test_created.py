"""The schema that a CREATE TABLE text alone leads to, against the schema files that TiCDC wrote for the same texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cdc_assets.ddl import CreateTableStatement, Unreadable, create, created, evolve, statement
from cdc_assets.errors import MalformedSchemaFile
from cdc_assets.model.schema import Column, Index
from cdc_assets.model.splits import SchemaFile
from cdc_assets.sources.storage_sink.schema_file import parse_schema_file
from cdc_assets_tests.cases import cases
from cdc_assets_tests.schema_files import file


def recorded() -> Iterator[tuple[str, SchemaFile]]:
    """Yield every recorded CREATE TABLE with its schema file, once for each text."""
    seen = set()
    for case in cases():
        for config in case.configs:
            bucket = config.bucket()
            for path in sorted(bucket.rglob("schema_*.json")):
                if not path.is_file():
                    continue
                try:
                    read = parse_schema_file(path.relative_to(bucket).as_posix(), path.read_bytes())
                except MalformedSchemaFile:
                    continue
                parsed_statement = statement(read)
                if (
                    isinstance(parsed_statement, CreateTableStatement)
                    and parsed_statement.like is None
                    and read.query not in seen
                ):
                    seen.add(read.query)
                    yield f"{config}: {read.table}", read


def test_every_recorded_create_gives_the_columns_and_the_key_of_its_schema_file() -> None:
    count = 0
    for where, schema_file in recorded():
        stated = replace(schema_file, columns=tuple(replace(column, id=None) for column in schema_file.columns))
        assert created(schema_file.query) == create(stated, None, None), where
        count += 1
    assert count


SHOWN = """CREATE TABLE `t` (
  `id` bigint(20) unsigned NOT NULL /*T![auto_rand] AUTO_RANDOM(5) */,
  `z` int(8) unsigned zerofill DEFAULT '00000007',
  `n` decimal(10,2) DEFAULT NULL,
  `c` varchar(20) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'it''s' COMMENT 'a; comment',
  `e` enum('a','b''c') NOT NULL DEFAULT 'a',
  `ts` timestamp(3) NULL DEFAULT '2024-01-01 08:00:00.500',
  `at` datetime(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  `v` bigint(20) GENERATED ALWAYS AS (`id` + 1) VIRTUAL,
  `s` bigint(20) GENERATED ALWAYS AS (`id` * 2) STORED NOT NULL,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */,
  UNIQUE KEY `ue` (`e`,`s`),
  KEY `kx` ((lower(`c`)))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci AUTO_INCREMENT=5 COMMENT='orders; all'
PARTITION BY RANGE (`id`)
(PARTITION `p0` VALUES LESS THAN (10),
 PARTITION `p1` VALUES LESS THAN (MAXVALUE))
"""


def test_a_text_of_show_create_table_gives_all_that_it_states() -> None:
    schema = created(SHOWN, timezone="+08:00", shown=True)
    assert schema.columns == (
        Column("id", "BIGINT", True, 20, nullable=False, is_pk=True),
        Column("z", "INT", True, 8, default="00000007"),
        Column("n", "DECIMAL", False, 10, 2),
        Column("c", "VARCHAR", False, 20, default="it's", collation="latin1_bin"),
        Column("e", "ENUM", nullable=False, default="a", elems=("a", "b'c"), collation="utf8mb4_general_ci"),
        Column("ts", "TIMESTAMP", scale=3, default="2024-01-01 00:00:00.500"),
        Column("at", "DATETIME", scale=6, default="CURRENT_TIMESTAMP"),
        Column("v", "BIGINT", False, 20, virtual=True),
        Column("s", "BIGINT", False, 20, nullable=False),
    )
    assert [column.generated for column in schema.columns[-2:]] == ["`id` + 1", "`id` * 2"]
    assert [column.name for column in schema.columns if column.zerofill] == ["z"]
    assert schema.column("c").comment == "a; comment"
    assert (schema.key, schema.clustered, schema.comment) == (("id",), True, "orders; all")
    assert schema.partitioning is not None
    assert [partition.less_than for partition in schema.partitioning.partitions] == [("10",), (None,)]


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("bool", Column("c", "TINYINT", False, 1)),
        ("tinyint(1)", Column("c", "TINYINT", False, 1)),
        ("int unsigned", Column("c", "INT", True, 10)),
        ("integer", Column("c", "INT", False, 11)),
        ("int8", Column("c", "BIGINT", False, 20)),
        ("bigint zerofill", Column("c", "BIGINT", True, 20)),
        ("numeric", Column("c", "DECIMAL", False, 10, 0)),
        ("decimal(65,30) unsigned", Column("c", "DECIMAL", True, 65, 30)),
        ("float(20)", Column("c", "FLOAT", False, 12)),
        ("float(25)", Column("c", "DOUBLE", False, 22)),
        ("float(9,3)", Column("c", "FLOAT", False, 9, 3)),
        ("double precision", Column("c", "DOUBLE", False, 22)),
        ("real unsigned", Column("c", "DOUBLE", True, 22)),
        ("bit", Column("c", "BIT", True, 1)),
        ("bit(5) default b'101'", Column("c", "BIT", True, 5, default=5)),
        ("year(4)", Column("c", "YEAR", True, 4)),
        ("char", Column("c", "CHAR", False, 1, collation="utf8mb4_bin")),
        ("char character set latin1", Column("c", "CHAR", False, 1, collation="latin1_bin")),
        ("national varchar(5)", Column("c", "VARCHAR", False, 5, collation="utf8mb4_bin")),
        ("character varying(5)", Column("c", "VARCHAR", False, 5, collation="utf8mb4_bin")),
        ("long varchar", Column("c", "MEDIUMTEXT", False, 16777215, collation="utf8mb4_bin")),
        ("text(63)", Column("c", "TINYTEXT", False, 255, collation="utf8mb4_bin")),
        ("text(64)", Column("c", "TEXT", False, 65535, collation="utf8mb4_bin")),
        ("blob(65536)", Column("c", "MEDIUMBLOB", False, 16777215)),
        ("varchar(9) character set binary", Column("c", "VARBINARY", False, 9)),
        ("text collate binary", Column("c", "BLOB", False, 65535)),
        ("varchar(9) collate gbk_bin", Column("c", "VARCHAR", False, 9, collation="gbk_bin")),
        ("binary", Column("c", "BINARY", False, 1)),
        ("varbinary(4) default x'ff00'", Column("c", "VARBINARY", False, 4, default=b"\xff\x00")),
        ("datetime(0)", Column("c", "DATETIME")),
        ("time(2)", Column("c", "TIME", scale=2)),
        ("vector(3)", Column("c", "VECTOR")),
        ("json", Column("c", "JSON")),
        ("set('x','y ')", Column("c", "SET", elems=("x", "y"), collation="utf8mb4_bin")),
        ("int not null default 7", Column("c", "INT", False, 11, nullable=False, default="7")),
        ("boolean default true", Column("c", "TINYINT", False, 1, default="1")),
        ("int default (1 + 2)", Column("c", "INT", False, 11)),
        ("date default (current_date)", Column("c", "DATE")),
    ],
)
def test_a_definition_gives_the_column_that_ticdc_lists(definition: str, expected: Column) -> None:
    assert created(f"create table t (k int primary key, c {definition})").column("c") == expected


def test_serial_is_a_unique_number() -> None:
    schema = created("create table t (c serial)")
    assert schema.columns == (Column("c", "BIGINT", True, 20, nullable=False),)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("primary key (b, a)", ("b", "a")),
        ("unique key u (a), unique key w (n)", ("a",)),
        ("unique key w (a, b), unique key u (b)", ("b",)),
        ("unique key u (b(4))", ()),
        ("unique key u ((a + 1))", ()),
        ("unique key u (n)", ()),
        ("unique key u (g)", ()),
        ("key k (a)", ()),
        ("period for p (b, n), primary key (a, p without overlaps)", ("a", "b", "n")),
        ("period for p (b, n), unique key u (a, p)", ()),
    ],
)
def test_the_key_is_the_primary_key_else_unique_and_not_null(keys: str, expected: tuple[str, ...]) -> None:
    columns = "a int not null, b varchar(9) not null, n int, g int generated always as (a) virtual not null"
    assert created(f"create table t ({columns}, {keys})").key == expected


def test_columns_of_the_primary_key_are_not_null() -> None:
    schema = created("create table t (A int, b int, primary key (a))")
    assert [(column.nullable, column.is_pk) for column in schema.columns] == [(False, True), (True, False)]
    assert schema.indexes == (Index("PRIMARY", ("A",), True, True),)


def test_a_table_inherits_its_collation_from_its_database() -> None:
    schema = created("create table t (c text, b text collate ascii_bin)", database_collation="utf8mb4_general_ci")
    assert [column.collation for column in schema.columns] == ["utf8mb4_general_ci", "ascii_bin"]


def test_a_table_in_the_binary_charset_has_bytes() -> None:
    schema = created("create table t (c char(3), t text, e enum('x')) default charset=binary")
    assert [column.type for column in schema.columns] == ["BINARY", "BLOB", "ENUM"]


def test_members_that_show_create_table_prints_in_two_ways_are_not_known() -> None:
    sql = r"CREATE TABLE `t` (`e` enum('a\n','b'), `f` enum('a\\b'))"
    assert [column.elems for column in created(sql, shown=True).columns] == [None, (r"a\\b",)]
    assert created(sql).column("e").elems == (r"a\n", "b")


@pytest.mark.parametrize(
    "sql",
    [
        "create view v as select 1",
        "create table t (a tesseract)",
        "create table t (a int, A int)",
        "create table t (a int, primary key (b))",
        "create table t like other",
        "create table t ()",
        "create table t (a int default",
        "",
    ],
)
def test_what_gives_no_schema_is_refused(sql: str) -> None:
    with pytest.raises(Unreadable):
        created(sql)


def test_like_takes_the_other_tables_schema() -> None:
    other = created("create table o (a int primary key, b varchar(3) comment 'x')")
    assert created("create table t like o", like=other) == other


@pytest.mark.parametrize(
    ("query", "comment", "clustered"),
    [
        ("ALTER TABLE `t` ADD INDEX `i`(`b`)", "old", True),
        ("ALTER TABLE `t` COMMENT = 'new' COLLATE = utf8mb4_general_ci", "new", True),
        ("ALTER TABLE `t` COMMENT = ''", "", True),
        ("ALTER TABLE `t` DROP PRIMARY KEY", "old", None),
    ],
)
def test_what_only_texts_state_outlives_an_alter(query: str, comment: str, clustered: bool | None) -> None:
    sql = "CREATE TABLE `t` (`a` INT PRIMARY KEY /*T![clustered_index] CLUSTERED */,`b` INT AS (`a`*2) STORED)"
    before = created(f"{sql} COMMENT='old'")
    columns = tuple(replace(column, is_pk=column.is_pk and clustered is not None) for column in before.columns)
    after = evolve(before, file(query, 0, *columns), None)[0]
    assert (after.comment, after.clustered, after.column("b").generated) == (comment, clustered, "`a` * 2")


EVERYTHING = """CREATE TABLE `we``ird, name` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `u` varchar(36) DEFAULT uuid(),
  `j` json DEFAULT NULL,
  `v` vector(3) DEFAULT NULL COMMENT 'a vector; `id` bigint(20),',
  `e` set('a,b','c)d') CHARACTER SET ascii COLLATE ascii_bin DEFAULT 'c)d',
  `at` timestamp DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  `x` int(11) DEFAULT NULL /*T![placement] nothing */,
  PRIMARY KEY (`id`) /*T![clustered_index] NONCLUSTERED */,
  UNIQUE KEY `g` (`x`) /*T![global_index] GLOBAL */,
  KEY `m` ((cast(`j` as unsigned array))) COMMENT 'index; of members',
  KEY `p` (`u`(10)) /*!80000 INVISIBLE */,
  VECTOR INDEX `vi`((VEC_COSINE_DISTANCE(`v`))),
  CONSTRAINT `fk` FOREIGN KEY (`x`) REFERENCES `other` (`id`) ON DELETE CASCADE ON UPDATE SET NULL,
CONSTRAINT `c` CHECK ((`x` > 0)) /*!80016 NOT ENFORCED */
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin AUTO_INCREMENT=31 /*T![auto_id_cache] AUTO_ID_CACHE=1 */ \
/*T! SHARD_ROW_ID_BITS=4 PRE_SPLIT_REGIONS=2 */ COMMENT='it''s' /*T![placement] PLACEMENT POLICY=`p1` */ /* CACHED ON */
PARTITION BY LIST COLUMNS(`u`)
(PARTITION `p0` VALUES IN ('a','b') COMMENT 'x',
 PARTITION `p1` DEFAULT) /*T![ttl] TTL=`at` + INTERVAL 1 DAY */ /*T![ttl] TTL_ENABLE='ON' */ \
/*T![ttl] TTL_JOB_INTERVAL='1h' */"""


def test_what_else_show_create_table_prints_is_stepped_over() -> None:
    schema = created(EVERYTHING, shown=True)
    assert [column.name for column in schema.columns] == ["id", "u", "j", "v", "e", "at", "x"]
    assert [column.type for column in schema.columns] == [
        "BIGINT",
        "VARCHAR",
        "JSON",
        "VECTOR",
        "SET",
        "TIMESTAMP",
        "INT",
    ]
    assert schema.column("e").elems == ("a,b", "c)d")
    assert schema.column("u").default is None
    assert (schema.key, schema.clustered, schema.comment) == (("id",), False, "it's")
    assert [(index.name, index.unique) for index in schema.indexes if index.unique] == [("PRIMARY", True), ("g", True)]
    assert schema.partitioning is not None
    assert [partition.values for partition in schema.partitioning.partitions] == [(("'a'",), ("'b'",)), (("DEFAULT",),)]
