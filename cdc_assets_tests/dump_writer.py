"""Data files as Dumpling writes them, by its written rules, from the texts that the server gives.

A cell is None, a str for what the server prints, or bytes for the types that are bytes to Dumpling: BIT too, as
big-endian bytes.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import gzip
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.model.dumps import DumpOptions
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.sources.dumpling.directory import escaped
from cdc_assets.types.mysql_types import type_text
from cdc_assets_tests.snappy_frames import framed_snappy

__all__ = [
    "COMPRESSORS",
    "Cell",
    "Row",
    "Writing",
    "csv_file",
    "data_file",
    "dumped",
    "metadata_file",
    "parquet_file",
    "show_create",
    "sql_file",
    "write_dump",
]

Cell = str | bytes | None
Row = Sequence[Cell]

_NUMBERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")

COMPRESSORS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "snappy": framed_snappy,
    "zstd": lambda data: bytes(pa.Codec("zstd").compress(data)),
}


@dataclass(frozen=True, kw_only=True)
class Writing:
    """How a file is written beyond `DumpOptions`."""

    options: DumpOptions = field(default_factory=DumpOptions)
    terminator: str = "\r\n"
    complete_insert: bool = False
    statement_bytes: int = 1_000_000
    quoted_unsigned: bool = False
    """As versions did that did not list `UNSIGNED …` among the numbers."""


def dumped(schema: TableSchema) -> tuple[Column, ...]:
    """The columns that a dump has: no generated ones."""
    return tuple(column for column in schema.columns if not column.virtual and not column.generated)


# --- CSV --------------------------------------------------------------------------------------------------------------


def csv_file(columns: Sequence[Column], rows: Sequence[Row], how: Writing) -> bytes:
    separator, terminator = how.options.separator.encode(), how.terminator.encode()
    lines = [separator.join(_quoted(column.name.encode(), how) for column in columns)] if how.options.header else []
    lines += [
        separator.join(_csv_cell(cell, column, how) for cell, column in zip(row, columns, strict=True)) for row in rows
    ]
    return b"".join(line + terminator for line in lines)


def _csv_cell(cell: Cell, column: Column, how: Writing) -> bytes:
    if cell is None:
        return how.options.null_value.encode()
    if isinstance(cell, str):
        bare = column.type in _NUMBERS and not (how.quoted_unsigned and column.unsigned)
        return cell.encode() if bare else _quoted(cell.encode(), how)
    if how.options.output_dialect in ("snowflake", "redshift"):
        cell = cell.hex().encode()
    elif how.options.output_dialect == "bigquery":
        cell = base64.b64encode(cell)
    return _quoted(cell, how)


def _quoted(text: bytes, how: Writing) -> bytes:
    delimiter, separator = how.options.delimiter.encode(), how.options.separator.encode()
    if how.options.escape_backslash:
        first = (delimiter or separator)[0]
        meaning = {0: b"\\0", 13: b"\\r", 10: b"\\n", 92: b"\\\\", first: bytes([92, first])}
        text = b"".join(meaning.get(byte, bytes([byte])) for byte in text)
    elif delimiter:
        text = text.replace(delimiter, delimiter * 2)
    return delimiter + text + delimiter


# --- SQL --------------------------------------------------------------------------------------------------------------


def sql_file(table: str, columns: Sequence[Column], rows: Sequence[Row], how: Writing) -> bytes:
    name = table.replace("`", "``")
    listed = "(" + ",".join(f"`{column.name.replace('`', '``')}`" for column in columns) + ") "
    head = f"INSERT INTO `{name}` {listed if how.complete_insert else ''}VALUES\n".encode()
    out = [b"/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"]
    size = 0
    for row in rows:
        text = b"(" + b",".join(_sql_cell(cell, column, how) for cell, column in zip(row, columns, strict=True)) + b")"
        if size == 0 or size >= how.statement_bytes:
            out.append((b";\n" if size else b"") + head)
            size = len(head)
        else:
            out.append(b",\n")
        out.append(text)
        size += len(text)
    return b"".join(out) + (b";\n" if rows else b"")


def _sql_cell(cell: Cell, column: Column, how: Writing) -> bytes:
    if cell is None:
        return b"NULL"
    if isinstance(cell, bytes):
        return b"x'" + cell.hex().encode() + b"'"
    if column.type in _NUMBERS:
        return cell.encode()
    text = cell.encode()
    if not how.options.escape_backslash:
        return b"'" + text.replace(b"'", b"''") + b"'"
    meaning = {0: b"\\0", 10: b"\\n", 13: b"\\r", 26: b"\\Z", 34: b'\\"', 39: b"\\'", 92: b"\\\\"}
    return b"'" + b"".join(meaning.get(byte, bytes([byte])) for byte in text) + b"'"


# --- Parquet ----------------------------------------------------------------------------------------------------------


def parquet_file(columns: Sequence[Column], rows: Sequence[Row], row_group_rows: int = 2, cloud: bool = False) -> bytes:
    """A file with the types of Dumpling of 2026, or those of the earlier writer of TiDB Cloud's exports."""
    fields, arrays = [], []
    for place, column in enumerate(columns):
        kind = _parquet_type(column, cloud)
        fields.append(pa.field(column.name, kind, column.nullable or pa.types.is_timestamp(kind)))
        arrays.append(pa.array([_parquet_cell(row[place], kind) for row in rows], kind))
    out = io.BytesIO()
    table = pa.table(arrays, schema=pa.schema(fields))
    pq.write_table(table, out, row_group_size=row_group_rows, compression="zstd", store_decimal_as_integer=True)
    return out.getvalue()


