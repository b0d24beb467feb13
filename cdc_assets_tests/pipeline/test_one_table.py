"""What nobody foresaw in the rows of one table fails that table, with the reason, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.errors import LakeUnavailable, StepFailed
from cdc_assets.features.kinds.keyed import decoding as keyed
from cdc_assets.ledger import Ledger
from cdc_assets.model.reports import Report, StepResult
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.steps import CreateTable, DropTable, Step
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.pipeline.planner import PlanRequest
from cdc_assets.planning.plan import Plan
from cdc_assets.planning.run_batches import steps_of
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake


def test_an_error_of_reducing_fails_its_table_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = LittleFeed(tmp_path)
    for name in ("shop.a", "shop.b", "shop.c"):
        feed.create(name)
        feed.rows(name, FIRST, [("I", FIRST + 1, 1, "x")])
    feed.publish(FIRST + 9)

    sound = keyed.KIND.reduce

    def reduce(changes: pa.Table, schema: TableSchema, table: TableId, files: object) -> tuple[pa.Table, Report]:
        if table.table == "b":
            raise ZeroDivisionError("nobody foresaw it")
        return sound(changes, schema, table)

    monkeypatch.setattr(keyed.KIND, "reduce", reduce)
    settings = feed.settings()
    source, request = settings.open_source(), PlanRequest(fuse=False)
    outcome = Pipeline(settings, source, MemoryLake(), Ledger("sqlite://"), request=request).apply("test")
    a, b, c = sorted(outcome.tables, key=lambda table: table.name)
    assert (a.state, b.state, c.state) == ("applied", "failed", "applied")
    assert isinstance(b.error, StepFailed)
    assert "ZeroDivisionError: nobody foresaw it" in b.reason


PARTS = "(PARTITION `p0` VALUES LESS THAN (10),PARTITION `p1` VALUES LESS THAN (20))"


class Exchanging:
    """A table `p` with partitions and a table `x`, that are applied, and exchange rows after another row of `x`."""

    def __init__(self, directory: Path) -> None:
        self.lake, self.ledger, self.feed = MemoryLake(), Ledger("sqlite://"), LittleFeed(directory)
        for name, partitions in (("p", f" PARTITION BY RANGE (`id`) {PARTS}"), ("x", "")):
            text = f"CREATE TABLE `{name}` (`id` INT PRIMARY KEY,`v` VARCHAR(40)){partitions}"
            self.feed.ddl(f"s.{name}", FIRST, text, 3)
        self.feed.rows("s.p", FIRST, [("I", FIRST + 1, 1, "p")])
        self.feed.rows("s.x", FIRST, [("I", FIRST + 1, 2, "x")])
        assert self.apply(FIRST + 2) == {"p": "applied", "x": "applied"}
        self.late = self.feed.rows("s.x", FIRST, [("I", FIRST + 4, 3, "late")])
        self.feed.ddl("s.p", FIRST + 5, "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `x`", 42)
        self.feed.ddl("s.x", FIRST + 5, "", 0)

    def apply(self, checkpoint: int, without: str = "") -> dict[str, str]:
        def select(plan: Plan) -> list[Step]:
            return steps_of(plan, [life for life in plan.history.lives if life.born_as.table != without])

        self.feed.publish(checkpoint)
        outcome = self.feed.pipeline_into(self.lake, self.ledger).apply("test", select)
        self.reasons = {table.name.table: table.reason for table in outcome.tables}
        return {table.name.table: str(table.state) for table in outcome.tables}

    def rows(self, name: str) -> list[object]:
        return sorted(self.lake.read(TableId("s", name)).column("v").to_pylist())


def test_a_table_waits_for_the_rows_that_it_exchanges_with_a_table_that_stopped_before(tmp_path: Path) -> None:
    site = Exchanging(tmp_path)
    whole = site.late.read_bytes()
    site.late.write_bytes(whole.replace(b",3,", b",three,"))
    assert site.apply(FIRST + 9) == {"p": "held", "x": "held"}
    assert site.reasons["p"].startswith(f"waits for s.x@{FIRST}, with which it exchanges rows at {FIRST + 5}: ")
    assert site.rows("p") == ["p"]
    site.late.write_bytes(whole)
    assert site.apply(FIRST + 9) == {"p": "applied", "x": "applied"}
    assert (site.rows("p"), site.rows("x")) == (["late", "x"], ["p"])


@pytest.mark.parametrize("without", ["p", "x"])
def test_no_rows_are_exchanged_with_a_table_that_a_run_leaves_out_before_its_windows(
    tmp_path: Path, without: str
) -> None:
    site = Exchanging(tmp_path)
    site.apply(FIRST + 9, without)
    assert site.rows("p") == ["p"]
    assert site.apply(FIRST + 9) == {"p": "applied", "x": "applied"}
    assert (site.rows("p"), site.rows("x")) == (["late", "x"], ["p"])


def test_tables_that_exchange_rows_are_planned_again_together_when_the_lake_fails_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Exchanging(tmp_path)
    commit = site.lake.commit

    def once(*given: Any) -> StepResult:
        monkeypatch.setattr(site.lake, "commit", commit)
        raise LakeUnavailable("the warehouse did not answer")

    monkeypatch.setattr(site.lake, "commit", once)
    assert site.apply(FIRST + 9) == {"p": "applied", "x": "applied"}
    assert (site.rows("p"), site.rows("x")) == (["late", "x"], ["p"])


# --- history tables of a table that is made and dropped within one run ------------------------------------------------


class FailsOnce(MemoryLake):
    """A lake that does not answer the first time that a table of a kind is made, or dropped."""

    def __init__(self, verb: type[Step], kind: str) -> None:
        super().__init__()
        self._due: tuple[type[Step], str] | None = (verb, kind)

    def run(self, step: Step) -> StepResult:
        if (type(step), step.life.kind) == self._due:
            self._due = None
            raise LakeUnavailable("the catalog did not answer")
        return super().run(step)


def short_lived(directory: Path, *, keyed: bool = True) -> ChangefeedSettings:
    """Return the settings of a feed with a table that is dropped soon, and has all kinds of tables beside it."""
    feed = LittleFeed(directory)
    feed.create("s.t", keyed=keyed)
    feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "a")])
    feed.ddl("s.t", FIRST + 5, "DROP TABLE `t`", 4, columns=False)
    feed.publish(FIRST + 9)
    return feed.settings(history={"s.*": ["log", "scd2"]})


def test_a_table_is_not_dropped_before_those_beside_it_are_made_though_the_catalog_fails_once(tmp_path: Path) -> None:
    settings, lake = short_lived(tmp_path), FailsOnce(CreateTable, "scd2")
    assert Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://")).apply().complete
    assert {life.kind: table.rows.num_rows for life, table in lake.tables.items()} == {"": 1, "log": 2, "scd2": 1}
    assert {table.name for table in lake.tables.values()} == {None}


def test_a_table_is_not_dropped_while_one_that_a_run_leaves_out_is_not_made_beside_it(tmp_path: Path) -> None:
    settings, lake, ledger = short_lived(tmp_path), MemoryLake(), Ledger("sqlite://")

    def select(plan: Plan) -> list[Step]:
        return steps_of(plan, [life for life in plan.history.lives if life.kind != "scd2"])

    Pipeline(settings, settings.open_source(), lake, ledger).apply("first", select)
    assert {str(table.name) for table in lake.tables.values()} == {"s.t", "None"}
    assert Pipeline(settings, settings.open_source(), lake, ledger).apply("next").complete
    assert {life.kind: table.rows.num_rows for life, table in lake.tables.items()} == {"": 1, "log": 2, "scd2": 1}


def test_a_kind_that_is_held_from_the_first_may_go_with_its_table_while_the_run_plans_again(tmp_path: Path) -> None:
    settings, lake = short_lived(tmp_path, keyed=False), FailsOnce(DropTable, "log")
    outcome = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://")).apply()
    assert outcome.complete
    assert {life.kind for life in lake.tables} == {"", "log"}
