"""The schemas of a topic's tables: DDL texts, known older tables, columns in messages -> schema files. Pure.

DDL comes as text without columns; what the columns are follows from the text and the table before it (`ddl.altered`),
as history plays the files. A table that is older than the topic begins with its CREATE TABLE from the setting
`schemas`, else with its columns in messages. Until then its DDL has no effect.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdc_assets import ddl
from cdc_assets.ddl import Unreadable
from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.formats.messages import SchemaEvent
from cdc_assets.model.by_name import ByName
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso

_PASSED_OVER = (
    *("SET", "DROP TABLE", "DROP VIEW", "LOCK", "UNLOCK"),
    *("CREATE VIEW", "CREATE OR", "CREATE ALGORITHM", "CREATE DEFINER", "CREATE SQL", "CREATE SEQUENCE"),
)
"""First words of what mysqldump and Dumpling write around CREATE TABLE, and of what has no rows."""


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """A DDL as in its message. `table` is the name in the message, "" as its table for a DDL of the database.

    Simple names no database but in the text: then `table` is None. `action` is TiDB's number of the action, 0 where the
    protocol has none. `commit_ts` is when the source carried it out, 0 where the message does not have it.
    """

    version: Tso
    table: TableId | None
    query: str
    action: int = 0
    commit_ts: Tso = 0


@dataclass(frozen=True, slots=True)
class OlderTables:
    """Tables that are older than the topic, as they were before its first message, and their databases' collations.

    `described` has the column types of tables whose rows have the names of columns only, `changefeeds` the options of
    YDB's changefeeds by the paths of their topics.
    """

    tables: Mapping[TableId, TableSchema] = field(default_factory=dict)
    collations: Mapping[str, str] = field(default_factory=dict)
    described: Mapping[TableId, TableSchema] = field(default_factory=dict)
    changefeeds: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def read_older_tables(text: str, where: str, timezone: str | None = None) -> OlderTables:
    """Return the tables of a file of CREATE TABLE statements, as SHOW CREATE TABLE, mysqldump or Dumpling print them.

    A table's database is in its name or in a USE or CREATE DATABASE before it; CREATE DATABASE has the collation that
    its tables inherit. `where` names the file in errors; `timezone` is the zone of TIMESTAMP defaults. Raises
    BadSettings for anything else, and for a table that is given twice.
    """
    tables: ByName[TableSchema] = ByName()
    collations: ByName[str] = ByName()
    database = ""
    for statement in _statements(text, where):
        try:
            words = " ".join(ddl.first_words(statement))
            if words.startswith(_PASSED_OVER) or not words:
                continue
            if words.startswith(("USE ", "CREATE DATABASE", "CREATE SCHEMA")):
                database, default = ddl.database_of(statement)
                if default:
                    collations[TableId(database, "")] = default
                continue
            schema, name = ddl.created_name(statement)
            table = TableId(schema or database, name)
            if not table.schema:
                raise BadSettings(
                    f"{where}: the table {name} has no database. Write it as `database`.`{name}`, or USE before it."
                )
            if table in tables:
                raise BadSettings(f"{where}: {table} is created twice. Keep the one from before the topic's first DDL.")
            collation = collations.get(TableId(table.schema, ""))
            tables[table] = ddl.created(statement, database_collation=collation, timezone=timezone, shown=True)
        except Unreadable as problem:
            raise BadSettings(
                f"{where}: {_short(statement)} gives no schema: {problem}. Give CREATE TABLE statements as SHOW CREATE "
                "TABLE prints them, a semicolon after each."
            ) from None
    return OlderTables(dict(tables), {name.schema: collation for name, collation in collations.items()})


def _statements(text: str, where: str) -> tuple[str, ...]:
    try:
        return ddl.statements(text.lstrip("\ufeff"))
    except Unreadable as problem:
        raise BadSettings(f"{where}: {problem}. Give CREATE TABLE statements, a semicolon after each.") from None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"


def schema_files(
    events: Iterable[DdlEvent], shown: Iterable[SchemaEvent], older: OlderTables, since: Tso
) -> tuple[SchemaFile, ...]:
    """Return the topic's schemas in the shape in which history reads them, by version.

    A DDL comes in every partition, and again after a restart: it counts once. Tables of `older` begin at `since`, which
    is below every version and stays what it is, unless the topic creates them. Of `shown` an event counts from its
    version on where that is a DDL of its table, else from just below it, for rows at it are read by it; it has to have
    one. A table begins with it, unless it is one that `altered` the table. Raises MalformedData for a DDL whose table
    is not known.
    """
    read = [_by_text(event) for event in events]
    ddl_files = {(file.version, file.table.folded, file.query): file for file in read}
    first = _first_statements(ddl_files.values())
    files = [_database(name, collation, since) for name, collation in older.collations.items()]
    files += [
        _whole(table, since, schema)
        for table, schema in older.tables.items()
        if not isinstance(first.get(table), ddl.CreateTableStatement)
    ]
    shown = sorted((event for event in shown if event.version), key=lambda event: event.version)
    after = {(file.version, file.table.folded): ddl.statement(file) for file in ddl_files.values()}
    for event in shown:
        by = after.get((event.version, event.table.folded))
        if not isinstance(by, ddl.DropTableStatement):
            whole = _whole(event.table, event.version - (by is None), event.schema, event.approximate)
            if event.altered:
                whole = replace(whole, whole=None, behind_rows=True)
            files.append(replace(whole, grows=event.grows, lags=event.lags))
    return tuple(sorted([*files, *_with_shown(ddl_files.values(), shown)], key=lambda file: file.version))


def _with_shown(files: Iterable[SchemaFile], shown: Sequence[SchemaEvent]) -> Iterator[SchemaFile]:
    """Give each DDL the columns that its table shows next, before another table may have the name."""
    versions: ByName[list[Tso]] = ByName()
    events: ByName[list[SchemaEvent]] = ByName()
    for event in shown:
        versions.setdefault(event.table, []).append(event.version)
        events.setdefault(event.table, []).append(event)
    later: ByName[Tso] = ByName()
    for file in sorted(files, key=lambda file: file.version, reverse=True):
        known = versions.get(file.table, [])
        at = bisect_left(known, file.version)
        if at < len(known) and known[at] < later.get(file.table, known[at] + 1):
            file = replace(file, columns=events[file.table][at].schema.columns)
        if not isinstance(ddl.statement(file), ddl.Alter):
            later[file.table] = file.version
        yield file


def _first_statements(files: Iterable[SchemaFile]) -> ByName[ddl.Statement]:
    """The first DDL that speaks of each name: as the table's own, or as the one that a rename takes it from."""
    first: ByName[ddl.Statement] = ByName()
    for file in sorted(files, key=lambda file: file.version):
        statement = ddl.statement(file)
        if isinstance(statement, ddl.Rename):
            first.setdefault(TableId(statement.old.schema or file.table.schema, statement.old.table), statement)
        first.setdefault(file.table, statement)
    return first


def _by_text(event: DdlEvent) -> SchemaFile:
    table = event.table
    try:
        table = table or TableId(ddl.database_of(event.query)[0], "")
    except Unreadable as problem:
        raise MalformedData(
            f"the DDL of version {event.version} names no table, and its text no database ({problem}): {event.query}",
            commit_ts=event.version,
        ) from None
    return SchemaFile(
        path=f"DDL of {table} at {event.version}",
        root=str(table),
        table=table,
        version=event.version,
        query=event.query,
        type=event.action,
        columns=(),
        by_text=True,
        commit_ts=event.commit_ts,
    )


def _whole(table: TableId, version: Tso, schema: TableSchema, approximate: tuple[str, ...] = ()) -> SchemaFile:
    return SchemaFile(
        path=f"schema of {table} at {version}",
        root=str(table),
        table=table,
        version=version,
        query="",
        type=0,
        columns=schema.columns,
        whole=schema,
        approximate=approximate,
    )


def _database(name: str, collation: str, version: Tso) -> SchemaFile:
    quoted = name.replace("`", "``")
    query = f"ALTER DATABASE `{quoted}` COLLATE {collation}"
    return SchemaFile(f"database {name}", name, TableId(name, ""), version, query, 26, (), by_text=True)
