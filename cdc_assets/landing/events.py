"""Events of a landing <-> rows of the landing table.

Beside the messages that are events, each landing adds two of its own: `offsets`, the whole map of next offsets with the
marks and ends, of which the newest counts; and `splits`, what lies where in the files of rows that it added.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, replace
from typing import Any

import pyarrow as pa

from cdc_assets.landing.delivery_starts import open_deliveries
from cdc_assets.landing.files import LANDED, PART
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

_OFFSETS, _SPLITS = "offsets", "splits"

ByTopic = dict[str, dict[str, int]]


def event_rows(
    events: Iterable[LandedEvent], state: Landed, splits: Iterable[LandedSplit], before: Landed | None = None
) -> pa.Table:
    """Return the rows of a landing's events: those of messages, then the state, then the splits that it adds.

    Of tables, of which there may be thousands, the state has only those that are otherwise than `before`.
    """
    rows: list[dict[str, Any]] = [_row(event) for event in events]
    rows.append({PART: "events", "kind": _OFFSETS, "query": _format_state(state, before or Landed())})
    listed = [_split(split) for split in splits]
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
    )


# --- the state --------------------------------------------------------------------------------------------------------


def digest_of(offsets: Mapping[Partition, int]) -> str:
    """Return a digest of all next offsets."""
    return hashlib.sha256(json.dumps(_by_topic(offsets), sort_keys=True).encode()).hexdigest()


def _format_state(state: Landed, before: Landed) -> str:
    return json.dumps(
        {
            "next": _by_topic(state.next),
            "marks": _by_topic(state.marks),
            "ends": _by_topic(state.ends),
            "proven": state.proven,
            "landed_ms": state.landed_ms,
            "began": [
                [table.schema, table.table, at]
                for table, at in sorted(state.began.items())
                if before.began.get(table) != at
            ],
            "ignored": dict(state.ignored),
            "streams": [
                [*one.partition, one.table.schema, one.table.table, one.source, *astuple(end)]
                for one, end in sorted(state.streams.items())
                if before.streams.get(one) != end
            ],
            "sources": state.sources,
            "topic_ids": dict(state.topic_ids),
            "expired": [[one.schema, one.table, at] for one, at in sorted(state.expired.items())],
            "barriers": [[*partition, at] for partition, at in sorted(state.barriers.items())],
            "restarts": _by_topic(state.restarts),
            "marks_at": _by_topic(state.marks_at),
            "deliveries": [
                [*partition, table.schema, table.table, *end]
                for (partition, table), end in sorted(state.deliveries.items())
                if before.deliveries.get((partition, table)) != end
            ],
            "unawaited": [[*partition, *through] for partition, through in sorted(state.unawaited.items())],
            "last": state.last,
            "ahead": state.ahead,
            "firsts": [[*partition, *message] for partition, message in sorted(state.firsts.items())],
            "newest": [[*partition, *message] for partition, message in sorted(state.newest.items())],
            "starts": [[*partition, *astuple(start)] for partition, start in sorted(state.starts.items())],
        }
    )


def _parse_state(text: str, landed: Landed) -> Landed:
    state = json.loads(text)
    streams = {Stream(Partition(*one[:2]), TableId(*one[2:4]), one[4]): StreamEnd(*one[5:]) for one in state["streams"]}
    marks, marks_at = _partitions(state["marks"]), _partitions(state["marks_at"])
    deliveries = {(Partition(*one[:2]), TableId(*one[2:4])): DeliveryEnd(*one[4:]) for one in state["deliveries"]}
    return replace(
        landed,
        next=_partitions(state["next"]),
        marks=marks,
        ends=_partitions(state["ends"]),
        proven=state["proven"],
        landed_ms=state["landed_ms"],
        began={**landed.began, **{TableId(schema, table): at for schema, table, at in state["began"]}},
        ignored=state["ignored"],
        streams={**landed.streams, **streams},
        sources=tuple(state["sources"]),
        topic_ids=state["topic_ids"],
        expired={TableId(schema, table): at for schema, table, at in state["expired"]},
        barriers={Partition(topic, number): at for topic, number, at in state["barriers"]},
        restarts=_partitions(state["restarts"]),
        marks_at=marks_at,
        deliveries=open_deliveries({**landed.deliveries, **deliveries}, marks, marks_at),
        unawaited={Partition(*one[:2]): (one[2], one[3]) for one in state.get("unawaited", ())},
        last=state["last"],
        ahead=state["ahead"],
        firsts={Partition(*one[:2]): FirstMessage(*one[2:]) for one in state["firsts"]},
        newest={Partition(*one[:2]): LandedMessage(*one[2:]) for one in state["newest"]},
        starts={Partition(*one[:2]): LogStart(*one[2:]) for one in state["starts"]},
    )


def _by_topic(values: Mapping[Partition, int]) -> ByTopic:
    found: ByTopic = {}
    for partition, value in sorted(values.items()):
        found.setdefault(partition.topic, {})[str(partition.number)] = value
    return found


def _partitions(by_topic: ByTopic) -> dict[Partition, int]:
    return {Partition(topic, int(number)): value for topic, some in by_topic.items() for number, value in some.items()}


# --- splits -----------------------------------------------------------------------------------------------------------


def _split(split: LandedSplit) -> list[Any]:
    table, partition = split.table, split.partition
    return [table.schema, table.table, partition.topic, partition.number, split.first, split.last, split.low,
            split.high, split.rows, split.size, split.file, split.group, split.written_ms]  # fmt: skip


def _parse_split(fields: list[Any]) -> LandedSplit:
    schema, table, topic, number, *rest = fields
    return LandedSplit(TableId(schema, table), Partition(topic, number), *rest)


def read_event_rows(landed: Landed, rows: pa.Table, live: Iterable[str]) -> Landed:
    """Return what is landed with more events, and only with splits of files that are still there."""
    there = frozenset(live)
    found = with_events(landed, rows)
    return replace(found, splits=tuple(split for split in found.splits if split.file in there))
