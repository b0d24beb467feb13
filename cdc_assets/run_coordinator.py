"""A run queue that starts one run per table at a time, whatever requested it.

Dagster limits concurrency by run tags, but runs of a backfill, of the UI and re-executions do not carry tags of their
partition's table (dagster-io/dagster#15752). Here every run gets the tag `cdc/table` as it enters the queue, and
`dagster.yaml` limits that tag to one; `cdc/changefeed` lets the sensor find the changefeed's runs. It only saves work:
order is guaranteed by the progress in the lake, so runs that bypass the queue (`dagster asset materialize`, ranges of
partitions in one run) are as safe.
"""

from __future__ import annotations

import re

# Dagster documents custom coordinators and exports their base only from here.
from dagster._core.run_coordinator import QueuedRunCoordinator, SubmitRunContext
from dagster._core.storage.dagster_run import DagsterRun
from dagster._core.storage.tags import PARTITION_NAME_TAG

CHANGEFEED_TAG, TABLE_TAG = "cdc/changefeed", "cdc/table"
"""The tag by which the queue limits runs. A table is written as in its partition keys."""

TABLES_TAG, ATTEMPT_TAG = "cdc/tables", "cdc/attempt"
"""For people: the number of tables in a run, and the number of the attempt."""

GAVE_WAY_TAG = "cdc/gave_way"
"""Tag of a run that left windows to a later one because another run waited: they have not failed."""

_PARTITION = re.compile(r"(?P<table>[^@]+)@\d{20}")


class TableSerializingRunCoordinator(QueuedRunCoordinator):
    """Dagster's queue, with the tags `cdc/table` and `cdc/changefeed` on every run of a partition of a changefeed."""

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """Tag the run with its table, then queue it; runs without such a partition are queued as they are."""
        run = context.dagster_run
        table = table_of(run.tags.get(PARTITION_NAME_TAG, ""))
        feeds = {key.path[0] for key in run.asset_selection or () if key.path[1:] in (["ddl"], ["dml"])}
        tags = {TABLE_TAG: table, CHANGEFEED_TAG: feeds.pop() if len(feeds) == 1 else None} if table else {}
        if new := {name: value for name, value in tags.items() if value and name not in run.tags}:
            self._instance.add_run_tags(run.run_id, new)
        return super().submit_run(context)


def table_of(partition_key: str) -> str | None:
    """Return the `schema.table` of a partition key `schema.table@<version in 20 digits>`, None for any other key.

    It is what `partitions.format_table` writes.
    """
    match = _PARTITION.fullmatch(partition_key)
    return match["table"] if match else None
