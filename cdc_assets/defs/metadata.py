"""What Dagster shows of a partition, a window's report and a lake table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import dagster as dg

from cdc_assets.defs.resources import Source
from cdc_assets.describe import column_type, tso_time
from cdc_assets.fidelity import format_report
from cdc_assets.lake.state import Held
from cdc_assets.ledger import JournalEntry
from cdc_assets.model import ApplyRows, Life, Report, TableId, wall_clock_ms
from cdc_assets.partitions import PartitionKey, life_of
from cdc_assets.pipeline import Pipeline
from cdc_assets.plan import Plan
from cdc_assets.window import sentence

__all__ = ["ddl_metadata", "dml_metadata", "lake_key", "lake_table", "report_metadata"]


def lake_key(table: TableId) -> dg.AssetKey:
    """Return the asset key of a lake table; Dagster joins parts by `/`, so that sign is encoded."""
    return dg.AssetKey(
        ["lake", *(part.replace("%", "%25").replace("/", "%2F") for part in (table.schema, table.table))]
    )


def ddl_metadata(plan: Plan, key: PartitionKey, journal: Iterable[JournalEntry]) -> dict[str, Any]:
    """The DDL's text, what was run for it, and the columns afterwards."""
    done = [entry for entry in journal if entry.tso == key.version]
    found: dict[str, Any] = {
        "version": key.version,
        "time": tso_time(key.version),
        "statements": dg.MetadataValue.md(_code(s for entry in done for s in entry.statements)),
    }
    for life in life_of(plan, key):
        event = next(event for event in plan.history.lives[life].events if event.at == key.version)
        found["query"] = dg.MetadataValue.md(_code([event.file.query])) if event.file.query else "no DDL text"
        found["action"] = event.action
        found["columns"] = _columns(plan, life)
    return found


def dml_metadata(plan: Plan, key: PartitionKey, step: ApplyRows | None, changed: int) -> dict[str, Any]:
    """Which window was applied, from how many files."""
    found: dict[str, Any] = {
        "checkpoint_ts": plan.checkpoint,
        "applied_through": tso_time(plan.checkpoint),
        "changes": changed,
    }
    if step is not None:
        found["commit_ts_low"], found["commit_ts_high"] = step.lo, step.hi
        found["files"] = len(step.files)
        found["file_bytes"] = sum(file.size for file in step.files)
        found["source_files"] = dg.MetadataValue.json([file.path for file in step.files[:100]])
    return found


def report_metadata(report: Report | None) -> dict[str, Any]:
    """Counts, the first failures with their place, and values that a rule of the type table changed."""
    if report is None:
        return {"records": 0}
    found: dict[str, Any] = {"records": report.rows, "rejected": report.reject_count, "seconds": report.seconds}
    if report.rejects:
        found["first failures"] = dg.MetadataValue.md("\n".join(f"- {sentence(reject)}" for reject in report.rejects))
    if report.notes:
        found["changed values"] = dg.MetadataValue.json(
            {f"{column}: {rule}": count for (column, rule), count in report.notes.items()}
        )
    return found


def lake_table(
    source: Source, pipeline: Pipeline, plan: Plan, held: Held, changed: int
) -> Iterator[dg.AssetMaterialization]:
    """Yield the event of a lake table: rows, schema, place, lag; nothing for one that has no name."""
    life = held.life
    name = plan.history.lives[life].name
    if name is None:
        return
    through = held.label.progress.tso
    metadata: dict[str, Any] = {
        "dagster/column_schema": _columns(plan, life),
        "dagster/table_name": f"{source.changefeed.namespace_of(name.schema)}.{name.table}",
        "applied_ts": through,
        "applied_time": tso_time(through) if through else "",
        "lag_seconds": max(0, wall_clock_ms(plan.checkpoint) - wall_clock_ms(through)) / 1000 if through else 0.0,
        "changes": changed,
    }
    fidelity = pipeline.ledger.fidelity(source.changefeed.name, life)
    if fidelity:
        metadata["fidelity"] = dg.MetadataValue.md(format_report(fidelity))
    if held.rows is not None:
        metadata["dagster/row_count"] = held.rows
    if held.location:
        metadata["dagster/uri"] = held.location
    yield dg.AssetMaterialization(lake_key(name), metadata=metadata)


def _columns(plan: Plan, life: Life) -> dg.TableSchemaMetadataValue:
    schema = plan.history.lives[life].schema
    return dg.MetadataValue.table_schema(
        dg.TableSchema(
            columns=[
                dg.TableColumn(
                    column.name or " ",
                    column_type(column),
                    description="virtual generated: not in the lake" if column.virtual else None,
                    constraints=dg.TableColumnConstraints(
                        nullable=column.nullable, unique=schema.key == (column.name,)
                    ),
                )
                for column in schema.columns
            ]
        )
    )


def _code(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return f"```sql\n{text}\n```" if text else "nothing"
