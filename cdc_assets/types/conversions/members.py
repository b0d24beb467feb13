"""Members of ENUM and SET by name and by number (`tidb:pkg/types/enum.go`, `set.go`)."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from cdc_assets.model.schema import Column
from cdc_assets.types.collations import normal_form
from cdc_assets.types.conversions.change import Change, members_of
from cdc_assets.types.conversions.texts import text_of
from cdc_assets.types.families import BINARY, CHARACTER, MEMBERS

_NUMBER = re.compile(r"0|[1-9]\d*", re.ASCII)


def into_enum(value: Any, change: Change) -> str:
    """Match by name under the collation; a text that is no member's name may be a member's number."""
    elems = members_of(change.new)
    if change.old.type not in (*CHARACTER, *BINARY, *MEMBERS):
        return _numbered(elems, int(value))
    text = text_of(value, change)
    if change.old.type == "ENUM" and not text:
        return ""  # the value of number 0, unless it is a member
    found = _named(text, change.new)
    return found if found is not None else _numbered(elems, _number(text))


def _numbered(elems: tuple[str, ...], number: int) -> str:
    if not 1 <= number <= len(elems):
        raise ValueError(number)
    return elems[number - 1]


def into_set(value: Any, change: Change) -> str:
    """Match every part by name, or read the whole text as a bit mask."""
    elems = members_of(change.new)
    if change.old.type not in (*CHARACTER, *BINARY, *MEMBERS):
        return _masked(elems, int(value))
    text = text_of(value, change)
    if not text:
        return ""
    named = {_named(part, change.new) for part in text.split(",")}
    if None in named:
        return _masked(elems, _number(text))
    return ",".join(member for member in elems if member in named)


def _masked(elems: tuple[str, ...], bits: int) -> str:
    if not 0 <= bits < 1 << len(elems):
        raise ValueError(bits)
    return ",".join(member for position, member in enumerate(elems) if bits >> position & 1)


def _number(text: str) -> int:
    """TiDB also reads octal and hexadecimal numbers, which nobody intends here: they are refused."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def _named(text: str, column: Column) -> str | None:
    """Return the member that a text is equal to. Without a known collation that is one in any case of its letters,
    because a source in strict mode has found one.
    """
    elems = members_of(column)
    if text in elems:
        return text
    texts = pa.array([*elems, text], pa.string())
    *forms, form = normal_form(texts, column.collation or "utf8mb4_general_ci").to_pylist()
    equal = [member for member, one in zip(elems, forms, strict=True) if one == form]
    if len(equal) > 1 and column.collation is None:
        raise ValueError(text)
    return equal[0] if equal else None
