"""Classify the DDL of a schema file: by its text where that can be read, else by its Type number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from cdc_assets.ddl.clauses import default_collation, options
from cdc_assets.ddl.text import Cursor, Token, Unreadable, is_statement, quote, render, split, tokens
from cdc_assets.model.names import fold_name
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso


@dataclass(frozen=True, slots=True)
class SchemaSnapshot:
    """No DDL: columns as of the first rows after the changefeed's start, or after a DDL that an event filter hides."""


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """`collation` is None where the text gives none: then it is utf8mb4_bin."""

    collation: str | None = None


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """Every table of the database is dropped; they have no files of their own."""


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    """The default collation of tables to come; None where it does not change."""

    collation: str | None = None


@dataclass(frozen=True, slots=True)
class CreateTableStatement:
    """`like` is the table whose definition is copied.

    Its schema is "" where the text gives that of the new table alone: it is of the session's database, in no file.
    """

    like: TableId | None = None


@dataclass(frozen=True, slots=True)
class DropTableStatement:
    """The table of the file; `if_there` says that the text drops it only where there is one, or a temporary one."""

    if_there: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of the table are removed without row events."""


@dataclass(frozen=True, slots=True)
class Rename:
    """The table of the file was called `old`. `old.schema` is "" where the text does not say: the session's database.

    That is the database of the new name, unless the text gives that one (`from_session`): then it is in no file. The
    text may change columns too: see `evolve`.
    """

    old: TableId
    from_session: bool = False


@dataclass(frozen=True, slots=True)
class Recover:
    """A dropped or truncated table called `old` is restored with its rows, without row events.

    `by_job` says that the text names a DDL job instead, whose table had the name of the restored one.
    """

    old: TableId
    by_job: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A view is created or dropped: no table."""

    dropped: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """The rows of `partition` and those of `other` are exchanged without row events.

    The database of `other` is "" where the text names that of the partitioned table alone.
    """

    partition: str
    other: TableId
    validated: bool = True


@dataclass(frozen=True, slots=True)
class Alter:
    """Columns, indexes, comments, partitions: `evolve` determines the effect on rows."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Neither the text nor the Type is known; `reason` is the sentence for the user."""

    reason: str


Statement = (
    SchemaSnapshot
    | CreateDatabase
    | DropDatabase
    | AlterDatabase
    | CreateTableStatement
    | DropTableStatement
    | Truncate
    | Rename
    | Recover
    | View
    | Exchange
    | Alter
    | Unknown
)

_BY_TYPE: dict[int, type] = {
    **dict.fromkeys((*range(5, 21), 22, 23, *range(27, 34), *range(37, 42), *range(43, 47), 48, 49, 50, 54), Alter),
    **dict.fromkeys((*range(56, 60), 61, 64, 65, 67, *range(71, 77), 230, 231), Alter),
    1: CreateDatabase,
    2: DropDatabase,
    3: CreateTableStatement,
    4: DropTableStatement,
    11: Truncate,
    14: Rename,
    21: View,
    24: View,
    25: Recover,
    26: AlterDatabase,
    42: Exchange,
    47: Rename,
    55: AlterDatabase,
    60: CreateTableStatement,
    77: AlterDatabase,
}
"""TiDB's DDL action types (`tidb:pkg/meta/model/job.go`); 14, 25 and 42 need their text."""
_DROP_VIEW = 24
_CREATES = re.compile(
    r"(?is)(?:\s|/\*(?!!).*?\*/|--\s[^\n]*\n)*CREATE\s+(?:OR\s+REPLACE\s+)?(?:(?:GLOBAL|LOCAL)\s+)?TABLE\b"
)
"""A CREATE TABLE, whatever follows."""


def statement(file: SchemaFile) -> Statement:
    """Classify the DDL of a schema file. Never raises: what is not known is `Unknown` with the reason."""
    return _classified(file.query, file.type, file.table, file.version)


