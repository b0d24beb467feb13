"""The sensor that writes the metrics of a lake into a file each minute, for a node exporter's textfile collector."""

import dagster as dg

from cdc_assets.errors import BadSettings
from cdc_assets.operations.metrics import metrics_text, replace_file
from cdc_assets.operations.opening import refuse_missing
from cdc_assets.settings.config import Settings

INTERVAL_SECONDS = 60


def metrics_sensors(settings: Settings) -> list[dg.SensorDefinition]:
    """Return the sensor `cdc_metrics` where the settings name a `metrics_file`; it runs from the start.

    A tick fails with the reason where the lake cannot be read or the file cannot be written, so that alerts on old
    values (`node_textfile_mtime_seconds`) and Dagster's page of the sensor agree.
    """
    path = settings.metrics_file
    if path is None:
        return []
    lake = settings.needed_lake()

    @dg.sensor(
        name="cdc_metrics",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Writes the metrics of the lake to {path}, as `cdc-assets metrics --output` does.",
    )
    def sensor() -> dg.SkipReason:
        try:
            refuse_missing(lake)
        except BadSettings as missing:
            return dg.SkipReason(str(missing))
        replace_file(path, metrics_text(lake, settings.changefeeds))
        return dg.SkipReason(f"wrote {path}")

    return [sensor]
