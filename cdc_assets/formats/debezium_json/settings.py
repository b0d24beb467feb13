"""The settings of a connector that decide how its values are written, by its own names and with its defaults."""

from __future__ import annotations

import base64
import hashlib
import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.json_records import print_json
from cdc_assets.formats.records import CellKind, Marks, RecordColumn

__all__ = ["ConnectorSettings", "connector_settings"]


@dataclass(frozen=True, slots=True)
class ConnectorSettings:
    """How values are written. `time` is "" for the connector's own default, `unavailable` stands for unchanged ones."""

    decimal: str = "precise"
    binary: str = "bytes"
    bigint_unsigned: str = "long"
    time: str = ""
    unavailable: str = "__debezium_unavailable_value"

    def stand_for_unchanged(self, cells: RecordColumn, kind: str | None = None) -> Marks:
        """Mark values that stand for what the source did not read again, in a field of this type, or in any."""
        known = _placeholders(self.unavailable)
        texts = known.texts if kind in (None, "bytes") else known.texts - {known.in_base64}
        found = cells.are_among(CellKind.TEXT, texts)
        return found | cells.are_among(CellKind.JSON, known.nested) if kind in (None, "array", "map") else found


class _Placeholders(NamedTuple):
    """What stands for an unchanged value: as a text, among bytes, as a map or its JSON, and as an array."""

    in_base64: str
    texts: frozenset[str]
    nested: frozenset[str]


@lru_cache(maxsize=32)
def _placeholders(text: str) -> _Placeholders:
    """Return what a placeholder becomes in columns of several types.

    PostgreSQL's connector sends it in the type of the column: an array of texts or bytes holds it as its one element,
    one of UUIDs a UUID made of it, one of numbers a number for each of its bytes, and a map has it as name and value.
    """
    data = bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()
    shown, coded = data.decode("utf-8", "replace"), base64.b64encode(data).decode()
    named = str(uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3))
    single = [base64.b64encode(bytes([one])).decode() for one in data]
    variable = [{"scale": 0, "value": one} for one in single]
    arrays = ([shown], [coded], [named], [*data], [float(one) for one in data], single, variable)
    in_json = print_json({shown: shown})
    return _Placeholders(coded, frozenset((shown, coded, in_json)), frozenset((*map(print_json, arrays), in_json)))


@lru_cache(maxsize=32)
def connector_settings(options: MessageOptions) -> ConnectorSettings:
    """Return the settings that a feed was given."""
    given = dict(options.connector)
    return ConnectorSettings(
        decimal=given.get("decimal.handling.mode", "precise"),
        binary=given.get("binary.handling.mode", "bytes"),
        bigint_unsigned=given.get("bigint.unsigned.handling.mode", "long"),
        time=given.get("time.precision.mode", ""),
        unavailable=given.get("unavailable.value.placeholder", "__debezium_unavailable_value"),
    )
