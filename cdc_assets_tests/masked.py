"""What a lake with masks must hold, made of a lake without them: masks that a test gives, and the rows masked after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from cdc_assets.features.masks.history import applied
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.model.masks import MaskPolicy
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.planning.plan import Plan
from cdc_assets.types.masks import masked_array

__all__ = ["KEY", "differences_of_masked", "masked_rows"]

KEY = "a key of the tests, of more than a block of SHA-256 in bytes, so that it is hashed itself before it is used"


def masked_rows(rows: pa.Table, schema: TableSchema) -> Counter[tuple[Any, ...]]:
    """Return the rows of a table of the lake as the masks of its schema leave them."""
    names = [column.name for column in schema.in_lake.stored]
    columns = {column.name: column for column in schema.stored}
    arrays = [
        rows.column(name).combine_chunks()
        if columns[name].mask is None
        else masked_array(rows.column(name), columns[name])
        for name in names
    ]
    return _counted(pa.table([*arrays, rows.column(COMMIT_TS)], names=[*names, COMMIT_TS]), schema)


def differences_of_masked(
    plain: Mapping[TableId, pa.Table], masked: Mapping[TableId, pa.Table], planned: Plan, policy: MaskPolicy
) -> list[str]:
    """Compare tables of a lake that has masks with those of one that has none, which `planned` is of."""
    lives, mismatches = applied(planned.history, policy).lives.values(), []
    schemas = {table.name: table.schema for table in lives if table.name is not None}
    for name, rows in masked.items():
        if masked_rows(plain[name], schemas[name]) != _counted(rows, schemas[name]):
            mismatches.append(f"{name}: {schemas[name].in_lake.stored}")
    return mismatches


def _counted(rows: pa.Table, schema: TableSchema) -> Counter[tuple[Any, ...]]:
    """Count equal rows; where masks make different rows equal and no key tells them apart, any of them is deleted."""
    if not schema.key and not all(column.mask is None or column.mask.keeps_keys for column in schema.columns):
        rows = rows.drop_columns([COMMIT_TS])
    return Counter(tuple(repr(value) for value in row.values()) for row in rows.to_pylist())
