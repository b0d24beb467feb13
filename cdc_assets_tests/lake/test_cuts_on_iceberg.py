"""Cuts on Iceberg: tags that any engine reads, stopped at every seam, kept while all around them expires."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc_assets.errors import BadSettings, TableMoved
from cdc_assets.features.cuts.lake import IcebergCuts
from cdc_assets.features.cuts.operations import CutRefused, make_cut, remove_cut
from cdc_assets.features.cuts.pipeline import cut_outcomes, cuts_of
from cdc_assets.lake import Lake
from cdc_assets.lake.lake_table import snapshot_below
from cdc_assets.lake.maintenance import LakeMaintenance
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.ledger import Ledger
from cdc_assets.model.cuts import CutRequest, TagTable, cut_requests
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.operations.as_of import AsOfTable, PastState, as_of
from cdc_assets.operations.extract import extract
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import maintain
from cdc_assets.operations.opening import ledger_url
from cdc_assets.operations.rebuild import rebuild
from cdc_assets_tests.kills import Killed, Trap, trapped
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.operations.test_maintenance import EAGER, later_ms
from cdc_assets_tests.schema_documents import document, file_column, write_schema

pytestmark = pytest.mark.timeout(900)

ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")

SEAMS = (
    "cdc_assets.pipeline.pipeline:Pipeline.run_step",
    "cdc_assets.lake.namespaces:DecisionStore.keep",
    "cdc_assets.lake.namespaces:DecisionStore.remove",
    "cdc_assets.lake.tables:Lake.run",
    "cdc_assets.lake.tables:Lake.commit",
    "cdc_assets.features.cuts.lake:IcebergCuts.make_cut",
    "cdc_assets.features.cuts.lake:IcebergCuts.remove_cut",
    "cdc_assets.features.cuts.lake:IcebergCuts._unlist",
    "cdc_assets.lake.growing:GrowingTable.write",
    "cdc_assets.lake.growing:GrowingTable.append",
    "cdc_assets.lake.growing:GrowingTable.replace",
    "cdc_assets.lake.workbench:Workbench.untag",
)


class Shop(LittleFeed):
    """Two tables in a bucket, and a lake."""

    def __init__(self, directory: Path, lake: Lake) -> None:
        super().__init__(directory)
        self.lake, self.ledger = lake, Ledger("sqlite://")
        self.more: dict[str, Any] = {"maintenance": EAGER}
        for name in ("shop.orders", "shop.items"):
            self.create(name)
            self.rows(name, FIRST, [("I", FIRST + 1, 1, "one")])
        self.publish(FIRST + 10)

    def pipeline(self, lake: Lake | None = None) -> LakePipeline:
        feed = self.settings("default", **self.more)
        return LakePipeline(feed, feed.open_source(), lake or self.lake, self.ledger)

    def add(self, at: Tso, checkpoint: Tso) -> None:
        self.rows("shop.orders", FIRST, [("I", at, at - FIRST, "more"), ("U", at, 1, f"at {at - FIRST}")])
        self.publish(checkpoint)

    def at(self, cut: str, table: TableId = ORDERS) -> list[tuple[Any, ...]]:
        """Read a table as a cut has it, as Spark does, and make sure that PyIceberg and a scan read the same."""
        life = next(life for life in self.lake.state.tables() if life.born_as == table)
        lake_table = self.lake.state.tables()[life]
        with self.lake.workbench.sessions.step() as session:
            name = session.name(lake_table.identifier)
            rows = session.spark.sql(f"SELECT id, v FROM {name} VERSION AS OF '{cut}'").collect()
        other = self.lake.state.catalog.load_table(lake_table.identifier)
        named = other.snapshot_by_name(cut)
        assert named is not None
        read = other.scan(snapshot_id=named.snapshot_id, selected_fields=("id", "v")).to_arrow().to_pylist()
        plain, scan = sorted(tuple(row) for row in rows), self.lake.scan(life, named.snapshot_id)
        scanned = pa.concat_tables(part for piece in scan.pieces() for part in scan.read_file(piece, ["id", "v"]))
        assert plain == sorted(zip(*scanned.to_pydict().values(), strict=True))
        assert (scan.rows, list(scan.columns)[:2]) == (len(plain), ["id", "v"])
        assert plain == sorted((row["id"], row["v"]) for row in read)
        return plain


@pytest.fixture
def shop(open_lake: Callable[..., Lake], tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path, open_lake())
    yield shop
    shop.ledger.close()


@pytest.mark.parametrize("keep", [2, pytest.param(30, marks=pytest.mark.soak)])
def test_so_many_cuts_cost_as_many_snapshots_a_table_whatever_is_applied_between_them(shop: Shop, keep: int) -> None:
    shop.more["cuts"] = {"every": "1d", "keep": keep}
    shop.pipeline().apply()
    made: list[str] = []
    for number in range(keep + 1):
        for step in (0, 3):
            at = FIRST + 20 + 10 * number + step
            shop.add(at, at + 2)
            shop.pipeline().apply()
        made.append(make_cut(shop.pipeline()).name)
    before = {name: shop.at(name) for name in made}
    assert maintain(shop.pipeline(), later_ms()).complete
    assert [cut.name for cut in cuts_of(shop.lake).cuts()] == made[1:]
    file = shop.lake.state.file(shop.lake.state.named(ORDERS).metadata_location)
    tagged = set(file.tags.values())
    assert len(tagged) == keep
    assert len(file.snapshots.keys() - tagged) <= 2  # the newest labelled one, and a compaction
    assert {name: shop.at(name) for name in made[1:]} == {name: before[name] for name in made[1:]}
    orders = shop.lake.state.named(ORDERS)
    assert orders.applied.progress.tso == FIRST + 25 + 10 * keep
    assert snapshot_below(file, orders, FIRST + 5000)[0] == orders.snapshot_id
    shop.add(FIRST + 2000, FIRST + 2010)
    assert shop.pipeline().apply().complete
    assert len(LakeMaintenance(shop.lake, EAGER).facts()) == 2


FEW = (
    "after DecisionStore.keep",
    "after Lake.run of TagTable",
    "before GrowingTable.append",
    "before DecisionStore.remove",
)


@pytest.mark.parametrize("places", [FEW, pytest.param(("",), marks=pytest.mark.soak)], ids=["few", "every"])
def test_a_run_that_is_stopped_at_a_seam_of_a_cut_leaves_what_the_next_one_finishes(
    shop: Shop, places: tuple[str, ...]
) -> None:
    shop.pipeline().apply()
    killed, number = set[str](), 0
    while True:
        number += 1
        shop.add(FIRST + 20 * number, FIRST + 20 * number + 10)
        trap = Trap(lambda _, name: name not in killed and any(place in name for place in places))
        with trapped(trap, SEAMS), suppress(Killed):
            make_cut(shop.pipeline(), f"n{number}")
        if not trap.killed:
            break
        killed.add(trap.killed)
        shop.pipeline().apply()
        assert cut_requests(shop.lake.decisions()) == (), trap.killed
        names = [cut.name for cut in cuts_of(shop.lake).cuts()]
        if f"n{number}" in names:
            assert (20 * number, "more") in shop.at(f"n{number}"), trap.killed
            assert shop.at(f"n{number}", ITEMS) == [(1, "one")]
        else:
            assert "keep" in trap.killed  # nothing was decided yet
    assert len(killed) >= (len(FEW) if places == FEW else 14)


def test_a_removal_that_is_stopped_at_a_seam_is_finished_by_the_next_run(shop: Shop) -> None:
    shop.pipeline().apply()
    killed = set[str]()
    for number in range(12):
        make_cut(shop.pipeline(), f"n{number}")
        trap = Trap(lambda _, name: name not in killed)
        with trapped(trap, SEAMS), suppress(Killed):
            remove_cut(shop.pipeline(), f"n{number}")
        if not trap.killed:
            break
        killed.add(trap.killed)
        shop.pipeline().apply()
        tags = {tag for table in shop.lake.state.tables().values() for tag in table.tags}
        assert cut_requests(shop.lake.decisions()) == ()
        assert tags == {cut.name for cut in cuts_of(shop.lake).cuts()}, trap.killed
        if cuts_of(shop.lake).cuts():
            assert trap.killed.startswith(
                ("before IcebergCuts.remove_cut", "before DecisionStore.keep")
            )  # nothing is decided yet
            remove_cut(shop.pipeline(), f"n{number}")
    assert {"before Workbench.untag", "after IcebergCuts._unlist"} <= {seam.partition(" of ")[0] for seam in killed}


def test_two_runs_that_make_the_same_cut_make_it_once(
    shop: Shop, open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.pipeline().apply()
    shop.add(FIRST + 15, FIRST + 20)
    other, original, done = open_lake(), IcebergCuts.make_cut, list[str]()

    def overtaken(self: IcebergCuts, request: CutRequest, tables: Any) -> Any:
        if not done:
            done.append(request.name)
            shop.pipeline(other).apply()
        return original(self, request, tables)

    monkeypatch.setattr(IcebergCuts, "make_cut", overtaken)
    made = make_cut(shop.pipeline(), "once")
    assert [cut.name for cut in cuts_of(shop.lake).cuts()] == ["once"]
    assert made == cuts_of(shop.lake).cuts()[0]
    assert shop.lake.state.catalog.load_table(("_cdc_cuts", "default")).scan().to_arrow().num_rows == 2


def test_a_cut_that_is_withdrawn_while_it_is_made_does_not_exist(
    shop: Shop, open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.pipeline().apply()
    other, original = open_lake(), IcebergCuts.make_cut

    def overtaken(self: IcebergCuts, request: CutRequest, tables: Any) -> Any:
        other.applied()
        cuts_of(other).remove_cut(request)
        return original(self, request, tables)

    monkeypatch.setattr(IcebergCuts, "make_cut", overtaken)
    with pytest.raises(CutRefused):
        make_cut(shop.pipeline(), "gone")
    assert cuts_of(shop.lake).cuts() == ()
    assert not any(table.tags for table in shop.lake.state.tables().values())


def test_a_cut_outlives_a_rename_a_drop_and_a_rebuild_of_its_tables(shop: Shop) -> None:
    shop.add(FIRST + 15, FIRST + 20)
    make_cut(shop.pipeline(), "before")
    rows = shop.at("before")
    shop.ddl("shop.orders", FIRST + 30, "ALTER TABLE `orders` ADD COLUMN `w` INT", 5, wide=True)
    shop.publish(FIRST + 40)
    shop.pipeline().apply()
    assert shop.at("before") == rows
    rebuild(shop.pipeline(), Rebuilds(shop.lake), ["shop.orders"])
    assert shop.at("before") == rows
    shop.ddl("shop.bills", FIRST + 50, "RENAME TABLE `shop`.`orders` TO `shop`.`bills`", 14, wide=True)
    shop.publish(FIRST + 60)
    shop.pipeline().apply()
    assert TableId("shop", "bills") in shop.lake.names()
    assert shop.at("before") == rows
    shop.ddl("shop.bills", FIRST + 70, "DROP TABLE `bills`", 4, columns=False)
    shop.publish(FIRST + 80)
    shop.pipeline().apply()
    assert shop.at("before") == rows
    assert {cut_table.name for cut_table in cuts_of(shop.lake).cuts()[0].taken} == {ORDERS, ITEMS}


def test_a_rebuild_that_swaps_a_table_across_a_decided_cut_withdraws_it(shop: Shop) -> None:
    shop.pipeline().apply()
    shop.add(FIRST + 15, FIRST + 20)
    shop.lake.keep_decision(CutRequest("across", FIRST + 17))
    rebuild(shop.pipeline(), Rebuilds(shop.lake), ["shop.orders"])
    (outcome,) = cut_outcomes(shop.pipeline().apply())
    assert outcome.is_withdrawn
    assert "shop.orders: it is applied through" in outcome.reason
    assert (cuts_of(shop.lake).cuts(), cut_requests(shop.lake.decisions())) == ((), ())


def test_a_tag_is_not_put_on_a_table_that_has_moved_on(shop: Shop, open_lake: Callable[..., Lake]) -> None:
    shop.pipeline().apply()
    shop.add(FIRST + 15, FIRST + 20)
    shop.lake.keep_decision(CutRequest("late", FIRST + 12))
    steps = [step for step in shop.pipeline().planner.plan()[1].steps if isinstance(step, TagTable)]
    assert len(steps) == 2
    other = open_lake()
    other.state.decisions.remove(CutRequest("late", 0))
    shop.pipeline(other).apply()
    for step in steps:
        with pytest.raises(TableMoved, match="the cut late is no longer to be made"):
            shop.lake.run(step)
    assert not any(table.tags for table in shop.lake.state.tables().values())


def test_a_session_reads_the_list_of_cuts_with_sql(shop: Shop, spark: SparkSession) -> None:
    made = make_cut(shop.pipeline(), "report")
    with shop.lake.workbench.sessions.step() as session:
        name = session.name(("_cdc_cuts", "default"))
        rows = session.spark.sql(f"SELECT cut, position, `table`, snapshot_id FROM {name}").collect()
    assert {row.cut for row in rows} == {"report"}
    assert {row.snapshot_id for row in rows} == {cut_table.snapshot_id for cut_table in cast("Any", made).taken}


# --- as of a moment ---------------------------------------------------------------------------------------------------


def of_orders(state: PastState) -> AsOfTable:
    (table,) = [table for table in state.tables if table.table == "shop.orders"]
    return table


def test_tables_as_of_a_moment_are_read_by_the_statements_that_are_shown(shop: Shop, tmp_path: Path) -> None:
    lake = shop.lake.settings
    shop.ledger = Ledger(ledger_url(lake))
    expected = {}
    for number in range(1, 4):
        shop.add(FIRST + 20 * number, FIRST + 20 * number + 10)
        shop.pipeline().apply()
        expected[FIRST + 20 * number + 10] = sorted((row["id"], row["v"]) for row in shop.lake.read(ORDERS).to_pylist())
    catalog = shop.lake.state.catalog
    for at, rows in expected.items():
        table = of_orders(as_of(lake, "default", str(at)))
        assert (table.exact, table.position, table.reason) == (True, at, "")
        read = eval(table.read["pyiceberg"], {"catalog": catalog})
        assert sorted((row["id"], row["v"]) for row in read.to_pylist()) == rows
        with shop.lake.workbench.sessions.step() as session:
            statement = table.read["spark"].replace("`lake`", f"`{session.name(('x', 'y')).split('.')[0].strip('`')}`")
            assert sorted((row.id, row.v) for row in session.spark.sql(statement).collect()) == rows
    between = of_orders(as_of(lake, "default", str(FIRST + 45)))
    assert (between.exact, between.position) == (False, FIRST + 30)
    assert f"changes after {FIRST + 30}" in between.reason
    items = [table for table in as_of(lake, "default", str(FIRST + 70)).tables if table.table == "shop.items"]
    assert [(table.exact, table.position) for table in items] == [(True, FIRST + 30)]  # nothing came since
    assert not of_orders(as_of(lake, "default", str(FIRST + 500))).exact
    made = make_cut(shop.pipeline(), "report")
    assert of_orders(as_of(lake, "default", "report")).snapshot_id == made.taken[1].snapshot_id
    with pytest.raises(BadSettings, match=r"no state of shop\.orders as of .*they begin at"):
        as_of(lake, "default", str(FIRST - 1), ["shop.orders"])
    with pytest.raises(BadSettings, match=r"no state of any table as of 7 .*its first table begins at"):
        as_of(lake, "default", "7")
    with pytest.raises(BadSettings, match=r"no table is called shop\.nothing; known are shop\.items, shop\.orders"):
        as_of(lake, "default", "report", ["shop.nothing"])
    shop.ledger.close()


def test_a_truncate_is_not_in_the_state_right_before_it(shop: Shop) -> None:
    lake = shop.lake.settings
    shop.ledger = Ledger(ledger_url(lake))
    shop.ddl("shop.orders", FIRST + 20, "TRUNCATE TABLE `orders`", 11)
    shop.publish(FIRST + 30)
    shop.pipeline().apply()
    before, after = (of_orders(as_of(lake, "default", str(FIRST + at))) for at in (19, 20))
    assert (before.exact, before.position) == (True, FIRST + 19)
    assert after.position == FIRST + 20
    assert before.snapshot_id != after.snapshot_id
    shop.ddl("shop.items", FIRST + 40, "DROP TABLE `items`", 4, columns=False)
    shop.publish(FIRST + 50)
    shop.pipeline().apply()
    assert [table.table for table in as_of(lake, "default", str(FIRST + 45)).tables] == ["shop.orders"]
    assert {table.table for table in as_of(lake, "default", str(FIRST + 30)).tables} == {"shop.orders", "shop.items"}
    shop.ddl("shop.orders", FIRST + 60, "DROP TABLE `orders`", 4, columns=False)
    shop.publish(FIRST + 70)
    shop.pipeline().apply()
    with pytest.raises(BadSettings, match=rf"any table as of {FIRST + 65} .*: all were dropped by {FIRST + 60} "):
        as_of(lake, "default", str(FIRST + 65))
    with pytest.raises(BadSettings, match='a changefeed called "other"; it has tables of default'):
        as_of(lake, "other", str(FIRST + 45), ["shop.orders"])
    shop.ledger.close()


@pytest.mark.parametrize("policy", ["apply", "keep"])
def test_a_table_that_was_recovered_is_in_no_state_of_between(shop: Shop, policy: str) -> None:
    lake = shop.lake.settings
    shop.ledger = Ledger(ledger_url(lake))
    shop.more |= {"history": {"shop.orders": ["log", "scd2"]}, "policies": {"drop table": policy}}
    shop.pipeline().apply()
    for at in (20, 40, 60, 80):
        is_drop = at in (20, 60)
        query = f"{'DROP' if is_drop else 'RECOVER'} TABLE `orders`"
        shop.ddl("shop.orders", FIRST + at, query, 4 if is_drop else 25, columns=not is_drop)
        shop.publish(FIRST + at + 5)
        assert [(str(table.name), table.reason) for table in shop.pipeline().apply().tables if table.reason] == []
        if is_drop:
            assert [cut_table.name for cut_table in make_cut(shop.pipeline(), f"without{at}").taken] == [ITEMS]
            present = [table.name for table in shop.lake.state.tables().values()]
            assert (ORDERS in present) == (policy == "keep")
            assert shop.pipeline().planner.plan()[1].steps == ()
    names = {"shop.orders", "shop.orders__log", "shop.orders__scd2"}
    for at, is_there in ((19, True), (20, False), (39, False), (40, True), (60, False), (79, False), (80, True)):
        state = as_of(lake, "default", str(FIRST + at))
        assert ({table.table for table in state.tables} >= names) == is_there, at
        assert ({table.table for table in state.tables} >= {"shop.items"}) is True
    for at in (20, 60):
        state = as_of(lake, "default", f"without{at}")
        assert ([table.table for table in state.tables], state.exact) == (["shop.items"], True)
    with pytest.raises(BadSettings, match=rf"all were dropped by {FIRST + 20} "):
        as_of(lake, "default", str(FIRST + 25), ["shop.orders"])
    shop.ledger.close()


def test_a_kept_table_is_dropped_once_the_policy_is_taken_back(shop: Shop) -> None:
    shop.more["policies"] = {"drop table": "keep"}
    shop.ddl("shop.orders", FIRST + 20, "DROP TABLE `orders`", 4, columns=False)
    shop.publish(FIRST + 30)
    shop.pipeline().apply()
    del shop.more["policies"]
    assert shop.pipeline().apply().complete
    table = next(table for life, table in shop.lake.state.tables().items() if life.born_as == ORDERS)
    assert (table.name, table.gone) == (None, ((FIRST + 20, None),))


def test_a_table_as_of_a_moment_has_the_name_that_it_had_then(shop: Shop) -> None:
    lake = shop.lake.settings
    shop.ledger = Ledger(ledger_url(lake))
    shop.pipeline().apply()
    shop.ddl("shop.bills", FIRST + 20, "RENAME TABLE `shop`.`orders` TO `shop`.`bills`", 14)
    shop.ddl("shop.orders", FIRST + 22, "RENAME TABLE `shop`.`items` TO `shop`.`orders`", 14)
    shop.publish(FIRST + 30)
    shop.pipeline().apply()
    shop.ddl("shop.bills", FIRST + 40, "DROP TABLE `bills`", 4, columns=False)
    shop.publish(FIRST + 50)
    shop.pipeline().apply()

    def born(at: int, *tables: str) -> dict[str, str]:
        state = as_of(lake, "default", str(FIRST + at), tables)
        return {table.table: table.identity.partition("@")[0] for table in state.tables}

    assert born(10) == {"shop.items": "shop.items", "shop.orders": "shop.orders"}
    assert born(30) == {"shop.bills": "shop.orders", "shop.orders": "shop.items"}
    assert born(50) == {"shop.orders": "shop.items"}
    assert born(10, "shop.orders") == {"shop.orders": "shop.orders"}
    assert born(30, "shop.orders", "shop.bills") == born(30)
    assert born(10, f"shop.items@{FIRST}") == {"shop.items": "shop.items"}
    assert born(30, "shop.items") == {"shop.orders": "shop.items"}  # nothing was called so then
    with pytest.raises(BadSettings, match=r"no table is called shop\.nothing"):
        born(30, "shop.nothing")
    shop.ledger.close()


def test_a_table_of_all_states_is_exact_at_every_moment_that_it_covers(shop: Shop) -> None:
    lake = shop.lake.settings
    shop.ledger = Ledger(ledger_url(lake))
    shop.more["history"] = {"shop.orders": "scd2", "shop.items": {"kinds": ["log", "scd2"], "track": ["id"]}}
    shop.add(FIRST + 20, FIRST + 30)
    shop.add(FIRST + 40, FIRST + 50)
    shop.pipeline().apply()
    later = "columns that are not tracked have the last values of each state, which may be later"
    for at, states in ((30, (False, later)), (50, (True, ""))):
        items = {table.table: (table.exact, table.reason) for table in as_of(lake, "default", str(FIRST + at)).tables}
        assert items["shop.items__scd2"] == states
    assert items["shop.items__log"] == (True, "")
    expected = {
        FIRST + 10: [(1, "one")],
        FIRST + 20: [(1, "at 20"), (20, "more")],
        FIRST + 39: [(1, "at 20"), (20, "more")],
        FIRST + 40: [(1, "at 40"), (20, "more"), (40, "more")],
        FIRST + 60: [(1, "at 40"), (20, "more"), (40, "more")],  # where nothing is known yet
    }
    for at, rows in expected.items():
        (table,) = [table for table in as_of(lake, "default", str(at)).tables if table.table == "shop.orders__scd2"]
        assert (table.exact, table.position) == ((True, at) if at < FIRST + 60 else (False, FIRST + 50))
        read = eval(table.read["pyiceberg"], {"catalog": shop.lake.state.catalog})
        assert sorted((row["id"], row["v"]) for row in read.to_pylist()) == rows
        with shop.lake.workbench.sessions.step() as session:
            catalog = session.name(("x", "y")).split(".")[0].strip("`")
            statement = table.read["spark"].replace("`lake`", f"`{catalog}`")
            assert sorted((row.id, row.v) for row in session.spark.sql(statement).collect()) == rows
    shop.ledger.close()


def test_states_that_are_overwritten_are_exact_in_a_cut_and_so_is_the_newest_snapshot_after_one(shop: Shop) -> None:
    lake, states = shop.lake.settings, ["shop.orders__scd2"]
    shop.ledger = Ledger(ledger_url(lake))
    shop.more["history"] = {"shop.orders": {"kinds": ["scd2"], "track": ["id"]}}
    shop.ddl("shop.old", FIRST, "", 0)
    shop.rows("shop.orders", FIRST, [("U", FIRST + 12, 1, "two")])
    shop.publish(FIRST + 20)
    made = make_cut(shop.pipeline(), "report")
    shop.publish(FIRST + 30)
    shop.pipeline().apply()
    assert {table.table: table.exact for table in as_of(lake, "default", str(FIRST + 25)).tables} == {
        "shop.items": True, "shop.old": False, "shop.orders": True, "shop.orders__scd2": True
    }  # fmt: skip
    (incomplete,) = as_of(lake, "default", str(FIRST + 25), ["shop.old"]).tables
    assert incomplete.reason.startswith("incomplete: it existed before its changefeed began")
    shop.rows("shop.orders", FIRST, [("U", FIRST + 32, 1, "three")])
    shop.publish(FIRST + 40)
    shop.pipeline().apply()
    shown = {}
    for moment in ("report", str(FIRST + 15), str(FIRST + 40)):
        (table,) = as_of(lake, "default", moment, states).tables
        read = eval(table.read["pyiceberg"], {"catalog": shop.lake.state.catalog})
        shown[moment] = (table.exact, read.column("v").to_pylist())
    assert list(shown.values()) == [(True, ["two"]), (False, ["three"]), (True, ["three"])]
    assert made.at == FIRST + 19
    shop.ddl("shop.orders", FIRST + 50, "ALTER TABLE `orders` ADD COLUMN `w` INT", 5, wide=True)
    shop.publish(FIRST + 60)
    shop.pipeline().apply()
    assert not as_of(lake, "default", "report", states).exact  # its columns are no longer those of the table
    shop.ledger.close()


def test_a_table_of_all_states_has_the_columns_of_the_moment_by_their_names(shop: Shop) -> None:
    lake = shop.lake.settings
    shop.ledger = Ledger(ledger_url(lake))
    shop.more["history"] = {"shop.orders": {"kinds": ["scd2"], "mirror": False}}
    shop.pipeline().apply()
    shop.ddl("shop.orders", FIRST + 20, "ALTER TABLE `orders` ADD COLUMN `w` INT DEFAULT 7", 5, wide=True)
    shop.ddl("shop.orders", FIRST + 30, "ALTER TABLE `orders` DROP COLUMN `w`", 6)
    fields = ("ColumnName", "ColumnType", "ColumnPrecision", "ColumnIsPk")
    columns = [("id", "INT", "11", "true"), ("v", "VARCHAR", "40", "false"), ("w", "VARCHAR", "10", "false")]
    made = [dict(zip(fields, column, strict=True)) for column in columns]
    query = "ALTER TABLE `orders` ADD COLUMN `w` VARCHAR(10)"
    write_schema(shop.bucket, document("shop", "orders", FIRST + 40, Query=query, Type=5, TableColumns=made))
    made[2] |= file_column("z", "TEXT", "65535")
    made[1] |= {"ColumnType": "BLOB"}
    query = "ALTER TABLE `orders` CHANGE `w` `z` TEXT, MODIFY `v` BLOB"
    write_schema(shop.bucket, document("shop", "orders", FIRST + 45, Query=query, Type=12, TableColumns=made))
    shop.publish(FIRST + 50)
    assert shop.pipeline().apply().complete
    seen: dict[int, list[str]] = {}
    for at in (15, 25, 35, 42, 45):
        (table,) = as_of(lake, "default", str(FIRST + at), ["shop.orders__scd2"]).tables
        assert table.exact
        assert table.converted == ({} if at == 45 else {"v": "VARCHAR(40)"})
        read = eval(table.read["pyiceberg"], {"catalog": shop.lake.state.catalog})
        with shop.lake.workbench.sessions.step() as session:
            catalog = session.name(("x", "y")).split(".")[0].strip("`")
            rows = session.spark.sql(table.read["spark"].replace("`lake`", f"`{catalog}`"))
        assert sorted(rows.columns) == sorted(read.column_names)
        assert [row.id for row in rows.collect()] == read.column("id").to_pylist() == [1]
        seen[at] = [name for name in rows.columns if not name.startswith("_")]
    assert seen == {n: ["id", "v", *more] for n, more in ((15, []), (25, ["w"]), (35, []), (42, ["z"]), (45, ["z"]))}
    shop.ledger.close()


def test_a_log_is_read_by_the_range_of_its_positions(shop: Shop) -> None:
    shop.more["history"] = {"shop.orders": "log"}
    shop.add(FIRST + 20, FIRST + 30)
    shop.add(FIRST + 40, FIRST + 50)
    shop.pipeline().apply()
    table_extract = extract(shop.pipeline(), "shop.orders", FIRST + 20, FIRST + 40)
    assert table_extract.source == "log"
    shown = [(row["_change_type"], row["id"], row["v"]) for row in table_extract.changes.to_pylist()]
    assert sorted(shown) == [("INSERT", 40, "more"), ("UPDATE_AFTER", 1, "at 40")]
