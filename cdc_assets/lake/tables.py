"""The lake: carries out steps, each one guarded and labelled commit, and returns how far every table is applied.

    applied()          PyIceberg reads the labels                       no JVM
    run(step)          DDL: one Java transaction, or one atomic rewrite
    stage, commit      rows: staged as Parquet, applied by one MERGE; the first ones become data files directly
    apply_renames()     renames every table to the name it should have   no JVM

Before a step, its table's label is read in the step's own session; what the step commits is validated against that very
state. A step whose label already exists does nothing, so each may be repeated after a crash at any line.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from cdc_assets.decoding.keyed_rows import RecordLookup, RecordReplay
from cdc_assets.errors import TableMoved
from cdc_assets.formats import SplitReader
from cdc_assets.formats.decoded import POSITION
from cdc_assets.lake import table_renames
from cdc_assets.lake.label import Label
from cdc_assets.lake.spark.failures import races
from cdc_assets.lake.staging import stage
from cdc_assets.lake.staging.executors import run_tasks
from cdc_assets.lake.staging.stage import Engine
from cdc_assets.lake.state import LakeState
from cdc_assets.lake.steps import carry_out, purge
from cdc_assets.lake.tickets import held_back
from cdc_assets.lake.windows import commit_window, repair_rows, replay_records, stage_windows, withdraw_window
from cdc_assets.lake.workbench import Workbench, refuse_revised
from cdc_assets.model.decisions import Decisions, KeptDecision, SnapshotPin
from cdc_assets.model.features import module_of
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.quarantine import QuarantinedRow
from cdc_assets.model.reports import StagedWindow, StepResult
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.steps import ApplyRows, Step
from cdc_assets.model.tso import Tso, iso_now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.lake.scan import TableScan
    from cdc_assets.settings.lake import LakeSettings

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SparkExecutors:
    """The executors of a lake's Spark, which starts when they are first needed. `what` names the work in errors.

    With `only_elsewhere` executors of this machine do nothing, unless `decode` asks for them.
    """

    engine: Engine
    what: str
    only_elsewhere: bool = False

    def worth(self, size: int) -> bool:
        """Return whether so many bytes are read there and not here, by the rule of windows."""
        if not self.engine.is_large(size):
            return False
        return not self.only_elsewhere or self.engine.decode == "executors" or not self.engine.local()

    @property
    def cores(self) -> int:
        """Number of tasks that run at the same time."""
        with races(self.what):
            return int(self.engine.spark().sparkContext.defaultParallelism)

    def run(self, count: int, work: Callable[[int], _T]) -> list[_T]:
        """Do tasks 0 … count-1, and return what they return; raises the error of one of them."""
        with races(self.what):
            return run_tasks(self.engine.spark(), count, work)


class Lake:
    """The tables of one changefeed. `spark` returns a session when a step needs one; without it one is started here.

    `decode` says where windows are read: driver, executors, or auto.
    """

    def __init__(
        self,
        settings: LakeSettings,
        changefeed: str,
        spark: Callable[[], SparkSession] | None = None,
        namespace: str = "{schema}",
        decode: str = "auto",
    ) -> None:
        self.settings = settings
        self.changefeed = changefeed
        self.state = LakeState(settings, changefeed, namespace)
        self.workbench = Workbench(settings, changefeed, self.state, spark, decode)

    def executors(self, what: str, only_elsewhere: bool = False) -> SparkExecutors:
        """Return Spark's executors, for work that is called `what` in errors; perhaps those of a cluster only."""
        return SparkExecutors(self.workbench.engine, what, only_elsewhere)

    # --- reading ---

    def applied(self) -> Mapping[Life, AppliedState]:
        """Return the progress of every table of this changefeed, dropped and purged ones included.

        Steps carried out afterwards refuse tables that another writer has moved since.
        """
        tables = self.state.tables()
        self.workbench.expect(tables)
        return {**self.state.tombstones(), **{life: lake_table.applied for life, lake_table in tables.items()}}

    def labelled_snapshots(self, life: Life) -> Sequence[tuple[Tso, int]]:
        """Return the position and id of each snapshot that a table still has and that a step made, oldest first."""
        file = self.state.file(self.state.find(life).metadata_location)
        labels = [
            (Label.parse(snapshot.summary), snapshot.snapshot_id) for snapshot in file.lineage(across_rewrites=True)
        ]
        return [(label.progress.tso, number) for label, number in reversed(labels) if label is not None]

    def decisions(self) -> Decisions:
        """Return the decisions of people about the tables. Starts no JVM."""
        return self.state.decisions.read()

    def held_back(self) -> frozenset[str]:
        """Return the tables, as texts, whose windows wait for a rebuild that swaps them. Starts no JVM."""
        return held_back(self.state)

    def keep_decision(self, decision: KeptDecision) -> None:
        """Store a decision, in place of an earlier one about the same. Starts no JVM."""
        self.state.decisions.keep(decision)

    def remove_decision(self, decision: KeptDecision) -> None:
        """Remove the decision about the same as this one. Starts no JVM."""
        self.state.decisions.remove(decision)

    def read(self, name: TableId) -> pa.Table:
        """Return the rows of a table by its source name, read without Spark; raises KeyError when there is none."""
        return self.state.read(name)

    def scan(self, life: Life, snapshot_id: int | None = None) -> TableScan:
        """Open a table for reading all of it as it is now, or as it was in a snapshot. Starts no JVM."""
        from cdc_assets.lake.scan import TableScan  # it loads the readers of PyIceberg, which no step needs

        return TableScan(self.state, self.state.find(life), snapshot_id)

    @contextmanager
    def pinned(self, life: Life, snapshot_id: int) -> Iterator[None]:
        """Keep a snapshot from expiring while it is read; that of a reader that is killed is kept for a day."""
        now = iso_now()
        pin = SnapshotPin(life, snapshot_id, uuid.uuid4().hex, now)
        self.keep_decision(pin)
        try:
            yield
        finally:
            self.remove_decision(pin)

    def changes(self, life: Life, since: Tso, until: Tso, equal: Mapping[str, object] = {}) -> Iterator[pa.Table]:
        """Return the changes of a log at positions in (since, until] that have these numbers, in no particular order.

        Starts no JVM.
        """
        return self.scan(life).where(f"{POSITION} > {since} AND {POSITION} <= {until}", equal=equal)

    def look_at_states(self, life: Life, since: Tso, schema: TableSchema) -> str:
        """Return the fault of states that were written since a position, "" for none. Starts no JVM."""
        from cdc_assets.lake.recent_states import state_fault

        return state_fault(self.state, life, since, schema)

    def names(self) -> set[TableId]:
        """Return the source names of the lake's tables."""
        return {lake_table.name for lake_table in self.state.tables().values() if lake_table.name is not None}

    # --- steps ---

    def run(self, step: Step) -> StepResult:
        """Carry out a step other than ApplyRows; repeated, it changes nothing.

        Raises TableMoved when another writer committed since `applied`, TableHeld for what cannot be done faithfully.
        """
        return carry_out(self.workbench, step)

    def dropped(self) -> Mapping[Life, AppliedState]:
        """Return the progress of dropped tables that still have their files. Starts no JVM."""
        return {life: lake_table.applied for life, lake_table in self.state.tables().items() if lake_table.name is None}

    def purge(self, life: Life) -> StepResult:
        """Remove a dropped table with its files for good; its progress stays, and RECOVER is no longer possible.

        Raises BadSettings for a table that is not dropped; nothing happens if it was already purged.
        """
        return purge(self.workbench, life)

    def part(self, feature: str) -> Any:
        """Return the part of the lake that a feature adds: `PART` of its module."""
        return module_of("lake", feature).PART(self.state, self.workbench)

    # --- rows ---

    def stage(self, step: ApplyRows, reader: SplitReader) -> StagedWindow:
        """Decode, check and reduce a window, a large one on the executors, without touching the table."""
        return self.stage_all((step,), reader)[0]

    def stage_all(self, steps: Sequence[ApplyRows], reader: SplitReader) -> list[StagedWindow]:
        """Stage several windows that read the same splits of one source table, decoding these once."""
        return stage_windows(self.workbench, steps, reader)

    def refused_names(self, claims: Iterable[tuple[Life, TableId]]) -> Mapping[tuple[Life, TableId], str]:
        """Return, for each name that belongs to another changefeed, why the table cannot get it. Starts no JVM."""
        homes = {claim: self.state.places.home(claim[1]) for claim in claims}
        if not homes:
            return {}
        own_tables = {lake_table.identifier for lake_table in self.state.known().values()}
        foreign_tables = set(self.state.listed()) - own_tables
        return {
            claim: self.state.foreign(home, claim[0]).message for claim, home in homes.items() if home in foreign_tables
        }

    def warm(self) -> None:
        """Start the JVM in the background, while rows are read; returns at once."""
        self.workbench.sessions.warm()

    def runs_beside(self, step: ApplyRows) -> bool:
        """Return whether a window may be applied beside others: one that the driver reads with little memory."""
        return stage.is_small(step) and self.workbench.decode != "executors"

    def commit(self, step: ApplyRows, staged: StagedWindow) -> StepResult:
        """Write a staged window with its label in one commit, and remove the stage.

        Raises TableMoved if the table's progress is no longer `step.lo`.
        """
        return commit_window(self.workbench, step, staged)

    def repair(self, step: ApplyRows, changes: pa.Table, repair: str, snapshot: int | None = None) -> StepResult:
        """Write the source's rows of some keys in one commit, under the label that the table has.

        Raises TableMoved if the table is no longer as it was read last, or as of `snapshot`, where one is given.
        """
        return repair_rows(self.workbench, step, changes, repair, snapshot)

    def discard(self, step: ApplyRows, staged: StagedWindow) -> None:
        """Remove a staged window that is not committed, with the data files that it has written."""
        withdraw_window(self.workbench, step, staged)

    # --- quarantine ---

    def quarantine(self, step: ApplyRows, staged: StagedWindow, run: str) -> None:
        """Quarantine the records of a staged window that do not fit, before the window itself is committed.

        Raises TableMoved, with nothing kept, where rows of the table were forgotten since it was planned.
        """
        if staged.report.set_aside:
            bench = self.workbench
            io = bench.io_at(staged.path)

            def refuse(life: Life) -> None:
                refuse_revised(self.state.find(life), staged.revision)

            try:
                self.workbench.records.keep(step, io, stage.rejects_of(io, staged), run, refuse)
            except FileNotFoundError as gone:  # who forgets rows removes stages that have them
                raise TableMoved(f"{step.life}: its stage was removed meanwhile ({gone}). Plan again.") from gone

    def quarantined(self, raw: bool = False, closed: bool = False) -> tuple[QuarantinedRow, ...]:
        """Return the open records, or all of them, with their bytes if requested. Starts no JVM."""
        return self.workbench.records.read(raw=raw, closed=closed)

    def quarantined_counts(self) -> Mapping[Life, int]:
        """Return the number of open records of each table. Starts no JVM."""
        return self.workbench.records.counts()

    def replay(self, replay: RecordReplay, reader: SplitReader) -> RecordLookup:
        """Merge the changes of quarantined records' keys in one commit, and mark the records that fit now.

        Raises TableMoved if the table's progress is no longer `replay.frame.hi`.
        """
        return replay_records(self.workbench, replay, reader)

    # --- names ---

    def apply_renames(self) -> None:
        """Rename every table to the name that it should have; a table whose name is still taken waits aside."""
        table_renames.apply_renames(self.state)

    def close(self) -> None:
        """Close the catalogs, and stop the Spark session if it was started here."""
        self.workbench.close()
        with suppress(Exception):
            self.state.close()
