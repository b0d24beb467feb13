"""Columns that a table of the lake has beside those of its source, with their types in Arrow, Iceberg and Spark."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from cdc_assets.formats.decoded import COMMIT_TS

CHANGE_TYPE, COMMIT_TIME = "_change_type", "_cdc_commit_time"
ABSENT, PARTITIONS = "_cdc_absent", "_cdc_partitions"
"""Columns of every change that is told as a row, beside POSITION, COMMIT_TS and PLACE."""

OF_DDL = "DDL of version "
"""Prefix of the places of changes that a DDL made."""


@dataclass(frozen=True, slots=True)
class OwnColumn:
    """A column of the lake's own: its name, its type in Arrow, and what it holds."""

    name: str
    type: pa.DataType
    doc: str

    @property
    def iceberg(self) -> str:
        """The name of its type in Iceberg's metadata, a list by that of its elements."""
        return _TYPES[self.type][0]

    @property
    def spark(self) -> str:
        """The name of its type in Spark SQL."""
        return _TYPES[self.type][1]


MOMENTS = pa.timestamp("us", "UTC")
"""The type of moments that the lake derives from positions."""

LAST_CHANGE = OwnColumn(COMMIT_TS, pa.int64(), "commit-ts (TSO) of the row's last change")
"""The own column of every table that holds the source's rows as they are."""

_TYPES: dict[pa.DataType, tuple[str, str]] = {
    pa.string(): ("string", "string"),
    pa.int64(): ("long", "bigint"),
    MOMENTS: ("timestamptz", "timestamp"),
    pa.list_(pa.string()): ("list<string>", "array<string>"),
}
