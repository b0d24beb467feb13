"""Records in quarantine are events that are only added: order, races, kills and compaction change nothing of them."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from cdc_assets.decoding.window import REJECTS
from cdc_assets.errors import TableMoved
from cdc_assets.features.quarantine.lake import EVENTS, Quarantine
from cdc_assets.lake.chores import chores
from cdc_assets.lake.growing import GrowingTable
from cdc_assets.lake.maintenance import LakeMaintenance
from cdc_assets.lake.state import LakeState
from cdc_assets.lake.tables import Lake
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import Report, StagedWindow
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.settings.sections import MaintenanceSettings

ORDERS, ITEMS = Life(TableId("shop", "orders"), 100), Life(TableId("shop", "items"), 101)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[LakeState]:
    state = LakeState(LakeSettings.from_warehouse(tmp_path / "lake"), "feed")
    yield state
    state.close()


def another(state: LakeState, changefeed: str = "feed") -> Quarantine:
    return Quarantine(LakeState(state.settings, changefeed))


def step(life: Life = ORDERS, lo: int = 99) -> ApplyRows:
    return cast("ApplyRows", SimpleNamespace(life=life, lo=lo))


def staged(directory: Path, lines: Mapping[int, str], life: Life = ORDERS) -> list[str]:
    """A stage's file of records by line, each with its reason."""
    name = life.born_as
    place = {"file": "1.csv", "column": "n", "schema": name.schema, "table": name.table, "schema_version": 100}
    rows = [{**place, "line": line, "reason": reason, "raw": b"bytes %d" % line} for line, reason in lines.items()]
    location = str(directory / f"rejects-{random.random()}.parquet")
    pq.write_table(pa.Table.from_pylist(rows, REJECTS), location)
    return [location]


def kept(quarantine: Quarantine, *, closed: bool = False) -> list[tuple[str, int, str, str]]:
    return [(row.table.table, row.line, row.reason, row.state) for row in quarantine.read(closed=closed)]


def test_a_window_whose_stage_is_removed_with_rows_that_are_forgotten_is_planned_again(tmp_path: Path) -> None:
    lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "feed")
    gone = StagedWindow(f"{tmp_path}/lake/stage/gone", 1, Report(reject_count=1, set_aside=1))
    with closing(lake), pytest.raises(TableMoved, match="its stage was removed meanwhile"):
        lake.quarantine(step(), gone, "run-1")


def test_records_are_read_by_another_process_with_their_bytes(tmp_path: Path, state: LakeState) -> None:
    Quarantine(state).keep(step(), {}, staged(tmp_path, {3: "no INT", 1: "no DATE"}), "run-1")
    other = another(state)
    assert kept(other) == [("orders", 1, "no DATE", "open"), ("orders", 3, "no INT", "open")]
    assert [(row.raw, row.run, row.lo, row.life) for row in other.read(raw=True)] == [
        (b"bytes 1", "run-1", 99, ORDERS),
        (b"bytes 3", "run-1", 99, ORDERS),
    ]
    assert dict(other.counts()) == {ORDERS: 2}
    assert kept(another(state, "other")) == []


def test_a_window_that_is_kept_again_adds_nothing_but_what_is_new_of_it(tmp_path: Path, state: LakeState) -> None:
    quarantine = Quarantine(state)
    quarantine.keep(step(), {}, staged(tmp_path, {1: "a", 2: "a"}), "run-1")
    quarantine.close(ORDERS, [("1.csv", 2)])
    before = quarantine.events.look()
    quarantine.keep(step(), {}, staged(tmp_path, {1: "a", 2: "a"}), "run-2")
    assert quarantine.events.look() == before
    quarantine.keep(step(), {}, staged(tmp_path, {1: "b", 2: "b"}), "run-3")
    assert [(row.line, row.reason, row.run) for row in quarantine.read()] == [(1, "b", "run-3")]


NUMBERS = itertools.count()


class Unordered:
    """Stands in for the table: its files lie in any order."""

    def __init__(self, files: Sequence[pa.Table]) -> None:
        self.files = files

    def look(self) -> Any:
        return SimpleNamespace(files={"feed": range(len(self.files))})

    def read(self, file: int, columns: Sequence[str] | None = None) -> pa.Table:
        return self.files[file] if columns is None else self.files[file].select(columns)


EVENT = st.fixed_dictionaries(
    {
        "event": st.sampled_from(["quarantined", "quarantined", "replaying", "replayed"]),
        "identity": st.sampled_from(["shop.orders@100", "shop.items@101"]),
        "line": st.integers(1, 2),
        "reason": st.sampled_from("ab"),
        "lo": st.integers(90, 92),
        "token": st.sampled_from("st"),
    }
)


