from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets import ddl
from cdc_assets.errors import CdcError, TableHeld
from cdc_assets.model.schema import Column, Index, TableSchema
from cdc_assets.model.schema_changes import (
    AddColumn,
    DeleteRows,
    DropColumn,
    MoveColumns,
    Rekey,
    RenameColumn,
    RetypeColumn,
    SetDefault,
)
from cdc_assets_tests.schema_files import ID, A, B, base, changes, created, file

# --- any clause -------------------------------------------------------------------------------------------------------

CLAUSES = [
    "ADD COLUMN `c` INT", "DROP COLUMN `a`", "CHANGE COLUMN `a` `c` BIGINT", "RENAME COLUMN `b` TO `a`",
    "ADD INDEX (`a`)", "DROP PARTITION `p`", "ADD PARTITION (PARTITION `p` VALUES LESS THAN (1))",
    "PARTITION BY HASH (`id`) PARTITIONS 3",
    "MODIFY COLUMN `b` TEXT AFTER `id`", "COMMENT = 'x'", "DROP PRIMARY KEY", "SOMETHING NEW", "(", ")", "'", "ENUM('",
]  # fmt: skip


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.sampled_from(CLAUSES), max_size=4),
    st.sampled_from([5, 12, 20, 61, 999]),
    st.lists(st.sampled_from([ID, A, B, Column("c", "INT"), Column("a", "BIGINT")]), unique_by=lambda c: c.name),
)
def test_an_alter_is_carried_out_or_held_and_never_crashes(
    clauses: list[str], kind: int, columns: list[Column]
) -> None:
    try:
        after, done = ddl.evolve(base(), file("ALTER TABLE `t` " + ", ".join(clauses), kind, *columns), None)
    except CdcError as error:
        assert str(error).startswith("s.t at")  # noqa: PT017
    else:
        assert [column.name for column in after.columns] == [column.name for column in columns]
        assert isinstance(done, tuple)


# --- evolve: columns --------------------------------------------------------------------------------------------------

C = Column("c", "INT", precision=11)


def test_added_columns_come_at_the_end_and_are_moved_to_their_place() -> None:
    c = replace(C, default="7")
    assert changes(base(), "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7 FIRST", c, ID, A, B) == (
        AddColumn(c, "7"),
        MoveColumns(("c", "id", "a", "b")),
    )


def test_a_ddl_that_is_played_again_changes_nothing() -> None:
    text = "ALTER TABLE `t` ADD COLUMN `c` INT, DROP COLUMN `a`, RENAME COLUMN `b` TO `b2`"
    now = (ID, replace(B, name="b2"), C)
    after, first = ddl.evolve(base(), file(text, 61, *now), None)
    assert len(first) == 3
    assert ddl.evolve(after, file(text, 61, *now), None) == (after, ())


def test_names_that_swap_are_renames() -> None:
    now = (ID, replace(A, name="b"), replace(B, name="a"))
    assert changes(base(), "ALTER TABLE `t` RENAME COLUMN `a` TO `b`, RENAME COLUMN `b` TO `a`", *now) == (
        RenameColumn("a", "b"),
        RenameColumn("b", "a"),
    )
    assert changes(base(), "ALTER TABLE `t` CHANGE `a` `b` INT, CHANGE `b` `a` VARCHAR(10)", *now)[:2] == (
        RenameColumn("a", "b"),
        RenameColumn("b", "a"),
    )


def test_drop_and_add_of_one_name_in_one_statement_starts_anew() -> None:
    new = Column("a", "INT", precision=11, default="5")
    assert changes(base(), "ALTER TABLE `t` DROP COLUMN `a`, ADD COLUMN `a` INT DEFAULT 5 AFTER `id`", ID, new, B) == (
        DropColumn("a"),
        AddColumn(new, "5"),
        MoveColumns(("id", "a", "b")),
    )


