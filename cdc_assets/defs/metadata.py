"""Dagster's metadata of a partition, a window's report and a lake table.

Keys that begin with `dagster/` are Dagster's own: it shows them in special places. Numbers are numbers, so that the UI
plots rows, changes, lag by stage and bytes over runs. A TSO is text: no plot could show its digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from cdc_assets.decoding.own_columns import OwnColumn
from cdc_assets.decoding.window import sentence, way_to_fit
from cdc_assets.defs.names import asset_key, lake_key
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.errors import MalformedData
from cdc_assets.features.columns.decoding import mirror_columns
from cdc_assets.features.columns.planning import standing_columns
from cdc_assets.features.dumps.defs import base_metadata
from cdc_assets.lake.lake_table import LakeTable
from cdc_assets.model.gaps import gap_text
from cdc_assets.model.ledger_entries import JournalEntry
from cdc_assets.model.reports import Grid, Report
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import AddColumn, RenameColumn
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.table_history import TableHistory
from cdc_assets.model.tso import Tso, seconds_between, tso_time
from cdc_assets.model.window_metrics import WindowMetrics
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.planning.partitions import PartitionKey, life_of, limit_of
from cdc_assets.planning.plan import Plan
from cdc_assets.report.tables import column_type, ranges_of
from cdc_assets.report.type_page import format_report
from cdc_assets.types.mysql_types import spark_type

MAX_FILES = 100
"""The number of file names in an event; all are in the ledger (`cdc-assets files`)."""


# --- partitions -------------------------------------------------------------------------------------------------------


def ddl_metadata(plan: Plan, key: PartitionKey, journal: Iterable[JournalEntry]) -> dict[str, Any]:
    """Return the DDL's text, the statements that it ran, and the columns afterwards."""
    done = [entry for entry in journal if entry.tso == key.version]
    metadata: dict[str, Any] = {
        "version": str(key.version),
        "time": tso_time(key.version),
        "statements": sql_text(s for entry in done for s in entry.statements),
    }
    for life in life_of(plan, key):
        event = next(event for event in plan.history.lives[life].events if event.at == key.version)
        metadata["query"] = sql_text([event.file.query]) if event.file.query else "no DDL text"
        metadata["action"] = event.journal_action
        metadata["columns"] = column_schema(event.after)
        metadata["schema_file"] = event.file.path
        metadata |= base_metadata(plan, life, key)
    for file in plan.history.other_files:  # of a database or a view
        if (file.table, file.version) == (key.table, key.version):
            metadata["query"] = sql_text([file.query]) if file.query else "no DDL text"
            metadata["schema_file"] = file.path
    return metadata


APPLIED_FIGURES = ("changes", "commit_ts_low", "commit_ts_high", "files", "file_bytes", "source_files",
                   "message_bytes", "source_messages")  # fmt: skip
"""The metadata of a partition of `dml` that say what the run that applied it brought."""


def dml_metadata(plan: Plan, key: PartitionKey, step: ApplyRows | None, changed: int) -> dict[str, Any]:
    """Return the applied window and its number of files; without a `step`, those of the plan for the partition."""
    through = min((limit_of(plan, life, key.version) for life in life_of(plan, key)), default=plan.checkpoint)
    metadata: dict[str, Any] = {
        "checkpoint_ts": str(plan.checkpoint),
        "applied_through": tso_time(through),
        "changes": changed,
    }
    for life in life_of(plan, key):
        metadata |= base_metadata(plan, life, key)
    steps = [step] if step is not None else list(_windows(plan, key))
    if steps:
        metadata["commit_ts_low"], metadata["commit_ts_high"] = str(steps[0].lo), str(steps[-1].hi)
        metadata |= _input([file for window_step in steps for file in window_step.files])
    return metadata


def _input(inputs: Sequence[DataFile]) -> dict[str, Any]:
    """Return the files that rows come from, or where their messages are in topics."""
    ranges = ranges_of(inputs)
    if ranges:
        places = [f"{span.partition} {span.start}..{span.stop - 1}" for span in sorted(ranges)]
        return {
            "message_bytes": sum(ranges.values()),
            "source_messages": dg.MetadataValue.json(places[:MAX_FILES]),
        }
    files = {file.path: file for file in inputs}
    return {
        "files": len(files),
        "file_bytes": sum(file.size for file in files.values()),
        "source_files": dg.MetadataValue.json(list(files)[:MAX_FILES]),
    }


