"""What is planned of tables that a dump brings, from listings and progress alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cdc_assets.ddl import created
from cdc_assets.history.policies import Rules
from cdc_assets.model.dumps import DumpFile, DumpSplit
from cdc_assets.model.progress import AppliedState, Base, Gap, Life, Phase, Progress
from cdc_assets.model.releases import Release, Releases
from cdc_assets.model.schema import Column, TableId
from cdc_assets.model.splits import DataFile, Import, Listing, SchemaFile
from cdc_assets.model.steps import ApplyRows, ChangeTable, CreateTable, DropTable, HoldTable, RenameTable, Step
from cdc_assets.model.table_history import Changed, Held
from cdc_assets.planning.inputs import Beginnings, FeedFacts
from cdc_assets.planning.plan import Plan, plan
from cdc_assets.planning.run_batches import batches, due
from cdc_assets_tests.default_rules import TABLE_RULES
from cdc_assets_tests.planning.test_plan import ID, A, B, C, V, W, create, data_file, schema_file

S = 100
TEXT = "CREATE TABLE `{}` (`id` INT NOT NULL,`v` VARCHAR(20),PRIMARY KEY (`id`))"


def brought(table: TableId = A, at: int = S, text: str = TEXT, files: int = 1, uri: str = "/dump") -> Import:
    query = text.format(table.table)
    base, root = Base(at, table, uri, query), f"{uri}#{table}"
    pieces = (
        DumpFile(f"s.{table.table}.{number}.csv", table, "csv", "", str(number), 10, "e") for number in range(files)
    )
    data = [
        DataFile(f"{uri}/{piece.path}", root, at, uri, n, 10, "e", piece=DumpSplit(piece, 0, 10))
        for n, piece in enumerate(pieces)
    ]
    return Import(base, created(query), root, tuple(data))


def found(table: TableId, version: int, columns: tuple[Column, ...] = (ID, V)) -> SchemaFile:
    return schema_file(table, version, "", 0, columns)


def planned(
    checkpoint: int,
    *inputs: SchemaFile | DataFile | Import,
    applied: dict[Life, AppliedState] | None = None,
    begun: int | None = 1,
    bases: Mapping[Life, Base | None] | None = None,
    releases: Releases | None = None,
) -> Plan:
    schemas = tuple(entry for entry in inputs if isinstance(entry, SchemaFile))
    data = tuple(entry for entry in inputs if isinstance(entry, DataFile))
    imports = tuple(entry for entry in inputs if isinstance(entry, Import))
    listing, rules = (
        Listing(checkpoint, schemas, data, imports=imports),
        replace(TABLE_RULES, ddl=Rules(releases=releases or {})),
    )
    return plan(listing, applied or {}, rules, FeedFacts(begun=begun), Beginnings(bases or {}))


def kinds(steps: tuple[Step, ...]) -> list[type[Step]]:
    return [type(step) for step in steps]


def windows(steps: tuple[Step, ...]) -> list[tuple[int, int, bool]]:
    return [(step.lo, step.hi, step.is_snapshot) for step in steps if isinstance(step, ApplyRows)]


def on(base_import: Import, tso: int, name: TableId | None, phase: Phase = Phase.ROWS) -> AppliedState:
    return AppliedState(Progress(tso, phase), base_import.base.at, name, base=base_import.base)


# --- birth ------------------------------------------------------------------------------------------------------------


def test_a_table_is_made_at_the_dump_and_has_its_rows_before_those_of_the_feed() -> None:
    steps = planned(200, brought(), found(A, S), data_file(A, S)).steps
    assert kinds(steps) == [CreateTable, ApplyRows, ApplyRows]
    assert windows(steps) == [(99, 100, True), (100, 200, False)]
    assert isinstance(steps[0], CreateTable)
    assert (steps[0].base, steps[0].progress, steps[0].gap) == (
        brought().base,
        Progress(S, Phase.DDL),
        Gap(steps[0].life),
    )


def test_a_table_that_the_feed_never_mentions_is_brought_all_the_same() -> None:
    assert windows(planned(200, brought(), create(B, 50)).steps) == [(99, 100, True)]


def test_an_import_of_more_than_one_run_reads_has_a_run_of_its_own() -> None:
    dues = due(planned(200, brought(A, files=3), brought(B), brought(C)))
    made = batches(dues, lambda _: 1, tables=9, file_bytes=20, everything=True)
    assert [sorted(str(life.born_as) for life in batch.lives) for batch in made] == [["s.a"], ["s.b", "s.c"]]
    assert not any(batch.everything for batch in made if len(batch.lives) == 1)


def test_an_empty_table_is_past_the_rows_of_the_dump_at_once() -> None:
    steps = planned(200, brought(files=0), found(A, 50), data_file(A, 50)).steps
    assert isinstance(steps[0], CreateTable)
    assert steps[0].progress == Progress(S, Phase.ROWS)
    assert windows(steps) == [(100, 200, False)]


def test_a_table_that_was_made_and_not_filled_is_filled_first() -> None:
    applied = {Life(A, S): on(brought(), S, A, Phase.DDL)}
    steps = planned(200, brought(), found(A, S), data_file(A, S), applied=applied).steps
    assert windows(steps) == [(99, 100, True), (100, 200, False)]


def test_a_table_that_was_made_and_whose_dump_is_gone_is_held() -> None:
    applied = {Life(A, S): on(brought(), S, A, Phase.DDL)}
    (step,) = planned(200, found(A, S), data_file(A, S), applied=applied).steps
    assert isinstance(step, HoldTable)
    assert "/dump" in step.reason


def test_a_filled_table_does_not_need_its_dump_any_more() -> None:
    applied = {Life(A, S): on(brought(), 150, A)}
    steps = planned(200, found(A, 120), data_file(A, 120), applied=applied).steps
    assert windows(steps) == [(150, 200, False)]


# --- what the feed has of the time before -----------------------------------------------------------------------------


def test_what_the_feed_has_at_or_below_the_dump_is_older() -> None:
    add = schema_file(A, 40, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, (ID, V, W))
    drop = schema_file(A, S, "ALTER TABLE `a` DROP COLUMN `w`", 6)
    steps = planned(200, brought(), create(A, 10), add, drop, data_file(A, 10), data_file(A, S)).steps
    assert kinds(steps) == [CreateTable, ApplyRows, ApplyRows]
    assert isinstance(steps[2], ApplyRows)
    assert {file.version for file in steps[2].files} == {10, S}


def test_a_table_of_the_feed_keeps_its_identity() -> None:
    steps = planned(200, brought(), create(A, 10)).steps
    assert [step.life for step in steps] == [Life(A, 10)] * 2


def test_a_table_that_was_renamed_before_the_dump_keeps_its_identity_too() -> None:
    rename = schema_file(B, 50, "RENAME TABLE `s`.`a` TO `s`.`b`", 14)
    assert {step.life for step in planned(200, brought(B), create(A, 10), rename).steps} == {Life(A, 10)}


def test_a_hold_from_before_the_dump_is_none() -> None:
    odd = schema_file(A, 40, "ALTER TABLE `a` FROB", 5)
    assert kinds(planned(200, brought(), create(A, 10), odd).steps) == [CreateTable, ApplyRows]


def test_rows_of_a_directory_from_before_are_decoded_by_the_columns_of_the_dump() -> None:
    text = "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`v` VARCHAR(20) COLLATE utf8mb4_bin)"
    known = planned(200, brought(text=text), found(A, 40), data_file(A, 40)).history.decoding["s/a", 40]
    assert known[0][1].column("v").collation == "utf8mb4_bin"


def test_rows_of_a_directory_from_before_carry_the_name_as_it_was_spelled_then() -> None:
    mixed, lower = TableId("s", "Mixed"), TableId("s", "mixed")
    rename = schema_file(lower, 40, "RENAME TABLE `Mixed` TO `mixed`", 14)
    made = planned(200, brought(lower), create(mixed, 10), rename, data_file(mixed, 10), data_file(lower, 40))
    steps = [step for step in made.steps if isinstance(step, ApplyRows) and not step.is_snapshot]
    assert {name for step in steps for name, _ in step.reading.schemas.values()} == {mixed, lower}


# --- what the feed has afterwards -------------------------------------------------------------------------------------


def test_a_ddl_after_the_dump_finds_the_table() -> None:
    add = schema_file(A, 140, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, (ID, V, W))
    steps = planned(200, brought(), add, data_file(A, 140)).steps
    assert kinds(steps) == [CreateTable, ApplyRows, ChangeTable, ApplyRows]


def test_a_rename_a_drop_and_a_create_after_the_dump_come_out_right() -> None:
    rename = schema_file(B, 120, "RENAME TABLE `s`.`a` TO `s`.`b`", 14)
    drop = schema_file(C, 130, "DROP TABLE `s`.`c`", 4)
    steps = planned(200, brought(A), brought(C), rename, drop, create(A, 150)).steps
    assert [(type(step), step.life) for step in steps] == [
        (CreateTable, Life(A, S)),
        (CreateTable, Life(C, S)),
        (ApplyRows, Life(A, S)),
        (ApplyRows, Life(C, S)),
        (RenameTable, Life(A, S)),
        (DropTable, Life(C, S)),
        (CreateTable, Life(A, 150)),
    ]


def test_the_first_schema_file_without_ddl_has_to_have_the_columns_of_the_dump() -> None:
    assert windows(planned(200, brought(), found(A, 140), data_file(A, 140)).steps)[-1] == (100, 200, False)
    held = planned(200, brought(), found(A, 140, (ID, V, W)), data_file(A, 140)).steps[-1]
    assert isinstance(held, HoldTable)
    assert '"w" (only the schema file has it)' in held.reason
    assert held.at == 140
    assert held.releasable


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ((ID,), '"v" (only the dump has it)'),
        ((ID, replace(V, precision=30)), '"v" (its definition)'),
        ((ID, replace(V, type="CHAR")), '"v" (its definition)'),
        ((V, ID), '"v" (its place)'),
    ],
)
def test_a_difference_names_the_columns(columns: tuple[Column, ...], sentence: str) -> None:
    held = planned(200, brought(), found(A, 140, columns)).steps[-1]
    assert isinstance(held, HoldTable)
    assert sentence in held.reason


def test_columns_are_compared_with_what_ddl_has_made_of_them_since() -> None:
    add = schema_file(A, 120, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, (ID, V, W))
    steps = planned(200, brought(), add, found(A, 140, (ID, V, W)), data_file(A, 140)).steps
    assert not any(isinstance(step, HoldTable) for step in steps)


def test_generated_columns_of_the_schema_file_are_those_of_the_text() -> None:
    text = (
        "CREATE TABLE `{}` (`id` INT NOT NULL,`v` VARCHAR(20),`g` INT GENERATED ALWAYS AS (`id`+1) STORED,"
        "`h` INT GENERATED ALWAYS AS (`id`+2) VIRTUAL,PRIMARY KEY (`id`))"
    )
    columns = (ID, V, replace(W, name="g"), replace(W, name="h"))
    assert kinds(planned(200, brought(text=text), found(A, 140, columns)).steps) == [CreateTable, ApplyRows]


def test_rows_that_go_by_a_column_without_values_are_held() -> None:
    text = (
        "CREATE TABLE `{}` (`id` INT NOT NULL,`g` INT GENERATED ALWAYS AS (length(`id`)) STORED) "
        "PARTITION BY RANGE (`g`) (PARTITION p0 VALUES LESS THAN (5),PARTITION p1 VALUES LESS THAN MAXVALUE)"
    )
    base_import = replace(brought(text=text), made_null={"g": "it is not evaluated"})
    drop = schema_file(
        A, 140, "ALTER TABLE `a` DROP PARTITION p0", 20, (replace(ID, is_pk=False), replace(W, name="g"))
    )
    held = planned(200, base_import, drop).steps[-1]
    assert isinstance(held, HoldTable)
    assert 'the column "g", which is NULL in the rows from the dump (it is not evaluated)' in held.reason


def test_rows_without_values_that_came_by_exchange_hold_what_goes_by_these() -> None:
    g = replace(W, name="g")
    columns = (replace(ID, is_pk=False), g)
    text = "CREATE TABLE `{}` (`id` INT NOT NULL,`g` INT GENERATED ALWAYS AS (length(`id`)) STORED)"
    parts = " PARTITION BY RANGE (`{}`) (PARTITION p0 VALUES LESS THAN (5),PARTITION p1 VALUES LESS THAN MAXVALUE)"
    base_import = replace(brought(text=text), made_null={"g": "it is not evaluated"})
    made = schema_file(B, 110, text.format("b") + parts.format("id"), 3, columns)
    exchanged = schema_file(B, 120, "ALTER TABLE `b` EXCHANGE PARTITION p0 WITH TABLE `a`", 42, columns)
    parted = [
        schema_file(table, 130, f"ALTER TABLE `{table.table}`{parts.format('g')}", 71, columns) for table in (A, B)
    ]
    dropped = [
        schema_file(table, 140, f"ALTER TABLE `{table.table}` DROP PARTITION p0", 20, columns) for table in (A, B)
    ]
    history = planned(200, base_import, made, exchanged, *parted, *dropped).history
    events_by_name = {table.name: table.events[-1] for table in history.lives.values()}
    held = events_by_name[B]
    assert isinstance(held, Held)
    assert 'the column "g", which is NULL in the rows from the dump (it is not evaluated)' in held.reason
    assert isinstance(events_by_name[A], Changed)


# --- when the feed began ----------------------------------------------------------------------------------------------


def test_tables_hold_where_nothing_proves_that_the_feed_began_before_the_dump() -> None:
    (held,) = planned(200, brought(), found(A, 140), data_file(A, 140), begun=None).steps
    assert isinstance(held, HoldTable)
    assert held.releasable
    assert "100" in held.reason
    assert "140" in held.reason


@pytest.mark.parametrize("begun", [S, S - 1])
def test_a_stated_start_or_any_version_at_or_below_the_dump_proves_it(begun: int) -> None:
    assert kinds(planned(200, brought(), begun=begun).steps) == [CreateTable, ApplyRows]
    assert kinds(planned(200, brought(), found(B, begun), begun=None).of(Life(A, S))) == [CreateTable, ApplyRows]


@pytest.mark.parametrize(("way", "expected"), [("apply", [CreateTable, ApplyRows]), ("skip", [])])
def test_a_person_decides_it_otherwise(way: str, expected: list[type[Step]]) -> None:
    releases = {(Life(A, S), S): Release(Life(A, S), S, way)}
    assert kinds(planned(200, brought(), begun=None, releases=releases).steps) == expected


def test_a_table_that_cannot_be_taken_holds_and_the_others_go_on() -> None:
    broken = replace(brought(), problem="its file is empty")
    result = planned(200, broken, brought(B))
    assert kinds(result.of(Life(A, S))) == [HoldTable]
    assert kinds(result.of(Life(B, S))) == [CreateTable, ApplyRows]


# --- several dumps, and tables that stand -----------------------------------------------------------------------------


def test_an_import_waits_until_the_feed_has_come_so_far() -> None:
    (held,) = planned(80, brought(), found(A, 50), data_file(A, 50)).steps
    assert isinstance(held, HoldTable)
    assert not held.releasable
    assert "80" in held.reason
    assert kinds(planned(80, brought(B), create(A, 50)).steps) == [CreateTable]


def test_the_newest_dump_that_has_the_table_counts() -> None:
    base_import, other, late = brought(A, 60, uri="/one"), brought(A, 90, uri="/two"), brought(A, 300, uri="/three")
    steps = planned(200, other, base_import, late, brought(B, 60)).steps
    assert [(step.life, step.hi) for step in steps if isinstance(step, ApplyRows)] == [
        (Life(B, 60), 60),
        (Life(A, 90), 90),
    ]


def test_a_table_stays_on_the_dump_that_it_stands_on() -> None:
    applied = {Life(A, 60): on(brought(A, 60), 150, A)}
    steps = planned(200, brought(A, 60), brought(A, 90), found(A, 70), data_file(A, 70), applied=applied).steps
    assert [(type(step), step.life) for step in steps] == [(ApplyRows, Life(A, 60))]


@pytest.mark.parametrize("first", [found(A, S), found(A, 40), found(A, 140), create(A, 40)])
def test_a_table_that_stands_on_the_feed_stays_there(first: SchemaFile) -> None:
    life = Life(A, first.version)
    applied = {life: AppliedState(Progress(150, Phase.ROWS), first.version, A)}
    result = planned(200, brought(), first, data_file(A, first.version), applied=applied)
    assert [(type(step), step.life) for step in result.steps] == [(ApplyRows, life)]


def test_a_table_that_stands_under_a_later_name_stays_there_too() -> None:
    rename = schema_file(B, 130, "RENAME TABLE `s`.`a` TO `s`.`b`", 14)
    applied = {Life(B, 130): AppliedState(Progress(150, Phase.ROWS), 130, B)}
    result = planned(200, brought(), rename, data_file(B, 130), applied=applied)
    assert [(type(step), step.life) for step in result.steps] == [(ApplyRows, Life(B, 130))]


def test_a_table_that_is_to_stand_on_a_dump_keeps_its_identity() -> None:
    rename = schema_file(B, 130, "RENAME TABLE `s`.`a` TO `s`.`b`", 14)
    steps = planned(200, brought(), rename, data_file(B, 130), bases={Life(B, 130): brought().base}).steps
    assert [(type(step), step.life) for step in steps] == [
        (CreateTable, Life(B, 130)),
        (ApplyRows, Life(B, 130)),
        (RenameTable, Life(B, 130)),
        (ApplyRows, Life(B, 130)),
    ]
