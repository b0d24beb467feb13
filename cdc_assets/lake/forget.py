"""Rows of given keys taken out of a table for good: out of every snapshot, and out of every file that has them.

    look      which data files of any snapshot have rows of the keys, hidden ones too, and which snapshots show them
    replace   main and every tag that has them are made anew from the same files but those, and these without the rows
    expire    all other snapshots that have them, so that Iceberg removes what only they refer to
    sweep     files that no snapshot refers to and that have them
    prove     every file that is left is read

A deletion vector only hides a row, so data files are written anew, row group by row group, and no others. Manifests
keep the bounds of a removed file's columns, so those that mention one are written anew, too. All of `replace` is one
transaction, guarded like a step's: readers see the old state or the new one, of tags and of main. The new snapshots
carry the labels of those whose place they take, so no progress is lost with what expires.

Killed at any line, the table has its old state or its new one, and what is left to expire or to sweep is found again by
looking: a repeated run does the rest. FORGOTTEN, a property of the table, changes with every run. Whoever else writes
to a table brings no row back:

    windows, replays, repairs   `Workbench.on` refuses what was planned with another FORGOTTEN, `publish` a table that
    and DDL                     moved since it was loaded
    DDL that replaces a table   wins over other commits, so it asks for tickets, and is due to who begins to forget
    rebuilds                    each looks for the other's ticket, and a swap for the FORGOTTEN of when it was begun
    records set aside           are taken back by who finds another FORGOTTEN once they are there
    compaction, manifests       Iceberg refuses to replace files that are not there any more
    tags of cuts                are of snapshots that are there
"""

from __future__ import annotations

import json
import struct
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import InvalidOperation
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import _read_all_delete_files
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import StaticTable
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.types import PrimitiveType

from cdc_assets.decoding import PLACE
from cdc_assets.decoding.split import keys_like, with_key
from cdc_assets.errors import TableHeld, TableMoved
from cdc_assets.formats import OP, POSITION
from cdc_assets.lake.commit import CommitTarget, data_file, refuse_moved
from cdc_assets.lake.commit_stage import STAGED
from cdc_assets.lake.cuts import LakeCuts
from cdc_assets.lake.failures import answering
from cdc_assets.lake.label import Label
from cdc_assets.lake.lake_table import FORGOTTEN, FORGOTTEN_THROUGH, LakeTable
from cdc_assets.lake.names import parse_identity
from cdc_assets.lake.quarantine import REPLAY, Quarantine
from cdc_assets.lake.staging.stage import STAGE
from cdc_assets.lake.staging.storage import make_directory, storage
from cdc_assets.lake.staging.tasks import KEYED_BY, OF, DataFileWritten
from cdc_assets.lake.tables import Lake
from cdc_assets.lake.tickets import FORGET, REBUILD, LakeTickets, hold_back
from cdc_assets.lake.workbench import Workbench
from cdc_assets.model.forgetting import RemovedRows, SearchedFiles
from cdc_assets.model.progress import Life, Progress
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.tickets import STALE_SECONDS, Ticket
from cdc_assets.types.collations import is_plain
from cdc_assets.types.mysql_types import arrow_type

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema

    from cdc_assets.lake.state import LakeState

__all__ = ["LakeForgetting"]

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_DISTINCTIVE = 8
"""Bytes that a value has to have that is nowhere else by chance."""

Rows = npt.NDArray[np.int64]
"""Row numbers in a file, from 0."""

Targets = Mapping[Life, tuple[pa.Table, TableSchema]]
"""Tables of the lake, each with the keys that are forgotten and the source's columns."""


