"""Findings as a person reads them: one paragraph a cause, what is new after a run, and all of it on demand."""

from __future__ import annotations

import ast
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.cli import commands
from cdc_assets.ledger import Ledger
from cdc_assets.model.findings import ABOUT_FILES, INCOMPLETE, RULES, SEEN_IN_ROWS, UNMATCHED, Finding, Severity
from cdc_assets.model.schema import TableId
from cdc_assets.operations.inspect import inspect_changefeed
from cdc_assets.operations.opening import open_ledger
from cdc_assets.operations.status import lake_warnings, stopped_at_rows
from cdc_assets.pipeline.journal import Journal
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.planning.plan import plan
from cdc_assets.preflight.files import unreadable_files
from cdc_assets.report.as_json import outcome_json
from cdc_assets.report.findings import group_lines, group_text, grouped, shortened_lines
from cdc_assets.report.plan_text import describe_plan
from cdc_assets.report.text import WAY_OUT, inspection_lines, outcome_lines, plan_lines
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.cases import Case
from cdc_assets_tests.default_rules import TABLE_RULES
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.package_code import MODULES, nodes, text_of

MANY = 17
NAMES = [f"s.t{number:02d}" for number in range(MANY)]


class Runs:
    """Runs of one feed into one lake, whose ledger is that of a directory."""

    def __init__(self, directory: Path) -> None:
        self.feed = LittleFeed(directory)
        self.lake = MemoryLake()
        self.warehouse = LakeSettings.from_warehouse(directory / "lake")

    def apply(self, checkpoint: int) -> Outcome:
        self.feed.publish(checkpoint)
        with open_ledger(self.warehouse) as ledger:
            return self.feed.pipeline_into(self.lake, ledger).apply("run")


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def warned(outcome: Outcome) -> list[str]:
    """Return the lines of warnings that a run prints."""
    lines = [line for line, aside in outcome_lines(outcome) if aside]
    return [line for line in lines if not line.startswith(("held: ", "failed: "))]


def test_many_tables_of_one_cause_are_one_paragraph_with_all_of_them_in_json(runs: Runs) -> None:
    for name in NAMES:
        runs.feed.create(name, keyed=False)
    outcome = runs.apply(FIRST + 1)
    sentence, tables = warned(outcome)
    assert sentence.startswith("hold: no key is known")
    assert tables.strip() == f"{', '.join(NAMES[:10])} and 7 more tables"
    (group,) = outcome_json("little", outcome)["warnings"]
    assert [subject["table"] for subject in group["subjects"]] == NAMES


def test_a_run_says_what_is_new_and_status_says_all(runs: Runs) -> None:
    runs.feed.create("s.a", keyed=False)
    assert [line.strip() for line in warned(runs.apply(FIRST + 1))][1:] == ["s.a"]
    assert warned(runs.apply(FIRST + 2)) == ["1 warning of earlier runs stands: see `cdc-assets status --warnings`"]
    runs.feed.create("s.b", FIRST + 3, keyed=False)
    outcome = runs.apply(FIRST + 4)
    assert [line.strip() for line in warned(outcome)][1:] == [
        "s.b",
        "1 warning of earlier runs stands: see `cdc-assets status --warnings`",
    ]
    (group,) = outcome_json("little", outcome)["warnings"]
    assert {subject["table"]: subject["new"] for subject in group["subjects"]} == {"s.a": False, "s.b": True}
    (group,) = lake_warnings(runs.warehouse)["little"]
    assert [subject.table for subject in group.subjects] == ["s.a", "s.b"]


def test_status_prints_what_stands_and_warnings_alone_in_json(runs: Runs) -> None:
    for name in NAMES:
        runs.feed.create(name, keyed=False)
    runs.apply(FIRST + 1)
    warehouse = ["--warehouse", runs.warehouse.warehouse]
    output = CliRunner().invoke(commands, ["status", *warehouse], catch_exceptions=False).output
    assert output.count(": no key is known") == 1
    shown = json.loads(CliRunner().invoke(commands, ["status", "--warnings", "--json", *warehouse]).output)
    assert [subject["table"] for group in shown["little"] for subject in group["subjects"]] == NAMES


