"""Rows forgotten by their keys: from tables, history, quarantine and landing; refused where they would come back."""

from __future__ import annotations

import base64
import dataclasses
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any, NoReturn, cast

import pyarrow.compute as pc
import pytest

from cdc_assets.errors import BadSettings, ForgetRefused, RebuildRefused, TableMoved
from cdc_assets.features.cuts.operations import make_cut
from cdc_assets.features.forgetting.operations import abandon, find_rows, forget
from cdc_assets.features.forgetting.operations_key_bytes import KeyBytes, key_bytes
from cdc_assets.features.forgetting.report import forget_lines
from cdc_assets.features.quarantine.operations import replay
from cdc_assets.features.verification.operations_rows import value_text
from cdc_assets.formats import MessageOptions
from cdc_assets.io.encryption import encrypt
from cdc_assets.io.scratch import SCRATCH, scratch
from cdc_assets.lake.names import format_identity
from cdc_assets.lake.tickets import FORGET, LakeTickets
from cdc_assets.landing.iceberg import LandingTable
from cdc_assets.ledger import Ledger
from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.model.forgetting import ForgetReport, RemovedRows, SearchedFiles, kept_out
from cdc_assets.model.landed import EventKind
from cdc_assets.model.ledger_entries import TableState
from cdc_assets.model.progress import AppliedState, Life, State
from cdc_assets.model.quarantine import QuarantinedRow
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.tickets import Ticket
from cdc_assets.model.tso import FOREVER, Tso
from cdc_assets.operations.explain import explain
from cdc_assets.operations.extract import extract
from cdc_assets.operations.keys import keys_of, parse_keys
from cdc_assets.operations.opening import open_state
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.operations.status import lake_status
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.pipeline.planner import Planner
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.canaries import leaks
from cdc_assets_tests.forget_orders import MemoryOrders, TopicOrders
from cdc_assets_tests.kills import Killed
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryForgetting, MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.schema_documents import document, file_column, write_schema
from cdc_assets_tests.topic_feed import TopicFeed, settings_of
from cdc_assets_tests.topics import topics


class Shop:
    """A little feed that is applied to a lake in memory."""

    def __init__(self, directory: Path, **more: Any) -> None:
        self.feed, self.more = LittleFeed(directory), more
        self.lake, self.ledger = MemoryLake(), Ledger("sqlite://")
        self.feed.create("shop.t")

    def pipeline(self) -> Pipeline:
        return self.feed.pipeline_into(self.lake, self.ledger, **self.more)

    def apply(self, through: int, *rows: tuple[str, int, int | str, str]) -> None:
        self.feed.rows("shop.t", FIRST, rows)
        self.feed.publish(through)
        self.pipeline().apply("run")

    def forget(self, *keys: str, table: str = "shop.t", **more: Any) -> ForgetReport:
        return forget(self.pipeline(), MemoryForgetting(self.lake), table, [[key] for key in keys], "run", **more)

    def rows_of(self, name: str) -> list[tuple[int, str]]:
        return sorted((row["id"], row["v"]) for row in self.lake.read(TableId("shop", name)).to_pylist())

    def rows(self, kind: str = "") -> list[tuple[int, str]]:
        (table,) = (table for life, table in self.lake.tables.items() if life.kind == kind)
        return sorted((row["id"], row["v"]) for row in table.rows.to_pylist())


def killed(*_: Any, **__: Any) -> NoReturn:
    raise Killed


def test_a_row_goes_from_the_mirror_and_its_history(tmp_path: Path) -> None:
    shop = Shop(tmp_path, history={"shop.*": ["log", "scd2"]})
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "two"), ("U", FIRST + 3, 1, "uno"))

    def found() -> list[bool]:
        lake = MemoryForgetting(shop.lake)
        return [bool(files.having) for files in find_rows(shop.pipeline(), lake, "shop.t", [["1"]]).values()]

    assert found() == [True] * 3
    report = shop.forget("1")
    assert (report.complete, report.keys, len(report.removed)) == (True, 1, 3)
    assert found() == [False] * 3
    assert [shop.rows(kind) for kind in ("", "log", "scd2")] == [[(2, "two")]] * 3
    assert (
        "a rebuild brings them back, and so does a table or a kind of history that the settings ask for later"
        in report.feed
    )


def test_cuts_and_tags_that_have_the_row_keep_it_until_a_person_lets_them_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, ("I", FIRST + 2, 2, "two"))
    make_cut(shop.pipeline(), "without")
    shop.apply(FIRST + 19, ("I", FIRST + 11, 1, "one"))
    make_cut(shop.pipeline(), "with")
    ((life, table),) = shop.lake.tables.items()
    table.tags["audit"] = table.tags["with"]
    report = shop.forget("1")
    assert (shop.rows(), report.complete, report.kept_cuts, report.cuts) == (
        [(2, "two")], False, ("audit", "with"), ()
    )  # fmt: skip
    kept = [line for line in forget_lines(report) if line.startswith("  kept") and "--remove-cuts" in line]
    assert ["until a person removes it" in line for line in kept] == [True, True]
    regular = dataclasses.replace(report, searched=(SearchedFiles("t", 1, 1, tags=(f"cut-{FIRST}",)),))
    assert any(f"the cut cut-{FIRST} keeps" in line and "cuts.keep newer" in line for line in forget_lines(regular))
    assert "--remove-cuts" in list(forget_lines(report))[-1]
    assert [ticket.stopped for ticket in shop.lake.tickets.values()] == [True]
    found_files = find_rows(shop.pipeline(), MemoryForgetting(shop.lake), "shop.t", [["1"]])
    assert [files.tags for files in found_files.values()] == [("audit", "with")]
    with monkeypatch.context() as patched:
        patched.setattr(MemoryForgetting, "forget", killed)
        with pytest.raises(Killed):
            shop.forget("1", remove_cuts=True)
    assert (list(table.tags), len(shop.lake.tickets)) == (["without"], 2)
    report = shop.forget("1")
    assert (report.complete, report.found_nothing, len(report.continued)) == (True, False, 2)
    assert ([cut.name for cut in shop.lake.cuts()], shop.lake.tickets) == (["without"], {})
    assert shop.lake.applied()[life].tags == {"without"}


