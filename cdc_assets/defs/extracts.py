"""Extracts in Dagster: assets with the changes of each hour or day.

extract_assets   an asset for each entry of the setting `extracts`, partitioned by time
extract_sensor   asks for the windows that the feed has passed
window_range     the range of positions of a time window, for `operations.extract`

An asset of a user's that is partitioned by hours or days depends on such an asset by Dagster's default mapping. The
partitions of `ddl` and `dml` are versions of tables, and a mapping of our own is not known where Dagster plans
backfills: outside the code location.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice

import dagster as dg
from dagster._core.execution.backfill import BulkActionStatus
from dagster._core.storage.tags import PARTITION_NAME_TAG, SENSOR_NAME_TAG
from dagster_aws.s3 import S3Resource

from cdc_assets.defs.failures import as_failure
from cdc_assets.defs.metadata import metadata_of
from cdc_assets.defs.names import changes_key, lake_key
from cdc_assets.defs.resources import ConfiguredFeed, read_credentials
from cdc_assets.defs.sensor import UNFINISHED
from cdc_assets.errors import MetadataMissing
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso, last_tso, wall_clock_ms
from cdc_assets.operations.change_files import write_extract
from cdc_assets.operations.extract import extract
from cdc_assets.planning.run_batches import backoff_seconds
from cdc_assets.settings.sections import ExtractSettings

_AT_ONCE = 10
"""Windows that are asked for in a tick."""

_HOUR_MS = 3_600_000
_HOUR, _DAY = 3600, 86_400
"""Seconds after which a window is asked for again whose run failed: at first, and at most."""

_FAILED_RUNS = 1000
"""Failed runs that a tick looks at."""

_FAILED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def window_range(start: datetime, end: datetime) -> tuple[Tso, Tso]:
    """Return the range of positions of a time window: after the first, and through the second.

    The range of a window begins where that of the window before it ends.
    """
    since, until = (last_tso(int(moment.timestamp() * 1000)) for moment in (start, end))
    return since, until


def extract_assets(source: ConfiguredFeed) -> list[dg.AssetsDefinition]:
    """Return an asset for each table of the setting `extracts`. Raises BadSettings."""
    return [_extract_asset(source, name, setting) for name, setting in source.changefeed.extracts.items()]


def _extract_asset(source: ConfiguredFeed, name: str, setting: ExtractSettings) -> dg.AssetsDefinition:
    table = TableId(*name.split(".", 1))

    @dg.asset(
        key=changes_key(source.changefeed, table),
        deps=[lake_key(source.changefeed, table)],
        partitions_def=_partitions(setting),
        group_name=source.group,
        kinds={setting.format},
        owners=list(source.changefeed.owners),
        description=f"The changes of {name} in each {'hour' if setting.every == '1h' else 'day'} of UTC: "
        f"`{setting.out}/<partition>/changes.{setting.format}`. An asset with the same partitions depends on it by "
        "Dagster's default mapping.",
    )
    def changes(context: dg.AssetExecutionContext, s3: S3Resource) -> dg.MaterializeResult[None]:
        since, until = window_range(*context.partition_time_window)
        out = f"{setting.out.rstrip('/')}/{context.partition_key}"

        with as_failure(), source.pipeline(s3) as pipeline:
            changes = partial(extract, pipeline, name, since, until, net=setting.net)
            extraction, rows = write_extract(changes, out, setting.format, setting.options(), again=True)
        figures = metadata_of({**extraction.description(), "dagster/row_count": rows, "out": out})
        return dg.MaterializeResult(metadata=figures)

    return changes


def _partitions(setting: ExtractSettings) -> dg.TimeWindowPartitionsDefinition:
    if setting.every == "1h":
        return dg.HourlyPartitionsDefinition(start_date=setting.since)
    return dg.DailyPartitionsDefinition(start_date=setting.since)


def extract_sensor(
    source: ConfiguredFeed, assets: list[dg.AssetsDefinition], name: str, s3: S3Resource
) -> list[dg.SensorDefinition]:
    """Return the sensor that asks for each window that the feed has passed, where there are `assets`.

    A window whose run failed is asked for again, an hour later at first and then less and less often. One that a run or
    a backfill in progress has is left to that. Once all windows that have ended are there, Dagster's storage is opened
    again when the next one has; the sensor takes no resource as an argument (see `checkpoint_sensor`).
    """
    if not assets:
        return []
    whole_hours = -1

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.assets(*(asset.key for asset in assets)),
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING
        if source.changefeed.sensor_running
        else dg.DefaultSensorStatus.STOPPED,
        description="Asks for the changes of each hour or day that the checkpoint has passed.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        nonlocal whole_hours
        try:
            with source.pipeline(read_credentials(s3)) as pipeline:
                fence = pipeline.source.fence()
        except MetadataMissing as missing:
            return dg.SkipReason(str(missing))
        hours = (wall_clock_ms(fence + 1) - 1) // _HOUR_MS  # windows end with the last TSO of an hour's first ms
        if hours != whole_hours:
            windows = [window for asset in assets for window in _missing(context.instance, asset, fence)]
            due = _due(context.instance, name, windows)
            if due:
                return dg.SensorResult(run_requests=due)
            if not windows:
                whole_hours = hours
        return dg.SkipReason("no window has ended that waits for a run")

    return [sensor]


_Window = tuple[dg.AssetKey, str]
"""An asset, and the key of its partition."""


def _missing(instance: dg.DagsterInstance, asset: dg.AssetsDefinition, fence: Tso) -> Iterator[_Window]:
    """Yield the windows of an asset that the feed has passed and that are not there, oldest first."""
    partitions = asset.partitions_def
    assert isinstance(partitions, dg.TimeWindowPartitionsDefinition)
    done = instance.get_materialized_partitions(asset.key)
    for key in partitions.get_partition_keys():
        if key in done:
            continue
        if window_range(*partitions.time_window_for_partition_key(key))[1] > fence:
            return
        yield asset.key, key


def _due(instance: dg.DagsterInstance, sensor: str, missing: Sequence[_Window]) -> list[dg.RunRequest]:
    """Return requests for the first windows that nothing is writing, and whose runs did not just fail."""
    if not missing:
        return []
    busy = {window for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)) for window in _written_by(run)}
    for backfill in instance.get_backfills(status=BulkActionStatus.REQUESTED):
        data = backfill.asset_backfill_data
        subsets = {} if data is None else data.target_subset.partitions_subsets_by_asset_key
        busy |= {(asset, key) for asset, subset in subsets.items() for key in subset.get_partition_keys()}
    failed = dg.RunsFilter(statuses=_FAILED, tags={SENSOR_NAME_TAG: sensor})
    failures, failed_at, now = Counter[_Window](), dict[_Window, float](), time.time()
    for record in instance.get_run_records(failed, limit=_FAILED_RUNS):  # newest first
        for window in _written_by(record.dagster_run):
            failures[window] += 1
            failed_at.setdefault(window, record.end_time or record.update_timestamp.timestamp())
    retry_times = {window: at + backoff_seconds(failures[window], _HOUR, _DAY) for window, at in failed_at.items()}
    return [
        dg.RunRequest(f"{asset.to_user_string()} {key} {int(now // _HOUR)}", partition_key=key, asset_selection=[asset])
        for asset, key in islice((w for w in missing if w not in busy and retry_times.get(w, now) <= now), _AT_ONCE)
    ]


def _written_by(run: dg.DagsterRun) -> Iterator[_Window]:
    key = run.tags.get(PARTITION_NAME_TAG)
    if key is not None:
        yield from ((asset, key) for asset in run.asset_selection or ())
