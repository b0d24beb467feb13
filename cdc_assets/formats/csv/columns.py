"""What only some CSV files need to have their columns found: column selectors, a header, a sentence for a misfit.

Which columns a row has is said by the options and the schema (`decode`). Nothing in a file says it unless it has a
header; a first record that contradicts them is met with a sentence that names the setting which would explain it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cdc_assets.errors import MalformedData
from cdc_assets.formats.csv.dialect import Layout
from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.formats.dialect import Dialect
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.table_filter import decided
from cdc_assets.model.wording import counted

__all__ = ["explain", "hidden_columns", "layout_of_header"]

_HEADER = "ticdc-meta$"
_TITLES = {"op": "operation"}


# --- column selectors -------------------------------------------------------------------------------------------------


def hidden_columns(options: CsvOptions, table: TableId, schema: TableSchema) -> frozenset[str]:
    """Return the stored columns that a column selector keeps out of the rows.

    TiCDC takes the first selector that matches the table; in a list of patterns the last one that matches decides, and
    what none matches is hidden. Patterns are TiDB's table filter: `db.table` with `*`, `?`, `[a-z]`, `!` before it,
    quoted names and /regular expressions/, whatever the case.
    """
    for matcher, patterns in options.column_selectors:
        if decided(matcher, (table.schema, table.table)):
            return frozenset(c.name for c in schema.stored if not decided(patterns, (c.name,)))
    return frozenset()


# --- header -----------------------------------------------------------------------------------------------------------


def layout_of_header(line: bytes, how: Dialect, promised: Layout, schema: TableSchema, path: str) -> Layout:
    """Return the columns that a header line names; it knows which columns are really written, and in which order.

    TiCDC joins the names with the delimiter and never quotes them; the handle key has no name there. Raises
    MalformedData for a line that is not a header, lacks or has a column of TiCDC's own against the options, or names a
    column that the schema does not have.
    """
    named = tuple(name for name in promised.meta if name != "handle-key")
    text = line.decode("utf-8", "replace")
    between = how.delimiter.decode()
    head = between.join(f"{_HEADER}{_TITLES.get(name, name)}" for name in named) + between
    if not text.startswith(_HEADER):
        raise MalformedData(
            f'{path} line 1 is "{_shown(text)}" where the header "{_shown(head)}" is expected, because '
            "output-field-header is on. If the changefeed writes none, take the option out of its changefeed TOML.",
            path=path,
            line=1,
        )
    if not text.startswith(head):
        raise MalformedData(
            f'{path} has the header "{_shown(text)}"; by the options it starts with "{_shown(head)}". '
            "Check include-commit-ts, output-old-value and the delimiter in the changefeed TOML.",
            path=path,
            line=1,
        )
    return _named_columns(text[len(head) :], between, promised, schema, path)


def _named_columns(text: str, between: str, promised: Layout, schema: TableSchema, path: str) -> Layout:
    known = {column.name: column for column in schema.columns}
    names = _cut_names(text, between, sorted(known, key=len, reverse=True))
    foreign = [name for name in names if name not in known]
    if foreign or len(set(names)) != len(names):
        what = f'names "{_shown(foreign[0])}"' if foreign else "names a column twice"
        raise MalformedData(
            f"{path}: the header {what}; the schema file of this version has {', '.join(known)}. "
            "The file lies under another version than it was written for, or was changed after it.",
            path=path,
            line=1,
        )
    absent = tuple(column for column in promised.columns if column.name not in names)
    return Layout(promised.meta, tuple(known[name] for name in names), absent)


def _cut_names(text: str, between: str, known: Sequence[str]) -> list[str]:
    """Cut a header, where nothing is quoted: a known name is taken whole, also when it holds the delimiter."""
    names = []
    text += between
    while text:
        whole = (name for name in known if text.startswith(name + between))
        names.append(next(whole, text.partition(between)[0]))
        text = text[len(names[-1]) + len(between) :]
    return names


def _shown(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:120]}…"


# --- what the first record says ---------------------------------------------------------------------------------------


def explain(first: Sequence[bytes | None], how: Dialect, expected: Layout, options: CsvOptions, path: str) -> str:
    """Return the sentences for a file whose rows have another number of fields than the options and schema promise."""
    found, size = len(first), expected.size
    delimiter = how.delimiter.decode()
    wanted = ", ".join((*expected.meta, *(column.name for column in expected.columns)))
    came = (
        f"{path} line 1 has {counted(found, 'field')} where {size} {'is' if size == 1 else 'are'} expected ({wanted})."
    )
    read = f'The file was read with delimiter "{delimiter}" and quote {how.quote.decode()!r}.'
    if found < 4:
        return f"{came} {read} If the changefeed uses others, add them to its changefeed TOML."
    hints = [*_meta_hints(first, expected, options)]
    if not hints and found < size:
        hints.append(
            f"{counted(size - found, 'column is', 'columns are')} never written: virtual generated columns are in "
            "the schema file but not in the rows, and so are columns hidden by a column selector. Which ones is "
            "known from the text of the CREATE or ALTER statement, from a header (output-field-header) or from the "
            "changefeed's column-selectors."
        )
    if not hints:
        hints.append("The schema file of this version and the file do not belong together.")
    return f"{came} {' '.join(hints)} {read}"


def _meta_hints(first: Sequence[bytes | None], expected: Layout, options: CsvOptions) -> list[str]:
    extra, at = len(first) - expected.size, 3
    hints = []
    is_tso = re.fullmatch(rb"\d{17,20}", first[at] or b"") is not None
    if "commit-ts" in expected.meta and not is_tso:
        hints.append("The fourth field is not a commit-ts: include-commit-ts seems to be off in this changefeed.")
    if "commit-ts" not in expected.meta and is_tso and extra > 0:
        hints.append("The fourth field looks like a commit-ts: include-commit-ts seems to be on in this changefeed.")
    at += is_tso
    is_flag = at < len(first) and first[at] in (b"true", b"false")
    if "is-update" in expected.meta and not is_flag:
        hints.append(
            "There is no is-update column: TiCDC 7.5.2 to 7.6.0 writes old values without it (output_is_update false), "
            "or output-old-value is off in this changefeed."
        )
    if "is-update" not in expected.meta and is_flag and extra > 0:
        hints.append(
            "There is an is-update column: output-old-value is on in this changefeed, and TiCDC is 8.0 or later."
        )
    if "handle-key" not in expected.meta and extra == 1 and not hints:
        hints.append("One field more could be the handle key, written when output-handle-key is on.")
    return hints
