"""Two writers at one table: every kind of commit against itself and against newer ones; and storage that fails."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from cdc_assets.errors import Retryable, StorageUnavailable, TableMoved
from cdc_assets.lake import Lake, commit, namespaces, schema, steps, table_renames
from cdc_assets.lake import windows as taking
from cdc_assets.lake.label import Label
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life, Phase
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn, DeleteRows, RetypeColumn, SchemaChange
from cdc_assets.model.steps import ApplyRows, ChangeTable, DropTable, ExchangePartition, RenameTable, Step
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.kills import checkpoints, leftovers, named, wrong
from cdc_assets_tests.lake.table_source import ID, NOTE, SCHEMA, Files, Source, id_below
from cdc_assets_tests.replay import replay

pytestmark = pytest.mark.timeout(900)

NUMBER = Column("note", "INT")
EXTRA = Column("extra", "INT")
LOADED = [("I", 110, 1, "7"), ("I", 111, 2, "8")]
NEWER = [("I", 260, 5, "5"), ("D", 261, 2, "8")]


@dataclass(frozen=True)
class Kind:
    """A commit: what it does at 200, where it can be overtaken, and the rows after it and after a newer window."""

    seams: tuple[tuple[Any, str], ...]
    changes: tuple[SchemaChange, ...] = ()
    schema: TableSchema = SCHEMA
    loaded: bool = True
    after: tuple[tuple[Any, ...], ...] = ((1, "7"), (2, "8"))
    later: tuple[tuple[Any, ...], ...] = ((1, "7"), (5, "5"))


ROWS = ((steps, "publish"), (commit, "_staged"))
KINDS = {
    "first load": Kind(
        ((taking, "publish"), (commit, "_mark")), loaded=False, after=((3, "x"),), later=((3, "x"), (5, "5"))
    ),
    "merge": Kind(
        ((taking, "publish"), (commit, "_staged")),
        after=((1, "7"), (2, "8"), (3, "x")),
        later=((1, "7"), (3, "x"), (5, "5")),
    ),
    "row delta": Kind(
        ((taking, "publish"), (commit, "_mark")),
        after=((1, "7"), (2, "8"), (3, "x")),
        later=((1, "7"), (3, "x"), (5, "5")),
    ),
    "truncate": Kind(((schema, "publish"),), (DeleteRows(None),), after=(), later=((5, "5"),)),
    "partition delete": Kind(
        ((schema, "publish"), (commit, "_staged")), (DeleteRows(id_below(2)),), after=((2, "8"),), later=((5, "5"),)
    ),
    "schema change": Kind(
        ((schema, "publish"),),
        (AddColumn(EXTRA, "4"),),
        TableSchema((ID, NOTE, EXTRA), ("id",)),
        after=((1, "7", 4), (2, "8", 4)),
        later=((1, "7", 4), (5, "5", 6)),
    ),
    "rewrite": Kind(
        ((schema, "_rewrite"), (schema, "_converted"), (schema, "_refuse_lost")),
        (RetypeColumn(NOTE, NUMBER),),
        TableSchema((ID, NUMBER), ("id",)),
        after=((1, 7), (2, 8)),
        later=((1, 7), (5, 5)),
    ),
    "exchange of the partition": Kind(ROWS, after=((0, "9"), (2, "8")), later=((0, "9"), (5, "5"))),
    "exchange of the table": Kind(ROWS, loaded=False, after=((1, "7"),), later=((1, "7"), (5, "5"))),
    "create": Kind(((schema, "create"), (namespaces, "ensure_namespace")), loaded=False, after=(), later=((5, "5"),)),
    "rename": Kind(((steps, "publish"), (table_renames, "apply_renames"))),
    "drop": Kind(((steps, "publish"), (table_renames, "apply_renames"))),
}
CASES = [pytest.param(name, *seam, id=f"{name} at {seam[1]}") for name, kind in KINDS.items() for seam in kind.seams]


@dataclass
class Race:
    """One table and the step at 200 that two writers carry out."""

    name: str
    source: Source
    step: Step
    files: Files = field(default_factory=lambda: Files({}))

    def run(self, lake: Lake) -> None:
        if isinstance(self.step, ApplyRows):
            with patch.object(taking, "row_delta_of", return_value=None) if self.name == "merge" else nullcontext():
                lake.commit(self.step, lake.stage(self.step, self.files))
        else:
            lake.run(self.step)

    def newer(self, lake: Lake) -> None:
        """Apply the window through 300, from wherever the table stands."""
        self.source.schema = KINDS[self.name].schema
        rows = [(*row, "6") if self.name == "schema change" else row for row in NEWER]
        step, files = self.source.window(300, rows)
        lake.commit(step, lake.stage(step, files))

    def rows(self, lake: Lake) -> list[tuple[Any, ...]]:
        held = lake.state.find(self.source.life)
        table = lake.state.catalog.load_table(held.identifier).scan().to_arrow().drop_columns(["_cdc_commit_ts"])
        return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def race(name: str, lake: Lake) -> Race:
    kind, source = KINDS[name], Source(lake)
    if kind.loaded:
        source.apply(199, LOADED)
    if name.startswith("exchange"):
        return _exchange(name, lake, source)
    if name == "create":
        made = Source(lake, TableId("fresh", "made"), at=200, create=False)
        return Race(name, made, made.birth)
    if name in ("first load", "merge", "row delta"):
        return Race(name, source, *source.window(200, [("I", 200, 3, "x")]))
    if name == "rename":
        return Race(name, source, RenameTable(source.life, 200, TableId("other", "renamed")))
    if name == "drop":
        return Race(name, source, DropTable(source.life, 200))
    return Race(name, source, ChangeTable(source.life, 200, kind.changes, kind.schema, SCHEMA))


def _exchange(name: str, lake: Lake, source: Source) -> Race:
    """The partition below 2 of one table changes places with the rows of another."""
    other = Source(lake, TableId("shop", "other"))
    partition = name == "exchange of the partition"
    parted, plain = (source, other) if partition else (other, source)
    if not partition:
        parted.apply(199, LOADED)
    plain.apply(199, [("I", 112, 0, "9")])
    own, theirs = (parted, plain) if partition else (plain, parted)
    return Race(name, own, ExchangePartition(own.life, theirs.life, 200, id_below(2), partition, SCHEMA))


def overtake(monkeypatch: pytest.MonkeyPatch, owner: Any, seam: str, action: Callable[[], object]) -> None:
    """Run an action once, when somebody comes to a seam: after `_staged` and `_converted`, before all others."""
    original = getattr(owner, seam)

    def overtaken(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr(owner, seam, original)
        if seam in ("_staged", "_converted"):
            result = original(*args, **named)
            action()
            return result
        action()
        return original(*args, **named)

    monkeypatch.setattr(owner, seam, overtaken)


@pytest.mark.parametrize(("name", "owner", "seam"), CASES)
def test_of_two_writers_with_the_same_step_one_wins_and_the_other_fails_or_finds_it_done(
    name: str, owner: Any, seam: str, open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    raced_step = race(name, open_lake())
    fast, slow = open_lake(), open_lake()
    slow.applied()
    overtake(monkeypatch, owner, seam, lambda: raced_step.run(fast))
    try:
        raced_step.run(slow)
    except TableMoved:
        slow.applied()
        raced_step.run(slow)
    assert raced_step.rows(slow) == list(KINDS[name].after)
    held = slow.state.find(raced_step.source.life)
    labels = [Label.parse(snapshot.summary) for snapshot in slow.state.file(held.metadata_location).lineage()]
    assert len({label.progress for label in labels if label}) == len(labels), "a commit was made twice"
    assert leftovers(slow.state) == []


@pytest.mark.parametrize(("name", "owner", "seam"), [case for case in CASES if case.values[0] != "drop"])
def test_a_writer_that_a_newer_window_overtook_undoes_nothing(
    name: str, owner: Any, seam: str, open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    raced_step = race(name, open_lake())
    fast, slow = open_lake(), open_lake()
    slow.applied()

    def both() -> None:
        raced_step.run(fast)
        raced_step.newer(fast)

    overtake(monkeypatch, owner, seam, both)
    with suppress(TableMoved):
        raced_step.run(slow)
    slow.applied()
    raced_step.run(slow)
    raced_step.newer(slow)
    assert raced_step.rows(slow) == list(KINDS[name].later)
    assert slow.applied()[raced_step.source.life].progress.tso == 300
    assert slow.applied()[raced_step.source.life].progress.phase is Phase.ROWS
    assert leftovers(slow.state) == []


def test_a_rewrite_that_a_rename_and_a_successor_overtook_touches_neither_table(
    open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    raced_step = race("rewrite", open_lake())
    fast, slow = open_lake(), open_lake()
    slow.applied()

    def replaced() -> None:
        raced_step.run(fast)
        fast.run(RenameTable(raced_step.source.life, 210, TableId("shop", "old")))
        Source(fast, at=220).apply(230, [("I", 225, 9, "new")])

    overtake(monkeypatch, schema, "_converted", replaced)
    with pytest.raises(TableMoved):
        raced_step.run(slow)
    assert raced_step.rows(slow) == [(1, 7), (2, 8)]
    assert slow.read(TableId("shop", "orders")).column("note").to_pylist() == ["new"]
    assert leftovers(slow.state) == []


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "feed",
    ["I_update_keys_nonclustered/csv-cf4", pytest.param("E_partitions/canal-ext", marks=pytest.mark.soak)],
)
def test_two_runs_of_one_changefeed_at_once_both_end_with_every_table_right(
    feed: str, spark: SparkSession, tmp_path: Path
) -> None:
    config = named(feed)
    (checkpoint,) = checkpoints(config, 1)
    outcomes: list[Outcome | BaseException] = []
    start = threading.Barrier(2)

    def run() -> None:
        lake = Lake(LakeSettings.from_warehouse(tmp_path), "default", lambda: spark)
        ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
        start.wait()
        try:
            outcomes.append(replay(config, checkpoint, lake, ledger))
        except BaseException as error:  # noqa: BLE001  # a thread's error is the test's
            outcomes.append(error)
        finally:
            lake.close()
            ledger.close()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert errors == []
    reached = [
        (t.life, t.state, t.reason) for outcome in outcomes if isinstance(outcome, Outcome) for t in outcome.tables
    ]
    assert [table_state for table_state in reached if table_state[1] == "failed"] == []
    assert wrong(config, checkpoint, tmp_path, lambda: spark) == []


@pytest.mark.soak
@pytest.mark.parametrize("feed", ["C_ddl_tables/csv-ts", "B_ddl_columns/csv-ts"])
def test_two_processes_on_one_changefeed_both_end_with_every_table_right(feed: str, tmp_path: Path) -> None:
    config = named(feed)
    (checkpoint,) = checkpoints(config, 1)
    command = [sys.executable, "-m", "cdc_assets_tests.kills", "--victim", feed, "--directory", str(tmp_path)]
    command += ["--checkpoint", str(checkpoint.ts)]
    both = [subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(900) for process in both] == [0, 0]
    assert wrong(config, checkpoint, tmp_path) == []


# --- storage that fails -----------------------------------------------------------------------------------------------


def _blocked(directory: Path) -> Callable[[], None]:
    """Put a file in the place of a directory: the storage takes no files there. Returns what undoes it."""
    away = directory.with_name(f"{directory.name}.away")
    if directory.exists():
        directory.rename(away)
    directory.write_text("no directory")

    def undo() -> None:
        directory.unlink()
        if away.exists():
            away.rename(directory)

    return undo


@pytest.mark.parametrize("place", ["data", "metadata", "stage"])
@pytest.mark.parametrize("name", ["merge", "row delta", "rewrite"])
def test_a_warehouse_that_takes_no_files_leaves_the_table_as_it_was(name: str, place: str, lake: Lake) -> None:
    if (name, place) == ("rewrite", "stage"):
        pytest.skip("a rewrite stages nothing")
    raced_step = race(name, lake)
    before = lake.state.find(raced_step.source.life)
    directory = lake.settings.local_directory
    assert directory is not None
    undo = _blocked(directory / "_cdc_stage" if place == "stage" else Path(before.location) / place)
    try:
        with pytest.raises(StorageUnavailable, match=r"try again"):
            raced_step.run(lake)
    finally:
        undo()
    assert lake.state.find(raced_step.source.life).metadata_location == before.metadata_location
    raced_step.run(lake)
    assert raced_step.rows(lake) == list(KINDS[name].after)


@pytest.mark.parametrize("name", ["merge", "truncate", "rewrite", "rename"])
def test_a_catalog_that_is_locked_at_the_commit_leaves_the_old_state_or_the_new_one(
    name: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced_step = race(name, lake)
    directory = lake.settings.local_directory
    assert directory is not None
    with closing(sqlite3.connect(directory / "catalog.db", isolation_level=None)) as other:
        owner, seam = {"merge": (commit, "_staged"), "rewrite": (schema, "_converted")}.get(name, (None, ""))
        if owner is None:
            other.execute("BEGIN IMMEDIATE")
        else:
            overtake(monkeypatch, owner, seam, lambda: other.execute("BEGIN IMMEDIATE"))
        with pytest.raises(StorageUnavailable, match=r"locked|BUSY"):
            raced_step.run(lake)
        other.execute("ROLLBACK")
    lake.applied()
    raced_step.run(lake)
    assert raced_step.rows(lake) == list(KINDS[name].after)
    assert leftovers(lake.state) == []


def test_a_ledger_that_stays_locked_is_waited_for_with_a_limit_and_reported_in_a_sentence(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db", patience_seconds=0.1)
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Retryable, match=r"ledger\.db did not answer .*locked.* Try again"):
            ledger.record_unread("default", Life(TableId("shop", "orders"), 1), "a.csv", "run")
        other.execute("ROLLBACK")
    ledger.close()


def test_a_ledger_that_is_locked_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        release = threading.Timer(0.5, lambda: other.execute("ROLLBACK"))
        release.start()
        ledger.record_states("default", [], {})
        ledger.record_schema_files("default", {("a", 1, ""): b"x"})
        release.join()
    assert ledger.schema_files("default") == {("a", 1, ""): b"x"}
    ledger.close()


def test_two_processes_may_make_one_ledger_at_the_same_moment(tmp_path: Path) -> None:
    for number in range(5):
        start, made = threading.Barrier(4), list[Ledger]()

        def make(number: int = number, start: threading.Barrier = start, made: list[Ledger] = made) -> None:
            start.wait()
            made.append(Ledger(f"sqlite:///{tmp_path}/{number}.db"))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for ledger in made:
            ledger.close()
        assert len(made) == 4
