"""A record's schema -> the schema of a table, as far as it goes.

Names are sanitized: what is not a letter, digit or underscore is an underscore, and a leading digit gets one before it.

Each type has `connect.parameters` with `tidb_type`; nullable columns are unions, in either order. Defaults are no
values of their types and are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdc_assets.formats.avro_records import RecordSchema
from cdc_assets.formats.members import allowed_members
from cdc_assets.model.schema import Column, Index, TableSchema
from cdc_assets.types.families import BINARY, CHARACTER, INTEGER

__all__ = [
    "BEFORE",
    "COMMIT_TS_FIELD",
    "EXTENSION",
    "OP_FIELD",
    "as_described",
    "sanitized",
    "table_schema",
]

OP_FIELD, COMMIT_TS_FIELD, BEFORE = "_tidb_op", "_tidb_commit_ts", "_ticdc_before"
EXTENSION = frozenset(
    (
        *(OP_FIELD, COMMIT_TS_FIELD, "_tidb_commit_physical_time", BEFORE),
        *("_tidb_row_level_checksum", "_tidb_corrupted", "_tidb_checksum_version"),
    )
)
"""Fields that are not columns."""
_UNKNOWN_DIGITS = (65, 30)
"""Of a DECIMAL that is a text."""

_PLAIN: Mapping[str, tuple[str, int | None]] = {
    "TEXT": ("LONGTEXT", 4294967295),
    "BLOB": ("LONGBLOB", 4294967295),
    "DATE": ("DATE", None),
    "JSON": ("JSON", None),
    "FLOAT": ("FLOAT", 12),
    "DOUBLE": ("DOUBLE", 22),
    "TiDBVECTORFloat32": ("VECTOR", None),
}
_DOUBTS = {
    "LONGTEXT": "which text type it is, and its length",
    "LONGBLOB": "which binary type it is, and its length",
    "INT": "which integer of 4 bytes or less it is",
}


def sanitized(name: str) -> str:
    """Return a name as Avro has it."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{found}" if found[:1].isdigit() else found


def _columns_of(record: RecordSchema) -> tuple[str, ...]:
    """Return the fields that are columns."""
    return tuple(str(field["name"]) for field in record.fields if field["name"] not in EXTENSION)


def table_schema(value: RecordSchema, key: RecordSchema | None) -> tuple[TableSchema, tuple[str, ...]]:
    """Return the table in a row's schema and its key's, and what is doubtful; raises ValueError."""
    names = _columns_of(key) if key is not None else ()
    columns, doubts = [], []
    for field in value.fields:
        if field["name"] in EXTENSION:
            continue
        column, doubt = _column(str(field["name"]), field["type"], field["name"] in names)
        columns.append(column)
        doubts += [f'"{column.name}": {doubt}'] if doubt else []
    index = (Index("", names, unique=True),) if names else ()
    said = "names with other characters than letters, digits and underscores, defaults, collations, virtual columns, "
    said += "partitions, and unique keys besides the handle key"
    return TableSchema(tuple(columns), names, index), (*doubts, said)


def _column(name: str, declared: Any, in_key: bool) -> tuple[Column, str]:
    kinds = declared if isinstance(declared, list) else [declared]
    nullable = "null" in kinds
    (kind,) = [one for one in kinds if one != "null"]
    parameters = kind.get("connect.parameters") or {} if isinstance(kind, dict) else {}
    type_, unsigned = re.subn(r" UNSIGNED$", "", str(parameters.get("tidb_type") or ""))
    base = kind.get("type") if isinstance(kind, dict) else kind
    shape = _shape(type_, str(base), kind if isinstance(kind, dict) else {}, parameters)
    column = Column(name, nullable=nullable and not in_key, unsigned=bool(unsigned), **shape)
    if type_ in ("DATETIME", "TIMESTAMP", "TIME"):
        return column, f"the fraction digits of {type_}, taken for 6"
    if type_ == "DECIMAL" and base == "string":
        return column, "the digits of DECIMAL, taken for 65 with 30 after the point"
    return column, _DOUBTS.get(column.type, "")


def _shape(kind: str, base: str, declared: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    if kind in _PLAIN:
        name, precision = _PLAIN[kind]
        return {"type": name, "precision": precision}
    if kind in ("INT", "BIGINT"):
        return {"type": kind}
    if kind == "YEAR":
        return {"type": kind, "precision": 4}
    if kind in ("DATETIME", "TIMESTAMP", "TIME"):
        return {"type": kind, "scale": 6}
    if kind == "DECIMAL":
        exact = base == "bytes"
        return {
            "type": kind,
            "precision": int(declared["precision"]) if exact else _UNKNOWN_DIGITS[0],
            "scale": int(declared.get("scale", 0)) if exact else _UNKNOWN_DIGITS[1],
        }
    if kind == "BIT":
        return {"type": kind, "precision": int(parameters["length"])}
    if kind in ("ENUM", "SET"):
        return {"type": kind, "elems": allowed_members(str(parameters.get("allowed", "")))}
    if not kind:
        raise ValueError("it has no tidb_type")
    return {"type": kind}  # the type table refuses it by its name


# --- what a person knows of the table ---------------------------------------------------------------------------------


def as_described(
    shown: TableSchema, doubts: tuple[str, ...], known: TableSchema
) -> tuple[TableSchema, tuple[str, ...]]:
    """Return the table in a row's schema by the names and types of its CREATE TABLE, and what stays doubtful.

    A column that has become another one since is taken as the row shows it.
    """
    described = {sanitized(column.name): column for column in known.stored}
    found, left = list[Column](), list[str]()
    for column in shown.columns:
        one = described.get(column.name)
        same = one is not None and _may_be(column, one)
        name = column.name if one is None else one.name
        found.append(one if one is not None and same else replace(column, name=name))
        left += [doubt for doubt in doubts if not same and doubt.startswith(f'"{column.name}": ')]
    names = {column.name: own.name for column, own in zip(shown.columns, found, strict=True)}
    key = tuple(names[name] for name in shown.key)
    if set(key) == set(known.key):
        whole = tuple(found) == known.stored
        columns = known.columns if whole else tuple(found)
        return replace(known, columns=columns), tuple(left)
    indexes = tuple(replace(one, columns=tuple(names[name] for name in one.columns)) for one in shown.indexes)
    return replace(shown, columns=tuple(found), key=key, indexes=indexes), tuple(left)


def _may_be(shown: Column, known: Column) -> bool:
    """Return whether a column of a CREATE TABLE looks like this in a row's schema."""
    if shown.type in ("LONGTEXT", "LONGBLOB"):
        return known.type in (CHARACTER if shown.type == "LONGTEXT" else BINARY)
    if shown.type == "INT":
        return known.type in INTEGER[:-1] and shown.unsigned == known.unsigned
    if shown.type == "DECIMAL":
        digits = shown.precision, shown.scale
        return known.type == "DECIMAL" and digits in (_UNKNOWN_DIGITS, (known.precision, known.scale or 0))
    same = shown.type == known.type and shown.unsigned == known.unsigned
    return same and (shown.elems == known.elems and (shown.type != "BIT" or shown.precision == known.precision))
