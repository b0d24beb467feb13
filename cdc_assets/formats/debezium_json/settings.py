"""The settings of a connector that decide how its values are written, by its own names and with its defaults."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from cdc_assets.formats.message_options import MessageOptions

__all__ = ["ConnectorSettings", "connector_settings"]


@dataclass(frozen=True, slots=True)
class ConnectorSettings:
    """How values are written. `time` is "" for the connector's own default, `unavailable` stands for unchanged ones."""

    decimal: str = "precise"
    binary: str = "bytes"
    bigint_unsigned: str = "long"
    time: str = ""
    unavailable: str = "__debezium_unavailable_value"

    @property
    def stand_ins(self) -> frozenset[str]:
        """Texts that stand for what did not change."""
        return _placeholders(self.unavailable).texts

    def leaves_out(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has a value that only stands for what did not change."""
        known = _placeholders(self.unavailable)
        return any(value in known.texts if type(value) is str else _is_among(value, known) for value in row.values())

    def is_unchanged(self, value: Any, kind: str) -> bool:
        """Return whether a value of a field of this type stands for one that the source did not read again."""
        known = _placeholders(self.unavailable)
        if isinstance(value, str):
            return value in known.texts and (kind == "bytes" or value != known.in_base64)
        return kind in ("array", "map") and _is_among(value, known)


class _Placeholders(NamedTuple):
    """What stands for an unchanged value: as a text, among bytes, as a map or its JSON, and as an array."""

    in_base64: str
    texts: frozenset[str]
    nested: tuple[Any, ...]


def _is_among(value: Any, known: _Placeholders) -> bool:
    return isinstance(value, list | dict) and value in known.nested


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
    arrays = ([shown], [coded], [named], list(data), single, variable)
    held = {shown: shown}
    in_json = json.dumps(held, ensure_ascii=False, separators=(",", ":"))
    return _Placeholders(coded, frozenset((shown, coded, in_json)), (*arrays, held))


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
