"""Rows of the Simple protocol -> images and cells: JSON rows by one parse where they are as TiCDC writes them.

TIMESTAMP has its zone beside it, binary types are base64 in JSON and bytes in Avro, ENUM is the member's number, SET
the sum of 2^position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import Op, json_lines
from cdc_assets.formats.images import Cells, Faults, Images
from cdc_assets.formats.messages import explained
from cdc_assets.model.schema import Column, TableId, TableSchema

__all__ = ["KINDS", "read_rows"]

KINDS = ("INSERT", "UPDATE", "DELETE")

Row = Mapping[str, Any]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
OfColumn = Callable[[Column], Cells]

_UNSIGNED = (1 << 64) - 1
_CHECKSUM = [("version", pa.int64()), ("corrupted", pa.bool_()), ("current", pa.int64()), ("previous", pa.int64())]


def read_rows(
    values: Mapping[int, bytes | None],
    table: TableId,
    schema: TableSchema,
    read: Callable[[bytes], dict[str, Any]] | None,
    faults: Faults,
) -> tuple[Images, OfColumn]:
    """Return the images of rows given by line, and what gives their cells. `read` reads one message, None for JSON."""
    if read is None:
        found = _parsed(values, table, schema)
        if found is not None:
            return found
    rows: dict[int, Row] = {}
    for line, value in values.items():
        try:
            rows[line] = _sound((read or json_lines.loads)(value or b""), table, schema)
        except _Strange as error:
            faults.add(line, str(error), error.column)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            faults.add(line, f"it is not a row of the protocol Simple: {explained(error)}")
    return _one_by_one(rows, in_base64=read is None)


def _images(lines: Places, commit_ts: Places, has_data: Mask, has_old: Mask) -> Images:
    """Images after come first, then images before; each in the order of the lines."""
    after, before = np.flatnonzero(has_data), np.flatnonzero(has_old)
    position = np.cumsum(has_data) - 1
    pair = np.where(has_data[before], position[before], -1)
    return Images(
        np.concatenate([lines[after], lines[before]]),
        np.repeat(np.array([Op.INSERT, Op.DELETE], np.int8), [len(after), len(before)]),
        np.concatenate([commit_ts[after], commit_ts[before]]),
        np.concatenate([np.full(len(after), -1, np.int64), pair]),
    )


# --- all rows at once -------------------------------------------------------------------------------------------------


def _parsed(values: Mapping[int, bytes | None], table: TableId, schema: TableSchema) -> tuple[Images, OfColumn] | None:
    """Parse JSON rows together; None where one of them is anything else than such a row."""
    texts = [value or b"" for value in values.values()]
    body = b"\n".join(texts)
    if not texts or not json_lines.is_compact(texts[0]) or not json_lines.marks_all_nulls(body):
        return None
    if not json_lines.is_utf8(body):
        return None
    parsed = json_lines.parse_each(_marked(texts, schema), _row_schema(schema), checked=True)
    if parsed is None:
        return None
    parsed = parsed.combine_chunks()
    named = pc.and_(pc.equal(parsed.column("database"), table.schema), pc.equal(parsed.column("table"), table.table))
    kinds, commit_ts = parsed.column("type"), parsed.column("commitTs")
    data, old = (pa.concat_arrays(parsed.column(name).chunks) for name in ("data", "old"))
    has_data, has_old = (pc.is_valid(side).to_numpy(zero_copy_only=False) for side in (data, old))
    sent = [pc.equal(kinds, kind).fill_null(False).to_numpy() for kind in KINDS]
    sound = (sent[0] & has_data & ~has_old) | (sent[1] & has_data & has_old) | (sent[2] & ~has_data & has_old)
    whole = pc.all(named, min_count=0).as_py() and not named.null_count and not commit_ts.null_count
    if not sound.all() or not whole or pc.min(commit_ts).as_py() < 0:
        return None
    lines = np.array(list(values), np.int64)
    images = _images(lines, commit_ts.to_numpy(), has_data, has_old)
    held = pa.concat_arrays([data.filter(pa.array(has_data)), old.filter(pa.array(has_old))])
    places = {column.name: place for place, column in enumerate(schema.stored)}
    return images, lambda column: _parsed_cells(pc.struct_field(held, [places[column.name]]))


def _marked(texts: list[bytes], schema: TableSchema) -> list[bytes]:
    """Mark written nulls; a TIMESTAMP's is marked within an object."""
    body = b"\n".join(texts)
    for column in schema.stored:
        if column.type == "TIMESTAMP":
            name = json_lines.dumps(column.name)
            body = body.replace(name + b":null", name + b':{"value":null}')
    return next(json_lines.mark_nulls(body)).split(b"\n")


