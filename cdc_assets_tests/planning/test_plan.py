"""What is planned, from schema files and progress alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.schema import Column, TableId
from cdc_assets.model.splits import DataFile, Listing, SchemaFile
from cdc_assets.model.steps import ApplyRows, ChangeTable, CreateTable, DropTable, HoldTable, RenameTable, Step
from cdc_assets.planning.inputs import FeedFacts
from cdc_assets.planning.plan import plan
from cdc_assets_tests.default_rules import TABLE_RULES

ID = Column("id", "INT", precision=11, nullable=False, is_pk=True)
V = Column("v", "VARCHAR", precision=20)
W = Column("w", "INT", precision=11)
A, B, C = (TableId("s", name) for name in "abc")


def schema_file(
    table: TableId, version: int, query: str, kind: int, columns: tuple[Column, ...] = (ID, V)
) -> SchemaFile:
    root = f"{table.schema}/{table.table}" if table.table else table.schema
    return SchemaFile(f"{root}/meta/schema_{version}_0.json", root, table, version, query, kind, columns)


def create(table: TableId, version: int) -> SchemaFile:
    return schema_file(table, version, f"CREATE TABLE `{table.table}` (`id` INT PRIMARY KEY,`v` VARCHAR(20))", 3)


def data_file(table: TableId, version: int, number: int = 1) -> DataFile:
    directory = f"{table.schema}/{table.table}/{version}"
    path = f"{directory}/CDC{number:020d}.csv"
    return DataFile(path, f"{table.schema}/{table.table}", version, directory, number, 100, "e")


def steps(
    checkpoint: int, *files: SchemaFile | DataFile, applied: dict[Life, AppliedState] | None = None
) -> list[Step]:
    schemas = tuple(file for file in files if isinstance(file, SchemaFile))
    data = tuple(file for file in files if isinstance(file, DataFile))
    return list(plan(Listing(checkpoint, schemas, data), applied or {}, TABLE_RULES).steps)


def at(tso: int, phase: Phase = Phase.ROWS, ddl: int = 10, name: TableId | None = A) -> dict[Life, AppliedState]:
    return {Life(A, 10): AppliedState(Progress(tso, phase), ddl, name)}


def test_a_table_is_created_and_its_rows_go_through_the_checkpoint() -> None:
    created, rows = steps(50, create(A, 10), data_file(A, 10))
    assert isinstance(created, CreateTable)
    assert isinstance(rows, ApplyRows)
    assert (rows.lo, rows.hi) == (9, 50)


def test_nothing_above_the_checkpoint_is_planned() -> None:
    assert steps(5, create(A, 10), data_file(A, 10)) == []


def test_nothing_is_planned_twice() -> None:
    assert steps(50, create(A, 10), data_file(A, 10), applied=at(50)) == []


def test_a_window_begins_where_the_last_one_ended() -> None:
    (rows,) = steps(80, create(A, 10), data_file(A, 10), applied=at(50))
    assert isinstance(rows, ApplyRows)
    assert (rows.lo, rows.hi) == (50, 80)


def test_rows_end_before_a_ddl_that_touches_them_and_go_on_after_it() -> None:
    add = schema_file(A, 30, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, (ID, V, W))
    kinds = steps(50, create(A, 10), add, data_file(A, 10), data_file(A, 30))
    assert [type(step) for step in kinds] == [CreateTable, ApplyRows, ChangeTable, ApplyRows]
    windows = [(step.lo, step.hi) for step in kinds if isinstance(step, ApplyRows)]
    assert windows == [(9, 29), (29, 50)]


def test_a_neutral_ddl_does_not_end_a_window() -> None:
    index = schema_file(A, 30, "ALTER TABLE `a` ADD INDEX `i`(`v`)", 7)
    created, rows = steps(50, create(A, 10), index, data_file(A, 10), data_file(A, 30))
    assert isinstance(created, CreateTable)
    assert isinstance(rows, ApplyRows)
    assert (rows.lo, rows.hi, rows.ddl) == (9, 50, 30)


def test_rows_in_an_older_directory_with_the_same_columns_are_candidates_after_a_truncate() -> None:
    truncate = schema_file(A, 30, "TRUNCATE TABLE `a`", 11)
    planned = steps(50, create(A, 10), truncate, data_file(A, 10), data_file(A, 30))
    assert [len(step.files) for step in planned if isinstance(step, ApplyRows)] == [2, 2]


def test_a_ddl_at_exactly_the_applied_checkpoint_is_still_due() -> None:
    add = schema_file(A, 50, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, (ID, V, W))
    planned = steps(80, create(A, 10), add, data_file(A, 10), data_file(A, 50), applied=at(50))
    assert [type(step) for step in planned] == [ChangeTable, ApplyRows]


def test_a_ddl_below_the_applied_checkpoint_holds_its_table() -> None:
    add = schema_file(A, 40, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, (ID, V, W))
    (hold,) = steps(80, create(A, 10), add, data_file(A, 40), applied=at(50))
    assert isinstance(hold, HoldTable)
    assert "after rows through 50" in hold.reason


def test_columns_that_changed_without_ddl_are_due_when_their_file_appears() -> None:
    hidden = schema_file(A, 40, "", 0, (ID, V, W))
    planned = steps(80, create(A, 10), hidden, data_file(A, 40), applied=at(50))
    assert [type(step) for step in planned] == [ChangeTable, ApplyRows]


def test_a_swap_by_one_statement_reads_every_source_as_of_before_it() -> None:
    swap = (
        schema_file(C, 30, "RENAME TABLE `s`.`a` TO `s`.`c`", 14),
        schema_file(A, 30, "RENAME TABLE `s`.`b` TO `s`.`a`", 14),
        schema_file(B, 30, "RENAME TABLE `s`.`a` TO `s`.`b`", 14),
    )
    planned = steps(50, create(A, 10), create(B, 11), *swap)
    renames = {step.life: step.to for step in planned if isinstance(step, RenameTable)}
    assert renames == {Life(A, 10): B, Life(B, 11): A}


def test_renames_of_unknown_order_hold_their_tables() -> None:
    last = TableId("s", "last")
    hops = (
        schema_file(C, 30, "RENAME TABLE `s`.`a` TO `s`.`c`", 14),
        schema_file(A, 30, "RENAME TABLE `s`.`b` TO `s`.`a`", 14),
        schema_file(last, 30, "RENAME TABLE `s`.`a` TO `s`.`last`", 14),
    )
    planned = steps(50, create(A, 10), create(B, 11), *hops)
    assert {step.life for step in planned if isinstance(step, HoldTable)} == {Life(A, 10), Life(B, 11)}


def test_a_rename_of_a_table_never_seen_is_held() -> None:
    planned = steps(50, schema_file(B, 30, "RENAME TABLE `s`.`a` TO `s`.`b`", 14), data_file(B, 30))
    assert [type(step) for step in planned] == [HoldTable]


def test_dropping_a_database_drops_its_tables_only() -> None:
    other = TableId("t", "a")
    drop = replace(schema_file(TableId("s", ""), 30, "DROP DATABASE `s`", 2, ()), root="s")
    planned = steps(50, create(A, 10), create(B, 11), create(other, 12), drop)
    assert {step.life.born_as for step in planned if isinstance(step, DropTable)} == {A, B}


def test_who_wants_the_name_of_a_held_table_waits_for_it() -> None:
    unknown = schema_file(A, 30, "ALTER TABLE `a` FROBNICATE", 999)
    drop = schema_file(A, 40, "DROP TABLE `s`.`a`", 4)
    held = [step for step in steps(90, create(A, 10), unknown, drop, create(A, 50)) if isinstance(step, HoldTable)]
    if held:
        assert [step.life for step in held] == [Life(A, 10), Life(A, 50)]
        assert "waits for" in held[1].reason


def test_a_broken_schema_file_stops_its_table_before_that_version_and_no_other() -> None:
    listing = Listing(50, (create(A, 10), create(B, 11)), (data_file(A, 10), data_file(B, 11)))
    planned = plan(listing, {}, TABLE_RULES, facts=FeedFacts(broken=[("s/a", 30, "cannot be read")])).steps
    assert [type(s) for s in planned if s.life.born_as == A] == [CreateTable, ApplyRows, HoldTable]
    assert next(s.hi for s in planned if isinstance(s, ApplyRows) and s.life.born_as == A) == 29
    assert [type(s) for s in planned if s.life.born_as == B] == [CreateTable, ApplyRows]


def test_a_checkpoint_behind_the_applied_one_plans_nothing() -> None:
    listing = Listing(40, (create(A, 10),), (data_file(A, 10),))
    planned = plan(listing, at(50), TABLE_RULES)
    assert planned.steps == ()
    assert planned.behind == (Life(A, 10),)


@pytest.mark.parametrize("known", [True, False])
def test_a_file_whose_rows_are_all_applied_is_not_read_again(known: bool) -> None:
    from cdc_assets.model.reports import FileStats

    file = data_file(A, 10)
    stats = {file.path: FileStats(file.path, file.size, file.etag, 3, 12, 50)} if known else {}
    planned = plan(Listing(80, (create(A, 10),), (file,)), at(50), TABLE_RULES, facts=FeedFacts(stats=stats))
    assert len(planned.steps) == (0 if known else 1)
