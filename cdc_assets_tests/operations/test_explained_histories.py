"""What is told of rows of generated histories is exactly what the source did to them, through every DDL in between."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import BadSettings
from cdc_assets.model.explanation import RowExplanation
from cdc_assets.model.schema import TableId
from cdc_assets.operations.explain import explain
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.generated import Feed
from cdc_assets_tests.landing.test_generated_topics import any_history, any_style
from cdc_assets_tests.message_writer import marks
from cdc_assets_tests.source import Source, Table, Transaction, Value, normal
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed
from cdc_assets_tests.writer import TOMLS, Style, publications

Change = tuple[int, str, dict[str, tuple[str | None, str | None]]]


@dataclass
class Applied:
    """A history that is applied to a lake."""

    source: Source
    pipeline: Any
    lake: Any

    def explained(self, table: TableId, key: Mapping[str, str]) -> RowExplanation:
        return explain(self.pipeline, self.lake, str(table), list(key.values()))

    def keyed(self) -> Iterator[tuple[TableId, tuple[str, ...]]]:
        """Yield the tables with the columns of their key, () without any."""
        for life, table in self.lake.tables.items():
            if table.name is not None and not life.kind:
                yield table.name, table.schema.key


def text_of(value: Value) -> str | None:
    """A value of the model as it is told."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return plain(str(value))


def plain(text: str | None) -> str | None:
    """A text without the zeros behind a fraction of a second."""
    return text if text is None else re.sub(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d*?)0*$", _fraction, text)


def _fraction(match: re.Match[str]) -> str:
    return f"{match[1]}.{match[2]}" if match[2] else match[1]


class Past:
    """A table of the model as it was after each event, under the names that its columns have in the end."""

    def __init__(self, source: Source, name: TableId) -> None:
        self.life, self.last = next((n, column) for n, column in source.past[-1][1].items() if column.name == name)
        self.states = [(ts, tables.get(self.life)) for ts, tables in source.past]
        self.moved = {event.ts for event in source.log if isinstance(event, Transaction)}
        self.renames = [
            (ts, change) for ts, life, changes in source.column_changes if life == self.life for change in changes
        ]

    def names_at(self, ts: int, key: tuple[str, ...]) -> tuple[str, ...]:
        """Return what the columns of the key were called then."""
        for at, change in reversed(self.renames):
            if at > ts:
                key = tuple(change.old if name == change.new else name for name in key)
        return key

    def keys(self, key: tuple[str, ...]) -> list[dict[str, str]]:
        """Return the values that the key had in any row, in the types of the end."""
        keys = {}
        for ts, table in self.states:
            names = self.names_at(ts, key)
            for row in table.rows.values() if table is not None else ():
                if "" not in names and all(row.get(name) is not None for name in names):
                    values = {key_column: text_of(row[name]) or "" for key_column, name in zip(key, names, strict=True)}
                    keys[tuple(self.normal(values).values())] = values
        return list(keys.values())

    def normal(self, key: Mapping[str, str]) -> dict[str, Value]:
        columns = {col.name: col for col in self.last.columns}
        return {name: normal(value, columns[name]) for name, value in key.items()}

    def row(self, ts: int, table: Table | None, key: Mapping[str, str]) -> Mapping[str, Value] | None:
        names = self.names_at(ts, tuple(key))
        wanted = self.normal(key)
        for row in table.rows.values() if table is not None else ():
            values = {key_column: text_of(row.get(name)) for key_column, name in zip(key, names, strict=True)}
            if None not in values.values() and self.normal({n: v or "" for n, v in values.items()}) == wanted:
                return row
        return None

    def changes(self, key: Mapping[str, str]) -> list[Change]:
        """Return what transactions did to the row of a key."""
        changes: list[Change] = []
        before: Mapping[str, Value] | None = None
        for ts, table in self.states:
            after = self.row(ts, table, key)
            if ts in self.moved and before != after:
                kind = "delete" if after is None else "insert" if before is None else "update"
                names = dict.fromkeys([*(before or {}), *(after or {})])
                pairs = {name: (text_of((before or {}).get(name)), text_of((after or {}).get(name))) for name in names}
                whole = before is None or after is None
                changes.append((ts, kind, {name: pair for name, pair in pairs.items() if whole or pair[0] != pair[1]}))
            before = after
        return changes


