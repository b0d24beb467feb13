"""A look that leaves out settled files plans and says what a whole look does, and nothing that comes late is missed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, settings

from cdc_assets.io.storage import Entry, Opener
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import Listing
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline import settled as settling
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.pipeline.planner import PlanRequest
from cdc_assets.planning.plan import Plan
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.generated import CHECKS, PICKS, STEPS, STYLES, faults, feeds
from cdc_assets_tests.histories import history
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.replay import AsOf, compare
from cdc_assets_tests.writer import Style, publications

DAY = 24 * 3_600_000 << 18
"""The TSO of one day are so many."""
DATE = re.compile(r"/(\d{4}-\d{2}-\d{2})/")
CONFIGS = [config for case in cases() for config in case.configs if config.options.wire.has_commit_ts]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Settle every file as soon as its rows are applied, and close every date but the newest."""
    newest = {"day": ""}
    monkeypatch.setattr(settling, "LEAST_FILES", 1)
    monkeypatch.setattr(settling, "_OPEN_FILES", 0)
    monkeypatch.setattr(settling, "_day_before", lambda _: newest["day"])
    every = Opener.entries

    def entries(self: Opener, below: str = "", without: Mapping[str, int] = {}) -> Iterator[Entry]:
        inside = tuple(f"{directory}/" for directory in without)
        return (entry for entry in every(self, below, without) if not entry[0].startswith(inside))

    monkeypatch.setattr(Opener, "entries", entries)
    return newest


def of_dates(paths: Any) -> str:
    """The newest date in the paths of files."""
    return max((match[1] for path in paths if (match := DATE.search(str(path)))), default="")


def planned(pipeline: Pipeline, *, whole: bool) -> tuple[Listing, Plan, set[str]]:
    listing, plan = pipeline.planner.plan(whole=whole)
    return listing, plan, set(map(str, pipeline.planner.findings(listing, plan)))


def assert_alike(pipeline: Pipeline) -> Listing:
    """A look without settled files and a whole one come to the same; return the first one's listing."""
    some, few, sentences = planned(pipeline, whole=False)
    everything, plan, all_said = planned(pipeline, whole=True)
    assert few.steps == plan.steps
    assert sentences == all_said
    assert some.file_count == everything.file_count
    return some


def test_a_generated_history_is_looked_at_alike(tomls: Mapping[str, Path], eager: dict[str, str]) -> None:
    left_out = 0

    @settings(CHECKS, max_examples=5, derandomize=True, database=None)
    @given(steps=STEPS, style=STYLES, raw=PICKS)
    def check(steps: list[tuple[str, bytes]], style: Style, raw: bytes) -> None:
        nonlocal left_out
        source = history(steps, style.old_values)
        note(f"{style}\n{source.script}")
        with feeds(style, tomls[style.rendering]) as (feed, _):
            for publication in publications(source, style, Picks(raw)):
                eager["day"] = of_dates(publication.files)
                feed.publish(publication)
                assert_alike(feed.pipeline)
                assert faults(feed, publication, source.contents(publication.shown)) == []
                left_out += len(assert_alike(feed.pipeline).settled)

    check()
    assert left_out > 20


@pytest.mark.parametrize("config", CONFIGS[::14], ids=str)
def test_a_recorded_feed_is_looked_at_alike(config: Config, eager: dict[str, str]) -> None:
    check_recorded(config, eager)


@pytest.mark.soak
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_recorded_feed_is_looked_at_alike(config: Config, eager: dict[str, str]) -> None:
    check_recorded(config, eager)


def check_recorded(config: Config, eager: dict[str, str]) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    for checkpoint in config.replayable:
        eager["day"] = of_dates(checkpoint.bucket.rglob("*.*"))
        options = config.settings(checkpoint.bucket)
        pipeline = Pipeline(options, AsOf(options, checkpoint.ts), lake, ledger)
        assert_alike(pipeline)
        outcome = pipeline.apply("test")
        if checkpoint.expected is not None:
            assert compare(config, checkpoint.expected, lake, outcome) == [], checkpoint.note
        assert_alike(pipeline)


