"""How landed messages were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cdc_assets.formats.message_options import MessageOptions

__all__ = ["OPTIONS", "LandedOptions"]

_NUMBERED_MEMBERS = ("craft", "open-protocol")


@dataclass(frozen=True, slots=True)
class LandedOptions:
    """Messages of a topic as splits."""

    format: ClassVar[str] = "landed"
    commit_ts_option: ClassVar[str] = "enable-tidb-extension=true in the sink URI"

    messages: MessageOptions

    @property
    def has_commit_ts(self) -> bool:
        """Tell whether the place of a row is its commit-ts."""
        return not self.messages.by_offset

    @property
    def has_positions(self) -> bool:
        """Tell that windows can be cut: where rows do not tell their commit-ts, landing gave them a place."""
        return True

    @property
    def is_unordered(self) -> bool:
        """Tell whether what comes twice can be taken for something new."""
        return self.messages.is_unordered

    @property
    def timezone(self) -> str:
        """The zone in which TIMESTAMP texts were written."""
        return self.messages.timezone

    @property
    def deletes_have_keys_only(self) -> bool:
        """Tell whether a delete has the key columns only."""
        return self.messages.delete_only_output_handle_key_columns

    @property
    def members_are_numbers(self) -> bool:
        """Tell whether ENUM and SET are written as numbers, whose names the schema has to tell."""
        told_by_canal = self.messages.protocol == "canal-json" and not self.messages.content_compatible
        return told_by_canal or self.messages.protocol in _NUMBERED_MEMBERS


OPTIONS = LandedOptions
