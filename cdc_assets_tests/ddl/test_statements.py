from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets import ddl
from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column, Index, TableId, TableSchema
from cdc_assets_tests.schema_files import ID, A, B, base, created, file

# --- statement --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["COLUMN a TO b", "INDEX a TO b", "KEY a TO b"])
def test_an_alter_that_renames_a_part_of_a_table_renames_no_table(part: str) -> None:
    assert ddl.rename_pairs(f"ALTER TABLE t RENAME {part}", "s") == ()
    assert ddl.rename_pairs("ALTER TABLE t RENAME `key`", "s") == ((TableId("s", "t"), TableId("s", "key")),)


TOLD = TableId("s", "t")
BY_TEXT = [
    ("ALTER TABLE `o`.`p` EXCHANGE PARTITION `p0` WITH TABLE `s`.`t`", TableId("o", "p")),
    ("ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `s`.`t`", TOLD),
    ("ALTER TABLE `S`.`T` ADD COLUMN `a` INT", TOLD),
    ("alter table o.p add index (`a`)", TableId("o", "p")),
    ("CREATE TABLE IF NOT EXISTS `o`.`p` (`a` INT)", TableId("o", "p")),
    ("CREATE TABLE `o`.`p` LIKE `s`.`t`", TableId("o", "p")),
    ("CREATE UNIQUE INDEX `i` ON `o`.`p` (`a`)", TableId("o", "p")),
    ("DROP INDEX `i` ON `o`.`p`", TableId("o", "p")),
    ("DROP TABLE IF EXISTS `o`.`p`", TableId("o", "p")),
    ("DROP TABLE `o`.`p`, `o`.`q`", TOLD),
    ("TRUNCATE TABLE `o`.`p`", TableId("o", "p")),
    ("RENAME TABLE `s`.`a` TO `o`.`p`", TableId("o", "p")),
    ("RENAME TABLE `s`.`a` TO `p`", TOLD),
    ("RENAME TABLE `s`.`a` TO `s`.`t`, `s`.`b` TO `s`.`c`", TOLD),
    ("ALTER TABLE `o`.`a` RENAME TO `o`.`p`", TableId("o", "p")),
    ("RECOVER TABLE `o`.`p`", TableId("o", "p")),
    ("RECOVER TABLE BY JOB 53", TOLD),
    ("FLASHBACK TABLE `o`.`a` TO `p`", TableId("o", "p")),
    ("CREATE VIEW `o`.`p` AS SELECT * FROM `s`.`t`", TOLD),
    ("CREATE DATABASE `o`", TOLD),
    ("ALTER TABLE `o`.`p", TOLD),
    ("", TOLD),
]


@pytest.mark.parametrize(("query", "expected"), BY_TEXT, ids=[case[0] for case in BY_TEXT])
def test_a_ddl_concerns_the_table_that_its_text_names_with_a_database(query: str, expected: TableId) -> None:
    assert ddl.table_by_text(query, TOLD) == expected


