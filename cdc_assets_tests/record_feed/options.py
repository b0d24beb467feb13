"""How a split of records was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from cdc_assets.model.schema import Column
from cdc_assets.types.zones import Zone

__all__ = ["OPTIONS", "RecordOptions"]


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Lines of JSON; every record has its commit-ts and all values."""

    format: ClassVar[str] = "records"
    places: ClassVar[str] = "files"
    commit_ts_option: ClassVar[str] = "nothing: records have it"
    timezone: str = "UTC"
    has_commit_ts: bool = True
    has_positions: bool = True
    is_unordered: bool = False
    deletes_have_keys_only: bool = False
    members_are_numbers: bool = False
    tells_inserts: bool = True
    members_way: str = ""

    @property
    def settings(self) -> Mapping[str, str]:
        return {"tz": self.timezone}

    def having(self, settings: Mapping[str, str]) -> RecordOptions:
        return replace(self, timezone=settings.get("tz", self.timezone))

    def read_by(self, column: Column) -> Mapping[str, object]:
        return {"tz": Zone(self.timezone)} if column.type == "TIMESTAMP" else {}


OPTIONS = RecordOptions