def test_a_report_counts_each_key_once_and_says_of_how_many_there_were_rows(tmp_path: Path) -> None:
    shop = Shop(tmp_path, history={"shop.t": "log"})
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "a"), ("U", FIRST + 2, 1, "b"), ("I", FIRST + 3, 2, "c"))
    report = shop.forget("1", "7", "1")
    assert (report.keys, [(removal.rows, removal.keys) for removal in report.removed]) == (2, [(1, 1), (2, 1)])
    lines = list(forget_lines(report))
    assert any(line.startswith(f"  removed   shop.t@{FIRST}.log: 2 copies of rows of 1 of 2 keys;") for line in lines)


def test_a_log_of_which_rows_were_forgotten_says_what_it_lacks_of_a_row_that_a_rebuild_brought_back(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path, history={"shop.*": "log"})
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "two"))
    assert extract(shop.pipeline(), "shop.t", 0, FIRST + 9).forgotten_through == -1
    shop.forget("1")
    rebuild(shop.pipeline(), MemoryRebuilds(shop.lake), ["shop.t"])
    back, other = (explain(shop.pipeline(), shop.lake, "shop.t", [key]) for key in "12")
    assert (back.row, back.changes, other.gone) == ({"id": "1", "v": "one"}, (), ())
    assert [f"through {FIRST + 9}" in sentence for sentence in back.gone] == [True]
    table_extract = extract(shop.pipeline(), "shop.t", 0, FIRST + 9)
    assert (table_extract.changes.num_rows, table_extract.forgotten_through) == (1, FIRST + 9)
    shop.apply(FIRST + 20, ("U", FIRST + 12, 1, "uno"))
    assert extract(shop.pipeline(), "shop.t", FIRST + 9, FIRST + 20).description()["forgotten_through"] is None


def test_history_tables_of_kinds_that_are_switched_off_forget_the_row_too(tmp_path: Path) -> None:
    shop = Shop(tmp_path, history={"shop.*": ["log", "scd2"]})
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "two"))
    shop.more = {}
    assert {removal.life.kind for removal in shop.forget("1").removed} == {"", "log", "scd2"}
    assert [shop.rows(kind) for kind in ("", "log", "scd2")] == [[(2, "two")]] * 3


def test_rows_that_are_not_applied_are_looked_through_by_the_key_of_then_where_it_has_other_values(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)
    text = {"ColumnType": "VARCHAR", "ColumnPrecision": "20"}
    shop.feed.ddl("shop.u", FIRST, "CREATE TABLE `u` (`id` VARCHAR(20) PRIMARY KEY,`v` VARCHAR(40))", 3, key=text)
    shop.feed.rows("shop.u", FIRST, [("I", FIRST + 1, '"1"', "one"), ("I", FIRST + 2, '"2"', "two")])
    shop.apply(FIRST + 9)
    shop.feed.ddl("shop.u", FIRST + 20, "ALTER TABLE `u` MODIFY COLUMN `id` INT", 12)
    shop.feed.rows("shop.u", FIRST + 20, [("U", FIRST + 21, 1, "uno")])
    shop.feed.publish(FIRST + 29)
    for key, has in (("x", False), ("1", True)):
        with pytest.raises(ForgetRefused, match=f"the DDL of version {FIRST + 20} is not applied") as refused:
            shop.forget(key, table="shop.u")
        assert ("has rows of the keys" in refused.value.message) == has


def made_anew(shop: Shop, at: Tso = FIRST + 20, **key: str) -> Life:
    """Drop the table, and create it anew with another key; return the new one."""
    life = Life(TableId("shop", "t"), at + 10)
    shop.feed.ddl("shop.t", at, "DROP TABLE `t`", 4, columns=False)
    kind = "VARCHAR(20)" if key else "INT"
    query = f"CREATE TABLE `t` (`id` {kind} PRIMARY KEY,`v` VARCHAR(40))"
    shop.feed.ddl("shop.t", life.version, query, 3, key=key)
    shop.feed.publish(at + 11)
    shop.pipeline().apply("run")
    return life


