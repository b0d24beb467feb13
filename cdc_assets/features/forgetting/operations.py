"""Rows of a table forgotten, by their keys: taken out of everything that the lake has of them, and proven to be gone.

    find      the tables: the mirror, its history tables, dropped tables that had the name
    refuse    input that has the keys and is not applied yet, holds, a rebuild that is not finished
    remove    cuts that have the rows, with a person's consent; rows, their snapshots and files (`lake.forget`), stages
              and records
    prove     everything that is left is asked for the rows

All of that has a ticket, which stays where a run is killed or finds something left: `status` says so then, until the
same keys are forgotten again. While a run lives, rebuilds and what else replaces a table are refused, as it is while
one of them is under way.

What is found is found by the key alone: a row that was moved to another key is another one from there on, and such keys
are named. Every part may be repeated, so a run that was killed is finished by the same command.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import pyarrow as pa

from cdc_assets.decoding.keyed_rows import WantedKeys, keys_like, of_keys
from cdc_assets.decoding.window import Window
from cdc_assets.errors import BadSettings, CdcError, ForgetRefused, TableMoved
from cdc_assets.features.cuts.operations import remove_cut
from cdc_assets.features.cuts.pipeline import cuts_of
from cdc_assets.features.forgetting.operations_keep_out import decide, let_in, parse_until
from cdc_assets.features.forgetting.operations_key_bytes import key_bytes
from cdc_assets.features.forgetting.operations_landed import (
    LandedRows,
    SoughtKeys,
    find_landed,
    forget_landed,
    refuse_unread,
    search_landed,
)
from cdc_assets.features.forgetting.operations_request import ForgetRequest
from cdc_assets.features.forgetting.operations_tables import (
    MeantTable,
    applied_through,
    keys_by_source,
    meant_table,
    targets_of,
)
from cdc_assets.features.forgetting.report import forget_figures, forget_json, forget_lines, found_report
from cdc_assets.io.scratch import remove_left
from cdc_assets.io.storage_uri import opener
from cdc_assets.lake.names import format_identity, parse_identity
from cdc_assets.model.cuts import cut_requests
from cdc_assets.model.forgetting import ForgetReport, ForgottenKeys, RemovedRows, SearchedFiles
from cdc_assets.model.progress import AppliedState, Life, Progress
from cdc_assets.model.quarantine import HasKeys, QuarantinedRow, RecordContent
from cdc_assets.model.reports import OperationReport
from cdc_assets.model.steps import AddedStep, ApplyRows, ExchangePartition, HoldTable
from cdc_assets.model.tickets import STALE_SECONDS, Ticket
from cdc_assets.model.tso import Tso, iso_now, iso_time
from cdc_assets.model.wording import counted
from cdc_assets.operations.keys import keyed_alike, parse_keys, record_has_key
from cdc_assets.operations.named import is_called
from cdc_assets.operations.requests import OperationRun
from cdc_assets.operations.tickets import Tickets, kept_alive, note
from cdc_assets.pipeline.pipeline import looking_again
from cdc_assets.pipeline.replay import Reading, Replay

if TYPE_CHECKING:
    from cdc_assets.model.table_history import TableHistory
    from cdc_assets.operations.lake_pipeline import LakePipeline
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan

__all__ = ["ForgettingLake", "abandon", "forget"]

_ATTEMPTS = 8
"""Most attempts at a table that another writer moves; from the second on, that writer's windows wait."""


