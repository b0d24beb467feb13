"""Random ALTER TABLE for a small source: columns, keys and partitions, with what they make of the rows.

Choices come out of bytes, so that a failing history shrinks; a statement that TiDB would refuse raises `Refused`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from cdc_assets.model.schema import TableId
from cdc_assets_tests.source import Col, ColumnChange, Refused, Row, Rows, Source, Table, Value, converted, quoted

__all__ = [
    "ALTERATIONS",
    "CI",
    "DATABASES",
    "NAMES",
    "Picks",
    "free_table",
    "fresh_column",
    "random_row",
    "random_value",
    "some_table",
    "values",
]

CI = "utf8mb4_general_ci"
TYPES = (
    Col("", "INT"),
    Col("", "VARCHAR", 20),
    Col("", "DECIMAL", 8, 2),
    Col("", "ENUM", elems=("x", "y")),
    Col("", "BIGINT"),
    Col("", "DATE"),
    Col("", "VARBINARY", 16),
    Col("", "TINYINT"),
    Col("", "DOUBLE"),
    Col("", "INT", unsigned=True),
    Col("", "DATETIME", scale=3),
    Col("", "TEXT"),
    Col("", "VARCHAR", 12, collation=CI),
    Col("", "BIGINT", unsigned=True),
)
NAMES = ("p", "q", "r", "s", "u", "w")
TABLES = ("a", "b", "c", "d")
DATABASES = ("one", "two")


class Picks:
    """Numbers out of bytes; 0 when they are used up."""

    def __init__(self, raw: bytes) -> None:
        self.raw = iter(raw)

    def __call__(self, below: int) -> int:
        return next(self.raw, 0) % below if below > 1 else 0

    def one(self, among: Sequence[object]) -> object:
        if not among:
            raise Refused("nothing to choose from")
        return among[self(len(among))]


# --- choosing ---------------------------------------------------------------------------------------------------------


def some_table(source: Source, picks: Picks, fits: Callable[[Table], bool] = lambda _: True) -> Table:
    table = picks.one([table for table in source.tables.values() if fits(table)])
    assert isinstance(table, Table)
    return table


def _column(table: Table, picks: Picks, free: bool) -> Col:
    bound = table.bound_columns if free else set()
    col = picks.one([col for col in reversed(table.columns) if col.name not in bound])
    assert isinstance(col, Col)
    return col


def _free_name(table: Table, picks: Picks) -> str:
    taken = {col.name for col in table.columns}
    return str(picks.one([name for name in NAMES if name not in taken]))


def free_table(source: Source, picks: Picks) -> TableId:
    free = [TableId(db, name) for db in source.databases for name in TABLES if TableId(db, name) not in source.tables]
    name = picks.one(free)
    assert isinstance(name, TableId)
    return name


def values(col: Col) -> tuple[Value, ...]:
    """A few values of the column's type; small ones first, so that keys meet."""
    numbers: tuple[int, ...] = (1, 2, 3, 4, 0, 5, 12, 25)
    if col.type in ("TINYINT", "INT", "BIGINT"):
        top = {"TINYINT": 127, "INT": 2**31 - 1, "BIGINT": 2**40}[col.type] * (2 if col.unsigned else 1)
        return (*numbers, top) if col.unsigned else (*numbers, top, -1, -7)
    if col.type == "DECIMAL":
        return tuple(Decimal(n).scaleb(-(col.scale or 0)) for n in (125, -350, 0, 999999))
    by_type: Mapping[str, tuple[Value, ...]] = {
        "DOUBLE": (0.5, -3.25, 0.0, 100.0),
        "DATE": ("2024-02-29", "1999-12-31", "2030-01-01"),
        "DATETIME": tuple(f"2024-02-29 {t}{'.120'[: (col.scale or -1) + 1]}" for t in ("00:00:00", "23:59:59")),
        "VARBINARY": (b"\x00\xff", b"", b"ab"),
        "ENUM": col.elems,
    }
    return by_type.get(col.type, ("a", "A", "b", "", "á", "a ", "x1", 'q",\r\n\\N'))


def random_value(col: Col, picks: Picks) -> Value:
    """One of the values, or NULL where the column takes it."""
    number = picks(len(values(col)) + (2 if col.nullable else 0))
    return values(col)[number] if number < len(values(col)) else None


def random_row(table: Table, picks: Picks) -> Row:
    """A row of the table."""
    return {col.name: random_value(col, picks) for col in table.columns}


