"""Forgotten keys stay out of what is applied later, however it comes; nobody keeps their values for that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cli import commands
from cdc_assets.errors import BadSettings, ForgetRefused
from cdc_assets.features.forgetting.operations import forget
from cdc_assets.features.forgetting.operations_keep_out import let_in
from cdc_assets.features.quarantine.operations import replay
from cdc_assets.io.encryption import is_encrypted
from cdc_assets.lake.namespaces import format_decision, own_properties, parse_decisions
from cdc_assets.lake.state import LakeState
from cdc_assets.ledger import Ledger
from cdc_assets.model.comparison import EQUAL, NOT_COMPARED, REPAIRED, TableComparison
from cdc_assets.model.decisions import KeptDecision
from cdc_assets.model.findings import Finding, Severity
from cdc_assets.model.forgetting import ForgetReport, ForgottenKeys, RemovedRows, kept_out
from cdc_assets.model.progress import Life, State
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import Step
from cdc_assets.model.tso import FOREVER
from cdc_assets.operations.explain import explain
from cdc_assets.operations.extract import extract
from cdc_assets.operations.inspect import inspect_changefeed
from cdc_assets.operations.rebuild import rebuild, rebuild_targets
from cdc_assets.pipeline.outcome import Outcome, RunHooks, TableOutcome, TableRun
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.planning.plan import Plan
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.keyed_feed import VALUES, Mended
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryForgetting, MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.schema_documents import document, file_column, write_schema

Row = tuple[str, int, int | str, str]


class Shop:
    """A little feed that is applied to a lake in memory, whose forgotten keys have an HMAC."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
        monkeypatch.setenv("PRIVACY_KEY", "one key")
        monkeypatch.setenv("OTHER_KEY", "another key")
        self.feed = LittleFeed(directory)
        self.more: dict[str, Any] = {"privacy_key": {"env": "PRIVACY_KEY"}, **more}
        self.lake, self.ledger = MemoryLake(), Ledger("sqlite://")

    def pipeline(self, lake: MemoryLake | None = None) -> Pipeline:
        return self.feed.pipeline_into(lake or self.lake, self.ledger, **self.more)

    def write(self, *rows: Row, table: str = "shop.t", version: int = FIRST) -> None:
        self.feed.rows(table, version, rows)

    def apply(self, through: int, *rows: Row) -> Outcome:
        if rows:
            self.write(*rows)
        self.feed.publish(through)
        return self.pipeline().apply("run")

    def forget(self, *keys: str, until: int | None = FOREVER, table: str = "shop.t", **more: Any) -> ForgetReport:
        lake = MemoryForgetting(self.lake)
        return forget(self.pipeline(), lake, table, [[key] for key in keys], until=until, **more)

    def rebuilt(self) -> MemoryLake:
        """Return what a rebuild makes: the same decisions, all input anew."""
        lake = MemoryLake()
        lake.decided = self.lake.decided
        self.pipeline(lake).apply("rebuild")
        return lake


def rows(lake: MemoryLake, table: str = "shop.t", kind: str = "") -> list[tuple[Any, ...]]:
    lake_table = next(
        lake_table for life, lake_table in lake.tables.items() if life.kind == kind and str(life.born_as) == table
    )
    return sorted((row["id"], row["v"]) for row in lake_table.rows.to_pylist())


def of(outcome: Outcome, table: str = "shop.t") -> TableOutcome:
    return next(table_outcome for table_outcome in outcome.tables if str(table_outcome.name) == table)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path, monkeypatch)
    shop.feed.create("shop.t")
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "two"))
    return shop


def test_a_forgotten_key_stays_out_of_later_windows_and_is_counted(shop: Shop) -> None:
    report = shop.forget("1")
    assert (report.complete, report.until, rows(shop.lake)) == (True, "for ever", [(2, "two")])
    outcome = shop.apply(FIRST + 19, ("U", FIRST + 11, 1, "uno"), ("U", FIRST + 12, 2, "dos"), ("D", FIRST + 13, 1, ""))
    assert (of(outcome).state, of(outcome).excluded, rows(shop.lake)) == (State.APPLIED, 2, [(2, "dos")])
    entries = [(entry.action, entry.query) for entry in shop.ledger.journal("little")]
    assert ("kept out", "2 records of forgotten keys") in entries


def test_every_kind_and_a_rebuild_leave_the_key_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path, monkeypatch)
    shop.feed.create("shop.t")
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "two"))
    shop.forget("1")
    shop.more["history"] = {"shop.*": ["log", "scd2"]}  # switched on later, made of the input from the beginning
    shop.apply(FIRST + 19, ("U", FIRST + 11, 1, "uno"))
    for lake in (shop.lake, shop.rebuilt()):
        assert [rows(lake, kind=kind) for kind in ("", "log", "scd2")] == [[(2, "two")]] * 3


def test_a_rebuild_names_tables_that_get_rows_of_forgotten_keys_again(shop: Shop) -> None:
    shop.forget("1", until=None)
    for come_back in (True, False):
        lines = list[str]()
        rebuild(shop.pipeline(), MemoryRebuilds(shop.lake), ["shop.t"], "run", lines.append)
        assert any(f"forgotten, through {FIRST + 9}, come back" in line for line in lines) == come_back
        assert any("is swapped in" in line and "rows of forgotten keys" in line for line in lines) == come_back
        assert rows(shop.lake) == [(1, "one"), (2, "two")] if come_back else [(2, "two")]
        shop.forget("1")
    entries = [entry.query for entry in shop.ledger.journal("little") if entry.action == "rebuild"]
    assert ["rows of forgotten keys" in text for text in entries] == [True, False]


