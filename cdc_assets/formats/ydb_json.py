"""YDB changefeeds as JSON: what records speak of, the schemas that they state, and the changes of a table.

    {"key":[1],"update":{"value":10},"ts":[1670792400890,562949953607163]}   a patch, with newImage a whole row
    {"key":[1],"reset":{"value":10}}                                         a row in place of what was there
    {"key":[1],"erase":{}}                                                   a delete, maybe of a row that is not there
    {"resolved":[1670792500000,0]}                                           a barrier: what was before it is there
    {"tableChanges":[{"table":{"columns":{…},"primaryKeyColumnNames":[…]}}]} columns from here on
    {"payload":{"op":"u","source":{"connector":"ydb",…},"after":{…}}}        Debezium's flavour
    {"eventSource":"ydb:document-table","dynamodb":{"Keys":{…},…},…}         that of DynamoDB's streams

Members come in any order. A key is the values of the primary key in its order, without names, and no record has
types: both come from the setting `schemas`, or from a schema record. Each change is in the topic once, in the order of
its key, by virtual timestamps that step back while a scan goes on. Facts: YDB's changefeed records (`datashard`, suite
Cdc).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cdc_assets.formats import Decoded, Op, shape_of
from cdc_assets.formats.described import described_tables, table_of_path
from cdc_assets.formats.images import Cells, Faults, Images, changes_of, patch_op
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.formats.messages import (
    Kind,
    Said,
    SchemaEvent,
    explained,
    lines_of,
    position_text,
    refuse_half_pairs,
    said,
)
from cdc_assets.model.schema import Column, Index, TableId, TableSchema
from cdc_assets.types.conversions.moments import Moment
from cdc_assets.types.ydb_types import ydb_column

__all__ = ["NOT_FINITE", "OUT_OF_RANGE", "classify", "decode", "described", "schemas"]

NOT_FINITE = "infinity or not a number in a Decimal: NULL"
OUT_OF_RANGE = "a year outside 0000 to 9999: NULL"

_TROUBLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, ArithmeticError)
_CHANGES = ("update", "reset", "erase")
_UNSIGNED = 1 << 64
_DAY, _SECOND = 86_400_000_000, 1_000_000
_GREATEST_FLOAT = 3.4028235677973366e38
_FIRST, _LAST = -719_528 * _DAY, 2_932_897 * _DAY
_NO_ROW = (
    "it does not have the row after the change, as in the modes KEYS_ONLY and OLD_IMAGE, of which no table can be "
    "built. Let the changefeed have the mode UPDATES, NEW_IMAGE or NEW_AND_OLD_IMAGES"
)
SCHEMA = "default"
"""The schema of a table at the root of its database."""


# --- what records speak of --------------------------------------------------------------------------------------------


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return what each message speaks of (SPOKEN); the topic names the table."""
    tables = [_table_of(topic) for topic in messages.column("topic").to_pylist()]
    values = messages.column("value").to_pylist()
    return said(_one(number, table, value) for number, (table, value) in enumerate(zip(tables, values, strict=True)))


def _table_of(topic: str) -> TableId:
    """A changefeed's topic is the path of its table and its own name."""
    path, _, _ = topic.strip("/").rpartition("/")
    return table_of_path(path or topic, SCHEMA)


def _one(number: int, table: TableId, value: bytes | None) -> Said:
    try:
        return _said(number, table, _record(value))
    except _TROUBLE as error:
        return Said(number, Kind.BAD, table, reason=f"it is not a record of a YDB changefeed: {explained(error)}")


def _record(value: bytes | None) -> Mapping[str, Any]:
    if value is None:
        raise ValueError("it has no value")
    found = json.loads(value.decode(), parse_float=_real)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    refuse_half_pairs(value, found)
    return found


class _Real(float):
    """A number with its digits as they were written."""

    __slots__ = ("digits",)
    digits: str


def _real(text: str) -> _Real:
    found = _Real(text)
    found.digits = text
    return found


