"""One Spark session and one of each server for all tests, lakes that come and go, and Dagster instances."""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from cdc_assets.jvm.java import spark_conf
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.cases import in_turn
from cdc_assets_tests.durations import Recorder
from cdc_assets_tests.writer import TOMLS

if TYPE_CHECKING:
    from dagster import DagsterInstance
    from pyspark.sql import SparkSession

    from cdc_assets.lake import Lake
    from cdc_assets_tests.command_line import Commands
    from cdc_assets_tests.kafka_broker import Broker
    from cdc_assets_tests.mariadb import Server
    from cdc_assets_tests.servers.lakes import Stores
    from cdc_assets_tests.servers.object_store import ObjectStore


def pytest_configure(config: pytest.Config) -> None:
    """PySpark leaves the sockets of `collect` to the garbage collector; a busy machine is not a failed property."""
    gc.disable()  # until all is collected
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
    is_soak = _is_soak(config)
    settings.register_profile(
        "busy",
        deadline=None,
        max_examples=100 if is_soak else 25,
        derandomize=not is_soak,  # a run of `make test` fails by what changed, one of `make soak` by what it finds
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("busy")
    config.pluginmanager.register(Recorder(), "durations")
    _share_compiled_statements()
    if config.getoption("numprocesses", None) and (place := _memory()):
        config.stash[PLACE] = Path(tempfile.mkdtemp(prefix="cdc_assets_tests_", dir=place))
        config.stash[PLACE].chmod(0o711)  # Postgres runs as another user
        os.environ["TMPDIR"] = tempfile.tempdir = str(config.stash[PLACE])
    if not spark_conf("spark-defaults.conf").exists():
        os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark_conf")


def _is_soak(config: pytest.Config) -> bool:
    return not config.option.markexpr


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Let one process of a shared run collect first: the others find unpacked and compiled what it needed."""
    if not hasattr(session.config, "workerinput"):
        return (yield)
    collected = Path(tempfile.gettempdir(), f"cdc_assets_collected_{session.config.workerinput['testrunuid']}")
    with in_turn(collected.with_suffix(".lock")):
        if not collected.exists():
            yield
            collected.touch()
            return None
    return (yield)


def pytest_collection_finish() -> None:
    """Leave all that was imported and collected out of garbage collection, which took a fifteenth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give it back as the process ends, for libraries that count then what is left, and the memory."""
    atexit.register(gc.unfreeze)
    if PLACE in config.stash:
        shutil.rmtree(config.stash[PLACE], ignore_errors=True)


PLACE = pytest.StashKey[Path]()
"""Where the files of a shared run are: in memory. Databases wait for a disk at each of their thousands of commits."""


def _memory() -> Path | None:
    """Return a directory in memory with room for all that tests write (half a gigabyte) and build; None for none."""
    place = Path("/dev/shm")
    if sys.platform != "linux" or not os.access(place, os.W_OK):
        return None
    facts = os.statvfs(place)
    fits = facts.f_bavail * facts.f_frsize > 4 << 30 and not facts.f_flag & os.ST_NOEXEC
    return place if fits else None


def _share_compiled_statements() -> None:
    """Let all databases of a process have what SQLAlchemy compiles for one: each test has several of its own."""
    import sqlalchemy as sa
    from sqlalchemy.engine.default import DefaultDialect
    from sqlalchemy.util import LRUCache

    def is_alike(dialect: DefaultDialect, other: object) -> bool:
        return type(dialect) is type(other)

    patches = {"__eq__": is_alike, "__hash__": lambda dialect: hash(type(dialect))}
    for name, method in patches.items():
        setattr(DefaultDialect, name, method)
    sa.Engine._execution_options = sa.util.immutabledict({"compiled_cache": LRUCache[Any, Any](5000)})


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share files out to processes: each group of TOGETHER to one, every other file to any."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    def group(nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        path = config.rootpath / file
        name = next((group for group, words in TOGETHER.items() if _uses(path, words)), file)
        return f"{name} in lake/" if name == "spark" and path.parent.name == "lake" else name

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = group
    return scheduler


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the processes of a shared run begin with what takes longest: Spark, and what waits for other processes."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: 0 if _uses_spark(item.path) else 1 if item.path.name in LONG else 2)


LONG = ("test_daemon.py",)
"""What waits for processes of its own."""


TOGETHER = {
    "spark": r"\b(spark: SparkSession|open_lake: Callable|lake: Lake|run: Commands)\b",
    "broker": r"\bbroker: Broker\b",
    "database": r"\bmariadb: Server\b",
    "code": r"\b(package_code|hold_reasons|test_house) import\b",
}
"""Files that share what is costly to make: a group, and the words by which its files are known.

Those of Spark share a JVM, those of a broker or a database a server, and those that read the package's code its trees.
Spark has two groups, the files of `lake/` and all others: one alone took longer than all the rest in two processes.
"""


def _uses_spark(file: Path) -> bool:
    return _uses(file, TOGETHER["spark"])


@cache
def _uses(file: Path, words: str) -> bool:
    return re.search(words, file.read_text()) is not None


CLOUDS = {"gcp": ("gcs", "Google"), "azure": ("azure", "Azure")}
"""Jars of a client that `make servers` does not fetch, as `make test` needs none -> names of soak tests that do."""


def _clouds_of(items: list[pytest.Item]) -> list[str]:
    names = [item.name for item in items if item.get_closest_marker("soak")]
    return [jars for jars, words in CLOUDS.items() if any(word in name for name in names for word in words)]


@pytest.fixture(scope="session")
def tomls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The changefeed's TOML of each rendering."""
    directory = tmp_path_factory.mktemp("changefeeds")
    for name, text in TOMLS.items():
        (directory / f"{name}.toml").write_text(text)
    return {name: directory / f"{name}.toml" for name in TOMLS}


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark with Iceberg. Every step names its own catalog, so one session serves all lakes.

    Its JVM cannot load more jars once it runs, so those that some test needs are there before. It knows the addresses
    of this machine only: whoever looks up another name gets an error. In `make test` it interprets its plans: to
    generate and compile Java for each costs more than to carry it out on a few rows. The soak has what users have.
    """
    from cdc_assets.jvm.jars import fetch_jars
    from cdc_assets.lake import spark_session
    from cdc_assets.lake.spark.session import spark_configuration
    from cdc_assets_tests.own_aliases import checked_statements

    fetch_jars(_clouds_of(request.session.items))
    directory = tmp_path_factory.mktemp("spark")
    lake_settings, hosts = LakeSettings.from_warehouse(directory), directory / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n")
    options = spark_configuration(lake_settings)["spark.driver.extraJavaOptions"]
    interpreted = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    session = spark_session(
        lake_settings,
        **{
            "spark.driver.extraJavaOptions": f"{options} -Djdk.net.hosts.file={hosts}",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(directory / "unused"),
            **({} if _is_soak(request.config) else interpreted),
        },
    )
    with checked_statements():
        yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A Kafka broker that all tests of a process share: each makes topics of its own. It may answer late."""
    from cdc_assets.sources.topics.kafka import reader
    from cdc_assets_tests.kafka_broker import PATIENCE_SECONDS, running_broker

    with running_broker() as running, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "ANSWER_SECONDS", PATIENCE_SECONDS)
        yield running


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """A MariaDB server that all tests of a process share: each makes databases of its own."""
    from cdc_assets_tests.mariadb import running_server

    with running_server() as running:
        yield running


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3 object store with one bucket; each test has a prefix of its own."""
    from cdc_assets_tests.servers.object_store import object_store

    with object_store(tmp_path_factory.mktemp("store") / "home") as running:
        yield running


@pytest.fixture(scope="session")
def stores(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Lakes in that store; a catalog's server starts when a lake first needs it."""
    from cdc_assets_tests.servers.lakes import Stores

    with ExitStack() as running:
        yield Stores(store, tmp_path_factory.mktemp("catalogs"), running)


