"""How landed messages were written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from cdc_assets.formats.message_options import MessageOptions, Order
from cdc_assets.model.schema import Column

__all__ = ["OPTIONS", "LandedOptions"]


@dataclass(frozen=True, slots=True)
class LandedOptions:
    """Messages of a topic as splits."""

    format: ClassVar[str] = "landed"
    places: ClassVar[str] = "offsets"

    messages: MessageOptions

    @property
    def commit_ts_option(self) -> str:
        """What makes messages carry a commit-ts, "" for a protocol in which none do."""
        extension = "enable-tidb-extension=true in the sink URI"
        return extension if self.messages.kind.order is Order.EXTENSION else ""

    @property
    def has_commit_ts(self) -> bool:
        """Return whether the place of a row is its commit-ts."""
        return not self.messages.by_offset

    @property
    def has_positions(self) -> bool:
        """Return that windows can be cut: rows without a commit-ts got a position at landing."""
        return True

    @property
    def is_unordered(self) -> bool:
        """Return whether what comes twice can be taken for something new."""
        return self.messages.is_unordered

    @property
    def timezone(self) -> str:
        """The zone in which TIMESTAMP texts were written."""
        return self.messages.timezone

    @property
    def deletes_have_keys_only(self) -> bool:
        """Return whether a delete has the key columns only."""
        return self.messages.delete_only_output_handle_key_columns

    @property
    def tells_inserts(self) -> bool:
        """Return whether the image of a new row differs from that of a changed one."""
        return self.messages.kind.tells_inserts

    @property
    def members_are_numbers(self) -> bool:
        """Return whether ENUM and SET are written as numbers, whose names must come from the schema."""
        return self.messages.members_are_numbers

    @property
    def members_way(self) -> str:
        """What brings the names of members: TiCDC writes them into Canal-JSON alone."""
        given = "give its CREATE TABLE in the setting schemas (--schemas)"
        compatible = "set content-compatible = true in the changefeed, or "
        return f"{compatible}{given}" if self.messages.kind.named_by_compatible else given

    @property
    def settings(self) -> Mapping[str, str]:
        """The zone, and what a writer or connector was told of how to write values."""
        return self.messages.settings

    def having(self, settings: Mapping[str, str]) -> LandedOptions:
        """Return the same with other values of these settings."""
        return replace(self, messages=self.messages.having(settings))

    def read_by(self, column: Column) -> Mapping[str, object]:
        """Return what settings make of a column's values, as the protocol says."""
        from cdc_assets.formats.messages import codec_of  # the options of formats are read where no row is

        return codec_of(self.messages).read_by(column, self.messages)


OPTIONS = LandedOptions