def test_a_rebuild_that_brings_forgotten_rows_back_asks_first(shop: Shop) -> None:
    def refuse(losses: str) -> None:
        raise BadSettings(losses)

    rebuild(shop.pipeline(), MemoryRebuilds(shop.lake), ["shop.t"], "run", consent=refuse)
    shop.forget("1", until=None)
    assert "come back" in rebuild_targets(shop.pipeline(), ["shop.t"])[0].loss
    with pytest.raises(BadSettings, match="come back"):
        rebuild(shop.pipeline(), MemoryRebuilds(shop.lake), ["shop.t"], "run", consent=refuse)
    assert rows(shop.lake) == [(2, "two")]
    assert not MemoryRebuilds(shop.lake).tickets()


def test_rows_after_the_moment_come_in_and_a_rebuild_gives_the_same(shop: Shop) -> None:
    shop.forget("1", until=FIRST + 15)
    shop.apply(FIRST + 29, ("U", FIRST + 15, 1, "same person"), ("I", FIRST + 16, 1, "another one"))
    assert rows(shop.lake) == rows(shop.rebuilt()) == [(1, "another one"), (2, "two")]


def test_a_moment_before_what_is_applied_is_refused_as_a_rebuild_would_bring_rows_back(shop: Shop) -> None:
    with pytest.raises(BadSettings, match=f"at least --until {FIRST + 9}"):
        shop.forget("1", until=FIRST + 8)
    assert (rows(shop.lake), kept_out(shop.lake.decisions())) == ([(1, "one"), (2, "two")], ())


def test_input_that_is_not_applied_yet_does_not_matter(shop: Shop) -> None:
    shop.write(("U", FIRST + 11, 1, "due"))
    shop.feed.publish(FIRST + 19)
    assert shop.forget("1").complete
    shop.pipeline().apply("run")
    assert rows(shop.lake) == [(2, "two")]


def test_a_record_of_the_key_that_does_not_fit_is_left_out_and_not_set_aside(shop: Shop) -> None:
    shop.forget("1")
    outcome = shop.apply(FIRST + 19, ("U", FIRST + 11, 1, "x" * 50), ("U", FIRST + 12, 2, "dos"))
    assert (of(outcome).state, rows(shop.lake)) == (State.APPLIED, [(2, "dos")])


def test_records_that_cannot_be_decoded_are_set_aside_without_readable_bytes(shop: Shop) -> None:
    shop.forget("1")
    shop.more["quarantine"] = True
    outcome = shop.apply(FIRST + 19, ("U", FIRST + 11, "1x", "a word of the row"))
    (kept,) = shop.lake.kept.values()
    assert b"a word of the row" not in kept.raw
    assert is_encrypted(kept.raw)
    assert (kept.column, kept.reason.partition(";")[0]) == ("id", 'a value of column "id" does not fit')
    assert "1x" not in f"{kept.reason} {outcome}"


def test_a_file_that_is_refused_as_a_whole_is_named_without_what_it_has(shop: Shop) -> None:
    shop.forget("1")
    path = shop.feed.rows("shop.t", FIRST, [("U", FIRST + 11, 1, "uno")])
    path.write_bytes(path.read_bytes().replace(b'"t","shop"', b'"a lost word","uno"'))
    held = of(shop.apply(FIRST + 19))
    assert held.state is State.HELD
    assert f"{path.name} line 1 cannot be decoded; what was found is not shown" in held.reason
    assert not [word for word in ("a lost word", "uno") if word in held.reason]


def test_a_finding_about_the_first_rows_of_a_table_shows_nothing_of_them_where_its_keys_are_kept_out(
    shop: Shop, tmp_path: Path
) -> None:
    shop.forget("1")
    shop.feed.ddl("shop.t", FIRST + 20, "DROP TABLE `t`", 4, columns=False)
    shop.feed.create("shop.t", FIRST + 30)
    path = shop.feed.rows("shop.t", FIRST + 30, [("U", FIRST + 31, 1, "uno")])
    path.write_bytes(path.read_bytes().replace(b'"t","shop"', b'"a lost word","shop"'))
    outcome = shop.apply(FIRST + 39)
    settings, lake = shop.feed.settings(**shop.more), LakeSettings.from_warehouse(tmp_path / "lake")
    findings_by_run = {"run": outcome.findings, "unknown": inspect_changefeed(settings).findings}
    with closing(LakeState(lake, "little")) as state:
        findings_by_run["nothing kept out"] = inspect_changefeed(settings, lake).findings
        state.lazy_catalog.make().create_namespace_if_not_exists(state.places.own.main)
        state.decisions.keep(*kept_out(shop.lake.decisions()))
        findings_by_run["kept out"] = inspect_changefeed(settings, lake).findings
    findings_texts = {name: repr(findings) for name, findings in findings_by_run.items()}
    assert all("rule='decoding'" in text for text in findings_texts.values())
    assert {name for name, text in findings_texts.items() if "a lost word" in text} == {"nothing kept out"}


def test_records_that_another_key_encrypts_stop_nothing_and_are_told(shop: Shop) -> None:
    shop.forget("1")
    shop.more |= {"quarantine": True}
    shop.apply(FIRST + 19, ("I", FIRST + 11, "3x", "three"))
    assert len(shop.lake.kept) == 1
    let_in(shop.pipeline(), "shop.t", *(decision.name for decision in kept_out(shop.lake.decisions())))
    shop.more["privacy_key"] = {"env": "OTHER_KEY"}
    report = shop.forget("2")
    having = [(place.place, len(place.having)) for place in report.searched if place.having]
    assert (rows(shop.lake), having, report.complete) == ([], [("quarantine", 1)], False)
    assert len(shop.lake.kept) == 1
    shop.lake.bring_in(next(iter(shop.lake.tables)), -1, FIRST + 19)
    assert shop.forget("2").complete
    assert shop.lake.kept == {}