class ForgettingLake(Tickets, Protocol):
    """The part of a lake that forgetting needs; its tickets are of runs that forget rows."""

    def hold_back(self, token: str, lives: Iterable[Life]) -> None:
        """Let the windows of these tables, and of no others, wait for the run with that token."""

    def unfinished(self) -> Mapping[Life, str]:
        """Return the reasons why old snapshots of tables are still needed, a sentence each."""

    def forget(self, life: Life, sought: WantedKeys, at: Progress, mark: str, *, kept_out: bool) -> RemovedRows:
        """Take the rows of keys out of a table and all of its snapshots without a tag; repeated, it does what is left.

        Of keys that are not `kept_out` the table says through which position it had rows. Raises TableMoved where it is
        not applied as far as `at`, or another writer commits meanwhile.
        """

    def search(self, life: Life, sought: WantedKeys) -> SearchedFiles:
        """Ask all that a table has for rows of the keys, and tell where they are."""

    def untag(self, life: Life, tag: str) -> None:
        """Remove a tag of a table."""

    def quarantined(self) -> Sequence[QuarantinedRow]:
        """Return the open records of the quarantine, with their bytes and keys."""

    def forget_stages(self, targets: Mapping[Life, WantedKeys], has: HasKeys) -> int:
        """Remove what windows staged that are not committed, where it has the keys; return how many."""

    def search_stages(self, targets: Mapping[Life, WantedKeys], has: HasKeys) -> SearchedFiles:
        """Read all that such windows have staged, and tell where rows of the keys are, or may be."""

    def forget_records(self, has: HasKeys, may_have: HasKeys) -> Sequence[str]:
        """Remove the records of the quarantine that have what is to be forgotten; return where they stand.

        Of those that are not open any more, also such as may have it.
        """

    def search_records(self, has: HasKeys) -> SearchedFiles:
        """Read all that the quarantine has, and tell where such records are."""


Done = ForgetReport | ForgottenKeys | Ticket | tuple[Life, SearchedFiles]
"""The result of a run, which forgot rows, let keys in again, ended runs that were killed, or looked only."""


def carry_out(pipeline: LakePipeline, run: OperationRun, request: ForgetRequest) -> Iterator[Done]:
    """Forget the requested rows, with consent; or look where they are, let keys in, end runs that were killed."""
    if request.undo:
        yield let_in(pipeline, request.table, request.undo, run.name)
        return
    from cdc_assets.features.forgetting.lake import LakeForgetting  # PyIceberg's readers, which nothing else here needs

    lake, table = LakeForgetting(pipeline.lake), request.table
    if request.abandon:
        run.consent(f"Forget that runs on {table} were broken off, though rows of their keys may be left?")
        yield from abandon(pipeline, lake, table, run.name)
        return
    keys = _requested_keys(pipeline, request)
    if not request.dry_run:
        cuts = ", and remove the cuts that have them" if request.remove_cuts else ""
        run.consent(f"Take the rows of {counted(len(keys), 'key')} out of {table}, its history and files{cuts}?")
    through = parse_until(pipeline, request.until) if request.until else None
    if request.dry_run:
        yield from find_rows(pipeline, lake, table, keys, through).items()
        return
    yield forget(
        pipeline, lake, table, keys, run.name, run.say, through, request.decision, request.records,
        remove_cuts=request.remove_cuts,
    )  # fmt: skip


def _requested_keys(pipeline: Pipeline, request: ForgetRequest) -> Sequence[Sequence[str]]:
    """Return the keys, from wherever a command or a job has them. Raises BadSettings where there are none."""
    if request.key:
        return [list(request.key)]
    if request.keys is not None:
        return parse_keys(Path(request.keys).read_bytes(), request.keys)
    if request.keys_variable:
        if request.keys_variable not in os.environ:
            raise BadSettings(
                f"The environment variable {request.keys_variable} is not set where the job runs. Set it."
            )
        return parse_keys(os.environ[request.keys_variable], request.keys_variable)
    directory, _, name = request.keys_file.rpartition("/")
    if not directory:
        raise BadSettings(f"keys_file is {request.keys_file!r}; expected a URI such as s3://bucket/keys.csv.")
    try:
        content = opener(directory, pipeline.settings.storage(), "keys_file").fetch(name)
    except FileNotFoundError:
        raise BadSettings(f"keys_file is {request.keys_file!r}, and there is no such file. Write it there.") from None
    return parse_keys(content, request.keys_file)


