"""Listing + applied state + checkpoint -> ordered steps over all tables. Pure: no I/O, no clock, no Spark.

Each life is a chain: DDL at V1, rows from V1 up to the next DDL that rows cannot cross, that DDL, … The chains are
merged into one order by TSO, in which (V, ddl) comes before the rows at V. A DDL that leaves rows as they are does not
end a window: rows around it are applied together, each file decoded by its own directory's schema file.

A directory's version says how its rows are decoded, not when they happened: every directory of a name whose columns
are read alike is a candidate for a window, and commit-ts decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cdc_assets.history import Event, History, TableHistory, read_history
from cdc_assets.model import (
    Applied,
    ApplyRows,
    ChangeTable,
    CreateTable,
    DataFile,
    DropTable,
    ExchangePartition,
    FileStats,
    HoldTable,
    Life,
    Listing,
    Phase,
    Progress,
    RecoverTable,
    RenameTable,
    Step,
    TableId,
    TableSchema,
    Tso,
)

__all__ = ["Plan", "Progress", "plan", "step_order"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order in which they take effect, and the histories they come from.

    `behind` is set when the checkpoint is behind what a table already holds: nothing of that table is planned.
    """

    steps: tuple[Step, ...]
    history: History
    checkpoint: Tso
    behind: tuple[Life, ...] = ()

    def of(self, life: Life) -> tuple[Step, ...]:
        """The steps of one life, in order."""
        return tuple(step for step in self.steps if step.life == life)


def step_order(step: Step) -> tuple[Tso, int, int, str]:
    """Sort key over all tables: rows complete at TSO t come after DDL at or below t and before DDL above it.

    Of one DDL's steps, those that free a name come before those that take it.
    """
    rank = {DropTable: 0, RenameTable: 1, RecoverTable: 2, CreateTable: 3}.get(type(step), 4)
    return (step.at, 1 if isinstance(step, ApplyRows) else 0, rank, str(step.life))


def plan(
    listing: Listing,
    applied: Mapping[Life, Applied],
    *,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    stats: Mapping[str, FileStats] | None = None,
    commit_ts: bool = True,
    broken: Iterable[tuple[str, Tso, str]] = (),
    holds: Callable[[History], Iterable[HoldTable]] = lambda _: (),
) -> Plan:
    """Return what is to be done so that every table stands at the listing's checkpoint.

    `stats` tells what earlier readings found in files, to leave out those that hold nothing new; it only saves work.
    `commit_ts` False means that rows carry no commit-ts: they belong to the DDL before their directory's version.
    `broken` names (root, version, why) of what cannot be read: tables of that name stop before that version.
    `holds` says of a history which tables stop, and from which version on.
    """
    history = read_history(listing.schema_files, listing.checkpoint, keys)
    stops = _stops(history, broken)
    for hold in holds(history):
        if hold.life not in stops or hold.at < stops[hold.life].at:
            stops[hold.life] = hold
    files = _by_name(listing, history)
    behind = tuple(
        life for life, state in applied.items() if life in history.lives and state.progress.tso > listing.checkpoint
    )
    steps: list[Step] = []
    for life, table in history.lives.items():
        if life not in behind:
            chain = _Chain(
                table, applied.get(life), listing.checkpoint, history, files, commit_ts, stats or {}, stops.get(life)
            )
            steps.extend(chain.steps())
    steps.sort(key=step_order)
    return Plan(tuple(_held_back(steps, history, applied)), history, listing.checkpoint, behind)


def _stops(history: History, broken: Iterable[tuple[str, Tso, str]]) -> dict[Life, HoldTable]:
    """The lives that hold a name whose file cannot be read; a database-level file concerns all of its tables."""
    stops: dict[Life, HoldTable] = {}
    for root, version, why in broken:
        names = {table for (known, _), (table, _) in history.decoding.items() if known == root}
        schema, _, table = root.partition("/")
        for life, held in history.lives.items():
            concerned = any(
                (name in names or name == TableId(schema, table) or (not table and name.schema == schema))
                and until > version
                for name, _, until in held.names
            )
            if concerned and (life not in stops or version < stops[life].at):
                stops[life] = HoldTable(life, max(version, life.version), why)
    return stops


def _by_name(listing: Listing, history: History) -> dict[TableId, list[DataFile]]:
    """Data files by the table name their rows carry, in reading order."""
    files: dict[TableId, list[DataFile]] = {}
    ordered = sorted(
        listing.data_files, key=lambda f: (f.version, f.partition, f.date, f.dispatcher, len(f.path), f.number, f.path)
    )
    for file in ordered:
        known = history.decoding.get((file.root, file.version))
        if known is not None:
            files.setdefault(known[0], []).append(file)
    return files


