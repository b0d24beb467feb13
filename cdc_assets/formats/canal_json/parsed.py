"""Canal-JSON records that a parser has to read: those of another shape than the first one, or all where it has none.

pyarrow's parser takes them all at once, where each is sound and written as TiCDC writes. Else they are gone through
record by record, and what is sound in them goes the same way as the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_assets.errors import MalformedData
from cdc_assets.formats import json_lines
from cdc_assets.formats.json_lines import Frame
from cdc_assets.model.schema import Column, TableSchema

__all__ = ["Parsed", "parse_records"]

Lines = npt.NDArray[np.int64]
"""Numbers of records in their file, from 1."""


class Parsed(NamedTuple):
    """Members of records as they are, with the line of each; `refused` are (line, reason, column) of the others."""

    records: pa.Table
    lines: Lines
    refused: list[tuple[int, str, str]]


def parse_records(frame: Frame, lines: Lines, schema: TableSchema, path: str) -> Parsed:
    """Read the records of these lines: all at once where that is possible, else one by one.

    Raises MalformedData where no record of the file has the columns of the schema.
    """
    alone = frame
    if len(lines) < len(frame):
        alone = Frame(b"".join(frame[line - 1] + b"\n" for line in lines.tolist()), b"\n", b"")
    if (
        len(alone) == len(lines)
        and alone.in_lines
        and json_lines.is_compact(alone[0])
        and json_lines.marks_all_nulls(alone.body)
        and json_lines.is_utf8(alone.body)
    ):
        members = _record_schema(schema, frame[0])
        for marked in json_lines.mark_nulls(alone.body):
            try:
                parsed = json_lines.parse(json_lines.unmark_null(marked, b'"old":', b',"data":['), members)
            except pa.ArrowInvalid:
                continue
            if parsed.num_rows == len(alone):
                return Parsed(parsed, lines, [])
    return _one_by_one(frame, lines, schema, path)


def _record_schema(schema: TableSchema, first: bytes = b"") -> pa.Schema:
    """Return the members of a record; those of a later TiCDC get the type that they have in the first record."""
    names = [column.name for column in schema.stored]
    row = pa.list_(pa.struct([(name, pa.string()) for name in names]))
    members = {
        "id": pa.int64(),
        "database": pa.string(),
        "table": pa.string(),
        "pkNames": pa.list_(pa.string()),
        "isDdl": pa.bool_(),
        "type": pa.string(),
        "es": pa.int64(),
        "ts": pa.int64(),
        "sql": pa.string(),
        "sqlType": pa.struct([(name, pa.int32()) for name in names]),
        "mysqlType": pa.struct([(name, pa.string()) for name in names]),
        "old": row,
        "data": row,
    }
    extension = {
        "commitTs": pa.int64(),
        "onlyHandleKey": pa.bool_(),
        "claimCheckLocation": pa.string(),
        "rowkey": pa.string(),
    }
    try:
        record = json_lines.loads(first) if first else {}
        for known, some in ((members, record), (extension, record.get("_tidb", {}))):
            later = some.keys() - known.keys() - {"_tidb"}
            known |= {name: pa.array([some[name]]).type for name in sorted(later)}
    except (ValueError, AttributeError, pa.ArrowException):
        pass  # the first record is not a sound one: that will be found when they are read one by one
    return pa.schema([*members.items(), ("_tidb", pa.struct(extension.items()))])


def _one_by_one(frame: Frame, among: Lines, schema: TableSchema, path: str) -> Parsed:
    """Read record by record: refuse those that are no row change of this schema, parse the others."""
    columns = {column.name: column for column in schema.stored}
    sound, lines, refused = [], [], []
    for line in among.tolist():
        try:
            sound.append(json_lines.dumps(_sound(json_lines.loads(frame[line - 1]), columns)))
            lines.append(line)
        except _UnknownColumn as error:
            refused.append((line, str(error), error.column))
        except ValueError as error:
            refused.append((line, f"the record is not a row change: {error}", ""))
    strange = {column for _, _, column in refused if column}
    if strange and not sound and len(among) == len(frame):
        raise MalformedData(
            f"{path}: the records have the columns {_listed(strange)}, which are not among those of the schema "
            f"file: {_listed(columns)}. The file lies in another version's directory, or its schema file was replaced.",
            path=path,
            column=min(strange),
        )
    members = _record_schema(schema)
    parsed = json_lines.parse(b"\n".join([*sound, b""]), members) if sound else members.empty_table()
    return Parsed(parsed, np.array(lines, dtype=np.int64), refused)


def _listed(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(f'"{name}"' for name in listed[:8]) + (", …" if len(listed) > 8 else "")


class _UnknownColumn(ValueError):
    def __init__(self, column: str) -> None:
        super().__init__(f'column "{column}" is not in the schema file of this version')
        self.column = column


def _sound(record: Any, columns: Mapping[str, Column]) -> dict[str, Any]:
    """Return the members that decoding needs, with marked nulls; raises ValueError for any of a wrong shape."""
    if not isinstance(record, dict):
        raise ValueError("it is not a JSON object")
    kept: dict[str, Any] = {}
    for name, kind in (("database", str), ("table", str), ("type", str), ("isDdl", bool)):
        kept[name] = _typed(record.get(name), kind, name) if name != "isDdl" or name in record else False
    for name in ("old", "data"):
        rows = record.get(name)
        kept[name] = None if rows is None else [_sound_row(row, name, columns) for row in _typed(rows, list, name)]
    extension = record.get("_tidb")
    if extension is not None:
        commit_ts = _typed(_typed(extension, dict, "_tidb").get("commitTs"), int, "commitTs")
        if not 0 <= commit_ts < 1 << 63:
            raise ValueError(f"its commitTs {commit_ts} is not a TSO")
        _refuse_partial(extension)
        kept["_tidb"] = {"commitTs": commit_ts}
    types = record.get("mysqlType")
    if isinstance(types, dict):
        kept["mysqlType"] = {
            name: types[name] for name in types.keys() & columns.keys() if isinstance(types[name], str)
        }
    return kept


def _refuse_partial(extension: Mapping[str, Any]) -> None:
    """Raise ValueError for a record that says that its row is not in it, which is for messages only."""
    for name in ("onlyHandleKey", "claimCheckLocation"):
        if extension.get(name):
            raise ValueError(f'its member "{name}" says that the row is not whole: TiCDC writes that in messages only')


def _sound_row(row: Any, member: str, columns: Mapping[str, Column]) -> dict[str, str]:
    kept = {}
    for name, value in _typed(row, dict, member).items():
        if name not in columns:
            raise _UnknownColumn(name)
        kept[name] = json_lines.NULL_TEXT if value is None else _typed(value, str, name)
    return kept


def _typed(value: Any, kind: type, member: str) -> Any:
    if type(value) is not kind:
        shown = repr(value)[:80]
        raise ValueError(f'its member "{member}" is {shown}, not {_KINDS[kind]}')
    return value


_KINDS = {str: "a string", bool: "true or false", int: "an integer", list: "a list", dict: "an object"}
