"""A column's definition as text -> the `Column` that TiCDC's schema file has for it.

TiCDC lists types by TiDB's names, with the display length of a number and the length of a text in `ColumnPrecision`
(`tiflow:pkg/sink/cloudstorage/table_definition.go`), and a type that is not given a length gets MySQL's. A definition
in the charset `binary` is one of the binary types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import pyarrow as pa

from cdc_assets.ddl.clauses import ColumnText, charset_of
from cdc_assets.ddl.text import Unreadable
from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.model.schema import Column, Default
from cdc_assets.model.tso import Tso, tso_moment
from cdc_assets.types.addresses import ADDRESSES, address_text
from cdc_assets.types.connect_types import SERVER_TYPES
from cdc_assets.types.conversions.moments import moment_from_text, time_from_text, time_text
from cdc_assets.types.families import BINARY, CHARACTER, FLOATING, INTEGER, MEMBERS, type_name
from cdc_assets.types.mysql_types import (
    default_text,
    defaults_to_now,
    float_digits,
    implicit_default,
    type_text,
    values,
)

_DIGITS: Mapping[str, tuple[int, int]] = {
    "TINYINT": (4, 3),
    "SMALLINT": (6, 5),
    "MEDIUMINT": (9, 8),
    "INT": (11, 10),
    "BIGINT": (20, 20),
    "FLOAT": (12, 12),
    "DOUBLE": (22, 22),
}
"""The display length of a number, signed and unsigned."""
INTEGERS = frozenset(_DIGITS) - {"FLOAT", "DOUBLE"}
_CAPACITY: Mapping[str, int] = {
    "TINYTEXT": 255,
    "TEXT": 65535,
    "MEDIUMTEXT": 16777215,
    "LONGTEXT": 4294967295,
    "TINYBLOB": 255,
    "BLOB": 65535,
    "MEDIUMBLOB": 16777215,
    "LONGBLOB": 4294967295,
}
_IN_BINARY: Mapping[str, str] = {
    "CHAR": "BINARY",
    "VARCHAR": "VARBINARY",
    "TINYTEXT": "TINYBLOB",
    "TEXT": "BLOB",
    "MEDIUMTEXT": "MEDIUMBLOB",
    "LONGTEXT": "LONGBLOB",
}
_CHARACTER_BYTES: Mapping[str, int] = {"binary": 1, "ascii": 1, "latin1": 1, "gbk": 2, "utf8": 3, "utf8mb3": 3}
"""Bytes that a character may take; 4 in every other charset."""
_BARE = ("DATE", "ENUM", "SET", "JSON", "VECTOR", *SERVER_TYPES)
_FRACTIONAL = ("DATETIME", "TIMESTAMP", "TIME")


def column_of(text: ColumnText, charset: str) -> Column:
    """Return the column that a definition makes in a table of that charset, without collation and default.

    Raises Unreadable for a type that is not known.
    """
    name = type_name(text.type)
    own = text.charset or (charset_of(text.collation) if text.collation else charset)
    if own == "binary":
        name = _IN_BINARY.get(name, name)
    sized = _sized(name, text, own)
    nullable = text.nullable and not text.primary
    return replace(sized, nullable=nullable, is_pk=text.primary, elems=text.elems)


def _sized(name: str, text: ColumnText, charset: str) -> Column:
    size = text.arguments[0] if text.arguments else None
    scale = text.arguments[1] if len(text.arguments) > 1 else None
    unsigned = text.unsigned or text.type == "SERIAL"
    if name == "FLOAT" and size is not None and scale is None:
        name, size = "DOUBLE" if size > 24 else "FLOAT", None
    if name in _DIGITS:
        wide = 1 if text.type in ("BOOL", "BOOLEAN") else _DIGITS[name][unsigned] if size is None else size
        return Column(text.name, name, unsigned, wide, scale or None)
    if name == "DECIMAL":
        return Column(text.name, name, unsigned, 10 if size is None else size or 10, scale or 0)
    if name == "YEAR":
        return Column(text.name, name, True, 4)
    if name == "BIT":
        return Column(text.name, name, True, size or 1)
    if name in ("CHAR", "VARCHAR", "BINARY", "VARBINARY"):
        return Column(text.name, name, False, 1 if size is None else size)
    if name in _CAPACITY:
        if size is not None and name in ("TEXT", "BLOB"):
            # TEXT(n) and BLOB(n) are the smallest type of their kind that holds n characters.
            needed = size * (_CHARACTER_BYTES.get(charset, 4) if name == "TEXT" else 1)
            fitting = (kind for kind, most in _CAPACITY.items() if kind.endswith(name) and most >= needed)
            name = next(fitting, f"LONG{name}")
        return Column(text.name, name, False, _CAPACITY[name])
    if name in _FRACTIONAL:
        return Column(text.name, name, False, None, size or None)
    if name in _BARE:
        return Column(text.name, name)
    raise Unreadable(f'the column "{text.name}" has the type {text.type}, which is not known')


def of_server(columns: Iterable[Column], server: str) -> tuple[Column, ...]:
    """Return the columns of a text as a kind of server makes them: JSON is LONGTEXT in MariaDB."""
    if server != "mariadb":
        return tuple(columns)
    return tuple(
        replace(column, type="LONGTEXT", precision=_CAPACITY["LONGTEXT"], collation="utf8mb4_bin")
        if column.type == "JSON"
        else column
        for column in columns
    )


_CHARSETS = {"utf8mb4": "utf-8", "utf8": "utf-8", "gbk": "gbk", "gb18030": "gb18030"}
"""Codecs of the charsets in which bytes of a default become a text; of any other one only ASCII is read."""
_REPLACED = "\ufffd"


class NoDefault(Exception):
    """The value that old rows have cannot be known."""


def survives_json(column: Column) -> bool:
    """Return whether `ColumnDefault` is what the source has: JSON carries no bytes that are not UTF-8."""
    return column.default is None or (column.type != "BIT" and _REPLACED not in str(column.default))


def computed_default(text: Default | None) -> str:
    """Return the expression by which the source computes a default row by row, "" where it is a value."""
    return text.text if text is not None and text.kind == "expression" else ""


def known_default(column: Column, text: Default | None, timezone: str | None, server: str = "") -> object:
    """Return the default of a column that has its `ColumnDefault`, members and collation, and a text beside it.

    It is a text, CURRENT_TIMESTAMP, or None; of a BIT or binary column also a number or bytes. `timezone` is the zone
    that a TIMESTAMP's text is read in, to give UTC; None leaves it as printed. `server` is the kind of server that
    reads the text, "" for TiDB. A text that gives no value of the type counts as none.
    """
    bytes_given = text is not None and text.kind in ("bits", "hex") and column.type in BINARY
    if column.default is not None and survives_json(column) and not bytes_given:
        return column.default
    if text is not None:
        with suppress(Unreadable):
            return _stated(text, column, timezone, server)
    return column.default


def added_default(
    column: Column, member: object, text: ColumnText | None, made: Tso, timezone: str, server: str = ""
) -> tuple[object, str]:
    """Return (value of old rows as a text for `mysql_types.values`, what of it is a guess or contradicted, or "").

    `column` has its `known_default`, `member` is the `ColumnDefault` of its file, `text` the definition in the DDL,
    `made` when the column was added, `server` the kind of server that reads the text. Raises NoDefault.
    """
    if text is not None and text.numbered:
        raise NoDefault("old rows are numbered in an order that the files do not record")
    stated = text.default if text is not None else None
    if stated is not None and stated.kind == "expression":
        raise NoDefault(f"the default ({stated.text}) is evaluated by the source for each old row")
    today = column.type == "DATE" and str(column.default).upper().startswith("CUR")
    if defaults_to_now(column) or (stated is not None and stated.kind == "now") or today:
        return _time_of_the_ddl(column, made)
    if stated is not None and (member is None or not survives_json(replace(column, default=member))):
        try:
            _stated(stated, column, timezone, server)
        except Unreadable as problem:
            raise NoDefault(str(problem)) from problem
    if column.default is None:
        return (None, "") if column.nullable else (_implicit(column), "")
    if isinstance(column.default, bytes):
        padded = column.default.ljust(column.precision or 1, b"\0") if column.type == "BINARY" else column.default
        return padded, ""
    try:
        value = default_text(column)
    except MalformedData as problem:
        raise NoDefault(problem.message) from problem
    if column.type == "SET" and column.elems and isinstance(value, str):  # printed in the order of the definition
        chosen = {name.lower() for name in value.split(",")}
        value = ",".join(name for name in column.elems if name.lower() in chosen)
    if column.type == "CHAR" and isinstance(value, str):
        value = value.rstrip(" ")  # as a CHAR is read, however it was written
    if _read(value, column) is None:
        raise NoDefault(f"its default {value!r} is not {type_text(column)}")
    return value, _doubt(column, value, member, stated, timezone)


def _doubt(column: Column, value: object, member: object, stated: Default | None, timezone: str) -> str:
    """Return the doubt about a text read in a zone that may not be the session's, or that differs from the file."""
    if stated is None:
        return ""
    if member is None:
        zoned = column.type == "TIMESTAMP" and stated.kind in ("string", "number") and not _is_zero_date(str(value))
        return f"the default of the DDL's text, read in the zone {timezone}" if zoned else ""
    if not survives_json(replace(column, default=member)):
        return ""
    try:
        text = _stated(stated, column, None)
    except Unreadable:
        return ""
    if text is not None and _same(_read(value, column), _read(text, column), column):
        return ""
    return f"ColumnDefault says {value!r}, the DDL's text {stated.text or stated.kind.upper()!r}: ColumnDefault counts"