@pytest.fixture
def open_lake(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Lake]]:
    """Open lakes in one warehouse: each call is another writer."""
    from cdc_assets.lake import Lake

    opened: list[Lake] = []

    def open_one(changefeed: str = "default", namespace: str = "{schema}") -> Lake:
        lake_settings = LakeSettings.from_warehouse(tmp_path / "lake")
        opened.append(Lake(lake_settings, changefeed, lambda: spark, namespace))
        return opened[-1]

    yield open_one
    for lake in opened:
        lake.close()


@pytest.fixture
def lake(open_lake: Callable[..., Lake]) -> Lake:
    """A lake in a fresh warehouse."""
    return open_lake()


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Commands]:
    """Commands of the command line in this process and on its session."""
    from cdc_assets_tests.command_line import commands_here

    with commands_here(spark, monkeypatch, capsys) as commands:
        yield commands


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Commands in this process, of which none comes to need Spark."""
    from cdc_assets_tests.command_line import commands_without_spark

    return commands_without_spark(monkeypatch, capsys)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let this thread not wait between its attempts; the list gets the seconds of each pause. Other threads do wait."""
    pauses, sleep, own = list[float](), time.sleep, threading.current_thread()

    def passed(seconds: float) -> None:
        if threading.current_thread() is own:
            pauses.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", passed)
    return pauses


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    """A Dagster instance in a directory of its own."""
    from dagster import instance_for_test

    with instance_for_test() as made:
        yield made


@pytest.fixture(params=["threads of the driver", "executors"])
def several_tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file of a window be read by a task of its own."""
    from cdc_assets.lake.staging import stage

    for limit in ("_SMALL_BYTES", "_ONCE_BYTES"):
        monkeypatch.setattr(stage, limit, 0)
    monkeypatch.setattr(stage, "_SHARE_BYTES", 1)
    here = request.param != "executors"
    monkeypatch.setattr(stage.Engine, "reads_here", lambda self, step, options: here)