def test_what_is_repaired_is_forgotten_and_what_rows_showed_stays_until_a_rebuild() -> None:
    ledger, lake = Ledger("sqlite://"), TableId("s", "t")
    state, row = (Finding(rule, Severity.WARNING, "s.t", rule) for rule in ("keys", "undecided-rows"))
    ledger.record_findings("f", [state, row], "run", {})
    ledger.record_findings("g", [state], "run", {})
    assert ledger.findings("f") == (state, row)
    ledger.remove_findings("f", lake)
    assert (ledger.findings("f"), ledger.findings("g")) == ((), (state,))


def test_a_finding_of_rows_stays_when_they_are_not_read_again(runs: Runs) -> None:
    runs.feed.create("s.t", keyed=False)
    runs.feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "a"), ("I", FIRST + 2, 2, "b")])
    runs.feed.rows("s.t", FIRST, [("I", FIRST + 2, 3, "c")])
    first, second = runs.apply(FIRST + 3), runs.apply(FIRST + 4)
    assert "joint-files" in {finding.rule for finding in first.new_findings}
    assert "joint-files" not in {finding.rule for finding in second.findings}
    assert (set(second.known_findings), second.new_findings) == (set(first.new_findings), ())


def test_each_of_several_lines_of_the_settings_that_match_nothing_is_told(runs: Runs) -> None:
    runs.feed.create("s.t")
    runs.feed.publish(FIRST + 5)
    lines = ["s.t.nowhere", "s.nothing.*"]
    settings = runs.feed.settings(privacy=dict.fromkeys(lines, "drop"))
    with open_ledger(runs.warehouse) as ledger:
        outcome = Pipeline(settings, settings.open_source(), runs.lake, ledger).apply("run")
        recorded = ledger.findings(settings.name)
    for findings in (outcome.new_findings, recorded):
        assert [finding.detail for finding in findings if finding.rule == "unmatched"] == [
            f"privacy: {line}" for line in lines
        ]


def test_a_count_that_grows_is_no_new_finding(runs: Runs) -> None:
    outcome, journal = runs.apply(FIRST), Journal(Ledger("sqlite://"), "f")
    counts = (Finding("empty-files", Severity.WARNING, "", "files are empty.", f"{n} files") for n in (2, 3))
    first, second = (replace(outcome, findings=(finding,)) for finding in counts)
    assert len(journal.findings(first, "1").new_findings) == 1
    assert journal.findings(second, "2").new_findings == ()
    assert [finding.detail for finding in journal.ledger.findings("f")] == ["3 files"]


FINDINGS = st.builds(
    Finding,
    st.sampled_from(RULES),
    st.sampled_from(Severity),
    st.sampled_from(["", "s.a", "s.b", "s.c"]),
    st.sampled_from(["it is odd.", "it is lost."]),
    st.sampled_from(["", '"c"', "x" * 90]),
)


@given(st.lists(FINDINGS, unique=True))
def test_groups_hold_every_finding_once_the_most_important_first(findings: list[Finding]) -> None:
    groups = grouped(findings)
    flat = [
        Finding(group.rule, group.severity, subject.table, group.sentence, subject.detail)
        for group in groups
        for subject in group.subjects
    ]
    assert len(flat) == len(findings)
    assert set(flat) == set(findings)
    assert [finding.weight for finding in flat] == sorted(finding.weight for finding in findings)
    assert len({(group.rule, group.severity, group.sentence) for group in groups}) == len(groups)


def test_long_details_have_lines_of_their_own_and_are_counted_too() -> None:
    findings = [Finding("decoding", Severity.HOLD, name, "it is odd.", "x" * 90) for name in NAMES]
    (group,) = grouped(findings)
    lines = list(group_lines([group]))
    assert (len(lines), lines[0], lines[-1].strip()) == (12, "hold: it is odd.", "and 7 more tables")
    assert group_text(group).endswith("and 7 more tables)")


