"""A storage sink's own options and source, for tests that look into them."""

from __future__ import annotations

from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.storage_sink.sink_options import SinkOptions
from cdc_assets.sources.storage_sink.source import Changefeed

__all__ = ["open_changefeed", "sink_options"]


def sink_options(settings: ChangefeedSettings) -> SinkOptions:
    """Return how TiCDC's storage sink writes."""
    options = settings.source_options
    assert isinstance(options, SinkOptions)
    return options


def open_changefeed(settings: ChangefeedSettings) -> Changefeed:
    """Open a bucket."""
    source = settings.open_source()
    assert isinstance(source, Changefeed)
    return source
