"""Iceberg's reference REST catalog: `RestCatalog.java`, compiled as it starts by the Janino that Spark brings along."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdc_assets.jvm.jars import Jar, needed_jars, spark_jars
from cdc_assets.jvm.java import find_java, share_dirs, spark_home, writable_share_dir

__all__ = ["RestCatalog", "fetch_server_jars", "printed_port", "rest_catalog"]

_PATIENCE_SECONDS = 240

_ICEBERG, _JETTY = "org.apache.iceberg:iceberg-{}:1.11.0", "org.eclipse.jetty:jetty-{}:11.0.26"
JARS = (
    Jar(_ICEBERG.format("api"), "f00675a12ceb6d833bb9c22024823a3e7afdedf7abcefe34719f45b0d211995a"),
    Jar(_ICEBERG.format("aws"), "4cfe4a7ba3a4fb247a29e60c614678c3b7a1e9b4b91f54e0ca3406419c9338f0"),
    Jar(_ICEBERG.format("bundled-guava"), "396d48d93ef5735f2ddef0cf9b3d6968ebd67b64b5cfe753d41c429d3f46a2a1"),
    Jar(_ICEBERG.format("common"), "b2835d00db7c92bdfa728123ad7cdcb488e2f2805c1c51fb9ae94e8bd203bd7d"),
    Jar(_ICEBERG.format("core"), "53b9eb7a8c34fb9958ea7d9a4d19ba5bc96f592d0f05e8625b0778c70b1f0090"),
    Jar(_ICEBERG.format("core") + "-tests", "4284719a5f0eb7db01e9f784a0ed4ca8bacf7d6f9951924143afc083428d8be3"),
    Jar(_JETTY.format("http"), "de738c8cfd5701627b5373c42376453beb8276f989d75e5258e3b1ffe217e938"),
    Jar(_JETTY.format("io"), "ce0ef76071e361d97f102e5cb48928b3cc66ac899d12be3ef0af8d06b4f768a1"),
    Jar(_JETTY.format("security"), "1f0a1b58304741f243e2f6ac694e6506b1e26bb079cfc2baaa3f2a6ed4bf2d9f"),
    Jar(_JETTY.format("server"), "3cc3b203b96c7115151ea94cad8af43c0914bfb6fe20cf2ca8378ec6822fa471"),
    Jar(_JETTY.format("servlet"), "c09469f1045f9e207732692b3bc56e8fe4d0599de52d3bd593927c4a9060e679"),
    Jar(_JETTY.format("util"), "1b61b875a6d40e8fd44cffb307bdb66f3459370a152a50a092a698c3737eeca9"),
    Jar(
        "org.eclipse.jetty.toolchain:jetty-jakarta-servlet-api:5.0.2",
        "efb20997729f32bfa6c8a8319037c353f7ad460d5d49f336bf232998ea2358db",
    ),
    Jar("dev.failsafe:failsafe:3.3.2", "2c5dc879a6dac7ea3a7b29d795e27bd49b8e7908b05c2f3e56053c19d79850f5"),
    Jar(
        "software.amazon.awssdk:apache-client:2.54.17",
        "0b00ae3d55c3d1213ca47b5651dc4c2a0080fc9b6192dde3d53c3da6c1811bcb",
    ),
)
"""What Spark and Iceberg's aws bundle do not bring along. Iceberg 1.11: the test classes of 1.12 are not published."""


