"""Tables of the lake compared with their source, row by row: are they equal at T?

T is the fence, at which a table stands that has nothing due at or below it. A TiDB is read as it was at T; any other
server as it is now, which is the same only where nothing is written. The other side may be a dump too, which is of its
own TSO. Both sides are read into the lake's types, the source by the readers of dumps. Nothing is written, but for the
rows that a repair is asked to write into the lake.

What cannot be compared is named as such, and never as different: a table that is held, incomplete or not applied
through T, columns that one side does not have by its nature, values that a loss of the feed has changed.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cdc_assets.errors import BadSettings, BucketMissing, CdcError, SetupError
from cdc_assets.features.columns.decoding import OPTIONAL
from cdc_assets.features.cuts.pipeline import cuts_of
from cdc_assets.features.forgetting.planning import UnknownKeys, digests_of, forgotten_of
from cdc_assets.features.kinds.decoding import own_columns
from cdc_assets.features.kinds.planning import rule_of
from cdc_assets.features.verification.operations_choice import EVERY_ROW, RowChoice, parse_choice
from cdc_assets.features.verification.operations_losses import (
    DIFFERING_RULES,
    MADE_NULL,
    OTHER_CENTURY,
    is_guess,
    loss_between,
)
from cdc_assets.features.verification.operations_ranges import (
    EqualRange,
    LakeReader,
    RangePlan,
    RowRate,
    SourceReader,
    grouped,
    plan_ranges,
)
from cdc_assets.features.verification.operations_repair import RepairableLake, UnequalRows, repair
from cdc_assets.features.verification.operations_request import VerifyRequest
from cdc_assets.features.verification.operations_rows import (
    BlockFacts,
    ComparedRows,
    Comparison,
    SourceChanged,
    borders_of,
)
from cdc_assets.features.verification.report import comparison_json, comparison_lines, summary_line
from cdc_assets.formats.decoded import NOT_WRITTEN
from cdc_assets.model.comparison import DIFFERENT, EQUAL, NOT_COMPARED, REPAIRED, TableComparison
from cdc_assets.model.cuts import Cut
from cdc_assets.model.dumps import Dump, DumpTable, RowCondition
from cdc_assets.model.forgetting import kept_out
from cdc_assets.model.progress import Life, Phase, Progress
from cdc_assets.model.recipe import ExcludedKeys
from cdc_assets.model.reports import OperationReport
from cdc_assets.model.schema import ByName, Column, TableId, TableSchema
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.table_history import TableHistory
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.operations.named import is_called, mirrors, no_such_table, table_called
from cdc_assets.operations.requests import OperationRun, pairs
from cdc_assets.operations.table_rows import LakeRows
from cdc_assets.pipeline.outcome import deficits_at
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.planning.plan import Plan
from cdc_assets.planning.recipe import made_for, masked_otherwise
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources import InitialSource
from cdc_assets.sources.replicated import ReplicatedTables, replicated
from cdc_assets.types.fidelity import guesses
from cdc_assets.types.mysql_types import arrow_type, iceberg_type, type_text

if TYPE_CHECKING:
    from cdc_assets.landing.landing import Executors
    from cdc_assets.operations.lake_pipeline import LakePipeline

_WRITTEN = (
    "the source's table was written to while it was compared. Stop what writes into it, apply to the end, and compare "
    "again."
)
_BYTES_A_ROW = 100
"""Assumed bytes per row when choosing who reads a table."""
_LAKE_THREADS = 2
"""Number of threads that read the lake where no executors do."""
_SAMPLED = 200_000
"""Number of sampled values of the first key column from which key ranges are derived."""


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """A person's options for verification: whether the tables are `quiet`, and how the source is read.

    At most `threads` connections read it, and together no more than `rows_per_second` rows. At most `shown` rows of a
    table are named, and only those of the `choice` compared. With `repair` those that differ are written into the lake
    as the source has them, by that `run`. With the name of a `cut` tables are compared as they are there.
    """

    quiet: bool = False
    threads: int = 4
    rows_per_second: int | None = None
    shown: int = 100
    choice: RowChoice = EVERY_ROW
    repair: bool = False
    run: str = ""
    cut: str = ""


Say = Callable[[TableId, str, int], object]
"""Called with a table, the side that is read and how many rows more were read of it."""


def carry_out(pipeline: LakePipeline, run: OperationRun, request: VerifyRequest) -> Iterator[TableComparison]:
    """Compare the requested tables with their source, as the settings and the request say."""
    settings = pipeline.settings.verify
    shown = settings.shown if request.shown is None else request.shown
    options = VerifyOptions(
        quiet=settings.quiet or request.quiet,
        threads=request.threads or settings.threads,
        rows_per_second=request.limit_rate or settings.rows_per_second,
        shown=shown,
        choice=parse_choice(request.where, request.sample or settings.sample, secrets.randbelow(1 << 30)),
        repair=request.repair,
        cut=request.cut,
        run=run.name,
    )
    say = _progress(run) if run.attended else _silent
    connect, tables = _other_side(pipeline.settings, request), request.tables or settings.tables
    yield from verify(pipeline, pipeline.lake, connect, options, tables, say=say)


def _other_side(settings: ChangefeedSettings, request: VerifyRequest) -> Callable[[Tso], InitialSource]:
    """Return the opener of the source, or dump, that the request or the settings name."""
    from cdc_assets.features.dumps.settings import InitialSettings, ServerAddress, initial_from_flags

    if request.dump:
        initial = initial_from_flags([request.dump], pairs(request.details, "--dump-option"))
        (dump,) = InitialSettings(**initial).connect(settings.storage_options)
        return lambda at: dump
    if not request.source:
        return settings.verify.server.open
    password = {"env": request.password_env} if request.password_env else {}
    return ServerAddress.model_validate({"uri": request.source, "password": password}).open


_SAY_SECONDS = 5.0
"""Seconds between two lines of progress of one table."""


def _progress(run: OperationRun) -> Say:
    """Return the display of the numbers of rows that were read of each side."""
    rows: Counter[tuple[TableId, str]] = Counter()
    newest = time.monotonic()

    def say(table: TableId, side: str, more: int) -> None:
        nonlocal newest
        rows[table, side] += more
        if time.monotonic() - newest >= _SAY_SECONDS:
            newest = time.monotonic()
            run.say(f"{table}: {counted(rows[table, side], 'row')} of the {side}")

    return say


def _silent(table: TableId, side: str, more: int) -> None:
    """Say nothing."""


def report(feed: str, request: VerifyRequest, parts_done: Sequence[TableComparison]) -> OperationReport:
    """Return the number of equal tables. Differences were reported when each table had been compared."""
    wrong = [table for table in parts_done if table.state not in (EQUAL, REPAIRED)]
    about = [line for table in wrong for line in comparison_lines(replace(table, rows=()))]
    summary = summary_line(parts_done)
    figures = {
        "tables_compared": len(parts_done),
        "tables_equal": sum(table.state == EQUAL for table in parts_done),
        "rows_compared": sum(table.source_rows for table in parts_done),
        "rows_different": sum(table.missing + table.extra + table.differing for table in parts_done),
    }
    document = [comparison_json(feed, table) for table in parts_done]
    failure = "\n".join([summary, *about]) if wrong else ""
    return OperationReport(document, [summary], figures, not wrong, failure)


part_lines = comparison_lines
"""Lines about a table as soon as it has been compared."""


def verify(
    pipeline: Pipeline,
    lake: RepairableLake,
    connect: Callable[[Tso], InitialSource],
    options: VerifyOptions,
    tables: Sequence[str] = (),
    *,
    say: Say = lambda table, side, rows: None,
) -> Iterator[TableComparison]:
    """Compare tables with the source, one after the other: those of these names or patterns, all without any.

    `connect` opens the source at a TSO, 0 for the present; a dump is of its own. Results are recorded in the ledger.
    Where garbage collection passes T in the midst, the tables and ranges of keys that are left are compared at a newer
    one. Raises BadSettings where the source cannot be read at T and the tables are not
    quiet, and what planning and the source raise.
    """
    done, equal = set[Life](), _EqualRanges()
    proof: _Proof | None = None
    while True:
        try:
            proof = _Proof(pipeline, lake, connect, options, tables, say, equal)
            for life, comparison, forgotten in proof.compared(done):
                done.add(life)
                if not comparison.cut:
                    pipeline.ledger.record_comparison(pipeline.settings.name, life, comparison, forgotten)
                yield comparison
        except BucketMissing as gone:
            if "code" not in gone.where:  # it is not a server that says so
                raise
            if proof is not None and not options.cut and proof.at < pipeline.planner.plan()[1].checkpoint:
                continue
            raise BucketMissing(
                f"{gone.message} Tables are compared with the source as of the fence. A changefeed that runs keeps "
                "that for its gc-ttl, else a larger tidb_gc_life_time does: then apply, and compare right after it.",
                **gone.where,
            ) from None
        if not tables and not options.cut:
            yield from proof.unknown_to_the_lake()
        return


class _EqualRanges:
    """Ranges of tables' keys in which both sides were equal, for as long as a verification runs."""

    def __init__(self) -> None:
        self._ranges = dict[tuple[Life, str], list[EqualRange]]()

    def note(self, life: Life, forgotten: str, equal: EqualRange) -> None:
        """Keep a range; `forgotten` is the run that had taken rows out of the table last when its comparison began."""
        self._ranges.setdefault((life, forgotten), []).append(equal)

    def of(self, life: Life, bare: TableComparison, forgotten: str) -> list[EqualRange]:
        """Return the ranges that a comparison need not read again, which has their source and basis; none in a cut."""
        ranges = self._ranges.get((life, forgotten), ()) if not bare.cut else ()
        return [equal for equal in ranges if (equal.source, equal.basis) == (bare.source, bare.basis)]