def fresh_column(name: str, picks: Picks) -> Col:
    col = replace(TYPES[picks(len(TYPES))], name=name, nullable=picks(3) != 2)
    pool = values(col)
    if picks(3) == 2 and col.type not in ("TEXT", "VARBINARY"):
        col = replace(col, default=pool[picks(len(pool))])
    # a zero date is not a value of the lake
    return replace(col, nullable=True) if col.type in ("DATE", "DATETIME") and col.default is None else col


# --- columns ----------------------------------------------------------------------------------------------------------


def _placed(table: Table, col: Col, picks: Picks) -> tuple[tuple[Col, ...], str]:
    """The columns with `col` first, after another one, or at the end; and the clause for it."""
    others = [column for column in table.columns if column.name != col.name]
    where = picks(4)
    if where == 1:
        return (col, *others), " FIRST"
    if where == 2 and others:
        at = picks(len(others))
        return (*others[: at + 1], col, *others[at + 1 :]), f" AFTER {quoted(others[at].name)}"
    return (*others, col), ""


def _add_column(source: Source, picks: Picks) -> None:
    table = some_table(source, picks)
    col = replace(fresh_column(_free_name(table, picks), picks), id=table.numbered + 1)
    columns, place = _placed(table, col, picks)
    value = col.implicit if col.default is None else col.default
    rows: Rows = {h: {**row, col.name: value} for h, row in table.rows.items()}
    after = replace(table, columns=columns, rows=rows, numbered=col.id)
    source.alter(table, f"ADD COLUMN {col.sql}{place}", 5, after, ColumnChange("", col.name, value=value))


def _without(table: Table, name: str) -> Table:
    rows: Rows = {h: {n: value for n, value in row.items() if n != name} for h, row in table.rows.items()}
    return replace(table, columns=tuple(col for col in table.columns if col.name != name), rows=rows)


def _drop_column(source: Source, picks: Picks) -> None:
    table = some_table(source, picks)
    name = _column(table, picks, True).name
    if len(table.columns) < 2:
        raise Refused("the last column")
    source.alter(table, f"DROP COLUMN {quoted(name)}", 6, _without(table, name), ColumnChange(name, ""))


def _renamed(table: Table, old: str, new: str) -> Table:
    def turn(columns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in columns)

    return replace(
        table,
        columns=tuple(replace(col, name=new) if col.name == old else col for col in table.columns),
        primary=turn(table.primary),
        uniques={name: turn(columns) for name, columns in table.uniques.items()},
        indexes={name: turn(columns) for name, columns in table.indexes.items()},
        rows={h: {new if n == old else n: v for n, v in row.items()} for h, row in table.rows.items()},
    )


def _rename_column(source: Source, picks: Picks) -> None:
    table = some_table(source, picks)
    col = _column(table, picks, False)
    if table.parts and col.name == table.parts.column:
        raise Refused("the partitioning depends on it")
    new = _free_name(table, picks)
    after, change = _renamed(table, col.name, new), ColumnChange(col.name, new)
    if picks(2):
        source.alter(table, f"CHANGE COLUMN {quoted(col.name)} {after.column(new).sql}", 12, after, change)
    else:
        source.alter(table, f"RENAME COLUMN {quoted(col.name)} TO {quoted(new)}", 12, after, change)


def _swap_columns(source: Source, picks: Picks) -> None:
    """Two columns exchange their names, by a third name."""
    table = some_table(source, picks)
    name, other_name = _column(table, picks, True).name, _column(table, picks, True).name
    if name == other_name:
        raise Refused("one column")
    for old, new in ((name, "swap"), (other_name, name), ("swap", other_name)):
        now = source.tables[table.name]
        clause, change = f"RENAME COLUMN {quoted(old)} TO {quoted(new)}", ColumnChange(old, new)
        source.alter(now, clause, 12, _renamed(now, old, new), change)


def _retyped(col: Col, picks: Picks) -> tuple[Col, Callable[[Value], Value]]:
    """A wider type for the column, and what it makes of a value."""

    def same(value: Value) -> Value:
        return value

    def scaled(value: Value) -> Value:
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-4))

    number, integer = picks(3), col.type in ("TINYINT", "INT", "BIGINT")
    if integer and number == 0 and not col.unsigned:
        return replace(col, type="INT" if col.type == "TINYINT" else "BIGINT"), same
    if integer and number < 2:
        return replace(col, type="VARCHAR", size=40, unsigned=False), str
    if integer:
        return replace(col, type="DECIMAL", size=26, scale=4, unsigned=False), scaled
    if col.type == "DECIMAL" and (col.scale or 0) < 4:
        wide = replace(col, size=26, scale=4) if number else replace(col, size=20)
        return wide, scaled if number else same
    if col.type == "VARCHAR":
        longer = replace(col, size=(col.size or 0) + 10)
        return longer if number or col.default is not None else replace(col, type="TEXT", size=None), same
    if col.type == "DATE":
        return replace(col, type="DATETIME", scale=3), lambda value: f"{value} 00:00:00.000"
    if col.type == "ENUM":
        return replace(col, elems=(*col.elems, f"z{len(col.elems)}") if number else col.elems[::-1]), same
    return col, same


