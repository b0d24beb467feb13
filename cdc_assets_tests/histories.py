"""Random histories of a source: small bytes in, SQL out.

A step is a kind of statement and a few bytes that say which table, column and value. Every sequence of steps is a
history, because a step that TiDB would refuse does nothing; so a failing history shrinks to the steps that matter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

from cdc_assets.model.schema import TableId
from cdc_assets_tests.alterations import (
    ALTERATIONS,
    CI,
    DATABASES,
    NAMES,
    Picks,
    free_table,
    fresh_column,
    random_row,
    random_value,
    some_table,
)
from cdc_assets_tests.source import Col, Parts, Refused, Row, Rows, Source, Table

__all__ = ["KINDS", "Picks", "history"]


def history(steps: Sequence[tuple[str, bytes]], old_values: bool) -> Source:
    """Carry out the steps. `old_values` allows updates of tables without key."""
    source = Source()
    source.create_database(DATABASES[0])
    for kind, raw in steps:
        picks = Picks(raw)
        try:
            if kind == "rows":
                _rows(source, picks, old_values)
            else:
                KINDS[kind](source, picks)
        except Refused:
            continue
    return source


# --- rows -------------------------------------------------------------------------------------------------------------


def _rows(source: Source, picks: Picks, old_values: bool) -> None:
    """One transaction over one or several tables; operations that a constraint forbids are left out."""
    changed: dict[TableId, Rows] = {}
    for _ in range(1 + picks(6)):
        table = some_table(source, picks)
        rows = dict(changed.get(table.name, table.rows))
        if _one_change(table, rows, picks):
            try:
                table.check(rows)
            except Refused:
                continue
            changed[table.name] = rows
    if not old_values:
        for name in [name for name in changed if not source.tables[name].keyed]:
            table = source.tables[name]
            changed[name] = {h: row for h, row in changed[name].items() if table.rows.get(h, row) == row}
    source.commit(changed)


def _one_change(table: Table, rows: Rows, picks: Picks) -> bool:
    kind = picks(8)
    if kind < 3 or not rows:
        row = random_row(table, picks)
        handle = table.handle(row)
        if handle in rows:
            return False
        rows[handle] = row
        return True
    handle = list(rows)[picks(len(rows))]
    row = rows.pop(handle)
    if kind == 3:
        return True
    if kind == 4 and rows:
        return _swap(table, rows, (handle, row), picks)
    if kind == 5:
        # deleted and inserted again, under a new hidden number where the key is not the handle
        again = {**random_row(table, picks), **{name: row[name] for name in table.primary}}
        rows[table.handle(again)] = again
        return True
    col = table.columns[picks(len(table.columns))]
    changed = {**row, col.name: random_value(col, picks)}
    new = table.handle(changed) if table.clustered else handle
    if new in rows:
        return False
    rows[new] = changed
    return True


def _clear(source: Source, picks: Picks) -> None:
    """DELETE without WHERE: every row of a table goes by an event of its own."""
    source.commit({some_table(source, picks, lambda table: bool(table.rows)).name: {}})


def _swap(table: Table, rows: Rows, entry: tuple[Hashable, Row], picks: Picks) -> bool:
    """Two rows exchange their keys."""
    key = table.primary or next(iter(table.uniques.values()), ())
    other = list(rows)[picks(len(rows))]
    row, theirs = entry[1], rows[other]
    swapped = ({**row, **{k: theirs[k] for k in key}}, {**theirs, **{k: row[k] for k in key}})
    if table.clustered:
        rows[other], rows[entry[0]] = swapped
    else:
        rows[entry[0]], rows[other] = swapped
    return True


# --- tables -----------------------------------------------------------------------------------------------------------


def _create(source: Source, picks: Picks) -> None:
    if not source.databases:
        source.create_database(DATABASES[0])
    name, shape = free_table(source, picks), picks(9)
    integer = Col("i", "INT", nullable=False)
    text = Col("k", "VARCHAR", 12, nullable=False, collation=("", CI, "utf8mb4_bin")[picks(3)])
    keys: tuple[Col, ...] = (integer,)
    primary: tuple[str, ...] = ("i",)
    uniques: dict[str, tuple[str, ...]] = {}
    if shape in (1, 2):
        keys, primary = (integer, text), ("k", "i")
    elif shape == 3:
        keys, primary = (text,), ("k",)
    elif shape in (4, 5):
        keys, primary = (integer, text), ()
        uniques = {"ui": ("i",)} if shape == 4 else {"uik": ("i", "k")}
    elif shape == 6:
        keys, primary, uniques = (replace(integer, nullable=True),), (), {"ui": ("i",)}
    elif shape == 7:
        keys, primary = (replace(integer, nullable=True),), ()
    elif shape == 8:
        keys, uniques = (integer, text), {"uk": ("k", "i")}
    columns = list(keys)
    columns += [fresh_column(column, picks) for column in NAMES[: picks(4)]]
    columns = [replace(col, id=number + 1) for number, col in enumerate(columns)]
    clustered = bool(primary) and shape != 2 and picks(3) != 2
    table = Table(name, source.number(), tuple(columns), primary, clustered, uniques, numbered=len(columns))
    if keys[0].name == "i":
        table.parts = _parts(source, picks)
    source.create(table)


def _parts(source: Source, picks: Picks) -> Parts | None:
    kind = picks(7)
    if kind == 4:
        bounds = ((3,), (10,), (2**31,))
        return Parts("RANGE", "i", tuple((f"r{n}", source.number(), bound) for n, bound in enumerate(bounds)))
    if kind == 5:
        lists = ((1, 3, 5), (2, 4, 0), (12, 25))
        return Parts("LIST", "i", tuple((f"l{n}", source.number(), values) for n, values in enumerate(lists)))
    if kind == 6:
        return Parts("HASH", "i", tuple((f"p{n}", source.number(), ()) for n in range(2 + picks(3))))
    return None


def _create_like(source: Source, picks: Picks) -> None:
    model, name = some_table(source, picks), free_table(source, picks)
    parts = model.parts
    if parts is not None:
        parts = replace(parts, parts=tuple((n, source.number(), bounds) for n, _, bounds in parts.parts))
    columns = tuple(replace(col, id=number + 1) for number, col in enumerate(model.columns))
    table = replace(model, name=name, id=source.number(), columns=columns, parts=parts, rows={}, serial=0)
    table = replace(table, numbered=len(columns), uniques=dict(model.uniques), indexes=dict(model.indexes))
    source.create(table, model.name)


def _drop(source: Source, picks: Picks) -> None:
    source.drop(some_table(source, picks))


def _truncate(source: Source, picks: Picks) -> None:
    source.truncate(some_table(source, picks))


def _recover(source: Source, picks: Picks) -> None:
    old = picks.one(source.recoverable)
    assert isinstance(old, TableId)
    source.recover(old, old if picks(3) else free_table(source, picks))


def _rename(source: Source, picks: Picks) -> None:
    table = some_table(source, picks)
    source.rename([(table.name, free_table(source, picks))])


def _rename_tables(source: Source, picks: Picks) -> None:
    """A chain that moves up, or a rotation through a free name.

    A hop that ends at a free name is filed like the rename of a table that nothing is known of, and holds.
    """
    held, free = list(source.tables), free_table(source, picks)
    count, rotates = 2 + picks(2), picks(2)
    if len(held) < count:
        raise Refused("too few tables")
    first = picks(len(held))
    moving = (held[first:] + held[:first])[:count]
    pairs = [(moving[0], free), *((moving[n + 1], moving[n]) for n in range(count - 1))]
    if rotates:
        pairs.append((free, moving[-1]))
    source.rename(pairs)


def _drop_database(source: Source, picks: Picks) -> None:
    source.drop_database(str(picks.one(source.databases)))


def _create_database(source: Source, picks: Picks) -> None:
    source.create_database(str(picks.one([name for name in DATABASES if name not in source.databases])))


KINDS: Mapping[str, Callable[[Source, Picks], None]] = {
    "nothing": lambda source, picks: None,
    "rows": lambda source, picks: None,
    "create": _create,
    "delete all rows": _clear,
    "truncate": _truncate,
    "rename table": _rename,
    "rename tables": _rename_tables,
    "drop table": _drop,
    "recover table": _recover,
    "create like": _create_like,
    "drop database": _drop_database,
    "create database": _create_database,
    **ALTERATIONS,
}
"""What a step can be; what a row change may be depends on how the changefeed writes."""
