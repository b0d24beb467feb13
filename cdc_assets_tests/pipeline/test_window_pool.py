"""Windows side by side: of different tables only, none beyond a DDL, each once, and nothing goes on after the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.errors import LakeUnavailable
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import Report, StagedWindow, StepResult
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.steps import ApplyRows, DropTable, HoldTable, RowReading, Step
from cdc_assets.pipeline import window_pool
from cdc_assets.pipeline.outcome import RunHooks, TableRun
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.pipeline.window_pool import WindowPool
from cdc_assets.planning.plan import Plan
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake

PATIENCE_SECONDS = 240
"""How long a thread waits for another one, which comes within milliseconds unless the machine is busy."""


def life(number: int, kind: str = "") -> Life:
    return Life(TableId("s", f"t{number}"), 1, kind)


def window(number: int, at: int = 9) -> ApplyRows:
    return ApplyRows(life(number), at - 1, at, (), RowReading(), TableSchema(()), 1)


class Work:
    """Carries out windows slowly, and notes what was under way and what a loop had come to when each began."""

    def __init__(self) -> None:
        self.done: list[ApplyRows] = []
        self.under_way: set[ApplyRows] = set()
        self.at = 0
        self.faults: list[str] = []
        self.began: dict[ApplyRows, int] = {}
        self.discarded: list[str] = []
        self.read: list[int] = []
        self.stageable = 9
        self._lock = threading.Lock()

    def pool(self, steps: Sequence[Step], stopped: Callable[[Life], bool]) -> WindowPool:
        def may(step: ApplyRows) -> bool:
            return step.life.source.born_as != life(3).born_as

        def discard(_: ApplyRows, staged: StagedWindow) -> None:
            self.discarded.append(staged.path)

        return WindowPool(steps, self.stage, self.commit, discard, may, stopped)

    def stage(self, steps: Sequence[ApplyRows]) -> list[StagedWindow]:
        with self._lock:
            self.read.append(len(steps))
            steps = steps[: self.stageable]
            for step in steps:
                if any(other.life.source == step.life.source for other in self.under_way):
                    self.faults.append(f"two windows of {step.life} at once")
                self.began[step] = self.at
            self.under_way.update(steps)
        threading.Event().wait(0.0005)
        return [StagedWindow(f"{step.life} at {step.at}", 0, Report()) for step in steps]

    def commit(self, step: ApplyRows, staged: StagedWindow) -> tuple[StepResult, None]:
        with self._lock:
            self.under_way.remove(step)
            self.done.append(step)
        return StepResult(), None


def run_through(steps: Sequence[Step], work: Work, stops: int) -> None:
    """Take windows as the pipeline does, until the run ends at a step."""
    stopped = set[Life]()
    with closing(work.pool(steps, stopped.__contains__)) as pool:
        for number, step in enumerate(steps[:stops]):
            work.at = number
            if step.life in stopped:
                continue
            if isinstance(step, ApplyRows):
                pool.begin(number)
                assert pool.take(number)[0].path == f"{step.life} at {step.at}"
            elif isinstance(step, HoldTable):
                stopped.add(step.life)
            else:
                assert not work.under_way, "a DDL beside a window"
    assert {f"{step.life} at {step.at}" for step in work.under_way} == set(work.discarded)


KINDS = st.tuples(st.integers(0, 4), st.sampled_from(["rows", "rows", "rows", "kinds", "ddl", "hold"]))


@given(st.lists(KINDS, max_size=14), st.integers(0, 20))
def test_windows_side_by_side_keep_every_tables_order_and_that_of_ddl(drawn: list[tuple[int, str]], stops: int) -> None:
    steps: list[Step] = []
    for at, (number, kind) in enumerate(drawn, 10):
        others: dict[str, Step] = {"ddl": DropTable(life(number), at), "hold": HoldTable(life(number), at, "")}
        steps.append(others.get(kind, window(number, at)))
        if kind == "kinds":
            steps += [replace(window(number, at), life=life(number, of)) for of in ("log", "scd2")]
    work = Work()
    run_through(steps, work, stops)
    assert work.faults == []
    assert len(work.done) == len(set(work.done))
    held = set[Life]()
    for place, step in enumerate(steps):
        if isinstance(step, HoldTable):
            held.add(step.life)
        elif isinstance(step, ApplyRows) and step.life in held:
            assert step not in work.began, "a window of a table on hold"
        elif isinstance(step, ApplyRows) and place < stops:
            between = steps[work.began[step] : place]
            assert all(isinstance(step, (ApplyRows, HoldTable)) for step in between), "a window before a DDL"
    for table in {step.life for step in steps}:
        positions = [step.at for step in work.done if step.life == table]
        assert positions == sorted(positions)


def test_windows_of_two_tables_are_carried_out_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    work = Work()
    work.commit = lambda step, staged: (StepResult(inserted=meeting.wait()), None)  # type: ignore[method-assign]
    steps = [window(0), window(1)]
    with closing(work.pool(steps, lambda life: False)) as pool:
        pool.begin(0)
        assert len([pool.take(number) for number in range(2)]) == 2


def test_tables_of_one_source_table_are_read_together_and_committed_in_their_order() -> None:
    work = Work()
    steps: list[Step] = [replace(window(number), life=life(number, of)) for number in (0, 1) for of in ("", "log")]
    run_through(steps, work, len(steps))
    assert work.read == [2, 2]
    for number in (0, 1):
        assert [step.life.kind for step in work.done if step.life.source == life(number)] == ["", "log"]


def test_windows_that_could_not_be_staged_with_the_first_are_staged_when_it_is_their_turn() -> None:
    work = Work()
    work.stageable = 1
    steps: list[Step] = [replace(window(0), life=life(0, of)) for of in ("", "log", "scd2")]
    run_through([*steps, window(1)], work, 4)
    assert sorted(work.read) == [1, 1, 2, 3]
    assert len(work.done) == 4


def test_a_run_that_is_cancelled_waits_for_commits_under_way_and_begins_no_more() -> None:
    began, go_on = threading.Semaphore(0), threading.Event()
    work = Work()
    done = work.commit

    def commit(step: ApplyRows, staged: StagedWindow) -> tuple[StepResult, None]:
        began.release()
        go_on.wait(PATIENCE_SECONDS)
        return done(step, staged)

    work.commit = commit  # type: ignore[method-assign]
    pairs = [replace(window(number), life=life(number, of)) for number in (0, 1, 2, 4, 5, 6) for of in ("", "log")]
    pool = work.pool(pairs, lambda life: False)
    pool.begin(0)
    for _ in range(4):
        assert began.acquire(timeout=PATIENCE_SECONDS)
    ended = threading.Thread(target=pool.close)
    ended.start()
    while not pool._ended:
        time.sleep(0.001)
    assert ended.is_alive()
    go_on.set()
    ended.join()
    assert sorted(step.life for step in work.done) == [life(number) for number in (0, 1, 2, 4)]
    assert sorted(work.discarded) == [f"{life(number, 'log')} at 9" for number in (0, 1, 2, 4)]


def test_several_pools_of_a_process_have_no_more_windows_under_way_than_one() -> None:
    work, most = Work(), list[int]()
    stage = work.stage

    def staged(steps: Sequence[ApplyRows]) -> list[StagedWindow]:
        windows = stage(steps)
        most.append(len(work.under_way))
        return windows

    work.stage = staged  # type: ignore[method-assign]
    pools = [work.pool([window(place) for place in range(of, of + 9)], lambda life: False) for of in (10, 20, 30)]
    for pool in pools:
        pool.begin(0)
    for pool in pools:
        for number in range(9):
            pool.take(number)
    assert len(work.done) == 27
    assert max(most) <= 4


class OneFails(MemoryLake):
    """A lake that fails at a table's windows, while those of others are under way."""

    def __init__(self, table: str, error: BaseException) -> None:
        super().__init__()
        self.table, self.error, self.failed = table, error, threading.Event()

    def commit(self, step: ApplyRows, staged: StagedWindow) -> StepResult:
        if step.life.born_as.table == self.table:
            self.failed.set()
            raise self.error
        self.failed.wait(0.1)
        return super().commit(step, staged)


