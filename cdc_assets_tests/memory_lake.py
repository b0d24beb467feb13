"""A lake of Arrow tables that carries out the same steps as the real one: fast, and the oracle for faults."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.ddl import Predicate, polars_expr, undated, undated_rows
from cdc_assets.ddl.kept_columns import column_lives, first_lives
from cdc_assets.decoding import COUNT, PLACE
from cdc_assets.decoding.first_images import FIRST_IMAGE, unmade
from cdc_assets.decoding.keyed_rows import (
    RecordLookup,
    RecordReplay,
    WantedKeys,
    find_keys,
    read_replay,
    rows_of_keys,
)
from cdc_assets.decoding.moved import BASE, has_bases, without_base
from cdc_assets.decoding.own_columns import OwnColumn
from cdc_assets.decoding.patches import with_rows
from cdc_assets.decoding.states import END_AT, END_TS, FIRST, START_AT, START_TS, tracked
from cdc_assets.decoding.upgrade import default_array, evolve_rows
from cdc_assets.decoding.window import Window, decode_windows, reduced, rejects_table
from cdc_assets.errors import TableHeld, TableMoved
from cdc_assets.features.columns.decoding import (
    OPTIONAL,
    marks_stay,
    mirror_columns,
    optional_columns,
    with_ingestion_times,
)
from cdc_assets.features.kinds.decoding import kind_of
from cdc_assets.formats import SplitReader
from cdc_assets.formats.changes import has_patches
from cdc_assets.formats.decoded import COMMIT_TS, OP, UNCHANGED, Op
from cdc_assets.history.policies import WAYS, ways_out
from cdc_assets.landing.landing import Executors
from cdc_assets.model.cuts import Cut, CutRequest, CutTable, TagTable, cut_requests
from cdc_assets.model.decisions import Decisions, KeptDecision
from cdc_assets.model.forgetting import RemovedRows, SearchedFiles
from cdc_assets.model.kinds import ColumnLife
from cdc_assets.model.layout import DELETED_AT, INGESTED_AT, PLAIN, TableLayout
from cdc_assets.model.progress import AppliedState, Base, Gap, Life, MissingRows, Phase, Progress
from cdc_assets.model.quarantine import OPEN, REPLAYED, HasKeys, QuarantinedRow
from cdc_assets.model.recipe import EMPTY_RECIPE, Recipe
from cdc_assets.model.reports import AlikeKeys, StagedWindow, StepResult
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.schema_changes import ContinueColumn, DeleteRows, Rekey, RenameColumn
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
from cdc_assets.model.tickets import Ticket
from cdc_assets.model.tso import Tso
from cdc_assets.types.collations import is_plain, normal_form
from cdc_assets.types.mysql_types import arrow_type, iceberg_type
from cdc_assets.types.printed_values import OF_BOTH, form_of


@dataclass
class _Table:
    schema: TableSchema
    rows: pa.Table
    progress: Progress
    ddl: Tso
    name: TableId | None
    positions: Mapping[str, int] = field(default_factory=dict)
    past: list[tuple[Tso, pa.Table, Recipe]] = field(default_factory=list)
    """The rows before each commit, with the newest DDL that they had seen."""
    commits: list[tuple[Tso, int]] = field(default_factory=list)
    """The position and number of each commit."""
    gap: Gap | None = None
    base: Base | None = None
    recipe: Recipe = EMPTY_RECIPE
    tags: dict[str, tuple[int, Tso, pa.Table]] = field(default_factory=dict)
    """Tagged snapshots: a number, the label and the rows."""
    since: Tso | None = None
    continued: set[str] = field(default_factory=set)
    """Columns that came back: changes from before that have what they held then."""
    rekeyed: bool = False
    """Whether rows had another key once: older changes of a log are upserts by that."""
    lives: tuple[ColumnLife, ...] = ()
    """When the source had which column."""
    forgotten: Tso = -1
    """Through which position rows were forgotten whose keys are not kept out."""
    repaired: Tso = -1
    whole: Tso = -1
    forgot: str = ""
    """The run that forgot rows last."""
    missing: MissingRows | None = None
    """The rows that a window proved to be missing."""
    layout: TableLayout = PLAIN
    begins: Tso | None = None
    """The RENAME at which a history table begins."""
    dropped: Tso | None = None
    """The DROP since which the source does not have it."""

    def copied(self) -> _Table:
        return dataclasses.replace(
            self, past=[*self.past], commits=[*self.commits], tags={**self.tags}, continued={*self.continued}
        )


class Driver:
    """Reads everything itself."""

    cores = 1

    def worth(self, size: int) -> bool:
        return False

    def run(self, count: int, work: Callable[[int], Any]) -> list[Any]:
        return [work(number) for number in range(count)]


class MemoryLake:
    """Same verbs as the real lake. `tables` is open to look into.

    Only of a feed that is known to lack changes (`may_lack_rows`) may a window prove that a table lacks rows.
    """

    may_lack_rows = False

    def __init__(self) -> None:
        self.tables: dict[Life, _Table] = {}
        self.kept: dict[tuple[Life, str, int], QuarantinedRow] = {}
        self.decided = Decisions()
        self.staged: dict[str, Window] = {}
        self.made: dict[str, Cut] = {}
        self.tickets: dict[str, Ticket] = {}
        self.waiting: frozenset[str] = frozenset()
        self.pins: list[tuple[Life, int]] = []
        self.tasks: Executors = Driver()
        self.shared = 0  # how often several tables read a window at once

    def copied(self) -> MemoryLake:
        """Return a lake with the same tables and records, which may change without this one."""
        lake = MemoryLake()
        vars(lake).update({name: copy.copy(value) for name, value in vars(self).items()})
        lake.tables = {life: table.copied() for life, table in self.tables.items()}
        return lake

    def applied(self) -> Mapping[Life, AppliedState]:
        return {
            life: AppliedState(
                table.progress,
                table.ddl,
                table.name,
                table.positions,
                table.gap,
                table.base,
                table.recipe,
                frozenset(table.tags),
                table.since,
                table.forgotten,
                table.missing,
                begins=table.begins,
                repaired=table.repaired,
                whole=table.whole,
                dropped=table.dropped,
                layout=table.layout,
            )
            for life, table in self.tables.items()
        }

    def run(self, step: Step) -> StepResult:
        match step:
            case CreateTable(life, _, name, schema):
                there = self.applied().get(life)
                if there is None or (there.awaits_rows and there.base != step.base):
                    rows = _empty(schema, life.kind, step.lake_columns)
                    made = _Table(schema, rows, step.progress, step.ddl, name, gap=step.gap, base=step.base)
                    made.lives, made.since = step.lives or first_lives(schema, step.at), step.begun
                    made.recipe, made.layout, made.begins = step.recipe, step.layout, step.begins
                    made.commits = [(step.progress.tso, 0)]
                    self.tables[life] = made
            case ChangeTable(life, at, dropped=True):
                table = self.tables[life]
                self._commit(table, table.rows, Progress(at, Phase.DDL), step.ddl)
                table.dropped = at
            case ChangeTable(life, at, _, schema):
                table = self.tables[life]
                if step.ddl <= table.ddl:
                    return StepResult()
                rows = _change(table.rows, step)
                if life.kind:
                    rows = _MOVED[life.kind](rows, step, table.ddl, *self._moved(step))
                self._commit(table, rows, Progress(at, Phase.DDL), step.ddl)
                renames = {change.old: change.new for change in step.changes if isinstance(change, RenameColumn)}
                back = {change.column.name for change in step.changes if isinstance(change, ContinueColumn)}
                table.continued = {renames.get(name, name) for name in table.continued} | back
                table.rekeyed |= any(isinstance(change, Rekey) for change in step.changes)
                table.layout = table.layout.renamed(renames)
                table.schema, table.lives = schema, column_lives(table.lives, schema, step.changes, at)
                emptied = DeleteRows(None) in step.changes and not life.kind
                emptied = emptied and not (DELETED_AT in rows.column_names and marks_stay(step))
                table.recipe = (Recipe(key=table.recipe.key) if emptied else table.recipe).joined(step.recipe)
            case RecoverTable(life) | DropTable(life) | ExchangePartition(life) if life.kind:
                table = self.tables[life]
                rows = _MOVED[life.kind](table.rows, step, table.ddl, *self._moved(step))
                self._commit(self.tables[life], rows, Progress(step.at, Phase.DDL), step.at)
                if not isinstance(step, ExchangePartition):
                    self.tables[life].name = step.to if isinstance(step, RecoverTable) else None
            case RenameTable(life, at, to) | RecoverTable(life, at, to):
                rows = self.tables[life].rows
                if isinstance(step, RenameTable) and step.begins:
                    rows = _restated(rows, step, self.tables[life].ddl, None, None)
                self._commit(self.tables[life], rows, Progress(at, Phase.DDL), at)
                self.tables[life].name, self.tables[life].dropped = to, None
            case DropTable(life, at):
                self._commit(self.tables[life], self.tables[life].rows, Progress(at, Phase.DDL), at)
                self.tables[life].name = None
            case ExchangePartition(life, other, at, predicate, partitioned, _):
                (own_rows, _) = self._as_of(life, at)
                (theirs, recipe) = self._states_before(other, at) if other.kind else self._as_of(other, at)
                if not recipe.has_masks(step.masks.get(other, {})):
                    raise TableHeld("the rows of the other table are masked otherwise", table=str(life))
                theirs = _living(theirs)
                _refuse_undated(_living(own_rows) if partitioned else theirs, predicate, step)
                theirs = _filled(theirs, optional_columns(own_rows.column_names)).select(own_rows.column_names)
                entering = theirs if partitioned else _where(theirs, predicate)
                staying = _where_not(own_rows, predicate) if partitioned else own_rows.slice(0, 0)
                if DELETED_AT in own_rows.column_names and step.schema.key:
                    leaving = _where(own_rows, predicate) if partitioned else own_rows
                    leaving = pa.concat_tables([leaving, staying.filter(pc.is_valid(staying.column(DELETED_AT)))])
                    staying = _living(staying)
                    keys = set(_keys(entering, step.schema))
                    gone = pa.array([key not in keys for key in _keys(leaving, step.schema)], pa.bool_())
                    staying = pa.concat_tables([staying, _marked(leaving.filter(gone), at)])
                rows = pa.concat_tables([staying, entering])
                self._commit(self.tables[life], rows, Progress(at, Phase.DDL), at)
                self.tables[life].recipe = self.tables[other].recipe.joined(self.tables[life].recipe)
            case TagTable(life, at, tag):
                table = self.tables[life]
                assert table.progress.tso <= at
                if tag not in {cut.name for cut in cut_requests(self.decided)}:
                    raise TableMoved(f"the cut {tag} is no longer to be made", table=str(life))
                table.tags.setdefault(tag, (len(table.past), table.progress.tso, table.rows))
            case HoldTable():
                raise TableHeld(step.reason, table=str(step.life))
            case _:
                raise TypeError(step)
        return StepResult()

    def stage(self, step: ApplyRows, reader: SplitReader) -> StagedWindow:
        return self._kept(step, reduced(step, decode_windows((step,), reader)))

    def stage_all(self, steps: Sequence[ApplyRows], reader: SplitReader) -> list[StagedWindow]:
        if len(steps) == 1:
            return [self.stage(steps[0], reader)]
        self.shared += 1
        decoded_windows = zip(steps, decode_windows(steps, reader), strict=True)
        return [self._kept(step, reduced(step, [window])) for step, window in decoded_windows]

    def _kept(self, step: ApplyRows, window: Window) -> StagedWindow:
        place = f"{step.life} {step.lo} {step.hi}"
        self.staged[place] = window
        forgot = self.tables[step.life].forgot if step.life in self.tables else ""
        return StagedWindow(place, window.changes.num_rows, window.report, forgot)

    def quarantine(self, step: ApplyRows, staged: StagedWindow, run: str) -> None:
        if staged.path not in self.staged:
            raise TableMoved(f"rows of {step.life} were forgotten meanwhile")
        for row in rejects_table(self.staged[staged.path].rejects, step).to_pylist():
            kept = QuarantinedRow(
                step.life,
                TableId(row["schema"], row["table"]),
                **{name: row[name] for name in ("file", "line", "column", "reason", "schema_version", "commit_ts")},
                lo=step.lo,
                run=run,
                quarantined_at=datetime.now(timezone.utc),
                raw=row["raw"],
                keys=row["keys"] or b"",
            )
            self.kept.setdefault((step.life, kept.file, kept.line), kept)

    def quarantined(self, raw: bool = False, closed: bool = False) -> list[QuarantinedRow]:
        return [row for row in self.kept.values() if closed or row.state == OPEN]

    def bring_in(self, life: Life, lo: Tso, hi: Tso, left: Collection[tuple[str, int]] = ()) -> None:
        """Close the records of a window (lo, hi] but for those that are left."""
        for row in self.quarantined():
            if row.life == life and row.is_within(lo, hi) and row.place not in left:
                self.kept[row.life, row.file, row.line] = dataclasses.replace(row, state=REPLAYED)

    def quarantined_counts(self) -> Mapping[Life, int]:
        return Counter(row.life for row in self.quarantined())

    def replay(self, replay: RecordReplay, reader: SplitReader) -> RecordLookup:
        found_keys = find_keys(replay, reader)
        table, frame = self.tables[replay.frame.life], replay.frame
        keyed = dataclasses.replace(replay, keys=found_keys.keys)
        windows = [read_replay(keyed, reader, place) for place, _ in replay.windows]
        if not kind_of(frame).EQUAL_ROWS:
            windows = [reduced(frame, windows)]
        for window in windows:
            table.rows = _apply(table.rows, window.changes, frame)[0]
        for path, lines in replay.targets.items():
            for line in lines:
                if (path, line) not in found_keys.bad:
                    place = frame.life, path, line
                    self.kept[place] = dataclasses.replace(self.kept[place], state=REPLAYED)
        return found_keys

    def decisions(self) -> Decisions:
        return self.decided

    def keep_decision(self, decision: KeptDecision) -> None:
        self.decided = self.decided.changed([decision])

    def remove_decision(self, decision: KeptDecision) -> None:
        self.decided = self.decided.changed([decision], withdrawn=True)

    def part(self, feature: str) -> Any:
        return self

    def held_back(self) -> frozenset[str]:
        return self.waiting

    def cuts(self) -> tuple[Cut, ...]:
        return tuple(sorted(self.made.values(), key=lambda cut: cut.at))

    def tagged(self, name: str) -> Mapping[Life, tuple[int, Tso]]:
        return {life: table.tags[name][:2] for life, table in self.tables.items() if name in table.tags}

    def make_cut(self, request: CutRequest, tables: Sequence[CutTable]) -> Cut | None:
        for life in self.tagged(request.name).keys() - {
            table.life for table in tables if table.snapshot_id is not None
        }:
            self.untag(life, request.name)
        made = self.made.setdefault(request.name, Cut(request.name, request.at, "", tuple(tables)))
        self.remove_decision(request)
        return made

    def remove_cut(self, request: CutRequest) -> None:
        self.keep_decision(dataclasses.replace(request, withdrawn=True))
        self.made.pop(request.name, None)
        for life in self.tables:
            self.untag(life, request.name)
        self.remove_decision(request)

    def untag(self, life: Life, tag: str) -> None:
        self.tables[life].tags.pop(tag, None)

    def sweep_cuts(self, before_ms: int) -> None:
        pass

    def mark_incomplete(self, gaps: Mapping[Life, Gap | None]) -> None:
        for life in gaps.keys() & self.tables.keys():
            self.tables[life].gap = gaps[life]

    def discard(self, step: ApplyRows, staged: StagedWindow) -> None:
        self.staged.pop(staged.path, None)

    def apply_renames(self) -> None:
        pass

    def refused_names(self, claims: Iterable[tuple[Life, TableId]]) -> Mapping[tuple[Life, TableId], str]:
        return {}

    def warm(self) -> None:
        pass

    def close(self) -> None:
        pass

    def runs_beside(self, step: ApplyRows) -> bool:
        return True

    def commit(self, step: ApplyRows, staged: StagedWindow) -> StepResult:
        table = self.tables[step.life]
        if staged.revision != table.forgot:
            raise TableMoved(f"rows of {step.life} were forgotten meanwhile")
        window = self.staged.pop(staged.path)
        changes = window.changes
        lo = table.progress.through
        if step.positions is None and lo != step.lo:
            raise TableMoved(f"{step.life} stands at {table.progress}, not at {step.lo}")
        assert (DELETED_AT in table.rows.column_names) == (DELETED_AT in step.lake_columns), step.life
        alike = AlikeKeys() if kind_of(step).NAME != "keyed" else _alike(_living(table.rows), changes, step.schema)
        missing = None if self._is_explained(step, staged) else _missing(_living(table.rows), changes, step)
        assert missing is None or self.may_lack_rows, f"{step.life}: a feed that is right proves nothing: {missing}"
        table.missing = missing or table.missing
        rows, passed = _apply(_settled(table.rows, step), changes, step)
        table.recipe = table.recipe.after(step.reading.recipe, staged.report.settings)
        self._commit(table, rows, Progress(step.hi, Phase.ROWS), step.ddl)
        self.bring_in(step.life, step.lo, step.hi, {(reject.path, reject.line) for reject in window.rejects})
        if step.positions is not None:
            table.positions = step.positions
        if step.is_snapshot:
            table.gap = None
        if step.layout is not None:
            sort = step.layout.sort or table.layout.sort
            table.layout = dataclasses.replace(table.layout, properties=step.layout.properties, sort=sort)
        return StepResult(
            (), None, len(table.past), report=staged.report, alike=alike, passed_over=passed, missing=missing
        )

    def _is_explained(self, step: ApplyRows, staged: StagedWindow) -> bool:
        in_quarantine = any(row.life.source == step.life.source for row in self.quarantined())
        return bool(staged.report.set_aside or self.tables[step.life].forgot or in_quarantine)

    def repair(self, step: ApplyRows, changes: pa.Table, repair: str, snapshot: int | None = None) -> StepResult:
        table = self.tables[step.life]
        if snapshot is not None and snapshot != len(table.past):
            raise TableMoved(f"{step.life} was written to since")
        table.past.append((table.ddl, table.rows, table.recipe))
        is_whole, step = step.whole_at is not None, dataclasses.replace(step, whole_at=None)
        table.missing, table.gap = (None, None) if is_whole else (table.missing, table.gap)
        table.rows, _ = _apply(table.rows, reduced(step, [Window(changes)]).changes, step)
        table.repaired, table.whole = step.hi, step.hi if is_whole else table.whole
        return StepResult()

    def read(self, name: TableId) -> pa.Table:
        return next(table.rows for table in self.tables.values() if table.name == name)

    def changes(self, life: Life, since: Tso, until: Tso, equal: Mapping[str, object] = {}) -> Iterator[pa.Table]:
        at, rows = "_cdc_position", self.tables[life].rows
        rows = _with_values(rows.filter((pc.field(at) > since) & (pc.field(at) <= until)), equal)
        yield from (rows.slice(start, 7) for start in range(0, rows.num_rows, 7))

    @contextmanager
    def pinned(self, life: Life, snapshot_id: int) -> Iterator[None]:
        self.pins.append((life, snapshot_id))
        yield
        self.pins.remove((life, snapshot_id))

    def executors(self, what: str, only_elsewhere: bool = False) -> Executors:
        return self.tasks

    def scan(self, life: Life, snapshot_id: int | None = None) -> MemoryScan:
        table = self.tables[life]
        recipe = [*(recipe for _, _, recipe in table.past), table.recipe][snapshot_id or -1]
        if snapshot_id is not None:
            _, at, rows = next(tag for tag in table.tags.values() if tag[0] == snapshot_id)
            table = dataclasses.replace(table, rows=rows, progress=Progress(at, Phase.ROWS))
        columns = {
            column.name: iceberg_type(column)
            for column in table.schema.stored
            if column.name in table.rows.column_names
        }
        number = snapshot_id or len(table.past)
        return MemoryScan(_living(table.rows), table.progress, {**columns, COMMIT_TS: "long"}, number, recipe)

    def names(self) -> set[TableId]:
        return {table.name for table in self.tables.values() if table.name is not None}

    def _commit(self, table: _Table, rows: pa.Table, progress: Progress, ddl: Tso) -> None:
        table.past.append((table.ddl, table.rows, table.recipe))
        table.rows = rows
        table.progress = max(table.progress, progress)
        table.ddl = max(table.ddl, ddl)
        table.commits.append((table.progress.tso, len(table.past)))

    def labelled_snapshots(self, life: Life) -> Sequence[tuple[Tso, int]]:
        return self.tables[life].commits

    def _moved(self, step: Step) -> tuple[pa.Table | None, pa.Table | None]:
        """The rows of mirrors that a DDL makes leave, and those that it makes come; None for no such."""
        mirror = step.life.source
        if isinstance(step, ChangeTable) and not any(isinstance(change, DeleteRows) for change in step.changes):
            return None, None
        own_rows = self._before(mirror, step)
        match step:
            case ChangeTable(changes=changes):
                deletes = [change for change in changes if isinstance(change, DeleteRows)]
                if own_rows is None or not deletes:
                    return None, None
                leaving = own_rows.slice(0, 0)
                for delete in deletes:
                    gone = own_rows if delete.predicate is None else _where(own_rows, delete.predicate)
                    own_rows = (
                        own_rows.slice(0, 0) if delete.predicate is None else _where_not(own_rows, delete.predicate)
                    )
                    leaving = pa.concat_tables([leaving, gone])
                return leaving, None
            case DropTable():
                return own_rows, None
            case RecoverTable():
                return None, own_rows
            case ExchangePartition(_, other, _, predicate, partitioned):
                theirs = self._before(other, step)
                if partitioned:
                    return None if own_rows is None else _where(own_rows, predicate), theirs
                return own_rows, None if theirs is None else _where(theirs, predicate)
        raise TypeError(step)

    def _before(self, life: Life, step: Step) -> pa.Table | None:
        """The rows of a mirror or of states before a DDL, by the names that their columns have in its table."""
        assert isinstance(step, (ChangeTable, DropTable, RecoverTable, ExchangePartition))
        if life not in self.tables or life not in step.masks:
            return None
        rows, recipe = self._states_before(life, step.at) if life.kind else self._as_of(life, step.at)
        rows = rows if life.kind else _living(rows).drop_columns([DELETED_AT] * (DELETED_AT in rows.column_names))
        if not recipe.has_masks(step.masks[life]):
            return None
        names = self.tables[step.life].schema.lake_names
        return rows.rename_columns([names.get(name, name) for name in rows.column_names])

    def _states_before(self, life: Life, at: Tso) -> tuple[pa.Table, Recipe]:
        """The rows that states say the table had before a DDL, by the source's names."""
        table = self.tables[life]
        names = {life.column: life.name_at(at) for life in table.lives if life.was_there(at)}
        rows = table.rows.filter(
            pa.array([row[START_TS] < at and (row[END_TS] or at) >= at for row in table.rows.to_pylist()], pa.bool_())
        )
        return rows.select([*names, COMMIT_TS]).rename_columns([*names.values(), COMMIT_TS]), table.recipe

    def _as_of(self, life: Life, at: Tso) -> tuple[pa.Table, Recipe]:
        table = self.tables[life]
        # Not by progress: rows through a checkpoint that is the DDL's own TSO come before the DDL.
        states = [*table.past, (table.ddl, table.rows, table.recipe)]
        return [(rows, recipe) for ddl, rows, recipe in states if ddl < at][-1]


