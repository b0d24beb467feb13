"""Recorded source contents as tables of a dump: schema and rows in the texts that the server gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cdc_assets.ddl import created
from cdc_assets.formats.decoded import Decoded
from cdc_assets.io.storage import Opener
from cdc_assets.model.dumps import Dump, DumpOptions
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.sources.dumpling.generated import generators
from cdc_assets.sources.dumpling.splits import read_split, splits_of
from cdc_assets_tests.cases import ExpectedTable
from cdc_assets_tests.dump_writer import Cell, Row, dumped

__all__ = ["cell_of", "opener", "rows_of_dump", "tables_of"]

_BYTES = ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")


def tables_of(contents: Mapping[TableId, ExpectedTable]) -> dict[TableId, tuple[TableSchema, list[Row]]]:
    """Return the schema and the rows of each table as a dump of it has them."""
    schemas_and_rows: dict[TableId, tuple[TableSchema, list[Row]]] = {}
    for table in contents.values():
        schema = created(_create(table))
        rows = [tuple(cell_of(row[column.name], column) for column in dumped(schema)) for row in table.rows]
        schemas_and_rows[table.id] = (schema, list(rows))
    return schemas_and_rows


def _create(table: ExpectedTable) -> str:
    lines = []
    for column in table.columns:
        name = _quoted(column["name"])
        text = f"{name} {column['type']}"
        if column.get("generated"):
            match = re.search(rf"{re.escape(name)} [^\n]*? GENERATED ALWAYS AS \((.*?)\) \w+", table.show_create)
            assert match, table.show_create
            text += f" GENERATED ALWAYS AS ({match[1]}) {column['generated']}"
        lines.append(text + ("" if column["nullable"] else " NOT NULL"))
    if table.primary_key:
        lines.append(f"PRIMARY KEY ({','.join(map(_quoted, table.primary_key))})")
    return f"CREATE TABLE t ({', '.join(lines)})"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def cell_of(value: str | None, column: Column) -> Cell:
    if value is None:
        return None
    if column.type == "BIT":
        return int(value, 16).to_bytes(((column.precision or 1) + 7) // 8, "big")
    return bytes.fromhex(value) if column.type in _BYTES else value


def opener(directory: Path) -> Opener:
    return Opener("file", str(directory), f"file://{directory}")


def rows_of_dump(
    dump: Dump, directory: Path, options: DumpOptions, split_bytes: int = 1000
) -> dict[TableId, list[Decoded]]:
    """Read every table of a dump, in splits as small as that."""
    return {
        table.id: [
            decoded
            for file in table.files
            for split in splits_of(file, options, split_bytes)
            for decoded in read_split(
                split, opener(directory).read_range, table, options, dump.at, generators(table.schema)
            )
        ]
        for table in dump.tables
    }
