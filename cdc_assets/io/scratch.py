"""Directories of this machine for what a process has at work, and those that killed processes have left.

They have rows in them. Each is locked for as long as its process lives, in whatever container that is, so one that
nobody has locked may be removed by whoever finds it.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SCRATCH = "cdc-assets-"
"""The beginning of their names, in the directory for temporary files (TMPDIR)."""

_LOCK = "lock"


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a new directory, which is removed afterwards with what is in it."""
    while True:
        with tempfile.TemporaryDirectory(prefix=SCRATCH, ignore_cleanup_errors=True) as directory:
            place = Path(directory, "files")
            with Path(directory, _LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                try:
                    place.mkdir()
                except FileNotFoundError:  # another process took it for one that was left, before it was locked
                    continue
                yield place
                return


def remove_left() -> int:
    """Remove the directories of processes that were killed, and return how many."""
    removed = 0
    for directory in sorted(Path(tempfile.gettempdir()).glob(f"{SCRATCH}*")):
        # Without a lock it is made just now; locked, of another user, or removed by its owner it is not left.
        with suppress(OSError), (directory / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory)
            removed += 1
    return removed
