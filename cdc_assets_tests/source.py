"""A small TiDB in plain Python: databases, tables, rows and DDL, and the log of what a changefeed sees of them.

It is the oracle of generated histories: it shares no code with what it judges. Statements that TiDB would refuse raise
`Refused` and change nothing. `Source.log` has every committed DDL and transaction with its commit-ts, and
`Source.contents(ts)` what the tables held then.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

__all__ = [
    "Col",
    "ColumnChange",
    "Contents",
    "Ddl",
    "Parts",
    "Refused",
    "Row",
    "RowChange",
    "SchemaNote",
    "Source",
    "Table",
    "Transaction",
    "Value",
    "converted",
    "normal",
    "quoted",
]

Value = int | float | Decimal | str | bytes | None
Row = Mapping[str, Value]
Rows = dict[Hashable, Row]
Contents = Mapping[TableId, tuple[tuple[str, ...], Counter[tuple[Value, ...]]]]
"""Column names in order and the multiset of rows, by table."""

_FIRST: Tso = (1774915080000 << 18) + 1


class Refused(Exception):
    """TiDB would not carry this out."""


@dataclass(frozen=True, slots=True)
class Col:
    """A column: `size` is precision or length, `scale` fraction digits, `id` what ColumnId prints."""

    name: str
    type: str
    size: int | None = None
    scale: int | None = None
    unsigned: bool = False
    nullable: bool = True
    default: Value = None
    elems: tuple[str, ...] = ()
    collation: str = ""
    id: int = 0

    @property
    def sql(self) -> str:
        """The column definition as TiDB restores it."""
        if self.type == "ENUM":
            kind = f"ENUM({','.join(map(_literal_text, self.elems))})"
        elif self.type == "DECIMAL":
            kind = f"DECIMAL({self.size},{self.scale})"
        elif self.type == "DATETIME" and self.scale:
            kind = f"DATETIME({self.scale})"
        elif self.type in ("VARCHAR", "VARBINARY"):
            kind = f"{self.type}({self.size})"
        else:
            kind = self.type
        kind += " UNSIGNED" if self.unsigned else ""
        kind += f" COLLATE {self.collation.upper()}" if self.collation else ""
        kind += "" if self.nullable else " NOT NULL"
        kind += "" if self.default is None else f" DEFAULT {_literal(self.default)}"
        return f"{quoted(self.name)} {kind}"

    @property
    def implicit(self) -> Value:
        """What old rows get from ADD COLUMN without DEFAULT."""
        if self.nullable:
            return None
        zeros: dict[str, Value] = {
            "VARCHAR": "",
            "TEXT": "",
            "VARBINARY": b"",
            "DOUBLE": 0.0,
            "DECIMAL": Decimal(0).scaleb(-(self.scale or 0)),
        }
        return self.elems[0] if self.elems else zeros.get(self.type, 0)


def quoted(name: str) -> str:
    """Return the name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def _literal(value: Value) -> str:
    return str(value) if isinstance(value, (int, float)) else f"_UTF8MB4{_literal_text(str(value))}"


def _literal_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def normal(value: Value, col: Col) -> Value:
    """The value as its collation compares it: padding always, case and accents for general_ci."""
    if not isinstance(value, str) or col.type == "ENUM":
        return value
    if col.collation == "utf8mb4_general_ci":
        value = value.upper().translate({0xC1: "A", 0xC9: "E"})
    return value.rstrip(" ")