def test_the_ledger_keeps_no_value_for_which_a_table_was_held_or_compared(shop: Shop) -> None:
    shop.feed.ddl("shop.u", FIRST + 10, "RENAME TABLE `t` TO `u`", 14)
    token = "a-value-that-is-too-long-for-its-column-of-forty"
    shop.write(("I", FIRST + 11, 3, token), table="shop.u", version=FIRST + 10)
    outcome = shop.apply(FIRST + 19)
    assert (of(outcome, "shop.u").state, token in repr(shop.ledger.states())) == (State.HELD, True)
    comparison = TableComparison(table=TableId("shop", "t"), state=EQUAL, chosen="id = 3")
    shop.ledger.record_comparison("little", next(iter(shop.lake.tables)), comparison, "")
    shop.ledger.record_findings("little", [Finding("rule", Severity.WARNING, "shop.u", "found", token)], "run", {})
    assert shop.forget("3", table="shop.u").complete
    assert token not in repr((shop.ledger.states(), shop.ledger.findings("little")))
    assert shop.ledger.comparisons("little") == {}
    assert of(shop.apply(FIRST + 20), "shop.u").state is State.APPLIED


@pytest.mark.parametrize("beside", [False, True], ids=["before", "beside a run"])
def test_what_was_found_in_rows_stays_without_what_it_was_found_in(
    beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, monkeypatch)
    text = "CREATE TABLE `t` (`id` VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY,`v` VARCHAR(40))"
    shop.feed.ddl("shop.t", FIRST, text, 3, key={"ColumnType": "VARCHAR", "ColumnPrecision": "9"})
    shop.write(("I", FIRST + 1, '"Ann"', "one"), ("I", FIRST + 2, '"ann"', "two"), ("I", FIRST + 3, '"bob"', "three"))
    recorded = shop.ledger.record_findings

    def record_late(*given: Any) -> None:
        shop.forget("ANN")
        recorded(*given)

    if beside:
        monkeypatch.setattr(shop.ledger, "record_findings", record_late)
    outcome = shop.apply(FIRST + 9)
    alike = [(finding.rule, finding.table, finding.sentence) for finding in outcome.findings if "nn" in finding.detail]
    assert [rule for rule, _, _ in alike] == ["alike-keys"]
    monkeypatch.setattr(shop.ledger, "record_findings", recorded)
    if not beside:
        shop.forget("ANN")
    for _ in range(2):
        findings = shop.ledger.findings("little")
        assert {finding.detail for finding in findings if finding.identity in alike} == {
            "the detail is not kept, as it may have values of forgotten rows"
        }
        assert (
            {finding.identity for finding in findings} >= {*alike},
            "nn" in repr(findings).replace("cannot", ""),
        ) == (True, False)
        shop.apply(FIRST + 10, ("I", FIRST + 10, '"cy"', "four"))


@pytest.mark.parametrize("record", ["record_states", "record_findings"])
def test_a_run_that_read_values_before_they_were_forgotten_records_none_of_them(
    record: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.feed.ddl("shop.u", FIRST + 10, "RENAME TABLE `t` TO `u`", 14)
    token = "a-value-that-is-too-long-for-its-column-of-forty"
    shop.write(("I", FIRST + 11, 3, token), table="shop.u", version=FIRST + 10)
    findings = [Finding(rule, Severity.WARNING, "shop.t", "found", token) for rule in ("changed-values", "keys")]
    shop.ledger.record_findings("little", findings, "run", {})
    recorded, forgotten = getattr(shop.ledger, record), list[ForgetReport]()

    def record_late(*given: Any) -> None:
        if not forgotten:
            forgotten.append(shop.forget("3", table="shop.u"))
        recorded(*given)

    monkeypatch.setattr(shop.ledger, record, record_late)
    outcome = shop.apply(FIRST + 19)
    assert (forgotten[0].complete, token in repr(outcome)) == (True, True)
    assert token not in repr((shop.ledger.states(), shop.ledger.findings("little")))
    assert of(shop.apply(FIRST + 20), "shop.u").state is State.APPLIED


def test_a_record_that_was_set_aside_before_brings_no_row_when_it_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, monkeypatch, quarantine=True)
    shop.feed.create("shop.t")
    bad = shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "x" * 50), ("I", FIRST + 2, 2, "y" * 50)])
    shop.feed.publish(FIRST + 9)
    shop.pipeline().apply("run")
    shop.forget("1")
    bad.write_bytes(bad.read_bytes().replace(b"x" * 50, b"uno").replace(b"y" * 50, b"dos"))
    (done,) = replay(shop.pipeline())
    assert (done.reason, rows(shop.lake)) == ("", [(2, "dos")])


@pytest.mark.parametrize(
    ("given", "what"), [({"privacy_key": None}, "no privacy_key"), ({"privacy_key": {"env": "OTHER_KEY"}}, "another")]
)
def test_without_the_key_of_the_digests_a_table_is_held_and_no_row_comes_in(
    shop: Shop, given: dict[str, Any], what: str
) -> None:
    shop.forget("1")
    shop.more = {**shop.more, **given}
    outcome = shop.apply(FIRST + 19, ("U", FIRST + 11, 1, "uno"), ("U", FIRST + 12, 2, "dos"))
    assert of(outcome).state is State.HELD
    assert what in of(outcome).reason
    assert any("--undo" in way for way in of(outcome).ways)
    assert rows(shop.lake) == [(2, "two")]
    shop.more["privacy_key"] = {"env": "PRIVACY_KEY"}
    shop.apply(FIRST + 20)
    assert rows(shop.lake) == [(2, "dos")]


