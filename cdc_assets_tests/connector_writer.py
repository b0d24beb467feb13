"""A table with a Debezium connector behind it, by PostgreSQL's rules: rows, columns that change, restarts.

source = Source(seed=1, partitions=3)
for _ in range(20):
    source.step()
source.send(broker)          # what is new
source.send_again(broker)    # and after a restart some of it once more
source.rows, source.columns  # what the table holds
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

from cdc_assets_tests.topic_feed import MemoryLog

__all__ = ["TOPIC", "URI", "Source"]

TOPIC, URI = "px.public.t", "kafka://127.0.0.1:9092/px?protocol=debezium-json"
_CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_WIDER = {"int32": "int64", "dec2": "dec4", "float": "double"}
_DIGITS = {"dec2": (2, 10), "dec4": (4, 14)}
_MOST_COLUMNS = 5

Row = dict[str, Any]


class _Event(NamedTuple):
    """A message of the connector; `lsn` is None for one of an incremental snapshot."""

    lsn: int | None
    partition: int
    key: Mapping[str, Any] | None
    value: Mapping[str, Any] | None


@dataclass
class Source:
    """The table, and the messages on it so far."""

    seed: int
    partitions: int = 1
    columns: dict[str, str] = field(default_factory=lambda: {"v": "int32"})
    rows: dict[int, Row] = field(default_factory=dict)
    lsn: int = 100
    events: list[_Event] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._gone: dict[str, str] = {}
        self._seen_without: set[str] = set()
        self._made = 0

    # --- what happens ---

    def step(self) -> None:
        """Do one thing: mostly to a row, now and then to the columns."""
        self.lsn += self.random.randint(1, 5)
        chance = self.random.random()
        if chance < 0.15:
            self._change_columns(chance)
        elif chance < 0.18:
            self.rows.clear()
            self._say("t", None, None)
        else:
            self._change_row()
        if self.partitions == 1 and self.random.random() < 0.07 and self.rows:  # else types may hold it
            chosen = self.random.choice(list(self.rows))
            self._say("r", chosen, self.rows[chosen], incremental=True)

    def _change_columns(self, chance: float) -> None:
        if chance < 0.05 and len(self.columns) < _MOST_COLUMNS:
            self._made += 1
            self._add(f"c{self._made}", self.random.choice(list(_VALUES)))
        elif chance < 0.08 and self.columns:
            name = self.random.choice(list(self.columns))
            self._gone[name] = self.columns.pop(name)
            self._seen_without.discard(name)
            for row in self.rows.values():
                del row[name]
        elif chance < 0.11 and self._gone.keys() & self._seen_without:  # else no message shows that it was gone
            name = self.random.choice(sorted(self._gone.keys() & self._seen_without))
            self._add(name, self._gone.pop(name))
            self.lsn += 1
            self._change_row()  # nothing else shows that it is there again, and NULL
        else:
            for name in [name for name, kind in self.columns.items() if kind in _WIDER][:1]:
                self.columns[name] = _WIDER[self.columns[name]]

    def _add(self, name: str, kind: str) -> None:
        self.columns[name] = kind
        for row in self.rows.values():
            row[name] = None

    def _change_row(self) -> None:
        key, chance = self.random.randint(0, 9), self.random.random()
        if key not in self.rows:
            self.rows[key] = {name: self._value(kind) for name, kind in self.columns.items()}
            self._say("c", key, self.rows[key])
        elif chance < 0.25:
            del self.rows[key]
            self._say("d", key, None)
        elif chance < 0.45:  # its key: a delete and a create at one place of the log
            new = self.random.choice([key for key in range(20) if key not in self.rows])
            self.rows[new] = self.rows.pop(key)
            self._say("d", key, None)
            self._say("c", new, self.rows[new], read_again=())
        else:
            changed = {name: self._value(kind) for name, kind in self.columns.items() if self.random.random() < 0.5}
            self.rows[key].update(changed)
            self._say("u", key, self.rows[key], read_again=tuple(changed))

    def _value(self, kind: str) -> Any:
        return None if self.random.random() < 0.15 else _VALUES[kind](self.random)

    # --- what the connector says ---

    def _say(
        self, op: str, key: int | None, after: Row | None, *, incremental: bool = False, read_again: Any = None
    ) -> None:
        """Send a message; of long values only those of `read_again` are in it, or all without."""
        lsn, phase = (None, "incremental") if incremental else (self.lsn, "false")
        place = {"snapshot": phase, **({} if lsn is None else {"lsn": lsn, "sequence": json.dumps([str(lsn)] * 2)})}
        source = {"connector": "postgresql", "name": "px", "ts_ms": 1000 + self.lsn, "db": "d", **place}
        payload = {
            "before": {"id": key, **dict.fromkeys(self.columns)} if op == "d" else None,
            "after": None if after is None else {"id": key, **self._written(after, read_again)},
            "source": {**source, "schema": "public", "table": "t"},
            "op": op,
        }
        if op != "t" and not incremental:
            self._seen_without |= self._gone.keys()
        block = {"type": "struct", "fields": [self._struct("before"), self._struct("after")]}
        named = None if key is None else {"schema": {"type": "struct", "fields": [_ID]}, "payload": {"id": key}}
        partition = 0 if key is None else zlib.crc32(str(key).encode()) % self.partitions
        self.events.append(_Event(lsn, partition, named, {"schema": block, "payload": payload}))
        if op == "d":
            self.events.append(_Event(lsn, partition, named, None))

    def _struct(self, name: str) -> Mapping[str, Any]:
        fields = [_ID, *(_field(column, kind) for column, kind in self.columns.items())]
        return {"type": "struct", "fields": fields, "optional": True, "field": name}

    def _written(self, row: Row, read_again: Any) -> Row:
        values = {name: _encoded(kind, row[name]) for name, kind in self.columns.items()}
        if read_again is not None:
            left = {name for name, value in row.items() if value == _LONG and name not in read_again}
            values |= dict.fromkeys(left, "__debezium_unavailable_value")
        return values

    # --- where it goes ---

    def send(self, log: MemoryLog) -> None:
        """Send what was not sent before."""
        for event in self.events[self.sent :]:
            self._put(log, event)
        self.sent = len(self.events)

    def send_again(self, log: MemoryLog, most: int = 10) -> None:
        """Send again from some row of the last ones on, as a connector that was killed; but no incremental rows."""
        recent = range(max(0, self.sent - most), self.sent)
        begins = [place for place in recent if self.events[place].lsn is not None and self.events[place].value]
        if not begins:
            return
        start = self.random.choice(begins)
        while start and self.events[start - 1].lsn == self.events[start].lsn:
            start -= 1
        for event in self.events[start : self.sent]:
            if event.lsn is not None:
                self._put(log, event)

    def _put(self, log: MemoryLog, event: _Event) -> None:
        offset = sum(line["partition"] == event.partition for line in log.lines)
        value = event.value and {**event.value, "payload": {**event.value["payload"], "ts_ms": len(log.lines)}}
        texts = [None if part is None else json.dumps(part, separators=(",", ":")) for part in (event.key, value)]
        key, value_text = (None if text is None else base64.b64encode(text.encode()).decode() for text in texts)
        line = {"topic": TOPIC, "partition": event.partition, "offset": offset, "timestamp_ms": 0}
        log.lines.append({**line, "key_b64": key, "value_b64": value_text})


_LONG = "long" * 3
"""A value that the source does not read again with each change of its row."""
_ID = {"type": "int32", "optional": False, "field": "id"}
_VALUES: Mapping[str, Callable[[Random], Any]] = {
    "int32": lambda random: random.randint(-5, 99),
    "int64": lambda random: random.randint(1 << 40, 1 << 41),
    "string": lambda random: random.choice(["a", "ü", "", _LONG, _LONG]),
    "dec2": lambda random: Decimal(random.randint(-999, 999)).scaleb(-2),
    "dec4": lambda random: Decimal(random.randint(-99999, 99999)).scaleb(-4),
    "float": lambda random: 1.5,
    "double": lambda random: random.random(),
}


def _field(name: str, kind: str) -> Mapping[str, Any]:
    if kind not in _DIGITS:
        return {"type": kind, "optional": True, "field": name}
    scale, precision = _DIGITS[kind]
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": _CONNECT_DECIMAL, "parameters": parameters, "optional": True, "field": name}


def _encoded(kind: str, value: Any) -> Any:
    if value is None or kind not in _DIGITS:
        return value
    number = int(value.scaleb(_DIGITS[kind][0]))
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()
