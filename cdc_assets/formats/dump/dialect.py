r"""How Dumpling writes CSV: its options as bytes, what they promise, and the two ways to read them.

With backslash escapes (the default) NUL, CR, LF and the backslash are written as `\0`, `\r`, `\n` and `\\`, and the
first byte of the delimiter, or of the separator where the delimiter is empty, has a backslash before it: a row is a
line, and a byte NUL occurs nowhere. So `\x` becomes NUL and a letter, which leaves every delimiter that counts where it
is, and pyarrow cuts the rest; the texts get their own bytes back afterwards. Without escapes a delimiter inside a text
is doubled and all else is raw. Where no byte is free for what pyarrow must be given, `fields` cuts record by record.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

import numpy as np
import pyarrow as pa

from cdc_assets.errors import BadSettings
from cdc_assets.formats.delimited import Plain
from cdc_assets.model.dumps import DumpOptions
from cdc_assets.types.mysql_values import Binary

__all__ = ["DIALECTS", "Dialect", "Field", "dialect", "fields", "plainly", "strange_escapes", "without_escapes"]

DIALECTS: Mapping[str, Binary] = {
    "": "raw",
    "default": "raw",
    "snowflake": "hex",
    "redshift": "hex",
    "bigquery": "base64",
}
"""`--csv-output-dialect` -> how bytes are written."""

_STAND_INS = [bytes([code]) for code in (*range(1, 9), 11, 12, *range(14, 32), 127)]
_NUMBER = re.compile(r"[-+]?(\d|\.\d|inf|nan)[-+.\w]*|true|false", re.IGNORECASE)
_IN_NUMBERS = frozenset(b"0123456789+-.eE")

Field = tuple["bytes | None", bool]
"""(value, None for NULL; whether it was quoted)."""


@dataclass(frozen=True)
class Dialect:
    """Dumpling's options as bytes; `escape` are backslash escapes."""

    separator: bytes
    delimiter: bytes
    null: bytes
    escape: bool
    more_escapes: Mapping[bytes, bytes] = field(default_factory=dict)
    terminator: bytes = b"\n"

    @property
    def quote(self) -> bytes:
        """What keeps a line end from ending a row: nothing where line ends are escaped."""
        return b"" if self.escape else self.delimiter

    @cached_property
    def null_text(self) -> bytes | None:
        """The text that is written like NULL; None where a delimiter or an escape sets all texts apart."""
        return None if self.delimiter or (self.escape and b"\\" in self.null) else self.null

    @cached_property
    def escapes(self) -> Mapping[bytes, bytes]:
        """What stands behind a backslash -> what it means."""
        first = (self.delimiter or self.separator)[:1]
        return {b"\\": b"\\", first: first, b"n": b"\n", b"r": b"\r", **self.more_escapes, b"0": b"\0"}

    @cached_property
    def one_field(self) -> re.Pattern[bytes]:
        """One field and what must follow it."""
        end, null, quote = rb"(?=%b|\Z)" % re.escape(self.separator), re.escape(self.null), re.escape(self.delimiter)
        byte = rb"(?:\\.|(?!%b)[^\\])" if self.escape else rb"(?:%b|(?!%b).)"
        if self.delimiter:
            inside = byte % quote if self.escape else byte % (quote * 2, quote)
            pattern = rb"%b(?P<quoted>%b*)%b|(?P<null>%b)|(?P<bare>(?!%b).*?)" % (quote, inside, quote, null, quote)
        elif self.escape:
            pattern = rb"(?P<null>%b)%b|(?P<text>%b*)" % (null, end, byte % re.escape(self.separator))
        else:
            pattern = rb"(?P<null>%b)|(?P<bare>.*?)" % null
        return re.compile(rb"(?:%b)%b" % (pattern, end), re.DOTALL)

    def unescaped(self, written: bytes) -> bytes:
        """Return what a text stands for. Raises ValueError for a backslash that Dumpling would not write."""
        return re.sub(rb"\\(.?)", self._unescape, written, flags=re.DOTALL) if b"\\" in written else written

    def _unescape(self, escape: re.Match[bytes]) -> bytes:
        meant = self.escapes.get(escape[1])
        if meant is None:
            behind = escape[1].decode("utf-8", "replace") or "nothing"
            raise ValueError(f'a backslash before "{behind}", which Dumpling does not write with escape-backslash on')
        return meant


def dialect(options: DumpOptions) -> Dialect:
    """Return the options as bytes. Raises BadSettings for those with which rows cannot be separated."""
    found = Dialect(
        options.separator.encode(), options.delimiter.encode(), options.null_value.encode(), options.escape_backslash
    )
    if wrong := _ambiguity(found, options):
        raise BadSettings(
            f"The CSV options of the dump have {wrong}. Give the options that Dumpling had, or dump again with its "
            "defaults."
        )
    return found


