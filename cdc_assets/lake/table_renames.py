"""Renames in the catalog that give tables the names that they should have."""

from __future__ import annotations

import time

from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

from cdc_assets.errors import LakeUnavailable, TableMoved
from cdc_assets.lake.failures import answering
from cdc_assets.lake.names import Move, moves
from cdc_assets.lake.state import LakeState
from cdc_assets.model.progress import Life


def apply_renames(state: LakeState, proven: Life | None = None) -> None:
    """Rename every table to the name that it should have; one whose name is still taken waits where it is.

    Which those are is known from the last look; of a table other than `proven`, whose wanted name was just committed,
    it is asked again before it is renamed.
    """
    silent: LakeUnavailable | None = None
    for attempt in range(5):
        due = _moves(state)
        for namespace in sorted({move.target[0] for move in due}):
            state.ensure_namespace(namespace)
        try:
            with answering():
                for move in due:
                    if move.life != proven:
                        _refuse_stale(state, move)
                    state.rename(move.life, move.source, move.target)
        except (NoSuchTableError, TableAlreadyExistsError, LakeUnavailable) as error:
            state.discard_listing()
            silent = error if isinstance(error, LakeUnavailable) else None
            time.sleep(0.05 * 2**attempt)  # another run settles too
            continue
        return
    if silent is not None:
        raise silent
    raise TableMoved("another run is renaming tables. Plan again.")


def _refuse_stale(state: LakeState, move: Move) -> None:
    """Raise NoSuchTableError if another run has renamed a table since it was seen, or is about to."""
    seen, now = state.seen(move.life), state.where_it_was(move.life)
    if seen is None or now is None or now.name != seen.name:
        raise NoSuchTableError(f"{move.life} is no longer what it was")


def _moves(state: LakeState) -> list[Move]:
    """Return the renames that are due as far as is known, in order."""
    tables = state.known()
    now = {life: lake_table.identifier for life, lake_table in tables.items()}
    targets = {
        life: state.places.aside(life) if lake_table.name is None else state.places.home(lake_table.name)
        for life, lake_table in tables.items()
    }
    if now == targets:
        return []
    waiting = {life: state.places.waiting(life) for life in tables}
    return moves(now, targets, waiting, state.listed())
