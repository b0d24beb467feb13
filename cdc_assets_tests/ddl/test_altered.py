"""The schema that the text of a DDL leads to from a known one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_assets.ddl import Unfollowed, altered, created
from cdc_assets.model.schema import Column, TableSchema

BEFORE = created(
    """CREATE TABLE `t` (`id` BIGINT /*T![auto_rand] AUTO_RANDOM(5) */, `a` INT NOT NULL, `b` VARCHAR(10) NOT NULL,
    `e` ENUM('x','y,z'), `v` INT AS (`a` + 1) VIRTUAL, PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */,
    UNIQUE KEY `ub` (`b`), KEY `head` (`b`(4)), KEY `ex` ((`a` + 1))) COLLATE utf8mb4_general_ci"""
)
GENERAL = "utf8mb4_general_ci"


def names(schema: TableSchema) -> str:
    return " ".join(column.name for column in schema.columns)


@pytest.mark.parametrize(
    ("sql", "order"),
    [
        ("ADD COLUMN n INT", "id a b e v n"),
        ("ADD n INT FIRST", "n id a b e v"),
        ("ADD COLUMN `n.m` INT AFTER `t`.`a`", "id a n.m b e v"),
        ("ADD COLUMN (n INT, m INT)", "id a b e v n m"),
        ("ADD n INT AFTER a, ADD m INT AFTER n", "id a n m b e v"),
        ("ADD n INT FIRST, ADD m INT FIRST", "m n id a b e v"),
        ("DROP b, ADD b INT AFTER id", "id b a e v"),
        ("MODIFY COLUMN e ENUM('x') AFTER id", "id e a b v"),
        ("CHANGE `A` `c` BIGINT FIRST, ADD n INT AFTER c", "c n id b e v"),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", "id b a e v"),
        ("RENAME COLUMN a TO n, ADD m INT AFTER a", "id n m b e v"),
        ("ADD COLUMN IF NOT EXISTS a INT, DROP COLUMN IF EXISTS gone", "id a b e v"),
        ("/*T![x] ADD COLUMN n INT */", "id a b e v n"),
        ("ADD n INT /*!80023 INVISIBLE */, ALGORITHM=INPLACE, LOCK=NONE", "id a b e v n"),
        ("COMMENT 'x', AUTO_INCREMENT=7, ADD n INT -- the last one", "id a b e v n"),
        ("ADD INDEX `after` (a), ADD `first` INT AFTER a", "id a first b e v"),
    ],
)
def test_columns_stand_where_the_text_puts_them(sql: str, order: str) -> None:
    assert names(altered(BEFORE, f"ALTER TABLE `T` {sql}")) == order


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("INTEGER DEFAULT (1+2) COMMENT 'a, ''b''; c'", Column("n", "INT", False, 11)),
        ("BOOL NOT NULL DEFAULT TRUE", Column("n", "TINYINT", False, 1, nullable=False, default="1")),
        ("INT ZEROFILL DEFAULT 007", Column("n", "INT", True, 10, default="7")),
        ("DEC(5) UNSIGNED", Column("n", "DECIMAL", True, 5, 0)),
        ("NATIONAL CHARACTER VARYING(3)", Column("n", "VARCHAR", False, 3, collation=GENERAL)),
        ("NCHAR VARYING(3)", Column("n", "VARCHAR", False, 3, collation=GENERAL)),
        ("LONG VARCHAR", Column("n", "MEDIUMTEXT", False, 16777215, collation=GENERAL)),
        ("CHAR(3) BINARY", Column("n", "CHAR", False, 3, collation="utf8mb4_bin")),
        ("VARCHAR(5) CHARACTER SET binary", Column("n", "VARBINARY", False, 5)),
        ("VARBINARY(2) DEFAULT x'FF00'", Column("n", "VARBINARY", False, 2, default=b"\xff\x00")),
        ("BIT(9) DEFAULT b'101'", Column("n", "BIT", True, 9, default=5)),
        ("SET('a','b') DEFAULT 'B,a'", Column("n", "SET", default="a,b", elems=("a", "b"), collation=GENERAL)),
        ("SET('a','b') DEFAULT 3", Column("n", "SET", default="a,b", elems=("a", "b"), collation=GENERAL)),
        ("ENUM('a,b','c''d') DEFAULT 2", Column("n", "ENUM", default="c'd", elems=("a,b", "c'd"), collation=GENERAL)),
        ("DATETIME DEFAULT '2020-1-2'", Column("n", "DATETIME", default="2020-01-02 00:00:00")),
        ("DATE DEFAULT 20200102", Column("n", "DATE", default="2020-01-02")),
        ("DATETIME DEFAULT '0000-00-00 00:00:00'", Column("n", "DATETIME", default="0000-00-00 00:00:00")),
        ("TIME(2) DEFAULT '1:2:3.456'", Column("n", "TIME", scale=2, default="01:02:03.46")),
        (
            "TIMESTAMP(2) DEFAULT '2020-01-01 09:00'",
            Column("n", "TIMESTAMP", scale=2, default="2020-01-01 01:00:00.00"),
        ),
        (
            "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
            Column("n", "TIMESTAMP", nullable=False, default="CURRENT_TIMESTAMP"),
        ),
        ("INT AS (`a` * 2)", Column("n", "INT", False, 11, virtual=True)),
        ("INT GENERATED ALWAYS AS (`a` * 2) STORED NOT NULL", Column("n", "INT", False, 11, nullable=False)),
        ("SERIAL", Column("n", "BIGINT", True, 20, nullable=False)),
        ("JSON DEFAULT (json_array())", Column("n", "JSON")),
    ],
)
def test_a_column_is_what_its_definition_says(definition: str, expected: Column) -> None:
    added = altered(BEFORE, f"ALTER TABLE t ADD COLUMN n {definition}", timezone="+08:00").column("n")
    assert added == expected
    modified = altered(BEFORE, f"ALTER TABLE t CHANGE b n {definition}", timezone="+08:00").column("n")
    assert modified == expected


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("ALTER TABLE t DROP PRIMARY KEY", ("b",)),
        ("ALTER TABLE t DROP PRIMARY KEY, DROP INDEX ub", ()),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (e, a) NONCLUSTERED", ("e", "a")),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD UNIQUE (a)", ("b",)),
        ("ALTER TABLE t DROP PRIMARY KEY, MODIFY b VARCHAR(10), ADD UNIQUE (a)", ("a",)),
        ("ALTER TABLE t DROP PRIMARY KEY, RENAME COLUMN b TO c", ("c",)),
        ("ALTER TABLE t DROP PRIMARY KEY, DROP b, ADD n INT PRIMARY KEY", ("n",)),
        ("CREATE UNIQUE INDEX w ON t (a)", ("id",)),
        ("DROP INDEX `PRIMARY` ON t", ("b",)),
    ],
)
def test_the_key_is_the_one_that_is_left(sql: str, key: tuple[str, ...]) -> None:
    after = altered(BEFORE, sql)
    assert after.key == key
    assert all(not after.column(name).nullable for name in key)


def test_a_dropped_primary_key_leaves_its_columns_not_null() -> None:
    after = altered(BEFORE, "ALTER TABLE t DROP PRIMARY KEY")
    assert (after.column("id").nullable, after.column("id").is_pk, after.clustered) == (False, False, None)


@pytest.mark.parametrize(
    ("sql", "table", "column"),
    [
        ("CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "utf8mb4_bin", "utf8mb4_bin"),
        ("CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin", "utf8mb4_bin", GENERAL),
        ("MODIFY b VARCHAR(10) COLLATE ascii_bin", GENERAL, "ascii_bin"),
        ("DEFAULT COLLATE utf8mb4_bin, MODIFY b VARCHAR(11)", "utf8mb4_bin", "utf8mb4_bin"),
    ],
)
def test_texts_compare_by_the_collation_that_the_ddl_gives_them(sql: str, table: str, column: str) -> None:
    after = altered(BEFORE, f"ALTER TABLE t {sql}")
    assert (after.collation, after.column("b").collation) == (table, column)


def test_a_default_changes_alone() -> None:
    after = altered(
        BEFORE, "ALTER TABLE t ALTER COLUMN a SET DEFAULT -5, ALTER b SET DEFAULT (''), ALTER e SET DEFAULT 'Y,Z'"
    )
    assert [column.default for column in after.columns] == [None, "-5", "", "y,z", None]
    dropped = altered(after, "ALTER TABLE t ALTER a DROP DEFAULT, ALTER b DROP DEFAULT, ALTER e SET DEFAULT NULL")
    assert dropped == BEFORE


@pytest.mark.parametrize(
    "sql",
    [
        "TRUNCATE TABLE t",
        "RENAME TABLE t TO u",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u",
        "RECOVER TABLE t",
        "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES u (id) ON DELETE SET NULL, ADD CHECK (a > 0)",
        "ALTER TABLE t TTL = `d` + INTERVAL 1 DAY TTL_ENABLE = 'ON'",
        "ALTER TABLE t SET TIFLASH REPLICA 1",
    ],
)
def test_what_concerns_rows_or_names_leaves_the_schema_alone(sql: str) -> None:
    assert altered(BEFORE, sql) == BEFORE


def test_columns_keep_their_ids_and_new_ones_have_none() -> None:
    before = replace(BEFORE, columns=tuple(replace(column, id=n) for n, column in enumerate(BEFORE.columns, 1)))
    after = altered(before, "ALTER TABLE t CHANGE a c BIGINT, ADD n INT FIRST")
    assert [column.id for column in after.columns] == [None, 1, 2, 3, 4, 5]


def test_partitions_follow_the_text() -> None:
    by_range = (
        "ALTER TABLE t PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN (9))"
    )
    after = altered(altered(BEFORE, by_range), "ALTER TABLE t DROP PARTITION p0, RENAME COLUMN id TO n")
    after = altered(after, "ALTER TABLE t ADD PARTITION (PARTITION p2 VALUES LESS THAN MAXVALUE)")
    assert after.partitioning is not None
    assert [(partition.name, partition.less_than) for partition in after.partitioning.partitions] == [
        ("p1", ("9",)),
        ("p2", (None,)),
    ]
    assert altered(after, "ALTER TABLE t REMOVE PARTITIONING").partitioning is None


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("ALTER TABLE t ADD COLUMN B INT", "already has b"),
        ("ALTER TABLE t RENAME COLUMN a TO b", "already has b"),
        ("ALTER TABLE t MODIFY gone INT", '"gone"'),
        ("ALTER TABLE t ALTER gone SET DEFAULT 1", '"gone"'),
        ("ALTER TABLE t ADD UNIQUE (a, gone)", '"gone"'),
        ("ALTER TABLE t ADD n INT AFTER gone", '"gone"'),
        ("ALTER TABLE t ADD n TESSERACT", "TESSERACT"),
        ("ALTER TABLE t FROBNICATE b", "FROBNICATE"),
        ("ALTER TABLE t CONVERT TO CHARACTER SET binary", "other types"),
        ("ALTER TABLE t ADD n INT DEFAULT 'x", "cannot be read"),
        ("SELECT 1", "cannot be read"),
        ("", "no text"),
    ],
)
def test_what_cannot_be_followed_says_why(sql: str, says: str) -> None:
    with pytest.raises(Unfollowed, match=says):
        altered(BEFORE, sql)
