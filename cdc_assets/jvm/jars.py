"""The jars that Spark loads beside its own, and how they are fetched once (`cdc-assets setup [EXTRA …]`).

They are resolved by the Ivy inside Spark, so a mirror that Spark knows of (`DEFAULT_ARTIFACT_REPOSITORY`, or
`spark.jars.ivySettings` in the `spark-defaults.conf` of `SPARK_CONF_DIR`) serves here too, and a local Maven
repository is looked at first. What arrives must have the pinned checksum. Sessions then load the files by path: no
network, and six seconds less than resolving them at every start.

JARS are what every lake needs. EXTRAS are what some stores and catalogs need besides, by name. All are kept in
`jar_dirs`. A person at a terminal gets missing ones when they are first needed; other processes are refused at once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zipfile import ZipFile

from cdc_assets.errors import SetupError
from cdc_assets.jvm.java import prepare_environment, share_dirs, spark_home, user_cache, writable_share_dir

DIRECTORY_VARIABLE = "CDC_ASSETS_JARS"
"""The environment variable that names a directory of jars: the first one to be searched, and where jars are fetched."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar by its Maven coordinates `group:artifact:version`, with the SHA-256 of its bytes, and its size if known."""

    coordinates: str
    sha256: str
    megabytes: int = 0

    @property
    def file_name(self) -> str:
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"


JARS = (
    Jar(
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
        48,
    ),
    Jar(
        "org.xerial:sqlite-jdbc:3.53.0.0",
        "303e8150100982f2ed7d1b82d897278ef7744bd494c28ad4e7042b7914591697",
        12,
    ),
)
"""Iceberg for Spark 4.1, and the driver of the catalog that needs no service."""


EXTRAS = {
    "aws": (
        Jar(
            "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
            "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
            69,
        ),
    ),
    "gcp": (
        Jar(
            "org.apache.iceberg:iceberg-gcp-bundle:1.11.0",
            "d9248fc76d94d232e153bf760631229cd3b7c6bc3b20f47d4b2caffe011a8a2f",
            64,
        ),
    ),
    "azure": (
        Jar(
            "org.apache.iceberg:iceberg-azure-bundle:1.10.0",
            "f143be94b94bb380e76d1c45ee9a63e143f4a7f813c6aa1ed72f5bfd44f52d05",
            19,
        ),
    ),
    "postgres": (
        Jar(
            "org.postgresql:postgresql:42.7.8",
            "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
            1,
        ),
    ),
}
"""Iceberg's own bundles of a cloud's client by its name, and drivers of databases that hold a catalog.

A bundle is the client alone: what calls it is in Iceberg for Spark. Of Google's and Azure's these are the newest
that a registry serves.
"""


def jar_dirs() -> tuple[Path, ...]:
    """Return the directories that may hold jars, in the order in which they are searched."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    places = [place / "jars" for place in share_dirs()]
    return (Path(named).expanduser(), *places) if named else tuple(places)


def spark_jars() -> tuple[Path, ...]:
    """Return the paths of JARS, for `spark.jars`. Raises SetupError when they were never fetched."""
    return jar_paths(JARS)


def needed_jars(extras: Iterable[str]) -> tuple[Path, ...]:
    """Return the paths of these EXTRAS' jars. Raises SetupError when one was never fetched."""
    return jar_paths(_jars_of(extras))


def extra_jars() -> tuple[Path, ...]:
    """Return the paths of all jars of EXTRAS that are here."""
    paths = (_find(jar) for jars in EXTRAS.values() for jar in jars)
    return tuple(path for path in paths if path is not None)


def jar_paths(jars: Sequence[Jar]) -> tuple[Path, ...]:
    """Return the paths of fetched jars. Raises SetupError if one was not fetched, with the command that fetches it."""
    paths = [_find(jar) for jar in jars]
    missing = [jar for jar, path in zip(jars, paths, strict=True) if path is None]
    if missing:
        extras = [name for name, group in EXTRAS.items() if any(jar in missing for jar in group)]
        raise SetupError(
            f"jars that Spark needs are missing: {', '.join(jar.file_name for jar in missing)}. Fetch them once, with "
            f"network: {' '.join(['cdc-assets setup', *extras])}. Looked in "
            f"{', '.join(map(str, jar_dirs()))}; {DIRECTORY_VARIABLE} may name another directory that has them."
        )
    return tuple(path for path in paths if path is not None)


