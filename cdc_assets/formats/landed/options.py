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
        """Tell whether rows carry their commit-ts: all protocols but Canal-JSON without the extension."""
        return self.messages.protocol != "canal-json" or self.messages.enable_tidb_extension

    @property
    def timezone(self) -> str:
        """The zone in which TIMESTAMP texts were written."""
        return self.messages.timezone

    @property
    def deletes_tell_keys_only(self) -> bool:
        """Tell whether a delete has the key columns only."""
        return self.messages.delete_only_output_handle_key_columns

    @property
    def members_are_numbers(self) -> bool:
        """Tell whether ENUM and SET are written as numbers, whose names the schema has to tell."""
        told_by_canal = self.messages.protocol == "canal-json" and not self.messages.content_compatible
        return told_by_canal or self.messages.protocol in _NUMBERED_MEMBERS


OPTIONS = LandedOptions
