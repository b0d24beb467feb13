"""Comparisons of tables with their source, as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from cdc_assets.model.comparison import DIFFERENT, EQUAL, REPAIRED, RowDifference, TableComparison
from cdc_assets.model.wording import counted, seconds_text

_KINDS = {"missing": "missing in the lake", "extra": "only in the lake", "differing": "differing"}


def comparison_lines(comparison: TableComparison) -> Iterator[str]:
    """Yield the lines about a table."""
    yield f"{comparison.table}: {_verdict(comparison)}{_when(comparison)}"
    yield from (f"  column     {sentence}" for sentence in comparison.columns)
    yield from (f"  {row.kind:<10} {_row(row)}" for row in comparison.rows)
    if (
        comparison.rows
        and (
            unshown := comparison.missing
            + comparison.extra
            + comparison.differing
            - sum(row.count for row in comparison.rows)
        )
        > 0
    ):
        yield f"  and {counted(unshown, 'row')} more"
    if comparison.partly:
        yield "  More rows differ than are read again at once: the counts are the least that there are."
    for at, count in comparison.earlier.items():
        moment = f"as of {at}" if at else "as of then"
        yield f"  {counted(count, 'row')} of other ranges of the key were compared before, {moment}, and were equal."
    if comparison.excluded:
        yield f"  kept out   {counted(comparison.excluded, 'row')} of the source of forgotten keys, not compared"
    if comparison.repair:
        yield f"  {comparison.repair}"
    yield from (f"  left out   {name}: {reason}" for name, reason in comparison.left_out.items())
    yield from (f"  loss       {rule} ({counted(count, 'value')})" for rule, count in comparison.losses.items())
    yield from (f"  definition {sentence}" for sentence in comparison.definitions)


def _verdict(comparison: TableComparison) -> str:
    if comparison.state == EQUAL:
        return f"equal, {counted(comparison.source_rows, 'row')}"
    counts = {"missing": comparison.missing, "extra": comparison.extra, "differing": comparison.differing}
    rows = ", ".join(f"{count:,} {_KINDS[kind]}" for kind, count in counts.items() if count)
    sizes = f"; {counted(comparison.lake_rows, 'row')} in the lake, {comparison.source_rows:,} in the source"
    if comparison.state in (DIFFERENT, REPAIRED):
        return f"{comparison.state}: {rows or counted(len(comparison.columns), 'column')}{sizes if rows else ''}"
    return f"not compared: {comparison.reason}"


def _when(comparison: TableComparison) -> str:
    parts = [
        *([comparison.chosen] if comparison.chosen else []),
        *([f"in the cut {comparison.cut}"] if comparison.cut else []),
    ]
    parts.append(f"as of {comparison.at}" if comparison.at else "as of now")
    parts += [f"connected again {counted(comparison.reconnects, 'time')}"] if comparison.reconnects else []
    return f" ({', '.join([*parts, seconds_text(comparison.seconds)])})" if comparison.seconds else ""


def _row(row: RowDifference) -> str:
    key = ", ".join(f"{name}={shown_value(value)}" for name, value in row.key.items())
    times = f" ({row.count:,} times)" if row.count > 1 else ""
    values = "; ".join(
        f"{value.column}: lake {shown_value(value.lake)}, source {shown_value(value.source)}" for value in row.values
    )
    return f"{key}{times}{f'  {values}' if values else ''}"


def shown_value(value: str | None) -> str:
    """Return a value for a line of text, a long one shortened."""
    if value is None:
        return "NULL"
    text = value if len(value) <= 80 else f"{value[:80]}… ({len(value):,} characters)"
    return text.replace("\n", "\\n")


def summary_line(comparisons: Sequence[TableComparison]) -> str:
    """Return the numbers of tables that are equal, different, and not compared."""
    states = Counter(table.state for table in comparisons)
    return f"{counted(len(comparisons), 'table')}: " + ", ".join(
        f"{count:,} {state}" for state, count in states.items()
    )


def comparison_json(changefeed: str, comparison: TableComparison) -> dict[str, Any]:
    """Return a comparison for programs."""
    return {"changefeed": changefeed, **asdict(comparison), "table": str(comparison.table)}
