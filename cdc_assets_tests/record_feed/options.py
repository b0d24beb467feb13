"""How a split of records was written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["OPTIONS", "RecordOptions"]


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Lines of JSON; every record has its commit-ts and all values."""

    format: ClassVar[str] = "records"
    commit_ts_option: ClassVar[str] = "nothing: records have it"
    timezone: str = "UTC"
    has_commit_ts: bool = True
    has_positions: bool = True
    is_unordered: bool = False
    deletes_have_keys_only: bool = False
    members_are_numbers: bool = False
    members_way: str = ""


OPTIONS = RecordOptions