def _modify(source: Source, picks: Picks) -> None:
    table = some_table(source, picks)
    old = _column(table, picks, picks(4) > 0)
    bound = old.name in table.bound_columns
    col, turn = (old, lambda value: value) if bound else _retyped(old, picks)
    if old.name not in table.primary and not bound:
        col = replace(col, nullable=picks(4) != 3)
    if col.default is not None:
        col = replace(col, default=turn(col.default))
    if col.type != old.type and old.type not in ("TINYINT", "INT"):
        # TiDB rewrites the column under a new id
        col = replace(col, id=table.numbered + 1)
    rows = converted(table, old.name, turn)
    columns, place = tuple(col if column.name == col.name else column for column in table.columns), ""
    if picks(3) == 2:
        columns, place = _placed(replace(table, columns=columns), col, picks)
        if not place:
            raise Refused("no new place")
    after = replace(table, columns=columns, rows=rows, numbered=max(table.numbered, col.id))
    source.alter(table, f"MODIFY COLUMN {col.sql}{place}", 12, after, ColumnChange(old.name, col.name, turn))


def _set_default(source: Source, picks: Picks) -> None:
    table = some_table(source, picks)
    col = _column(table, picks, False)
    if col.type in ("TEXT", "VARBINARY") or col.name in table.primary:
        raise Refused("no default")
    pool = values(col)
    number = picks(len(pool) + 1)
    col = replace(col, default=pool[number] if number < len(pool) else None)
    what = "DROP DEFAULT" if col.default is None else f"SET DEFAULT {col.sql.rpartition(' DEFAULT ')[2]}"
    clause = f"ALTER COLUMN {quoted(col.name)} {what}"
    after = replace(table, columns=tuple(col if column.name == col.name else column for column in table.columns))
    source.alter(table, clause, 15, after)


def _several(source: Source, picks: Picks) -> None:
    """One statement that adds, drops and renames."""
    table = some_table(source, picks)
    dropped = _column(table, picks, True).name
    old = _column(table, picks, True).name
    new = _free_name(table, picks)
    if dropped == old:
        raise Refused("one column")
    after = _renamed(_without(table, dropped), old, new)
    col = replace(fresh_column("added", picks), id=table.numbered + 1)
    if any(column.name == "added" for column in table.columns):
        raise Refused("taken")
    value = col.implicit if col.default is None else col.default
    rows: Rows = {h: {**row, col.name: value} for h, row in after.rows.items()}
    after = replace(after, columns=(*after.columns, col), rows=rows, numbered=col.id)
    clauses = f"ADD COLUMN {col.sql}, DROP COLUMN {quoted(dropped)}, RENAME COLUMN {quoted(old)} TO {quoted(new)}"
    changes = ColumnChange(dropped, ""), ColumnChange(old, new), ColumnChange("", "added", value=value)
    source.alter(table, clauses, 61, after, *changes)


# --- keys and partitions ----------------------------------------------------------------------------------------------


def _index(source: Source, picks: Picks) -> None:
    table = some_table(source, picks)
    kind, name = picks(6), f"x{picks(3)}"
    known = {**table.uniques, **table.indexes}
    if kind < 2 and known:
        name = str(picks.one(list(known)))
        uniques = {n: columns for n, columns in table.uniques.items() if n != name}
        indexes = {n: columns for n, columns in table.indexes.items() if n != name}
        return source.alter(table, f"DROP INDEX {quoted(name)}", 8, replace(table, uniques=uniques, indexes=indexes))
    if kind == 2 and table.primary and not table.clustered:
        return source.alter(table, "DROP PRIMARY KEY", 33, replace(table, primary=()))
    col = _column(table, picks, False)
    if name in known or col.type == "TEXT":
        raise Refused("taken")
    if kind == 3 and not table.primary and not col.nullable and table.parts is None:
        clause = f"ADD PRIMARY KEY({quoted(col.name)}) /*T![clustered_index] NONCLUSTERED */"
        return source.alter(table, clause, 32, replace(table, primary=(col.name,), clustered=False))
    if kind == 4 and table.parts is None:
        after = replace(table, uniques={**table.uniques, name: (col.name,)})
        return source.alter(table, f"ADD UNIQUE {quoted(name)}({quoted(col.name)})", 7, after)
    after = replace(table, indexes={**table.indexes, name: (col.name,)})
    return source.alter(table, f"ADD INDEX {quoted(name)}({quoted(col.name)})", 7, after)