def _windows(plan: Plan, key: PartitionKey) -> Iterator[ApplyRows]:
    for life in life_of(plan, key):
        limit = limit_of(plan, life, key.version)
        for step in plan.of(life):
            if isinstance(step, ApplyRows) and step.lo < limit and step.hi >= key.version:
                yield step


def report_metadata(report: Report | None) -> dict[str, Any]:
    """Return counts, the first failures with their place, and values that a rule of the type table changed."""
    if report is None:
        return {"records": 0}
    metadata: dict[str, Any] = {"records": report.rows, "rejected": report.reject_count, "seconds": report.seconds}
    if report.excluded:
        metadata["kept out"] = report.excluded
    if report.rejects:
        metadata["first failures"] = dg.MetadataValue.md(
            "\n".join(f"- {sentence(reject)}" for reject in report.rejects)
        )
        metadata["what to do"] = (
            f"{way_to_fit(report.rejects[0])}, then run the partition again; or let such records be set aside (setting "
            "quarantine) and the rest be applied."
        )
    if report.notes:
        metadata["changed values"] = dg.MetadataValue.json(
            {f"{column}: {rule}": count for (column, rule), count in report.notes.items()}
        )
    return metadata


# --- lake tables ------------------------------------------------------------------------------------------------------


def lake_table(
    source: ConfiguredFeed, pipeline: Pipeline, plan: Plan, table: LakeTable, changed: int
) -> Iterator[dg.AssetMaterialization]:
    """Yield the event of a lake table: rows, schema, location, lag; nothing for one that has no name.

    Each window that the pipeline committed is in exactly one event; `changed` counts if it committed none.
    """
    life = table.life
    accounts = pipeline.accounts.pop(life, [])
    history = plan.history.lives[life]
    if history.name is None:
        return
    through = table.label.progress.tso
    schema = _schema_at(history, table.label.ddl)
    own = mirror_columns(life.kind, standing_columns(life, source.changefeed.columns.names, table.layout))
    metadata: dict[str, Any] = {
        "dagster/column_schema": column_schema(schema, own, unique=not life.kind),
        "dagster/column_lineage": column_lineage(history, table.label.ddl, source.changefeed.name),
        "dagster/table_name": f"{source.changefeed.namespace_of(history.name.schema)}.{history.name.table}",
        "applied_ts": str(through),
        "applied_time": tso_time(through) if through > 0 else "",
        "behind_checkpoint_seconds": seconds_between(through, plan.checkpoint),
        "changes": sum(account.changes for account in accounts) if accounts else changed,
        **_series(accounts),
    }
    counts = {"dagster/row_count": table.rows, "dagster/size_bytes": table.file_bytes, "data_files": table.data_files}
    metadata.update({name: dg.MetadataValue.int(count) for name, count in counts.items() if count is not None})
    fidelity = pipeline.ledger.fidelity(source.changefeed.name, life)
    if fidelity:
        metadata["fidelity"] = dg.MetadataValue.md(format_report(fidelity))
    if (begins := table.since if table.begins is None else table.begins) is not None:
        metadata["begins_at_ts"], metadata["begins_at_time"] = str(begins), tso_time(begins)
    if table.gap is not None:
        metadata["incomplete_since"] = str(table.gap.since)
        metadata["incomplete"] = gap_text(table.gap, life, table.base)
    if table.location:
        metadata["dagster/uri"] = table.location
    yield dg.AssetMaterialization(lake_key(source.changefeed, history.name), metadata=metadata)


def _series(accounts: Sequence[WindowMetrics]) -> dict[str, Any]:
    """Return figures of the windows that a run committed: sums, and the lag of the newest change (see `Lag`)."""
    if not accounts:
        return {}
    figures: dict[str, Any] = {
        name: dg.MetadataValue.int(sum(getattr(account, name) for account in accounts))
        for name in ("inserted", "updated", "deleted", "files", "file_bytes")
    }
    figures["seconds"] = dg.MetadataValue.float(sum(account.seconds for account in accounts))
    figures["snapshot"] = dg.MetadataValue.text(str(accounts[-1].snapshot))
    lag = accounts[-1].lag
    if lag is not None:
        figures["lag_seconds"] = dg.MetadataValue.float(lag.total_seconds)
        for stage, seconds, share in zip(
            ("written", "checkpoint", "applied"),
            (lag.written_seconds, lag.checkpoint_seconds, lag.applied_seconds),
            lag.shares,
            strict=True,
        ):
            if seconds is not None:
                figures[f"lag_{stage}_seconds"] = dg.MetadataValue.float(seconds)
                figures[f"lag_{stage}_share"] = dg.MetadataValue.float(share)
    return figures