@pytest.mark.parametrize(
    ("query", "kind", "expected"),
    [
        ("", 0, ddl.SchemaSnapshot()),
        ("CREATE DATABASE IF NOT EXISTS `x`", 1, ddl.CreateDatabase()),
        (
            "CREATE DATABASE `x` CHARACTER SET UTF8MB4 COLLATE UTF8MB4_GENERAL_CI",
            1,
            ddl.CreateDatabase("utf8mb4_general_ci"),
        ),
        ("ALTER DATABASE `x` CHARACTER SET = GBK", 26, ddl.AlterDatabase("gbk_chinese_ci")),
        ("DROP DATABASE IF EXISTS `x`", 2, ddl.DropDatabase()),
        ("CREATE TABLE `t` (`a` INT)", 3, ddl.CreateTableStatement()),
        ("CREATE TABLE `t` (`a` INT)", 60, ddl.CreateTableStatement()),
        ("CREATE TABLE IF NOT EXISTS `t` LIKE `a`", 3, ddl.CreateTableStatement(TableId("s", "a"))),
        ("CREATE TABLE `t` (LIKE `o`.`a`)", 3, ddl.CreateTableStatement(TableId("o", "a"))),
        ("CREATE TABLE `s`.`t` LIKE `a`", 3, ddl.CreateTableStatement(TableId("", "a"))),
        ("DROP TABLE `s`.`t`", 4, ddl.DropTableStatement()),
        ("TRUNCATE TABLE `t`", 11, ddl.Truncate()),
        ("RENAME TABLE `o` TO `t`", 14, ddl.Rename(TableId("", "o"))),
        ("RENAME TABLE `p`.`o` TO `s`.`t`", 14, ddl.Rename(TableId("p", "o"))),
        ("RENAME TABLE `x` TO `y`, `o` TO `t`", 47, ddl.Rename(TableId("", "o"))),
        ("ALTER TABLE `o` RENAME AS `t`", 14, ddl.Rename(TableId("", "o"))),
        ("alter table o rename to t", 14, ddl.Rename(TableId("", "o"))),
        ("RENAME TABLE `x` TO `y`, `o` TO `s`.`t`", 47, ddl.Rename(TableId("", "o"), from_session=True)),
        ("ALTER TABLE `o` ADD `c` INT, RENAME = `s`.`t`", 14, ddl.Rename(TableId("", "o"), from_session=True)),
        ("ALTER TABLE `p`.`o` RENAME `t`", 14, ddl.Rename(TableId("p", "o"))),
        ("RECOVER TABLE `t`", 25, ddl.Recover(TableId("s", "t"))),
        ("RECOVER TABLE BY JOB 53", 25, ddl.Recover(TableId("s", "t"), by_job=True)),
        ("FLASHBACK TABLE `o` TO `t`", 25, ddl.Recover(TableId("s", "o"))),
        ("CREATE ALGORITHM = UNDEFINED DEFINER = `root`@`%` SQL SECURITY DEFINER VIEW `t` AS SELECT 1", 21, ddl.View()),
        ("DROP VIEW `s`.`t`", 24, ddl.View(dropped=True)),
        (
            "ALTER TABLE `s`.`t` EXCHANGE PARTITION `p0` WITH TABLE `s`.`x`",
            42,
            ddl.Exchange("p0", TableId("s", "x")),
        ),
        (
            "ALTER TABLE `t` EXCHANGE PARTITION `p0` WITH TABLE `x` WITHOUT VALIDATION",
            42,
            ddl.Exchange("p0", TableId("s", "x"), validated=False),
        ),
        ("ALTER TABLE `t` ADD COLUMN `c` INT", 5, ddl.Alter()),
        ("ALTER TABLE `t` RENAME COLUMN `a` TO `c`", 12, ddl.Alter()),
        ("CREATE UNIQUE INDEX `i` ON `t` (`a`)", 7, ddl.Alter()),
        ("ALTER TABLE `t` ADD COLUMN `c` INT", 999, ddl.Alter()),
        ("what 'is this", 5, ddl.Alter()),
        ("", 5, ddl.Alter()),
    ],
)
def test_a_ddl_is_known_by_its_text_and_by_its_type_where_the_text_is_not_read(
    query: str, kind: int, expected: object
) -> None:
    assert ddl.statement(file(query, kind)) == expected


@pytest.mark.parametrize(("query", "kind"), [("RENAME of something", 14), ("HELLO WORLD", 999), ("", 63), ("x", 42)])
def test_what_neither_text_nor_type_state_is_unknown_with_the_text_in_the_reason(query: str, kind: int) -> None:
    parsed_statement = ddl.statement(file(query, kind))
    assert isinstance(parsed_statement, ddl.Unknown)
    assert query in parsed_statement.reason


