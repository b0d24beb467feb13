"""Columns of mirrors by the setting `columns`: the place of a row's last change, and when it was read."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.model.dumps import DumpSplit
from cdc_assets.model.layout import INGESTED_AT, LAKE_COLUMNS, PLACE
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.sources.dumpling import initial
from cdc_assets.sources.dumpling.splits import DirectoryReader, splits_of
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.joined_feed import dump_of, feed_from, joined_settings
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.replay import replay
from cdc_assets_tests.topic_feed import TopicFeed
from cdc_assets_tests.topics import Topic, topics

BOTH = dict.fromkeys(LAKE_COLUMNS, True)
OWN = list(LAKE_COLUMNS.values())
HISTORY = {"*.*": ["log"]}
CONFIGS = [
    config
    for case in cases()
    for config in case.configs
    if (case.name, config.name)
    in {
        ("B_ddl_columns", "csv-ts"),
        ("C_ddl_tables", "csv-ts"),
        ("D_keys", "csv-ts"),
        ("E_partitions", "canal-ext"),
        ("D_keys", "csv-old"),
        ("E_partitions", "csv-ts"),
        ("G_redelivery", "csv-ts"),
    }
]
ORDERS = TableId("shop", "orders")


def without_columns(rows: pa.Table) -> pa.Table:
    """Return rows without the columns of the setting; these are the last ones."""
    present = [name for name in OWN if name in rows.column_names]
    assert rows.column_names[len(rows.column_names) - len(present) :] == present
    return rows.drop_columns(present)


def unequal(plain: MemoryLake, lake: MemoryLake) -> list[str]:
    """Return the tables of two lakes that differ in anything but these columns; history tables have none of them."""
    assert plain.tables.keys() == lake.tables.keys()
    wrong = []
    for life, table in plain.tables.items():
        rows = lake.tables[life].rows
        rows = rows if life.kind else without_columns(rows)
        sides = [sorted(map(repr, side.to_pylist())) for side in (table.rows, rows)]
        if sides[0] != sides[1] or table.rows.column_names != rows.column_names:
            wrong.append(str(life))
    return wrong


def misplaced(lake: MemoryLake) -> list[str]:
    """Return the rows of mirrors whose place is not that of a change of then in their log; all have one."""
    wrong, count = [], 0
    for life, table in lake.tables.items():
        if life.kind:
            continue
        log = next(other for other in lake.tables if other.source == life and other.kind == "log")
        places = defaultdict[int, set[str]](set)
        for row in lake.tables[log].rows.to_pylist():
            places[row["_cdc_commit_ts"]].add(row[PLACE])
        for row in table.rows.to_pylist():
            count += 1
            if row[PLACE] not in places[row["_cdc_commit_ts"]]:
                wrong.append(f"{life}: {row}")
    assert count
    return wrong


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_rows_are_those_of_a_lake_without_the_columns_whenever_these_are_switched(config: Config) -> None:
    chance, (plain, lake) = random.Random(str(config)), (MemoryLake(), MemoryLake())
    ledgers = Ledger("sqlite://"), Ledger("sqlite://")
    for lake_ in (plain, lake):
        lake_.may_lack_rows = config.loses_rows
    for checkpoint in config.replayable:
        columns = {name: chance.random() < 0.6 for name in LAKE_COLUMNS}
        replay(config, checkpoint, plain, ledgers[0], history=HISTORY)
        replay(config, checkpoint, lake, ledgers[1], history=HISTORY, columns=columns)
        assert unequal(plain, lake) == []


@pytest.mark.parametrize("config", [config for config in CONFIGS if "E_part" not in str(config)], ids=str)
def test_each_row_has_the_place_that_the_log_has_for_its_last_change(config: Config) -> None:
    lake = MemoryLake()
    lake.may_lack_rows = config.loses_rows
    replay(config, config.checkpoints[-1], lake, history=HISTORY, columns={"place": True})
    assert misplaced(lake) == []


RECORDED = {"D_keys/canal-json", "A_all_types/craft", "B_ddl_columns/open-protocol", "D_keys/debezium"}
TOPICS = [topic for topic in topics("canal-json", "craft", "open-protocol", "debezium") if str(topic) in RECORDED]


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_rows_of_topics_have_topic_partition_and_offset(topic: Topic) -> None:
    feeds = [TopicFeed.recording(topic, history=HISTORY, columns=columns) for columns in ({}, BOTH)]
    for feed in feeds:
        feed.send()
        feed.apply()
    plain, feed = feeds
    assert unequal(plain.lake, feed.lake) == []
    assert misplaced(feed.lake) == []
    for life, table in feed.lake.tables.items():
        if not life.kind:
            assert all("] offset " in place for place in table.rows.column(PLACE).to_pylist())
            assert table.rows.column(INGESTED_AT).null_count == 0


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
def test_a_row_says_where_its_last_change_stands_from_when_it_is_switched_on(
    tmp_path: Path, protocol: str, keyed: bool
) -> None:
    feed, lake = LittleFeed(tmp_path, protocol), MemoryLake()
    feed.create("shop.orders", keyed=keyed)
    feed.rows("shop.orders", FIRST, [("I", FIRST + 1, 1, "a"), ("I", FIRST + 2, 2, "b")])

    def applied(at: int, **settings: Any) -> dict[int, dict[str, Any]]:
        feed.publish(FIRST + at)
        assert feed.pipeline_into(lake, **settings).apply("test").complete
        assert list(lake.read(ORDERS).column_names)[:3] == ["id", "v", "_cdc_commit_ts"]
        return {row["id"]: row for row in lake.read(ORDERS).to_pylist()}

    assert set(applied(10)[1]) == {"id", "v", "_cdc_commit_ts"}
    begun = datetime.now(timezone.utc) - timedelta(seconds=1)
    second = feed.rows("shop.orders", FIRST, [("I", FIRST + 20, 3, "c"), ("I", FIRST + 21, 4, "d")])
    rows = applied(30, columns=BOTH)
    assert [rows[number][PLACE] for number in (1, 2)] == [None, None]
    assert [rows[number][INGESTED_AT] for number in (1, 2)] == [None, None]
    assert rows[4][PLACE] == f"{second.relative_to(feed.bucket)}:2"
    assert begun <= rows[4][INGESTED_AT] <= datetime.now(timezone.utc)
    third = feed.rows("shop.orders", FIRST, [("D", FIRST + 31, 2, "b"), ("I", FIRST + 32, 2, "z")])
    rows = applied(40, columns={"place": True})
    assert INGESTED_AT not in rows[2]
    assert rows[2] == {"id": 2, "v": "z", "_cdc_commit_ts": FIRST + 32, PLACE: f"{third.relative_to(feed.bucket)}:2"}
    assert rows[4][PLACE] == f"{second.relative_to(feed.bucket)}:2"
    feed.rows("shop.orders", FIRST, [("I", FIRST + 41, 5, "e")])
    assert set(applied(50)[1]) == {"id", "v", "_cdc_commit_ts"}
    feed.rows("shop.orders", FIRST, [("I", FIRST + 51, 6, "f")])
    assert [row[PLACE] is None for _, row in sorted(applied(60, columns=BOTH).items())] == [True] * 5 + [False]


def dumped_rows(directory: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the rows, with both columns, of the mirrors of a feed that is joined with a dump in the directory."""
    case = next(config for config in CONFIGS if str(config) == "C_ddl_tables/csv-ts")
    begin = case.replayable[1]
    dump_of(begin, directory / "dump", kind)
    feed_from(case, begin, begin, directory / "feed", "begun")
    settings = joined_settings(case, directory / "feed", directory / "dump", start_ts=begin.ts)
    settings = settings.model_copy(update={"columns": type(settings.columns)(**BOTH)})
    lake = MemoryLake()
    Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://")).apply("joined")
    for table in lake.tables.values():
        yield from table.rows.to_pylist()


