"""Spark's jars: whole or not there, fetched once, and a reason when they cannot be."""

from __future__ import annotations

import hashlib
import io
import sys
from pathlib import Path

import pytest

from cdc_assets.errors import SetupError
from cdc_assets.jvm import jars
from cdc_assets.jvm.jars import Jar, fetch_jars, ready_jars, spark_jars

CONTENT = b"a jar"
JAR = Jar("org.example:thing_2.13:1.0", hashlib.sha256(CONTENT).hexdigest())
IVY_NAME = "org.example_thing_2.13-1.0.jar"


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An installation that needs one jar and keeps it in a temporary directory."""
    monkeypatch.setattr(jars, "JARS", (JAR,))
    monkeypatch.setattr(jars, "share_dirs", lambda: (tmp_path,))
    monkeypatch.setattr(jars, "user_cache", lambda: tmp_path)
    monkeypatch.delenv("CDC_ASSETS_JARS", raising=False)
    return tmp_path


def repository(monkeypatch: pytest.MonkeyPatch, content: bytes | None, output: str = "") -> list[str]:
    """Let Ivy deliver that content, and return the list of what it was asked for."""
    coordinates: list[str] = []

    def resolve(wanted: list[Jar], ivy: str, show: object) -> str:
        coordinates.extend(jar.coordinates for jar in wanted)
        Path(ivy, "jars").mkdir()
        if content is not None:
            Path(ivy, "jars", IVY_NAME).write_bytes(content)
        return output

    monkeypatch.setattr(jars, "_resolve", resolve)
    return coordinates


def test_a_jar_is_fetched_once(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinates = repository(monkeypatch, CONTENT)
    assert fetch_jars() == fetch_jars() == spark_jars() == (share / "jars" / JAR.file_name,)
    assert coordinates == [JAR.coordinates]


def test_half_a_jar_is_fetched_again(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (share / "jars").mkdir()
    (share / "jars" / JAR.file_name).write_bytes(CONTENT[:2])
    repository(monkeypatch, CONTENT)
    assert fetch_jars()[0].read_bytes() == CONTENT


def test_other_bytes_than_the_pinned_ones_are_refused(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(monkeypatch, b"another jar")
    with pytest.raises(SetupError, match="another SHA-256"):
        fetch_jars()
    assert list((share / "jars").iterdir()) == []


def test_without_network_the_message_has_the_reason_and_the_ways_out(
    share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(monkeypatch, None, "noise\n:::: Host maven.example not found.\nmore noise")
    with pytest.raises(SetupError) as caught:
        fetch_jars()
    assert "Host maven.example not found." in str(caught.value)
    assert "DEFAULT_ARTIFACT_REPOSITORY" in str(caught.value)
    assert str(share / "jars") in str(caught.value)


def test_a_session_without_jars_says_how_to_fetch_them(share: Path) -> None:
    with pytest.raises(SetupError, match=r"thing_2\.13-1\.0\.jar.*cdc-assets setup"):
        spark_jars()


class Terminal(io.StringIO):
    """A standard stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_person_at_a_terminal_gets_what_is_missing(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(monkeypatch, CONTENT)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    ready_jars()
    assert spark_jars() == (share / "jars" / JAR.file_name,)


def test_a_daemon_is_refused_at_once_and_told_the_command(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinates = repository(monkeypatch, CONTENT)
    monkeypatch.setattr(jars, "EXTRAS", {"aws": (Jar("org.example:aws:1.0", "0"),)})
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(SetupError, match="cdc-assets setup aws"):
        ready_jars(["aws"])
    assert coordinates == []


def test_a_named_directory_is_searched_first_and_gets_what_is_fetched(
    share: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "image"
    monkeypatch.setenv("CDC_ASSETS_JARS", str(named))
    repository(monkeypatch, CONTENT)
    assert fetch_jars() == (named / JAR.file_name,)
    (share / "jars").mkdir()
    (share / "jars" / JAR.file_name).write_bytes(CONTENT)
    assert spark_jars() == (named / JAR.file_name,)


def test_a_named_directory_gets_what_another_one_has(
    share: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be copied to a machine without network."""
    coordinates, named = repository(monkeypatch, CONTENT), tmp_path / "image"
    fetch_jars()
    monkeypatch.setenv("CDC_ASSETS_JARS", str(named))
    assert fetch_jars() == (named / JAR.file_name,)
    assert (share / "jars" / JAR.file_name).read_bytes() == (named / JAR.file_name).read_bytes() == CONTENT
    assert [path.name for path in named.iterdir()] == [JAR.file_name]
    assert coordinates == [JAR.coordinates]


def test_jars_that_do_not_exist_are_told_from_those_that_do(share: Path) -> None:
    with pytest.raises(SetupError, match="'gcs'; known are aws, gcp, azure, postgres"):
        fetch_jars(["gcs"])


def test_proxy_variables_become_java_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "localhost, .example")
    assert jars._proxy_options() == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.example",
    ]


def test_without_a_proxy_java_gets_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert jars._proxy_options() == []
