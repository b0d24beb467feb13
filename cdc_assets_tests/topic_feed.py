"""A recorded topic as a log, landed and applied: what a broker would hold after some of its lines.

feed = TopicFeed(topic)
feed.send(100)        # the first hundred lines
feed.apply()          # landed, planned, applied to the in-memory lake
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_assets.landing.files import LandingStore
from cdc_assets.landing.landing import Executors, Landing
from cdc_assets.ledger import Ledger
from cdc_assets.model.offsets import Ends, LogEnds, OffsetRange, Partition
from cdc_assets.model.splits import Listing
from cdc_assets.model.tso import Tso
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.topics import message_schema
from cdc_assets.sources.topics.source import TopicsSource
from cdc_assets_tests.cases import differences, expected_tables
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.memory_landing import MemoryStore
from cdc_assets_tests.topics import Topic

__all__ = ["UNSPOKEN", "MemoryLog", "TopicFeed", "archive_of", "sent_again", "settings_of"]

Line = dict[str, Any]


@dataclass
class MemoryLog:
    """A log of lines, as a broker would have it: its ends, asked after a mark, prove what came before.

    `emptied` are partitions of which all messages before an offset expired, and no more came.
    """

    lines: list[Line] = field(default_factory=list)
    proves_ends: bool = True
    end_lookups: int = 0
    ids: dict[str, str] = field(default_factory=dict)
    at_once: int = 50
    emptied: dict[Partition, int] = field(default_factory=dict)

    def ends(self, concerns: Callable[[str], bool]) -> Ends:
        self.end_lookups += 1
        log_ends = {partition: LogEnds(end, end) for partition, end in self.emptied.items()}
        for line in self.lines:
            partition = Partition(line["topic"], line["partition"])
            if concerns(partition.topic):
                known = log_ends.get(partition, LogEnds(line["offset"], line["offset"]))
                log_ends[partition] = LogEnds(min(known.low, line["offset"]), max(known.high, line["offset"] + 1))
        return log_ends

    def read(self, wanted: OffsetRange, batch_bytes: int = 1000) -> Iterator[pa.RecordBatch]:
        lines = [
            line
            for line in self.lines
            if (line["topic"], line["partition"]) == wanted.partition and wanted.start <= line["offset"] < wanted.stop
        ]
        lines.sort(key=lambda line: line["offset"])
        for start in range(0, len(lines), self.at_once):
            yield messages_of_lines(lines[start : start + self.at_once])

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def missing_because(self, topic: str) -> str:
        return ""

    def keeps_deletes_ms(self, topic: str) -> int:
        return 86_400_000


def messages_of_lines(lines: Sequence[Line]) -> pa.RecordBatch:
    """Return recorded lines as messages."""
    rows = [
        {
            "topic": line["topic"],
            "partition": line["partition"],
            "offset": line["offset"],
            "timestamp": line["timestamp_ms"],
            "timestamp_type": "create",
            **{
                name: None if line[f"{name}_b64"] is None else base64.b64decode(line[f"{name}_b64"])
                for name in ("key", "value")
            },
            "headers": [
                {"name": name, "value": None if value is None else base64.b64decode(value)}
                for name, value in line.get("headers", [])
            ],
        }
        for line in lines
    ]
    return pa.RecordBatch.from_pylist(rows, message_schema())


def archive_of(lines: Sequence[Line], directory: Path, name: str = "topic.jsonl.gz") -> Path:
    """Write lines as an archive of the layout `records`."""
    directory.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return directory


def sent_again(lines: Sequence[Line], start: int, stop: int) -> list[Line]:
    """Return lines of which those from `start` to before `stop` come twice, as after a restart of the sender."""
    offsets: dict[tuple[str, int], int] = {}
    sent_lines = []
    for line in (*lines[:stop], *lines[start:stop], *lines[stop:]):
        place = line["topic"], line["partition"]
        offset = offsets.get(place, 0)
        offsets[place] = offset + 1
        sent_lines.append({**line, "offset": offset})
    return sent_lines


class TopicFeed:
    """One recorded topic on its way into an in-memory lake."""

    def __init__(
        self,
        settings: ChangefeedSettings,
        log: MemoryLog | None = None,
        topic: Topic | None = None,
        store: LandingStore | None = None,
    ) -> None:
        self.settings = settings
        self.recorded = topic
        self.store: Any = MemoryStore() if store is None else store
        self.lake = MemoryLake()
        source = settings.open_source()
        assert isinstance(source, TopicsSource)
        self.source = source
        self.log = log or MemoryLog()
        self.ledger = Ledger("sqlite://")
        self.executors: Executors | None = None
        self.landing = self.landed_in()

    @classmethod
    def of(cls, log: MemoryLog, store: LandingStore | None = None, **given: Any) -> TopicFeed:
        """A feed of a log, whose tables had no rows before."""
        return cls(ChangefeedSettings(**{"initial": {"complete": ["*"]}, **given}), log, store=store)

    @classmethod
    def recording(cls, topic: Topic, **given: Any) -> TopicFeed:
        """A feed of a recorded topic, nothing of which is sent yet."""
        return cls(settings_of(topic, **given), topic=topic)

    @property
    def topic(self) -> Topic:
        """The recording."""
        assert self.recorded is not None
        return self.recorded

    def landed_in(self, **given: Any) -> Landing:
        """Open the landing, anew with other options."""
        concerns = self.source.routing.concerns
        given.setdefault("accept_unordered", self.settings.accept_unordered)
        given.setdefault("executors", lambda: self.executors)
        given.setdefault("registry", (self.recorded.registry if self.recorded is not None else {}).get)
        return Landing(lambda: self.log, self.source.options.messages, self.store, concerns, lambda _: b"", **given)

    def send(self, count: int | None = None, lines: Sequence[Line] | None = None) -> None:
        """Let the log hold the first lines of the recording, or of others; all without a number."""
        self.log.lines = list(self.topic.lines if lines is None else lines)[:count]

    def apply(self) -> Outcome:
        """Land and apply what is there."""
        return self.pipeline().apply()

    def pipeline(self) -> Pipeline:
        """Return a pipeline that reads what is landed."""
        self.source.read_from(self.landing.landed, self.store.fetch)
        return Pipeline(self.settings, self.source, self.lake, self.ledger, landing=self.landing)

    def listing(self) -> Listing:
        """What is landed."""
        return self.source.listing()

    def differences(self, directory: Path | None = None, except_for: Collection[str] = ()) -> list[str]:
        """Compare the lake with the source, at its end or as a directory of expected contents has it."""
        expected = self.topic.case.expected() if directory is None else expected_tables(directory)
        mismatches = []
        for name, table in expected.items():
            if str(name) in UNSPOKEN.get(str(self.topic), ()):
                continue
            if name not in self.topic.allowed.tables and str(name) not in except_for:
                skip = self.topic.lost(table) | self.topic.allowed.columns.get(name, frozenset())
                mismatches += differences(table, self.lake.read(name), skip=skip)
        return mismatches

    @property
    def fence(self) -> Tso:
        """Through which TSO that is all."""
        return self.source.fence()


UNSPOKEN = {"C_ddl_tables/debezium": {"db1.rec"}}
"""TiCDC sends no RECOVER TABLE as Debezium: the table begins anew with its next rows, and is called incomplete."""


def settings_of(topic: Topic, **given: Any) -> ChangefeedSettings:
    """Return the settings of a recorded topic on a broker; with `archive` those of one in files."""
    recorded = topic.recorded
    return ChangefeedSettings(
        **{
            "sink_uri": f"kafka://127.0.0.1:9092/{recorded['topic']}?{recorded['sink_uri_params']}"
            + ("&content-compatible=true" if recorded["content_compatible"] else ""),
            "tz": recorded["timezone"],
            "initial": {"complete": ["*"]},
            **({"topics": ["*"]} if "{" in str(recorded["topic"]) else {}),
            **given,
        }
    )