def report(feed: str, request: ForgetRequest, parts_done: Sequence[Done]) -> OperationReport:
    """Return the report, without a key in the figures of a job."""
    if request.undo:
        (ended,) = cast("Sequence[ForgottenKeys]", parts_done)
        count, table = len(ended.digests), str(ended.table)
        return OperationReport(
            {"name": ended.name, "table": table, "keys": count},
            [
                f"{request.undo}: {counted(count, 'key')} of {table} let in from now on",
                "  what was left out comes with a rebuild",
            ],
            {"let_in": count, "table": table},
        )
    if request.abandon:
        runs = cast("Sequence[Ticket]", parts_done)
        return OperationReport(
            [{"table": run.table, "keys": run.keys, "began": run.since} for run in runs],
            [
                line
                for run in runs
                for line in (
                    f"{run.table}: {counted(run.keys, 'key')} of a run that began at {run.since} abandoned",
                    "  rows of them may be left; the journal says so, and status no more",
                )
            ],
            {"abandoned": len(runs), "keys": sum(run.keys for run in runs)},
        )
    if request.dry_run:
        return found_report(dict(cast("Sequence[tuple[Life, SearchedFiles]]", parts_done)))
    (done,) = cast("Sequence[ForgetReport]", parts_done)
    failure = "" if done.complete else "Rows are left, see the report. Launch the same job again."
    lines = list(forget_lines(done))
    return OperationReport(forget_json(done), lines, forget_figures(done), done.complete, failure, repeatable=True)


def forget(
    pipeline: Pipeline,
    lake: ForgettingLake,
    table: str,
    keys: Sequence[Sequence[str]],
    run: str = "",
    say: Callable[[str], object] = lambda _: None,
    until: Tso | None = None,
    name: str = "",
    records: Collection[str] = (),
    *,
    remove_cuts: bool = False,
) -> ForgetReport:
    """Take the rows of these keys out of the lake, prove that they are gone, and return the report.

    `table` is a present or former name, or an identity; `keys` are texts as MySQL prints them. Raises BadSettings for a
    table or keys that do not fit, ForgetRefused, with nothing changed, where the rows would come back by themselves;
    where others write meanwhile it says what is left. With `until` they are kept out of all that is planned from now on
    at positions through that, by a decision of that `name`, so that it does not matter which rows are not applied yet.
    `records` are places of records and messages that cannot be decoded and may have the keys: these go with them.
    Cuts, and other tags, that have the rows are removed as a whole with `remove_cuts`; else these keep them.
    """
    keys, now = list({tuple(key): key for key in keys}.values()), time.time()
    looking = Ticket(uuid.uuid4().hex[:12], "", run, now, now)
    work = _ForgetRun(pipeline, lake, looking, say, remove_cuts)
    lake.touch(looking)
    try:
        with kept_alive(lake, looking):
            rows = looking_again(lambda: _find(work, table, keys, until, name, frozenset(records)))
    except BaseException:
        lake.end(looking.token)
        raise
    meant = rows.meant
    plan = _digest(looking.token, meant.life, keys, alone=bool(meant.others))
    count, life = meant.keys.num_rows, format_identity(meant.life)
    ticket = replace(looking, plan=plan, table=str(meant.name), keys=count, life=life)
    lake.touch(ticket)
    try:
        begun = lake.tickets()
        for other in begun:
            if not other.table and not other.runs():  # it was killed before it changed anything
                lake.end(other.token)
        same_tickets = [other for other in begun if _is_asked(other, meant)]
        former = [other for other in same_tickets if other.token != ticket.token]
        continued = tuple(other.since for other in former)
        work = replace(work, ticket=ticket, removed_before=frozenset(chain(*(other.removed for other in former))))
        with kept_alive(lake, ticket):
            if rows.kept_out is not None:
                # A table that a run creates meanwhile is there from here on, or is refused rows planned before.
                pipeline.lake.keep_decision(rows.kept_out)
                rows = rows.as_of(pipeline.planner.plan(whole=True)[1])
            report = replace(_remove(work, rows), continued=continued)
    except BaseException:
        with suppress(Exception):  # else it becomes stale, as that of a run that was killed
            note(lake, ticket.token, stopped=True)
        raise
    if report.complete:
        for other in same_tickets:
            lake.end(other.token)
    else:
        note(lake, ticket.token, stopped=True)
    return report


def find_rows(
    pipeline: Pipeline,
    lake: ForgettingLake,
    table: str,
    keys: Sequence[Sequence[str]],
    until: Tso | None = None,
    name: str = "",
) -> dict[Life, SearchedFiles]:
    """Find in which files of the lake's tables rows of these keys are, as `forget` would take them out of these.

    Nothing of the tables is changed; messages of topics are landed first. Raises what `forget` raises beforehand.
    """
    now, distinct = time.time(), list({tuple(key): key for key in keys}.values())
    work = _ForgetRun(pipeline, lake, Ticket("", "", "", now, now), lambda _: None)
    rows = looking_again(lambda: _find(work, table, distinct, until, name, frozenset()))
    return {life: lake.search(life, sought) for life, sought in rows.targets.items() if life in rows.applied}


