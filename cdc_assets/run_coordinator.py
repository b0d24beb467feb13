"""A run queue that takes one run per table at a time, whoever asked for it.

Dagster limits concurrency by run tags, but runs of a backfill, of the UI and re-executions do not carry tags of their
partition's table (dagster-io/dagster#15752). Here every run gets the tag `cdc/table` as it enters the queue, and
`dagster.yaml` limits that tag to one. It only saves work: order is guaranteed by the progress that the lake holds, so
runs that pass by the queue (`dagster asset materialize`, ranges of partitions in one run) are as safe.
"""

from __future__ import annotations

import re

# Dagster documents custom coordinators and exports their base only from here.
from dagster._core.run_coordinator import QueuedRunCoordinator, SubmitRunContext
from dagster._core.storage.dagster_run import DagsterRun

__all__ = ["TABLE_TAG", "TableSerializingRunCoordinator", "table_of"]

TABLE_TAG = "cdc/table"

_PARTITION = re.compile(r"(?P<table>[^@]+)@\d{20}")


class TableSerializingRunCoordinator(QueuedRunCoordinator):
    """Dagster's queue, with the tag `cdc/table` on every run of a partition `schema.table@version`."""

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """Tag the run with its table, then queue it; runs without such a partition are queued as they are."""
        run = context.dagster_run
        table = table_of(run.tags.get("dagster/partition", ""))
        if table and TABLE_TAG not in run.tags:
            self._instance.add_run_tags(run.run_id, {TABLE_TAG: table})
        return super().submit_run(context)


def table_of(partition_key: str) -> str | None:
    """Return the `schema.table` of a partition key `schema.table@<version in 20 digits>`, None for any other key."""
    match = _PARTITION.fullmatch(partition_key)
    return match["table"] if match else None