def test_a_rename_that_changes_only_case_is_a_rename() -> None:
    assert changes(base(), "ALTER TABLE `t` RENAME COLUMN A TO `A`", ID, replace(A, name="A"), B) == (
        RenameColumn("a", "A"),
    )


def test_change_renames_and_converts_under_the_new_name() -> None:
    new = Column("a2", "BIGINT", precision=20)
    assert changes(base(), "ALTER TABLE `t` CHANGE COLUMN `a` `a2` BIGINT", ID, new, B) == (
        RenameColumn("a", "a2"),
        RetypeColumn(replace(A, name="a2"), new),
    )


def test_a_new_id_beside_a_modify_is_no_new_column() -> None:
    before = replace(base(), columns=tuple(replace(c, id=n) for n, c in enumerate(base().columns, 1)))
    now = (replace(ID, id=1), Column("a", "BIGINT", precision=20, id=9), replace(B, id=3))
    assert [type(change) for change in changes(before, "ALTER TABLE `t` MODIFY COLUMN `a` BIGINT", *now)] == [
        RetypeColumn
    ]


def test_without_text_equal_ids_are_a_rename_and_other_ids_a_new_column() -> None:
    before = replace(base(), columns=tuple(replace(c, id=n) for n, c in enumerate(base().columns, 1)))
    now = (replace(ID, id=1), Column("z", "INT", precision=11, id=2), replace(B, id=8))
    done = changes(before, "", *now, kind=0)
    assert done[:2] == (DropColumn("b"), RenameColumn("a", "z"))
    assert isinstance(done[2], AddColumn)
    assert "not in the changefeed" in done[2].approximate


def test_without_text_and_ids_a_possible_rename_is_held() -> None:
    with pytest.raises(TableHeld, match='"a" are gone and "z" are new'):
        changes(base(), "", ID, Column("z", "INT"), B, kind=0)


def test_without_text_a_single_direction_is_clear() -> None:
    assert changes(base(), "", ID, A, kind=0) == (DropColumn("b"),)
    assert [type(change) for change in changes(base(), "", ID, A, B, C, kind=0)] == [AddColumn]


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE `t` ADD COLUMN `zz` INT",
        "ALTER TABLE `t` DROP COLUMN `a`",
        "ALTER TABLE `t` CHANGE COLUMN `a` `zz` INT",
        "ALTER TABLE `t` MODIFY COLUMN `zz` INT",
    ],
)
def test_columns_that_contradict_the_text_are_held(query: str) -> None:
    with pytest.raises(TableHeld, match="contradicts"):
        changes(base(), query, ID, A, B)


def test_if_exists_and_if_not_exists_are_no_contradiction() -> None:
    text = "ALTER TABLE `t` ADD COLUMN IF NOT EXISTS `a` INT, DROP COLUMN IF EXISTS `zz`"
    assert changes(base(), text, ID, A, B) == ()


def test_an_unreadable_text_is_held_only_when_it_may_matter() -> None:
    assert changes(base(), "ALTER TABLE `t` ADD INDEX 'x", ID, A, B, kind=7) == ()
    with pytest.raises(TableHeld, match="cannot be read"):
        changes(base(), "ALTER TABLE `t` ADD COLUMN 'x", ID, A, B, C, kind=5)
    with pytest.raises(TableHeld, match='"SOMETHING NEW" is not known'):
        changes(base(), "ALTER TABLE `t` SOMETHING NEW", ID, A, B, kind=999)


