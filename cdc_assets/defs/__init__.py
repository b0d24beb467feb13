"""Dagster's view of a changefeed: thin assets, checks, a sensor and jobs over `pipeline`.

bucket ──────────────▶ ddl ──▶ dml ──▶ one asset for each lake table
topics ──▶ landing ──▶  └─ partitions schema.table@version ─┘
dump ────────────────▶     (what was in the tables before)

    assets            the assets `ddl` and `dml` of a changefeed, partitioned by schema file
    catch_up          many tables in one run
    catch_up_config   the run config of a run over many tables
    changefeed        one changefeed's definitions, for this project and for any other Dagster project
    checks            checks on the changefeed as a whole and on each of its lake tables
    component         the component `cdc_assets.Changefeed`
    development       `dagster dev` on one machine, with what a first look needs
    events            the events that a run over many tables logs
    extracts          the job that writes the changes of a range, and the range of a time window
    failures          reasons of failed runs, from Dagster's event log, and signals that end a run
    instance          a Dagster daemon of our own, and what its runs do
    landing_assets    the assets upstream of `ddl`: the bucket, or topics and what is landed of them
    lost_runs         runs whose process is gone, and nobody noticed
    metadata          what Dagster shows of a partition, a window's report and a lake table
    monitoring        sensors: failed runs to a webhook, metrics into a file, tables that are late
    names             every name and partition key that Dagster is given, derived in one place
    operations        jobs and schedules of operations, with their launch forms; those of maintenance and rebuild
    resources         Spark from dagster-pyspark, S3 credentials from dagster-aws, and the pipeline over both
    sensor            the sensor on the checkpoint
    watching          what the sensor looks at, kept between its looks
"""

from __future__ import annotations

from cdc_assets.defs.changefeed import build_changefeed_defs, build_defs

__all__ = ["build_changefeed_defs", "build_defs"]
