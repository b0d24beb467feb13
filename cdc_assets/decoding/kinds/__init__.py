"""Kinds of tables: how changes are reduced, shared, counted and staged. Runs on Spark executors and in tests alike.

    keyed       one row per key: the last change of a key counts
    multiset    a table without key: how many equal rows enter or leave
    log         a table beside one of these: every change
    scd2        a table beside one with a key: every state

A kind is a module here, with the names of `TableKind`, and a module of the same name in `lake/writers`, which takes its
changes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from cdc_assets.decoding.kinds import keyed, log, multiset, scd2
from cdc_assets.decoding.own_columns import LAST_CHANGE, OwnColumn
from cdc_assets.decoding.split import Split
from cdc_assets.decoding.states import END_TS
from cdc_assets.model.reports import Report
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows

__all__ = [
    "DeliveryNumbers",
    "HistoryKind",
    "TableKind",
    "history_kind",
    "keeps_states",
    "kind_of",
    "mirror_kind",
    "own_columns",
    "partition_column",
]


class DeliveryNumbers(Protocol):
    """Numbers which rows of a step were delivered together; its files have to come in their order."""

    joints: list[str]
    """Paths of files that may begin within the transaction in which the file before them ended."""

    def number(self, split: Split) -> Split:
        """Add DELIVERY to the changes of a file."""


class TableKind(Protocol):
    """What modules of this folder have in common."""

    NAME: str
    """The name of the module, by which its writer is found."""

    EQUAL_ROWS: bool
    """Rows may be equal: a row that leaves is found by its values, and what comes twice is known by its count only."""

    LANDS: bool
    """The rows that enter an empty table are data files of it, as they are."""

    APPENDS: bool
    """What enters a table is data files of it, as it is, whatever rows the table has."""

    ENDS: bool
    """A change writes the row before it again, with its end: how many rows a window writes is not known from it."""

    PLACES: bool
    """Changes have PLACE, and one whose input does not tell inserts from updates is an Op.UPDATE."""

    OWN: tuple[OwnColumn, ...]
    """The columns that its tables have after those of the source."""

    STAGED: Mapping[str, str]
    """Columns that a staged change has beside those of every kind, with their types in Spark."""

    @property
    def deliveries(self) -> Callable[[ApplyRows], DeliveryNumbers | None] | None:
        """Begins to number the deliveries of a step; None, and giving None, where reducing does not ask for them."""

    def shares(self, schema: TableSchema) -> bool:
        """Return whether several tasks may share a window; else one has to read it alone."""

    def split(self, changes: pa.Table, schema: TableSchema, buckets: int) -> list[pa.Table]:
        """Cut reduced changes into that many buckets of what is to be reduced together, the same whoever does."""

    def reduce(
        self, changes: pa.Table, schema: TableSchema, table: TableId, files: Sequence[DataFile] = ()
    ) -> tuple[pa.Table, Report]:
        """Return what is left of a window's changes, which are not none, and what is to be reported of them.

        `files` are those that FILE numbers. Raises TableHeld for changes that the kind cannot take.
        """

    def finished(self, changes: pa.Table, step: ApplyRows) -> pa.Table:
        """Return what a table takes in of reduced changes, when nothing more is reduced with them."""

    def apart(self, changes: pa.Table, step: ApplyRows, empty: bool) -> tuple[pa.Table, pa.Table]:
        """Return which finished changes are rows of the table as they are, and which are to be staged.

        That is asked where LANDS, for a table that is `empty`, or APPENDS.
        """

    def replayed(self, net: pa.Table, others: Callable[[], pa.Table], schema: TableSchema) -> pa.Table:
        """Return what a table takes in of records that fit now, of a window's reduced changes.

        `net` is all of the window with the records in it, `others` gives it without them.
        """

    def of_keys(self, changes: pa.Table, keys: pa.Table, schema: TableSchema) -> pa.Table:
        """Return those of the changes that may be of rows with these `keys`: the columns of the schema's key."""

    def count_directions(self, changes: pa.Table) -> tuple[int, int]:
        """Return how many rows of reduced changes enter and how many leave."""

    def bounds(self, changes: pa.Table, schema: TableSchema) -> dict[str, tuple[int, int]]:
        """Return the lowest and highest value of columns by which files of the table can be left out."""


class HistoryKind(TableKind, Protocol):
    """What kinds of tables have that stand beside a mirror."""

    PARTITION: str
    """The column by whose being NULL files are kept apart, "" for none."""

    def refuses(self, schema: TableSchema) -> str:
        """Return why a table of these columns cannot have one, a sentence; "" if it can."""


_HISTORY: Mapping[str, HistoryKind] = {"log": log, "scd2": scd2}


def history_kind(name: str) -> HistoryKind:
    """Return the kind of history tables of that name."""
    return _HISTORY[name]


def kind_of(step: ApplyRows) -> TableKind:
    """Return the kind of the table to which a step's rows go: a history table's own, else what its key makes it."""
    return _HISTORY[step.life.kind] if step.life.kind else mirror_kind(step.schema)


def mirror_kind(schema: TableSchema) -> TableKind:
    """Return the kind of a table that is as the source has it."""
    return keyed if schema.key else multiset


def own_columns(kind: str) -> tuple[OwnColumn, ...]:
    """Return the columns that tables of a history kind ("": mirrors) have after those of the source."""
    return _HISTORY[kind].OWN if kind else (LAST_CHANGE,)


def keeps_states(kind: str) -> bool:
    """Return whether tables of a history kind ("": mirrors) have the states of rows, with their beginning and end."""
    return bool(kind) and END_TS in {column.name for column in _HISTORY[kind].OWN}


def partition_column(kind: str) -> str:
    """Return the column by whose being NULL a table of a history kind ("": mirrors) is partitioned, "" for none."""
    return _HISTORY[kind].PARTITION if kind else ""
