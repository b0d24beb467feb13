"""TiCDC's Debezium messages: what they speak of, the schemas that rows show, and the changes of a table.

    {"payload":{"source":{"connector":"TiCDC","db":…,"table":…,"commit_ts":…},"op":"u","before":{…},"after":{…}},
     "schema":{…}}

`op` is c, u, d, or m for a mark; a DDL has none, but `ddl`. The schema block may be left out
(`debezium-disable-schema`). With the extension its fields have `tidb_type`, without it bytes and texts look alike.
A NULL in a column with a default comes as that default, and a zero date as NULL: no reader can see that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_assets.formats import Decoded, Op
from cdc_assets.formats.column_codes import guess
from cdc_assets.formats.compression import unpacked
from cdc_assets.formats.debezium_json.envelope import image_of
from cdc_assets.formats.debezium_json.values import cells_of
from cdc_assets.formats.images import Faults, Images, changes_of
from cdc_assets.formats.json_lines import refuse_half_pairs
from cdc_assets.formats.members import allowed_members
from cdc_assets.formats.message_codecs import MessageCodec, by_nothing
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.formats.messages import Kind, Said, SchemaEvent, explained, lines_of, position_text, said
from cdc_assets.model.schema import Column, Index, TableId, TableSchema

__all__ = ["classify", "decode", "schemas"]

_TROUBLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, ArithmeticError)
_PAYLOAD = re.compile(r'\s*\{\s*"payload"\s*:\s*')
_DECODER = json.JSONDecoder(parse_float=Decimal)


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return what each message speaks of (SPOKEN)."""
    texts = unpacked(messages.column("value"), options)
    return said(_one(message, value) for message, value in enumerate(texts))


def _one(message: int, value: bytes | None) -> Said:
    try:
        return _said(message, _payload(value))
    except _TROUBLE as error:
        return Said(message, Kind.BAD, reason=f"it is no Debezium message of TiCDC: {explained(error)}")


def _payload(value: bytes | None) -> Mapping[str, Any]:
    """Parse what is in the envelope; the schema block behind it, which is most of a message, stays unread."""
    if value is None:
        raise ValueError("it has no value, or one not compressed as large-message-handle-compression says")
    text = value.decode()
    begin = _PAYLOAD.match(text)
    if begin is None:
        held = _DECODER.decode(text)["payload"]
    else:
        held, stop = _DECODER.raw_decode(text, begin.end())
        if text[stop:].lstrip()[:1] not in (",", "}") or text.rstrip()[-1:] != "}":
            raise ValueError("it ends too early")
    if not isinstance(held, dict):
        raise ValueError("its payload is not an object")
    refuse_half_pairs(value, held)
    return held


def _source(held: Mapping[str, Any]) -> tuple[TableId, int]:
    source = held["source"]
    if source["connector"] != "TiCDC":
        raise ValueError(
            f'its connector is "{source["connector"]}"; expected TiCDC. Give the protocol of that connector'
        )
    table, ts = TableId(source["db"], source["table"]), source["commit_ts"]
    if not isinstance(table.schema, str) or not isinstance(table.table, str):
        raise ValueError("its db or table is not a text")
    if type(ts) is not int or not 0 <= ts < 1 << 63:
        raise ValueError(f"its commit_ts {ts} is not a TSO")
    return table, ts


def _said(message: int, held: Mapping[str, Any]) -> Said:
    table, ts = _source(held)
    kind = held.get("op")
    if kind == "m":
        return Said(message, Kind.RESOLVED, commit_ts=ts)
    if kind in ("c", "u", "d"):
        return Said(message, Kind.ROW, table, (0,), ts, source_position=position_text(ts))
    if kind is not None or not isinstance(held["ddl"], str):
        raise ValueError(f'its op is "{kind}"')
    return Said(message, Kind.DDL, table, commit_ts=ts, query=held["ddl"], source_position=position_text(ts))


