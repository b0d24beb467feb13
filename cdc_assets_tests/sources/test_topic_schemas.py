"""DDL messages and the setting `schemas` -> schema files."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.messages import SchemaEvent
from cdc_assets.history.history import read_history
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.splits import SchemaFile
from cdc_assets.sources.topics.schemas import DdlEvent, OlderTables, older_tables, read_older_tables, schema_files

T, U = TableId("shop", "t"), TableId("shop", "u")
DUMP = r"""-- MySQL dump 10.13
/*!40101 SET NAMES utf8 */;
/*!40014 SET FOREIGN_KEY_CHECKS=0*/;
CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop` /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci */;
USE `shop`;
DROP TABLE IF EXISTS `t`;
CREATE TABLE `t` (
  `id` int(11) NOT NULL COMMENT 'a; semicolon',
  `v` varchar(9) DEFAULT NULL,
  PRIMARY KEY (`id`)
);
CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`%` SQL SECURITY DEFINER VIEW `w` AS SELECT 1;
CREATE TABLE `other`.`u.x` (`e` enum('a,b','c;d') CHARACTER SET latin1 NOT NULL, UNIQUE KEY `k` (`e`));
"""


def names(files: tuple[SchemaFile, ...]) -> list[tuple[str, int]]:
    return [(str(life.born_as), life.version) for life in read_history(files).lives]


def test_a_dump_of_schemas_gives_tables_and_what_they_inherit() -> None:
    older = read_older_tables(DUMP, "schemas.sql")
    assert set(older.tables) == {T, TableId("other", "u.x")}
    assert older.tables[T].column("v").collation == "utf8mb4_general_ci"
    assert (older.tables[T].key, older.tables[TableId("other", "u.x")].key) == (("id",), ("e",))
    assert older.collations == {"shop": "utf8mb4_general_ci"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("CREATE TABLE t (a INT);", "no database"),
        ("CREATE TABLE s.t (a INT); CREATE TABLE s.T (a INT);", "twice"),
        ("CREATE TABLE s.t (a INT)", "semicolon"),
        ("ALTER TABLE s.t ADD b INT;", "ALTER TABLE s.t ADD b INT gives no schema"),
        ("CREATE TABLE s.t (a TESSERACT);", "TESSERACT"),
        ("CREATE TABLE s.t (a INT) AS SELECT 1 AS b;", "query"),
        ("CREATE TABLE s.`t (a INT);", "quote"),
    ],
)
def test_what_states_no_schema_is_refused_with_the_file_and_the_statement(text: str, says: str) -> None:
    with pytest.raises(BadSettings) as error:
        read_older_tables(text, "schemas.sql")
    assert "schemas.sql: " in error.value.message
    assert says in error.value.message


@pytest.mark.parametrize("comment", ["# it's MySQL's", "-- it's anyone's"])
def test_the_tables_of_a_connector_s_source_are_described_in_mysql_s_words_too(comment: str, tmp_path: Path) -> None:
    path = tmp_path / "schemas.sql"
    path.write_text(f"{comment}\nCREATE TABLE `shop`.`t` (`a` int NOT NULL COMMENT 'it\\'s', PRIMARY KEY (`a`));\n")
    older = older_tables(str(path), MessageOptions(protocol="debezium-json"))
    assert [(column.name, column.type) for column in older.tables[TableId("shop", "t")].columns] == [("a", "INT")]


def test_what_no_source_of_a_connector_says_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "schemas.sql"
    path.write_text("CREATE TABLE t (a int DEFAULT 'x);")
    with pytest.raises(BadSettings, match="a quote is not closed"):
        older_tables(str(path), MessageOptions(protocol="debezium-json"))


def test_a_table_of_the_setting_begins_before_the_topic_unless_the_topic_creates_it() -> None:
    older = read_older_tables("CREATE TABLE shop.t (a INT); CREATE TABLE shop.u (b INT);", "schemas.sql")
    events = [DdlEvent(10, T, "ALTER TABLE t ADD COLUMN c INT"), DdlEvent(20, U, "CREATE TABLE u (x INT)")]
    files = schema_files(events, (), older, 5)
    assert names(files) == [("shop.t", 5), ("shop.u", 20)]
    table = next(iter(read_history(files).lives.values()))
    assert [column.name for column in table.schema.columns] == ["a", "c"]


def test_tables_inherit_the_collation_that_the_setting_has_for_their_database() -> None:
    older = OlderTables(collations={"sh`op": "utf8mb4_unicode_ci"})
    event = DdlEvent(10, TableId("sh`op", "t"), "CREATE TABLE t (a TEXT)")
    (table,) = read_history(schema_files([event], (), older, 5)).lives.values()
    assert table.schema.column("a").collation == "utf8mb4_unicode_ci"


def test_a_ddl_that_comes_in_every_partition_and_again_after_a_restart_counts_once() -> None:
    event = DdlEvent(10, T, "CREATE TABLE t (a INT)")
    assert len(schema_files([event, event, event], (), OlderTables(), 5)) == 1


def test_a_ddl_of_a_database_may_name_it_in_its_text_only() -> None:
    events = [
        DdlEvent(10, None, "CREATE DATABASE IF NOT EXISTS `my db` COLLATE utf8mb4_general_ci"),
        DdlEvent(20, None, "DROP DATABASE IF EXISTS `my db`"),
    ]
    assert [file.table for file in schema_files(events, (), OlderTables(), 5)] == [TableId("my db", "")] * 2
    with pytest.raises(MalformedData, match="names no table"):
        schema_files([DdlEvent(10, None, "ALTER TABLE t ADD COLUMN c INT")], (), OlderTables(), 5)


def test_rows_are_read_by_what_they_show_and_a_schema_in_a_ddl_counts_after_it() -> None:
    schema = TableSchema((Column("a", "INT"),))
    row = SchemaEvent(0, T, 10, schema, ("approximate",))
    (file,) = schema_files([], [row], OlderTables(), 5)
    assert (file.version, file.whole, file.approximate) == (9, schema, ("approximate",))
    alter, drop = DdlEvent(10, T, "ALTER TABLE t ADD COLUMN a INT"), DdlEvent(20, T, "DROP TABLE t")
    events = [SchemaEvent(0, T, 10, schema), SchemaEvent(0, T, 20, schema)]
    files = schema_files([alter, drop], events, OlderTables(), 5)
    assert [(file.version, bool(file.query)) for file in files] == [(10, False), (10, True), (20, True)]
    assert names(files) == [("shop.t", 10)]