def five_tables(directory: Path) -> LittleFeed:
    return many_tables(directory, 5)


def many_tables(directory: Path, count: int) -> LittleFeed:
    feed, digits = LittleFeed(directory), len(str(count - 1))
    for number in range(count):
        feed.create(f"s.t{number:0{digits}}")
        feed.rows(f"s.t{number:0{digits}}", FIRST, [("I", FIRST + 5, 1, "a")])
    feed.publish(FIRST + 9)
    return feed


@pytest.mark.parametrize("table", ["t0", "t2", "t4"])
def test_a_window_that_fails_stops_its_table_while_those_beside_it_go_on(
    table: str, tmp_path: Path, no_pauses: list[float]
) -> None:
    settings = five_tables(tmp_path).settings()
    lake = OneFails(table, LakeUnavailable("the store did not answer."))
    pipeline = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))
    pipeline.planner.plan()
    outcome = pipeline.apply("run")
    assert [(table.name.table, table.reason) for table in outcome.tables if table.error is not None] == [
        (table, str(lake.error))
    ]
    assert [table.changes for table in outcome.tables] == [
        int(table_outcome.name.table != table) for table_outcome in outcome.tables
    ]
    lake.commit = MemoryLake.commit.__get__(lake)  # type: ignore[method-assign]
    assert pipeline.apply("again").complete
    assert all(held.rows.num_rows == 1 for held in lake.tables.values())