@pytest.mark.parametrize(
    "clause",
    [
        "COMMENT = 'DROP COLUMN `a`'", "AUTO_INCREMENT = 1000", "ADD INDEX `i`(`a`), ALGORITHM = INPLACE, LOCK = NONE",
        "ADD CONSTRAINT `f` FOREIGN KEY (`a`) REFERENCES `x` (`y`) ON DELETE SET DEFAULT", "DROP FOREIGN KEY `f`",
        "ALTER INDEX `i` INVISIBLE", "RENAME INDEX `i` TO `j`", "REMOVE TTL", "SET TIFLASH REPLICA 1", "CACHE",
        "/*T![ttl] TTL=`a` + INTERVAL 1 DAY */", "ADD VECTOR INDEX `v`((VEC_L2_DISTANCE(`b`))) USING HNSW", "FORCE",
        "ENGINE = InnoDB", "ORDER BY `a`", "DROP CHECK `c`", "ADD CHECK (`a` > 1)", "ENABLE KEYS",
        "REORGANIZE PARTITION", "STATS_OPTIONS='a=1'",
        "ALTER COLUMN `a` DROP DEFAULT", "DEFAULT CHARACTER SET UTF8MB4", "CHECK PARTITION ALL",
    ],
)  # fmt: skip
def test_a_data_neutral_ddl_gives_no_change(clause: str) -> None:
    assert changes(base(), f"ALTER TABLE `t` {clause}", ID, A, B) == ()


def test_truncate_deletes_all_rows() -> None:
    assert changes(base(), "TRUNCATE TABLE `t`", ID, A, B, kind=11) == (DeleteRows(None),)


# --- evolve: defaults of added columns --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "column", "expected"),
    [
        ("INT", Column("x", "INT"), None),
        ("INT NOT NULL", Column("x", "INT", nullable=False), "0"),
        ("VARCHAR(5) NOT NULL", Column("x", "VARCHAR", precision=5, nullable=False), ""),
        ("ENUM('p','q') NOT NULL", Column("x", "ENUM", nullable=False), "p"),
        ("SET('p','q') NOT NULL", Column("x", "SET", nullable=False), ""),
        ("SET('p','q') DEFAULT 'q,p'", Column("x", "SET", default="q,p"), "p,q"),
        ("DATE NOT NULL", Column("x", "DATE", nullable=False), "0000-00-00"),
        ("TIME(2) NOT NULL", Column("x", "TIME", scale=2, nullable=False), "00:00:00.00"),
        ("JSON NOT NULL", Column("x", "JSON", nullable=False), "null"),
        ("BINARY(3) NOT NULL", Column("x", "BINARY", precision=3, nullable=False), b"\0\0\0"),
        ("BIT(9) DEFAULT b'100000001'", Column("x", "BIT", True, 9, default="\x01\x01"), "257"),
        ("BIT(8) DEFAULT 0xFF", Column("x", "BIT", True, 8, default="\ufffd"), "255"),
        ("BIT(8) DEFAULT 5", Column("x", "BIT", True, 8, default="\x05"), "5"),
        ("BINARY(3) DEFAULT x'FF'", Column("x", "BINARY", precision=3, default="\ufffd"), b"\xff\0\0"),
        (r"VARCHAR(5) DEFAULT '\N'", Column("x", "VARCHAR", precision=5, default=r"\N"), r"\N"),
        ("VARCHAR(9) DEFAULT _UTF8MB4'it''s'", Column("x", "VARCHAR", precision=9, default="it's"), "it's"),
        ("TIMESTAMP DEFAULT '1970-01-02 09'", Column("x", "TIMESTAMP", default="1970-01-02 00:00"), "1970-01-02 00:00"),
        ("INT DEFAULT -3", Column("x", "INT", default="-3"), "-3"),
        ("INT DEFAULT (7)", Column("x", "INT", default=7), "7"),
        ("INT COLUMN_FORMAT DEFAULT STORAGE DISK DEFAULT 8", Column("x", "INT", default=8), "8"),
    ],
)  # fmt: skip
def test_old_rows_read_the_default_of_the_adds_own_file(definition: str, column: Column, expected: object) -> None:
    done = changes(base(), f"ALTER TABLE `t` ADD COLUMN `x` {definition}", ID, A, B, column, kind=5)
    assert [change.default for change in done if isinstance(change, AddColumn) and not change.approximate] == [expected]


