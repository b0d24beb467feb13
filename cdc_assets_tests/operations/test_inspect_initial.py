"""What is reported of a dump before it is imported: its tables, and everything that is odd in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_assets.ddl import created
from cdc_assets.errors import BucketMissing, CdcError, MalformedDump
from cdc_assets.features.dumps.report import DumpInspection, dump_lines
from cdc_assets.model.dumps import DumpOptions
from cdc_assets.model.schema import TableId
from cdc_assets.operations.inspect import inspect_initial
from cdc_assets.sources import connect_dump
from cdc_assets_tests.dump_cases import opener
from cdc_assets_tests.dump_writer import Writing, write_dump

AT = 434217889191428107
ORDERS, EMPTY = TableId("shop", "orders"), TableId("shop", "empty")
SCHEMA = created("create table orders (id int primary key, v varchar(20))")
ROWS = [(str(number), "x") for number in range(1000)]
FIRST = "shop.orders.000000000.csv"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_dump(tmp_path / "dump", {ORDERS: (SCHEMA, ROWS), EMPTY: (SCHEMA, [])}, AT, Writing(), chunk_rows=400)
    return tmp_path / "dump"


def inspected(directory: Path, at: int | None = None, options: DumpOptions | None = None) -> DumpInspection:
    (inspection,) = inspect_initial([connect_dump(opener(directory), options or DumpOptions(), at)])
    return inspection


def problem(directory: Path, options: DumpOptions | None = None) -> str:
    inspection = inspected(directory, options=options)
    assert not inspection.sound
    return next(table.problem for table in inspection.tables if table.problem)


def test_tables_are_listed_with_their_rows_by_estimate(directory: Path) -> None:
    inspection = inspected(directory)
    empty, orders = inspection.tables
    assert inspection.sound
    assert (orders.table, orders.key, orders.columns, orders.files) == ("shop.orders", ("id",), 2, 3)
    assert orders.rows == pytest.approx(1000, rel=0.1)
    assert (empty.rows, empty.files) == (0, 0)
    assert f"tables as of TSO {AT} (2022-06-28T09:49:54.584Z)" in next(dump_lines(inspection))


Damage = Callable[[Path], object]


def replaced(name: str, old: bytes, new: bytes) -> Damage:
    return lambda directory: (directory / name).write_bytes((directory / name).read_bytes().replace(old, new))


def cut_off(directory: Path) -> None:
    (directory / FIRST).write_bytes((directory / FIRST).read_bytes()[:-3])


def without(pattern: str) -> Damage:
    def remove(directory: Path) -> None:
        for path in directory.glob(pattern):
            path.unlink()

    return remove


ODD: dict[str, tuple[Damage, str]] = {
    "cut off": (cut_off, "line 401 is the last one and does not end"),
    "no schema": (without("shop.orders-schema.sql"), "has no schema file"),
    "lz4": (lambda d: (d / FIRST).rename(d / f"{FIRST}.lz4"), "is compressed with lz4, which cannot be read"),
    "mixed": (lambda d: (d / "shop.orders.0000000009999.csv").write_bytes(b"x"), "two dumps are mixed"),
    "other header": (replaced(FIRST, b'"id"', b'"key"'), 'names the column "key"'),
    "other rows": (replaced(FIRST, b'7,"x"', b'"a","x"'), "line 9: "),
}


@pytest.mark.parametrize("how", ODD)
def test_what_is_odd_is_a_problem_of_its_table(directory: Path, how: str) -> None:
    damage, sentence = ODD[how]
    damage(directory)
    assert sentence in problem(directory)


def test_a_dump_without_any_rows_is_sound_and_is_warned_about(directory: Path) -> None:
    without("*.csv")(directory)
    inspection = inspected(directory)
    assert (inspection.sound, [table.rows for table in inspection.tables]) == (True, [0, 0])
    assert "--no-data" in "".join(line for line in dump_lines(inspection) if line.startswith("WARNING"))


@pytest.mark.parametrize(
    "options",
    [DumpOptions(separator=";"), DumpOptions(delimiter="'"), DumpOptions(header=False), DumpOptions(delimiter="")],
    ids=str,
)
def test_a_dialect_that_the_data_contradicts_names_the_first_line(directory: Path, options: DumpOptions) -> None:
    assert f"{FIRST} line 1 " in problem(directory, options)


@pytest.mark.parametrize(
    ("damage", "kind", "sentence"),
    [
        (without("metadata"), MalformedDump, "has no `metadata`"),
        (replaced("metadata", str(AT).encode(), b"2022-06-28 17:49:54"), MalformedDump, "--snapshot is a time"),
        (without("*"), BucketMissing, "holds nothing"),
    ],
)
def test_a_dump_without_its_tso_is_none(directory: Path, damage: Damage, kind: type[CdcError], sentence: str) -> None:
    damage(directory)
    with pytest.raises(kind, match=sentence):
        inspected(directory)


def test_a_stated_tso_takes_the_place_of_metadata(directory: Path) -> None:
    (directory / "metadata").unlink()
    assert inspected(directory, at=AT).at == AT
