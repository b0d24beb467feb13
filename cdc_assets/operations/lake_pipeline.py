"""The pipeline into an Iceberg lake, whose tables can be rebuilt, maintained and purged, too."""

from __future__ import annotations

from cdc_assets.lake import Lake
from cdc_assets.pipeline.pipeline import Pipeline


class LakePipeline(Pipeline):
    """One changefeed into one Iceberg lake."""

    lake: Lake
