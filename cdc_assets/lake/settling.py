"""Renames in the catalog that give tables the names that they should have."""

from __future__ import annotations

import time

from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

from cdc_assets.errors import LakeUnavailable, TableMoved
from cdc_assets.lake.failures import answering
from cdc_assets.lake.names import Move, moves
from cdc_assets.lake.state import LakeState

__all__ = ["settle_names"]


def settle_names(state: LakeState) -> None:
    """Rename every table to the name that it should have; one whose name is still taken waits where it is."""
    silent: LakeUnavailable | None = None
    for attempt in range(5):
        due = _moves(state)
        for namespace in sorted({move.target[0] for move in due}):
            state.ensure_namespace(namespace)
        try:
            with answering():
                for move in due:
                    state.rename(move.life, move.source, move.target)
        except (NoSuchTableError, TableAlreadyExistsError, LakeUnavailable) as error:
            state.forget_listing()
            silent = error if isinstance(error, LakeUnavailable) else None
            time.sleep(0.05 * 2**attempt)  # another run settles too
            continue
        return
    if silent is not None:
        raise silent
    raise TableMoved("another run is renaming tables. Plan again.")


def _moves(state: LakeState) -> list[Move]:
    """Return the renames that are due now, in order."""
    tables = state.standing()
    now = {life: held.identifier for life, held in tables.items()}
    wanted = {
        life: state.places.aside(life) if held.name is None else state.places.home(held.name)
        for life, held in tables.items()
    }
    if now == wanted:
        return []
    waiting = {life: state.places.waiting(life) for life in tables}
    return moves(now, wanted, waiting, state.listed())
