"""Files written to a new place."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_assets.errors import BadSettings, BucketMissing
from cdc_assets.operations.change_files import output


def test_a_directory_that_cannot_be_made_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BucketMissing, match=r"/file is no directory: it is a file, or lies below one\. Name a dir"):
        output(str(tmp_path / "file"), {}).refuse_filled()
    place = output(str(tmp_path / "file" / "out"), {})
    with pytest.raises(BadSettings, match=r"file/out cannot be made a directory: Not a directory\. Give a place"):
        place.put(tmp_path / "file", "changes.csv")