def abandon(pipeline: Pipeline, lake: Tickets, table: str, run: str = "") -> tuple[Ticket, ...]:
    """End the runs that were killed with keys of a table that nobody has any more, and return them; journaled.

    Rows of these keys may be left, and nothing says so from then on. `table` is as `status` names it. Raises
    BadSettings where there is no such run, ForgetRefused while one of them may still be at work.
    """
    tickets = [ticket for ticket in lake.tickets() if ticket.table and is_called(table, (ticket.table,))]
    if not tickets:
        names = ", ".join(sorted({ticket.table for ticket in lake.tickets() if ticket.table})) or "none"
        raise BadSettings(f"no run that forgets rows of {table} has been left unfinished; known are: {names}.")
    if alive := next((ticket for ticket in tickets if ticket.runs()), None):
        raise ForgetRefused(
            f"a run that began at {alive.since} still forgets rows of {table}: it was heard of at {alive.heard}. Wait "
            f"until it has ended; one that was killed is known as such {STALE_SECONDS // 60} minutes after that."
        )
    for ticket in tickets:
        life = parse_identity(ticket.life)
        text = (
            f"{counted(ticket.keys, 'key')} abandoned, of a run that began at {ticket.since}: rows of them may be left"
        )
        pipeline.journal.note(life, life.born_as, "forget", text, run)
        lake.end(ticket.token)
    return tuple(tickets)


def _digest(token: str, table: Life, keys: Sequence[Sequence[str]], *, alone: bool) -> str:
    """Return a digest that tells these keys of a table from others; it is removed when they are forgotten.

    `alone` is said where others had its name, and keep their rows.
    """
    identity = repr((str(table), alone, sorted(map(list, keys)))).encode()
    return hashlib.scrypt(identity, salt=token.encode(), n=1 << 12, r=8, p=1).hex()


def _is_asked(ticket: Ticket, meant: MeantTable) -> bool:
    """Return whether a ticket is of a run for these keys of these tables."""
    digests = (_digest(ticket.token, life, meant.texts, alone=alone) for life, alone in meant.asked)
    return any(ticket.plan == digest for digest in digests)


@dataclass(frozen=True, slots=True)
class _ForgetRun:
    """A run that forgets rows: its ticket, where it says what it does, and whether it removes cuts that have them.

    `removed_before` are cuts that former runs for the same keys set out to remove, and told nobody of.
    """

    pipeline: Pipeline
    lake: ForgettingLake
    ticket: Ticket
    say: Callable[[str], object]
    remove_cuts: bool = False
    removed_before: frozenset[str] = frozenset()

    def without_cuts(self, life: Life, sought: WantedKeys) -> frozenset[str]:
        """Remove the cuts and tags whose snapshots of a table have rows of the keys, and return their names."""
        tagged = bool(self.remove_cuts and self.pipeline.lake.applied()[life].tags)
        names = self.lake.search(life, sought).tags if tagged else ()
        cuts = {cut.name for cut in cuts_of(self.pipeline.lake).cuts()} if names else set()
        cuts |= {request.name for request in cut_requests(self.pipeline.lake.decisions())} if names else set()
        if names:
            own = next(ticket for ticket in self.lake.tickets() if ticket.token == self.ticket.token)
            note(self.lake, own.token, removed=tuple(sorted({*own.removed, *names})))
        for name in names:
            if name in cuts:
                remove_cut(self.pipeline, name)
            else:
                self.lake.untag(life, name)
        return frozenset(names)

    def removed_with(self, cuts: Collection[str]) -> tuple[str, ...]:
        """Return cuts that were removed, and those that former runs removed: they are not there any more."""
        kept_tags = {cut.name for cut in cuts_of(self.pipeline.lake).cuts()} if self.removed_before else set()
        if self.removed_before:
            kept_tags |= {tag for state in self.pipeline.lake.applied().values() for tag in state.tags}
        return tuple(sorted({*cuts, *(self.removed_before - kept_tags)}))