def ready_jars(extras: Iterable[str] = ()) -> None:
    """Fetch missing ones of JARS and of these EXTRAS for a person at a terminal.

    Raises SetupError: elsewhere for a missing jar, at a terminal for one that cannot be fetched; JavaMissing.
    """
    jars = [*JARS, *_jars_of(extras)]
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        fetch([jar for jar in jars if _find(jar) is None])
    jar_paths(jars)


def fetch_jars(extras: Iterable[str] = ()) -> tuple[Path, ...]:
    """Fetch what is missing of JARS and of these EXTRAS and return the paths of all. Raises SetupError, JavaMissing."""
    if unknown := [extra for extra in extras if extra not in EXTRAS]:
        raise SetupError(f"there are no jars called {unknown[0]!r}; known are {', '.join(EXTRAS)}.")
    return fetch([*JARS, *_jars_of(extras)])


def fetch(jars: Sequence[Jar]) -> tuple[Path, ...]:
    """Fetch the missing ones of some jars and return the paths of all; existing whole files are not fetched again.

    A directory that CDC_ASSETS_JARS names has all of them afterwards: those of other directories are copied. A file
    gets its name only after its checksum was verified, so an interrupted fetch leaves no wrong file. Raises SetupError
    with Ivy's messages, JavaMissing.
    """
    missing = [jar for jar in jars if not _is_whole(_find(jar), jar)]
    if missing:
        target = _target()
        with tempfile.TemporaryDirectory(dir=target) as ivy:
            output = _resolve(missing, ivy, _Progress(missing, Path(ivy)).show)
            for jar in missing:
                arrived = next(Path(ivy, "jars").glob(f"*_{jar.file_name}"), None)
                if not _is_whole(arrived, jar):
                    raise SetupError(_explain(jar, arrived, target, output, missing))
                shutil.move(str(arrived), target / jar.file_name)
        print(f"{', '.join(jar.file_name for jar in missing)}: in {target}", file=sys.stderr)
    for path in jar_paths(jars) if os.environ.get(DIRECTORY_VARIABLE) else ():
        if path.parent != jar_dirs()[0]:
            with tempfile.TemporaryDirectory(dir=_target()) as directory:
                shutil.move(shutil.copy(path, directory), _target() / path.name)
    return jar_paths(jars)


def _jars_of(extras: Iterable[str]) -> list[Jar]:
    return [jar for extra in extras for jar in EXTRAS[extra]]


