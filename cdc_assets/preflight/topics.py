"""Findings about topics: TiCDC's options, columns that rows leave open, values that messages have lost. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from cdc_assets.formats import Decoded
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.table_history import History
from cdc_assets.model.wording import counted
from cdc_assets.preflight.conformance import Finding, listed, live, warning
from cdc_assets.sources.topics.topic_options import TopicOptions

__all__ = ["findings"]

_NAMED = 5
"""The number of tables that a finding about many names."""


def findings(
    listing: Listing, history: History, options: TopicOptions, heads: Iterable[tuple[DataFile, Decoded]]
) -> Iterator[Finding]:
    """Yield the findings from the options, the schemas and the decoded messages."""
    if options.required_acks != -1:
        yield warning(
            "required-acks",
            f"required-acks is {options.required_acks}, so a broker may lose rows that it has confirmed, and a "
            "table would be called complete without them. Set required-acks to -1, which is TiCDC's default.",
        )
    yield from _without_ddl(listing, history, options.messages)
    yield from _inferred(listing, history)
    yield from _lost(heads, history)


def _without_ddl(listing: Listing, history: History, messages: MessageOptions) -> Iterator[Finding]:
    """Find tables whose columns rows show, and of which no DDL comes: what then never arrives."""
    files = listing.schema_files
    with_ddl = {file.table.folded for file in files if file.query}
    names = {table.name for table in live(history)}
    shown = {file.table for file in files if file.grows and file.table in names}
    silent = sorted(str(table) for table in shown if table.folded not in with_ddl)
    if not silent:
        return
    yield warning(
        "no-ddl",
        f"no message has the DDL of {_some(silent)}, so its columns are taken from its rows: a new column is added and "
        "NULL in old rows, one that is gone stays and reads NULL, a renamed one counts as gone and new. TRUNCATE, "
        "DROP TABLE, RENAME TABLE, dropped partitions and values that an ALTER changed never arrive, so such a table "
        f"stays as it was: rebuild it from a new snapshot then. {_way(messages)}",
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {counted(len(names) - _NAMED, 'more table')}" if len(names) > _NAMED else ""
    return listed(names[:_NAMED]) + more


def _way(messages: MessageOptions) -> str:
    if messages.of_connector:
        return "MySQL's and MariaDB's connectors send DDL with include.schema.changes = true, PostgreSQL's none."
    if not messages.sends_again:
        return "A changefeed with SCHEMA_CHANGES states new columns before their first row."
    return (
        "TiCDC sends DDL as simple, and with enable-tidb-extension = true as canal-json; names, lengths and types that "
        "rows do not have come from the setting schemas (--schemas)."
    )


def _inferred(listing: Listing, history: History) -> Iterator[Finding]:
    """Find tables whose first columns are in no DDL: what their rows leave open about them."""
    names = {table.name for table in live(history)}
    for file in listing.schema_files:
        if file.approximate and file.table in names:
            yield warning(
                "inferred-columns",
                "no DDL states its first columns, so they are taken from its rows. What those leave open: "
                f"{'; '.join(file.approximate)}. Name a file with its CREATE TABLE in the setting schemas (--schemas).",
                file.table,
            )


def _lost(heads: Iterable[tuple[DataFile, Decoded]], history: History) -> Iterator[Finding]:
    """Values that the messages have lost or changed, of the first rows of each table."""
    found: dict[str, Counter[tuple[str, str]]] = {}
    for file, decoded in heads:
        tables = history.decoding.get((file.root, file.version), ())
        if tables:
            found.setdefault(str(tables[0][0]), Counter()).update(decoded.notes)
    for table, notes in found.items():
        for rule in sorted({rule for _, rule in notes}):
            columns = sorted(column for column, of in notes if of == rule)
            count = sum(notes[column, rule] for column in columns)
            yield warning("changed-values", f"{listed(columns)}: {rule} ({counted(count, 'value')} of a sample)", table)
