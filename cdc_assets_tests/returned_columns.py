"""A feed of two tables whose column `v` was a text, was dropped and came back as a number, before it parts the rows.

In history tables, whose columns only grow, the number has another name than in the source: `v__2`. What a DDL does to
rows by their partition is to find it there, and in the mirrors under its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.schema_documents import document, file_column, write_schema

__all__ = ["PARTED", "PLAIN", "ReturnedColumns"]

PARTED, PLAIN = "shop.p", "shop.x"

_ID = file_column("id", "INT", is_key=True)
_TEXT = file_column("v", "VARCHAR", "40")
_NUMBER = file_column("v", "INT")
_PARTS = "PARTITION BY RANGE (`v`) (PARTITION `p0` VALUES LESS THAN (10),PARTITION `p1` VALUES LESS THAN (20))"


class ReturnedColumns:
    """The feed; `returned` are the tables whose column came back, the others have had the number from the start."""

    def __init__(self, directory: Path, returned: Collection[str]) -> None:
        self.feed = LittleFeed(directory)
        for name in (PARTED, PLAIN):
            table = f"`{name.partition('.')[2]}`"
            born = _TEXT if name in returned else _NUMBER
            self._ddl(name, 0, f"CREATE TABLE {table} (`id` INT PRIMARY KEY,`v` {born['ColumnType']}(40))", 3, born)
            if name in returned:
                self.feed.rows(name, FIRST, [("I", FIRST + 1, 9, "12"), ("D", FIRST + 2, 9, "12")])
                self.feed.rows(name, FIRST, [("I", FIRST + 3, 8, "5")])
                self._ddl(name, 10, f"ALTER TABLE {table} DROP COLUMN `v`", 6)
                self._ddl(name, 20, f"ALTER TABLE {table} ADD COLUMN `v` INT DEFAULT 15", 5, _NUMBER)
                self.feed.rows(name, FIRST + 20, [("D", FIRST + 21, 8, "15")])
        self._ddl(PARTED, 30, f"ALTER TABLE `p` {_PARTS}", 71, _NUMBER)
        begun = {name: FIRST + 20 if name in returned else FIRST for name in (PARTED, PLAIN)}
        self.feed.rows(PARTED, begun[PARTED], [("I", FIRST + 31, 1, "5"), ("I", FIRST + 31, 2, "15")])
        self.feed.rows(PLAIN, begun[PLAIN], [("I", FIRST + 31, 3, "6")])
        self._ddl(PARTED, 40, "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `x`", 42, _NUMBER)
        self._ddl(PLAIN, 40, "", 0, _NUMBER)
        self._ddl(PARTED, 50, "ALTER TABLE `p` TRUNCATE PARTITION `p0`", 32, _NUMBER)
        self._ddl(PARTED, 60, "ALTER TABLE `p` DROP PARTITION `p1`", 20, _NUMBER)
        self.feed.publish(FIRST + 70)

    def _ddl(self, name: str, at: int, query: str, kind: int, *columns: dict[str, str]) -> None:
        schema, _, table = name.partition(".")
        schema_document = document(schema, table, FIRST + at, Query=query, Type=kind, TableColumns=[_ID, *columns])
        write_schema(self.feed.bucket, schema_document)

    @staticmethod
    def differences(read: Callable[[str], pa.Table], returned: Collection[str], kinds: Collection[str]) -> list[Any]:
        """Return what history tables have that differs from what became of the rows."""
        mismatches = list[Any]()
        for name, changes, states in (
            (
                PARTED,
                [("DELETE", 40, 1, 5), ("INSERT", 40, 3, 6), ("DELETE", 50, 3, 6), ("DELETE", 60, 2, 15)],
                [(1, 5, 31, 40), (2, 15, 31, 60), (3, 6, 40, 50)],
            ),
            (PLAIN, [("DELETE", 40, 3, 6), ("INSERT", 40, 1, 5)], [(1, 5, 40, None), (3, 6, 31, 40)]),
        ):
            column = "v__2" if name in returned else "v"
            if "log" in kinds:
                rows = [row for row in read(f"{name}__log").to_pylist() if row["_cdc_position"] >= FIRST + 40]
                log = [(row["_change_type"], row["_cdc_position"] - FIRST, row["id"], row[column]) for row in rows]
                mismatches += [(name, log)] if sorted(log) != sorted(changes) else []
            if "scd2" in kinds:
                rows = [row for row in read(f"{name}__scd2").to_pylist() if row["_cdc_start_ts"] >= FIRST + 31]
                there = [
                    (row["id"], row[column], row["_cdc_start_ts"] - FIRST, _since(row["_cdc_end_ts"])) for row in rows
                ]
                mismatches += [(name, there)] if sorted(there) != states else []
        return mismatches


def _since(at: int | None) -> int | None:
    return None if at is None else at - FIRST
