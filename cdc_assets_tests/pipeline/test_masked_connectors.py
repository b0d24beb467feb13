"""Masked columns of Debezium's connectors: no message of theirs leaves a value anywhere, of whatever kind it is.

Values are looked for as messages have them: in images before and after, snapshots, keys and those of tombstones, texts
and columns of schema changes, signals, logical messages and what is damaged.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc_assets_tests.canaries import distinctive, found_in, tokens_of
from cdc_assets_tests.connector_topics import Recording, recordings
from cdc_assets_tests.landing.test_connectors import recorded_feed
from cdc_assets_tests.masked import KEY
from cdc_assets_tests.pipeline.test_bad_streams import Sent, line_of
from cdc_assets_tests.pipeline.test_masks import HASHED, SEALED, leaks_of_topics, rows_of
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

Line = dict[str, Any]
Message = tuple[str, Sent]
"""Topic, with key and value."""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_KEY", KEY)


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts and numbers of a document, but for names of members."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list):
        for element in value:
            yield from texts_in(element)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


_OWN_WORDS = ("infinity", "__debezium_unavailable_value")
"""What the lake has words of its own for, whatever a row has."""


def values_in(lines: Sequence[Line]) -> set[bytes]:
    """Return the distinctive values of rows that messages have: in images, keys, and what schema changes say."""
    texts, names = set[bytes](), {line["topic"] for line in lines}
    for line in lines:
        parts = [
            json.loads(base64.b64decode(line[name] or "")) if line[name] else {} for name in ("key_b64", "value_b64")
        ]
        key, value = (part.get("payload", part) for part in parts)
        names |= {change["id"] for change in value.get("tableChanges") or ()}
        columns = [
            column.get(name)
            for change in value.get("tableChanges") or ()
            for column in (change.get("table") or {}).get("columns") or ()
            for name in ("enumValues", "defaultValueExpression")
        ]
        keyed = key if "source" in value or not value else None  # that of a schema change names a database
        texts |= {text.encode() for text in texts_in([value.get("before"), value.get("after"), columns, keyed])}
    named = " ".join((*names, *_OWN_WORDS)).encode()
    return {
        text for text in texts if distinctive(text.rstrip(b"0")) and text not in named
    }  # places in a log have zeros


@pytest.mark.soak
@pytest.mark.parametrize("recording", recordings(), ids=str)
def test_no_value_of_a_masked_column_of_recorded_connectors_is_left_anywhere(
    recording: Recording, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (left := tmp_path / "left").mkdir()
    plain = recorded_feed(recording, tmp_path)
    plain.send(lines=recording.lines)
    plain.apply()
    tokens = tokens_of(rows_of(plain.lake).values()) | values_in(recording.lines)
    schemas = {"schemas": tmp_path / "schemas.sql"} if (tmp_path / "schemas.sql").exists() else {}
    masked = recording.feed(privacy=HASHED, quarantine=True, **SEALED, **schemas)
    caplog.set_level("DEBUG")
    assert leaks_of_topics(masked, recording.lines, tokens, left) == []
    assert found_in(caplog.text.encode(), tokens) == []
    assert len(tokens) > 1000


# --- a connector of which every message is here ----------------------------------------------------------------------

PRIVACY: dict[str, Any] = {
    "shop.users.id": HASHED["*.*.*"], "shop.users.mail": HASHED["*.*.*"], "shop.users.note": None,
    "shop.users.card": {"redact": "length"}, "shop.users.free": "drop", "shop.users.kind": {"constant": "-"},
    "shop.users.late": HASHED["*.*.*"], "shop.signal.*": None, "shop.signal.id": HASHED["*.*.*"],
}  # fmt: skip
MEMBERS = ["member-alpha-7431", "member-omega-8842"]
DEFAULT, LATE = "default-mail-55190", "default-late-55191"
CREATE = (
    f"CREATE TABLE `users` (`id` BIGINT PRIMARY KEY, `mail` VARCHAR(80) DEFAULT '{DEFAULT}', `note` TEXT, "
    f"`card` VARBINARY(80), `free` JSON, `kind` ENUM('{MEMBERS[0]}','{MEMBERS[1]}'), `seen` INT)"
)
ALTER = f"ALTER TABLE `users` ADD COLUMN `late` VARCHAR(80) DEFAULT '{LATE}'"
_STRING = {"type": "string", "optional": True}
_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "id": {"type": "int64", "optional": False}, "mail": _STRING, "note": _STRING,
    "card": {"type": "bytes", "optional": True}, "free": {**_STRING, "name": "io.debezium.data.Json"},
    "kind": {**_STRING, "name": "io.debezium.data.Enum", "parameters": {"allowed": ",".join(MEMBERS)}},
    "seen": {"type": "int32", "optional": True}, "late": {**_STRING, "default": LATE},
}  # fmt: skip
_SIGNAL: Mapping[str, Mapping[str, Any]] = {"id": {**_STRING, "optional": False}, "type": _STRING, "data": _STRING}


class Connector:
    """A connector's messages on rows in which no value is twice."""

    def __init__(self, kind: str) -> None:
        self.kind, self.messages, self.place = kind, list[Message](), 0
        self.has_late = False

    def source(self, table: str, phase: str = "false") -> Mapping[str, Any]:
        self.place += 1
        at: Mapping[str, Any] = {"file": "bin.000001", "pos": self.place, "row": 0}
        if self.kind == "postgresql":
            at = {"lsn": self.place, "sequence": json.dumps([str(self.place)] * 2), "schema": "shop"}
        database = "shop" if self.kind == "mysql" else "d"
        made = {"connector": self.kind, "name": "px", "ts_ms": 1000 + self.place, "version": "3.0"}
        return {**made, "db": database, "table": table, "snapshot": phase, **at}

    def image(self, number: int, turn: int = 0) -> dict[str, Any]:
        own = f"{number:03d}7{turn:03d}"
        image: dict[str, Any] = {
            "id": 8800000000 + number, "mail": f"ann{own}@hidden{own}.example", "note": f'say "{own}" never\n{own}',
            "card": base64.b64encode(f"card-{own}-ünï".encode()).decode(), "free": json.dumps({"free": f"free-{own}"}),
            "kind": MEMBERS[number % 2], "seen": 1,
        }  # fmt: skip
        return image | ({"late": f"late-{own}-late"} if self.has_late else {})

    def send(self, op: str, before: Any, after: Any, phase: str = "false", table: str = "users") -> None:
        """Send a change; one of no row is a TRUNCATE."""
        whole = after or before
        payload = {"before": before, "after": after, "source": self.source(table, phase), "op": op, "ts_ms": 1}
        transaction = {"id": "1", "total_order": 1, "data_collection_order": 1} if phase == "false" else None
        types = _SIGNAL if table == "signal" else _FIELDS
        fields = [{**kind, "field": name} for name, kind in types.items() if name in (whole or ())]
        sides = [{"type": "struct", "fields": fields, "field": name} for name in ("before", "after")]
        value = {"schema": {"type": "struct", "fields": sides}, "payload": {**payload, "transaction": transaction}}
        key = None if whole is None else {"schema": {"fields": fields[:1]}, "payload": {"id": whole["id"]}}
        self.messages.append((f"px.shop.{table}", (key, value)))
        if op == "d":
            self.messages.append((f"px.shop.{table}", (key, None)))

    def ddl(self, text: str, phase: str = "false", **default: str) -> None:
        if self.kind != "mysql":
            return
        columns = [
            {"name": name, "typeName": "VARCHAR", "defaultValueExpression": default.get(name), "enumValues": MEMBERS}
            for name in _FIELDS
        ]
        table = {"primaryKeyColumnNames": ["id"], "columns": columns, "comment": None}
        change = {"type": "ALTER", "id": '"shop"."users"', "table": table}
        held = {"source": self.source("users", phase), "databaseName": "shop", "ddl": text, "tableChanges": [change]}
        self.messages.append(("px", ({"databaseName": "shop"}, {**held, "ts_ms": 1})))

    def signal(self, number: int) -> None:
        """Ask by the table for signals to read a row once more."""
        signal_data = {
            "type": "incremental",
            "additional-conditions": [{"filter": f"mail = '{self.image(number)['mail']}'"}],
        }
        row = {"id": f"signal-{number:08d}", "type": "execute-snapshot", "data": json.dumps(signal_data)}
        self.send("c", None, row, table="signal")

    def beside(self, number: int) -> None:
        """Send what is of no row: marks of a transaction, a heartbeat, what an application wrote into the log."""
        for status in ("BEGIN", "END"):
            mark = {"status": status, "id": "1", "event_count": 1, "data_collections": None, "ts_ms": 1}
            self.messages.append(("px.transaction", ({"id": "1"}, mark)))
        self.messages.append(("__debezium-heartbeat.px", ({"serverName": "px"}, {"ts_ms": 1})))
        if self.kind == "postgresql":
            logical_message = {
                "prefix": "audit",
                "content": base64.b64encode(self.image(number)["mail"].encode()).decode(),
            }
            message = {"op": "m", "source": self.source(""), "message": logical_message, "ts_ms": 1}
            self.messages.append(("px.message", ({"prefix": "audit"}, message)))

    def damaged(self, number: int) -> None:
        """Send messages with values that cannot be read, each in another way."""
        for name, value in {
            "seen": "no-{}",
            "id": "no-{}",
            "card": "no-{}",
            "more": "no-{}",
            "mail": ["no-{}"],
        }.items():
            row = self.image(number := number + 1)
            self.send("c", None, row | {name: json.loads(json.dumps(value).replace("{}", row["mail"]))})
        for old, new in (
            (b'"mail":', b'"id":'), (b"ann", b"\xff"), (b'"op": "c"', b'"op": "q"'), (b'"free":', b'"free"'),
            (b'"connector"', b'"connected"'), (b'"table": "users"', b'"table": null'), (b'"optional"', b'"defauld"'),
        ):  # fmt: skip
            self.send("c", None, self.image(number := number + 1))
            topic, (key, value) = self.messages.pop()
            self.messages.append((topic, (key, json.dumps(value).encode().replace(old, new, 1))))
        self.send("c", None, self.image(number + 1))
        topic, (key, value) = self.messages.pop()
        self.messages += [
            (topic, (json.dumps(key)[:-9].encode(), value)),
            (topic, (key, json.dumps(value)[:-9].encode())),
        ]

    def lines(self) -> list[Line]:
        counts: dict[str, int] = {}
        messages = []
        for topic, sent in self.messages:
            offset = counts[topic] = counts.get(topic, -1) + 1
            messages.append(line_of(topic, offset, sent))
        return messages