@lru_cache(maxsize=8192)  # every plan reads every DDL again
def _classified(query: str, action: int, table: TableId, version: Tso) -> Statement:
    file = SchemaFile("", "", table, version, query, action, ())  # all that a statement depends on
    if not file.query.strip():
        return SchemaSnapshot() if file.type == 0 else _by_type(file, "there is no text")
    try:
        at = Cursor(tokens(file.query))
        statement = _read(at, file)
    except Unreadable as problem:
        return _by_type(file, str(problem))
    expected = _BY_TYPE.get(file.type)
    if statement is None or (
        expected is not None and not isinstance(statement, expected) and not _may_differ(statement, file)
    ):
        return _by_type(file, "its first words are not known")
    return statement


def _may_differ(statement: Statement, file: SchemaFile) -> bool:
    """An ALTER TABLE whose Type says something else is read by its text: a rename or exchange beside other changes."""
    return isinstance(statement, Rename | Exchange | Alter) and file.type in (0, 61)


def _by_type(file: SchemaFile, problem: str) -> Statement:
    kind = _BY_TYPE.get(file.type)
    if kind is None and _CREATES.match(file.query):
        return CreateTableStatement()  # of which nothing but the name in its message is known
    if kind in (None, Rename, Recover, Exchange):
        return Unknown(
            f"the DDL of {file.table} at {file.version} cannot be read ({problem}; type {file.type}): "
            f"{file.query or 'no text'}"
        )
    statement: Statement = View(file.type == _DROP_VIEW) if kind is View else kind()
    return statement


def _read(at: Cursor, file: SchemaFile) -> Statement | None:
    if at.accept("CREATE|ALTER", "DATABASE|SCHEMA"):
        return _database(at, file)
    if at.accept("DROP", "DATABASE|SCHEMA"):
        return DropDatabase()
    if at.accept("DROP", "TEMPORARY", "TABLE"):
        return DropTableStatement(if_there=True)
    if at.accept("DROP", "TABLE|TABLES"):
        return DropTableStatement(at.sees("IF", "EXISTS"))
    if at.sees("CREATE|DROP|ALTER", "SEQUENCE") or at.sees("CREATE", "OR", "REPLACE", "SEQUENCE"):
        return Unknown(f"{file.query}: sequences have no rows")
    if at.accept("DROP", "VIEW") or _is_view(at):
        return View(at.parts[0].is_word("DROP"))
    if at.accept("TRUNCATE"):
        return Truncate()
    if at.accept("RENAME", "TABLE|TABLES"):
        return _renamed(at, file)
    if at.accept("RECOVER|FLASHBACK", "TABLE"):
        return _recovered(at, file)
    if at.sees("DROP", "INDEX") or _is_index(at):
        return Alter()
    if at.sees("CREATE"):
        return _created(at, file)
    if at.sees("ALTER"):
        return _altered(at, file)
    return None


_BATCH_CREATE = 60
"""TiDB's action by which BR makes the tables that it restores; nothing else uses it."""


def unlogged_rows(file: SchemaFile) -> str:
    """Return the way by which a DDL, or its tool, brings rows past the change log: restored or ingested, else "".

    BR and IMPORT write files of the storage engine. A materialized view of TiDB has its first rows by IMPORT INTO.
    """
    if file.type == _BATCH_CREATE:
        return "restored"
    text = file.query.upper()
    if "IMPORT" not in text and "MATERIALIZED" not in text:
        return ""
    try:
        at = Cursor(tokens(file.query))
        if at.sees("IMPORT", "INTO") or at.accept("CREATE", "MATERIALIZED"):
            return "ingested"
        alter_head(at)
        clauses = (Cursor(clause) for clause in split(at.rest()))
        return "ingested" if any(clause.sees("IMPORT") for clause in clauses) else ""
    except Unreadable:
        return ""


def _is_index(at: Cursor) -> bool:
    """Return whether an index is created."""
    if not at.sees("CREATE"):
        return False
    place = 3 if at.sees("CREATE", "OR", "REPLACE") else 1
    return Cursor(at.parts[place:]).sees("INDEX|UNIQUE|FULLTEXT|SPATIAL|VECTOR|COLUMNAR|HYBRID")


def _is_view(at: Cursor) -> bool:
    words = [part.text for part in at.parts[:24] if part.kind == "word"]
    if words[:1] not in (["CREATE"], ["ALTER"]) or "VIEW" not in words:
        return False
    return "TABLE" not in words[: words.index("VIEW")]


