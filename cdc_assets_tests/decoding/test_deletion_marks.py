"""Windows of mirrors that mark deleted rows leave the same changes whether they are read in one part or in several."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import Mock, patch

import pyarrow as pa
import pytest

from cdc_assets.decoding import FILE, keyed_rows
from cdc_assets.decoding.first_images import noted
from cdc_assets.decoding.keyed_rows import RecordReplay
from cdc_assets.decoding.window import Window, reduced
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, UNCHANGED, Op
from cdc_assets.model.layout import DELETED_AT
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows, ChangeTable, RowReading

SECOND = 1000 << 18
ID = Column("id", "BIGINT", nullable=False, is_pk=True)
NAME = Column("name", "VARCHAR", precision=9, nullable=False, is_pk=True, collation="utf8mb4_general_ci")
SCHEMAS = {
    "number": TableSchema((ID, Column("v", "VARCHAR", precision=9)), ("id",)),
    "text": TableSchema((NAME, Column("v", "VARCHAR", precision=9)), ("name",)),
}

Image = tuple[Op, int, Any, str]


def step_of(schema: TableSchema) -> ApplyRows:
    file = DataFile("r/1/CDC1.csv", "r", 1, "r/1", 1, 1)
    life = Life(TableId("shop", "orders"), 1)
    return ApplyRows(life, 0, 1000 * SECOND, (file,), RowReading(), schema, 1, lake_columns=(DELETED_AT,))


def table_of(images: list[Image], schema: TableSchema) -> pa.Table:
    key = schema.key[0]
    return pa.table(
        {
            OP: pa.array([int(op) for op, *_ in images], pa.int8()),
            COMMIT_TS: pa.array([at * SECOND for _, at, _, _ in images], pa.int64()),
            LINE: pa.array(range(1, len(images) + 1), pa.int64()),
            FILE: pa.array([0] * len(images), pa.int32()),
            key: pa.array([value for _, _, value, _ in images], pa.int64() if key == "id" else pa.string()),
            "v": pa.array([v for *_, v in images], pa.string()),
        }
    )


def rows_of(window: Window, schema: TableSchema) -> list[tuple[Any, ...]]:
    rows = window.changes.select([schema.key[0], "v", OP, COMMIT_TS, DELETED_AT]).to_pylist()
    marked_rows = []
    for key, v, op, stamp, moment in (row.values() for row in rows):
        at = None if moment is None else int(moment.timestamp())
        marked_rows.append((str(key).lower(), v if op > 0 else None, op > 0, stamp // SECOND, at))
    return sorted(marked_rows, key=repr)


def random_images(random: Random, key: str) -> list[Image]:
    """Return changes of a few keys as a feed has them: a row is there or not, and both images of some changes come."""
    alive, images = set[int](), list[Image]()
    for at in range(1, 40):
        number = random.randrange(5)
        value = number if key == "id" else random.choice("aA") * (number + 1)
        if number not in alive:
            images.append((Op.INSERT, at, value, f"i{at}"))
            alive.add(number)
        elif random.random() < 0.5:
            images.append((random.choice([Op.DELETE, Op.DELETE_KEY]), at, value, f"d{at}"))
            alive.discard(number)
        elif random.random() < 0.3:
            images += [(Op.DELETE, at, value, "before"), (Op.INSERT, at, value, f"u{at}")]
        else:
            images.append((Op.UPDATE, at, value, f"u{at}"))
    start = random.randrange(20)
    return [image for image in images if image[1] > start]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_window_that_is_read_in_parts_leaves_what_it_leaves_at_once(name: str) -> None:
    schema, random = SCHEMAS[name], Random(name)
    step = step_of(schema)
    for turn in range(60):
        images = random_images(random, schema.key[0])
        table = table_of(images, schema)
        table = noted(table, whole_at=-1) if turn % 2 else table
        once = rows_of(reduced(step, [Window(table)]), schema)
        shares = [random.randrange(3) for _ in images]
        parts = [table.filter(pa.array([share == part for share in shares])) for part in range(3)]
        windows = [reduced(step, [Window(part)], is_part=True) for part in parts]
        assert rows_of(reduced(step, windows), schema) == once, images
        last = {str(value).lower(): (op, at) for op, at, value, _ in images}
        assert {row[0]: row[4] for row in once} == {key: at if op < 0 else None for key, (op, at) in last.items()}, (
            images
        )


def test_a_row_that_was_made_and_deleted_has_its_last_values_and_the_time_and_of_a_first_delete() -> None:
    schema = SCHEMAS["number"]
    images = [(Op.INSERT, 1, 7, "a"), (Op.UPDATE, 2, 7, "b"), (Op.DELETE_KEY, 3, 7, ""), (Op.DELETE, 4, 7, "c")]
    images += [(Op.DELETE, 5, 8, "x"), (Op.DELETE, 6, 8, "y"), (Op.DELETE, 7, 9, "z"), (Op.INSERT, 8, 9, "again")]
    assert rows_of(reduced(step_of(schema), [Window(table_of(images, schema))]), schema) == [
        ("7", "b", True, 3, 3),
        ("8", None, False, 5, 5),
        ("9", "again", True, 8, None),
    ]


def test_a_patch_that_makes_a_row_has_nothing_of_a_row_that_was_deleted_in_an_earlier_window_of_a_replay() -> None:
    schema = SCHEMAS["number"]
    first, second = (replace(step_of(schema), lo=lo, hi=hi) for lo, hi in ((0, 3 * SECOND), (3 * SECOND, 9 * SECOND)))
    images = [[(Op.INSERT, 1, 7, "a"), (Op.DELETE, 2, 7, "a")], [(Op.INSERT, 5, 7, "")]]
    left_out = [[None, None], [["v"]]]
    decoded = [
        Window(table_of(some, schema).append_column(UNCHANGED, pa.array(names, pa.list_(pa.string()))))
        for some, names in zip(images, left_out, strict=True)
    ]
    ddl = ChangeTable(first.life, 3 * SECOND, (), schema, schema)
    replayed = RecordReplay(replace(step_of(schema), files=()), (first, ddl, second), {})
    with patch.object(keyed_rows, "decode_window", side_effect=decoded):
        windows = [keyed_rows.read_replay(replayed, Mock(), place) for place in (0, 2)]
    assert rows_of(reduced(replayed.frame, windows), schema) == [("7", None, True, 5, None)]
