"""Values of keys in bytes that cannot be decoded: records of the quarantine, stages, messages of a landing.

A record that does not fit may be damaged anywhere, so nothing decodes its key. The values of a key are looked for, each
as a word by itself, in every way in which a feed writes them as text: escaped or not, as the column's collation
compares, with other zeros, in the feed's zone, as numbers of days or of parts of a second, in hex and base64.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pyarrow as pa

from cdc_assets.errors import BadSettings
from cdc_assets.formats import has_text
from cdc_assets.io.encryption import decrypt
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.types.collations import is_plain, normal_form

if TYPE_CHECKING:
    from cdc_assets.formats import Wire
    from cdc_assets.model.encryption import EncryptionKey


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of a key: what finds it in a text, and in the normal form of one by a collation that is not plain."""

    pattern: re.Pattern[str]
    collation: str = ""
    alike: re.Pattern[str] = re.compile("")

    def is_in(self, texts: Sequence[str]) -> bool:
        if any(self.pattern.search(text) for text in texts):
            return True
        return bool(self.collation) and any(self.alike.search(form) for form in _normal(texts, self.collation))


@dataclass(frozen=True, slots=True)
class KeyBytes:
    """Looks for the values of keys in bytes, encrypted ones too. Texts show none of the values in a `binary` format."""

    keys: Sequence[Sequence[_Value]]
    encryption_key: EncryptionKey | None
    binary: bool

    def are_in(self, raw: bytes) -> bool:
        """Return whether bytes have all values of a key, as far as they can be read."""
        try:
            data = decrypt(raw, self.encryption_key)
        except BadSettings:
            return False
        texts = list(_texts(data))
        return any(all(value.is_in(texts) for value in key) for key in self.keys)

    def may_be_in(self, raw: bytes) -> bool:
        """Return whether they have, or whether that cannot be told: they are encrypted by another key, or binary."""
        try:
            decrypt(raw, self.encryption_key)
        except BadSettings:
            return True
        return bool(raw) and (self.binary or self.are_in(raw))


def key_bytes(
    keys: pa.Table,
    texts: Sequence[Sequence[str]],
    schema: TableSchema,
    wire: Wire,
    encryption_key: EncryptionKey | None,
) -> KeyBytes:
    """Return the patterns that find keys: unmasked values in the types of the lake, and the texts that people gave."""
    columns = [schema.column(name) for name in keys.column_names]
    zone = ZoneInfo(wire.timezone)
    key_values = [
        [
            _value(column, text, value, zone)
            for column, text, value in zip(columns, key_texts, row.values(), strict=True)
        ]
        for key_texts, row in zip(texts, keys.to_pylist(), strict=True)
    ]
    return KeyBytes(key_values, encryption_key, not has_text(wire))


def _value(column: Column, text: str, value: object, zone: ZoneInfo) -> _Value:
    pattern = _word("|".join(dict.fromkeys(_forms(column, text, value, zone))))
    collation = column.compares_by or ""
    if is_plain(collation) or not isinstance(value, str) or not value.strip():
        return _Value(pattern)
    (normal,) = _normal([value], collation)
    return _Value(pattern, collation, _word(re.escape(normal)))


def _word(forms: str) -> re.Pattern[str]:
    return re.compile(f"(?<![0-9A-Za-z_])(?:{forms})(?![0-9A-Za-z_])", re.IGNORECASE)


def _forms(column: Column, text: str, value: object, zone: ZoneInfo) -> Iterator[str]:
    """Yield regular expressions of how a value may be written."""
    yield re.escape(text)
    match value:
        case bool():
            yield r"true|1" if value else r"false|0"
        case int():
            yield f"-?0*{abs(value)}" if value < 0 else f"0*{value}"
        case Decimal():
            plain = f"{value.copy_abs():f}"
            whole, _, digits = plain.partition(".")
            digits = digits.rstrip("0")
            yield f"0*{int(whole)}" + (rf"\.{digits}0*" if digits else r"(?:\.0*)?")
            unscaled = int(value.scaleb(column.scale or 0, _ALL_DIGITS))
            size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
            yield re.escape(base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode())
        case float():
            yield re.escape(repr(value))
            yield re.escape(f"{value:g}")
        case bytes():
            yield value.hex()
            yield re.escape(base64.b64encode(value).decode())
            yield re.escape(value.decode("latin-1"))
            yield re.escape(value.decode("utf-8", "replace"))
        case dt.datetime():
            instant = value if value.tzinfo is not None else value.replace(tzinfo=dt.timezone.utc)
            yield from map(_moment, [value] if value.tzinfo is None else [instant, instant.astimezone(zone)])
            micros = (instant - _EPOCH) // dt.timedelta(microseconds=1)
            for unit in (1, 1_000, 1_000_000):
                if micros % unit == 0:
                    yield str(micros // unit)
            yield f"{micros}[0-9]{{3}}" if micros > 0 else str(1_000 * micros)  # of nanoseconds, the lake cuts
        case dt.date():
            yield re.escape(value.isoformat())
            yield str((value - _EPOCH.date()).days)
        case str() if column.elems and value:
            places = [column.elems.index(element) for element in value.split(",") if element in column.elems]
            yield (
                str(sum(1 << place for place in places))
                if column.type == "SET"
                else str(places[0] + 1 if places else 0)
            )
        case _:
            yield re.escape(str(value))


_ALL_DIGITS = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def _moment(value: dt.datetime) -> str:
    digits = f"{value.microsecond:06d}".rstrip("0")
    fraction = rf"\.{digits}0*" if digits else r"(?:\.0+)?"
    return f"{value:%Y-%m-%d}[ T]{value:%H:%M:%S}{fraction}Z?"


# --- what bytes say ---------------------------------------------------------------------------------------------------


_UNICODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_ESCAPED = re.compile(r'\\([\\/"\'])|"(")')


def _texts(data: bytes) -> Iterator[str]:
    """Yield bytes as a text, and as one without the escapes of JSON and CSV."""
    text = data.decode("utf-8", "replace")
    yield text
    plain = _UNICODE.sub(lambda match: chr(int(match[1], 16)), text)
    plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    plain = _ESCAPED.sub(lambda match: match[1] or match[2], plain)
    if plain != text:
        yield plain


def _normal(texts: Sequence[str], collation: str) -> list[str]:
    forms: list[str] = normal_form(pa.array(texts, pa.string()), collation).to_pylist()
    return forms