@settings(deadline=None, max_examples=50)
@given(st.text(alphabet=st.sampled_from("`'\"()/*T![], \\-#aALTERTABLE,DROP;.0x\n")), st.integers(0, 300))
def test_no_text_and_no_type_number_crashes(query: str, kind: int) -> None:
    ddl.statement(file(query, kind))


# --- create -----------------------------------------------------------------------------------------------------------


def test_members_come_from_the_text_with_quotes_commas_and_backslashes_as_they_are() -> None:
    text = r"CREATE TABLE `t` (`e` ENUM('a','b,c','d''e','','x\n'),`s` SET(_UTF8MB4'x','y '))"
    schema = created(text, Column("e", "ENUM"), Column("s", "SET"))
    assert schema.column("e").elems == ("a", "b,c", "d'e", "", r"x\n")
    assert schema.column("s").elems == ("x", "y")


def test_members_of_the_schema_file_win_over_the_text() -> None:
    assert created("CREATE TABLE `t` (`e` ENUM('z'))", Column("e", "ENUM", elems=("a",))).column("e").elems == ("a",)


def test_virtual_columns_are_known_by_the_text_and_stored_ones_are_ordinary() -> None:
    names = [Column(name, "INT") for name in ("a", "v", "w", "st", "tail")]
    schema = created(
        "CREATE TABLE `t` (`a` INT,`v` INT GENERATED ALWAYS AS(`a`+1) VIRTUAL,`w` INT AS (`a`*(2)) COMMENT 'STORED',"
        "`st` INT GENERATED ALWAYS AS(`a`*10) STORED,`tail` INT)",
        *names,
    )
    assert [column.name for column in schema.stored] == ["a", "st", "tail"]


@pytest.mark.parametrize(
    ("definition", "options", "database", "expected"),
    [
        ("VARCHAR(9)", "", None, "utf8mb4_bin"),
        ("VARCHAR(9)", "", "utf8mb4_general_ci", "utf8mb4_general_ci"),
        ("VARCHAR(9)", " DEFAULT CHARSET=GBK", "utf8mb4_general_ci", "gbk_chinese_ci"),
        (
            "VARCHAR(9)",
            " ENGINE=X CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci COMMENT='x'",
            None,
            "utf8mb4_unicode_ci",
        ),
        ("VARCHAR(9) CHARACTER SET LATIN1", " COLLATE utf8mb4_unicode_ci", None, "latin1_bin"),
        ("VARCHAR(9) CHARACTER SET ASCII", "", None, "ascii_bin"),
        ("VARCHAR(9) CHARACTER SET UTF8", "", None, "utf8_bin"),
        ("VARCHAR(9) COLLATE UTF8MB4_GENERAL_CI NOT NULL", " CHARSET GBK", None, "utf8mb4_general_ci"),
        ("VARCHAR(9) CHARACTER SET GBK COLLATE GBK_BIN", "", None, "gbk_bin"),
        ("VARCHAR(9) BINARY", " COLLATE utf8mb4_general_ci", None, "utf8mb4_bin"),
        ("CHAR CHARACTER SET ASCII", " COLLATE utf8mb4_general_ci", None, "ascii_bin"),
        ("LONGTEXT CHAR SET LATIN1", " COLLATE utf8mb4_general_ci", None, "latin1_bin"),
    ],
)
def test_a_collation_comes_from_the_column_then_the_table_then_the_database(
    definition: str, options: str, database: str | None, expected: str
) -> None:
    text = f"CREATE TABLE `t` (`b` {definition}){options}"
    assert ddl.create(file(text, 3, B), None, database).column("b").collation == expected


def test_numbers_have_no_collation() -> None:
    assert base().column("a").collation is None


