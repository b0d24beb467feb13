"""One changefeed's definitions, for this project's code location and for anybody's own Dagster project."""

from __future__ import annotations

import dagster as dg
from dagster_aws.s3 import S3Resource

from cdc_assets.config import ChangefeedSettings, LakeSettings, Settings
from cdc_assets.defs.assets import changefeed_assets
from cdc_assets.defs.catch_up import catch_up_job
from cdc_assets.defs.checks import changefeed_checks
from cdc_assets.defs.metadata import lake_key
from cdc_assets.defs.resources import Source, spark_resource
from cdc_assets.defs.sensor import checkpoint_sensor
from cdc_assets.model import TableId
from cdc_assets.opening import known_tables

__all__ = ["build_changefeed_defs", "build_defs"]


def build_changefeed_defs(
    changefeed: ChangefeedSettings, lake: LakeSettings, s3: S3Resource | None = None
) -> dg.Definitions:
    """Return assets, check, jobs and sensor of one changefeed.

    Nothing of the bucket is read here. Lake tables that runs have seen so far have assets of their own; a new one shows
    its lineage after the code location is reloaded.
    """
    source = Source(changefeed, lake)
    name = changefeed.name
    partitions = dg.DynamicPartitionsDefinition(name=f"cdc_{name}")
    job_name = "".join(sign if sign.isalnum() else "_" for sign in name)
    catch_up = catch_up_job(source, f"{job_name}_catch_up")
    assets = changefeed_assets(source, partitions)
    by_partition = dg.define_asset_job(
        f"{job_name}_partition",
        selection=dg.AssetSelection.assets([name, "ddl"], [name, "dml"]),
        partitions_def=partitions,
        executor_def=dg.in_process_executor,
        description="One version of one table: its DDL, then its rows.",
    )
    return dg.Definitions(
        assets=[
            dg.AssetSpec(
                [name, "bucket"],
                group_name=job_name,
                kinds={"tidb"},
                description=f"What TiCDC writes to {changefeed.uri}.",
            ),
            *assets,
            *(_lake_spec(source, table, job_name) for table in known_tables(lake, name)),
        ],
        asset_checks=changefeed_checks(source),
        jobs=[by_partition, catch_up],
        sensors=[checkpoint_sensor(source, partitions, catch_up, f"{job_name}_checkpoint")],
        resources={"pyspark": spark_resource(lake), "s3": s3 or S3Resource()},
        executor=dg.in_process_executor,
    )


def build_defs(settings: Settings) -> dg.Definitions:
    """Return the definitions of every changefeed of a settings file."""
    lake = settings.needed_lake()
    return dg.Definitions.merge(*(build_changefeed_defs(changefeed, lake) for changefeed in settings.changefeeds))


def _lake_spec(source: Source, table: TableId, group: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        lake_key(table),
        deps=[dg.AssetKey([source.changefeed.name, "dml"])],
        group_name=group,
        kinds={"iceberg", "table"},
        description=f"{table} as the source has it.",
    )
