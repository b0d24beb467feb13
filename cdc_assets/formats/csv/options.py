"""How a file of CSV was written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["OPTIONS", "CsvOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """TiCDC's options of its CSV, by TiCDC's names and with its defaults. `timezone` is the `--tz` of its server."""

    format: ClassVar[str] = "csv"
    commit_ts_option: ClassVar[str] = "include-commit-ts = true under [sink.csv] of the changefeed TOML"

    terminator: str = "\r\n"
    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    include_commit_ts: bool = False
    binary_encoding_method: str = "base64"
    output_old_value: bool = False
    output_is_update: bool = True
    output_handle_key: bool = False
    output_field_header: bool = False
    column_selectors: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    timezone: str = "UTC"

    @property
    def has_commit_ts(self) -> bool:
        """Return whether rows carry their commit-ts."""
        return self.include_commit_ts

    @property
    def has_positions(self) -> bool:
        """Return whether windows can be cut by commit-ts."""
        return self.include_commit_ts

    @property
    def is_unordered(self) -> bool:
        """Return whether nothing but the place in the files is known of a row."""
        return not self.include_commit_ts

    @property
    def deletes_have_keys_only(self) -> bool:
        """Return whether the row before an update is not in the file."""
        return not self.output_old_value

    @property
    def members_are_numbers(self) -> bool:
        """ENUM and SET are written as the names of their members."""
        return False


OPTIONS = CsvOptions