def _row_schema(schema: TableSchema) -> pa.Schema:
    moment = pa.struct([("location", pa.string()), ("value", pa.string())])
    row = pa.struct([(one.name, moment if one.type == "TIMESTAMP" else pa.string()) for one in schema.stored])
    members = {
        **dict.fromkeys(("version", "tableID", "commitTs", "buildTs", "schemaVersion"), pa.int64()),
        **dict.fromkeys(("database", "table", "type", "claimCheckLocation"), pa.string()),
        "handleKeyOnly": pa.bool_(),
        "checksum": pa.struct(_CHECKSUM),
        "data": row,
        "old": row,
    }
    return pa.schema(members)


def _parsed_cells(array: pa.Array) -> Cells:
    absent = pc.is_null(array).to_numpy(zero_copy_only=False)
    zones = None
    if pa.types.is_struct(array.type):
        zones, array = pc.struct_field(array, "location"), pc.struct_field(array, "value")
    nulls = pc.equal(array, json_lines.NULL)
    if nulls.true_count:
        array = pc.if_else(nulls, pa.scalar(None, pa.string()), array)
    return Cells(array, absent if absent.any() else None, "base64", zones)


# --- one by one -------------------------------------------------------------------------------------------------------


class _Strange(ValueError):
    def __init__(self, column: str, problem: str) -> None:
        super().__init__(problem)
        self.column = column


def _sound(held: Any, table: TableId, schema: TableSchema) -> Row:
    """Return a row with members of the right kinds; raises ValueError."""
    if (held["database"], held["table"]) != (table.schema, table.table):
        raise ValueError(f"it is a row of {held['database']}.{held['table']}, not of {table}")
    commit_ts, kind = held["commitTs"], held["type"]
    sides = tuple(held.get(name) is not None for name in ("data", "old"))
    if kind not in KINDS or sides != {"INSERT": (True, False), "UPDATE": (True, True), "DELETE": (False, True)}[kind]:
        raise ValueError(f"its type is {kind}, and data and old do not fit that")
    if type(commit_ts) is not int or not 0 <= commit_ts < 1 << 63:
        raise ValueError(f"its commitTs {commit_ts} is not a TSO")
    columns = {column.name: column for column in schema.stored}
    for side in ("data", "old"):
        if not isinstance(held.get(side), dict | None):
            raise ValueError(f"its {side} is no row")
        for name, value in (held.get(side) or {}).items():
            if name not in columns:
                raise _Strange(name, f'column "{name}" is not in the table\'s schema at this commit-ts')
            if not _is_value(value, columns[name]):
                raise _Strange(name, f'column "{name}" has the value {str(value)[:80]}, which is not of its type')
    return dict(held)


def _is_value(value: Any, column: Column) -> bool:
    if isinstance(value, dict):
        return column.type == "TIMESTAMP" and all(isinstance(value.get(part), str) for part in ("location", "value"))
    return value is None or (type(value) in (int, str, bytes, float) and column.type != "TIMESTAMP")


def _one_by_one(rows: Mapping[int, Row], *, in_base64: bool) -> tuple[Images, OfColumn]:
    held = list(rows.values())
    has_data, has_old = (np.array([row.get(side) is not None for row in held], bool) for side in ("data", "old"))
    commit_ts = np.array([row["commitTs"] for row in held], np.int64)
    images = _images(np.array(list(rows), np.int64), commit_ts, has_data, has_old)
    sides: list[Row] = [row[side] for side in ("data", "old") for row in held if row.get(side) is not None]

    def cells(column: Column) -> Cells:
        absent = np.array([column.name not in side for side in sides], bool)
        values = [side.get(column.name) for side in sides]
        zones = None
        if column.type == "TIMESTAMP":
            zones = pa.array([None if value is None else value["location"] for value in values], pa.string())
            values = [None if value is None else value["value"] for value in values]
        array = _array(values, column)
        return Cells(array, absent if absent.any() else None, "base64" if in_base64 else "raw", zones)

    return images, cells


def _array(values: list[Any], column: Column) -> pa.Array:
    if any(isinstance(value, bytes) for value in values):
        return pa.array([value.encode() if isinstance(value, str) else _raw(value) for value in values], pa.binary())
    if any(isinstance(value, float) for value in values) and not any(isinstance(value, str) for value in values):
        return pa.array(values, pa.float64())
    wrap = column.type in ("BIT", "SET") or column.unsigned  # Avro's long has a sign
    return pa.array([_text(value, wrap=wrap) for value in values], pa.string())


def _raw(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) or value is None else str(value).encode()


def _text(value: Any, *, wrap: bool) -> str | None:
    if isinstance(value, int) and wrap:
        return str(value & _UNSIGNED)
    return value if isinstance(value, str) or value is None else str(value)
