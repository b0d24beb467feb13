"""Findings about topics: TiCDC's options, columns that rows leave open, values that messages have lost. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from cdc_assets.formats import Decoded
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.table_history import History
from cdc_assets.model.wording import counted
from cdc_assets.preflight.conformance import Finding, listed, live, warning
from cdc_assets.sources.topics.topic_options import TopicOptions

__all__ = ["findings"]


def findings(
    listing: Listing, history: History, options: TopicOptions, heads: Iterable[tuple[DataFile, Decoded]]
) -> Iterator[Finding]:
    """Yield the findings from the options, the schemas and the decoded messages."""
    if options.required_acks != -1:
        yield warning(
            "required-acks",
            f"required-acks is {options.required_acks}, so a mark may overtake rows that a broker lost again, and a "
            "table would be called complete without them. Set required-acks to -1, which is TiCDC's default.",
        )
    yield from _inferred(listing, history)
    yield from _lost(heads, history)


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
