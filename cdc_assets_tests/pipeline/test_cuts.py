"""Cuts: what their snapshots hold is what the source held at their position, whatever was applied since."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import BadSettings
from cdc_assets.features.cuts.operations import CutRefused, expire, make_cut, remove_cut, waiting_cut
from cdc_assets.features.cuts.pipeline import cut_outcomes
from cdc_assets.features.cuts.planning import cut_position, due_position
from cdc_assets.ledger import Ledger
from cdc_assets.model.cuts import CutRequest, TagTable, cut_requests
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso, last_tso
from cdc_assets.operations.purge import purge
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.generated import Feed, Generated, each_history, how_many
from cdc_assets_tests.lake_contents import contents_of
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.source import Contents, Source

# --- against generated histories --------------------------------------------------------------------------------------


def held_by(lake: MemoryLake, name: str) -> Contents:
    """What the tables of a cut hold, by their names then."""
    (made,) = [cut for cut in lake.cuts() if cut.name == name]
    return {cut_table.name: contents_of(lake.tables[cut_table.life].tags[name][2]) for cut_table in made.taken}


def decided(lake: MemoryLake, source: Source, checkpoint: Tso, picks: Picks, number: int) -> CutRequest:
    """Decide a cut from where the tables stand to the checkpoint: at an event, or right before one."""
    least = max((state.progress.tso for state in lake.applied().values()), default=0)
    events = [event.ts - before for event in source.log for before in (0, 1)]
    places = [checkpoint, *(ts for ts in events if least <= ts <= checkpoint)]
    request = CutRequest(f"n{number}", places[picks(len(places))])
    lake.keep_decision(request)
    return request


def check_cuts(generated: Generated, tomls: Mapping[str, Path]) -> None:
    source, style, picks = generated.source, generated.style, Picks(generated.raw)
    feed, expected = Feed(style, tomls[style.rendering]), dict[str, Contents]()
    with closing(feed):
        for number, publication in enumerate(generated.publications()):
            feed.publish(publication)
            for cut_number in range(picks(3)):
                cut = decided(feed.lake, source, publication.checkpoint, picks, 10 * number + cut_number)
                expected[cut.name] = source.contents(min(cut.at, publication.shown))
            outcome = feed.pipeline.apply("test")
            assert [cut_outcome.reason for cut_outcome in cut_outcomes(outcome) if cut_outcome.cut is None] == []
            assert feed.contents == source.contents(publication.shown)
        assert {cut.name for cut in feed.lake.cuts()} == expected.keys()
        for name, contents in expected.items():
            assert held_by(feed.lake, name) == contents, name


@how_many(8, 3000)
def test_a_cut_of_a_generated_history_holds_what_the_source_held_then(tomls: Mapping[str, Path], count: int) -> None:
    each_history(count, lambda generated: check_cuts(generated, tomls))


# --- one changefeed ---------------------------------------------------------------------------------------------------


ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")
DAY = 86_400


class Shop(LittleFeed):
    """Two tables in a bucket, and a lake of Arrow tables."""

    def __init__(self, directory: Path, **more: Any) -> None:
        super().__init__(directory)
        self.lake, self.ledger, self.more = MemoryLake(), Ledger("sqlite://"), more
        for name in ("shop.orders", "shop.items"):
            self.create(name)
            self.rows(name, FIRST, [("I", FIRST + 1, 1, "one")])
        self.publish(FIRST + 10)

    @property
    def pipeline(self) -> Pipeline:
        feed = self.settings(**self.more)
        return Pipeline(feed, feed.open_source(), self.lake, self.ledger)

    def more_rows(self, at: Tso, checkpoint: Tso) -> None:
        self.rows("shop.orders", FIRST, [("I", at, at - FIRST, "more")])
        self.publish(checkpoint)

    def keys(self, cut: str, table: TableId) -> list[int]:
        (life,) = [life for life in self.lake.tables if life.born_as == table]
        return sorted(self.lake.tables[life].tags[cut][2].column("id").to_pylist())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_cut_has_all_tables_at_one_position_and_what_comes_later_leaves_it_alone(shop: Shop) -> None:
    shop.more_rows(FIRST + 12, FIRST + 20)
    made = make_cut(shop.pipeline, "report")
    assert (made.name, made.at) == ("report", FIRST + 19)
    assert [cut_table.name for cut_table in made.taken] == [ITEMS, ORDERS]
    shop.more_rows(FIRST + 22, FIRST + 30)
    shop.pipeline.apply()
    assert shop.keys("report", ORDERS) == [1, 12]
    assert cut_requests(shop.lake.decisions()) == ()


def test_no_window_steps_across_a_decided_cut_and_its_table_is_tagged_before_the_next_one(shop: Shop) -> None:
    shop.pipeline.apply()
    shop.rows("shop.orders", FIRST, [("I", FIRST + 12, 12, "below"), ("I", FIRST + 18, 18, "above")])
    shop.publish(FIRST + 20)
    shop.lake.keep_decision(CutRequest("report", FIRST + 15))
    steps = shop.pipeline.planner.plan()[1].steps
    shown = [(type(step), step.life.born_as, step.at) for step in steps]
    assert shown == [
        (ApplyRows, ORDERS, FIRST + 15),
        (TagTable, ITEMS, FIRST + 15),
        (TagTable, ORDERS, FIRST + 15),
        (ApplyRows, ORDERS, FIRST + 20),
    ]


def test_history_tables_are_tables_of_a_cut_by_names_of_their_own(tmp_path: Path) -> None:
    shop = Shop(tmp_path, history={"shop.orders": ["log", "scd2"]})
    made = make_cut(shop.pipeline, "report")
    shop.more_rows(FIRST + 12, FIRST + 20)
    shop.pipeline.apply()
    assert [str(cut_table.name) for cut_table in made.taken] == [
        "shop.items",
        "shop.orders",
        "shop.orders__log",
        "shop.orders__scd2",
    ]
    for life, table in shop.lake.tables.items():
        assert table.tags["report"][2].num_rows == 1, life


def test_a_history_table_that_is_switched_off_is_named_as_one_that_a_cut_does_not_have(tmp_path: Path) -> None:
    shop = Shop(tmp_path, history={"shop.orders": "log"})
    shop.pipeline.apply()
    shop.more = {}
    made = make_cut(shop.pipeline, "report")
    assert [cut_table.name for cut_table in made.taken] == [ITEMS, ORDERS]
    assert [(str(cut_table.name), "do not ask for it" in cut_table.why_not) for cut_table in made.left_out] == [
        ("shop.orders__log", True)
    ]


def test_a_cut_above_the_checkpoint_waits(shop: Shop) -> None:
    shop.lake.keep_decision(CutRequest("later", FIRST + 15))
    assert shop.pipeline.apply().parts == ()
    shop.more_rows(FIRST + 18, FIRST + 20)
    (outcome,) = cut_outcomes(shop.pipeline.apply())
    assert outcome.cut is not None
    assert shop.keys("later", ORDERS) == [1]


def hold_orders(shop: Shop, at: Tso) -> None:
    shop.ddl("shop.orders", at, "ALTER TABLE `orders` FROBNICATE", 99)
    shop.publish(at + 5)


def test_a_held_table_is_absent_with_the_reason_unless_a_cut_of_all_is_required(shop: Shop) -> None:
    shop.pipeline.apply()
    hold_orders(shop, FIRST + 20)
    with pytest.raises(CutRefused, match=r"shop\.orders: it is held: .*Nothing is left of it.*--require-all"):
        make_cut(shop.pipeline, "report", whole=True)
    assert (shop.lake.cuts(), cut_requests(shop.lake.decisions())) == ((), ())
    made = make_cut(shop.pipeline, "report")
    assert ([cut_table.name for cut_table in made.taken], made.exact, made.accepted) == ([ITEMS], False, False)
    assert [(cut_table.name, cut_table.lacks[:11]) for cut_table in made.left_out] == [(ORDERS, "it is held:")]


@pytest.mark.parametrize("whole", [True, False])
def test_a_table_that_is_held_by_its_rows_is_absent_or_withdraws_a_cut_of_all(shop: Shop, whole: bool) -> None:
    shop.pipeline.apply()
    shop.rows("shop.orders", FIRST, [("I", FIRST + 12, "no number", "x")])
    shop.publish(FIRST + 20)
    if whole:
        with pytest.raises(CutRefused, match=r"shop\.orders: it is held: "):
            make_cut(shop.pipeline, "report", whole=True)
        assert shop.lake.cuts() == ()
        assert not any(table.tags for table in shop.lake.tables.values())
    else:
        assert [cut_table.name for cut_table in make_cut(shop.pipeline, "report").taken] == [ITEMS]
    assert cut_requests(shop.lake.decisions()) == ()


def test_a_hold_above_the_cut_is_no_reason_against_it(shop: Shop) -> None:
    shop.pipeline.apply()
    hold_orders(shop, FIRST + 20)
    shop.lake.keep_decision(CutRequest("before", FIRST + 19))
    (outcome,) = cut_outcomes(shop.pipeline.apply())
    assert outcome.cut is not None


def test_an_incomplete_table_is_absent(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.ddl("shop.old", FIRST, "", 0)
    feed.rows("shop.old", FIRST, [("I", FIRST + 1, 1, "one")])
    feed.publish(FIRST + 10)
    settings_, lake = feed.settings(), MemoryLake()
    pipeline = Pipeline(settings_, settings_.open_source(), lake, Ledger("sqlite://"))
    with pytest.raises(CutRefused, match=r"shop\.old: incomplete: it existed .*[^.]\. Nothing is left of it"):
        make_cut(pipeline, whole=True)
    assert cut_requests(lake.decisions()) == ()
    made = make_cut(pipeline)
    assert (made.taken, made.accepted, lake.tagged(made.name)) == ((), False, {})


def test_a_run_that_began_before_the_decision_and_went_across_makes_it_be_decided_anew(shop: Shop) -> None:
    shop.pipeline.apply()
    shop.more_rows(FIRST + 12, FIRST + 20)
    other, keep = shop.pipeline, shop.lake.keep_decision
    decisions: list[Tso] = []

    def overtaken(decision: CutRequest) -> None:
        if not decisions:
            other.apply()  # it was planned as far as the checkpoint, which is beyond the cut
        if not decision.withdrawn:
            decisions.append(decision.at)
        keep(decision)

    shop.lake.keep_decision = overtaken  # type: ignore[method-assign,assignment]
    made = make_cut(shop.pipeline)
    assert decisions == [FIRST + 19, FIRST + 20]
    assert made.at == FIRST + 20
    assert shop.keys(made.name, ORDERS) == [1, 12]


def test_a_cut_that_a_killed_run_decided_is_made_by_the_next_one(shop: Shop) -> None:
    shop.pipeline.apply()
    shop.more_rows(FIRST + 12, FIRST + 20)
    shop.lake.keep_decision(CutRequest("report", FIRST + 19))
    (outcome,) = cut_outcomes(shop.pipeline.apply())
    assert outcome.cut is not None
    assert shop.keys("report", ORDERS) == [1, 12]


def test_a_withdrawn_cut_is_removed_by_the_next_run_and_tags_nothing(shop: Shop) -> None:
    shop.lake.keep_decision(CutRequest("report", FIRST + 5, withdrawn=True))
    assert shop.pipeline.apply().parts == ()
    assert cut_requests(shop.lake.decisions()) == ()
    assert not any(table.tags for table in shop.lake.tables.values())


def test_a_name_is_given_once_and_only_to_what_can_be_a_tag(shop: Shop) -> None:
    make_cut(shop.pipeline, "report")
    with pytest.raises(BadSettings, match="there is a cut report already; known are report"):
        make_cut(shop.pipeline, "report")
    for name in ("main", "cut-7", "1st", "a b", "x" * 65):
        with pytest.raises(BadSettings, match="is no name of a cut"):
            make_cut(shop.pipeline, name)
    shop.lake.keep_decision(CutRequest("decided", FIRST + 500))
    with pytest.raises(BadSettings, match="there is a cut decided already"):
        make_cut(shop.pipeline, "decided")
    with pytest.raises(BadSettings, match="there is no cut nothing; known are decided, report"):
        remove_cut(shop.pipeline, "nothing")
    remove_cut(shop.pipeline, "report")
    assert make_cut(shop.pipeline, "report").name == "report"


def test_a_cut_without_a_name_at_the_position_of_another_is_that_one_unless_it_has_other_tables(shop: Shop) -> None:
    made = make_cut(shop.pipeline)
    assert make_cut(shop.pipeline) == made
    shop.more = {"tables": {"exclude": ["shop.items"]}}
    with pytest.raises(BadSettings, match=f"{made.name} is of this position already, and of other tables"):
        make_cut(shop.pipeline)
    other = make_cut(shop.pipeline, "other")
    assert (other.at, [table.name for table in other.taken], other.exact) == (made.at, [ORDERS], True)


def test_a_feed_without_commit_ts_has_no_state_at_a_position(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.toml.write_text("[sink.csv]\ninclude-commit-ts = false\n")
    feed.publish(FIRST)
    with pytest.raises(BadSettings, match="carry no commit-ts, so its tables have no state at one position"):
        make_cut(feed.pipeline_into(MemoryLake(), accept_unordered=True))


def test_a_dropped_table_that_a_cut_has_is_not_purged_before_the_cut_is_removed(shop: Shop) -> None:
    make_cut(shop.pipeline, "report")
    shop.ddl("shop.items", FIRST + 20, "DROP TABLE `items`", 4, columns=False)
    shop.publish(FIRST + 30)
    shop.pipeline.apply()
    made = make_cut(shop.pipeline, "later")
    assert [cut_table.name for cut_table in made.taken] == [ORDERS]

    class Dropped(MemoryLake):
        def dropped(self) -> Mapping[object, object]:
            return {life: state for life, state in self.applied().items() if state.name is None}

    lake = Dropped()
    lake.tables, lake.made = shop.lake.tables, shop.lake.made
    (kept,) = purge(shop.pipeline, lake, "run", dry=True)  # type: ignore[arg-type]
    assert kept.kept.startswith("the cut report has its rows: remove that first")
    remove_cut(shop.pipeline, "report")
    (free,) = purge(shop.pipeline, lake, "run", dry=True)  # type: ignore[arg-type]
    assert free.kept == ""


# --- regular cuts -----------------------------------------------------------------------------------------------------


def daily(shop: Shop, checkpoint_ms: int) -> Outcome:
    shop.publish(checkpoint_ms << 18)
    return shop.pipeline.apply()


def test_a_regular_cut_stands_at_the_end_of_its_interval_by_whichever_run_comes_first(tmp_path: Path) -> None:
    shop = Shop(tmp_path, cuts={"every": "1d"})
    midnight_ms = (FIRST >> 18) // (DAY * 1000) * DAY * 1000 + DAY * 1000
    shop.rows("shop.orders", FIRST, [("I", last_tso(midnight_ms), 2, "at"), ("I", last_tso(midnight_ms) + 1, 3, "new")])
    daily(shop, midnight_ms - 60_000)
    before = [cut.name for cut in shop.lake.cuts()]
    outcome = daily(shop, midnight_ms + 60_000)
    (made,) = [cut_outcome.cut for cut_outcome in cut_outcomes(outcome) if cut_outcome.cut is not None]
    assert made.at == last_tso(midnight_ms)
    assert made.name == f"cut-{made.at}"
    assert shop.keys(made.name, ORDERS) == [1, 2]
    assert daily(shop, midnight_ms + 120_000).parts == ()
    assert [cut.name for cut in shop.lake.cuts()] == [*before, made.name]


def test_a_regular_cut_without_a_held_table_is_a_warning_unless_the_settings_exclude_it(tmp_path: Path) -> None:
    shop = Shop(tmp_path, cuts={"every": "1h"})
    hold_orders(shop, FIRST + 7)
    hour = 3_600_000
    outcome = daily(shop, (FIRST >> 18) + hour)
    assert ["shop.orders" in finding.detail for finding in outcome.findings if finding.rule == "cut"] == [True]
    assert [[cut_table.name for cut_table in cut.taken] for cut in shop.lake.cuts()] == [[ITEMS]]
    shop.more = {"cuts": {"every": "1h"}, "tables": {"exclude": ["shop.orders"]}}
    outcome = daily(shop, (FIRST >> 18) + 2 * hour)
    assert [cut_outcome.cut is not None and cut_outcome.cut.exact for cut_outcome in cut_outcomes(outcome)] == [True]


@pytest.mark.parametrize(
    ("applied", "wanted", "position"),
    [
        ([5], None, 19),
        ([20], None, 20),
        ([5], 10, 10),
        ([12], 10, 19),
        ([5, 19], 19, 19),
        ([], None, 19),
        ([3], 30, 19),
    ],
)
def test_a_cut_is_at_or_above_what_is_applied_and_below_the_checkpoint_if_it_can_be(
    applied: list[Tso], wanted: Tso | None, position: Tso
) -> None:
    tables = {Life(ORDERS, n): AppliedState(Progress(tso, Phase.ROWS), 1, ORDERS) for n, tso in enumerate(applied)}
    assert cut_position(tables, 20, (), wanted) == position


def test_a_regular_cut_is_due_once_an_interval_has_ended_since_the_last_one() -> None:
    hour, three = 3600, last_tso(3 * 3_600_000)
    for checkpoint, due in ((three - 1, last_tso(2 * 3_600_000)), (three, three), (three + 5, three)):
        assert due_position(hour, checkpoint, [], [0]) == due
    assert due_position(hour, three + 5, [(f"cut-{three}", three)], [0]) is None
    assert due_position(hour, three + 5, [("named", three)], [0]) == three
    assert due_position(hour, three + 5, [(f"cut-{three + 3}", three + 3)], [0]) is None
    assert due_position(hour, three + 5, [], [three + 1, three]) == three
    assert due_position(hour, three + 5, [], [three + 1]) is None


def test_there_is_no_regular_cut_of_before_the_first_table(tmp_path: Path) -> None:
    shop = Shop(tmp_path, cuts={"every": "1d"})
    shop.ddl("shop.old", FIRST, "", 0)  # which was there before
    shop.more["initial"] = {"complete": ["shop.old"]}
    assert waiting_cut(shop.pipeline) is None
    outcome = shop.pipeline.apply()
    assert (outcome.parts, [finding for finding in outcome.findings if finding.rule == "cut"]) == ((), [])
    assert (shop.lake.cuts(), waiting_cut(shop.pipeline)) == ((), None)
    shop.publish((FIRST >> 18) + DAY * 1000 << 18)
    assert waiting_cut(shop.pipeline) is not None
    assert [
        len(cut_outcome.cut.taken) for cut_outcome in cut_outcomes(shop.pipeline.apply()) if cut_outcome.cut is not None
    ] == [3]


def test_the_newest_cuts_are_kept_and_all_with_a_name(tmp_path: Path) -> None:
    shop = Shop(tmp_path, cuts={"every": "1m", "keep": 2})
    make_cut(shop.pipeline, "report")
    for minute in range(1, 5):
        daily(shop, (FIRST >> 18) + minute * 60_000)
    made = [cut.name for cut in shop.lake.cuts()]
    assert len(made) >= 5
    due = expire(shop.pipeline, 0, dry=True)  # type: ignore[arg-type]
    assert [cut.name for cut in shop.lake.cuts()] == made
    assert expire(shop.pipeline, 0) == due  # type: ignore[arg-type]
    left = [cut.name for cut in shop.lake.cuts()]
    assert [*due, *left] == [*due, "report", *made[-2:]]
    assert set(due) | set(left) == set(made)
