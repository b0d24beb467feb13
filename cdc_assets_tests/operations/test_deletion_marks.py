"""What people ask for, of mirrors that mark deleted rows: compare, repair, replay, forget, mask, explain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import SecretStr

from cdc_assets.errors import BadSettings
from cdc_assets.features.forgetting.operations import forget
from cdc_assets.features.quarantine.operations import replay
from cdc_assets.ledger import Ledger
from cdc_assets.model.comparison import DIFFERENT, EQUAL, REPAIRED
from cdc_assets.model.layout import DELETED_AT
from cdc_assets.model.schema import TableId
from cdc_assets.operations.explain import explain
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.keyed_feed import VALUES, Mended, name_of
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryForgetting, MemoryLake

ORDERS = TableId("shop", "orders")
HARD_ONE = {"shop.orders": "hard", "shop.*": "soft"}


class Shop:
    """A feed of one table, applied to a lake in memory."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.feed, self.lake, self.ledger, self.at = LittleFeed(directory), MemoryLake(), Ledger("sqlite://"), FIRST
        self.settings = {"deletes": "soft", **settings}
        self.feed.create("shop.orders")

    def write(self, *rows: tuple[str, int, str], version: int = FIRST) -> None:
        changes = []
        for op, key, value in rows:
            self.at += 1 << 18
            changes.append((op, self.at, key, value))
        self.feed.rows("shop.orders", version, changes)

    def truncate(self) -> None:
        self.at += 1 << 18
        self.feed.ddl("shop.orders", self.at, "TRUNCATE TABLE `orders`", 11)

    def pipeline(self, **settings: Any) -> Pipeline:
        return self.feed.pipeline_into(self.lake, self.ledger, **{**self.settings, **settings})

    def apply(self, **settings: Any) -> Outcome:
        self.at += 1 << 18
        self.feed.publish(self.at)
        return self.pipeline(**settings).apply("test")

    def rows(self) -> list[tuple[int, str, bool]]:
        return sorted((row["id"], row["v"], row[DELETED_AT] is not None) for row in self.lake.read(ORDERS).to_pylist())


def notes(outcome: Outcome) -> list[str]:
    return [finding.sentence for finding in outcome.findings if finding.rule == "layout"]


# --- settings ---------------------------------------------------------------------------------------------------------


