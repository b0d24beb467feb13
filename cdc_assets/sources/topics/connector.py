"""The settings of a Kafka Connect connector: its own configuration, beside the sink URI or in its parameters.

    kafka://host:port/PREFIX?protocol=debezium-json&time.precision.mode=isostring&binary.handling.mode=hex

The path is `topic.prefix`. The configuration may be given as the file that Kafka Connect has: JSON, as it is posted
(with or without `name` and `config` around it), or lines of `name=value`. Of it only what says how values are written
is kept; parameters of the URI win.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cdc_assets.errors import BadSettings
from cdc_assets.io.storage_uri import parameters

__all__ = ["connector_settings", "topics_of_prefix"]

_MODES: Mapping[str, tuple[str, ...]] = {
    "decimal.handling.mode": ("precise", "double", "string"),
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"),
    "bigint.unsigned.handling.mode": ("long", "precise"),
    "interval.handling.mode": ("numeric", "string"),
    "time.precision.mode": (
        *("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
    ),
    "unavailable.value.placeholder": (),
}
"""What decides how values are written -> its values, () for any."""


def connector_settings(sink_uri: str, configuration: Path | None) -> tuple[tuple[str, str], ...]:
    """Return the settings that say how values are written; raises BadSettings for a mode that no connector has."""
    given = {**_read(configuration), **parameters(sink_uri)}
    found = {name: str(given[name]) for name in _MODES if given.get(name)}
    for name, value in found.items():
        if _MODES[name] and value not in _MODES[name]:
            raise BadSettings(
                f'{name} is "{value}"; known are {", ".join(_MODES[name])}. Give the configuration of the connector as '
                "Kafka Connect has it."
            )
    return tuple(sorted(found.items()))


def topics_of_prefix(prefix: str) -> tuple[str, ...]:
    """Return the patterns of a connector's topics: its own for schema changes, and one for each table."""
    return prefix, f"{prefix}.*"


def _read(configuration: Path | None) -> Mapping[str, Any]:
    if configuration is None:
        return {}
    try:
        text = configuration.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(
            f"the connector's configuration {configuration} cannot be read ({error}). Correct changefeed_config or "
            "--config."
        ) from None
    if not text.lstrip().startswith("{"):
        lines = (line.strip() for line in text.splitlines())
        pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
        return {name.strip(): value.strip() for name, _, value in pairs}
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadSettings(
            f"the connector's configuration {configuration} is not JSON ({error}). Give it as Kafka Connect has it."
        ) from None
    inner = next((document[name] for name in ("config", "connector") if isinstance(document.get(name), dict)), document)
    return {str(name): value for name, value in inner.items()}
