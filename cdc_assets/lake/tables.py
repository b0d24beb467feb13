"""The lake: carries out steps, each one guarded and labelled commit, and tells how far every table is.

    applied()          PyIceberg reads the labels                       no JVM
    run(step)          DDL: one Java transaction, or one atomic rewrite
    stage, commit      rows: staged as Parquet, taken in by one MERGE; the first ones are its own files at once
    settle_names()     every table to the name that it should have      no JVM

Before a step, its table's label is read in the step's own session; what the step commits is validated against that very
state. A step whose label is there already does nothing, so each may be repeated after a crash at any line.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from cdc_assets.decoding.kinds import kind_of
from cdc_assets.decoding.replay import Found, Replay
from cdc_assets.decoding.reports import rejected
from cdc_assets.errors import BadSettings, CdcError, TableHeld, TableMoved
from cdc_assets.formats import COMMIT_TS, SplitReader
from cdc_assets.history.releases import Release, Releases
from cdc_assets.lake import quarantine, schema
from cdc_assets.lake.commit import Target, exchange, overwrite, publish, refuse_undated, sql_condition, target
from cdc_assets.lake.names import OWN, Identifier, format_identity, format_name, location
from cdc_assets.lake.spark.session import Sessions, StepSession, quoted, races
from cdc_assets.lake.staging import stage
from cdc_assets.lake.staging.stage import Batch
from cdc_assets.lake.state import IDENTITY, NAME, Held, Label, LakeState
from cdc_assets.lake.taking_in import STAGED, take_in
from cdc_assets.model.progress import Applied, Life, Phase, Progress
from cdc_assets.model.quarantine import QuarantinedRow
from cdc_assets.model.reports import AlikeKeys, Report, Staged, StepResult
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import (
    ApplyRows,
    ChangeTable,
    CreateTable,
    DropTable,
    ExchangePartition,
    HoldTable,
    RecoverTable,
    RenameTable,
    Step,
)
from cdc_assets.model.tso import Tso

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from cdc_assets.settings.config import LakeSettings

__all__ = ["Lake"]

REPLAY = "cdc.replay"
"""Snapshot property: the token of a replay, which tells whether it was committed."""


@dataclass
class _Work:
    """A step on one table: the session, the table as loaded in it, and its label then."""

    session: StepSession
    target: Target
    held: Held
    label: Label
    done: bool = False


class Lake:
    """The tables of one changefeed. `spark` gives the session when a step needs one; without it one is started here."""

    def __init__(
        self,
        settings: LakeSettings,
        changefeed: str,
        spark: Callable[[], SparkSession] | None = None,
        namespace: str = "{schema}",
    ) -> None:
        self.settings = settings
        self.changefeed = changefeed
        self.state = LakeState(settings, changefeed, namespace)
        self._sessions = Sessions(settings, spark)
        self._cleaned = False
        self._expected: dict[Life, Label] = {}

    # --- reading ---

    def applied(self) -> Mapping[Life, Applied]:
        """Return the progress of every table of this changefeed, dropped and purged ones included.

        Steps carried out afterwards refuse tables that another writer has moved since.
        """
        tables = self.state.tables()
        self._expected = {life: held.label for life, held in tables.items()}
        return {**self.state.tombstones(), **{life: held.applied for life, held in tables.items()}}

    def releases(self) -> Releases:
        """Return what people decided about single DDL. Starts no JVM."""
        return self.state.releases()

    def release(self, release: Release) -> None:
        """Keep a decision, in place of an earlier one about the same DDL. Starts no JVM."""
        self.state.release(release)

    def unrelease(self, life: Life, version: Tso) -> None:
        """Forget a decision. Starts no JVM."""
        self.state.unrelease(life, version)

    def read(self, name: TableId) -> pa.Table:
        """Return the rows of a table by its source name, read without Spark; raises KeyError when there is none."""
        return self.state.read(name)

    def names(self) -> set[TableId]:
        """Return the source names of the tables that are there."""
        return {held.name for held in self.state.tables().values() if held.name is not None}

    def row_count(self, name: TableId) -> int | None:
        """Return how many rows a table has, from its metadata; None when that does not tell."""
        return self.state.named(name).rows

    # --- steps ---

    def run(self, step: Step) -> StepResult:
        """Carry out a step other than ApplyRows; repeated, it changes nothing.

        Raises TableMoved when another writer committed since `applied`, TableHeld for what cannot be done faithfully.
        """
        if isinstance(step, HoldTable):
            raise TableHeld(step.reason, table=str(step.life), ways=step.ways)
        if isinstance(step, ApplyRows):
            raise TypeError("rows are staged and committed")
        started = time.monotonic()
        if isinstance(step, CreateTable):
            return self._create(step, started)
        with self._work(step.life) as work:
            ddl = step.ddl if isinstance(step, ChangeTable) else step.at
            if ddl > work.label.ddl:
                self._refuse_passed(step, work)
                self._run_ddl(step, work, work.label.through_ddl(step.at, ddl))
            result = self._result(work, started)
        if isinstance(step, (RenameTable, DropTable, RecoverTable)):
            self.settle_names()
        return result

    def _refuse_passed(self, step: Step, work: _Work) -> None:
        """Refuse a DDL below the rows, unless it was planned from this very state: it came late and is due now."""
        if work.label.progress.tso > step.at and step.life not in self._expected:
            raise TableMoved(
                f"{step.life} stands at {work.label.progress.tso} already, past the DDL of version {step.at}. "
                "Plan again.",
                table=str(step.life),
            )

    def _run_ddl(self, step: Step, work: _Work, label: Label) -> None:
        match step:
            case ChangeTable():
                schema.change(work.target, step, label)
            case RenameTable(life, _, to) | RecoverTable(life, _, to):
                self._refuse_taken(to, life)
                publish(work.target, label, properties={NAME: format_name(to)})
                work.session.statements.append(
                    f"ALTER TABLE {work.target.name} RENAME TO {quoted(*self.state.home(to))}"
                )
            case DropTable():
                publish(work.target, label, properties={NAME: ""})
                aside = quoted(*self.state.aside(step.life))
                work.session.statements.append(f"ALTER TABLE {work.target.name} RENAME TO {aside}")
            case ExchangePartition():
                self._exchange(step, work, label)
            case _:
                raise TypeError(f"no way to carry out {step!r}")

    def _refuse_taken(self, name: TableId, life: Life) -> None:
        """Refuse a name that is not free for a changefeed; a table of its own may hold it until names are settled."""
        self.state.refuse_reserved(name, life)
        home = self.state.home(name)
        if self.state.exists(home) and all(held.identifier != home for held in self.state.tables().values()):
            raise self.state.foreign(home, life)

    def _create(self, step: CreateTable, started: float) -> StepResult:
        if step.life in self.state.tables():
            return StepResult(seconds=time.monotonic() - started)
        self.state.refuse_reserved(step.name, step.life)
        home = self.state.home(step.name)
        self._free(home, step)
        self.state.ensure_namespace(home[0])
        root = str(self.settings.local_directory or self.settings.warehouse)
        place = location(root, self.changefeed, step.life)
        with self._sessions.step() as session:
            try:
                with races(str(step.life)):
                    schema.create(session, home, step, self.changefeed, place)
            except Exception:  # the catalog tells in its own way that another run made it first
                if step.life not in self.state.tables():
                    raise
            statements = tuple(session.statements)
        held = self.state.find(step.life)
        self._expected[step.life] = held.label
        return StepResult(statements, None, held.snapshot_id, seconds=time.monotonic() - started)

    def _free(self, home: Identifier, step: CreateTable) -> None:
        """Make sure that nothing is under a new table's name; what waits for another name goes there first."""
        if not self.state.exists(home):
            return
        self.settle_names()
        if not self.state.exists(home):
            return
        owner = next((held for held in self.state.tables().values() if held.identifier == home), None)
        if owner is None:
            raise self.state.foreign(home, step.life)
        raise TableHeld(
            f"{step.life} cannot be created: {owner.life} holds the name {step.name}, neither renamed nor dropped.",
            table=str(step.life),
        )

    def purge(self, life: Life) -> StepResult:
        """Remove a dropped table with its files for good; its progress stays, and RECOVER is not possible any more.

        Raises BadSettings for a table that is not dropped; one that was purged already stays so.
        """
        started = time.monotonic()
        held = self.state.tables().get(life)
        if held is None:
            return StepResult()
        if held.name is not None:
            raise BadSettings(f"{life} is {held.name} now and was not dropped, so it is not purged.")
        self.state.ensure_namespace(OWN)
        with races(str(life)), self._sessions.step() as session:
            schema.bury(session, held.identifier, self.changefeed, life, held.label.ddl)
            statements = tuple(session.statements)
        return StepResult(statements, held.snapshot_id, seconds=time.monotonic() - started)

    def _exchange(self, step: ExchangePartition, work: _Work, label: Label) -> None:
        """Both inputs are read as they were before the DDL, so a crash between the two tables' commits does no harm."""
        other = self.state.find(step.other)
        theirs = self.state.snapshot_below(other, step.at)
        name = work.session.name(other.identifier)
        rows = work.session.spark.read.option("versionAsOf", str(theirs)).table(name)
        split = work.session.spark.read.table(work.target.name) if step.partitioned else rows
        refuse_undated(split, [step.predicate], str(step.life))
        if step.partitioned:
            publish(work.target, label, rows=lambda: exchange(work.target, rows, step.schema, step.predicate))
            return
        condition = sql_condition(work.target, step.predicate)
        columns = [*(column.name for column in step.schema.stored), COMMIT_TS]
        entering = rows.where(condition).select(*map(quoted, columns))
        told = f"INSERT OVERWRITE {work.target.name} SELECT … FROM {name} VERSION AS OF {theirs} WHERE {condition}"
        publish(work.target, label, rows=lambda: overwrite(work.target, entering, told))

    # --- rows ---

    def stage(self, step: ApplyRows, reader: SplitReader, quarantine: bool = False) -> Staged:
        """Decode, check and reduce a window, a large one on the executors, without touching the table.

        With `quarantine` records that do not fit are staged for `quarantine`, and the report does not fail for them.
        """
        if not step.files:
            return Staged("", 0, Report())
        with races(str(step.life)):
            held = self.state.find(step.life)
            landing = self.state.landing(held) if held.empty else None
            if landing is not None and not landing.takes(step.schema):
                landing = None
            engine = stage.Engine(lambda: self._session().spark, lambda: self._sessions.local)
            return stage.stage(engine, self.settings.warehouse, self._io(), step, reader, quarantine, landing=landing)

    def warm(self) -> None:
        """Begin to start the JVM, while rows are read; returns at once."""
        self._sessions.warm()

    def reads_ahead(self, step: ApplyRows) -> bool:
        """Tell whether a window may be staged beside a step: one that the driver reads with little memory."""
        return stage.is_small(step)

    def commit(self, step: ApplyRows, staged: Staged) -> StepResult:
        """Write a staged window with its label in one commit, and remove the stage.

        Raises TableMoved when the table does not stand at `step.lo` any more.
        """
        started, batch, alike = time.monotonic(), Batch(), AlikeKeys()
        if staged.report.failed:
            raise ValueError("a window with records that do not fit is not committed")
        self._clean_once()
        try:
            with self._work(step.life) as work:
                label = Label(
                    Progress(step.hi, Phase.ROWS), max(step.ddl, work.label.ddl), step.positions or work.label.positions
                )
                if work.label.progress < label.progress:
                    if work.label.rows_from != step.lo:
                        raise TableMoved(
                            f"{step.life} stands at {work.label.rows_from}, and the window begins at {step.lo}: "
                            "another writer committed first. Plan again.",
                            table=str(step.life),
                        )
                    if staged.rows:
                        batch = stage.read_manifest(self._io(), staged.path)
                    alike = take_in(work.target, label, step, staged, batch, self._io())
                result = self._result(work, started, staged.report, batch.leaving)
        except TableMoved as error:
            if not error.where.get("unsettled"):
                self._forget(step.life, staged)
            raise
        self.discard(staged)
        return dataclasses.replace(result, entering=batch.entering, alike=alike)

    def _forget(self, life: Life, staged: Staged) -> None:
        """Remove a window that lost, and its data files unless a snapshot has them: a run before may have committed."""
        with suppress(CdcError, OSError):
            held = self.state.tables().get(life)
            batch = stage.read_manifest(self._io(), staged.path) if staged.path else Batch()
            lost = held is not None and not self.state.has_mark(held, STAGED, stage.name_of(staged.path))
            if batch.schema_id is not None and lost:
                stage.remove_files(self._io(), batch.parts)
            self.discard(staged)

    def discard(self, staged: Staged) -> None:
        """Forget a staged window."""
        stage.discard(self._io(), staged.path)

    # --- quarantine ---

    def quarantine(self, step: ApplyRows, staged: Staged, run: str) -> None:
        """Keep the records of a staged window that do not fit, before the window itself is committed."""
        if staged.report.quarantined:
            quarantine.keep(self._session, self.state, self._io(), step, staged, run)

    def quarantined(self, raw: bool = False, replayed: bool = False) -> tuple[QuarantinedRow, ...]:
        """Return the open records, or all of them, with their bytes if so asked. Starts no JVM."""
        return quarantine.read(self.state, raw=raw, replayed=replayed)

    def quarantined_counts(self) -> Mapping[Life, int]:
        """Return how many records of each table are open. Starts no JVM."""
        return quarantine.counts(self.state)

    def replay(self, replay: Replay, reader: SplitReader) -> Found:
        """Merge the changes of quarantined records' keys in one commit, and mark the records that fit now.

        Raises TableMoved when the table does not stand at `replay.frame.hi` any more.
        """
        life, spark = replay.frame.life, self._session().spark
        if kind_of(replay.frame.schema).EQUAL_ROWS:
            replay = self._without_done(replay)
        found = quarantine.find(spark, replay, reader)
        fitting = [(path, n) for path, lines in replay.targets.items() for n in lines if (path, n) not in found.bad]
        if not fitting:
            return found
        staged = quarantine.stage_replay(
            spark, self.settings.warehouse, self._io(), dataclasses.replace(replay, keys=found.keys), reader
        )
        try:
            if staged.report.failed:
                raise rejected(replay.frame, staged.report)
            with self._work(life) as work:
                if work.label.progress.tso != replay.frame.hi:
                    raise TableMoved(
                        f"{life} stands at {work.label.progress.tso} meanwhile. Plan again.", table=str(life)
                    )
                if staged.rows and kind_of(replay.frame.schema).EQUAL_ROWS:
                    work.session.label({REPLAY: quarantine.replaying(self._session, self.state, life, fitting)})
                if staged.rows:
                    batch = stage.read_manifest(self._io(), staged.path)
                    take_in(work.target, work.label, replay.frame, staged, batch, self._io())
        finally:
            self.discard(staged)
        quarantine.close(self._session, self.state, life, fitting)
        return found

    def _without_done(self, replay: Replay) -> Replay:
        """Leave out records whose replay was committed by a run that died before it could mark them."""
        life = replay.frame.life
        done: set[tuple[str, int]] = set()
        for token, lines in quarantine.begun(self.state, life).items():
            if self.state.has_snapshot(life, REPLAY, token):
                quarantine.close(self._session, self.state, life, lines)
                done.update(lines)
        left = {path: frozenset(n for n in lines if (path, n) not in done) for path, lines in replay.targets.items()}
        return dataclasses.replace(replay, targets={path: lines for path, lines in left.items() if lines})

    # --- names ---

    def settle_names(self) -> None:
        """Bring every table to the name that it should have; a table whose name is still taken waits aside."""
        self.state.settle_names()

    # --- the machinery of a step ---

    @contextmanager
    def _work(self, life: Life) -> Iterator[_Work]:
        """Load a table in a session of its own and read its label there; lost races become TableMoved."""
        with races(str(life)), self._sessions.step() as session:
            held = self.state.find(life)
            table = session.load(held.identifier)
            if table.properties().get(IDENTITY) != format_identity(life):
                raise TableMoved(f"{life} was renamed meanwhile. Plan again.", table=str(life))
            place = table.operations().current().metadataFileLocation()
            held = self.state.at(place, held.identifier)
            loaded = target(session, held.identifier, table, held.empty)
            expected = self._expected.get(life)
            if expected is not None and expected != held.label:
                raise TableMoved(
                    f"{life} stands at {held.label.progress.tso}, and stood at {expected.progress.tso} when its "
                    "progress was read: another writer committed first. Plan again.",
                    table=str(life),
                )
            try:
                yield _Work(session, loaded, held, held.label)
            except AnalysisException as error:
                # Spark may have resolved the statement against what another writer made of the table by then.
                if self._stands_still(held):
                    raise
                raise TableMoved(
                    f"{life} was changed by another writer meanwhile ({error}). Plan again.", table=str(life)
                ) from error

    def _stands_still(self, held: Held) -> bool:
        try:
            now = self.state.find(held.life)
        except CdcError:
            return False
        return (now.metadata_location, now.identifier) == (held.metadata_location, held.identifier)

    def _result(
        self, work: _Work, started: float, report: Report | None = None, leaving: int | None = None
    ) -> StepResult:
        """Tell what a step did, from the newest snapshot's summary.

        Iceberg tells rows added and removed. `leaving` of the removed ones were deletes, the others made room for an
        update; where that is not known, a removed row counts as updated when one was added.
        """
        held = self.state.find(work.held.life)
        self._expected[held.life] = held.label
        told = self.state.summary(held) if held.snapshot_id != work.held.snapshot_id else {}
        added, removed = int(told.get("added-records", 0)), int(told.get("deleted-records", 0))
        removed += int(told.get("added-position-deletes", 0)) - int(told.get("removed-position-deletes", 0))
        deleted = max(removed - added, 0) if leaving is None else min(leaving, removed)
        updated = removed - deleted
        alone = held.snapshot_id == work.held.snapshot_id or held.parent_id == work.held.snapshot_id
        return StepResult(
            tuple(work.session.statements),
            work.held.snapshot_id,
            held.snapshot_id,
            added - updated,
            updated,
            deleted,
            seconds=time.monotonic() - started,
            report=report,
            rows_before=work.held.rows,
            rows_after=held.rows if alone else None,
        )

    def _session(self) -> StepSession:
        return self._sessions.side()

    def _io(self) -> dict[str, str]:
        return self.settings.pyiceberg_properties()

    def _clean_once(self) -> None:
        if not self._cleaned:
            stage.remove_stale(self._io(), self.settings.warehouse)
            self._cleaned = True

    def close(self) -> None:
        """Close the catalogs, and stop the Spark session if it was started here."""
        self._sessions.close()
        with suppress(Exception):
            self.state.close()
