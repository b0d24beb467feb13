"""The wheel, installed into an environment of its own outside of the checkout: nothing of the checkout is needed there.

The dependencies are those of the tests' environment, and so is the JVM's archive of classes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from cdc_assets.jvm.jars import spark_jars
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.package_code import PACKAGE, ROOT

PROJECT = """\
from pathlib import Path

import dagster as dg

import cdc_assets
from cdc_assets.defs import build_changefeed_defs

HERE = Path(__file__).parent
assert Path(cdc_assets.__file__).is_relative_to(HERE.parent), cdc_assets.__file__


@dg.definitions
def defs() -> dg.Definitions:
    built = build_changefeed_defs(
        name="built", sink_uri={sink_uri!r}, changefeed_config={toml!r}, lake=HERE / "lake_of_built"
    )
    return dg.Definitions.merge(built, dg.load_from_defs_folder(path_within_project=HERE / "shop" / "defs"))
"""
COMPONENT = """\
type: cdc_assets.Changefeed
attributes:
  name: component
  sink_uri: "{sink_uri}"
  changefeed_config: {toml}
  lake: {{warehouse: lake_of_component}}
"""
LOADS = """\
import dagster as dg

from project import defs

with dg.DagsterInstance.ephemeral() as instance:
    for job in ("built_catch_up", "component_catch_up"):
        loaded = defs().get_job_def(job).execute_in_process(instance=instance)
        assert loaded.success
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(PACKAGE, source / "cdc_assets", ignore=shutil.ignore_patterns("__pycache__"))
    build = "from setuptools import build_meta; build_meta.build_wheel('dist')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", build], cwd=source, check=True, capture_output=True)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def place(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the environment `venv`, in which the wheel is installed."""
    place = tmp_path_factory.mktemp("elsewhere")
    venv.create(place / "venv", with_pip=False)
    python = place / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install"]
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    (site,) = (place / "venv").glob("lib/python3*/site-packages")
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return place


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> LittleFeed:
    """A bucket with a table of two rows."""
    feed = LittleFeed(tmp_path_factory.mktemp("feed"))
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + 1, 1, "a"), ("I", FIRST + 2, 2, "b")])
    feed.publish(FIRST + 10)
    return feed


def run(place: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment, without a terminal and with nothing of this one's variables about Python."""
    left = ("PYTHON", "CDC_ASSETS", "DAGSTER")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left)}
    environment |= {"XDG_CACHE_HOME": str(place / "cache"), **variables}
    return subprocess.run(
        [str(place / "venv" / "bin" / command[0]), *command[1:]],
        cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def with_jars() -> dict[str, str]:
    """Return the variables that let an environment use the jars, and the archive of classes, of this one."""
    return {"XDG_CACHE_HOME": str(spark_jars()[0].parents[2])}


def apply(feed: LittleFeed, lake: str) -> list[str]:
    uri = f"file://{feed.bucket}?protocol=csv"
    return ["cdc-assets", "apply", "--sink-uri", uri, "--config", str(feed.toml), "--warehouse", lake]


def test_the_wheel_holds_all_that_runs(wheel: Path) -> None:
    ours = {path.relative_to(ROOT) for path in PACKAGE.rglob("*") if path.is_file()}
    shipped = {path.as_posix() for path in ours if not re.search(r"__pycache__|/\.", path.as_posix())}
    assert shipped <= set(zipfile.ZipFile(wheel).namelist())


def test_without_jars_nothing_begins_and_the_command_is_said(place: Path, feed: LittleFeed) -> None:
    done = run(place, *apply(feed, "no_lake"))
    assert done.returncode == 2
    assert "cdc-assets setup" in done.stderr
    assert not (place / "no_lake").exists()


@pytest.mark.soak  # the project below applies both feeds, and the command starts above
def test_a_bucket_is_applied_from_the_command_line(place: Path, feed: LittleFeed) -> None:
    done = run(place, *apply(feed, "lake"), **with_jars())
    assert done.returncode == 0, done.stderr
    assert "shop.orders" in run(place, "cdc-assets", "status", "--warehouse", "lake").stdout


def test_a_project_loads_by_the_function_and_by_the_component(place: Path, feed: LittleFeed) -> None:
    paths = {"sink_uri": f"file://{feed.bucket}?protocol=csv", "toml": str(feed.toml)}
    (place / "project.py").write_text(PROJECT.format(**paths))
    folder = place / "shop" / "defs" / "orders"
    folder.mkdir(parents=True)
    (place / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "shop"\n'
    )
    for package in (place / "shop", place / "shop" / "defs"):
        (package / "__init__.py").write_text("")
    (folder / "defs.yaml").write_text(COMPONENT.format(**paths))
    home = place / "home"
    home.mkdir()
    validated = run(
        place, "python", "-m", "dagster", "definitions", "validate", "-m", "project", DAGSTER_HOME=str(home)
    )
    assert validated.returncode == 0, validated.stderr
    loaded = run(place, "python", "-c", LOADS, **with_jars())
    assert loaded.returncode == 0, loaded.stderr
    for lake in (place / "lake_of_built", folder / "lake_of_component"):
        assert "shop.orders" in run(place, "cdc-assets", "status", "--warehouse", str(lake)).stdout