def _same(member: pa.Scalar | None, text: pa.Scalar | None, column: Column) -> bool:
    """Two instants are the same if a zone explains their distance: at most 15 hours, in whole quarters."""
    if column.type == "TIMESTAMP" and member is not None and text is not None and member.is_valid and text.is_valid:
        distance = abs(member.as_py() - text.as_py())
        return distance <= timedelta(hours=15) and not distance % timedelta(minutes=15)
    return member == text


def _read(text: object, column: Column) -> pa.Scalar | None:
    """Return the value in the lake's type, the null of a zero date included; None for what is not of the type."""
    value = text if isinstance(text, str | bytes) else str(text)
    done = values(pa.array([value]), column, timezone="UTC", binary="raw")
    return None if done.bad is not None and done.bad[0].as_py() else done.array[0]


def _implicit(column: Column) -> object:
    if column.type == "ENUM" and not column.elems:
        raise NoDefault("old rows get the first member of the ENUM, and its members are not known")
    if column.type == "VECTOR":
        raise NoDefault("a VECTOR that is NOT NULL has no implicit default")
    return implicit_default(column)


def _time_of_the_ddl(column: Column, made: Tso) -> tuple[object, str]:
    moment = tso_moment(made)
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    if column.type == "DATE":
        return text[:10], "the date of the DDL by its TSO, in UTC"
    if column.type not in ("TIMESTAMP", "DATETIME"):
        raise NoDefault(f"{column.type} cannot default to the time of the statement")
    if column.scale:
        text += f".{moment.microsecond:06d}"[: column.scale + 1]
    zone = "" if column.type == "TIMESTAMP" else ", in UTC instead of the session's zone"
    return text, f"the time of the DDL by its TSO{zone}"