def _ambiguity(how: Dialect, options: DumpOptions) -> str:
    """Say what two different rows would be written alike with."""
    structure, first = how.separator + how.delimiter, (how.delimiter or how.separator)[:1]
    known = ", ".join(filter(None, DIALECTS))
    rules = (
        (options.output_dialect.lower() not in DIALECTS, f'dialect "{options.output_dialect}"; known are {known}'),
        (not how.separator, "an empty separator"),
        (set(structure) & set(b"\r\n\0"), "CR, LF or NUL in separator or delimiter"),
        (how.escape and b"\\" in structure, "a backslash in separator or delimiter, and escape-backslash on"),
        (how.separator == how.delimiter, f'"{options.separator}" as separator and delimiter'),
        (_overlap(how.separator, how.delimiter), f'separator "{options.separator}", which overlaps the delimiter'),
        (set(how.separator) <= _IN_NUMBERS, f'separator "{options.separator}", which numbers may hold'),
        (
            how.escape and first in (b"0", b"n", b"r"),
            "n, r or 0 as the first character of the delimiter or separator, and escape-backslash on",
        ),
        (set(how.delimiter[:1]) & _IN_NUMBERS, f'delimiter "{options.delimiter}", with which numbers may begin'),
        (set(how.null) & set(structure + b"\r\n\0"), f'null-value "{options.null_value}", which holds structure'),
        (_NUMBER.fullmatch(options.null_value), f'null-value "{options.null_value}", written like a number'),
        (
            not how.escape and _overlap(how.delimiter, how.delimiter),
            f'delimiter "{options.delimiter}", which overlaps itself',
        ),
    )
    return next((text for broken, text in rules if broken), "")


def _overlap(one: bytes, other: bytes) -> bool:
    """Return whether some text may have an end of one that is a beginning of the other, or one within the other."""
    ends = (one[-size:] == other[:size] or other[-size:] == one[:size] for size in range(1, min(len(one), len(other))))
    return any(ends) or (one != other and bool(other) and (one in other or other in one))


# --- record by record -------------------------------------------------------------------------------------------------


def fields(record: bytes, how: Dialect) -> list[Field]:
    """Return the fields of one record without terminator. Raises ValueError that says what is wrong with it."""
    found: list[Field] = []
    at = 0
    while at <= len(record):
        match = how.one_field.match(record, at)
        if match is None:
            raise ValueError(f"field {len(found) + 1} goes on behind its closing delimiter, or has none")
        found.append(_field(match.groupdict(), how))
        at = match.end() + len(how.separator)
    return found


def _field(named: Mapping[str, bytes | None], how: Dialect) -> Field:
    if named["null"] is not None:
        return None, False
    if (bare := named.get("bare")) is not None:
        return bare, False
    quoted = named.get("quoted")
    written = quoted if quoted is not None else named.get("text") or b""
    text = how.unescaped(written) if how.escape else written.replace(how.delimiter * 2, how.delimiter)
    return text, quoted is not None


# --- all records at once ----------------------------------------------------------------------------------------------


def plainly(data: bytes, how: Dialect) -> Plain | None:
    """Return bytes that pyarrow cuts as Dumpling meant them, or None where no rewriting is exact."""
    undo: list[tuple[bytes, bytes]] = []
    null = how.null
    seen: Collection[bytes] = ()
    if how.escape and b"\\" in data:
        if b"\0" in data:
            return None
        data, null = _without_backslashes(data, how), _without_backslashes(null, how)
        undo, seen = list(_codes(how).items()), _counted_codes(data).keys()
    quote, separator = how.delimiter, how.separator
    free = (byte for byte in _STAND_INS if byte not in data and byte not in null)
    wanted = [part for part in (separator, quote) if len(part) > 1]
    stand_ins = dict(zip(wanted, islice(free, len(wanted)), strict=False))
    if len(stand_ins) < len(wanted):
        return None
    for part, stand_in in stand_ins.items():
        data = data.replace(part, stand_in)
        undo.insert(0, (stand_in, part))
    present = [one for one in undo if one[0] in seen or one[0] in stand_ins.values()]
    separator, quote = stand_ins.get(separator, separator), stand_ins.get(quote, quote)
    return Plain(
        pa.py_buffer(data), separator.decode(), quote.decode() or False, null.decode(), present, doubled=not how.escape
    )


def _without_backslashes(data: bytes, how: Dialect) -> bytes:
    r"""A backslash and what it escapes become NUL and a letter: `\\` first, or its second half would seem to escape."""
    first = (how.delimiter or how.separator)[:1]
    for written, letter in ((b"\\\\", b"\0b"), (b"\\" + first, b"\0q"), (b"\\", b"\0")):
        data = data.replace(written, letter)
    return data


def without_escapes(data: bytes, how: Dialect) -> bytes:
    """Return a text of the same length in which every delimiter left is one that counts."""
    return _without_backslashes(data, how) if how.escape and b"\\" in data else data


def _codes(how: Dialect) -> dict[bytes, bytes]:
    """What stands for each escape -> what it means; NUL last, as the others begin with one."""
    first = (how.delimiter or how.separator)[:1]
    letters = {b"\\": b"b", first: b"q"}
    return {b"\0" + letters.get(escape, escape): meant for escape, meant in how.escapes.items()}


def strange_escapes(plain: Plain, nulls: int, how: Dialect) -> bool:
    """Return whether a backslash stood before something else than what Dumpling escapes and the NULL marker."""
    counts = _counted_codes(plain.data)
    known = sum(count for code, count in counts.items() if code in _codes(how))
    return known + nulls * plain.null.count("\0") != sum(counts.values())


def _counted_codes(data: bytes | pa.Buffer) -> dict[bytes, int]:
    """Count each byte that stands behind a NUL, with the NUL."""
    codes = np.frombuffer(data, np.uint8)
    behind = np.bincount(codes[np.flatnonzero(codes[:-1] == 0) + 1], minlength=256)
    return {bytes([0, letter]): int(behind[letter]) for letter in np.flatnonzero(behind).tolist()}