def test_a_table_that_is_renamed_or_made_anew_stays_free_of_the_key(shop: Shop) -> None:
    shop.forget("1")
    shop.feed.ddl("shop.u", FIRST + 20, "RENAME TABLE `t` TO `u`", 14)
    shop.write(("U", FIRST + 21, 1, "renamed"), ("U", FIRST + 22, 2, "dos"), table="shop.u", version=FIRST + 20)
    shop.feed.create("shop.t", FIRST + 30)
    shop.write(("I", FIRST + 31, 1, "anew"), ("I", FIRST + 32, 3, "three"), version=FIRST + 30)
    outcome = shop.apply(FIRST + 39)
    assert {table.state for table in outcome.tables} == {State.APPLIED}
    rows_by_table = {str(table.name): rows_of(table.rows.to_pylist()) for table in shop.lake.tables.values()}
    assert rows_by_table == {"shop.u": [(2, "dos")], "shop.t": [(3, "three")]}


def rows_of(lake_rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["v"]) for row in lake_rows)


def test_a_table_that_stands_is_held_before_it_gets_the_name(shop: Shop) -> None:
    shop.feed.create("shop.fresh", FIRST + 10)
    shop.write(("I", FIRST + 11, 1, "copied"), table="shop.fresh", version=FIRST + 10)
    shop.apply(FIRST + 12)
    shop.forget("1")
    shop.feed.ddl("shop.old", FIRST + 20, "RENAME TABLE `t` TO `old`, `fresh` TO `t`", 14)
    shop.feed.ddl("shop.t", FIRST + 20, "RENAME TABLE `t` TO `old`, `fresh` TO `t`", 14)
    shop.write(("U", FIRST + 21, 1, "again"), version=FIRST + 20)
    outcome = shop.apply(FIRST + 29)
    assert of(outcome, "shop.t").state is State.HELD
    assert "it gets the name shop.t" in of(outcome, "shop.t").reason
    assert rows(shop.lake, "shop.fresh") == [(1, "copied")]
    (decision,) = kept_out(shop.lake.decisions())
    shop.forget("1", table="shop.t", name=decision.name)
    shop.apply(FIRST + 30)
    assert (rows(shop.lake, "shop.fresh"), rows(shop.lake)) == ([], [(2, "two")])


def test_a_table_that_was_not_looked_through_is_held_before_it_comes_back_under_the_name(shop: Shop) -> None:
    shop.feed.ddl("shop.t", FIRST + 20, "DROP TABLE `t`", 4, columns=False)
    shop.feed.create("shop.t", FIRST + 30)
    shop.write(("I", FIRST + 31, 1, "anew"), version=FIRST + 30)
    shop.apply(FIRST + 39)
    former, present = (Life(TableId("shop", "t"), at) for at in (FIRST, FIRST + 30))
    shop.forget("1", table=str(present), name="asked")
    shop.feed.ddl("shop.u", FIRST + 40, "RENAME TABLE `t` TO `u`", 14)
    shop.feed.ddl("shop.t", FIRST + 50, "RECOVER TABLE `t`", 81)
    outcome = shop.apply(FIRST + 59)
    held = next(table for table in outcome.tables if table.life == former)
    assert (held.state, "it gets the name shop.t" in held.reason) == (State.HELD, True)
    shop.forget("1", table=command_in(held.ways, *kept_out(shop.lake.decisions()))[0], name="asked")
    shop.apply(FIRST + 60)
    assert [rows_of(shop.lake.tables[life].rows.to_pylist()) for life in (former, present)] == [[(2, "two")], []]
    (decision,) = kept_out(shop.lake.decisions())
    assert (decision.lives, decision.others) == ((former, present), ())
    assert parse_decisions(format_decision("little", decision), "little").of(ForgottenKeys) == (decision,)


def test_another_table_of_the_name_keeps_its_rows_where_one_is_named_by_its_identity(shop: Shop) -> None:
    former, present = (Life(TableId("shop", "t"), at) for at in (FIRST, FIRST + 30))
    shop.feed.ddl("shop.t", FIRST + 20, "DROP TABLE `t`", 4, columns=False)
    shop.feed.create("shop.t", FIRST + 30)
    shop.write(("I", FIRST + 31, 1, "another person"), version=FIRST + 30)
    shop.apply(FIRST + 35)
    assert [removal.life for removal in shop.forget("1", table=str(former), name="asked").removed] == [former]
    shop.write(("U", FIRST + 41, 1, "moved"), version=FIRST + 30)
    shop.apply(FIRST + 45)
    for lake in (shop.lake, shop.rebuilt()):
        assert [rows_of(lake.tables[life].rows.to_pylist()) for life in (former, present)] == [
            [(2, "two")],
            [(1, "moved")],
        ]
    shop.feed.ddl("shop.t", FIRST + 50, "DROP TABLE `t`", 4, columns=False)
    shop.feed.create("shop.t", FIRST + 60)
    shop.write(("I", FIRST + 61, 1, "anew"), ("I", FIRST + 62, 2, "anew"), version=FIRST + 60)
    shop.apply(FIRST + 69)
    assert rows_of(shop.lake.tables[Life(TableId("shop", "t"), FIRST + 60)].rows.to_pylist()) == [(2, "anew")]


def test_a_table_that_is_made_anew_without_a_key_is_held_with_a_way_that_can_be_gone(shop: Shop) -> None:
    shop.forget("1")
    shop.feed.ddl("shop.t", FIRST + 20, "DROP TABLE `t`", 4, columns=False)
    shop.feed.create("shop.t", FIRST + 30, keyed=False)
    shop.write(("I", FIRST + 31, 1, "one"), version=FIRST + 30)
    held = next(table for table in shop.apply(FIRST + 40).tables if table.state is State.HELD)
    assert "told apart by (no key)" in held.reason
    assert held.ways[0] == "name its key in the setting keys, and forget all of them by that, too"


