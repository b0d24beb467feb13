"""Small files put together by the writer of windows: the same rows, row ids and label, in few files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from cdc_assets.lake import Lake, compaction, windows
from cdc_assets.lake.chores import is_overdue
from cdc_assets.lake.commit import CommitTarget, data_file
from cdc_assets.lake.compaction import compact
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import AddColumn, RenameColumn
from cdc_assets_tests.lake.table_source import ID, NOTE, Source

PRICE = Column("price", "DECIMAL", precision=9, scale=2)
MOMENT = Column("moment", "TIMESTAMP")
SCHEMA = TableSchema((ID, NOTE, PRICE, MOMENT), ("id",))


def row(op: str, ts: int, number: int) -> tuple[Any, ...]:
    return (op, ts, number, f"{op}{ts}", f"{ts}.25", "2026-03-01 10:00:00") if ts % 5 else (op, ts, number, *[None] * 3)


def grow(source: Source, count: int, seed: int = 3) -> dict[int, tuple[Any, ...]]:
    """Apply so many windows of changes to fifty keys, and return the notes that are right by key."""
    rng, right, ts = random.Random(seed), dict[int, tuple[Any, ...]](), 101
    first = [row("I", ts + number, number) for number in range(40)]
    ts += 40
    for _ in range(count):
        rows = first or []
        first = []
        for number in rng.sample(range(50), 4):
            op = (
                "I"
                if number not in right and not any(change_row[2] == number for change_row in rows)
                else rng.choice("UUD")
            )
            rows.append(row(op, ts, number))
            ts += 1
        for change_row in rows:
            right.pop(change_row[2], None)
            if change_row[0] != "D":
                right[change_row[2]] = change_row[2:4]
        source.apply(ts - 1, rows)
    return right


def files(lake: Lake, source: Source) -> tuple[int, int]:
    """Return how many data files and deletion vectors a table has."""
    summary = lake.state.summary(lake.state.find(source.life))
    return int(summary["total-data-files"]), int(summary["total-delete-files"])


def lineage(lake: Lake, source: Source) -> list[tuple[Any, ...]]:
    """Return the table as Spark reads it, with each row's id and the sequence number of its last change."""
    with lake.workbench.sessions.step() as session:
        name = session.name(lake.state.find(source.life).identifier)
        rows = session.sql(f"SELECT *, _row_id, _last_updated_sequence_number FROM {name}").collect()
    return sorted((tuple(lake_row) for lake_row in rows), key=repr)


def test_files_are_put_together_and_every_row_keeps_its_id(lake: Lake) -> None:
    source = Source(lake, schema=SCHEMA)
    right = grow(source, 5)
    before, label, (count, vectors) = lineage(lake, source), lake.state.find(source.life).label, files(lake, source)
    with lake.workbench.on(source.life) as work:
        assert compact(work.target, source.window(900)[0], lake.workbench.storage(work.lake_table)[1])
    assert (count, vectors > 0, files(lake, source)) == (5, True, (1, 0))
    assert lineage(lake, source) == before
    assert {lake_row[0]: lake_row[:2] for lake_row in source.rows()} == right
    assert lake.state.find(source.life).label == label
    with patch.object(windows, "EVERY", 3):  # again, with files that have ids of their own
        source.apply(500, [row("U", 491, min(right))])
        middle = lineage(lake, source)
        source.apply(510, [row("U", 501, sorted(right)[1])])
    assert files(lake, source) == (1, 0)
    assert [lake_row[-2:] for lake_row in lineage(lake, source) if lake_row[0] not in sorted(right)[:2]] == [
        lake_row[-2:] for lake_row in middle if lake_row[0] not in sorted(right)[:2]
    ]


def test_a_table_in_small_windows_keeps_few_files(lake: Lake) -> None:
    source = Source(lake, schema=SCHEMA)
    with patch.object(windows, "EVERY", 3):
        right = grow(source, 9)
    assert files(lake, source)[0] < 3
    assert {lake_row[0]: lake_row[:2] for lake_row in source.rows()} == right