def _said(number: int, table: TableId, held: Mapping[str, Any]) -> Said:
    if "resolved" in held:
        return Said(number, Kind.RESOLVED, source_position=position_text(*_pair(held["resolved"])))
    if "tableChanges" in held:
        _stated(held)
        return Said(number, Kind.SCHEMA, table)
    if "dynamodb" in held:
        _document_change(held)
    elif not ("key" in held and any(name in held for name in _CHANGES)):
        _flavoured(held)
    stamp = _stamp(held)
    where = None if stamp is None else position_text(*stamp)
    ts = None if stamp is None else stamp[0] << 18
    return Said(number, Kind.ROW, table, (0,), ts, source_position=where, shape="row")


def _flavoured(held: Mapping[str, Any]) -> Mapping[str, Any]:
    payload = held.get("payload")
    if not isinstance(payload, dict) or payload.get("op") not in ("c", "u", "d", "r"):
        raise ValueError(
            "it has none of the members key with update, reset or erase, resolved, tableChanges, and is no Debezium "
            "record either"
        )
    if payload["source"]["connector"] != "ydb":
        raise ValueError(f'its connector is "{payload["source"]["connector"]}", not ydb')
    return payload


def _pair(given: Any) -> tuple[int, int]:
    step, transaction = given
    if not all(type(one) is int and 0 <= one < _UNSIGNED for one in (step, transaction)):
        raise ValueError(f"a virtual timestamp is two numbers of 64 bits, not {given}")
    return step, transaction


def _stamp(held: Mapping[str, Any]) -> tuple[int, int] | None:
    if "payload" in held:
        source = held["payload"]["source"]
        return _pair((source["step"], source["txId"])) if "step" in source else None
    return _pair(held["ts"]) if "ts" in held else None


# --- schemas ----------------------------------------------------------------------------------------------------------


def described(text: str, where: str, options: MessageOptions) -> Mapping[TableId, TableSchema]:
    """Return the tables that the setting `schemas` describes in YQL, or as `column: type`; raises BadSettings."""
    return described_tables(text, where, lambda name, declared, own: ydb_column(name, declared), SCHEMA)


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the schemas that records state. A row gives one without columns, which the setting `schemas` has."""
    found = list[SchemaEvent]()
    topics = messages.column("topic").to_pylist()
    seen = set[TableId]()
    for number, value in enumerate(messages.column("value").to_pylist()):
        table = _table_of(topics[number])
        try:
            held = _record(value)
            if "tableChanges" in held:
                found.append(SchemaEvent(number, table, 0, _stated(held), grows=True))
            elif table not in seen and _said(number, table, held).kind is Kind.ROW:
                seen.add(table)
                found.append(SchemaEvent(number, table, 0, TableSchema((Column("", ""),), ("",))))
        except _TROUBLE:
            continue  # classify calls it bad
    return tuple(found)


def _stated(held: Mapping[str, Any]) -> TableSchema:
    (change,) = held["tableChanges"]
    described = change["table"]
    names = described["primaryKeyColumnNames"]
    key = (names,) if isinstance(names, str) else tuple(names)
    columns = tuple(
        ydb_column(name, one["type"] if isinstance(one, dict) else one) for name, one in described["columns"].items()
    )
    return TableSchema(columns, key, (Index("PRIMARY", key, unique=True, primary=True),))


# --- rows -------------------------------------------------------------------------------------------------------------


class _Change(NamedTuple):
    op: Op
    row: Mapping[str, Any]
    patch: bool


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table; a column that a patch leaves out is unchanged, or NULL in a row that is new.

    A record that cannot be read, or that has a column which the schema lacks, is a Reject with its bytes.
    """
    shape_of(schema.stored)  # an unknown type is an error before any row is
    owners, _ = lines_of(rows)
    keys, values = rows.column("key").to_pylist(), rows.column("value")
    faults = Faults(path, lambda line: values[int(owners[line - 1])].as_py() or b"")
    events: list[tuple[int, int, int, int]] = []
    found: list[_Change] = []
    names = {column.name for column in schema.columns}
    bare: list[int] = []
    upsert = patch_op(options, Op.INSERT)
    for line, owner in enumerate(owners.tolist(), 1):
        try:
            held = _record(values[owner].as_py())
            change = _change(held, keys[owner], schema, upsert)
            _refuse_unknown(change, names)
            stamp = _stamp(held)
        except _TROUBLE as error:
            faults.add(line, f"it is not a row of a YDB changefeed: {explained(error)}")
            continue
        if change.op > 0 and not change.row.keys() - set(schema.key):
            bare.append(line)
        events.append((line, change.op, 0 if stamp is None else stamp[0] << 18, -1))
        found.append(change)
    if len(bare) == sum(change.op > 0 for change in found) and len(names) > len(schema.key):
        for line in bare:  # one INSERT of a key alone is nothing strange, a feed of nothing else is one of keys
            faults.add(line, _NO_ROW)
    held_events = np.array(events, np.int64).reshape(-1, 4)
    ops = held_events[:, 1].astype(np.int8)
    images = Images(held_events[:, 0], ops, held_events[:, 2], held_events[:, 3])
    return changes_of(images, lambda column: _cells(found, column), schema, options, faults)