def test_a_key_of_another_type_holds_until_it_is_forgotten_by_that(shop: Shop) -> None:
    shop.forget("1")
    with_text_key(shop.feed, "t", FIRST + 20, "ALTER TABLE `t` MODIFY COLUMN `id` VARCHAR(20)", 12)
    shop.write(("I", FIRST + 21, "01", "another"), ("I", FIRST + 22, "1", "uno"), version=FIRST + 20)
    outcome = shop.apply(FIRST + 29)
    assert of(outcome).state is State.HELD
    assert "id: integer" in of(outcome).reason
    assert "id: text" in of(outcome).reason
    (decision,) = kept_out(shop.lake.decisions())
    shop.forget("1", name=decision.name)
    outcome = shop.apply(FIRST + 30)
    assert rows(shop.lake) == [("01", "another"), ("2", "two")]


def with_text_key(feed: LittleFeed, name: str, at: int, query: str, kind: int) -> None:
    key = file_column("id", "VARCHAR", "20", is_key=True)
    columns = [key, file_column("v", "VARCHAR", "40")]
    write_schema(feed.bucket, document("shop", name, at, Query=query, Type=kind, TableColumns=columns))


def command_in(ways: Iterable[str], decision: ForgottenKeys) -> tuple[str, str]:
    """Return the table and the moment of the command by which keys are forgotten as they are now."""
    command = rf"cdc-assets forget (\S+) KEY… --until (\S+) --decision {decision.name}$"
    match = re.search(command, "\n".join(ways), re.MULTILINE)
    assert match is not None
    return match[1].strip("'"), match[2]


def test_one_decision_keeps_keys_out_of_a_table_as_it_was_and_as_it_is_renamed_with_another_key(shop: Shop) -> None:
    shop.forget("1", "7", name="asked")
    shop.feed.ddl("shop.old", FIRST + 10, "RENAME TABLE `t` TO `old`", 14)
    with_text_key(shop.feed, "old", FIRST + 20, "ALTER TABLE `old` MODIFY COLUMN `id` VARCHAR(20)", 12)
    shop.write(("U", FIRST + 21, "1", "uno"), ("I", FIRST + 22, "3", "tres"), table="shop.old", version=FIRST + 20)
    held = of(shop.apply(FIRST + 29), "shop.old")
    table, until = command_in(held.ways, *kept_out(shop.lake.decisions()))
    assert (held.state, table, until) == (State.HELD, "shop.old", "forever")
    for keys in (("1",), ("1", "7", "9")):  # rows of before the DDL would be held for what the other form lacks
        with pytest.raises(BadSettings, match=f"{len(keys)} came to take their place"):
            shop.forget(*keys, table=table, name="asked")
    shop.forget("1", "7", table=table, name="asked")
    with pytest.raises(BadSettings, match=r"2 keys in 2 forms, and other keys came in one of them, \(id: text"):
        shop.forget("1", "9", table=table, name="asked")
    assert of(shop.apply(FIRST + 30), "shop.old").state is State.APPLIED
    for lake in (shop.lake, shop.rebuilt()):
        assert rows(lake) == [("2", "two"), ("3", "tres")]
    let_in(shop.pipeline(), "shop.old", "asked")
    assert kept_out(shop.lake.decisions()) == ()
    assert rows(shop.rebuilt()) == [("1", "uno"), ("2", "two"), ("3", "tres")]


def test_one_decision_keeps_keys_out_of_two_tables_of_its_name_that_have_different_keys(shop: Shop) -> None:
    with_text_key(
        shop.feed, "fresh", FIRST + 10, "CREATE TABLE `fresh` (`id` VARCHAR(20) PRIMARY KEY,`v` VARCHAR(40))", 3
    )
    shop.write(("I", FIRST + 11, "one", "1"), ("I", FIRST + 11, "two", "2"), table="shop.fresh", version=FIRST + 10)
    shop.apply(FIRST + 12)
    shop.forget("1", name="asked")
    renamed = "RENAME TABLE `t` TO `old`, `fresh` TO `t`"
    shop.feed.ddl("shop.old", FIRST + 20, renamed, 14)
    with_text_key(shop.feed, "t", FIRST + 20, renamed, 14)
    shop.write(("U", FIRST + 21, "one", "again"), ("I", FIRST + 22, "3", "tres"), version=FIRST + 20)
    shop.write(("U", FIRST + 23, 1, "uno"), ("I", FIRST + 24, 4, "four"), table="shop.old", version=FIRST + 20)
    held = of(shop.apply(FIRST + 29), "shop.t")
    table, _ = command_in(held.ways, *kept_out(shop.lake.decisions()))
    assert (held.state, table) == (State.HELD, f"shop.fresh@{FIRST + 10}")
    shop.forget("one", table=table, name="asked")
    outcome = shop.apply(FIRST + 30)
    assert {table.state for table in outcome.tables} == {State.APPLIED}
    for lake in (shop.lake, shop.rebuilt()):
        assert rows(lake, "shop.fresh") == [("3", "tres"), ("two", "2")]
        assert rows(lake) == [(2, "two"), (4, "four")]
    let_in(shop.pipeline(), "shop.t", "asked")
    assert kept_out(shop.lake.decisions()) == ()


def test_the_decision_has_no_value_and_is_taken_back_by_name(shop: Shop) -> None:
    shop.forget("2")
    (decision,) = kept_out(shop.lake.decisions())
    properties = format_decision("little", decision)
    assert parse_decisions(properties, "little").of(ForgottenKeys) == (decision,)
    assert re.fullmatch(r"[0-9a-f]{32}", ",".join(decision.digests))
    assert decision.is_of("shop.t@1.log", TableId("shop", "T"))
    with pytest.raises(BadSettings, match=f"known are: {decision.name}"):
        let_in(shop.pipeline(), "shop.t", "other")
    let_in(shop.pipeline(), "shop.t", decision.name)
    shop.apply(FIRST + 19, ("U", FIRST + 12, 2, "dos"))
    assert rows(shop.lake) == [(1, "one"), (2, "dos")]