def test_a_table_of_the_name_whose_columns_nobody_knows_is_named_before_anything_is_forgotten(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"))
    former, _ = Life(TableId("shop", "t"), FIRST), made_anew(shop)
    shop.ledger = Ledger("sqlite://")
    for file in shop.feed.bucket.rglob("schema_*.json"):
        if str(FIRST + 30) not in file.name:
            file.unlink()
    shutil.rmtree(shop.feed.bucket / "shop" / "t" / str(FIRST))
    with pytest.raises(ForgetRefused, match=f"{former} of the lake had the name shop.t, and no schema file says"):
        shop.forget("1")
    assert shop.forget("1", table=f"shop.t@{FIRST + 30}").complete


def test_tables_of_one_name_with_different_keys_forget_rows_by_their_identities(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "two"))
    former = Life(TableId("shop", "t"), FIRST)
    shop.feed.ddl("shop.t", FIRST + 20, "DROP TABLE `t`", 4, columns=False)
    query = "CREATE TABLE `t` (`a` INT, `b` INT, PRIMARY KEY (`a`, `b`))"
    columns = [file_column(name, "INT", ColumnIsPk="true") for name in ("a", "b")]
    write_schema(shop.feed.bucket, document("shop", "t", FIRST + 30, Query=query, Type=3, TableColumns=columns))
    shop.feed.publish(FIRST + 31)
    shop.pipeline().apply("run")
    with pytest.raises(ForgetRefused, match="Forget the rows of each table by its identity"):
        forget(shop.pipeline(), MemoryForgetting(shop.lake), "shop.t", [["1", "2"]])
    assert shop.forget("1", table=str(former)).complete
    assert [row["id"] for row in shop.lake.tables[former].rows.to_pylist()] == [2]


def test_each_table_of_a_name_reads_a_key_by_the_type_that_it_has_there(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    former = made_anew(shop, ColumnType="VARCHAR", ColumnPrecision="20")
    shop.feed.rows("shop.t", FIRST + 30, [("I", FIRST + 41, number, "new") for number in ("02", "2", "x")])
    shop.feed.publish(FIRST + 50)
    made_anew(shop, FIRST + 60)
    assert shop.forget("2").complete
    assert sorted(row["id"] for row in shop.lake.tables[former].rows.to_pylist()) == ["02", "x"]


def test_a_table_that_is_forgotten_alone_finishes_no_run_for_all_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"))
    former, present = Life(TableId("shop", "t"), FIRST), made_anew(shop)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryForgetting, "forget", killed)
        for table in ("shop.t", str(former)):
            with pytest.raises(Killed):
                shop.forget("1", table=table)
    assert shop.forget("1", table=str(former)).complete
    assert shop.forget("1", table=str(present)).complete
    assert len(shop.lake.tickets) == 1
    assert shop.forget("1").complete
    assert shop.lake.tickets == {}


def test_the_ledger_keeps_no_range_of_keys_of_a_table_of_which_rows_were_forgotten(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 4711, "one"), ("I", FIRST + 2, 4720, "two"))
    (life,) = shop.lake.tables
    (before,) = shop.ledger.files_of("little", life)
    assert [(key.column, key.low, key.high) for key in before.keys] == [("id", 4711, 4720)]
    shop.forget("4711")
    (after,) = shop.ledger.files_of("little", life)
    assert (after.rows, after.keys) == (before.rows, ())


def test_input_that_is_not_applied_is_named_by_its_file(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "two"))
    shop.feed.rows("shop.t", FIRST, [("U", FIRST + 11, 2, "due")])
    shop.feed.publish(FIRST + 20)
    with pytest.raises(ForgetRefused, match=r"CDC00000000000000000002\.csv has rows of the keys that are not applied"):
        shop.forget("1", "2")
    assert shop.rows() == [(1, "one"), (2, "two")]
    assert shop.forget("1").complete
    assert shop.rows() == [(2, "two")]


def test_a_ddl_that_is_not_applied_is_named(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"))
    shop.feed.ddl("shop.t", FIRST + 20, "ALTER TABLE `t` ADD COLUMN `w` INT", 5, wide=True)
    shop.feed.publish(FIRST + 30)
    with pytest.raises(ForgetRefused, match=f"the DDL of version {FIRST + 20} is not applied"):
        shop.forget("1")
    assert shop.lake.tickets == {}


@pytest.mark.parametrize("place", ["forget", "forget_records", "search", "search_records"])
def test_a_run_that_was_killed_is_told_until_the_same_keys_are_forgotten(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, *(("I", FIRST + number, number, "one") for number in (1, 2, 3)))
    with monkeypatch.context() as patched:
        patched.setattr(MemoryForgetting, place, killed)
        with pytest.raises(Killed):
            shop.forget("2", "1")
    (ticket,) = shop.lake.tickets.values()
    assert (ticket.table, ticket.keys, ticket.run) == ("shop.t", 2, "run")
    assert (ticket.stopped, ticket.runs()) == (True, False), "it could say so"
    assert not any(text in repr(ticket.plan) for text in ("'1'", "'2'"))
    assert shop.forget("3").continued == ()
    assert list(shop.lake.tickets.values()) == [ticket]
    report = shop.forget("1", "2")
    assert (report.complete, report.continued, report.found_nothing) == (True, (ticket.since,), False)
    assert (shop.rows(), shop.lake.tickets) == ([], {})


@pytest.mark.parametrize("place", ["forget", "untag", "remove_cut"])
def test_cuts_that_a_killed_run_removed_are_in_the_report_of_the_run_that_finishes_it(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "two"))
    make_cut(shop.pipeline(), "with")
    ((_, table),) = shop.lake.tables.items()
    table.tags["audit"] = table.tags["with"]
    with monkeypatch.context() as patched:
        patched.setattr(MemoryLake if place == "remove_cut" else MemoryForgetting, place, killed)
        with pytest.raises(Killed):
            shop.forget("1", remove_cuts=True)
    (ticket,) = shop.lake.tickets.values()
    assert (ticket.stopped, ticket.removed) == (True, ("audit", "with"))
    kept = () if place == "forget" else ("with",) if place == "remove_cut" else ("audit", "with")
    report = shop.forget("1")
    there = {tag for state in shop.lake.applied().values() for tag in state.tags}
    assert {*report.cuts} == {"audit", "with"} - there
    assert {*report.kept_cuts} == there == {*kept}
    report = report if report.complete else shop.forget("1", remove_cuts=True)
    assert (report.complete, report.cuts) == (True, ("audit", "with"))
    assert shop.lake.tickets == {}


