"""The code location: every changefeed of the settings file that CDC_ASSETS_CONFIG names."""

from __future__ import annotations

import os
import warnings

import dagster as dg

from cdc_assets.cli.demo import demo_settings
from cdc_assets.defs import build_defs
from cdc_assets.settings.config import CONFIG_VARIABLE, load

__all__ = ["defs"]


for _kind in (dg.PreviewWarning, dg.BetaWarning, dg.SupersessionWarning):
    # What is new in Dagster is for who writes this code, not for who runs it; versions are pinned.
    warnings.simplefilter("ignore", _kind)


@dg.definitions
def defs() -> dg.Definitions:
    """Without a settings file it is the demo's changefeed, so that a fresh clone has something to show."""
    return build_defs(load() if os.environ.get(CONFIG_VARIABLE) else demo_settings())