def _database(at: Cursor, file: SchemaFile) -> Statement:
    created = at.parts[0].is_word("CREATE")
    at.accept("IF", "NOT", "EXISTS")
    if at.next.kind == "name" or not at.sees("CHARACTER|CHARSET|COLLATE|DEFAULT"):
        at.name()
    charset, collation, _, _ = options(at)
    database_collation = collation or (default_collation(charset) if charset else None)
    return CreateDatabase(database_collation) if created else AlterDatabase(database_collation)


def create_head(at: Cursor) -> tuple[str, str]:
    """Step over CREATE TABLE, or MariaDB's CREATE OR REPLACE TABLE, and return the table's name."""
    at.expect("CREATE")
    at.accept("OR", "REPLACE")
    if at.accept("GLOBAL|LOCAL"):
        pass
    at.accept("TEMPORARY")
    at.expect("TABLE")
    at.accept("IF", "NOT", "EXISTS")
    return at.qualified()


def created_name(sql: str) -> tuple[str, str]:
    """Return the database, "" where it is not written, and the name that a CREATE TABLE makes; raises Unreadable."""
    return create_head(Cursor(tokens(sql)))


def database_of(sql: str) -> tuple[str, str]:
    """Return the database that USE or a DDL of a database names, and the collation that it gives it, "" for none.

    Raises Unreadable for any other text.
    """
    at = Cursor(tokens(sql))
    if at.accept("USE"):
        return at.name(), ""
    at.expect("CREATE|ALTER|DROP", "DATABASE|SCHEMA")
    at.accept("IF")
    at.accept("NOT")
    at.accept("EXISTS")
    name = at.name()
    charset, collation, _, _ = options(at)
    return name, collation or (charset and default_collation(charset))


def _created(at: Cursor, file: SchemaFile) -> Statement:
    database, _ = create_head(at)
    inside = Cursor(at.parts[at.at + 1 : at.at + 2]) if at.sees("(") else at
    if not inside.sees("LIKE"):
        return CreateTableStatement()
    at.accept("(")
    at.expect("LIKE")
    schema, name = at.qualified()
    return CreateTableStatement(TableId(schema or ("" if database else file.table.schema), name))


_PARTS = "COLUMN|INDEX|KEY|CONSTRAINT"
"""Objects that ALTER TABLE can rename besides the table."""


def rename_pairs(sql: str, schema: str) -> tuple[tuple[TableId, TableId], ...]:
    """Return (old, new) of each table that RENAME TABLE or ALTER TABLE … RENAME moves; () for any other text.

    `schema` completes names without one.
    """
    try:
        at = Cursor(tokens(sql))
        if at.accept("RENAME", "TABLE|TABLES"):
            pairs = _pairs(at)
        else:
            name = alter_head(at)
            at.expect("RENAME")
            if at.sees(_PARTS):
                return ()
            at.accept("TO|AS|=")
            pairs = [(name, at.qualified())]
    except Unreadable:
        return ()
    return tuple((TableId(old[0] or schema, old[1]), TableId(new[0] or schema, new[1])) for old, new in pairs)


def table_by_text(sql: str, table: TableId | None) -> TableId | None:
    """Return the table that a DDL concerns: the one that its text names with a database, else `table`.

    `table` is the one that a message names beside the text, None for none. TiCDC's new architecture names the table
    that EXCHANGE PARTITION takes rows from there, and the partitioned one in the text. A name that differs by the case
    of letters is the same one, and of several tables in a text none is chosen.
    """
    try:
        named = _tables_named(Cursor(tokens(sql)), sql)
    except Unreadable:
        return table
    if len(named) != 1 or not named[0].schema or (table is not None and named[0].folded == table.folded):
        return table
    return named[0]


def tables_by_text(sql: str, schema: str) -> list[TableId]:
    """Return the tables that a statement makes, changes or drops, after it; `schema` completes names without one.

    Of a text that cannot be read it is the one named at its beginning. [] for what concerns no table: databases, views,
    sequences, rows, routines.
    """
    try:
        at = Cursor(tokens(sql))
        named = [] if at.sees("DROP", "VIEW") else _tables_named(at, sql)
    except Unreadable:
        head = _BEGINNING.match(sql)
        named = [TableId(*Cursor(tokens(head["name"])).qualified())] if head is not None else []
    return [TableId(table.schema or schema, table.table) for table in named]


