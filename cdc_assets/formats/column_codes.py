"""MySQL's numbers for column types, and TiCDC's flags of columns, as Craft and the Open Protocol send them in each row.

They have the kind of a column, and what the row's key is, but no length, precision or member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cdc_assets.model.schema import Column, Index, TableSchema
from cdc_assets.types import families

__all__ = [
    "BINARY",
    "HANDLE_KEY",
    "UNSIGNED",
    "TypedColumn",
    "fits",
    "flags_limit",
    "flags_of_mysql",
    "guess",
    "infer",
    "shown_schema",
    "type_name",
]

BINARY, HANDLE_KEY, GENERATED, PRIMARY, UNIQUE, MULTIPLE, NULLABLE, UNSIGNED = (1 << place for place in range(8))

_ALIKE = (frozenset(families.INTEGER), frozenset((*families.CHARACTER, *families.BINARY)))
_NAMES: Mapping[int, tuple[str, str]] = {
    1: ("TINYINT", ""),
    2: ("SMALLINT", ""),
    3: ("INT", ""),
    4: ("FLOAT", ""),
    5: ("DOUBLE", ""),
    6: ("NULL", ""),
    7: ("TIMESTAMP", ""),
    8: ("BIGINT", ""),
    9: ("MEDIUMINT", ""),
    10: ("DATE", ""),
    11: ("TIME", ""),
    12: ("DATETIME", ""),
    13: ("YEAR", ""),
    14: ("DATE", ""),
    15: ("VARCHAR", "VARBINARY"),
    16: ("BIT", ""),
    225: ("VECTOR", ""),
    245: ("JSON", ""),
    246: ("DECIMAL", ""),
    247: ("ENUM", ""),
    248: ("SET", ""),
    249: ("TINYTEXT", "TINYBLOB"),
    250: ("MEDIUMTEXT", "MEDIUMBLOB"),
    251: ("LONGTEXT", "LONGBLOB"),
    252: ("TEXT", "BLOB"),
    253: ("VARCHAR", "VARBINARY"),
    254: ("CHAR", "BINARY"),
}
"""Number of a type -> its name; the second one with the flag BINARY, where that makes a difference."""


def flags_limit(code: int) -> int:
    """Return the number below which TiCDC's flags of a type are; some of MySQL's own are not. No text is unsigned."""
    return UNSIGNED if _NAMES.get(code, ("", ""))[1] else UNSIGNED << 1


def flags_of_mysql(flags: int, is_handle: bool) -> int:
    """Return MySQL's own flags of a column as TiCDC's, but for what these say of generated columns.

    An early build of the new architecture sends the former (ticdc#1227), and beside them which columns are the handle.
    """
    not_null, primary, unique, multiple, unsigned, binary = (bool(flags & 1 << place) for place in (0, 1, 2, 3, 5, 7))
    pairs = (
        (BINARY, binary), (HANDLE_KEY, is_handle), (PRIMARY, primary), (UNIQUE, unique), (MULTIPLE, multiple),
        (NULLABLE, not not_null), (UNSIGNED, unsigned),
    )  # fmt: skip
    return sum(flag for flag, is_set in pairs if is_set)


def type_name(code: int, flags: int) -> str | None:
    """Return the type as `Column.type` spells it; None for a number that TiDB does not have."""
    names = _NAMES.get(code)
    return None if names is None else names[1] if names[1] and flags & BINARY else names[0]


def fits(code: int, column: Column) -> bool:
    """Return whether values sent as this type are values of the column: integers of any width, texts of any length."""
    name = _NAMES.get(code, ("",))[0]
    return any({name, column.type} <= alike for alike in _ALIKE) or name == column.type or name == "NULL"


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column as a row brings it, with some of its values as texts."""

    name: str
    code: int
    flags: int
    texts: Sequence[str] = ()


def infer(columns: Sequence[TypedColumn], in_table_order: bool) -> tuple[TableSchema, tuple[str, ...]] | None:
    """Return the schema from a row's types, and what of it is approximate; None for a type that TiDB lacks."""
    names = [type_name(column.code, column.flags) for column in columns]
    if None in names:
        return None
    handle = tuple(column.name for column in columns if column.flags & HANDLE_KEY)
    primary = any(column.flags & HANDLE_KEY and column.flags & PRIMARY for column in columns)
    doubts = [] if in_table_order else ["the order of the columns, which are by name in the rows"]
    doubts += ["the order of the key's columns"] if len(handle) > 1 else []
    doubts.append("lengths, defaults, collations, virtual columns, partitions and unique keys besides the handle key")
    column_pairs = (_column(column, name or "") for column, name in zip(columns, names, strict=True))
    return shown_schema(column_pairs, handle, *doubts, primary=primary)


def shown_schema(
    columns: Iterable[tuple[Column, str]], key: tuple[str, ...], *doubts: str, primary: bool = False
) -> tuple[TableSchema, tuple[str, ...]]:
    """Return the schema of columns that rows show, each with what is doubtful of it, "" for nothing, and all doubts."""
    column_pairs = list(columns)
    own = (f'"{column.name}": {doubt}' for column, doubt in column_pairs if doubt)
    index = (Index("PRIMARY" if primary else "", key, unique=True, primary=primary),) if key else ()
    return TableSchema(tuple(column for column, _ in column_pairs), key, index), (*own, *doubts)


def _column(typed_column: TypedColumn, name: str) -> tuple[Column, str]:
    precision, scale, doubt = guess(name, typed_column.texts)
    column = Column(
        name=typed_column.name,
        type=name,
        unsigned=bool(typed_column.flags & UNSIGNED) and name not in ("BIT", "YEAR"),
        precision=precision,
        scale=scale,
        nullable=bool(typed_column.flags & NULLABLE),
        is_pk=bool(typed_column.flags & PRIMARY and typed_column.flags & HANDLE_KEY),
    )
    return column, doubt


def guess(kind: str, texts: Sequence[str]) -> tuple[int | None, int | None, str]:
    """Return precision, scale and what is doubtful about them, for a type of which only its name and values are known.

    TiDB prints all fraction digits, so one value shows them.
    """
    scale = max((len(text.partition(".")[2]) for text in texts), default=0)
    if kind == "DECIMAL":
        digits = max((len(text.lstrip("-").replace(".", "")) for text in texts), default=0)
        precision = 65 if digits > 38 else 38
        return precision, scale, f"the digits of DECIMAL, taken for {precision} with {scale} after the point"
    if kind in ("DATETIME", "TIMESTAMP", "TIME"):
        return None, scale, f"the fraction digits of {kind}, taken for {scale}"
    if kind == "BIT":
        return 64, None, "the width of BIT, taken for 64"
    if kind in ("ENUM", "SET"):
        return None, None, f"the members of {kind}, which are not known: rows hold until they are"
    return None, None, ""