def test_lossless_columns_are_counted_only(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    for name in NAMES:
        feed.create(name)
    feed.publish(FIRST + 1)
    lines = list(inspection_lines(inspect_changefeed(feed.settings())))
    assert [line.strip() for line in lines if "lossless" in line] == [f"{2 * MANY} columns are lossless"]


def test_every_rule_has_its_place_in_the_order() -> None:
    rules = {INCOMPLETE, UNMATCHED, *ABOUT_FILES}
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in ("Finding", "warning", "_finding") and "findings" in text_of(path):
                    rules.add(str(node.args[0].value))
    assert rules == set(RULES)
    assert len(set(RULES)) == len(RULES)
    assert set(RULES) >= SEEN_IN_ROWS


def test_incomplete_tables_of_one_cause_are_one_paragraph(runs: Runs) -> None:
    for name in NAMES:
        runs.feed.ddl(name, FIRST, "", 0)
    outcome = runs.apply(FIRST + 1)
    lines = [line for line in warned(outcome) if "warning" not in line]
    assert [line.count("existed before its changefeed began") for line in lines] == [1, 0]
    assert lines[0].startswith("incomplete: each of these tables")
    assert lines[1].strip() == f"{', '.join(NAMES[:10])} and 7 more tables"
    again = warned(runs.apply(FIRST + 2))
    assert again[0] == f"incomplete as before: {', '.join(NAMES[:10])} and 7 more tables: see `cdc-assets status`"
    shown = {table["table"]: table["incomplete"] for table in outcome_json("little", outcome)["tables"]}
    assert [name for name in NAMES if f"cdc-assets release --complete {name}" in shown[name]] == NAMES
    (group,) = (finding for finding in inspect_changefeed(runs.feed.settings()).findings if finding.rule == INCOMPLETE)
    assert [subject.table for subject in group.subjects] == NAMES


def test_a_lone_incomplete_table_has_commands_to_copy(runs: Runs) -> None:
    runs.feed.ddl("s.a", FIRST, "", 0)
    (line,) = (warning for warning in warned(runs.apply(FIRST + 1)) if "incomplete" in warning)
    assert line.startswith("s.a: incomplete: it existed before its changefeed began")
    assert "cdc-assets release --complete s.a" in line


def test_patterns_of_complete_tables_that_match_none_are_warned_of(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("s.a")
    feed.publish(FIRST + 1)
    settings = feed.settings(initial={"complete": ["s.A", f"s.a@{FIRST}", "s.b", "*.c*", "*"]})
    (group,) = (finding for finding in inspect_changefeed(settings).findings if finding.rule == "unmatched")
    assert [subject.detail for subject in group.subjects] == [
        "initial.complete: s.b",
        "initial.complete: *.c*",
    ]


def test_a_changed_file_is_reported_by_the_run_that_reads_it_again_and_does_not_stand_after_it(runs: Runs) -> None:
    runs.feed.create("s.t")
    path = runs.feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "one")])
    runs.apply(FIRST + 5)
    path.write_bytes(path.read_bytes() + f'"I","t","s",{FIRST + 7},2,"two"\r\n'.encode())
    outcome = runs.apply(FIRST + 9)
    assert [finding.rule for finding in outcome.new_findings] == ["files-changed"]
    assert "files-changed" not in {group.rule for group in lake_warnings(runs.warehouse)["little"]}
    assert runs.apply(FIRST + 10).new_findings == ()


def test_a_table_that_was_never_applied_has_no_position_in_the_lines_of_a_run(runs: Runs) -> None:
    runs.feed.ddl("s.t", FIRST, "CREATE TABLE `t` (`id` INT,`v` VARCHAR(40))", 3, keyed=False)
    runs.feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "one"), ("U", FIRST + 2, 1, "two")])
    with open_ledger(runs.warehouse) as ledger:
        runs.feed.publish(FIRST + 5)
        outcome = runs.feed.pipeline_into(runs.lake, ledger, policies={"create table": "hold"}).apply("run")
    heads, row, held = [line for line, _ in outcome_lines(outcome)][:3]
    assert row.split()[:4] == ["s.t", str(FIRST), "held", "0"], heads  # 0 steps
    assert held.startswith(f"held: s.t at {FIRST}: CREATE TABLE")


def test_a_problem_is_said_once_for_all_files_and_not_for_what_follows_from_it() -> None:
    problems = {
        "s/a/meta/schema_1.json": "s/a/meta/schema_1.json: it is not JSON. Restore it.",
        "s/b/meta/schema_1.json": "s/b/meta/schema_1.json: it is not JSON. Restore it.",
        "s/a/1/CDC1.csv": "s/a/1/CDC1.csv cannot be decoded: its schema file s/a/meta/schema_1.json cannot be read.",
        "s/c/1/CDC1.csv": "s/c/1/CDC1.csv cannot be decoded: no schema file is there.",
        "somewhere": "Nothing names a place.",
    }
    groups = grouped(unreadable_files(problems))
    assert {group.sentence: [subject.detail for subject in group.subjects] for group in groups} == {
        "it is not JSON. Restore it.": ["s/a/meta/schema_1.json", "s/b/meta/schema_1.json"],
        "cannot be decoded: no schema file is there.": ["s/c/1/CDC1.csv"],
        "Nothing names a place.": ["somewhere"],
    }


