"""The jars that Spark loads beside its own, and `python -m cdc_assets.jvm.jars [EXTRA …]`, which fetches them once.

They are resolved by the Ivy inside Spark, so a mirror that Spark knows of (`DEFAULT_ARTIFACT_REPOSITORY`, or
`spark.jars.ivySettings` in the `spark-defaults.conf` of `SPARK_CONF_DIR`) serves here too, and a local Maven
repository is looked at first. What arrives must have the pinned checksum. Sessions then load the files by path: no
network, and six seconds less than resolving them at every start.

JARS are what every lake needs. EXTRAS are what some stores and catalogs need besides: fetched by name, or when a lake
first needs them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cdc_assets.errors import SetupError
from cdc_assets.jvm.java import prepare_environment, share_dirs, spark_home, writable_share_dir


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar by its Maven coordinates `group:artifact:version`, with the SHA-256 of its bytes."""

    coordinates: str
    sha256: str

    @property
    def file_name(self) -> str:
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"


JARS = (
    Jar(
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    Jar(
        "org.xerial:sqlite-jdbc:3.53.0.0",
        "303e8150100982f2ed7d1b82d897278ef7744bd494c28ad4e7042b7914591697",
    ),
)
"""Iceberg for Spark 4.1, and the driver of the catalog that needs no service."""


EXTRAS = {
    "aws": (
        Jar(
            "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
            "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
        ),
    ),
    "gcp": (
        Jar(
            "org.apache.iceberg:iceberg-gcp-bundle:1.11.0",
            "d9248fc76d94d232e153bf760631229cd3b7c6bc3b20f47d4b2caffe011a8a2f",
        ),
    ),
    "azure": (
        Jar(
            "org.apache.iceberg:iceberg-azure-bundle:1.10.0",
            "f143be94b94bb380e76d1c45ee9a63e143f4a7f813c6aa1ed72f5bfd44f52d05",
        ),
    ),
    "postgres": (
        Jar(
            "org.postgresql:postgresql:42.7.8",
            "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
        ),
    ),
}
"""Iceberg's own bundles of a cloud's client by its name, and drivers of databases that hold a catalog.

A bundle is the client alone: what calls it is in Iceberg for Spark. Of Google's and Azure's these are the newest
that a registry serves.
"""


def spark_jars() -> tuple[Path, ...]:
    """Return the paths of JARS, for `spark.jars`. Raises SetupError when they were never fetched."""
    return jar_paths(JARS)


def fetch_jars(extras: Iterable[str] = ()) -> tuple[Path, ...]:
    """Fetch what is missing of JARS and of these EXTRAS and return the paths of all; raises what `fetch` raises."""
    return fetch([*JARS, *(jar for extra in extras for jar in EXTRAS[extra])])


def jar_paths(jars: Sequence[Jar]) -> tuple[Path, ...]:
    """Return the paths of fetched jars. Raises SetupError if one was not fetched."""
    found = [_find(jar) for jar in jars]
    missing = [jar.file_name for jar, path in zip(jars, found, strict=True) if path is None]
    if missing:
        raise SetupError(
            f"jars are missing: {', '.join(missing)}; looked in "
            f"{', '.join(str(place / 'jars') for place in share_dirs())}. "
            f"Run `make setup`, or `{sys.executable} -m cdc_assets.jvm.jars`, once with network."
        )
    return tuple(path for path in found if path is not None)


def extra_jars() -> tuple[Path, ...]:
    """Return the paths of all jars of EXTRAS that are here."""
    found = (_find(jar) for jars in EXTRAS.values() for jar in jars)
    return tuple(path for path in found if path is not None)


def needed_jars(extras: Iterable[str]) -> tuple[Path, ...]:
    """Return the paths of these EXTRAS' jars, fetched when one is not here. Raises SetupError, JavaMissing."""
    wanted = [jar for extra in extras for jar in EXTRAS[extra]]
    missing = [jar for jar in wanted if _find(jar) is None]
    if missing:
        fetch(missing)
    return jar_paths(wanted)


def fetch(jars: Sequence[Jar]) -> tuple[Path, ...]:
    """Fetch the missing ones of some jars and return the paths of all; existing whole files are not fetched again.

    A file gets its name only after its checksum was verified, so an interrupted fetch leaves no wrong file. Raises
    SetupError with Ivy's messages, JavaMissing.
    """
    missing = [jar for jar in jars if not _is_whole(_find(jar), jar)]
    if missing:
        target = writable_share_dir() / "jars"
        target.mkdir(exist_ok=True)
        print(f"fetching {', '.join(jar.file_name for jar in missing)} through Spark's Ivy", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=target) as ivy:
            said = _resolve(missing, ivy)
            for jar in missing:
                arrived = next(Path(ivy, "jars").glob(f"*_{jar.file_name}"), None)
                if not _is_whole(arrived, jar):
                    raise SetupError(_explain(jar, arrived, target, said))
                shutil.move(str(arrived), target / jar.file_name)
    return jar_paths(jars)


def _find(jar: Jar) -> Path | None:
    for place in share_dirs():
        path = place / "jars" / jar.file_name
        if path.exists():
            return path
    return None


def _is_whole(path: Path | None, jar: Jar) -> bool:
    return path is not None and hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


def _resolve(jars: list[Jar], ivy: str) -> str:
    """Let Spark resolve the jars into `ivy`/jars by submitting an empty program; return its output."""
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
    done = subprocess.run(
        [*command, str(nothing)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.stdout


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


def _explain(jar: Jar, arrived: Path | None, target: Path, said: str) -> str:
    if arrived is not None:
        return (
            f"{jar.file_name} was fetched with another SHA-256 than the pinned {jar.sha256}: a repository or a proxy "
            f"changed it. Put the right file into {target} yourself, or use another repository."
        )
    lines = list(dict.fromkeys(line.strip(": \t") for line in said.splitlines() if _TELLING.search(line)))
    reason = "\n  ".join(lines[:8] or said.splitlines()[-8:] or ["Spark said nothing"])
    return (
        f"Spark could not fetch {jar.coordinates}:\n  {reason}\n"
        "It looks in the local Maven repository and in Maven Central. With a mirror, set DEFAULT_ARTIFACT_REPOSITORY "
        f"to its address; with a proxy, HTTPS_PROXY. Without network, put the file {jar.file_name} into {target}. "
        "Then run the same command again."
    )


_TELLING = re.compile(
    r"not found|unresolved|refused|timed out|timeout|PKIX|certificate|Exception|status code", re.IGNORECASE
)


def main(extras: Sequence[str] = ()) -> int:
    """Fetch the jars, those of named EXTRAS too, and print their paths; exit code 2 with the reason if that fails."""
    try:
        if unknown := [extra for extra in extras if extra not in EXTRAS]:
            raise SetupError(f"there are no jars called {unknown[0]!r}; known are {', '.join(EXTRAS)}.")
        paths = fetch_jars(extras)
    except SetupError as error:
        print(f"cdc-assets: {error}", file=sys.stderr)
        return 2
    for path in paths:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
