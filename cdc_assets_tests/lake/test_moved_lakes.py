"""A lake that is one directory names its files by full paths: elsewhere it is refused, and touches nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from cdc_assets.errors import BadSettings
from cdc_assets.lake.state import LakeState
from cdc_assets.settings.lake import LakeSettings


def lake_at(directory: Path) -> Path:
    """Return the directory of a lake with a table."""
    state = LakeState(LakeSettings.from_warehouse(directory), "shop")
    catalog = state.lazy_catalog.make()
    catalog.create_namespace("default")
    catalog.create_table("default.t", Schema(NestedField(1, "id", IntegerType())))
    state.close()
    return directory


def linked(old: Path, new: Path) -> None:
    old.rename(new)
    old.symlink_to(new)


def reached_by_a_link(old: Path, new: Path) -> None:
    new.symlink_to(old)


WRONG: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "copied": (shutil.copytree, "{new} is a copy of {old}: "),
    "moved": (Path.rename, "{new} was made at {old}, and names its files by that path"),
}
RIGHT = {"moved, with a link": linked, "reached by a link": reached_by_a_link}


@pytest.mark.parametrize("way", WRONG)
def test_a_lake_in_another_place_is_refused_with_the_place_where_it_was_made(way: str, tmp_path: Path) -> None:
    change, sentence = WRONG[way]
    old, new = lake_at(tmp_path / "old"), tmp_path / "new"
    change(old, new)
    with pytest.raises(BadSettings, match=re.escape(sentence.format(old=old, new=new))):
        LakeState(LakeSettings.from_warehouse(new), "shop").listed()


@pytest.mark.parametrize("way", RIGHT)
def test_a_lake_that_its_paths_still_lead_to_is_read(way: str, tmp_path: Path) -> None:
    old, new = lake_at(tmp_path / "old"), tmp_path / "new"
    RIGHT[way](old, new)
    assert LakeState(LakeSettings.from_warehouse(new), "shop").listed().keys() == {("default", "t")}
