"""Rows under a new key that leave columns as they were under the old one: where the values of these columns are.

A source may send the change of a key as a delete and an image, and leave out what it did not read again (PostgreSQL's
long values). The two halves have the same MOVED. What the image leaves out is what the old key's row had when it was
deleted: in changes before that, or in the lake. Only who reads a whole window knows all of them.

    resolve_moved_columns(frame, …)   the image gets what changes of the window have, and BASE, the row in the lake that
                                      has the rest
    without_base(…)                   images whose old row nobody has
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.decoded import MOVED, OP, UNCHANGED
from cdc_assets.model.schema import TableSchema

BASE = "_cdc_base"
"""The key of the row of the lake that has the columns of UNCHANGED, null for the change's own: a struct k0, k1, …"""


def has_moves(changes: pa.Table) -> bool:
    """Return whether images may take columns from rows under other keys."""
    has_both = MOVED in changes.column_names and UNCHANGED in changes.column_names
    return has_both and bool(pc.any(is_moved(changes), min_count=0).as_py())


def has_bases(changes: pa.Table) -> bool:
    """Return whether images take columns from rows of the lake under other keys."""
    return BASE in changes.column_names and changes.column(BASE).null_count < changes.num_rows


def is_moved(changes: pa.Table) -> pa.ChunkedArray:
    """Mark images that leave columns as they were under another key."""
    halves = pc.and_(pc.is_valid(changes.column(MOVED)), pc.is_valid(changes.column(UNCHANGED)))
    return pc.and_(halves, pc.greater(changes.column(OP), pa.scalar(0, pa.int8())))


def without_base(changes: pa.Table) -> pa.ChunkedArray:
    """Mark those of which no delete in the window says which row they were."""
    return pc.and_(is_moved(changes), pc.is_null(changes.column(BASE)))


def base_type(changes: pa.Table, schema: TableSchema) -> pa.DataType:
    """Return the type of BASE."""
    return pa.struct([(f"k{at}", changes.schema.field(name).type) for at, name in enumerate(schema.key)])


# --- where the values are ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """Values that an image leaves out: the changes that have them, by column, and those in the lake's row of the `root`
    change.

    `root` is None where the old row was deleted, or nobody knows which it was.
    """

    stated: dict[str, int]
    unstated: list[str]
    root: int | None


def resolve_moved_columns(frame: pl.DataFrame, by: Sequence[str], changes: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the changes with BASE; images that take nothing from the lake are whole.

    `frame` has a row for each change, in the order in which they count: `by` is the key, `_cdc_row` the place in
    `changes`.
    """
    if BASE in changes.column_names:  # what was resolved with a part of the window
        changes = changes.drop_columns([BASE])
    moves = dict(_places(changes, is_moved(changes)))
    gone = {half: place for place, half in _places(changes, pc.less(changes.column(OP), pa.scalar(0, pa.int8())))}
    keys = frame.select(pl.struct(by).alias("key"), "_cdc_row")
    places = keys.get_column("_cdc_row").to_list()
    key_of = {place: tuple(key.values()) for place, key in zip(places, keys.get_column("key").to_list(), strict=True)}
    key_values = {key_of[place] for place in (*moves, *(gone[half] for half in moves.values() if half in gone))}
    ops, unchanged = changes.column(OP).to_pylist(), changes.column(UNCHANGED).to_pylist()
    columns = [column.name for column in schema.stored]
    lookups: dict[int, _Found] = {}
    history: dict[object, list[int]] = {key: [] for key in key_values}
    for place in places:
        key = key_of[place]
        if key not in key_values:
            continue
        if place in moves:
            delete = gone.get(moves[place])
            before = [] if delete is None else _until(history[key_of[delete]], delete)
            lookups[place] = _looked_up(before, delete, unchanged[place], ops, unchanged, lookups)
        history[key].append(place)
    rows = list(range(changes.num_rows))
    for at, name in enumerate(changes.column_names):
        if name in columns:
            taken = rows.copy()
            for image, lookup in lookups.items():
                taken[image] = lookup.stated.get(name, image)
            if taken != rows:
                changes = changes.set_column(at, changes.schema.field(at), changes.column(name).take(pa.array(taken)))
    lists = changes.column(UNCHANGED).to_pylist()
    roots: list[int | None] = [None] * len(rows)
    for image, lookup in lookups.items():
        lists[image] = lookup.unstated or None
        roots[image] = lookup.root if lookup.unstated else None
    kind = base_type(changes, schema)
    base_keys = [changes.column(name).combine_chunks().take(pa.array(roots, pa.int64())) for name in schema.key]
    mask = pa.array([root is None for root in roots])
    bases = pa.StructArray.from_arrays(base_keys, fields=list(kind), mask=mask)
    place_of = changes.schema.get_field_index(UNCHANGED)
    changes = changes.set_column(place_of, changes.schema.field(place_of), pa.array(lists, pa.list_(pa.string())))
    return changes.append_column(pa.field(BASE, kind), bases)


def _places(changes: pa.Table, mask: pa.ChunkedArray) -> list[tuple[int, str]]:
    chosen = pc.indices_nonzero(mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask)
    halves = changes.column(MOVED).take(chosen).to_pylist()
    return [(place, half) for place, half in zip(chosen.to_pylist(), halves, strict=True) if half is not None]


def _until(history: Sequence[int], delete: int) -> list[int]:
    """Return the changes of a key before a delete of it; the delete counts before the image of its new key."""
    return list(history[: history.index(delete)]) if delete in history else list(history)


def _looked_up(
    before: Sequence[int],
    delete: int | None,
    names: Sequence[str],
    ops: Sequence[int],
    unchanged: Sequence[Sequence[str] | None],
    lookups: dict[int, _Found],
) -> _Found:
    """Go back through the changes of the old key until all columns are there, or its row begins."""
    stated, unstated = dict[str, int](), list(names)
    for place in reversed(before):
        if not unstated:
            break
        if ops[place] < 0:
            return _Found(stated, unstated, None)
        earlier = lookups.get(place)
        open_ = set(unchanged[place] or ()) if earlier is None else set(earlier.unstated)
        for name in [name for name in unstated if name not in open_]:
            stated[name] = place if earlier is None else earlier.stated.get(name, place)
            unstated.remove(name)
        if unchanged[place] is None:
            break
        if earlier is not None:
            return _Found(stated, unstated, earlier.root)
    return _Found(stated, unstated, delete)
