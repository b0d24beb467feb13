"""Find tables with due work, and group them into runs. Pure: no I/O, no clock, no Dagster.

    Plan ──▶ families ──▶ Due ──── without busy and waiting ones ───▶ batches ──▶ one run each
                           └ its mark stays the same until a table moves: so attempts in vain are counted

A family are the tables that exchange names or rows: they are applied together. The sensor keeps for each mark when and
how often it requested a run; a mark that is no longer due has moved, and is forgotten.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows, DropTable, ExchangePartition, HoldTable, Step
from cdc_assets.model.table_history import History
from cdc_assets.model.tso import Tso
from cdc_assets.planning.plan import Plan

MARK_SIGNS = 6
"""The length of a mark in characters."""


@dataclass(frozen=True, slots=True)
class Due:
    """Tables of one family that have something to do before any hold.

    `mark` names their next steps; `since` is the TSO from which they are behind; `file_bytes` is what is to be read.
    """

    lives: tuple[Life, ...]
    mark: str
    since: Tso
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request: when (seconds since 1970), which attempt it is for the same marks, and the marks."""

    at: int
    attempt: int
    marks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunBatch:
    """One run. `everything` includes all tables, also those that become due meanwhile; else only `dues`."""

    dues: tuple[Due, ...]
    attempt: int = 1
    everything: bool = False

    @property
    def lives(self) -> tuple[Life, ...]:
        """The tables that are known to be due."""
        return tuple(life for due in self.dues for life in due.lives)

    @property
    def since(self) -> Tso:
        """The TSO from which its oldest table is behind."""
        return min(due.since for due in self.dues)


def families(history: History) -> Mapping[Life, tuple[Life, ...]]:
    """Return, by life, all lives that it ever exchanges names or rows with, itself included, in a stable order."""
    root: dict[Life, Life] = {life: life for life in history.lives}

    def found(life: Life) -> Life:
        while root[life] != life:
            root[life] = life = root[root[life]]
        return life

    holder: dict[TableId, Life] = {}
    for life, table in history.lives.items():
        for name, _, _ in table.names:
            root[found(life)] = found(holder.setdefault(name.folded, life))
        for _, other in table.exchanges:
            if other in root:
                root[found(life)] = found(other)
    members: dict[Life, list[Life]] = {}
    for life in history.lives:
        members.setdefault(found(life), []).append(life)
    return {life: tuple(sorted(members[found(life)])) for life in history.lives}


def steps_of(planned: Plan, lives: Collection[Life]) -> list[Step]:
    """Return the steps of some tables, in order.

    One that exchanges rows with a table that is left out, and not as far yet, stops before that: it would get its rows
    from before the windows that are due. So does one before it is dropped, while a table beside it is to be made.
    """
    steps, passed_over, made = list[Step](), dict[Life, Tso](), planned.made_beside
    for step in planned.steps:
        waits = isinstance(step, ExchangePartition) and passed_over.get(step.other, step.at) < step.at
        waits = waits or isinstance(step, DropTable) and not passed_over.keys().isdisjoint(made.get(step.life, ()))
        if step.life in lives and step.life not in passed_over and not waits:
            steps.append(step)
        else:
            passed_over.setdefault(step.life, step.at)
    return steps


def due(planned: Plan, reported: Mapping[str, str] | None = None) -> tuple[Due, ...]:
    """Return the tables that have steps before any hold, in the order of the plan.

    `reported` are the holds that were already reported, the reason by the text of the life: a hold that is not reported
    yet is due too, once.
    """
    reported = reported or {}
    first: dict[Life, Step] = {}
    bytes_of: dict[Life, int] = {}
    for step in planned.steps:
        first.setdefault(step.life, step)
        if isinstance(step, ApplyRows):
            bytes_of[step.life] = bytes_of.get(step.life, 0) + sum(file.size for file in step.files)
    family = families(planned.history)
    together: dict[tuple[Life, ...], list[Life]] = {}
    for life, step in first.items():
        if not isinstance(step, HoldTable) or reported.get(str(life)) != step.reason:
            together.setdefault(family[life], []).append(life)
    return tuple(
        Due(
            tuple(lives),
            _mark([first[life] for life in lives]),
            min(_since(first[life]) for life in lives),
            sum(bytes_of.get(life, 0) for life in lives),
        )
        for lives in together.values()
    )


