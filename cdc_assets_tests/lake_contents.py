"""What a table of the lake holds, in the oracle's words."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from cdc_assets.formats.decoded import COMMIT_TS

__all__ = ["contents_of", "plain_values", "rows_of"]


def contents_of(rows: pa.Table) -> tuple[tuple[str, ...], Counter[tuple[Any, ...]]]:
    """Return the columns of a lake's table, and its rows."""
    rows = rows.drop_columns([COMMIT_TS])
    return tuple(rows.column_names), Counter(rows_of(rows))


def rows_of(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows in their order, in the oracle's words."""
    return list(zip(*map(plain_values, rows.columns), strict=True))


def plain_values(values: pa.ChunkedArray) -> list[Any]:
    return [_oracle_value(value) for value in values.to_pylist()]


def _oracle_value(value: Any) -> Any:
    """A lake value as the oracle spells it."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if isinstance(value, date):
        return value.isoformat()
    return value
