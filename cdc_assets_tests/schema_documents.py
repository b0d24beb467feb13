"""Schema files as TiCDC writes them: their texts, and their places in a bucket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cdc_assets.sources.storage_sink.schema_file import schema_checksum

__all__ = ["V", "document", "file_column", "write_schema"]

V = 465283339124736025


def document(schema: str = "db", table: str = "t", version: int = V, **more: Any) -> dict[str, Any]:
    """Return what the file of a table says; `more` are members by their names in the file (`Query`, `TableColumns`)."""
    columns = more.pop("TableColumns", [{"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11"}])
    return {
        "Table": table,
        "Schema": schema,
        "Version": 1,
        "TableVersion": version,
        "Query": "",
        "Type": 0,
        "TableColumns": columns or None,
        "TableColumnsTotal": len(columns or []),
        **more,
    }


def file_column(name: str, kind: str, precision: Any = None, *, is_key: bool = False, **more: Any) -> dict[str, Any]:
    """Return what such a file says of a column; `more` are members by their names in the file (`ColumnDefault`)."""
    width = {} if precision is None else {"ColumnPrecision": precision}
    key = {"ColumnNullable": "false", "ColumnIsPk": "true"} if is_key else {}
    return {"ColumnName": name, "ColumnType": kind, **width, **key, **more}


def write_schema(bucket: Path, content: Mapping[str, Any], root: str = "") -> str:
    """Write a file to its place, under the name that its checksum gives, and return its path in the bucket.

    `root` is the table's directory where it is not called like the table.
    """
    root = root or "/".join(name for name in (content["Schema"], content["Table"]) if name)
    path = f"{root}/meta/schema_{content['TableVersion']}_{schema_checksum(content):010d}.json"
    (bucket / path).parent.mkdir(parents=True, exist_ok=True)
    (bucket / path).write_text(json.dumps(content), encoding="utf-8")
    return path
