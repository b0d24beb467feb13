"""Changes that leave columns out: folded, they do what they did one by one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_assets.decoding import FILE
from cdc_assets.errors import TableHeld
from cdc_assets.features.kinds.keyed import decoding as keyed
from cdc_assets.formats.decoded import COMMIT_TS, LINE, MOVED, OP, UNCHANGED, Op
from cdc_assets.model.schema import Column, Index, TableId, TableSchema
from cdc_assets_tests.memory_lake import merged

SCHEMA = TableSchema(
    tuple(Column(name, "INT", nullable=name != "id") for name in ("id", "a", "b")),
    ("id",),
    (Index("PRIMARY", ("id",), unique=True, primary=True),),
)
TABLE = TableId("shop", "orders")

Kind = Literal["image", "upsert", "patch", "erase"]
Change = tuple[Kind, int, dict[str, int | None]]
Rows = dict[int, dict[str, int | None]]

_VALUES = st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(0, 9))
_CHANGES = st.lists(st.tuples(st.sampled_from(["image", "upsert", "erase"]), st.integers(1, 3), _VALUES), max_size=12)


def table_of(changes: list[Change]) -> pa.Table:
    rows = [
        {
            OP: {"image": Op.INSERT, "upsert": Op.INSERT, "patch": Op.UPDATE, "erase": Op.DELETE_KEY}[kind],
            COMMIT_TS: place,
            LINE: 1,
            "id": key,
            "a": values.get("a"),
            "b": values.get("b"),
            FILE: 0,
            UNCHANGED: [n for n in "ab" if n not in values] or None if kind in ("upsert", "patch") else None,
        }
        for place, (kind, key, values) in enumerate(changes)
    ]
    kinds = {OP: pa.int8(), COMMIT_TS: pa.int64(), LINE: pa.int64(), FILE: pa.int32(), UNCHANGED: pa.list_(pa.string())}
    names = [OP, COMMIT_TS, LINE, "id", "a", "b", FILE, UNCHANGED]
    return pa.Table.from_pylist(rows, pa.schema([(name, kinds.get(name, pa.int32())) for name in names]))


def reduced(changes: pa.Table) -> pa.Table:
    return keyed.KIND.reduce(changes, SCHEMA, TABLE)[0] if changes.num_rows else changes


def one_by_one(rows: Rows, changes: list[Change]) -> Rows:
    rows_by_key = {key: dict(row) for key, row in rows.items()}
    for kind, key, values in changes:
        before: dict[str, int | None] = dict.fromkeys("ab")
        if kind == "erase":
            rows_by_key.pop(key, None)
        else:
            base = rows_by_key.get(key, before) if kind != "image" else before
            rows_by_key[key] = {**base, **values}
    return rows_by_key


def lake_of(rows: Rows) -> pa.Table:
    listed = [{"id": key, **row, COMMIT_TS: 0} for key, row in sorted(rows.items())]
    fields = [*((name, pa.int32()) for name in ("id", "a", "b")), (COMMIT_TS, pa.int64())]
    return pa.Table.from_pylist(listed, pa.schema(fields))


def rows_of(table: pa.Table) -> Rows:
    return {row["id"]: {"a": row["a"], "b": row["b"]} for row in table.to_pylist()}


_ROWS = st.dictionaries(
    st.integers(1, 3), st.fixed_dictionaries({"a": st.integers(10, 19), "b": st.none() | st.integers(10, 19)})
)


@given(rows=_ROWS, changes=_CHANGES)
def test_a_folded_window_does_what_its_changes_do_one_by_one(rows: Rows, changes: list[Change]) -> None:
    assert rows_of(merged(lake_of(rows), reduced(table_of(changes)), SCHEMA)) == one_by_one(rows, changes)


@given(rows=_ROWS, changes=_CHANGES, cut=st.integers(0, 12))
def test_shares_that_follow_each_other_fold_to_the_same(rows: Rows, changes: list[Change], cut: int) -> None:
    whole = table_of(changes)
    shared = pa.concat_tables([reduced(whole.slice(0, cut)), reduced(whole.slice(cut))])
    assert rows_of(merged(lake_of(rows), reduced(shared), SCHEMA)) == one_by_one(rows, changes)


Step = tuple[Literal["image", "patch", "erase", "move"], int, dict[str, int | None], int]
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["image", "patch", "erase", "move", "move"]), st.integers(1, 4), _VALUES, st.integers(1, 4)
    ),
    max_size=14,
)


def of_history(rows: Rows, steps: list[Step]) -> tuple[pa.Table, Rows]:
    """Return the changes that a database sends for the steps that it can take, and its rows afterwards."""
    rows_by_key, changes, halves = {key: dict(row) for key, row in rows.items()}, list[Change](), list[str | None]()
    for kind, key, values, other in steps:
        if kind == "image":
            rows_by_key[key] = {**dict.fromkeys("ab"), **values}
            changes.append((kind, key, values))
        elif key in rows_by_key and kind == "patch":
            rows_by_key[key] |= values
            changes.append((kind, key, values))
        elif key in rows_by_key and kind == "erase":
            del rows_by_key[key]
            changes.append((kind, key, {}))
        elif key in rows_by_key and kind == "move" and other not in rows_by_key:
            rows_by_key[other] = rows_by_key.pop(key) | values
            changes += [("erase", key, {}), ("patch", other, values)]
        while len(halves) < len(changes):
            halves.append(str(len(steps)) + str(len(changes)) if kind == "move" else None)
    table = table_of(changes)
    return table.append_column(MOVED, pa.array(halves, pa.string())), rows_by_key


@given(rows=_ROWS, steps=_STEPS)
def test_a_row_under_a_new_key_keeps_what_is_left_out(rows: Rows, steps: list[Step]) -> None:
    changes, expected = of_history(rows, steps)
    assert rows_of(merged(lake_of(rows), reduced(changes), SCHEMA)) == expected


def test_a_row_under_a_new_key_whose_old_row_is_nowhere_holds_its_table() -> None:
    changes, _ = of_history({1: {"a": 1, "b": 2}}, [("move", 1, {"a": 5}, 2)])
    cases: list[tuple[Rows, pa.Table]] = [({}, changes), ({1: {"a": 1, "b": 2}}, changes.slice(1))]
    for known, sent in cases:
        with pytest.raises(TableHeld, match=r"the first has the key \(2,\)"):
            merged(lake_of(known), reduced(sent), SCHEMA)


def skipping(changes: pa.Table) -> pa.Table:
    ops = [int(Op.PATCH) if op == int(Op.UPDATE) else op for op in changes.column(OP).to_pylist()]
    return changes.set_column(0, OP, pa.array(ops, pa.int8()))


_SKIPS = st.lists(st.tuples(st.sampled_from(["image", "patch", "erase"]), st.integers(1, 3), _VALUES), max_size=12)


@example(rows={}, changes=[("patch", 1, {"a": None}), ("patch", 1, {"b": None})])
@given(rows=_ROWS, changes=_SKIPS)
def test_patches_that_are_skipped_change_rows_that_are_there(rows: Rows, changes: list[Change]) -> None:
    expected = rows
    for change in changes:
        if change[0] != "patch" or change[1] in expected or len(change[2]) == 2:
            expected = one_by_one(expected, [change])
    assert rows_of(merged(lake_of(rows), reduced(skipping(table_of(changes))), SCHEMA)) == expected


@example(rows={}, changes=[("patch", 1, {"a": 5}), ("patch", 1, {"b": 6})])
@given(rows=_ROWS, changes=_SKIPS)
def test_patches_make_no_row_whatever_columns_they_bring_together(rows: Rows, changes: list[Change]) -> None:
    expected, lost = rows, set[int]()
    for change in changes:
        kind, key, values = change
        if kind == "patch" and key not in expected and len(values) < 2:
            lost.add(key)
        elif kind != "patch" or len(values) == 2:
            lost.discard(key)
        expected = one_by_one(expected, [change])
    with pytest.raises(TableHeld) if lost else nullcontext():
        assert rows_of(merged(lake_of(rows), reduced(table_of(changes)), SCHEMA)) == expected


def test_patches_that_are_skipped_behind_an_erase_are_counted() -> None:
    changes: list[Change] = [("erase", 1, {}), ("patch", 1, {"a": 5}), ("patch", 2, {"a": 5}), ("patch", 1, {"b": 5})]
    assert keyed.KIND.reduce(skipping(table_of(changes)), SCHEMA, TABLE)[1].passed_over == 2


def test_null_is_a_value_and_what_is_left_out_is_none() -> None:
    net_changes = reduced(table_of([("upsert", 1, {"a": None})]))
    assert rows_of(merged(lake_of({1: {"a": 1, "b": 2}}), net_changes, SCHEMA)) == {1: {"a": None, "b": 2}}


def test_a_patch_of_a_row_that_has_to_be_there_holds_its_table_where_it_is_not() -> None:
    net_changes = reduced(table_of([("patch", 1, {"a": 5})]))
    assert rows_of(merged(lake_of({1: {"a": 1, "b": 2}}), net_changes, SCHEMA)) == {1: {"a": 5, "b": 2}}
    with pytest.raises(TableHeld, match="the lake does not have their rows"):
        merged(lake_of({}), net_changes, SCHEMA)


def test_a_patch_behind_the_erase_of_its_row_holds_its_table() -> None:
    changes: list[Any] = [("image", 1, {"a": 1, "b": 2}), ("erase", 1, {}), ("patch", 1, {"a": 5})]
    with pytest.raises(TableHeld, match=r"the first has the key \(1,\)"):
        reduced(table_of(changes))


def test_a_patch_upon_an_image_of_its_window_needs_no_row() -> None:
    net_changes = reduced(table_of([("image", 1, {"a": 1, "b": 2}), ("patch", 1, {"a": 5})]))
    assert net_changes.column(UNCHANGED).to_pylist() == [None]
    assert rows_of(merged(lake_of({}), net_changes, SCHEMA)) == {1: {"a": 5, "b": 2}}
