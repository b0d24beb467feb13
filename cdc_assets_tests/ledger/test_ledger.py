"""What the ledger is for: an advance reads what is new, states are kept, and lost files are reported."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.cli import commands
from cdc_assets.errors import BadSettings, StorageUnavailable
from cdc_assets.lake.lake_table import LakeTable
from cdc_assets.lake.state import LakeState
from cdc_assets.ledger import Ledger
from cdc_assets.model.ledger_entries import UNREAD, FileEntry, TableState
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress, State
from cdc_assets.model.reports import FileStats
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import DataFile, Listing, SchemaFile, SettledFiles
from cdc_assets.model.steps import ApplyRows
from cdc_assets.operations.opening import open_ledger
from cdc_assets.operations.status import lake_status
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.preflight.files import file_findings, unread_files
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.sources import KnownFiles
from cdc_assets.sources.storage_sink.options import SinkOptions
from cdc_assets.sources.storage_sink.source import StorageSink
from cdc_assets.types.fidelity import ColumnFidelity
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.mutant_reader import play
from cdc_assets_tests.mutations import Mutant
from cdc_assets_tests.replay import compare
from cdc_assets_tests.trial_storage import SECRET, TrialStorage

CONFIGS = {str(config): config for case in cases() for config in case.configs}
SMALL = CONFIGS["L_crash/csv-ts"]
CHANGES = CONFIGS["B_ddl_columns/csv-ts"]


def pipeline(config: Config, bucket: Path, lake: MemoryLake, ledger: Ledger) -> Pipeline:
    """As a new process would open it."""
    settings = config.settings(bucket)
    return Pipeline(settings, TrialStorage.changefeed(settings), lake, ledger)


@pytest.fixture
def ledger() -> Ledger:
    TrialStorage.begin()
    return Ledger("sqlite://")


# --- its file ---------------------------------------------------------------------------------------------------------


def test_a_file_is_made_by_the_first_write_and_read_from_then_on(tmp_path: Path) -> None:
    file = tmp_path / "lake" / "ledger.db"
    reader, writer = Ledger(f"sqlite:///{file}"), Ledger(f"sqlite:///{file}")
    assert (reader.states(), file.parent.exists()) == ({}, False)
    writer.record_states(
        "default", [TableState(TableId("db", "t"), 1, 3, State.APPLIED, life=str(LIFE), checkpoint=3)], {}
    )
    assert [state.through for state in reader.states()["default"]] == [3]
    for opened in (reader, writer):
        opened.close()


# --- what an advance costs --------------------------------------------------------------------------------------------


def test_a_run_of_some_steps_reports_what_is_left(ledger: Ledger) -> None:
    feed_pipeline = pipeline(SMALL, SMALL.bucket(), MemoryLake(), ledger)
    outcome = feed_pipeline.apply("ddl", lambda plan: [step for step in plan.steps if not isinstance(step, ApplyRows)])
    left = {table.life for table in outcome.tables if table.through < outcome.checkpoint}
    assert left == {step.life for step in outcome.plan.steps if isinstance(step, ApplyRows)}
    states = {state.life: state for state in ledger.states()["default"]}
    assert all(states[str(life)].through < outcome.checkpoint for life in left)
    assert feed_pipeline.apply("rest").complete
    assert all(state.through == outcome.checkpoint for state in ledger.states()["default"])


def test_what_stopped_a_table_is_shown_until_the_table_moves(ledger: Ledger) -> None:
    feed_pipeline = pipeline(SMALL, SMALL.bucket(), MemoryLake(), ledger)
    outcome = feed_pipeline.apply("ddl", lambda plan: [step for step in plan.steps if not isinstance(step, ApplyRows)])
    failed = tuple(replace(table, state=State.FAILED, reason="no room") for table in outcome.tables)
    feed_pipeline.journal.states(replace(outcome, tables=failed), "broken")
    feed_pipeline.record_status("plan")
    waiting = [state for state in ledger.states()["default"] if state.through < outcome.checkpoint]
    assert waiting
    assert {(state.state, state.reason, state.run) for state in waiting} == {("failed", "no room", "broken")}
    feed_pipeline.apply("rest")
    assert {state.state for state in ledger.states()["default"]} == {"applied"}


@pytest.mark.parametrize("config", [CHANGES, CONFIGS["D_keys/canal-ext"], CONFIGS["E_partitions/canal-ext"]], ids=str)
def test_an_advance_reads_only_what_is_new(config: Config, ledger: Ledger, tmp_path: Path) -> None:
    lake, before = MemoryLake(), 0
    old: set[Path] = set()
    spared = 0
    for state in Mutant(config, (), 0, tmp_path).states():
        known = ledger.files("default")
        done = {e.path for e in known if e.max_commit_ts is None or e.max_commit_ts <= before}
        done |= {str(p.relative_to(state.bucket)) for p in old if p.name.startswith("schema_")}
        TrialStorage.begin()
        pipeline(config, state.bucket, lake, ledger).apply()
        assert not done & set(TrialStorage.reads())
        before, old = state.checkpoint.ts, {p for p in state.bucket.rglob("*") if p.is_file()}
        spared += len(done)
    assert spared


def test_a_second_run_at_one_checkpoint_reads_no_file_again(ledger: Ledger) -> None:
    lake = MemoryLake()
    pipeline(CHANGES, CHANGES.bucket(), lake, ledger).apply()
    TrialStorage.begin()
    pipeline(CHANGES, CHANGES.bucket(), lake, ledger).apply()
    assert TrialStorage.reads() == ["metadata"]


@pytest.mark.parametrize("name", ["D_keys/canal-ext", "G_redelivery/csv-ts"])
def test_a_ledger_that_is_deleted_each_time_changes_nothing_in_the_lake(name: str, tmp_path: Path) -> None:
    assert play(Mutant(CONFIGS[name], ("redeliver", "temporary", "width"), 4, tmp_path), MemoryLake(), None) == []


@pytest.mark.parametrize("name", ["C_ddl_tables/csv-ts", "B_ddl_columns/canal-ext"])
def test_the_journal_has_every_ddl_again_after_its_rows_were_lost(name: str, ledger: Ledger) -> None:
    config, lake = CONFIGS[name], MemoryLake()
    pipeline(config, config.bucket(), lake, ledger).apply()
    journaled = {
        (journal_entry.life, journal_entry.tso, journal_entry.name, journal_entry.action, journal_entry.query)
        for journal_entry in ledger.journal("default")
    }
    emptied, commits = Ledger("sqlite://"), list[sa.Connection]()
    sa.event.listen(emptied._database._engine, "commit", commits.append)
    again = pipeline(config, config.bucket(), lake, emptied)
    again.journal.complete(again.planner.plan()[1], "again")
    assert len(commits) == 2  # that of the schema files, and one for all of the journal
    assert again.apply().complete
    assert {
        (journal_entry.life, journal_entry.tso, journal_entry.name, journal_entry.action, journal_entry.query)
        for journal_entry in emptied.journal("default")
    } == journaled
    assert journaled


def test_the_ledger_keeps_what_each_file_held(ledger: Ledger) -> None:
    pipeline(SMALL, SMALL.bucket(), MemoryLake(), ledger).apply("run-7")
    files = ledger.files("default")
    assert {f.path for f in files} == {
        str(p.relative_to(SMALL.bucket())) for p in SMALL.bucket().rglob("CDC*.csv") if p.stat().st_size
    }
    assert all(f.run == "run-7" and (f.min_commit_ts or 0) <= (f.max_commit_ts or 0) for f in files)
    assert all(f.size == (SMALL.bucket() / f.path).stat().st_size for f in files)


def test_status_of_one_changefeed_looks_at_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, looked = LakeSettings.from_warehouse(tmp_path), list[str]()

    def tables(state: LakeState) -> dict[Life, LakeTable]:
        looked.append(state.changefeed)
        return {}

    monkeypatch.setattr(LakeState, "tables", tables)
    with open_ledger(lake) as ledger:
        for name in ("one", "two"):
            ledger.record_states(
                name, [TableState(TableId("db", "t"), 5, 0, State.APPLIED, life="db.t@5", checkpoint=9, run="run")], {}
            )
    assert [row.changefeed for row in lake_status(lake, "one")] == looked == ["one"]
    assert [row.changefeed for row in lake_status(lake)] == ["one", "two"]


def test_a_ledger_that_does_not_answer_is_named_in_one_line_without_its_password() -> None:
    with pytest.raises(StorageUnavailable, match=r"u:\*\*\*@127\.0\.0\.1:9/x did not answer \(.*refused") as raised:
        Ledger("postgresql+psycopg2://u:sesame@127.0.0.1:9/x").states()
    assert "\n" not in str(raised.value)


# --- findings ---------------------------------------------------------------------------------------------------------

LIFE = Life(TableId("db", "t"), 5)
APPLIED = {LIFE: AppliedState(Progress(100, Phase.ROWS), 5, TableId("db", "t"))}


def path_of(number: int) -> str:
    return f"db/t/5/CDC{number:06d}.csv"


def listing(*numbers: int, size: int = 9) -> Listing:
    files = tuple(DataFile(path_of(n), "db/t", 5, "db/t/5", n, size, "e") for n in numbers)
    return Listing(100, (), files)


SOURCE = StorageSink(SinkOptions(), {})


def entry(number: int, last: int | None = 50, rows: int = 3, size: int = 9) -> FileEntry:
    return FileEntry(path_of(number), str(LIFE), size, "e", rows, last, last, "", None, 0.0)


@given(st.sets(st.integers(1, 30), min_size=1))
def test_exactly_the_numbers_between_files_are_missed(numbers: set[int]) -> None:
    missing = set(range(min(numbers), max(numbers))) - numbers
    findings = file_findings(SOURCE, listing(*numbers), [], {})
    assert len(findings) == len({n for n in missing if n - 1 not in missing})
    assert file_findings(SOURCE, listing(*numbers), [entry(n) for n in missing], APPLIED) == ()


def test_a_changed_file_is_reported_with_both_sizes() -> None:
    (finding,) = file_findings(SOURCE, listing(1, size=12), [entry(1)], APPLIED)
    assert path_of(1) in finding.detail
    assert "9 bytes" in finding.detail
    assert "12 bytes" in finding.detail


@pytest.mark.parametrize(("last", "count"), [(50, 0), (100, 0), (101, 1), (None, 0)])
def test_a_file_that_is_gone_matters_when_it_held_rows_above_the_applied_ones(last: int | None, count: int) -> None:
    assert len(file_findings(SOURCE, listing(2), [entry(1, last)], APPLIED)) == count


def test_a_file_that_vanished_unread_is_reported_and_stops_its_version() -> None:
    lost = entry(1, None, UNREAD)
    assert len(file_findings(SOURCE, listing(2), [lost], APPLIED)) == 1
    schema = SchemaFile("db/t/meta/schema_5_0000000001.json", "db/t", TableId("db", "t"), 5, "", 0, ())
    without = replace(listing(2), schema_files=(schema,))
    ((root, version, why),) = unread_files(SOURCE, without, [lost])
    assert (root, version) == ("db/t", 5)
    assert "not known" in why
    there = replace(listing(1, 2), schema_files=(schema,))
    assert list(unread_files(SOURCE, there, [lost])) == []


# --- files that go ----------------------------------------------------------------------------------------------------


def copied(config: Config, place: Path) -> Path:
    for state in Mutant(config, (), 0, place).states():
        bucket = state.bucket
    return bucket


def newest(bucket: Path, root: str) -> Path:
    return max((p for p in bucket.glob(f"{root}/**/CDC*.csv") if p.stat().st_size), key=lambda p: p.name)


def apply_losing(path: Path, config: Config, bucket: Path, lake: MemoryLake, ledger: Ledger) -> Outcome:
    """Apply while a file goes between listing and reading."""
    feed_pipeline = pipeline(config, bucket, lake, ledger)
    plain = feed_pipeline.source.listing

    def listing(contents: KnownFiles | None = None, settled: Sequence[SettledFiles] = ()) -> Listing:
        whole_listing = plain(contents, settled)
        path.unlink(missing_ok=True)
        return whole_listing

    feed_pipeline.source.listing = listing  # type: ignore[method-assign]
    return feed_pipeline.apply()


def test_a_file_that_goes_before_it_is_read_stops_its_table_and_no_other(ledger: Ledger, tmp_path: Path) -> None:
    bucket, lake = copied(SMALL, tmp_path), MemoryLake()
    lost = newest(bucket, "crash/a")
    outcome = apply_losing(lost, SMALL, bucket, lake, ledger)
    states = {str(table.name): (table.state, table.reason) for table in outcome.tables}
    assert states["crash.a"][0] == "failed"
    assert str(lost.relative_to(bucket)) in states["crash.a"][1]
    assert "restore it" in states["crash.a"][1]
    assert {state for name, (state, _) in states.items() if name != "crash.a"} == {"applied"}


def test_the_table_stays_held_until_the_file_is_back(ledger: Ledger, tmp_path: Path) -> None:
    bucket, lake = copied(SMALL, tmp_path), MemoryLake()
    lost = newest(bucket, "crash/a")
    data = lost.read_bytes()
    apply_losing(lost, SMALL, bucket, lake, ledger)
    again = pipeline(SMALL, bucket, lake, ledger).apply()
    assert {str(t.name): t.state for t in again.tables}["crash.a"] == "held"
    assert any(lost.name in warning.detail for warning in again.warnings)
    lost.write_bytes(data)
    outcome = pipeline(SMALL, bucket, lake, ledger).apply()
    final = SMALL.checkpoints[-1].expected
    assert final is not None
    assert compare(SMALL, final, lake, outcome) == []


def test_a_file_that_is_forgotten_holds_nothing(ledger: Ledger, tmp_path: Path) -> None:
    bucket, lake = copied(SMALL, tmp_path), MemoryLake()
    lost = newest(bucket, "crash/a")
    apply_losing(lost, SMALL, bucket, lake, ledger)
    assert ledger.remove_files("default", [str(lost.relative_to(bucket))]) == 1
    assert pipeline(SMALL, bucket, lake, ledger).apply().complete


def test_an_applied_file_may_go_at_any_time(ledger: Ledger, tmp_path: Path) -> None:
    bucket, lake = copied(SMALL, tmp_path), MemoryLake()
    pipeline(SMALL, bucket, lake, ledger).apply()
    outcome = apply_losing(newest(bucket, "crash/a"), SMALL, bucket, lake, ledger)
    assert outcome.complete
    assert outcome.warnings == ()


def test_a_file_that_comes_back_at_once_is_read(ledger: Ledger, tmp_path: Path) -> None:
    bucket, lake = copied(SMALL, tmp_path), MemoryLake()
    path = str(newest(bucket, "crash/a").relative_to(bucket))
    missing = [path]
    TrialStorage.fault = lambda verb, p: (
        FileNotFoundError(missing.pop()) if verb == "read" and missing and p == path else None
    )
    assert pipeline(SMALL, bucket, lake, ledger).apply().complete


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_files_command_shows_what_was_applied_when(tmp_path: Path) -> None:
    TrialStorage.begin()
    kept = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    pipeline(SMALL, SMALL.bucket(), MemoryLake(), kept).apply("run-7")
    stats = [FileStats("crash/a/1/CDC000001.csv", 1, "", 1, 2, 3)]
    kept.record_files("default", LIFE, stats, "run-8", 77)
    kept.record_states(
        "default", [TableState(TableId("db", "renamed"), 1, 3, State.APPLIED, life=str(LIFE), checkpoint=3)], {}
    )
    kept.record_unread("default", LIFE, "crash/a/1/CDC000002.csv", "run-8")
    kept.close()
    done = CliRunner().invoke(commands, ["files", "--warehouse", str(tmp_path), "--json"], standalone_mode=False)
    rows = {row["path"]: row for row in json.loads(done.output)}
    row = rows["crash/a/1/CDC000001.csv"]
    assert (row["rows"], row["first_position"], row["last_position"]) == (1, 2, 3)
    assert (row["run"], row["snapshot"], row["table"]) == ("run-8", 77, "db.renamed")
    assert rows["crash/a/1/CDC000002.csv"]["rows"] is None
    text = CliRunner().invoke(commands, ["files", "--warehouse", str(tmp_path)], standalone_mode=False).output
    assert all(path in text for path in rows)
    assert "run-7" in text
    assert SECRET not in text


def test_the_files_command_forgets_what_is_named(tmp_path: Path) -> None:
    TrialStorage.begin()
    kept = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    pipeline(SMALL, SMALL.bucket(), MemoryLake(), kept).apply()
    kept.record_unread("default", LIFE, "x/1/CDC1.csv", "")
    arguments = ["files", "--warehouse", str(tmp_path), "--forget", "x/1/CDC1.csv"]
    assert CliRunner().invoke(commands, arguments, standalone_mode=False).exit_code == 0
    assert "x/1/CDC1.csv" not in {f.path for f in kept.files("default")}
    assert CliRunner().invoke(commands, arguments, standalone_mode=False).exception is not None
    kept.close()


def test_what_is_known_of_all_tables_is_what_is_known_of_each(ledger: Ledger) -> None:
    lake = MemoryLake()
    assert pipeline(CHANGES, CHANGES.bucket(), lake, ledger).apply().complete
    assert set(ledger.fidelities("default")) == {str(life) for life in lake.tables}
    for life, report in ledger.fidelities("default").items():
        assert report == ledger.fidelity("default", life) != ()


def test_a_run_that_lives_on_records_columns_when_they_change(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, recorded, record = LittleFeed(tmp_path), list[int](), ledger.record_columns
    lives_on = feed.pipeline_into(MemoryLake(), ledger)

    def counted(changefeed: str, tables: Mapping[Life, Iterable[ColumnFidelity]]) -> None:
        recorded.append(len(tables))
        record(changefeed, tables)

    monkeypatch.setattr(ledger, "record_columns", counted)
    feed.create("s.t")
    for number in (1, 2, 3):
        if number == 3:
            feed.ddl("s.t", FIRST + 3, "ALTER TABLE `t` ADD COLUMN `w` INT", 5, wide=True)
        else:
            feed.rows("s.t", FIRST, [("I", FIRST + number, number, "x")])
        feed.publish(FIRST + number)
        assert lives_on.apply().complete
    assert recorded == [1, 0, 1]
    assert [row.column for row in ledger.fidelity("little", Life(TableId("s", "t"), FIRST))] == ["id", "v", "w"]


def test_a_file_that_vanished_unread_is_no_file_that_was_read(ledger: Ledger) -> None:
    assert pipeline(SMALL, SMALL.bucket(), MemoryLake(), ledger).apply().complete
    read = ledger.file_stats("default")
    ledger.record_unread("default", LIFE, "x/1/CDC1.csv", "")
    assert [entry.path for entry in ledger.unread("default")] == ["x/1/CDC1.csv"]
    assert (
        ledger.file_stats("default") == read == {e.path: read[e.path] for e in ledger.files("default") if e.rows >= 0}
    )


@pytest.mark.parametrize(
    "url", ["u:s3cret@127.0.0.1/x", "postgresq://u:s3cret@h/x", "postgresql+no_such://u:s3cret@h/x"]
)
def test_a_ledger_of_no_known_kind_is_a_setting_to_correct(url: str) -> None:
    with pytest.raises(BadSettings, match=r"Give lake\.ledger as postgresql\+psycopg2://USER") as raised:
        Ledger(url)
    assert "s3cret" not in str(raised.value)


def test_states_are_kept_as_the_texts_that_they_always_had(tmp_path: Path) -> None:
    """People read them with SQL, and so do other versions."""
    table, path = TableId("db", "t"), tmp_path / "ledger.db"
    kept = Ledger(f"sqlite:///{path}")
    kept.record_states(
        "one", [TableState(table, n, 0, state, life=f"db.t@{n}", checkpoint=9) for n, state in enumerate(State)], {}
    )
    assert [table_state.state for table_state in kept.states()["one"]] == list(State)
    with sqlite3.connect(path) as connection:
        texts = connection.execute("SELECT state FROM tables ORDER BY version").fetchall()
    assert texts == [("applied",), ("held",), ("failed",), ("dropped",), ("frozen",), ("loading",)]
