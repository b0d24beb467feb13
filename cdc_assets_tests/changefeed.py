"""A storage sink's own options and source, for tests that look into them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cdc_assets.formats import Wire, wire_class
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.storage_sink.options import SinkOptions
from cdc_assets.sources.storage_sink.source import StorageSink

__all__ = ["open_changefeed", "option", "sink_options", "written"]


def sink_options(settings: ChangefeedSettings) -> SinkOptions:
    """Return how TiCDC's storage sink writes."""
    options = settings.source_options
    assert isinstance(options, SinkOptions)
    return options


def open_changefeed(settings: ChangefeedSettings) -> StorageSink:
    """Open a bucket."""
    source = settings.open_source()
    assert isinstance(source, StorageSink)
    return source


def written(protocol: str = "csv", **given: Any) -> SinkOptions:
    """Return options of rows and paths, all others having TiCDC's defaults."""
    kind = wire_class(protocol)
    own = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    wire = kind(**{name: value for name, value in given.items() if name in own})
    return SinkOptions(wire=wire, **{name: value for name, value in given.items() if name not in own})


def option(wire: Wire, name: str, default: Any = None) -> Any:
    """Return an option of a format, the default where that format does not have it."""
    return getattr(wire, name, default)