_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_BEGINNING = re.compile(
    rf"(?is)(?:\s|/\*.*?\*/|--\s[^\n]*\n|#[^\n]*\n)*(?:ALTER|CREATE|DROP|TRUNCATE|RENAME)\s+(?:\w+\s+){{0,2}}?TABLES?\s+"
    rf"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?(?P<name>{_NAME}(?:\s*\.\s*{_NAME})?)"
)
"""The beginning of a DDL of a table, whatever follows its name."""


def _tables_named(at: Cursor, sql: str) -> list[TableId]:
    """Return the tables that a statement makes, changes or drops, after it; [] for another statement."""
    if pairs := rename_pairs(sql, ""):
        return [new for _, new in pairs]
    if at.accept("DROP", "TABLE|TABLES|VIEW"):
        at.accept("IF", "EXISTS")
        named = [at.qualified()]
        while at.accept(","):
            named.append(at.qualified())
        return [TableId(*name) for name in named]
    if at.accept("TRUNCATE"):
        at.accept("TABLE")
    elif at.accept("RECOVER|FLASHBACK", "TABLE"):
        if at.sees("BY", "JOB"):
            return []
        schema, name = at.qualified()
        renamed = at.accept("TO") and not at.sees("TIMESTAMP|TSO")
        return [TableId(schema, at.name() if renamed else name)]
    elif at.sees("DROP", "INDEX") or _is_index(at):
        while not at.accept("ON"):
            at.take()
    elif at.sees("ALTER", "TABLE|ONLINE|IGNORE"):
        return [TableId(*alter_head(at))]
    elif at.sees("CREATE") and not _is_view(at) and not at.sees("CREATE", "DATABASE|SCHEMA|SEQUENCE"):
        return [TableId(*create_head(at))]
    else:
        return []
    return [TableId(*at.qualified())]


def given_up(sql: str, table: TableId) -> list[TableId]:
    """Return the tables that have their names no more after a DDL, which renames or drops them.

    `table` is the one of its message.
    """
    dropped = tables_by_text(sql, table.schema) if is_statement(sql, "DROP", "TABLE") else []
    return [*dropped, *(old for old, _ in rename_pairs(sql, table.schema))]


def emptied(sql: str, table: TableId) -> list[TableId]:
    """Return the tables of which a DDL takes rows away, or exchanges them; `table` is the one of its message."""
    try:
        at = Cursor(tokens(sql))
        if at.sees("TRUNCATE"):
            return [table, *tables_by_text(sql, table.schema)]
        if not at.sees("ALTER"):
            return []
        read = _altered(Cursor(at.parts), SchemaFile("", "", table, 0, sql, 0, ()))
        schema, name = alter_head(at)
        own = [table, TableId(schema or table.schema, name)]
        if isinstance(read, Exchange):
            return [*own, TableId(read.other.schema or table.schema, read.other.table)]
        clauses = (Cursor(clause) for clause in split(at.rest()))
        return own if any(clause.sees("DROP|TRUNCATE|FIRST", "PARTITION") for clause in clauses) else []
    except Unreadable:
        return [table] if _EMPTIES.search(sql) else []


_EMPTIES = re.compile(r"(?i)\b(?:TRUNCATE|(?:DROP|EXCHANGE|FIRST)\s+PARTITION)\b")
"""Words of DDL that takes rows away, for texts that cannot be read."""


def soft_delete_option(sql: str) -> str:
    """Return the option by which a CREATE or ALTER TABLE makes a table a soft-delete or active-active one of TiDB.

    "" for none, and for one that is switched off.
    """
    try:
        at = Cursor(tokens(sql))
        (alter_head if at.sees("ALTER") else create_head)(at)
    except Unreadable:
        return ""
    depth = 0
    while at:
        depth += at.sees("(") - at.sees(")")
        option = at.next.text
        if depth or not at.accept("SOFTDELETE|ACTIVE_ACTIVE"):
            at.take()
            continue
        at.accept("=")
        if at.next.text.upper() != "OFF":
            return option
    return ""