def _empty(schema: TableSchema, kind: str, names: Collection[str]) -> pa.Table:
    fields = [pa.field(column.name, arrow_type(column)) for column in schema.stored]
    return pa.schema(
        [*fields, *(pa.field(column.name, column.type) for column in mirror_columns(kind, names))]
    ).empty_table()


def _change(rows: pa.Table, step: ChangeTable) -> pa.Table:
    changes, after = step.changes, step.schema
    if step.life.kind:
        changes = tuple(change for change in changes if not isinstance(change, DeleteRows))
    for change in changes:
        if isinstance(change, DeleteRows) and change.predicate is not None:
            _refuse_undated(_living(rows), change.predicate, step)
    marking = DELETED_AT in rows.column_names and marks_stay(step)
    rows = rows if marking else _living(rows)
    if marking:  # by the columns from before it, as a TRUNCATE of a partition is
        for change in changes:
            if isinstance(change, DeleteRows):
                rows = _marked(rows, step.at, _mask(rows, change.predicate))
    present = pc.is_null(rows.column(END_TS)) if END_TS in rows.column_names else None
    present = pc.is_null(rows.column(DELETED_AT)) if DELETED_AT in rows.column_names else present
    if step.life.kind and present is None:
        present = pa.repeat(pa.scalar(False), rows.num_rows)
    rows = evolve_rows(rows, changes, after, present)
    for change in changes:
        if isinstance(change, DeleteRows) and not marking:
            rows = rows.slice(0, 0) if change.predicate is None else _where_not(rows, change.predicate)
    own = [column.name for column in mirror_columns(step.life.kind, rows.column_names)]
    return rows.select([*(column.name for column in after.stored), *own])


