"""The pipeline into an Iceberg lake, whose tables can be rebuilt, maintained and purged, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_assets.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from cdc_assets.lake import Lake


class LakePipeline(Pipeline):
    """One changefeed into one Iceberg lake."""

    lake: Lake
