"""Which tables lack the rows from before their feed, by their DDL and by what people state."""

from __future__ import annotations

from cdc_assets.history.history import read_history
from cdc_assets.history.policies import Rules
from cdc_assets.model.gaps import MissedMessages, TableCondition
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.progress import Gap, Life
from cdc_assets.model.releases import Release
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.table_history import History
from cdc_assets_tests.planning.test_plan import ID, A, B, C, V, W, create, schema_file

OLD = Life(A, 10)
PARTITIONED = (
    "CREATE TABLE `b` (`id` INT PRIMARY KEY,`v` VARCHAR(20)) PARTITION BY RANGE (`id`) "
    "(PARTITION `p0` VALUES LESS THAN (10),PARTITION `p1` VALUES LESS THAN (20))"
)


def found(table: TableId, version: int) -> SchemaFile:
    """The first schema file of a table that was there before the feed."""
    return schema_file(table, version, "", 0)


def gap_of(history: History, name: TableId) -> Gap | None:
    return next(table.gap for table in history.lives.values() if table.name == name)


def test_a_table_without_create_is_incomplete_and_one_with_it_is_not() -> None:
    history = read_history([found(A, 10), create(B, 10)])
    assert (gap_of(history, A), gap_of(history, B)) == (Gap(OLD), None)


def test_a_table_that_is_first_known_by_a_ddl_is_incomplete() -> None:
    history = read_history([schema_file(A, 10, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, (ID, V, W))])
    assert gap_of(history, A) == Gap(OLD)


def test_a_table_that_is_first_known_by_its_truncate_is_complete() -> None:
    assert gap_of(read_history([schema_file(A, 10, "TRUNCATE TABLE `a`", 11)]), A) is None


def test_truncate_ends_it_and_only_from_there_on() -> None:
    table = read_history([found(A, 10), schema_file(A, 30, "TRUNCATE TABLE `a`", 11)]).lives[OLD]
    assert (table.gap_at(29), table.gap_at(30), table.gap) == (Gap(OLD), None, None)


def test_a_table_is_sound_through_the_first_of_several_messages_that_were_not_read() -> None:
    accepted = MissedMessages(OffsetRange(Partition("t", 0), 5, 6), 900, True, 100, "lost", accepted=True)
    waiting = MissedMessages(OffsetRange(Partition("t", 0), 50, 51), 900, True, 500, "waits for a decision")
    life = Life(A, 10)
    gaps = [
        read_history([create(A, 10)], missed={A: missed}).lives[life].gap
        for missed in ([accepted], [waiting], [accepted, waiting])
    ]
    sound = [[at for at in (100, 101, 500, 501) if not TableCondition(life=life, gap=gap).deficits(at)] for gap in gaps]
    assert sound == [[100], [100, 101, 500], [100]]
    assert [gap is not None and gap.accepted for gap in gaps] == [True, False, False]


def test_a_truncate_that_a_person_skipped_does_not_end_it() -> None:
    files = [found(A, 10), schema_file(A, 30, "TRUNCATE TABLE `a`", 11)]
    assert gap_of(read_history(files, rules=Rules(releases={(OLD, 30): Release(OLD, 30, "skip")})), A) == Gap(OLD)


def test_rows_that_a_person_let_go_do_not_make_a_table_complete() -> None:
    files = [found(A, 10), schema_file(A, 30, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, (ID, V, W))]
    assert gap_of(read_history(files, rules=Rules(releases={(OLD, 30): Release(OLD, 30, "rebuild")})), A) == Gap(OLD)


def test_a_held_truncate_has_not_ended_it() -> None:
    files = [found(A, 10), schema_file(A, 30, "TRUNCATE TABLE `a`", 11), schema_file(A, 40, "TRUNCATE TABLE `a`", 11)]
    assert gap_of(read_history(files, rules=Rules({"truncate table": "hold"})), A) == Gap(OLD)


def test_a_table_that_is_created_anew_under_the_name_is_complete() -> None:
    history = read_history([found(A, 10), schema_file(A, 30, "DROP TABLE `s`.`a`", 4), create(A, 40)])
    assert gap_of(history, A) is None


def test_a_table_that_comes_back_without_create_is_incomplete() -> None:
    history = read_history([create(A, 10), schema_file(A, 30, "DROP TABLE `s`.`a`", 4), found(A, 40)])
    assert gap_of(history, A) == Gap(Life(A, 40))


def test_rename_and_recover_keep_it() -> None:
    files = [
        found(A, 10),
        schema_file(B, 20, "RENAME TABLE `s`.`a` TO `s`.`b`", 14),
        schema_file(B, 30, "DROP TABLE `s`.`b`", 4),
        schema_file(B, 40, "RECOVER TABLE `s`.`b`", 25),
    ]
    assert gap_of(read_history(files[:2]), B) == Gap(OLD)
    assert gap_of(read_history(files), B) == Gap(OLD)


def exchanged(a: SchemaFile, b: SchemaFile) -> History:
    """Partition p0 of `b` and all of `a` change places."""
    text = "ALTER TABLE `b` EXCHANGE PARTITION `p0` WITH TABLE `s`.`a`"
    return read_history([a, b, schema_file(B, 30, text, 42), schema_file(A, 30, "", 0)])


def test_exchange_brings_an_incomplete_table_s_rows_into_a_complete_one_and_takes_them_from_it() -> None:
    history = exchanged(found(A, 10), schema_file(B, 11, PARTITIONED, 3))
    assert history.lives[Life(B, 11)].gap_at(29) is None
    assert (gap_of(history, B), gap_of(history, A)) == (Gap(OLD), None)


def test_exchange_takes_rows_out_of_an_incomplete_partitioned_table() -> None:
    released = {(Life(B, 11), 11): Release(Life(B, 11), 11, "apply", PARTITIONED)}
    text = "ALTER TABLE `b` EXCHANGE PARTITION `p0` WITH TABLE `s`.`a`"
    moved = schema_file(B, 20, "ALTER TABLE `b` PARTITION BY " + PARTITIONED.split("PARTITION BY ")[1], 71)
    files = [create(A, 10), found(B, 11), moved, schema_file(B, 30, text, 42), schema_file(A, 30, "", 0)]
    history = read_history(files)
    assert (gap_of(history, A), gap_of(history, B)) == (Gap(Life(B, 11)), Gap(Life(B, 11)))
    assert gap_of(read_history(files, rules=Rules(releases=released)), A) is None


def test_what_a_person_says_is_of_the_name_that_the_table_had_then() -> None:
    files = [found(A, 10), schema_file(C, 20, "RENAME TABLE `s`.`a` TO `s`.`c`", 14), found(B, 11)]
    assert gap_of(read_history(files, rules=Rules(complete=["S.A"])), C) is None
    assert gap_of(read_history(files, rules=Rules(complete=["s.c"])), C) == Gap(OLD)
    assert gap_of(read_history(files, rules=Rules(complete=["s.a"])), B) == Gap(Life(B, 11))
    assert [table.gap for table in read_history(files, rules=Rules(complete=["s.*"])).lives.values()] == [None, None]