def alter_without_rename(sql: str) -> tuple[str, str] | None:
    """Return an ALTER TABLE without the clause that renames its table, and the RENAME TABLE for that.

    None where it does not rename, or does nothing else. TiDB knows no such statement, MySQL and MariaDB do.
    """
    try:
        at = Cursor(tokens(sql))
        name, new, rest = alter_head(at), None, list[Sequence[Token]]()
        head = at.parts[: at.at]
        for piece in split(at.rest()):
            clause = Cursor(piece)
            if not clause.accept("RENAME") or clause.sees(_PARTS):
                rest.append(piece)
                continue
            clause.accept("TO|AS|=")
            new = clause.qualified()
            rest += [clause.rest()] if clause.parts[clause.at :] else []
    except Unreadable:
        return None
    if new is None or not rest:
        return None
    old, new_name = (".".join(quote(part) for part in name_parts if part) for name_parts in (name, new))
    return f"{render(head)} {', '.join(map(render, rest))}", f"RENAME TABLE {old} TO {new_name}"


def _pairs(at: Cursor) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    pairs = []
    at.accept("IF", "EXISTS")
    while True:
        old = at.qualified()
        _step_over_wait(at)
        at.expect("TO")
        pairs.append((old, at.qualified()))
        if not at.accept(","):
            return pairs


def _renamed(at: Cursor, file: SchemaFile) -> Statement:
    pairs = _pairs(at)
    target = file.table.folded
    exact_pairs = [(old, new) for old, new in pairs if TableId(new[0] or file.table.schema, new[1]).folded == target]
    loose = [(old, new) for old, new in pairs if fold_name(new[1]) == target.table]
    chosen = (exact_pairs or loose or pairs if len(pairs) == 1 else exact_pairs or loose)[:1]
    if not chosen:
        raise Unreadable(f"no part of it renames a table to {file.table}")
    return _rename(*chosen[0])


def _rename(old: tuple[str, str], new: tuple[str, str]) -> Rename:
    return Rename(TableId(*old), from_session=bool(old[1] and new[0] and not old[0]))


def _recovered(at: Cursor, file: SchemaFile) -> Statement:
    if at.sees("BY", "JOB"):
        return Recover(file.table, by_job=True)
    schema, name = at.qualified()
    if at.sees(",") or at.sees("TO", "TIMESTAMP|TSO"):
        return Unknown(f"{file.query}: the state of a table at an earlier time is not known")
    return Recover(TableId(schema or file.table.schema, name))


def alter_head(at: Cursor) -> tuple[str, str]:
    """Step over ALTER TABLE, with what MariaDB allows around it, and return the table's name."""
    at.expect("ALTER")
    at.accept("ONLINE")
    at.accept("IGNORE")
    at.expect("TABLE")
    at.accept("IF", "EXISTS")
    name = at.qualified()
    _step_over_wait(at)
    return name


def _step_over_wait(at: Cursor) -> None:
    """Step over how long MariaDB waits for a lock: WAIT and a number of seconds, or NOWAIT."""
    if at.accept("WAIT"):
        at.take()
    at.accept("NOWAIT")


def _altered(at: Cursor, file: SchemaFile) -> Statement:
    if not at.sees("ALTER", "TABLE|IGNORE|ONLINE"):
        return (
            Alter()
            if isinstance(_BY_TYPE.get(file.type), type) and _BY_TYPE[file.type] is Alter
            else Unknown(f"{file.query}: this kind of ALTER is not known")
        )
    name = alter_head(at)
    depth = 0
    for place in range(at.at, len(at.parts)):
        token = at.parts[place]
        depth += token.is_word("(") - token.is_word(")")
        begins = place == at.at or (depth == 0 and at.parts[place - 1].is_word(","))
        if not begins or depth:
            continue
        clause = Cursor(at.parts[place:])
        if clause.accept("EXCHANGE", "PARTITION"):
            database = "" if name[0] else file.table.schema
            partition = clause.name()
            clause.expect("WITH", "TABLE")
            schema, other = clause.qualified()
            return Exchange(partition, TableId(schema or database, other), not clause.sees("WITHOUT"))
        if clause.accept("RENAME") and not clause.sees(_PARTS):
            clause.accept("TO|AS|=")
            return _rename(name, clause.qualified())
    return Alter()
