"""The component `cdc_assets.Changefeed`: a changefeed in a `defs.yaml`, with the settings of `changefeeds.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field, SecretStr, create_model

from cdc_assets.defs.changefeed import build_changefeed_defs
from cdc_assets.settings.config import ChangefeedSettings, settings_of


class Changefeed(dg.Component):
    """One changefeed, applied to Iceberg tables: assets, checks, jobs and sensors.

    `attributes` are `lake` and the settings of one changefeed as in `changefeeds.yaml`; paths are relative to the
    folder of the `defs.yaml`. The definitions are those of `build_changefeed_defs`.
    """

    def __init__(self, settings: Mapping[str, Any], directory: Path) -> None:
        self.settings = settings_of(settings, directory)

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Return the schema of `attributes`."""
        lake = Field(description="The tables' location: `warehouse`, and `catalog` unless that is a local directory.")
        fields: dict[str, Any] = {"lake": (dict[str, Any], lake)}
        for name, field in ChangefeedSettings.model_fields.items():
            kind = field.annotation
            # A value may be a template, {{ env.NAME }}; it is checked in full once that is resolved.
            fields[name] = (
                str if kind is SecretStr else kind | str,
                Field(... if field.is_required() else None, description=f"As `{name}` in changefeeds.yaml."),
            )
        return create_model("ChangefeedAttributes", __config__=ConfigDict(extra="forbid"), **fields)

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Changefeed:
        """Return the component of a `defs.yaml`, its templates resolved. Raises BadSettings."""
        settings_given = attributes.model_dump(mode="json", exclude_unset=True) if attributes is not None else {}
        scope = context.resolution_context.at_path("attributes")
        settings = {name: scope.resolve_value(value) for name, value in settings_given.items()}
        lake = settings.pop("lake", None)
        return cls({"lake": lake, "changefeeds": [settings]}, Path(context.path))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the changefeed's definitions."""
        return build_changefeed_defs(self.settings.changefeeds[0], self.settings.needed_lake())
