"""Where archived topics lie."""

from __future__ import annotations

from pydantic import Field, SecretStr

from cdc_assets.settings.model import Model

__all__ = ["ArchiveSettings"]


class ArchiveSettings(Model):
    """`uri` is their directory in any store, with parameters as in a sink URI; `layout` is how it is laid out."""

    uri: SecretStr = Field(repr=False)
    layout: str = "records"