@pytest.mark.parametrize("place", ["keep_decision", "plan"])
def test_a_run_that_is_killed_as_soon_as_its_keys_are_kept_out_is_told_too(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "a key that is long enough to encrypt with")
    shop = Shop(tmp_path, privacy_key={"env": "PRIVACY_KEY"})
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"))
    with monkeypatch.context() as patched:
        keep, plan = MemoryLake.keep_decision, Planner.plan

        def kept(lake: MemoryLake, decision: Any) -> None:
            keep(lake, decision)
            if place == "keep_decision":
                raise Killed
            patched.setattr(Planner, "plan", killed)

        patched.setattr(MemoryLake, "keep_decision", kept)
        with pytest.raises(Killed):
            shop.forget("1", until=FOREVER)
        patched.setattr(Planner, "plan", plan)
    assert len(kept_out(shop.lake.decisions())) == 1
    assert [(ticket.table, ticket.keys) for ticket in shop.lake.tickets.values()] == [("shop.t", 1)]
    assert shop.forget("1", until=FOREVER).complete
    assert shop.lake.tickets == {}


def test_the_ticket_of_a_long_run_keeps_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"))
    renewed, touch, search = Event(), MemoryForgetting.touch, MemoryForgetting.search

    def touched(lake: MemoryForgetting, ticket: Ticket) -> None:
        touch(lake, ticket)
        if current_thread() is not main_thread():
            renewed.set()

    def long(*given: Any) -> Any:
        renewed.clear()
        assert renewed.wait(60)
        assert [ticket.table for ticket in shop.lake.tickets.values()] == ["shop.t"]
        return search(*given)

    monkeypatch.setattr("cdc_assets.operations.tickets._BEAT_SECONDS", 0.001)
    monkeypatch.setattr(MemoryForgetting, "touch", touched)
    monkeypatch.setattr(MemoryForgetting, "search", long)
    assert shop.forget("1").complete


def test_a_run_that_found_no_row_says_how_keys_are_given(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"))
    none, some = shop.forget("7"), shop.forget("1", "7")
    assert (none.found_nothing, some.found_nothing) == (True, False)
    assert any("as MySQL prints it" in line for line in forget_lines(none))
    assert not any("as MySQL prints it" in line for line in forget_lines(some))


def test_a_killed_run_is_finished_under_any_name_of_the_table_or_ended_without_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, *(("I", FIRST + number, number, "one") for number in (1, 2, 3)))
    for key in ("1", "2"):
        with monkeypatch.context() as patched:
            patched.setattr(MemoryForgetting, "search", killed)
            with pytest.raises(Killed):
                shop.forget(key)
    assert shop.forget("1", table=f"SHOP.T@{FIRST}").complete
    lake = MemoryForgetting(shop.lake)
    ((token, ticket),) = shop.lake.tickets.items()
    lake.touch(dataclasses.replace(ticket, stopped=False))  # as one that was killed leaves it
    with pytest.raises(ForgetRefused, match=r"still forgets rows of shop\.t"):
        abandon(shop.pipeline(), lake, "shop.t")
    lake.touch(dataclasses.replace(ticket, alive=0.0))
    with pytest.raises(BadSettings, match=r"no run that forgets rows of shop\.u .*; known are: shop\.t"):
        abandon(shop.pipeline(), lake, "shop.u")
    assert [ticket.token for ticket in abandon(shop.pipeline(), lake, "shop.T", "run")] == [token]
    assert shop.lake.tickets == {}
    queries = [entry.query for entry in shop.ledger.journal("little") if "abandoned" in entry.query]
    assert queries == ["1 key abandoned, of a run that began at " + ticket.since + ": rows of them may be left"]


def test_what_killed_runs_left_on_this_machine_goes_and_what_is_at_work_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shop = Shop(tmp_path / "shop")
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"))
    left = tmp_path / f"{SCRATCH}left"
    left.mkdir()
    for name in ("lock", "rows"):
        (left / name).write_text("one")
    with scratch() as place:
        (place / "rows").write_text("one")
        assert shop.forget("1").scratch == 1
        assert [path.parent.name for path in tmp_path.glob(f"{SCRATCH}*/files")] == [place.parent.name]
        assert (left.exists(), (place / "rows").exists()) == (False, True)
    assert not place.parent.exists()


def test_a_rebuild_beside_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "two"))
    rebuilds, search = MemoryRebuilds(shop.lake), MemoryForgetting.search

    def beside(self: MemoryForgetting, *given: Any) -> Any:
        with pytest.raises(RebuildRefused, match=r"forgets rows of shop\.t"):
            rebuild(shop.pipeline(), rebuilds, ["shop.t"])
        return search(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryForgetting, "search", beside)
        assert shop.forget("1").complete
    assert (shop.rows(), rebuilds.open, rebuilds.asides) == ([(2, "two")], {}, {})
    rebuild(shop.pipeline(), rebuilds, ["shop.t"])
    assert len(shop.rows()) == 2


