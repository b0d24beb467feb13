"""The JVM's class-data archive, which is made once (`cdc-assets setup`).

A JVM spends most of its first seconds on reading, checking and linking some twenty thousand classes of Spark and
Iceberg. An archive of them, written at the end of a training run, is mapped into later JVMs as it is. It is bound to
the Java build and to the jars, whose digest is in its name; Java itself refuses one that does not fit and goes on
without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cdc_assets.jvm.jars import local_files_name, spark_jars
from cdc_assets.jvm.java import find_java, share_dirs, spark_home, writable_share_dir

_QUIET = "-Xlog:disable"
"""Java's warning about an archive that does not fit is of no use: it goes on without it."""


def class_data_options() -> list[str]:
    """Return the JVM options that use the archive; none where it was not made. Raises SetupError without jars."""
    name = _file_name()
    for place in share_dirs():
        archive = place / "class-data" / name
        if archive.exists():
            return [quoted_option(f"-XX:SharedArchiveFile={archive}"), _QUIET]
    return []


def quoted_option(option: str) -> str:
    """Return a JVM option as Spark's launcher reads it from a list parted by spaces."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if any(sign in option for sign in " '\"\\") else option


def make_class_data() -> Path | None:
    """Create the archive if it does not exist; return its path, None if this Java cannot write one.

    It gets its name when it is complete, so that concurrent runs see none or all of it. Raises SetupError.
    """
    target = writable_share_dir() / "class-data" / _file_name()
    if target.exists():
        return target
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        made = Path(place, "made.jsa")
        print(
            "creating the JVM's class-data archive, which speeds up later starts of Spark: half a minute or more "
            "(setup --jars-only leaves it out)",
            file=sys.stderr,
        )
        command = [
            sys.executable,
            "-m",
            "cdc_assets.lake.spark.training",
            place,
            quoted_option(f"-XX:ArchiveClassesAtExit={made}"),
            _QUIET,
        ]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if not made.exists():
            return None
        os.replace(made, target)
    for old in target.parent.glob("*.jsa"):
        if old != target:
            with contextlib.suppress(OSError):
                old.unlink()
    return target


def _file_name() -> str:
    """Return a name for the Java build and the jars on the class path, by a digest of their identities."""
    java = find_java()
    release = java / "release"
    parts = [str(java), release.read_text() if release.exists() else "", local_files_name()]  # training makes that too
    for jar in [*sorted(spark_home().glob("jars/*.jar")), *spark_jars()]:
        stat = jar.stat()
        parts.append(f"{jar} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20] + ".jsa"
