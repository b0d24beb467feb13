"""The schemas of a topic's tables: DDL texts, known older tables, columns in messages -> schema files. Pure.

DDL comes as text without columns; what the columns are follows from the text and the table before it (`ddl.altered`),
as history plays the files. A table that is older than the topic begins with its CREATE TABLE from the setting
`schemas`, else with its columns in messages. Until then its DDL has no effect.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from cdc_assets import ddl
from cdc_assets.ddl import DropTableStatement, Unreadable, cascades, changefeed_options, described_tables
from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.messages import SchemaEvent, codec_of, dialect_of
from cdc_assets.model.landed import EventKind, Landed, LandedEvent
from cdc_assets.model.schema import ByName, TableId, TableSchema
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics.columns_text import parse_schema
from cdc_assets.sources.topics.fillings import Fillings
from cdc_assets.sources.topics.paths import LandedPath, format_root
from cdc_assets.sources.topics.topic_options import SnapshotOptions

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
    ddls = ddl_files.values()
    # The first DDL that speaks of each name: as the table's own, or as the one that a rename takes it from.
    first: ByName[ddl.Statement] = ByName()
    for file in sorted(ddls, key=lambda file: file.version):
        statement = ddl.statement(file)
        if isinstance(statement, ddl.Rename):
            first.setdefault(TableId(statement.old.schema or file.table.schema, statement.old.table), statement)
        first.setdefault(file.table, statement)
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
        own_versions = versions.get(file.table, [])
        at = bisect_left(own_versions, file.version)
        if at < len(own_versions) and own_versions[at] < later.get(file.table, own_versions[at] + 1):
            file = replace(file, columns=events[file.table][at].schema.columns)
        if not isinstance(ddl.statement(file), ddl.Alter):
            later[file.table] = file.version
        yield file


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


_NAMELESS = ("",)
"""The key of a table whose rows have neither names nor types."""


_OF_SERVER = ("mysql", "sys", "information_schema", "performance_schema")
"""Databases of the server itself, which a connector leaves out."""


def _is_listed(table: TableId, snapshots: SnapshotOptions) -> bool:
    """Return whether a connector, all of whose lists are known, captures a table."""
    return snapshots.is_listed and table.schema not in _OF_SERVER and snapshots.changes.captures(table) is True


def landed_schema_files(
    landed: Landed, options: MessageOptions, older: OlderTables, snapshots: SnapshotOptions
) -> list[SchemaFile]:
    """Return the schemas in all that was landed, by version, each under the name of its message."""
    statements = [event for event in landed.events if event.kind is EventKind.DDL]
    if options.in_source_order:
        # A connector sends the DDL of databases that it does not capture, of which it never sends rows. That one
        # without rows is captured is known from the connector's lists alone.
        captured = {table.schema for table in landed.began}
        statements = [
            event
            for event in statements
            if event.table is None or event.table.schema in captured or _is_listed(event.table, snapshots)
        ]
    events = [DdlEvent(event.position, event.table, event.query, event.type, event.commit_ts) for event in statements]
    begins = [event.version for event in events] + list(landed.began.values())
    if not begins:
        return []
    places = {(event.position, event.query): event for event in reversed(statements)}
    shown = [_known(_typed(event, older.described), older, options) for event in _shown(landed, options)]
    by_rows = {event.table.folded for event in shown if event.grows}
    rest = {table: schema for table, schema in older.tables.items() if table.folded not in by_rows}
    files = schema_files(events, shown, replace(older, tables=rest), min(begins) - 1)
    fillings = Fillings(landed, options, snapshots, _scanned(older, options))
    placed = (_placed(file, places.get((file.version, file.query)), fillings) for file in _needed(files))
    if not options.in_source_order:
        return list(placed)
    charset_of = codec_of(options).charset_of_ddl

    def of_connector(file: SchemaFile) -> SchemaFile:
        event = places.get((file.version, file.query))
        message = b"" if event is None else event.value or b""
        return replace(
            file,
            unsent=cascades(file.query),
            server=(event is not None and dialect_of(event.source)) or "mysql",
            charset="" if charset_of is None else charset_of(message),
            sent=fillings.sent(file.table),
        )

    return [of_connector(file) if file.query else file for file in placed]


def _scanned(older: OlderTables, options: MessageOptions) -> frozenset[TableId]:
    """Return the tables of changefeeds that begin with a scan, as their statements say."""
    sql, scanning = codec_of(options).source_sql, {"INITIAL_SCAN": "TRUE"}.items()
    if sql is None:
        return frozenset()
    topics = (topic for topic, values in older.changefeeds.items() if scanning <= values.items())
    return frozenset(TableId.of_path(topic.rpartition("/")[0], sql.schema).folded for topic in topics)


def _needed(files: Sequence[SchemaFile]) -> Iterator[SchemaFile]:
    """Leave out columns of rows where a DDL or schema of the table came before, unless that was its DROP."""
    surer: ByName[bool] = ByName()
    for _, group in groupby(files, key=lambda file: file.version):
        together = list(group)
        sure = [file for file in together if not file.approximate and not file.grows]
        surer.update({file.table: isinstance(ddl.statement(file), DropTableStatement) for file in sure})
        yield from (file for file in together if not file.approximate or surer.get(file.table, True))


def _placed(file: SchemaFile, event: LandedEvent | None, fillings: Fillings) -> SchemaFile:
    root = format_root(file.table)
    at = ("schemas", 0, 0, 0) if event is None else (*event.partition, event.offset, event.offset)
    path = LandedPath(root, file.version, "schema" if event is None else "ddl", *at)
    return replace(file, path=str(path), root=root, filling=fillings.of(file, event))


def _shown(landed: Landed, options: MessageOptions) -> Iterator[SchemaEvent]:
    """Yield the schemas that messages carry, then those taken from rows. One without version holds from its rows on.

    Rows without names (YDB's) say nothing of a table whose schema was carried before them.
    """
    began, stated = ByName[Tso](landed.began), ByName[Tso]()
    events = [event for event in landed.events if event.kind is EventKind.SCHEMA]
    carried = [event for event in events if not event.query]
    stating = _carried(carried, options)
    hidden = _hidden(stating, landed, options, began)
    for at, schema_event in enumerate(stating):
        version = schema_event.version or (
            carried[schema_event.message].position if options.by_offset else began.get(schema_event.table, 0)
        )
        if at in hidden:
            yield replace(schema_event, version=schema_event.altered, approximate=())
        elif version:
            stated.setdefault(schema_event.table, version)
            yield replace(schema_event, version=version, approximate=(), altered=0)
    for event in events:
        if event.query and event.table is not None:
            schema, approximate = parse_schema(event.query)
            if schema.key == _NAMELESS and stated.get(event.table, event.position) < event.position:
                continue
            grows, lags = bool(event.shape), bool(event.reason)
            yield SchemaEvent(0, event.table, event.position, schema, approximate, grows=grows, lags=lags)


def _hidden(
    stating: Sequence[SchemaEvent], landed: Landed, options: MessageOptions, began: Mapping[TableId, Tso]
) -> frozenset[int]:
    """Return the places of schemas that a table got after its first rows, and that no DDL in the topics brought.

    An event filter hides such a DDL. What only says that a table was altered, and has the columns of before, is none.
    """
    later = {event.table.folded for event in stating if event.altered > began.get(event.table, event.altered)}
    if not later:
        return frozenset()
    ddl = [e for e in landed.events if e.kind is EventKind.DDL and e.table is not None and e.table.folded in later]
    schemas, places = ByName[dict[Tso, TableSchema]](), set[int]()
    for schema_event in _carried(ddl, options):
        schemas.setdefault(schema_event.table, {})[schema_event.altered] = schema_event.schema
    for at, schema_event in sorted(enumerate(stating), key=lambda pair: pair[1].altered):
        table_schemas = schemas.setdefault(schema_event.table, {})
        before = max((altered for altered in table_schemas if altered < schema_event.altered), default=None)
        is_later = (
            schema_event.altered > began.get(schema_event.table, schema_event.altered)
            and schema_event.altered not in table_schemas
        )
        if is_later and before is not None and not _reads_alike(table_schemas[before], schema_event.schema):
            places.add(at)
        table_schemas.setdefault(schema_event.altered, schema_event.schema)
    return frozenset(places)


def _reads_alike(table_schema: TableSchema, other: TableSchema) -> bool:
    """Return whether rows of both are read alike, in whatever order their columns are."""
    elems, other_members = (
        {column.name: column.elems for column in schema.columns} for schema in (table_schema, other)
    )
    return table_schema.decodes_like(other) and elems == other_members


def _typed(shown: SchemaEvent, described: Mapping[TableId, TableSchema]) -> SchemaEvent:
    """Give columns that rows have without types the types that the setting `schemas` has for them.

    A name that is written otherwise there but for the case of letters is the same: MySQL's names are not folded.
    """
    description = described.get(shown.table) or ByName(described).get(shown.table)
    if description is None or all(column.type for column in shown.schema.columns):
        return shown
    if shown.schema.key == _NAMELESS:
        return replace(shown, schema=description)
    types = {column.name.lower(): column for column in description.columns} | {
        column.name: column for column in description.columns
    }
    columns = tuple(
        replace(typed, name=column.name, nullable=column.nullable)
        if not column.type and (typed := types.get(column.name) or types.get(column.name.lower())) is not None
        else column
        for column in shown.schema.columns
    )
    return replace(shown, schema=replace(shown.schema, columns=columns))


def _known(shown: SchemaEvent, older: OlderTables, options: MessageOptions) -> SchemaEvent:
    """Give columns in messages that write names and types otherwise those of the setting `schemas`."""
    as_described = codec_of(options).as_described
    described = None if as_described is None else ByName(older.tables).get(shown.table)
    if as_described is None or described is None:
        return shown
    schema, doubts = as_described(shown.schema, shown.approximate, described)
    return replace(shown, schema=schema, approximate=doubts)


def _carried(events: Sequence[LandedEvent], options: MessageOptions) -> tuple[SchemaEvent, ...]:
    import pyarrow as pa

    columns = [pa.array([getattr(event, name) for event in events], pa.binary()) for name in ("key", "value")]
    columns.append(pa.array([event.partition.topic for event in events], pa.string()))
    return codec_of(options).schemas(pa.RecordBatch.from_arrays(columns, ["key", "value", "topic"]), options)


def older_tables(path: str, options: MessageOptions) -> OlderTables:
    """Return the tables of the setting `schemas`, none where it is not given; raises BadSettings.

    For a protocol whose rows may have names without types, statements in the words of its source are read too; a
    connector's source may be MySQL as well.
    """
    if not path:
        return OlderTables()
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadSettings(f"schemas: {path} cannot be read ({why}). Give a file of CREATE TABLE statements.") from None
    if codec_of(options).source_sql is None:
        return read_older_tables(text, path, options.timezone)
    try:
        older = read_older_tables(text, path, options.timezone)
    except BadSettings:
        older = OlderTables()
    try:
        changefeeds = changefeed_options(text, path) if codec_of(options).keys_alone is not None else {}
        return replace(older, described=tables_by_text(text, path, options), changefeeds=changefeeds)
    except BadSettings:
        if not older.tables:
            raise
        return older


def tables_by_text(text: str, where: str, options: MessageOptions) -> Mapping[TableId, TableSchema]:
    """Return the tables that a text describes in the words of the source; raises BadSettings."""
    sql = codec_of(options).source_sql
    assert sql is not None
    return described_tables(
        text, where, sql.types(options), sql.schema, nulls_in_key=sql.nulls_in_key, folds_names=sql.folds_names
    )
