"""Writers of staged changes, by the kind of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyspark.sql import DataFrame

from cdc_assets.features.kinds.decoding import kind_of
from cdc_assets.features.kinds.keyed import lake as keyed
from cdc_assets.features.kinds.log import lake as log
from cdc_assets.features.kinds.multiset import lake as multiset
from cdc_assets.features.kinds.scd2 import lake as scd2
from cdc_assets.lake.commit import CommitTarget, DdlStep, MovedRows
from cdc_assets.lake.staging.stage import Batch
from cdc_assets.model.reports import AlikeKeys
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso

__all__ = ["WRITERS", "HistoryWriter", "Writer", "history_writer", "writer_of"]


class Writer(Protocol):
    """The interface of this folder's modules."""

    def write(self, target: CommitTarget, changes: DataFrame, step: ApplyRows, batch: Batch) -> int:
        """Write staged changes in the step's session: columns `c0`, `c1`, … in table order, and those of the kind.

        Returns how many were passed over because the row that they leave columns of is not there. Raises TableHeld for
        changes that the table's rows contradict.
        """

    def alike_keys(self, target: CommitTarget, changes: Callable[[], DataFrame], schema: TableSchema) -> AlikeKeys:
        """Count the new keys of reduced changes that equal a row's key by collation only."""


class HistoryWriter(Writer, Protocol):
    """The interface of the modules for history tables."""

    @property
    def ASKS(self) -> tuple[type, ...]:  # noqa: N802  # a constant of each module
        """The steps for which they ask what the mirrors had before a DDL."""

    def moved(self, target: CommitTarget, step: DdlStep, rows: MovedRows) -> Callable[[], None] | None:
        """Return a function that writes the effect of a DDL on rows in the step's session; None if there is none."""

    def begun(self, target: CommitTarget, at: Tso) -> Callable[[], None] | None:
        """Return a function that takes what was before a position out of a table that begins there; None for nothing.

        Args:
            target: The table, with all rows through that position.
            at: The version of the RENAME with which it begins.
        """

    def rewritten(self, target: CommitTarget, step: DdlStep, rows: MovedRows, table: DataFrame) -> DataFrame:
        """Return the rows of the `table` with that effect, where all of them are written anew."""


_HISTORY: dict[str, HistoryWriter] = {"log": log, "scd2": scd2}
WRITERS: dict[str, Writer] = {"keyed": keyed, "multiset": multiset, **_HISTORY}


def history_writer(kind: str) -> HistoryWriter:
    """Return the writer for history tables of a kind."""
    return _HISTORY[kind]


def writer_of(step: ApplyRows) -> Writer:
    """Return the writer for the table of a step, by its kind."""
    return WRITERS[kind_of(step).NAME]
