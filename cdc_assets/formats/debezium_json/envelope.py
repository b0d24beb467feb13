"""A message of a connector -> what it says: its payload, and the schema block where it has one.

    {"schema":{…},"payload":{…}}     with the converter's schemas; the block is the same for all rows of a schema
    {…}                              the payload itself, without

Each message says which of both it is. A block is parsed once: rows begin with the same text until a column changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from cdc_assets.formats.json_lines import refuse_half_pairs

__all__ = ["Block", "Field", "Message", "image_of", "opened"]

_BEGINNING = '{"schema":'
_BETWEEN = ',"payload":'
_HEAD = 512
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a schema block: its type, its logical name ("" for none), and what its parameters say.

    `items` is the type of an array's elements; `default` is None for none.
    """

    type: str
    name: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    optional: bool = True
    items: Field | None = None
    default: Any = None

    @property
    def meaning(self) -> str:
        """The logical name, or for a plain field its type."""
        return self.name or self.type


Block = Mapping[str, Field]
"""The columns of a table, in order."""


class Message(NamedTuple):
    """What a message holds. `block` are the columns, empty for a message without schema block or without rows."""

    payload: Any
    block: Block


def opened(data: bytes) -> Message:
    """Return what a key or value holds; raises ValueError for what is not JSON, or has texts that are not UTF-8."""
    text = data.decode()
    found, start = _opened(text)
    if text.find("\\u", start) >= 0:
        refuse_half_pairs(data, found.payload)
    return found


def _opened(text: str) -> tuple[Message, int]:
    """Return what a text holds, and where its payload begins, at the least."""
    if not text.startswith(_BEGINNING) or text[len(_BEGINNING) : len(_BEGINNING) + 1].isspace():
        return _whole(json.loads(text)), 0
    head = _head(text)
    for prefix in _PREFIXES.get(head, ()):
        if text.startswith(prefix):
            return _behind(text, prefix)
    block, stop = _DECODER.raw_decode(text, len(_BEGINNING))
    if not isinstance(block, dict) or not text.startswith(_BETWEEN, stop):
        return _whole(json.loads(text)), 0
    prefix = text[: stop + len(_BETWEEN)]
    _remember(head, prefix)
    return _behind(text, prefix)


def _behind(text: str, prefix: str) -> tuple[Message, int]:
    if text[len(prefix) : len(prefix) + 1].isspace():
        return _whole(json.loads(text)), 0
    payload, stop = _DECODER.raw_decode(text, len(prefix))
    if text[stop:].strip() != "}":
        return _whole(json.loads(text)), 0
    return Message(payload, _block(prefix)), len(prefix)


def _whole(held: Any) -> Message:
    if isinstance(held, dict) and held.keys() <= {"schema", "payload"} and "payload" in held:
        block = held.get("schema")
        return Message(held["payload"], _columns(block) if isinstance(block, dict) else {})
    return Message(held, {})


def image_of(payload: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return the row before or after a change, None where there is none; raises ValueError for what is no row."""
    found = payload.get(name)
    if not isinstance(found, dict | None):
        raise ValueError(f"its {name} is no row")
    return found


# --- schema blocks ----------------------------------------------------------------------------------------------------

_PREFIXES: dict[str, list[str]] = {}
"""The beginning of messages -> all that stands before their payload."""
_KEPT = 512


def _head(text: str) -> str:
    """Return the beginning by which a message is known; that of a short one, as keys are, ends before its payload."""
    return text[:_HEAD] if len(text) > 2 * _HEAD else text[: max(0, text.find(_BETWEEN))]


def _remember(head: str, prefix: str) -> None:
    if sum(map(len, _PREFIXES.values())) >= _KEPT:
        _PREFIXES.clear()
    _PREFIXES.setdefault(head, []).append(prefix)


@lru_cache(maxsize=_KEPT)
def _block(prefix: str) -> Block:
    return _columns(json.loads(prefix[len(_BEGINNING) : -len(_BETWEEN)]))


def _columns(block: Mapping[str, Any]) -> Block:
    for one in block.get("fields") or ():
        if one.get("field") in ("after", "before") and one.get("type") == "struct":
            return {str(column["field"]): _field(column) for column in one["fields"]}
    return {}


def _field(block: Mapping[str, Any]) -> Field:
    items = block.get("items")
    return Field(
        str(block["type"]),
        str(block.get("name") or ""),
        dict(block.get("parameters") or {}),
        bool(block.get("optional")),
        _field(items) if isinstance(items, dict) else None,
        block.get("default"),
    )
