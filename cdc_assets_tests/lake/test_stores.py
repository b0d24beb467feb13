"""Lakes outside a local directory, against real servers: an object store, and each type of catalog."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.fs as pafs
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from cdc_assets.errors import BadSettings, CdcError, LakeUnavailable, SetupError, StepFailed, TableHeld, TableMoved
from cdc_assets.features.cuts.operations import make_cut
from cdc_assets.features.forgetting.lake import LakeForgetting
from cdc_assets.features.forgetting.operations import forget
from cdc_assets.lake import Lake, workbench
from cdc_assets.lake.staging.storage import storage
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.ledger import Ledger
from cdc_assets.model.ledger_entries import TableState
from cdc_assets.model.progress import Life, State
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import CreateTable, DropTable, RenameTable
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.opening import open_ledger
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.operations.status import lake_status
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.settings.sections import MaintenanceSettings
from cdc_assets_tests.canaries import leaks
from cdc_assets_tests.cases import Config
from cdc_assets_tests.kills import Killed, Trap, named, trapped
from cdc_assets_tests.lake.table_source import SCHEMA, Source
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.operations.test_quarantine import COLUMNS, CREATE, Bucket, row
from cdc_assets_tests.replay import compare, replay
from cdc_assets_tests.servers.lakes import KINDS, SECRETS, Stores
from cdc_assets_tests.servers.object_store import BUCKET, ObjectStore
from cdc_assets_tests.servers.poured import pour

pytestmark = pytest.mark.timeout(900)

FEW = [("vended", "D_keys/csv-old")]
RECORDED = ("A_all_types/canal-ext", "C_ddl_tables/csv-ts", "D_keys/csv-old", "E_partitions/canal-ext", "H_bank/csv-ts")
MORE = [(kind, feed) for kind in KINDS for feed in RECORDED if (kind, feed) not in FEW]
MORE += [(cloud, feed) for cloud in ("gcs", "azure") for feed in ("C_ddl_tables/csv-ts", "H_bank/csv-ts")]
CHOSEN = [*FEW, *(pytest.param(*case, marks=pytest.mark.soak) for case in MORE)]

EACH_KIND = pytest.mark.parametrize(
    "kind", [kind if kind == "vended" else pytest.param(kind, marks=pytest.mark.soak) for kind in KINDS]
)
"""All of them in `make soak`."""

Open = Callable[..., Lake]


@pytest.fixture(autouse=True)
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name but this machine's is looked up."""
    look_up = socket.getaddrinfo

    def inside_only(host: Any, *args: Any, **named: Any) -> Any:
        assert host in ("127.0.0.1", "localhost", "::1", None, b"127.0.0.1", socket.gethostname()), f"looked up {host}"
        return look_up(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", inside_only)


def test_the_jvm_of_the_tests_looks_up_no_outside_name(spark: SparkSession) -> None:
    address: Any = spark._jvm.java.net.InetAddress  # type: ignore[union-attr]
    assert address.getByName("localhost").isLoopbackAddress()
    with pytest.raises(Exception, match="UnknownHostException"):
        address.getByName("one.one.one.one")


@pytest.fixture
def open_in(spark: SparkSession) -> Iterator[Open]:
    """Open lakes: each call is another writer to the same one, of a changefeed that no other test has."""
    opened, changefeed = [], f"feed_{uuid4().hex[:8]}"

    def open_one(settings: LakeSettings, namespace: str = "{schema}") -> Lake:
        opened.append(Lake(settings, changefeed, lambda: spark, namespace))
        return opened[-1]

    yield open_one
    for lake in opened:
        lake.close()


def own_names() -> str:
    """Return a namespace pattern of a test's own: all but Postgres know one set of names, and the first to come has it.

    A table whose name another changefeed has is held.
    """
    return f"{uuid4().hex[:8]}_{{schema}}"


def applied(config: Config, lake: Lake, ledger: Ledger, every: bool) -> Iterator[tuple[Outcome, list[str]]]:
    """Apply a recorded changefeed, checkpoint by checkpoint or in one go; yield what differs from the source."""
    for checkpoint in config.replayable if every else config.checkpoints[-1:]:
        outcome = replay(config, checkpoint, lake, ledger)
        if checkpoint.expected is not None:
            yield outcome, compare(config, checkpoint.expected, lake, outcome)


@pytest.mark.parametrize(("kind", "feed"), CHOSEN)
def test_a_recorded_changefeed_is_equal_at_every_checkpoint_and_no_secret_is_shown(
    kind: str, feed: str, stores: Stores, open_in: Open, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = stores.settings(kind)
    lake, config, ledger = open_in(settings, own_names()), named(feed), Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    outputs = []
    for outcome, different in applied(config, lake, ledger, feed.startswith("H_bank")):
        assert different == []
        outputs.append(repr(outcome))
    ledger.close()
    outputs += capfd.readouterr()
    assert shown((*outputs, (tmp_path / "ledger.db").read_bytes().decode("latin-1"), *written(stores, settings))) == []
    assert not [name for name in names(stores, settings) if "/_cdc_stage/" in name and not name.endswith("/")]


@pytest.mark.soak
def test_no_byte_of_forgotten_rows_is_left_in_an_object_store(stores: Stores, open_in: Open, tmp_path: Path) -> None:
    settings = stores.settings("postgres")
    feed, lake, ledger = LittleFeed(tmp_path / "feed"), open_in(settings, own_names()), Ledger("sqlite://")
    feed.create("shop.t")
    tokens = {key: f"token-{key}-{uuid4().hex}"[:40].encode() for key in range(4)}
    given = feed.settings(lake.changefeed, history={"shop.*": ["log", "scd2"]}, quarantine=True)

    def pipeline() -> LakePipeline:
        return LakePipeline(given, given.open_source(), lake, ledger)

    for op, at in (("I", FIRST + 10), ("U", FIRST + 20)):
        rows = [(op, at + key, key, token.decode()) for key, token in tokens.items()]
        feed.rows("shop.t", FIRST, [*rows, ("I", at + 5, 2, tokens[2].decode() + "x" * 9)])
        feed.publish(at + 9)
        pipeline().apply("run")
    make_cut(pipeline(), "one")

    def left(number: int) -> list[str]:
        copied = tmp_path / f"copy-{number}"
        copied.mkdir()
        for place, name in enumerate(names(stores, settings)):
            (copied / f"{place}-{name.rpartition('/')[2]}").write_bytes(stores.store.files.cat_file(name))
        return leaks(copied, {tokens[2], tokens[3]})

    assert left(0)
    report = forget(pipeline(), LakeForgetting(lake), "shop.t", [["2"], ["3"]])
    assert (report.complete, len(report.records), left(1)) == (True, 6, [])
    assert sorted(row["id"] for row in lake.read(TableId("shop", "t")).to_pylist()) == [0, 1]


def names(stores: Stores, settings: LakeSettings) -> list[str]:
    if settings.root.startswith("s3://"):
        file_names: list[str] = stores.store.files.find(settings.root.removeprefix("s3://"))
        return file_names
    system, place = storage(settings.pyiceberg_properties(), settings.root)
    return [info.path for info in system.get_file_info(pafs.FileSelector(place, recursive=True)) if info.is_file]


def written(stores: Stores, settings: LakeSettings) -> Iterator[str]:
    """Yield every text in the warehouse."""
    for name in names(stores, settings):
        if name.endswith(".json") and settings.root.startswith("s3://"):
            yield stores.store.files.cat_file(name).decode()
        elif name.endswith(".json"):
            with storage(settings.pyiceberg_properties(), settings.root)[0].open_input_file(name) as file:
                yield file.read().decode()


def shown(texts: Any) -> list[str]:
    return [secret for secret in SECRETS for text in texts if secret in text]


def test_no_secret_stands_on_javas_command_line(spark: SparkSession, stores: Stores, open_in: Open) -> None:
    from cdc_assets.lake.spark.gateway import open_gateway
    from cdc_assets.lake.spark.session import spark_configuration

    settings = stores.settings("rest")
    launched: list[str] = []

    def launch(conf: Any, options: Any) -> Any:
        launched.extend(f"{key}={value}" for key, value in conf.getAll())
        raise RuntimeError("no JVM is started here")

    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkContext, "_gateway", None)
        patch.setattr("cdc_assets.lake.spark.gateway.launch_gateway", launch)
        with pytest.raises(RuntimeError, match="no JVM"):
            open_gateway(spark_configuration(settings))
    assert (SparkContext._gateway, SparkContext._jvm) == (gateway, jvm)
    assert launched
    assert shown(launched) == []


# --- requests ---------------------------------------------------------------------------------------------------------

A_STEP, LOOKS = 6, 2
"""What a step may ask, and how often a run looks at the whole lake, each table of which is a request then."""


def test_a_catalog_is_asked_little(stores: Stores, open_in: Open) -> None:
    lake, config = open_in(stores.settings("rest"), own_names()), named("C_ddl_tables/csv-ts")
    before, steps = len(stores.rest.requests()), Trap(lambda number, name: False)
    with trapped(steps):
        replay(config, config.checkpoints[2], lake)
    request_count = len(stores.rest.requests()) - before
    done = sum(name.startswith("before Pipeline.run_step") for name in steps.crossed)
    tables = len(set(lake.state.entries()))
    assert done > 15
    assert request_count <= A_STEP * done + LOOKS * tables, f"{request_count} requests, {done} steps, {tables} tables"


def test_a_look_asks_once_for_each_table_and_once_for_each_namespace(stores: Stores, open_in: Open) -> None:
    settings = stores.settings("vended")
    lake = open_in(settings)
    for name in ("a", "b", "c"):
        Source(lake, TableId(f"look_{lake.changefeed}", name)).apply(200, [("I", 110, 1, name)])
    looking = open_in(settings)
    _ = looking.state.catalog
    before = len(stores.vending.requests())
    assert len(looking.applied()) == 3
    paths = [line.split()[1] for line in stores.vending.requests()[before:]]
    assert len(paths) == len(set(paths))
    assert len([path for path in paths if f"look_{lake.changefeed}/tables/" in path]) == 3
    before = len(stores.vending.requests())
    for number in range(3):
        made = TableId(f"look_{lake.changefeed}", f"new_{number}")
        looking.run(CreateTable(Life(made, 100), 100, made, SCHEMA))
    assert not [
        line for line in stores.vending.requests()[before:] if re.fullmatch(r"GET .*/(namespaces|tables) 200", line)
    ]


@EACH_KIND
def test_a_table_that_another_run_has_made_and_renamed_meanwhile_is_not_made_again(
    kind: str, stores: Stores, open_in: Open
) -> None:
    settings, first = stores.settings(kind), TableId(f"made_{uuid4().hex[:8]}", "first")
    slow, fast, life = open_in(settings), open_in(settings), Life(first, 100)
    assert slow.applied() == fast.applied()
    fast.run(CreateTable(life, 100, first, SCHEMA))
    fast.run(RenameTable(life, 200, TableId(first.schema, "second")))
    slow.run(CreateTable(life, 100, first, SCHEMA))
    assert [entry for entry in dict(slow.state.entries()) if entry[0] == first.schema] == [(first.schema, "second")]
    assert slow.state.find(life).identifier == (first.schema, "second")


def test_status_asks_once_for_each_table(stores: Stores, open_in: Open, tmp_path: Path) -> None:
    settings = stores.settings("vended").model_copy(update={"ledger": f"sqlite:///{tmp_path}/ledger.db"})
    lake = open_in(settings)
    sources = [Source(lake, TableId(f"status_{lake.changefeed}", name)) for name in ("a", "b")]
    for source in sources:
        source.apply(200, [("I", 110, 1, "x")])
    with open_ledger(settings) as ledger:
        states = [
            TableState(source.name, 100, 200, State.APPLIED, life=str(source.life), checkpoint=200, run="run")
            for source in sources
        ]
        ledger.record_states(lake.changefeed, states, {})
    before = len(stores.vending.requests())
    assert [row.rows for row in lake_status(settings)] == [1, 1]
    paths = [line.split()[1] for line in stores.vending.requests()[before:]]
    assert len([path for path in paths if f"/status_{lake.changefeed}/tables/" in path]) == 2


def test_files_poured_into_the_store_are_there_and_a_refused_one_is_named(store: ObjectStore) -> None:
    files = {f"poured/{number % 3}/{number:04d}": b"%d" % number for number in range(300)}
    assert pour(store, files.items()) == len(files)
    assert store.files.find(f"{BUCKET}/poured") == sorted(f"{BUCKET}/{path}" for path in files)
    assert store.files.cat_file(f"{BUCKET}/poured/1/0001") == b"1"
    with pytest.raises(AssertionError, match="not a path"):
        pour(store, [("not a path", b"")])


# --- kills and races --------------------------------------------------------------------------------------------------

PLACES = (
    "after create of CreateTable",
    "after _write_manifest of ApplyRows",
    "after publish of ApplyRows",
    "after publish of RenameTable",
)


@EACH_KIND
def test_runs_that_are_stopped_leave_what_the_next_one_completes(
    kind: str, stores: Stores, open_in: Open, tmp_path: Path
) -> None:
    settings, config, killed = stores.settings(kind), named("C_ddl_tables/csv-ts"), set[str]()
    namespace = own_names()
    checkpoint = config.checkpoints[2]
    assert checkpoint.expected is not None

    def due(_: int, name: str) -> bool:
        return any(place in name and place not in killed for place in PLACES)

    for _ in range(2 * len(PLACES)):
        trap = Trap(due)
        lake, ledger = open_in(settings, namespace), Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
        with suppress(Killed), trapped(trap):
            outcome = replay(config, checkpoint, lake, ledger)
        ledger.close()
        if not trap.killed:
            break
        killed |= {place for place in PLACES if place in trap.killed}
    assert compare(config, checkpoint.expected, lake, outcome) == []
    assert len(killed) == len(PLACES)


@EACH_KIND
@pytest.mark.parametrize("loaded", [True, False], ids=["merge", "first load"])
def test_of_two_racing_runs_one_wins_and_the_other_fails(
    kind: str, loaded: bool, stores: Stores, open_in: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cdc_assets.lake.staging import stage

    settings = stores.settings(kind)
    orders = Source(open_in(settings), TableId(f"race_{uuid4().hex[:8]}", "orders"))
    if loaded:
        orders.apply(150, [("I", 110, 1, "a")])
    slow, read = open_in(settings), stage.read_manifest
    step, files = orders.window(200, [("I", 160, 2, "slow")])
    staged = slow.stage(step, files)

    def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(stage, "read_manifest", read)
        orders.apply(180, [("I", 170, 3, "fast")])
        return read(*args)

    monkeypatch.setattr(stage, "read_manifest", overtaken)
    with pytest.raises(TableMoved, match="another writer"):
        slow.commit(step, staged)
    assert orders.rows()[-1] == (3, "fast")
    assert len(orders.rows()) == 1 + loaded


# --- upkeep -----------------------------------------------------------------------------------------------------------


@EACH_KIND
def test_maintenance_compacts_and_removes_what_nothing_refers_to(kind: str, stores: Stores, open_in: Open) -> None:
    from cdc_assets.lake.chores import Chores
    from cdc_assets.lake.maintenance import LakeMaintenance

    settings = stores.settings(kind)
    lake = open_in(settings)
    orders = Source(lake, TableId(f"upkeep_{uuid4().hex[:8]}", "orders"))
    for number in range(1, 4):
        orders.apply(100 * number + 99, [("I", 100 * number + 50, number, "x")])
    held = lake.state.find(orders.life)
    orphan = f"{held.location.removeprefix('s3://')}/data/orphan.parquet"
    stores.store.files.pipe_file(orphan, b"nobody's")
    upkeep = LakeMaintenance(lake, MaintenanceSettings())
    (facts,) = (fact for fact in upkeep.facts() if fact.life == orders.life)
    later = 4_000_000_000_000
    due = Chores(compact=True, manifests=False, orphans=True, expire=())
    assert upkeep.carry_out(facts, due, later) >= 1
    assert orphan not in stores.store.files.find(held.location.removeprefix("s3://"))
    assert lake.state.find(orders.life).data_files == 1
    assert [row[0] for row in orders.rows()] == [1, 2, 3]


@pytest.mark.soak
@EACH_KIND
def test_records_are_kept_aside_and_replayed_and_tables_built_anew_and_no_secret_is_shown(
    kind: str, stores: Stores, open_in: Open, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = stores.settings(kind)
    lake, ledger = open_in(settings, own_names()), Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    bucket = Bucket(tmp_path / "feed", lake, ledger)
    bucket.schema(100, CREATE, 3, COLUMNS)
    bucket.data(100, 1, row("I", 110, 1, 5), row("I", 111, 2, 6))
    bucket.apply(150)
    bad = bucket.data(100, 2, row("U", 160, 1, 7), row("I", 161, 3, "x"))
    outputs = [repr(bucket.apply(200))]
    assert (bucket.rows(), bucket.kept()) == ([(1, 7), (2, 6)], [("2.csv", 2)])
    bucket._write(bad, "".join(f"{line}\n" for line in (row("U", 160, 1, 7), row("I", 161, 3, 8))))
    outputs.append(repr(bucket.replay()))
    assert (bucket.rows(), bucket.kept()) == ([(1, 7), (2, 6), (3, 8)], [])
    outputs.append(repr(rebuild(bucket.pipeline(), Rebuilds(lake))))
    outputs.append(repr(bucket.apply(200)))
    assert bucket.rows() == [(1, 7), (2, 6), (3, 8)]
    assert Rebuilds(lake).tickets() == ()
    aside = lake.state.places.own.aside
    assert not [namespace for (namespace, _), _ in lake.state.entries() if namespace.startswith(aside)]
    ledger.close()
    outputs += [*capfd.readouterr(), (tmp_path / "ledger.db").read_bytes().decode("latin-1")]
    assert shown((*outputs, *written(stores, settings))) == []
    assert not [name for name in names(stores, settings) if "/_cdc_stage/" in name and not name.endswith("/")]


# --- what fails -------------------------------------------------------------------------------------------------------

DEAD, REACH = "http://127.0.0.1:9", "uri and s3.endpoint"
KEYS = "s3.secret-access-key"
NO_DATABASE = "jdbc:postgresql://127.0.0.1:9/db"
WRONG: dict[str, tuple[str, dict[str, str], type[CdcError], str]] = {
    "a wrong key": ("rest", {KEYS: "wrong-key-000000"}, SetupError, KEYS),
    "a wrong key, which Java is told of": ("rest", {KEYS: "wrong-key-000000"}, SetupError, KEYS),
    "a missing class": ("rest", {"io-impl": "org.apache.iceberg.nowhere.FileIO"}, SetupError, "`cdc-assets setup aws`"),
    "a dead store": ("postgres", {"s3.endpoint": DEAD}, LakeUnavailable, "Check s3.endpoint"),
    "a dead catalog": ("rest", {"uri": DEAD}, LakeUnavailable, "Check uri"),
    "a wrong login": ("vended", {"credential": "applier:wrong-000000"}, SetupError, "token, credential and scope"),
    "an unknown warehouse": ("vended", {"warehouse": "nowhere"}, BadSettings, "warehouse of lake.catalog"),
    "a wrong path": ("rest", {}, BadSettings, "Check uri of lake.catalog"),
    "a dead database": (
        "postgres",
        {"uri": NO_DATABASE},
        LakeUnavailable,
        REACH,
    ),
    "a wrong password": ("postgres", {"jdbc.password": "wrong-password-000000"}, BadSettings, "jdbc.password"),
    "an unknown database": ("postgres", {}, BadSettings, "uri of lake.catalog"),
    "a dead metastore": ("postgres", {"type": "hive", "uri": "thrift://127.0.0.1:9"}, LakeUnavailable, "Check uri"),
    "two dead metastores": (
        "postgres",
        {"type": "hive", "uri": "thrift://127.0.0.1:9,thrift://127.0.0.1:10"},
        LakeUnavailable,
        REACH,
    ),
    "a dead glue": ("glue", {"glue.endpoint": DEAD}, LakeUnavailable, "Check glue.endpoint"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_lake_is_one_sentence_with_the_setting_to_look_at(
    what: str, stores: Stores, open_in: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, change, error, look = WRONG[what]
    if "Java" in what:
        monkeypatch.setattr(workbench, "refuse_unusable", lambda settings: None)
    if what == "an unknown database":
        change = {"uri": f"{stores.database}_nowhere"}
    if what == "a wrong path":
        change = {"uri": f"{stores.rest.uri}/nowhere"}
    lake = open_in(stores.settings(kind, **{"s3.retry.num-retries": "0", **change}))
    name = TableId(f"wrong_{uuid4().hex[:8]}", "orders")
    with pytest.raises(CdcError) as raised:
        lake.run(CreateTable(Life(name, 100), 100, name, SCHEMA))
    assert isinstance(raised.value, error)
    assert look in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "\tat " not in str(raised.value)
    assert "000000" not in str(raised.value)


def test_a_missing_bucket_is_reported_by_name(stores: Stores, open_in: Open) -> None:
    settings = stores.settings("postgres", **{"s3.retry.num-retries": "0"})
    lake = open_in(settings.model_copy(update={"warehouse": f"s3://{BUCKET}-nowhere/x"}))
    name = TableId(f"wrong_{uuid4().hex[:8]}", "orders")
    with pytest.raises(BadSettings, match=r"lake\.warehouse"):
        lake.run(CreateTable(Life(name, 100), 100, name, SCHEMA))


@pytest.mark.soak
def test_a_name_that_a_metastore_refuses_holds_its_table_and_no_other(stores: Stores, open_in: Open) -> None:
    lake, namespace = open_in(stores.settings("hive")), f"named_{uuid4().hex[:8]}"
    with pytest.raises(TableHeld, match="refuses a name"):
        Source(lake, TableId(namespace, "a-b")).apply(200, [("I", 110, 1, "x")])
    fits = Source(lake, TableId(namespace, "a_b"))
    fits.apply(200, [("I", 110, 1, "x")])
    assert fits.rows() == [(1, "x")]


@pytest.mark.soak
def test_threads_ask_a_metastore_at_once_and_one_that_is_dead_is_passed_over(stores: Stores, open_in: Open) -> None:
    uri = f"thrift://127.0.0.1:9,{stores.hive}"
    lake, namespace = open_in(stores.settings("hive", uri=uri)), f"many_{uuid4().hex[:8]}"
    for name in ("a", "b"):
        Source(lake, TableId(namespace, name)).apply(200, [("I", 110, 1, name)])
    with ThreadPoolExecutor(8) as pool:
        looks = list(pool.map(lambda _: dict(lake.state.entries()), range(64)))
    assert all({(namespace, "a"), (namespace, "b")} <= set(look) for look in looks)
    assert len({frozenset(look.items()) for look in looks}) == 1


@pytest.mark.soak
def test_a_lock_that_a_killed_process_left_in_a_metastore_is_named_with_the_way_to_remove_it(
    stores: Stores, open_in: Open
) -> None:
    from hive_metastore import ttypes as hive

    lake, namespace = open_in(stores.settings("hive", **{"hadoop.iceberg.hive.lock-timeout-ms": 300})), own_names()[:8]
    table = Source(lake, TableId(f"locked_{namespace}", "a"))
    table.apply(200, [("I", 110, 1, "x")])
    component = hive.LockComponent(
        type=hive.LockType.EXCLUSIVE, level=hive.LockLevel.TABLE, dbname=f"locked_{namespace}", tablename="a"
    )
    catalog: Any = lake.state.catalog
    with catalog._client as client:
        left = client.lock(hive.LockRequest(component=[component], user="killed", hostname="elsewhere"))
    with pytest.raises(StepFailed, match=rf"HL_DB = 'locked_{namespace}' AND HL_TABLE = 'a'"):
        table.apply(300, [("I", 210, 2, "y")])
    with catalog._client as client:
        client.unlock(hive.UnlockRequest(lockid=left.lockid))
    table.apply(300, [("I", 210, 2, "y")])
    assert table.rows() == [(1, "x"), (2, "y")]


# --- names ------------------------------------------------------------------------------------------------------------


def test_the_lakes_own_namespaces_may_begin_with_a_letter(stores: Stores, open_in: Open) -> None:
    settings = stores.settings("postgres").model_copy(update={"namespaces": "cdc"})
    lake = open_in(settings)
    orders = Source(lake, TableId("shop", "orders"))
    orders.apply(200, [("I", 110, 1, "a")])
    lake.run(DropTable(orders.life, 300))
    assert {namespace for namespace, _ in dict(lake.state.entries())} == {"cdc_dropped"}


def test_a_catalog_that_keeps_names_in_lower_case_is_given_them_so(stores: Stores, open_in: Open) -> None:
    lake = open_in(stores.settings("glue"))
    orders = Source(lake, TableId(f"Case_{lake.changefeed}", "Orders"))
    orders.apply(200, [("I", 110, 1, "a")])
    lake.apply_renames()
    assert lake.state.find(orders.life).identifier == (f"case_{lake.changefeed}", "orders")
    assert json.dumps(orders.rows()) == '[[1, "a"]]'
