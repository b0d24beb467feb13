"""Outcomes and records as plain JSON values."""

from __future__ import annotations

import base64
import dataclasses
from typing import TYPE_CHECKING, Any

from cdc_assets.model.tso import iso_time
from cdc_assets.report.findings import grouped

if TYPE_CHECKING:
    from cdc_assets.model.quarantine import QuarantinedRow
    from cdc_assets.pipeline.outcome import Outcome
    from cdc_assets.report.tables import TableStatus


def outcome_json(name: str, outcome: Outcome) -> dict[str, Any]:
    """Return the outcome of a run as plain JSON values."""
    tables = [
        {
            "table": str(t.name),
            "born": t.life.version,
            "version": t.version,
            "state": t.state,
            "through": t.through,
            "reason": t.reason,
            "ways": t.ways,
            "steps": t.steps,
            "changes": t.changes,
            "inserted": t.inserted,
            "updated": t.updated,
            "deleted": t.deleted,
            "kept_out": t.excluded,
            "quarantined": t.quarantined,
            "incomplete": t.incomplete,
            "complete_by": t.complete_by if t.gap is None else "",
        }
        for t in outcome.tables
    ]
    return {
        "changefeed": name,
        "checkpoint": outcome.checkpoint,
        "complete": outcome.complete,
        "tables": tables,
        "problems": dict(outcome.problems),
        "warnings": [dataclasses.asdict(group) for group in grouped(outcome.warnings, set(outcome.new_findings))],
        "seconds": round(outcome.seconds, 3),
    }


def status_json(table: TableStatus) -> dict[str, Any]:
    """Return the status of a table as plain JSON values."""
    names = (
        "changefeed", "table", "version", "rows", "through", "through_time", "checkpoint", "behind_checkpoint_seconds",
        "state", "check", "reason", "ways", "quarantined", "fidelity", "stages", "miscounted", "incomplete",
        "complete_by", "incomplete_cause", "cuts", "forecast", "unfinished", "accepted", "advanced_at",
        "marks_deletes",
    )  # fmt: skip
    parts = {name: dataclasses.asdict(part) for name in ("stages", "forecast") if (part := getattr(table, name))}
    fidelity = [dataclasses.asdict(column) for column in table.fidelity]
    return {
        **{name: getattr(table, name) for name in names},
        **parts,
        "fidelity": fidelity,
        "kept_out": table.excluded_keys,
    }


def record_json(changefeed: str, row: QuarantinedRow) -> dict[str, Any]:
    """Return a quarantined record as plain JSON values, its bytes in base64."""
    fields = {**dataclasses.asdict(row), "changefeed": changefeed, "identity": str(row.life), "table": str(row.table)}
    del fields["life"]
    del fields["keys"]
    return {**fields, "raw": base64.b64encode(row.raw).decode(), "quarantined_at": iso_time(row.quarantined_at)}
