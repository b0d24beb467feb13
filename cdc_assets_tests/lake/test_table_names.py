"""Names of tables in the lake: renames, drops, recovers, and names that are taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.errors import BadSettings, TableHeld
from cdc_assets.lake import Lake, table_renames
from cdc_assets.lake.label import Label
from cdc_assets.lake.names import format_identity, format_name, location, moves, parse_identity, parse_name
from cdc_assets.model.kinds import HistoryRule
from cdc_assets.model.progress import Life, Phase, Progress
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.steps import ApplyRows, CreateTable, DropTable, RecoverTable, RenameTable, RowReading
from cdc_assets_tests.lake.table_source import ORDERS, SCHEMA, Source

NAMES = [
    TableId("shop", "Orders"),
    TableId("Shop", "orders"),
    TableId("a.b", "t"),
    TableId("a", "b.t"),
    TableId("..", "../x"),
    TableId("my db", "."),
    TableId("q'\"`", "t`'\""),
    TableId("50%", "a%2Eb"),
    TableId("s/l", "a/b"),
    TableId("表", "表" * 64),
    TableId("a\\b_", "😀 {x},;=()"),
]


def test_tables_of_any_name_are_made_filled_and_read_inside_the_warehouse(lake: Lake, tmp_path: Path) -> None:
    sources = [Source(lake, name) for name in NAMES]
    for number, source in enumerate(sources):
        source.apply(200, [("I", 110, number, "x")])
    assert [source.rows() for source in sources] == [[(number, "x")] for number in range(len(NAMES))]
    places = {lake.state.find(source.life).location for source in sources}
    assert len(places) == len(NAMES)
    assert all(Path(place).resolve().parent == tmp_path / "lake" / "default" for place in places)
    assert {path.name for path in tmp_path.iterdir()} == {"lake"}


def test_three_tables_exchange_names_and_keep_their_rows_and_progress(lake: Lake) -> None:
    a, b, c = (Source(lake, TableId("shop", name)) for name in "abc")
    for number, source in enumerate((a, b, c)):
        source.apply(200, [("I", 110, number, "x")])
    for source, to in ((a, b.name), (b, c.name), (c, a.name)):
        lake.run(RenameTable(source.life, 300, to))
    lake.apply_renames()
    assert {name: lake.read(TableId("shop", name)).column("id").to_pylist() for name in "abc"} == {
        "a": [2],
        "b": [0],
        "c": [1],
    }
    assert {held.identifier for held in lake.state.tables().values()} == {("shop", name) for name in "abc"}
    assert all(applied.progress == Progress(300, Phase.DDL) for applied in lake.applied().values())


def test_a_table_is_found_where_another_run_has_moved_it_and_not_taken_for_its_successor(
    open_lake: Callable[..., Lake],
) -> None:
    lake, other = open_lake(), open_lake()
    a, b = (Source(lake, TableId("shop", name)) for name in "ab")
    assert set(other.applied()) == {a.life, b.life}
    for source, to in ((a, b.name), (b, a.name)):
        lake.run(RenameTable(source.life, 300, to))
    lake.apply_renames()
    assert [other.state.find(source.life).identifier for source in (a, b)] == [("shop", "b"), ("shop", "a")]
    assert [other.state.find(source.life).life for source in (a, b)] == [a.life, b.life]


def test_a_rename_that_stopped_half_way_is_finished_by_the_next_settling(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Source(lake)
    with monkeypatch.context() as patch:
        patch.setattr(table_renames, "apply_renames", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lake.run(RenameTable(orders.life, 200, TableId("new", "orders")))
    assert lake.state.find(orders.life).identifier == ("shop", "orders")
    lake.apply_renames()
    assert lake.state.find(orders.life).identifier == ("new", "orders")


def test_a_dropped_table_leaves_its_name_and_can_be_recovered_with_its_rows(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    lake.run(DropTable(orders.life, 300))
    assert lake.applied()[orders.life].name is None
    successor = Source(lake, at=310)
    assert successor.rows() == []
    lake.run(RecoverTable(orders.life, 400, TableId("shop", "old")))
    assert lake.read(TableId("shop", "old")).column("id").to_pylist() == [1]
    assert lake.state.find(orders.life).location != lake.state.find(successor.life).location


def test_a_purged_table_is_gone_and_its_drop_is_remembered(lake: Lake) -> None:
    orders = Source(lake)
    with pytest.raises(BadSettings, match="not dropped"):
        lake.purge(orders.life)
    lake.run(DropTable(orders.life, 300))
    place = Path(lake.state.find(orders.life).location)
    assert list(lake.dropped()) == [orders.life]
    lake.purge(orders.life)
    lake.purge(orders.life)
    assert lake.dropped() == {}
    applied = lake.applied()[orders.life]
    assert (applied.progress, applied.ddl, applied.name) == (Progress(300, Phase.DDL), 300, None)
    assert not [path for path in place.rglob("*") if path.is_file()]
    with pytest.raises(TableHeld, match="purged after its DROP"):
        lake.run(RecoverTable(orders.life, 400, orders.name))


def test_a_table_that_is_not_the_changefeeds_is_never_touched(open_lake: Callable[..., Lake]) -> None:
    Source(open_lake("one"))
    with pytest.raises(TableHeld, match=r"is the changefeed one's.*namespace"):
        Source(open_lake("two"))
    two = Source(open_lake("two", namespace="two_{schema}"))
    assert [str(life) for life in open_lake("two").applied()] == [str(two.life)]


@pytest.mark.parametrize("dropped_first", [False, True])
def test_a_name_of_another_changefeeds_table_is_taken_by_no_rename(
    open_lake: Callable[..., Lake], dropped_first: bool
) -> None:
    Source(open_lake("one"))
    lake = open_lake("two")
    bills = Source(lake, TableId("shop", "bills"))
    bills.apply(200, [("I", 110, 1, "a")])
    if dropped_first:
        lake.run(DropTable(bills.life, 300))
    step = (RecoverTable if dropped_first else RenameTable)(bills.life, 400, ORDERS)
    with pytest.raises(TableHeld, match=r"shop\.orders is the changefeed one's"):
        lake.run(step)
    assert lake.applied()[bills.life].ddl == (300 if dropped_first else 100)


def test_a_database_with_a_name_of_the_lake_itself_is_held(lake: Lake) -> None:
    with pytest.raises(TableHeld, match="namespace"):
        Source(lake, TableId("_cdc_dropped", "t"))


def test_creating_a_table_twice_changes_nothing(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    assert lake.run(CreateTable(orders.life, 100, ORDERS, SCHEMA)).statements == ()
    assert orders.rows() == [(1, "a")]


@given(st.permutations(range(5)), st.permutations(range(7)))
def test_settling_names_brings_every_table_home_in_whatever_order_they_wait(held: list[int], wish: list[int]) -> None:
    lives = [Life(TableId("s", f"t{i}"), i) for i in range(5)]
    now = {life: ("s", f"n{held[i]}") for i, life in enumerate(lives)}
    wanted = {life: ("s", f"n{wish[i]}") for i, life in enumerate(lives)}
    place, taken = dict(now), set(now.values())
    for life, source, target in moves(now, wanted, {life: ("w", str(life)) for life in lives}, taken):
        assert place[life] == source
        assert target not in taken
        taken = taken - {source} | {target}
        place[life] = target
    assert place == wanted


def test_a_table_whose_name_is_held_by_one_that_stays_waits_where_it_is() -> None:
    life, other_life = Life(TableId("s", "one"), 1), Life(TableId("s", "two"), 2)
    now = {life: ("s", "one"), other_life: ("s", "two")}
    assert moves(now, {life: ("s", "two"), other_life: ("s", "two")}, {}, now.values()) == []


texts = st.text(st.characters(codec="utf-8"), min_size=1)


@given(texts, texts, st.integers(0, 1 << 63))
def test_names_and_identities_are_read_as_they_were_written(schema: str, table: str, version: int) -> None:
    life = Life(TableId(schema, table), version)
    assert parse_identity(format_identity(life)) == life
    assert parse_name(format_name(life.born_as)) == life.born_as
    place = location("/w", "feed", life)
    assert Path(place).resolve().parent == Path("/w/feed")
    assert len(Path(place).name) < 250


@given(
    st.integers(0, 1 << 62),
    st.sampled_from(Phase),
    st.integers(0, 1 << 62),
    st.dictionaries(texts, st.integers()),
    st.booleans(),
)
def test_labels_are_read_as_they_were_written(
    tso: int, phase: Phase, ddl: int, positions: dict[str, int], overwrites: bool
) -> None:
    label = Label(Progress(tso, phase), ddl, positions, overwrites=overwrites)
    assert Label.parse(label.properties()) == label


@pytest.mark.parametrize("kind", ["scd2", "log", ""])
@pytest.mark.parametrize("rule", [{"track": ("a",)}, {"track_except": ("a",)}, {}], ids=repr)
def test_states_of_which_some_columns_are_tracked_stay_known_as_overwritten(kind: str, rule: dict[str, Any]) -> None:
    life = Life(TableId("shop", "t"), 1, kind)
    window = ApplyRows(
        life, 1, 2, (), RowReading(), TableSchema(()), 1, history=HistoryRule("*", ("scd2", "log"), **rule)
    )
    after = Label(Progress(1, Phase.ROWS), 1).through_rows(window, ())
    assert after.overwrites == (kind == "scd2" and bool(rule))
    later = replace(window, lo=2, hi=3, history=None)
    assert after.through_ddl(2, 2).through_rows(later, ()).overwrites == after.overwrites
