"""How TiCDC's storage sink writes rows and paths."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SinkOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What decides how rows and paths are written: the sink URI's parameters and the changefeed TOML, TiCDC's defaults.

    Field names follow TiCDC's option names. `timezone` is the `--tz` of the TiCDC server.
    """

    protocol: str = "csv"
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
    enable_tidb_extension: bool = False
    content_compatible: bool = False
    only_output_updated_columns: bool = False
    delete_only_output_handle_key_columns: bool = False
    output_raw_change_event: bool = False
    date_separator: str = "day"
    enable_partition_separator: bool = True
    use_table_id_as_path: bool = False
    file_expiration_days: int = 0
    large_message_handle_compression: str = "none"
    claim_check_raw_value: bool = False
    encoding_format: str = "json"
    column_selectors: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    timezone: str = "UTC"

    @property
    def has_commit_ts(self) -> bool:
        """Tell whether rows carry their commit-ts, without which order and duplicates are known by file only."""
        return self.enable_tidb_extension if self.protocol == "canal-json" else self.include_commit_ts
