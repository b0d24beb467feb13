"""States of rows out of their changes: whatever windows the changes come in, they are what a look at each says."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.decoding import FILE
from cdc_assets.decoding.states import END_AT, END_TS, START_AT, START_TS, states
from cdc_assets.errors import TableHeld
from cdc_assets.features.kinds.scd2 import decoding as scd2
from cdc_assets.formats.decoded import COMMIT_TS, LINE, MOVED, OP, POSITION, UNCHANGED, Op
from cdc_assets.model.kinds import HistoryRule
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import Column, Index, TableId, TableSchema
from cdc_assets.model.steps import ApplyRows, RowReading
from cdc_assets_tests.memory_lake import states_after

SCHEMA = TableSchema(
    (
        Column("id", "VARCHAR", precision=9, nullable=False, collation="utf8mb4_general_ci"),
        Column("a", "INT"),
        Column("b", "INT"),
    ),
    ("id",),
    (Index("PRIMARY", ("id",), unique=True, primary=True),),
)
TABLE = TableId("shop", "orders")
Values = dict[str, int | None]
FEW = settings(max_examples=25)


@dataclass(frozen=True)
class Change:
    """What becomes of the row `key` at position `at`: an image has both values, a patch some, an erase none."""

    at: int
    kind: Literal["image", "patch", "erase"]
    key: str
    values: tuple[tuple[str, int | None], ...] = ()
    moved: str | None = None


State = tuple[str, int | None, int | None, int, int | None]
"""Key, the values a and b, start and end."""

_LAKE = pa.schema(
    [
        ("id", pa.string()),
        ("a", pa.int32()),
        ("b", pa.int32()),
        (COMMIT_TS, pa.int64()),
        (START_AT, pa.timestamp("us", "UTC")),
        (END_AT, pa.timestamp("us", "UTC")),
        (START_TS, pa.int64()),
        (END_TS, pa.int64()),
    ]
)


def table_of(changes: list[Change], by_offset: bool = False) -> pa.Table:
    rows = [
        {
            OP: {"image": Op.INSERT, "patch": Op.UPDATE, "erase": Op.DELETE_KEY}[change.kind],
            COMMIT_TS: change.at,
            LINE: place,
            "id": change.key,
            **dict(change.values),
            FILE: 0,
            UNCHANGED: [n for n in "ab" if n not in dict(change.values)] or None if change.kind == "patch" else None,
            MOVED: change.moved,
            POSITION: change.at,
        }
        for place, change in enumerate(changes)
    ]
    kinds = {OP: pa.int8(), COMMIT_TS: pa.int64(), LINE: pa.int64(), FILE: pa.int32(), POSITION: pa.int64()}
    kinds |= {UNCHANGED: pa.list_(pa.string()), MOVED: pa.string(), "id": pa.string()}
    names = [OP, COMMIT_TS, LINE, "id", "a", "b", FILE]
    names += [UNCHANGED, MOVED, POSITION] if by_offset else []
    return pa.Table.from_pylist(rows, pa.schema([(name, kinds.get(name, pa.int32())) for name in names]))


def reduced(changes: pa.Table) -> pa.Table:
    return scd2.KIND.reduce(changes, SCHEMA, TABLE)[0] if changes.num_rows else changes


def in_windows(
    changes: list[Change], cuts: list[int], by_offset: bool = False, track: tuple[str, ...] | None = None
) -> list[State]:
    """The states after windows that end at the positions `cuts`."""
    rows = _LAKE.empty_table()
    for lo, hi in pairwise([-1, *sorted(set(cuts)), 1000]):
        window_changes = [change for change in changes if lo < change.at <= hi]
        window = reduced(table_of(window_changes, by_offset))
        if window.num_rows:
            window = states(window, SCHEMA, track)
            rows = states_after(rows, window, SCHEMA, "shop.orders", track)[0]
    return states_of(rows)


def states_of(rows: pa.Table) -> list[State]:
    state_rows: list[dict[str, Any]] = rows.to_pylist()
    return sorted(((r["id"], r["a"], r["b"], r[START_TS], r[END_TS]) for r in state_rows), key=repr)


def one_by_one(changes: list[Change], track: tuple[str, ...] | None = None) -> list[State]:
    """The states by a look at every position: what each key has there, and for how long it had that."""
    living: dict[str, tuple[str, Values, int]] = {}
    done: list[State] = []
    for at in sorted({change.at for change in changes}):
        before = {key: (spelled, dict(values), since) for key, (spelled, values, since) in living.items()}
        current_changes = [change for change in changes if change.at == at]
        for change in [c for c in current_changes if c.kind == "erase"] + [
            c for c in current_changes if c.kind != "erase"
        ]:
            key = change.key.lower()
            base: Values = {"a": None, "b": None}
            if change.kind == "erase":
                living.pop(key, None)
            else:
                if change.kind == "patch":
                    base = before[change.moved or key][1] if change.moved else living[key][1]
                living[key] = (change.key, {**base, **dict(change.values)}, at)
        touched = {change.key.lower() for change in current_changes}
        for key in sorted(touched):
            old, new = before.get(key), living.get(key)
            if old is not None and new is not None and track is not None and all(old[1][n] == new[1][n] for n in track):
                living[key] = (new[0], new[1], old[2])
            elif old is not None:
                done.append((old[0], old[1]["a"], old[1]["b"], old[2], at))
    done += [(spelled, values["a"], values["b"], since, None) for spelled, values, since in living.values()]
    return sorted(done, key=repr)


_VALUES = st.fixed_dictionaries({"a": st.none() | st.integers(0, 2), "b": st.integers(0, 2)})
_IMAGES = st.builds(
    lambda at, kind, key, values: Change(at, kind, key, tuple(values.items()) if kind == "image" else ()),
    st.integers(0, 12),
    st.sampled_from(["image", "image", "erase"]),
    st.sampled_from(["k", "K", "l"]),
    _VALUES,
)
_CUTS = st.lists(st.integers(0, 12), max_size=4)
_TRACK = st.sampled_from([None, None, ("a",), ("a", "b"), ("b",)])


def once(changes: list[Change]) -> list[Change]:
    """One change of a key at a position."""
    return list({(change.at, change.key.lower()): change for change in changes}.values())


@FEW
@given(changes=st.lists(_IMAGES, max_size=16), cuts=_CUTS, track=_TRACK)
def test_states_are_those_that_a_look_at_every_position_finds(
    changes: list[Change], cuts: list[int], track: tuple[str, ...] | None
) -> None:
    changes = once(changes)
    assert in_windows(changes, cuts, track=track) == one_by_one(changes, track)


@FEW
@given(changes=st.lists(_IMAGES, max_size=12), more=st.lists(_IMAGES, max_size=4), cuts=_CUTS)
def test_an_erase_and_an_image_of_one_commit_are_one_state(
    changes: list[Change], more: list[Change], cuts: list[int]
) -> None:
    images = once([change for change in changes if change.kind == "image"])
    at = {(change.at, change.key.lower()) for change in images}
    erases = [Change(change.at, "erase", change.key) for change in more if (change.at, change.key.lower()) in at]
    assert in_windows([*images, *erases], cuts) == in_windows(images, cuts) == one_by_one(images)


@FEW
@given(changes=st.lists(_IMAGES, max_size=16), cut=st.integers(0, 16), again=st.integers(0, 16))
def test_what_comes_twice_and_in_shares_makes_no_other_states(changes: list[Change], cut: int, again: int) -> None:
    changes = once(changes)
    whole = table_of(changes)
    shares = pa.concat_tables([reduced(whole.slice(0, cut)), reduced(whole.slice(cut)), whole.slice(0, again)])
    rows = _LAKE.empty_table()
    if shares.num_rows:
        window_states = states(reduced(shares), SCHEMA)
        rows = states_after(rows, window_states, SCHEMA, "shop.orders")[0]
    assert states_of(rows) == one_by_one(changes)


Step = tuple[Literal["image", "patch", "erase", "move", "move"], str, Values, str]
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["image", "patch", "patch", "erase", "move"]),
        st.sampled_from("klm"),
        st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(0, 2)),
        st.sampled_from("klm"),
    ),
    max_size=14,
)


def of_database(steps: list[Step]) -> list[Change]:
    """The changes that a database sends for the steps that it can take, each at a position of its own."""
    living: set[str] = set()
    changes: list[Change] = []
    for at, (kind, key, values, other) in enumerate(steps):
        stated = tuple(values.items())
        if kind == "image":
            living.add(key)
            changes.append(Change(at, kind, key, (("a", values.get("a")), ("b", values.get("b")))))
        elif key in living and kind == "patch":
            changes.append(Change(at, kind, key, stated))
        elif key in living and kind == "erase":
            living.remove(key)
            changes.append(Change(at, kind, key))
        elif key in living and kind == "move" and other not in living:
            living.remove(key)
            living.add(other)
            changes += [Change(at, "erase", key, (), key), Change(at, "patch", other, stated, key)]
    return changes


@FEW
@given(steps=_STEPS, cuts=_CUTS)
def test_what_patches_leave_out_comes_from_the_state_before_them(steps: list[Step], cuts: list[int]) -> None:
    changes = of_database(steps)
    assert in_windows(changes, cuts, by_offset=True) == one_by_one(changes)


@FEW
@given(steps=_STEPS, cuts=_CUTS, track=st.sampled_from([("a",), ("b",), ("a", "b")]))
def test_a_patch_that_changes_no_tracked_column_begins_no_state(
    steps: list[Step], cuts: list[int], track: tuple[str, ...]
) -> None:
    changes = of_database([step for step in steps if step[0] != "move"])
    window_states = in_windows(changes, cuts, by_offset=True, track=track)
    assert all(as_of(window_states, at, track) == as_of(one_by_one(changes), at, track) for at in range(15))
    if not any(change.kind == "patch" for change in changes):
        assert window_states == one_by_one(changes, track)


def as_of(states: list[State], position: int, track: tuple[str, ...] = ("a", "b")) -> object:
    names = {"a": 1, "b": 2}
    return sorted(
        (
            (state[0].lower(), *(state[names[name]] for name in track))
            for state in states
            if state[3] <= position and (state[4] is None or position < state[4])
        ),
        key=repr,
    )


def test_a_patch_whose_row_was_erased_before_it_holds_the_table() -> None:
    changes = [Change(1, "image", "k", (("a", 1), ("b", 1))), Change(2, "erase", "k"), Change(3, "patch", "k")]
    later = [*changes, Change(4, "image", "k", (("a", 1), ("b", 1)))]
    with pytest.raises(TableHeld, match="the lake does not have their rows"):
        reduced(table_of(later, by_offset=True))


@pytest.mark.parametrize("track", [(), ("a",)])
def test_where_every_state_that_begins_is_a_data_file_an_end_is_staged_by_its_key_alone(track: tuple[str, ...]) -> None:
    rule = HistoryRule("*", ("scd2",), track=track)
    step = ApplyRows(Life(TABLE, 1, "scd2"), 0, 9, (), RowReading(), SCHEMA, 1, history=rule)
    images = [Change(5, "image", key, (("a", 1), ("b", 2))) for key in "kl"]
    rows, staged = scd2.KIND.apart(scd2.KIND.finished(table_of(images), step), step, empty=False)
    assert (rows.num_rows, staged.num_rows) == ((0, 2) if track else (2, 2))
    assert staged.column("id").to_pylist() == ["k", "l"]
    assert staged.column("b").to_pylist() == ([2, 2] if track else [None, None])
    assert staged.column(START_TS).to_pylist() == [5, 5]


def test_times_are_those_of_the_source_whatever_orders_the_changes() -> None:
    changes = table_of([Change(5, "image", "k", (("a", 1),)), Change(7, "erase", "k")], by_offset=True)
    moments = pa.array([86_400_000 << 18, 3_600_000 << 18], pa.int64())
    changes = changes.set_column(changes.schema.get_field_index(COMMIT_TS), COMMIT_TS, moments)
    (state,) = states(reduced(changes), SCHEMA).to_pylist()
    assert (state[START_TS], state[END_TS]) == (5, 7)
    assert (state[START_AT].isoformat(), state[END_AT].isoformat()) == (
        "1970-01-02T00:00:00+00:00",
        "1970-01-01T01:00:00+00:00",
    )


def test_a_table_without_key_is_refused_by_what_is_missing() -> None:
    assert scd2.KIND.refuses(SCHEMA) == ""
    assert "no key" in scd2.KIND.refuses(TableSchema(SCHEMA.columns))
