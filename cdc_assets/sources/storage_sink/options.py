"""TiCDC's sink URI and changefeed TOML -> how rows and paths are written, and where.

TiCDC's own names, defaults and precedence, read from `pkg/config/sink.go`, `pkg/sink/codec/common/config.go` and
`pkg/cloudstorage/config.go`: the sink URI wins for the parameters that TiCDC binds from it; all others come from TOML.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from cdc_assets.errors import BadSettings
from cdc_assets.formats import FORMATS, Wire, tells_new_rows, wire_class
from cdc_assets.io.storage_uri import display, location, parameters, truth
from cdc_assets.model.schema import TableId
from cdc_assets.sources.changefeed_toml import (
    EventFilter,
    column_selectors,
    document,
    event_filters,
    hides_inserts,
    known_protocol,
    misspelt,
    table,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options that decide how rows and paths are written: the sink URI's parameters and the changefeed TOML, TiCDC's
    defaults.

    `wire` has the options of rows, those of paths follow TiCDC's names. `uri` is the sink URI without parameters and
    login, `location` fsspec's protocol and the path of the prefix. `misspelt` are parameters of the sink URI that
    nobody knows, each with the one that it resembles.
    """

    kind: ClassVar[str] = "storage_sink"
    is_landed: ClassVar[bool] = False

    wire: Wire = field(default_factory=lambda: wire_class("csv")())
    output_raw_change_event: bool = False
    date_separator: str = "day"
    enable_partition_separator: bool = True
    use_table_id_as_path: bool = False
    file_expiration_days: int = 0
    event_filters: tuple[EventFilter, ...] = ()
    misspelt: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    uri: str = field(default="", compare=False)
    location: tuple[str, str] = field(default=("file", ""), compare=False)

    @property
    def store(self) -> str:
        """The fsspec protocol of the bucket."""
        return self.location[0]

    @property
    def protocol(self) -> str:
        """Protocol of the rows, by TiCDC's name."""
        return self.wire.format

    @property
    def writer(self) -> str:
        """TiCDC: nobody else writes such files."""
        return "TiCDC"

    @property
    def retention_days(self) -> int:
        """Days after which TiCDC deletes files, 0 for never."""
        return self.file_expiration_days

    def captures(self, table: TableId) -> bool | None:
        """Return None: a changefeed has rules of a filter, and no lists of tables."""
        return None

    def has_inserts(self, table: TableId) -> bool:
        """Return whether a change of a row of a table means that the feed has its insert, too, and has it once."""
        leaves_old_keys = self.output_raw_change_event and self.wire.deletes_have_keys_only
        return tells_new_rows(self.wire) and not leaves_old_keys and not hides_inserts(self.event_filters, table)


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
    """Return the options by which TiCDC writes, given its sink URI and the path of its changefeed TOML.

    Parameters that TiCDC takes from the TOML alone only fill what the TOML leaves open.
    Raises BadSettings for a missing or unknown protocol and for options that TiCDC refuses.
    """
    config = document(changefeed_config)
    values = parameters(sink_uri)
    options = _typed(_given(config, values, _TOML, _FROM_URI, _FROM_URI_IF_OPEN), _DEFAULTS)
    options["date_separator"] = (options.get("date_separator") or _DEFAULTS.date_separator).lower()
    protocol = known_protocol(options.pop("protocol", None), FORMATS, "a storage sink", "…?protocol=csv")
    kind = wire_class(protocol)
    wire_options = _typed(_given(config, values, kind.toml_options, kind.uri_options), kind())
    if any(field.name == "column_selectors" for field in fields(kind)):  # type: ignore[arg-type]
        wire_options["column_selectors"] = column_selectors(config)
    wire = kind(**wire_options, timezone=tz)  # type: ignore[call-arg]
    if wire.complaint:
        raise _refused(wire.complaint)
    result = SinkOptions(
        **options,
        wire=wire,
        event_filters=event_filters(config),
        misspelt=tuple(misspelt(values, {*_FROM_URI, *_FROM_URI_IF_OPEN, *wire_class(protocol).uri_options})),
        uri=display(sink_uri),
        location=location(sink_uri),
    )
    if result.date_separator not in ("none", "year", "month", "day"):
        raise _refused(f'date-separator is "{result.date_separator}"; TiCDC knows none, year, month, day')
    return result


def _refused(complaint: str) -> BadSettings:
    return BadSettings(f"{complaint}. Give the changefeed TOML exactly as TiCDC has it.")


def _given(
    config: Mapping[str, Any],
    parameters: Mapping[str, str],
    tables: Mapping[str, tuple[str, ...]],
    wins: frozenset[str],
    fills: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the values of some options in TOML and sink URI; of the URI's `wins` override the TOML, `fills` do not."""
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
