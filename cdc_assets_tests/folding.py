"""A log folded into the rows that it leads to, to be compared with the mirror."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from cdc_assets.model.schema import TableSchema
from cdc_assets.types.collations import is_plain, normal_form
from cdc_assets_tests.memory_lake import MemoryLake

__all__ = ["differences", "fold_differences", "folded"]

Row = tuple[Any, ...]
LEAVES = ("DELETE", "UPDATE_BEFORE")
UNDER_OLD_KEY = "as it was under the old key"
"""What a row under a new key has in the columns that its change leaves out: the log does not say which key was it."""


def folded(
    log: pa.Table, key: tuple[str, ...], columns: list[str], collations: dict[str, str]
) -> tuple[list[Row], list[Row]]:
    """Return the rows of these columns that the changes of a log lead to, and those that end.

    Images that enter are upserts. Without a key rows are counted.
    """
    frame = pl.from_arrow(log)
    assert isinstance(frame, pl.DataFrame)
    by = list(key) or columns
    for name in by:
        if name in collations:
            normal = normal_form(log.column(name).combine_chunks(), collations[name])
            frame = frame.with_columns(pl.Series(f"_by_{name}", normal))
    of_ddl = pl.col("_cdc_place").str.starts_with("DDL of")
    leaves = pl.col("_change_type").is_in(LEAVES)
    frame = frame.with_row_index("_at").sort(["_cdc_position", ~of_ddl, ~leaves, "_at"])
    frame = _comparable(frame)
    rows: dict[Any, list[Row]] = {}
    ended: list[Row] = []
    identities = frame.select([f"_by_{name}" if name in collations else name for name in by]).rows()
    values, words = frame.select(columns).rows(), frame.get_column("_change_type").to_list()
    absents = frame.get_column("_cdc_absent").to_list()
    for identity, row, word, absent in zip(map(repr, identities), values, words, absents, strict=True):
        if word == "TRUNCATE":  # of all rows
            rows.clear()
            continue
        before = rows.get(identity, [])
        if absent and word not in LEAVES:
            base = before[-1] if before else [UNDER_OLD_KEY] * len(columns)
            row = tuple(base[place] if columns[place] in absent else row[place] for place in range(len(columns)))
        if word in LEAVES:
            ended += before[-1:]
            rows[identity] = before[:-1]
        else:
            rows[identity] = [row] if key else [*before, row]
    return [row for some in rows.values() for row in some], ended


def _with_values(row: Row, key: Sequence[int], wanted: Sequence[Row], ended: Sequence[Row]) -> Row:
    """Return a row with those values of the wanted one of its key that it had under an old key, as some row did."""
    for other in wanted:
        if all(row[place] == other[place] for place in key):
            there = zip(range(len(row)), row, other, strict=True)
            return tuple(
                theirs
                if folded_value == UNDER_OLD_KEY and any(repr(ended_row[place]) == repr(theirs) for ended_row in ended)
                else folded_value
                for place, folded_value, theirs in there
            )
    return row


def _comparable(frame: pl.DataFrame) -> pl.DataFrame:
    """Return moments as numbers: Python knows no year 0."""
    return frame.with_columns(pl.selectors.temporal().to_physical())


def fold_differences(lake: MemoryLake) -> list[str]:
    """Return which logs of a lake do not lead to the rows of their mirror, if that is as far."""
    mismatches = []
    for life, log in lake.tables.items():
        mirror = lake.tables.get(life.source)
        if life.kind != "log" or mirror is None or mirror.progress < log.progress:  # a held mirror is behind
            continue
        if log.rekeyed:
            continue
        rows = mirror.rows if mirror.name is not None else None
        mismatches += differences(str(life), log.rows, log.schema, rows, log.continued)
    return mismatches


def differences(
    name: str, log: pa.Table, schema: TableSchema, mirror: pa.Table | None, without: Collection[str] = ()
) -> list[str]:
    """Return how the rows to which a log leads differ from a mirror's (None: it was dropped), but for some columns."""
    live = [column for column in schema.stored if not column.kept and column.name not in without]
    columns = [column.name for column in live]
    collations = {
        key: collation
        for key in schema.key
        if (collation := schema.column(key).compares_by) and not is_plain(collation)
        if pa.types.is_string(log.schema.field(key).type)
    }
    folded_rows, ended = folded(log, schema.key, columns, collations)
    wanted: list[Row] = []
    if mirror is not None:
        rows = pl.from_arrow(mirror.select([column.origin or column.name for column in live]))
        assert isinstance(rows, pl.DataFrame)
        wanted = sorted(_comparable(rows).rows(), key=repr)
    key = [columns.index(name) for name in schema.key]
    folded_rows = sorted(
        (_with_values(row, key, wanted, ended) if UNDER_OLD_KEY in row else row for row in folded_rows), key=repr
    )
    if list(map(repr, folded_rows)) == list(map(repr, wanted)):
        return []
    return [f"{name} of key {schema.key} leads to {folded_rows[:3]} …, and the mirror has {wanted[:3]} …"]
