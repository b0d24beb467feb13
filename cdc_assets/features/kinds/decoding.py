"""Kinds of tables: how changes are reduced, shared, counted and staged. Runs on executors and in tests alike."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_assets.decoding.own_columns import LAST_CHANGE, OwnColumn
from cdc_assets.decoding.split import TableKind
from cdc_assets.features.kinds.keyed import decoding as keyed
from cdc_assets.features.kinds.log import decoding as log
from cdc_assets.features.kinds.multiset import decoding as multiset
from cdc_assets.features.kinds.scd2 import decoding as scd2
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.steps import ApplyRows

__all__ = [
    "history_kind",
    "keeps_states",
    "kind_of",
    "mirror_kind",
    "own_columns",
    "partition_column",
]


_HISTORY: Mapping[str, TableKind] = {"log": log.KIND, "scd2": scd2.KIND}


def history_kind(name: str) -> TableKind:
    """Return the kind of history tables of that name."""
    return _HISTORY[name]


def kind_of(step: ApplyRows) -> TableKind:
    """Return the kind of the table to which a step's rows go: a history table's own, else what its key makes it."""
    return _HISTORY[step.life.kind] if step.life.kind else mirror_kind(step.schema)


def mirror_kind(schema: TableSchema) -> TableKind:
    """Return the kind of a table that is as the source has it."""
    return keyed.KIND if schema.key else multiset.KIND


def own_columns(kind: str) -> tuple[OwnColumn, ...]:
    """Return the columns that tables of a history kind ("": mirrors) have after those of the source."""
    return _HISTORY[kind].OWN if kind else (LAST_CHANGE,)


def keeps_states(kind: str) -> bool:
    """Return whether tables of a history kind ("": mirrors) have the states of rows, with their beginning and end."""
    return bool(kind) and _HISTORY[kind].ENDS


def partition_column(kind: str) -> str:
    """Return the column by whose being NULL a table of a history kind ("": mirrors) is partitioned, "" for none."""
    return _HISTORY[kind].PARTITION if kind else ""
