"""Rows under a name that its table gave up, while no DDL gives the name to another one: told, and applied to none.

An event filter hides the CREATE TABLE of a table that takes the name, or the RENAME by which one gets it. Where such a
table has the columns of the one before it, TiCDC goes on in the directory of these columns, without a schema file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

T, U = "s.t", "s.u"
MADE, ENDED, CHANGED, AGAIN = (FIRST + (second << 36) for second in range(4))
END: Tso = AGAIN + (1 << 36)

ENDS: dict[str, tuple[str, str, int]] = {
    "DROP TABLE": (T, "DROP TABLE `s`.`t`", 4),
    "RENAME": (U, "RENAME TABLE `s`.`t` TO `s`.`u`", 14),
    "another database": ("x.t", "RENAME TABLE `s`.`t` TO `x`.`t`", 14),
    "DROP DATABASE": ("s.", "DROP DATABASE `s`", 2),
}
"""By what it is called: the table of a DDL, its text, its type."""


class Files:
    """A bucket of files; rows behind the end of their table are in the directory of its columns, old or new."""

    def __init__(self, directory: Path, protocol: str = "csv", *, newest: bool = False) -> None:
        self.feed, self.newest = LittleFeed(directory, protocol), newest
        self.lake, self.ledger = MemoryLake(), Ledger("sqlite://")

    def ddl(self, name: str, at: Tso, text: str, kind: int) -> None:
        self.feed.ddl(name, at, text, kind, columns=not name.endswith("."))

    def row(self, name: str, at: Tso, key: int) -> None:
        directory = AGAIN if at > AGAIN else ENDED if self.newest and at > ENDED else MADE
        self.feed.rows(name, directory, [("I", at, key, "v")])

    def apply(self, through: Tso) -> Outcome:
        self.feed.publish(through)
        settings = self.feed.settings()
        return Pipeline(settings, settings.open_source(), self.lake, self.ledger).apply()


class Messages:
    """A topic of Canal-JSON."""

    def __init__(self, directory: Path) -> None:
        self.log, self._offsets = MemoryLog([]), count()
        uri = "kafka://127.0.0.1:9092/cdc?protocol=canal-json&enable-tidb-extension=true"
        self.feed = TopicFeed.of(self.log, sink_uri=uri, name="c")
        self.lake = self.feed.lake

    def ddl(self, name: str, at: Tso, text: str, kind: int) -> None:
        self._send(name, at, isDdl=True, type="QUERY", sql=text)

    def row(self, name: str, at: Tso, key: int) -> None:
        types = {"mysqlType": {"id": "int", "v": "varchar"}, "sqlType": {"id": 4, "v": 12}}
        self._send(name, at, type="INSERT", pkNames=["id"], data=[{"id": str(key), "v": "v"}], **types)

    def apply(self, through: Tso) -> Outcome:
        self._send(".", through, type="TIDB_WATERMARK", _tidb={"watermarkTs": through})
        return self.feed.apply()

    def _send(self, name: str, at: Tso, **more: Any) -> None:
        schema, _, table = name.partition(".")
        none = dict.fromkeys(("pkNames", "sqlType", "mysqlType", "old", "data"))
        message = {"id": 0, "database": schema, "table": table, **none, "isDdl": False, "es": at >> 18, "ts": 0}
        value = json.dumps({**message, "sql": "", "_tidb": {"commitTs": at}, **more}).encode()
        place = {"topic": "cdc", "partition": 0, "offset": next(self._offsets), "timestamp_ms": 0}
        self.log.lines.append({**place, "key_b64": None, "value_b64": base64.b64encode(value).decode()})


FEEDS: dict[str, Callable[[Path], Files | Messages]] = {
    "csv": Files,
    "canal-json": lambda directory: Files(directory, "canal-json"),
    "the DROP's directory": lambda directory: Files(directory, newest=True),
    "messages": Messages,
}
CASES = [(kind, end) for kind in FEEDS for end in ENDS if end == "DROP TABLE" or "DROP" not in kind]


def begun(feed: Files | Messages, end: str) -> None:
    """A table with a row, and its end."""
    feed.ddl(T, MADE, "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(40))", 3)
    feed.row(T, MADE + 1, 1)
    feed.ddl(ENDS[end][0], ENDED, *ENDS[end][1:])


@pytest.mark.parametrize("step_by_step", [False, True])
@pytest.mark.parametrize(("kind", "end"), CASES)
def test_rows_of_a_table_that_takes_a_name_without_a_ddl_are_told(
    tmp_path: Path, kind: str, end: str, step_by_step: bool
) -> None:
    feed = FEEDS[kind](tmp_path)
    begun(feed, end)
    if step_by_step:
        assert feed.apply(ENDED + 1).complete
    feed.row(T, CHANGED, 2)
    outcome = feed.apply(END)
    if outcome.complete:  # the table is made of the columns that its messages show, where the DROP was known before
        assert feed.lake.read(TableId("s", "t")).column("id").to_pylist() == [2]
        return
    assert any(T in reason for reason in outcome.problems.values())
    for name in feed.lake.names():
        assert 2 not in feed.lake.read(name).column("id").to_pylist()
    assert not feed.apply(END + 1).complete


@pytest.mark.parametrize(("kind", "end"), CASES)
def test_rows_that_come_once_more_behind_the_end_of_their_table_are_none(tmp_path: Path, kind: str, end: str) -> None:
    feed = FEEDS[kind](tmp_path)
    begun(feed, end)
    assert feed.apply(ENDED + 1).complete
    feed.row(T, MADE + 1, 1)
    assert feed.apply(END).complete


@pytest.mark.parametrize("kind", ["csv", "canal-json", "messages"])
def test_rows_of_a_table_whose_name_has_a_ddl_again_are_told_no_more(tmp_path: Path, kind: str) -> None:
    feed = FEEDS[kind](tmp_path)
    begun(feed, "RENAME")
    feed.row(T, CHANGED, 2)
    assert not feed.apply(CHANGED + 1).complete
    feed.ddl(T, AGAIN, "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(40))", 3)
    feed.row(T, AGAIN + 1, 3)
    assert feed.apply(END).complete
    assert feed.lake.read(TableId("s", "t")).column("id").to_pylist() == [3]
