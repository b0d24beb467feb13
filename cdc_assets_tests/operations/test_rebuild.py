"""Tables built aside from their history: equal to the source, swapped at once, refused where rows may be missing."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.ddl import created
from cdc_assets.errors import BadSettings, LakeUnavailable, RebuildRefused, TableMoved
from cdc_assets.ledger import Ledger
from cdc_assets.model.cuts import cut_requests
from cdc_assets.model.progress import Life, Phase, Progress
from cdc_assets.model.reports import StepResult
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import Listing
from cdc_assets.model.tickets import Ticket
from cdc_assets.model.tso import Tso
from cdc_assets.operations.rebuild import (
    EarlierRuns,
    SwappedTable,
    incomplete_in_dumps,
    rebuild,
    rebuild_targets,
    refusals,
)
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.sections import CutSettings
from cdc_assets_tests.cases import Checkpoint, Config, cases
from cdc_assets_tests.changefeed import sink_options
from cdc_assets_tests.dump_writer import Writing, write_dump
from cdc_assets_tests.kills import Killed, Trap, checkpoints, named, trapped
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.replay import AsOf, compare

pytestmark = pytest.mark.timeout(900)


@dataclass
class MemoryRebuilds:
    """Rebuilds over Arrow tables: same verbs as the real ones."""

    live: MemoryLake
    asides: dict[str, MemoryLake] = field(default_factory=dict)
    open: dict[str, Ticket] = field(default_factory=dict)
    made: dict[Life, str] = field(default_factory=dict)
    before_swap: Callable[[Life], object] = lambda life: None

    def tickets(self) -> Sequence[Ticket]:
        return tuple(self.open.values())

    def touch(self, ticket: Ticket) -> None:
        self.open[ticket.token] = ticket

    def removals(self) -> Sequence[Ticket]:
        return tuple(self.live.tickets.values())

    def hold_back(self, token: str, lives: Iterable[Life]) -> None:
        self.live.waiting = frozenset(map(str, lives))

    def begin(self, token: str) -> MemoryLake:
        lake = self.asides.setdefault(token, MemoryLake())
        lake.may_lack_rows = self.live.may_lack_rows
        lake.decided = self.live.decided
        return lake

    def swapped(self, life: Life, token: str) -> StepResult | None:
        return StepResult() if self.made.get(life) == token else None

    def swap(self, lake: MemoryLake, life: Life, token: str, through: Tso = 0) -> StepResult:
        self.before_swap(life)
        live_table, theirs = self.live.tables.get(life), lake.tables[life]
        if live_table is not None and theirs.progress < live_table.progress <= Progress(through, Phase.ROWS):
            theirs = dataclasses.replace(theirs, progress=live_table.progress)
        if live_table is not None and live_table.progress > theirs.progress:
            raise TableMoved(str(life))
        past = [] if live_table is None else [*live_table.past, (live_table.ddl, live_table.rows, live_table.recipe)]
        self.live.tables[life] = dataclasses.replace(theirs, past=past)
        self.live.bring_in(life, -1, theirs.progress.tso)
        self.made[life] = token
        return StepResult()

    def close_records(self, lake: MemoryLake, life: Life) -> None:
        self.live.bring_in(life, -1, lake.tables[life].progress.tso)

    def end(self, token: str) -> int:
        self.hold_back(token, ())
        self.open.pop(token, None)
        return len(self.asides.pop(token, MemoryLake()).tables)

    def end_stale(self) -> int:
        return 0


def pipeline_of(config: Config, checkpoint: Checkpoint, lake: Any, ledger: Ledger | None = None) -> Pipeline:
    settings = config.settings(checkpoint.bucket)
    return Pipeline(settings, AsOf(settings, checkpoint.ts), lake, ledger or Ledger("sqlite://"))


def damage(lake: MemoryLake) -> None:
    """Lose every other row of every table."""
    for table in lake.tables.values():
        table.rows = table.rows.filter(pa.array([n % 2 == 1 for n in range(table.rows.num_rows)], pa.bool_()))


# --- without Spark ----------------------------------------------------------------------------------------------------

QUICK = {"C_ddl_tables/csv-ts", "E_partitions/canal-ext", "G_redelivery/csv-ts"}
CONFIGS = [
    pytest.param(config, id=str(config), marks=() if str(config) in QUICK else pytest.mark.soak)
    for case in cases()
    for config in case.configs
    if checkpoints(config, 1)
]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_complete_table_is_equal_to_the_source_after_a_rebuild(config: Config) -> None:
    (checkpoint,) = checkpoints(config, 1)
    assert checkpoint.expected is not None
    lake = MemoryLake()
    pipeline = pipeline_of(config, checkpoint, lake)
    before = pipeline.apply("first")
    stopped = {table.name for table in before.tables if table.state in ("held", "failed")}
    damage(lake)
    refused = set()
    for life, held in pipeline.planner.plan()[1].history.lives.items():
        if held.name is None:
            continue
        try:
            rebuild(pipeline, MemoryRebuilds(lake), [str(life)], "again")
        except RebuildRefused as error:
            refused.add((held.name, str(error)))
    assert [(name, why) for name, why in refused if name not in stopped] == []
    outcome = pipeline.apply("after")
    names = {str(name) for name, _ in refused}
    mismatches = compare(config, checkpoint.expected, lake, outcome)
    assert [
        mismatch for mismatch in mismatches if not mismatch.startswith("  ") and mismatch.split(":")[0] not in names
    ] == []


def first(name: str = "C_ddl_tables/csv-ts") -> tuple[Config, Checkpoint]:
    config = named(name)
    return config, checkpoints(config, 1)[0]


def test_nothing_aside_is_left_and_the_journal_has_each_swap() -> None:
    config, checkpoint = first()
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    pipeline = pipeline_of(config, checkpoint, lake, ledger)
    pipeline.apply("first")
    rebuilds = MemoryRebuilds(lake)
    targets = rebuild_targets(pipeline)
    assert not rebuilds.open
    done = rebuild(pipeline, rebuilds, (), "again")
    assert [(target.life, target.name) for target in targets] == [(table.life, table.name) for table in done]
    assert all(target.steps for target in targets)
    assert not rebuilds.asides
    assert not rebuilds.open
    journaled = {entry.life for entry in ledger.journal("default") if entry.action == "rebuild"}
    assert journaled == {str(table.life) for table in done}
    assert {table.name for table in done} == lake.names()


def test_what_is_built_aside_decides_no_regular_cut_of_its_own() -> None:
    config, checkpoint = first()
    lake = MemoryLake()
    settings = config.settings(checkpoint.bucket).model_copy(update={"cuts": CutSettings(every="1m")})
    pipeline = Pipeline(settings, AsOf(settings, checkpoint.ts), lake, Ledger("sqlite://"))
    pipeline.apply("first")
    assert lake.cuts()
    rebuilds, decided = MemoryRebuilds(lake), list[object]()
    rebuilds.before_swap = lambda life: decided.extend(
        cut for aside in rebuilds.asides.values() for cut in (*cut_requests(aside.decisions()), *aside.cuts())
    )
    assert rebuild(pipeline, rebuilds, (), "again")
    assert decided == []


def test_a_table_that_a_writer_moves_on_is_brought_as_far_and_swapped_then() -> None:
    config = named("G_redelivery/csv-ts")
    early, late = checkpoints(config)[0], checkpoints(config)[-1]
    lake = MemoryLake()
    lake.may_lack_rows = True
    pipeline_of(config, early, lake).apply("first")
    damage(lake)
    pipeline = pipeline_of(config, late, lake)
    assert isinstance(pipeline.source, AsOf)
    pipeline.source.checkpoint = early.ts
    moved: list[Life] = []

    def writer(life: Life) -> None:
        if not moved:
            moved.append(life)
            pipeline.source.checkpoint = late.ts  # type: ignore[attr-defined]
            pipeline_of(config, late, lake).apply("the writer")

    rebuild(pipeline, MemoryRebuilds(lake, before_swap=writer), (), "again")
    assert moved
    assert late.expected is not None
    assert compare(config, late.expected, lake, pipeline.apply("after")) == []


def test_a_writer_that_never_rests_stops_the_rebuild_with_its_own_rows_kept() -> None:
    config, checkpoint = first("G_redelivery/csv-ts")
    lake = MemoryLake()
    pipeline = pipeline_of(config, checkpoint, lake)
    pipeline.apply("first")
    rows = {life: table.rows for life, table in lake.tables.items()}

    def writer(life: Life) -> None:
        table = lake.tables[life]
        table.progress = dataclasses.replace(table.progress, tso=checkpoint.ts + 1)

    with pytest.raises(TableMoved):
        rebuild(pipeline, MemoryRebuilds(lake, before_swap=writer), (), "again")
    assert {life: table.rows for life, table in lake.tables.items()} == rows
    assert lake.held_back() == frozenset(), "no window waits for a rebuild that gave up"


def test_a_writer_that_follows_the_feed_all_the_time_waits_for_the_swap_and_goes_on_after_it(tmp_path: Path) -> None:
    feed, lake = LittleFeed(tmp_path), MemoryLake()
    settings, windows = feed.settings(), list[int]()
    names = ("s.t", "s.other")
    for name in names:
        feed.create(name)

    def writer(life: Life | None = None) -> None:
        at = FIRST + 10 * len(windows)
        for name in names:
            feed.rows(name, FIRST, [("I", at + 1, len(windows), "a")])
        feed.publish(at + 9)
        windows.append(at)
        Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://")).apply("the writer")

    writer()
    pipeline = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))
    rebuild(pipeline, MemoryRebuilds(lake, before_swap=writer), ["s.t"], "again")

    def rows() -> list[int]:
        return [lake.tables[Life(TableId("s", name), FIRST)].rows.num_rows for name in ("t", "other")]

    assert rows() == [len(windows) - 1, len(windows)], "of the two only it waited"
    writer()
    assert rows() == [len(windows), len(windows)]


@pytest.mark.parametrize("ended", [True, False])
def test_a_lake_that_fails_once_another_run_ended_the_rebuild_is_a_lost_race(ended: bool) -> None:
    config = named("G_redelivery/csv-ts")
    last = checkpoints(config)[-1]
    lake = MemoryLake()
    pipeline = pipeline_of(config, last, lake)
    pipeline.apply("first")
    rebuilds = MemoryRebuilds(lake)

    def fail(life: Life) -> None:
        if ended:
            rebuilds.open.clear()
        raise LakeUnavailable("no such file")

    rebuilds.before_swap = fail
    with pytest.raises(TableMoved if ended else LakeUnavailable, match="no such file"):
        rebuild(pipeline, rebuilds, (), "second")


def test_a_table_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    config, checkpoint = first()
    pipeline = pipeline_of(config, checkpoint, MemoryLake())
    with pytest.raises(BadSettings, match=r"no table is called nobody\.knows; known are "):
        rebuild(pipeline, MemoryRebuilds(MemoryLake()), ["nobody.knows"])


@dataclass
class Feed:
    """A copy of a recorded bucket, applied once, whose files may go."""

    config: Config
    checkpoint: Checkpoint
    directory: Path
    lake: MemoryLake
    ledger: Ledger

    def pipeline(self, **given: Any) -> Pipeline:
        settings = self.config.settings(self.directory, **given)
        return Pipeline(settings, AsOf(settings, self.checkpoint.ts), self.lake, self.ledger)

    def files(self) -> list[str]:
        return sorted(file.path for file in self.pipeline().planner.plan()[0].data_files)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    config, checkpoint = first("G_redelivery/csv-ts")
    shutil.copytree(checkpoint.bucket, tmp_path / "feed")
    made = Feed(config, checkpoint, tmp_path / "feed", MemoryLake(), Ledger("sqlite://"))
    made.pipeline().apply("first")
    return made


def refused(feed: Feed, match: str, **given: Any) -> None:
    """Rebuild in vain: every table stays as it was, and nothing is aside."""
    before = {life: (table.rows, table.progress) for life, table in feed.lake.tables.items()}
    rebuilds = MemoryRebuilds(feed.lake)
    with pytest.raises(RebuildRefused, match=match):
        rebuild(feed.pipeline(**given), rebuilds)
    assert {life: (table.rows, table.progress) for life, table in feed.lake.tables.items()} == before
    assert not rebuilds.asides
    assert not rebuilds.open


def test_a_first_file_that_was_cleaned_up_is_refused_even_when_the_ledger_is_lost(feed: Feed) -> None:
    path = next(path for path in feed.files() if len([p for p in feed.files() if p[:-12] == path[:-12]]) > 1)
    (feed.directory / path).unlink()
    feed.ledger = Ledger("sqlite://")
    refused(feed, r"the files with the numbers 1 are missing")


def test_a_last_file_that_the_ledger_knows_and_that_is_gone_is_refused(feed: Feed) -> None:
    path = feed.files()[-1]
    (feed.directory / path).unlink()
    refused(feed, rf"{path} existed and is missing now")


def test_a_schema_file_that_the_ledger_knows_and_that_is_gone_is_refused(feed: Feed) -> None:
    listing, _ = feed.pipeline().planner.plan()
    path = max(file.path for file in listing.schema_files if file.table.table)
    (feed.directory / path).unlink()
    refused(feed, r"existed and is missing now|no schema file")


def test_a_table_that_outlived_the_changefeeds_own_clean_up_is_refused(feed: Feed) -> None:
    pipeline = feed.pipeline()
    options = dataclasses.replace(sink_options(pipeline.settings), file_expiration_days=1)
    _, planned = pipeline.planner.plan()
    old = dataclasses.replace(planned, checkpoint=planned.checkpoint + ((3 * 86_400_000) << 18))
    reasons = refusals(
        pipeline.source, _listing(pipeline), old, planned.history.lives, EarlierRuns(), options.retention_days
    )
    assert len([reason for reason in reasons if "file-expiration-days" in reason]) == len(planned.history.lives)


def _listing(pipeline: Pipeline) -> Listing:
    return pipeline.planner.plan()[0]


def test_a_table_does_not_come_before_one_that_had_its_name_and_is_not_in_the_lake_yet(tmp_path: Path) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    feed.create("s.a")
    feed.ddl("s.a", FIRST + 1, "DROP TABLE `s`.`a`", 4)
    feed.create("s.a", FIRST + 2)
    feed.rows("s.a", FIRST + 2, [("I", FIRST + 3, 1, "x")])
    feed.publish(FIRST + 9)
    pipeline = Pipeline(feed.settings(), feed.settings().open_source(), lake, ledger)
    assert rebuild(pipeline, MemoryRebuilds(lake)) == ()
    with pytest.raises(RebuildRefused, match="Apply the changefeed first"):
        rebuild(pipeline, MemoryRebuilds(lake), ["s.a"])
    assert pipeline.apply("run").complete
    assert [table.through for table in rebuild(pipeline, MemoryRebuilds(lake), ["s.a"])] == [FIRST + 9]


def test_a_table_whose_drop_is_not_applied_is_rebuilt_by_the_name_that_it_is_shown_with(tmp_path: Path) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    feed.create("s.a")
    file = feed.rows("s.a", FIRST, [("I", FIRST + 1, "one", "x")])
    feed.ddl("s.a", FIRST + 2, "DROP TABLE `s`.`a`", 4)
    feed.publish(FIRST + 9)
    pipeline = Pipeline(feed.settings(), feed.settings().open_source(), lake, ledger)
    (table,) = pipeline.apply("run").tables
    assert (table.name, table.state) == (TableId("s", "a"), "held")
    file.write_bytes(file.read_bytes().replace(b"one", b"1"))
    assert [table.name for table in rebuild(pipeline, MemoryRebuilds(lake), ["s.a"])] == [None]
    assert pipeline.apply("run").complete


def test_a_table_that_lacks_rows_only_until_a_truncate_that_is_not_applied_gets_them_from_a_dump(
    tmp_path: Path,
) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    feed.ddl("s.a", FIRST, "", 0, keyed=False)
    feed.rows("s.a", FIRST, [("D", FIRST + 1, 1, "before")])
    feed.ddl("s.a", FIRST + 2, "TRUNCATE TABLE `s`.`a`", 11, keyed=False)
    feed.rows("s.a", FIRST + 2, [("I", FIRST + 3, 2, "after")])
    feed.publish(FIRST + 9)
    text, name = "CREATE TABLE `a` (`id` INT,`v` VARCHAR(40))", TableId("s", "a")
    write_dump(tmp_path / "dump", {name: (created(text), [("1", "before")])}, FIRST, Writing(), texts={name: text})
    alone, joined = feed.settings(), feed.settings(initial={"dump": str(tmp_path / "dump")})
    (table,) = Pipeline(alone, alone.open_source(), lake, ledger).apply("run").tables
    assert "a delete found no equal row" in table.reason
    pipeline = Pipeline(joined, joined.open_source(), lake, ledger)
    assert incomplete_in_dumps(pipeline) == (f"s.a@{FIRST}",)
    rebuild(pipeline, MemoryRebuilds(lake), ["s.a"])
    assert lake.read(name).column("v").to_pylist() == ["after"]
    assert pipeline.apply("run").complete


@pytest.mark.parametrize("number", [0, 1])
def test_a_file_of_an_older_table_that_is_gone_is_replaced_by_a_dump_taken_since(number: int, tmp_path: Path) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    text, name = "CREATE TABLE `a` (`id` INT PRIMARY KEY,`v` VARCHAR(40))", TableId("s", "a")

    def with_dump(at: Tso, *keys: int) -> Pipeline:
        place, rows = tmp_path / f"dump{at}", [(str(key), "x") for key in keys]
        write_dump(place, {name: (created(text), rows)}, at, Writing(), texts={name: text})
        return feed.pipeline_into(lake, ledger, initial={"dump": str(place)})

    feed.ddl("s.a", FIRST, "", 0)
    files = [feed.rows("s.a", FIRST, [("I", FIRST + n, n, "x")]) for n in (1, 2)]
    feed.publish(FIRST + 9)
    first = with_dump(FIRST, 0)
    assert first.apply("run").complete
    files[number].unlink()
    with pytest.raises(RebuildRefused, match="a dump taken since"):
        rebuild(first, MemoryRebuilds(lake), ["s.a"])
    assert rebuild(with_dump(FIRST + 5, 0, 1, 2), MemoryRebuilds(lake), ["s.a"])
    assert sorted(lake.read(name).column("id").to_pylist()) == [0, 1, 2]


def test_aside_tables_from_the_future_are_built_again(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(_: Life) -> None:
        raise KeyboardInterrupt

    rebuilds = MemoryRebuilds(feed.lake, before_swap=dies)
    with monkeypatch.context() as patch:
        patch.setattr("cdc_assets.operations.rebuild.time.time", lambda: 4e9)
        with pytest.raises(KeyboardInterrupt):
            rebuild(feed.pipeline(), rebuilds)
    (wrong,) = rebuilds.open
    rebuilds.before_swap = lambda _: None
    assert rebuild(feed.pipeline(), rebuilds)
    assert wrong not in rebuilds.made.values()


def test_a_crash_at_any_place_is_followed_by_a_rebuild_that_goes_on(tmp_path: Path) -> None:
    config, checkpoint = first("E_partitions/canal-ext")
    assert checkpoint.expected is not None
    lake = MemoryLake()
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    pipeline = pipeline_of(config, checkpoint, lake, ledger)
    pipeline.apply("first")
    damage(lake)
    done: tuple[SwappedTable, ...] = ()
    rebuilds, killed = MemoryRebuilds(lake), set[str]()
    while not done:
        try:
            with trapped(Trap(lambda number, name: name not in killed)) as trap:
                done = rebuild(pipeline, rebuilds, (), "again")
        except Killed:
            killed.add(trap.killed)
            assert len(rebuilds.asides) <= 1, "a second rebuild began, and the first was forgotten"
    assert len(killed) > 10
    assert not rebuilds.asides
    assert compare(config, checkpoint.expected, lake, pipeline.apply("after")) == []
    ledger.close()
