"""Schema files: bytes -> SchemaFile, and the checksum that TiCDC puts into their names. Pure.

A schema file is one JSON object (`table_definition.go`, `schema_file.go`): all members of a column are texts but
`ColumnDefault`, which is any JSON, and `ColumnElems`, a list. TiCDC writes lengths into `ColumnPrecision` and types by
TiDB's names; its documents' examples have `ColumnLength` and the type NUMERIC, which mean the same.
"""

from __future__ import annotations

import json
import posixpath
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cdc_assets.errors import MalformedSchemaFile
from cdc_assets.model.names import is_hidden_name
from cdc_assets.model.schema import Column, TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.sources.storage_sink.paths import parse_schema_path
from cdc_assets.types.families import type_name

_COLUMN_MEMBERS = (
    "ColumnId", "ColumnName", "ColumnType", "ColumnDefault", "ColumnPrecision", "ColumnScale", "ColumnNullable",
    "ColumnIsPk", "ColumnElems",
)  # fmt: skip


@lru_cache(maxsize=8192)  # every look of a process has nearly the same files, and a history is read again for others
def parse_schema_file(path: str, data: bytes) -> SchemaFile:
    """Return a schema file's contents. `path` is below the prefix and says root, version and checksum.

    Members that are not known are ignored, and the same contents are the same object. Raises MalformedSchemaFile for
    what is not JSON, lacks a member, holds a value of another kind, or disagrees with the file's own name.
    """
    document = _document(path, data)
    where = parse_schema_path(path)
    if where is None:
        raise _malformed(
            path, "its name is not that of a schema file", "{schema}/{table}/meta/schema_{version}_{checksum}.json"
        )
    table = TableId(_member(path, document, "Schema", str), _member(path, document, "Table", str))
    version = _member(path, document, "TableVersion", int)
    if version != where.version:
        raise _malformed(path, f"it says TableVersion {version}", f"{where.version}, as in its name")
    # TiCDC joins the raw names with a path cleaner; with use-table-id-as-path the root is a number.
    joined = posixpath.normpath(f"/{table.schema}/{table.table}").strip("/")
    if not (where.root == joined or (where.root.isascii() and where.root.isdigit())):
        raise _malformed(path, f'it describes "{table}"', f"the table of its directory, {where.root}")
    columns = document.get("TableColumns") or []
    if not isinstance(columns, list) or not all(isinstance(column, dict) for column in columns):
        raise _malformed(path, f"TableColumns is {_short(columns)}", "a list of objects, or null")
    if str(document.get("TableColumnsTotal", len(columns))) != str(len(columns)):
        total = document["TableColumnsTotal"]
        raise _malformed(path, f"TableColumnsTotal is {_short(total)}", f"{len(columns)}, the length of TableColumns")
    return SchemaFile(
        path=path,
        root=where.root,
        table=table,
        version=version,
        query=_member(path, document, "Query", str, ""),
        type=_member(path, document, "Type", int, 0),
        columns=tuple(_column(path, column) for column in columns),
        checksum=where.checksum,
    )


@lru_cache(maxsize=8192)
def checksum_matches(path: str, data: bytes) -> bool:
    """Return whether the checksum in the name is that of the contents; True where the name has none.

    A mismatch does not prove damage: defaults are not always encoded again as they were read (tiflow#9288).
    """
    where = parse_schema_path(path)
    if where is None or where.checksum is None:
        return True
    document = _document(path, data)
    spellings = (schema_checksum(document, replaced_bytes=replaced) for replaced in (False, True))
    return where.checksum in spellings


def schema_checksum(document: Mapping[str, Any], *, replaced_bytes: bool = False) -> int:
    """Return TiCDC's checksum of a schema file's parsed JSON: CRC-32 over its columns, sorted by name, and its names.

    `replaced_bytes` spells U+FFFD as Go does for bytes that are not UTF-8 (raw BIT defaults).
    """
    columns = sorted(document.get("TableColumns") or [], key=lambda column: str(column["ColumnName"]).encode())
    content = {
        "Table": document["Table"],
        "Schema": document["Schema"],
        "Version": 0,
        "TableColumns": [{name: column[name] for name in _COLUMN_MEMBERS if name in column} for column in columns],
        "TableColumnsTotal": document.get("TableColumnsTotal", len(columns)),
    }
    text = json.dumps(content, indent=4, ensure_ascii=False, separators=(",", ": "))
    for raw, escaped in (
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
    ):
        text = text.replace(raw, escaped)
    if replaced_bytes:
        text = text.replace("\ufffd", "\\ufffd")
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def _document(path: str, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise _malformed(path, f"it is not JSON ({error})", "one JSON object") from None
    if not isinstance(document, dict):
        raise _malformed(path, f"it holds {_short(document)}", "one JSON object")
    return document


def _column(path: str, members: Mapping[str, Any]) -> Column:
    name = _member(path, members, "ColumnName", str)
    where = f'{path}, column "{name}"'
    kind = _member(where, members, "ColumnType", str).upper().strip()
    elems = members.get("ColumnElems")
    if elems is not None and not (isinstance(elems, list) and all(isinstance(elem, str) for elem in elems)):
        raise _malformed(where, f"ColumnElems is {_short(elems)}", "a list of texts")
    return Column(
        name=name,
        type=type_name(kind.removesuffix(" UNSIGNED")),
        unsigned=kind.endswith(" UNSIGNED"),
        precision=_size(where, members),
        scale=_number(where, members, "ColumnScale"),
        nullable=_truth(where, members, "ColumnNullable", True),
        is_pk=_truth(where, members, "ColumnIsPk", False),
        default=members.get("ColumnDefault"),
        id=_number(where, members, "ColumnId"),
        elems=tuple(elems) if elems is not None else None,
        virtual=is_hidden_name(name),  # where a DDL text defines a column of such a name, the text decides
    )


def _member(where: str, members: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = members.get(name, default)
    if not isinstance(value, kind) or isinstance(value, bool):
        came = f"{name} is {_short(value)}" if name in members else f"{name} is missing"
        raise _malformed(where, came, "a text" if kind is str else "a whole number")
    return value


def _size(where: str, members: Mapping[str, Any]) -> int | None:
    precision, length = (_number(where, members, name) for name in ("ColumnPrecision", "ColumnLength"))
    if precision is not None and length is not None and precision != length:
        raise _malformed(where, f"ColumnLength is {length} and ColumnPrecision {precision}", "the same length in both")
    return length if precision is None else precision


def _number(where: str, members: Mapping[str, Any], name: str) -> int | None:
    value = members.get(name)
    if value is None or value == "":
        return None
    try:
        return int(str(value))
    except ValueError:
        raise _malformed(where, f"{name} is {_short(value)}", "digits in quotes") from None


def _truth(where: str, members: Mapping[str, Any], name: str, default: bool) -> bool:
    value = str(members.get(name, default)).lower()
    if value not in ("true", "false"):
        raise _malformed(where, f"{name} is {_short(members[name])}", '"true" or "false"')
    return value == "true"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _malformed(where: str, came: str, expected: str) -> MalformedSchemaFile:
    return MalformedSchemaFile(
        f"{where}: {came}; expected {expected}. "
        "Restore the file as TiCDC wrote it; until then its table stays where it is.",
        file=where.partition(', column "')[0],
    )