def _parquet_type(column: Column, cloud: bool) -> pa.DataType:
    if column.type in ("DATETIME", "TIMESTAMP"):
        return pa.timestamp("us")
    if column.type in ("FLOAT", "DOUBLE"):
        return pa.float32() if cloud and column.type == "FLOAT" else pa.float64()
    if column.type == "BIGINT" and column.unsigned:
        return pa.decimal128(20, 0)
    if column.type == "BIGINT" or (column.type == "INT" and column.unsigned):
        return pa.int64()
    if column.type in ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "YEAR"):
        return pa.int32()
    if column.type == "DECIMAL" and (column.precision or 10) <= (18 if cloud else 38):
        return pa.decimal128(column.precision or 10, column.scale or 0)
    if column.type in ("BIT", "BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"):
        return pa.binary()
    return pa.binary() if column.type == "VECTOR" and not cloud else pa.string()


def _parquet_cell(cell: Cell, kind: pa.DataType) -> object:
    if cell is None or isinstance(cell, bytes):
        return cell
    if pa.types.is_timestamp(kind):
        try:
            return dt.datetime.fromisoformat(cell)
        except ValueError:  # a zero or partial date
            return None
    if pa.types.is_decimal(kind):
        return decimal.Decimal(cell)
    if pa.types.is_integer(kind):
        return int(cell)
    if pa.types.is_floating(kind):
        return float(cell)
    return cell.encode() if pa.types.is_binary(kind) else cell


# --- a directory ------------------------------------------------------------------------------------------------------


def show_create(schema: TableSchema, table: str) -> str:
    """The text of SHOW CREATE TABLE, as a schema file has it, for the columns and the key of a schema."""
    lines = [f"  {_quoted_name(column.name)} {_definition(column)}" for column in schema.columns]
    if schema.key:
        lines.append(f"  PRIMARY KEY ({','.join(map(_quoted_name, schema.key))}) /*T![clustered_index] CLUSTERED */")
    return (
        "/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"
        f"CREATE TABLE {_quoted_name(table)} (\n" + ",\n".join(lines) + "\n"
        ") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;\n"
    )


def _quoted_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _definition(column: Column) -> str:
    text = type_text(column).lower()
    if column.elems is not None:
        text += "(" + ",".join("'" + member.replace("'", "''") + "'" for member in column.elems) + ")"
    if column.generated:
        text += f" GENERATED ALWAYS AS ({column.generated}) {'VIRTUAL' if column.virtual else 'STORED'}"
    return text + (" NULL DEFAULT NULL" if column.nullable and not column.generated else "")


def metadata_file(at: int, log: str = "tidb-binlog", finished: str = "2022-06-28 17:49:57") -> bytes:
    return (
        "Started dump at: 2022-06-28 17:49:54\nSHOW MASTER STATUS:\n"
        f"\tLog: {log}\n\tPos: {at}\n\tGTID:\n\n" + (f"Finished dump at: {finished}\n" if finished else "")
    ).encode()


def write_dump(
    into: Path,
    tables: Mapping[TableId, tuple[TableSchema, Sequence[Row]]],
    at: int,
    how: Writing,
    kind: str = "csv",
    compression: str = "",
    chunk_rows: int = 1000,
    texts: Mapping[TableId, str] | None = None,
) -> None:
    """Write a dump's directory: every third chunk number has no rows, and tables without rows have no file.

    `texts` are those of SHOW CREATE TABLE where the schema does not give all of it.
    """
    suffix = {"": "", "gzip": ".gz", "snappy": ".snappy", "zstd": ".zst"}[compression]
    files = {f"{escaped(table.schema)}-schema-create.sql{suffix}": _create_database(table.schema) for table in tables}
    for table, (schema, rows) in tables.items():
        name = f"{escaped(table.schema)}.{escaped(table.table)}"
        text = (texts or {}).get(table)
        statement = show_create(schema, table.table) if text is None else f"/*!40101 SET NAMES binary*/;\n{text};\n"
        files[f"{name}-schema.sql{suffix}"] = statement.encode()
        for start in range(0, len(rows), chunk_rows):
            number = start // chunk_rows * 3 // 2
            data = data_file(table.table, dumped(schema), rows[start : start + chunk_rows], how, kind)
            files[f"{name}.{number:09d}.{kind}{suffix if kind != 'parquet' else ''}"] = data
    into.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (into / name).write_bytes(data if name.endswith(".parquet") else COMPRESSORS[compression](data))
    (into / "metadata").write_bytes(metadata_file(at))


def _create_database(name: str) -> bytes:
    text = f"CREATE DATABASE {_quoted_name(name)} /*!40100 DEFAULT CHARACTER SET utf8mb4 */;\n"
    return b"/*!40101 SET NAMES binary*/;\n" + text.encode()


def data_file(table: str, columns: Sequence[Column], rows: Sequence[Row], how: Writing, kind: str) -> bytes:
    """A data file of any kind."""
    if kind == "sql":
        return sql_file(table, columns, rows, how)
    return csv_file(columns, rows, how) if kind == "csv" else parquet_file(columns, rows, 1000)
