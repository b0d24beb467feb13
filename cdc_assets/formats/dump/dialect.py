r"""Options of Dumpling's CSV and of the tuples of its INSERT statements, as a dialect, and what they guarantee.

With backslash escapes (the default) NUL, CR, LF and the backslash are written as `\0`, `\r`, `\n` and `\\`, and the
first byte of the delimiter, or of the separator where the delimiter is empty, has a backslash before it: a row is a
line, and a byte NUL occurs nowhere. Without escapes a delimiter inside a text is doubled and all else is raw. What
Dumpling calls separator and delimiter are the delimiter and the quote of a dialect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cdc_assets.errors import BadSettings
from cdc_assets.formats.dialect import Dialect, overlaps_itself
from cdc_assets.model.dumps import DumpOptions
from cdc_assets.types.mysql_values import Binary

__all__ = ["DIALECTS", "csv_dialect", "sql_dialect"]

DIALECTS: Mapping[str, Binary] = {
    "": "raw",
    "default": "raw",
    "snowflake": "hex",
    "redshift": "hex",
    "bigquery": "base64",
}
"""`--csv-output-dialect` -> how bytes are written."""

_NUMBER = re.compile(r"[-+]?(\d|\.\d|inf|nan)[-+.\w]*|true|false", re.IGNORECASE)
_IN_NUMBERS = frozenset(b"0123456789+-.eE")


def csv_dialect(options: DumpOptions) -> Dialect:
    """Return the options as bytes. Raises BadSettings for those with which rows cannot be separated."""
    separator, delimiter = options.separator.encode(), options.delimiter.encode()
    escapes = _escapes(delimiter or separator) if options.escape_backslash else {}
    dialect = Dialect(separator, delimiter, options.null_value.encode(), b"\n", escapes)
    structure, first = dialect.delimiter + dialect.quote, (dialect.quote or dialect.delimiter)[:1]
    names = ", ".join(filter(None, DIALECTS))
    rules = (
        (options.output_dialect.lower() not in DIALECTS, f'dialect "{options.output_dialect}"; known are {names}'),
        (not dialect.delimiter, "an empty separator"),
        (set(structure) & set(b"\r\n\0"), "CR, LF or NUL in separator or delimiter"),
        (dialect.escapes and b"\\" in structure, "a backslash in separator or delimiter, and escape-backslash on"),
        (dialect.delimiter == dialect.quote, f'"{options.separator}" as separator and delimiter'),
        (_overlap(dialect.delimiter, dialect.quote), f'separator "{options.separator}", which overlaps the delimiter'),
        (set(dialect.delimiter) <= _IN_NUMBERS, f'separator "{options.separator}", which numbers may hold'),
        (
            dialect.escapes and first in (b"0", b"n", b"r"),
            "n, r or 0 as the first character of the delimiter or separator, and escape-backslash on",
        ),
        (set(dialect.quote[:1]) & _IN_NUMBERS, f'delimiter "{options.delimiter}", with which numbers may begin'),
        (set(dialect.null) & set(structure + b"\r\n\0"), f'null-value "{options.null_value}", which holds structure'),
        (_NUMBER.fullmatch(options.null_value), f'null-value "{options.null_value}", written like a number'),
        (
            not dialect.escapes and overlaps_itself(dialect.quote),
            f'delimiter "{options.delimiter}", which overlaps itself',
        ),
    )
    if wrong := next((text for broken, text in rules if broken), ""):
        raise BadSettings(
            f"The CSV options of the dump have {wrong}. Give the options that Dumpling had, or dump again with its "
            "defaults."
        )
    return dialect


def sql_dialect(options: DumpOptions) -> Dialect:
    """Return the dialect of the values between the parentheses of an INSERT."""
    escapes = _escapes(b"'") | {rb"\"": b'"', rb"\Z": b"\x1a"} if options.escape_backslash else {}
    return Dialect(b",", b"'", b"NULL", b"\n", escapes)


def _escapes(structure: bytes) -> dict[bytes, bytes]:
    first = structure[:1]
    return {b"\\\\": b"\\", b"\\" + first: first, rb"\n": b"\n", rb"\r": b"\r", rb"\0": b"\0"}


def _overlap(text: bytes, other: bytes) -> bool:
    """Return whether some text may have an end of one that is a beginning of the other, or one within the other."""
    ends = (
        text[-size:] == other[:size] or other[-size:] == text[:size] for size in range(1, min(len(text), len(other)))
    )
    return any(ends) or (text != other and bool(other) and (text in other or other in text))
