"""Rows of a table forgotten, by their keys: taken out of everything that the lake has of them, and proven to be gone.

    find      the tables: the mirror, its history tables, dropped tables that had the name
    refuse    input that has the keys and is not applied yet, holds, a rebuild that is not finished
    remove    rows, in every snapshot and file (`lake.forget`), stages and records; cuts list the snapshots made anew
    prove     everything that is left is read

All of that has a ticket, which stays where a run is killed or finds something left: `status` says so then, until the
same keys are forgotten again. While a run lives, rebuilds and what else replaces a table are refused, as it is while
one of them is under way.

What is found is found by the key alone: a row that was moved to another key is another one from there on, and such keys
are named. Every part may be repeated, so a run that was killed is finished by the same command.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from cdc_assets.decoding.keyed_rows import WantedKeys, of_keys
from cdc_assets.decoding.window import decode_window
from cdc_assets.errors import BadSettings, CdcError, ForgetRefused, TableMoved
from cdc_assets.io.scratch import remove_left
from cdc_assets.lake.names import format_identity, parse_identity
from cdc_assets.model.forgetting import ForgetReport, ForgottenKeys, RemovedRows, SearchedFiles
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.steps import ApplyRows, ExchangePartition, HoldTable, TagTable
from cdc_assets.model.tickets import STALE_SECONDS, Ticket
from cdc_assets.model.times import iso_now, iso_time
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted, first_of
from cdc_assets.operations.forget_landed import (
    LandedRows,
    SoughtKeys,
    find_landed,
    forget_landed,
    refuse_unread,
    search_landed,
)
from cdc_assets.operations.keep_out import decide
from cdc_assets.operations.key_bytes import KeyBytes, key_bytes
from cdc_assets.operations.keys import keys_of, masked_keys
from cdc_assets.operations.named import is_called, table_called
from cdc_assets.operations.tickets import Tickets, kept_alive
from cdc_assets.planning.kinds import beside
from cdc_assets.types.mysql_types import arrow_type

if TYPE_CHECKING:
    from cdc_assets.model.table_history import TableHistory
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan

__all__ = ["ForgettingLake", "abandon", "forget"]

_ATTEMPTS = 8
"""How often a table that another writer moves is looked at anew; its windows wait from the second time on."""


class ForgettingLake(Tickets, Protocol):
    """The part of a lake that forgetting needs; its tickets are of runs that forget rows."""

    def hold_back(self, token: str, lives: Iterable[Life]) -> None:
        """Let the windows of these tables, and of no others, wait for the run with that token."""

    def unfinished(self) -> Mapping[Life, str]:
        """Return why old snapshots of tables are still needed, a sentence each."""

    def forget(self, life: Life, wanted: WantedKeys, at: Progress, mark: str, *, kept_out: bool) -> RemovedRows:
        """Take the rows of keys out of a table and all of its snapshots; repeated, it does what is left.

        Of keys that are not `kept_out` the table says through which position it had rows. Raises TableMoved where it is
        not applied as far as `at`, or another writer commits meanwhile.
        """

    def search(self, life: Life, wanted: WantedKeys) -> SearchedFiles:
        """Read all that a table has, and tell where rows of the keys are."""

    def forget_stages(self, targets: Mapping[Life, WantedKeys], has: Callable[[Life, bytes], bool]) -> int:
        """Remove what windows staged that are not committed, where it has the keys; return how many."""

    def search_stages(self, targets: Mapping[Life, WantedKeys], has: Callable[[Life, bytes], bool]) -> SearchedFiles:
        """Read all that such windows have staged, and tell where rows of the keys are, or may be."""

    def forget_records(
        self, has: Callable[[Life, bytes], bool], may_have: Callable[[Life, bytes], bool]
    ) -> Sequence[str]:
        """Remove the records of the quarantine whose bytes have what is to be forgotten; return where they stand.

        Of those that are not open any more, also such as may have it.
        """

    def search_records(self, has: Callable[[Life, bytes], bool]) -> SearchedFiles:
        """Read all that the quarantine has, and tell where such records are."""

    def follow_tags(self) -> Sequence[str]:
        """List in cuts the snapshots that their tags have now; return the cuts that changed."""


def forget(
    pipeline: Pipeline,
    lake: ForgettingLake,
    table: str,
    keys: Sequence[Sequence[str]],
    run: str = "",
    say: Callable[[str], object] = lambda _: None,
    until: Tso | None = None,
    name: str = "",
) -> ForgetReport:
    """Take the rows of these keys out of the lake, prove that they are gone, and return the report.

    `table` is a present or former name, or an identity; `keys` are texts as MySQL prints them. Raises BadSettings for a
    table or keys that do not fit, ForgetRefused, with nothing changed, where the rows would come back by themselves;
    where others write meanwhile it says what is left. With `until` they are kept out of all that is planned from now on
    at positions through that, by a decision of that `name`, so that it does not matter which rows are not applied yet.
    """
    started, token, now = datetime.now(timezone.utc), uuid.uuid4().hex[:12], time.time()
    looking = Ticket(token, "", run, now, now)
    lake.touch(looking)
    try:
        with kept_alive(lake, looking):
            found = _found(pipeline, lake, table, keys, until, name)
    except BaseException:
        lake.end(token)
        raise
    life, plan = format_identity(found.life), _digest(token, found.life, keys, alone=found.alone)
    ticket = replace(looking, plan=plan, table=str(found.name), keys=found.count, life=life)
    lake.touch(ticket)
    try:
        begun = lake.tickets()
        for one in begun:
            if not one.table and not one.runs():  # it was killed before it changed anything
                lake.end(one.token)
        same = [one for one in begun if found.is_asked(one, keys)]
        continued = tuple(one.since for one in same if one.token != token)
        with kept_alive(lake, ticket):
            found = _kept_out(pipeline, found, keys)
            report = replace(_forgotten(pipeline, lake, found, started, run, say, token), continued=continued)
    except BaseException:
        with suppress(Exception):  # else it becomes stale, as that of a run that was killed
            lake.touch(replace(ticket, stopped=True))
        raise
    if report.complete:
        for one in same:
            lake.end(one.token)
    else:
        lake.touch(replace(ticket, stopped=True))
    return report


def abandon(pipeline: Pipeline, lake: Tickets, table: str, run: str = "") -> tuple[Ticket, ...]:
    """End the runs that were killed with keys of a table that nobody has any more, and return them; journaled.

    Rows of these keys may be left, and nothing says so from then on. `table` is as `status` names it. Raises
    BadSettings where there is no such run, ForgetRefused while one of them may still be at work.
    """
    tickets = [one for one in lake.tickets() if one.table and is_called(table, (one.table,))]
    if not tickets:
        known = ", ".join(sorted({one.table for one in lake.tickets() if one.table})) or "none"
        raise BadSettings(f"no run that forgets rows of {table} has been left unfinished; known are: {known}.")
    if alive := next((one for one in tickets if one.runs()), None):
        raise ForgetRefused(
            f"a run that began at {alive.since} still forgets rows of {table}: it was heard of at {alive.heard}. Wait "
            f"until it has ended; one that was killed is known as such {STALE_SECONDS // 60} minutes after that."
        )
    for one in tickets:
        life = parse_identity(one.life)
        text = f"{counted(one.keys, 'key')} abandoned, of a run that began at {one.since}: rows of them may be left"
        pipeline.journal.note(life, life.born_as, "forget", text, run)
        lake.end(one.token)
    return tuple(tickets)


def _digest(token: str, table: Life, keys: Sequence[Sequence[str]], *, alone: bool) -> str:
    """Return what tells these keys of a table from others, to who has them; it is removed when they are forgotten.

    `alone` is said where others had its name, and keep their rows.
    """
    what = repr((str(table), alone, sorted(map(list, keys)))).encode()
    return hashlib.scrypt(what, salt=token.encode(), n=1 << 12, r=8, p=1).hex()


@dataclass(frozen=True, slots=True)
class _KeyPlaces:
    """The rows of keys, where they may stand: `targets` are tables of the lake, each with the keys as it has them.

    `asked` are the tables of the source that are looked through, each as it is and, where all that had its name are,
    as one of these.
    """

    life: Life
    name: TableId
    names: Collection[TableId]
    alone: bool
    asked: Collection[tuple[Life, bool]]
    count: int
    values: KeyBytes
    targets: Mapping[Life, WantedKeys]
    applied: Mapping[Life, AppliedState]
    landed: LandedRows
    sought: SoughtKeys
    kept_out: ForgottenKeys | None

    @property
    def sources(self) -> Mapping[Life, pa.Table]:
        """The source's tables that the lake's are of."""
        return _by_source(self.targets)

    def is_asked(self, ticket: Ticket, keys: Sequence[Sequence[str]]) -> bool:
        """Return whether a ticket is of a run for these keys of these tables."""
        return any(ticket.plan == _digest(ticket.token, life, keys, alone=alone) for life, alone in self.asked)


def _found(
    pipeline: Pipeline,
    lake: ForgettingLake,
    table: str,
    keys: Sequence[Sequence[str]],
    until: Tso | None,
    name: str,
) -> _KeyPlaces:
    """Find where the rows stand, and raise where they would come back by themselves. Nothing is changed."""
    pipeline.land()
    planned = pipeline.plan(whole=True)[1]
    history = table_called(table, planned.sources, planned)
    schema = _schema(history, planned.applied.get(history.life))
    plain = keys_of(schema, keys, table)
    wanted = masked_keys(plain, schema)
    sources, others = _sources(planned, history, table)
    alone = bool(others)
    targets = {one: _keys_in(keys, columns, one) for one, columns in _targets(planned, sources)}
    _refuse(pipeline, lake, planned, targets, rows_too=until is None)
    values = key_bytes(plain, keys, schema, pipeline.settings.source_options.wire, pipeline.masks.seal)
    sought = SoughtKeys(_by_source(targets), values, _through(planned, targets), -1 if until is None else until)
    landed = find_landed(pipeline, sought)
    landed.refuse_unapplied()
    if pipeline.landing is not None:
        refuse_unread(pipeline.landing, landed, values.may_be_in)
    if until is not None and landed.lost:  # rows that others need stand beside them
        _refuse(pipeline, lake, planned, targets)
    kept_out = None
    if until is not None:
        through = max((planned.applied[one].progress.tso for one in targets), default=0)
        standing = {one.source for one, _ in _targets(planned, others)}
        kept_out = decide(pipeline, history, schema, wanted, sources, through, until, name, standing)
    called = history.last_name or history.life.born_as
    asked = {(one, how) for one in sources for how in {True, alone}}
    names = {name for one in targets for name, _, _ in planned.sources[one.source].names}
    applied = planned.applied
    return _KeyPlaces(
        history.life, called, names, alone, asked, wanted.num_rows, values, targets, applied, landed, sought, kept_out
    )


def _kept_out(pipeline: Pipeline, found: _KeyPlaces, keys: Sequence[Sequence[str]]) -> _KeyPlaces:
    """Keep the keys out if that was decided, and return where their rows may stand then.

    A table that a run creates meanwhile is there now, or is refused the rows that were planned before.
    """
    if found.kept_out is None:
        return found
    pipeline.lake.keep_decision(found.kept_out)
    planned = pipeline.plan(whole=True)[1]
    sources = {life for life, _ in found.asked}
    targets = {one: _keys_in(keys, columns, one) for one, columns in _targets(planned, sources)}
    names = {name for one in targets for name, _, _ in planned.sources[one.source].names}
    return replace(found, targets=targets, names=names, applied=planned.applied)


def _forgotten(
    pipeline: Pipeline,
    lake: ForgettingLake,
    found: _KeyPlaces,
    started: datetime,
    run: str,
    say: Callable[[str], object],
    token: str,
) -> ForgetReport:
    """Take the rows out wherever they stand, and read what is left."""
    mark, removed, kept_out = uuid.uuid4().hex, list[RemovedRows](), found.kept_out
    if kept_out is not None:
        say(f"{counted(found.count, 'key')} kept out {kept_out.until_text}, as {kept_out.name}")
    for one, wanted in found.targets.items():
        say(f"{one}: looking for {counted(wanted.keys.num_rows, 'key')}")
        found, gone = _taken_out(pipeline, lake, found, one, mark, token)
        removed.append(gone)
    remade = lake.follow_tags()

    def has(life: Life, raw: bytes) -> bool:
        return life.source in found.sources and found.values.are_in(raw)

    def may_have(life: Life, raw: bytes) -> bool:
        return life.source in found.sources and found.values.may_be_in(raw)

    stages = lake.forget_stages(found.targets, may_have)
    records, left = tuple(lake.forget_records(has, may_have)), remove_left()
    if pipeline.landing is not None:
        forget_landed(pipeline.landing, found.landed, found.values.may_be_in)
    lives = {*found.targets, *found.sources}
    pipeline.ledger.forget_values(pipeline.settings.name, lives, found.names, mark)
    say("reading what is left")
    landing = pipeline.landing
    searched = (
        *(lake.search(one, wanted) for one, wanted in found.targets.items()),
        lake.search_stages(found.targets, may_have),
        lake.search_records(may_have),
        *([search_landed(pipeline, landing, found.sought)] if landing is not None else []),
    )
    report = ForgetReport(
        changefeed=pipeline.settings.name,
        table=found.name,
        keys=found.count,
        run=run,
        begun=iso_time(started),
        ended=iso_now(),
        removed=tuple(removed),
        searched=searched,
        records=records,
        stages=stages,
        scratch=left,
        messages=len(found.landed.places),
        lost=tuple(sorted(map(str, found.landed.lost))),
        cuts=tuple(remade),
        moved=tuple(sorted({key for one in removed for key in one.moved})),
        feed=_feed(pipeline, kept_out),
        kept_out="" if kept_out is None else kept_out.name,
        until="" if kept_out is None else kept_out.until_text,
    )
    _journal(pipeline, found.life, report, run)
    return report


def _taken_out(
    pipeline: Pipeline, lake: ForgettingLake, found: _KeyPlaces, life: Life, mark: str, token: str
) -> tuple[_KeyPlaces, RemovedRows]:
    """Take the rows out of one table, and return with that where they may stand now.

    Looks again where another writer was first: a run that lives on is so all day, and its windows wait from then on.
    """
    waiting = False
    try:
        for attempt in range(_ATTEMPTS):
            if life not in found.targets:
                break
            at = found.applied[life].progress
            if found.kept_out is not None and at.tso > found.kept_out.until:
                raise ForgetRefused(
                    f"{life} was applied through {at.tso} meanwhile, with rows that are not to be forgotten. Forget "
                    "the keys again, at least --until there.",
                    table=str(life),
                )
            try:
                return found, lake.forget(life, found.targets[life], at, mark, kept_out=found.kept_out is not None)
            except TableMoved:
                if attempt == _ATTEMPTS - 1:
                    raise
            if not waiting:
                lake.hold_back(token, [life])
                waiting = True
            time.sleep(0.2 * 2**attempt)
            found = _as_applied_now(pipeline, lake, found)
        return found, RemovedRows(life)
    finally:
        if waiting:
            with suppress(CdcError):  # else the table waits until the ticket is stale
                lake.hold_back(token, ())


def _as_applied_now(pipeline: Pipeline, lake: ForgettingLake, found: _KeyPlaces) -> _KeyPlaces:
    """Return where rows may stand now, which is not in purged tables.

    Raises ForgetRefused where rows have come that are not applied to all tables, or another DDL is applied.
    """
    planned = pipeline.plan(whole=True)[1]
    left = {life: keys for life, keys in found.targets.items() if not _is_purged(planned.applied[life])}
    found = replace(found, targets=left)
    reasons = _reasons(pipeline, lake, planned, found.targets, rows_too=found.kept_out is None)
    reasons += [
        f"the DDL of version {planned.applied[one].ddl} was applied to {one} meanwhile"
        for one in found.targets
        if planned.applied[one].ddl != found.applied[one].ddl
    ]
    if reasons:
        raise ForgetRefused(
            f"rows are left, as tables have moved on meanwhile:\n{_listed(reasons)}\nApply the changefeed, and run the "
            "same command again: it does what is left."
        )
    return replace(found, applied=planned.applied)


# --- which tables -----------------------------------------------------------------------------------------------------


def _sources(planned: Plan, table: TableHistory, asked: str) -> tuple[set[Life], set[Life]]:
    """Return the tables of the source that are meant, and the others that had the same name.

    By its identity that is one alone; by a name all that had it at some time. Raises ForgetRefused where the columns of
    one of these are not known.
    """
    name = table.last_name
    if name is None:
        return {table.life}, set()
    named = {
        life for life, one in planned.sources.items() if any(known.folded == name.folded for known, _, _ in one.names)
    }
    if is_called(asked, (table.life,)):
        return {table.life}, named - {table.life}
    unknown = (
        life
        for life, state in planned.applied.items()
        if life.source not in planned.sources
        and not _is_purged(state)
        and any(known is not None and known.folded == name.folded for known in (life.born_as, state.name))
    )
    if places := [str(life) for life in sorted(unknown)]:
        raise ForgetRefused(
            f"nothing was forgotten: {first_of(places, 'table')} of the lake had the name {name}, and no schema file "
            "says which columns it has. Restore that, purge it (cdc-assets purge), or forget the rows of one table by "
            f"its identity: {table.life}.",
            table=str(name),
        )
    return {table.life, *named}, set()


def _is_purged(state: AppliedState) -> bool:
    return state.key is None and state.name is None


def _targets(planned: Plan, sources: Collection[Life]) -> Iterator[tuple[Life, TableSchema]]:
    """Yield the lake's tables that may have rows of these tables of the source, with their columns.

    So may history tables of kinds that are switched off.
    """
    lives = {**planned.sources, **planned.history.lives}
    for life, state in sorted(planned.applied.items()):
        if life.source in sources and not _is_purged(state):
            yield life, _schema(lives.get(life) or beside(planned.sources[life.source], life.kind), state)


def _by_source(targets: Mapping[Life, WantedKeys]) -> dict[Life, pa.Table]:
    """Return the keys by the source's tables that the lake's are of."""
    return {life.source: wanted.keys for life, wanted in targets.items()}


def _through(planned: Plan, targets: Collection[Life]) -> dict[Life, Tso]:
    """Return through which position all tables of each table of the source have its rows."""
    found: dict[Life, Tso] = {}
    for life in set(targets).difference(planned.idle):
        progress = planned.applied[life].progress
        through = progress.tso - (progress.phase is Phase.DDL)
        found[life.source] = min(through, found.get(life.source, through))
    return found


def _schema(history: TableHistory, state: AppliedState | None) -> TableSchema:
    """Return the columns of a table as far as its DDL is applied."""
    seen = [event.after for event in history.events if state is not None and event.at <= state.ddl]
    return seen[-1] if seen else history.schema


def _keys_in(keys: Sequence[Sequence[str]], schema: TableSchema, life: Life) -> WantedKeys:
    """Return the keys as a table has them: those that are no value of its key are in none of its rows."""
    if any(len(key) != len(schema.key) for key in keys):
        raise ForgetRefused(
            f"nothing was forgotten: {life} had the same name and has the key ({', '.join(schema.key) or 'none'}), "
            "which the values that came do not fit. Forget the rows of each table by its identity, with keys of its "
            "own.",
            table=str(life),
        )
    fitting = [pa.schema([(name, arrow_type(schema.column(name))) for name in schema.key]).empty_table()]
    try:
        fitting.append(keys_of(schema, keys, str(life)))
    except BadSettings:
        for key in keys:
            with suppress(BadSettings):
                fitting.append(keys_of(schema, [key], str(life)))
    return WantedKeys(masked_keys(pa.concat_tables(fitting), schema), schema.in_lake)


# --- refusals ---------------------------------------------------------------------------------------------------------


def _refuse(
    pipeline: Pipeline,
    lake: ForgettingLake,
    planned: Plan,
    targets: Mapping[Life, WantedKeys],
    *,
    rows_too: bool = True,
) -> None:
    """Raise ForgetRefused where there is a reason not to begin."""
    if reasons := _reasons(pipeline, lake, planned, targets, rows_too=rows_too):
        otherwise = " Rows that are not applied yet do not matter where the keys are kept out (until)."
        raise ForgetRefused(
            f"nothing was forgotten:\n{_listed(reasons)}\nApply the changefeed first, and forget the rows then."
            f"{otherwise if rows_too else ''}"
        )


def _listed(reasons: Sequence[str]) -> str:
    return "\n".join(f"- {one}" for one in dict.fromkeys(reasons))


def _reasons(
    pipeline: Pipeline,
    lake: ForgettingLake,
    planned: Plan,
    targets: Mapping[Life, WantedKeys],
    *,
    rows_too: bool,
) -> list[str]:
    """Return why rows would come back: old snapshots are needed, DDL is due or, with `rows_too`, input that has keys.

    A DDL that is not applied may replace a table with rows that were read before they are forgotten.
    """
    reasons = [sentence for life, sentence in lake.unfinished().items() if life in targets]
    sources = _by_source(targets)
    for step in planned.steps:
        exchanged = {step.other.source} if isinstance(step, ExchangePartition) else set()
        if sources.keys().isdisjoint({step.life.source, *exchanged}) or isinstance(step, TagTable):
            continue
        if isinstance(step, (HoldTable, ApplyRows)) and not rows_too:
            continue
        if isinstance(step, HoldTable):
            reasons.append(f"{step.life} is held at {step.at}, and what comes after that may have them: {step.reason}")
        elif isinstance(step, ApplyRows):
            reasons += _unapplied(pipeline, step, sources[step.life.source])
        elif step.life in planned.applied:
            reasons.append(f"the DDL of version {step.at} is not applied to {step.life} yet")
    return reasons


def _unapplied(pipeline: Pipeline, step: ApplyRows, keys: pa.Table) -> Iterator[str]:
    """Say which files of a window have rows of the keys, or records of which that is not known."""
    names = list(step.schema.key)
    if len(names) != keys.num_columns:
        yield f"rows of {step.life} that are not applied yet have the key ({', '.join(names)})"
        return
    for place, file in enumerate(step.files):
        try:
            window = decode_window(step, pipeline.source.reader, [place], quarantine=True)
        except (FileNotFoundError, CdcError) as error:
            yield f"it is not known whether {file.path} has rows of the keys: {error}"
            continue
        changes = window.changes
        wanted = keys.rename_columns(names).cast(pa.schema([changes.schema.field(name) for name in names]))
        if of_keys(changes, wanted, step.schema).num_rows:
            yield f"{file.path} has rows of the keys that are not applied to {step.life} yet"
        elif window.report.reject_count:
            records = counted(window.report.reject_count, "record")
            yield f"{file.path} has {records} that cannot be read and that {step.life} has not: they may have the keys"


# --- what is said -----------------------------------------------------------------------------------------------------


def _feed(pipeline: Pipeline, kept_out: ForgottenKeys | None) -> str:
    """Return what of the input may bring the rows back, and for how long."""
    days = pipeline.settings.source_options.retention_days
    how_long = f"for {counted(days, 'day')}, until its writer removes them" if days else "for as long as it is kept"
    there = (
        f"the feed itself ({pipeline.settings.uri}), and dumps that it was joined with, are not written to: they have "
        f"the rows {how_long}"
    )
    if kept_out is None:
        return f"{there}. Until then a rebuild brings them back, and so does a kind of history that is switched on."
    landed = "" if pipeline.landing is None else " Messages that come later are landed with them, until they expire."
    return f"{there}. What is read of them is left out {kept_out.until_text}, as {kept_out.name} says.{landed}"


def _journal(pipeline: Pipeline, life: Life, report: ForgetReport, run: str) -> None:
    text = f"{counted(report.keys, 'key')}, {counted(report.copies, 'copy', 'copies')} of their rows"
    text += f"; kept out {report.until} as {report.kept_out}" if report.kept_out else ""
    pipeline.journal.note(life, report.table, "forget", text, run)
