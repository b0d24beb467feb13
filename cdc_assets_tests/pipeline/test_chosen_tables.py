"""The setting tables: which tables of a feed are applied, and what becomes of those that no longer are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import BadSettings, RebuildRefused
from cdc_assets.features.cuts.operations import make_cut
from cdc_assets.features.forgetting.operations import forget
from cdc_assets.features.quarantine.operations import replay
from cdc_assets.ledger import Ledger
from cdc_assets.model.kinds import NOT_ASKED_FOR
from cdc_assets.model.progress import State
from cdc_assets.model.schema import TableId
from cdc_assets.operations.explain import explain
from cdc_assets.operations.extract import extract
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.sections import TableSettings
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.generated import Generated, each_history, faults, feeds, how_many
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryForgetting, MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds

RENAME = 14
EXCLUDED = {"exclude": ["shop.orders"]}


class Applied:
    """A feed of orders and items, and the lake into which it is applied with one ledger."""

    def __init__(self, directory: Path) -> None:
        self.feed = LittleFeed(directory)
        self.lake, self.ledger = MemoryLake(), Ledger("sqlite://")
        for number, name in enumerate(("shop.orders", "shop.items")):
            self.feed.create(name, FIRST + number)
            self.feed.rows(name, FIRST + number, [("I", FIRST + 10, 1, "a"), ("I", FIRST + 11, 2, "b")])
        self.feed.publish(FIRST + 20)

    def apply(self, tables: Any = None, **settings: Any) -> Outcome:
        return self.feed.pipeline_into(
            self.lake, self.ledger, **{} if tables is None else {"tables": tables}, **settings
        ).apply("test")

    def go_on(self) -> None:
        """Change and add a row of each table."""
        for number, name in enumerate(("shop.orders", "shop.items")):
            self.feed.rows(name, FIRST + number, [("U", FIRST + 30, 1, "A"), ("I", FIRST + 31, 3, "c")])
        self.feed.publish(FIRST + 40)

    def rows(self, name: str) -> dict[int, str]:
        return {row["id"]: row["v"] for row in self.lake.read(TableId("shop", name)).to_pylist()}

    def states(self) -> dict[str, State]:
        return {str(state.name): state.state for state in self.ledger.states()["little"]}


BEFORE, NOW = {1: "a", 2: "b"}, {1: "A", 2: "b", 3: "c"}


@pytest.fixture
def applied(tmp_path: Path) -> Applied:
    return Applied(tmp_path)


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        ({}, ["items", "orders"]),
        (EXCLUDED, ["items"]),
        ({"include": ["shop.o*"]}, ["orders"]),
        ({"include": ["SHOP.*"], "exclude": ["*.ORDERS"]}, ["items"]),
        ({"include": ["shop.orders", "shop.items"], "exclude": ["shop.item?"]}, ["orders"]),
        ({"exclude": ["shop.order[s]", "shop.[!x]*"]}, ["items", "orders"]),
    ],
)
def test_the_patterns_say_which_tables_are_applied(applied: Applied, tables: Any, names: list[str]) -> None:
    outcome = applied.apply(tables, history={"shop.*": "log"})
    expected = sorted(name for table_name in names for name in (table_name, f"{table_name}__log"))
    assert sorted(state.name.table for state in applied.lake.tables.values() if state.name) == expected
    assert outcome.complete


def test_an_excluded_table_stays_as_it_is_and_goes_on_when_it_is_included_again(applied: Applied) -> None:
    applied.apply()
    applied.go_on()
    outcome = applied.apply(EXCLUDED)
    assert outcome.complete
    assert (applied.rows("orders"), applied.rows("items")) == (BEFORE, NOW)
    assert [finding.table for finding in outcome.findings if finding.rule == "history-off"] == ["shop.orders"]
    assert applied.states() == {"shop.orders": State.FROZEN, "shop.items": State.APPLIED}
    assert applied.apply().complete
    assert applied.rows("orders") == NOW
    assert applied.states()["shop.orders"] is State.APPLIED


def test_a_table_that_is_held_holds_nothing_once_it_is_excluded(applied: Applied) -> None:
    applied.apply()
    applied.feed.rows("shop.orders", FIRST, [("I", FIRST + 30, "no number", "c")])
    applied.feed.publish(FIRST + 40)
    assert applied.apply().complete is False
    assert applied.states()["shop.orders"] is State.HELD
    assert applied.apply(EXCLUDED).complete
    assert applied.states()["shop.orders"] is State.FROZEN


def test_a_rename_to_an_excluded_name_freezes_the_table_as_it_was_before(applied: Applied) -> None:
    applied.apply()
    applied.go_on()
    applied.feed.ddl("shop.hidden", FIRST + 50, "RENAME TABLE `shop`.`orders` TO `shop`.`hidden`", RENAME)
    applied.feed.rows("shop.hidden", FIRST + 50, [("I", FIRST + 60, 4, "d")])
    applied.feed.publish(FIRST + 70)
    assert applied.apply({"exclude": ["shop.hidden"]}).complete
    assert applied.rows("orders") == NOW
    applied.apply({"exclude": ["shop.hidden"]})
    assert applied.states()["shop.orders"] is State.FROZEN


@pytest.mark.parametrize("seen", [False, True])
def test_a_rename_from_an_excluded_name_brings_the_rows_of_before_from_the_feed(applied: Applied, seen: bool) -> None:
    tables = {"exclude": ["shop.orders"]}
    if seen:
        applied.apply(tables)
    applied.go_on()
    applied.feed.ddl("shop.shown", FIRST + 50, "RENAME TABLE `shop`.`orders` TO `shop`.`shown`", RENAME)
    applied.feed.rows("shop.shown", FIRST + 50, [("I", FIRST + 60, 4, "d")])
    applied.feed.publish(FIRST + 70)
    assert applied.apply(tables).complete
    assert applied.rows("shown") == {**NOW, 4: "d"}


def test_the_history_of_an_excluded_table_is_frozen_with_it(applied: Applied) -> None:
    history = {"shop.*": "log"}
    applied.apply(history=history)
    applied.go_on()
    outcome = applied.apply(EXCLUDED, history=history)
    frozen = [name for name, state in applied.states().items() if state is State.FROZEN]
    assert sorted(frozen) == ["shop.orders", "shop.orders__log"]
    assert sorted(note.table for note in outcome.findings if note.rule == "history-off") == sorted(frozen)


@pytest.mark.parametrize("history", [{}, {"shop.*": "log"}], ids=["mirrors", "logs"])
@pytest.mark.parametrize("excluded", ["shop.orders", "shop.old", "*.o*"])
@pytest.mark.parametrize("back", [True, False])
def test_an_excluded_table_whose_name_another_one_has_by_now_comes_back(
    applied: Applied, history: Any, excluded: str, back: bool
) -> None:
    feed = applied.feed
    applied.apply(history=history)
    if excluded != "shop.old":
        assert applied.apply({"exclude": [excluded]}, history=history).complete
    feed.ddl("shop.old", FIRST + 30, "RENAME TABLE `shop`.`orders` TO `shop`.`old`", RENAME)
    feed.ddl("shop.orders", FIRST + 31, "RENAME TABLE `shop`.`items` TO `shop`.`orders`", RENAME)
    feed.rows("shop.old", FIRST + 30, [("I", FIRST + 32, 3, "old")])
    feed.rows("shop.orders", FIRST + 31, [("I", FIRST + 33, 3, "new")])
    feed.publish(FIRST + 40)
    for tables in ({"exclude": [excluded]}, {"exclude": ["shop.old"]}, {"exclude": ["shop.old"]}):
        assert applied.apply(tables, history=history).complete
    if back:
        feed.ddl("shop.items", FIRST + 50, "RENAME TABLE `shop`.`orders` TO `shop`.`items`", RENAME)
        feed.ddl("shop.orders", FIRST + 51, "RENAME TABLE `shop`.`old` TO `shop`.`orders`", RENAME)
        feed.publish(FIRST + 60)
    assert applied.apply(history=history).complete
    own, other = ("orders", "items") if back else ("old", "orders")
    assert (applied.rows(own), applied.rows(other)) == ({**BEFORE, 3: "old"}, {**BEFORE, 3: "new"})
    assert set(applied.states().values()) == {State.APPLIED}
    names = [f"shop.{name}{suffix}" for name in (own, other) for suffix in ("", "__log")[: 1 + len(history)]]
    assert sorted(applied.states()) == sorted(names)


@pytest.mark.parametrize("history", [{}, {"shop.*": "log"}], ids=["mirrors", "logs"])
@pytest.mark.parametrize("dropped", [False, True])
def test_a_table_that_is_included_late_does_not_want_the_names_that_others_have_by_now(
    applied: Applied, history: Any, dropped: bool
) -> None:
    feed = applied.feed
    for at, old, new in ((25, "orders", "free"), (26, "items", "orders"), (27, "free", "items"), (28, "items", "old")):
        feed.ddl(f"shop.{new}", FIRST + at, f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`", RENAME)
    feed.create("shop.items", FIRST + 29)
    feed.publish(FIRST + 30)
    assert applied.apply({"exclude": ["shop.old"]}, history=history).complete
    if dropped:
        feed.ddl("shop.old", FIRST + 35, "DROP TABLE `shop`.`old`", 4, columns=False)
    feed.publish(FIRST + 40)
    assert applied.apply(history=history).complete
    names = {str(state.name) for life, state in applied.lake.tables.items() if state.name and not life.kind}
    assert names == {"shop.orders", "shop.items", *(() if dropped else ("shop.old",))}
    assert (applied.rows("orders"), applied.rows("items")) == (BEFORE, {})
    assert dropped or applied.rows("old") == BEFORE


def test_a_table_gives_the_name_up_that_it_had_last_before_a_rename_to_an_excluded_name(applied: Applied) -> None:
    feed = applied.feed
    applied.apply()
    pairs = [("items", "i"), ("orders", "o"), ("o", "i2"), ("i2", "items"), ("i", "orders")]
    for number, (old, new) in enumerate([*pairs, ("items", "hidden"), ("orders", "items")]):
        feed.ddl(f"shop.{new}", FIRST + 30 + number, f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`", RENAME)
    feed.publish(FIRST + 40)
    assert applied.apply({"exclude": ["shop.hidden"]}).complete
    names = sorted(str(state.name) for state in applied.lake.tables.values())
    assert names == ["shop.items", f"shop.items_{FIRST}"]


def test_rows_of_before_that_are_gone_from_the_feed_are_told_when_a_table_comes_back(applied: Applied) -> None:
    applied.apply(EXCLUDED)
    applied.lake.may_lack_rows = True
    for file in sorted((applied.feed.bucket / "shop" / "orders").rglob("CDC*")):
        file.unlink()
    applied.go_on()
    outcome = applied.apply()
    (orders,) = (table for table in outcome.tables if table.name.table == "orders")
    assert outcome.complete is False
    assert orders.state is State.HELD or orders.incomplete


def test_patterns_that_fit_no_table_are_told(applied: Applied) -> None:
    findings = applied.apply({"include": ["shop.*", "shop.nothing"], "exclude": ["other.*"]}).findings
    assert sorted(finding.detail for finding in findings if finding.rule == "unmatched") == [
        "tables.exclude: other.*",
        "tables.include: shop.nothing",
    ]


@pytest.mark.parametrize("tables", [{"exclude": ["orders"]}, {"only": ["shop.*"]}, {"include": "shop.*"}])
def test_settings_of_another_shape_are_refused(applied: Applied, tables: Any) -> None:
    with pytest.raises(BadSettings, match="tables"):
        applied.feed.settings(tables=tables)


@pytest.mark.parametrize("later", [False, True], ids=["its name is free", "it is renamed again"])
def test_a_table_that_gave_up_its_name_while_it_was_excluded_goes_on_under_that_of_now(
    applied: Applied, later: bool
) -> None:
    applied.apply()
    applied.go_on()
    names = (("shop.t", "shop.orders"), ("shop.orders", "shop.items"), ("shop.items", "shop.t"))
    for number, (to, name) in enumerate(names):
        applied.feed.ddl(to, FIRST + 50 + number, f"RENAME TABLE {name} TO {to}", RENAME)
    applied.feed.rows("shop.items", FIRST + 52, [("I", FIRST + 60, 4, "d")])
    applied.feed.rows("shop.orders", FIRST + 51, [("I", FIRST + 60, 5, "e")])
    applied.feed.publish(FIRST + 70)
    assert applied.apply({"exclude": ["shop.items"]}).complete
    assert applied.rows("orders") == {**NOW, 5: "e"}
    name = "items"
    if later:
        name = "bills"
        applied.feed.ddl("shop.bills", FIRST + 75, "RENAME TABLE shop.items TO shop.bills", RENAME)
        applied.feed.create("shop.items", FIRST + 76)
    applied.feed.publish(FIRST + 80)
    assert applied.apply().complete
    assert applied.rows(name) == {**NOW, 4: "d"}
    assert applied.states().keys() == {"shop.orders", "shop.items", f"shop.{name}"}


def test_history_tables_of_an_excluded_table_are_frozen_with_it(applied: Applied) -> None:
    log: dict[str, Any] = {"history": {"shop.*": "log"}}
    applied.apply(None, **log)
    applied.go_on()
    applied.apply(EXCLUDED, **log)
    states = applied.states()
    assert {name for name, state in states.items() if state is State.FROZEN} == {"shop.orders", "shop.orders__log"}
    given = applied.feed.settings(tables=EXCLUDED, **log)
    pipeline = Pipeline(given, given.open_source(), applied.lake, applied.ledger)
    made = make_cut(pipeline, whole=True)
    reasons = {table.why_not for table in made.tables if table.name.table.startswith("orders")}
    assert len(reasons) == 1
    assert "(history, tables)" in reasons.pop()
    for name in ("shop.orders", "shop.orders__log"):
        with pytest.raises(RebuildRefused, match="settings history and tables do not ask for it"):
            rebuild(pipeline, MemoryRebuilds(applied.lake), [name], "run")
    assert applied.apply(None, **log).complete
    assert applied.lake.read(TableId("shop", "orders__log")).num_rows == 4


def test_an_excluded_table_does_not_keep_a_name_from_a_history_table(applied: Applied) -> None:
    applied.feed.create("shop.orders__log", FIRST + 5)
    applied.feed.publish(FIRST + 25)
    log = {"history": {"shop.orders": "log"}}
    assert applied.apply({"exclude": ["shop.orders__log"]}, **log).complete
    assert applied.lake.read(TableId("shop", "orders__log")).num_rows == 2


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("history", [{}, {"shop.*": ["log"]}])
def test_a_table_comes_late_under_its_name_of_now_where_another_one_has_that_of_before(
    applied: Applied, dropped: bool, history: Any
) -> None:
    feed = applied.feed
    feed.ddl("shop.bills", FIRST + 25, "RENAME TABLE `shop`.`orders` TO `shop`.`bills`", RENAME)
    feed.create("shop.orders", FIRST + 26)
    feed.rows("shop.orders", FIRST + 26, [("I", FIRST + 30, 7, "new")])
    if dropped:
        feed.ddl("shop.bills", FIRST + 35, "DROP TABLE `shop`.`bills`", 4, columns=False)
        feed.create("shop.bills", FIRST + 36)
    feed.publish(FIRST + 40)
    assert applied.apply({"exclude": ["shop.bills"]}, history=history).complete
    feed.publish(FIRST + 50)
    assert applied.apply(history=history).complete
    assert (applied.rows("orders"), applied.rows("bills")) == ({7: "new"}, {} if dropped else BEFORE)


def test_what_is_asked_of_a_frozen_table_is_refused_because_the_settings_leave_it_out(applied: Applied) -> None:
    applied.apply(quarantine=True)
    applied.feed.rows("shop.orders", FIRST, [("I", FIRST + 30, "no number", "c")])
    applied.feed.publish(FIRST + 40)
    applied.apply(quarantine=True)
    settings = applied.feed.settings(tables=EXCLUDED, quarantine=True)
    pipeline = Pipeline(settings, settings.open_source(), applied.lake, applied.ledger)
    (result,) = replay(pipeline, "shop.orders")
    assert (result.waiting, NOT_ASKED_FOR in result.reason) == (1, True)
    with pytest.raises(RebuildRefused, match=NOT_ASKED_FOR):
        rebuild(pipeline, MemoryRebuilds(applied.lake), ["shop.orders"])


def test_patterns_of_a_layout_that_fit_an_excluded_table_are_not_called_wrong(applied: Applied) -> None:
    notes = applied.apply(EXCLUDED, partition_by={"shop.orders": "id", "shop.nothing": "id"}).findings
    assert [note.detail for note in notes if note.rule == "unmatched"] == ["partition_by: shop.nothing"]


@pytest.mark.parametrize("history", [{}, {"shop.*": "log"}], ids=["mirrors", "logs"])
@pytest.mark.parametrize("seen", [False, True], ids=["never applied", "frozen"])
@pytest.mark.parametrize("net", [False, True])
def test_the_changes_of_an_excluded_table_are_those_that_it_would_have_otherwise(
    applied: Applied, history: Any, seen: bool, net: bool
) -> None:
    if seen:
        applied.apply(history=history)
    applied.go_on()
    applied.apply(EXCLUDED, history=history)
    given = [applied.feed.settings(tables=tables, history=history) for tables in (EXCLUDED, {})]
    pipelines = [Pipeline(settings, settings.open_source(), applied.lake, applied.ledger) for settings in given]
    for since, until in ((FIRST + 5, FIRST + 40), (FIRST + 5, FIRST + 20), (FIRST + 20, FIRST + 40)):
        extracts = [extract(pipeline, "shop.orders", since, until, net=net) for pipeline in pipelines]
        excluded, included = (each.changes.sort_by("id") for each in extracts)
        assert excluded.num_rows >= 2
        assert excluded.equals(included)


@pytest.mark.parametrize(("seen", "reason"), [(True, "is frozen: .* Ask for it again"), (False, "setting tables")])
@pytest.mark.parametrize("history", [{}, {"shop.*": "log"}], ids=["mirrors", "logs"])
def test_the_rows_of_an_excluded_table_are_not_explained_by_settings_of_histories(
    applied: Applied, history: Any, seen: bool, reason: str
) -> None:
    if seen:
        applied.apply(history=history)
    settings = applied.feed.settings(tables=EXCLUDED, history=history)
    pipeline = Pipeline(settings, settings.open_source(), applied.lake, applied.ledger)
    with pytest.raises(BadSettings, match=rf"shop\.orders .*{reason}"):
        explain(pipeline, applied.lake, "shop.orders", ("1",))


@pytest.mark.parametrize("excluded", [True, False])
def test_who_forgets_rows_of_an_excluded_table_is_told_what_comes_with_it(applied: Applied, excluded: bool) -> None:
    applied.apply(history={"shop.*": "log"})
    tables = EXCLUDED if excluded else None
    applied.apply(tables, history={"shop.*": "log"})
    settings = applied.feed.settings(tables=tables or {}, history={"shop.*": "log"})
    pipeline = Pipeline(settings, settings.open_source(), applied.lake, applied.ledger)
    report = forget(pipeline, MemoryForgetting(applied.lake), "shop.orders", [["1"]], "run")
    assert (report.complete, applied.rows("orders")) == (True, {2: "b"})
    assert report.feed.count("is frozen: once the settings ask for it again") == 2 * excluded


def check_exclusions(generated: Generated, tomls: Mapping[str, Path]) -> None:
    """Leave tables out at some checkpoints: the others equal the source, and in the end all of them do."""
    source, style, picks = generated.source, generated.style, Picks(generated.raw[::-1])
    *between, last = generated.publications()
    with feeds(style, tomls[style.rendering]) as (feed, _):
        settings = feed.settings
        for publication in between:
            expected = source.contents(publication.shown)
            excluded = {name for name in expected if picks(3) == 0}
            left_out = TableSettings(exclude=tuple(map(str, excluded)))
            feed.settings = settings.model_copy(update={"tables": left_out})
            outcome = feed.apply(publication)
            waiting = {table.name for table in outcome.tables if "EXCHANGE PARTITION brings rows" in table.reason}
            assert [table.reason for table in outcome.tables if table.reason and table.name not in waiting] == []
            for name in expected.keys() - excluded - waiting:
                assert feed.contents[name] == expected[name], (name, publication.checkpoint)
        feed.settings = settings
        assert faults(feed, last, source.contents(last.shown)) == []


@how_many(7, 3000)
def test_tables_of_a_generated_history_go_on_wherever_they_were_excluded(tomls: Mapping[str, Path], count: int) -> None:
    each_history(count, lambda generated: check_exclusions(generated, tomls))
