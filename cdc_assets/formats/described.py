"""The setting `schemas` for feeds whose messages have names without types: CREATE TABLE texts, or `column: type`.

    CREATE TABLE public.orders (id bigint PRIMARY KEY, total numeric(12,2), placed timestamptz);

    shop/orders:
      id: Uint64
      total: Decimal(22,9)

Texts are PostgreSQL's or YQL, as the protocol says whose types they are. Only columns, their types and the primary key
are read, and what ALTER TABLE adds; a table's path in YDB is its schema and name. PostgreSQL's own types are known by
CREATE TYPE … AS ENUM and CREATE DOMAIN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from cdc_assets.errors import BadSettings
from cdc_assets.model.schema import Column, Index, TableId, TableSchema

__all__ = ["ReadType", "described_tables", "table_of_path"]

ReadType = Callable[[str, str, Mapping[str, str]], Column]
"""(column, text of its type, the database's own types) -> the column, of type "" where the text is not known."""

_WORD = re.compile(r"--[^\n]*|/\*.*?\*/|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|E?'(?:[^'\\]|\\.|'')*'|[\w$]+|\S", re.DOTALL)
_NO_COLUMN = frozenset(
    ("constraint", "primary", "unique", "check", "foreign", "exclude", "like", "index", "family", "changefeed")
)
_ENDS_TYPE = frozenset(
    (
        *("not", "null", "default", "primary", "unique", "check", "references", "generated", "collate", "constraint"),
        *("family", "compression", "storage", "identity", "on"),
    )
)
_LINE = re.compile(r"(?P<indent>[ \t]*)(?P<name>\"[^\"]+\"|`[^`]+`|[^\s:][^:]*?)\s*:\s*(?P<type>[^#]*?)\s*(?:#.*)?")


def described_tables(
    text: str, where: str, read: ReadType, default: str, *, nulls_in_key: bool = False
) -> dict[TableId, TableSchema]:
    """Return the tables of a file. `default` is the schema of a name without one; raises BadSettings.

    With `nulls_in_key` a column of the key may be NULL unless it says NOT NULL, as in YQL.
    """
    bare = re.sub(r"--[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    found = (
        _of_texts(bare, read, default, nulls_in_key)
        if re.search(r"\bcreate\b", bare, re.IGNORECASE)
        else _of_lines(text, read, default)
    )
    if not found:
        raise BadSettings(
            f"{where}: no table is described in it. Give CREATE TABLE statements, a semicolon after each, or a line "
            "`schema.table:` with lines `column: type` below it."
        )
    return found


def table_of_path(path: str, default: str) -> TableId:
    """Return the table that a path of YDB names: its last part, in what stands before it."""
    schema, _, table = path.strip("/").rpartition("/")
    return TableId(schema or default, table)


# --- column: type -----------------------------------------------------------------------------------------------------


def _of_lines(text: str, read: ReadType, default: str) -> dict[TableId, TableSchema]:
    found: dict[TableId, list[Column]] = {}
    columns: list[Column] = []
    for line in text.splitlines():
        entry = _LINE.fullmatch(line)
        if entry is None:
            continue
        name = _plain(entry["name"])
        if not entry["type"]:
            columns = found.setdefault(_table([entry["name"]], default), [])
        else:
            columns.append(read(name, entry["type"], {}))
    return {table: TableSchema(tuple(mine)) for table, mine in found.items() if mine}


# --- CREATE TABLE -----------------------------------------------------------------------------------------------------


def _of_texts(text: str, read: ReadType, default: str, nulls_in_key: bool) -> dict[TableId, TableSchema]:
    found: dict[TableId, TableSchema] = {}
    own: dict[str, str] = {}
    for parts in _statements(text):
        words = [word.lower() for word in parts]
        if words[:2] == ["create", "type"] and "enum" in words:
            own[_plain(parts[words.index("as") - 1]).lower()] = "enum"
        elif words[:2] == ["create", "domain"] and "as" in words:
            at = words.index("as")
            own[_plain(parts[at - 1]).lower()] = _type_text(parts[at + 1 :])
        elif words[:1] == ["create"] and "table" in words[:4] and "(" in words:
            table, schema = _created(parts, words, read, own, default, nulls_in_key)
            found[table] = schema
        elif words[:2] == ["alter", "table"]:
            _alter(parts, words, found, read, own, default)
    return found


def _statements(text: str) -> Iterator[list[str]]:
    parts: list[str] = []
    for word in _WORD.findall(text):
        if word == ";":
            if parts:
                yield parts
            parts = []
        else:
            parts.append(word)
    if parts:
        yield parts


def _created(
    parts: list[str], words: list[str], read: ReadType, own: Mapping[str, str], default: str, nulls_in_key: bool
) -> tuple[TableId, TableSchema]:
    begin, opening = words.index("table") + 1, words.index("(")
    if words[begin : begin + 3] == ["if", "not", "exists"]:
        begin += 3
    columns: list[Column] = []
    key: list[str] = []
    never_null = set[str]()
    for element in _elements(parts[opening + 1 :]):
        low = [word.lower() for word in element]
        if low[0] in _NO_COLUMN:
            if "primary" in low:
                inner = element[low.index("primary") + 3 :]
                key = [_plain(word) for word in inner if word not in (",", "(", ")")]
            continue
        columns.append(read(_plain(element[0]), _type_text(element[1:]), own))
        key += [columns[-1].name] if "primary" in low else []
        if not nulls_in_key or ("not", "null") in pairwise(low):
            never_null.add(columns[-1].name)
    index = (Index("PRIMARY", tuple(key), unique=True, primary=True),) if key else ()
    named = tuple(replace(one, nullable=one.name not in never_null.intersection(key)) for one in columns)
    return _table(parts[begin:opening], default), TableSchema(named, tuple(key), index)


def _alter(
    parts: list[str],
    words: list[str],
    found: dict[TableId, TableSchema],
    read: ReadType,
    own: Mapping[str, str],
    default: str,
) -> None:
    begin = 3 if words[2:3] == ["only"] else 2
    stop = next((n for n in range(begin, len(words)) if words[n] in ("add", "alter", "drop", "rename")), len(words))
    table = _table(parts[begin:stop], default)
    known = found.get(table)
    if known is None:
        return
    for element in _elements([*parts[stop:], ")"]):
        low = [word.lower() for word in element]
        if low[:1] != ["add"]:
            continue
        at = 2 if low[1:2] == ["column"] else 1
        at += 3 if low[at : at + 3] == ["if", "not", "exists"] else 0
        if low[at] not in _NO_COLUMN:
            column = read(_plain(element[at]), _type_text(element[at + 1 :]), own)
            known = replace(known, columns=(*known.columns, column))
    found[table] = known


def _elements(parts: list[str]) -> Iterator[list[str]]:
    """Yield what commas part, up to the bracket that closes."""
    depth, element = 0, list[str]()
    for word in parts:
        if word in ("(", "<"):
            depth += 1
        elif word in (")", ">"):
            depth -= 1
        if depth < 0:
            break
        if word == "," and not depth:
            yield element
            element = []
        else:
            element.append(word)
    if element:
        yield element


def _type_text(parts: list[str]) -> str:
    kept: list[str] = []
    for word in parts:
        if word.lower() in _ENDS_TYPE:
            break
        kept.append(word)
    return " ".join(kept)


def _table(parts: list[str], default: str) -> TableId:
    """Return the table of a name: `schema`.`table`, or a path."""
    names = [_plain(word) for word in parts if word != "."]
    if len(names) == 1 and "/" in names[0]:
        return table_of_path(names[0], default)
    if len(names) == 1 and "." in names[0] and parts[0] == names[0]:
        names = names[0].split(".", 1)
    return TableId(names[-2] if len(names) > 1 else default, names[-1])


def _plain(word: str) -> str:
    if word[:1] in ('"', "`") and word[-1:] == word[:1]:
        return word[1:-1].replace(word[0] * 2, word[0])
    return word
