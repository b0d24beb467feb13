"""A known schema + the text of a DDL -> the schema afterwards, where no schema file lists its columns.

The text says of each column what schema files say: type, lengths, default, position. As in MySQL, names that a clause
changes are those before the statement; names in FIRST and AFTER are those after the preceding clauses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from cdc_assets.ddl.alter import (
    AddColumnSpec,
    AddIndexSpec,
    AlterDefaultSpec,
    ChangeColumnSpec,
    CharsetSpec,
    DropColumnSpec,
    DropIndexSpec,
    Spec,
    StrangeSpec,
    specs,
)
from cdc_assets.ddl.clauses import ColumnText, charset_of
from cdc_assets.ddl.columns import INTEGERS, column_of, of_server
from cdc_assets.ddl.evolve import Pairs, read_text, schema_after
from cdc_assets.ddl.schema import DEFAULT_COLLATION, held, is_text
from cdc_assets.ddl.statement import Alter, Exchange, Rename, SchemaSnapshot, Unknown, statement
from cdc_assets.ddl.text import Unreadable
from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn, DropColumn, MoveColumns, Rekey, RetypeColumn, SchemaChange
from cdc_assets.model.splits import SchemaFile
from cdc_assets.types.conversions.described import grows
from cdc_assets.types.mysql_types import arrow_type, type_text


class Unfollowed(Exception):
    """The effect of a text on a schema is unknown; the table is held with this reason."""


@dataclass
class _Place:
    """A column while a statement is evaluated; `origin` is the column before it, None for a new one."""

    column: Column
    origin: Column | None


def altered(
    before: TableSchema,
    sql: str,
    *,
    action: int = 0,
    database_collation: str | None = None,
    timezone: str | None = None,
) -> TableSchema:
    """Return the schema that a DDL text leads to from a known one: columns, keys, partitions, collation, comment.

    The columns are those that TiCDC's schema file has for the same statement; columns keep their ids, new ones have
    none. What changes rows or names only (TRUNCATE, RENAME TABLE, EXCHANGE PARTITION) leaves the schema as it is.
    `action` is TiDB's number of the action, 0 where it is not known; `timezone` is the zone of the session that a
    TIMESTAMP's default is printed for, None leaves it as printed. Raises Unfollowed for a text that cannot be read, has
    an unknown clause, or names columns that the table does not have.
    """
    file = SchemaFile("", "", TableId("", ""), 0, sql, action, ())
    kind = statement(file)
    if isinstance(kind, Unknown | SchemaSnapshot):
        raise Unfollowed("it cannot be read" if sql.strip() else "there is no text")
    if not isinstance(kind, Alter | Rename | Exchange):
        return before
    try:
        clauses = specs(sql)
        places = _played(before, clauses, _charset(before, clauses, database_collation))
        columns = tuple(place.column for place in places)
        file_after = replace(file, columns=columns)
        text = read_text(before, file_after, kind)
    except (Unreadable, TableHeld) as problem:
        raise Unfollowed(str(problem)) from problem
    remaining = {id(place.origin) for place in places}
    origin = {place.column.name.lower(): place.origin for place in places}
    pairs = Pairs(origin, tuple(column for column in before.columns if id(column) not in remaining))
    return schema_after(before, file_after, text, pairs, database_collation, timezone)


def listed(
    file: SchemaFile, before: TableSchema, database_collation: str | None, timezone: str | None = None
) -> SchemaFile:
    """Return a file whose columns only its text defines with these columns; any other one as it is.

    An integer column that later rows show unchanged is taken as unchanged, whatever the text says. Raises TableHeld for
    what `altered` cannot follow.
    """
    if not file.by_text:
        return file
    kind = statement(file)
    if isinstance(kind, Unknown):
        raise held(file, kind.reason)
    try:
        after = altered(before, file.query, action=file.type, database_collation=database_collation, timezone=timezone)
    except Unfollowed as problem:
        raise held(file, f"Its effect on the columns is unknown: {problem}") from problem
    old, shown = ({column.name.lower(): column for column in some} for some in (before.columns, file.columns))
    made = of_server(after.columns, file.server)
    columns = (_as_shown(column, old.get(column.name.lower()), shown.get(column.name.lower())) for column in made)
    return defaults_by_text(replace(file, columns=tuple(columns), by_text=False))


def _as_shown(by_text: Column, old: Column | None, shown: Column | None) -> Column:
    if old is None or shown is None or not {by_text.type, old.type, shown.type} <= INTEGERS:
        return by_text
    widths = [(column.type, column.unsigned) for column in (by_text, old, shown)]
    return old if widths[2] == widths[1] != widths[0] else by_text


def _charset(before: TableSchema, clauses: tuple[Spec, ...], database_collation: str | None) -> str:
    collations = [spec.collation for spec in clauses if isinstance(spec, CharsetSpec) and spec.collation]
    collation = collations[-1] if collations else before.collation or database_collation or DEFAULT_COLLATION
    return charset_of(collation)


def _played(before: TableSchema, clauses: tuple[Spec, ...], charset: str) -> list[_Place]:
    places = [_Place(column, column) for column in before.columns]
    for spec in clauses:
        if isinstance(spec, DropColumnSpec):
            _drop(places, spec)
    for spec in clauses:
        match spec:
            case AddColumnSpec():
                new_name = spec.text.name.lower()
                is_there = any(other.column.name.lower() == new_name for other in places)
                if not (spec.if_missing and is_there):
                    _put(places, _Place(column_of(spec.text, charset), None), spec.text)
            case ChangeColumnSpec():
                _change(places, spec, charset)
            case AlterDefaultSpec(name):
                place = _of_before(places, name)
                place.column = replace(place.column, default=None)  # `schema_after` takes it from the text
            case CharsetSpec(collation, True):
                if not collation or charset_of(collation) == "binary":
                    raise Unfollowed("CONVERT TO that charset gives columns other types")
                for converted in places:
                    converted.column = replace(
                        converted.column, collation=collation if is_text(converted.column) else None
                    )
            case StrangeSpec(text):
                raise Unfollowed(f'the clause "{text}" is not known')
            case _:
                pass
    # The columns of a new primary key are NOT NULL; those of a dropped one stay so.
    if any(isinstance(clause, DropIndexSpec) and clause.name.upper() == "PRIMARY" for clause in clauses):
        for keyed in places:
            keyed.column = replace(keyed.column, is_pk=keyed.origin is None and keyed.column.is_pk)
    for clause in clauses:
        if isinstance(clause, AddIndexSpec):
            for keyed in [places[_now(places, name)] for name in clause.index.columns]:
                if clause.index.primary:
                    keyed.column = replace(keyed.column, is_pk=True, nullable=False)
    names = [place.column.name.lower() for place in places]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not names:
        raise Unfollowed(f"the table already has {', '.join(twice)}" if twice else "no column would be left")
    return places


# --- columns ----------------------------------------------------------------------------------------------------------


def _drop(places: list[_Place], spec: DropColumnSpec) -> None:
    if spec.if_exists and not any(place.column.name.lower() == spec.name.lower() for place in places):
        return
    places.remove(_of_before(places, spec.name))


def _change(places: list[_Place], spec: ChangeColumnSpec, charset: str) -> None:
    place = _of_before(places, spec.old)
    if spec.text is None:
        place.column = replace(place.column, name=spec.new)
        return
    made = column_of(spec.text, charset)
    in_key = made.is_pk or place.column.is_pk
    made = replace(made, id=place.column.id, is_pk=in_key, nullable=made.nullable and not in_key)
    place.column = replace(made, bytewise=place.column.bytewise)
    if spec.text.place is not None:
        places.remove(place)
        _put(places, place, spec.text)


def _put(places: list[_Place], place: _Place, text: ColumnText) -> None:
    """Insert a column where its definition says: FIRST, AFTER another one, else at the end."""
    at = len(places)
    if text.place == "":
        at = 0
    elif text.place is not None:
        at = _now(places, text.place) + 1
    places.insert(at, place)


def _of_before(places: list[_Place], name: str) -> _Place:
    """Return the column that had a name before the statement, or that an earlier clause added."""
    folded = name.lower()
    for place in places:
        if place.origin is not None and place.origin.name.lower() == folded:
            return place
    for place in places:
        if place.origin is None and place.column.name.lower() == folded:
            return place
    have = ", ".join(place.column.name for place in places)
    raise Unfollowed(
        f'it names the column "{name}", but the table is known with {have}: a DDL before it is missing, or the given '
        "CREATE TABLE is not this table's"
    )


def _now(places: list[_Place], name: str) -> int:
    """Return the place of the column of a name; an earlier clause may have given it the name."""
    folded = name.lower()
    for at, place in enumerate(places):
        if place.column.name.lower() == folded:
            return at
    return places.index(_of_before(places, name))


# --- the primary key --------------------------------------------------------------------------------------------------


def defaults_by_text(file: SchemaFile) -> SchemaFile:
    """Return the file without `ColumnDefault` of the columns that its text adds: the text's default counts, or none.

    It is for a text that is not the file's own, and for columns that come from the text.
    """
    try:
        texts = [spec.text for spec in specs(file.query) if isinstance(spec, AddColumnSpec)]
    except Unreadable:
        return file
    added = {text.name.lower() for text in texts}
    columns = (replace(column, default=None) if column.name.lower() in added else column for column in file.columns)
    return replace(file, columns=tuple(columns))


_UNKNOWN = "NULL: the feed does not have the values of old rows"
_REBUILD = "rebuild the table from a new snapshot"


def grown(before: TableSchema, file: SchemaFile) -> tuple[TableSchema, tuple[SchemaChange, ...]]:
    """Return the schema after rows describe other columns, and the changes in an executable order.

    Columns that are gone appear as DropColumn; the caller decides whether the lake keeps them. Raises TableHeld for a
    type that does not hold the old one's values, and for a key of columns that old rows do not have.
    """
    shown = file.whole or TableSchema(file.columns)
    old = {column.name: column for column in before.columns}
    shown = replace(shown, columns=tuple(_wider(old.get(column.name), column) for column in shown.columns))
    new = {column.name for column in shown.columns}
    after = replace(before, columns=shown.columns, key=shown.key, indexes=shown.indexes)
    changes: list[SchemaChange] = [DropColumn(name) for name in old if name not in new]
    changes += [AddColumn(column, None, _UNKNOWN) for column in shown.columns if column.name not in old]
    for column in shown.columns:
        if column.name in old and arrow_type(old[column.name]) != arrow_type(column):
            former = old[column.name]
            if not grows(former, column):
                raise held(
                    file,
                    f'The column "{column.name}" changed from {type_text(former)} to {type_text(column)}, which does '
                    "not hold every value of the old type, so what became of the values of old rows is not known",
                    _REBUILD,
                    column=column.name,
                )
            changes.append(RetypeColumn(former, column))
    in_place = [column.name for column in before.columns if column.name in new]
    in_place += [column.name for column in shown.columns if column.name not in old]
    order = tuple(column.name for column in shown.columns)
    if list(order) != in_place:
        changes.append(MoveColumns(order))
    if shown.key != before.key:
        there = {column.name for column in before.columns}
        if not before.key or not shown.key or not there.issuperset(shown.key):
            raise held(
                file,
                f"The key changed from ({', '.join(before.key)}) to ({', '.join(shown.key)}), by which old rows "
                "cannot be identified",
                _REBUILD,
            )
        changes.append(Rekey(shown.key))
    return after, tuple(changes)


def _wider(old: Column | None, new: Column) -> Column:
    """Keep a type that holds every value of the new one and rounds none: rows of a partition may lag behind."""
    if old is None or arrow_type(old) == arrow_type(new) or not grows(new, old):
        return new
    kind = arrow_type(old)
    exact = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and (old.scale or 0) == (new.scale or 0))
    return old if exact else new
