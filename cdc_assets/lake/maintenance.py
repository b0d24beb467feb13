"""Maintenance of the lake's files: facts, read without a JVM, and Iceberg's own actions.

Every action is a commit that Iceberg validates: in a race with a window one of them wins, and the loser gets
TableMoved. No action carries a label, so before a snapshot expires the progress is also written as a table property,
together with the snapshot at which it was valid (see `label`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import DataFileContent, ManifestContent

from cdc_assets.errors import InputError, TableMoved
from cdc_assets.features.kinds.lake_checks import history_problem
from cdc_assets.formats.decoded import POSITION
from cdc_assets.io.retries import retrying
from cdc_assets.lake.catalogs.catalog import table_io
from cdc_assets.lake.chores import Chores, SnapshotFact, TableFacts, chores
from cdc_assets.lake.commit import expire
from cdc_assets.lake.label import Label, fallback
from cdc_assets.lake.lake_table import IDENTITY, REBUILD, REPLAY, LakeTable, read_model, snapshot_below
from cdc_assets.lake.names import Identifier, format_identity
from cdc_assets.lake.spark.failures import races
from cdc_assets.lake.spark.session import StepSession
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.lake.tables import Lake
from cdc_assets.model.decisions import SnapshotPin
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.tso import Tso, parse_iso_time

if TYPE_CHECKING:
    from cdc_assets.lake.metadata_file import MetadataFile, Snapshot
    from cdc_assets.settings.sections import MaintenanceSettings

_SWEPT = "cdc.swept-ms"
"""Table property: when orphan files were last removed, ms since 1970."""

_ATTEMPTS = 4
_DAY_MS = 86_400_000
_PINNED = timedelta(days=1)
"""Time for which a snapshot is kept for a reader that may have been killed."""


class LakeMaintenance:
    """Maintains one changefeed's tables, dropped ones included, and the tables of the lake itself."""

    def __init__(self, lake: Lake, settings: MaintenanceSettings) -> None:
        self.lake = lake
        self.settings = settings
        self._records = lake.workbench.records

    # --- looking ---

    def facts(
        self, exchanges: Mapping[Life, frozenset[Tso]] | None = None, alone: Life | None = None
    ) -> tuple[TableFacts, ...]:
        """Return the facts in each table's metadata, or those of one alone; starts no JVM.

        `exchanges` are open ones (`open_exchanges`).
        """
        lake_table = {table.identifier: table for table in self.lake.state.tables().values()}
        tokens = {ticket.token for ticket in Rebuilds(self.lake).tickets()}
        pins = self.lake.state.decisions.read().of(SnapshotPin)
        pinned = {(pin.life, pin.snapshot_id) for pin in pins if not _is_stale(pin)}
        own = self.lake.state.places.own.main
        entries = sorted(entry for entry in self.lake.state.entries() if entry[0] in lake_table or entry[0][0] == own)
        if alone is not None:
            entries = [entry for entry in entries if entry[0] in lake_table and lake_table[entry[0]].life == alone]

        def look(entry: tuple[Identifier, str]) -> TableFacts | None:
            with suppress(FileNotFoundError):  # a commit just removed it; the next look finds its successor
                return self._fact(*entry, lake_table.get(entry[0]), tokens, exchanges or {}, pinned)
            return None

        with ThreadPoolExecutor(8) as pool:
            return tuple(fact for fact in pool.map(look, entries) if fact is not None)

    def _fact(
        self,
        identifier: Identifier,
        place: str,
        lake_table: LakeTable | None,
        tokens: set[str],
        exchanges: Mapping[Life, frozenset[Tso]],
        pinned: Collection[tuple[Life, int]] = (),
    ) -> TableFacts:
        state = self.lake.state
        file = state.file(place)
        line = {snapshot.snapshot_id: snapshot for snapshot in file.lineage(across_rewrites=True)}

        def total(name: str) -> int:
            return (file.snapshot.number(f"total-{name}") or 0) if file.snapshot is not None else 0

        data_files = total("data-files")
        manifests, small = self._files(place, data_files)
        return TableFacts(
            ".".join(identifier),
            lake_table.life if lake_table is not None else None,
            total("records") - total("position-deletes"),
            data_files,
            total("files-size"),
            small,
            total("position-deletes"),
            total("delete-files"),
            len(manifests),
            sum(manifests),
            tuple(_fact_of(snapshot, file) for snapshot in line.values()),
            tuple(_fact_of(snapshot, file) for snapshot in file.snapshots.values() if snapshot.snapshot_id not in line),
            frozenset(self._needed(lake_table, line.values(), tokens, exchanges))
            | {snapshot_id for life, snapshot_id in pinned if lake_table is not None and life == lake_table.life},
            int(file.properties.get(_SWEPT, 0)),
        )

    def _files(self, place: str, data_files: int) -> tuple[list[int], int]:
        """Return the sizes of manifests, and how many small data files share a partition, if they may be too many."""
        metadata = read_model(self.lake.state.catalog, place)
        snapshot = metadata.current_snapshot()
        if snapshot is None:
            return [], 0
        io = table_io(self.lake.state.catalog, place)
        manifests = snapshot.manifests(io)
        small = Counter[str]()
        if data_files >= self.settings.small_files:
            for manifest in manifests:
                if manifest.content == ManifestContent.DATA:
                    entries = manifest.fetch_manifest_entry(io)
                    files = (entry.data_file for entry in entries)
                    small.update(
                        f"{file.spec_id} {file.partition}"
                        for file in files
                        if file.content == DataFileContent.DATA and file.file_size_in_bytes < self.settings.small_bytes
                    )
        return [manifest.manifest_length for manifest in manifests], sum(n for n in small.values() if n > 1)

    def _needed(
        self,
        lake_table: LakeTable | None,
        line: Iterable[Snapshot],
        tokens: set[str],
        exchanges: Mapping[Life, frozenset[Tso]],
    ) -> Iterator[int]:
        """Snapshots that an open exchange reads, or that prove that a replay or a rebuild was committed."""
        if lake_table is None:
            return
        for version in exchanges.get(lake_table.life, ()):
            with suppress(InputError):
                yield snapshot_below(self.lake.state.file(lake_table.metadata_location), lake_table, version)[0]
        waiting = self._records.tokens(lake_table.life) if self._records.counts() else {}
        begun = {token for tokens in waiting.values() for token in tokens}
        for snapshot in line:
            if snapshot.summary.get(REPLAY) in begun or snapshot.summary.get(REBUILD) in tokens:
                yield snapshot.snapshot_id

    # --- doing ---

    def carry_out(self, facts: TableFacts, due: Chores, now_ms: int) -> int:
        """Do what is due for one table, retrying after concurrent commits; return how many orphan files were removed.

        Raises TableMoved if writers keep committing: what was done by then stays done.
        """
        life, settings, orphans = facts.life, self.settings, 0
        if life is None:
            act = partial(self._keep_own, facts.table.rpartition(".")[2], due, now_ms)
            return retrying(act, _ATTEMPTS, TableMoved, pause_seconds=0.2)
        if due.compact:
            self._repeated(life, lambda session: _compact(session, self._load(session, life), settings))
        if due.manifests or (due.compact and chores(self._again(life), settings, now_ms).manifests):
            self._repeated(life, lambda session: _rewrite_manifests(session, self._load(session, life)))
        if due.orphans:
            older = now_ms - int(settings.orphan_days * _DAY_MS)
            local = self.lake.settings.local_directory is not None
            orphans = self._repeated(
                life, lambda session: _remove_orphans(session, self._load(session, life), older, local)
            )
        if due:
            swept = {_SWEPT: str(now_ms)} if due.orphans else {}
            self._repeated(life, lambda session: self._keep_progress(session, life, swept))
        if due.expire:
            self._repeated(life, lambda session: expire(self._load(session, life), due.expire))
        return orphans

    def problem(self, life: Life, schema: TableSchema) -> str:
        """Return the fault of the rows of a history table of these columns, a sentence, "" for none."""
        if self._records.counts().keys() & {life, life.source}:
            return ""
        with races(str(life)), self.lake.workbench.sessions.step() as session:
            return history_problem(self.lake.state, session, life, schema)

    def _again(self, life: Life) -> TableFacts:
        """Read one table's facts again."""
        lake_table = self.lake.state.find(life)
        return self._fact(lake_table.identifier, lake_table.metadata_location, lake_table, set(), {})

    def sweep(self) -> tuple[int, int]:
        """Remove stages and aside tables of dead runs; return how many (stages, tables)."""
        for pin in self.lake.state.decisions.read().of(SnapshotPin):
            if _is_stale(pin):
                self.lake.remove_decision(pin)
        return self.lake.workbench.remove_stale(), Rebuilds(self.lake).end_stale()

    def _repeated(self, life: Life, action: Any) -> int:
        """Run an action in a session of its own, retrying after concurrent commits."""

        def act() -> int:
            with races(str(life)), self.lake.workbench.sessions.step() as session:
                return int(action(session) or 0)

        return retrying(act, _ATTEMPTS, TableMoved, pause_seconds=0.2)

    def _keep_own(self, name: str, due: Chores, now_ms: int) -> int:
        """Do what is due for a table of the lake itself; no JVM. Return how many orphan files were removed."""
        table, removed = self.lake.state.own_table(name), 0
        if due.compact:
            table.compact(self.settings.small_bytes)
        if due.expire:
            table.expire(now_ms - int(self.settings.snapshot_days * _DAY_MS))
        if due.orphans:
            removed = table.remove_unreferenced(now_ms - int(self.settings.orphan_days * _DAY_MS))
            table.set_properties({_SWEPT: str(now_ms)})
        return removed

    def _load(self, session: StepSession, life: Life) -> Any:
        """Load a table by its current name."""
        table = session.load(self.lake.state.find(life).identifier)
        if dict(table.properties()).get(IDENTITY) != format_identity(life):
            raise TableMoved(f"{life} was renamed meanwhile. Try again.", table=str(life))
        return table

    def _keep_progress(self, session: StepSession, life: Life, swept: Mapping[str, str]) -> None:
        """Write the label as of one snapshot as a table property; a newer labelled snapshot overrides it."""
        table, properties = self._load(session, life), dict(swept)
        place = table.operations().current().metadataFileLocation()
        lake_table = self.lake.state.at(place, self.lake.state.last(life).identifier)
        if lake_table.snapshot_id is not None:
            properties.update(fallback(lake_table.label, lake_table.snapshot_id))
        if not properties:
            return
        update = table.updateProperties()
        for key, value in sorted(properties.items()):
            update.set(key, value)
        update.commit()


