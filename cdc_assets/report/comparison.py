"""Comparisons of tables with their source, as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from cdc_assets.model.comparison import DIFFERENT, EQUAL, REPAIRED, RowDifference, TableComparison
from cdc_assets.model.wording import counted, seconds_text

_KINDS = {"missing": "missing in the lake", "extra": "only in the lake", "differing": "differing"}


def comparison_lines(one: TableComparison) -> Iterator[str]:
    """Yield the lines about a table."""
    yield f"{one.table}: {_verdict(one)}{_when(one)}"
    yield from (f"  column     {sentence}" for sentence in one.columns)
    yield from (f"  {row.kind:<10} {_row(row)}" for row in one.rows)
    if one.rows and (left := one.missing + one.extra + one.differing - sum(row.count for row in one.rows)) > 0:
        yield f"  and {counted(left, 'row')} more"
    if one.partly:
        yield "  More rows differ than are read again at once: the counts are the least that there are."
    for at, count in one.earlier.items():
        moment = f"as of {at}" if at else "as of then"
        yield f"  {counted(count, 'row')} of other ranges of the key were compared before, {moment}, and were equal."
    if one.kept_out:
        yield f"  kept out   {counted(one.kept_out, 'row')} of the source of forgotten keys, not compared"
    if one.repair:
        yield f"  {one.repair}"
    yield from (f"  left out   {name}: {reason}" for name, reason in one.left_out.items())
    yield from (f"  loss       {rule} ({counted(count, 'value')})" for rule, count in one.losses.items())
    yield from (f"  definition {sentence}" for sentence in one.definitions)


def _verdict(one: TableComparison) -> str:
    if one.state == EQUAL:
        return f"equal, {counted(one.source_rows, 'row')}"
    counts = {"missing": one.missing, "extra": one.extra, "differing": one.differing}
    rows = ", ".join(f"{count:,} {_KINDS[kind]}" for kind, count in counts.items() if count)
    sizes = f"; {counted(one.lake_rows, 'row')} in the lake, {one.source_rows:,} in the source"
    if one.state in (DIFFERENT, REPAIRED):
        return f"{one.state}: {rows or counted(len(one.columns), 'column')}{sizes if rows else ''}"
    return f"not compared: {one.reason}"


def _when(one: TableComparison) -> str:
    said = [*([one.chosen] if one.chosen else []), *([f"in the cut {one.cut}"] if one.cut else [])]
    said.append(f"as of {one.at}" if one.at else "as of now")
    said += [f"connected again {counted(one.reconnects, 'time')}"] if one.reconnects else []
    return f" ({', '.join([*said, seconds_text(one.seconds)])})" if one.seconds else ""


def _row(row: RowDifference) -> str:
    key = ", ".join(f"{name}={shown_value(value)}" for name, value in row.key.items())
    times = f" ({row.count:,} times)" if row.count > 1 else ""
    values = "; ".join(
        f"{one.column}: lake {shown_value(one.lake)}, source {shown_value(one.source)}" for one in row.values
    )
    return f"{key}{times}{f'  {values}' if values else ''}"


def shown_value(value: str | None) -> str:
    """Return a value for a line of text, a long one shortened."""
    if value is None:
        return "NULL"
    text = value if len(value) <= 80 else f"{value[:80]}… ({len(value):,} characters)"
    return text.replace("\n", "\\n")


def summary_line(found: Sequence[TableComparison]) -> str:
    """Return how many tables are equal, different, and not compared."""
    states = Counter(table.state for table in found)
    return f"{counted(len(found), 'table')}: " + ", ".join(f"{count:,} {state}" for state, count in states.items())


def comparison_json(changefeed: str, one: TableComparison) -> dict[str, Any]:
    """Return a comparison for programs."""
    return {"changefeed": changefeed, **asdict(one), "table": str(one.table)}
