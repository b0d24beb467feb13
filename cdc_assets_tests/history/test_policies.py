"""What policies and releases make of a table's history, from schema files alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets import ddl
from cdc_assets.errors import BadSettings
from cdc_assets.history.history import read_history
from cdc_assets.history.policies import Rules
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.releases import Release
from cdc_assets.model.schema import Column, TableId
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
from cdc_assets.model.splits import Listing, SchemaFile
from cdc_assets.model.steps import ApplyRows, ChangeTable, CreateTable, DropTable, HoldTable, RenameTable, Step
from cdc_assets.model.table_history import History
from cdc_assets.planning.plan import plan
from cdc_assets.report.tables import describe_tables
from cdc_assets.settings.config import POLICY_KINDS, from_flags
from cdc_assets.types.fidelity import column_fidelity
from cdc_assets_tests.default_rules import TABLE_RULES
from cdc_assets_tests.planning.test_plan import ID, A, B, C, V, W, create, data_file, schema_file

LIFE = Life(A, 10)
X = Column("x", "VARCHAR", precision=20)
TRUNCATE = schema_file(A, 30, "TRUNCATE TABLE `a`", 11)
ADD = schema_file(A, 30, "ALTER TABLE `a` ADD COLUMN `w` INT DEFAULT 5", 5, (ID, V, W))
DROP = schema_file(A, 30, "DROP TABLE `s`.`a`", 4)
DROP_V = schema_file(A, 30, "ALTER TABLE `a` DROP COLUMN `v`", 6, (ID,))
UNKNOWN = schema_file(A, 30, "ALTER TABLE `a` FROBNICATE", 999, (ID, X))
HIDDEN = schema_file(A, 30, "", 0, (ID, X))
KEYED = "CREATE TABLE `a` (`id` INT PRIMARY KEY,`v` VARCHAR(20)) PARTITION BY KEY (`id`) PARTITIONS 3"


def history_of(
    *files: SchemaFile, policies: Mapping[str, str] | None = None, releases: Iterable[Release] = ()
) -> History:
    decided = {(release.life, release.version): release for release in releases}
    return read_history((create(A, 10), *files), rules=Rules(policies or {}, decided))


def steps(
    *files: SchemaFile,
    policies: Mapping[str, str] | None = None,
    releases: Iterable[Release] = (),
    applied: Mapping[Life, AppliedState] | None = None,
    born: SchemaFile | None = None,
) -> list[Step]:
    given = tuple(file for file in (born or create(A, 10), *files))
    listing = Listing(90, given, tuple(data_file(file.table, file.version) for file in given if file.columns))
    decided = {(release.life, release.version): release for release in releases}
    return list(plan(listing, applied or {}, replace(TABLE_RULES, ddl=Rules(policies or {}, decided))).steps)


def ddl_of(planned_steps: Iterable[Step]) -> list[Step]:
    return [step for step in planned_steps if not isinstance(step, (CreateTable, ApplyRows))]


def skip(version: int = 30, life: Life = LIFE) -> Release:
    return Release(life, version, "skip")


# --- kinds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "kinds"),
    [
        (create(A, 10), {"create table"}),
        (DROP, {"drop table"}),
        (TRUNCATE, {"truncate table"}),
        (ADD, {"add column"}),
        (UNKNOWN, {"unknown"}),
        (schema_file(A, 30, "DROP DATABASE `s`", 2, ()), {"drop schema", "drop table"}),
        (schema_file(A, 30, "RENAME TABLE `s`.`b` TO `s`.`a`", 14), {"rename table"}),
        (schema_file(A, 30, "ALTER TABLE `a` ADD INDEX `i`(`v`)", 7), set()),
        (schema_file(A, 30, "ALTER TABLE `a` DROP PRIMARY KEY", 33), {"drop primary key"}),
        (schema_file(A, 30, "ALTER TABLE `a` TRUNCATE PARTITION `p0`", 23), {"truncate partition"}),
        (schema_file(A, 30, "ALTER TABLE `a` REMOVE PARTITIONING", 72), {"remove partitioning"}),
        (
            schema_file(A, 30, "ALTER TABLE `a` ADD COLUMN `w` INT, DROP COLUMN `v`", 61, (ID, W)),
            {"add column", "drop column", "multi-schema change"},
        ),
    ],
    ids=lambda value: value.query if isinstance(value, SchemaFile) else "",
)
def test_a_ddl_is_of_these_kinds(file: SchemaFile, kinds: set[str]) -> None:
    assert set(ddl.kinds(file)) == kinds


def test_every_kind_of_ddl_can_be_named_by_a_policy() -> None:
    texts = [
        "ADD PARTITION (PARTITION p VALUES LESS THAN (1))",
        "DROP PARTITION p",
        "REORGANIZE PARTITION p INTO (PARTITION q VALUES LESS THAN (2))",
        "PARTITION BY HASH(id) PARTITIONS 2",
        "COALESCE PARTITION 1",
        "ALTER COLUMN v SET DEFAULT 'a'",
        "MODIFY v INT",
        "ADD PRIMARY KEY (v)",
        "EXCHANGE PARTITION p WITH TABLE b",
    ]
    ddl_kinds = {kind for text in texts for kind in ddl.kinds(schema_file(A, 30, f"ALTER TABLE `a` {text}", 0))}
    assert len(ddl_kinds) == 8
    assert ddl_kinds <= set(POLICY_KINDS)


def test_a_schema_file_without_ddl_is_of_a_kind_only_where_columns_changed() -> None:
    assert ddl.kinds(HIDDEN) == ()
    assert ddl.kinds(HIDDEN, [AddColumn(W)]) == ("columns changed without ddl", "add column")


@given(st.dictionaries(st.sampled_from(POLICY_KINDS), st.sampled_from(["apply", "hold", "skip"])), st.randoms())
def test_the_strictest_part_wins_whatever_the_order(policies: dict[str, str], shuffle: object) -> None:
    kinds = list(POLICY_KINDS)
    shuffle.shuffle(kinds)  # type: ignore[attr-defined]
    given = set(policies.values())
    way = Rules(policies).decide(LIFE, 30, kinds).way
    assert way == ("hold" if "hold" in given else "skip" if "skip" in given else "apply")


@pytest.mark.parametrize(
    ("kind", "policy"), [("rename table", "skip"), ("create table", "skip"), ("create schema", "hold")]
)
def test_a_policy_after_which_rows_had_no_place_is_refused(kind: str, policy: str) -> None:
    with pytest.raises(BadSettings, match=f'"{policy}" is not for {kind}'):
        from_flags(sink_uri="/a?protocol=csv", policies={kind: policy})


# --- hold -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        (TRUNCATE, "truncate table"),
        (ADD, "add column"),
        (DROP, "drop table"),
        (DROP_V, "drop column"),
        (schema_file(A, 30, "", 0, (ID, V, W)), "columns changed without ddl"),
        (schema_file(B, 30, "RENAME TABLE `s`.`a` TO `s`.`b`", 14), "rename table"),
        (schema_file(A, 30, "ALTER TABLE `a` ADD COLUMN `w` INT, COMMENT 'x'", 61, (ID, V, W)), "add column"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_held_kind_stops_its_table_until_it_is_released(file: SchemaFile, kind: str) -> None:
    (hold,) = ddl_of(steps(file, policies={kind: "hold"}))
    assert isinstance(hold, HoldTable)
    assert (hold.life, hold.at, hold.releasable) == (LIFE, 30, True)
    assert f'policy for "{kind}"' in hold.reason
    assert "carry it out as it is written: cdc-assets release s.a 30 --apply" in hold.ways
    released = ddl_of(steps(file, policies={kind: "hold"}, releases=[Release(LIFE, 30, "apply")]))
    assert released == ddl_of(steps(file))
    assert released


def test_a_table_whose_birth_is_held_is_created_when_it_is_released() -> None:
    (hold,) = steps(policies={"create table": "hold"})
    assert isinstance(hold, HoldTable)
    assert steps(policies={"create table": "hold"}, releases=[Release(LIFE, 10, "apply")]) == steps()


def test_a_database_whose_drop_is_held_holds_each_of_its_tables() -> None:
    drop = schema_file(TableId("s", ""), 30, "DROP DATABASE `s`", 2, ())
    ddl_steps = ddl_of(steps(create(B, 11), drop, policies={"drop table": "hold"}))
    assert {step.life.born_as for step in ddl_steps if isinstance(step, HoldTable)} == {A, B}


def test_a_recovered_table_waits_when_that_is_held_and_comes_back_when_it_is_released() -> None:
    back = schema_file(A, 40, "RECOVER TABLE `a`", 25)
    policies = {"recover table": "hold"}
    assert [type(s) for s in ddl_of(steps(DROP, back, policies=policies))] == [DropTable, HoldTable]
    released = ddl_of(steps(DROP, back, policies=policies, releases=[Release(LIFE, 40, "apply")]))
    assert released == ddl_of(steps(DROP, back))


# --- skip -------------------------------------------------------------------------------------------------------------


def test_a_skipped_truncate_leaves_rows_and_columns_alone() -> None:
    assert ddl_of(steps(TRUNCATE, policies={"truncate table": "skip"})) == []


def test_a_skipped_column_is_there_and_null_in_old_rows() -> None:
    (change,) = ddl_of(steps(ADD, policies={"add column": "skip"}))
    assert isinstance(change, ChangeTable)
    assert [(c.column.name, c.default) for c in change.changes if isinstance(c, AddColumn)] == [("w", None)]
    assert [column.name for column in change.schema.columns] == ["id", "v", "w"]


def test_a_skipped_type_change_converts_nothing() -> None:
    modify = schema_file(A, 30, "ALTER TABLE `a` MODIFY COLUMN `v` INT", 12, (ID, Column("v", "INT", precision=11)))
    (change,) = ddl_of(steps(modify, policies={"modify column": "skip"}))
    assert isinstance(change, ChangeTable)
    assert [type(schema_change) for schema_change in change.changes] == [DropColumn, AddColumn]


def test_a_skipped_type_change_that_widens_keeps_the_values() -> None:
    wide = schema_file(
        A, 40, "ALTER TABLE `a` MODIFY COLUMN `w` BIGINT", 12, (ID, V, Column("w", "BIGINT", precision=20))
    )
    ddl_steps = ddl_of(steps(ADD, wide, policies={"modify column": "skip"}))
    assert isinstance(ddl_steps[-1], ChangeTable)
    assert [type(change) for change in ddl_steps[-1].changes] == [RetypeColumn, SetDefault]


def test_a_skip_that_would_make_keys_null_is_held() -> None:
    other = Column("k", "INT", precision=11, nullable=False, is_pk=True)
    rekey = schema_file(A, 30, "ALTER TABLE `a` FROBNICATE", 999, (other, V))
    (hold,) = ddl_of(steps(rekey, policies={"unknown": "skip"}))
    assert isinstance(hold, HoldTable)
    assert "k of the key would be NULL" in hold.reason
    (change,) = ddl_of(steps(rekey, policies={"unknown": "skip"}, releases=[Release(LIFE, 30, "rebuild")]))
    assert isinstance(change, ChangeTable)
    assert change.changes[-2:] == (DeleteRows(None), Rekey(("k",)))


def test_an_unknown_ddl_that_is_skipped_follows_the_columns() -> None:
    (change,) = ddl_of(steps(UNKNOWN, policies={"unknown": "skip"}))
    assert isinstance(change, ChangeTable)
    drop, add = change.changes
    assert drop == DropColumn("v")
    assert isinstance(add, AddColumn)
    assert (add.column.name, add.default) == ("x", None)


# --- keep -------------------------------------------------------------------------------------------------------------


def test_a_kept_table_stays_under_its_name() -> None:
    history = history_of(DROP, policies={"drop table": "keep"})
    assert history.lives[LIFE].name == A
    assert [text.state for text in describe_tables(Listing(90, (), ()), history)] == ["kept"]
    (kept,) = ddl_of(steps(DROP, policies={"drop table": "keep"}))
    assert isinstance(kept, ChangeTable)
    assert kept.dropped


def test_a_kept_table_makes_room_when_another_takes_its_name() -> None:
    planned_steps = steps(DROP, create(A, 50), policies={"drop table": "keep"})
    kinds = [(type(step), step.life, step.at) for step in planned_steps if not isinstance(step, ApplyRows)]
    life = [(CreateTable, LIFE, 10), (ChangeTable, LIFE, 30), (DropTable, LIFE, 50)]
    assert kinds == [*life, (CreateTable, Life(A, 50), 50)]


def test_a_kept_table_makes_room_for_a_rename_too() -> None:
    rename = schema_file(A, 50, "RENAME TABLE `s`.`b` TO `s`.`a`", 14)
    ddl_steps = ddl_of(steps(create(B, 11), DROP, rename, policies={"drop table": "keep"}))
    assert [(type(step), step.at) for step in ddl_steps] == [(ChangeTable, 30), (DropTable, 50), (RenameTable, 50)]


def test_a_kept_table_that_the_source_recovers_goes_on() -> None:
    back = schema_file(C, 40, "FLASHBACK TABLE `a` TO `c`", 25)
    ddl_steps = ddl_of(steps(DROP, back, policies={"drop table": "keep"}))
    assert [(type(step), step.life) for step in ddl_steps] == [(ChangeTable, LIFE), (RenameTable, LIFE)]


def test_rows_of_a_kept_table_end_with_its_drop() -> None:
    windows = [
        step for step in steps(DROP, create(A, 50), policies={"drop table": "keep"}) if isinstance(step, ApplyRows)
    ]
    assert [step.reading.names for step in windows if step.life == LIFE] == [((A, 10, 30),)]


def test_a_guess_about_old_rows_is_in_the_fidelity_report_under_the_newest_name() -> None:
    stamp, wall = Column("v", "TIMESTAMP"), Column("v", "DATETIME")
    born = schema_file(A, 10, "CREATE TABLE `a` (`id` INT PRIMARY KEY,`v` TIMESTAMP)", 3, (ID, stamp))
    retyped = schema_file(A, 30, "ALTER TABLE `a` MODIFY COLUMN `v` DATETIME", 12, (ID, wall))
    renamed = schema_file(A, 40, "ALTER TABLE `a` RENAME COLUMN `v` TO `w`", 12, (ID, replace(wall, name="w")))
    dropped = schema_file(A, 50, "ALTER TABLE `a` DROP COLUMN `w`", 6, (ID,))
    again = schema_file(A, 60, "ALTER TABLE `a` ADD COLUMN `w` DATETIME", 5, (ID, replace(wall, name="w")))
    rules = []
    for files in ([retyped, renamed], [retyped, renamed, dropped, again]):
        table = read_history([born, *files], rules=Rules(zone=lambda life, at: "Asia/Shanghai")).lives[LIFE]
        rules.append({row.column: row.rule for row in column_fidelity(table.schema, table.changes)}["w"])
    assert "approximate in rows from before 30: in the time zone Asia/Shanghai" in rules[0]
    assert "approximate" not in rules[1]


def test_a_kept_column_stays_behind_the_others_and_is_reported() -> None:
    (change,) = ddl_of(steps(DROP_V, policies={"drop column": "keep"}))
    assert isinstance(change, ChangeTable)
    assert change.changes == (MoveColumns(("id", "v")),)
    assert [(column.name, column.kept) for column in change.schema.columns] == [("id", 0), ("v", 30)]
    (kept,) = [row for row in column_fidelity(change.schema) if row.column == "v"]
    assert "the source dropped it at 30" in kept.rule


def test_rows_are_read_by_the_columns_that_the_source_has() -> None:
    windows = [step for step in steps(DROP_V, policies={"drop column": "keep"}) if isinstance(step, ApplyRows)]
    decoded = [windows[-1].reading.schemas[file.root, file.version][1] for file in windows[-1].files]
    assert [[c.name for c in schema.columns] for schema in decoded] == [["id"]]
    assert [column.name for column in windows[-1].schema.stored] == ["id", "v"]


def test_a_column_that_comes_back_goes_on_in_the_kept_one() -> None:
    back = schema_file(A, 40, "ALTER TABLE `a` ADD COLUMN `v` VARCHAR(20) FIRST", 5, (V, ID))
    ddl_steps = ddl_of(steps(DROP_V, back, policies={"drop column": "keep"}))
    assert isinstance(ddl_steps[-1], ChangeTable)
    assert not [change for change in ddl_steps[-1].changes if isinstance(change, (AddColumn, DropColumn))]
    assert [(column.name, column.kept) for column in ddl_steps[-1].schema.columns] == [("v", 0), ("id", 0)]


def test_a_column_that_comes_back_with_another_type_is_held() -> None:
    back = schema_file(A, 40, "ALTER TABLE `a` ADD COLUMN `v` INT", 5, (ID, Column("v", "INT", precision=11)))
    ddl_steps = ddl_of(steps(DROP_V, back, policies={"drop column": "keep"}))
    assert isinstance(ddl_steps[-1], HoldTable)
    assert "of another type" in ddl_steps[-1].reason


def test_a_column_renamed_to_a_kept_name_is_held() -> None:
    add = schema_file(A, 40, "ALTER TABLE `a` ADD COLUMN `x` VARCHAR(20)", 5, (ID, X))
    rename = schema_file(A, 50, "ALTER TABLE `a` RENAME COLUMN `x` TO `v`", 12, (ID, V))
    ddl_steps = ddl_of(steps(DROP_V, add, rename, policies={"drop column": "keep"}))
    assert [type(step) for step in ddl_steps] == [ChangeTable, ChangeTable, HoldTable]


def test_a_table_without_key_keeps_no_column() -> None:
    plain = Column("id", "INT", precision=11)
    born = schema_file(A, 10, "CREATE TABLE `a` (`id` INT,`v` VARCHAR(20))", 3, (plain, V))
    drop = schema_file(A, 30, "ALTER TABLE `a` DROP COLUMN `v`", 6, (plain,))
    (hold,) = ddl_of(steps(drop, policies={"drop column": "keep"}, born=born))
    assert isinstance(hold, HoldTable)
    assert "matched by all of their columns" in hold.reason


def test_later_ddl_leaves_a_kept_column_where_it_is() -> None:
    add = schema_file(A, 40, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, (ID, W))
    ddl_steps = ddl_of(steps(DROP_V, add, policies={"drop column": "keep"}))
    assert isinstance(ddl_steps[-1], ChangeTable)
    assert [column.name for column in ddl_steps[-1].schema.stored] == ["id", "w", "v"]


# --- releases ---------------------------------------------------------------------------------------------------------


def test_an_ambiguous_hidden_rename_is_decided_by_the_ddl_that_a_person_gives() -> None:
    (hold,) = ddl_of(steps(HIDDEN))
    assert isinstance(hold, HoldTable)
    rename = Release(LIFE, 30, "apply", "ALTER TABLE `a` RENAME COLUMN `v` TO `x`")
    (change,) = ddl_of(steps(HIDDEN, releases=[rename]))
    assert isinstance(change, ChangeTable)
    assert change.changes == (RenameColumn("v", "x"),)


def test_a_text_that_contradicts_the_schema_file_does_not_release() -> None:
    wrong = Release(LIFE, 30, "apply", "ALTER TABLE `a` RENAME COLUMN `v` TO `y`")
    (hold,) = ddl_of(steps(HIDDEN, releases=[wrong]))
    assert isinstance(hold, HoldTable)
    assert "contradicts" in hold.reason


def test_every_hold_by_a_ddl_names_the_commands_that_release_it() -> None:
    cases = [HIDDEN, UNKNOWN, schema_file(B, 30, "RENAME TABLE `s`.`gone` TO `s`.`b`", 14)]
    for case in (*cases, schema_file(B, 30, "RECOVER TABLE `gone`", 25)):
        (hold,) = [step for step in steps(case) if isinstance(step, HoldTable)]
        commands = [way.split(": ")[-1] for way in hold.ways]
        assert f"cdc-assets release {hold.life.born_as} 30 --skip" in commands
        assert any("--apply" in command for command in commands)


def test_the_partitions_of_another_hash_can_be_left_alone_or_emptied() -> None:
    born = schema_file(A, 10, KEYED, 3)
    truncate = schema_file(A, 30, "ALTER TABLE `a` TRUNCATE PARTITION `p0`", 23)
    (hold,) = ddl_of(steps(truncate, born=born))
    assert isinstance(hold, HoldTable)
    assert ddl_of(steps(truncate, born=born, releases=[skip()])) == []
    (change,) = ddl_of(steps(truncate, born=born, releases=[Release(LIFE, 30, "rebuild")]))
    assert isinstance(change, ChangeTable)
    assert change.changes == (DeleteRows(None),)


def test_a_rename_of_a_table_never_seen_becomes_a_plain_table_or_what_a_person_says() -> None:
    rename = schema_file(B, 30, "RENAME TABLE `s`.`gone` TO `s`.`b`", 14)
    life = Life(B, 30)
    plain = [step for step in steps(rename, releases=[skip(30, life)]) if step.life == life]
    assert [type(step) for step in plain] == [CreateTable, ApplyRows]
    release = Release(life, 30, "apply", "RENAME TABLE `s`.`a` TO `s`.`b`")
    ddl_steps = ddl_of(steps(rename, releases=[release]))
    assert [(type(step), step.life) for step in ddl_steps] == [(RenameTable, LIFE)]


def test_ambiguous_renames_are_decided_table_by_table() -> None:
    last = TableId("s", "last")
    hops = (
        schema_file(C, 30, "RENAME TABLE `s`.`a` TO `s`.`c`", 14),
        schema_file(A, 30, "RENAME TABLE `s`.`b` TO `s`.`a`", 14),
        schema_file(last, 30, "RENAME TABLE `s`.`a` TO `s`.`last`", 14),
    )
    held = [step for step in steps(create(B, 11), *hops) if isinstance(step, HoldTable)]
    assert {step.life for step in held} == {LIFE, Life(B, 11)}
    release = Release(LIFE, 30, "apply", "RENAME TABLE `s`.`a` TO `s`.`c`")
    ddl_steps = ddl_of(steps(create(B, 11), *hops, releases=[release]))
    assert {(step.life, step.to) for step in ddl_steps if isinstance(step, RenameTable)} == {
        (LIFE, C),
        (Life(B, 11), last),
    }


def test_what_comes_under_a_name_that_a_held_rename_leads_to_waits_too() -> None:
    rename = schema_file(B, 30, "RENAME TABLE `s`.`a` TO `s`.`b`", 14)
    later = schema_file(B, 40, "ALTER TABLE `b` ADD COLUMN `w` INT", 5, (ID, V, W))
    ddl_steps = ddl_of(steps(rename, later, policies={"rename table": "hold"}))
    assert [(type(step), step.life) for step in ddl_steps] == [(HoldTable, LIFE), (HoldTable, Life(B, 40))]


def test_an_exchange_is_decided_for_both_tables_at_once() -> None:
    exchange = schema_file(A, 30, "ALTER TABLE `a` EXCHANGE PARTITION `p0` WITH TABLE `b`", 42)
    other = schema_file(B, 30, "", 0)
    files = (create(B, 11), exchange, other)
    held = [step for step in steps(*files) if isinstance(step, HoldTable)]
    assert {step.life for step in held} == {LIFE, Life(B, 11)}
    assert ddl_of(steps(*files, releases=[skip(30, Life(B, 11))])) == []


def test_a_late_ddl_takes_effect_when_it_is_released_and_never_drops_rows_that_came_after_it() -> None:
    applied = {LIFE: AppliedState(Progress(50, Phase.ROWS), 10, A)}
    (hold,) = ddl_of(steps(ADD, applied=applied))
    assert isinstance(hold, HoldTable)
    assert hold.releasable
    assert not [way for way in hold.ways if "--rebuild" in way]
    now = steps(ADD, applied=applied, releases=[Release(LIFE, 30, "apply")])
    assert [(type(step), step.at) for step in now] == [(ChangeTable, 30), (ApplyRows, 90)]
    (still,) = ddl_of(steps(ADD, applied=applied, releases=[Release(LIFE, 30, "rebuild")]))
    assert isinstance(still, HoldTable)


def test_a_release_of_another_version_or_life_changes_nothing() -> None:
    assert steps(HIDDEN, releases=[skip(31), skip(30, Life(A, 11))]) == steps(HIDDEN)


def test_an_unknown_ddl_of_a_table_never_seen_is_held() -> None:
    strange = schema_file(B, 30, "RENAME `s`.`a` INTO `s`.`b`", 14)
    held = [step for step in steps(strange) if isinstance(step, HoldTable)]
    assert [step.life for step in held] == [Life(B, 30)]