@dataclass(frozen=True)
class RestCatalog:
    """A running catalog: its address, and the file in which it notes each request."""

    uri: str
    log: Path

    def requests(self) -> list[str]:
        """Return what was asked so far, each as `METHOD /path status`; a line comes shortly after its answer."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            lines = self.log.read_text().splitlines()
            requests = [line for line in lines if line.startswith(("GET ", "HEAD ", "POST ", "DELETE ", "PUT "))]
            if len(requests) == lines.count("asked"):
                return requests
            assert time.monotonic() < end, lines
            time.sleep(0.01)


def fetch_server_jars(jars: Sequence[Jar] = JARS) -> list[Path]:
    """Fetch what is missing of what a server is made of, this one by default; return the paths of all.

    By the Ivy inside Spark, asked itself: Spark's own way to it cannot name test classes. Raises AssertionError for
    other bytes than the pinned.
    """
    missing = [jar for jar in jars if _found(jar) is None]
    if missing:
        target = writable_share_dir() / "test-jars"
        target.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target) as place:
            output = _retrieved(missing, Path(place))
            for jar in missing:
                arrived = Path(place, jar.file_name)
                assert arrived.exists(), f"{jar.coordinates} did not arrive: {output[-2000:]}"
                assert hashlib.sha256(arrived.read_bytes()).hexdigest() == jar.sha256, f"{arrived.name} is another"
                arrived.replace(target / jar.file_name)
    return [path for path in map(_found, jars) if path is not None]


def _found(jar: Jar) -> Path | None:
    places = (place / "test-jars" / jar.file_name for place in share_dirs())
    return next((place for place in places if place.exists()), None)


def _retrieved(jars: Sequence[Jar], place: Path) -> str:
    """Let Ivy put jars into a directory under their Maven names; return what it said."""
    modules: dict[str, list[Jar]] = {}
    for jar in jars:
        modules.setdefault(jar.coordinates.removesuffix("-tests"), []).append(jar)
    wanted = "".join(_dependency(module, version) for module, version in modules.items())
    (place / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="tests" module="rest"/>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )
    ivy = next((spark_home() / "jars").glob("ivy-*.jar"))
    command = [str(find_java() / "bin" / "java"), "-jar", str(ivy), "-ivy", str(place / "ivy.xml")]
    command += ["-cache", str(place / "cache"), "-retrieve", f"{place}/[artifact]-[revision](-[classifier]).[ext]"]
    if mirror := os.environ.get("DEFAULT_ARTIFACT_REPOSITORY"):
        (place / "settings.xml").write_text(
            '<ivysettings><settings defaultResolver="mirror"/><resolvers><ibiblio name="mirror" m2compatible="true" '
            f'root="{mirror}"/></resolvers></ivysettings>'
        )
        command += ["-settings", str(place / "settings.xml")]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


def _dependency(module: str, jars: Sequence[Jar]) -> str:
    """Return a module with all its jars: of two dependencies on one module Ivy takes the first."""
    group, artifact, version = module.split(":")
    tests = (' m:classifier="tests"' if jar.coordinates.endswith("-tests") else "" for jar in jars)
    artifacts = "".join(f'<artifact name="{artifact}" type="jar" ext="jar"{classifier}/>' for classifier in tests)
    return f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="false">{artifacts}</dependency>'


@contextmanager
def rest_catalog(home: Path, properties: Mapping[str, str]) -> Iterator[RestCatalog]:
    """Run a catalog: `properties` are `name`, `token`, `credential`, `vend.…`, and those of Iceberg's catalog in it."""
    home.mkdir(parents=True, exist_ok=True)
    jars = [*fetch_server_jars(), *spark_jars()[1:], *needed_jars(["aws"]), spark_home() / "jars" / "*"]
    source = Path(__file__).with_name("RestCatalog.java")
    given = {"type": "jdbc", "jdbc.schema-version": "V1", "uri": f"jdbc:sqlite:{home / 'rest.db'}", **properties}
    arguments = home / "java.args"  # where credentials are nobody else's to read
    arguments.write_text(f'-cp\n"{os.pathsep.join(map(str, jars))}"\n')
    command = [str(find_java() / "bin" / "java"), f"@{arguments}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += ["org.codehaus.janino.SimpleCompiler", str(source), "RestCatalog"]
    command += [f"{key}={value}" for key, value in given.items()]
    log = home / "requests"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True)
        try:
            yield RestCatalog(f"http://127.0.0.1:{printed_port(process, log)}", log)
        finally:
            process.kill()
            process.wait()


def printed_port(process: subprocess.Popen[bytes], log: Path) -> int:
    """Wait for a server's line `port N`, the first or after what Java warns of, and return N."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        output = log.read_text()
        assert process.poll() is None, output
        if port := re.search(r"^port (\d+)\n", output, re.MULTILINE):
            return int(port[1])
        time.sleep(0.1)
    raise TimeoutError(log.read_text())
