"""The code location: every changefeed of the file that CDC_ASSETS_CONFIG names, or of `changefeeds.yaml` here."""

from __future__ import annotations

import warnings

import dagster as dg

from cdc_assets.cli.demo import demo_settings
from cdc_assets.defs import build_defs
from cdc_assets.settings.config import has_settings_file, load

for _kind in (dg.PreviewWarning, dg.BetaWarning, dg.SupersessionWarning):
    # Dagster's preview warnings are for developers, not for users; versions are pinned.
    warnings.simplefilter("ignore", _kind)


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions; without a settings file those of the demo's changefeed, so that a fresh clone has one."""
    return build_defs(load() if has_settings_file() else demo_settings())
