"""Tables with a key: at most one change per key is left of a window, whoever reads it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.dedupe import split_by_key
from cdc_assets.formats import OP
from cdc_assets.model.schema import TableSchema

__all__ = ["EQUAL_ROWS", "LANDS", "NAME", "STAGED", "bounds", "count_directions", "split"]

NAME = "keyed"
EQUAL_ROWS = False
LANDS = True
STAGED: Mapping[str, str] = {}
split = split_by_key


def count_directions(changes: pa.Table) -> tuple[int, int]:
    """Return how many keys get a row, and how many lose theirs."""
    entering = pc.sum(pc.greater(changes.column(OP), pa.scalar(0, pa.int8()))).as_py() or 0
    return entering, changes.num_rows - entering


def bounds(changes: pa.Table, schema: TableSchema) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest value of each key column of integers."""
    found: dict[str, tuple[int, int]] = {}
    for name in schema.key:
        array = changes.column(name)
        if pa.types.is_integer(array.type) and array.null_count == 0 and len(array):
            both = pc.min_max(array).as_py()
            found[name] = (both["min"], both["max"])
    return found
