"""Every kind of table has both of its modules: what tasks make of changes, and what writes them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from cdc_assets.decoding import kinds
from cdc_assets.lake import writers
from cdc_assets.model.schema import Column, TableSchema

MODULES = sorted(path.stem for path in Path(kinds.__file__).parent.glob("*.py") if path.stem != "__init__")


def test_each_kind_has_a_writer_of_its_name() -> None:
    assert {path.stem for path in Path(writers.__file__).parent.glob("*.py")} - {"__init__"} == set(MODULES)
    assert set(writers.WRITERS) == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_kinds_and_writers_have_equal_names(name: str) -> None:
    kind, writer = (import_module(f"cdc_assets.{folder}.{name}") for folder in ("decoding.kinds", "lake.writers"))
    assert name == kind.NAME
    assert set(kind.__all__) == {one for one in vars(kinds.TableKind) if not one.startswith("_")} | set(
        kinds.TableKind.__annotations__
    )
    assert writer.__all__ == ["alike_keys", "write"]


@pytest.mark.parametrize(("key", "kind"), [(("id",), "keyed"), ((), "multiset")])
def test_a_schema_decides_the_kind(key: tuple[str, ...], kind: str) -> None:
    schema = TableSchema((Column("id", "INT"),), key)
    assert kind == kinds.kind_of(schema).NAME
    assert writers.writer_of(schema).__name__ == f"cdc_assets.lake.writers.{kind}"  # type: ignore[attr-defined]