@dataclass(frozen=True, slots=True)
class Parts:
    """RANGE, LIST or HASH over one integer column. Each part: name, physical id, bound or values."""

    kind: str
    column: str
    parts: tuple[tuple[str, int, tuple[int, ...]], ...]

    def place(self, row: Row) -> int:
        """Return the physical id of the partition that takes the row."""
        value = row[self.column]
        assert value is None or isinstance(value, int)
        if self.kind == "HASH":
            return self.parts[abs(value or 0) % len(self.parts)][1]
        for _, physical, bounds in self.parts:
            if self.kind == "LIST" and value in bounds:
                return physical
            if self.kind == "RANGE" and (value is None or value < bounds[0]):
                return physical
        raise Refused("no partition for this value")

    @property
    def sql(self) -> str:
        """PARTITION BY as TiDB restores it."""
        head = f"PARTITION BY {self.kind} ({quoted(self.column)})"
        if self.kind == "HASH":
            return f"{head} PARTITIONS {len(self.parts)}"
        return f"{head} ({','.join(self.define(name, bounds) for name, _, bounds in self.parts)})"

    def define(self, name: str, bounds: tuple[int, ...]) -> str:
        """One partition's definition."""
        values = ",".join(map(str, bounds))
        return f"PARTITION {quoted(name)} VALUES " + (
            f"LESS THAN ({values})" if self.kind == "RANGE" else f"IN ({values})"
        )


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that is added (`old` is ""), dropped (`new` is ""), renamed, or whose values `turn` to others.

    `value` is what the rows that are there get in one that is added.
    """

    old: str
    new: str
    turn: Callable[[Value], Value] | None = None
    value: Value = None


@dataclass
class Table:
    """A table with its rows by handle: the normal form of a clustered primary key, else a hidden number."""

    name: TableId
    id: int
    columns: tuple[Col, ...]
    primary: tuple[str, ...] = ()
    clustered: bool = False
    uniques: dict[str, tuple[str, ...]] = field(default_factory=dict)
    indexes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    parts: Parts | None = None
    rows: Rows = field(default_factory=dict)
    serial: int = 0
    numbered: int = 0
    """The highest column id that was ever given."""
    life: int = 0
    """Which of the tables that were ever created."""

    def column(self, name: str) -> Col:
        """The column of that name."""
        return next(col for col in self.columns if col.name == name)

    @property
    def bound_columns(self) -> set[str]:
        """Columns that an index or the partitioning uses."""
        named = {c for index in (*self.uniques.values(), *self.indexes.values()) for c in index}
        return named | set(self.primary) | ({self.parts.column} if self.parts else set())

    @property
    def keyed(self) -> bool:
        """Return whether TiCDC has a handle key: the primary key or a unique one over NOT NULL columns."""
        return bool(self.primary) or any(
            all(not self.column(c).nullable for c in columns) for columns in self.uniques.values()
        )

    def handle(self, row: Row) -> Hashable:
        """The handle of a new row."""
        if self.clustered:
            return tuple(normal(row[name], self.column(name)) for name in self.primary)
        self.serial += 1
        return self.serial

    def check(self, rows: Rows) -> None:
        """Refuse rows that break NOT NULL, a unique key or the partitioning."""
        for row in rows.values():
            if any(row[col.name] is None and not col.nullable for col in self.columns):
                raise Refused("NOT NULL")
            if self.parts:
                self.parts.place(row)
        for columns in filter(None, (self.primary, *self.uniques.values())):
            keys = [tuple(normal(row[c], self.column(c)) for c in columns) for row in rows.values()]
            keys = [key for key in keys if None not in key]
            if len(set(keys)) < len(keys):
                raise Refused("duplicate key")

    def physical(self, row: Row) -> int:
        """The physical id under which the row is stored."""
        return self.parts.place(row) if self.parts else self.id

    @property
    def definition(self) -> str:
        """The CREATE TABLE text's body."""
        lines = [col.sql for col in self.columns]
        if self.primary:
            kind = "CLUSTERED" if self.clustered else "NONCLUSTERED"
            lines.append(f"PRIMARY KEY({_names(self.primary)}) /*T![clustered_index] {kind} */")
        lines += [f"UNIQUE {quoted(name)}({_names(columns)})" for name, columns in self.uniques.items()]
        lines += [f"INDEX {quoted(name)}({_names(columns)})" for name, columns in self.indexes.items()]
        return f"({','.join(lines)})" + (f" {self.parts.sql}" if self.parts else "")


def _names(columns: Iterable[str]) -> str:
    return ", ".join(map(quoted, columns))


# --- what the changefeed sees -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchemaNote:
    """A schema file to be written. `earlier` is the text of the old architecture where it is another one, `table_id`
    the table's logical id, `uniques` are its unique keys."""

    table: TableId
    columns: tuple[Col, ...]
    primary: tuple[str, ...]
    query: str
    type: int
    earlier: str = ""
    table_id: int = 0
    uniques: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL with all files it makes."""

    ts: Tso
    sql: str
    notes: tuple[SchemaNote, ...]


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row before and after a transaction. `split` says that a unique key's value or the partition changes."""

    table: TableId
    columns: tuple[Col, ...]
    primary: tuple[str, ...]
    keyed: bool
    partitioned: bool
    handle: Hashable
    before: Row | None
    after: Row | None
    left: int
    entered: int
    split: bool


@dataclass(frozen=True, slots=True)
class Transaction:
    """The net row changes of one commit."""

    ts: Tso
    changes: tuple[RowChange, ...]


