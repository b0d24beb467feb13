"""Values of a masked column -> what its mask leaves of them.

`hash` is HMAC-SHA256 over the family of the value (integer, decimal, float, text, bytes, time, vector) and the value in
its plainest form: an INT and a BIGINT of one number are equal, so are decimals with more and fewer zeros at the end,
and texts that are equal to their collation. So hashed keys are one to one with those of the source, and what was joined
by a column still joins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column
from cdc_assets.types.collations import is_plain, normal_form
from cdc_assets.types.conversions import convert, narrows, needs_conversion
from cdc_assets.types.mysql_types import arrow_type, type_text

__all__ = ["family_of", "masked_array", "same_masked"]

_SHORT = 8
"""Fewest characters of a text of which `last4` keeps any: of a shorter one it would keep half and more."""


def masked_array(values: pa.Array | pa.ChunkedArray, column: Column) -> pa.Array:
    """Return the values of one column as its mask leaves them, in the type that the lake has for them.

    Those of an earlier type of the column are turned into its present one first (`Mask.types`). Equal values are masked
    once where that costs more than to find them: what Python makes one by one. Raises TableHeld, without a value, where
    one cannot be turned.
    """
    mask, lake_column = column.mask, column.in_lake
    assert mask is not None
    assert lake_column is not None
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if mask.types:
        values, column = _in_newest_type(values, column)
    if mask.way == "null":
        return pa.nulls(len(values), arrow_type(lake_column))
    if mask.way == "constant":
        text = pa.scalar(mask.detail, pa.string())
        return pc.if_else(pc.is_valid(values), text, pa.scalar(None, pa.string()))
    slow = mask.way != "hash" or family_of(column) in ("decimal", "float")
    distinct = values.dictionary_encode() if slow and not pa.types.is_list(values.type) else None
    plain = _plainest(values if distinct is None else distinct.dictionary, column)
    if mask.way == "hash":
        made = _hashes(plain, mask.key, family_of(column))
    else:
        redacted = [None if value is None else _REDACTED[mask.detail](value) for value in plain.to_pylist()]
        made = pa.array(redacted, arrow_type(lake_column))
    return made if distinct is None else made.take(distinct.indices)


def same_masked(old: Column, new: Column) -> bool:
    """Return whether every value masked as one type is the same masked as the other, and no value changes."""
    families = {family_of(column) for column in (old, new)}
    forms = {(column.compares_by or "") for column in (old, new)}
    alike = "text" not in families or len(forms) == 1 or all(map(is_plain, forms))
    if (old.type, old.unsigned, old.precision, old.scale) == (new.type, new.unsigned, new.precision, new.scale):
        return alike and not needs_conversion(old, new)
    return alike and len(families) == 1 and not needs_conversion(old, new) and not narrows(old, new)


def _in_newest_type(values: pa.Array, column: Column) -> tuple[pa.Array, Column]:
    """Return values as the newest type of their column has them, and the column so."""
    assert column.mask is not None
    types = column.mask.types
    places = [n for n, alike in enumerate(types) if any(typed_column.decodes_like(column) for typed_column in alike)]
    places = places or [n for n, alike in enumerate(types) if same_masked(column, alike[-1])]
    if len(places) != 1:
        raise TableHeld(
            f'the masked column "{column.name}" has rows of the type {type_text(column)}, which it never had in its '
            "table, so it is not known how to mask them.",
            column=column.name,
        )
    for before, after in zip(types[places[0] :], types[places[0] + 1 :], strict=False):
        try:
            values = convert(values, before[-1], after[0])[0]
        except TableHeld:
            raise TableHeld(
                f'a value of the masked column "{column.name}" cannot become {type_text(after[0])} from '
                f"{type_text(before[-1])}, as a DDL made it. Mask the column by null or constant, or base the table on "
                "a dump from after that DDL.",
                column=column.name,
            ) from None
    return values, replace(types[-1][-1], mask=column.mask)


def _hashes(plain: pa.Array, key: bytes, family: str) -> pa.Array:
    """Return the HMAC of each value behind its family, by a library that takes a column at once, beside Python."""
    import polars as pl  # what masks nothing by a hash needs neither
    from polars_hash import col

    messages = pc.binary_join_element_wise(f"{family}\0".encode(), plain.cast(pa.binary()), b"")
    made = pl.DataFrame({"value": pl.from_arrow(messages)}).select(col("value").chash.hmac_sha256(key=key.decode()))
    return made.to_series().to_arrow().cast(pa.string())


def _last4(value: str) -> str:
    return value[-4:] if len(value) >= _SHORT else ""


def _domain(value: str) -> str | None:
    return value.rpartition("@")[2] if "@" in value else None


_REDACTED: Mapping[str, Callable[[str], object]] = {"last4": _last4, "domain": _domain, "length": len}
"""Parts that `redact` can keep, by type family: of bytes only `length`."""


# --- the plainest form of a value -------------------------------------------------------------------------------------

_DECIMALS = ("DECIMAL", "Decimal", "DyNumber", "VariableScaleDecimal")
_TIMES = ("TIME", "Time", "MicroTime", "NanoTime", "IsoTime", "ZonedTime")
"""Types whose texts are decimals or times of day, by the end of their names."""


def family_of(column: Column) -> str:
    """Return the family of a column's values: equal values of one family have one hash."""
    kind, name = arrow_type(column), column.type.rpartition(".")[2]
    if name in _DECIMALS:
        return "decimal"
    if name in _TIMES or pa.types.is_temporal(kind):
        return "time"
    return next(family for family, belongs in _FAMILIES.items() if belongs(kind))


_FAMILIES: Mapping[str, Callable[[pa.DataType], bool]] = {
    "integer": lambda kind: pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind),
    "float": pa.types.is_floating,
    "bytes": pa.types.is_binary,
    "vector": pa.types.is_list,
    "text": lambda kind: True,
}


def _plainest(values: pa.Array, column: Column) -> pa.Array:
    """Return each value as a text, or bytes, that is the same however wide its column is."""
    match family_of(column):
        case "decimal":
            return pa.array([None if value is None else _digits(value) for value in values.to_pylist()], pa.string())
        case "integer":
            whole = values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values
            return whole.cast(pa.string())
        case "float":
            return pa.array([None if value is None else repr(value + 0.0) for value in values.to_pylist()], pa.string())
        case "vector":
            return pa.array([None if value is None else repr(value) for value in values.to_pylist()], pa.string())
        case "time":
            return _without_zeros(pc.utf8_rtrim(values.cast(pa.string()), characters="Z"))
        case "text" if column.mask is not None and column.mask.way == "hash":
            return normal_form(values, column.compares_by or "")
    return values


def _digits(number: object) -> str:
    try:
        text = format(number if isinstance(number, Decimal) else Decimal(str(number)), "f")
    except ArithmeticError:  # NaN and what else a text may have
        return str(number)
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def _without_zeros(texts: pa.Array) -> pa.Array:
    """Leave out zeros at the end of fractions of a second."""
    return pc.replace_substring_regex(texts, r"^([^.]*?)(?:\.0*|(\.\d*?[1-9])0*)$", r"\1\2")
