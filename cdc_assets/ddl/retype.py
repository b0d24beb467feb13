"""Does a change of a column's type touch the values that the lake holds?

MySQL in strict mode, TiDB's default, refuses a change that would cut a number or a text, so a narrower range alone
changes no value. What changes values: rounding, padding, another text form, and a shorter text's trailing spaces.
"""

from __future__ import annotations

from cdc_assets.ddl.clauses import charset_of
from cdc_assets.model.schema import Column
from cdc_assets.types.mysql_types import arrow_type

__all__ = ["changes_values", "same_definition"]

_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "YEAR", "BIT")
_TEXTS = ("CHAR", "VARCHAR", "VAR_STRING", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
_BYTES = ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
_BLOBS = ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")


def same_definition(old: Column, new: Column) -> bool:
    """Tell whether two columns of a schema file are declared alike, ids apart."""
    return _declared(old) == _declared(new)


def _declared(column: Column) -> tuple[object, ...]:
    return column.type, column.unsigned, column.precision, column.scale or 0, column.nullable, column.is_pk


def changes_values(old: Column, new: Column) -> bool:
    """Tell whether stored values or their lake type change; raises ValueError where characters may be lost."""
    if old.type in _INTEGERS and new.type in _INTEGERS:
        # a YEAR or BIT column counts as an integer: MySQL converts by number
        return arrow_type(old) != arrow_type(new) or (new.type == "YEAR") != (old.type == "YEAR")
    if old.type in _TEXTS and new.type in _TEXTS:
        _refuse_charset(old, new)
        return _shorter(old, new) or (new.type == "CHAR" and old.type != "CHAR")
    if old.type in _BYTES and new.type in _BYTES:
        padded = new.type == "BINARY" and (old.type != "BINARY" or old.precision != new.precision)
        return padded or _shorter(old, new)
    if old.type != new.type:
        return True
    if old.type in ("ENUM", "SET"):
        _refuse_charset(old, new)
        return _members(old, new)
    if old.type == "DECIMAL":
        return (old.precision or 10, old.scale or 0) != (new.precision or 10, new.scale or 0)
    if old.type in ("FLOAT", "DOUBLE"):
        return new.scale is not None and (old.scale is None or old.scale > new.scale)
    if old.type == "TIME":
        return (old.scale or 0) != (new.scale or 0)
    return (new.scale or 0) < (old.scale or 0)


def _shorter(old: Column, new: Column) -> bool:
    """Compare capacities; a text measured in bytes needs four for each character."""
    if old.precision is None or new.precision is None:
        return old.precision != new.precision
    wide = 4 if new.type in _BLOBS and old.type not in _BLOBS else 1
    return new.precision < old.precision * wide


def _members(old: Column, new: Column) -> bool:
    """Values move by name. A SET prints its members in the order of their definition, so that order counts."""
    if old.elems is None or new.elems is None:
        return old.elems != new.elems
    if old.type == "ENUM":
        return not set(old.elems) <= set(new.elems)
    return tuple(one for one in new.elems if one in old.elems) != old.elems


_WIDE = ("utf8mb4", "gb18030")


def _refuse_charset(old: Column, new: Column) -> None:
    if old.collation is None or new.collation is None:
        return
    source, target = charset_of(old.collation), charset_of(new.collation)
    if target not in (source, *_WIDE) and not (source == "ascii" or (source == "latin1" and target == "utf8")):
        raise ValueError(
            f"from {source} to {target} characters can be lost, in a way that depends on the source's settings"
        )