def said_by(kind: str, *, sound: bool) -> Connector:
    """Return a connector that has sent messages of all kinds, `sound` ones alone or damaged ones too."""
    connector = Connector(kind)
    connector.ddl(CREATE, "first", mail=DEFAULT)
    for number, phase in enumerate(("true", "first_in_data_collection", "last_in_data_collection", "last")):
        connector.send("r", None, connector.image(number), phase)
    for number in range(10, 16):
        connector.send("c", None, connector.image(number))
    connector.beside(10)
    connector.signal(11)
    connector.send("r", None, connector.image(11), "incremental")
    connector.send("u", connector.image(12), connector.image(12, 1))
    connector.send("d", connector.image(13), None)
    connector.send("d", connector.image(14), None)  # its key is another one from here on
    connector.send("c", None, connector.image(20))
    if not sound:
        connector.damaged(40)
    connector.ddl(ALTER, mail=DEFAULT, late=LATE)
    connector.has_late = True
    connector.send("u", connector.image(15), connector.image(15, 1))
    connector.send("c", None, connector.image(21))
    unread = "__debezium_unavailable_value" if kind == "postgresql" else connector.image(21)["note"]
    connector.send("u", None, connector.image(21, 1) | {"note": unread})
    connector.send("t", None, None)
    connector.send("c", None, connector.image(22))
    return connector