# --- the default of a text --------------------------------------------------------------------------------------------


def _stated(default: Default, column: Column, timezone: str | None, server: str = "") -> object:
    """Return a text's default as its server keeps it; of an expression None.

    TiDB's is `tidb:pkg/ddl/add_column.go`, getDefaultValue.
    Raises Unreadable for one that is not a value of the column's type, or is the number of a member.
    """
    if default.kind in ("null", "expression"):
        return None
    if default.kind == "now":
        return "CURRENT_DATE" if column.type == "DATE" else "CURRENT_TIMESTAMP"
    if column.type not in ADDRESSES and (default.kind in ("bits", "hex") or column.type == "BIT"):
        return _of_bytes(default, column)
    text = _as_kept(default, column, server)
    if column.type == "TIMESTAMP" and timezone is not None and not _is_zero_date(text):
        try:
            moment = values(pa.array([text]), column, timezone=timezone).array[0].as_py()
        except BadSettings as error:
            raise Unreadable(error.message) from None
        if moment is None:
            raise Unreadable(f'the default of "{column.name}" is not a time: {text}')
        shown = f"{moment.year:04d}-{moment:%m-%d %H:%M:%S}"
        return shown + (f".{moment.microsecond:06d}"[: column.scale + 1] if column.scale else "")
    return text


def _is_zero_date(text: str) -> bool:
    return text.startswith("0000-00-00")


def _as_kept(default: Default, column: Column, server: str) -> str:
    """A default is kept as a value of the type prints: `'2020-1-2'` of a DATETIME as `2020-01-02 00:00:00`.

    MariaDB cuts fractions of seconds off that the type does not have; TiDB and MySQL round them. Modes of a session
    by which a server does otherwise (TIME_ROUND_FRACTIONAL, TIME_TRUNCATE_FRACTIONAL) are in no text.
    """
    text, digits = default.text, column.scale or 0
    if column.type in MEMBERS:
        return _members(default, column)
    if column.type in INTEGER:
        return text if default.kind == "string" and text.isdecimal() else _rounded(text, 0)
    if column.type == "DECIMAL":
        return _rounded(text, digits)
    if column.type in FLOATING:
        return text if float_digits(column) is None else _rounded_double(text, digits, server)
    if column.type in CHARACTER and default.kind == "number":
        return _printed_number(text, column)
    if column.type == "YEAR":
        return _year(default)
    try:
        if column.type in ADDRESSES:
            return address_text(bytes.fromhex(text) if default.kind == "hex" else text, column.type)
        fraction = _FRACTION.fullmatch(text) if server == "mariadb" else None
        if fraction is not None and column.type in (*_FRACTIONAL, "DATE"):
            text = f"{fraction['whole']}.{fraction['digits'][:digits]}".rstrip(".")
        if column.type == "TIME":
            return time_text(time_from_text(text, digits), digits)
        if column.type in ("DATE", "DATETIME", "TIMESTAMP"):
            moment = moment_from_text(text, digits)
            if moment is not None:
                return moment.date_text() if column.type == "DATE" else moment.text(digits)
    except ValueError:
        return text  # no such time, or a form that is not read: an error follows where the value is needed
    return text