@dataclass(frozen=True, slots=True)
class _SoughtRows:
    """Places that may contain rows of the keys: lake tables, each with the keys in its own types, and the landing.

    `applied` is how far the tables are, `sources` are the tables of the source, `kept_out` is the decision by which
    they do not come again. To those that are `frozen` nothing is applied, until the settings ask for them again.
    """

    meant: MeantTable
    targets: Mapping[Life, WantedKeys]
    applied: Mapping[Life, AppliedState]
    sources: Mapping[Life, TableHistory]
    landed: LandedRows
    sought: SoughtKeys
    kept_out: ForgottenKeys | None
    frozen: tuple[Life, ...] = ()

    def as_of(self, planned: Plan) -> _SoughtRows:
        """Return the places where the rows may stand by another plan."""
        targets = targets_of(planned, self.meant)
        return replace(self, targets=targets, applied=planned.applied, sources=planned.sources)

    def are_in(self, life: Life, record: RecordContent) -> bool:
        """Return whether a record of a table has a key by its decoded rows, or was named by its place."""
        has_key = self._is_known(life, record)
        return record.place in self.sought.places and self.may_be_in(life, record) if has_key is None else has_key

    def may_be_in(self, life: Life, record: RecordContent) -> bool:
        """Return whether it has a key by its decoded rows, or by its bytes where its key was not decoded."""
        has_key = self._is_known(life, record)
        return self.sought.values.may_be_in(record.raw) if has_key is None else has_key

    def _is_known(self, life: Life, record: RecordContent) -> bool | None:
        """Return whether the decoded rows of a record have a key, None where they do not say that."""
        if life.source not in {target.source for target in self.targets}:
            return False
        table, keys = self.sources[life.source], self.sought.sources[life.source]
        schema = keyed_alike(table.schema_at(record.version).in_lake, keys, table, record.version)
        return None if schema is None else record_has_key(record.keys, schema, keys, self.sought.values.encryption_key)


# --- finding ----------------------------------------------------------------------------------------------------------


def _find(
    work: _ForgetRun, table: str, keys: Sequence[Sequence[str]], until: Tso | None, name: str, places: frozenset[str]
) -> _SoughtRows:
    """Find the places of the rows; raise where they would come back by themselves. Nothing is changed."""
    pipeline = work.pipeline
    pipeline.land()
    planned = pipeline.planner.plan(whole=True)[1]
    meant = meant_table(planned, table, keys)
    targets = targets_of(planned, meant)
    _refuse(work, planned, targets, rows_too=until is None)
    wire, encryption_key = pipeline.settings.source_options.wire, pipeline.planner.encryption_key
    values = key_bytes(meant.keys, keys, meant.schema, wire, encryption_key)
    through = applied_through(planned, targets)
    sought = SoughtKeys(keys_by_source(planned, targets), values, through, -1 if until is None else until, places)
    landed = find_landed(pipeline, sought)
    landed.refuse_unapplied()
    if pipeline.landing is not None:
        refuse_unread(pipeline.landing, landed, values.may_be_in)
    kept_out = None
    if until is not None:
        if landed.lost:  # rows that others need stand beside them
            _refuse(work, planned, targets)
        kept_out = decide(pipeline, planned, meant, until, name)
    frozen = tuple(life for life in targets if life in planned.idle)
    return _SoughtRows(meant, targets, planned.applied, planned.sources, landed, sought, kept_out, frozen)


def _refuse(work: _ForgetRun, planned: Plan, targets: Mapping[Life, WantedKeys], *, rows_too: bool = True) -> None:
    """Raise ForgetRefused where there is a reason not to begin."""
    if reasons := _reasons(work, planned, targets, rows_too=rows_too):
        otherwise = " Rows that are not applied yet do not matter where the keys are kept out (until)."
        raise ForgetRefused(
            f"nothing was forgotten:\n{_listed(reasons)}\nApply the changefeed first, and forget the rows then."
            f"{otherwise if rows_too else ''}"
        )


def _listed(reasons: Sequence[str]) -> str:
    return "\n".join(f"- {reason}" for reason in dict.fromkeys(reasons))


