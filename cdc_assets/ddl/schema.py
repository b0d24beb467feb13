"""A CREATE TABLE text -> TableSchema, alone or beside its schema file; and the key that identifies a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from cdc_assets.ddl.alter import AddColumnSpec, ChangeColumnSpec, specs
from cdc_assets.ddl.clauses import ColumnText, TableBody, charset_of, default_collation, table
from cdc_assets.ddl.columns import column_of, computed_default, known_default, of_server, survives_json
from cdc_assets.ddl.kept_columns import bare
from cdc_assets.ddl.statement import Alter, CreateTableStatement, Rename, Statement, create_head, statement
from cdc_assets.ddl.text import Cursor, Unreadable, tokens
from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import ROW_END, Column, Index, TableSchema
from cdc_assets.model.splits import SchemaFile

_TEXT_TYPES = frozenset("CHAR VARCHAR VAR_STRING TINYTEXT TEXT MEDIUMTEXT LONGTEXT ENUM SET".split())
DEFAULT_COLLATION = "utf8mb4_bin"


def held(file: SchemaFile, reason: str, *ways: str, column: str | None = None) -> TableHeld:
    """Return the error that holds the table of a schema file; `ways` are the ways out, which are shown beside it."""
    text = f": {file.query}" if file.query else " (no DDL text)"
    return TableHeld(
        f"{file.table} at {file.version}{text}. {reason.removesuffix('.')}.",
        file=file.path,
        table=str(file.table),
        commit_ts=file.version,
        column=column,
        ways=ways or None,
    )


def with_facts(file: SchemaFile, facts: TableSchema | None) -> TableSchema:
    """Return the file's columns in its order, with what texts say of columns of the same name and type.

    Columns that no schema file lists are taken from the facts, if there are any.
    """
    if file.grows and file.whole is not None:
        return file.whole
    if (file.by_text or file.whole is not None) and facts is not None:
        return bare(facts)
    if facts is None:
        return TableSchema(file.columns)
    facts_by_name = {column.name: column for column in facts.columns}
    return replace(facts, columns=tuple(_with_facts(column, facts_by_name.get(column.name)) for column in file.columns))


def _with_facts(column: Column, stated: Column | None) -> Column:
    if stated is None or stated.type != column.type:
        return column
    elems = column.elems or stated.elems
    if (elems, stated.collation, stated.virtual) == (column.elems, column.collation, column.virtual):
        return column
    return replace(column, elems=elems, collation=stated.collation, virtual=stated.virtual)


def is_text(column: Column) -> bool:
    """Return whether values of the column compare by a collation."""
    return column.type in _TEXT_TYPES


def create(
    file: SchemaFile, like: TableSchema | None, database_collation: str | None, timezone: str | None = None
) -> TableSchema:
    """Return the table's schema: columns of the file, with what only the CREATE TABLE text (or `like`) has.

    Without text (the table existed before the changefeed) only what the file has: no collations, no unique keys, no
    partitions, and virtual columns look like others. With only a text (`SchemaFile.by_text`) the result is that of
    `created`. A TIMESTAMP's default in the text is read in that time zone. Raises TableHeld when the text cannot be
    read or names other columns than the file.
    """
    if file.whole is not None:
        return _keyed(file.whole)
    if file.by_text:
        try:
            schema = created(file.query, like=like, database_collation=database_collation, timezone=timezone)
            return replace(schema, columns=of_server(schema.columns, file.server))
        except Unreadable as reason:
            raise held(
                file,
                f"The text gives no columns: {reason}",
                "give the CREATE TABLE as SHOW CREATE TABLE prints it",
            ) from reason
    ddl_statement = statement(file)
    if not isinstance(ddl_statement, CreateTableStatement):
        return _keyed(TableSchema(_defined_by_alter(file, ddl_statement, timezone)))
    if ddl_statement.like is not None:
        return _keyed(_like(file, like))
    try:
        text = _table_text(file.query)
    except Unreadable as problem:
        raise held(
            file,
            f"The text of CREATE TABLE cannot be read ({problem}), so virtual columns and unique keys are not known",
        ) from problem
    defined = {column.name.lower() for column in text.columns}
    listed = {name for column in file.columns if (name := column.name.lower()) in defined or not column.hidden}
    if defined != listed:
        raise held(
            file,
            f"The text has the columns {_names(defined - listed) or 'none'} that the file does not list, the file "
            f"{_names(listed - defined) or 'none'} that the text does not have",
            "restore the schema file as TiCDC wrote it",
        )
    return _keyed(_merge(file.columns, text, database_collation, timezone))


def created(
    sql: str,
    *,
    like: TableSchema | None = None,
    database_collation: str | None = None,
    timezone: str | None = None,
    shown: bool = False,
) -> TableSchema:
    """Return the schema that a CREATE TABLE statement makes, without a schema file beside it.

    The columns are those that TiCDC's schema file has for the same statement, ids apart. `like` is the schema of the
    table that CREATE TABLE … LIKE names. `timezone` is the zone of the session that a TIMESTAMP's default is printed
    for; None leaves it as printed. `shown` is for texts of SHOW CREATE TABLE: TiDB prints a line break in a member as
    a backslash and `n`, and a backslash as itself, so the members of such a column are not known.

    Raises Unreadable for a text that is not a CREATE TABLE, names a column twice or one that it lacks, or has a type
    that is not known.
    """
    at = Cursor(tokens(sql))
    create_head(at)
    if at.sees("LIKE") or at.sees("(", "LIKE"):
        if like is None:
            raise Unreadable("the table that it is LIKE is not known")
        return _keyed(replace(like, key=()))
    text = _table_text(sql)
    if shown:
        text = replace(text, columns=tuple(_without_doubtful_members(column) for column in text.columns))
    names = [column.name.lower() for column in text.columns]
    if not names or len(set(names)) < len(names):
        raise Unreadable("it has no columns" if not names else "it has a column twice")
    primary = {name.lower() for index in text.indexes if index.primary for name in index.columns}
    if not primary.issubset(names):
        raise Unreadable("its primary key has a column that it does not have")
    charset = charset_of(_collation_of(text, database_collation))
    keyed = (replace(column, primary=column.name.lower() in primary) for column in text.columns)
    listed = tuple(column_of(column, charset) for column in keyed)
    return _keyed(_merge(listed, text, database_collation, timezone))


def _without_doubtful_members(text: ColumnText) -> ColumnText:
    doubtful = any(re.search(r"\\[0nr]", member) for member in text.elems or ())
    return replace(text, elems=None) if doubtful else text


@lru_cache(maxsize=8192)  # every plan reads every DDL again
def _table_text(query: str) -> TableBody:
    at = Cursor(tokens(query))
    create_head(at)
    return table(at)


def refuse_past_rows(file: SchemaFile, defined: Iterable[ColumnText]) -> None:
    """Raise TableHeld for a table with system versioning unless one of its columns says until when a row is there."""
    if _shows_past_rows(defined):
        return
    raise held(
        file,
        "MariaDB keeps former versions of its rows from here on, in columns that no event shows. It sends a DELETE as "
        "an update and former versions as inserts, which cannot be told from others",
        f'leave the table out: tables: {{exclude: ["{file.table}"]}} in the settings',
        "let columns of its own say since and until when a row is there: at the source ALTER TABLE … DROP SYSTEM "
        "VERSIONING, then ALTER TABLE … ADD COLUMN s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, ADD COLUMN e "
        "TIMESTAMP(6) GENERATED ALWAYS AS ROW END, ADD PERIOD FOR SYSTEM_TIME(s, e), ADD SYSTEM VERSIONING; release "
        "the first ALTER with --skip and the later one with --rebuild; let an incremental snapshot bring the rows",
    )


def _defined_by_alter(file: SchemaFile, ddl_statement: Statement, timezone: str | None) -> tuple[Column, ...]:
    """Return the columns of a table that is first seen by an ALTER, with what its text says of those it defines."""
    if not isinstance(ddl_statement, Alter | Rename):
        return file.columns
    try:
        defined = [spec.text for spec in specs(file.query) if isinstance(spec, AddColumnSpec | ChangeColumnSpec)]
    except Unreadable:
        return file.columns
    texts = {text.name.lower(): text for text in defined if text is not None}
    return tuple(
        facts(column, text, None, timezone, file.server) if (text := texts.get(column.name.lower())) else column
        for column in file.columns
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _like(file: SchemaFile, like: TableSchema | None) -> TableSchema:
    if like is None:
        return TableSchema(file.columns)
    originals = {column.name.lower(): column for column in like.columns}
    columns = tuple(
        replace(
            column,
            elems=column.elems or known_column.elems,
            collation=known_column.collation,
            virtual=known_column.virtual,
            comment=known_column.comment,
            generated=known_column.generated,
            computed=known_column.computed,
            zerofill=known_column.zerofill,
            default=known_column.default if column.default is None or not survives_json(column) else column.default,
        )
        if (known_column := originals.get(column.name.lower())) is not None
        else column
        for column in file.columns
    )
    return replace(like, columns=columns, key=())


def _merge(
    listed: tuple[Column, ...], text: TableBody, database_collation: str | None, timezone: str | None
) -> TableSchema:
    collation = _collation_of(text, database_collation)
    texts = {column.name.lower(): column for column in text.columns}
    columns = tuple(
        facts(column, text_of, collation, timezone)
        if (text_of := texts.get(column.name.lower())) is not None
        else column
        for column in listed
    )
    indexes = primary_first(text.indexes, columns)
    hides_past_rows = text.versioned and not _shows_past_rows(text.columns)
    table_facts = text.partitioning, collation, text.comment, text.clustered
    return TableSchema(columns, (), indexes, *table_facts, hides_past_rows=hides_past_rows)


def _shows_past_rows(defined: Iterable[ColumnText]) -> bool:
    """Return whether one of the columns says until when a row was there."""
    return any(text.expression == ROW_END for text in defined)


def _collation_of(text: TableBody, database_collation: str | None) -> str:
    return _own_collation(text) or database_collation or DEFAULT_COLLATION


def _own_collation(text: ColumnText | TableBody) -> str:
    """Return the collation that a definition states, by its charset where by nothing else; "" where it states none."""
    return text.collation or (text.charset and default_collation(text.charset))


def facts(
    column: Column, text: ColumnText, table_collation: str | None, timezone: str | None, server: str = ""
) -> Column:
    """Return the column with what its definition has: members, collation, virtual, a default that its file has not."""
    elems = column.elems if column.elems is not None else text.elems
    collation, virtual = _collation(column, text, table_collation), text.generated == "VIRTUAL"
    computed = computed_default(text.default)
    text_facts = (elems, collation, virtual, text.comment, text.expression, computed, text.zerofill)
    described = column
    had = (column.elems, column.collation, column.virtual, column.comment, column.generated, column.computed)
    if text_facts != (*had, column.zerofill):
        described = replace(
            column,
            elems=elems,
            collation=collation,
            virtual=virtual,
            comment=text.comment,
            generated=text.expression,
            computed=computed,
            zerofill=text.zerofill,
        )
    default = known_default(described, text.default, timezone, server)
    return described if default is described.default else replace(described, default=default)


def _collation(column: Column, text: ColumnText, table_collation: str | None) -> str | None:
    if not is_text(column):
        return None
    collation = _own_collation(text) or table_collation or None
    return f"{charset_of(collation)}_bin" if collation and text.binary and not text.collation else collation


def primary_first(indexes: tuple[Index, ...], columns: tuple[Column, ...]) -> tuple[Index, ...]:
    """Make the primary key agree with `ColumnIsPk`, whose columns are the truth; the text gives their order."""
    listed = tuple(column.name for column in columns if column.is_pk)
    spelled: Mapping[str, str] = {column.name.lower(): column.name for column in columns}
    spelled_indexes = tuple(
        replace(index, columns=tuple(spelled.get(name.lower(), name) for name in index.columns)) for index in indexes
    )
    primary = next((index for index in spelled_indexes if index.primary), None)
    if primary is None or set(primary.columns) != set(listed):
        primary = Index("PRIMARY", listed, True, True) if listed else None
    rest = tuple(index for index in spelled_indexes if not index.primary)
    return (primary, *rest) if primary else rest


def key_of(schema: TableSchema, setting: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the columns that identify a row: those of the setting, the primary key, or a unique index over NOT NULL.

    Of several such indexes TiCDC's handle key is the one with the fewest columns, then the oldest
    (`tiflow:cdc/model/schema_storage.go`). () means that no key is known and rows are counted, not matched. Raises
    TableHeld for a setting that names a column the table does not have.
    """
    if setting:
        return tuple(_named(schema, name) for name in setting)
    primary = next((index.columns for index in schema.indexes if index.primary), ())
    listed = tuple(column.name for column in schema.columns if column.is_pk)
    if listed:
        return primary if set(primary) == set(listed) else listed
    if primary:  # not of MySQL: YDB's may hold NULL, which identifies a row like any other value
        return primary
    usable = {column.name for column in schema.columns if not column.nullable and not column.virtual}
    unique = [index for index in schema.indexes if index.unique and not index.partial and index.columns]
    whole = [index.columns for index in unique if usable.issuperset(index.columns)]
    return min(whole, key=len) if whole else ()


def _named(schema: TableSchema, name: str) -> str:
    for column in schema.columns:
        if column.name.lower() == name.lower() and not column.virtual:
            return column.name
    have = ", ".join(column.name for column in schema.stored)
    raise TableHeld(
        f'The key setting names the column "{name}", which the table does not store; it has {have}. '
        "Correct the setting.",
        column=name,
        ways=("correct the setting `keys` of this table",),
    )


def _keyed(schema: TableSchema) -> TableSchema:
    return replace(schema, key=key_of(schema, None))
