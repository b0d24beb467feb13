"""Metrics of a lake as text for Prometheus, and the file from which a node exporter reads them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings
from cdc_assets.operations.landings import landing_status
from cdc_assets.operations.status import lake_status
from cdc_assets.report.metrics import metric_lines

if TYPE_CHECKING:
    from cdc_assets.settings.config import ChangefeedSettings
    from cdc_assets.settings.lake import LakeSettings


def metrics_text(lake: LakeSettings, changefeeds: Iterable[ChangefeedSettings]) -> str:
    """Return the metrics of a lake's tables and landings. The ends of the changefeeds' topics are asked each time.

    Raises CdcError where the lake cannot be read.
    """
    feeds, tables = {feed.name: feed for feed in changefeeds}, lake_status(lake)
    return "".join(f"{line}\n" for line in metric_lines(tables, landing_status(lake, tables, feeds)))


def replace_file(path: Path, text: str) -> None:
    """Write a file beside its place and move it there: readers see the old or the new one."""
    try:
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        raise BadSettings(
            f"{path} cannot be written ({error.strerror}). Give a file in a directory that is there."
        ) from None
