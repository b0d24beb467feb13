"""Choose the position of a cut, and find the tables that are absent from it or delay it. Pure.

A table is at a cut when nothing of it that is at or below the cut's position is due: then its snapshot has the tag. One
that is beyond it without the tag was moved by a run that began before the cut was decided, or was swapped in by a
rebuild, and no snapshot of it is the state at the cut. One that is not exactly its source there is absent, unless a
person let it go on so.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from cdc_assets.model.cuts import Cut, CutBlock, CutRequest, CutTable, is_unnamed
from cdc_assets.model.gaps import Deficit, lacking_text
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.table_history import History
from cdc_assets.model.tso import Tso, last_tso
from cdc_assets.planning.plan import Plan


def cut_position(
    applied: Mapping[Life, AppliedState], checkpoint: Tso, earlier: Iterable[Tso] = (), preferred: Tso | None = None
) -> Tso:
    """Return the position of a new cut: at or above every label and every `earlier` cut, at or below the checkpoint.

    That is `preferred` if it is possible. Else it is just below the checkpoint: a DDL of the checkpoint's own TSO may
    be published after it. Where a table is at the checkpoint already, it is the checkpoint.
    """
    least = max([0, *(state.progress.tso for state in applied.values()), *earlier])
    positions = (
        position for position in (preferred, checkpoint - 1) if position is not None and least <= position <= checkpoint
    )
    return next(positions, checkpoint)


def due_position(
    every_seconds: int, checkpoint: Tso, made: Iterable[tuple[str, Tso]], begun: Iterable[Tso]
) -> Tso | None:
    """Return the position of the regular cut that is due, None where the newest one is not that old.

    Those are at multiples of the interval since 1970, UTC. `made` are names and positions of cuts; what people named
    does not count. `begun` are the positions at which the tables begin: from before all of these there is no cut.
    """
    every_ms = every_seconds * 1000
    due = last_tso((checkpoint >> 18) // every_ms * every_ms)
    if due > checkpoint:
        due = last_tso((due >> 18) - every_ms)
    newest = max((at for name, at in made if is_unnamed(name)), default=-1)
    return due if newest < due and any(position <= due for position in begun) else None


def cut_members(history: History, at: Tso) -> dict[Life, TableId]:
    """Return the tables that exist at a position, with their names then; history tables have names of their own."""
    names = {}
    for life, table in history.lives.items():
        if table.name_at(at) is not None and at >= (table.begins or 0):
            names[life] = table.called_at(at)
    return names


def blocks(
    cut: CutRequest,
    planned: Plan,
    applied: Mapping[Life, AppliedState],
    lacks: Mapping[Life, Sequence[Deficit]],
    tagged: Container[Life] = (),
) -> tuple[CutBlock, ...]:
    """Return the reasons why a cut cannot be made yet.

    `applied` is as of now, the plan may be older. `lacks` says why tables are not exactly their source at the cut:
    those are absent unless the cut has to be whole. Those that are `tagged` have got there.
    """
    cut_blocks = []
    for life, name in cut_members(planned.history, cut.at).items():
        state = applied.get(life)
        if _is_absent(lacks.get(life, ())):
            cut_blocks += [CutBlock(life, name, lacking_text(lacks[life]))] if cut.whole else []
        elif life in tagged:
            continue
        elif life.version > cut.at:
            cut_blocks.append(
                CutBlock(life, name, f"the feed first tells its columns at {life.version}, after the cut", across=True)
            )
        elif state is not None and state.progress.tso > cut.at:
            cut_blocks.append(CutBlock(life, name, _across(state.progress.tso), across=True))
        else:
            through = 0 if state is None else state.progress.tso
            cut_blocks.append(CutBlock(life, name, f"it is behind, applied through {through} so far", waits=True))
    gone = _gone(cut, planned, applied) if cut.whole else {}
    return (*cut_blocks, *(CutBlock(life, name, _GONE) for life, name in gone.items()))


def _is_absent(lacks: Sequence[Deficit]) -> bool:
    return not all(deficit.accepted for deficit in lacks)


def _gone(cut: CutRequest, planned: Plan, applied: Mapping[Life, AppliedState]) -> dict[Life, TableId]:
    """Return the tables of the lake that the feed does not have any more, with their names there."""
    lives = {*planned.history.lives, *planned.idle}
    names = {life: applied[life].name for life in sorted(applied.keys() - lives)}
    return {life: name for life, name in names.items() if name is not None}


_GONE = "it is in the lake, and the feed has no schema file of it any more"
_OFF = "the settings (history, tables) do not ask for it, so nothing is applied to it"


def _across(progress: Tso) -> str:
    return (
        f"it is applied through {progress} by a run that began before the cut was decided, or by a rebuild, so no "
        "snapshot is its state at the cut"
    )


def cut_tables(
    cut: CutRequest,
    planned: Plan,
    snapshots: Mapping[Life, tuple[int, Tso]],
    lacks: Mapping[Life, Sequence[Deficit]],
) -> tuple[CutTable, ...]:
    """Return the tables of a cut by name; `snapshots` are those with its tag, each with its label.

    `lacks` says why tables are not exactly their source there.
    """
    tables = []
    for life, name in sorted(cut_members(planned.history, cut.at).items(), key=lambda member: (member[1], member[0])):
        text = lacking_text(lacks.get(life, ()))
        if _is_absent(lacks.get(life, ())):
            tables.append(CutTable(life, name, None, None, lacks=text))
        else:
            tables.append(CutTable(life, name, *snapshots[life], lacks=text))
    for life in sorted(planned.idle):
        state = planned.applied.get(life)
        if state is not None and state.name is not None:
            tables.append(CutTable(life, state.name, None, None, _OFF))
    gone = _gone(cut, planned, planned.applied)
    return (*tables, *(CutTable(life, name, None, None, lacks=_GONE) for life, name in gone.items()))


def expired_cuts(cuts: Iterable[Cut], keep: int | None) -> tuple[Cut, ...]:
    """Return the cuts that are not among the newest `keep` of those that nobody named; None keeps all."""
    unnamed = sorted((cut for cut in cuts if is_unnamed(cut.name)), key=lambda cut: cut.at, reverse=True)
    return () if keep is None else tuple(unnamed[keep:])
