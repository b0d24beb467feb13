"""The text of a MySQL value -> Arrow, a column at a time. `mysql_types` says which reader a type has.

A reader has two halves: `parse_*` makes of texts what Arrow's own parsers can make of them (the wire type), `finish_*`
settles what they cannot: zones, bit widths, infinite floats. The CSV decoder lets pyarrow do the first half while it
reads and calls the second alone.

One bad value marks its record and nothing else: a column that Arrow cannot convert as a whole is halved until the bad
values are found, so only their neighbourhood is converted slowly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BadSettings

ZERO_DATE = "zero or partial date became null"
NO_SUCH_DATE = "date that no calendar has became null"
AMBIGUOUS_TIME = "time in the repeated hour read as the earlier instant"
SKIPPED_TIME = "time in the skipped hour moved to its end"
BAD_UTF8 = "invalid UTF-8 replaced by U+FFFD"
LOSSY = frozenset({ZERO_DATE, NO_SUCH_DATE, SKIPPED_TIME, BAD_UTF8})
"""Rules after which two source values may look alike: a key column must not be changed by them."""


def changed_in_key(rule: str) -> str:
    """Return the end of the sentence that refuses a key value which a rule would change."""
    return f"is in a key, where values must not be changed: {rule}"


Binary = Literal["raw", "base64", "hex", "latin-1"]
"""Representation of binary types in a text: CSV's two methods, Canal-JSON's code point for a byte, or the bytes
themselves."""


class Values(NamedTuple):
    """Converted values; `bad` marks those that do not fit (null in `array`), None when all fit.

    `notes` holds a mask for each rule of the type table that changed values. All have the length of `array`.
    """

    array: pa.Array
    bad: pa.BooleanArray | None = None
    notes: Mapping[str, pa.BooleanArray] = MappingProxyType({})


class TextSettings(NamedTuple):
    """Settings for reading texts: the target types, digits or length, and the changefeed's settings."""

    wire: pa.DataType
    lake: pa.DataType
    precision: int
    scale: int
    timezone: str
    binary: Binary