class LakeForgetting:
    """Forgets rows of the tables of one changefeed's lake."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._tickets = LakeTickets(lake.state, FORGET)

    def tickets(self) -> tuple[Ticket, ...]:
        """Return the runs of this changefeed that began to forget rows and did not end, oldest first."""
        return self._tickets.tickets()

    def touch(self, ticket: Ticket) -> None:
        """Write a ticket, or renew it."""
        self._tickets.touch(ticket)

    def end(self, token: str) -> None:
        """Remove a ticket, and those of tables that a run that was killed let wait."""
        self.hold_back(token, ())
        self._tickets.end(token)

    def hold_back(self, token: str, lives: Iterable[Life]) -> None:
        """Let the windows of these tables, and of no others, wait for the run with that token."""
        hold_back(self.lake.state, token, lives)

    def unfinished(self) -> dict[Life, str]:
        """Return why old snapshots of tables are still needed, a sentence each: what was begun has to be finished."""
        tables, found = self.lake.state.tables(), dict[Life, str]()
        for ticket in LakeTickets(self.lake.state, REBUILD).tickets():
            reason = f"a rebuild that began at {ticket.since} is not finished: run it again"
            found |= dict.fromkeys(tables, f"{reason}, or let maintain remove what is left of it")
        records = Quarantine(self.lake.state)
        for life in tables if records.counts() else ():
            if any(tokens for tokens in records.tokens(life).values()):
                found[life] = f"a replay of records of {life} is not finished: run it again"
        return found

    def forget(
        self, life: Life, keys: pa.Table, schema: TableSchema, at: Progress, mark: str, *, kept_out: bool
    ) -> RemovedRows:
        """Take the rows of keys out of a table, of all its snapshots and of its tags; repeated, it does what is left.

        `keys` has the columns of the table's key, `schema` the columns of the source, `mark` is that of this run. Of
        keys that are not `kept_out` the table says through which position it had rows. Raises TableMoved where the
        table is not applied as far as `at`, or another writer commits meanwhile, and TableHeld where it cannot be
        rewritten.
        """
        return _forget_rows(self.lake.workbench, life, keys, schema, at, mark, kept_out=kept_out)

    def search(self, life: Life, keys: pa.Table, schema: TableSchema) -> SearchedFiles:
        """Read every file of a table, whether anything refers to it or not, and tell which have rows of the keys."""
        return _search_table(self.lake.state, life, keys, schema)

    def forget_stages(self, targets: Targets, has: Callable[[Life, bytes], bool]) -> int:
        """Remove the stages that have rows of the keys, and old ones that cannot be read; return how many.

        Whoever is at work on one was planned before, and is refused by its table. What cannot be read and is young may
        be a stage that is written just now.
        """
        removed = 0
        for stage in _stages(self.lake, targets):
            if stage.having(targets, has, unread=stage.is_old):
                with suppress(OSError):
                    stage.system.delete_dir(stage.path)
                removed += 1
        return removed

    def search_stages(self, targets: Targets, has: Callable[[Life, bytes], bool]) -> SearchedFiles:
        """Read what windows that are not committed have staged, and tell which have rows of the keys, or may have."""
        stages = list(_stages(self.lake, targets))
        files = [info for stage in stages for info in stage.files]
        having = tuple(f"{stage.path}/{name}" for stage in stages for name in stage.having(targets, has, unread=True))
        return SearchedFiles("stages", len(files), sum(info.size for info in files), having)

    def forget_records(
        self, has: Callable[[Life, bytes], bool], may_have: Callable[[Life, bytes], bool]
    ) -> tuple[str, ...]:
        """Remove the records of the quarantine whose bytes have what is to be forgotten; return where they stand.

        Of those that are not open any more, also such as may have it.
        """
        gone = Quarantine(self.lake.state).forget(has, may_have)
        return tuple(f"{file} line {line}" for file, line in gone)

    def search_records(self, has: Callable[[Life, bytes], bool]) -> SearchedFiles:
        """Read every file of the quarantine, and tell which have such records."""
        return SearchedFiles("quarantine", *Quarantine(self.lake.state).search(has))

    def follow_tags(self) -> tuple[str, ...]:
        """List in cuts the snapshots that their tags have now; return the cuts that changed."""
        return LakeCuts(self.lake.state).follow_tags()


# --- stages -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _FoundStage:
    """A stage of some table: its directory, and the files in it."""

    system: Any
    path: str
    files: Sequence[pafs.FileInfo]

    @property
    def is_old(self) -> bool:
        """Return whether it began longer ago than a run is silent that lives."""
        begun = self.path.rpartition("/")[2].partition("-")[0]
        return begun.isdigit() and time.time() - int(begun) > STALE_SECONDS

    def having(self, targets: Targets, has: Callable[[Life, bytes], bool], *, unread: bool) -> list[str]:
        """Return the files that have rows of the keys, and with `unread` those that cannot be read."""
        found = []
        for info in self.files:
            with suppress(FileNotFoundError):  # whoever is at work on the stage has removed it
                if info.extension in ("parquet", "arrow") and self._has(info, targets, has, unread):
                    found.append(info.base_name)
        return found

    def _has(self, info: pafs.FileInfo, targets: Targets, has: Callable[[Life, bytes], bool], unread: bool) -> bool:
        try:
            with answering(), self.system.open_input_file(info.path) as source:
                if info.extension == "arrow":
                    rows = pa.ipc.open_file(source).read_all()
                else:
                    rows = pq.ParquetFile(source).read()
        except pa.ArrowInvalid:  # a run that was killed has left a part of it, or one is writing it now
            return unread
        said = rows.schema.metadata or {}
        if (life := parse_identity(said[OF.encode()].decode())) not in targets:
            return False
        if "raw" in rows.column_names and OP not in rows.column_names:
            return any(raw is not None and has(life, raw) for raw in rows.column("raw").to_pylist())
        keys, schema = targets[life]
        named = {names[info.extension == "parquet"]: names[0] for names in json.loads(said[KEYED_BY.encode()])}
        if list(named.values()) != keys.column_names:
            return True  # another key, of before a DDL: who staged it is refused
        mine = rows.select(list(named)).rename_columns(list(named.values()))
        return bool(len(WantedKeys(keys, schema).numbers(mine)))


def _stages(lake: Lake, targets: Targets) -> Iterator[_FoundStage]:
    """Yield the stages that are there, where windows of these tables are staged."""
    tables = lake.state.tables()
    for root, io in dict(lake.workbench.storage(tables[life]) for life in targets if life in tables).items():
        system, place = storage(io, f"{root.rstrip('/')}/{STAGE}")
        with answering():
            every = system.get_file_info(pafs.FileSelector(place, recursive=True, allow_not_found=True))
        stages: dict[str, list[pafs.FileInfo]] = {}
        for info in every:
            if info.is_file:
                stages.setdefault(info.path.rpartition("/")[0], []).append(info)
        yield from (_FoundStage(system, path, files) for path, files in sorted(stages.items()))


# --- rows of keys -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WantedKeys:
    """Keys, with the key's columns in the lake's types; `schema` says how their values compare."""

    keys: pa.Table
    schema: TableSchema

    @cached_property
    def _compared(self) -> pl.DataFrame:
        return with_key(self.keys, self.schema, ())[0]

    def numbers(self, table: pa.Table) -> Rows:
        """Return which rows of a table with the key's columns are of one of the keys."""
        frame, like = pl.from_arrow(table), pl.from_arrow(self.keys.schema.empty_table())
        assert isinstance(frame, pl.DataFrame)
        assert isinstance(like, pl.DataFrame)
        cast = pl.DataFrame([frame.get_column(name).cast(kind, strict=False) for name, kind in like.schema.items()])
        rows = self._alike(cast.to_arrow().cast(self.keys.schema), self._compared)
        if frame.schema == cast.schema:
            return rows
        # Values of before a DDL are those that they became, or become those that are meant.
        then = keys_like(self.keys, table, self.schema)
        return np.union1d(rows, self._alike(table, with_key(then, self.schema, ())[0]))

    def _alike(self, table: pa.Table, keys: pl.DataFrame) -> Rows:
        mine, by = with_key(table, self.schema, ())
        found = mine.with_row_index("_cdc_row").join(keys, on=by, how="semi")
        rows: Rows = found.get_column("_cdc_row").to_numpy().astype(np.int64)
        return rows


