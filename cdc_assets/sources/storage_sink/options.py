"""TiCDC's sink URI and changefeed TOML -> how rows and paths are written, and where.

TiCDC's own names, defaults and precedence, read from `pkg/config/sink.go`, `pkg/sink/codec/common/config.go` and
`pkg/cloudstorage/config.go`: the sink URI wins for the parameters that TiCDC binds from it; all others come from TOML.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from cdc_assets.errors import BadSettings
from cdc_assets.formats import FORMATS
from cdc_assets.io.storage_uri import display, location, parameters, truth
from cdc_assets.sources.changefeed_toml import document, known_protocol, member, table
from cdc_assets.sources.storage_sink.sink_options import EventFilter, SinkOptions

__all__ = ["sink_options"]

# --- TiCDC's settings -------------------------------------------------------------------------------------------------

_FROM_URI = (
    "protocol", "enable-tidb-extension", "only-output-updated-columns", "content-compatible", "use-table-id-as-path",
)  # fmt: skip
_FROM_URI_IF_OPEN = ("date-separator", "enable-partition-separator", "output-raw-change-event")
_TOML: Mapping[str, tuple[str, ...]] = {
    "protocol": (),
    "terminator": (),
    "date-separator": (),
    "enable-partition-separator": (),
    "content-compatible": (),
    "only-output-updated-columns": (),
    "delete-only-output-handle-key-columns": (),
    "enable-tidb-extension": ("kafka-config", "codec-config"),
    "delimiter": ("csv",),
    "quote": ("csv",),
    "null": ("csv",),
    "include-commit-ts": ("csv",),
    "binary-encoding-method": ("csv",),
    "output-old-value": ("csv",),
    "output-handle-key": ("csv",),
    "output-field-header": ("csv",),
    "output-raw-change-event": ("cloud-storage-config",),
    "use-table-id-as-path": ("cloud-storage-config",),
    "file-expiration-days": ("cloud-storage-config",),
}
"""Option -> the table below [sink] of the changefeed TOML in which TiCDC has it."""
_DEFAULTS = SinkOptions()


def sink_options(sink_uri: str, changefeed_config: str | os.PathLike[str] | None, tz: str = "UTC") -> SinkOptions:
    """Return how TiCDC writes, given its sink URI and the path of its changefeed TOML.

    Parameters that TiCDC takes from the TOML alone only fill what the TOML leaves open.
    Raises BadSettings for a missing or unknown protocol and for options that TiCDC refuses.
    """
    config = document(changefeed_config)
    sink = table(config, "sink")
    options = {name: value for name, tables in _TOML.items() if (value := member(sink, (*tables, name))) is not None}
    for name, text in parameters(sink_uri).items():
        if text and (name in _FROM_URI or (name in _FROM_URI_IF_OPEN and name not in options)):
            options[name] = text
    typed = {name.replace("-", "_"): _typed(name, value) for name, value in options.items()}
    typed["protocol"] = known_protocol(typed.get("protocol"), FORMATS, "a storage sink", "…?protocol=csv")
    typed["date_separator"] = (typed.get("date_separator") or _DEFAULTS.date_separator).lower()
    if typed.get("content_compatible"):
        typed["only_output_updated_columns"] = True
    result = SinkOptions(
        **typed,
        column_selectors=_column_selectors(sink),
        event_filters=_event_filters(table(config, "filter")),
        timezone=tz,
        uri=display(sink_uri),
        location=location(sink_uri),
    )
    _refuse_what_ticdc_refuses(result)
    return result


def _refuse_what_ticdc_refuses(options: SinkOptions) -> None:
    complaint = ""
    if options.date_separator not in ("none", "year", "month", "day"):
        complaint = f'date-separator is "{options.date_separator}"; TiCDC knows none, year, month, day'
    elif not 1 <= len(options.delimiter.encode()) <= 3 or set(options.delimiter) & set("\r\n"):
        complaint = f"delimiter is {options.delimiter!r}; TiCDC takes 1 to 3 bytes without line breaks"
    elif len(options.quote.encode()) > 1 or options.quote in ("\r", "\n"):
        complaint = f"quote is {options.quote!r}; TiCDC takes one character, not a line break, or none"
    elif set(options.quote) & set(options.delimiter):
        complaint = f"quote {options.quote!r} is part of delimiter {options.delimiter!r}; TiCDC refuses that"
    elif options.binary_encoding_method not in ("base64", "hex"):
        complaint = f'binary-encoding-method is "{options.binary_encoding_method}"; TiCDC knows base64 and hex'
    if complaint:
        raise BadSettings(f"{complaint}. Give the changefeed TOML exactly as TiCDC has it.")


def _typed(name: str, value: Any) -> Any:
    default = getattr(_DEFAULTS, name.replace("-", "_"))
    if isinstance(default, bool):
        return truth(name, value)
    if isinstance(default, int):
        if re.fullmatch(r"-?\d+", str(value)):
            return int(value)
        raise BadSettings(f'{name} is "{value}"; expected a whole number. Correct it in the changefeed TOML.')
    if not isinstance(value, str):
        raise BadSettings(f"{name} is {value!r}; expected a text. Put it in quotes in the changefeed TOML.")
    return value


def _column_selectors(sink: Mapping[str, Any]) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    selectors = sink.get("column-selectors") or []
    try:
        return tuple((tuple(map(str, one["matcher"])), tuple(map(str, one["columns"]))) for one in selectors)
    except (KeyError, TypeError):
        raise BadSettings(
            "column-selectors in the changefeed TOML lack matcher or columns. "
            'Expected [[sink.column-selectors]] with matcher = ["db.table"] and columns = ["*", "!hidden"].'
        ) from None


def _event_filters(filters: Mapping[str, Any]) -> tuple[EventFilter, ...]:
    def texts(one: Mapping[str, Any], *names: str) -> tuple[str, ...]:
        values = [one.get(name) or [] for name in names]
        return tuple(str(text) for value in values for text in ([value] if isinstance(value, str) else value))

    try:
        return tuple(
            EventFilter(
                texts(one, "matcher"),
                tuple(text.lower() for text in texts(one, "ignore-event")),
                texts(one, "ignore-sql"),
                texts(one, *(f"ignore-{rows}-value-expr" for rows in ("delete", "insert", "update-old", "update-new"))),
            )
            for one in filters.get("event-filters") or ()
        )
    except (AttributeError, TypeError):
        raise BadSettings(
            "event-filters in the changefeed TOML are not a list of tables. "
            'Expected [[filter.event-filters]] with matcher = ["db.table"] and ignore-event = ["truncate table"].'
        ) from None
