"""Rows of the lake's tables, read as of one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from cdc_assets.model.progress import Life, Progress
from cdc_assets.model.recipe import Recipe


class LakeRows(Protocol):
    """The rows of a table as of one snapshot."""

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot, None for a table without any."""

    @property
    def progress(self) -> Progress:
        """How far it is applied in that snapshot."""

    @property
    def recipe(self) -> Recipe:
        """How its rows were read then, as its label has it."""

    @property
    def rows(self) -> int | None:
        """How many rows there are, None if it is not known."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The types of its columns in Iceberg's words, by name in their order."""

    def pieces(self, equal: Mapping[str, object] = {}) -> Sequence[Any]:
        """Return its data files; of those that have no row with these numbers by column, none need be there."""

    def read_file(self, piece: Any, columns: Sequence[str], equal: Mapping[str, object] = {}) -> Iterator[pa.Table]:
        """Yield the rows of a data file; of those without these numbers, none need be there."""


class ScannedLake(Protocol):
    """A lake whose tables can be read as of one snapshot."""

    def scan(self, life: Life, snapshot_id: int | None = None) -> LakeRows:
        """Open a table as it is now, or as it was in a snapshot."""