@dataclass(frozen=True)
class KeyRows(WantedKeys):
    """Finds the rows of keys in files of a table, by the field ids of the key's columns.

    `columns` are those of now, `types` those that fields have or had, by their ids: files may have values of each.
    """

    columns: Schema
    types: Mapping[int, Sequence[PrimitiveType]]

    @cached_property
    def tokens(self) -> tuple[bytes, ...]:
        """The values that are long enough to be looked for in bytes of any kind."""
        values = (value for column in self.keys.columns for value in column.to_pylist())
        found = (value.encode() if isinstance(value, str) else value for value in values)
        return tuple(one for one in found if isinstance(one, bytes) and len(one) >= _DISTINCTIVE)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return {name: self.columns.find_field(name) for name in self.keys.column_names}

    def may_be_in(self, file: DataFile) -> bool:
        """Return whether the bounds of a data file allow for one of the keys; those of collated texts tell nothing."""
        for name, kept in self._fields.items():
            low, high = ((bounds or {}).get(kept.field_id) for bounds in (file.lower_bounds, file.upper_bounds))
            column = self.schema.column(name)
            compared = pa.types.is_integer(arrow_type(column)) or is_plain(column.compares_by or "")
            if len(self.types[kept.field_id]) > 1 or low is None or high is None or not compared:
                continue
            if str(kept.field_type) not in _BOUNDED:
                continue
            ends = from_bytes(kept.field_type, low), from_bytes(kept.field_type, high)
            if not any(ends[0] <= value <= ends[1] for value in self.keys.column(name).to_pylist()):
                return False
        return True

    def is_shown(self, file: DataFile) -> bool:
        """Return whether the bounds of a data file, as a manifest has it, show one of the keys."""
        shown = []
        for name, kept in self._fields.items():
            bounds = ((some or {}).get(kept.field_id) for some in (file.lower_bounds, file.upper_bounds))
            found = {value for one in bounds if one is not None for value in self._values(kept.field_id, one)}
            found |= {str(value) for value in found}
            values = enumerate(self.keys.column(name).to_pylist())
            shown.append({row for row, value in values if not found.isdisjoint({value, str(value)})})
        return bool(set.intersection(*shown))

    def _values(self, field_id: int, bound: bytes) -> Iterator[Any]:
        """Yield the possible values of a bound, one for each type that the column had."""
        for kind in self.types.get(field_id, ()):
            with suppress(ValueError, struct.error, InvalidOperation):
                yield from_bytes(kind, bound)

    def in_file(self, system: Any, path: str) -> Rows:
        """Return the numbers of a Parquet file's rows that are of one of the keys."""
        with answering(), system.open_input_file(path) as source:
            file = pq.ParquetFile(source)
            named = {int((one.metadata or {}).get(b"PARQUET:field_id", -1)): one.name for one in file.schema_arrow}
            there = {name: named[kept.field_id] for name, kept in self._fields.items() if kept.field_id in named}
            found, start = [np.empty(0, np.int64)], 0
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=list(there.values()))
                count = file.metadata.row_group(group).num_rows
                found.append(self.numbers(self._filled(rows, there, count)) + start)
                start += count
        return np.concatenate(found)

    def moved(self, io: Mapping[str, str], location: str, rows: Rows) -> set[tuple[str, ...]]:
        """Return other keys of which a file of a log has rows at the places of these: those of updates of a key."""
        system, path = storage(io, location)
        with answering(), system.open_input_file(path) as source:
            file = pq.ParquetFile(source)
            named = {int((one.metadata or {}).get(b"PARQUET:field_id", -1)): one.name for one in file.schema_arrow}
            names = [named[kept.field_id] for kept in self._fields.values() if kept.field_id in named]
            frame = pl.from_arrow(file.read(columns=[*names, POSITION, PLACE]))
        assert isinstance(frame, pl.DataFrame)
        mine = pl.int_range(frame.height, eager=True).is_in(rows.tolist())
        there = frame.filter(~mine).join(frame.filter(mine), on=[POSITION, PLACE], how="semi")
        return {tuple(map(str, key)) for key in zip(*(there.get_column(name) for name in names), strict=True)}

    def _filled(self, rows: pa.Table, there: Mapping[str, str], count: int) -> pa.Table:
        """Return the key's columns; one that was added after the file was written has its default in all rows."""
        columns = {}
        for name, kept in self._fields.items():
            if name in there:
                columns[name] = rows.column(there[name])
            else:
                columns[name] = pa.repeat(pa.scalar(kept.initial_default, self.keys.schema.field(name).type), count)
        return pa.table(columns)


