"""The class by which Java writes local files, and the jar of it, which Spark's own compiler makes once.

Hadoop's own class starts the program chmod twice for each file, which was a third of the CPU of small commits.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from cdc_assets.jvm.java import share_dirs, writable_share_dir

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