def test_a_large_file_joins_where_smaller_ones_come_to_a_quarter_of_it_or_much_of_it_is_hidden(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(lake, schema=SCHEMA)
    source.apply(4000, [row("I", 101 + number, number) for number in range(3000)])
    for at in range(3):
        source.apply(4010 + 10 * at, [row("U", 4001 + 10 * at, at)])
    monkeypatch.setattr(compaction, "_SMALL", 5000)
    monkeypatch.setattr(compaction, "_TIER", 1)
    monkeypatch.setattr(windows, "EVERY", 1)
    source.apply(4100, [row("U", 4090, 5)])
    assert files(lake, source) == (2, 1)
    source.apply(5000, [*(row("D", 4101 + at, at) for at in range(100, 500)), row("U", 4999, 5)])
    assert files(lake, source) == (2, 1)
    source.apply(6000, [*(row("D", 5001 + at, at) for at in range(500, 700)), row("U", 5999, 5)])
    assert files(lake, source) == (1, 0)
    assert len(source.rows()) == 2400


@pytest.mark.parametrize(
    ("rows", "changes", "file_bytes"),
    [(5_000, 200, 40), (500_000, 200, 40), (900_000, 2_000, 36), (1_200_000, 1_000, 36), (1_500_000, 1_000, 9)],
)
def test_not_many_rows_of_a_table_are_hidden_however_large_it_is(rows: int, changes: int, file_bytes: int) -> None:
    """A table loaded as one file gets windows that change rows all over it; what is chosen is put together."""
    files, most = [(float(rows), 0.0)], 0.0
    for _ in range(3 * rows // changes):
        live = sum(count - gone for count, gone in files)
        files = [(count, gone + changes * (count - gone) / live) for count, gone in files] + [(float(changes), 0.0)]
        if len(files) % compaction.EVERY == 0:
            files = compacted(files, file_bytes)
        hidden, live = (round(sum(file[place] for file in files)) for place in (1, 0))
        live -= hidden
        if is_overdue(live, hidden, 0.1):
            files = [(float(live), 0.0)]
        most = max(most, hidden / (live + hidden) if hidden > 100_000 else 0.0)
    assert most < 0.17


def compacted(files: Sequence[tuple[float, float]], file_bytes: int) -> list[tuple[float, float]]:
    """Return files, each with its rows and how many of them are hidden, after some were put together."""
    planned: list[Any] = [
        SimpleNamespace(
            file=SimpleNamespace(fileSizeInBytes=partial(int, rows * file_bytes)),
            vector=SimpleNamespace(rows=int(hidden)),
            rows=int(rows),
        )
        for rows, hidden in files
    ]
    chosen = {planned.index(candidate.planned) for candidate in compaction._chosen(planned)}
    kept = sum(files[place][0] - files[place][1] for place in chosen)
    return [file for place, file in enumerate(files) if place not in chosen] + ([(kept, 0.0)] if chosen else [])


def test_files_of_other_columns_stay_apart_until_they_have_the_same(lake: Lake) -> None:
    source = Source(lake, schema=TableSchema((ID, NOTE), ("id",)))
    source.apply(110, [("I", 101, 1, "a"), ("I", 102, 2, "b")])
    wide = TableSchema((ID, Column("text", "VARCHAR", precision=20), Column("extra", "INT")), ("id",))
    source.change(120, wide, AddColumn(Column("extra", "INT"), "7"), RenameColumn("note", "text"))
    with patch.object(windows, "EVERY", 1):
        source.apply(130, [("I", 121, 3, "c", 8)])
        assert files(lake, source) == (2, 0)
        source.apply(140, [("U", 131, 2, "B", 9)])
    assert files(lake, source) == (2, 1)
    assert source.rows() == [(1, "a", 7), (2, "B", 9), (3, "c", 8)]


def test_a_compaction_that_loses_a_race_or_cannot_read_leaves_the_window_in_its_table(lake: Lake) -> None:
    source, other = Source(lake), Lake(lake.settings, lake.changefeed)
    source.apply(110, [("I", 101, 1, "a"), ("I", 102, 2, "b")])
    source.apply(120, [("U", 111, 1, "A")])
    rival = Source(other, create=False)

    def late(target: CommitTarget, table: Any, written: Any) -> Any:
        rival.apply(140, [("U", 131, 1, "AAA"), ("U", 132, 2, "BBB")])
        return data_file(target, table, written)

    with patch.object(windows, "EVERY", 3), patch.object(compaction, "data_file", late):
        source.apply(130, [("U", 121, 2, "B")])
    assert source.rows() == [(1, "AAA"), (2, "BBB")]
    assert files(other, rival)[0] == 4
    with patch.object(windows, "EVERY", 1), patch.object(compaction, "write_data_files", side_effect=OSError("full")):
        rival.apply(150, [("U", 141, 1, "A5")])
    assert rival.rows() == [(1, "A5"), (2, "BBB")]
    other.close()
