"""Every kind of table has both of its modules: what tasks make of changes, and what writes them."""

from __future__ import annotations

from importlib import import_module
from inspect import getmembers, isfunction
from pathlib import Path

import pytest

from cdc_assets.features.kinds import decoding as kinds
from cdc_assets.features.kinds import lake as writers
from cdc_assets.model.kinds import HISTORY_KINDS
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.steps import ApplyRows, RowReading

FOLDERS = sorted(path.parent.name for path in Path(kinds.__file__).parent.glob("*/decoding.py"))


def test_each_kind_has_a_writer_in_its_folder() -> None:
    assert sorted(path.parent.name for path in Path(writers.__file__).parent.glob("*/lake.py")) == FOLDERS
    assert set(writers.WRITERS) == set(FOLDERS)


@pytest.mark.parametrize("name", FOLDERS)
def test_kinds_and_writers_have_equal_names(name: str) -> None:
    kind, writer = (import_module(f"cdc_assets.features.kinds.{name}.{layer}") for layer in ("decoding", "lake"))
    assert name == kind.KIND.NAME
    history = name in HISTORY_KINDS
    own = {name for name, made in getmembers(writer, isfunction) if made.__module__ == writer.__name__}
    given = {name for name in own if not name.startswith("_")}
    of_history = {"alike_keys", "begun", "moved", "rewritten", "write"}
    assert given == (of_history if history else {"alike_keys", "write"})
    assert hasattr(writer, "ASKS") == history


@pytest.mark.parametrize(
    ("key", "of", "kind"), [(("id",), "", "keyed"), ((), "", "multiset"), (("id",), "log", "log"), ((), "log", "log")]
)
def test_a_table_is_of_its_own_kind_and_a_mirror_of_that_which_its_key_makes_it(
    key: tuple[str, ...], of: str, kind: str
) -> None:
    schema = TableSchema((Column("id", "INT"),), key)
    step = ApplyRows(Life(TableId("s", "t"), 1, of), 1, 9, (), RowReading(), schema, 1)
    assert kind == kinds.kind_of(step).NAME
    assert writers.writer_of(step).__name__ == f"cdc_assets.features.kinds.{kind}.lake"  # type: ignore[attr-defined]