@dataclass
class _Proof:
    """The tables of a plan beside those of a source that was opened at its fence."""

    pipeline: Pipeline
    lake: RepairableLake
    connect: Callable[[Tso], InitialSource]
    options: VerifyOptions
    tables: Sequence[str]
    say: Say
    equal: _EqualRanges
    plan: Plan = field(init=False)
    at: Tso = field(init=False)
    source: InitialSource = field(init=False)
    dump: Dump = field(init=False)
    filters: ReplicatedTables = field(init=False)
    cut: Cut | None = field(init=False)
    reconnected: int = 0
    """Number of times that executors reconnected."""

    def __post_init__(self) -> None:
        settings = self.pipeline.settings
        wire = settings.source_options.wire
        self.filters = replicated(settings.changefeed_config if wire.has_commit_ts else None)
        _, self.plan = self.pipeline.planner.plan()
        self.cut = self._named_cut()
        position = self.cut.at if self.cut is not None else self.plan.checkpoint
        self.source = self.connect(0 if self.options.quiet else position)
        # A dump says of when it is, and a server what it was asked for.
        self.dump = self.source.dump()
        self.at = self.dump.at
        if self.cut is None:
            self.cut = next((cut for cut in cuts_of(self.pipeline.lake).cuts() if cut.at == self.at), None)
        elif not self.dump.present and self.cut.at != self.at:
            raise BadSettings(
                f"{self.dump.uri} is as of {self.at}, and the cut {self.cut.name} is as of {self.cut.at}. Give a dump "
                "of that TSO."
            )
        if self.dump.present and not self.options.quiet:
            raise BadSettings(
                f"{self.dump.uri} has no TSO to read at: it shows the tables as they are now, and the lake has them as "
                f"of {self.plan.checkpoint}. Stop what writes into them, apply to the end, and say so with --quiet."
            )
        if not self.options.quiet and not wire.has_commit_ts:
            raise BadSettings(
                "the rows of this changefeed have no commit-ts, so no TSO of the source is that of the tables. Stop "
                "what writes into them, apply to the end, and say so with --quiet."
            )
        if self.dump.present and (waiting := self.pipeline.planner.waiting()):
            raise BadSettings(
                f"{counted(waiting, 'message')} of the changefeed not landed yet, so the tables are behind the source "
                "as it is now. Apply first."
            )

    @property
    def reconnects(self) -> int:
        """Number of connections to the source that broke and were opened again."""
        return self.source.reader.reconnects + self.reconnected

    def _named_cut(self) -> Cut | None:
        """Return the cut that is asked for, None if none is."""
        options = self.options
        if not options.cut:
            return None
        cuts = {cut.name: cut for cut in cuts_of(self.pipeline.lake).cuts()}
        if options.cut not in cuts:
            raise BadSettings(f"there is no cut {options.cut}; known are {', '.join(sorted(cuts)) or 'none'}.")
        if options.quiet or options.repair:
            other = "--quiet is of a source as it is now" if options.quiet else "--repair writes into tables of now"
            raise BadSettings(f"{other}, and a cut is of the past. Leave out one of the two.")
        return cuts[options.cut]

    # --- which tables ---

    def compared(self, done: Collection[Life]) -> Iterator[tuple[Life, TableComparison, str]]:
        """Yield the comparison of each table that is asked for and not done.

        With each the run that had taken rows out of the table last when its comparison began.
        """
        ledger, feed = self.pipeline.ledger, self.pipeline.settings.name
        source_tables = ByName({table.id: table for table in self.dump.tables})
        there = mirrors(self.plan)
        named = {life: table.name for life, table in there.items() if table.name is not None}
        if self.cut is not None:
            past = {cut_table.life: cut_table.name for cut_table in self.cut.taken if not cut_table.life.kind}
            named = past if self.options.cut else {**named, **past}
        patterns = [text.lower() for text in self.tables if "*" in text] if self.tables else ["*"]
        lives = {self._life_called(text, there, named) for text in self.tables if "*" not in text}
        lives |= {
            life for life, name in named.items() if any(fnmatchcase(str(name.folded), pattern) for pattern in patterns)
        }
        for life, name in sorted(((life, named[life]) for life in lives), key=lambda pair: pair[1]):
            if life not in done:
                start, breaks = time.monotonic(), self.reconnects
                forgotten = ledger.revision(feed, life)
                comparison = self._compared(life, name, source_tables.get(name), forgotten)
                reconnect_count = self.reconnects - breaks
                yield (
                    life,
                    replace(comparison, seconds=round(time.monotonic() - start, 3), reconnects=reconnect_count),
                    forgotten,
                )

    def _life_called(
        self, text: str, mirror_tables: Mapping[Life, TableHistory], named: Mapping[Life, TableId]
    ) -> Life:
        """Return the table that a person means, in a cut by its name then; raises BadSettings for none."""
        if self.cut is None or not self.options.cut:
            return table_called(text, mirror_tables, self.plan).life
        named_life = next((life for life, name in named.items() if is_called(text, (name, life))), None)
        if named_life is None:
            raise no_such_table(text, named.values(), "one of the tables of the cut")
        return named_life

    def unknown_to_the_lake(self) -> Iterator[TableComparison]:
        """Yield the source's tables that the changefeed replicates, or a connector captures, and the lake lacks."""
        lives = self.plan.history.lives.items()
        names = [table.name for life, table in lives if table.name is not None and not life.kind]
        names += [cut_table.name for cut_table in self.cut.tables] if self.cut is not None else []
        own_names = ByName(dict.fromkeys(names))
        beside = ByName({table.name: None for table in self.plan.sources.values() if table.name is not None})
        options, rules = self.pipeline.settings.source_options, self.pipeline.settings.history_rules
        for table in self.dump.tables:
            rule = rule_of(rules, table.id)
            if rule is not None and rule.excludes:
                continue
            if table.id not in own_names and self.filters.names(table.id) and options.captures(table.id) is not False:
                reason = (
                    "the source has it and the lake does not: nothing of it is in the changefeed, by its filter or "
                    "since nothing was written into it since the changefeed began."
                )
                if table.id in beside:
                    reason = "it has no mirror (setting history), and history tables alone are not compared."
                yield TableComparison(table=table.id, state=NOT_COMPARED, reason=reason, at=self.at)

    def _compared(self, life: Life, name: TableId, source_table: DumpTable | None, forgotten: str) -> TableComparison:
        at = 0 if self.dump.present else self.at
        chosen = self.options.choice.text
        bare = TableComparison(
            table=name,
            state=NOT_COMPARED,
            source=self.dump.identity,
            at=at,
            through=self.plan.checkpoint,
            chosen=chosen,
        )
        past = (
            next((cut_table for cut_table in self.cut.taken if cut_table.life == life), None)
            if self.cut is not None
            else None
        )
        reason = self._unready(life, self.plan) if past is None or not self.options.cut else ""
        if self.cut is not None and past is not None and (self.options.cut or reason):
            bare = replace(bare, cut=self.cut.name, through=self.cut.at)
        elif reason:
            return replace(bare, reason=reason)
        if source_table is None:
            reason = next((text for table, text in self.dump.problems.items() if table.folded == name.folded), "")
            if reason:
                return replace(bare, reason=f"the source's table cannot be read: {reason.removesuffix('.')}.")
            if any(other.folded == name.folded for other in self.dump.left_out):
                return replace(bare, reason="the source has no table of that name, but a view or a sequence.")
            return replace(
                bare, reason="the source does not show such a table: it has none, or its user may not see it."
            )
        start = time.monotonic()
        try:
            scan = self.lake.scan(life, past.snapshot_id if past is not None and bare.cut else None)
            bare = replace(bare, snapshot=scan.snapshot_id)
            if not bare.cut and scan.progress != self.plan.applied[life].progress:
                return replace(bare, reason="another run moved the table on meanwhile. Compare again.")
            pair = _TablePair(self, self.plan.history.lives[life], scan, source_table, forgotten)
            is_large = scan.snapshot_id is not None and (scan.rows is None or scan.rows >= _SAMPLED)
            with self.lake.pinned(life, scan.snapshot_id or 0) if is_large else nullcontext():
                comparison = pair.compared(bare)
        except SourceChanged:
            return replace(bare, reason=_WRITTEN)
        except FileNotFoundError as gone:
            by = "by maintenance or because rows were forgotten"
            return replace(bare, reason=f"a file of the snapshot was removed meanwhile, {by} ({gone}). Compare again.")
        except SetupError:
            raise
        except CdcError as error:
            return replace(bare, reason=error.message)
        gap, unequal = self.plan.history.lives[life].gap, pair.unequal
        ends_gap = gap is not None and unequal is not None and unequal.is_whole and not comparison.cut
        if comparison.state != DIFFERENT and not (self.options.repair and ends_gap and comparison.state == EQUAL):
            return comparison
        if self.dump.present and self.source.is_written(source_table, time.monotonic() - start):
            return replace(bare, reason=_WRITTEN)
        plan = self.pipeline.planner.plan()[1]
        if not comparison.cut and (reason := self._outdated(life, plan)):
            return replace(comparison, state=NOT_COMPARED, reason=f"the changefeed went on meanwhile: {reason}")
        if self.filters.filters_events(name):
            return replace(
                comparison, state=NOT_COMPARED, reason="the changefeed's event filters leave out changes of it."
            )
        if self.options.repair and comparison.cut:
            return replace(
                comparison, repair=f"not repaired: it is applied above {self.at}, and was compared in a cut."
            )
        return self._repaired(life, comparison, pair.unequal, plan) if self.options.repair else comparison

    def _outdated(self, life: Life, plan: Plan) -> str:
        """Return the reason why a comparison no longer fits a later plan, "" if it does.

        A DDL may be listed later than the fence of its own commit-ts, and a quiet source be written to. What came above
        the TSO of the source concerns nothing that was read.
        """
        if self.dump.present:
            return self._unready(life, plan)
        late = [step for step in plan.of(life) if step.at <= self.at and not isinstance(step, ApplyRows)]
        return self._unready(life, replace(plan, steps=tuple(late), applied=self.plan.applied))

    def _repaired(
        self, life: Life, comparison: TableComparison, unequal: UnequalRows | None, plan: Plan
    ) -> TableComparison:
        """Write the source's rows into a table that is different; one that cannot be repaired stays so, with why."""
        twins = [
            history_life
            for history_life in plan.history.lives
            if history_life.kind and history_life.source == life and history_life in plan.applied
        ]
        reason = next((f"{twin}: {why}" for twin in twins if (why := self._unready(twin, plan))), "")
        if any(
            plan.applied[repaired_life].progress != self.plan.applied[repaired_life].progress
            for repaired_life in (life, *twins)
        ):
            reason = "another run moved it on since it was compared. Compare it again."
        if comparison.columns:
            reason = "its columns differ, and a repair writes rows only. Rebuild it."
        if reason or unequal is None:
            return replace(comparison, repair=f"not repaired: {reason}")
        at = self.at or self.plan.checkpoint
        try:
            text = repair(self.pipeline, self.lake, plan, life, at, unequal, comparison.snapshot, self.options.run)
        except SetupError:
            raise
        except CdcError as error:
            return replace(comparison, repair=f"not repaired: {error.message}")
        return replace(comparison, state=DIFFERENT if comparison.partly else REPAIRED, repair=text)

    def _unready(self, life: Life, plan: Plan) -> str:
        """Return the reason why a table does not stand at the TSO of the source, "" if it does."""
        applied, steps = plan.applied.get(life), plan.of(life)
        deficits = deficits_at(self.pipeline.lake, plan, life, plan.checkpoint)
        lacks = {deficit.cause: deficit.reason for deficit in deficits}
        if "hold" in lacks and life not in plan.behind:
            return lacks["hold"]
        above = Progress(self.at, Phase.ROWS)
        due = [step for step in steps if self.dump.present or isinstance(step, ApplyRows) or step.at <= self.at]
        if applied is None or due:
            return f"it is not applied through {self.at or plan.checkpoint}. Apply the changefeed first."
        if not self.dump.present and (applied.progress > above or life in plan.behind):
            return f"it is applied through {applied.progress.tso}, above {self.at}, of when the source is read."
        if not self.dump.present and plan.checkpoint < self.at:
            return f"the changefeed has come to {plan.checkpoint} only, and the source is as of {self.at}."
        table = plan.history.lives[life]
        is_omitted = table.gap is not None and table.gap.is_of_decision
        return "" if table.missing is not None or is_omitted else lacks.get("rows", "")  # the source says which