_BOUNDED = ("int", "long", "string")
"""Iceberg's types whose bounds are compared as the values are."""


# --- looking ----------------------------------------------------------------------------------------------------------


@dataclass
class _Shown:
    """What a snapshot's manifests mention: data files that are in it, and such that were removed by its time."""

    files: dict[str, DataFile] = field(default_factory=dict)
    removed: dict[str, DataFile] = field(default_factory=dict)


@dataclass
class _SearchedTable:
    """A table by its newest metadata file, with the rows of keys in each of its data files."""

    table: StaticTable
    io: Mapping[str, str]
    search: KeyRows
    rows: dict[str, Rows] = field(default_factory=dict)
    _manifests: dict[str, _Shown] = field(default_factory=dict)

    @classmethod
    def at(cls, place: str, io: Mapping[str, str], keys: pa.Table, schema: TableSchema) -> _SearchedTable:
        with answering():
            table = StaticTable.from_metadata(place, dict(io))
        types: dict[int, dict[str, PrimitiveType]] = {}
        for known in table.schemas().values():
            for one in known.fields:
                if isinstance(one.field_type, PrimitiveType):
                    types.setdefault(one.field_id, {})[str(one.field_type)] = one.field_type
        kinds = {field_id: tuple(one.values()) for field_id, one in types.items()}
        return cls(table, io, KeyRows(keys, schema, table.schema(), kinds))

    def look(self) -> None:
        """Find the rows of the keys in every data file that any snapshot has."""
        for shown in self.shown.values():
            for path, file in shown.files.items():
                if path not in self.rows:
                    holds = self.search.may_be_in(file)
                    self.rows[path] = self.search.in_file(*storage(self.io, path)) if holds else np.empty(0, np.int64)

    @property
    def holding(self) -> frozenset[str]:
        """The data files that have rows of the keys."""
        return frozenset(path for path, rows in self.rows.items() if len(rows))

    @cached_property
    def shown(self) -> dict[int, _Shown]:
        """What each snapshot mentions."""
        return {one.snapshot_id: self.shown_by(one.snapshot_id) for one in self.table.metadata.snapshots}

    def shown_by(self, snapshot_id: int) -> _Shown:
        """Read the manifests of a snapshot, those of data files."""
        found, snapshot = _Shown(), self.table.snapshot_by_id(snapshot_id)
        assert snapshot is not None
        with answering():
            for manifest in snapshot.manifests(self.table.io):
                if manifest.content == ManifestContent.DATA:
                    known = self._mentioned(manifest)
                    found.files.update(known.files)
                    found.removed.update(known.removed)
        return found

    def _mentioned(self, manifest: ManifestFile) -> _Shown:
        if manifest.manifest_path not in self._manifests:
            found = _Shown()
            for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=False):
                if entry.data_file.content == DataFileContent.DATA:
                    there = found.removed if entry.status == ManifestEntryStatus.DELETED else found.files
                    there[entry.data_file.file_path] = entry.data_file
            self._manifests[manifest.manifest_path] = found
        return self._manifests[manifest.manifest_path]

    def shows(self, snapshot_id: int) -> bool:
        """Return whether a snapshot has a row of the keys, or a manifest with the bounds of a file that may have had.

        What was in a removed file is not known once it is gone.
        """
        shown, holding = self.shown[snapshot_id], self.holding
        return not holding.isdisjoint(shown.files) or any(
            path in holding or (path not in self.rows and self.search.may_be_in(file))
            for path, file in shown.removed.items()
        )

    def hidden(self, snapshot_id: int, paths: Collection[str]) -> dict[str, Rows]:
        """Return which rows of data files deletion vectors hide in a snapshot."""
        with answering():
            tasks = [t for t in self.table.scan(snapshot_id=snapshot_id).plan_files() if t.file.file_path in paths]
            deletes = _read_all_delete_files(self.table.io, tasks)
        return {
            path: np.concatenate([some.to_numpy() for some in hidden]).astype(np.int64)
            for path, hidden in deletes.items()
        }

    def partition_of(self, file: DataFile) -> str:
        """Return the partition of a data file as Iceberg's paths have it."""
        spec = self.table.specs()[file.spec_id]
        values = zip(spec.fields, spec.partition_to_path(file.partition, self.table.schema()).split("/"), strict=False)
        missing = {number for number in range(len(spec.fields)) if file.partition[number] is None}
        parts = [text for _, text in values] if spec.fields else []
        return "/".join(
            f"{text.partition('=')[0]}={_NULL_PARTITION}" if number in missing else text
            for number, text in enumerate(parts)
        )


