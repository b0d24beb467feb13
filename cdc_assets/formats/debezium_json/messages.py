"""TiCDC's Debezium messages: what they speak of, the schemas that rows show, and the changes of a table.

    {"payload":{"source":{"connector":"TiCDC","db":…,"table":…,"commit_ts":…},"op":"u","before":{…},"after":{…}},
     "schema":{…}}

`op` is c, u, d, or m for a mark; a DDL has none, but `ddl`. The schema block may be left out
(`debezium-disable-schema`). With the extension its fields have `tidb_type`, without it bytes and texts look alike.
A NULL in a column with a default comes as that default, and a zero date as NULL, or as 1970-01-01 where that cannot be.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.changes import Cells, Faults, RowSides, changes_of, of_unknown_column, unknown_column
from cdc_assets.formats.column_codes import guess, shown_schema
from cdc_assets.formats.decoded import Decoded
from cdc_assets.formats.json_records import json_records, json_value, refuse_twice
from cdc_assets.formats.members import allowed_members
from cdc_assets.formats.messages import (
    Classification,
    Kind,
    MessageCodec,
    SchemaEvent,
    by_nothing,
    by_row,
    classified,
    in_order,
    one_row_messages,
    position_text,
    position_texts,
    refused_lines,
    unpacked_array,
)
from cdc_assets.formats.records import CellKind, Path, Records, bits
from cdc_assets.formats.values.ticdc import cells_of
from cdc_assets.model.schema import Column, TableId, TableSchema

__all__ = ["classify", "decode", "schemas"]


_TROUBLE = (ValueError, KeyError, TypeError, AttributeError, StopIteration)
"""Exceptions that a malformed schema block or key raises."""
_AFTER, _BEFORE = ("payload", "after"), ("payload", "before")
_SIDES: Mapping[str, tuple[bool | None, bool]] = {"c": (False, True), "u": (None, True), "d": (True, False)}
"""Whether a row event has the image before it and the one after it; None for either."""


# --- what messages speak of -------------------------------------------------------------------------------------------


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return the table and kind of each message (CLASSIFIED)."""
    values = unpacked_array(messages.column("value"), options)
    return in_order(lines for records in _records(values) for lines in _lines(records))


def _records(values: pa.BinaryArray) -> Iterator[Records]:
    return json_records(values, "schema", twice=_null_for_default)


def _null_for_default(name: str, first: object, second: object) -> None:
    """Return NULL for a member that the old architecture writes twice: as base64, then as a text.

    It does so for the default of a column of bytes, which it sends in the place of a NULL only.
    """
    if isinstance(first, str) and isinstance(second, str):
        with suppress(ValueError):
            if base64.b64decode(first, validate=True).decode("utf-8", "ignore") == second.replace("\ufffd", ""):
                return
    refuse_twice(name, first, second)


def _lines(records: Records) -> Iterator[pa.RecordBatch]:
    """Yield the tables and kinds of records."""
    schemas, tables, commit_ts = _require_source(records)
    op, ddl = records.column("payload", "op"), records.column("payload", "ddl")
    rows, marks = bits(pc.is_in(op.texts, pa.array(list(_SIDES)))), bits(pc.equal(op.texts, "m"))
    records.require(rows | marks | ~op.given, lambda place: f'its op is "{op.shown(place)}"')
    records.require(rows | marks | ddl.are(CellKind.TEXT), "it has neither an op nor a ddl")
    yield refused_lines(records, "it is no Debezium message of TiCDC")
    other_lines = list[Classification]()
    for place in np.flatnonzero(records.sound & ~rows).tolist():
        message, ts = int(records.messages[place]), int(commit_ts[place])
        if marks[place]:
            other_lines.append(Classification(message, Kind.RESOLVED, commit_ts=ts))
            continue
        table, text = TableId(schemas[place].as_py(), tables[place].as_py()), ddl.texts[place].as_py()
        other_lines.append(
            Classification(message, Kind.DDL, table, commit_ts=ts, query=text, source_position=position_text(ts))
        )
    yield classified(other_lines)
    sound_rows = records.sound & rows
    stamps, chosen = pa.array(commit_ts[sound_rows]), pa.array(sound_rows)
    names = schemas.filter(chosen), tables.filter(chosen)
    yield one_row_messages(records.messages[sound_rows], *names, stamps, source_position=position_texts(stamps))


def _require_source(records: Records) -> tuple[pa.StringArray, pa.StringArray, npt.NDArray[np.int64]]:
    """Refuse what is no message of TiCDC; return the schemas, tables and commit-ts of the others."""
    source = ("payload", "source")
    schemas, tables, connectors = (records.column(*source, name) for name in ("db", "table", "connector"))
    records.require(records.kinds("payload") != CellKind.ABSENT, "it lacks 'payload'")
    records.require(records.are_objects("payload"), "its payload is not an object")
    records.require(records.are_objects(*source), "it has no source that says where it is from")
    records.require(
        connectors.equal("TiCDC"),
        lambda place: (
            f'its connector is "{connectors.shown(place)}"; expected TiCDC. Give the protocol of that connector'
        ),
    )
    records.require(schemas.are(CellKind.TEXT) & tables.are(CellKind.TEXT), "its db or table is not a text")
    commit_ts, sound = records.tsos(*source, "commit_ts")
    records.require(sound, lambda place: f"its commit_ts {records.shown(place, *source, 'commit_ts')} is not a TSO")
    return schemas.texts, tables.texts, commit_ts


