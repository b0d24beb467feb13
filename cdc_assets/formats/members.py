"""Members of ENUM and SET: wire formats send the number of a member, or the sum of 2^position of those of a set.

Number 0 of an ENUM is the empty invalid value. Names come from the schema's `elems`, or from the type as the record
spells it.
"""

from __future__ import annotations

import re

import pyarrow as pa

from cdc_assets.model.schema import Column

__all__ = ["allowed_members", "members", "named"]


def members(text: str | None, column: Column) -> tuple[str | None, ...] | None:
    r"""Return the member names of a `mysqlType` such as `enum('a','it''s')`; the column's `elems` where it has none.

    TiDB writes NUL, LF and CR as `\0`, `\n` and `\r` but a backslash as itself (OutputFormat): a member with such
    a pair of characters has two readings and is None, unless the column's `elems` settle it.
    """
    if text is None or "(" not in text:
        return column.elems
    inner = text[text.index("(") + 1 : text.rindex(")")] if ")" in text else ""
    written = re.findall(r"'((?:[^']|'')*)'", inner, re.DOTALL)
    if ",".join(f"'{name}'" for name in written) != inner:
        return column.elems
    if column.elems is not None and [_output_format(name) for name in column.elems] == written:
        return column.elems
    return tuple(None if re.search(r"\\[0nr]", name) else name.replace("''", "'") for name in written)


def _output_format(name: str) -> str:
    return name.replace("'", "''").replace("\0", "\\0").replace("\n", "\\n").replace("\r", "\\r")


def named(texts: pa.Array, kind: str, names: tuple[str | None, ...] | None) -> pa.Array:
    """Turn numbers of an ENUM or SET (texts) into names; null where a number has none, or the names are not known."""
    coded = texts.dictionary_encode()
    name = _enum_name if kind == "ENUM" else _set_names
    names_of_numbers = [
        name(int(text), names or ()) if _is_number(text) else None for text in coded.dictionary.to_pylist()
    ]
    return pa.array(names_of_numbers, pa.string()).take(coded.indices)


def _is_number(text: str) -> bool:
    return len(text) <= 20 and text.isascii() and text.isdigit()


def _enum_name(number: int, names: tuple[str | None, ...]) -> str | None:
    return "" if number == 0 else names[number - 1] if number <= len(names) else None


def _set_names(number: int, names: tuple[str | None, ...]) -> str | None:
    if number >> len(names):
        return None
    chosen = [name for position, name in enumerate(names) if number >> position & 1]
    return None if None in chosen else ",".join(name for name in chosen if name is not None)


def allowed_members(text: str) -> tuple[str, ...]:
    """Return members that are joined by commas, as Connect's parameter `allowed` has them; `\\,` is a comma in one."""
    return tuple(re.sub(r"\\,", ",", member) for member in re.findall(r"(?:^|,)((?:[^,\\]|\\.)*)", text))
