"""Topics that connectors recorded side by side, with marks: how many lines each had sent when the tables were read.

A directory has `recording.json` with the statements, the connectors' settings and the marks, and a file of lines for
each connector, which is named like its topics' prefix.

    feed, send_until = recorded(directory, "all")
    for mark in marks(directory):
        send_until(mark["lines"]["all"])
        feed.apply()
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

__all__ = ["marks", "recorded"]


def marks(directory: Path) -> Sequence[Mapping[str, Any]]:
    """Return the marks of a recording, in order."""
    mark_documents: Sequence[Mapping[str, Any]] = _document(directory)["marks"]
    return mark_documents


def recorded(
    directory: Path, connector: str, with_lists: bool = True
) -> tuple[TopicFeed, Callable[[int | None], None]]:
    """Return a feed of what a connector sent, and what sends it the lines up to a number.

    `with_lists` gives the feed the settings of the connector, too.
    """
    packed = (directory / f"{connector}.jsonl.gz").read_bytes()
    lines = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
    given = {"connector.class": "MariaDbConnector", **_document(directory)["connectors"][connector]}
    query = "".join(f"&{name}={value}" for name, value in given.items() if with_lists)
    uri = f"kafka://127.0.0.1:9092/{connector}?protocol=debezium-json{query}"
    feed = TopicFeed.of(MemoryLog([]), sink_uri=uri, name="c", initial={})

    def send_until(number: int | None) -> None:
        feed.log.lines[:] = lines[:number]

    return feed, send_until


def _document(directory: Path) -> Any:
    return json.loads((directory / "recording.json").read_text(encoding="utf-8"))
