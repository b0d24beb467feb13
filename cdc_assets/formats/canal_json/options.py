"""Options with which a Canal-JSON file was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from cdc_assets.formats import MessageOptions

__all__ = ["OPTIONS", "CanalJsonOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanalJsonOptions(MessageOptions):
    """TiCDC's options of its Canal-JSON, by TiCDC's names and with its defaults: a file has what messages have.

    `timezone` is the `--tz` of its server.
    """

    format: ClassVar[str] = "canal-json"
    places: ClassVar[str] = "files"
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

    protocol: str = "canal-json"
    terminator: str = "\r\n"

    def __post_init__(self) -> None:
        if self.content_compatible:  # TiCDC then writes changed columns only
            object.__setattr__(self, "only_output_updated_columns", True)

    @property
    def complaint(self) -> str:
        """The reason why TiCDC refuses these options: none."""
        return ""

    @property
    def has_positions(self) -> bool:
        """Return whether windows can be cut by commit-ts."""
        return self.enable_tidb_extension

    @property
    def members_way(self) -> str:
        """Advice on how to get the names of members: from the messages, or from schema files that have them."""
        return "set content-compatible = true in it, or use TiCDC 8.5.4 or later of the new architecture"


OPTIONS = CanalJsonOptions
