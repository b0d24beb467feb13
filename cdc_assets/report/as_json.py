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


def outcome_json(name: str, outcome: Outcome) -> dict[str, Any]:
    """Return what a run did as plain JSON values."""
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
            "complete_by": t.complete_by,
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


def record_json(changefeed: str, row: QuarantinedRow) -> dict[str, Any]:
    """Return a quarantined record as plain JSON values, its bytes in base64."""
    fields = {**dataclasses.asdict(row), "changefeed": changefeed, "identity": str(row.life), "table": str(row.table)}
    del fields["life"]
    del fields["keys"]
    return {**fields, "raw": base64.b64encode(row.raw).decode(), "quarantined_at": iso_time(row.quarantined_at)}