class Source:
    """Databases and tables now, and the log behind them."""

    def __init__(self) -> None:
        self.databases: list[str] = []
        self.tables: dict[TableId, Table] = {}
        self.log: list[Ddl | Transaction] = []
        self._states: list[tuple[Tso, Contents]] = [(0, {})]
        self._numbers = 100
        self._created = 0
        self.past: list[tuple[Tso, Mapping[int, Table]]] = []
        """The tables after each event, by life."""
        self.column_changes: list[tuple[Tso, int, tuple[ColumnChange, ...]]] = []
        self._dropped: dict[TableId, Table] = {}

    def number(self) -> int:
        """A fresh table, partition or column id."""
        self._numbers += 1
        return self._numbers

    def contents(self, ts: Tso) -> Contents:
        """What the tables held right after `ts`."""
        return self._states[bisect.bisect_right([at for at, _ in self._states], ts) - 1][1]

    @property
    def script(self) -> str:
        """The history as text, for a person who has to look into a failure."""
        lines = []
        for event in self.log:
            if isinstance(event, Ddl):
                lines.append(f"{event.ts} {event.sql}")
            else:
                lines += [
                    f"{event.ts} {change.table}: {_shown(change.before)} -> {_shown(change.after)}"
                    for change in event.changes
                ]
        return "\n".join(lines)

    def _tick(self) -> Tso:
        number = len(self.log)
        # two events in each millisecond: only the whole TSO orders them
        return _FIRST + ((number // 2) << 18) + number % 2

    def _committed(self, event: Ddl | Transaction) -> None:
        self.log.append(event)
        held = {}
        for name, table in self.tables.items():
            names = tuple(col.name for col in table.columns)
            held[name] = (names, Counter(tuple(row[n] for n in names) for row in table.rows.values()))
        self._states.append((event.ts, held))
        self.past.append((event.ts, {table.life: replace(table) for table in self.tables.values()}))

    # --- rows ---

    def commit(self, changed: Mapping[TableId, Rows]) -> None:
        """Make these the rows of the tables, in one transaction; refuses rows that a constraint forbids."""
        changes: list[RowChange] = []
        for name, rows in changed.items():
            self.tables[name].check(rows)
        for name, rows in changed.items():
            table = self.tables[name]
            changes += _difference(table, table.rows, rows)
            table.rows = dict(rows)
        if changes:
            self._committed(Transaction(self._tick(), tuple(changes)))

    # --- DDL ---

    def ddl(self, sql: str, *notes: SchemaNote) -> None:
        """Log a DDL whose effect is done."""
        self._committed(Ddl(self._tick(), sql, notes))

    def create_database(self, name: str) -> None:
        """CREATE DATABASE."""
        if name in self.databases:
            raise Refused(name)
        self.databases.append(name)
        sql = f"CREATE DATABASE {quoted(name)}"
        self.ddl(sql, SchemaNote(TableId(name, ""), (), (), sql, 1))

    def drop_database(self, name: str) -> None:
        """DROP DATABASE: one file for all of its tables."""
        self.databases.remove(name)
        self.tables = {table: held for table, held in self.tables.items() if table.schema != name}
        self._dropped = {table: held for table, held in self._dropped.items() if table.schema != name}
        sql = f"DROP DATABASE {quoted(name)}"
        self.ddl(sql, SchemaNote(TableId(name, ""), (), (), sql, 2))

    def create(self, table: Table, like: TableId | None = None) -> None:
        """CREATE TABLE, or CREATE TABLE LIKE."""
        if table.name in self.tables or table.name.schema not in self.databases:
            raise Refused(str(table.name))
        self._created += 1
        table.life = self._created
        self.tables[table.name] = table
        head = f"CREATE TABLE {quoted(table.name.table)}"
        tail = f"LIKE {quoted(like.schema)}.{quoted(like.table)}" if like else table.definition
        self.changed(table, f"{head} {tail}", 3)

    def drop(self, table: Table) -> None:
        """DROP TABLE."""
        self._dropped[table.name] = self.tables.pop(table.name)
        self.changed(table, f"DROP TABLE {quoted(table.name.schema)}.{quoted(table.name.table)}", 4)

    def truncate(self, table: Table) -> None:
        """TRUNCATE TABLE: the rows go, and what was dropped under the name before is not what RECOVER would bring."""
        self._dropped.pop(table.name, None)
        table.rows, table.id = {}, self.number()
        if table.parts is not None:
            parts = tuple((name, self.number(), bounds) for name, _, bounds in table.parts.parts)
            table.parts = replace(table.parts, parts=parts)
        self.changed(table, f"TRUNCATE TABLE {quoted(table.name.table)}", 11)

    @property
    def recoverable(self) -> list[TableId]:
        """The names whose newest dropped table can be had back."""
        return list(self._dropped)

    def recover(self, old: TableId, new: TableId) -> None:
        """RECOVER TABLE, or FLASHBACK TABLE TO where it gets another name of the same database."""
        if new in self.tables or new.schema != old.schema:
            raise Refused(f"{old} to {new}")
        table = self._dropped.pop(old)
        table.name = new
        self.tables[new] = table
        to = f"FLASHBACK TABLE {quoted(old.table)} TO {quoted(new.table)}"
        self.changed(table, f"RECOVER TABLE {quoted(old.table)}" if old == new else to, 25)

    def changed(self, table: Table, sql: str, kind: int) -> None:
        """Log a DDL of one table as it is now."""
        uniques = tuple(table.uniques.items())
        self.ddl(sql, SchemaNote(table.name, table.columns, table.primary, sql, kind, "", table.id, uniques))

    def alter(self, table: Table, clause: str, kind: int, after: Table, *changes: ColumnChange) -> None:
        """ALTER TABLE: `after` is the table as the clause leaves it; refuses what its own rows contradict.

        `changes` say what it does to the columns.
        """
        after.check(after.rows)
        self.tables[table.name] = after
        self.changed(after, f"ALTER TABLE {quoted(table.name.table)} {clause}", kind)
        self.column_changes.append((self.log[-1].ts, table.life, changes))

    def rename(self, pairs: Sequence[tuple[TableId, TableId]]) -> None:
        """RENAME TABLE: one pair after the other; every pair makes a file of its own."""
        tables, before = dict(self.tables), {name: name for name in self.tables}
        notes = []
        for old, new in pairs:
            if old not in tables or new in tables or new.schema not in self.databases:
                raise Refused(f"{old} to {new}")
            tables[new] = tables.pop(old)
            before[new] = before.pop(old)
            text, earlier = _renaming(old, new), _renaming(before[new], new)
            notes.append((new, tables[new], text, earlier))
        self.tables = tables
        for name, table in tables.items():
            table.name = name
        made = [
            SchemaNote(new, t.columns, t.primary, text, 14, earlier, t.id, tuple(t.uniques.items()))
            for new, t, text, earlier in notes
        ]
        self.ddl(", ".join(note.query for note in made), *made)

    def exchange(self, table: Table, place: int, other: Table) -> None:
        """EXCHANGE PARTITION with validation: rows and physical ids change places."""
        assert table.parts
        name, physical, bounds = table.parts.parts[place]
        if any(table.parts.place(row) != physical for row in other.rows.values()):
            raise Refused("rows do not fit the partition")
        partition_rows = {h: row for h, row in table.rows.items() if table.parts.place(row) == physical}
        kept = {h: row for h, row in table.rows.items() if h not in partition_rows}
        table.rows = {**kept, **{_fresh(table, h, row): row for h, row in other.rows.items()}}
        other.rows = {_fresh(other, h, row): row for h, row in partition_rows.items()}
        parts = (*table.parts.parts[:place], (name, other.id, bounds), *table.parts.parts[place + 1 :])
        before, table.parts, other.id = other.id, replace(table.parts, parts=parts), physical
        full = f"{quoted(table.name.schema)}.{quoted(table.name.table)}"
        with_table = f"{quoted(other.name.schema)}.{quoted(other.name.table)}"
        sql = f"ALTER TABLE {full} EXCHANGE PARTITION {quoted(name)} WITH TABLE {with_table}"
        self.ddl(
            sql,
            SchemaNote(table.name, table.columns, table.primary, sql, 42, "", table.id, tuple(table.uniques.items())),
            SchemaNote(other.name, other.columns, other.primary, "", 0, table_id=before),
        )


def _fresh(table: Table, handle: Hashable, row: Row) -> Hashable:
    return handle if table.clustered else table.handle(row)


def _renaming(old: TableId, new: TableId) -> str:
    full = [f"{quoted(name.schema)}.{quoted(name.table)}" for name in (old, new)]
    return f"RENAME TABLE {full[0]} TO {full[1]}"


def _difference(table: Table, before: Rows, after: Rows) -> Iterable[RowChange]:
    unique = {c for columns in (table.primary, *table.uniques.values()) for c in columns}
    for handle in dict.fromkeys((*before, *after)):
        old, new = before.get(handle), after.get(handle)
        if old == new:
            continue
        left = table.physical(old) if old is not None else 0
        entered = table.physical(new) if new is not None else 0
        split = False
        if old is not None and new is not None:
            split = left != entered or any(old[c] != new[c] for c in unique)
        yield RowChange(
            table.name,
            table.columns,
            table.primary,
            table.keyed,
            table.parts is not None,
            handle,
            old,
            new,
            left,
            entered,
            split,
        )


def _shown(row: Row | None) -> str:
    return "-" if row is None else "(" + ", ".join(f"{name}={value!r}" for name, value in row.items()) + ")"


def converted(table: Table, name: str, turn: Callable[[Value], Value]) -> Rows:
    """The rows with one column's values turned; NULL stays."""
    return {h: {**row, name: None if row[name] is None else turn(row[name])} for h, row in table.rows.items()}