def _since(step: Step) -> Tso:
    return step.lo if isinstance(step, ApplyRows) else step.at


def _mark(steps: Iterable[Step]) -> str:
    """Return six characters that change when one of the tables moves or its next step changes."""
    parts = sorted(
        (str(s.life), type(s).__name__, _since(s), *((s.ddl, s.sets_aside) if isinstance(s, ApplyRows) else ()))
        for s in steps
    )
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=4).digest()
    return base64.urlsafe_b64encode(digest)[:MARK_SIGNS].decode()


# --- asking again -----------------------------------------------------------------------------------------------------


def backoff_seconds(attempt: int, first: int, most: int) -> int:
    """Return the seconds that a table waits after its nth failed attempt: doubled each time, at most `most`."""
    return min(most, first << min(attempt - 1, 30))


def backoff(attempts: Iterable[Attempt], now: int, first: int, most: int) -> dict[str, int]:
    """Return the marks that wait, with the second (since 1970) at which they may be requested again."""
    until = {
        mark: attempt.at + backoff_seconds(attempt.attempt, first, most)
        for attempt in attempts
        for mark in attempt.marks
    }
    return {mark: at for mark, at in until.items() if at > now}


def open_attempts(attempts: Iterable[Attempt], dues: Iterable[Due], again: Iterable[str]) -> tuple[Attempt, ...]:
    """Return the attempts to remember: marks that are still due, except those that are requested `again` now."""
    marks = {due.mark for due in dues} - set(again)
    remaining_attempts = (
        Attempt(attempt.at, attempt.attempt, tuple(mark for mark in attempt.marks if mark in marks))
        for attempt in attempts
    )
    return tuple(attempt for attempt in remaining_attempts if attempt.marks)


# --- runs -------------------------------------------------------------------------------------------------------------


def batches(
    ready: Sequence[Due],
    attempt_of: Callable[[Due], int],
    *,
    tables: int,
    file_bytes: int,
    everything: bool,
) -> tuple[RunBatch, ...]:
    """Group tables: those with little to read share a run, one with more than `file_bytes` has its own.

    Tables with failed attempts are separated from the rest, in ever smaller runs, so that one that fails its whole run
    is isolated and the others go on. With `everything`, a rest that fits into one run includes all tables. Ordered by
    how long they have been behind, longest first.
    """
    fresh = [due for due in ready if attempt_of(due) == 1]
    small = [due for due in fresh if due.file_bytes <= file_bytes]
    made = [RunBatch((due,)) for due in fresh if due.file_bytes > file_bytes]
    shared = _shared(small, tables, file_bytes)
    if len(shared) == 1 and everything:
        shared = [RunBatch(shared[0].dues, everything=True)]
    made += shared
    for attempt in sorted({attempt_of(due) for due in ready} - {1}):
        again = [due for due in ready if attempt_of(due) == attempt]
        made += _shared(again, max(1, tables >> 2 * (attempt - 1)), file_bytes, attempt)
    return tuple(sorted(made, key=lambda batch: batch.since))


def _shared(dues: Iterable[Due], tables: int, file_bytes: int, attempt: int = 1) -> list[RunBatch]:
    groups: list[list[Due]] = []
    count = size = 0
    for due in dues:
        count, size = count + len(due.lives), size + due.file_bytes
        if not groups or count > tables or size > file_bytes:
            groups.append([])
            count, size = len(due.lives), due.file_bytes
        groups[-1].append(due)
    return [RunBatch(tuple(group), attempt) for group in groups]