def test_a_run_that_is_killed_in_a_window_leaves_the_others_whole_and_the_next_run_does_the_rest(
    tmp_path: Path,
) -> None:
    settings = five_tables(tmp_path).settings()
    lake = OneFails("t2", KeyboardInterrupt())
    pipeline = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))
    with pytest.raises(KeyboardInterrupt):
        pipeline.apply("run")
    lake.commit = MemoryLake.commit.__get__(lake)  # type: ignore[method-assign]
    outcome = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://")).apply("next")
    assert outcome.complete
    assert all(held.rows.num_rows == 1 for held in lake.tables.values())


@pytest.mark.parametrize("failing", [None, LakeUnavailable("the store did not answer.")])
def test_a_run_that_gives_way_begins_no_more_windows_and_leaves_the_rest_to_the_next(
    failing: LakeUnavailable | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = many_tables(tmp_path, 30).settings()
    lake = OneFails("t00", failing) if failing is not None else MemoryLake()
    pipeline = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))
    begun, begun_by_then, stage = list[str](), list[int](), lake.stage_all
    logged, ended, wait = list[Life](), threading.Event(), futures.wait

    def staged(steps: Sequence[ApplyRows], *given: Any) -> list[StagedWindow]:
        begun.extend(str(step.life) for step in steps)
        if steps[0].life.born_as.table > "t03":  # beyond the first four, which are begun at once
            ended.wait(PATIENCE_SECONDS)
        return stage(steps, *given)

    def gives_way() -> bool:
        begun_by_then.append(len(begun))
        return any(held.rows.num_rows for held in list(lake.tables.values()))

    def waited(*given: Any) -> Any:
        ended.set()  # from here on no more windows are begun
        return wait(*given)

    lake.stage_all = staged  # type: ignore[assignment, method-assign]
    monkeypatch.setattr(window_pool, "wait", waited)
    hooks = RunHooks(
        lambda step, plan, table: logged.append(step.life) if isinstance(step, ApplyRows) else None, gives_way
    )
    outcome = pipeline.apply("run", hooks=hooks)
    assert len(begun) - begun_by_then[-1] <= 4, "windows were begun after it gave way"
    assert [table.error for table in outcome.tables if table.error is not None] == []
    through = {table.life for table in outcome.tables if table.through == outcome.checkpoint}
    assert through == {life for life, held in lake.tables.items() if held.rows.num_rows} == set(logged)
    assert 0 < len(through) < 30
    lake.commit = MemoryLake.commit.__get__(lake)  # type: ignore[method-assign]
    assert pipeline.apply("next").complete
    assert all(held.rows.num_rows == 1 for held in lake.tables.values())


def test_tables_take_turns_where_every_run_gives_way_after_a_window_while_the_feed_goes_on(tmp_path: Path) -> None:
    feed, lake = five_tables(tmp_path), MemoryLake()
    settings = feed.settings(history={"s.t1": "log"})
    lake.runs_beside = lambda step: False  # type: ignore[method-assign]
    assert Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://")).apply().complete
    for number in range(1, 7):
        for table in range(5):
            feed.rows(f"s.t{table}", FIRST, [("I", FIRST + 10 * number, 1 + number, "a")])
        feed.publish(FIRST + 10 * number + 9)
        pipeline = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))
        pipeline.apply(hooks=RunHooks(gives_way=lambda: True))
    assert {held.progress.tso > FIRST + 9 for held in lake.tables.values()} == {True}


def test_the_metrics_of_windows_may_be_taken_while_other_windows_are_under_way(tmp_path: Path) -> None:
    settings = five_tables(tmp_path).settings()
    pipeline = Pipeline(settings, settings.open_source(), MemoryLake(), Ledger("sqlite://"))
    logged = list[str]()

    def log(step: Step, plan: Plan, table: TableRun) -> None:
        time.sleep(0.01)
        logged.extend(life.born_as.table for life in pipeline.accounts)
        pipeline.accounts.clear()

    outcome = pipeline.apply("run", hooks=RunHooks(log))
    assert [len(table.accounts) for table in outcome.tables] == [1] * 5
    assert logged == [f"t{number}" for number in range(5)]