def test_a_schema_file_that_cannot_be_read_stands_in_each_run_and_in_the_status_until_it_is_restored(
    runs: Runs,
) -> None:
    runs.feed.create("s.t")
    path = next(runs.feed.bucket.rglob("schema_*"))
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    for _ in range(2):
        outcome = runs.apply(FIRST + 2)
        assert not outcome.settled
        assert sum("it is not JSON" in line for line, _ in outcome_lines(outcome)) == 1
        (groups,) = lake_warnings(runs.warehouse).values()
        assert any("it is not JSON" in line for line in shortened_lines(groups))
    path.write_bytes(whole)
    assert runs.apply(FIRST + 3).settled
    assert "unreadable" not in {group.rule for group in lake_warnings(runs.warehouse)["little"]}


def test_what_holds_a_table_is_said_once_by_a_run_whichever_of_its_files_were_sampled(runs: Runs) -> None:
    runs.feed.create("s.t")
    for number in (1, 2, 3):
        path = runs.feed.rows("s.t", FIRST, [("I", FIRST + number, number, "a")])
        path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n"))
    first, second = ("\n".join(line for line, _ in outcome_lines(runs.apply(FIRST + 9))) for _ in range(2))
    assert first.count("ends its records with LF") == second.count("ends its records with LF") == 1
    assert "1 warning of earlier runs stands" in second  # about the settings; the hold is said above


def test_equal_ways_out_of_several_tables_are_printed_once_and_only_a_run_sees_values(runs: Runs) -> None:
    for name in ("s.t", "s.u"):
        runs.feed.create(name)
        runs.feed.rows(name, FIRST, [("I", FIRST + 1, "x", "a")])
    runs.feed.publish(FIRST + 2)
    listing, planned = runs.feed.pipeline_into(runs.lake).planner.plan()
    assert "`apply` only" in "\n".join(plan_lines(describe_plan(planned), listing, 0, (), ()))
    lines = [line for line, _ in outcome_lines(runs.apply(FIRST + 2))]
    assert len([line for line in lines if line.startswith("held: ")]) == 2
    ways = [line for line in lines if line.startswith(WAY_OUT)]
    assert len(ways) == len(set(ways)) > 0
    assert not any("`apply` only" in line for line in plan_lines((), listing, 0, (), ()))
    (name,) = lake_warnings(runs.warehouse)
    stopped = stopped_at_rows(runs.warehouse, name, planned)
    planned_lines = list(plan_lines(describe_plan(planned), listing, 0, stopped, ()))
    assert [line for line in planned_lines if line.startswith(WAY_OUT)] == ways


@pytest.mark.parametrize("left", [("s.t", "s.u"), ("s.t",), ()], ids=["older", "one table", "empty"])
def test_a_feed_that_went_back_or_lost_tables_is_said_by_each_run_until_it_is_restored(
    runs: Runs, left: tuple[str, ...]
) -> None:
    for name in ("s.t", "s.u"):
        runs.feed.create(name)
        runs.feed.rows(name, FIRST, [("I", FIRST + 5, 1, "a")])
    runs.apply(FIRST + 9)
    gone = {"s.t", "s.u"}.difference(left)
    for name in gone:
        shutil.rmtree(runs.feed.bucket / name.replace(".", "/"))
    for _ in range(2):
        outcome = runs.apply(FIRST + (12 if gone else 3))
        reported = {finding.table for finding in outcome.warnings if finding.rule == "older-copy"}
        assert (reported, outcome.settled) == (gone or set(left), False)
        assert any(line.startswith("stop: tables ") for line, _ in outcome_lines(outcome))
    (groups,) = lake_warnings(runs.warehouse).values()
    assert any(line.startswith("stop: tables ") for line in shortened_lines(groups))
    for name in gone:
        runs.feed.create(name)
    outcome = runs.apply(FIRST + 12)
    assert (any(finding.rule == "older-copy" for finding in outcome.warnings), outcome.settled) == (False, True)


def test_a_table_that_another_run_brought_past_the_checkpoint_of_this_one_is_no_older_copy(runs: Runs) -> None:
    runs.feed.create("s.t")
    runs.feed.rows("s.t", FIRST, [("I", FIRST + 5, 1, "a")])
    runs.feed.publish(FIRST + 3)
    planner = runs.feed.pipeline_into(runs.lake).planner
    listing, _ = planner.plan()
    runs.apply(FIRST + 9)
    listing, planned = planner.plan(listing)
    assert (listing.checkpoint, planned.behind) == (FIRST + 9, ())
    assert not [finding for finding in planner.findings(listing, planned) if finding.rule == "older-copy"]


