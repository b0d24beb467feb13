"""Directories for what a process has at work, beside processes that remove what killed ones have left."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.io.scratch import remove_left, scratch


def test_a_directory_that_is_taken_for_one_that_was_left_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    flock, removed = fcntl.flock, list[int]()

    def late(lock: Any, how: int) -> None:
        if how == fcntl.LOCK_EX and not removed:
            removed.append(-1)
            removed[0] = remove_left()
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with scratch() as place:
        assert removed == [1]
        assert (place.is_dir(), remove_left()) == (True, 0)
    assert list(tmp_path.iterdir()) == []
