"""How TiCDC's storage sink writes rows and paths."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar

from cdc_assets.formats import Wire, wire_class

__all__ = ["EventFilter", "SinkOptions"]


@dataclass(frozen=True, slots=True)
class EventFilter:
    """What a changefeed leaves out of tables: kinds of events, DDL by their text, rows by an expression."""

    matcher: tuple[str, ...]
    events: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What decides how rows and paths are written: the sink URI's parameters and the changefeed TOML, TiCDC's defaults.

    Field names follow TiCDC's option names. `timezone` is the `--tz` of the TiCDC server. `uri` is the sink URI without
    parameters and login, `location` fsspec's protocol and the path of the prefix.
    """

    kind: ClassVar[str] = "storage_sink"
    is_landed: ClassVar[bool] = False

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
    column_selectors: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    event_filters: tuple[EventFilter, ...] = ()
    timezone: str = "UTC"
    uri: str = field(default="", compare=False)
    location: tuple[str, str] = field(default=("file", ""), compare=False)

    @property
    def store(self) -> str:
        """The fsspec protocol of the bucket."""
        return self.location[0]

    @property
    def wire(self) -> Wire:
        """How rows are written: the options that belong to the protocol."""
        kind = wire_class(self.protocol)
        return kind(**{one.name: getattr(self, one.name) for one in fields(kind)})  # type: ignore[arg-type]

    @property
    def retention_days(self) -> int:
        """After how many days TiCDC deletes files, 0 for never."""
        return self.file_expiration_days
