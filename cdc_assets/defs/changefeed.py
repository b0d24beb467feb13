"""One changefeed's definitions, for this project's code location and for any other Dagster project."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._check import CheckError
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource

from cdc_assets.defs.assets import changefeed_assets
from cdc_assets.defs.catch_up import catch_up_job
from cdc_assets.defs.checks import changefeed_checks, table_specs
from cdc_assets.defs.extracts import extract_assets, extract_sensor
from cdc_assets.defs.landing_assets import upstream_assets
from cdc_assets.defs.monitoring import failure_alerts, freshness_sensor, metrics_sensors
from cdc_assets.defs.names import asset_key, keys_name, lake_key
from cdc_assets.defs.operations import operation_job, operation_schedule
from cdc_assets.defs.resources import ConfiguredFeed, S3Credentials, spark_resource
from cdc_assets.defs.sensor import checkpoint_sensor
from cdc_assets.errors import BadSettings
from cdc_assets.features.cuts.defs import cut_schedules, cut_specs
from cdc_assets.features.dumps.defs import dump_spec
from cdc_assets.features.kinds.planning import source_of
from cdc_assets.model.kinds import HISTORY_KINDS
from cdc_assets.model.schema import TableId
from cdc_assets.operations.requests import operations
from cdc_assets.settings.config import ChangefeedSettings, Settings, from_flags
from cdc_assets.settings.lake import LakeSettings

_log = logging.getLogger(__name__)

# Of sensors that are made here; Dagster warns again wherever it copies one, and its version is pinned.
warnings.filterwarnings("ignore", "Parameter `owners` of initializer `SensorDefinition", dg.BetaWarning)

_S3, _SPARK = S3Credentials(), spark_resource()
"""One object each for all changefeeds of a code location, or Dagster refuses to merge the definitions."""


def build_changefeed_defs(
    changefeed: ChangefeedSettings | None = None,
    lake: LakeSettings | str | os.PathLike[str] | None = None,
    s3: S3Resource | None = None,
    pyspark: LazyPySparkResource | None = None,
    **settings: Any,
) -> dg.Definitions:
    """Return assets, checks, jobs and sensors of one changefeed.

    `changefeed` is its settings, which may be given as keywords instead (`name`, `sink_uri`, …: those of
    `changefeeds.yaml`, with paths relative to the working directory); `lake` its lake, or the directory of a local
    one; `s3` the source of the bucket's credentials, the environment by default; `pyspark` a Spark with another
    configuration than the lake's. Nothing of the bucket is read here. Lake tables that runs have seen so far have
    assets of their own; a new one shows its lineage after the code location is reloaded. Raises BadSettings.
    """
    source = _source(changefeed, lake, settings)
    changefeed, name = source.changefeed, source.changefeed.name
    tables = list(_lake_tables(source, source.tables))
    partitions = dg.DynamicPartitionsDefinition(name=keys_name(name))
    job_name = source.group
    catch_up = catch_up_job(source, f"{job_name}_catch_up")
    jobs = [(operation, operation_job(source, operation)) for operation in operations() if operation.job]
    assets, changes = changefeed_assets(source, partitions), extract_assets(source)
    return dg.Definitions(
        assets=[
            *upstream_assets(source),
            *dump_spec(source),
            *assets,
            *cut_specs(source),
            *changes,
            *(table.asset for table in tables),
        ],
        asset_checks=changefeed_checks(source, [spec for table in tables for spec in table.checks]),
        jobs=[
            _partition_job(source),
            catch_up,
            *(job for _, job in jobs),
        ],
        schedules=[
            *cut_schedules(source, catch_up, f"{job_name}_cuts"),
            *(operation_schedule(source, operation, job) for operation, job in jobs if operation.schedule),
        ],
        sensors=[
            checkpoint_sensor(source, partitions, catch_up, f"{job_name}_checkpoint", s3 or _S3),
            *extract_sensor(source, changes, f"{job_name}_extracts", s3 or _S3),
            *([freshness_sensor(source, s3 or _S3)] if changefeed.lag_targets or changefeed.lag_target_seconds else []),
        ],
        resources={"pyspark": pyspark or _SPARK, "s3": s3 or _S3},
        executor=dg.in_process_executor,
    )


def _source(
    changefeed: ChangefeedSettings | None,
    lake: LakeSettings | str | os.PathLike[str] | None,
    settings: Mapping[str, Any],
) -> ConfiguredFeed:
    """Return the changefeed that settings or keywords describe, with its lake; raises BadSettings."""
    if lake is None or (changefeed is not None and settings):
        raise BadSettings(
            "build_changefeed_defs takes a changefeed, as settings or as keywords but not both, and a lake. Give "
            "lake=LakeSettings(…), or the directory of a local one."
        )
    lake = lake if isinstance(lake, LakeSettings) else LakeSettings.from_warehouse(lake)
    return ConfiguredFeed(changefeed or from_flags(**settings).changefeed(), lake)


def _partition_job(source: ConfiguredFeed) -> Any:
    name = source.changefeed.name
    return dg.define_asset_job(
        f"{source.group}_partition",
        selection=dg.AssetSelection.assets(asset_key(name, "ddl"), asset_key(name, "dml")),
        executor_def=dg.in_process_executor,
        description="One version of one table: its DDL, then its rows. A backfill over partitions in any order is "
        "correct, because the lake's own progress decides what is due; what is already applied stays as it is.",
    )


def build_defs(settings: Settings) -> dg.Definitions:
    """Return the definitions of every changefeed of a settings file, with the sensors for failures and metrics."""
    lake = settings.needed_lake()
    names = (changefeed.name for changefeed in settings.changefeeds)
    watching = dg.Definitions(sensors=[failure_alerts(names), *metrics_sensors(settings)])
    return dg.Definitions.merge(*(build_changefeed_defs(feed, lake) for feed in settings.changefeeds), watching)


@dataclass(frozen=True, slots=True)
class _LakeTable:
    """A lake table's asset spec and checks in Dagster."""

    asset: dg.AssetSpec
    checks: tuple[dg.AssetCheckSpec, ...]


def _lake_tables(source: ConfiguredFeed, tables: Iterable[TableId]) -> Iterator[_LakeTable]:
    """Yield the lake tables, except those whose definitions Dagster refuses, which would break every run's loading."""
    for table in tables:
        try:
            yield _LakeTable(_lake_spec(source, table), tuple(table_specs(source, table)))
        except (dg.DagsterError, CheckError, ValueError) as error:
            _log.warning("%s gets no asset and no checks in Dagster, which refuses them: %s", table, error)


def _lake_spec(source: ConfiguredFeed, table: TableId) -> dg.AssetSpec:
    target = source.changefeed.lag_target_of(table)
    namespace = source.changefeed.namespace_of(table.schema)
    beside = source_of(source.changefeed.history_rules, table)
    return dg.AssetSpec(
        lake_key(source.changefeed, table),
        deps=[asset_key(source.changefeed.name, "dml")],
        group_name=source.group,
        kinds={"iceberg", "table"} if beside is None else {"iceberg", "table", beside[1]},
        owners=list(source.changefeed.owners),
        metadata={
            "dagster/table_name": f"{namespace}.{table.table}",
            **({"lag_target_seconds": target} if target is not None else {}),
        },
        description=f"{table} as in the source, through the time in `applied_time`, with the additional column "
        "`_cdc_commit_ts`. Readers of Iceberg format 3 query it (docs/query.md)."
        if beside is None
        else f"{HISTORY_KINDS[beside[1]]} of {beside[0]}, through the time in `applied_time` (docs/history.md).",
    )