def _schema_at(history: TableHistory, ddl: Tso) -> TableSchema:
    """Return the schema that a table has now: later DDL may wait for a person."""
    return next((event.after for event in reversed(history.events) if event.at <= ddl), history.events[0].after)


def column_schema(
    schema: TableSchema, own: Sequence[OwnColumn] = (), unique: bool = True
) -> dg.TableSchemaMetadataValue:
    """Return columns with source types, masks and comments; of the lake its columns alone, with its `own` ones.

    `unique` says whether a key has one row: history tables have several.
    """
    columns = [
        dg.TableColumn(
            column.name or " ",
            column_type(column),
            description=_joined(
                column.comment,
                _lake_type(column),
                f"masked by {column.mask}" if column.mask else "",
                f"kept, the source dropped it at {column.kept}" if column.kept else "",
            ),
            constraints=dg.TableColumnConstraints(
                nullable=(column.in_lake or column).nullable, unique=unique and schema.key == (column.name,)
            ),
        )
        for column in (schema.stored if own else schema.columns)
        if not (column.hidden or (own and column.in_lake is None))
    ]
    columns += [
        dg.TableColumn(column.name, column.spark.upper(), description=f"{column.doc}; lake type {column.spark}")
        for column in own
    ]
    return dg.MetadataValue.table_schema(dg.TableSchema(columns=columns))


def _lake_type(column: Column) -> str:
    if column.virtual:
        return "virtual generated: not in the lake"
    if column.in_lake is None:
        return "not in the lake"
    try:
        return f"lake type {spark_type(column.in_lake)}"
    except MalformedData:
        return "of a type that the lake does not support"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def origins(history: TableHistory, ddl: Tso) -> dict[str, str]:
    """Return the first name of each column, by the name that it has after the DDL of that version."""
    names = {column.name: column.name for column in history.events[0].after.columns}
    for event in history.events[1:]:
        if event.at > ddl:
            break
        renamed = {
            change.new: names.get(change.old, change.old)
            for change in event.changes
            if isinstance(change, RenameColumn)
        }
        added = {change.column.name for change in event.changes if isinstance(change, AddColumn)}
        names = {
            column.name: column.name
            if column.name in added
            else renamed.get(column.name, names.get(column.name, column.name))
            for column in event.after.columns
        }
    return names


def column_lineage(history: TableHistory, ddl: Tso, changefeed: str) -> dg.TableColumnLineageMetadataValue:
    """Return the source column, by its first names, of each column of a lake table.

    A changefeed's `ddl` asset is for all of its tables, so a column there is `schema.table.column`.
    """
    upstream = asset_key(changefeed, "ddl")
    stored = {column.name for column in _schema_at(history, ddl).in_lake.stored}
    return dg.MetadataValue.column_lineage(
        dg.TableColumnLineage(
            {
                name: [dg.TableColumnDep(upstream, f"{history.life.born_as}.{born}")]
                for name, born in origins(history, ddl).items()
                if name in stored
            }
        )
    )


def sql_text(lines: Iterable[str]) -> dg.MarkdownMetadataValue:
    """Return SQL for the UI: a block of code, or `nothing`."""
    text = "\n".join(lines)
    return dg.MetadataValue.md(f"```sql\n{text}\n```" if text else "nothing")


def text_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> dg.TableMetadataValue:
    """Return rows of texts as a table for the UI."""
    records = [dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows]
    schema = dg.TableSchema(columns=[dg.TableColumn(column, "string") for column in columns])
    return dg.MetadataValue.table(records, schema=schema)


def metadata_of(figures: Mapping[str, object]) -> dict[str, Any]:
    """Return figures as metadata: tables with columns of texts and numbers, and TSOs as texts."""
    return {
        name: _table(figure)
        if isinstance(figure, Grid)
        else str(figure)
        if isinstance(figure, int) and figure > 1 << 53
        else figure
        for name, figure in figures.items()
    }


def _table(grid: Grid) -> dg.TableMetadataValue:
    first = grid.rows[0] if grid.rows else ["" for _ in grid.heads]
    columns = [
        dg.TableColumn(head, "int" if isinstance(cell, int) else "string")
        for head, cell in zip(grid.heads, first, strict=True)
    ]
    records = [dg.TableRecord(dict(zip(grid.heads, row, strict=True))) for row in grid.rows]
    return dg.MetadataValue.table(records, schema=dg.TableSchema(columns=columns))