def test_windows_of_a_run_that_lives_on_wait_for_a_run_that_lost_its_races_against_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    shop.feed.create("shop.other")
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "two"))
    former, ends = MemoryForgetting.forget, iter(range(FIRST + 20, FIRST + 90, 10))

    def beside(*given: Any, **named: Any) -> RemovedRows:
        end, before = next(ends), shop.rows_of("t")
        shop.feed.rows("shop.other", FIRST, [("I", end - 1, end - FIRST, "more")])
        shop.apply(end, ("I", end - 1, end - FIRST, "more"))
        if shop.rows_of("t") != before:
            raise TableMoved("another writer committed first.")
        return former(*given, **named)

    monkeypatch.setattr(MemoryForgetting, "forget", beside)
    assert shop.forget("1").complete
    assert [key for key, _ in shop.rows_of("t")] == [2, 20]
    assert [key for key, _ in shop.rows_of("other")] == [20, 30], "others went on"
    shop.apply(FIRST + 99)
    assert [key for key, _ in shop.rows_of("t")] == [2, 20, 30]


def test_a_held_table_is_not_touched(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"))
    shop.apply(FIRST + 19, ("I", FIRST + 11, "x", "bad"))
    with pytest.raises(ForgetRefused, match="nothing was forgotten"):
        shop.forget("1")
    assert shop.rows() == [(1, "one")]


@pytest.mark.parametrize(
    ("table", "key", "message"),
    [("shop.u", ["1"], "no table is called shop.u"), ("shop.t", ["x"], "is no value of the key column id"),
     ("shop.t", ["1", "2"], "2 values came"), ("shop.plain", ["1"], "has no key")],
)  # fmt: skip
def test_keys_that_do_not_fit_are_refused(tmp_path: Path, table: str, key: list[str], message: str) -> None:
    shop = Shop(tmp_path)
    shop.feed.create("shop.plain", keyed=False)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"))
    with pytest.raises(BadSettings, match=message):
        forget(shop.pipeline(), MemoryForgetting(shop.lake), table, [key])


def test_a_file_of_keys_is_utf_8_with_or_without_its_mark() -> None:
    assert parse_keys("\ufeff42\r\né\r\n".encode(), "keys.csv") == [["42"], ["é"]]
    with pytest.raises(BadSettings, match=r"^keys\.csv line 2 is no UTF-8"):
        parse_keys(b"42\n\xe9\n", "keys.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [("1\n\n2,3\n", "line 3: the key of s.t is "), ('1,"a\n"\n2,b\nx,c\n', "line 4: what it has is no value of"),
     ("1,x'0\n", "and 2 values came"), ("x'00'\nx'zz'\n", "line 2: x'…' of the key column"),
     ("1\nx'02'\n", "line 2: what it has is no value of"),
     (f"1\n{'2' * 200_000}\n", "line 2 is no CSV")],
)  # fmt: skip
def test_a_key_of_a_file_that_does_not_fit_is_named_by_its_line(content: str, message: str) -> None:
    binary = content.startswith("x'")
    columns = [Column("id", "VARBINARY" if binary else "INT"), Column("name", "VARCHAR", collation="utf8mb4_bin")]
    schema = TableSchema(tuple(columns), ("id", "name") if '"' in content else ("id",))
    with pytest.raises(BadSettings, match=rf"^keys\.csv .*{re.escape(message)}"):
        keys_of(schema, parse_keys(content, "keys.csv"), "s.t")


def test_a_text_key_that_looks_like_hexadecimal_digits_is_itself() -> None:
    text = TableSchema((Column("name", "VARCHAR", collation="utf8mb4_bin"),), ("name",))
    assert keys_of(text, [["x'41'"]], "s.t").to_pydict() == {"name": ["x'41'"]}
    binary = TableSchema((Column("name", "VARBINARY"),), ("name",))
    assert keys_of(binary, [["x'41'"]], "s.t").to_pydict() == {"name": [b"A"]}


def test_records_in_quarantine_that_have_the_key_go_and_others_stay(tmp_path: Path) -> None:
    shop = Shop(tmp_path, quarantine=True)
    bad = [("I", FIRST + 2, 7, "x" * 50), ("I", FIRST + 3, 77, "x" * 50), ("I", FIRST + 4, 8, "x7" * 25)]
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), *bad)
    assert len(shop.lake.kept) == 3
    report = shop.forget("7")
    assert [line for _, _, line in shop.lake.kept] == [3, 4]
    assert [record.rpartition("/")[2] for record in report.records] == ["CDC00000000000000000001.csv line 2"]


def test_a_record_in_quarantine_is_known_by_its_decoded_key_and_not_by_other_values(tmp_path: Path) -> None:
    shop = Shop(tmp_path, quarantine=True, history={"shop.*": "log"})
    bad = [("I", FIRST + 2, 2, "2026-01-01 " + "x" * 40), ("U", FIRST + 3, 1, "x" * 50), ("D", FIRST + 4, 3, "1")]
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), *bad)
    assert sorted(line for _, _, line in shop.lake.kept) == [2, 2, 3, 3]
    report = shop.forget("1")
    assert (report.complete, sorted(line for _, _, line in shop.lake.kept)) == (True, [2, 2])


def test_a_record_whose_key_cannot_be_decoded_goes_where_a_person_names_its_place(tmp_path: Path) -> None:
    shop = Shop(tmp_path, quarantine=True)
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, "x", "1"), ("I", FIRST + 3, "y", "2"))
    place = "shop/t/465283339517952001/CDC00000000000000000001.csv line 2"
    report = shop.forget("1")
    assert (shop.rows(), len(shop.lake.kept), report.complete, report.unknown) == ([], 2, False, (place,))
    assert [line for line in forget_lines(report) if f"--record '{place}'" in line] != []
    report = shop.forget("1", records=[place, "shop/t/465283339517952001/CDC00000000000000000001.csv line 3"])
    assert (report.complete, report.records) == (True, (place,))
    assert [line for _, _, line in shop.lake.kept] == [3], "its bytes have no value of the key"