def either(mask: pa.BooleanArray | None, other: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Return the union of two masks, None standing for an empty one."""
    if mask is None or other is None:
        return other if mask is None else mask
    return pc.or_(mask, other)


def _some(mask: pa.BooleanArray | None) -> pa.BooleanArray | None:
    return mask if mask is not None and mask.true_count else None


def _true(mask: pa.BooleanArray) -> pa.BooleanArray:
    return mask.fill_null(False)


def _without(array: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    return pc.if_else(mask, pa.scalar(None, array.type), array)


def _as_utf8(texts: pa.Array) -> pa.Array:
    return texts if pa.types.is_string(texts.type) else texts.cast(pa.string())


def _fitting(texts: pa.Array, parse: Callable[[pa.Array], pa.Array]) -> Values:
    try:
        return Values(parse(texts))
    except pa.ArrowInvalid:
        bad = _misfits(texts, parse)
        return Values(parse(_without(texts, bad)), bad)


def _misfits(texts: pa.Array, parse: Callable[[pa.Array], pa.Array]) -> pa.BooleanArray:
    """Return a mask of the values that `parse` refuses, found by halving."""
    bad = [False] * len(texts)
    pending = [(0, len(texts))]
    while pending:
        start, size = pending.pop()
        try:
            parse(texts.slice(start, size))
        except pa.ArrowInvalid:
            if size == 1:
                bad[start] = True
            else:
                pending += [(start, size // 2), (start + size // 2, size - size // 2)]
    return pa.array(bad, pa.bool_())


# --- numbers ----------------------------------------------------------------------------------------------------------


def parse_number(texts: pa.Array, settings: TextSettings) -> Values:
    """Read integers, decimals of up to 38 digits and floats; a lost digit or a value out of range is bad."""
    small = _too_small(texts) if pa.types.is_decimal(settings.wire) else None
    numbers = _fitting(
        texts if small is None else _without(texts, small), lambda some: _as_utf8(some).cast(settings.wire)
    )
    return numbers if small is None else numbers._replace(bad=either(numbers.bad, small))


def _too_small(texts: pa.Array) -> pa.BooleanArray | None:
    """Mark decimals with an exponent of -100 or less: Arrow (26) looks for it beyond its tables, and may crash."""
    first, last = np.frombuffer(texts.buffers()[1], np.int32)[[texts.offset, texts.offset + len(texts)]].tolist()
    data = texts.buffers()[2]
    written = b"" if data is None else data.slice(first, last - first).to_pybytes()
    if b"e" not in written and b"E" not in written:
        return None
    return _some(_true(pc.match_substring_regex(texts, r"[eE]-0*[1-9]\d{2}")))


_MOST_REPEATS = 1000
"""Most repetitions of a part of a regular expression in Arrow's syntax."""


def parse_wide_decimal(texts: pa.Array, settings: TextSettings) -> Values:
    """Keep decimals of more than 38 digits as MySQL prints them: all digits of the scale, no zeros in front."""
    whole, scale = settings.precision - settings.scale, settings.scale
    tail = rf"\.\d{{{scale}}}" if scale else ""
    form = rf"^(?:0|-?[1-9]\d{{0,{min(max(whole, 1) - 1, _MOST_REPEATS)}}}){tail}$"
    return _formed(texts, form, lambda text: _canonical_decimal(text, whole, scale))


def _canonical_decimal(text: str, whole: int, scale: int) -> str | None:
    if re.fullmatch(r"-?(?:\d{1,2000}(?:\.\d{0,2000})?|\.\d{1,2000})(?:[eE][-+]?\d{1,3})?", text, re.ASCII) is None:
        return None
    sign, digits, exponent = Decimal(text).as_tuple()
    shift = int(exponent) + scale
    unscaled, lost = int("".join(map(str, digits))), 0
    if unscaled and len(digits) + shift > max(whole, 1) + scale:
        return None
    if shift < 0:
        unscaled, lost = divmod(unscaled, 10**-shift)
    else:
        unscaled *= 10**shift
    body = str(unscaled).rjust(scale + 1, "0")
    if lost or len(body) > max(whole, 1) + scale or (whole == 0 and body[0] != "0"):
        return None
    body = f"{body[:-scale]}.{body[-scale:]}" if scale else body
    return f"-{body}" if sign and unscaled else body


def finish_nothing(array: pa.Array, settings: TextSettings) -> Values:
    """The wire type is the lake type."""
    return Values(array)


def finish_float(array: pa.Array, settings: TextSettings) -> Values:
    """Refuse what is not finite: TiDB stores no NaN or infinity, and a text beyond the range reads as infinity."""
    bad = _some(_true(pc.invert(pc.is_finite(array))))
    return Values(array) if bad is None else Values(_without(array, bad), bad)


def finish_bit(array: pa.Array, settings: TextSettings) -> Values:
    """Turn the number (uint64) of BIT(n) into the lake's type; a number of more than n bits is bad."""
    limit = pa.scalar((1 << settings.precision) - 1, pa.uint64())
    bad = _some(_true(pc.greater(array, limit)))
    array = array if bad is None else _without(array, bad)
    return Values(array.cast(settings.lake), bad)


def bit_numbers(array: pa.Array) -> Values:
    """Return the numbers (uint64) that big-endian bytes stand for; more than eight bytes, or none, are bad."""
    sizes = pc.binary_length(array)
    bad = pc.fill_null(pc.or_(pc.greater(sizes, 8), pc.equal(sizes, 0)), False)
    readable = pc.fill_null(pc.if_else(bad, pa.scalar(b"", array.type), array), b"")
    ends = np.cumsum(pc.binary_length(readable).to_numpy(zero_copy_only=False), dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
    data = np.frombuffer(b"".join(readable.to_pylist()), np.uint8)
    numbers = np.zeros(len(array), np.uint64)
    for place in range(8):
        at = ends - 1 - place
        is_set = at >= starts
        numbers[is_set] |= data[at[is_set]].astype(np.uint64) << np.uint64(8 * place)
    missing = pc.or_(pc.is_null(array), bad)
    return Values(pc.if_else(missing, pa.scalar(None, pa.uint64()), pa.array(numbers)), bad if bad.true_count else None)


# --- text and bytes ---------------------------------------------------------------------------------------------------


def parse_text(texts: pa.Array, settings: TextSettings) -> Values:
    """Keep texts; bytes that are not UTF-8 become U+FFFD, because a lake's strings must be valid."""
    try:
        return Values(_as_utf8(texts))
    except pa.ArrowInvalid:
        torn = _misfits(texts, _as_utf8)
    replaced = [value.as_py().decode("utf-8", "replace") for value in texts.filter(torn)]
    sound = _as_utf8(_without(texts, torn))
    return Values(pc.replace_with_mask(sound, torn, pa.array(replaced, pa.string())), None, {BAD_UTF8: torn})


def parse_time(texts: pa.Array, settings: TextSettings) -> Values:
    """Keep TIME as MySQL prints it, with exactly the declared fraction digits."""
    clock = r"-?(?:\d\d|[1-7]\d\d|8[0-2]\d|83[0-8]):[0-5]\d:[0-5]\d"
    fraction = rf"\.\d{{{settings.scale}}}" if settings.scale else ""

    def rewrite(text: str) -> str | None:
        match = re.fullmatch(rf"({clock})(?:\.(\d{{1,6}}))?", text, re.ASCII)
        if match is None or (match[2] or "")[settings.scale :].strip("0"):
            return None
        return (
            f"{match[1]}.{(match[2] or '')[: settings.scale].ljust(settings.scale, '0')}"
            if settings.scale
            else match[1]
        )

    return _formed(texts, f"^{clock}{fraction}$", rewrite)


def _formed(texts: pa.Array, form: str, rewrite: Callable[[str], str | None]) -> Values:
    """Keep texts of a form; rewrite the others one by one, None from `rewrite` marks a bad one."""
    written = _fitting(texts, _as_utf8)
    odd = _true(pc.invert(pc.match_substring_regex(written.array, form)))
    if not odd.true_count:
        return written
    rewritten = pa.array([rewrite(value.as_py()) for value in written.array.filter(odd)], pa.string())
    array = pc.replace_with_mask(written.array, odd, rewritten)
    return Values(array, _some(either(written.bad, pc.and_(odd, pc.is_null(array)))))


def parse_binary(texts: pa.Array, settings: TextSettings) -> Values:
    """Read bytes from their text form."""
    if settings.binary == "raw":
        return Values(texts.cast(pa.binary()))
    if settings.binary == "latin-1":
        return _fitting(texts, _from_latin_1)
    import polars as pl  # loads in 100 ms, and most tables have no binary column

    written = _fitting(texts, _as_utf8)
    decoded = pl.Series("", written.array, dtype=pl.String).str.decode(settings.binary, strict=False)
    array = decoded.to_arrow().cast(pa.binary())
    return Values(array, _some(either(written.bad, pc.and_(pc.is_null(array), pc.is_valid(texts)))))


def _from_latin_1(texts: pa.Array) -> pa.Array:
    """Turn each code point into one byte, over the whole buffer at once."""
    filled = pa.concat_arrays([_as_utf8(texts).fill_null(""), pa.array([""])])[: len(texts)]
    ends = pc.cumulative_sum(pc.utf8_length(filled)).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    bounds = pa.Array.from_buffers(pa.int32(), len(texts) + 1, [None, filled.buffers()[1]], offset=filled.offset)
    text = filled.buffers()[2][bounds[0].as_py() : bounds[len(texts)].as_py()].to_pybytes().decode()
    try:
        raw = pa.py_buffer(text.encode("latin-1"))
    except UnicodeEncodeError as error:
        raise pa.ArrowInvalid("a code point above 255 is not a byte") from error
    whole = pa.Array.from_buffers(pa.binary(), len(texts), [None, offsets.buffers()[1], raw])
    return _without(whole, pc.is_null(texts)) if texts.null_count else whole


def parse_vector(texts: pa.Array, settings: TextSettings) -> Values:
    """Read `[1,2,3]` into lists of float32."""
    return _fitting(texts, _vectors)


def _vectors(texts: pa.Array) -> pa.Array:
    texts = _as_utf8(texts)
    if not pc.all(pc.match_substring_regex(texts, r"^\[[^\[\]]*\]$"), min_count=0).as_py():
        raise pa.ArrowInvalid("a vector stands in brackets")
    inner = pc.utf8_trim_whitespace(pc.utf8_slice_codeunits(texts, 1, -1)).fill_null("")
    some = pc.not_equal(inner, "")
    lists = pc.split_pattern(inner, ",")
    numbers = pc.utf8_trim_whitespace(pc.list_flatten(lists.filter(some))).cast(pa.float32())
    if not pc.all(pc.is_finite(numbers), min_count=0).as_py():
        raise pa.ArrowInvalid("a vector's numbers are finite")
    ends = pc.cumulative_sum(pc.if_else(some, pc.list_value_length(lists), 0)).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, numbers, mask=pc.is_null(texts))


# --- dates and instants -----------------------------------------------------------------------------------------------

_CLOCK = r"(?: (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?)?"
_ZERO = rf"^\d{{4}}-(?:00-(?:[0-2]\d|3[01])|(?:0\d|1[0-2])-00){_CLOCK}$"
_DATED = rf"^\d{{4}}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]){_CLOCK}$"


def parse_time_point(texts: pa.Array, settings: TextSettings) -> Values:
    """Read DATE, DATETIME and TIMESTAMP, years 0000 to 9999; dates that no calendar has become null with a note."""
    try:
        return Values(_as_utf8(texts).cast(settings.wire))
    except pa.ArrowInvalid:
        written = _fitting(texts, _as_utf8)
    zero = _like(written.array, pc.match_substring(written.array, "-00"), _ZERO)
    rest = _fitting(_without(written.array, zero), lambda some: some.cast(settings.wire))
    bad, notes = rest.bad, {ZERO_DATE: zero}
    if bad is not None:
        form = _DATED.replace(_CLOCK, "") if pa.types.is_date(settings.wire) else _DATED
        notes[NO_SUCH_DATE] = _like(written.array, bad, form)
        bad = pc.and_not(bad, notes[NO_SUCH_DATE])
    counted_notes = {rule: mask for rule, mask in notes.items() if mask.true_count}
    return Values(rest.array, _some(either(written.bad, bad)), counted_notes)


def _like(texts: pa.StringArray, among: pa.BooleanArray, form: str) -> pa.BooleanArray:
    """Return a mask of the texts that have a form, of which only a few are looked at."""
    among = _true(among)
    matches = _true(pc.match_substring_regex(texts.filter(among), form))
    return pc.replace_with_mask(among, among, matches)


def finish_instant(array: pa.Array, settings: TextSettings) -> Values:
    """Turn local time of the TiCDC server's zone into UTC: the earlier instant of two, the end of a skipped hour.

    Raises BadSettings for a zone that the zone database does not have.
    """
    zone, utc = settings.timezone, pa.timestamp("us", "UTC")
    if zone == "UTC":
        return Values(array.cast(utc))
    try:
        return Values(pc.assume_timezone(array, zone).cast(utc))
    except pa.ArrowInvalid:
        pass
    try:
        early = pc.assume_timezone(array, zone, ambiguous="earliest", nonexistent="earliest").cast(utc)
    except pa.ArrowInvalid as error:
        raise BadSettings(
            f'the time zone "{zone}" is not in the zone database. Give the --tz of the TiCDC server as a name such as '
            '"Asia/Shanghai" or an offset such as "+08:00"; a machine without zone files needs the tzdata package.'
        ) from error
    late = pc.assume_timezone(array, zone, ambiguous="latest", nonexistent="latest").cast(utc)
    # In the skipped hour Arrow's answers are the last instant before the jump and the jump itself, 1 µs apart.
    apart = pc.subtract(late.cast(pa.int64()), early.cast(pa.int64()))
    notes = {AMBIGUOUS_TIME: _true(pc.greater(apart, 1)), SKIPPED_TIME: _true(pc.equal(apart, 1))}
    instants = pc.if_else(notes[SKIPPED_TIME], late, early)
    return Values(instants, None, {rule: mask for rule, mask in notes.items() if mask.true_count})