def _partition_rows(source: Source, picks: Picks) -> None:
    """DROP or TRUNCATE PARTITION."""
    table = some_table(source, picks, lambda table: table.parts is not None)
    parts = table.parts
    assert parts is not None
    at, drop = picks(len(parts.parts)), picks(2) and parts.kind != "HASH"
    name, physical, bounds = parts.parts[at]
    rows = {h: row for h, row in table.rows.items() if parts.place(row) != physical}
    left = list(parts.parts)
    if drop:
        if len(left) < 2:
            raise Refused("the last partition")
        del left[at]
    else:
        left[at] = (name, source.number(), bounds)
    after = replace(table, rows=rows, parts=replace(parts, parts=tuple(left)))
    source.alter(table, f"{'DROP' if drop else 'TRUNCATE'} PARTITION {quoted(name)}", 20 if drop else 23, after)


def _add_partition(source: Source, picks: Picks) -> None:
    table = some_table(source, picks, lambda table: table.parts is not None and table.parts.kind != "HASH")
    parts = table.parts
    assert parts is not None
    number = source.number()
    if parts.kind == "RANGE":
        bounds: tuple[int, ...] = (max(part[2][0] for part in parts.parts) * 2,)
    else:
        taken = {value for part in parts.parts for value in part[2]}
        bounds = tuple(value for value in (1, 2, 3, 4, 0, 5, 12, 25, 2**31 - 1) if value not in taken)[:3]
        if not bounds:
            raise Refused("no value left")
    name = f"n{number}"
    after = replace(table, parts=replace(parts, parts=(*parts.parts, (name, number, bounds))))
    source.alter(table, f"ADD PARTITION ({parts.define(name, bounds)})", 19, after)


def _reorganize(source: Source, picks: Picks) -> None:
    """Two neighbouring partitions become one."""
    table = some_table(source, picks, lambda table: table.parts is not None and table.parts.kind != "HASH")
    parts = table.parts
    assert parts is not None
    if len(parts.parts) < 2:
        raise Refused("one partition")
    at = picks(len(parts.parts) - 1)
    left, right = parts.parts[at : at + 2]
    number = source.number()
    bounds = right[2] if parts.kind == "RANGE" else left[2] + right[2]
    joined = (*parts.parts[:at], (f"m{number}", number, bounds), *parts.parts[at + 2 :])
    clause = f"REORGANIZE PARTITION {quoted(left[0])}, {quoted(right[0])} INTO ({parts.define(f'm{number}', bounds)})"
    source.alter(table, clause, 64, replace(table, parts=replace(parts, parts=joined)))


def _exchange(source: Source, picks: Picks) -> None:
    """With a table of the same columns and keys; one is made where there is none."""
    table = some_table(source, picks, lambda table: table.parts is not None)
    assert table.parts is not None

    def fits(other: Table) -> bool:
        def shape(table: Table) -> object:
            return (
                [replace(c, default=None) for c in table.columns],
                table.primary,
                table.clustered,
                table.uniques,
                table.indexes,
            )

        return other.parts is None and shape(other) == shape(table)

    at = picks(len(table.parts.parts))
    others = [other for other in source.tables.values() if fits(other)]
    if others:
        return source.exchange(table, at, others[picks(len(others))])
    fresh = replace(table, name=free_table(source, picks), id=source.number(), parts=None, rows={}, serial=0)
    return source.create(replace(fresh, uniques=dict(table.uniques), indexes=dict(table.indexes)))


ALTERATIONS: Mapping[str, Callable[[Source, Picks], None]] = {
    "add column": _add_column,
    "drop column": _drop_column,
    "rename column": _rename_column,
    "modify column": _modify,
    "set default": _set_default,
    "index": _index,
    "swap columns": _swap_columns,
    "several changes": _several,
    "delete a partition's rows": _partition_rows,
    "add partition": _add_partition,
    "reorganize partition": _reorganize,
    "exchange partition": _exchange,
}
"""Kinds of ALTER TABLE that a step can be."""