def test_a_plan_says_once_that_a_schema_file_cannot_be_read(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("s.t")
    feed.ddl("s.t", FIRST + 1, "ALTER TABLE `t` ADD COLUMN `w` INT", 5, wide=True)
    next(feed.bucket.rglob(f"schema_{FIRST + 1}_*")).write_text("{")
    feed.publish(FIRST + 2)
    listing, planned = feed.pipeline_into(MemoryLake()).planner.plan()
    lines = "\n".join(plan_lines(describe_plan(planned), listing, 0, (), ()))
    assert lines.count("it is not JSON") == 1


def test_a_plan_shows_both_names_of_a_rename() -> None:
    config = Case("C_ddl_tables").config("csv-ts")
    settings = config.settings(config.bucket())
    planned = plan(settings.open_source().listing(), {}, TABLE_RULES)
    renames = [step for step in describe_plan(planned) if step.action == "rename"]
    assert renames
    for step in renames:
        before, _, behind = step.detail.partition(" → ")
        assert before != behind == step.table
        assert before.partition(".")[2] in step.query


def test_a_plan_counts_the_steps_that_a_run_carries_out(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("s.t")
    feed.ddl("s.t", FIRST + 1, "ALTER TABLE `t` ADD COLUMN `w` INT", 5, wide=True)
    feed.create("s.u")
    feed.ddl("s.u", FIRST + 1, "ALTER TABLE `u` TRUNCATE PARTITION `p`", 54)
    feed.publish(FIRST + 2)
    pipeline = feed.pipeline_into(MemoryLake())
    listing, planned = pipeline.planner.plan()
    outcome = pipeline.apply()
    steps = sum(table.steps for table in outcome.tables)
    assert f"{steps} steps and 1 hold through" in "\n".join(plan_lines(describe_plan(planned), listing, 0, (), ()))


def test_a_plan_promises_no_undo_of_deleted_rows() -> None:
    config = Case("C_ddl_tables").config("csv-ts")
    planned = plan(config.settings(config.bucket()).open_source().listing(), {}, TABLE_RULES)
    undone = {step.undo for step in describe_plan(planned) if "delete all rows" in step.detail and step.cost}
    assert undone == {"none, old snapshots stay readable by id"}


def test_each_setting_keyed_by_tables_tells_the_lines_that_fit_none(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("shop.orders")
    feed.publish(FIRST + 1)
    near = "shop.ordres"
    settings = feed.settings(
        tables={"include": ["shop.*", near]},
        history={near: "log"},
        partition_by={near: ["id"]},
        sort_by={near: ["id"]},
        table_properties={near: {"a": "b"}},
        deletes={near: "soft"},
        lag_targets={near: 60},
        keys={near: ["id"]},
        initial={"complete": [near]},
        extracts={near: {"out": str(tmp_path), "since": "2026-01-01", "every": "1d"}},
        privacy={"shop.orders.w": None},
    )
    (group,) = (group for group in inspect_changefeed(settings).findings if group.rule == "unmatched")
    table, column = "(is shop.orders meant?)", "(is shop.orders.v meant?)"
    assert sorted(subject.detail for subject in group.subjects) == [
        f"deletes: {near} {table}",
        f"extracts: {near} {table}",
        f"history: {near} {table}",
        f"initial.complete: {near} {table}",
        f"keys: {near} {table}",
        f"lag_targets: {near} {table}",
        f"partition_by: {near} {table}",
        f"privacy: shop.orders.w {column}",
        f"sort_by: {near} {table}",
        f"table_properties: {near} {table}",
        f"tables.include: {near} {table}",
    ]


def test_beside_the_tables_warnings_are_counted_and_what_holds_stands_in_full() -> None:
    held = Finding("keys", Severity.HOLD, "s.t", "no key is known.")
    warnings = [Finding(rule, Severity.WARNING, "", f"{rule}.") for rule in ("zone", "no-ddl")]
    assert list(shortened_lines(grouped([*warnings, held]))) == [
        "hold: no key is known.",
        "    s.t",
        "2 warnings stand (zone, no-ddl): see `cdc-assets status --warnings`",
    ]
    assert list(shortened_lines(())) == []
