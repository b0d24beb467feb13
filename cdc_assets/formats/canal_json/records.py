"""Canal-JSON records of a data file -> an Arrow table with their members as they are; what is not a record is rejected.

Records that are all alike are read by their shape, others by pyarrow's parser. A file of records that it takes, as all
that TiCDC writes, never meets a Python loop over rows. Any other is gone through record by record, and what is sound in
it goes the same way as the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_assets.errors import MalformedData
from cdc_assets.formats import json_lines
from cdc_assets.formats.canal_json.uniform import find_shape, read_alike
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import Column, TableSchema

__all__ = ["Rejects", "Rows", "find_tail", "read_records"]

Rows = npt.NDArray[np.int64]
"""Positions of rows."""


@dataclass
class Rejects:
    """The records that do not fit, by line; the first reason counts."""

    path: str
    frame: json_lines.Frame
    found: dict[int, Reject] = field(default_factory=dict)

    def add(self, line: int, reason: str, column: str = "", commit_ts: int | None = None) -> None:
        """Note why the record of that line is not applied, unless a reason is known already."""
        if line not in self.found:
            raw = self.frame[line - 1]
            self.found[line] = Reject(self.path, line, reason, raw, column, commit_ts or _commit_ts(raw))

    def in_order(self) -> tuple[Reject, ...]:
        """Return them by line."""
        return tuple(self.found[line] for line in sorted(self.found))


def _commit_ts(raw: bytes) -> int | None:
    """Read the commit-ts of a record that need not be whole: an unescaped quote stands in no text."""
    found = re.search(rb'"_tidb":\{"commitTs":(\d{1,19})[,}]', raw)
    return int(found[1]) if found and int(found[1]) < 1 << 63 else None


def find_tail(frame: json_lines.Frame, path: str, terminator: str) -> Reject | None:
    """Return what follows the last terminator; raises MalformedData where records end with another one."""
    if not frame.tail.strip():
        return None
    line = len(frame) + 1
    fed = b"\n" in frame.tail and "\n" not in terminator[:-1]
    if fed or re.search(rb'\}[^\w\s":,{}\[\]]{0,9}\s*\{"id":', frame.tail):
        raise MalformedData(
            f"{path} record {line}: records should end with {terminator!r}, but another one follows without it. "
            "Give the terminator ([sink] terminator) as the changefeed has it.",
            path=path,
            line=line,
        )
    reason = "the last record has no terminator after it: the file was cut off, or is still being written"
    return Reject(path, line, reason, frame.tail, commit_ts=_commit_ts(frame.tail) or _least_commit_ts(frame.tail))


def _least_commit_ts(raw: bytes) -> int | None:
    """Return the least commit-ts of the record's millisecond: `es` is written before what is cut off as a rule."""
    found = re.search(rb'"es":(\d{1,14}),', raw)
    return int(found[1]) << 18 if found else None


def read_records(frame: json_lines.Frame, schema: TableSchema, rejects: Rejects) -> list[tuple[pa.RecordBatch, Rows]]:
    """Return all records that have the right shape, with their lines, which ascend within a batch."""
    shape = find_shape(frame, schema)
    alike = list(read_alike(frame, shape, schema)) if shape is not None else []
    found = [(batch, positions + 1) for batch, positions in alike]
    known = np.zeros(len(frame), dtype=bool)
    for _, lines in found:
        known[lines - 1] = True
    if known.all():
        return found
    others = np.flatnonzero(~known) + 1
    start = 0
    table, lines = _parsed(frame, others, schema, rejects)
    for batch in table.to_batches():
        found.append((batch, lines[start : start + batch.num_rows]))
        start += batch.num_rows
    return found


def _parsed(frame: json_lines.Frame, lines: Rows, schema: TableSchema, rejects: Rejects) -> tuple[pa.Table, Rows]:
    """Let a parser read some of the records: all at once where that is possible, else one by one."""
    if len(lines) < len(frame):
        frame = json_lines.Frame(b"".join(frame[line - 1] + b"\n" for line in lines.tolist()), b"\n", b"")
    if (
        len(frame) == len(lines)
        and frame.in_lines
        and json_lines.is_compact(frame[0])
        and json_lines.is_utf8(frame.body)
    ):
        members = _record_schema(schema, rejects.frame[0])
        for marked in json_lines.mark_nulls(frame.body):
            try:
                parsed = json_lines.parse(json_lines.unmark_null(marked, b'"old":', b',"data":['), members)
            except pa.ArrowInvalid:
                continue
            if parsed.num_rows == len(frame):
                return parsed, lines
    return _sift(schema, rejects, lines)


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


def _sift(schema: TableSchema, rejects: Rejects, among: Rows) -> tuple[pa.Table, Rows]:
    """Read record by record: reject those that are no row change of this schema, parse the others."""
    columns = {column.name: column for column in schema.stored}
    sound, lines, strange = [], [], set()
    for line in among.tolist():
        raw = rejects.frame[line - 1]
        try:
            sound.append(json_lines.dumps(_sound(json_lines.loads(raw), columns)))
            lines.append(line)
        except _UnknownColumn as error:
            strange.add(error.column)
            rejects.add(line, str(error), error.column)
        except ValueError as error:
            rejects.add(line, f"the record is not a row change: {error}")
    if strange and not sound and len(among) == len(rejects.frame):
        raise MalformedData(
            f"{rejects.path}: the records have the columns {_listed(strange)}, which are not among those of the schema "
            f"file: {_listed(columns)}. The file lies in another version's directory, or its schema file was replaced.",
            path=rejects.path,
            column=min(strange),
        )
    members = _record_schema(schema)
    parsed = json_lines.parse(b"\n".join([*sound, b""]), members) if sound else members.empty_table()
    return parsed, np.array(lines, dtype=np.int64)


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