@given(st.lists(EVENT, max_size=8), st.randoms())
@settings(max_examples=150, deadline=None)
def test_events_say_the_same_in_whatever_order_they_came_to_lie(events: list[dict[str, Any]], rng: Any) -> None:
    constants = {"changefeed": "feed", "file": "1.csv", "schema": "shop", "table": "t", "schema_version": 100}
    rows = [{**constants, **event, "happened_at": 1_000_000 * place} for place, event in enumerate(events)]
    files = [pa.Table.from_pylist([row], EVENTS) for row in rows]
    shuffled = rng.sample(files, len(files))
    state = cast(
        "LakeState", SimpleNamespace(changefeed="feed", tombstones=dict, place_of=lambda _: f"metadata-{next(NUMBERS)}")
    )
    read = []
    for order in (files, shuffled, [pa.concat_tables(shuffled)] if shuffled else []):
        quarantine = Quarantine.__new__(Quarantine)
        quarantine._state, quarantine.identifier = state, ("_cdc", "quarantine")
        quarantine.events = cast("GrowingTable", Unordered(order))
        read.append((quarantine.read(raw=True, closed=True), dict(quarantine.counts()), quarantine.tokens(ORDERS)))
    assert read[0] == read[1] == read[2]
    closed = {(row["identity"], row["line"]) for row in rows if row["event"] == "replayed"}
    quarantined = {(row["identity"], row["line"]) for row in rows if row["event"] == "quarantined"}
    assert sum(read[0][1].values()) == len(quarantined - closed)