def _change(held: Mapping[str, Any], key: bytes | None, schema: TableSchema, upsert: Op) -> _Change:
    if "dynamodb" in held:
        return _document_change(held)
    if "payload" in held:
        return _flavoured_change(_flavoured(held), key, schema)
    values = held["key"]
    if not isinstance(values, list) or len(values) != len(schema.key):
        raise ValueError(f"its key is {json.dumps(values)[:100]}, and the table's ({', '.join(schema.key)})")
    named = dict(zip(schema.key, values, strict=True))
    (kind,) = (name for name in _CHANGES if name in held)
    if kind == "erase":
        return _Change(Op.DELETE_KEY, named, False)
    image = held.get("newImage")
    if image is not None:
        return _Change(Op.INSERT, {**image, **named}, False)
    if "oldImage" in held:
        raise ValueError(_NO_ROW)
    return _Change(Op.INSERT if kind == "reset" else upsert, {**held[kind], **named}, kind == "update")


def _flavoured_change(payload: Mapping[str, Any], key: bytes | None, schema: TableSchema) -> _Change:
    op, after = payload["op"], payload.get("after")
    if op == "d":
        before: Mapping[str, Any] = payload.get("before") or {}
        if key is not None:
            named = json.loads(key.decode())
            before = named.get("payload", named)
        return _Change(Op.DELETE_KEY, {name: before[name] for name in schema.key}, False)
    if after is None:
        raise ValueError(_NO_ROW)
    return _Change(Op.INSERT, after, False)


def _document_change(held: Mapping[str, Any]) -> _Change:
    """Return the change of a document table, whose values say their kinds; attributes that are NULL are left out."""
    record, event = held["dynamodb"], held["eventName"]
    if held["eventSource"] != "ydb:document-table" or event not in ("INSERT", "MODIFY", "REMOVE"):
        raise ValueError(f'it is the event "{event}" of {held["eventSource"]}, not of a YDB document table')
    key = {name: _document_value(value) for name, value in record["Keys"].items()}
    if event == "REMOVE":
        return _Change(Op.DELETE_KEY, key, False)
    if "NewImage" not in record:
        raise ValueError(_NO_ROW)
    image = {name: _document_value(value) for name, value in record["NewImage"].items()}
    return _Change(Op.INSERT, {**image, **key}, False)


def _document_value(typed: Mapping[str, Any]) -> Any:
    ((kind, value),) = typed.items()
    if kind in ("S", "B", "BOOL"):
        return value
    if kind == "N":
        return _Number(_text(value))
    if kind == "NULL":
        return None
    return {kind: value}


class _Number(str):
    """A number of a document, as text."""

    __slots__ = ()


def _refuse_unknown(change: _Change, names: set[str]) -> None:
    unknown = next((name for name in change.row if name not in names), None)
    if unknown is not None:
        raise ValueError(
            f'column "{unknown}" is not in the table\'s schema; expected {", ".join(sorted(names))}. Give the table as '
            "it is now in the setting `schemas`, or let the changefeed state it (SCHEMA_CHANGES)"
        )


# --- values -----------------------------------------------------------------------------------------------------------


