"""Whether a change of a column's type changes the values in the lake, or may change them.

What changes values: rounding, padding, another text form, another lake type. What may: a smaller range or length, which
a source in strict mode, TiDB's default, refuses when a value does not fit, and one in another mode cuts.
"""

from __future__ import annotations

from cdc_assets.ddl.clauses import charset_of
from cdc_assets.model.schema import Column
from cdc_assets.model.schema_changes import RetypeColumn
from cdc_assets.types.conversions import loses_dates, narrows, needs_conversion, zone_matters
from cdc_assets.types.families import BINARY, CHARACTER, FLOATING, INTEGER
from cdc_assets.types.mysql_types import arrow_type, type_text

_TEXTS = ("CHAR", "VARCHAR", "VAR_STRING", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET")


def same_definition(old: Column, new: Column) -> bool:
    """Return whether two columns of a schema file are declared alike, ids apart."""
    return _declared(old) == _declared(new)


def _declared(column: Column) -> tuple[object, ...]:
    return column.type, column.unsigned, column.precision, column.scale or 0, column.nullable, column.is_pk


def retyped(old: Column, new: Column, timezone: str, server: str = "") -> RetypeColumn | None:
    """Return the change of type, None when no stored value and no lake type can change.

    `timezone` stands for the zone of the session that ran the DDL, `server` is the kind of server: "" for TiDB, whose
    rules are carried out. Raises ValueError where characters may be lost, or another server converts otherwise.
    """
    if (
        old.type in _TEXTS
        and new.type in _TEXTS
        and (old.type == new.type or {old.type, new.type}.isdisjoint(_MEMBERS))
    ):
        _refuse_charset(old, new)
    if arrow_type(old) == arrow_type(new) and not needs_conversion(old, new) and not narrows(old, new):
        return None
    if difference := _of_server(old, new, server):
        raise ValueError(
            f"{_SERVERS[server]} does not change {type_text(old)} to {type_text(new)} as TiDB does, whose rules are "
            f"carried out here: it {difference}. Rebuild the table from a new snapshot of it"
        )
    if not zone_matters(old, new):
        return RetypeColumn(old, new, approximate=_LOST_DATES if loses_dates(old, new) else "")
    guesses = [f"in the time zone {timezone}: {_ZONE}", *([_LOST_DATES] if loses_dates(old, new) else [])]
    return RetypeColumn(old, new, timezone, "; ".join(guesses))


_MEMBERS = ("ENUM", "SET")
_ZONE = "TiDB takes that of the session that ran the DDL, which no file records"
_LOST_DATES = "zero and partial dates stay NULL"


_SERVERS = {"mysql": "MySQL", "mariadb": "MariaDB"}
_SECONDS = ("TIME", "DATETIME", "TIMESTAMP")
_STORED_BYTES = ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")


def _of_server(old: Column, new: Column, server: str) -> str:
    """Return what a server does to some values in place of what TiDB does, "" where it does the like.

    MariaDB's conversions are compared with TiDB's value by value by a test. Of MySQL the manual says that it rounds
    fractions of seconds ("Fractional Seconds in Time Values"), as TiDB does, and that bits are binary strings
    ("Bit-Value Literals"); that it prints numbers as MariaDB does is an assumption.
    """
    if server and old.type in FLOATING and new.type in (*CHARACTER, *BINARY):
        return "prints numbers from 1e15 on, and small ones, with an exponent"
    if server and old.type == "BIT" and new.type in _STORED_BYTES:
        return "keeps the bytes of BIT, and prints no number"
    if server == "mariadb" and new.type in (*_SECONDS, *INTEGER) and old.type in (*_SECONDS, *CHARACTER, *_NUMBERS):
        of_seconds = new.type in _SECONDS or old.type in _SECONDS
        if of_seconds and _fraction(old) > (_fraction(new) if new.type in _SECONDS else 0):
            return "cuts fractions of seconds, or rounds them, by its sql_mode"
    if server == "mariadb" and old.type in FLOATING and new.type == "YEAR":
        return "cuts fractions of numbers"
    return ""


_NUMBERS = ("DECIMAL", *FLOATING)


def _fraction(column: Column) -> int:
    """Return how many digits of a fraction of a second a value may have."""
    if column.type in CHARACTER or (column.type in FLOATING and column.scale is None):
        return 6
    return column.scale or 0


_WIDE = ("utf8mb4", "gb18030")


def _refuse_charset(old: Column, new: Column) -> None:
    if old.collation is None or new.collation is None:
        return
    source, target = charset_of(old.collation), charset_of(new.collation)
    if target not in (source, *_WIDE) and not (source == "ascii" or (source == "latin1" and target == "utf8")):
        raise ValueError(
            f"from {source} to {target} characters can be lost, in a way that depends on the source's settings"
        )
