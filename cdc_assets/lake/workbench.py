"""Shared needs of the steps on a changefeed's tables: Spark sessions, and the labels from which steps begin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs
from pyspark.errors import AnalysisException

from cdc_assets.errors import BadSettings, CdcError, LakeUnavailable, SetupError, TableHeld, TableMoved
from cdc_assets.features.quarantine.lake import Quarantine
from cdc_assets.lake import table_renames
from cdc_assets.lake.catalogs.catalog import local_path
from cdc_assets.lake.catalogs.remembered import discard_lent, io_properties, remember
from cdc_assets.lake.commit import CommitTarget, target
from cdc_assets.lake.failures import answering, is_refusal
from cdc_assets.lake.label import Label
from cdc_assets.lake.lake_table import IDENTITY, LakeTable
from cdc_assets.lake.names import Identifier, format_identity
from cdc_assets.lake.spark.failures import races
from cdc_assets.lake.spark.session import Sessions, StepSession
from cdc_assets.lake.staging import stage
from cdc_assets.lake.staging.stage import STAGE
from cdc_assets.lake.staging.storage import storage
from cdc_assets.lake.state import LakeState
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import Report, StepResult
from cdc_assets.model.steps import CreateTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.settings.lake import LakeSettings

_LONG_SECONDS = 300.0
"""Credentials that a step begins with may have ended after as long."""


@dataclass(frozen=True, slots=True)
class Work:
    """A step on one table: the session, the table as loaded in it, and its label then."""

    session: StepSession
    target: CommitTarget
    lake_table: LakeTable
    label: Label


def refuse_revised(lake_table: LakeTable, revision: str) -> None:
    """Raise TableMoved if a table has another revision: rows were taken out of it since."""
    if lake_table.revision != revision:
        raise TableMoved(f"rows of {lake_table.life} were forgotten meanwhile. Plan again.", table=str(lake_table.life))


class Workbench:
    """The shared state of steps on the tables of one changefeed."""

    def __init__(
        self,
        settings: LakeSettings,
        changefeed: str,
        state: LakeState,
        spark: Callable[[], SparkSession] | None = None,
        decode: str = "auto",
    ) -> None:
        self.settings = settings
        self.decode = decode
        self.changefeed = changefeed
        self.state = state
        self.sessions = Sessions(settings, spark, self._make_catalog)
        self._cleaned = False
        self._expected: dict[Life, tuple[Label, str]] = {}

    def _make_catalog(self) -> None:
        """Make the catalog before Java opens it: Java's driver makes no directory for its file."""
        refuse_unusable(self.settings)
        self.state.lazy_catalog.make()

    @property
    def engine(self) -> stage.Engine:
        """Decides what executors read, and starts Spark when they are to."""
        return stage.Engine(lambda: self.sessions.side().spark, lambda: self.sessions.local, self.decode)

    @property
    def records(self) -> Quarantine:
        """The records of the changefeed that were set aside."""
        return Quarantine(self.state)

    def storage(self, lake_table: LakeTable) -> tuple[str, dict[str, str]]:
        """Return the place where windows of a table are staged, and PyIceberg's properties for it.

        Beside the tables; if a catalog may grant a table's own location only, below that.
        """
        root = lake_table.location if self.settings.kind.vends else self.settings.root
        return root, self.state.io(lake_table)

    def io_at(self, place: str) -> dict[str, str]:
        """Return PyIceberg's properties for a stage that was written or read here."""
        return io_properties(self.state.catalog, place)

    def expect(self, tables: Mapping[Life, LakeTable]) -> None:
        """Refuse tables that differ from here on: steps were planned from these labels."""
        self._expected = {life: lake_table.standing for life, lake_table in tables.items()}

    def expects(self, life: Life) -> bool:
        """Return whether steps on a table were planned from a known label."""
        return life in self._expected

    def table_now(self, life: Life) -> LakeTable:
        """Return a table as a step left it, for the next one."""
        lake_table = self.state.note(self.state.find(life))
        self._expected[life] = lake_table.standing
        return lake_table

    def table_after_commit(self, operations: Any, identifier: Identifier) -> LakeTable:
        """Return a table from Iceberg's `TableOperations` after a commit through them, without a request."""
        lake_table = self.state.note(self._table_of(operations, identifier))
        self._expected[lake_table.life] = lake_table.standing
        return lake_table

    def _table_of(self, operations: Any, identifier: Identifier) -> LakeTable:
        """Read a table's progress from what Iceberg has loaded of it; remote files are not read once more."""
        metadata = operations.current()
        place = metadata.metadataFileLocation()
        if local_path(place) is None:
            body = self.sessions.iceberg.java("org.apache.iceberg.TableMetadataParser").toJson(metadata)
            remember(self.state.catalog, place, body.encode())
        return self.state.at(place, identifier)

    @contextmanager
    def on(self, life: Life) -> Iterator[Work]:
        """Load a table in a session of its own and read its label there; lost races become TableMoved."""
        with self.lent(life), races(str(life)), self.sessions.step() as session:
            table, identifier = self._loaded(session, life)
            lake_table = self.state.note(self._table_of(table.operations(), identifier))
            loaded = target(session, lake_table.identifier, table, lake_table.empty)
            expected = self._expected.get(life)
            if expected is not None and expected[0] != lake_table.label:
                raise TableMoved(
                    f"{life} is applied to {lake_table.label.progress.tso}, and was at {expected[0].progress.tso} when "
                    "its progress was read: another writer committed first. Plan again.",
                    table=str(life),
                )
            if expected is not None:
                refuse_revised(lake_table, expected[1])
            try:
                yield Work(session, loaded, lake_table, lake_table.label)
            except AnalysisException as error:
                # Spark may have resolved the statement against what another writer made of the table by then.
                if self._stands_still(lake_table):
                    raise
                raise TableMoved(
                    f"{life} was changed by another writer meanwhile ({error}). Plan again.", table=str(life)
                ) from error

    def revision(self, life: Life) -> str:
        """Return the run that had last taken rows out of a table when its progress was read, or as it was last seen."""
        return self._expected[life][1] if life in self._expected else self.state.last(life).revision

    @contextmanager
    def lent(self, life: Life) -> Iterator[None]:
        """Turn a store's refusal of credentials that the catalog lent for a table a while ago into LakeUnavailable.

        Whoever plans again gets new ones. Both clients are told so: Java's loads the table anew for every step.
        """
        begun = time.monotonic()
        try:
            yield
        except (SetupError, LakeUnavailable) as error:
            seen = self.state.seen(life)
            old = seen is not None and discard_lent(self.state.catalog, seen.metadata_location)
            old = old or (self.settings.kind.vends and time.monotonic() - begun > _LONG_SECONDS)
            if not old or not is_refusal(error):
                raise
            raise LakeUnavailable(
                f"{error.message} If the catalog lends credentials for the table's files, these may have ended: new "
                "ones are requested.",
                **error.where,
            ) from error

    def _loaded(self, session: StepSession, life: Life) -> tuple[Any, Identifier]:
        """Load a table by the name under which it was last seen, or by its current one."""
        seen = self.state.seen(life)
        if seen is not None:
            table = session.find(seen.identifier)
            if table is not None and table.properties().get(IDENTITY) == format_identity(life):
                return table, seen.identifier
        lake_table = self.state.find(life)
        table = session.load(lake_table.identifier)
        if table.properties().get(IDENTITY) != format_identity(life):
            raise TableMoved(f"{life} was renamed meanwhile. Plan again.", table=str(life))
        return table, lake_table.identifier

    def _stands_still(self, lake_table: LakeTable) -> bool:
        try:
            now = self.state.find(lake_table.life)
        except CdcError:
            return False
        return (now.metadata_location, now.identifier) == (lake_table.metadata_location, lake_table.identifier)

    def result(
        self, work: Work, started: float, report: Report | None = None, leaving: int | None = None
    ) -> StepResult:
        """Return the result of a step, from the newest snapshot's summary.

        Iceberg counts rows added and removed. `leaving` of the removed ones were deletes, the others were replaced by
        an update; if that is not known, a removed row counts as updated when one was added.
        """
        before, after = work.lake_table, self.left(work)
        summary = self.state.summary(after) if after.snapshot_id != before.snapshot_id else {}
        added, removed = int(summary.get("added-records", 0)), int(summary.get("deleted-records", 0))
        removed += int(summary.get("added-position-deletes", 0)) - int(summary.get("removed-position-deletes", 0))
        deleted = max(removed - added, 0) if leaving is None else min(leaving, removed)
        updated = removed - deleted
        alone = after.snapshot_id == before.snapshot_id or after.parent_id == before.snapshot_id
        return StepResult(
            tuple(work.session.statements),
            before.snapshot_id,
            after.snapshot_id,
            added - updated,
            updated,
            deleted,
            seconds=time.monotonic() - started,
            report=report,
            rows_before=before.rows,
            rows_after=after.rows if alone else None,
        )

    def left(self, work: Work) -> LakeTable:
        """Return a table as a step left it; after a commit through Iceberg's own `Table` without a request."""
        operations = work.target.table.operations()
        moved = operations.current().metadataFileLocation() != work.lake_table.metadata_location
        return (
            self.table_after_commit(operations, work.lake_table.identifier)
            if moved
            else self.table_now(work.lake_table.life)
        )

    def free(self, home: Identifier, step: CreateTable) -> None:
        """Make sure that a new table's name is free; a table that waits for another name is renamed first."""
        if home not in self.state.listed():
            return
        table_renames.apply_renames(self.state)
        if not self.state.exists(home):
            return
        owner = next((lake_table for lake_table in self.state.tables().values() if lake_table.identifier == home), None)
        if owner is None:
            raise self.state.foreign(home, step.life)
        raise TableHeld(
            f"{step.life} cannot be created: {owner.life} has the name {step.name}, neither renamed nor dropped.",
            table=str(step.life),
        )

    def untag(self, life: Life, tag: str) -> None:
        """Remove a tag of a table; nothing happens if it has none of that name."""
        with self.on(life) as work:
            if tag in work.lake_table.tags:
                work.target.table.manageSnapshots().removeTag(tag).commit()
                self.left(work)

    def clean_once(self) -> None:
        """Remove stages of dead runs, on the first call."""
        if not self._cleaned:
            self._cleaned = True
            self.remove_stale()

    def remove_stale(self) -> int:
        """Remove stages of dead runs, and return how many; those below a table are removed as its orphans."""
        if self.settings.kind.vends:
            return 0
        return stage.remove_stale(self.settings.pyiceberg_properties(), self.settings.root)

    def close(self) -> None:
        """Stop the Spark session if it was started here."""
        self.sessions.close()


_KEYS = ("s3.secret-access-key", "adls.account-key", "adls.sas-token")
"""Properties that say with which credentials to try; without them the clients' own chains decide, and differ."""


def refuse_unusable(settings: LakeSettings) -> None:
    """Raise SetupError or BadSettings for a store that refuses the given keys or has no such bucket.

    One place below the warehouse is looked at, since grants may reach no further. What else fails is left to Java.
    """
    properties = settings.pyiceberg_properties()
    if settings.local_directory is not None or not any(key in properties for key in _KEYS):
        return
    with suppress(OSError), answering("the lake's warehouse"):
        system, place = storage(properties, f"{settings.root}/{STAGE}")
        if system.get_file_info(place).type != pafs.FileType.NotFound:
            return
        bucket = place.partition("/")[0]
        with suppress(OSError):  # to look at the bucket itself may not be granted
            if system.get_file_info(bucket).type == pafs.FileType.NotFound:
                raise BadSettings(
                    f"the lake's warehouse {settings.root} is in {bucket!r}, which is not there. Check lake.warehouse, "
                    "and the endpoint in lake.catalog."
                )