def _target() -> Path:
    """Return the directory for new jars: the named one, the user's cache, or one beside the installation."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    places = [Path(named).expanduser()] if named else [user_cache() / "jars", *jar_dirs()]
    for place in places:
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
        if os.access(place, os.W_OK):
            return place
    raise SetupError(
        f"jars cannot be stored: {' and '.join(map(str, dict.fromkeys(places)))} cannot be written. Let "
        f"{DIRECTORY_VARIABLE} name a directory that can."
    )


class _Progress:
    """Download progress of jars, on a line that is rewritten; at a terminal only."""

    def __init__(self, jars: Sequence[Jar], directory: Path) -> None:
        self._directory = directory
        self._total = sum(jar.megabytes for jar in jars) if all(jar.megabytes for jar in jars) else 0
        self._lives = sys.stderr.isatty()
        size = f" ({self._total} MB)" if self._total else ""
        names = ", ".join(jar.file_name for jar in jars)
        print(f"fetching {names}{size} by Spark's Ivy, once", file=sys.stderr, flush=True)

    def show(self, ended: bool) -> None:
        """Show the share that has arrived by now."""
        if not self._lives:
            return
        arrived = 0
        for file in self._directory.glob("cache/**/*.jar*"):
            with suppress(OSError):
                arrived += file.stat().st_size
        text = f"{arrived / 1e6:.0f} MB" + (f" of {self._total} MB" if self._total else "")
        print(f"\r  {text}", end="\n" if ended else "", file=sys.stderr, flush=True)


def _find(jar: Jar) -> Path | None:
    return next((path for place in jar_dirs() if (path := place / jar.file_name).exists()), None)


def _is_whole(path: Path | None, jar: Jar) -> bool:
    return path is not None and hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


def _resolve(jars: list[Jar], ivy: str, show: Callable[[bool], None]) -> str:
    """Let Spark resolve the jars into `ivy`/jars by submitting an empty program; return its output.

    `show` is called every half second, and with true at the end.
    """
    prepare_environment()
    nothing = Path(__file__).with_name("__init__.py")
    options = {
        "--master": "local[1]",
        "--packages": ",".join(jar.coordinates for jar in jars),
        "--conf": f"spark.jars.ivy={ivy}",
        "--driver-java-options": " ".join(["-Djava.awt.headless=true", *_proxy_options()]),
    }
    command = [str(spark_home() / "bin" / "spark-submit")]
    for option in options.items():
        command += option
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen([*command, str(nothing)], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)
                show(process.poll() is not None)
        finally:
            process.kill()
        output.seek(0)
        return output.read()


def _proxy_options() -> list[str]:
    """Translate the proxy variables that pip reads into Java's properties, which are all that Ivy knows."""
    options = []
    for scheme in ("http", "https"):
        address = _environment(f"{scheme}_proxy")
        proxy = urlsplit(address if "//" in address else f"//{address}")
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    if options:
        direct = [host.strip() for host in _environment("no_proxy").split(",") if host.strip()]
        options.append("-Dhttp.nonProxyHosts=" + "|".join(f"*{host}" if host[0] == "." else host for host in direct))
    return options


def _environment(name: str) -> str:
    return os.environ.get(name) or os.environ.get(name.upper()) or ""


def _explain(jar: Jar, arrived: Path | None, target: Path, output: str, missing: Sequence[Jar]) -> str:
    if arrived is not None:
        return (
            f"{jar.file_name} was fetched with another SHA-256 than the pinned {jar.sha256}: a repository or a proxy "
            f"changed it. Put the right file into {target} yourself, or use another repository."
        )
    lines = list(dict.fromkeys(line.strip(": \t") for line in output.splitlines() if _TELLING.search(line)))
    reason = "\n  ".join(lines[:8] or output.splitlines()[-8:] or ["Spark printed nothing"])
    return (
        f"Spark could not fetch {jar.coordinates}:\n  {reason}\n"
        "It looks in the local Maven repository and in Maven Central. With a mirror, set DEFAULT_ARTIFACT_REPOSITORY "
        f"to its address; with a proxy, HTTPS_PROXY. Without network, copy into {target} what "
        f"`cdc-assets setup` fetched on another machine: {', '.join(jar.file_name for jar in missing)}. Then run the "
        "same command again."
    )


_TELLING = re.compile(
    r"not found|unresolved|refused|timed out|timeout|PKIX|certificate|Exception|status code", re.IGNORECASE
)


LOCAL_FILES = "cdc_assets.LocalFiles"
_SOURCE = Path(__file__).with_name("LocalFiles.java")


def local_files_jars() -> list[Path]:
    """Return the jar as a list; an empty one where it was not made: Java then writes files by Hadoop's own class."""
    jars = (place / "jars" / local_files_name() for place in share_dirs())
    return [jar for jar in jars if jar.exists()][:1]


def make_local_files(jvm: Any) -> None:
    """Create the jar if it does not exist, in a JVM that has Spark's jars. Raises SetupError."""
    if local_files_jars():
        return
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_SOURCE.read_text(encoding="utf-8"))
    target = writable_share_dir() / "jars" / local_files_name()
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        made = Path(place, target.name)
        with ZipFile(made, "w") as jar:
            for name, code in dict(compiler.getBytecodes()).items():
                jar.writestr(f"{name.replace('.', '/')}.class", bytes(code))
        os.replace(made, target)


def local_files_name() -> str:
    """Return the jar's file name, which has a digest of its source."""
    return f"local-files-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:20]}.jar"