def _reasons(work: _ForgetRun, planned: Plan, targets: Mapping[Life, WantedKeys], *, rows_too: bool) -> list[str]:
    """Return reasons why rows come back: old snapshots are needed, DDL is due or, with `rows_too`, input that has keys.

    A DDL that is not applied may replace a table with rows that were read before they are forgotten.
    """
    reasons = [sentence for life, sentence in work.lake.unfinished().items() if life in targets]
    sources = keys_by_source(planned, targets)
    for step in planned.steps:
        exchanged = {step.other.source} if isinstance(step, ExchangePartition) else set()
        if sources.keys().isdisjoint({step.life.source, *exchanged}) or isinstance(step, AddedStep):
            continue
        if isinstance(step, (HoldTable, ApplyRows)) and not rows_too:
            continue
        if isinstance(step, HoldTable):
            reasons.append(f"{step.life} is held at {step.at}, and what comes after that may have them: {step.reason}")
        elif isinstance(step, ApplyRows):
            reasons += _unapplied(work.pipeline, step, planned.sources[step.life.source], sources[step.life.source])
        elif step.life in planned.applied:
            reasons.append(f"the DDL of version {step.at} is not applied to {step.life} yet")
    return reasons


def _unapplied(pipeline: Pipeline, step: ApplyRows, table: TableHistory, keys: pa.Table) -> Iterator[str]:
    """Return the sentence on files of a window with rows of the keys, or with records of which that is not known."""
    schema = keyed_alike(step.schema, keys, table, step.ddl)
    if schema is None:
        yield f"rows of {step.life} that are not applied yet have the key ({', '.join(step.schema.key)})"
        return

    def pick(window: Window) -> tuple[int, int]:
        changes = window.changes
        rows = of_keys(changes, keys_like(keys, changes, schema), schema).num_rows if changes.num_rows else 0
        return rows, window.report.reject_count

    readings = [Reading(step, [place], pick) for place in range(len(step.files))]
    for reading, counts, problem in Replay(pipeline).decoded(readings):
        path = step.files[reading.files[0]].path
        if counts is None:
            yield f"it is not known whether there are rows of the keys: {problem}"
        elif counts[0]:
            yield f"{path} has rows of the keys that are not applied to {step.life} yet"
        elif counts[1]:
            records = counted(counts[1], "record")
            yield f"{path} has {records} that cannot be read and that {step.life} has not: they may have the keys"


# --- removing ---------------------------------------------------------------------------------------------------------


def _remove(work: _ForgetRun, rows: _SoughtRows) -> ForgetReport:
    """Take the rows out wherever they stand, and read what is left."""
    pipeline, lake, kept_out = work.pipeline, work.lake, rows.kept_out
    mark, removed, count, cuts = uuid.uuid4().hex, list[RemovedRows](), rows.meant.keys.num_rows, set[str]()
    if kept_out is not None:
        work.say(f"{counted(count, 'key')} kept out {kept_out.until_text}, as {kept_out.name}")
    for life, sought in rows.targets.items():
        work.say(f"{life}: looking for {counted(sought.keys.num_rows, 'key')}")
        rows, gone = _taken_out(work, rows, life, mark, cuts)
        removed.append(gone)
    stages, may_have = lake.forget_stages(rows.targets, rows.may_be_in), rows.sought.values.may_be_in
    records, scratch = tuple(lake.forget_records(rows.are_in, rows.may_be_in)), remove_left()
    if pipeline.landing is not None:
        forget_landed(pipeline.landing, rows.landed, may_have)
    lives = {*rows.targets, *(life.source for life in rows.targets)}
    names = {name for life in rows.targets for name, _, _ in rows.sources[life.source].names}
    pipeline.ledger.remove_values(pipeline.settings.name, lives, names, mark)
    aside = (record for record in lake.quarantined() if rows.may_be_in(record.life, record.content))
    unknown = {*(record.content.place for record in aside), *rows.landed.unsearched}
    work.say("asking what is left")
    searched = [lake.search(life, sought) for life, sought in rows.targets.items()]
    searched += [lake.search_stages(rows.targets, rows.may_be_in), lake.search_records(rows.may_be_in)]
    if pipeline.landing is not None:
        searched.append(looking_again(partial(search_landed, pipeline, pipeline.landing, rows.sought)))
    report = ForgetReport(
        changefeed=pipeline.settings.name,
        table=rows.meant.name,
        keys=count,
        run=work.ticket.run,
        begun=iso_time(datetime.fromtimestamp(work.ticket.begun, timezone.utc)),
        removed=tuple(removed),
        searched=tuple(searched),
        ended=iso_now(),
        records=records,
        unknown=tuple(sorted(unknown)),
        stages=stages,
        scratch=scratch,
        messages=len(rows.landed.places),
        lost=tuple(sorted(map(str, rows.landed.lost))),
        cuts=work.removed_with(cuts),
        moved=tuple(sorted({key for table in removed for key in table.moved})),
        feed=_feed(pipeline, kept_out, rows.frozen),
        kept_out="" if kept_out is None else kept_out.name,
        until="" if kept_out is None else kept_out.until_text,
    )
    text = f"{counted(report.keys, 'key')}, {counted(report.copies, 'copy', 'copies')} of their rows"
    text += f"; kept out {report.until} as {report.kept_out}" if report.kept_out else ""
    pipeline.journal.note(rows.meant.life, report.table, "forget", text, report.run)
    return report


