"""Schema files of one little table, as TiCDC writes them."""

from __future__ import annotations

from typing import Any

V = 465283339124736025


def document(schema: str = "db", table: str = "t", version: int = V, **more: Any) -> dict[str, Any]:
    columns = more.pop("TableColumns", [{"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11"}])
    return {
        "Table": table,
        "Schema": schema,
        "Version": 1,
        "TableVersion": version,
        "Query": "",
        "Type": 0,
        "TableColumns": columns,
        "TableColumnsTotal": len(columns or []),
        **more,
    }