@pytest.mark.parametrize(
    ("definition", "column", "expected"),
    [
        ("INT NOT NULL DEFAULT 7", Column("x", "INT", nullable=False), "7"),
        ("INT DEFAULT NULL", Column("x", "INT"), None),
        ("INT NOT NULL DEFAULT '7'", Column("x", "INT", nullable=False), "7"),
        ("INT DEFAULT -7.5", Column("x", "INT"), "-8"),
        ("BIGINT DEFAULT 1e3", Column("x", "BIGINT"), "1000"),
        ("INT DEFAULT ((x'10'))", Column("x", "INT"), "16"),
        ("DECIMAL(5,2) DEFAULT 1.005", Column("x", "DECIMAL", precision=5, scale=2), "1.01"),
        ("DECIMAL(5,2) DEFAULT 2e-1", Column("x", "DECIMAL", precision=5, scale=2), "0.20"),
        ("DOUBLE DEFAULT -2.5e-3", Column("x", "DOUBLE"), "-2.5e-3"),
        ("FLOAT(7,1) DEFAULT 2.55", Column("x", "FLOAT", precision=7, scale=1), "2.6"),
        ("VARCHAR(9) DEFAULT 'it''s \\ 5'", Column("x", "VARCHAR", precision=9), "it's \\ 5"),
        ("VARCHAR(9) DEFAULT 'a '", Column("x", "VARCHAR", precision=9), "a "),
        ("CHAR(9) DEFAULT ' a  '", Column("x", "CHAR", precision=9), " a"),
        ("VARCHAR(9) DEFAULT 1.50", Column("x", "VARCHAR", precision=9), "1.50"),
        ("VARCHAR(9) DEFAULT 0xE4BDA0", Column("x", "VARCHAR", precision=9), "你"),
        ("VARCHAR(9) CHARSET gbk DEFAULT 0xC4E3", Column("x", "VARCHAR", precision=9), "你"),
        ("VARCHAR(9) NOT NULL DEFAULT ''", Column("x", "VARCHAR", precision=9, nullable=False), ""),
        ("VARBINARY(9) DEFAULT 'ab'", Column("x", "VARBINARY", precision=9), b"ab"),
        ("VARBINARY(9) DEFAULT x'00FF'", Column("x", "VARBINARY", precision=9), b"\0\xff"),
        ("BINARY(3) DEFAULT 'ab'", Column("x", "BINARY", precision=3), b"ab\0"),
        ("BIT(4) DEFAULT b'101'", Column("x", "BIT", True, 4), "5"),
        ("ENUM('p','q') NOT NULL DEFAULT 'Q'", Column("x", "ENUM", nullable=False), "q"),
        ("ENUM('p','q') DEFAULT 2", Column("x", "ENUM"), "q"),
        ("SET('p','q') DEFAULT 'q,p'", Column("x", "SET"), "p,q"),
        ("YEAR DEFAULT 70", Column("x", "YEAR", True, 4), "1970"),
        ("YEAR DEFAULT '00'", Column("x", "YEAR", True, 4), "2000"),
        ("DATE DEFAULT DATE '2020-1-2'", Column("x", "DATE"), "2020-01-02"),
        ("DATETIME(3) DEFAULT '2020-01-02 03:04:05.6789'", Column("x", "DATETIME", scale=3), "2020-01-02 03:04:05.679"),
        ("TIMESTAMP DEFAULT '0000-00-00 00:00:00'", Column("x", "TIMESTAMP"), "0000-00-00 00:00:00"),
        ("TIME DEFAULT '-1:2:3'", Column("x", "TIME"), "-01:02:03"),
        ("INT DEFAULT 7 ON UPDATE CURRENT_TIMESTAMP COMMENT 'DEFAULT 8'", Column("x", "INT"), "7"),
    ],
)  # fmt: skip
def test_where_the_file_states_no_default_old_rows_read_that_of_the_text(
    definition: str, column: Column, expected: object
) -> None:
    done = changes(base(), f"ALTER TABLE `t` ADD COLUMN (`x` {definition})", ID, A, B, column, kind=5)
    assert [change.default for change in done if isinstance(change, AddColumn) and not change.approximate] == [expected]


