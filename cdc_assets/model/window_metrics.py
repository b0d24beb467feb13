"""Metrics of a committed window: the rows that it changed, counted, and the lag of its newest change. Pure."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from cdc_assets.model.reports import Report, StepResult
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso, wall_clock_ms
from cdc_assets.model.wording import counted, seconds_text


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of the newest change of a table's newest window, by stage.

        source commit ──written──▶ data file ──checkpoint──▶ metadata ──applied──▶ commit in the lake

        source commit  the wall clock of the change's commit-ts: TiDB's clock
        written        until the storage had the first file (in file order) that holds the change, by the object's
                       modification time; a copied bucket has the time of the copy
        checkpoint     until the `metadata` that the run read was written, by the object's modification time; an earlier
                       one that covered the change and was overwritten unseen is unknown
        applied        until the window's commit was done: this machine's clock

    Of topics `written` ends when the message was in the topic, by its own time (that of the newest message which lies
    beside the change where it was landed), and `checkpoint` with the landing that the run worked by.

    All in seconds. A moment that lies before the one it follows (clocks differ) counts as that one, so no stage is
    negative and the stages add up to `total_seconds`. A moment that the storage does not have makes its stage None, and
    the next one begins where it began. `shares` are the stages' parts of the total, from 0 to 1, in their order.
    """

    commit_ts: Tso
    total_seconds: float
    written_seconds: float | None
    checkpoint_seconds: float | None
    applied_seconds: float
    shares: tuple[float, float, float]


def lag_between(commit_ts: Tso, written: float, published: float, applied: float) -> Lag:
    """Return the stages of a change from its moments, seconds since 1970; 0 is an unknown moment."""
    begun = moment = wall_clock_ms(commit_ts) / 1000
    stages: list[float | None] = []
    for following in (written, published, applied):
        if not following:
            stages.append(None)
            continue
        after = max(moment, following)
        stages.append(round(after - moment, 3))
        moment = after
    total = sum(stage or 0.0 for stage in stages)
    first, second, third = (round((stage or 0.0) / total, 4) if total else 0.0 for stage in stages)
    return Lag(commit_ts, round(moment - begun, 3), stages[0], stages[1], stages[2] or 0.0, (first, second, third))


LAG_HEADS = ("under way", "until written", "until checkpoint", "until applied")
LANDED_LAG_HEADS = ("under way", "until in the topic", "until landed", "until applied")


def lag_cells(lag: Lag) -> tuple[str, ...]:
    """Return a lag as texts, one for each of LAG_HEADS: the total, and each stage with its share."""
    stages = zip((lag.written_seconds, lag.checkpoint_seconds, lag.applied_seconds), lag.shares, strict=True)
    cells = ("not known" if seconds is None else f"{seconds_text(seconds)} ({share:.0%})" for seconds, share in stages)
    return (seconds_text(lag.total_seconds), *cells)


@dataclass(frozen=True, slots=True)
class WindowMetrics:
    """One committed window of one table. `life` is the text of its life, `snapshot` the one that holds the window.

    `changes` counts changes after reduction, `entering` those that are rows afterwards (None where not known); `files`
    and `file_bytes` are what was read for it. `rows_before` and `rows_after` come from the snapshots' own summaries,
    None where those lack them. `seconds` is the time for decoding and committing.
    """

    life: str
    lo: Tso
    hi: Tso
    files: int
    file_bytes: int
    changes: int
    inserted: int
    updated: int
    deleted: int
    rows_before: int | None
    rows_after: int | None
    entering: int | None
    snapshot: int | None
    seconds: float
    lag: Lag | None = None

    @property
    def mismatch(self) -> str:
        """The sentence on counts that do not add up, "" if they do or cannot be compared.

        Rows before plus inserted minus deleted are the rows after; inserted plus updated are the rows that the window
        had to write.
        """
        window = f"the window {self.lo} < position <= {self.hi} (snapshot {self.snapshot})"
        if self.rows_before is not None and self.rows_after is not None:
            due = self.rows_before + self.inserted - self.deleted
            if due != self.rows_after:
                return (
                    f"{self.life}: {window} found {counted(self.rows_before, 'row')}, inserted {self.inserted:,}, "
                    f"deleted {self.deleted:,} and left {self.rows_after:,}; expected {due:,}. {_REBUILD}"
                )
        if self.entering is not None and self.inserted + self.updated != self.entering:
            return (
                f"{self.life}: {window} had to write {counted(self.entering, 'row')} and wrote "
                f"{self.inserted + self.updated:,} ({self.inserted:,} inserted, {self.updated:,} updated). {_REBUILD}"
            )
        return ""


_REBUILD = (
    "The window is committed and readers see it. Something else may have written to the table, or it held some rows "
    "twice: rebuild the table from its files."
)


def measure_window(
    step: ApplyRows, changes: int, report: Report, result: StepResult, published: float, applied: float
) -> WindowMetrics:
    """Return the metrics of a window that was committed at `applied`, for a `metadata` that was written at `published`.

    Both in seconds since 1970, `published` 0 if unknown. Rows of a dump have no lag: they were not under way.
    """
    lag = None
    if report.newest is not None and not step.is_snapshot:
        commit_ts, path = report.newest
        written = next((file.modified for file in step.files if file.path == path), 0.0)
        lag = lag_between(commit_ts, written, published, applied)
    return WindowMetrics(
        str(step.life),
        step.lo,
        step.hi,
        len(step.files),
        sum(file.size for file in step.files),
        changes,
        result.inserted,
        result.updated,
        result.deleted,
        result.rows_before,
        result.rows_after,
        result.entering,
        result.snapshot_after,
        round(report.seconds + result.seconds, 3),
        lag,
    )


def format_metrics(metrics: WindowMetrics) -> str:
    """Return the JSON text of a window's metrics."""
    return json.dumps(dataclasses.asdict(metrics))


def parse_metrics(text: str) -> WindowMetrics:
    """Return the metrics from a text that `format_metrics` made."""
    fields = json.loads(text)
    lag = fields.pop("lag")
    if lag is not None:
        lag = Lag(**{**lag, "shares": tuple(lag["shares"])})
    return WindowMetrics(**fields, lag=lag)