# --- rows -------------------------------------------------------------------------------------------------------------


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table; an update without an image before it is an UPDATE, to be taken by its key.

    A row that cannot be read, or that has a column which the schema lacks, is a Reject with the message's bytes.
    """
    sent = by_row(rows).column("value")
    faults, values = Faults(path, lambda line: sent[line - 1].as_py() or b""), unpacked_array(sent, options)
    sides = RowSides()
    for records in _records(values):
        commit_ts = _require_rows(records, table)
        for side in (_BEFORE, _AFTER):
            _require_columns(records, side, schema)
        faults.add_refused(records, "it is not a row of Debezium")
        sides.add(records, commit_ts, _AFTER, _BEFORE, updates=records.column("payload", "op").equal("u"))

    def cells(column: Column) -> Cells:
        return cells_of(sides.column(column.name), column, column.name in schema.exact)

    return changes_of(sides.images, cells, schema, options, faults)


def _require_rows(records: Records, table: TableId) -> npt.NDArray[np.int64]:
    """Refuse what is no row of a table; return the commit-ts of the others."""
    schemas, tables, commit_ts = _require_source(records)
    records.require(
        bits(pc.and_(pc.equal(schemas, table.schema), pc.equal(tables, table.table))),
        lambda place: f"it is a row of {schemas[place]}.{tables[place]}, not of {table}",
    )
    before, after = (records.kinds(*side) > CellKind.NULL for side in (_BEFORE, _AFTER))
    for name, side, is_required in (("before", _BEFORE, before), ("after", _AFTER, after)):
        records.require(~is_required | records.are_objects(*side), f"its {name} is no row")
    op, fit = records.column("payload", "op"), np.zeros(len(records), bool)
    for kind, (has_before, has_after) in _SIDES.items():
        fit |= op.equal(kind) & (after == has_after) & (True if has_before is None else before == has_before)
    records.require(fit, lambda place: f'its op is "{op.shown(place)}", and before and after do not fit that')
    return commit_ts


def _require_columns(records: Records, side: Path, schema: TableSchema) -> None:
    for name in sorted({*records.members(*side)} - {column.name for column in schema.stored}):
        after = _AFTER if side == _BEFORE else None
        records.require(~of_unknown_column(records, name, side, after, schema), unknown_column(schema, name))


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the tables in the schema blocks of rows: one for each table and block, of the least commit-ts.

    A block without `tidb_type` (no extension) does not separate bytes from texts, so it is not used.
    """
    keys, events = messages.column("key"), dict[tuple[TableId, str | bytes], SchemaEvent]()
    for records in _records(unpacked_array(messages.column("value"), options)):
        spaces, names, commit_ts = _require_source(records)
        op = records.column("payload", "op")
        records.require(bits(pc.is_in(op.texts, pa.array(list(_SIDES)))), "it is no row")
        for of_block, block in records.by_value("schema"):
            if block is None or '"tidb_type"' not in block:
                continue
            places = np.flatnonzero(of_block & records.sound)
            for place in places[np.argsort(commit_ts[places], kind="stable")].tolist():
                table, message = TableId(spaces[place].as_py(), names[place].as_py()), int(records.messages[place])
                earlier, version = events.get((table, block)), int(commit_ts[place])
                if earlier is not None and earlier.version <= version:
                    continue
                try:
                    stated = (
                        (earlier.schema, earlier.approximate)
                        if earlier
                        else _described_by(block, keys[message].as_py())
                    )
                except _TROUBLE:
                    continue  # decode rejects it
                events[table, block] = SchemaEvent(message, table, version, *stated)
    return tuple(sorted(events.values(), key=lambda event: event.message))


def _described_by(block: str | bytes, key: bytes | None) -> tuple[TableSchema, tuple[str, ...]]:
    envelope = json_value(block)["fields"]
    listed = next(side["fields"] for side in envelope if side["field"] in ("after", "before"))
    fields = {str(field["field"]): field for field in listed}.values()  # the new architecture has virtual ones twice
    names = tuple(str(name) for name in json_value(key)["payload"]) if key is not None else ()
    columns = (_column(field, str(field["field"]) in names) for field in fields)
    doubt = "lengths, defaults, collations, virtual columns, partitions and unique keys besides the handle key"
    return shown_schema(columns, names, doubt)


def _column(field: Mapping[str, Any], in_key: bool) -> tuple[Column, str]:
    kind, _, rest = str(field["tidb_type"]).upper().partition(" ")
    parameters = field.get("parameters") or {}
    precision, scale, doubt = guess(kind, ())
    elems = None
    if kind in ("ENUM", "SET"):
        elems, doubt = allowed_members(str(parameters.get("allowed", ""))), ""
    elif kind == "BIT":
        precision, doubt = int(parameters.get("length", 1)), ""
    elif kind == "DECIMAL":
        precision, scale, doubt = 65, 30, "the digits of DECIMAL, taken for 65 with 30 after the point"
    elif kind in ("DATETIME", "TIMESTAMP", "TIME"):
        scale = 3 if str(field.get("name")).endswith(".Timestamp") else 6
        doubt = f"the fraction digits of {kind}, taken for {scale}"
    column = Column(
        str(field["field"]),
        kind,
        unsigned="UNSIGNED" in rest,
        precision=precision,
        scale=scale,
        nullable=bool(field.get("optional")) and not in_key,
        elems=elems,
    )
    return column, doubt


CODEC = MessageCodec(classify=classify, decode=decode, schemas=schemas, read_by=by_nothing)