def test_records_of_masked_tables_are_known_by_their_encrypted_and_hashed_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "a key that is long enough to encrypt with")
    privacy = {"shop.t.id": {"hash": {"key": {"env": "PRIVACY_KEY"}}}}
    shop = Shop(tmp_path, quarantine=True, privacy=privacy, privacy_key={"env": "PRIVACY_KEY"})
    bad = [("I", FIRST + 2, 1, "x" * 50), ("I", FIRST + 3, 2, "1 " + "y" * 50)]
    shop.apply(FIRST + 9, ("I", FIRST + 1, 3, "one"), *bad)
    assert all(record.keys and b"ARROW" not in record.keys for record in shop.lake.kept.values())
    report = shop.forget("1")
    assert (report.complete, [line for _, _, line in shop.lake.kept]) == (True, [3])


@pytest.mark.parametrize("renamed", [False, True])
def test_a_record_from_before_a_ddl_on_its_key_is_known_by_the_key_of_then(tmp_path: Path, renamed: bool) -> None:
    shop = Shop(tmp_path, quarantine=True)
    shop.apply(FIRST + 9, ("I", FIRST + 2, 1, "x" * 50), ("I", FIRST + 3, 2, "1" * 50), ("I", FIRST + 4, 3, "c"))
    name, clause = ("k", "RENAME COLUMN `id` TO `k`") if renamed else ("id", "MODIFY COLUMN `id` BIGINT")
    key = file_column(name, "INT" if renamed else "BIGINT")
    shop.feed.ddl("shop.t", FIRST + 20, f"ALTER TABLE `t` {clause}", 12, key=key)
    shop.feed.publish(FIRST + 29)
    shop.pipeline().apply("run")
    assert shop.forget("1").complete
    assert [line for _, _, line in shop.lake.kept] == [2]


def test_a_message_that_cannot_be_read_and_may_have_the_row_is_named_and_not_lost() -> None:
    topic = next(iter(topics("canal-json")))
    feed = TopicFeed(settings_of(topic), topic=topic)
    last = topic.lines[-1]
    bad = {**last, "offset": last["offset"] + 1, "value_b64": base64.b64encode(b'{"id": 4711, cut off').decode()}
    feed.send(lines=[*topic.lines, bad])
    feed.apply()
    (event,) = feed.landing.landed().open_bad
    keyed = (life for life, table in feed.lake.tables.items() if table.name is not None and len(table.schema.key) == 1)
    with pytest.raises(ForgetRefused, match=f"offset {event.offset} cannot be read and may have the rows"):
        forget(feed.pipeline(), MemoryForgetting(feed.lake), str(next(keyed)), [["4711"]])
    assert feed.landing.landed().open_bad == (event,)


def test_what_messages_say_of_columns_is_no_row_and_stays() -> None:
    feed = TopicFeed(settings_of(topic := next(iter(topics("simple")))), topic=topic)
    feed.send()
    feed.apply()
    before = feed.landing.landed().events
    schema_bytes = b"".join(event.value or b"" for event in before if event.kind in (EventKind.DDL, EventKind.SCHEMA))
    keyed = ((table, life) for life, table in feed.lake.tables.items() if table.name is not None and table.schema.key)
    life, key = next(
        (life, text)
        for table, life in keyed
        if len(table.schema.key) == 1
        for value in table.rows.column(table.schema.key[0]).to_pylist()
        if re.search(rb"\b%s\b" % re.escape((text := value_text(value) or "").encode()), schema_bytes)
    )
    forget(feed.pipeline(), MemoryForgetting(feed.lake), str(life), [[key]])
    assert feed.landing.landed().events == before


MORE = [
    pytest.param(protocol, marks=pytest.mark.soak)
    for protocol in ("craft", "open-protocol", "simple", "avro", "debezium")
]


@pytest.mark.parametrize("protocol", ["canal-json", *MORE])
def test_messages_of_the_landing_have_nothing_of_a_forgotten_row(protocol: str) -> None:
    topic = next(iter(topics(protocol)))
    feed = TopicFeed(settings_of(topic), topic=topic)
    feed.send()
    feed.apply()
    tables = [(table, life) for life, table in feed.lake.tables.items() if table.name is not None and table.schema.key]
    table, life = max(tables, key=lambda pair: pair[0].rows.num_rows)
    names, expected = list(table.schema.key), {life: other.rows for life, other in feed.lake.tables.items()}
    wanted = table.rows.select(names).slice(0, 1)
    key = [value_text(value) or "" for value in wanted.to_pylist()[0].values()]
    report = forget(feed.pipeline(), MemoryForgetting(feed.lake), str(life), [key])
    assert (report.complete, report.messages > 0) == (True, True)
    again = TopicFeed(settings_of(topic), feed.log, topic, feed.store)
    outcome = again.apply()
    if report.lost:  # its messages have other rows, too: what would lack these is held
        held = {str(table.life.born_as) for table in outcome.tables if table.state is State.HELD}
        assert set(report.lost) <= held
    else:
        left = expected[life].filter(pc.invert(pc.is_in(expected[life].column(names[0]), wanted.column(names[0]))))
        assert again.lake.tables[life].rows.sort_by(names[0]).equals(left.sort_by(names[0]))
    for other_life in expected.keys() - {life} if not report.lost else ():
        assert again.lake.tables[other_life].rows.equals(expected[other_life])


