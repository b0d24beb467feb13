"""TiDB's table filter: patterns of names in a changefeed's configuration (`tidb:pkg/util/table-filter`).

A pattern has a part for each name: `db.table`, or the name of a column alone. It may contain `*`, `?`, `[a-z]`,
`[!a-z]`, names quoted by `"` or backquotes, `\\` before a literal character, and /regular expressions/; `!` before a
pattern excludes what it matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

NAME_PART = re.compile(
    r"""
    (?P<any>\*) | (?P<one>\?) | (?P<dot>\.) | \[(?P<not>!?)(?P<set>[^]]+)\] | \\(?P<escaped>.)
    | /(?P<regex>(?:[^\\/]|\\.)+)/ | "(?P<double>(?:[^"]|"")*)" | `(?P<back>(?:[^`]|``)*)` | (?P<plain>.)
    """,
    re.VERBOSE | re.DOTALL,
)
"""One element of a pattern."""


def decided(patterns: Sequence[str], names: tuple[str, ...], case_sensitive: bool = False) -> bool:
    """Return True if the last pattern that matches the names includes them, False if it has `!` or none matches."""
    for pattern in reversed(patterns):
        text = pattern.strip()
        expressions = _expressions(text.removeprefix("!"), case_sensitive)
        if len(expressions) == len(names) and all(
            expression.fullmatch(name) for expression, name in zip(expressions, names, strict=True)
        ):
            return not text.startswith("!")
    return False


ColumnSelectors = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
"""The patterns of tables, and those of the columns of these that a changefeed writes, of each column selector."""


def hidden_columns(
    selectors: ColumnSelectors, table: tuple[str, str], columns: Iterable[str], case_sensitive: bool = False
) -> frozenset[str]:
    """Return the columns that a changefeed's column selectors keep out of a table's rows.

    TiCDC takes the first selector that matches the table; in its patterns the last one that matches a column decides,
    whatever the case, and what none matches is hidden.
    """
    for tables, patterns in selectors:
        if decided(tables, table, case_sensitive):
            return frozenset(name for name in columns if not decided(patterns, (name,)))
    return frozenset()


def split_pattern(text: str) -> list[list[re.Match[str]]]:
    """Return the elements of each part of a pattern, as matches of NAME_PART."""
    parts: list[list[re.Match[str]]] = [[]]
    for piece in NAME_PART.finditer(text):
        if piece.lastgroup == "dot":
            parts.append([])
        else:
            parts[-1].append(piece)
    return parts


def _expressions(text: str, case_sensitive: bool) -> list[re.Pattern[str]]:
    flags = re.DOTALL if case_sensitive else re.DOTALL | re.IGNORECASE
    return [re.compile("".join(map(_expression, part)), flags) for part in split_pattern(text)]


def _expression(piece: re.Match[str]) -> str:
    kind = str(piece.lastgroup)
    if kind == "set":
        return f"[{'^' if piece['not'] else ''}{re.escape(piece['set']).replace(chr(92) + '-', '-')}]"
    if kind in ("any", "one"):
        return {"any": ".*", "one": "."}[kind]
    if kind == "regex":
        return f"(?:.*(?:{piece['regex']}).*)"
    quoted = {"double": '"', "back": "`"}.get(kind, "")
    return re.escape(piece[kind].replace(quoted * 2, quoted) if quoted else piece[kind])