# --- doing ------------------------------------------------------------------------------------------------------------


def _forget_rows(
    bench: Workbench, life: Life, keys: pa.Table, schema: TableSchema, at: Progress, mark: str, *, kept_out: bool
) -> RemovedRows:
    with bench.on(life) as work, _undisturbed(life):
        lake_table, target = work.lake_table, work.target
        if work.label.progress != at:
            raise TableMoved(f"{life} is applied to {work.label.progress.tso}, and was at {at.tso}.", table=str(life))
        if target.table.properties().get("gc.enabled") == "false":
            raise TableHeld(
                f"{life}: its property gc.enabled is false, so no file of it may be removed. Set it to true, and try "
                "again.",
                table=str(life),
            )
        io = bench.state.io(lake_table)
        found = _SearchedTable.at(lake_table.metadata_location, io, keys, schema)
        found.look()
        logged = found.holding if POSITION in found.table.schema().column_names else ()
        moved = {key for path in logged for key in found.search.moved(io, path, found.rows[path])}
        metadata = found.table.metadata
        tagged: dict[int, list[str]] = {}
        for name, ref in metadata.refs.items():
            if name == "main" or not found.shows(ref.snapshot_id):
                continue
            if ref.snapshot_ref_type != SnapshotRefType.TAG:
                raise TableHeld(
                    f"{life}: its branch {name} has rows that are to be forgotten, and is not made anew. Remove the "
                    "branch, and forget the rows again.",
                    table=str(life),
                )
            tagged.setdefault(ref.snapshot_id, []).append(name)
        main = metadata.current_snapshot_id
        said = {FORGOTTEN: mark}
        if not kept_out:
            said[FORGOTTEN_THROUGH] = str(max(work.label.progress.tso, lake_table.forgotten_through))
        begun = _Remaking(target, found, lake_table, said)
        made = begun.commit(main, tagged, work.label)
        table = target.session.load(lake_table.identifier)
        stale = [one for one in found.shown if found.shows(one)]
        _expire(table, [*stale, *begun.passing])
        place = bench.table_after_commit(table.operations(), lake_table.identifier).metadata_location
        swept = _sweep(_SearchedTable.at(place, io, keys, schema), place)
        return RemovedRows(
            life,
            rows=sum(len(found.rows[path]) for path in found.holding),
            files_rewritten=begun.files,
            bytes_rewritten=begun.bytes,
            snapshots_expired=len(stale) + len(begun.passing),
            tags={name: made[one] for one, names in tagged.items() for name in names},
            orphans=swept,
            moved=tuple(sorted(moved)),
        )