def _refuse_undated(rows: pa.Table, predicate: Predicate, step: ChangeTable | ExchangePartition) -> None:
    missing = undated(predicate)
    if missing is not None and _where(rows, missing).num_rows:
        raise undated_rows(str(step.life), predicate, ways_out(step.life, step.at, WAYS))


def _frame(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _where(rows: pa.Table, predicate: Predicate) -> pa.Table:
    mask = _frame(rows).select(polars_expr(predicate).fill_null(False).alias("m")).get_column("m")
    return rows.filter(mask.to_arrow())


def _living(rows: pa.Table) -> pa.Table:
    """Return the rows of a mirror that are not marked as deleted."""
    return rows.filter(pc.is_null(rows.column(DELETED_AT))) if DELETED_AT in rows.column_names else rows


def _marked(rows: pa.Table, at: Tso, mask: pa.Array | None = None) -> pa.Table:
    """Mark the living rows of a mask, by default all of them, as deleted by a DDL at a position."""
    gone = pc.is_null(rows.column(DELETED_AT))
    gone = gone if mask is None else pc.and_(gone, mask)
    moment = datetime.fromtimestamp((at >> 18) / 1000, timezone.utc)
    values = {DELETED_AT: moment, COMMIT_TS: at, PLACE: f"DDL of version {at}", INGESTED_AT: None}
    for name in values.keys() & set(rows.column_names):
        field = rows.schema.field(name)
        value = pc.if_else(gone, pa.scalar(values[name], field.type), rows.column(name))
        rows = rows.set_column(rows.schema.get_field_index(name), field, value)
    return rows


def _where_not(rows: pa.Table, predicate: Predicate) -> pa.Table:
    mask = _frame(rows).select((~polars_expr(predicate).fill_null(False)).alias("m")).get_column("m")
    return rows.filter(mask.to_arrow())


def _apply(rows: pa.Table, changes: pa.Table, step: ApplyRows) -> tuple[pa.Table, int]:
    """Return the rows of a table after reduced changes, and how many of these are passed over."""
    if not changes.num_rows:
        return rows, 0
    kind, passed, table = kind_of(step), 0, str(step.life)
    changes = kind.finished(changes, step)
    if not step.life.kind and _has_optional(rows, step):
        changes = _filled(
            with_ingestion_times(changes, step.lake_columns, int(time.time())), optional_columns(rows.column_names)
        )
    if kind.NAME == "scd2":
        return states_after(rows, changes, step.schema, table, tracked(step), None if step.files else step.lo)
    if has_patches(changes) and not step.life.kind:
        changes, passed = _patched(rows, changes, step.schema, table)
    return _WRITERS[kind.NAME](rows, changes, step.schema, table), passed


def _filled(rows: pa.Table, columns: Iterable[OwnColumn]) -> pa.Table:
    for column in columns:
        if column.name not in rows.column_names:
            rows = rows.append_column(column.name, pa.nulls(rows.num_rows, column.type))
    return rows


def _has_optional(rows: pa.Table, step: ApplyRows) -> bool:
    """Return whether the rows have columns by the setting `columns`, or are to have some."""
    return bool(step.lake_columns) or any(column.name in rows.column_names for column in OPTIONAL)


def _settled(rows: pa.Table, step: ApplyRows) -> pa.Table:
    """Return the rows of a mirror with the columns that the settings ask for, and no others beside its own."""
    if step.life.kind or not _has_optional(rows, step):
        return rows
    wanted = {column.name for column in optional_columns(step.lake_columns)}
    rows = _filled(rows, optional_columns(step.lake_columns))
    gone = [column.name for column in OPTIONAL if column.name in rows.column_names and column.name not in wanted]
    left = rows.drop_columns(gone)
    source = [name for name in left.column_names if name not in wanted]
    return left.select([*source, *(column.name for column in optional_columns(wanted))])


def _missing(rows: pa.Table, changes: pa.Table, step: ApplyRows) -> MissingRows | None:
    if FIRST_IMAGE not in changes.column_names:
        return None
    changes = kind_of(step).finished(changes, step)
    if END_TS in rows.column_names:
        rows = rows.filter(pc.is_null(rows.column(END_TS)))
    there = set(_keys(rows, step.schema))
    first = changes.column(FIRST).to_pylist() if FIRST in changes.column_names else [True] * changes.num_rows
    lacks = [is_first and key not in there for is_first, key in zip(first, _keys(changes, step.schema), strict=True)]
    return unmade(changes, step, pa.array(lacks, pa.bool_()))


def _appended(rows: pa.Table, changes: pa.Table, schema: TableSchema, table: str) -> pa.Table:
    return pa.concat_tables([rows, changes.select(rows.column_names).cast(rows.schema)]) if changes.num_rows else rows


def _keys(rows: pa.Table, schema: TableSchema) -> list[tuple[object, ...]]:
    columns = []
    for name in schema.key:
        array = rows.column(name).combine_chunks()
        collation = schema.column(name).compares_by
        if collation and not is_plain(collation) and pa.types.is_string(array.type):
            array = normal_form(array, collation)
        columns.append(array.to_pylist())
    return list(zip(*columns, strict=True))


def _alike(rows: pa.Table, changes: pa.Table, schema: TableSchema) -> AlikeKeys:
    spelled = zip(*(changes.column(name).to_pylist() for name in schema.key), strict=True)
    ops = changes.column(OP).to_pylist()
    new = {key: raw for key, raw, op in zip(_keys(changes, schema), spelled, ops, strict=True) if op == int(Op.INSERT)}
    there = zip(*(rows.column(name).to_pylist() for name in schema.key), strict=True)
    met = [new[key] for key, raw in zip(_keys(rows, schema), there, strict=True) if new.get(key, raw) != raw]
    return AlikeKeys.such_as(len(met), min(met)) if met else AlikeKeys()


def _merge(rows: pa.Table, changes: pa.Table, schema: TableSchema, table: str) -> pa.Table:
    if DELETED_AT in rows.column_names:
        rows, changes = _after_deletes(rows, changes, schema)
    touched = set(_keys(changes, schema))
    keep = pa.array([key not in touched for key in _keys(rows, schema)], pa.bool_())
    enters = changes.filter(pa.array([op > 0 for op in changes.column(OP).to_pylist()], pa.bool_()))
    return pa.concat_tables([rows.filter(keep), enters.select(rows.column_names)])


def _after_deletes(rows: pa.Table, changes: pa.Table, schema: TableSchema) -> tuple[pa.Table, pa.Table]:
    """Return rows of which those that changes delete are marked, and the changes that are left."""
    leaves = pc.less(changes.column(OP), 0)
    deletes = changes.filter(leaves)
    own = [column.name for column in mirror_columns("", rows.column_names)]
    marks = dict(zip(_keys(deletes, schema), deletes.select(own).to_pylist(), strict=True))
    values = [
        marks[key] if key in marks and row[DELETED_AT] is None else row
        for key, row in zip(_keys(rows, schema), rows.select(own).to_pylist(), strict=True)
    ]
    for name in own:
        field = rows.schema.field(name)
        column = pa.array([row[name] for row in values], field.type)
        rows = rows.set_column(rows.schema.get_field_index(name), field, column)
    return rows, changes.filter(pc.invert(leaves))


def merged(rows: pa.Table, changes: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the rows of a table with a key after reduced changes."""
    if has_patches(changes):
        changes, _ = _patched(rows, changes, schema, "table")
    return _merge(rows, changes, schema, "table")


def _patched(rows: pa.Table, changes: pa.Table, schema: TableSchema, table: str) -> tuple[pa.Table, int]:
    """Fill what changes leave out from the rows of their keys, or of those that they had; count what is passed over."""
    rows = _living(rows)
    there = {key: place for place, key in enumerate(_keys(rows, schema))}
    keys = _keys(changes, schema)
    if has_bases(changes):
        bases = changes.column(BASE).combine_chunks()
        named = pa.table(dict(zip(schema.key, bases.flatten(), strict=True)))
        pairs = zip(_keys(named, schema), bases.is_valid().to_pylist(), keys, strict=True)
        keys = [base if valid else own for base, valid, own in pairs]
    places = [there.get(key) for key in keys]
    if BASE in changes.column_names:
        baseless = without_base(changes).to_pylist()
        places = [None if lost else place for lost, place in zip(baseless, places, strict=True)]
    unchanged = changes.column(UNCHANGED).to_pylist()
    for column in schema.stored:
        kept = [
            rows.column(column.name)[place].as_py() if column.name in (names or ()) and place is not None else value
            for value, names, place in zip(changes.column(column.name).to_pylist(), unchanged, places, strict=True)
        ]
        at = changes.schema.get_field_index(column.name)
        changes = changes.set_column(at, changes.schema.field(at), pa.array(kept, changes.schema.field(at).type))
    rowless = pa.array([names is not None and place is None for names, place in zip(unchanged, places, strict=True)])
    return with_rows(changes, pa.chunked_array([rowless]), schema, table)


def _comparable(rows: pa.Table) -> list[dict[str, object]]:
    """Return rows as Python has them, moments as numbers: Python knows no year 0."""
    moments = {field.name: field.type for field in rows.schema if pa.types.is_temporal(field.type)}
    for name, kind in moments.items():
        plain = rows.column(name).cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        rows = rows.set_column(rows.schema.get_field_index(name), name, plain)
    row_dicts: list[dict[str, object]] = rows.to_pylist()
    return row_dicts


def _net(rows: pa.Table, changes: pa.Table, schema: TableSchema, table: str) -> pa.Table:
    own = {column.name for column in mirror_columns("", rows.column_names)}
    names = [name for name in rows.column_names if name not in own]
    if not changes.num_rows:
        return rows
    present: dict[str, list[int]] = {}
    for position, row in enumerate(_comparable(rows.select(names))):
        present.setdefault(repr(row), []).append(position)
    gone: set[int] = set()
    added: list[int] = []
    counts, values, open_ = changes.column(COUNT).to_pylist(), _comparable(changes.select(names)), []
    for position, (row, count) in enumerate(zip(values, counts, strict=True)):
        if count > 0:
            added.extend([position] * count)
            continue
        equal = present.get(repr(row), [])[:-count]
        gone.update(equal)
        open_ += [row] * (-count - len(equal))
    there, enters = _comparable(rows.select(names)), list(added)
    for row in open_:
        form = _formed(row, schema, deleted=True)
        alike = (place for place, row in enumerate(there) if place not in gone and _formed(row, schema) == form)
        if (place := next(alike, None)) is not None:
            gone.add(place)
        elif (
            new := next(
                (entering_place for entering_place in enters if _formed(values[entering_place], schema) == form), None
            )
        ) is not None:
            enters.remove(new)
        else:
            raise TableHeld(f"{table}: a delete found no equal row to remove", table=table)
    added = enters
    left = rows.filter(pa.array([position not in gone for position in range(rows.num_rows)], pa.bool_()))
    return pa.concat_tables([left, changes.take(pa.array(added, pa.int64())).select(rows.column_names)])


def _formed(row: Mapping[str, object], schema: TableSchema, *, deleted: bool = False) -> str:
    """Return a row as it is compared where its values are printed in several ways."""
    columns = (column for column in schema.stored if deleted or column.type in OF_BOTH)
    forms = {column.name: form for column in columns if (form := form_of(column)) is not None}
    return repr(
        {name: forms[name](value) if name in forms and value is not None else value for name, value in row.items()}
    )


def _logged(rows: pa.Table, step: Step, ddl: Tso, leaving: pa.Table | None, entering: pa.Table | None) -> pa.Table:
    deletes = (
        [change for change in step.changes if isinstance(change, DeleteRows)] if isinstance(step, ChangeTable) else []
    )
    unknown = leaving is None and (bool(deletes) or isinstance(step, (DropTable, ExchangePartition)))
    lacks = isinstance(step, (ExchangePartition, RecoverTable)) and entering is None
    if lacks or (unknown and isinstance(step, ExchangePartition) and step.partitioned):
        raise TableHeld("no row tells the rows that the DDL moves", table=str(step.life))
    if unknown:
        named = [name for delete in deletes for name in delete.partitions]
        own = {
            "_change_type": "TRUNCATE",
            "_cdc_position": step.at,
            COMMIT_TS: step.at,
            "_cdc_partitions": named or None,
        }
        made = [{**own, "_cdc_place": f"DDL of version {step.at}"}]
        rows = pa.concat_tables([rows, pa.Table.from_pylist(made, rows.schema)])
    for moved, word in ((leaving, "DELETE"), (entering, "INSERT")):
        if moved is not None:
            own = {"_change_type": word, "_cdc_position": step.at, COMMIT_TS: step.at}
            made = [{**row, **own, "_cdc_place": f"DDL of version {step.at}"} for row in moved.to_pylist()]
            rows = pa.concat_tables([rows, pa.Table.from_pylist(made, rows.schema)])
    return rows


def states_after(
    rows: pa.Table,
    changes: pa.Table,
    schema: TableSchema,
    table: str,
    track: Sequence[str] | None = None,
    again: Tso | None = None,
) -> tuple[pa.Table, int]:
    """Return the states of rows after finished changes, and how many of these are passed over.

    `again` is the position from which on these are all changes of their keys: other states from then on are none.

    The states that are open end where the first change of their key begins; one whose tracked values do not change goes
    on with the others.
    """
    if again is not None:
        rows = _as_at(rows, set(_keys(changes, schema)), schema, again)
    open_ = rows.filter(pc.is_null(rows.column(END_TS)))
    passed = 0
    if has_patches(changes):
        changes, passed = _patched(open_, changes, schema, table)
    before = dict(zip(_keys(open_, schema), open_.to_pylist(), strict=True))
    left = rows.filter(pc.is_valid(rows.column(END_TS))).to_pylist()
    meta = zip(changes.column(OP).to_pylist(), changes.column(FIRST).to_pylist(), strict=True)
    for key, change, (op, first) in zip(
        _keys(changes, schema), changes.select(rows.column_names).to_pylist(), meta, strict=True
    ):
        state = before.pop(key, None) if first else None
        if state is not None:
            if op > 0 and track is not None and all(state[name] == change[name] for name in track):
                change |= {name: state[name] for name in (START_TS, START_AT)}
            else:
                left += _ended([state], change[START_TS], change[START_AT])
        if op > 0:
            left.append(change)
    return pa.Table.from_pylist([*left, *before.values()], rows.schema), passed


def _as_at(rows: pa.Table, keys: Collection[object], schema: TableSchema, at: Tso) -> pa.Table:
    """The states of these keys as they were at a position, and all others."""
    states = []
    for key, row in zip(_keys(rows, schema), rows.to_pylist(), strict=True):
        if key in keys and row[START_TS] > at:
            continue
        lasts = key in keys and (row[END_TS] or at + 1) > at
        states.append({**row, END_TS: None, END_AT: None} if lasts else row)
    return pa.Table.from_pylist(states, rows.schema)


State = dict[str, object]


def _ended(states: Iterable[State], at: Tso, moment: object) -> list[State]:
    """States that end at a position; those that began there would have no length."""
    return [{**state, END_TS: at, END_AT: moment} for state in states if cast("int", state[START_TS]) < at]


def _restated(rows: pa.Table, step: Step, ddl: Tso, leaving: pa.Table | None, entering: pa.Table | None) -> pa.Table:
    """End the states of rows that go at a DDL, begin those of rows that come, and all anew under another key."""
    at, moment = step.at, datetime.fromtimestamp((step.at >> 18) / 1000, timezone.utc)
    open_ = pc.is_null(rows.column(END_TS))
    ends = pa.array([False] * rows.num_rows, pa.bool_())
    begins: list[State] = []
    match step:
        case ChangeTable(changes=changes):
            anew = any(isinstance(change, Rekey) for change in changes)
            gone = [change.predicate for change in changes if isinstance(change, DeleteRows)]
            for predicate in gone:
                ends = pc.or_(ends, _mask(rows, predicate))
            defaults = {
                change.column.name: default_array(change.column, change.default, 1)[0].as_py()
                for change in changes
                if isinstance(change, ContinueColumn)
            }
            again = [
                not end and (anew or any(row[name] != value for name, value in defaults.items()))
                for end, row in zip(ends.to_pylist(), rows.to_pylist(), strict=True)
            ]
            begins = [
                {**row, **defaults} for row in rows.filter(pc.and_(open_, pa.array(again, pa.bool_()))).to_pylist()
            ]
            ends = pc.or_(ends, pa.array(again, pa.bool_()))
        case DropTable():
            ends = _mask(rows, None)
        case RenameTable():
            begins, ends, rows = rows.filter(open_).to_pylist(), pa.array([], pa.bool_()), rows.slice(0, 0)
            open_ = ends
        case RecoverTable():
            begins = rows.filter(pc.equal(rows.column(END_TS), ddl)).to_pylist()
        case ExchangePartition():
            if entering is None:
                raise TableHeld("no row tells the rows that the DDL moves", table=str(step.life))
            ends = _mask(rows, step.predicate if step.partitioned else None)
            begins = [{name: row.get(name) for name in rows.column_names} for row in entering.to_pylist()]
    ending = rows.filter(pc.and_(open_, ends)).to_pylist()
    left = rows.filter(pc.invert(pc.and_(open_, ends))).to_pylist()
    fresh = {START_TS: at, START_AT: moment, END_TS: None, END_AT: None}
    begun = [{**row, **fresh} for row in begins]
    return pa.Table.from_pylist([*left, *_ended(ending, at, moment), *begun], rows.schema)


def _mask(rows: pa.Table, predicate: Predicate | None) -> pa.Array:
    if predicate is None:
        return pa.array([True] * rows.num_rows, pa.bool_())
    return _frame(rows).select(polars_expr(predicate).fill_null(False).alias("m")).get_column("m").to_arrow()


_WRITERS = {"keyed": _merge, "multiset": _net, "log": _appended}
_MOVED = {"log": _logged, "scd2": _restated}
"""By kind of history table: its rows after a DDL, (rows, step, newest DDL, rows of the mirror: leaving, entering)."""


@dataclass(frozen=True)
class MemoryScan:
    """The rows of a table as they are, in pieces of a few rows."""

    table: pa.Table
    progress: Progress
    columns: Mapping[str, str]
    snapshot_id: int | None = None
    recipe: Recipe = EMPTY_RECIPE

    @property
    def rows(self) -> int:
        return len(self.table)

    def pieces(self, equal: Mapping[str, object] = {}) -> Sequence[pa.Table]:
        rows = _with_values(self.table, equal)
        return [rows.slice(start, 7) for start in range(0, rows.num_rows, 7)]

    def read_file(
        self, piece: pa.Table, columns: Sequence[str], equal: Mapping[str, object] = {}
    ) -> Iterator[pa.Table]:
        yield piece.select(list(columns))


def _with_values(rows: pa.Table, equal: Mapping[str, object]) -> pa.Table:
    for name, value in equal.items():
        rows = rows.filter(pc.field(name) == pa.scalar(value, rows.schema.field(name).type))
    return rows


@dataclass(frozen=True)
class MemoryForgetting:
    """Forgets rows of a lake in memory: past states have them no more, either, unless a tag keeps them."""

    lake: MemoryLake

    def tickets(self) -> Sequence[Ticket]:
        return tuple(self.lake.tickets.values())

    def touch(self, ticket: Ticket) -> None:
        self.lake.tickets[ticket.token] = ticket

    def end(self, token: str) -> None:
        self.lake.tickets.pop(token, None)

    def hold_back(self, token: str, lives: Iterable[Life]) -> None:
        self.lake.waiting = frozenset(map(str, lives))

    def unfinished(self) -> Mapping[Life, str]:
        return {}

    def forget(self, life: Life, wanted: WantedKeys, at: Progress, mark: str, *, kept_out: bool) -> RemovedRows:
        table, before = self.lake.tables[life], self.lake.tables[life].rows
        if table.progress != at:
            raise TableMoved(f"{life} is at {table.progress}, not at {at}")
        table.rows = _without(table.rows, wanted)
        table.past = [(past[0], _without(past[1], wanted), *past[2:]) for past in table.past]
        table.forgot = mark
        if not kept_out:
            table.forgotten = table.progress.tso
        named = set(wanted.schema.key) <= set(before.column_names)
        keys = wanted.among(before.select(list(wanted.schema.key))) if named else set[int]()
        return RemovedRows(life, before.num_rows - table.rows.num_rows, len(keys))

    def search(self, life: Life, wanted: WantedKeys) -> SearchedFiles:
        rows, tags = self.lake.tables[life].rows, self.lake.tables[life].tags
        kept = tuple(sorted(name for name, (*_, past) in tags.items() if _without(past, wanted) != past))
        return SearchedFiles(str(life), 1, rows.nbytes, ("rows",) if _without(rows, wanted) != rows else (), kept)

    def untag(self, life: Life, tag: str) -> None:
        self.lake.untag(life, tag)

    def forget_stages(self, targets: Targets, has: HasKeys) -> int:
        gone = [place for place, window in self.lake.staged.items() if _has_keys(place, window, targets)]
        for place in gone:
            del self.lake.staged[place]
        return len(gone)

    def search_stages(self, targets: Targets, has: HasKeys) -> SearchedFiles:
        left = [place for place, window in self.lake.staged.items() if _has_keys(place, window, targets)]
        return SearchedFiles("stages", len(self.lake.staged), 0, tuple(left))

    def quarantined(self) -> Sequence[QuarantinedRow]:
        return self.lake.quarantined()

    def forget_records(self, has: HasKeys, may_have: HasKeys) -> Sequence[str]:
        kept = self.lake.kept.items()
        sure = {place: has if row.state == OPEN else may_have for place, row in kept}
        gone = [place for place, row in kept if sure[place](row.life, row.content)]
        for place in gone:
            del self.lake.kept[place]
        return [f"{file} line {line}" for _, file, line in gone]

    def search_records(self, has: HasKeys) -> SearchedFiles:
        left = [file for (_, file, _), row in self.lake.kept.items() if has(row.life, row.content)]
        return SearchedFiles("quarantine", 1, 0, tuple(left))


Targets = Mapping[Life, WantedKeys]


def _has_keys(place: str, window: Window, targets: Targets) -> bool:
    wanted = next((wanted for life, wanted in targets.items() if place.startswith(f"{life} ")), None)
    return wanted is not None and len(rows_of_keys(window.changes, wanted.keys, wanted.schema)) > 0


def _without(rows: pa.Table, wanted: WantedKeys) -> pa.Table:
    if not set(wanted.schema.key) <= set(rows.column_names):  # of before a DDL that gave the key other names
        return rows.slice(0, 0)
    keys = rows.select(list(wanted.schema.key)).cast(wanted.keys.schema)
    gone = rows_of_keys(keys, wanted.keys, wanted.schema)
    numbers = pa.array(range(rows.num_rows), gone.type)
    return rows.filter(pc.invert(pc.is_in(numbers, value_set=gone)))
