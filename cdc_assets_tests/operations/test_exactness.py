"""Exact or not: whatever claims that a table is its source says what the table lacks, for each kind of lack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc_assets.features.completeness.operations import accept_incomplete
from cdc_assets.features.cuts.operations import CutRefused, make_cut
from cdc_assets.lake.label import Label
from cdc_assets.lake.lake_table import REPAIR, REPLAY, LakeTable
from cdc_assets.lake.metadata_file import MetadataFile, Snapshot
from cdc_assets.ledger import Ledger
from cdc_assets.model.cuts import Cut, CutTable, cut_requests
from cdc_assets.model.gaps import TableCondition
from cdc_assets.model.ledger_entries import TableState
from cdc_assets.model.progress import Gap, Life, Phase, Progress, State
from cdc_assets.model.schema import TableId
from cdc_assets.operations import as_of as reading
from cdc_assets.operations.as_of import AsOfTable
from cdc_assets.operations.extract import extract
from cdc_assets.operations.release import release
from cdc_assets.pipeline.outcome import deficits_at
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake

ORDERS = TableId("shop", "orders")


class Shop(LittleFeed):
    """A table and its log in a lake of Arrow tables; records that do not fit go to the quarantine."""

    def __init__(self, directory: Path, query: bool = True) -> None:
        super().__init__(directory)
        self.policies: Mapping[str, str] = {}
        self.lake, self.ledger = MemoryLake(), Ledger("sqlite://")
        if query:
            self.create("shop.orders")
        else:
            self.ddl("shop.orders", FIRST, "", 0)
        self.rows("shop.orders", FIRST, [("I", FIRST + 1, 1, "one")])
        self.publish(FIRST + 10)

    @property
    def pipeline(self) -> Pipeline:
        feed = self.settings(quarantine=True, history={"shop.orders": "log"}, policies=self.policies)
        return Pipeline(feed, feed.open_source(), self.lake, self.ledger)

    @property
    def life(self) -> Life:
        return next(life for life in self.lake.tables if not life.kind)


def records(directory: Path) -> Shop:
    shop = Shop(directory)
    shop.rows("shop.orders", FIRST, [("I", FIRST + 5, "no number", "x")])
    return shop


def hold(directory: Path) -> Shop:
    shop = Shop(directory)
    shop.ddl("shop.orders", FIRST + 5, "ALTER TABLE `orders` FROBNICATE", 99)
    return shop


def rows(directory: Path) -> Shop:
    return Shop(directory, query=False)


def accepted(directory: Path) -> Shop:
    shop = rows(directory)
    accept_incomplete(shop.pipeline, "shop.orders")
    return shop


def repair(directory: Path) -> Shop:
    shop = Shop(directory)
    shop.pipeline.apply()
    for table in shop.lake.tables.values():
        table.repaired = FIRST + 30  # by a comparison with the source as it was later
    return shop


LACKS: Mapping[str, Callable[[Path], Shop]] = {
    "records": records,
    "hold": hold,
    "rows": rows,
    "accepted": accepted,
    "repair": repair,
}


@pytest.mark.parametrize("lack", LACKS)
def test_a_cut_has_no_table_that_is_not_exact_unless_a_person_accepts_it(lack: str, tmp_path: Path) -> None:
    shop = LACKS[lack](tmp_path)
    shop.pipeline.apply()
    made = make_cut(shop.pipeline, "report")
    assert (made.exact, made.accepted) == (False, lack == "accepted")
    assert all(table.lacks for table in made.tables)
    assert {table.life for table in made.taken} == (shop.lake.tables.keys() if lack == "accepted" else set())
    assert shop.lake.tagged("report").keys() == {table.life for table in made.taken}


@pytest.mark.parametrize("lack", LACKS)
def test_a_cut_of_all_is_refused_unless_a_person_accepts_what_they_lack(lack: str, tmp_path: Path) -> None:
    shop = LACKS[lack](tmp_path)
    if lack == "accepted":
        assert len(make_cut(shop.pipeline, "report", whole=True).taken) == 2
        return
    with pytest.raises(CutRefused, match=r"shop\.orders: "):
        make_cut(shop.pipeline, "report", whole=True)
    assert (shop.lake.cuts(), cut_requests(shop.lake.decisions()), shop.lake.tagged("report")) == ((), (), {})


@pytest.mark.parametrize(
    ("text", "policy", "way", "exact"),
    [
        ("TRUNCATE TABLE `orders`", "skip", "", False),
        ("TRUNCATE TABLE `orders`", "hold", "skip", False),
        ("TRUNCATE TABLE `orders`", "hold", "apply", True),
        ("ALTER TABLE `orders` FROBNICATE", "hold", "rebuild", False),
        ("ALTER TABLE `orders` FROBNICATE", "hold", "skip", True),  # a person says that it left the rows as they are
    ],
)
def test_a_decision_that_gives_a_table_other_rows_than_the_source_is_in_its_cuts(
    tmp_path: Path, text: str, policy: str, way: str, *, exact: bool
) -> None:
    shop = Shop(tmp_path)
    shop.policies = {"truncate table": policy}
    shop.ddl("shop.orders", FIRST + 5, text, 11 if "TRUNCATE" in text else 99)
    shop.rows("shop.orders", FIRST + 5, [("I", FIRST + 6, 2, "two")])
    shop.pipeline.apply()
    if way:
        release(shop.pipeline, "shop.orders", FIRST + 5, way)
        shop.pipeline.apply()
    made = make_cut(shop.pipeline, "report", whole=True)
    assert (made.exact, made.accepted, len(made.taken)) == (exact, True, 2)
    planned = shop.pipeline.planner.plan()[1]
    assert deficits_at(shop.lake, planned, shop.life, FIRST + 4) == ()
    shop.ddl("shop.orders", FIRST + 12, "TRUNCATE TABLE `orders`", 11)
    shop.publish(FIRST + 20)
    shop.policies = {}
    shop.pipeline.apply()
    assert make_cut(shop.pipeline, "emptied").exact


def test_a_table_in_order_is_exact_in_a_cut_and_in_an_extract(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    made = make_cut(shop.pipeline, "report", whole=True)
    assert (made.exact, made.accepted, len(made.taken)) == (True, True, 2)
    assert extract(shop.pipeline, "shop.orders", FIRST, FIRST + 9).description()["lacks"] == []


@pytest.mark.parametrize("lack", ["rows", "accepted", "repair"])  # records and holds in the range are refused
def test_an_extract_says_what_its_table_lacks(lack: str, tmp_path: Path) -> None:
    shop = LACKS[lack](tmp_path)
    shop.pipeline.apply()
    assert len(extract(shop.pipeline, "shop.orders", FIRST, FIRST + 9).lacks) == 1


@pytest.mark.parametrize("lack", LACKS)
def test_what_a_table_lacks_has_its_cause_and_concerns_no_earlier_position(lack: str, tmp_path: Path) -> None:
    shop = LACKS[lack](tmp_path)
    shop.pipeline.apply()
    planned = shop.pipeline.planner.plan()[1]
    (deficit,) = deficits_at(shop.lake, planned, shop.life, FIRST + 9)
    assert (deficit.cause, deficit.accepted) == ("rows" if lack == "accepted" else lack, lack == "accepted")
    before = deficits_at(shop.lake, planned, shop.life, FIRST + 4)
    assert [earlier_deficit.cause for earlier_deficit in before] == (
        [] if lack in ("records", "hold") else [deficit.cause]
    )


# --- as of a moment ---------------------------------------------------------------------------------------------------

LIFE = Life(ORDERS, 1)


def snapshots(*labels: tuple[int, bool, dict[str, str]]) -> MetadataFile:
    """The metadata of snapshots with labels: a position, whether the table was incomplete, and other properties."""
    snapshots_by_number = {
        number: Snapshot(
            number,
            number - 1 or None,
            number,
            {**Label(Progress(at, Phase.ROWS), 1, lacks_rows=lacks).properties(), **more},
        )
        for number, (at, lacks, more) in enumerate(labels, 1)
    }
    return MetadataFile("here", {}, len(labels), snapshots_by_number, tuple(snapshots_by_number), {})


def past(monkeypatch: pytest.MonkeyPatch, file: MetadataFile, at: int, **table: Any) -> AsOfTable:
    """A table as of a position by its metadata; `aside`, `reason` and `cuts` are told of it by others."""
    monkeypatch.setattr(reading, "snapshot_statements", lambda *_: {})
    aside, cuts, hold = table.pop("aside", ()), table.pop("cuts", ()), table.pop("reason", "")
    newest = Label.parse(file.snapshots[file.snapshot_id or 0].summary)
    assert newest is not None
    life = table.pop("life", LIFE)
    lake_table = LakeTable(("shop", "orders"), "place", life, ORDERS, newest, file.snapshot_id, 1, **table)
    state = cast(Any, SimpleNamespace(settings=None, file=lambda _: file))
    standing = sorted(reading._standings(state, lake_table, cuts), key=lambda standing: standing.position)
    through = newest.progress.tso
    ledger = TableState(ORDERS, 1, through, State.HELD if hold else State.APPLIED, hold, life=str(life), checkpoint=100)
    return reading._table(state, lake_table, "shop.orders", at, standing, ledger, aside)


ONE_BY_ONE = snapshots((10, False, {}), (20, False, {}))


@pytest.mark.parametrize(
    ("table", "at", "words", "is_accepted"),
    [
        ({}, 10, "", False),
        ({}, 20, "", False),
        ({"aside": [15]}, 10, "", False),
        ({"aside": [15]}, 20, "1 record of it waits in quarantine", False),
        ({"aside": [5, 9, 15]}, 10, "2 records of it wait in quarantine", False),
        ({"reason": "no DDL"}, 20, "", False),
        ({"reason": "no DDL"}, 30, "it is held: no DDL; changes after 20", False),
        ({"gap": Gap(LIFE)}, 20, "incomplete: ", False),
        ({"gap": Gap(LIFE, accepted=True)}, 20, "incomplete: ", True),
        ({"gap": Gap(LIFE, accepted=True), "aside": [15]}, 20, "; 1 record", False),
        ({"repaired": 20}, 10, "a repair (verify --repair) gave it the source's rows as of 20", False),
        ({"repaired": 20}, 20, "", False),
        ({"cuts": [Cut("then", 10, "", (CutTable(LIFE, ORDERS, 1, 10),))]}, 10, "", False),
    ],
)
def test_a_table_as_of_a_moment_is_exact_unless_it_lacks_something_then(
    monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], at: int, words: str, is_accepted: bool
) -> None:
    exactness = past(monkeypatch, ONE_BY_ONE, at, **table)
    assert (exactness.exact, words in exactness.reason, exactness.accepted) == (not words, True, is_accepted), (
        exactness.reason
    )


@pytest.mark.parametrize("mark", [REPLAY, REPAIR])
def test_a_snapshot_from_before_what_a_correction_brought_is_not_exact(
    monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    corrected = snapshots((10, False, {}), (20, False, {}), (20, False, {mark: "t"}), (30, False, {}))
    assert [past(monkeypatch, corrected, at).exact for at in (10, 20, 30)] == [False, True, True]
    assert "came into the table after the snapshot of then" in past(monkeypatch, corrected, 10).reason


def test_a_window_that_brings_a_record_of_its_own_corrects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    file = snapshots((10, False, {}), (20, False, {REPLAY: "t"}))
    assert [past(monkeypatch, file, at).exact for at in (10, 20)] == [True, True]


def test_a_snapshot_of_an_incomplete_table_is_not_exact_when_the_table_is_complete_by_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filled = snapshots((10, True, {}), (20, False, {}))
    assert [past(monkeypatch, filled, at).exact for at in (10, 20)] == [False, True]
    assert "it was incomplete then" in past(monkeypatch, filled, 10).reason
    metadata_file = snapshots((10, True, {}), (20, True, {}))  # somebody says that it had no rows before
    assert past(monkeypatch, metadata_file, 20).exact


def test_what_claims_to_be_exact_asks_the_facts_of_the_table() -> None:
    """The causes that are tried here are all that there are."""
    facts = TableCondition(
        life=replace(LIFE, kind="scd2"), gap=Gap(LIFE), hold="no", aside=[1], repaired=9, since=3, corrected="later"
    )
    causes = [deficit.cause for deficit in facts.deficits(5)]
    assert causes == ["rows", "hold", "records", "repair", "beginning", "correction"]
    assert {*causes} == {*LACKS, "beginning", "correction"} - {"accepted"}


def test_states_that_begin_late_are_not_exact_and_a_log_that_does_is(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.pipeline.apply()
    for life, table in shop.lake.tables.items():
        table.since = FIRST + 5 if life.kind else None
    assert make_cut(shop.pipeline, "log").exact
    (log,) = [life for life in shop.lake.tables if life.kind]
    assert TableCondition(life=log, gap=None, since=FIRST + 5).deficits(FIRST + 9) == ()
    states = TableCondition(life=replace(log, kind="scd2"), gap=None, since=FIRST + 5).deficits(FIRST + 9)
    assert [(standing.cause, standing.accepted) for standing in states] == [("beginning", True)]
