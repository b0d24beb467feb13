"""How a file of Canal-JSON was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.model.schema import Column
from cdc_assets.types.families import MEMBERS
from cdc_assets.types.zones import Zone

__all__ = ["OPTIONS", "CanalJsonOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanalJsonOptions:
    """TiCDC's options of its Canal-JSON, by TiCDC's names and with its defaults.

    `timezone` is the `--tz` of its server.
    """

    format: ClassVar[str] = "canal-json"
    places: ClassVar[str] = "files"
    commit_ts_option: ClassVar[str] = "enable-tidb-extension=true in the sink URI"
    uri_options: ClassVar[frozenset[str]] = frozenset(
        {"enable-tidb-extension", "only-output-updated-columns", "content-compatible"}
    )
    toml_options: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "terminator": (),
        "enable-tidb-extension": ("kafka-config", "codec-config"),
        "content-compatible": (),
        "only-output-updated-columns": (),
        "delete-only-output-handle-key-columns": (),
    }

    terminator: str = "\r\n"
    enable_tidb_extension: bool = False
    content_compatible: bool = False
    only_output_updated_columns: bool = False
    delete_only_output_handle_key_columns: bool = False
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if self.content_compatible:  # TiCDC then writes changed columns only
            object.__setattr__(self, "only_output_updated_columns", True)

    @property
    def complaint(self) -> str:
        """What TiCDC refuses in these options: nothing."""
        return ""

    @property
    def has_commit_ts(self) -> bool:
        """Return whether rows carry their commit-ts."""
        return self.enable_tidb_extension

    @property
    def has_positions(self) -> bool:
        """Return whether windows can be cut by commit-ts."""
        return self.enable_tidb_extension

    @property
    def is_unordered(self) -> bool:
        """Return whether nothing but the place in the files is known of a row."""
        return not self.enable_tidb_extension

    @property
    def tells_inserts(self) -> bool:
        """Return whether the image of a new row differs from that of a changed one."""
        return True

    @property
    def deletes_have_keys_only(self) -> bool:
        """Return whether a delete has the key columns only."""
        return self.delete_only_output_handle_key_columns

    @property
    def members_are_numbers(self) -> bool:
        """Return whether ENUM and SET are written as numbers, whose names must come from the schema."""
        return not self.content_compatible

    @property
    def members_way(self) -> str:
        """What brings the names of members: the messages, or schema files with their names."""
        return "set content-compatible = true in it, or use TiCDC 8.5.4 or later of the new architecture"

    @property
    def of_messages(self) -> MessageOptions:
        """The same for messages, which hold the same records."""
        return MessageOptions(
            protocol=self.format,
            enable_tidb_extension=self.enable_tidb_extension,
            content_compatible=self.content_compatible,
            only_output_updated_columns=self.only_output_updated_columns,
            delete_only_output_handle_key_columns=self.delete_only_output_handle_key_columns,
            timezone=self.timezone,
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """The zone, and whether ENUM and SET are names."""
        return {"tz": self.timezone, "content-compatible": str(self.content_compatible).lower()}

    def having(self, settings: Mapping[str, str]) -> CanalJsonOptions:
        """Return the same with other values of these settings."""
        now = {**self.settings, **settings}
        return replace(self, timezone=now["tz"], content_compatible=now["content-compatible"] == "true")

    def read_by(self, column: Column) -> Mapping[str, object]:
        """Return what settings make of a column's texts."""
        if column.type in MEMBERS:
            return {"content-compatible": self.members_are_numbers}
        return {"tz": Zone(self.timezone)} if column.type == "TIMESTAMP" else {}


OPTIONS = CanalJsonOptions
