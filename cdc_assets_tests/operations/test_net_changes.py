"""The net of changes: who applies it has what who applies all of them has."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from cdc_assets.errors import ExtractRefused
from cdc_assets.formats.decoded import Op
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.operations import net_changes
from cdc_assets.operations.net_changes import Fold, NetChanges
from cdc_assets.operations.table_rows import no_log_rows

SCHEMA = TableSchema(
    (Column("id", "INT", is_pk=True, nullable=False), Column("a", "INT"), Column("b", "VARCHAR")), ("id",)
)
Change = dict[str, Any]
Rows = dict[int, tuple[Any, Any]]


def table(changes: Sequence[Change]) -> pa.Table:
    return pa.Table.from_pylist(list(changes), no_log_rows(SCHEMA).schema)


def net(changes: Sequence[Change], op: Op = Op.INSERT, pieces: int = 1) -> list[Change]:
    whole, size = table(changes), max(1, len(changes) // pieces)
    parts = [whole.slice(start, size) for start in range(0, len(changes), size)]
    with patch.object(net_changes, "_ROWS", 1 if pieces > 1 else 100_000):
        return [
            row for piece in NetChanges(TableId("shop", "t"), SCHEMA, op).of_pieces(parts) for row in piece.to_pylist()
        ]


def change(word: str, at: int, key: int, a: Any = None, b: Any = None, absent: Sequence[str] | None = None) -> Change:
    values = {"id": key, "a": a, "b": b, "_change_type": word, "_cdc_position": at, "_cdc_commit_ts": at}
    return {**values, "_cdc_absent": list(absent) if absent else None}


def random_changes(random: Random, makes_rows: bool) -> tuple[Rows, list[Change]]:
    """Rows, and changes of them of which some have some columns only."""
    rows: Rows = {key: (key, f"b{key}") for key in range(3)}
    living, changes = set(rows), list[Change]()
    for at in range(random.randint(0, 12)):
        key, a, b = random.randrange(5), random.choice([None, at]), random.choice([None, f"b{at}"])
        kind = random.randrange(4)
        if kind == 0 and key in living:
            living.discard(key)
            changes.append(change("DELETE", at, key, absent=("a", "b")))
        elif kind == 1 and (key in living or makes_rows):
            absent = random.choice([("a",), ("b",), ("a", "b")])
            living.add(key)
            changes.append(
                change("UPDATE_AFTER", at, key, None if "a" in absent else a, None if "b" in absent else b, absent)
            )
        else:
            changes.append(change("UPDATE_AFTER" if key in living else "INSERT", at, key, a, b))
            living.add(key)
    return rows, changes


def after(rows: Rows, changes: Sequence[Change]) -> Rows:
    rows_after = dict(rows)
    for row_change in changes:
        before = rows_after.pop(row_change["id"], (None, None))
        if row_change["_change_type"] not in ("DELETE", "UPDATE_BEFORE"):
            absent = row_change["_cdc_absent"] or ()
            values = (before[0] if "a" in absent else row_change["a"], before[1] if "b" in absent else row_change["b"])
            rows_after[row_change["id"]] = values
    return rows_after


@pytest.mark.parametrize("makes_rows", [True, False])
def test_the_net_of_changes_with_some_columns_leads_to_what_all_of_them_lead_to(makes_rows: bool) -> None:
    for seed in range(150):
        rows, changes = random_changes(random := Random(seed), makes_rows)
        reduced_changes = net(changes, Op.INSERT if makes_rows else Op.UPDATE, random.choice([1, 2, 5]))
        assert len({row_change["id"] for row_change in reduced_changes}) == len(reduced_changes), seed
        assert after(rows, reduced_changes) == after(rows, changes), seed


def test_what_no_change_of_the_range_tells_is_absent_from_the_net() -> None:
    changes = [change("UPDATE_AFTER", 1, 7, 5, None, ["b"]), change("UPDATE_AFTER", 2, 7, 6, None, ["b"])]
    (row,) = net(changes)
    assert (row["_change_type"], row["a"], row["b"], row["_cdc_absent"]) == ("UPDATE_AFTER", 6, None, ["b"])
    (row,) = net([change("INSERT", 0, 7, 1, "x"), *changes])
    assert (row["a"], row["b"], row["_cdc_absent"]) == (6, "x", None)


def test_an_image_under_a_new_key_that_leaves_columns_out_has_no_net_until_a_whole_one_follows() -> None:
    moved = [change("DELETE", 1, 7, absent=["a", "b"]), change("INSERT", 1, 8, 5, None, ["b"])]
    later = change("UPDATE_AFTER", 2, 8, 6, None, ["b"])
    for changes in (moved, [*moved, later]):
        for pieces in (1, 3):
            with pytest.raises(ExtractRefused, match="rows got another key within the range"):
                net(changes, Op.UPDATE, pieces)
    whole = net([*moved, later, change("UPDATE_AFTER", 3, 8, 7, "y")])
    assert [(row["id"], row["_change_type"], row["b"]) for row in whole] == [
        (7, "DELETE", None),
        (8, "UPDATE_AFTER", "y"),
    ]


def test_a_change_that_leaves_columns_of_a_deleted_row_out_has_no_net_where_its_row_must_be_there() -> None:
    changes = [change("DELETE", 1, 7, absent=["a", "b"]), change("UPDATE_AFTER", 2, 7, 5, None, ["b"])]
    with pytest.raises(ExtractRefused, match="Leave out --net"):
        net(changes, Op.UPDATE)
    assert [row["_change_type"] for row in net(changes, Op.PATCH)] == ["DELETE"]


def test_rows_are_reduced_a_few_times_each_however_many_pieces_they_come_in() -> None:
    reduced: list[int] = []

    def reduce(rows: pa.Table) -> pa.Table:
        reduced.append(rows.num_rows)
        return rows

    piece = pa.table({"n": range(10)})
    fold = Fold(reduce, piece.slice(0, 0))
    with patch.object(net_changes, "_ROWS", 20):
        for _ in range(500):
            fold.add(piece)
        assert fold.result().num_rows == 5_000
    assert sum(reduced) < 4 * 5_000
