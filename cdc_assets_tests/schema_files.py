"""Schema files of one small table, as a feed would carry them."""

from __future__ import annotations

from cdc_assets import ddl
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.splits import SchemaFile

__all__ = ["ID", "TSO", "A", "B", "base", "changes", "created", "file"]

TSO = (1774915080123 << 18) + 4  # 2026-03-30 23:58:00.123 UTC
ID = Column("id", "INT", precision=11, nullable=False, is_pk=True)
A = Column("a", "INT", precision=11)
B = Column("b", "VARCHAR", precision=10)


def file(query: str, kind: int, *columns: Column, table: str = "t", schema: str = "s") -> SchemaFile:
    return SchemaFile("s/t/meta/schema.json", "s/t", TableId(schema, table), TSO, query, kind, columns)


def created(query: str, *columns: Column) -> TableSchema:
    return ddl.create(file(query, 3, *columns), None, None)


def base() -> TableSchema:
    return created("CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` INT,`b` VARCHAR(10))", ID, A, B)


def changes(before: TableSchema, query: str, *columns: Column, kind: int = 61) -> tuple[object, ...]:
    return ddl.evolve(before, file(query, kind, *columns), None)[1]
