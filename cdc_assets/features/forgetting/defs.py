"""Events of rows that were forgotten. None has a key."""

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg

from cdc_assets.defs.metadata import lake_table, metadata_of
from cdc_assets.defs.names import lake_key
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.features.forgetting.report import forget_figures
from cdc_assets.model.forgetting import ForgetReport
from cdc_assets.operations.lake_pipeline import LakePipeline


def job_events(
    context: dg.OpExecutionContext,
    source: ConfiguredFeed,
    pipeline: LakePipeline,
    carry_out: Callable[[], Iterator[Any]],
) -> Iterator[Any]:
    """Yield the events of tables from which rows went, with how many they have now, and the report."""
    for report in carry_out():
        if not isinstance(report, ForgetReport):
            continue
        lives = {table.life for table in report.removed if table.rows}
        if lives:
            plan, tables = pipeline.planner.plan()[1], source.lake_tables()
            for life in sorted(plan.history.lives.keys() & tables.keys() & lives):
                yield from lake_table(source, pipeline, plan, tables[life], 0)
        yield dg.AssetObservation(
            lake_key(source.changefeed, report.table),
            description="rows were forgotten",
            metadata=metadata_of(forget_figures(report)),
        )


JOB_EVENTS = {"forget": job_events}