@pytest.mark.parametrize("kind", ["csv", "sql", "parquet"])
def test_rows_of_a_dump_have_its_file_and_line(tmp_path: Path, kind: str) -> None:
    seen = 0
    for row in dumped_rows(tmp_path, kind):
        name, _, line = row[PLACE].rpartition(":")
        (file,) = (path for path in (tmp_path / "dump").rglob("*") if str(path).endswith(name.rpartition("/")[2]))
        seen += 1
        if kind != "parquet":
            texts = file.read_text().splitlines()
            assert any(str(row["id"]) in text for text in texts[int(line) - 1 : int(line)]), (row, texts)
    assert seen


def test_rows_of_a_dump_that_is_read_in_parts_name_their_part_and_nothing_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initial, "splits_of", partial(splits_of, split_bytes=20))
    counted = DirectoryReader.lines_before

    def lines_before(self: DirectoryReader, split: DumpSplit) -> int:
        assert split.start == 0, "the file was read up to the part"
        return counted(self, split)

    monkeypatch.setattr(DirectoryReader, "lines_before", lines_before)
    rows = list(dumped_rows(tmp_path, "csv"))
    assert len({row[PLACE] for row in rows}) == len(rows)
    parts = 0
    for row in rows:
        place = re.fullmatch(r"(.*/)?([^/\[]+)(?:\[(\d+):(\d+)\])?:(\d+)", row[PLACE])
        assert place is not None, row
        (file,) = (tmp_path / "dump").rglob(place[2])
        data, start = file.read_bytes(), int(place[3] or 0)
        begin = data.index(b"\n", start - 1) + 1 if start else 0
        assert str(row["id"]).encode() in data[begin:].splitlines()[int(place[5]) - 1]
        parts += start > 0
    assert parts