# --- late files -------------------------------------------------------------------------------------------------------


def key(commit_ts: Tso) -> int:
    """The key of a row, by the day and the order of its commit."""
    day, place = divmod(commit_ts - FIRST, DAY)
    return day * 1000 + place


class Dated:
    """A feed of one table with a directory a day, applied day by day; files are numbered by their day."""

    def __init__(self, directory: Path, keyed: bool = True) -> None:
        self.feed = LittleFeed(directory)
        self.feed.create("db.t", keyed=keyed)
        self.lake, self.ledger = MemoryLake(), Ledger("sqlite://")

    def date(self, day: int) -> str:
        return tso_time(FIRST + day * DAY)[:10]

    def put(self, day: int, *rows: Tso, table: str = "db.t") -> Path:
        written = self.feed.rows(table, FIRST, [("I", ts, key(ts), "x") for ts in rows])
        there = written.parent / self.date(day)
        there.mkdir(exist_ok=True)
        return written.rename(there / f"CDC{len(list(there.iterdir())) + 1:020d}.csv")

    @property
    def pipeline(self) -> Pipeline:
        return self.feed.pipeline_into(self.lake, self.ledger)

    def apply(self, checkpoint: Tso) -> Outcome:
        self.feed.publish(checkpoint)
        return self.pipeline.apply()

    def ids(self) -> set[int]:
        return set(self.lake.read(TableId("db", "t")).column("id").to_pylist())


@pytest.fixture
def dated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dated:
    """Six days, of which the first ones are settled and closed."""
    monkeypatch.setattr(settling, "LEAST_FILES", 2)
    feed = Dated(tmp_path)
    for day in range(6):
        feed.put(day, FIRST + day * DAY + 1)
        feed.put(day, FIRST + day * DAY + 2)
        outcome = feed.apply(FIRST + day * DAY + 10)
        assert outcome.complete, [table.reason for table in outcome.tables]
    assert feed.apply(FIRST + 5 * DAY + 20).complete
    return feed


def test_a_date_is_closed_two_and_a_half_days_later(dated: Dated) -> None:
    listing, _ = dated.pipeline.planner.plan()
    closed = {directory.date for directory in listing.settled if directory.closed}
    assert closed == {dated.date(0), dated.date(1), dated.date(2)}
    assert {file.date for file in listing.data_files} == {dated.date(3), dated.date(4), dated.date(5)}