def test_a_timestamp_of_the_text_is_read_in_the_zone_of_the_settings_and_said_to_be_approximate() -> None:
    text = "ALTER TABLE `t` ADD COLUMN `x` TIMESTAMP DEFAULT '2020-01-01 08:00:00'"
    _, (done,) = ddl.evolve(base(), file(text, 5, ID, A, B, Column("x", "TIMESTAMP")), None, "Asia/Shanghai")
    assert isinstance(done, AddColumn)
    assert done.default == done.column.default == "2020-01-01 00:00:00"
    assert "read in the zone Asia/Shanghai" in done.approximate


@pytest.mark.parametrize(
    ("definition", "member", "is_said"),
    [
        ("INT DEFAULT 7", "8", True),
        ("INT DEFAULT 7", 7.0, False),
        ("DECIMAL(5,2) DEFAULT 1.5", "1.50", False),
        ("INT DEFAULT NULL", "8", True),
        ("VARCHAR(5) DEFAULT 'a'", "A", True),
        ("TIMESTAMP DEFAULT '2020-01-01 09:30:00'", "2020-01-01 00:00:00", False),
        ("TIMESTAMP DEFAULT '2020-01-02 09:30:00'", "2020-01-01 00:00:00", True),
    ],
)
def test_the_file_counts_before_the_text_and_a_difference_is_said(
    definition: str, member: object, is_said: bool
) -> None:
    column = Column("x", definition.split(" ")[0].split("(")[0], precision=5, scale=2, default=member)
    (done,) = changes(base(), f"ALTER TABLE `t` ADD COLUMN `x` {definition}", ID, A, B, column, kind=5)
    assert isinstance(done, AddColumn)
    assert done.column.default == member
    assert ("ColumnDefault counts" in done.approximate) == is_said


def test_every_column_of_a_statement_reads_its_own_default() -> None:
    text = (
        "ALTER TABLE `t` ADD COLUMN (`x` INT DEFAULT 1, `y` INT), DROP COLUMN `a`, ADD `a` INT NOT NULL DEFAULT 3 FIRST"
    )
    x, y, a = Column("x", "INT"), Column("y", "INT"), Column("a", "INT", nullable=False)
    done = changes(base(), text, a, ID, B, x, y)
    assert {change.column.name: change.default for change in done if isinstance(change, AddColumn)} == {
        "x": "1",
        "y": None,
        "a": "3",
    }


def test_files_that_state_no_defaults_leave_those_that_are_known() -> None:
    text = "ALTER TABLE `t` ADD COLUMN `x` INT DEFAULT 1"
    x = Column("x", "INT")
    after, _ = ddl.evolve(base(), file(text, 5, ID, A, B, x), None)
    assert changes(after, "ALTER TABLE `t` ADD INDEX (`a`)", ID, A, B, x) == ()
    assert changes(after, "ALTER TABLE `t` MODIFY `x` INT DEFAULT 2", ID, A, B, x) == (SetDefault("x", "2"),)
    assert changes(after, "ALTER TABLE `t` ALTER `x` DROP DEFAULT", ID, A, B, x) == (SetDefault("x", None),)


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ("ENUM('p','q') DEFAULT 3", "not the number of a known member"),
        ("DATE DEFAULT 'soon'", "is not DATE"),
        ("VARCHAR(5) CHARSET latin1 DEFAULT x'E9'", "no text in its charset"),
        ("TIMESTAMP DEFAULT 'soon'", "not a time"),
    ],
)
def test_a_text_whose_default_is_no_value_of_the_type_is_held(definition: str, words: str) -> None:
    column = Column("x", definition.split("(")[0].split(" ")[0])
    with pytest.raises(TableHeld, match=words):
        changes(base(), f"ALTER TABLE `t` ADD COLUMN `x` {definition}", ID, A, B, column, kind=5)