def test_a_decision_of_the_same_name_keeps_the_keys_that_it_has(shop: Shop) -> None:
    shop.forget("1", name="asked")
    with pytest.raises(BadSettings, match="keeps out 1 key for ever"):
        shop.forget("2", name="asked", until=FIRST + 90)
    shop.forget("1", name="sooner", until=FIRST + 80)
    with pytest.raises(BadSettings, match="keeps out 1 key through"):
        shop.forget("2", name="sooner", until=FIRST + 90)
    with pytest.raises(BadSettings, match="would let rows of them in sooner"):
        shop.forget("1", "2", name="asked", until=FIRST + 90)
    shop.forget("2", name="asked")
    shop.apply(FIRST + 19, ("U", FIRST + 11, 1, "uno"), ("U", FIRST + 12, 2, "dos"), ("I", FIRST + 13, 3, "three"))
    assert rows(shop.lake) == [(3, "three")]


class DecidedMeanwhile(MemoryLake):
    """A lake in which somebody else decides between another decision's look at what is kept and its being kept."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self.meanwhile = [meanwhile]

    def keep_decision(self, decision: KeptDecision) -> None:
        while self.meanwhile:
            self.meanwhile.pop()()
        super().keep_decision(decision)


def test_of_two_decisions_of_one_name_that_are_made_at_once_all_keys_are_kept_out(shop: Shop) -> None:
    shop.forget("1", name="asked")
    tables, decided = shop.lake.tables, shop.lake.decided
    shop.lake = DecidedMeanwhile(lambda: shop.forget("2", name="asked"))
    shop.lake.tables, shop.lake.decided = tables, decided
    shop.forget("3", name="asked")
    shop.apply(FIRST + 19, *(("U", FIRST + 10 + key, key, "again") for key in (1, 2, 3, 4)))
    assert rows(shop.lake) == rows(shop.rebuilt()) == [(4, "again")]
    assert [len(decision.digests) for decision in kept_out(shop.lake.decisions())] == [3]
    shop.forget("4", name="asked")
    assert len(let_in(shop.pipeline(), "shop.t", "asked").digests) == 4
    assert kept_out(shop.lake.decisions()) == ()


def test_keys_that_are_let_in_while_others_are_forgotten_by_the_same_name_stay_in(shop: Shop) -> None:
    shop.forget("1", name="asked")
    decided = shop.lake.decided
    shop.lake = DecidedMeanwhile(lambda: let_in(shop.pipeline(), "shop.t", "asked"))
    shop.lake.decided = decided
    shop.forget("2", name="asked")
    (kept,) = kept_out(shop.lake.decisions())
    assert len(kept.digests) == 1
    shop.apply(FIRST + 19, ("I", FIRST + 11, 1, "again"), ("I", FIRST + 12, 2, "again"))
    assert rows(shop.lake) == [(1, "again")]


def test_each_key_of_decisions_that_are_made_at_once_is_kept_out_as_long_as_was_said_of_it(shop: Shop) -> None:
    tables = shop.lake.tables
    shop.lake = DecidedMeanwhile(lambda: shop.forget("1", name="asked", until=FIRST + 15))
    shop.lake.tables = tables
    shop.forget("2", name="asked")
    shop.apply(FIRST + 19, ("U", FIRST + 16, 1, "another one"), ("U", FIRST + 17, 2, "again"))
    assert rows(shop.lake) == rows(shop.rebuilt()) == [(1, "another one")]
    with pytest.raises(BadSettings, match="keeps out 1 key through"):
        shop.forget("3", name="asked")
    shop.forget("1", "3", name="asked")
    (decision,) = kept_out(shop.lake.decisions())
    assert (len(decision.digests), decision.until) == (3, FOREVER)


def test_the_catalog_keeps_all_that_is_decided_of_forgotten_keys_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableId("shop", "t")
    first = ForgottenKeys("asked", table, (Life(table, 1),), ("id: integer",), "key", ("a" * 32,), when="1")
    more = replace(first, digests=tuple(f"{number:032x}" for number in range(60)))
    with closing(LakeState(LakeSettings.from_warehouse(tmp_path), "little")) as state:
        decisions = state.decisions
        decisions.keep(first)
        seen = own_properties(state.catalog, decisions.own)
        decisions.keep(more.with_keys_of(first))
        with monkeypatch.context() as patched:  # what was read before the others were kept
            patched.setattr("cdc_assets.lake.namespaces.own_properties", lambda *_: seen)
            decisions.keep(replace(first, digests=("a" * 32, "b" * 32)))
        (kept,) = kept_out(decisions.read())
        assert kept.digests == tuple(sorted((*first.digests, *more.digests, "b" * 32)))
        decisions.keep(kept)
        assert len(decisions.read().of(ForgottenKeys)) == 1
        decisions.remove(replace(first, digests=()))
        assert kept_out(decisions.read()) == ()


def test_a_key_more_of_a_table_that_was_renamed_is_kept_out_under_the_decision_that_the_refusal_asks_for(
    shop: Shop,
) -> None:
    shop.forget("1", "7", name="asked")
    shop.feed.ddl("shop.u", FIRST + 20, "RENAME TABLE `t` TO `u`", 14)
    shop.apply(FIRST + 29)
    with pytest.raises(BadSettings, match=r"2 keys of shop\.t by .* or other keys under another --decision"):
        shop.forget("2", table="shop.u", name="asked")
    shop.forget("2", table="shop.u", name="later")
    shop.write(*(("I", FIRST + 30 + key, key, "again") for key in (1, 2, 3)), table="shop.u", version=FIRST + 20)
    shop.apply(FIRST + 39)
    assert rows(shop.lake) == [(3, "again")]


def test_the_command_names_a_decision_by_its_keys_and_not_as_the_changefeed() -> None:
    options = [
        option
        for parameter in commands.commands["forget"].params
        for option in (*parameter.opts, *parameter.secondary_opts)
    ]
    assert len(options) == len(set(options))


def test_keys_are_kept_out_by_an_hmac_alone(shop: Shop) -> None:
    shop.more["privacy_key"] = None
    with pytest.raises(BadSettings, match="privacy_key"):
        shop.forget("1")
    assert rows(shop.lake) == [(1, "one"), (2, "two")]


def test_a_new_table_planned_before_its_keys_were_forgotten_is_planned_again(shop: Shop) -> None:
    shop.feed.create("shop.n", FIRST + 20)
    shop.write(("I", FIRST + 21, 1, "one"), ("I", FIRST + 22, 2, "two"), table="shop.n", version=FIRST + 20)
    shop.feed.publish(FIRST + 29)
    pipeline = shop.pipeline()

    def forgotten_once(step: Step, planned: Plan, table: TableRun) -> None:
        if not kept_out(shop.lake.decisions()):
            shop.forget("1", table="shop.n")

    pipeline.apply("run", hooks=RunHooks(forgotten_once))
    assert rows(shop.lake, "shop.n") == [(2, "two")]
    assert shop.lake.tables[Life(TableId("shop", "n"), FIRST + 20)].progress.tso == FIRST + 29


class Compared(Mended):
    """The feed of tables of which keys are forgotten, compared with its source."""

    def forget(self, table: str, *keys: str, until: int = FOREVER) -> ForgetReport:
        lake = MemoryForgetting(self.lake)
        return forget(self.pipeline(), lake, f"shop.{table}", [[key] for key in keys], until=until)


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compared:
    monkeypatch.setenv("PRIVACY_KEY", "one key")
    monkeypatch.setenv("MASK_KEY", "a key of masks")
    masked = {"privacy": {"shop.folded.k": {"hash": {"key": {"env": "MASK_KEY"}}}}}
    tables = ("whole", "folded", "floating")
    return Compared(tmp_path, MemoryLake(), tables, privacy_key={"env": "PRIVACY_KEY"}, **masked)


@pytest.mark.parametrize(("table", "key"), [("whole", "002"), ("folded", "BEE"), ("floating", "1.250")])
def test_a_key_that_the_source_still_has_is_counted_apart_and_never_repaired(
    compared: Compared, table: str, key: str
) -> None:
    assert compared.forget(table, key).removed[0].rows == 1
    compared.feed.write([("U", table, VALUES[table][1], "again"), ("U", table, VALUES[table][0], "other")])
    compared.apply()
    comparisons = compared.compared(repair=True)
    assert {name: (comparison.state, comparison.excluded) for name, comparison in comparisons.items()} == {
        name: (EQUAL, int(name == table)) for name in compared.feed.rows
    }
    lake = compared.lake.read(TableId("shop", table))
    compared.lake.tables[next(life for life in compared.lake.tables if life.born_as.table == table)].rows = lake.slice(
        1
    )
    assert compared.compared(repair=True)[table].state == REPAIRED
    assert compared.lake.read(TableId("shop", table)).num_rows == lake.num_rows == 5


def test_rows_of_keys_that_are_given_again_are_not_compared(compared: Compared) -> None:
    compared.forget("whole", "2", until=compared.feed.at)
    compared.feed.write([("U", "whole", 2, "another person")])
    compared.apply()
    comparison = compared.compared()["whole"]
    assert (comparison.state, comparison.excluded, comparison.lake_rows) == (EQUAL, 1, 5)
    assert compared.lake.read(TableId("shop", "whole")).num_rows == 6


def test_a_row_that_should_have_been_kept_out_is_named_and_repaired(compared: Compared) -> None:
    whole = TableId("shop", "whole")
    before = compared.lake.read(whole)
    compared.forget("whole", "2")
    next(table for table in compared.lake.tables.values() if table.name == whole).rows = before
    comparison = compared.compared(repair=True)["whole"]
    assert (comparison.state, comparison.extra) == (REPAIRED, 1)
    assert compared.compared()["whole"].state == EQUAL


def test_without_the_key_of_the_digests_a_table_is_not_compared(compared: Compared) -> None:
    compared.forget("whole", "2")
    compared.more["privacy_key"] = None
    comparisons = compared.compared()
    assert (comparisons["whole"].state, comparisons["floating"].state) == (NOT_COMPARED, EQUAL)
    assert "no privacy_key is given" in comparisons["whole"].reason


def test_a_forgotten_key_is_explained_without_its_value(shop: Shop) -> None:
    shop.forget("2")
    shop.apply(FIRST + 19, ("U", FIRST + 11, 2, "dos"))
    explanation = explain(shop.pipeline(), shop.lake, "shop.t", ["2"])
    assert (explanation.row, explanation.changes, dict(explanation.key)) == (None, (), {"id": "***"})
    (decision,) = kept_out(shop.lake.decisions())
    assert any(decision.name in sentence and "forgotten" in sentence for sentence in explanation.gone)
    shop.forget("7", name="of-another-key")
    explanation = explain(shop.pipeline(), shop.lake, "shop.t", ["2"])
    assert any(decision.name in sentence for sentence in explanation.gone)
    assert not any("of-another-key" in sentence for sentence in explanation.gone)
    assert explain(shop.pipeline(), shop.lake, "shop.t", ["1"]).key == {"id": "1"}


def ranges(shop: Shop) -> list[tuple[int, int]]:
    life = next(iter(shop.lake.tables)).source
    return sorted((key.low, key.high) for file in shop.ledger.files_of("little", life) for key in file.keys)


@pytest.mark.parametrize("until", [None, FOREVER, FIRST + 20])
def test_a_file_that_is_read_again_for_its_later_rows_does_not_name_the_key_in_the_ledger(
    shop: Shop, until: int | None
) -> None:
    shop.write(("I", FIRST + 11, 7, "seven"), ("U", FIRST + 12, 1, "uno"), ("I", FIRST + 25, 3, "three"))
    shop.apply(FIRST + 20)
    forget(shop.pipeline(), MemoryForgetting(shop.lake), "shop.t", [["7"]], until=until)
    shop.apply(FIRST + 29)
    assert (rows(shop.lake), ranges(shop)) == ([(1, "uno"), (2, "two"), (3, "three")], [])
    shop.apply(FIRST + 39, ("I", FIRST + 31, 4, "four"))
    assert ranges(shop) == [(4, 4)]
    assert explain(shop.pipeline(), shop.lake, "shop.t", ["3"]).changes


def forgotten_after(shop: Shop, meanwhile: Callable[[], object], **more: Any) -> ForgetReport:
    """Forget key 1 while something else happens, once, before rows are taken out."""
    done: list[object] = []

    class Overtaken(MemoryForgetting):
        def forget(self, *given: Any, **named: Any) -> RemovedRows:
            if not done:
                done.append(meanwhile())
            return super().forget(*given, **named)

    return forget(shop.pipeline(), Overtaken(shop.lake), "shop.t", [["1"]], **more)


def test_rows_from_after_the_moment_that_are_applied_meanwhile_stay(shop: Shop) -> None:
    def meanwhile() -> None:
        shop.apply(FIRST + 19, ("U", FIRST + 14, 1, "same person"), ("I", FIRST + 16, 1, "another one"))

    with pytest.raises(ForgetRefused, match=f"applied through {FIRST + 19} meanwhile, with rows that are not to be f"):
        forgotten_after(shop, meanwhile, until=FIRST + 15, name="asked")
    assert (rows(shop.lake), len(shop.lake.tickets)) == ([(1, "another one"), (2, "two")], 1)
    assert shop.forget("1", until=FIRST + 19, name="asked").complete
    assert (rows(shop.lake), rows(shop.rebuilt()), shop.lake.tickets) == ([(2, "two")], [(2, "two")], {})


def test_all_tables_of_the_keys_wait_where_another_writer_was_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, monkeypatch, history={"shop.*": ["log"]})
    shop.feed.create("shop.t")
    shop.apply(FIRST + 9, ("I", FIRST + 1, 1, "one"), ("I", FIRST + 2, 2, "two"))
    waited, hold_back = list[frozenset[str]](), MemoryForgetting.hold_back

    def holding(self: MemoryForgetting, token: str, lives: Iterable[Life]) -> None:
        hold_back(self, token, lives)
        waited.append(shop.lake.held_back())

    monkeypatch.setattr(MemoryForgetting, "hold_back", holding)
    assert forgotten_after(shop, lambda: shop.apply(FIRST + 19, ("U", FIRST + 14, 1, "uno"))).complete
    assert waited == [frozenset(map(str, shop.lake.tables)), frozenset()]
    assert rows(shop.lake) == rows(shop.lake, kind="log") == [(2, "two")]


def test_rows_of_the_key_that_come_meanwhile_are_forgotten_in_all_tables_or_it_is_said(shop: Shop) -> None:
    def meanwhile() -> None:
        shop.apply(FIRST + 19, ("U", FIRST + 14, 1, "uno"))

    assert forgotten_after(shop, meanwhile).complete
    assert rows(shop.lake) == [(2, "two")]

    def more() -> None:
        shop.apply(FIRST + 29, ("I", FIRST + 24, 3, "three"))
        shop.write(("I", FIRST + 31, 1, "later"))
        shop.feed.publish(FIRST + 39)

    with pytest.raises(ForgetRefused, match=r"^rows are left, as tables have moved on meanwhile:\n- .* has rows"):
        forgotten_after(shop, more)
    assert len(shop.lake.tickets) == 1
    shop.apply(FIRST + 40)
    assert shop.forget("1", until=None).complete
    assert (rows(shop.lake), shop.lake.tickets) == ([(2, "two"), (3, "three")], {})


def test_a_decision_is_taken_back_by_the_name_that_its_table_has_by_now(shop: Shop) -> None:
    shop.forget("1")
    shop.feed.ddl("shop.u", FIRST + 11, "RENAME TABLE `shop`.`t` TO `shop`.`u`", 14)
    shop.feed.create("shop.v", FIRST + 12)
    shop.apply(FIRST + 19)
    (name,) = {decision.name for decision in kept_out(shop.lake.decisions())}
    with pytest.raises(
        BadSettings, match=rf'"{name}" is no decision about shop\.v that keeps keys out; known are: none'
    ):
        let_in(shop.pipeline(), "shop.v", name)
    assert let_in(shop.pipeline(), "shop.u", name).name == name
    assert kept_out(shop.lake.decisions()) == ()


@pytest.mark.parametrize(
    ("until", "since", "through"),
    [
        (FOREVER, FIRST, FIRST + 9),
        (FOREVER, FIRST + 9, FIRST + 19),
        (FIRST + 12, FIRST, FIRST + 12),
        (FIRST + 12, FIRST + 12, None),
    ],
)
def test_an_extract_says_through_where_it_lacks_keys_that_are_kept_out(
    shop: Shop, until: int, since: int, through: int | None
) -> None:
    shop.forget("1", until=until)
    shop.apply(FIRST + 19, ("I", FIRST + 11, 1, "uno"), ("I", FIRST + 15, 1, "another one"))
    end = FIRST + 9 if through == FIRST + 9 else FIRST + 19
    taken = extract(shop.pipeline(), "shop.t", since, end)
    assert taken.description()["forgotten_through"] == through
    assert [row["v"] for row in taken.changes.to_pylist() if row["id"] == 1] == ["another one"] * (until == FIRST + 12)
