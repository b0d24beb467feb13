"""Metrics of a lake in the text format of Prometheus. Pure.

Names and units follow its conventions: seconds, bytes, `_total` for counters only; a moment is `…_timestamp_seconds`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_assets.model.progress import State
from cdc_assets.model.tso import Tso, wall_clock_ms

if TYPE_CHECKING:
    from cdc_assets.report.landings import LandingText
    from cdc_assets.report.tables import TableStatus

PREFIX = "cdc_assets_"

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
"""Signs that the text format escapes in the value of a label."""

METRICS = {
    "table_rows": "Rows of the table, marked ones too, from its newest snapshot.",
    "table_applied_timestamp_seconds": "Time of the position through which the table is applied.",
    "table_checkpoint_timestamp_seconds": "Time of the newest checkpoint that was seen for the table.",
    "table_behind_checkpoint_seconds": "Time from the applied position to the newest checkpoint seen.",
    "table_lag_seconds": "Time that the newest applied change was under way in a stage.",
    "table_run_timestamp_seconds": "End of the newest run that brought the table forward.",
    "table_stopped": "1 while the table is in this state, held or failed, and waits; else 0.",
    "table_incomplete": "1 while the table lacks rows that nobody accepted to be missing, else 0.",
    "table_quarantined_records": "Records of the table that wait in quarantine.",
    "table_falling_behind": "1 while the table's runs apply less than comes, else 0.",
    "landing_timestamp_seconds": "Time of the newest landing of the changefeed's topics.",
    "landing_lag_seconds": "Time from the greatest mark to the landing that brought it.",
    "landing_behind_messages": "Messages of the partition that were not landed at the newest look at its end.",
    "landing_unreadable_messages": "Messages that cannot be read and wait for a decision.",
    "landing_rows": "Row events that are kept in the landing.",
    "landing_row_bytes": "Bytes of these row events.",
}
"""The help of each metric, by its name without the prefix."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def metric_lines(tables: Iterable[TableStatus], landings: Iterable[LandingText]) -> Iterator[str]:
    """Yield the metrics of tables and landings as lines in the text format of Prometheus, each metric with its help.

    A dropped or frozen table has none. A value that is not known has no line.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in METRICS}
    for table in tables:
        if not table.state.ended:
            for sample in table_samples(table):
                samples[sample.name].append(sample)
    for landing in landings:
        for sample in landing_samples(landing):
            samples[sample.name].append(sample)
    for name, values in samples.items():
        if values:
            yield f"# HELP {PREFIX}{name} {METRICS[name]}"
            yield f"# TYPE {PREFIX}{name} gauge"
            for sample in values:
                labels = ",".join(f'{label}="{value.translate(_ESCAPED)}"' for label, value in sample.labels)
                yield f"{PREFIX}{name}{{{labels}}} {float(sample.value):.15g}"


def table_samples(table: TableStatus) -> Iterator[Sample]:
    """Yield the metrics of one table."""
    labels = (("changefeed", table.changefeed), ("table", table.table))
    if table.rows is not None:
        yield Sample("table_rows", labels, table.rows)
    if table.through > 0:
        yield Sample("table_applied_timestamp_seconds", labels, _seconds(table.through))
    if table.checkpoint:
        yield Sample("table_checkpoint_timestamp_seconds", labels, _seconds(table.checkpoint))
    if table.behind_checkpoint_seconds is not None:
        yield Sample("table_behind_checkpoint_seconds", labels, table.behind_checkpoint_seconds)
    if table.stages is not None:
        stages = (
            ("written", table.stages.written_seconds),
            ("checkpoint", table.stages.checkpoint_seconds),
            ("applied", table.stages.applied_seconds),
        )
        for stage, seconds in stages:
            if seconds is not None:
                yield Sample("table_lag_seconds", (*labels, ("stage", stage)), seconds)
    if table.advanced_at is not None:
        yield Sample("table_run_timestamp_seconds", labels, table.advanced_at)
    for state in (State.HELD, State.FAILED):
        yield Sample("table_stopped", (*labels, ("state", state.value)), table.state is state)
    for name, value in table.alarms.items():
        yield Sample(f"table_{name}", labels, value)


def landing_samples(landing: LandingText) -> Iterator[Sample]:
    """Yield the metrics of what is landed of one changefeed."""
    labels = (("changefeed", landing.changefeed),)
    if landing.landed_ms:
        yield Sample("landing_timestamp_seconds", labels, landing.landed_ms / 1000)
        yield Sample("landing_lag_seconds", labels, landing.lag_seconds)
    for partition in landing.partitions:
        where = (("topic", partition.topic), ("partition", str(partition.partition)))
        yield Sample("landing_behind_messages", (*labels, *where), partition.behind)
    yield Sample("landing_unreadable_messages", labels, len(landing.unreadable))
    yield Sample("landing_rows", labels, landing.rows)
    yield Sample("landing_row_bytes", labels, landing.row_bytes)


def _seconds(position: Tso) -> float:
    return wall_clock_ms(position) / 1000


_PAGE = """\
# Metrics

What `cdc-assets metrics` prints in the text format of Prometheus; all are gauges. This page is generated from the code
(`python -m cdc_assets.report.metrics`); a test compares the two. Alerts: [production.md](production.md#metrics).

Labels: `changefeed`, and of a table `table`. The lag has `stage` too (`written`, `checkpoint`, `applied`: see
[lag by stage](dagster.md#lag-by-stage)), a stopped table `state` (`held`, `failed`), what is not landed of a partition
`topic` and `partition`. A dropped or frozen table has no metrics, and a value that is not known has no line.

| metric | meaning |
| --- | --- |
"""


def metrics_page() -> str:
    """Return the page as Markdown."""
    return _PAGE + "".join(f"| `{PREFIX}{name}` | {meaning} |\n" for name, meaning in METRICS.items())


if __name__ == "__main__":
    sys.stdout.write(metrics_page())
