"""The job that rebuilds tables from their recorded history and swaps each in one commit."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from cdc_assets.defs.checks import evaluations
from cdc_assets.defs.keys import add_keys, new_keys
from cdc_assets.defs.metadata import ddl_metadata, dml_metadata, sql_text
from cdc_assets.defs.names import asset_key, lake_key
from cdc_assets.defs.operations import operation_job
from cdc_assets.defs.resources import ConfiguredFeed, OpenFeed
from cdc_assets.errors import BadSettings
from cdc_assets.features.dumps.defs import log_rebuilt
from cdc_assets.model.tso import tso_time
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.rebuild import SwappedTable, rebuild, requested_tables
from cdc_assets.operations.requests import RebuildRequest
from cdc_assets.planning.partitions import format_partition_key
from cdc_assets.planning.plan import Plan
from cdc_assets.run_coordinator import TABLE_TAG


def rebuild_job(source: ConfiguredFeed, job_name: str) -> dg.JobDefinition:
    """Return the job, with a description of its options for the launch form."""

    def rebuild_tables(context: dg.OpExecutionContext, request: RebuildRequest, open_feed: OpenFeed) -> Iterator[Any]:
        """Build the tables aside, swap each in one commit, and remove the aside tables."""
        with open_feed() as pipeline:
            done = _rebuilt(context, request, pipeline)
            if not done:
                return
            tables = source.lake_tables()
            yield from _events(context, source, pipeline, done)
        for table in done:
            if table.name is not None:
                yield dg.AssetMaterialization(
                    lake_key(source.changefeed, table.name),
                    description=f"rebuilt from its history through {tso_time(table.through)}",
                    metadata=_figures(table, tables[table.life].rows),
                )

    description = (
        "Builds tables aside from the changefeed's whole recorded history and swaps each in one commit: "
        "readers see the old rows or the new ones, never none. Refused, with nothing changed, if the history begins "
        "with neither CREATE TABLE nor a dump, if files of it are missing, if a table is held or if records are in "
        "quarantine. A killed run is continued by the next one. Writers may go on meanwhile, and wait where one was "
        "faster than a swap; with the tag "
        f"`{TABLE_TAG}` = `schema.table`, written as in the table's partitions, its partitions wait in the queue."
    )
    scaffold: dict[str, Any] = {"tables": []}
    return operation_job(source, f"{job_name}_tables", RebuildRequest, rebuild_tables, description, scaffold=scaffold)


def _rebuilt(context: dg.OpExecutionContext, request: RebuildRequest, pipeline: LakePipeline) -> Sequence[SwappedTable]:
    """Rebuild the tables that the run is asked for."""
    from cdc_assets.lake.swap import Rebuilds

    tables = requested_tables(pipeline, request)
    if tables is None:
        context.log.info("no incomplete table is in a dump: nothing is to be imported")
        return ()

    def consent(losses: str) -> None:
        if not request.confirmed:
            raise BadSettings(f"{losses}\nThat cannot be undone. Set confirmed to true, and launch the job again.")

    return rebuild(pipeline, Rebuilds(pipeline.lake), tables, context.run_id, context.log.info, consent)


def _events(
    context: dg.OpExecutionContext, source: ConfiguredFeed, pipeline: LakePipeline, done: Sequence[SwappedTable]
) -> Iterator[Any]:
    """Add partitions that are new, and yield the events and checks of what was rebuilt."""
    name, outcome = source.changefeed.name, pipeline.status()
    add_keys(context.instance, name, new_keys(context.instance, name, outcome.plan))
    for table in done:
        yield from _partitions(context, source, pipeline, outcome.plan, table)
    yield from evaluations(source, pipeline, outcome, {table.life for table in done})


def _partitions(
    context: dg.OpExecutionContext, source: ConfiguredFeed, pipeline: LakePipeline, plan: Plan, table: SwappedTable
) -> Iterator[dg.AssetMaterialization]:
    """Yield the events of `ddl` and `dml` for a table that begins with a dump now: its first partition."""
    key = log_rebuilt(context, source, plan, table.life)
    if key is None:
        return
    name, partition = source.changefeed.name, format_partition_key(key)
    description = "built anew from the dump, with all that came since"
    ddl = ddl_metadata(plan, key, pipeline.ledger.journal(name, key.version))
    dml = dml_metadata(plan, key, None, 0)
    for asset, metadata in (("ddl", ddl), ("dml", dml)):
        yield dg.AssetMaterialization(asset_key(name, asset), description, metadata, partition)


def _figures(table: SwappedTable, rows: int | None) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "rebuilt": True,
        "applied_ts": table.through,
        "applied_time": tso_time(table.through),
        "statements": sql_text(table.result.statements),
        "snapshot_before": str(table.result.snapshot_before),
        "snapshot_after": str(table.result.snapshot_after),
        "swap_seconds": table.result.seconds,
    }
    return figures if rows is None else {**figures, "dagster/row_count": dg.MetadataValue.int(rows)}
