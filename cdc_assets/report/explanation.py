"""Format the explanation of a row as lines of text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from cdc_assets.features.verification.report import shown_value
from cdc_assets.model.explanation import RowChange, RowExplanation, TableChange
from cdc_assets.model.tso import tso_time


def explanation_lines(explanation: RowExplanation) -> Iterator[str]:
    """Yield the row, then changes and DDL in their order, what is in quarantine, and what is not there any more."""
    yield f"{explanation.table} {_values(explanation.key)}"
    if explanation.row_is_hidden:
        yield "  Whether the lake has such a row is not shown."
    elif explanation.row is None:
        yield "  The lake has no such row."
    else:
        yield f"  {_values(explanation.row)}"
        if explanation.position:
            yield f"  as of position {explanation.position} ({tso_time(explanation.position)})"
    steps: list[RowChange | TableChange] = [*explanation.events, *explanation.changes]
    for step in sorted(steps, key=lambda step: (step.position, isinstance(step, RowChange))):
        yield f"{step.time}  {step.position}  {_what(step)}"
        yield f"    {_origin(step)}"
    for aside in explanation.set_aside:
        yield f"in quarantine ({aside.state}), perhaps of this row: {aside.place}: {aside.reason}"
    yield from (f"not known: {sentence}" for sentence in explanation.gone)


def _what(change: RowChange | TableChange) -> str:
    if isinstance(change, TableChange):
        return f"{change.action}  {change.query or '(columns as the files show them)'}"
    if change.kind != "update":
        side = 0 if change.kind == "delete" else 1
        return f"{change.kind}  {_values({name: both[side] for name, both in change.changed.items()})}"
    if not change.former_known:
        entered = _values({name: new for name, (_, new) in change.changed.items()})
        return f"update  of a row that is not known, to {entered}"
    changed = (f"{name}: {shown_value(old)} → {shown_value(new)}" for name, (old, new) in change.changed.items())
    return f"update  {'; '.join(changed) or 'to the same values'}"


def _origin(change: RowChange | TableChange) -> str:
    parts = [change.place] if isinstance(change, RowChange) else []
    parts += [f"window ({change.lo}, {change.hi}]"] if isinstance(change, RowChange) and change.hi else []
    parts += [f"run {change.run}{f' ({page})' if (page := _page(change.run)) else ''}"] if change.run else []
    parts += [f"snapshot {change.snapshot}"] if change.snapshot is not None else []
    return ", ".join(parts) or "no record of how it was carried out is left"


def _values(values: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={shown_value(value)}" for name, value in values.items())


def explanation_json(changefeed: str, explanation: RowExplanation) -> dict[str, Any]:
    """Return an explanation for programs; runs that Dagster made have the path of their page."""
    found_json: dict[str, Any] = {"changefeed": changefeed, **asdict(explanation), "table": str(explanation.table)}
    for entry in (*found_json["changes"], *found_json["events"]):
        entry["page"] = _page(entry["run"])
    return found_json


def _page(run: str) -> str:
    """Return the path of a run's page in Dagster's web interface, "" for one that Dagster did not make."""
    return f"/runs/{run}" if _DAGSTERS.fullmatch(run) else ""


_DAGSTERS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