def test_no_file_of_a_landing_on_iceberg_has_a_message_of_a_forgotten_row(tmp_path: Path) -> None:
    topic = next(iter(topics("canal-json")))
    with closing(LandingTable(LakeSettings.from_warehouse(tmp_path / "lake"), "shop")) as store:
        feed = TopicFeed(settings_of(topic), topic=topic, store=store)
        feed.send(len(topic.lines) // 2)
        feed.apply()
        feed.send()
        feed.apply()
        keyed = (pair for pair in feed.lake.tables.items() if pair[1].name is not None and len(pair[1].schema.key) == 1)
        life, table, key, token = next(
            (life, table, value_text(row[table.schema.key[0]]), text.encode())
            for life, table in keyed
            for row in table.rows.to_pylist()
            for text in row.values()
            if isinstance(text, str) and len(text) > 12 and repr(table.rows.to_pylist()).count(text) == 1
        )
        assert leaks(tmp_path / "lake", {token})
        file = next(
            row
            for row in store.stored().rows
            if token in repr(store.read_rows(row, ["value"])["value"].to_pylist()).encode()
        )
        copied = Path(file.removeprefix("file://"))
        killed_in = copied.with_name("of-a-landing-that-was-killed.parquet")
        shutil.copy(copied, killed_in)
        report = forget(feed.pipeline(), MemoryForgetting(feed.lake), str(life), [[key or ""]])
        assert [killed_in.name in place for place in report.searched[-1].having] == [True]
        killed_in.unlink()
        report = forget(feed.pipeline(), MemoryForgetting(feed.lake), str(life), [[key or ""]])
        assert (report.complete, leaks(tmp_path / "lake", {token})) == (True, [])
        again = TopicFeed(settings_of(topic), feed.log, topic, store)
        again.apply()
        assert again.lake.tables[life].rows.num_rows == table.rows.num_rows


@pytest.mark.parametrize("kind", ["", "scd2"])
def test_a_replay_of_older_records_brings_no_forgotten_row_back(tmp_path: Path, kind: str) -> None:
    shop = Shop(tmp_path, quarantine=True, history={"shop.*": ["log", "scd2"]})
    bad = shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "x" * 50)])
    shop.apply(FIRST + 9)
    assert shop.forget("1").complete
    bad.write_bytes(bad.read_bytes().replace(b"x" * 50, b"two"))
    done = {replay_result.life.kind: replay_result.reason for replay_result in replay(shop.pipeline())}
    assert "rows of it were forgotten after these records had been set aside" in done[kind]
    assert shop.rows(kind) == []


@pytest.mark.parametrize("mended", [False, True])
def test_a_replay_of_a_later_record_brings_no_state_back_that_was_forgotten_before(
    tmp_path: Path, mended: bool
) -> None:
    shop = Shop(tmp_path, quarantine=True, history={"shop.*": "scd2"})
    early = shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "x" * 50)])
    shop.apply(FIRST + 9)
    assert shop.forget("1").complete
    later = shop.feed.rows("shop.t", FIRST, [("U", FIRST + 11, 1, "y" * 50)])
    shop.apply(FIRST + 19)
    for path in (later, early) if mended else (later,):
        path.write_bytes(path.read_bytes().replace(b"y" * 50, b"uno").replace(b"x" * 50, b"two"))
    reason = "were forgotten after these records" if mended else "it is longer than 40 characters"
    assert [
        (replay_result.rows, replay_result.waiting, reason in replay_result.reason)
        for replay_result in replay(shop.pipeline())
    ] == [(1, 1, True)] * 2
    assert [shop.rows(kind) for kind in ("", "scd2")] == [[(1, "uno")]] * 2


def test_a_replay_looks_at_tables_before_it_looks_for_records_which_may_be_forgotten_meanwhile(tmp_path: Path) -> None:
    looks = list[str]()

    class Looked(MemoryLake):
        def applied(self) -> Mapping[Life, AppliedState]:
            looks.append("applied")
            return super().applied()

        def quarantined(self, raw: bool = False, closed: bool = False) -> list[QuarantinedRow]:
            looks.append("quarantined")
            return super().quarantined(raw, closed)

    shop = Shop(tmp_path, quarantine=True)
    shop.lake = Looked()
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "x" * 50))
    looks.clear()
    replay(shop.pipeline())
    assert looks[:2] == ["applied", "quarantined"]


@pytest.mark.parametrize("kind", ["", "log"])
def test_status_tells_what_is_left_of_a_killed_run_of_a_table_that_was_renamed_or_has_no_mirror(
    tmp_path: Path, kind: str
) -> None:
    settings, life = LakeSettings.from_warehouse(tmp_path), Life(TableId("shop", "t"), FIRST)
    with open_state(settings, "little") as state:
        ticket = Ticket("token", "digest", "run", 1.0, 2.0, table="shop.t", keys=3, life=format_identity(life))
        LakeTickets(state, FORGET).touch(ticket)
    with closing(Ledger(f"sqlite:///{tmp_path}/ledger.db")) as ledger:
        lives = [str(dataclasses.replace(life, kind=life_kind)) for life_kind in (kind, "scd2")]
        names = [TableId("shop", f"u{number}") for number in range(2)]
        states = [
            TableState(name, 1, 3, State.APPLIED, life=life, checkpoint=3)
            for life, name in zip(lives, names, strict=True)
        ]
        ledger.record_states("little", states, {})
    shown = {row.table: row.unfinished for row in lake_status(settings) if row.unfinished}
    assert list(shown) == ["shop.u0"]
    assert "3 keys of shop.t: a run that forgets their rows" in shown["shop.u0"]