# --- rows -------------------------------------------------------------------------------------------------------------


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table; an update without an image before it is an INSERT, to be taken by its key.

    A row that cannot be read, or that has a column which the schema lacks, is a Reject with the message's bytes.
    """
    owners, _ = lines_of(rows)
    whole = rows.column("value")
    faults = Faults(path, lambda line: whole[int(owners[line - 1])].as_py() or b"")
    texts = unpacked(whole, options)
    events: list[tuple[int, int, int, int]] = []
    sides: list[Mapping[str, Any]] = []
    names = {column.name for column in schema.stored}
    for line, owner in enumerate(owners.tolist(), 1):
        try:
            before, after, ts = _row(_payload(texts[owner]), table, names)
        except _TROUBLE as error:
            faults.add(line, f"it is not a row of Debezium: {explained(error)}")
            continue
        place = -1
        if after is not None:
            place = len(events)
            events.append((line, Op.INSERT, ts, -1))
            sides.append(after)
        if before is not None:
            events.append((line, Op.DELETE, ts, place))
            sides.append(before)
    held = np.array(events, np.int64).reshape(-1, 4)
    images = Images(held[:, 0], held[:, 1].astype(np.int8), held[:, 2], held[:, 3])
    return changes_of(
        images,
        lambda column: cells_of(
            [side.get(column.name) for side in sides], [column.name not in side for side in sides], column
        ),
        schema,
        options,
        faults,
    )


def _row(
    held: Mapping[str, Any], table: TableId, names: set[str]
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None, int]:
    """Return the image before, the image after and the commit-ts of a row event."""
    found, ts = _source(held)
    if found != table:
        raise ValueError(f"it is a row of {found}, not of {table}")
    before, after = image_of(held, "before"), image_of(held, "after")
    wanted = {"c": (False, True), "u": (before is not None, True), "d": (True, False)}[held["op"]]
    if (before is not None, after is not None) != wanted:
        raise ValueError(f'its op is "{held["op"]}", and before and after do not fit that')
    for side in (before, after):
        for name in side or ():
            if name not in names:
                raise ValueError(f'column "{name}" is not in the table\'s schema at this commit-ts')
    return before, after, ts


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the tables in the schema blocks of rows: one for each table and block, of the least commit-ts.

    A block without `tidb_type` (no extension) does not separate bytes from texts, so it is not used.
    """
    found: dict[tuple[TableId, str], SchemaEvent] = {}
    keys = messages.column("key").to_pylist()
    for message, value in enumerate(unpacked(messages.column("value"), options)):
        try:
            line = _one(message, value)
            if line.kind is not Kind.ROW or line.table is None or line.commit_ts is None or value is None:
                continue
            block = value.decode().rpartition('"schema":')[2] if b'"tidb_type"' in value else ""
            shape = (line.table, block)
            if not block or (shape in found and found[shape].version <= line.commit_ts):
                continue
            known = found.get(shape)
            schema, doubts = (known.schema, known.approximate) if known else _described_by(value, keys[message])
            found[shape] = SchemaEvent(message, line.table, line.commit_ts, schema, doubts)
        except _TROUBLE:
            continue  # decode rejects it
    return tuple(found.values())


def _described_by(value: bytes, key: bytes | None) -> tuple[TableSchema, tuple[str, ...]]:
    envelope = json.loads(value)["schema"]["fields"]
    fields = next(one["fields"] for one in envelope if one["field"] in ("after", "before"))
    names = tuple(str(name) for name in json.loads(key)["payload"]) if key is not None else ()
    columns, doubts = [], []
    for field in fields:
        column, doubt = _column(field, str(field["field"]) in names)
        columns.append(column)
        doubts += [f'"{column.name}": {doubt}'] if doubt else []
    index = (Index("", names, unique=True),) if names else ()
    doubts.append("lengths, defaults, collations, virtual columns, partitions and unique keys besides the handle key")
    return TableSchema(tuple(columns), names, index), tuple(doubts)


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