@contextmanager
def _undisturbed(life: Life) -> Iterator[None]:
    """Raise TableMoved where upkeep or another run has removed a file that was to be read."""
    try:
        yield
    except FileNotFoundError as gone:
        raise TableMoved(f"{life}: a file was removed meanwhile ({gone}). Look again.", table=str(life)) from gone


@dataclass
class _Remaking:
    """The transaction that makes main and tags anew. `said` are the table's properties with it.

    `passing` are snapshots that were needed on the way only.
    """

    target: CommitTarget
    found: _SearchedTable
    lake_table: LakeTable
    said: Mapping[str, str]
    files: int = 0
    bytes: int = 0
    passing: list[int] = field(default_factory=list)

    def commit(self, main: int | None, tagged: Mapping[int, Sequence[str]], label: Label) -> dict[int, int]:
        """Commit, and return the new snapshots by those whose place they take."""
        work = self.target.session.iceberg.transaction(self.target.table)
        refuse_moved(self.target, work.table())
        self._refuse_other_tags(work.table())
        work.updateSchema().commit()  # whatever is committed after the state that was looked at is a lost race
        made: dict[int, int] = {}
        for snapshot_id, names in tagged.items():
            made[snapshot_id] = self._remade(work, snapshot_id, self._label_at(snapshot_id) or label)
            for name in names:
                work.manageSnapshots().replaceTag(name, made[snapshot_id]).commit()
        if main is not None:
            self._turn_to(work, main)
            stale = any(map(self.found.shows, self.found.shown))
            if self.found.shows(main):
                made[main] = self._remade(work, main, label)
            elif stale and Label.parse(self._summary(main)) is None:  # the newest label may be that of one that expires
                self._committed(work.newFastAppend(), label)
        properties = work.updateProperties()
        for name, value in self.said.items():
            properties.set(name, value)
        properties.commit()
        work.commitTransaction()
        return made

    def _refuse_other_tags(self, table: Any) -> None:
        """Raise TableMoved where a cut or another run that forgets rows has set a tag since the table was looked at."""
        now, known = dict(table.refs()), self.found.table.metadata.refs
        if {name: int(ref.snapshotId()) for name, ref in now.items()} != {
            name: ref.snapshot_id for name, ref in known.items()
        }:
            raise TableMoved(f"{self.lake_table.life}: a tag was set meanwhile. Look again.")

    def _remade(self, work: Any, snapshot_id: int, label: Label) -> int:
        """Make a snapshot anew without the rows, with the columns that it has, and make it that of main."""
        self._turn_to(work, snapshot_id)
        holding = sorted(self.found.holding & self.found.shown[snapshot_id].files.keys())
        if holding:
            hidden, change = self.found.hidden(snapshot_id, holding), work.newOverwrite()
            for path in holding:
                old = self.found.shown[snapshot_id].files[path]
                partition, spec = self.found.partition_of(old), self.target.table.specs().get(old.spec_id)
                change.deleteFile(self._named(old, partition, spec))
                gone = np.union1d(self.found.rows[path], hidden.get(path, np.empty(0, np.int64)))
                written = self._written(path, gone, partition)
                if written is not None:
                    change.addFile(data_file(self.target, work.table(), written, spec))
            self._committed(change, label)
            self.passing.append(_newest_of(work))
        self._without_removed(work, label)
        return _newest_of(work)

    def _turn_to(self, work: Any, snapshot_id: int) -> None:
        """Let a snapshot be that of main within the transaction, with its own columns."""
        current = work.table().currentSnapshot()
        if current is None or int(current.snapshotId()) != snapshot_id:
            work.manageSnapshots().setCurrentSnapshot(snapshot_id).commit()
        known = self.found.table.snapshot_by_id(snapshot_id)
        main = snapshot_id == self.found.table.metadata.current_snapshot_id
        schema = self.found.table.metadata.current_schema_id if main or known is None else known.schema_id
        if schema is not None and schema != int(work.table().schema().schemaId()):
            operations = work.table().operations()
            builder = self.target.session.iceberg.java("org.apache.iceberg.TableMetadata")
            changed = builder.buildFrom(operations.current()).setCurrentSchema(schema).build()
            operations.commit(operations.current(), changed)

    def _named(self, old: DataFile, partition: str, spec: Any) -> Any:
        builder = self.target.session.iceberg.java("org.apache.iceberg.DataFiles").builder(spec)
        builder = builder.withPath(old.file_path).withFormat("parquet").withRecordCount(old.record_count)
        builder = builder.withFileSizeInBytes(old.file_size_in_bytes)
        return (builder.withPartitionPath(partition) if partition else builder).build()

    def _written(self, path: str, gone: Rows, partition: str) -> DataFileWritten | None:
        """Write a data file anew without some rows; None where none is left."""
        location = f"{path.rsplit('/', 1)[0]}/cdc-{int(time.time())}-{uuid.uuid4().hex}.parquet"
        size = _copy_without(self.found.io, path, location, gone)
        if not size:
            return None
        self.files, self.bytes = self.files + 1, self.bytes + size
        return DataFileWritten(location, size, partition)

    def _without_removed(self, work: Any, label: Label) -> None:
        """Write manifests anew that mention files which were removed: they have the bounds of these."""
        java = self.target.session.iceberg.java
        manifests = work.table().currentSnapshot().dataManifests(work.table().io())
        kinds, chosen = java("java.util.function.Predicate"), None
        for number in range(manifests.size()):
            if manifests.get(number).hasDeletedFiles():
                same = kinds.isEqual(manifests.get(number))
                chosen = same if chosen is None else getattr(chosen, "or")(same)
        if chosen is not None:
            together = java("com.google.common.base.Functions").constant("")
            self._committed(work.rewriteManifests().clusterBy(together).rewriteIf(chosen), label)

    def _committed(self, change: Any, label: Label) -> None:
        kept = {name: value for name in (STAGED, REPLAY) if (value := self._newest(name)) is not None}
        for key, value in {**kept, **label.properties(), FORGOTTEN: self.said[FORGOTTEN]}.items():
            change.set(key, value)
        change.commit()

    def _newest(self, name: str) -> str | None:
        known = sorted(self.found.table.metadata.snapshots, key=lambda one: one.timestamp_ms, reverse=True)
        return next((value for one in known if (value := self._summary(one.snapshot_id).get(name)) is not None), None)

    def _summary(self, snapshot_id: int) -> Mapping[str, str]:
        snapshot = self.found.table.snapshot_by_id(snapshot_id)
        return {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties

    def _label_at(self, snapshot_id: int) -> Label | None:
        """Return the newest label at or before a snapshot, as far as those before it did not expire."""
        at: int | None = snapshot_id
        while at is not None and (snapshot := self.found.table.snapshot_by_id(at)) is not None:
            if (label := Label.parse(self._summary(at))) is not None:
                return label
            at = snapshot.parent_snapshot_id
        return None


def _newest_of(work: Any) -> int:
    return int(work.table().currentSnapshot().snapshotId())


def _copy_without(io: Mapping[str, str], path: str, location: str, gone: Rows) -> int:
    """Copy a Parquet file row group by row group without some rows, and return its bytes; 0, and no file, for none."""
    (system, old), (_, new) = storage(io, path), storage(io, location)
    with answering(), system.open_input_file(old) as source:
        file = pq.ParquetFile(source)
        if len(gone) >= file.metadata.num_rows:
            return 0
        make_directory(system, new.rsplit("/", 1)[0])
        with system.open_output_stream(new) as sink:
            with pq.ParquetWriter(sink, file.schema_arrow, **_as_written(file)) as writer:
                start = 0
                for group in range(file.num_row_groups):
                    rows = file.read_row_group(group)
                    kept = np.ones(rows.num_rows, np.bool_)
                    kept[gone[(gone >= start) & (gone < start + rows.num_rows)] - start] = False
                    start += rows.num_rows
                    rows = rows if kept.all() else rows.filter(pa.array(kept))
                    if rows.num_rows:
                        writer.write_table(rows, row_group_size=rows.num_rows)
            return int(sink.tell())


def _as_written(file: pq.ParquetFile) -> dict[str, Any]:
    """Return the options with which a file was written, to write another one alike."""
    columns = [file.metadata.row_group(0).column(number) for number in range(file.metadata.num_columns)]
    kinds = [file.schema.column(number) for number in range(file.metadata.num_columns)]
    whole = any(one.logical_type.type == "DECIMAL" and one.physical_type.startswith("INT") for one in kinds)
    codec = columns[0].compression.lower()
    return {"compression": "none" if codec == "uncompressed" else codec, "store_decimal_as_integer": whole}


def _expire(table: Any, snapshots: Iterable[int]) -> None:
    """Expire exactly these snapshots, with the files that only they refer to."""
    chosen = list(dict.fromkeys(snapshots))
    if not chosen:
        return
    expiring = table.expireSnapshots().expireOlderThan(1)
    for one in chosen:
        expiring = expiring.expireSnapshotId(one)
    expiring.commit()


# --- all files of a table -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StoredFile:
    """A file below a table's directories: its location, and what its file system has of it."""

    location: str
    system: Any
    info: pafs.FileInfo


def _listed(found: _SearchedTable) -> Iterator[_StoredFile]:
    """Yield the files below a table's directories."""
    metadata = found.table.metadata
    other = {metadata.properties.get(name) for name in ("write.data.path", "write.metadata.path")}
    roots = {one.rstrip("/") for one in (metadata.location, *other) if one}
    for root in sorted(one for one in roots if not any(one.startswith(f"{other}/") for other in roots)):
        system, path = storage(found.io, root)
        with answering():
            every = system.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
        for one in sorted(every, key=lambda one: str(one.path)):
            if one.is_file:
                yield _StoredFile(f"{root}{one.path.removeprefix(path)}", system, one)


def _referenced(found: _SearchedTable, place: str) -> set[str]:
    """Return the paths of all files that a metadata file refers to, and its own, as file systems have them."""
    used = {place}
    with answering():
        for snapshot in found.table.metadata.snapshots:
            used.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(found.table.io):
                used.add(manifest.manifest_path)
                used |= {one.data_file.file_path for one in manifest.fetch_manifest_entry(found.table.io)}
    used |= {one.statistics_path for one in found.table.metadata.statistics}
    return {storage(found.io, one)[1] for one in used}


def _sweep(found: _SearchedTable, place: str) -> int:
    """Remove metadata files, and files with the keys, that are older than the newest one and that it does not refer to.

    Return how many. No commit can take them in any more: it would be of a state from before, and is refused.
    """
    used, removed = _referenced(found, place), 0
    system, newest = storage(found.io, place)
    before = system.get_file_info(newest).mtime
    for one in _listed(found):
        old = one.info.path not in used and one.info.mtime < before
        if old and (one.location.endswith(".metadata.json") or _has(found, one, set())):
            with suppress(FileNotFoundError):
                one.system.delete_file(one.info.path)
            removed += 1
    return removed


def _has(found: _SearchedTable, file: _StoredFile, clean: Collection[str]) -> bool:
    """Return whether a file has the keys. Of data files that are `clean` bounds in manifests may equal them."""
    with suppress(FileNotFoundError):  # upkeep, or whoever wrote it, has removed it
        return _holds(found, file, clean)
    return False


def _holds(found: _SearchedTable, file: _StoredFile, clean: Collection[str]) -> bool:
    path = file.info.path
    if path.endswith(".parquet"):
        return bool(len(found.search.in_file(file.system, path)))
    with answering(), file.system.open_input_stream(path) as source:
        data = source.read()
    if any(token in data for token in found.search.tokens):
        return True
    if not path.endswith(".avro") or path.rpartition("/")[2].startswith("snap-"):
        return False
    manifest = ManifestFile.from_args(
        manifest_path=file.location, manifest_length=len(data), content=ManifestContent.DATA, partition_spec_id=0,
        sequence_number=0, min_sequence_number=0, added_snapshot_id=0,
    )  # fmt: skip
    with answering():
        entries = manifest.fetch_manifest_entry(found.table.io, discard_deleted=False)
    return any(
        found.search.is_shown(entry.data_file)
        for entry in entries
        if storage(found.io, entry.data_file.file_path)[1] not in clean
    )


def _search_table(state: LakeState, life: Life, keys: pa.Table, schema: TableSchema) -> SearchedFiles:
    """Read every file below a table's directories, whether anything refers to it or not, and tell which have the keys.

    Of data files the columns of the key are read and compared by their types. Manifests must not show a key as a bound
    of a file that is not there any more. In all other bytes values of eight bytes and more are looked for.
    """
    lake_table = state.find(life)
    found = _SearchedTable.at(lake_table.metadata_location, state.io(lake_table), keys, schema)
    files = list(_listed(found))
    data = {one.info.path for one in files if one.location.endswith(".parquet")}
    having = [one.location for one in files if _has(found, one, data)]
    return SearchedFiles(str(life), len(files), sum(one.info.size for one in files), tuple(having))