def test_a_table_keeps_its_way_until_it_is_rebuilt_and_that_is_told(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.write(("I", 1, "a"), ("D", 1, "a"), ("I", 2, "b"))
    assert notes(shop.apply()) == []
    shop.write(("D", 2, "b"))
    (note,) = notes(shop.apply(deletes=HARD_ONE))
    assert "rebuild" in note
    assert shop.rows() == [(1, "a", True), (2, "b", True)]

    other = Shop(tmp_path / "other", deletes={})
    other.write(("I", 1, "a"), ("I", 2, "b"))
    assert notes(other.apply()) == []
    other.write(("D", 2, "b"))
    (note,) = notes(other.apply(deletes="soft"))
    assert "rebuild" in note
    assert other.lake.read(ORDERS).column_names == ["id", "v", "_cdc_commit_ts"]
    assert other.lake.read(ORDERS).num_rows == 1


def test_a_table_without_key_is_not_marked_and_that_is_told(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.feed.create("shop.bare", keyed=False)
    shop.feed.rows("shop.bare", FIRST, [("I", FIRST + 1, 1, "a")])
    (note,) = notes(shop.apply())
    assert "no key" in note
    assert DELETED_AT not in shop.lake.read(TableId("shop", "bare")).column_names


def test_a_table_that_lost_its_key_has_no_marked_row_to_be_taken_for_one_of_the_source(tmp_path: Path) -> None:
    shop, without = Shop(tmp_path), FIRST + (10 << 18)
    shop.write(("I", 1, "a"), ("D", 1, "a"))
    shop.apply()
    shop.feed.ddl("shop.orders", without, "ALTER TABLE `orders` DROP PRIMARY KEY", 56, keyed=False)
    shop.at = without
    shop.write(("I", 5, "e"), version=without)
    shop.apply()
    shop.at = truncated = shop.at + (1 << 18)
    shop.feed.ddl("shop.orders", truncated, "TRUNCATE TABLE `orders`", 11, keyed=False)
    shop.write(("I", 5, "e"), version=truncated)
    shop.apply()
    assert shop.rows() == [(5, "e", False)]
    shop.write(("D", 5, "e"), version=truncated)
    shop.apply()
    assert shop.rows() == []


def test_a_table_that_got_its_key_later_marks_rows_from_then_on_once_it_is_written_anew(tmp_path: Path) -> None:
    shop, bare, keyed = Shop(tmp_path), TableId("shop", "bare"), FIRST + (10 << 18)
    shop.feed.create("shop.bare", keyed=False)
    shop.feed.rows("shop.bare", FIRST, [("I", FIRST + 1, 1, "a"), ("I", FIRST + 2, 2, "b"), ("D", FIRST + 3, 2, "b")])
    shop.apply()
    shop.feed.ddl("shop.bare", keyed, "ALTER TABLE `bare` ADD PRIMARY KEY (`id`)", 7)
    shop.feed.rows("shop.bare", keyed, [("D", keyed + 1, 1, "a"), ("I", keyed + 2, 3, "c")])
    shop.at = keyed + 2
    (note,) = notes(shop.apply())
    assert "rebuild" in note
    shop.lake = MemoryLake()
    shop.apply()
    rows = {row["id"]: row[DELETED_AT] is not None for row in shop.lake.read(bare).to_pylist()}
    assert (rows, notes(shop.apply())) == ({1: True, 3: False}, [])


@pytest.mark.parametrize("deletes", ["gone", {"shop.*": "maybe"}, 7])
def test_other_words_are_refused(deletes: Any) -> None:
    with pytest.raises((BadSettings, ValueError), match="deletes"):
        ChangefeedSettings(sink_uri=SecretStr("file:///x?protocol=csv"), deletes=deletes)


# --- compared and repaired --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["whole", "folded"])
def test_marked_rows_are_not_compared_and_a_row_that_the_source_lacks_is_marked_by_a_repair(
    table: str, tmp_path: Path
) -> None:
    mended = Mended(tmp_path, MemoryLake(), [table], deletes="soft", history={"*.*": ["log", "scd2"]})
    keys = VALUES[table]

    def marked() -> list[Any]:
        rows = mended.lake.read(name_of(table))
        return sorted(row["k"] for row in rows.to_pylist() if row[DELETED_AT] is not None)

    def states(**more: Any) -> list[str]:
        return [comparison.state for comparison in mended.compared(**more).values()]

    mended.feed.write([("D", table, *mended.feed.rows[table][0])])
    mended.apply()
    assert (states(), marked()) == ([EQUAL], keys[:1])
    there = mended.feed.rows[table]
    there[1], there[2] = (there[1][0], "other"), (keys[6], "new")
    assert states() == [DIFFERENT]
    assert states(repair=True) == [REPAIRED]
    assert states() == [EQUAL]
    assert marked() == sorted([keys[0], keys[3]])
    mended.feed.write([("I", table, keys[0], "again"), ("D", table, *mended.feed.rows[table][1])])
    mended.apply()
    assert states() == [EQUAL]


# --- records ----------------------------------------------------------------------------------------------------------


def test_a_record_that_fits_later_leaves_a_marked_row_where_its_row_was_deleted_since(tmp_path: Path) -> None:
    shop = Shop(tmp_path, quarantine=True)
    long = "a value that is longer than its column of 40 characters"
    shop.write(("I", 1, "a"), ("I", 3, "c"))
    shop.apply()
    path = shop.feed.rows("shop.orders", FIRST, [("I", shop.at + 1, 2, long), ("U", shop.at + 2, 3, long)])
    shop.at += 1 << 18
    shop.apply()
    shop.write(("D", 2, long), ("D", 3, long))
    shop.apply()
    assert shop.rows() == [(1, "a", False), (3, "c", True)]
    path.write_bytes(path.read_bytes().replace(long.encode(), b"fits now"))
    assert [done.waiting for done in replay(shop.pipeline())] == [0]
    assert shop.rows() == [(1, "a", False), (2, "fits now", True), (3, "fits now", True)]


def test_a_record_from_before_a_truncate_is_not_replayed(tmp_path: Path) -> None:
    shop = Shop(tmp_path, quarantine=True)
    path = shop.feed.rows("shop.orders", FIRST, [("I", FIRST + 1, 2, "x" * 50)])
    shop.at += 1 << 18
    shop.apply()
    shop.truncate()
    shop.apply()
    path.write_bytes(path.read_bytes().replace(b"x" * 50, b"fits"))
    (done,) = replay(shop.pipeline())
    assert done.waiting == 1
    assert "Rebuild the table" in done.reason


# --- personal data ----------------------------------------------------------------------------------------------------


def test_forgetting_takes_marked_rows_too(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.write(("I", 1, "a"), ("I", 2, "b"), ("D", 1, "a"), ("I", 3, "c"))
    shop.apply()
    assert forget(shop.pipeline(), MemoryForgetting(shop.lake), "shop.orders", [["1"]], "run").complete
    assert shop.rows() == [(2, "b", False), (3, "c", False)]


# --- where a row comes from -------------------------------------------------------------------------------------------


def test_a_marked_row_is_no_row_of_the_table_and_its_changes_are_told(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.write(("I", 1, "a"), ("D", 1, "a"))
    shop.apply()
    explained = explain(shop.pipeline(), shop.lake, "shop.orders", ["1"])
    assert explained.row is None
    assert [change.kind for change in explained.changes] == ["insert", "delete"]


def test_scans_have_living_rows(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.write(("I", 1, "a"), ("D", 1, "a"), ("I", 2, "b"))
    shop.apply()
    (life,) = shop.lake.tables
    rows = pa.concat_tables(shop.lake.scan(life).pieces())
    assert rows.column("id").to_pylist() == [2]