def _is_stale(pin: SnapshotPin) -> bool:
    return datetime.now(timezone.utc) - parse_iso_time(pin.when) > _PINNED


def _fact_of(snapshot: Snapshot, file: MetadataFile) -> SnapshotFact:
    held = {snapshot_id for name, snapshot_id in file.refs.items() if name != "main"}
    return SnapshotFact(
        snapshot.snapshot_id, snapshot.made_ms, Label.parse(snapshot.summary) is not None, snapshot.snapshot_id in held
    )


# --- Iceberg's actions ------------------------------------------------------------------------------------------------


def _actions(session: StepSession) -> Any:
    """Return Iceberg's actions, which read their settings from this thread's active session."""
    spark = session.jvm.org.apache.spark.sql.SparkSession
    spark.setActiveSession(session.spark._jsparkSession)
    return session.jvm.org.apache.iceberg.spark.actions.SparkActions.get(session.spark._jsparkSession)


def _compact(session: StepSession, table: Any, settings: MaintenanceSettings) -> None:
    """Rewrite small files, and those with many deleted rows, into few without."""
    options = {
        "target-file-size-bytes": str(settings.target_file_bytes),
        "min-input-files": "2",
        "delete-ratio-threshold": str(settings.deleted_share),
        "remove-dangling-deletes": "true",
        "max-concurrent-file-group-rewrites": "2",
    }
    action = _actions(session).rewriteDataFiles(table)
    if table.schema().findField(POSITION) is not None:  # a log stays in the order of its changes
        order = session.iceberg.java("org.apache.iceberg.SortOrder").builderFor(table.schema()).asc(POSITION)
        action = action.sort(order.build())
    elif table.sortOrder().isSorted():
        action = action.sort()
    for key, value in options.items():
        action = action.option(key, value)
    action.execute()


def _rewrite_manifests(session: StepSession, table: Any) -> None:
    _actions(session).rewriteManifests(table).execute()


def _remove_orphans(session: StepSession, table: Any, older_ms: int, local: bool) -> int:
    """Remove files below the table's directory that are older than this and that no snapshot refers to."""
    action = _actions(session).deleteOrphanFiles(table).olderThan(older_ms)
    files = action.usePrefixListing(not local).execute().orphanFileLocations().iterator()
    count = 0
    while files.hasNext():
        files.next()
        count += 1
    return count