@pytest.mark.parametrize(
    ("definition", "column", "expected", "words"),
    [
        (
            "TIMESTAMP DEFAULT CURRENT_TIMESTAMP()",
            Column("x", "TIMESTAMP", default="CURRENT_TIMESTAMP"),
            "2026-03-30 23:58:00",
            "time of the DDL by its TSO",
        ),
        (
            "DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3)",
            Column("x", "DATETIME", scale=3, default="CURRENT_TIMESTAMP"),
            "2026-03-30 23:58:00.123",
            "in UTC instead of the session's zone",
        ),
    ],
)
def test_the_current_time_is_that_of_the_tso_and_said_to_be_approximate(
    definition: str, column: Column, expected: str, words: str
) -> None:
    (done,) = changes(base(), f"ALTER TABLE `t` ADD COLUMN `x` {definition}", ID, A, B, column, kind=5)
    assert isinstance(done, AddColumn)
    assert done.default == expected
    assert words in done.approximate


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ("CHAR(36) DEFAULT (UUID())", "evaluated by the source"),
        ("INT GENERATED ALWAYS AS (`a` + 1) STORED", "generated from the others"),
        ("INT NOT NULL AUTO_INCREMENT UNIQUE", "numbered"),
        ("BIGINT SERIAL DEFAULT VALUE", "numbered"),
    ],
)
def test_values_that_no_file_states_are_held(definition: str, words: str) -> None:
    column = Column("x", definition.split("(")[0].split(" ")[0])
    with pytest.raises(TableHeld, match=words):
        changes(base(), f"ALTER TABLE `t` ADD COLUMN `x` {definition}", ID, A, B, column, kind=5)


def test_a_virtual_column_comes_and_goes_without_touching_the_lake() -> None:
    v = Column("v", "INT")
    after, done = ddl.evolve(base(), file("ALTER TABLE `t` ADD COLUMN `v` INT AS (`a`)", 5, ID, v, A, B), None)
    assert done == ()
    assert [column.name for column in after.stored] == ["id", "a", "b"]
    assert changes(after, "ALTER TABLE `t` DROP COLUMN `v`", ID, A, B) == ()


# --- evolve: types ----------------------------------------------------------------------------------------------------


def column(kind: str, precision: int | None = None, scale: int | None = None, unsigned: bool = False) -> Column:
    return Column("a", kind, unsigned, precision, scale)


@pytest.mark.parametrize(
    ("old", "new", "retyped"),
    [
        (column("INT"), column("BIGINT"), True),
        (column("TINYINT"), column("INT"), False),
        (column("INT"), column("INT", unsigned=True), True),
        (column("BIGINT"), column("INT", unsigned=True), True),
        (column("INT"), column("TINYINT"), True),
        (column("YEAR"), column("SMALLINT"), False),
        (column("BIT", 20), column("BIT", 9), True),
        (column("BIGINT"), column("BIGINT", unsigned=True), True),
        (column("BIT", 1), column("BIT", 2), True),
        (column("BIT", 2), column("BIT", 60), False),
        (column("DECIMAL", 10, 2), column("DECIMAL", 12, 2), True),
        (column("DECIMAL", 10, 2), column("DECIMAL", 10, 2), False),
        (column("FLOAT", 12), column("DOUBLE", 22), True),
        (column("DOUBLE", 22), column("DOUBLE", 16, 3), True),
        (column("DATETIME"), column("DATETIME", scale=3), False),
        (column("DATETIME", scale=3), column("DATETIME"), True),
        (column("TIME"), column("TIME", scale=3), True),
        (column("DATETIME"), column("TIMESTAMP"), True),
        (column("VARCHAR", 10), column("VARCHAR", 100), False),
        (column("VARCHAR", 100), column("VARCHAR", 10), True),
        (column("CHAR", 10), column("VARCHAR", 10), False),
        (column("VARCHAR", 10), column("CHAR", 10), True),
        (column("VARCHAR", 30), column("TEXT", 65535), False),
        (column("VARCHAR", 100), column("TINYTEXT", 255), True),
        (column("TEXT", 65535), column("MEDIUMTEXT", 16777215), False),
        (column("BINARY", 4), column("BINARY", 8), True),
        (column("VARBINARY", 4), column("BLOB", 65535), False),
        (column("VARCHAR", 10), column("VARBINARY", 40), True),
        (column("VARCHAR", 10), column("INT"), True),
    ],
)
def test_a_type_change_is_neutral_when_lake_and_values_stay(old: Column, new: Column, retyped: bool) -> None:
    before = TableSchema((ID, old), key=("id",))
    kinds = [type(change) for change in changes(before, "ALTER TABLE `t` MODIFY COLUMN `a` X", ID, new)]
    assert kinds == ([RetypeColumn] if retyped else [])


