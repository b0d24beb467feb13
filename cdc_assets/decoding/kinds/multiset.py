"""Tables without a key: what remains of a window is how many equal rows enter or leave.

Only all files of a window together tell what was delivered twice, so one task reads them all.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import COUNT
from cdc_assets.model.schema import TableSchema

__all__ = ["EQUAL_ROWS", "LANDS", "NAME", "STAGED", "bounds", "count_directions", "split"]

NAME = "multiset"
EQUAL_ROWS = True
LANDS = False
STAGED: Mapping[str, str] = {COUNT: "bigint"}
split = None


def count_directions(changes: pa.Table) -> tuple[int, int]:
    """Return how many rows enter and how many leave, equal ones counted."""
    counts = changes.column(COUNT)
    entering = pc.sum(pc.if_else(pc.greater(counts, 0), counts, 0)).as_py() or 0
    return entering, entering - (pc.sum(counts).as_py() or 0)


def bounds(changes: pa.Table, schema: TableSchema) -> dict[str, tuple[int, int]]:
    """Return nothing: rows are found by all of their values."""
    return {}