def _taken_out(
    work: _ForgetRun, rows: _SoughtRows, life: Life, mark: str, cuts: set[str]
) -> tuple[_SoughtRows, RemovedRows]:
    """Take the rows out of one table, and return with that where they may stand now; `cuts` gets those that go.

    Looks again where another writer was first: a run that lives on is so all day, and the windows of all tables that
    have the keys wait from then on.
    """
    lake, is_waiting = work.lake, False
    try:
        for attempt in range(_ATTEMPTS):
            if life not in rows.targets:
                break
            progress = rows.applied[life].progress
            if rows.kept_out is not None and progress.tso > rows.kept_out.until:
                raise ForgetRefused(
                    f"{life} was applied through {progress.tso} meanwhile, with rows that are not to be forgotten. "
                    "Forget the keys again, at least --until there.",
                    table=str(life),
                )
            try:
                cuts |= work.without_cuts(life, rows.targets[life])
                removed = lake.forget(life, rows.targets[life], progress, mark, kept_out=rows.kept_out is not None)
            except TableMoved:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return rows, removed
            if not is_waiting:
                lake.hold_back(work.ticket.token, rows.targets)
                is_waiting = True
            time.sleep(0.2 * 2**attempt)
            rows = looking_again(partial(_as_applied_now, work, rows))
        return rows, RemovedRows(life)
    finally:
        if is_waiting:
            with suppress(CdcError):  # else the table waits until the ticket is stale
                lake.hold_back(work.ticket.token, ())


def _as_applied_now(work: _ForgetRun, rows: _SoughtRows) -> _SoughtRows:
    """Return the places where rows may stand now, which are not in purged tables.

    Raises ForgetRefused where rows have come that are not applied to all tables, or another DDL is applied.
    """
    planned = work.pipeline.planner.plan(whole=True)[1]
    targets = {life: sought for life, sought in rows.targets.items() if not planned.applied[life].is_purged}
    reasons = _reasons(work, planned, targets, rows_too=rows.kept_out is None)
    reasons += [
        f"the DDL of version {planned.applied[life].ddl} was applied to {life} meanwhile"
        for life in targets
        if planned.applied[life].ddl != rows.applied[life].ddl
    ]
    if reasons:
        raise ForgetRefused(
            f"rows are left, as tables have moved on meanwhile:\n{_listed(reasons)}\nApply the changefeed, and run "
            "the same command again: it does what is left."
        )
    return replace(rows, targets=targets, applied=planned.applied)


# --- what is said -----------------------------------------------------------------------------------------------------


def _feed(pipeline: Pipeline, kept_out: ForgottenKeys | None, frozen: Sequence[Life]) -> str:
    """Return the input that may bring the rows back, and until when."""
    days = pipeline.settings.source_options.retention_days
    how_long = f"for {counted(days, 'day')}, until its writer removes them" if days else "for as long as it is kept"
    there = (
        f"the feed itself ({pipeline.settings.uri}), and dumps that it was joined with, are not written to: they have "
        f"the rows {how_long}"
    )
    if kept_out is None:
        return (
            f"{there}. Until then a rebuild brings them back, and so does a table or a kind of history that the "
            "settings ask for later."
            + "".join(
                f" {life} is frozen: once the settings ask for it again, rows of these keys come in that the feed has "
                "had since, unless they are kept out (until)."
                for life in frozen
            )
        )
    landed = "" if pipeline.landing is None else " Messages that come later are landed with them, until they expire."
    return f"{there}. What is read of them is left out {kept_out.until_text}, as {kept_out.name} says.{landed}"
