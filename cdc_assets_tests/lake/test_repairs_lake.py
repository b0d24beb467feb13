"""Tables on Spark and Iceberg repaired from their source, whatever their keys are, with their history beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc_assets.lake import Lake, row_delta, windows
from cdc_assets.model.comparison import DIFFERENT, EQUAL, REPAIRED
from cdc_assets.model.layout import DELETED_AT
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.folding import differences
from cdc_assets_tests.keyed_feed import KEYS, PRIVACY, VALUES, Mended, name_of
from cdc_assets_tests.kills import Killed, Trap, trapped
from cdc_assets_tests.marked_rows import source_rows
from cdc_assets_tests.states import state_differences

pytestmark = pytest.mark.timeout(900)


class Iceberg(Mended):
    """The same in a lake of Iceberg."""

    lake: Lake

    def __init__(self, directory: Path, spark: SparkSession, tables: Iterable[str] = KEYS, **more: Any) -> None:
        self.spark = spark
        lake = Lake(LakeSettings.from_warehouse(directory / "lake"), "keyed", lambda: spark)
        super().__init__(directory, lake, tables, **more)

    def double(self) -> None:
        """Let rows stand in the lake twice: the same, with another value, and with a key that is equal by collation."""
        for table in self.feed.rows:
            keys = VALUES[table]
            parts = [
                f"SELECT * FROM {{0}} WHERE k = {keys[1]!r}",
                f"SELECT k, 'twin', * EXCEPT (k, v) FROM {{0}} WHERE k = {keys[4]!r}",
                *([f"SELECT upper(k), * EXCEPT (k) FROM {{0}} WHERE k = {keys[5]!r}"] if table == "folded" else []),
            ]
            with self.lake.workbench.sessions.step() as session:
                name = session.name(self.lake.state.named(name_of(table)).identifier)
                session.spark.sql(f"INSERT INTO {name} {' UNION ALL '.join(parts).format(name)}")

    def history_faults(self) -> Iterator[str]:
        """Say which logs do not lead to their mirror, and which states are none of its rows."""
        tables, history = self.lake.state.tables(), self.pipeline().planner.plan()[1].history
        for life, table in tables.items():
            rows, mirror = self.read(table), self.read(tables[life.source])
            if life.kind == "log":
                yield from differences(str(life), rows, history.lives[life].schema, mirror)
            elif life.kind == "scd2":
                yield from state_differences(rows, (), mirror)

    def read(self, table: Any) -> pa.Table:
        return source_rows(self.lake.state.catalog.load_table(table.identifier).scan().to_arrow())


def check(mended: Iceberg) -> None:
    """Repair all tables, compare them again, go on and compare them once more."""
    tables = mended.feed.rows
    labels = {life: table.applied.progress for life, table in mended.lake.state.tables().items()}
    assert {name: comparison.state for name, comparison in mended.compared(repair=True).items()} == dict.fromkeys(
        tables, REPAIRED
    )
    outcomes = {name: (comparison.state, comparison.rows) for name, comparison in mended.compared().items()}
    assert outcomes == dict.fromkeys(tables, (EQUAL, ()))
    assert {life: table.applied.progress for life, table in mended.lake.state.tables().items()} == labels
    assert list(mended.history_faults()) == []
    go_on(mended)


def go_on(mended: Iceberg) -> None:
    """Change rows that were repaired by a window, and compare all."""
    for table, rows in mended.feed.rows.items():
        key, v = rows[0]
        changed = [("D", table, key, v), ("I", table, key, "again")] if table == "keyless" else [("U", table, key, "u")]
        mended.feed.write([*changed, *(("D", table, *row) for row in rows[1:4])])
    mended.apply()
    assert {name: comparison.state for name, comparison in mended.compared().items()} == dict.fromkeys(
        mended.feed.rows, EQUAL
    )
    assert list(mended.history_faults()) == []


@pytest.mark.parametrize(
    ("tables", "history", "deletes"),
    [
        pytest.param(["folded"], "log", {}, id="folded"),
        pytest.param(["folded"], "scd2", "soft", id="folded with marks"),
        pytest.param(list(KEYS), "log", {}, id="all with logs", marks=pytest.mark.soak),
        pytest.param(["whole", "folded", "floating"], "scd2", {}, id="all with states", marks=pytest.mark.soak),
        pytest.param(list(KEYS), "log", "soft", id="all with marks", marks=pytest.mark.soak),
    ],
)
def test_tables_of_every_key_are_repaired_with_their_history_and_go_on(
    tables: list[str], history: str, deletes: Any, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASK_KEY", "of a test")
    mended = Iceberg(tmp_path, spark, tables, privacy=PRIVACY, history={"*.*": history}, deletes=deletes)
    mended.differ()
    mended.double()
    check(mended)


def test_of_several_rows_that_the_source_lacks_one_stays_marked_and_its_key_comes_again_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    mended = Iceberg(tmp_path, spark, ["whole", "folded"], deletes="soft")
    mended.double()
    for table, rows in mended.feed.rows.items():
        gone = [row for row in rows if row[0] in (VALUES[table][1], VALUES[table][4], VALUES[table][5])]
        mended.feed.rows[table] = [row for row in rows if row not in gone]
    assert {comparison.state for comparison in mended.compared(repair=True).values()} == {REPAIRED}
    for table in mended.feed.rows:
        rows = Lake.read(mended.lake, name_of(table))
        keys = [str(row["k"]).lower() for row in rows.to_pylist() if row[DELETED_AT] is not None]
        assert sorted(keys) == [str(VALUES[table][number]) for number in (1, 4, 5)]
        mended.feed.write([("I", table, VALUES[table][number], "again") for number in (1, 4, 5)])
    mended.apply()
    assert {comparison.state for comparison in mended.compared().values()} == {EQUAL}


SEAMS = (
    "cdc_assets.lake.tables:Lake.repair",
    "cdc_assets.lake.windows:row_delta_of",
    "cdc_assets.lake.windows:publish",
    "cdc_assets.lake.commit:_staged",
    "cdc_assets.lake.commit:_mark",
    "cdc_assets.lake.staging.stage:_write_manifest",
    "cdc_assets.lake.staging.stage:discard",
    "cdc_assets.ledger:Ledger.record_ddl",
    "cdc_assets.ledger:Ledger.record_comparison",
)


@pytest.mark.soak
def test_a_repair_that_is_stopped_at_every_seam_is_whole_when_it_is_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    mended = Iceberg(tmp_path, spark, ["whole", "keyless"], history={"*.whole": ["log", "scd2"], "*.keyless": "log"})
    mended.differ()
    mended.double()
    stopped = list[str]()
    while True:
        trap = Trap(lambda number, name: name not in stopped)
        mended.lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "keyed", lambda: spark)
        with trapped(trap, SEAMS), suppress(Killed):
            mended.compared(repair=True)
        if not trap.killed:
            break
        stopped.append(trap.killed)
        mended.lake.close()
    assert {name.split(" of ")[0].removeprefix("before ").removeprefix("after ") for name in stopped} == {
        seam.partition(":")[2] for seam in SEAMS
    }
    assert {name: comparison.state for name, comparison in mended.compared().items()} == dict.fromkeys(
        mended.feed.rows, EQUAL
    )
    assert list(mended.history_faults()) == []
    go_on(mended)


@pytest.mark.soak
@pytest.mark.parametrize("table", KEYS)
def test_a_run_that_overtakes_a_repair_loses_nothing_and_the_repair_says_so(
    table: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended = Iceberg(tmp_path, spark, [table], history={"*.*": "log"})
    mended.differ()
    ours, other = mended.lake, Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "keyed", lambda: spark)

    def overtaken(*given: Any) -> Any:
        monkeypatch.undo()
        mended.lake = other
        key = VALUES[table][0]
        changed = [("D", "v0"), ("I", "later")] if table == "keyless" else [("U", "later")]
        mended.feed.write((op, table, key, v) for op, v in changed)
        mended.apply()
        mended.lake = ours
        return row_delta.row_delta_of(*given)

    def when_mirror(target: Any, step: Any, *given: Any) -> Any:
        return (row_delta.row_delta_of if step.life.kind else overtaken)(target, step, *given)

    monkeypatch.setattr(windows, "row_delta_of", when_mirror)
    comparison = mended.compared(repair=True)[table]
    assert (comparison.state, "another writer committed first" in comparison.repair) == (DIFFERENT, True), (
        comparison.repair
    )
    assert "later" in ours.read(name_of(table)).column("v").to_pylist()
    check(mended)
