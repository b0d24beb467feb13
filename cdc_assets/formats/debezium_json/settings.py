"""The settings of a connector that decide how its values are written, by its own names and with its defaults."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cdc_assets.formats.message_options import MessageOptions

__all__ = ["ConnectorSettings", "connector_settings"]


@dataclass(frozen=True, slots=True)
class ConnectorSettings:
    """How values are written. `time` is "" for the connector's own default, `unavailable` stands for unchanged ones."""

    decimal: str = "precise"
    binary: str = "bytes"
    bigint_unsigned: str = "long"
    interval: str = "numeric"
    time: str = ""
    unavailable: str = "__debezium_unavailable_value"

    @property
    def unavailable_base64(self) -> str:
        """What stands for an unchanged value among bytes."""
        return base64.b64encode(self.unavailable.encode()).decode()

    def leaves_out(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has a value that only stands for what did not change."""
        placeholders = (self.unavailable, [self.unavailable], self.unavailable_base64)
        return any(value in placeholders for value in row.values())


@lru_cache(maxsize=32)
def connector_settings(options: MessageOptions) -> ConnectorSettings:
    """Return the settings that a feed was given."""
    given = dict(options.connector)
    return ConnectorSettings(
        decimal=given.get("decimal.handling.mode", "precise"),
        binary=given.get("binary.handling.mode", "bytes"),
        bigint_unsigned=given.get("bigint.unsigned.handling.mode", "long"),
        interval=given.get("interval.handling.mode", "numeric"),
        time=given.get("time.precision.mode", ""),
        unavailable=given.get("unavailable.value.placeholder", "__debezium_unavailable_value"),
    )