def test_rows_that_came_unseen_into_a_closed_directory_hold_the_table_until_it_is_rebuilt(
    dated: Dated, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = FIRST + 5 * DAY + 30
    dated.put(0, late)
    dated.put(5, late + 5)
    assert dated.apply(FIRST + 5 * DAY + 40).complete  # the directory is passed over
    assert key(late) not in dated.ids()
    monkeypatch.setattr(settling, "LOOK_AGAIN_SECONDS", 0)
    monkeypatch.setattr(settling, "_OPEN_FILES", 0)
    for _ in range(3):
        table = dated.apply(FIRST + 5 * DAY + 50).tables[0]
        assert table.state == "held"
        assert f"{dated.date(0)}/CDC{3:020d}.csv came into a directory whose date had passed" in table.reason
    live = dated.pipeline
    rebuilt = Pipeline(live.settings, live.source, MemoryLake(), live.ledger, request=PlanRequest(bases={}))
    assert rebuilt.apply().complete
    assert dated.apply(FIRST + 5 * DAY + 60).tables[0].state != "held"


def test_a_file_of_another_protocol_in_a_settled_directory_holds_its_table(
    dated: Dated, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = dated.put(0, FIRST + 5 * DAY + 30)
    foreign = file.rename(file.with_suffix(".json"))
    monkeypatch.setattr(settling, "LOOK_AGAIN_SECONDS", 0)
    monkeypatch.setattr(settling, "_OPEN_FILES", 0)
    states = [dated.apply(FIRST + 5 * DAY + checkpoint).tables[0].state for checkpoint in (40, 50)]
    assert states[-1] == "held"
    foreign.unlink()
    dated.ledger.remove_files("little", [str(foreign.relative_to(dated.feed.bucket))])
    assert dated.apply(FIRST + 5 * DAY + 60).complete


def test_late_rows_of_one_table_are_found_by_a_look_at_everything_for_the_sake_of_another(dated: Dated) -> None:
    dated.feed.create("db.u")
    for number in (1, 2):
        dated.put(0, FIRST + number, table="db.u")
    for more in (30, 31):
        assert dated.apply(FIRST + 5 * DAY + more).complete
    late = FIRST + 5 * DAY + 35
    dated.put(0, late)
    dated.put(5, late + 1)
    assert dated.apply(FIRST + 5 * DAY + 40).complete
    for life in [life for life, table in dated.lake.tables.items() if table.name == TableId("db", "u")]:
        del dated.lake.tables[life]
    for _ in range(2):
        t, u = dated.apply(FIRST + 5 * DAY + 50).tables
        assert (t.state, u.state) == ("held", "applied")
        assert "came into a directory whose date had passed" in t.reason


def test_a_late_record_that_does_not_fit_holds_the_table(dated: Dated, monkeypatch: pytest.MonkeyPatch) -> None:
    late = FIRST + 5 * DAY + 30
    file = dated.put(0, FIRST + 1, late)
    file.write_bytes(file.read_bytes().replace(b'%d,"x"' % key(late), b'"no number","x"'))
    dated.put(5, late + 1)
    assert dated.apply(FIRST + 5 * DAY + 40).complete
    monkeypatch.setattr(settling, "LOOK_AGAIN_SECONDS", 0)
    assert dated.apply(FIRST + 5 * DAY + 50).tables[0].state == "held"


def test_rows_that_are_still_to_be_applied_are_found_in_a_closed_directory(
    dated: Dated, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = FIRST + 5 * DAY + 30
    dated.put(0, late)
    monkeypatch.setattr(settling, "LOOK_AGAIN_SECONDS", 0)
    assert dated.apply(FIRST + 5 * DAY + 40).complete
    assert key(late) in dated.ids()


def test_a_table_without_key_is_given_the_settled_files_that_show_where_a_delivery_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "LEAST_FILES", 1)
    feed = Dated(tmp_path, keyed=False)
    feed.put(0, FIRST + 10, FIRST + 14, FIRST + 20)
    assert feed.apply(FIRST + 12).complete
    feed.put(1, FIRST + 14)  # the changefeed began again
    assert feed.apply(FIRST + 16).complete
    feed.put(2, FIRST + 20, FIRST + 21)
    feed.feed.publish(FIRST + 5 * DAY)
    feed.pipeline.apply(select=lambda _: ())
    assert [directory.date for directory in feed.ledger.settled.read(feed.feed.settings().name)] == [feed.date(1)]
    assert feed.apply(FIRST + 5 * DAY).complete
    assert sorted(feed.lake.read(TableId("db", "t")).column("id").to_pylist()) == [10, 14, 20, 21]


def test_what_was_delivered_again_into_a_closed_directory_changes_nothing(
    dated: Dated, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dated.ids()
    dated.put(1, FIRST + DAY + 2)
    assert dated.apply(FIRST + 5 * DAY + 40).complete
    monkeypatch.setattr(settling, "LOOK_AGAIN_SECONDS", 0)
    assert dated.apply(FIRST + 5 * DAY + 50).complete
    assert dated.ids() == before
    assert_alike(dated.pipeline)


def test_a_lake_that_is_empty_again_is_given_all_files(dated: Dated) -> None:
    before = dated.ids()
    dated.lake = MemoryLake()
    assert dated.apply(FIRST + 5 * DAY + 40).complete
    assert dated.ids() == before


def test_a_file_of_an_open_directory_that_is_written_anew_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "LEAST_FILES", 2)
    monkeypatch.setattr(settling, "_OPEN_FILES", 1)
    feed = LittleFeed(tmp_path)
    feed.create("db.t")
    files = [feed.rows("db.t", FIRST, [("I", FIRST + number, number, "x")]) for number in range(1, 6)]
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    options = feed.settings()

    def look() -> Pipeline:
        return Pipeline(options, options.open_source(), lake, ledger)

    for checkpoint in (10, 20):
        feed.publish(FIRST + checkpoint)
        assert look().apply().complete
    assert [
        (directory.files, directory.number, directory.closed) for directory in look().planner.plan()[0].settled
    ] == [(4, 4, False)]
    files[1].write_text(f'"I","t","db",{FIRST + 25},7,"anew"\r\n"I","t","db",{FIRST + 2},2,"x"\r\n', newline="")
    feed.publish(FIRST + 30)
    assert look().apply().complete
    assert 7 in lake.read(TableId("db", "t")).column("id").to_pylist()
    assert_alike(look())


@pytest.mark.parametrize("day", [0, 1])
def test_a_file_that_is_restored_after_later_ones_were_applied_holds_its_table_until_it_is_rebuilt(
    tmp_path: Path, day: int
) -> None:
    feed = Dated(tmp_path)
    feed.put(0, FIRST + 1)
    restored = feed.put(0, FIRST + 2, FIRST + 3)
    feed.put(day, FIRST + day * DAY + 4)
    data = restored.read_bytes()
    restored.unlink()
    checkpoint = FIRST + 5 * DAY
    assert feed.apply(checkpoint).complete
    restored.write_bytes(data)
    for more in (1, 2):
        (table,) = feed.apply(checkpoint + more).tables
        assert table.state == "held"
        assert restored.name in table.reason
        assert any(f"cdc-assets rebuild {table.name}" in way for way in table.ways)
    live, feed.lake = feed.pipeline, MemoryLake()
    rebuilt = Pipeline(live.settings, live.source, feed.lake, live.ledger, request=PlanRequest(bases={}))
    assert rebuilt.apply().complete
    assert feed.apply(checkpoint + 3).complete
    assert feed.ids() == {1, 2, 3, day * 1000 + 4}


@pytest.mark.parametrize("kind", ["log", "scd2"])
@pytest.mark.parametrize(
    "orders",
    [
        "both, rebuild, both",
        "both, rebuild history, both",
        "both, history, rebuild history, both",
        "both, mirror, rebuild, rebuild",
        "both, mirror, rebuild, both, rebuild",
        "mirror, mirror, both, both",
        "mirror, history, history",
    ],
)
def test_each_table_of_a_source_has_late_rows_or_lacks_them_until_it_is_built_anew(
    tmp_path: Path, kind: str, orders: str
) -> None:
    feed, lake, ledger, life = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://"), f"db.t@{FIRST}.{kind}"
    feed.create("db.t")
    files = [feed.rows("db.t", FIRST, [("I", FIRST + at, at, "x")]) for at in (1, 2, 3)]
    data = files[1].read_bytes()
    files[1].unlink()
    tables = {"mirror": {}, "both": {"db.t": kind}, "history": {"db.t": {"kinds": [kind], "mirror": False}}}
    checkpoint, now, states = FIRST + 10, "", {}
    for order in (*orders.split(", "), "both"):
        now = now if order.startswith("rebuild") else order
        feed.publish(checkpoint := checkpoint + 10)
        pipeline = feed.pipeline_into(lake, ledger, history=tables[now])
        if order.startswith("rebuild"):
            rebuild(pipeline, MemoryRebuilds(lake), [life if "history" in order else "db.t"], "the rebuild")
        else:
            states = {table.life: table for table in pipeline.apply().tables}
        files[1].write_bytes(data)
    for table_life, state in lake.applied().items():
        rows = {1, 2, 3} == {*lake.tables[table_life].rows.column("id").to_pylist()}
        assert rows or state.gap is not None or states[table_life].state == "held", table_life
    for name in (life, "db.t"):
        rebuild(feed.pipeline_into(lake, ledger, history=tables["both"]), MemoryRebuilds(lake), [name], "the last")
    assert feed.pipeline_into(lake, ledger, history=tables["both"]).apply().complete
    assert {tuple(sorted(table.rows.column("id").to_pylist())) for table in lake.tables.values()} == {(1, 2, 3)}


@pytest.mark.parametrize(
    ("altered", "version", "indexed"),
    [(False, FIRST, True), (True, FIRST + 50, True), (True, FIRST, False)],
    ids=["the last of all", "the last of a version", "the last of an earlier version, without index"],
)
def test_the_last_file_of_a_directory_is_late_once_it_is_restored(
    tmp_path: Path, altered: bool, version: Tso, indexed: bool
) -> None:
    feed, versions = LittleFeed(tmp_path), [FIRST, FIRST + 50] if altered else [FIRST]
    feed.create("db.t")
    files = {FIRST: [feed.rows("db.t", FIRST, [("I", FIRST + 1, 1, "x")])]}
    if altered:
        feed.ddl("db.t", FIRST + 50, "ALTER TABLE `t` COMMENT = 'c'", 17)
    for number, each in enumerate(versions, 2):
        files.setdefault(each, []).append(feed.rows("db.t", each, [("I", each + 2, number, "x")]))
    if indexed:
        for *_, last in files.values():
            (last.parent / "meta").mkdir()
            (last.parent / "meta" / "CDC.index").write_text(f"{last.name}\n")
    restored = files[version][-1]
    data = restored.read_bytes()
    restored.unlink()
    lake, ledger = MemoryLake(), Ledger("sqlite://")

    def run(checkpoint: Tso) -> Outcome:
        feed.publish(checkpoint)
        return feed.pipeline_into(lake, ledger).apply()

    assert run(FIRST + 100).complete
    restored.write_bytes(data)
    for checkpoint in (FIRST + 101, FIRST + 102):
        (table,) = run(checkpoint).tables
        assert table.state == "held"
        assert restored.name in table.reason


def test_a_table_that_lacks_the_rows_of_a_removed_file_is_whole_after_a_rebuild_with_it(tmp_path: Path) -> None:
    feed = Dated(tmp_path)
    feed.lake.may_lack_rows = True
    feed.put(0, FIRST + 1)
    removed = feed.put(0, FIRST + 2)
    changed = feed.feed.rows("db.t", FIRST, [("D", FIRST + 3, key(FIRST + 2), "x")])
    changed.rename(removed.with_name(f"CDC{3:020d}.csv"))
    data = removed.read_bytes()
    removed.unlink()
    (table,) = feed.apply(FIRST + 10).tables
    assert "a data file of the table was removed" in table.incomplete
    removed.write_bytes(data)
    assert [table.state for table in feed.apply(FIRST + 11).tables] == ["held"]
    live, feed.lake = feed.pipeline, MemoryLake()
    rebuilt = Pipeline(live.settings, live.source, feed.lake, live.ledger, request=PlanRequest(bases={}))
    assert rebuilt.apply().complete
    (table,) = feed.apply(FIRST + 12).tables
    assert (table.state, table.incomplete) == ("applied", "")
    assert feed.ids() == {1}


def test_a_file_that_fills_a_gap_is_applied_where_all_its_rows_are_still_due(tmp_path: Path) -> None:
    feed = Dated(tmp_path)
    feed.put(0, FIRST + 1)
    late = feed.put(0, FIRST + 30)
    feed.put(0, FIRST + 2)
    data = late.read_bytes()
    late.unlink()
    assert feed.apply(FIRST + 10).complete
    late.write_bytes(data)
    assert feed.apply(FIRST + 40).complete
    assert feed.ids() == {1, 2, 30}


def test_a_restored_file_of_a_feed_without_commit_ts_is_late(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("db.t")
    files = [feed.rows("db.t", FIRST, [("I", FIRST + number, number, "x")]) for number in (1, 2, 3)]
    for file in files:
        file.write_bytes(re.sub(rb",\d{18},", b",", file.read_bytes()))
    data = files[1].read_bytes()
    files[1].unlink()
    feed.toml.write_text("[sink.csv]\ninclude-commit-ts = false\n")
    lake, ledger = MemoryLake(), Ledger("sqlite://")

    def run(checkpoint: Tso) -> Outcome:
        feed.publish(checkpoint)
        return feed.pipeline_into(lake, ledger, accept_unordered=True).apply()

    assert run(FIRST + 100).complete
    files[1].write_bytes(data)
    assert [table.state for table in run(FIRST + 101).tables] == ["held"]


def test_what_is_delivered_again_behind_the_files_that_were_read_changes_nothing(tmp_path: Path) -> None:
    feed = Dated(tmp_path)
    feed.put(0, FIRST + 1, FIRST + 2)
    assert feed.apply(FIRST + 10).complete
    feed.put(0, FIRST + 1, FIRST + 2)
    feed.put(1, FIRST + 2, FIRST + 20)
    assert feed.apply(FIRST + 30).complete
    assert feed.ids() == {1, 2, 20}


@pytest.mark.parametrize("keyed", [True, False])
def test_a_new_file_with_rows_from_before_its_window_is_late_unless_they_were_read(tmp_path: Path, keyed: bool) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("db.t", keyed=keyed)
    feed.rows("db.t", FIRST, [("I", FIRST + 1, 1, "x"), ("I", FIRST + 8, 8, "x")])
    lake, ledger = MemoryLake(), Ledger("sqlite://")

    def run(checkpoint: Tso) -> tuple[str, int]:
        feed.publish(checkpoint)
        (table,) = feed.pipeline_into(lake, ledger).apply().tables
        return table.state, lake.read(TableId("db", "t")).num_rows

    assert run(FIRST + 10) == ("applied", 2)
    again = [("I", FIRST + number, number, "x") for number in (1, 8, 12)]
    feed.rows("db.t", FIRST, again)  # by a writer that began anew
    assert run(FIRST + 20) == ("applied", 3)
    late = feed.rows("db.t", FIRST, [("I", FIRST + 8, 9, "x"), ("I", FIRST + 22, 22, "x")])
    for checkpoint in (FIRST + 30, FIRST + 31):  # the second run knows it from the ledger
        assert run(checkpoint) == ("held", 3)
    data = late.read_bytes()
    late.unlink()
    assert run(FIRST + 32) == ("applied", 3)
    late.write_bytes(data)
    assert run(FIRST + 33) == ("held", 3)
    settings, rebuilt = feed.settings(), MemoryLake()
    request = PlanRequest(bases={})
    assert Pipeline(settings, settings.open_source(), rebuilt, ledger, request=request).apply().complete
    assert rebuilt.read(TableId("db", "t")).num_rows == 5


@pytest.mark.parametrize("keyed", [True, False])
def test_what_is_delivered_again_in_the_directory_of_an_earlier_version_changes_nothing(
    tmp_path: Path, keyed: bool
) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("db.t", keyed=keyed)
    before = [("I", FIRST + number, number, "x") for number in range(1, 5)]
    feed.rows("db.t", FIRST, before)
    feed.ddl("db.t", FIRST + 50, "ALTER TABLE `t` COMMENT = 'c'", 17, keyed=keyed)
    feed.rows("db.t", FIRST + 50, [("I", FIRST + 60, 60, "x")])
    lake, ledger, settings = MemoryLake(), Ledger("sqlite://"), feed.settings()

    def run(checkpoint: Tso) -> Outcome:
        feed.publish(checkpoint)
        return Pipeline(settings, settings.open_source(), lake, ledger).apply()

    assert run(FIRST + 100).complete
    feed.rows("db.t", FIRST, before[1:])
    feed.rows("db.t", FIRST + 50, [("I", FIRST + 60, 60, "x"), ("I", FIRST + 120, 120, "x")])
    for checkpoint in (FIRST + 130, FIRST + 131):
        assert run(checkpoint).complete
    assert sorted(lake.read(TableId("db", "t")).column("id").to_pylist()) == [1, 2, 3, 4, 60, 120]
    assert not any(file.path not in ledger.file_stats("little") for file in settings.open_source().listing().data_files)
    feed.rows("db.t", FIRST, [*before, ("I", FIRST + 4, 5, "x")])
    assert [table.state for table in run(FIRST + 140).tables] == ["held"]


def test_a_file_that_an_index_named_too_early_may_have_what_is_delivered_again(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("db.t")
    first = feed.rows("db.t", FIRST, [("I", FIRST + 1, 1, "x"), ("I", FIRST + 2, 2, "x")])
    (first.parent / "meta").mkdir()
    (first.parent / "meta" / "CDC.index").write_text(f"{first.name[:-5]}2.csv\n")
    lake, ledger, settings = MemoryLake(), Ledger("sqlite://"), feed.settings()

    def run(checkpoint: Tso) -> Outcome:
        feed.publish(checkpoint)
        return Pipeline(settings, settings.open_source(), lake, ledger).apply()

    assert run(FIRST + 10).complete
    assert ledger.noted("little")
    feed.rows("db.t", FIRST, [("I", FIRST + 2, 2, "x"), ("I", FIRST + 20, 20, "x")])
    assert run(FIRST + 30).complete
    assert set(lake.read(TableId("db", "t")).column("id").to_pylist()) == {1, 2, 20}


class Killed(BaseException):
    """The end of a process, where the next line would be."""


@pytest.mark.parametrize("named", [True, False], ids=["named by an index", "of an earlier date"])
def test_a_run_that_is_killed_before_it_records_a_file_that_came_into_the_past_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    feed = Dated(tmp_path)
    first = feed.put(0, FIRST + 1)
    if named:
        (first.parent / "meta").mkdir()
        (first.parent / "meta" / "CDC.index").write_text(f"CDC{2:020d}.csv\n")
    else:
        feed.put(1, FIRST + 2)
    assert feed.apply(FIRST + 10).complete
    number = len(list(first.parent.glob("*.csv"))) + 1
    feed.feed.rows("db.t", FIRST, [("I", FIRST + 12, 12, "x")]).rename(first.parent / f"CDC{number:020d}.csv")
    with monkeypatch.context() as patch:
        commit = MemoryLake.commit

        def killed(*window: Any) -> None:
            commit(*window)
            raise Killed

        patch.setattr(MemoryLake, "commit", killed)
        with pytest.raises(Killed):
            feed.apply(FIRST + 20)
    assert 12 in feed.ids()
    for checkpoint in (FIRST + 20, FIRST + 21):
        assert feed.apply(checkpoint).complete


def test_a_restored_file_of_a_table_that_was_renamed_meanwhile_holds_it(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("db.t")
    files = [feed.rows("db.t", FIRST, [("I", FIRST + number, number, "x")]) for number in (1, 2, 3)]
    data = files[1].read_bytes()
    files[1].unlink()
    lake, ledger, settings = MemoryLake(), Ledger("sqlite://"), feed.settings()

    def run(checkpoint: Tso) -> Outcome:
        feed.publish(checkpoint)
        return Pipeline(settings, settings.open_source(), lake, ledger).apply()

    assert run(FIRST + 10).complete
    feed.ddl("db.u", FIRST + 50, "RENAME TABLE `db`.`t` TO `db`.`u`", 14)
    feed.rows("db.u", FIRST + 50, [("I", FIRST + 60, 60, "x")])
    assert run(FIRST + 100).complete
    files[1].write_bytes(data)
    for checkpoint in (FIRST + 101, FIRST + 102):
        (table,) = run(checkpoint).tables
        assert table.state == "held"
        assert files[1].name in table.reason


@pytest.mark.parametrize("of_first", [True, False])
def test_a_restored_file_holds_the_table_whose_rows_it_has_not_another_one_of_the_name(
    tmp_path: Path, of_first: bool
) -> None:
    feed = LittleFeed(tmp_path)
    lives, restored, data = [FIRST, FIRST + 50], list[Path](), list[bytes]()
    for version in lives:
        feed.create("db.t", version)
        files = [feed.rows("db.t", version, [("I", version + number, number, "x")]) for number in (1, 2, 3)]
        restored.append(files[1])
        data.append(files[1].read_bytes())
        files[1].unlink()
        if version == FIRST:
            feed.ddl("db.t", FIRST + 40, "DROP TABLE `t`", 4, columns=False)
    lake, ledger, settings = MemoryLake(), Ledger("sqlite://"), feed.settings(history={"db.t": "log"})

    def run(checkpoint: Tso) -> Outcome:
        feed.publish(checkpoint)
        return Pipeline(settings, settings.open_source(), lake, ledger).apply()

    assert run(FIRST + 100).complete
    number = 0 if of_first else 1
    restored[number].write_bytes(data[number])
    feed.rows("db.t", lives[1], [("I", FIRST + 101, 9, "x")])
    outcome = run(FIRST + 110)
    held = {(table.life.version, table.life.kind) for table in outcome.tables if table.state.stopped}
    assert held == {(lives[number], kind) for kind in ("", "log")}
    assert all(restored[number].name in table.reason for table in outcome.tables if table.state.stopped)
    assert (9 in lake.tables[Life(TableId("db", "t"), lives[1])].rows.column("id").to_pylist()) == of_first


def test_a_directory_to_which_a_file_may_be_brought_back_is_looked_at(dated: Dated) -> None:
    listing, planned = dated.pipeline.planner.plan(whole=True)
    stats = dated.ledger.file_stats(dated.feed.settings().name)
    gone = f"db/t/{FIRST}/{dated.date(1)}/CDC{3:020d}.csv"
    dates = {directory.date for directory in settling.settle(listing, planned, stats, 0.0)}
    assert dated.date(1) in dates
    assert {directory.date for directory in settling.settle(listing, planned, stats, 0.0, [gone])} == dates - {
        dated.date(1)
    }


def test_the_ledger_keeps_what_it_knew_of_settled_files(dated: Dated) -> None:
    name = dated.feed.settings().name
    listing, _ = dated.pipeline.planner.plan()
    everything, few = dated.ledger.file_stats(name), dated.ledger.file_stats(name, listing.settled)
    assert len(everything) == 12
    assert len(few) == 6
    assert [entry.path for entry in dated.ledger.files(name)] == sorted(everything)
    gone = next(iter(sorted(everything)))
    dated.ledger.remove_files(name, [gone])
    assert gone not in dated.ledger.file_stats(name)


def test_without_the_ledger_everything_is_listed_again_and_late_rows_from_then_on_are_applied(dated: Dated) -> None:
    dated.ledger = Ledger("sqlite://")
    listing, _ = dated.pipeline.planner.plan()
    assert listing.settled == ()
    assert {file.date for file in listing.data_files} == {dated.date(day) for day in range(6)}
    late = FIRST + 5 * DAY + 30
    dated.put(0, late)
    assert dated.apply(FIRST + 5 * DAY + 40).complete
    assert key(late) in dated.ids()


def test_what_is_settled_is_looked_at_once_a_day(dated: Dated) -> None:
    kept = dated.ledger.settled.read(dated.feed.settings().name)
    seen = max(directory.seen_at for directory in kept)
    assert all(directory.passed_over for directory in settling.recalled(kept, seen) if directory.closed)
    assert not any(directory.passed_over for directory in settling.recalled(kept, seen + settling.LOOK_AGAIN_SECONDS))
    assert not any(
        directory.passed_over for directory in settling.recalled(kept, min(directory.seen_at for directory in kept) - 1)
    )
    listing, _ = dated.pipeline.planner.plan()
    due = [replace(directory, passed_over=False) for directory in kept]
    again = settling.seen_again(due, listing, seen + 1)
    assert {directory.directory for directory in again} == {directory.directory for directory in kept}
