"""How staged changes become rows of a table: a module for each kind of table (`decoding/kinds`), with the same names.

keyed       MERGE by key
multiset    equal rows enter and leave by count
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cdc_assets.decoding.kinds import kind_of
from cdc_assets.lake.writers import keyed, multiset

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from cdc_assets.lake.commit import Target
    from cdc_assets.lake.staging.stage import Batch
    from cdc_assets.model.reports import AlikeKeys
    from cdc_assets.model.schema import TableSchema
    from cdc_assets.model.steps import ApplyRows

__all__ = ["WRITERS", "Writer", "writer_of"]


class Writer(Protocol):
    """What modules of this folder have in common."""

    def write(self, target: Target, changes: DataFrame, step: ApplyRows, batch: Batch) -> None:
        """Write staged changes in the step's session: columns `c0`, `c1`, … in table order, and those of their kind.

        Raises TableHeld for changes that the table's rows contradict.
        """

    def alike_keys(self, target: Target, changes: Callable[[], DataFrame], schema: TableSchema) -> AlikeKeys:
        """Count the keys of reduced changes that are new and meet a row whose key only its collation makes equal."""


WRITERS: dict[str, Writer] = {"keyed": keyed, "multiset": multiset}


def writer_of(schema: TableSchema) -> Writer:
    """Return what writes to tables of that schema's kind."""
    return WRITERS[kind_of(schema).NAME]
