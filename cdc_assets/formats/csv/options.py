"""Options with which a CSV file was written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from cdc_assets.model.schema import Column
from cdc_assets.model.table_filter import ColumnSelectors
from cdc_assets.types.families import BINARY, CHARACTER, MEMBERS
from cdc_assets.types.zones import Zone

__all__ = ["OPTIONS", "CsvOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """TiCDC's options of its CSV, by TiCDC's names and with its defaults. `timezone` is the `--tz` of its server."""

    format: ClassVar[str] = "csv"
    places: ClassVar[str] = "files"
    commit_ts_option: ClassVar[str] = "include-commit-ts = true under [sink.csv] of the changefeed TOML"
    uri_options: ClassVar[frozenset[str]] = frozenset()
    toml_options: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "terminator": (),
        "delimiter": ("csv",),
        "quote": ("csv",),
        "null": ("csv",),
        "include-commit-ts": ("csv",),
        "binary-encoding-method": ("csv",),
        "output-old-value": ("csv",),
        "output-handle-key": ("csv",),
        "output-field-header": ("csv",),
    }

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
    column_selectors: ColumnSelectors = ()
    timezone: str = "UTC"

    @property
    def complaint(self) -> str:
        """The reason why TiCDC refuses these options, or why rows cannot be read back; "" for none."""
        delimiter, quote, terminator, null = self.delimiter, self.quote, self.terminator, self.null
        if not 1 <= len(delimiter.encode()) <= 3 or set(delimiter) & set("\r\n"):
            return f"delimiter is {delimiter!r}; TiCDC takes 1 to 3 bytes without line breaks"
        if len(quote.encode()) > 1 or quote in ("\r", "\n"):
            return f"quote is {quote!r}; TiCDC takes one character, not a line break, or none"
        if set(quote) & set(delimiter):
            return f"quote {quote!r} is part of delimiter {delimiter!r}; TiCDC refuses that"
        if self.binary_encoding_method not in ("base64", "hex"):
            return f'binary-encoding-method is "{self.binary_encoding_method}"; TiCDC knows base64 and hex'
        if not terminator:
            return "terminator is empty, so records run together and cannot be separated"
        if set(terminator) & set(quote):
            return f"quote {quote!r} is part of terminator {terminator!r}, so records cannot be separated"
        if not quote and set(delimiter) <= set("rn\\"):
            return f"delimiter is {delimiter!r} without quotes, so it is escaped like CR, LF or a backslash"
        if quote and quote in null:
            return f"null is {null!r}, with the quote in it, so NULL cannot be distinguished from a text"
        if terminator in null:
            return f"null is {null!r}, with the terminator in it, so records cannot be separated"
        if re.fullmatch(r"[-+]?(\d|\.\d|inf|nan)[-+.\w]*|true|false", null, re.IGNORECASE):
            return f"null is {null!r}, as which a number or boolean is printed too, so NULL is ambiguous"
        return ""

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
    def tells_inserts(self) -> bool:
        """Return whether the image of a new row differs from that of a changed one."""
        return True

    @property
    def deletes_have_keys_only(self) -> bool:
        """Return whether the row before an update is not in the file."""
        return not self.output_old_value

    @property
    def members_are_numbers(self) -> bool:
        """ENUM and SET are written as the names of their members."""
        return False

    @property
    def members_way(self) -> str:
        """Names are in the rows."""
        return ""

    @property
    def settings(self) -> Mapping[str, str]:
        """The zone, and what CSV has for binary values and NULL."""
        return {
            "tz": self.timezone,
            "binary-encoding-method": self.binary_encoding_method,
            "null": self.null,
        }

    def having(self, settings: Mapping[str, str]) -> CsvOptions:
        """Return a copy with these values of `settings` (name -> text)."""
        now = {**self.settings, **settings}
        return replace(self, timezone=now["tz"], binary_encoding_method=now["binary-encoding-method"], null=now["null"])

    def read_by(self, column: Column) -> Mapping[str, object]:
        """Return the settings that decide a column's values. A number that is not one is refused, whatever NULL is."""
        settings: dict[str, object] = {}
        if column.type == "TIMESTAMP":
            settings["tz"] = Zone(self.timezone)
        if column.type in BINARY:
            settings["binary-encoding-method"] = self.binary_encoding_method
        if column.nullable and column.type in (*BINARY, *CHARACTER, *MEMBERS):
            settings["null"] = self.null
        return settings


OPTIONS = CsvOptions
