"""The setting `schemas` for feeds whose messages have names without types: CREATE TABLE texts, or `column: type`.

    CREATE TABLE public.orders (id bigint PRIMARY KEY, total numeric(12,2), placed timestamptz);

    shop/orders:
      id: Uint64
      total: Decimal(22,9)

Texts are PostgreSQL's or YQL, as the protocol says whose types they are. Only columns, their types and the primary key
are read, and what ALTER TABLE adds; a table's path in YDB is its schema and name. PostgreSQL's own types are known by
CREATE TYPE … AS ENUM and CREATE DOMAIN, the options of YDB's changefeeds by ADD CHANGEFEED.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from cdc_assets.ddl.text import Cursor, Token, Unreadable, ansi_tokens, render, split
from cdc_assets.errors import BadSettings
from cdc_assets.model.schema import Column, Index, ReadColumn, TableId, TableSchema

_KINDS_OF_TABLES = "GLOBAL|LOCAL|TEMP|TEMPORARY|UNLOGGED"
_NO_COLUMN = "CONSTRAINT|PRIMARY|UNIQUE|CHECK|FOREIGN|EXCLUDE|LIKE|INDEX|FAMILY|CHANGEFEED"
_ENDS_TYPE = "|".join(
    (
        *("NOT", "NULL", "DEFAULT", "PRIMARY", "UNIQUE", "CHECK", "REFERENCES", "GENERATED", "COLLATE", "CONSTRAINT"),
        *("FAMILY", "COMPRESSION", "STORAGE", "IDENTITY", "ON"),
    )
)
_CREATES = re.compile(r"(?:^|;)\s*create\s", re.IGNORECASE | re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_PSQL = re.compile(r"^COPY\b[^;]*\bFROM stdin;\n.*?^\\\.$|^\\[^\n]*$", re.IGNORECASE | re.MULTILINE | re.DOTALL)
"""Lines that pg_dump writes for psql alone: rows, and commands with a backslash."""
_LINE = re.compile(r"(?P<indent>[ \t]*)(?P<name>\"[^\"]+\"|`[^`]+`|[^\s:][^:]*?)\s*:\s*(?P<type>[^#]*?)\s*(?:#.*)?")


def described_tables(
    text: str, where: str, read: ReadColumn, schema: str, *, nulls_in_key: bool = False, folds_names: bool = False
) -> dict[TableId, TableSchema]:
    """Return the tables of a file. `schema` is that of a name without one; raises BadSettings.

    With `nulls_in_key` a column of the key may be NULL unless it says NOT NULL, as in YQL. With `folds_names` a name
    without quotes is in small letters, as in PostgreSQL (`downcase_identifier` in its `scansup.c`).
    """
    table_texts = _TableTexts(read, schema, nulls_in_key)
    if _has_statements(text):
        _each_statement(text, where, table_texts.take, folds_names=folds_names)
    else:
        table_texts.take_lines(text)
    if not table_texts.tables:
        raise BadSettings(
            f"{where}: no table is described in it. Give CREATE TABLE statements, a semicolon after each, or a line "
            "`schema.table:` with lines `column: type` below it."
        )
    return table_texts.tables


def changefeed_options(text: str, where: str) -> Mapping[str, Mapping[str, str]]:
    """Return the options of the changefeeds that YQL creates, by the paths of their topics; raises BadSettings.

    Names and values are in capital letters: `{"MODE": "UPDATES", "INITIAL_SCAN": "TRUE"}`.
    """
    options_by_topic = dict[str, dict[str, str]]()

    def take(at: Cursor) -> None:
        altered = at.accept("ALTER", "TABLE")
        if not altered and not _accept_create_table(at):
            return
        path = "/".join(_names(at))
        for piece in map(Cursor, split(at.rest() if altered else at.group() if at.sees("(") else ())):
            if piece.accept("DROP", "CHANGEFEED"):
                options_by_topic.pop(f"{path}/{piece.name()}", None)
            elif piece.accept("ADD", "CHANGEFEED") or piece.accept("CHANGEFEED"):
                topic = f"{path}/{piece.name()}".strip("/")
                piece.expect("WITH")
                options = options_by_topic.setdefault(topic, {})
                for option in map(Cursor, split(piece.group())):
                    name = option.name().upper()
                    if option.accept("=") and name in ("MODE", "INITIAL_SCAN"):
                        options[name] = option.string().upper()

    if _has_statements(text):
        _each_statement(text, where, take)
    return options_by_topic


def _has_statements(text: str) -> bool:
    return _CREATES.search(_COMMENT.sub("", text)) is not None


def _each_statement(text: str, where: str, take: Callable[[Cursor], None], *, folds_names: bool = False) -> None:
    try:
        for statement in split(ansi_tokens(_PSQL.sub("", text)), ";"):
            try:
                take(Cursor([_folded(token) for token in statement] if folds_names else statement))
            except Unreadable as problem:
                raise Unreadable(f"{render(statement)[:80]}: {problem}") from None
    except Unreadable as problem:
        raise BadSettings(f"{where}: {problem}. Give CREATE TABLE statements, a semicolon after each.") from None


def _folded(token: Token) -> Token:
    """Return the token, a word in small letters: of a name in UTF-8 PostgreSQL folds those of ASCII only."""
    if token.kind != "word":
        return token
    return replace(token, raw=re.sub("[A-Z]", lambda letter: letter[0].lower(), token.raw))


@dataclass(slots=True)
class _TableTexts:
    """The tables of a file so far, and the database's own types: "enum", or the type below a domain."""

    read: ReadColumn
    schema: str
    nulls_in_key: bool
    tables: dict[TableId, TableSchema] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)

    def take_lines(self, text: str) -> None:
        """Take lines `schema.table:` with lines `column: type` below."""
        table: TableId | None = None
        for line in text.splitlines():
            entry = _LINE.fullmatch(line)
            if entry is None:
                continue
            name = entry["name"]
            if name[:1] in ('"', "`") and name[-1:] == name[:1]:
                name = name[1:-1].replace(name[0] * 2, name[0])
            if entry["type"]:
                if table is not None:
                    schema = self.tables.get(table, TableSchema(()))
                    column = self.read(name, entry["type"], {})
                    self.tables[table] = replace(schema, columns=(*schema.columns, column))
            elif name == entry["name"] and "/" not in name and "." in name:
                table = TableId(*name.split(".", 1))
            else:
                table = self._table([name])

    def take(self, at: Cursor) -> None:
        """Take a statement; one that says nothing of columns is passed over."""
        if at.accept("CREATE", "TYPE"):
            name = _names(at)[-1]
            if at.accept("AS", "ENUM"):
                self.own[name.lower()] = "enum"
        elif at.accept("CREATE", "DOMAIN"):
            name = _names(at)[-1]
            at.accept("AS")
            self.own[name.lower()] = _type_text(at)
        elif _accept_create_table(at):
            table = self._table(_names(at))
            if at.sees("("):
                self.tables[table] = self._created(at)
        elif at.accept("ALTER", "TABLE"):
            table = self._table(_names(at))
            schema = self.tables.get(table)
            for piece in map(Cursor, split(at.rest()) if schema is not None else ()):
                if piece.accept("ADD") and not _accept_no_column(piece):
                    piece.accept("COLUMN")
                    piece.accept("IF", "NOT", "EXISTS")
                    schema = replace(self.tables[table], columns=(*self.tables[table].columns, self._column(piece)))
                    self.tables[table] = schema

    def _created(self, at: Cursor) -> TableSchema:
        columns: list[Column] = []
        key: list[str] = []
        for piece in map(Cursor, split(at.group())):
            if piece.accept("CONSTRAINT"):
                piece.name()
            if piece.accept("PRIMARY", "KEY"):
                key = [Cursor(part).name() for part in split(piece.group())]
            elif not _accept_no_column(piece):
                column = self._column(piece)
                never_null = not self.nulls_in_key
                while piece:
                    if piece.accept("PRIMARY", "KEY"):
                        key.append(column.name)
                    elif piece.accept("NOT", "NULL"):
                        never_null = True
                    elif piece.sees("("):
                        piece.group()
                    else:
                        piece.take()
                columns.append(replace(column, nullable=not never_null))
        named = tuple(column if column.name in key else replace(column, nullable=True) for column in columns)
        index = (Index("PRIMARY", tuple(key), unique=True, primary=True),) if key else ()
        return TableSchema(named, tuple(key), index)

    def _column(self, at: Cursor) -> Column:
        return self.read(at.name(), _type_text(at), self.own)

    def _table(self, names: list[str]) -> TableId:
        """Return the table of a name: `schema`.`table`, or a path."""
        if len(names) == 1:
            return TableId.of_path(names[0], self.schema)
        return TableId(names[-2], names[-1])


def _accept_create_table(at: Cursor) -> bool:
    if not at.accept("CREATE"):
        return False
    while at.accept(_KINDS_OF_TABLES):
        pass
    return at.accept("TABLE")


def _accept_no_column(at: Cursor) -> bool:
    """Step over what is no column, if that comes next."""
    match = at.accept(_NO_COLUMN)
    if match:
        at.rest()
    return match


def _names(at: Cursor) -> list[str]:
    """Take a qualified name."""
    at.accept("IF", "NOT", "EXISTS")
    at.accept("IF", "EXISTS")
    at.accept("ONLY")
    names = [at.name()]
    while at.accept("."):
        names.append(at.name())
    return names


def _type_text(at: Cursor) -> str:
    start = at.at
    while at and not at.sees(_ENDS_TYPE):
        if at.sees("("):
            at.group()
        else:
            at.take()
    return render(at.parts[start : at.at])
