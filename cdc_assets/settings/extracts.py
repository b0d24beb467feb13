"""Which changes are written for each hour or day, for assets that depend on them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Literal

from pydantic import Field, field_serializer, field_validator

from cdc_assets.settings.env import resolved
from cdc_assets.settings.model import Model


class ExtractSettings(Model):
    """The changes of a table for each hour or day (`every`) of UTC since a time, each window below a place of its own.

    `out` is a directory or the prefix of a bucket, to which `out_options` of fsspec give access. With `net` there is
    one row a key.
    """

    inside = "extracts"

    out: str
    since: datetime
    every: Literal["1h", "1d"] = "1h"
    format: Literal["parquet", "jsonl", "csv"] = "parquet"
    net: bool = False
    out_options: dict[str, Any] = Field(default_factory=dict, repr=False)

    @field_validator("since")
    @classmethod
    def _whole(cls, since: datetime) -> datetime:
        moment = since.replace(tzinfo=timezone.utc) if since.tzinfo is None else since.astimezone(timezone.utc)
        if moment.minute or moment.second or moment.microsecond:
            raise ValueError("expected a whole hour, such as 2026-03-31 or 2026-03-31T13:00:00Z")
        return moment

    @field_serializer("out_options")
    def _masked(self, options: dict[str, Any]) -> dict[str, str]:
        return dict.fromkeys(options, "***")

    def options(self) -> dict[str, Any]:
        """Return `out_options` in clear text."""
        return resolved(self.out_options, "out_options")