def test_a_timestamp_changes_in_the_zone_of_the_settings_and_is_reported_as_approximate() -> None:
    before = TableSchema((ID, column("TIMESTAMP")), key=("id",))
    schema_file = file("ALTER TABLE `t` MODIFY COLUMN `a` DATETIME", 12, ID, column("DATETIME"))
    (change,) = ddl.evolve(before, schema_file, None, "Asia/Shanghai")[1]
    assert isinstance(change, RetypeColumn)
    assert change.timezone == "Asia/Shanghai"
    assert "Asia/Shanghai" in change.approximate


@pytest.mark.parametrize(
    ("kind", "old", "new", "retyped"),
    [
        ("ENUM", "'a','b'", "'a','b','c'", False),
        ("ENUM", "'a','b'", "'b','a'", False),
        ("ENUM", "'a','b'", "'a','x'", True),
        ("SET", "'a','b'", "'a','x','b'", False),
        ("SET", "'a','b'", "'b','a'", True),
    ],
)
def test_members_move_by_name_and_a_set_prints_them_in_order(kind: str, old: str, new: str, retyped: bool) -> None:
    before = created(f"CREATE TABLE `t` (`a` {kind}({old}))", Column("a", kind))
    done = changes(before, f"ALTER TABLE `t` MODIFY COLUMN `a` {kind}({new})", Column("a", kind))
    assert [type(change) for change in done] == ([RetypeColumn] if retyped else [])


def test_a_charset_that_can_lose_characters_is_held() -> None:
    with pytest.raises(TableHeld, match="from utf8mb4 to latin1"):
        changes(base(), "ALTER TABLE `t` MODIFY COLUMN `b` VARCHAR(10) CHARACTER SET LATIN1", ID, A, B)


def test_a_new_default_is_a_fact_for_later_rows() -> None:
    now = replace(A, default="42")
    assert changes(base(), "ALTER TABLE `t` ALTER COLUMN `a` SET DEFAULT 42", ID, now, B) == (SetDefault("a", "42"),)


# --- evolve: indexes and keys -----------------------------------------------------------------------------------------


def test_the_primary_key_comes_and_goes() -> None:
    a, b = Column("a", "INT", nullable=False), Column("b", "INT", nullable=False)
    before = created("CREATE TABLE `t` (`a` INT NOT NULL,`b` INT NOT NULL,UNIQUE `ua`(`a`))", a, b)
    text = "ALTER TABLE `t` ADD PRIMARY KEY(`b`) /*T![clustered_index] NONCLUSTERED */"
    after, done = ddl.evolve(before, file(text, 32, a, replace(b, is_pk=True)), None)
    assert done == (Rekey(("b",)),)
    assert ddl.evolve(after, file("ALTER TABLE `t` DROP PRIMARY KEY", 33, a, b), None)[1] == (Rekey(("a",)),)


