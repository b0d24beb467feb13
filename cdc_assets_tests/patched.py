"""Generated histories as patches: changes that leave out what they do not change, and keys that move.

The same sources as changefeeds write, with their schema files; rows come as records of the tests' own feed, which may
leave any unchanged column out.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cdc_assets.formats import FORMATS
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso
from cdc_assets.sources import SCHEMES
from cdc_assets_tests.generated import Feed
from cdc_assets_tests.histories import KINDS, history
from cdc_assets_tests.record_feed.source import FEEDS, Records
from cdc_assets_tests.source import Col, Row, RowChange, Source, Transaction, Value, normal
from cdc_assets_tests.writer import Publication, Style, Writer

__all__ = ["ADDRESS", "published_patches", "records_feed", "schema_files", "send"]

SAME: list[Any] = []
ADDRESS = "records://patched"


def records_feed(monkeypatch: pytest.MonkeyPatch) -> Records:
    """Return what the feed at ADDRESS has, for one test."""
    monkeypatch.setitem(SCHEMES, "records", "cdc_assets_tests.record_feed")
    monkeypatch.setitem(FORMATS, "records", "cdc_assets_tests.record_feed")
    monkeypatch.setitem(FEEDS, ADDRESS, Records())
    return FEEDS[ADDRESS]


def published_patches(seed: int, toml: Path, records: Records, *, moving: bool) -> Iterator[tuple[Source, Tso]]:
    """Send a generated history to a feed; yield its source at some positions, the last one among them.

    The feed is complete through that position then. Rows that get another key leave nothing out unless `moving`.
    """
    random, style = Random(seed), Style("csv", new=True)
    steps = [("create", random.randbytes(24)) for _ in range(random.randint(1, 3))]
    kinds = ["rows"] * 16 + [*KINDS, "exchange partition"]
    steps += [(random.choice(kinds), random.randbytes(24)) for _ in range(random.randint(12, 40))]
    source, written = history(steps, True), Feed(style, toml)
    print(source.script)  # what pytest shows of a history that fails
    files = schema_files(source, written, style)
    written.close()
    for event in source.log:
        records.schema_files += [file for file in files if file.version == event.ts]
        if isinstance(event, Transaction):
            send(event, files, records, random, moving=moving)
        if random.random() < 0.3:
            records.fence = event.ts
            yield source, event.ts
    records.fence = source.log[-1].ts
    yield source, records.fence


def schema_files(source: Source, feed: Feed, style: Style) -> tuple[SchemaFile, ...]:
    """Return the schema files that a changefeed writes of a source; `feed` is an empty one, by which they are read."""
    writer = Writer(style, lambda below: 0)
    for event in source.log:
        writer.write(event)
    writer.flush()
    feed.publish(Publication(source.log[-1].ts, source.log[-1].ts, writer.files))
    return feed.settings.open_source().listing().schema_files


def send(
    event: Transaction, files: Sequence[SchemaFile], records: Records, random: Random, *, moving: bool = True
) -> None:
    """Send the changes of a transaction, a split for each table or for each row.

    Rows that get another key leave nothing out unless `moving`.
    """
    for table, group in itertools.groupby(
        sorted(event.changes, key=lambda change: str(change.table)), lambda change: change.table
    ):
        table_files = [file for file in files if file.table == table and file.version <= event.ts and file.columns]
        file = max(table_files, key=lambda file: file.version)
        free = {column.name for column in file.columns if column.nullable}
        rows = [*_records(event.ts, list(group), free, random, moving=moving)]
        parts = [rows] if random.random() < 0.7 else [[row] for row in rows]
        for part in parts:
            records.rows(f"{table.schema}/{table.table}", file.version, *part)


def _records(
    ts: Tso, changes: list[RowChange], free: Collection[str], random: Random, *, moving: bool
) -> Iterator[list[Any]]:
    whole = _whole(changes)
    for number, change in enumerate(changes):
        before, after = change.before, change.after
        moved = f"{ts} {change.table} {number}"
        if before is None or after is None:
            yield [*_record("D" if after is None else "I", ts, change, before if after is None else after)]
        elif not change.keyed or ((change.table in whole or not moving) and (change.split or _moves(change))):
            yield [*_record("D", ts, change, before)]
            yield [*_record("I", ts, change, after)]
        elif _moves(change):
            yield [*_record("D", ts, change, before), moved]
            yield [*_record("U", ts, change, _left_out(change, free, random)), moved]
        elif change.split or _spelled_anew(change):
            yield [*_record("U", ts, change, after)]
        else:
            yield [*_record(random.choice("UUP"), ts, change, _left_out(change, free, random))]


def _whole(changes: Sequence[RowChange]) -> set[TableId]:
    """The tables of which a row gets a key that another one had in the same transaction, or that is not primary."""
    left = {(c.table, _key(c, c.before)) for c in changes if c.before is not None}
    entered = [(c.table, _key(c, c.after)) for c in changes if c.after is not None and (c.before is None or _moves(c))]
    return {table for table, key in entered if (table, key) in left} | {c.table for c in changes if not c.primary}


def _key(change: RowChange, row: Row) -> tuple[Value, ...]:
    columns = {column.name: column for column in change.columns}
    return tuple(normal(row[name], columns[name]) for name in change.primary)


def _moves(change: RowChange) -> bool:
    assert change.before is not None
    assert change.after is not None
    return _key(change, change.before) != _key(change, change.after)


def _spelled_anew(change: RowChange) -> bool:
    assert change.before is not None
    assert change.after is not None
    return any(change.before[name] != change.after[name] for name in change.primary)


def _left_out(change: RowChange, free: Collection[str], random: Random) -> dict[str, Any]:
    """Return the row after a change, without most of what it does not change in the columns that are free for that."""
    before, after = change.before, change.after
    assert before is not None
    assert after is not None
    same = [name for name in after if name in free and before[name] == after[name]]
    return {**after, **{name: SAME for name in same if random.random() < 0.8}}


def _record(op: str, ts: Tso, change: RowChange, row: Any) -> Iterator[Any]:
    yield from (op, ts)
    for column in change.columns:
        yield SAME if row[column.name] is SAME else _text(row[column.name], column)


def _text(value: Value, column: Col) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return f"{value:g}" if isinstance(value, float) else str(value)