def check(applied: Applied, chance: random.Random, most: int, *, by_log: bool = False) -> int:
    """Compare what is told of some keys with what the model did; return of how many.

    A log has all values in the columns of now.
    """
    count = 0
    for name, key in applied.keyed():
        past = Past(applied.source, name)
        if not key:
            with pytest.raises(BadSettings, match="has no key"):
                applied.explained(name, {})
            continue
        keys = past.keys(key)
        for key_values in chance.sample(keys, min(most, len(keys))):
            explanation = applied.explained(name, key_values)
            after = max(
                (int(text) for sentence in explanation.gone for text in re.findall(r"^before (\d+) the key", sentence)),
                default=0,
            )
            assert [sentence for sentence in explanation.gone if not sentence.startswith("before ")] == []
            wanted = [change for change in past.changes(key_values) if change[0] > after]
            known = {change[0] for change in wanted} if by_log else set()  # of columns that were dropped since
            explained_changes = [
                (change.position, change.kind, {n: (plain(a), plain(b)) for n, (a, b) in change.changed.items()})
                for change in explanation.changes
                if change.position in past.moved  # a DDL's effect is told as its own
                if change.changed or change.position in known  # else it was deleted and inserted again as it was
            ]
            if by_log:
                assert [change[:2] for change in explained_changes] == [change[:2] for change in wanted], (
                    name,
                    key,
                    key_values,
                )
            else:
                assert explained_changes == wanted, (name, key, key_values)
            row = past.row(past.states[-1][0], past.last, key_values)
            shown = None if explanation.row is None else {n: plain(value) for n, value in explanation.row.items()}
            assert shown == (None if row is None else {n: text_of(value) for n, value in row.items()}), (
                name,
                key,
                key_values,
            )
            count += 1
    return count


def any_bucket_style(chance: random.Random) -> Style:
    new = chance.random() < 0.5
    return Style(
        chance.choice(sorted(TOMLS)),
        new,
        chance.random() < 0.5,
        chance.random() < 0.5,
        3 if new and chance.random() < 0.5 else 0,
    )


def of_bucket(seed: int, tomls: Mapping[str, Path], histories: Mapping[str, object]) -> Iterator[Applied]:
    chance = random.Random(seed)
    style = any_bucket_style(chance)
    source = any_history(chance, style.old_values)
    print(f"{style}\n{source.script}")  # what pytest shows of a history that fails
    more = {"history": histories} if histories else {}
    feed = Feed(style, tomls[style.rendering], **more)
    try:
        for publication in publications(source, style, Picks(chance.randbytes(600))):
            feed.apply(publication)
        yield Applied(source, feed.pipeline, feed.lake)
    finally:
        feed.close()


def of_topic(seed: int, directory: Path) -> Applied:
    chance = random.Random(seed)
    source, style = any_history(chance), any_style(chance)
    print(f"{style}\n{source.script}")
    toml = directory / "changefeed.toml"
    toml.write_text(style.toml)
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri=style.uri, changefeed_config=toml, name="c")
    for _ in marks(source, style, Picks(chance.randbytes(600)), log):
        if chance.random() < 0.5:
            feed.apply()
    feed.apply()
    return Applied(source, feed.pipeline(), feed.lake)


QUICK = (3, 6)
"""Histories with DDL between the changes of a row."""


@pytest.mark.parametrize("histories", [{}, {"*.*": "log"}], ids=["input", "log"])
@pytest.mark.parametrize("seed", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.soak) for n in range(1, 42)])
def test_the_changes_of_keys_of_a_generated_history_are_told(
    seed: int, histories: Mapping[str, object], tomls: Mapping[str, Path]
) -> None:
    for applied in of_bucket(seed, tomls, histories):
        check(applied, random.Random(seed), 5, by_log=bool(histories))


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.soak) for n in range(1, 42)])
def test_the_changes_of_keys_of_a_generated_history_in_topics_are_told(seed: int, tmp_path: Path) -> None:
    check(of_topic(seed, tmp_path), random.Random(seed), 5)