@dataclass(slots=True)
class _Chain:
    """The steps that one life is short of."""

    table: TableHistory
    applied: Applied | None
    checkpoint: Tso
    history: History
    files: Mapping[TableId, Sequence[DataFile]]
    commit_ts: bool
    stats: Mapping[str, FileStats]
    stop: HoldTable | None = None

    def steps(self) -> list[Step]:
        """Walk the events: rows up to each barrier, then the barrier; rows up to the checkpoint at the end."""
        position = self.applied.progress if self.applied else Progress(self.table.life.version, Phase.DDL)
        seen = self.applied.ddl if self.applied else -1
        current: list[Event] = []
        steps: list[Step] = []
        for event in self.table.events:
            if event.at <= seen:
                current = [event] if not event.neutral else [*current, event]
                continue
            if self.stop is not None and event.at >= self.stop.at:
                break
            if event.neutral:
                current.append(event)
                continue
            late = self._late(event, position)
            if late:
                steps.append(HoldTable(self.table.life, event.at, late))
                return steps
            if current and event.at - 1 > position.tso - (position.phase is Phase.DDL):
                steps.extend(self._rows(position, event.at - 1, current))
            steps.append(self._step(event))
            if isinstance(steps[-1], HoldTable):
                return steps
            position = max(position, Progress(event.at, Phase.DDL))
            current = [event]
        last = self.checkpoint if self.stop is None else min(self.checkpoint, self.stop.at - 1)
        if current and current[-1].name is not None:
            steps.extend(self._rows(position, last, current))
        return steps if self.stop is None else [*steps, self.stop]

    def _late(self, event: Event, position: Progress) -> str:
        """A DDL below the applied TSO cannot take effect in order any more; a snapshot without DDL has no rows yet."""
        if self.applied is None or event.at >= position.tso or not event.file.query:
            return ""
        return (
            f"the DDL of version {event.at} ({event.file.query}) appeared in {event.file.path} after rows through "
            f"{position.tso} had been applied. Rebuild the table from the changefeed's start, or release it by "
            "applying the DDL now."
        )

    def _step(self, event: Event) -> Step:
        life = self.table.life
        match event.action:
            case "create":
                assert event.name is not None
                return CreateTable(life, event.at, event.name, event.after)
            case "change":
                return ChangeTable(life, event.at, event.changes, event.after, event.before)
            case "rename":
                assert event.name is not None
                return RenameTable(life, event.at, event.name)
            case "drop":
                return DropTable(life, event.at)
            case "recover":
                assert event.name is not None
                return RecoverTable(life, event.at, event.name)
            case "exchange":
                assert event.other is not None
                assert event.predicate is not None
                return ExchangePartition(life, event.other, event.at, event.predicate, event.partitioned, event.after)
            case _:
                return HoldTable(life, event.at, event.reason, event.ways)

    def _rows(self, position: Progress, hi: Tso, current: Sequence[Event]) -> list[Step]:
        lo = position.tso - 1 if position.phase is Phase.DDL else position.tso
        if hi <= lo:
            return []
        names = tuple((n, a, b) for n, a, b in self.table.names if a <= hi and b > lo + 1)
        files: list[DataFile] = []
        decoding: dict[tuple[str, Tso], tuple[TableId, TableSchema]] = {}
        for name in dict.fromkeys(n for n, _, _ in names):
            for file in self.files.get(name, ()):
                known = self.history.decoding[file.root, file.version]
                if self._candidate(file, known[1], current, lo, hi):
                    files.append(file)
                    decoding[file.root, file.version] = known
        if not files:
            return []
        ddl = max(event.at for event in current)
        positions = None if self.commit_ts else self._positions(files)
        return [ApplyRows(self.table.life, lo, hi, tuple(files), decoding, current[-1].after, ddl, names, positions)]

    def _candidate(self, file: DataFile, schema: TableSchema, current: Sequence[Event], lo: Tso, hi: Tso) -> bool:
        if not self.commit_ts:
            taken = self.applied.positions.get(number_sequence(file), 0) if self.applied else 0
            return current[0].at <= file.version <= hi and file.number > taken
        known = self.stats.get(file.path)
        if known is not None and (known.size, known.etag) == (file.size, file.etag):
            if known.max_commit_ts is None or known.max_commit_ts <= lo:
                return False
            if known.min_commit_ts is not None and known.min_commit_ts > hi:
                return False
        return any(schema.decodes_like(event.after) for event in current)

    def _positions(self, files: Iterable[DataFile]) -> Mapping[str, int]:
        positions = dict(self.applied.positions) if self.applied else {}
        for file in files:
            key = number_sequence(file)
            positions[key] = max(positions.get(key, 0), file.number)
        return positions


def number_sequence(file: DataFile) -> str:
    """Name the sequence in which a file's number is unique: its directory, dispatcher and number width."""
    width = len(file.path.rsplit("/", 1)[-1])
    return f"{file.directory}|{file.dispatcher}|{width}"


def _held_back(steps: Sequence[Step], history: History, applied: Mapping[Life, Applied]) -> list[Step]:
    """Hold what depends on a held table: the other side of an exchange, and whoever wants a name that stays taken."""
    held: dict[Life, HoldTable] = {}
    stuck: dict[TableId, HoldTable] = {}
    kept: list[Step] = []
    names = {life: state.name for life, state in applied.items()}
    for step in steps:
        if step.life in held:
            continue
        wanted = step.to if isinstance(step, (RenameTable, RecoverTable)) else None
        wanted = step.name if isinstance(step, CreateTable) else wanted
        cause = stuck.get(wanted) if wanted is not None else None
        if isinstance(step, ExchangePartition):
            cause = cause or held.get(step.other)
        if cause is not None and not isinstance(step, HoldTable):
            step = HoldTable(step.life, step.at, f"waits for {cause.life}, which is held: {cause.reason}", cause.ways)
        if isinstance(step, HoldTable):
            held[step.life] = step
            name = names.get(step.life)
            if name is not None:
                stuck[name] = step
        elif isinstance(step, (CreateTable, RenameTable, RecoverTable)):
            names[step.life] = wanted
        elif isinstance(step, DropTable):
            names[step.life] = None
        kept.append(step)
    return kept