def test_indexes_are_read_with_those_of_less_than_whole_rows_marked() -> None:
    schema = created(
        "CREATE TABLE `t` (`id` INT,`a` INT UNIQUE,`b` VARCHAR(10),"
        "PRIMARY KEY(`b`, `id`) /*T![clustered_index] CLUSTERED */,"
        "UNIQUE `p`(`b`(3)),KEY (`a` DESC),UNIQUE `e`((LOWER(`b`))),"
        "CONSTRAINT `f` FOREIGN KEY (`a`) REFERENCES `x`(`y`),"
        "CONSTRAINT `q` UNIQUE KEY (`id`) USING BTREE, CHECK (`a` > 1), FULLTEXT INDEX `ft`(`b`) WITH PARSER ngram)",
        ID,
        A,
        replace(B, is_pk=True, nullable=False),
    )
    assert schema.indexes == (
        Index("PRIMARY", ("b", "id"), True, True),
        Index("a", ("a",), True),
        Index("p", ("b",), True, partial=True),
        Index("a_2", ("a",)),
        Index("e", (), True, partial=True),
        Index("q", ("id",), True),
        Index("ft", ("b",)),
    )
    assert schema.key == ("b", "id")


def test_tidb_syntax_is_stepped_over() -> None:
    schema = created(
        "CREATE TABLE `t` (`id` BIGINT NOT NULL /*T![auto_rand] AUTO_RANDOM(5, 64) */ COMMENT 'a, b) ''',"
        "`a` INT DEFAULT NEXT VALUE FOR `sq`,PRIMARY KEY(`id`) /*T![clustered_index] NONCLUSTERED */,"
        "INDEX(`a`) INVISIBLE) ENGINE = InnoDB /*T! SHARD_ROW_ID_BITS=4 PRE_SPLIT_REGIONS=3 */ "
        "/*T![ttl] TTL=`a` + INTERVAL 3 MONTH TTL_ENABLE='OFF' */ "
        "/*T![placement] PLACEMENT POLICY=`p` */",
        ID,
        A,
    )
    assert schema.key == ("id",)
    assert schema.column("a").name == "a"


def test_names_may_hold_anything() -> None:
    odd = Column("a`b, ('x')", "INT")
    assert created("CREATE TABLE `x``y` (`a``b, ('x')` INT)", odd).columns == (odd,)


def test_a_file_whose_columns_contradict_its_create_is_held() -> None:
    with pytest.raises(TableHeld, match="columns b that the file does not list"):
        created("CREATE TABLE `t` (`a` INT,`b` INT)", A)


def test_without_text_the_file_alone_decides() -> None:
    schema = ddl.create(file("", 0, ID, B), None, "utf8mb4_general_ci")
    assert schema == TableSchema((ID, B), key=("id",))


def test_a_table_first_seen_by_an_alter_has_the_facts_of_that_text() -> None:
    schema = ddl.create(file("ALTER TABLE `t` ADD COLUMN `e` ENUM('x')", 5, ID, Column("e", "ENUM")), None, None)
    assert schema.column("e").elems == ("x",)


def test_create_like_takes_the_facts_of_its_model() -> None:
    like = created(
        "CREATE TABLE `a` (`id` INT PRIMARY KEY,`e` ENUM('x'),`v` INT AS (1)) PARTITION BY HASH (`id`) PARTITIONS 2",
        ID,
        Column("e", "ENUM"),
        Column("v", "INT"),
    )
    made = ddl.create(file("CREATE TABLE `t` LIKE `a`", 3, ID, Column("e", "ENUM"), Column("v", "INT")), like, None)
    assert made == like


def test_bit_and_binary_defaults_are_read_from_the_text() -> None:
    schema = created(
        "CREATE TABLE `t` (`b` BIT(10) DEFAULT b'1111111111',`v` VARBINARY(4) DEFAULT x'FF00',"
        "`w` BINARY(2) DEFAULT 'zz')",
        Column("b", "BIT", True, 10, default="\x03\ufffd"),
        Column("v", "VARBINARY", precision=4, default="\ufffd\0"),
        Column("w", "BINARY", precision=2, default="zz"),
    )
    assert [column.default for column in schema.columns] == [1023, b"\xff\0", "zz"]