# --- in any order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orders_of", [MemoryOrders, TopicOrders])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 60))])
def test_in_any_order_nothing_is_left_nor_comes_back_and_a_rebuild_gives_the_same(
    seed: int, orders_of: type[MemoryOrders], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "one key")
    lake = cast("Any", MemoryLake())
    orders = orders_of(seed, tmp_path, lambda: lake)
    orders.put()
    orders.apply()
    for _ in range(10):
        orders.step()
    orders.check()
    orders.ledger.close()


# --- records that cannot be decoded -----------------------------------------------------------------------------------


UTF8 = {"collation": "utf8mb4_general_ci"}
BIN = {"collation": "utf8mb4_bin"}
LONG = "1234567890123456789012345678901234567.5"
LONG_BYTES = base64.b64encode(int(LONG.replace(".", "")).to_bytes(16, "big"))
"""A number with more digits than results of Python's decimals have, and its digits as connectors send them."""


def sought(column: Column, text: str, protocol: str = "canal-json", key: EncryptionKey | None = None) -> KeyBytes:
    schema = TableSchema((column,), (column.name,))
    wire = MessageOptions(protocol=protocol, timezone="Asia/Tokyo")
    return key_bytes(keys_of(schema, [[text]], "shop.t"), [[text]], schema, wire, key)


@pytest.mark.parametrize(
    ("kind", "more", "text", "raw", "others"),
    [
        ("INT", {}, "7", b'{"id":"7"}', b'{"id":"77","v":"x7"}'),
        ("INT", {"zerofill": True}, "7", b"0007,x", b"0070,x"),
        ("VARCHAR", UTF8, "Ren\u00e9", b"1,RENE,2", b"1,RENEE,2"),
        ("VARCHAR", BIN, "Ren\u00e9", b'{"k":"Ren\\u00e9"}', b'{"k":"Rene"}'),
        ("VARCHAR", BIN, "\U0001f600 x", b'{"k":"\\ud83d\\ude00 x"}', b'{"k":"\\ud83d\\ude01 x"}'),
        ("VARCHAR", BIN, 'say "no"', b'1,"say ""no""",2', b'1,"say no",2'),
        ("VARCHAR", BIN, "a/b", b'{"k":"a\\/b"}', b'{"k":"a b"}'),
        ("VARBINARY", {"collation": "binary"}, "x'00ff41'", base64.b64encode(b"\0\xffA"), b"AP9C"),
        ("VARBINARY", {"collation": "binary"}, "x'00ff41'", b"00FF41", b"00ff42"),
        ("TIMESTAMP", {}, "2026-01-01 20:00:00", b"2026-01-02 05:00:00,x", b"2026-01-01 05:00:00,x"),
        ("TIMESTAMP", {}, "2026-01-01 20:00:00", b'{"k":"2026-01-01T20:00:00Z"}', b'{"k":"2026-01-01T20:00:01Z"}'),
        ("DATETIME", {"scale": 6}, "2026-01-01 20:00:00.5", b"2026-01-01 20:00:00.500000", b"2026-01-01 20:00:00,5"),
        ("DATETIME", {}, "2026-01-01 20:00:00", b'{"k":1767297600000}', b'{"k":1767297601000}'),
        ("DATE", {}, "2026-01-01", b'{"k":20454}', b'{"k":20455}'),
        ("DECIMAL", {"precision": 10, "scale": 2}, "1.5", b"1.50,x", b"11.5,x"),
        ("DECIMAL", {"precision": 10, "scale": 2}, "1.5", b'{"k":"AJY="}', b'{"k":"AJc="}'),
        ("DECIMAL", {"precision": 38, "scale": 1}, LONG, f"{LONG}0".encode(), b"1.50,1234567890123456789012345678"),
        ("DECIMAL", {"precision": 38, "scale": 1}, LONG, LONG_BYTES, b'{"k":"AJc="}'),
        ("DATETIME", {"scale": 6}, "2026-01-01 20:00:00", b'{"k":1767297600000000100}', b'{"k":1767297600000001000}'),
        ("DATETIME", {}, "1969-12-31 23:59:59", b'{"k":-1000000000}', b'{"k":-1000001000}'),
        ("ENUM", {"elems": ("a", "b"), **BIN}, "b", b'{"k":"2"}', b'{"k":"1"}'),
    ],
)  # fmt: skip
def test_a_value_is_found_as_feeds_write_it(
    kind: str, more: dict[str, Any], text: str, raw: bytes, others: bytes
) -> None:
    values = sought(Column("k", kind, is_pk=True, nullable=False, **more), text)
    assert (values.are_in(raw), values.are_in(others)) == (True, False)


def test_what_cannot_be_searched_may_have_it() -> None:
    column, key = Column("k", "INT", is_pk=True), EncryptionKey(b"k" * 32)
    assert not sought(column, "7").may_be_in(b'{"k":8}')
    assert sought(column, "7", "avro").may_be_in(b"\0\0\0\0\1\x10")
    assert not sought(column, "7", key=key).may_be_in(encrypt(b"8", key))
    assert sought(column, "7").may_be_in(encrypt(b"8", key))
    assert not sought(column, "7").are_in(encrypt(b"7", key))
