"""Where a row comes from, as lines of text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from cdc_assets.model.explanation import RowChange, RowExplanation, TableChange
from cdc_assets.model.tso import tso_time
from cdc_assets.report.comparison import shown_value


def explanation_lines(found: RowExplanation) -> Iterator[str]:
    """Yield the row, then changes and DDL in their order, what is in quarantine, and what is not there any more."""
    yield f"{found.table} {_values(found.key)}"
    if found.row_is_hidden:
        yield "  Whether the lake has such a row is not shown."
    elif found.row is None:
        yield "  The lake has no such row."
    else:
        yield f"  {_values(found.row)}"
        if found.position:
            yield f"  as of position {found.position} ({tso_time(found.position)})"
    steps: list[RowChange | TableChange] = [*found.events, *found.changes]
    for step in sorted(steps, key=lambda one: (one.position, isinstance(one, RowChange))):
        yield f"{step.time}  {step.position}  {_what(step)}"
        yield f"    {_origin(step)}"
    for aside in found.set_aside:
        yield f"in quarantine ({aside.state}), perhaps of this row: {aside.place}: {aside.reason}"
    yield from (f"not known: {sentence}" for sentence in found.gone)


def _what(one: RowChange | TableChange) -> str:
    if isinstance(one, TableChange):
        return f"{one.action}  {one.query or '(columns as the files show them)'}"
    if one.kind != "update":
        side = 0 if one.kind == "delete" else 1
        return f"{one.kind}  {_values({name: both[side] for name, both in one.changed.items()})}"
    if not one.former_known:
        entered = _values({name: new for name, (_, new) in one.changed.items()})
        return f"update  of a row that is not known, to {entered}"
    changed = (f"{name}: {shown_value(old)} → {shown_value(new)}" for name, (old, new) in one.changed.items())
    return f"update  {'; '.join(changed) or 'to the same values'}"


def _origin(one: RowChange | TableChange) -> str:
    parts = [one.place] if isinstance(one, RowChange) else []
    parts += [f"window ({one.lo}, {one.hi}]"] if isinstance(one, RowChange) and one.hi else []
    parts += [f"run {one.run}{f' ({page})' if (page := _page(one.run)) else ''}"] if one.run else []
    parts += [f"snapshot {one.snapshot}"] if one.snapshot is not None else []
    return ", ".join(parts) or "no record of how it was carried out is left"


def _values(values: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={shown_value(value)}" for name, value in values.items())


def explanation_json(changefeed: str, found: RowExplanation) -> dict[str, Any]:
    """Return an explanation for programs; runs that Dagster made have the path of their page."""
    found_json: dict[str, Any] = {"changefeed": changefeed, **asdict(found), "table": str(found.table)}
    for one in (*found_json["changes"], *found_json["events"]):
        one["page"] = _page(one["run"])
    return found_json


def _page(run: str) -> str:
    """Return the path of a run's page in Dagster's web interface, "" for one that Dagster did not make."""
    return f"/runs/{run}" if _DAGSTERS.fullmatch(run) else ""


_DAGSTERS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