# --- keys -------------------------------------------------------------------------------------------------------------

NN = Column("n", "INT", nullable=False)


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("`id` INT PRIMARY KEY,`n` INT NOT NULL,UNIQUE(`n`)", (ID, NN), ("id",)),
        ("`n` INT NOT NULL,`a` INT,UNIQUE(`n`,`a`),UNIQUE(`n`)", (NN, A), ("n",)),
        ("`n` INT NOT NULL,`a` INT,UNIQUE(`a`)", (NN, A), ()),
        ("`n` INT NOT NULL,`b` VARCHAR(10) NOT NULL,UNIQUE(`b`(2))", (NN, replace(B, nullable=False)), ()),
        ("`n` INT NOT NULL,`a` INT", (NN, A), ()),
        ("`n` INT NOT NULL,UNIQUE `u`(`n`) WHERE `n` > 3", (NN,), ()),
        ("`n` INT NOT NULL,UNIQUE `u`((`n` + 1))", (NN,), ()),
        ("`n` INT NOT NULL,UNIQUE `u`(`n`, (`n` + 1))", (NN,), ()),
        ("`n` INT NOT NULL,UNIQUE `u`(`n`) COMMENT 'WHERE' INVISIBLE WHATEVER", (NN,), ()),
        ("`n` INT NOT NULL,UNIQUE `u`(`n`) COMMENT 'WHERE `n` > 3' USING BTREE KEY_BLOCK_SIZE = 1", (NN,), ("n",)),
        ("`n` INT NOT NULL,UNIQUE `u` USING BTREE (`n` DESC) /*T![global_index] GLOBAL */ INVISIBLE", (NN,), ("n",)),
        (
            "`n` INT NOT NULL,UNIQUE `u`(`n`) /*T![pre_split] PRE_SPLIT_REGIONS = (BETWEEN (1) AND (9) REGIONS 3) */",
            (NN,),
            ("n",),
        ),
        ("`n` INT NOT NULL,UNIQUE `u`(`n`) WITH PARSER ngram SECONDARY_ENGINE_ATTRIBUTE = 'x'", (NN,), ("n",)),
    ],
)
def test_the_key_is_the_primary_key_or_the_shortest_whole_unique_index_over_not_null(
    text: str, columns: tuple[Column, ...], expected: tuple[str, ...]
) -> None:
    assert created(f"CREATE TABLE `t` ({text})", *columns).key == expected


def test_a_setting_wins_and_is_spelled_as_the_table_spells_it() -> None:
    assert ddl.key_of(base(), ("A", "b")) == ("a", "b")


def test_a_setting_that_names_no_column_is_refused_with_the_columns_there_are() -> None:
    with pytest.raises(TableHeld, match="it has id, a, b"):
        ddl.key_of(base(), ("zz",))


# --- the end of a text ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [";", " ; ", ";\n", " /* c */ ;\n;", "; -- done"])
def test_semicolons_at_the_end_change_nothing(end: str) -> None:
    a, b = (replace(column, nullable=False) for column in (A, B))
    text = "CREATE TABLE `t` (`id` INT,`a` INT NOT NULL,`b` VARCHAR(10) NOT NULL) PARTITION BY HASH(`id`) PARTITIONS 4"
    plain = ddl.create(file(text, 3, replace(ID, is_pk=False), a, b), None, None)
    assert ddl.create(file(text + end, 3, replace(ID, is_pk=False), a, b), None, None) == plain
    for clause in ("ADD UNIQUE `u`(`a`)", "PARTITION BY KEY(`a`) PARTITIONS 2", "COMMENT = ';'"):
        query = f"ALTER TABLE `t` {clause}"
        evolutions = [
            ddl.evolve(plain, file(query + e, 61, replace(ID, is_pk=False), a, b), None)[:2] for e in ("", end)
        ]
        assert evolutions[0] == evolutions[1]