_FRACTION = re.compile(r"(?P<whole>.*:\d{1,2}|-?\d+)\.(?P<digits>\d*)", re.ASCII | re.DOTALL)
"""A time, or a number that stands for one, with a fraction of a second."""


def _rounded_double(text: str, digits: int, server: str) -> str:
    """Round a FLOAT(M, D) or DOUBLE(M, D) as a double: 1.005 is less than it looks.

    All round half to even: MySQL and MariaDB what is above the whole number below (`truncate_double` in sql/field.cc),
    TiDB all of the number (`tidb:pkg/types/helper.go`, Round).
    """
    try:
        number, unit = float(text), 10.0**digits
    except ValueError:
        return text
    if not math.isfinite(number * unit):
        return text
    whole = math.floor(number) if server else 0
    return f"{whole + round((number - whole) * unit) / unit:.{digits}f}"


def _printed_number(text: str, column: Column) -> str:
    """Return a number as a server prints it into a text: 0001 as 1, 1e3 as 1000."""
    whole, point, fraction = text.partition(".")
    if fraction.isdecimal() or not point:
        with suppress(ValueError):
            return f"{'-' * whole.startswith('-')}{int(whole.lstrip('-'))}{point}{fraction}"
    printed = repr(float(text)).removesuffix(".0")
    if "e" in printed:
        raise Unreadable(f'the default of "{column.name}" is {text}, a number that servers print in different ways')
    return printed


def _rounded(text: str, digits: int) -> str:
    try:
        number = Decimal(text.strip())
        return f"{number.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, Context(prec=128)):f}"
    except InvalidOperation:
        return text


def _year(default: Default) -> str:
    """One or two digits stand for 1970 to 2069; the number 0 is the year 0000, the texts '0' and '00' are 2000."""
    text = default.text
    if not text.isdecimal() or len(text) > 2 or (default.kind == "number" and int(text) == 0):
        return text
    return str(int(text) + (1900 if int(text) >= 70 else 2000))


def _members(default: Default, column: Column) -> str:
    """Members are kept as they are spelled in the definition; a number stands for one, or for a SET of them."""
    elems, text = column.elems or (), default.text
    if default.kind == "number":
        number = int(text) if text.isdecimal() else -1
        least, most = (1, len(elems)) if column.type == "ENUM" else (0, (1 << len(elems)) - 1)
        if not least <= number <= most:
            raise Unreadable(f'the default of "{column.name}" is {text}, which is not the number of a known member')
        if column.type == "ENUM":
            return elems[number - 1]
        return ",".join(member for place, member in enumerate(elems) if number >> place & 1)
    if column.type == "ENUM":
        text = text.rstrip(" ")  # members have no spaces at their end
        return text if text in elems else next((member for member in elems if member.lower() == text.lower()), text)
    chosen = {member.lower().rstrip(" ") for member in text.split(",")}
    members = [member for member in elems if member.lower() in chosen]
    return ",".join(members) if len(members) == len(chosen) else text


def _of_bytes(default: Default, column: Column) -> object:
    """Return a literal (bits, hex digits, a number or a text) as a value of the column."""
    if default.kind == "number":
        return int(_rounded(default.text, 0))
    if default.kind == "string":
        raw = default.text.encode()
    else:
        number = int(default.text or "0", 2 if default.kind == "bits" else 16)
        digits = len(default.text)
        raw = number.to_bytes((digits + 7) // 8 if default.kind == "bits" else (digits + 1) // 2, "big")
    if column.type == "BIT":
        return int.from_bytes(raw, "big")
    if column.type in BINARY:
        # Bytes that JSON could have carried stay a string, as `ColumnDefault` has it.
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw
    if column.type not in (*CHARACTER, *MEMBERS):
        return str(int.from_bytes(raw, "big"))
    charset = charset_of(column.collation or "utf8mb4")
    try:
        return raw.decode(_CHARSETS.get(charset, "ascii"))
    except UnicodeDecodeError:
        raise Unreadable(
            f'the default of "{column.name}" is the bytes {raw.hex()}, which are no text in its charset {charset}'
        ) from None