def test_a_unique_index_over_not_null_makes_and_unmakes_a_key() -> None:
    a = Column("a", "INT", nullable=False)
    after, done = ddl.evolve(TableSchema((a, B)), file("CREATE UNIQUE INDEX `u` ON `t` (`a`)", 7, a, B), None)
    assert done == (Rekey(("a",)),)
    assert changes(after, "DROP INDEX `u` ON `t`", a, B, kind=8) == (Rekey(()),)
    assert changes(after, "ALTER TABLE `t` MODIFY `a` INT NULL", replace(a, nullable=True), B) == (Rekey(()),)


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("CREATE UNIQUE INDEX `u` ON `t` (`n`) WHERE `n` > 3", ()),
        ("CREATE UNIQUE INDEX `u` ON `t` ((`n` + 1))", ()),
        ("CREATE UNIQUE INDEX `u` USING BTREE ON `t` (`n`) ALGORITHM = INPLACE LOCK = NONE", ("n",)),
        ("ALTER TABLE `t` ADD UNIQUE INDEX `u`(`n`) WHERE `n` IS NOT NULL", ()),
        ("ALTER TABLE `t` ADD UNIQUE INDEX `u`(`n`) INVISIBLE", ("n",)),
    ],
)
def test_an_index_of_some_rows_never_becomes_the_key(query: str, key: tuple[str, ...]) -> None:
    column = Column("n", "INT", nullable=False)
    before = created("CREATE TABLE `t` (`n` INT NOT NULL)", column)
    assert ddl.evolve(before, file(query, 7, column), None)[0].key == key


def test_a_renamed_key_column_is_the_same_key() -> None:
    now = replace(ID, name="k")
    after, done = ddl.evolve(base(), file("ALTER TABLE `t` RENAME COLUMN `id` TO `k`", 12, now, A, B), None)
    assert done == (RenameColumn("id", "k"),)
    assert after.key == ("k",)
    assert after.indexes == (Index("PRIMARY", ("k",), True, True),)


def test_a_key_that_compares_in_another_way_is_another_key() -> None:
    k = Column("k", "VARCHAR", precision=5, nullable=False, is_pk=True)
    before = created("CREATE TABLE `t` (`k` VARCHAR(5) PRIMARY KEY)", k)
    text = "ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8MB4 COLLATE UTF8MB4_GENERAL_CI"
    after, done = ddl.evolve(before, file(text, 22, k), None)
    assert done == (Rekey(("k",)),)
    assert (after.collation, after.column("k").collation) == ("utf8mb4_general_ci", "utf8mb4_general_ci")


def test_a_new_table_default_leaves_old_columns_and_serves_new_ones() -> None:
    text = "ALTER TABLE `t` CHARACTER SET UTF8MB4 COLLATE UTF8MB4_GENERAL_CI"
    after, done = ddl.evolve(base(), file(text, 22, ID, A, B), None)
    assert done == ()
    later = Column("c", "VARCHAR", precision=5)
    after, _ = ddl.evolve(after, file("ALTER TABLE `t` ADD COLUMN `c` VARCHAR(5)", 5, ID, A, B, later), None)
    assert (after.column("b").collation, after.column("c").collation) == ("utf8mb4_bin", "utf8mb4_general_ci")


def test_a_key_of_the_setting_survives_renames() -> None:
    before = replace(base(), key=("a",))
    after, _ = ddl.evolve(before, file("ALTER TABLE `t` CHANGE `a` `a2` INT", 12, ID, replace(A, name="a2"), B), None)
    assert after.key == ("a2",)


def test_an_error_says_the_text_and_where_it_stands() -> None:
    with pytest.raises(TableHeld) as caught:
        changes(base(), "ALTER TABLE `t` SOMETHING NEW", ID, A, B, kind=999)
    assert "ALTER TABLE `t` SOMETHING NEW" in caught.value.message
    assert caught.value.where["file"] == caught.value.where["file"].strip() != ""