def _cells(changes: Sequence[_Change], column: Column) -> Cells:
    read = _READERS.get(column.type, _text)
    texts: list[str | bytes | None] = []
    wrong, ranged, infinite, unchanged = ([False] * len(changes) for _ in range(4))
    for place, change in enumerate(changes):
        value = change.row.get(column.name)
        texts.append(None)
        if column.name not in change.row:
            unchanged[place] = change.patch
        elif value is not None:
            try:
                texts[place] = read(value)
            except _OutOfRange:
                (infinite if column.type == "Decimal" else ranged)[place] = True
            except _TROUBLE:
                wrong[place] = True
    faults = ((np.array(wrong, bool), f'column "{column.name}" has a value that is not of the type {column.type}'),)
    marks = {OUT_OF_RANGE: ranged, NOT_FINITE: infinite}
    notes = {rule: np.array(mask, bool) for rule, mask in marks.items() if any(mask)}
    array = pa.array(texts, pa.binary() if column.type == "String" else pa.string())
    same = np.array(unchanged, bool) if any(unchanged) else None
    return Cells(array, None, "raw", None, faults if any(wrong) else (), notes, named=True, unchanged=same)


class _OutOfRange(Exception):
    """A value of YDB's that the lake does not keep."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _whole(value: Any) -> int:
    if isinstance(value, _Number):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _within(bits: int, signed: bool) -> Callable[[Any], str]:
    """Return what reads an integer of so many bits."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def read(value: Any) -> str:
        found = _whole(value)
        if not low <= found <= high:
            raise ValueError(value)
        return str(found)

    return read


def _boolean(value: Any) -> str:
    if not isinstance(value, bool):
        raise TypeError(value)
    return "true" if value else "false"


def _double(value: Any) -> str:
    if isinstance(value, _Number) or value in ("nan", "inf", "-inf"):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    if not math.isfinite(value):  # those are written as texts
        raise ValueError(value)
    return float.__repr__(value) if isinstance(value, float) else repr(value)


def _float(value: Any) -> str:
    text = _double(value)
    if not isinstance(value, str) and abs(value) > _GREATEST_FLOAT:
        raise ValueError(value)
    return text


def _decimal(value: Any) -> str:
    number = Decimal(_text(value))
    if not number.is_finite():
        raise _OutOfRange
    return format(number, "f")


def _moment(micros: int) -> str:
    if not _FIRST <= micros < _LAST:
        raise _OutOfRange
    return Moment(micros).text(6)


def _instant(value: Any) -> str:
    text = _text(value)
    if len(text) < 20 or text[10] != "T" or text[-1] != "Z":
        raise ValueError(value)
    return f"{text[:10]} {text[11:-1]}"


def _date(value: Any) -> str:
    """A date is printed as a moment, as the documentation has it without the time."""
    text = _text(value)
    if len(text) != 10 and text[10:] != "T00:00:00.000000Z":
        raise ValueError(value)
    return text[:10]


def _json(value: Any) -> str:
    """Print a value of JSON, its numbers by their own digits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(name)}:{_json(held)}" for name, held in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    return value.digits if isinstance(value, _Real) else json.dumps(value, ensure_ascii=False)


_READERS: Mapping[str, Callable[[Any], str | bytes]] = {
    **{f"{sign}{bits}": _within(bits, sign == "Int") for sign in ("Int", "Uint") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("Interval", "Interval64"), lambda value: str(_whole(value))),
    "Bool": _boolean,
    "Float": _float,
    "Double": _double,
    "Decimal": _decimal,
    "String": lambda value: base64.b64decode(_text(value), validate=True),
    "Date": _date,
    "Date32": lambda value: _moment(_whole(value) * _DAY)[:10],
    **dict.fromkeys(("Datetime", "Timestamp"), _instant),
    "Datetime64": lambda value: _moment(_whole(value) * _SECOND),
    "Timestamp64": lambda value: _moment(_whole(value)),
    **dict.fromkeys(("Json", "JsonDocument", "Yson"), _json),
}
"""Type -> what reads its values; every other one is a text."""