@pytest.mark.parametrize("sound", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ["mysql", "postgresql"])
def test_no_value_of_a_masked_column_of_any_message_of_a_connector_is_left_anywhere(
    kind: str, sound: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = said_by(kind, sound=sound).lines()
    tokens = values_in(said_by(kind, sound=True).lines()) | {text.encode() for text in (*MEMBERS, DEFAULT, LATE)}
    images = [Connector(kind).image(number) for number in range(40, 60)]
    tokens |= {text.encode() for text in texts_in(images) if distinctive(text.encode())}
    given: dict[str, Any] = {
        "sink_uri": "kafka://127.0.0.1:9092/px?protocol=debezium-json", "topics": ["px", "px.*", "__debezium*"],
        "history": {"shop.users": ["log", "scd2"]}, "privacy": PRIVACY, "quarantine": not sound,
    }  # fmt: skip
    masked = TopicFeed.of(MemoryLog([]), **given, **SEALED)
    caplog.set_level("DEBUG")
    assert leaks_of_topics(masked, lines, tokens, tmp_path) == []
    assert found_in(caplog.text.encode(), tokens) == []
    filled = {(life.born_as.table, life.kind) for life, table in masked.lake.tables.items() if table.rows.num_rows}
    assert filled >= {("users", ""), ("users", "log"), ("users", "scd2"), ("signal", "")}
