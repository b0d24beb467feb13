"""Events of a landing <-> rows of the landing table.

Beside the messages that are events, each landing adds two of its own: `offsets`, the whole map of next offsets with the
marks and ends, of which the newest counts; and `splits`, what lies where in the files of rows that it added.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cdc_assets.landing.delivery_starts import open_deliveries
from cdc_assets.landing.files import LANDED, OWN_KINDS, PART
from cdc_assets.model.landed import (
    DeliveryEnd,
    EventKind,
    FirstMessage,
    Landed,
    LandedEvent,
    LandedMessage,
    LandedSplit,
    LogStart,
    Stream,
    StreamEnd,
)
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId

__all__ = ["digest_of", "event_rows", "read_event_rows", "with_events"]

_OFFSETS, _SPLITS = OWN_KINDS

ByTopic = dict[str, dict[str, int]]


def event_rows(
    events: Iterable[LandedEvent], state: Landed, splits: Iterable[LandedSplit], before: Landed | None = None
) -> pa.Table:
    """Return the rows of a landing's events: those of messages, then the state, then the splits that it adds.

    Of tables, of which there may be thousands, the state has only those that are otherwise than `before`.
    """
    rows: list[dict[str, Any]] = [_row(event) for event in events]
    rows.append({PART: "events", "kind": _OFFSETS, "query": _format_state(state, before or Landed())})
    listed = [_flat(split) for split in splits]
    if listed:
        rows.append({PART: "events", "kind": _SPLITS, "query": json.dumps(listed)})
    return pa.Table.from_pylist(rows, schema=LANDED)


def _row(event: LandedEvent) -> dict[str, Any]:
    return {
        PART: "events",
        "topic": event.partition.topic,
        "partition": event.partition.number,
        "offset": event.offset,
        "key": event.key,
        "value": event.value,
        "kind": event.kind.value,
        "schema": None if event.table is None else event.table.schema,
        "table": None if event.table is None else event.table.table,
        "position": event.position,
        "query": event.query,
        "type": event.type,
        "reason": event.reason,
        "delivery": event.delivery,
        **{name: getattr(event, name) or None for name in ("source", "source_position", "shape", "commit_ts")},
    }


def with_events(landed: Landed, rows: pa.Table) -> Landed:
    """Return what is landed with more rows of events, which come in the order in which they were landed."""
    events, splits = [*landed.events], [*landed.splits]
    state = landed
    for row in rows.to_pylist():
        if row["kind"] == _OFFSETS:
            state = _parse_state(row["query"], state)
        elif row["kind"] == _SPLITS:
            splits += [_parse_split(one) for one in json.loads(row["query"])]
        else:
            events.append(_event(row))
    return replace(state, identity=landed.identity, events=tuple(events), splits=tuple(splits))


def _event(row: Mapping[str, Any]) -> LandedEvent:
    return LandedEvent(
        EventKind(row["kind"]),
        Partition(row["topic"], row["partition"]),
        row["offset"],
        row["position"] or 0,
        None if row["schema"] is None else TableId(row["schema"], row["table"]),
        row["query"] or "",
        row["type"] or 0,
        row["key"],
        row["value"],
        row["reason"] or "",
        row["source"] or "",
        row["source_position"] or "",
        row["shape"] or "",
        row["commit_ts"] or 0,
        row["delivery"],
    )


# --- the state --------------------------------------------------------------------------------------------------------


def digest_of(offsets: Mapping[Partition, int]) -> str:
    """Return a digest of all next offsets."""
    return hashlib.sha256(json.dumps(_by_topic(offsets), sort_keys=True).encode()).hexdigest()


_NUMBERS = ("next", "marks", "ends", "restarts", "marks_at", "unfinished")
"""The maps of the state from a partition to a number."""
_MAPS: Mapping[str, tuple[Callable[..., Any], int, Callable[..., Any]]] = {
    "began": (TableId, 2, int),
    "expired": (TableId, 2, int),
    "barriers": (Partition, 2, str),
    "unawaited": (Partition, 2, lambda since, until: (since, until)),
    "firsts": (Partition, 2, FirstMessage),
    "newest": (Partition, 2, LandedMessage),
    "starts": (Partition, 2, LogStart),
    "streams": (lambda *key: Stream(Partition(*key[:2]), TableId(*key[2:4]), key[4]), 5, StreamEnd),
    "deliveries": (lambda *key: (Partition(*key[:2]), TableId(*key[2:])), 4, DeliveryEnd),
}
"""Its other maps: what makes a key of fields, how many, and what makes a value of the rest."""
_GROWING = ("began", "streams", "deliveries")
"""Maps by table, of which there may be thousands: of these a landing writes what has changed."""
_ATOMS = (int, str)
_PLAIN = ("proven", "landed_ms", "ignored", "topic_ids", "last", "ahead")


def _format_state(state: Landed, before: Landed) -> str:
    written: dict[str, Any] = {name: _by_topic(getattr(state, name)) for name in _NUMBERS}
    for name in _MAPS:
        known = getattr(before, name) if name in _GROWING else {}
        entries = sorted(getattr(state, name).items())
        written[name] = [[*_flat(key), *_flat(value)] for key, value in entries if known.get(key) != value]
    return json.dumps({**written, **{name: getattr(state, name) for name in _PLAIN}, "sources": state.sources})


def _flat(value: Any) -> list[Any]:
    """Return the numbers and texts of a value, in the order of its fields."""
    if isinstance(value, _ATOMS):
        return [value]
    flat = list[Any]()
    for part in value if isinstance(value, tuple) else [getattr(value, name) for name in value.__match_args__]:
        flat += (part,) if isinstance(part, _ATOMS) else _flat(part)
    return flat


def _parse_state(text: str, landed: Landed) -> Landed:
    state = json.loads(text)
    found: dict[str, Any] = {name: _partitions(state[name]) for name in _NUMBERS}
    for name, (key, width, value) in _MAPS.items():
        entries = {key(*one[:width]): value(*one[width:]) for one in state[name]}
        found[name] = {**getattr(landed, name), **entries} if name in _GROWING else entries
    found["deliveries"] = open_deliveries(found["deliveries"], found["marks"], found["marks_at"])
    return replace(landed, **found, **{name: state[name] for name in _PLAIN}, sources=tuple(state["sources"]))


def _by_topic(values: Mapping[Partition, int]) -> ByTopic:
    found: ByTopic = {}
    for partition, value in sorted(values.items()):
        found.setdefault(partition.topic, {})[str(partition.number)] = value
    return found


def _partitions(by_topic: ByTopic) -> dict[Partition, int]:
    return {Partition(topic, int(number)): value for topic, some in by_topic.items() for number, value in some.items()}


# --- splits -----------------------------------------------------------------------------------------------------------


def _parse_split(values: list[Any]) -> LandedSplit:
    schema, table, topic, number, *rest = values
    return LandedSplit(TableId(schema, table), Partition(topic, number), *rest)


def read_event_rows(landed: Landed, rows: pa.Table, live: Iterable[str]) -> Landed:
    """Return what is landed with more events, and only with splits of files that are still there."""
    there = frozenset(live)
    found = with_events(landed, rows)
    return replace(found, splits=tuple(split for split in found.splits if split.file in there))