@dataclass
class _TablePair:
    """One table on both sides."""

    proof: _Proof
    history: TableHistory
    scan: LakeRows
    theirs: DumpTable
    forgotten: str
    notes: dict[str, set[str]] = field(default_factory=dict)
    unequal: UnequalRows | None = None

    def compared(self, bare: TableComparison) -> TableComparison:
        """Compare columns, then rows."""
        proof, own = self.proof, self.history.schema_at(bare.through) if bare.cut else self.history.schema
        feed = own.in_lake
        self._note_losses(own)
        self.theirs = _with_masks(self.theirs, own)
        otherwise = masked_otherwise(self.history, bare.through, self.scan.recipe)
        if key_columns := sorted(otherwise & {*feed.key, *own.key}):
            return replace(
                bare, reason=f'its rows have a key that is masked otherwise now ("{key_columns[0]}"). Rebuild it.'
            )
        never_written = self._never_written(bare.table)
        columns = self._columns(own, never_written, otherwise)
        pairs, names = columns.pairs, [lake_column.name for lake_column, _ in columns.pairs]
        if not names:
            return replace(bare, reason="none of its columns can be compared.", left_out=columns.left_out)
        key = feed.key if set(feed.key) <= set(names) else ()
        try:
            forgotten = self._forgotten(key)
        except UnknownKeys as problem:
            return replace(bare, reason=str(problem))
        choice = proof.options.choice.of([lake_column for lake_column, _ in pairs], key, str(bare.table))
        compared = ", ".join(f"{name} {self.scan.columns[name]}" for name in names)
        masks = ", ".join(f"{name} {mask.value}" for name, mask in made_for(own).settings.items())
        bare = replace(bare, basis=f"({compared}) by ({', '.join(key)}){f' with {masks}' if masks else ''}")
        comparison, borders = self._comparison(own, pairs, key), self._borders(key)
        comparison = replace(comparison, chosen=choice.chosen) if choice else comparison
        plan, equal = None, list[EqualRange]()
        if borders is not None and not choice:
            equal = proof.equal.of(self.history.life, bare, self.forgotten)
            key_column, their = next(pair for pair in pairs if pair[0].name == key[0])
            plan = plan_ranges(borders, key_column, self.theirs, their.name, equal, self.scan.rows or 0)
        executors, through = self._executors(bare.table), bare.at or bare.through
        lake = _LakeSide(
            self.scan,
            pairs,
            partial(proof.say, bare.table, "lake"),
            _LAKE_THREADS if executors is None else executors.cores,
            [(digests, feed) for keys in forgotten if (digests := _ended_before(keys, through)).until],
        )
        source = _SourceSide(
            self,
            pairs,
            RowRate(proof.options.rows_per_second),
            choice.conditions,
            plan,
            [(digests, feed) for digests in forgotten],
        )
        earlier: Mapping[Tso, int] = {}
        if plan is not None:
            comparison = replace(comparison, borders=plan.borders, equal=plan.equal)
            rows, earlier = self._in_ranges(comparison, lake, source, plan, bare, executors), plan.earlier
        else:
            rows = replace(comparison, borders=borders).run(lake, source, executors=executors)
        unknown = self.scan.columns.keys() & columns.left_out.keys() - columns.without_values - never_written.keys()
        is_whole = not (choice or rows.partly or equal)
        self.unequal = UnequalRows([lake_column for lake_column, _ in pairs], rows.unequal, sorted(unknown), is_whole)
        passed_over = equal if plan is not None else ()
        excluded = sum(source.excluded.values()) + sum(equal_range.excluded for equal_range in passed_over)
        losses = _losses(
            rows, source.losses if not choice else {}, {their.name: lake_column.name for lake_column, their in pairs}
        )
        return _result(bare, columns, replace(rows, losses=losses), earlier, excluded)

    def _columns(self, own: TableSchema, never_written: Mapping[str, str], masked_before: Collection[str]) -> _Columns:
        """Return the columns of both sides. `masked_before` are those that the lake's rows have masked otherwise."""
        proof = self.proof
        generators = proof.source.generators(self.theirs)
        unread = {**never_written, **{name: value for name, value in generators.items() if isinstance(value, str)}}
        return _Columns(
            own.in_lake,
            self.theirs.schema.in_lake,
            self.scan.columns,
            unread | self._changed_before_masks(own),
            proof.pipeline.settings.source_options.wire.has_commit_ts,
            masked_before,
            _masked_of_other_types(own, self.theirs.schema),
        )

    def _borders(self, key: Sequence[str]) -> Any:
        """Return the borders of ranges of the key, by a part of values; None for a small table or one without key."""
        scan = self.scan
        if not key or scan.rows is None or scan.rows < _SAMPLED:
            return None
        step = max(1, scan.rows // _SAMPLED)
        blocks = (rows for piece in scan.pieces() for rows in scan.read_file(piece, key[:1]))
        return borders_of(rows.column(0).take(pa.array(range(0, rows.num_rows, step))) for rows in blocks)

    def _note_losses(self, own: TableSchema) -> None:
        """Note by column which losses the feed may have made."""
        settings = self.proof.pipeline.settings
        for column_report in self.proof.pipeline.ledger.fidelity(settings.name, self.history.life):
            self.notes.setdefault(column_report.column, set()).update(column_report.notes)
        if settings.source_options.protocol == "debezium":
            for column in own.stored:
                self.notes.setdefault(column.name, set()).add(OTHER_CENTURY)
        for name, reason in self.history.made_null.items():
            self.notes.setdefault(name, set()).add(f"{MADE_NULL}{reason}")

    def _never_written(self, table: TableId) -> dict[str, str]:
        """Return the columns that are not in the changefeed, and why."""
        absent = {name for name, rules in self.notes.items() if NOT_WRITTEN in rules}
        has = self.proof.filters.has_column
        hidden = [column.name for column in self.theirs.schema.columns if not has(table, column.name)]
        return {
            **dict.fromkeys(absent, "the changefeed's rows do not have it"),
            **dict.fromkeys(hidden, "the changefeed's column selectors leave it out"),
        }

    def _comparison(self, own: TableSchema, pairs: Sequence[tuple[Column, Column]], key: tuple[str, ...]) -> Comparison:
        """Return the rules by which rows are compared: which loss makes up for values that are not the same."""
        columns, doubtful = {lake_column.name: lake_column for lake_column, _ in pairs}, guesses(self.history.changes)
        masked = {column.name for column in own.columns if column.mask is not None}
        zone = self.proof.pipeline.settings.source_options.wire.timezone

        def loss_of(name: str, lake_value: Any, their: Any) -> str:
            if name in masked:
                return "values that were masked after a loss of theirs" if self.notes.get(name) else ""
            loss = loss_between(columns[name], self.notes.get(name, ()), zone, lake_value, their)
            return loss or (doubtful[name].text if is_guess(doubtful.get(name), lake_value) else "")

        lossy = set(columns)  # the notes of the source's rows come with them, so any column may have a loss
        if not key:
            own_losses = (
                lake_column.name for lake_column in columns.values() if lake_column.type in ("JSON", "TIMESTAMP")
            )
            lossy &= {*self.notes, *doubtful, *own_losses}
        return Comparison(tuple(columns), key, frozenset(lossy), loss_of, shown=self.proof.options.shown)

    def _in_ranges(
        self,
        comparison: Comparison,
        lake: _LakeSide,
        source: _SourceSide,
        plan: RangePlan,
        bare: TableComparison,
        executors: Executors | None,
    ) -> ComparedRows:
        """Compare the rows of the ranges that are not known to be equal, and note those that are."""

        def record(piece: int, count: int) -> None:
            place = (*plan.bounds(plan.open_ranges[piece]), bare.at)
            equal_range = EqualRange(*place, count, bare.source, bare.basis, source.excluded[piece])
            if not bare.cut:
                self.proof.equal.note(self.history.life, self.forgotten, equal_range)

        def again(numbers: Sequence[int]) -> Sequence[Any]:
            return source.of_ranges(grouped(numbers, len(numbers)))

        return comparison.run(lake, source, plan.open_ranges, record, again, executors)

    def _executors(self, table: TableId) -> Executors | None:
        """Return the executors that read a large table; None for the driver, which threads keep busy as well."""
        executors = self.proof.lake.executors(f"the comparison of {table}", only_elsewhere=True)
        return executors if executors.worth((self.scan.rows or 0) * _BYTES_A_ROW) else None

    def _forgotten(self, key: Sequence[str]) -> tuple[ExcludedKeys, ...]:
        """Return the forgotten keys of the table; raises UnknownKeys where rows cannot be told apart by them."""
        proof, table = self.proof, self.history
        decisions = forgotten_of(kept_out(proof.pipeline.planner.decided), table)
        schema = table.schema if key else replace(table.schema, key=())
        return digests_of(
            decisions, proof.pipeline.planner.encryption_key, table, [(("", table.events[-1].at), schema)]
        )

    def _changed_before_masks(self, feed: TableSchema) -> dict[str, str]:
        """Return the masked columns of which equal values of the source may be other ones in the lake by a loss."""
        doubtful = {*(name for name, rules in self.notes.items() if rules), *guesses(self.history.changes)}
        return {
            column.name: "its values are masked after a loss of theirs, so they cannot be compared"
            for column in feed.columns
            if column.mask is not None and column.mask.way not in ("null", "constant")
            if column.name in doubtful or column.type in ("JSON", "TIMESTAMP")
        }


def _ended_before(keys: ExcludedKeys, position: Tso) -> ExcludedKeys:
    """Return those of some kept-out keys that are kept out only through an earlier position."""
    return replace(keys, until={key: at for key, at in keys.until.items() if at < position})


def _losses(rows: ComparedRows, changed: Mapping[tuple[str, str], int], names: Mapping[str, str]) -> Mapping[str, int]:
    """Return the losses by which rows differ, and those of values that both sides have as the loss made them.

    `changed` counts the source's values that were changed while they were read, some of which differ even so. `names`
    are the lake's names of the source's columns that are compared.
    """
    losses = Counter(rows.losses)
    for (column, rule), count in changed.items():
        name = names.get(column)
        rest = count - sum(number for text, number in rows.losses.items() if text.startswith(f"{name}: "))
        if name is not None and rest > 0 and rule not in DIFFERING_RULES:
            losses[f"{name}: {rule}"] += rest
    return dict(losses)


def _result(
    bare: TableComparison, columns: _Columns, rows: ComparedRows, earlier: Mapping[Tso, int], excluded: int
) -> TableComparison:
    """Return the result of a comparison; rows of ranges that were equal `earlier` are counted with the others."""
    differ = bool(rows.missing or rows.extra or rows.differing or columns.differences)
    return replace(
        bare,
        state=DIFFERENT if differ or rows.partly else EQUAL,
        lake_rows=rows.lake + sum(earlier.values()),
        source_rows=rows.source + sum(earlier.values()),
        earlier=earlier,
        missing=rows.missing,
        extra=rows.extra,
        differing=rows.differing,
        rows=rows.rows,
        columns=tuple(columns.differences),
        definitions=tuple(columns.definitions),
        left_out=columns.left_out,
        losses=rows.losses,
        partly=rows.partly,
        excluded=excluded,
    )


def _with_masks(source_table: DumpTable, feed: TableSchema) -> DumpTable:
    """Return the source's table with the masks that its columns have in the feed, and what these depend on.

    So both sides are compared masked.
    """
    masked_columns = {column.name.lower(): column for column in feed.columns if column.mask is not None}
    columns = tuple(
        replace(column, mask=own.mask, collation=own.collation, bytewise=own.bytewise)
        if (own := masked_columns.get(column.name.lower())) is not None
        else column
        for column in source_table.schema.columns
    )
    return replace(source_table, schema=replace(source_table.schema, columns=columns))


def _masked_of_other_types(feed: TableSchema, source: TableSchema) -> dict[str, str]:
    """Return the masked columns whose values have another type in the source: masks make other values of these."""
    source_columns = {column.name.lower(): column for column in source.columns}
    return {
        column.name: _other_type(column, their)
        for column in feed.columns
        if column.mask is not None and (their := source_columns.get(column.name.lower())) is not None
        if arrow_type(their) != arrow_type(column)
    }


def _other_type(feed_column: Column, their: Column) -> str:
    return f"is {type_text(feed_column)} in the changefeed, and {type_text(their)} in the source"


class _Columns:
    """The columns of a table in the feed, in the source and in the lake, and where they are not the same."""

    def __init__(
        self,
        feed: TableSchema,
        source: TableSchema,
        lake: Mapping[str, str],
        unread: Mapping[str, str],
        exact_types: bool,
        otherwise: Collection[str],
        of_other_types: Mapping[str, str],
    ) -> None:
        """Compare columns. `unread` have no values on one side; with `exact_types` the feed has the source's types.

        Those that are masked `otherwise` now may be there in another type, or not at all. `of_other_types` are those
        whose types differ before they are masked, and how.
        """
        self.pairs: list[tuple[Column, Column]] = []
        self.differences: list[str] = []
        self.definitions: list[str] = []
        reason = "rows of the lake have it as it was masked before, and it is masked otherwise now"
        self.left_out: dict[str, str] = dict.fromkeys(otherwise, reason)
        self.without_values = {column.name for column in feed.columns if column.kept}
        folded = {name.lower() for name in otherwise}
        feed = replace(feed, columns=tuple(column for column in feed.columns if column.name not in otherwise))
        source = replace(
            source, columns=tuple(column for column in source.columns if column.name.lower() not in folded)
        )
        lake = {name: kind for name, kind in lake.items() if name not in otherwise}
        source_columns = {column.name.lower(): column for column in source.columns}
        feed_names = {column.name.lower() for column in feed.columns}
        for column in feed.stored:
            their = source_columns.get(column.name.lower())
            if column.kept:
                self.left_out[column.name] = "the source has dropped it, and the lake keeps it"
            elif column.name not in lake:
                self.differences.append(f'"{column.name}" is not in the lake')
            elif lake[column.name] != iceberg_type(column):
                self._differs(
                    column.name, f"is {lake[column.name]} in the lake, and {iceberg_type(column)} is expected"
                )
            elif their is None:
                self._differs(column.name, "is not in the source")
            elif column.name in unread or their.virtual:
                self.left_out[column.name] = unread.get(column.name, "a virtual generated column")
            elif column.name in of_other_types or arrow_type(their) != arrow_type(column):
                reason = of_other_types.get(column.name) or _other_type(column, their)
                self.left_out[column.name] = reason
                if exact_types:
                    self._differs(column.name, reason)
            else:
                self.pairs.append((column, their))
                self._compare_definitions(column, their)
        for column in source.columns:
            if column.name.lower() not in feed_names and not column.hidden:
                if column.virtual:
                    self.left_out[column.name] = "a virtual generated column"
                elif column.name in unread or not exact_types:
                    self.left_out[column.name] = unread.get(column.name, "the changefeed does not tell of it")
                else:
                    self._differs(column.name, "is in the source and not in the lake")
        own = {column.name for column in feed.stored}
        own |= {column.name for column in (*own_columns(""), *OPTIONAL)}
        for name in lake:
            if name not in own:
                self._differs(name, "is in the lake and not in the source")
        common = [their.name for _, their in self.pairs]
        if [column.name for column in source.columns if column.name in common] != common:
            self.differences.append("the columns have another order")

    def _differs(self, name: str, difference: str) -> None:
        self.differences.append(f'"{name}" {difference}')

    def _compare_definitions(self, feed_column: Column, their: Column) -> None:
        facts = [("type", type_text(feed_column), type_text(their)), ("default", feed_column.default, their.default)]
        facts.append(("NOT NULL", not feed_column.nullable, not their.nullable))
        for property_name, feed_value, other in facts:
            if feed_value != other:
                self.definitions.append(
                    f'"{feed_column.name}": {property_name} is {feed_value} in the changefeed, and {other} '
                    "in the source"
                )


# --- the two sides ----------------------------------------------------------------------------------------------------


@dataclass
class _LakeSide:
    """Rows of the lake, in the types of the source, by so many `threads`."""

    scan: LakeRows
    pairs: Sequence[tuple[Column, Column]]
    say: Callable[[int], object]
    threads: int
    forgotten: Sequence[tuple[ExcludedKeys, TableSchema]]
    """Keys that are kept out through an earlier moment: whether a row is from after that nobody can tell."""

    def pieces(self) -> Sequence[Any]:
        """Return the table's data files."""
        return self.scan.pieces()

    def reader(self, count: int) -> LakeReader:
        """Return the reader of the rows."""
        shape = pa.schema([pa.field(column.name, arrow_type(column)) for column, _ in self.pairs])
        return LakeReader(self.scan, shape, self.forgotten)

    def note(self, piece: int | None, facts: BlockFacts) -> None:
        """Report the number of rows that were read."""
        self.say(facts.rows)


@dataclass
class _SourceSide:
    """Rows of the source, read as those of a dump are."""

    pair: _TablePair
    pairs: Sequence[tuple[Column, Column]]
    pace: RowRate
    conditions: Sequence[RowCondition]
    plan: RangePlan | None
    forgotten: Sequence[tuple[ExcludedKeys, TableSchema]]
    excluded: Counter[int] = field(default_factory=Counter)
    """Rows of forgotten keys in each piece, by the piece's number."""
    losses: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Source values that no lake can hold, by column and rule: on both sides they are compared as what they become."""

    @property
    def threads(self) -> int:
        """Number of connections that read at once."""
        return self.pair.proof.options.threads

    def pieces(self) -> Sequence[Any]:
        """Return ranges of the table, or pieces of its files."""
        if self.plan is not None:
            return self.of_ranges(self.plan.open_ranges)
        source = self.pair.proof.source
        their = {feed_column.name: source_column.name for feed_column, source_column in self.pairs}
        conditions = [replace(condition, column=their[condition.column]) for condition in self.conditions]
        return [split for file in self.pair.theirs.files for split in source.splits(file, conditions)]

    def of_ranges(self, ranges: Sequence[range]) -> Sequence[Any]:
        """Return the rows of some ranges of the key."""
        files = self.plan.files(self.pair.theirs, ranges) if self.plan is not None else ()
        return [split for file, bounds in files for split in self.pair.proof.source.splits(file, bounds)]

    def reader(self, count: int) -> SourceReader:
        """Return the reader, one of so many processes that keep the pace together."""
        proof, source_table = self.pair.proof, self.pair.theirs
        names = [their.name for _, their in self.pairs], [column.name for column, _ in self.pairs]
        pace = self.pace.divided(count)
        return SourceReader(
            proof.source.reader,
            source_table,
            proof.at,
            proof.source.generators(source_table),
            *names,
            pace,
            self.forgotten,
        )

    def note(self, piece: int | None, facts: BlockFacts) -> None:
        """Count rows, and keep the rules by which values were changed while they were read."""
        for (column, rule), count in facts.notes.items():
            self.pair.notes.setdefault(column, set()).add(rule)
            if piece is not None:
                self.losses[column, rule] += count
        self.pair.proof.say(self.pair.theirs.id, "source", facts.rows)
        self.pair.proof.reconnected += facts.reconnects
        if piece is not None:
            self.excluded[piece] += facts.excluded
