"""Which cuts are made by themselves, and how many are kept."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from cdc_assets.settings.model import Model

_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class CutSettings(Model):
    """Which cuts are made by themselves, and how many are kept.

    One is made `every` so many minutes, hours, days or weeks (`30m`, `6h`, `1d`, `1w`), counted from 1970 in UTC; none
    by default. The newest `keep` of those that nobody named are kept; those with a name stay until they are removed.
    `without` are tables that regular cuts leave out, by name, identity or pattern.
    """

    inside = "cuts"

    every: str | None = None
    keep: int = Field(default=30, ge=1)
    without: tuple[str, ...] = ()

    @field_validator("every")
    @classmethod
    def _interval(cls, every: str | None) -> str | None:
        if every is not None and not re.fullmatch(r"[1-9][0-9]{0,4}[mhdw]", every):
            raise ValueError("expected a number of minutes, hours, days or weeks, such as 30m, 6h, 1d or 1w")
        return every

    @property
    def every_seconds(self) -> int | None:
        """The seconds between regular cuts, None where none are made."""
        return None if self.every is None else int(self.every[:-1]) * _SECONDS[self.every[-1]]
