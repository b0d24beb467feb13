"""History tables beside their mirrors: read once, each at its own label, and what they hold leads to the mirror."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cli.progress import watching
from cdc_assets.errors import BadSettings
from cdc_assets.features.cuts.operations import make_cut
from cdc_assets.ledger import Ledger
from cdc_assets.model.reports import StagedWindow, StepResult
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.planning.plan import open_exchanges
from cdc_assets.report.plan_text import describe_plan
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.folding import fold_differences
from cdc_assets_tests.generated import Feed, Generated, each_history, feeds, how_many
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.replay import replay
from cdc_assets_tests.schema_documents import document, write_schema
from cdc_assets_tests.writer import Publication

LOGS = {"*.*": "log"}


def stopped(feed: Feed, publication: Publication) -> Iterator[str]:
    """Apply a publication, and say which history tables are not where their source tables are."""
    outcome = feed.apply(publication)
    mirrors = {table.life: table for table in outcome.tables if not table.life.kind}
    for table in outcome.tables:
        if table.life.kind and table.state != mirrors[table.life.source].state:
            yield f"{table.life} is {table.state}: {table.reason}"


def check_logs(generated: Generated, tomls: Mapping[str, Path]) -> None:
    style = generated.style
    with feeds(style, tomls[style.rendering], history=LOGS) as (often, once):
        for publication in generated.publications():
            problems = [*stopped(often, publication), *fold_differences(often.lake)]
            assert problems == [], publication.checkpoint
        assert [*stopped(once, publication), *fold_differences(once.lake)] == [], "in one go"


@how_many(5, 5000)
def test_the_log_of_a_generated_history_leads_to_its_mirror(tomls: Mapping[str, Path], count: int) -> None:
    each_history(count, lambda generated: check_logs(generated, tomls))


# --- recorded feeds ---------------------------------------------------------------------------------------------------

RECORDED = [config for case in cases() for config in case.configs if config.options.wire.has_commit_ts]
ALWAYS = {"B_ddl_columns/csv-ts", "D_keys/csv-ts", "E_partitions/csv-ts"}


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(recording, marks=() if str(recording) in ALWAYS else pytest.mark.soak, id=str(recording))
        for recording in RECORDED
    ],
)
def test_logs_of_recorded_feeds_lead_to_their_mirrors_at_every_checkpoint_and_in_one_go(config: Config) -> None:
    often, ledger = MemoryLake(), Ledger("sqlite://")
    for checkpoint in config.replayable:
        replay(config, checkpoint, often, ledger, history=LOGS)
        assert fold_differences(often) == [], checkpoint.note
    once = MemoryLake()
    replay(config, config.checkpoints[-1], once, history=LOGS)
    assert fold_differences(once) == []
    assert sorted(map(str, often.tables)) == sorted(map(str, once.tables))


# --- a feed of one table ----------------------------------------------------------------------------------------------


@pytest.fixture
def orders(tmp_path: Path) -> LittleFeed:
    feed = LittleFeed(tmp_path)
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + 10, 1, "a"), ("I", FIRST + 11, 2, "b"), ("U", FIRST + 12, 1, "c")])
    feed.publish(FIRST + 20)
    return feed


def applied(feed: LittleFeed, lake: MemoryLake, **settings: Any) -> Outcome:
    return feed.pipeline_into(lake, **settings).apply("test")


def changes(lake: MemoryLake, name: str = "orders__log") -> list[tuple[Any, ...]]:
    rows = lake.read(TableId("shop", name)).to_pylist()
    return [(row["_change_type"], row["_cdc_position"] - FIRST, row["id"], row["v"]) for row in rows]


def test_a_log_has_every_change_once_with_its_place(orders: LittleFeed) -> None:
    lake = MemoryLake()
    applied(orders, lake, history={"shop.*": "log"})
    assert changes(lake) == [("INSERT", 10, 1, "a"), ("INSERT", 11, 2, "b"), ("UPDATE_AFTER", 12, 1, "c")]
    first = lake.read(TableId("shop", "orders__log")).to_pylist()[0]
    assert first["_cdc_place"] == f"shop/orders/{FIRST}/CDC00000000000000000001.csv:1"
    assert (first["_cdc_commit_ts"], first["_cdc_absent"]) == (FIRST + 10, None)
    assert first["_cdc_commit_time"].timestamp() == pytest.approx((FIRST >> 18) / 1000)


def test_a_plan_and_the_progress_of_a_run_name_the_tables_that_are_written(
    orders: LittleFeed, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, given = MemoryLake(), orders.settings(history={"shop.*": ["log", "scd2"]})
    names = ["shop.orders", "shop.orders__log", "shop.orders__scd2"]
    with watching(quiet=False) as watch:
        pipeline = Pipeline(given, given.open_source(), lake, Ledger("sqlite://"), watch)
        assert [step.table for step in describe_plan(pipeline.planner.plan()[1])] == 2 * names
        pipeline.apply("test")
    _, *steps = capsys.readouterr().err.splitlines()  # it begins by reading the changefeed
    assert [line.split()[1].rstrip(":") for line in steps] == 2 * names


def test_one_reading_serves_all_tables_at_one_label(orders: LittleFeed) -> None:
    lake = MemoryLake()
    applied(orders, lake, history={"shop.*": "log"})
    assert lake.shared == 1


def test_copies_of_a_file_add_nothing_to_a_log(orders: LittleFeed) -> None:
    lake = MemoryLake()
    orders.rows("shop.orders", FIRST, [("I", FIRST + 11, 2, "b"), ("U", FIRST + 12, 1, "c"), ("D", FIRST + 13, 2, "b")])
    applied(orders, lake, history={"shop.*": "log"})
    orders.rows("shop.orders", FIRST, [("D", FIRST + 13, 2, "b"), ("I", FIRST + 31, 3, "d")])
    orders.publish(FIRST + 40)
    applied(orders, lake, history={"shop.*": "log"})
    assert [row[:2] for row in changes(lake)] == [
        *[("INSERT", 10), ("INSERT", 11), ("UPDATE_AFTER", 12), ("DELETE", 13), ("INSERT", 31)]
    ]


@pytest.mark.parametrize("stops", ["", "log"])
def test_a_run_that_dies_between_two_kinds_leaves_each_at_its_label(orders: LittleFeed, stops: str) -> None:
    class Killed(MemoryLake):
        def commit(self, step: ApplyRows, staged: StagedWindow) -> StepResult:
            if step.life.kind == stops:
                raise KeyboardInterrupt
            return super().commit(step, staged)

    lake = Killed()
    with pytest.raises(KeyboardInterrupt):
        applied(orders, lake, history={"shop.*": "log"})
    alone = MemoryLake()
    alone.tables = lake.tables
    applied(orders, alone, history={"shop.*": "log"})
    assert fold_differences(alone) == []
    assert len(changes(alone)) == 3


def test_the_most_exact_pattern_counts_and_two_equally_exact_ones_are_refused(orders: LittleFeed) -> None:
    lake = MemoryLake()
    orders.create("shop.items", FIRST + 5)
    applied(orders, lake, history={"shop.*": "log", "shop.items": ["log"], "*.nothing": "log"})
    assert {str(life) for life in lake.tables if life.kind} == {
        f"shop.orders@{FIRST}.log",
        f"shop.items@{FIRST + 5}.log",
    }
    with pytest.raises(BadSettings, match="equally exact"):
        applied(orders, lake, history={"shop.order?": "log", "shop.?rders": "log"})


def test_a_pattern_that_fits_no_table_and_a_kind_that_is_switched_off_are_told(orders: LittleFeed) -> None:
    lake = MemoryLake()
    findings = applied(orders, lake, history={"shop.*": "log", "shop.nothing": "log"}).findings
    assert [finding.detail for finding in findings if finding.rule == "unmatched"] == ["history: shop.nothing"]
    orders.rows("shop.orders", FIRST, [("I", FIRST + 31, 3, "d")])
    orders.publish(FIRST + 40)
    findings = applied(orders, lake).findings
    assert [(finding.rule, finding.table) for finding in findings if finding.rule.startswith("history")] == [
        ("history-off", "shop.orders__log")
    ]
    assert len(changes(lake)) == 3
    applied(orders, lake, history={"shop.*": "log"})
    assert len(changes(lake)) == 4


def test_without_a_mirror_the_log_stands_alone(orders: LittleFeed) -> None:
    lake = MemoryLake()
    outcome = applied(orders, lake, history={"shop.orders": {"kinds": ["log"], "mirror": False}})
    assert [str(table.name) for table in outcome.tables] == ["shop.orders__log"]
    assert len(changes(lake)) == 3


def test_a_source_table_keeps_the_name_that_a_history_table_would_have(orders: LittleFeed) -> None:
    lake = MemoryLake()
    orders.create("shop.orders__log", FIRST + 30)
    orders.publish(FIRST + 20)
    applied(orders, lake, history={"shop.orders": "log"})
    orders.publish(FIRST + 40)
    outcome = applied(orders, lake, history={"shop.orders": "log"})
    held = {str(table.life): table.reason for table in outcome.tables if table.state == "held"}
    assert list(held) == [f"shop.orders@{FIRST}.log"]
    assert "keeps its name" in held[f"shop.orders@{FIRST}.log"]
    assert "v" in lake.read(TableId("shop", "orders__log")).column_names
    assert len(changes(lake, f"orders__log_{FIRST}")) == 3
    suffix = {"kinds": ["log"], "suffix": {"log": "__changes"}}
    orders.rows("shop.orders", FIRST, [("I", FIRST + 41, 3, "d")])
    orders.publish(FIRST + 50)
    outcome = applied(orders, lake, history={"shop.orders": suffix})
    assert not any(table.state == "held" for table in outcome.tables)
    assert len(changes(lake, "orders__changes")) == 4


@pytest.mark.parametrize("kind", ["log", "scd2"])
@pytest.mark.parametrize("before", [None, FIRST + 20], ids=["in one run", "in a later run"])
@pytest.mark.parametrize("at", [FIRST + 1, FIRST + 30], ids=["beside its CREATE", "later"])
def test_what_is_applied_with_the_loss_of_its_name_is_in_a_history_table(
    kind: str, before: int | None, at: int, tmp_path: Path
) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    history = {"shop.orders": {"kinds": [kind], "suffix": {kind: "__h"}}}
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + 2, 1, "a")])
    feed.publish(FIRST + 10)
    if before is not None:
        later(feed, lake, ledger, history=history)
    feed.rows("shop.orders", FIRST, [("I", FIRST + 25, 2, "b")])
    feed.create("shop.orders__h", at if before is None else FIRST + 30)
    feed.rows("shop.orders", FIRST, [("I", FIRST + 35, 3, "c")])
    feed.publish(FIRST + 40)
    outcome = later(feed, lake, ledger, history=history)
    assert [str(table.life) for table in outcome.tables if table.state == "held"] == [f"shop.orders@{FIRST}.{kind}"]
    assert TableId("shop", "orders__h") in {state.name for life, state in lake.applied().items() if not life.kind}
    history["shop.orders"]["suffix"] = {kind: "__of"}
    outcome = later(feed, lake, ledger, history=history)
    assert not any(table.state == "held" for table in outcome.tables)
    assert sorted(lake.read(TableId("shop", "orders__of")).column("id").to_pylist()) == [1, 2, 3]


def test_a_history_table_that_never_had_its_name_is_nowhere_else(orders: LittleFeed) -> None:
    orders.create("shop.orders__log", FIRST - 10)
    (held,) = (table for table in applied(orders, MemoryLake(), history={"shop.orders": "log"}).tables if table.reason)
    assert "keeps its name. Give history tables of this kind another end" in held.reason


def test_a_kind_that_is_switched_on_late_has_the_names_of_now(orders: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    logs = [{"shop.orders": "log"}, {"shop.bills": "log"}, {"shop.*": "log"}]
    orders.ddl("shop.bills", FIRST + 30, "RENAME TABLE `shop`.`orders` TO `shop`.`bills`", 14)
    orders.create("shop.orders", FIRST + 40)
    orders.rows("shop.orders", FIRST + 40, [("I", FIRST + 41, 9, "z")])
    orders.publish(FIRST + 50)
    later(orders, lake, ledger, history=logs[0])
    for name, old, new in (("aside", "bills", "aside"), ("bills", "orders", "bills"), ("orders", "aside", "orders")):
        query = f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`"
        orders.ddl(f"shop.{name}", FIRST + 60, query, 14)
    orders.publish(FIRST + 70)
    later(orders, lake, ledger, history={})
    for rules in logs[::-1]:
        outcome = later(orders, lake, ledger, history=rules)
        assert [table.reason for table in outcome.tables if table.reason] == []
    assert changes(lake, "bills__log") == [("INSERT", 41, 9, "z")]
    assert len(changes(lake)) == 3


def test_a_name_that_a_table_of_a_switched_off_kind_has_goes_to_the_one_that_is_to_have_it(orders: LittleFeed) -> None:
    lake = MemoryLake()
    applied(orders, lake, history={"shop.*": "log"})
    orders.ddl("shop.bills", FIRST + 30, "RENAME TABLE `shop`.`orders` TO `shop`.`bills`", 14)
    orders.create("shop.orders", FIRST + 40)
    orders.publish(FIRST + 50)
    for rule in ("shop.orders", "shop.*"):
        outcome = applied(orders, lake, history={rule: "log"})
        assert [table.reason for table in outcome.tables if table.reason] == []
        names = {table.name.table for life, table in lake.tables.items() if life.kind and table.name is not None}
        assert names == {"orders__log", f"orders__log_{FIRST}" if rule == "shop.orders" else "bills__log"}


@pytest.mark.parametrize("name", ["_cdc_commit_ts", "_CDC_Line", "_cdc_mine"])
def test_a_column_that_is_called_like_ours_holds_its_table_alone(orders: LittleFeed, name: str) -> None:
    fields = ("ColumnName", "ColumnType", "ColumnPrecision", "ColumnIsPk")
    made = [
        dict(zip(fields, definition, strict=True))
        for definition in (("id", "INT", "11", "true"), (name, "VARCHAR", "40", "false"))
    ]
    query = f"CREATE TABLE `odd` (`id` INT PRIMARY KEY,`{name}` VARCHAR(40))"
    write_schema(orders.bucket, document("shop", "odd", FIRST, Query=query, Type=3, TableColumns=made))
    orders.rows("shop.odd", FIRST, [("I", FIRST + 1, 1, "text")])
    outcome = applied(orders, MemoryLake(), history={"shop.*": ["log", "scd2"]})
    held = {str(table.name): table.reason for table in outcome.tables if table.reason}
    assert list(held) == ["shop.odd", "shop.odd__log", "shop.odd__scd2"]
    assert all(f'"{name}": a column\'s name that begins with _cdc_ is reserved' in reason for reason in held.values())


def test_rows_that_a_ddl_removes_are_deleted_in_the_log(orders: LittleFeed) -> None:
    lake = MemoryLake()
    orders.ddl("shop.orders", FIRST + 30, "TRUNCATE TABLE `orders`", 11)
    orders.publish(FIRST + 40)
    applied(orders, lake, history={"shop.*": "log"})
    assert sorted(changes(lake)[3:]) == [("DELETE", 30, 1, "c"), ("DELETE", 30, 2, "b")]


@pytest.mark.parametrize(("query", "kind"), [("TRUNCATE TABLE `orders`", 11), ("DROP TABLE `orders`", 4)])
def test_without_a_mirror_a_ddl_that_removes_all_rows_is_a_row_of_its_own(
    orders: LittleFeed, query: str, kind: int
) -> None:
    lake = MemoryLake()
    orders.ddl("shop.orders", FIRST + 30, query, kind)
    orders.publish(FIRST + 40)
    applied(orders, lake, history={"shop.*": {"kinds": ["log"], "mirror": False}})
    ((_, log),) = lake.tables.items()
    rows = log.rows.slice(3).to_pylist()
    assert [(row["_change_type"], row["_cdc_position"], row["id"]) for row in rows] == [("TRUNCATE", FIRST + 30, None)]


def test_a_dropped_history_table_is_shown_by_its_own_name(orders: LittleFeed) -> None:
    lake = MemoryLake()
    orders.ddl("shop.orders", FIRST + 35, "DROP TABLE `orders`", 4)
    orders.publish(FIRST + 40)
    outcome = applied(orders, lake, history={"shop.*": "log"})
    assert [str(table.name) for table in outcome.tables] == ["shop.orders", "shop.orders__log"]


# --- switched on later ------------------------------------------------------------------------------------------------


def later(orders: LittleFeed, lake: MemoryLake, ledger: Ledger, **settings: Any) -> Outcome:
    given = orders.settings(**settings)
    return Pipeline(given, given.open_source(), lake, ledger).apply("test")


def test_a_kind_that_is_switched_on_later_is_built_from_the_whole_feed(orders: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    later(orders, lake, ledger)
    orders.rows("shop.orders", FIRST, [("I", FIRST + 31, 3, "d")])
    orders.publish(FIRST + 40)
    outcome = later(orders, lake, ledger, history={"shop.*": "log"})
    assert len(changes(lake)) == 4
    assert fold_differences(lake) == []
    assert not any(finding.rule == "history-since" for finding in outcome.findings)


def test_where_the_input_is_gone_a_kind_begins_at_the_present_label_and_says_so(orders: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    later(orders, lake, ledger)
    (orders.bucket / "shop" / "orders" / str(FIRST) / "CDC00000000000000000001.csv").unlink()
    orders.rows("shop.orders", FIRST, [("I", FIRST + 31, 3, "d")])
    orders.publish(FIRST + 40)
    outcome = later(orders, lake, ledger, history={"shop.*": "log"})
    assert [row[:2] for row in changes(lake)] == [("INSERT", 31)]
    history_findings = [
        (finding.table, finding.detail) for finding in outcome.findings if finding.rule == "history-since"
    ]
    assert history_findings == [("shop.orders__log", f"from {FIRST + 20}")]


def test_snapshots_that_a_log_needs_for_a_ddl_are_kept_while_it_is_behind(orders: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    later(orders, lake, ledger, history={"shop.*": "log"})
    orders.ddl("shop.orders", FIRST + 30, "TRUNCATE TABLE `orders`", 11)
    orders.publish(FIRST + 40)
    given = orders.settings(history={"shop.*": "log"})
    pipeline = Pipeline(given, given.open_source(), lake, ledger)
    pipeline.apply("test", lambda plan: [step for step in plan.steps if not step.life.kind])
    _, planned = pipeline.planner.plan()
    mirror = next(life for life in lake.tables if not life.kind)
    assert open_exchanges(planned, planned.applied) == {mirror: frozenset({FIRST + 30})}
    pipeline.apply("test")
    assert [row[0] for row in changes(lake)[3:]] == ["DELETE", "DELETE"]


# --- rules by name, and tables that get other names -------------------------------------------------------------------


class Named(LittleFeed):
    """Two tables under rules by their names, in a lake in memory."""

    def __init__(self, directory: Path, history: dict[str, Any]) -> None:
        super().__init__(directory)
        self.lake, self.ledger, self.history = MemoryLake(), Ledger("sqlite://"), history
        for name in ("s.a", "s.b"):
            self.create(name)
            self.rows(name, FIRST, [("I", FIRST + 1, 1, name)])
        self.apply(FIRST + 10)

    def apply(self, through: int) -> list[tuple[str, str]]:
        self.publish(through)
        settings = self.settings(history=self.history)
        self.pipeline = Pipeline(settings, settings.open_source(), self.lake, self.ledger)
        return [(str(table.name), table.reason) for table in self.pipeline.apply("test").tables if table.reason]

    def rename(self, at: int, *pairs: tuple[str, str]) -> None:
        for number, (old, new) in enumerate(pairs):
            query = f"RENAME TABLE `s`.`{old}` TO `s`.`{new}`"
            self.ddl(f"s.{new}", FIRST + at + number, query, 14)

    @property
    def tables(self) -> dict[str, list[str]]:
        """The values that each table of the lake has had, by its name."""
        values_by_table = {str(table.name): table.rows.column("v").to_pylist() for table in self.lake.tables.values()}
        assert len(values_by_table) == len(self.lake.tables), "two tables have one name"
        return values_by_table


SWAP = ("a", "t"), ("b", "a"), ("t", "b")


@pytest.mark.parametrize("at_once", [False, True], ids=["step by step", "at once"])
def test_tables_that_exchange_names_exchange_their_rules(tmp_path: Path, at_once: bool) -> None:
    feed = Named(tmp_path, {"s.a": "scd2", "s.b": "log"})
    for name in ("s.a", "s.b"):
        feed.rows(name, FIRST, [("U", FIRST + 15, 1, f"{name} before")])
    feed.rename(20, *SWAP)
    assert at_once or feed.apply(FIRST + 30) == []
    feed.rows("s.a", FIRST + 21, [("U", FIRST + 40, 1, "new a")])
    feed.rows("s.b", FIRST + 22, [("U", FIRST + 40, 1, "new b")])
    assert feed.apply(FIRST + 50) == []
    assert feed.tables == {
        "s.a": ["new a"],
        "s.b": ["new b"],
        "s.a__scd2": ["s.b before", "new a"],
        "s.b__log": ["new b"],
        f"s.a__scd2_{FIRST}": ["s.a", "s.a before"],
        f"s.b__log_{FIRST}": ["s.b", "s.b before"],
    }
    made = make_cut(feed.pipeline, "report")
    assert len(made.taken) == 4
    feed.rename(60, *SWAP)
    assert feed.apply(FIRST + 70) == []
    assert set(feed.tables) >= {"s.a", "s.b", "s.a__scd2", "s.b__log"}
    by_life = {str(life): str(table.name) for life, table in feed.lake.tables.items()}
    assert (by_life[f"s.a@{FIRST}.scd2"], by_life[f"s.b@{FIRST}.log"]) == ("s.a__scd2", "s.b__log")


@pytest.mark.parametrize("name_is_taken", [False, True])
def test_a_cut_is_made_in_the_run_that_ends_a_history_table(tmp_path: Path, name_is_taken: bool) -> None:
    feed = Named(tmp_path, {"s.a": ["log", "scd2"]})
    feed.rename(20, ("a", "c"))
    if name_is_taken:
        feed.rename(21, ("b", "a"))
    feed.publish(FIRST + 22)
    made = make_cut(feed.pipeline, "report")
    assert {str(table.name) for table in made.taken} == {
        "s.c", *(["s.a", "s.a__log", "s.a__scd2"] if name_is_taken else ["s.b"])
    }  # fmt: skip
    assert make_cut(feed.pipeline, "next").taken


@pytest.mark.parametrize("how", ["created", "renamed", "recovered"])
@pytest.mark.parametrize("at_once", [False, True], ids=["step by step", "at once"])
def test_a_table_that_leaves_its_rule_gives_the_name_of_its_history_to_the_next_one(
    tmp_path: Path, how: str, at_once: bool
) -> None:
    feed = Named(tmp_path, {"s.a": ["log", "scd2"]})
    if how == "recovered":
        feed.ddl("s.a", FIRST + 12, "DROP TABLE `a`", 4, columns=False)
        feed.create("s.a", FIRST + 14)
        feed.rows("s.a", FIRST + 14, [("I", FIRST + 15, 2, "second")])
        assert feed.apply(FIRST + 18) == []
    feed.rename(20, ("a", "c"))
    assert at_once or feed.apply(FIRST + 25) == []
    born = FIRST + 30
    if how == "created":
        feed.create("s.a", born)
    elif how == "renamed":
        feed.rename(30, ("b", "a"))
    else:
        feed.ddl("s.a", born, "RECOVER TABLE `a`", 25)
    feed.rows("s.a", born, [("I", FIRST + 31, 7, "new")])
    feed.rows("s.c", FIRST + 20, [("I", FIRST + 32, 8, "of c")])
    assert feed.apply(FIRST + 40) == []
    left = FIRST + 14 if how == "recovered" else FIRST
    before = {"created": set(), "renamed": {"s.b"}, "recovered": {"s.a"}}[how]
    for kind in ("log", "scd2"):
        values = {"new"} if (how, kind) == ("renamed", "log") else {"new", *before}
        assert feed.tables[f"s.a__{kind}_{left}"] == ["second" if how == "recovered" else "s.a"]
        assert set(feed.tables[f"s.a__{kind}"]) == values
    assert f"s.c__{kind}" not in feed.tables
    assert len(make_cut(feed.pipeline, "report").taken) == (4 if how == "renamed" else 5)


def test_a_history_table_whose_name_a_table_of_the_source_has_says_so_and_what_helps(tmp_path: Path) -> None:
    feed = Named(tmp_path, {})
    feed.create("s.a__log", FIRST + 12)
    assert feed.apply(FIRST + 20) == []
    feed.history = {"s.a": "log"}
    ((name, reason),) = feed.apply(FIRST + 21)
    assert (name, "is called s.a__log, as this one would be: it keeps its name" in reason) == ("s.a__log", True)
    assert "suffix: {log: __log_of}" in reason
    feed.history = {"s.a": {"kinds": ["log"], "suffix": {"log": "__log_of"}}}
    assert feed.apply(FIRST + 22) == []
    assert feed.tables["s.a__log_of"] == ["s.a"]


@pytest.mark.parametrize("kind", ["log", "scd2"])
def test_a_kind_is_built_in_the_run_that_recovers_its_table(tmp_path: Path, kind: str) -> None:
    feed = Named(tmp_path, {})
    feed.ddl("s.a", FIRST + 12, "DROP TABLE `a`", 4, columns=False)
    assert feed.apply(FIRST + 15) == []
    feed.history = {"s.a": kind}
    assert feed.apply(FIRST + 16) == []
    assert f"s.a__{kind}" not in feed.tables
    feed.ddl("s.a", FIRST + 20, "RECOVER TABLE `a`", 25)
    assert feed.apply(FIRST + 30) == []
    assert feed.tables[f"s.a__{kind}"] == ["s.a"] * (3 if kind == "log" else 2)
