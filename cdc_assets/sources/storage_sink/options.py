"""TiCDC's sink URI and changefeed TOML -> how rows and paths are written, and where.

TiCDC's own names, defaults and precedence, read from `pkg/config/sink.go`, `pkg/sink/codec/common/config.go` and
`pkg/cloudstorage/config.go`: the sink URI wins for the parameters that TiCDC binds from it; all others come from TOML.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from cdc_assets.errors import BadSettings
from cdc_assets.formats import FORMATS, SinkWire, wire_class
from cdc_assets.io.storage_uri import display, location, parameters, truth
from cdc_assets.sources.changefeed_toml import (
    column_selectors,
    document,
    event_filters,
    known_protocol,
    misspelt,
    table,
)
from cdc_assets.sources.storage_sink.sink_options import SinkOptions

# --- TiCDC's settings -------------------------------------------------------------------------------------------------

_FROM_URI = frozenset({"protocol", "use-table-id-as-path"})
_FROM_URI_IF_OPEN = frozenset({"date-separator", "enable-partition-separator", "output-raw-change-event"})
_TOML: Mapping[str, tuple[str, ...]] = {
    "protocol": (),
    "date-separator": (),
    "enable-partition-separator": (),
    "output-raw-change-event": ("cloud-storage-config",),
    "use-table-id-as-path": ("cloud-storage-config",),
    "file-expiration-days": ("cloud-storage-config",),
}
"""Option of paths -> the table below [sink] of the changefeed TOML in which TiCDC has it."""
_DEFAULTS = SinkOptions()


def sink_options(sink_uri: str, changefeed_config: str | os.PathLike[str] | None, tz: str = "UTC") -> SinkOptions:
    """Return how TiCDC writes, given its sink URI and the path of its changefeed TOML.

    Parameters that TiCDC takes from the TOML alone only fill what the TOML leaves open.
    Raises BadSettings for a missing or unknown protocol and for options that TiCDC refuses.
    """
    config = document(changefeed_config)
    given = parameters(sink_uri)
    options = _typed(_given(config, given, _TOML, _FROM_URI, _FROM_URI_IF_OPEN), _DEFAULTS)
    options["date_separator"] = (options.get("date_separator") or _DEFAULTS.date_separator).lower()
    protocol = known_protocol(options.pop("protocol", None), FORMATS, "a storage sink", "…?protocol=csv")
    result = SinkOptions(
        **options,
        wire=_wire(wire_class(protocol), config, given, tz),
        event_filters=event_filters(config),
        misspelt=tuple(misspelt(given, {*_FROM_URI, *_FROM_URI_IF_OPEN, *wire_class(protocol).uri_options})),
        uri=display(sink_uri),
        location=location(sink_uri),
    )
    if result.date_separator not in ("none", "year", "month", "day"):
        raise _refused(f'date-separator is "{result.date_separator}"; TiCDC knows none, year, month, day')
    return result


def _wire(kind: type[SinkWire], config: Mapping[str, Any], given: Mapping[str, str], tz: str) -> SinkWire:
    """Return the options of a format, which says where TiCDC has each."""
    options = _typed(_given(config, given, kind.toml_options, kind.uri_options), kind())
    if any(field.name == "column_selectors" for field in fields(kind)):  # type: ignore[arg-type]
        options["column_selectors"] = column_selectors(config)
    wire = kind(**options, timezone=tz)  # type: ignore[call-arg]
    if wire.complaint:
        raise _refused(wire.complaint)
    return wire


def _refused(complaint: str) -> BadSettings:
    return BadSettings(f"{complaint}. Give the changefeed TOML exactly as TiCDC has it.")


def _given(
    config: Mapping[str, Any],
    parameters: Mapping[str, str],
    tables: Mapping[str, tuple[str, ...]],
    wins: frozenset[str],
    fills: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return what TOML and sink URI say of some options; of the URI's `wins` override the TOML, `fills` do not."""
    held = {name: table(config, "sink", *below) for name, below in tables.items()}
    toml_options = {name: section[name] for name, section in held.items() if name in section}
    taken = {
        name for name, text in parameters.items() if text and (name in wins or (name in fills - toml_options.keys()))
    }
    return {**toml_options, **{name: parameters[name] for name in taken}}


def _typed(options: Mapping[str, Any], defaults: object) -> dict[str, Any]:
    """Return options by the names of fields, as the types that the defaults have."""
    names = {name: name.replace("-", "_") for name in options}
    return {names[name]: _as_type(name, value, getattr(defaults, names[name])) for name, value in options.items()}


def _as_type(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, bool):
        return truth(name, value)
    if isinstance(default, int):
        if re.fullmatch(r"-?\d+", str(value)):
            return int(value)
        raise BadSettings(f'{name} is "{value}"; expected a whole number. Correct it in the changefeed TOML.')
    if not isinstance(value, str):
        raise BadSettings(f"{name} is {value!r}; expected a text. Put it in quotes in the changefeed TOML.")
    return value
