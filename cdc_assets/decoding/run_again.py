"""Transactions of tables without key that may stand twice in a partition, as nothing between them shows.

A sender that begins anew sends its last transaction again. Where a mark lies between, or an older transaction comes
first, that is a delivery of its own. Else the transaction's rows run once more behind the first of them, as they do
where a transaction itself writes equal rows: nobody can tell, so they are counted for a person.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from cdc_assets.decoding import DELIVERY, FILE
from cdc_assets.formats import LINE, OP
from cdc_assets.model.splits import DataFile

_TRIED = 1000
"""Places where a run may begin again that are looked at in a transaction."""


def count_run_again(
    changes: pl.DataFrame, several: pl.DataFrame, position: str, row: Sequence[pl.Expr], files: Sequence[DataFile]
) -> int:
    """Return how many rows are the first run of a transaction that comes once more behind it.

    `several` are the rows that a delivery has more than once, with DELIVERY, the column `position` and FILE, which
    numbers `files`. `row` are the values that make a row.
    """
    transaction = (DELIVERY, position)
    logs = [number for number, file in enumerate(files) if file.in_log]
    doubtful = several.filter(pl.col(FILE).is_in(logs)).select(transaction).unique()
    if doubtful.is_empty():
        return 0
    doubtful_changes = changes.join(doubtful, on=transaction, how="semi", nulls_equal=True).sort(FILE, LINE, OP)
    coded = doubtful_changes.select(*transaction, pl.struct(pl.col(OP), *row).hash().alias("_cdc_code"))
    runs = coded.group_by(transaction, maintain_order=True).agg(pl.col("_cdc_code")).get_column("_cdc_code")
    return sum(first_run(codes.to_numpy()) for codes in runs)


def first_run(codes: npt.NDArray[np.uint64]) -> int:
    """Return the length of the shortest beginning that is followed by itself, 0 where none is."""
    again = np.flatnonzero(codes[1 : len(codes) // 2 + 1] == codes[:1]) + 1
    for start in again[:_TRIED].tolist():
        if np.array_equal(codes[:start], codes[start : 2 * start]):
            return int(start)
    return 0
