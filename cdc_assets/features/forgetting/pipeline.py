"""Forgotten keys in runs and looks: the plans that they make outdated, and the values that nobody may see."""

from __future__ import annotations

from cdc_assets.model.decisions import Decisions
from cdc_assets.model.forgetting import kept_out
from cdc_assets.model.table_history import TableHistory
from cdc_assets.pipeline.features import RunFeature


def _hides(decided: Decisions | None, table: TableHistory) -> bool:
    """Return whether a table has rows that are kept out, or may have: what does not fit may be one of them."""
    if decided is None:
        return True
    names = [name for name, _, _ in table.names]
    return any(decision.concerns(table.life, names) for decision in kept_out(decided))


RUN = RunFeature(anew=True, precondition=kept_out, hides=_hides)