def test_of_two_runs_that_keep_the_same_records_at_once_each_record_is_there_once(
    tmp_path: Path, state: LakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantine, rival = Quarantine(state), another(state)
    try_once = quarantine.events.try_once

    def overtaken(*given: Any) -> None:
        monkeypatch.setattr(quarantine.events, "try_once", try_once)
        rival.keep(step(), {}, staged(tmp_path, {1: "a", 2: "a"}), "rival")
        rival.close(ORDERS, [("1.csv", 1)])
        try_once(*given)

    monkeypatch.setattr(quarantine.events, "try_once", overtaken)
    quarantine.keep(step(), {}, staged(tmp_path, {1: "a", 2: "a", 3: "a"}), "run-1")
    assert [line for _, line, *_ in kept(quarantine)] == [2, 3]
    assert [line for _, line, *_ in kept(rival, closed=True)] == [1, 2, 3]


def test_records_of_a_table_whose_rows_are_forgotten_meanwhile_leave_no_byte_and_no_others_go(
    tmp_path: Path, state: LakeState
) -> None:
    quarantine, files = Quarantine(state), staged(tmp_path, {1: "a", 2: "a"})
    quarantine.keep(step(), {}, staged(tmp_path, {1: "a"}), "run-1")

    def forgotten_meanwhile(life: Life) -> None:
        if quarantine.read(raw=True)[-1].line == 2:  # a run that forgets rows has searched before
            raise TableMoved(f"rows of {life} were forgotten meanwhile.")

    with pytest.raises(TableMoved):
        quarantine.keep(step(), {}, files, "run-2", forgotten_meanwhile)
    assert [line for _, line, *_ in kept(another(state), closed=True)] == [1]
    assert quarantine.search(lambda _, record: record.raw == b"bytes 2")[2] == ()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("event", ["keep", "begin_replay", "close"])
def test_a_run_that_is_killed_has_added_its_events_or_has_not_and_can_be_repeated(
    tmp_path: Path, state: LakeState, monkeypatch: pytest.MonkeyPatch, when: str, event: str
) -> None:
    quarantine, files = Quarantine(state), staged(tmp_path, {1: "a", 2: "a"})
    if event != "keep":
        quarantine.keep(step(), {}, files, "run-1")
    try_once = GrowingTable.try_once

    def killed(*given: Any) -> None:
        if when == "after":
            try_once(*given)
        raise KeyboardInterrupt

    def act() -> None:
        if event == "keep":
            quarantine.keep(step(), {}, files, "run-1")
        else:
            getattr(quarantine, event)(ORDERS, [("1.csv", 1)])

    with monkeypatch.context() as patch:
        patch.setattr(GrowingTable, "try_once", killed)
        with pytest.raises(KeyboardInterrupt):
            act()
    act()
    expected = {"keep": [1, 2], "begin_replay": [1, 2], "close": [2]}[event]
    assert [line for _, line, *_ in kept(another(state))] == expected
    begun = {place for place, tokens in another(state).tokens(ORDERS).items() if tokens}
    assert begun == ({("1.csv", 1)} if event == "begin_replay" else set())


@pytest.mark.parametrize("error", [CommitFailedException, CommitStateUnknownException])
def test_events_whose_commit_was_answered_otherwise_are_there_once(
    tmp_path: Path, state: LakeState, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    quarantine, files = Quarantine(state), staged(tmp_path, {1: "a"})
    try_once = quarantine.events.try_once

    def unanswered(*given: Any) -> None:
        monkeypatch.setattr(quarantine.events, "try_once", try_once)
        try_once(*given)
        raise error("the answer was lost, and the client asked again")

    monkeypatch.setattr(quarantine.events, "try_once", unanswered)
    if error is CommitStateUnknownException:
        with pytest.raises(TableMoved):
            quarantine.keep(step(), {}, files, "run-1")
    quarantine.keep(step(), {}, files, "run-1")
    assert quarantine.events.load().scan().to_arrow().num_rows == 1


def test_a_compaction_leaves_every_record_as_it_was_whatever_comes_between(
    tmp_path: Path, state: LakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantine, rival = Quarantine(state), another(state)
    for line in range(1, 8):
        quarantine.keep(step(), {}, staged(tmp_path, {line: "a"}), f"run-{line}")
    other = another(state, "other")
    other.keep(step(ITEMS), {}, staged(tmp_path, {1: "a"}, ITEMS), "run-1")
    token = quarantine.begin_replay(ORDERS, [("1.csv", 1)])
    quarantine.close(ORDERS, [("1.csv", 2)])
    before = quarantine.read(raw=True, closed=True)
    try_once = quarantine.events.try_once

    def overtaken(*given: Any) -> None:
        monkeypatch.setattr(quarantine.events, "try_once", try_once)
        rival.close(ORDERS, [("1.csv", 3)])
        try_once(*given)

    monkeypatch.setattr(quarantine.events, "try_once", overtaken)
    quarantine.events.compact(1 << 20)
    after = quarantine.events.look()
    assert after is not None
    assert {part: len(files) for part, files in after.files.items()} == {"feed": 2, "other": 1}
    assert {row.line for row in quarantine.read()} == {1, 4, 5, 6, 7}
    assert [row.line for row in quarantine.read(raw=True, closed=True) if row not in before] == [3]
    assert quarantine.tokens(ORDERS)["1.csv", 1] == {token}
    assert kept(other) == [("items", 1, "a", "open")]


def test_of_two_compactions_at_once_one_does_the_work(
    tmp_path: Path, state: LakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantine, rival = Quarantine(state), another(state)
    for line in (1, 2, 3):
        quarantine.keep(step(), {}, staged(tmp_path, {line: "a"}), "run-1")
    rival.events.look()
    quarantine.events.compact(1 << 20)
    stale = rival.events._looked
    monkeypatch.setattr(rival.events, "look", lambda: stale[1] if stale else None)
    with pytest.raises(TableMoved):
        rival.events.compact(1 << 20)
    assert [line for _, line, *_ in kept(another(state))] == [1, 2, 3]


def test_maintenance_keeps_the_quarantine_in_shape_without_a_jvm(tmp_path: Path) -> None:
    def no_jvm() -> Any:
        raise AssertionError("a JVM was asked for")

    lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "feed", no_jvm)
    quarantine = Quarantine(lake.state)
    for line in range(1, 13):
        quarantine.keep(step(), {}, staged(tmp_path, {line: "a"}), "run-1")
    upkeep = LakeMaintenance(lake, MaintenanceSettings(expire_at_least=2))
    (facts,) = upkeep.facts()
    later = max(snapshot.made_ms for snapshot in facts.lineage) + 10 * 86_400_000
    due = chores(facts, upkeep.settings, later)
    assert (facts.table, due.compact, due.orphans, len(due.expire)) == ("_cdc.quarantine", True, True, 2)
    removed = upkeep.carry_out(facts, due, later)
    assert removed >= 12
    (after,) = upkeep.facts()
    assert (after.data_files, after.rows, chores(after, upkeep.settings, later).compact) == (1, 12, False)
    assert not chores(after, upkeep.settings, later)
    assert len(kept(quarantine)) == 12
    lake.close()


def test_a_run_without_such_records_loads_nothing_of_what_writes_them(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom cdc_assets.lake.tables import Lake\nfrom cdc_assets.settings.config import LakeSettings\n"
        f"lake = Lake(LakeSettings.from_warehouse({str(tmp_path)!r}), 'feed')\n"
        "assert lake.quarantined() == () and lake.quarantined_counts() == {}\n"
        "assert not {'cdc_assets.lake.growing', 'cdc_assets.lake.scan', 'pandas'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_purge_that_is_repeated_after_a_kill_says_the_same_of_its_table(state: LakeState) -> None:
    for _ in range(2):
        state.bury(ORDERS, 300)
    assert [(life, tombstone.ddl, tombstone.name) for life, tombstone in fresh(state).tombstones().items()] == [
        (ORDERS, 300, None)
    ]
    assert fresh(state, "other").tombstones() == {}


def fresh(state: LakeState, changefeed: str = "feed") -> LakeState:
    other = LakeState(state.settings, changefeed)
    other.entries()
    return other
