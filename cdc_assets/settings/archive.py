"""The location of archived topics."""

from __future__ import annotations

from pydantic import Field, SecretStr

from cdc_assets.settings.model import Model


class ArchiveSettings(Model):
    """`uri` is their directory in any store, with parameters as in a sink URI; `layout` is its layout."""

    inside = "archive"

    uri: SecretStr = Field(repr=False)
    layout: str = "records"
