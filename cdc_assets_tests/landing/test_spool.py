"""Row groups are written while messages are read on: as whole as if all were written at once, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.errors import LakeUnavailable, StorageUnavailable
from cdc_assets.landing.files import LANDED, RowGroup, Spool
from cdc_assets.landing.iceberg import LandingTable
from cdc_assets.model.offsets import OffsetRange
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.landing.test_landing import URI, Broker, ddl, mark, row
from cdc_assets_tests.memory_landing import MemoryStore
from cdc_assets_tests.topic_feed import TopicFeed

Message = tuple[str, int, str]
"""Table, partition and kind of a row."""


def rows_of(messages: Iterable[Message], first: int = 0) -> pa.Table:
    held = [
        {
            "part": "rows",
            "topic": "cdc",
            "partition": partition,
            "offset": first + at,
            "ordinals": [0],
            "value": b"x" * 10,
            "kind": kind,
            "schema": "shop",
            "table": table,
            "position": first + at,
            "last_position": first + at,
        }
        for at, (table, partition, kind) in enumerate(messages)
    ]
    return pa.Table.from_pylist(held, LANDED)


MESSAGES = st.tuples(
    st.sampled_from(["a", "b", ""]),
    st.integers(0, 12),
    st.sampled_from(["row", "repeat"]),
)


@settings(max_examples=40)
@given(st.lists(st.lists(MESSAGES, max_size=12), max_size=8), st.integers(1, 100))
def test_each_row_is_in_one_row_group_that_holds_its_like_alone(takes: list[list[Message]], group_bytes: int) -> None:
    store, first = MemoryStore(), 0
    spool = Spool(store, group_bytes)
    for messages in takes:
        spool.take([rows_of(messages, first)])
        first += len(messages)
    written = spool.finish()
    groups = [group for name, _ in written.files for group in store.files[name]]
    assert sorted(at for group in groups for at in group.column("offset").to_pylist()) == list(range(first))
    alike = [group.select(["table", "partition", "kind"]).to_pylist() for group in groups]
    assert all(group_row == like[0] for like in alike for group_row in like)
    assert all(group.column("offset").to_pylist() == sorted(group.column("offset").to_pylist()) for group in groups)
    for split in written.splits:
        group = store.files[split.file][split.group]
        ends = group.column("offset").to_pylist()
        assert (split.first, split.last, split.rows) == (ends[0], ends[-1], len(ends))
        assert (split.table.table, split.partition.number) == (alike[split.group][0]["table"], split.partition.number)
    assert len(written.splits) == sum(like[0]["kind"] == "row" for like in alike)
    assert spool.finish() == Spool(store).finish()


class Watched(MemoryStore):
    """Notes how many row groups were written when, and may fail after some of them."""

    def __init__(self, fails_after: int = 1000) -> None:
        super().__init__()
        self.seen = 0
        self.fails_after = fails_after

    def write_rows(self, groups: Iterable[RowGroup], *, packed: bool = False) -> tuple[str, int]:
        def watched() -> Iterator[RowGroup]:
            for group in groups:
                self.seen += 1
                if self.seen > self.fails_after:
                    raise LakeUnavailable("the disk is full")
                yield group

        return super().write_rows(watched(), packed=packed)


def test_no_more_is_held_than_what_fills_no_row_group_and_what_is_being_written() -> None:
    store, like = Watched(), ("a", 0, "row")
    spool = Spool(store, 100)
    for taken in range(40):
        spool.take([rows_of([like] * 10, 10 * taken)])
    assert store.seen >= 40 - 6
    spool.finish()
    assert store.seen == 40


def test_many_little_pieces_are_sorted_and_cut_together() -> None:
    store, rows = Watched(), list[pa.Table]()
    spool, taken = Spool(store, 10_000), 0
    for piece in range(1_000):
        rows.append(rows_of([("a", 0, "row")], piece))
        spool.take_ahead(rows, 10 * (piece + 1))
        taken += not rows
    assert taken == 2
    spool.take(rows)
    ((name, _),) = spool.finish().files
    assert [at for group in store.files[name] for at in group.column("offset").to_pylist()] == list(range(1_000))


def test_a_file_that_cannot_be_written_stops_who_reads() -> None:
    spool, rows = Spool(Watched(fails_after=2), 100), [("a", 0, "row")] * 400
    with pytest.raises(LakeUnavailable, match="the disk is full"):
        spool.take([rows_of(rows)])
    spool.abandon()
    assert not spool.finish().files


class Broken(Broker):
    """Fails once most of a range was read."""

    def read(self, wanted: OffsetRange, batch_bytes: int = 1000) -> Iterator[pa.RecordBatch]:
        yield from super().read(OffsetRange(wanted.partition, wanted.start, wanted.stop - 10))
        raise StorageUnavailable("the broker is gone")


def test_a_range_that_breaks_off_leaves_no_file_and_lands_nothing(tmp_path: Path) -> None:
    table = LandingTable(LakeSettings.from_warehouse(tmp_path), "shop")
    feed = TopicFeed.of(Broken(), sink_uri=URI, store=table)
    feed.landing = feed.landed_in(commit_bytes=1_000_000)
    feed.log.send(0, ddl(100), *(row(120 + at, at, at) for at in range(1500)), mark(1000))  # type: ignore[attr-defined]
    with pytest.raises(StorageUnavailable, match="the broker is gone"):
        feed.landing.advance()
    assert table.table.look() is not None, "nothing was written meanwhile"
    assert list(tmp_path.rglob("*.parquet")) == []
    assert feed.landing.landed().next == {}
    table.close()
