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

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import Decoded, Op, shape_of
from cdc_assets.formats.alike import read_alike
from cdc_assets.formats.images import Faults, Images, changes_of, in_lines, patch_op
from cdc_assets.formats.json_lines import loads
from cdc_assets.formats.message_codecs import KeysAlone, MessageCodec, SourceSql
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.formats.messages import (
    Kind,
    Said,
    SchemaEvent,
    explained,
    in_order,
    lines_of,
    position_text,
    position_texts,
    said,
    said_of_lone_rows,
)
from cdc_assets.formats.ydb_json.uniform import CHANGES, Rows, Stamps, is_change, stamps
from cdc_assets.formats.ydb_json.values import TROUBLE, Number, cells_of, read_real, read_text
from cdc_assets.model.schema import Column, Index, TableId, TableSchema
from cdc_assets.types.ydb_types import ydb_column

__all__ = ["classify", "decode", "schemas", "show_columns"]

Places = npt.NDArray[np.int64]

_UNSIGNED = 1 << 64
_GREATEST_STEP = 1 << 45
"""Milliseconds since 1970 that are a TSO."""
_NO_ROW = (
    "it does not have the row after the change, as in the modes KEYS_ONLY and OLD_IMAGE, of which no table can be "
    "built. Let the changefeed have the mode UPDATES, NEW_IMAGE or NEW_AND_OLD_IMAGES"
)
_KEY_ALONE = (
    "it has its key alone: in the mode UPDATES only that was written, in the modes KEYS_ONLY and OLD_IMAGE the rest is "
    "left out, and no row of its topic has shown a column so far. Wait for one that does, or give the changefeed's "
    "ALTER TABLE … ADD CHANGEFEED … WITH (MODE = …) in the setting `schemas`"
)
_WHOLE_MODES = frozenset(("UPDATES", "NEW_IMAGE", "NEW_AND_OLD_IMAGES"))
_SCHEMA = "default"
"""The schema of a table at the root of its database."""


# --- what records speak of --------------------------------------------------------------------------------------------


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return what each message speaks of (SPOKEN); the topic names the table."""
    topics = pc.dictionary_encode(messages.column("topic"))
    tables = [_table_of(topic) for topic in topics.dictionary.to_pylist()]
    left, found, values = np.ones(len(messages), bool), list[pa.RecordBatch](), messages.column("value")
    for group in read_alike(values):
        given = stamps(group) if is_change(group) else None
        if given is not None:
            left[given.alike.messages] = False
            found.append(_of_alike(given, topics.indices.take(pa.array(given.alike.messages)), tables))
    numbers = np.flatnonzero(left)
    alone = zip(numbers.tolist(), topics.indices.take(pa.array(numbers)).to_pylist(), strict=True)
    return in_order([*found, said(_one(number, tables[topic], values[number].as_py()) for number, topic in alone)])


def _of_alike(given: Stamps, topics: pa.Array, tables: Sequence[TableId]) -> pa.RecordBatch:
    """Return what changes of one shape speak of."""
    names = [pa.array([getattr(table, name) for table in tables], pa.string()) for name in ("schema", "table")]
    schemas_, tables_ = (pa.DictionaryArray.from_arrays(topics, one).cast(pa.string()) for one in names)
    more = {"shape": pa.repeat("row", len(topics))}
    ts: pa.Array = pa.nulls(len(topics), pa.int64())
    if given.steps is not None:
        ts = pa.array(given.steps.astype(np.int64) << 18)
        more["source_position"] = position_texts(pa.array(given.steps), pa.array(given.transactions))
    return said_of_lone_rows(given.alike.messages, schemas_, tables_, ts, **more)


def _table_of(topic: str) -> TableId:
    """A changefeed's topic is the path of its table and its own name."""
    path, _, _ = topic.strip("/").rpartition("/")
    return TableId.of_path(path or topic, _SCHEMA)


def _one(number: int, table: TableId, value: bytes | None) -> Said:
    try:
        return _said(number, table, _record(value))
    except TROUBLE as error:
        return Said(number, Kind.BAD, table, reason=f"it is not a record of a YDB changefeed: {explained(error)}")


def _record(value: bytes | None) -> Mapping[str, Any]:
    if value is None:
        raise ValueError("it has no value")
    return _object(value)


def _object(text: bytes) -> Mapping[str, Any]:
    found = loads(text, read_real)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def _said(number: int, table: TableId, held: Mapping[str, Any]) -> Said:
    if "resolved" in held:
        return Said(number, Kind.RESOLVED, source_position=position_text(*_pair(held["resolved"])))
    if "tableChanges" in held:
        _stated(held)
        return Said(number, Kind.SCHEMA, table)
    created = held["dynamodb"].get("ApproximateCreationDateTime") if "dynamodb" in held else None
    phase = None
    if "dynamodb" in held:
        _document(held)
    elif not ("key" in held and any(name in held for name in CHANGES)):
        phase = "within" if _flavoured(held)["op"] == "r" else None
    stamp = _stamp(held)
    where = None if stamp is None else position_text(*stamp)
    ms = created if stamp is None else stamp[0]
    ts = ms << 18 if type(ms) is int and 0 <= ms < _GREATEST_STEP else None
    return Said(number, Kind.ROW, table, (0,), ts, source_position=where, shape="row", phase=phase)


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
    whole = isinstance(given, list | tuple) and [type(one) for one in given] == [int, int]
    if not whole or not all(0 <= one < _UNSIGNED for one in given):
        raise ValueError(f"a virtual timestamp is two numbers of 64 bits, not {given}")
    step, transaction = given
    if step >= _GREATEST_STEP:
        raise ValueError(f"the step {step} of its virtual timestamp is no time in milliseconds since 1970")
    return step, transaction


def _stamp(held: Mapping[str, Any]) -> tuple[int, int] | None:
    if "payload" in held:
        source = held["payload"]["source"]
        return _pair((source["step"], source["txId"])) if "step" in source else None
    return _pair(held["ts"]) if "ts" in held else None


def show_columns(messages: pa.RecordBatch) -> pa.Array:
    """Return which rows have columns beside their key (true), which their key alone (false); null for any other.

    What has its key alone does not say whether only that was written, or the changefeed never has more.
    """
    values = messages.column("value")
    found, left = np.full(len(messages), None, object), np.ones(len(messages), bool)
    for group in read_alike(values):
        left[group.messages] = False
        found[group.messages] = _shows_columns(group.shape.first)
    for number in np.flatnonzero(left).tolist():
        try:
            found[number] = _shows_columns(_record(values[number].as_py()))
        except TROUBLE:
            continue  # classify calls it bad
    return pa.array(found, pa.bool_())


def _shows_columns(held: Mapping[str, Any]) -> bool | None:
    written = held.get("update", held.get("reset"))
    if "key" not in held or not isinstance(written, dict):
        return None
    if written or isinstance(held.get("newImage"), dict):
        return True
    return None if "oldImage" in held else False


# --- schemas ----------------------------------------------------------------------------------------------------------


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
        except TROUBLE:
            continue  # classify calls it bad
    return tuple(found)


def _stated(held: Mapping[str, Any]) -> TableSchema:
    changes = held["tableChanges"]
    if not isinstance(changes, list) or len(changes) != 1:
        raise ValueError("its tableChanges is not a list of one change")
    described = changes[0]["table"]
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
    upsert, values = patch_op(options, Op.INSERT), rows.column("value")
    alone = len(owners) == rows.num_rows
    read = (Rows.of(one, schema, upsert) for one in (read_alike(values) if alone else ()))
    groups = [one for one in read if one is not None]
    left = np.ones(len(owners), bool)
    for group in groups:
        left[group.alike.messages] = False
    faults = Faults(path, lambda line: values[int(owners[line - 1])].as_py() or b"")
    events, found = _changes((np.flatnonzero(left) + 1).tolist(), owners, rows, schema, upsert, faults)
    held = np.array(events, np.int64).reshape(-1, 4)
    images = Images(held[:, 0], held[:, 1].astype(np.int8), held[:, 2], held[:, 3])
    changed = [(change.row, change.patch) for change in found]
    parts = [(images, lambda column: cells_of(changed, column))] if len(images) or not groups else []
    parts += [(_images_of(group), group.cells) for group in groups]
    return in_lines([changes_of(one, cells, schema, options, faults) for one, cells in parts], faults)


def _images_of(group: Rows) -> Images:
    count = len(group.alike.messages)
    return Images(group.alike.messages + 1, np.full(count, group.op, np.int8), group.commit_ts, np.full(count, -1))


def _changes(
    lines: Sequence[int], owners: Places, rows: pa.RecordBatch, schema: TableSchema, upsert: Op, faults: Faults
) -> tuple[list[tuple[int, int, int, int]], list[_Change]]:
    """Return the changes of some lines, read one by one, and what `Images` has of them."""
    events: list[tuple[int, int, int, int]] = []
    found: list[_Change] = []
    names = {column.name for column in schema.columns}
    keys, values = rows.column("key"), rows.column("value")
    for line in lines:
        owner = int(owners[line - 1])
        try:
            held = _record(values[owner].as_py())
            change = _change(held, keys[owner].as_py(), schema, upsert)
            _refuse_unknown(change, names)
            stamp = _stamp(held)
        except TROUBLE as error:
            faults.add(line, f"it is not a row of a YDB changefeed: {explained(error)}")
            continue
        events.append((line, change.op, 0 if stamp is None else stamp[0] << 18, -1))
        found.append(change)
    return events, found


def _change(held: Mapping[str, Any], key: bytes | None, schema: TableSchema, upsert: Op) -> _Change:
    if not schema.key:
        raise ValueError(
            "the table's key is not known. Give the table to the setting `schemas` as CREATE TABLE with its PRIMARY KEY"
        )
    if "dynamodb" in held:
        return _document_change(held, schema)
    if "payload" in held:
        return _flavoured_change(_flavoured(held), key, schema)
    values = held["key"]
    if not isinstance(values, list) or len(values) != len(schema.key):
        raise ValueError(f"its key is {json.dumps(values)[:100]}, and the table's ({', '.join(schema.key)})")
    named = dict(zip(schema.key, values, strict=True))
    kind, *others = (name for name in CHANGES if name in held)
    if others:
        raise ValueError(f"it has {kind} and {others[0]}, of which a change has one")
    if kind == "erase":
        return _Change(Op.DELETE_KEY, named, False)
    image = held.get("newImage")
    if image is not None:
        return _Change(Op.INSERT, {**image, **named}, False)
    if "oldImage" in held:
        raise ValueError(_NO_ROW)
    return _Change(Op.INSERT if kind == "reset" else upsert, {**held[kind], **named}, kind == "update")


def _flavoured_change(payload: Mapping[str, Any], key: bytes | None, schema: TableSchema) -> _Change:
    op, after, named = payload["op"], payload.get("after"), _message_key(key, schema)
    if op == "d":
        before = _with_key(payload.get("before") or {}, named, schema)
        return _Change(Op.DELETE_KEY, {name: before[name] for name in schema.key}, False)
    if after is None:
        raise ValueError(_NO_ROW)
    return _Change(Op.INSERT, _with_key(after, named, schema), False)


def _message_key(key: bytes | None, schema: TableSchema) -> Mapping[str, Any]:
    """Return the columns in the key of a message of Debezium's flavour; YDB's own API does not show it as such."""
    if key is None:
        return {}
    try:
        found = _object(key)
        named = found["payload"] if found.keys() <= {"schema", "payload"} else found
        if not isinstance(named, dict) or not named.keys() <= set(schema.key):
            shown, expected = json.dumps(named)[:100], ", ".join(schema.key)
            raise ValueError(f"it is {shown}, and the table's has the columns {expected}")
    except TROUBLE as error:
        raise ValueError(f"the key of its message cannot be read: {explained(error)}") from None
    return named


def _with_key(row: Mapping[str, Any], named: Mapping[str, Any], schema: TableSchema) -> Mapping[str, Any]:
    """Return a row with the columns of the key, which stand in the message's key, in the row, or in both.

    A column that is NULL is written as null, so one that neither has is not known.
    """
    for name in schema.key:
        if name not in row and name not in named:
            raise ValueError(f'neither it nor the key of its message has the column "{name}" of the key')
        if row.get(name, named.get(name)) != named.get(name, row.get(name)):
            raise ValueError(
                f'its column "{name}" is {json.dumps(row[name])[:100]}, and {json.dumps(named[name])[:100]} in the key '
                "of its message"
            )
    return {**named, **row}


def _document(held: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Return the key and the row of a document table's record, whose values say their kinds; None for a deleted row."""
    record, event = held["dynamodb"], held["eventName"]
    if held["eventSource"] != "ydb:document-table" or event not in ("INSERT", "MODIFY", "REMOVE"):
        raise ValueError(f'it is the event "{event}" of {held["eventSource"]}, not of a YDB document table')
    key = {name: _document_value(value) for name, value in record["Keys"].items()}
    if event == "REMOVE":
        return key, None
    if "NewImage" not in record:
        raise ValueError(_NO_ROW)
    return key, {name: _document_value(value) for name, value in record["NewImage"].items()}


def _document_change(held: Mapping[str, Any], schema: TableSchema) -> _Change:
    """Return the change of a document table; columns that are NULL are left out, those of the key too."""
    stated, image = _document(held)
    if not stated.keys() <= set(schema.key):
        raise ValueError(f"its key has the columns {', '.join(stated)}, and the table's {', '.join(schema.key)}")
    key = {**dict.fromkeys(schema.key), **stated}
    if image is None:
        return _Change(Op.DELETE_KEY, key, False)
    return _Change(Op.INSERT, {**image, **key}, False)


def _document_value(typed: Mapping[str, Any]) -> Any:
    if len(typed) != 1:
        raise ValueError(f"an attribute's value has one kind, not {', '.join(typed) or 'none'}")
    ((kind, value),) = typed.items()
    if kind in ("S", "B", "BOOL"):
        return value
    if kind == "N":
        return Number(read_text(value))
    if kind == "NULL":
        return None
    return {kind: value}


def _refuse_unknown(change: _Change, names: set[str]) -> None:
    unknown = next((name for name in change.row if name not in names), None)
    if unknown is not None:
        raise ValueError(
            f'column "{unknown}" is not in the table\'s schema; expected {", ".join(sorted(names))}. Give the table as '
            "it is now in the setting `schemas`, or let the changefeed state it (SCHEMACHANGES)"
        )


CODEC = MessageCodec(
    classify=classify,
    decode=decode,
    schemas=schemas,
    source_sql=SourceSql(
        types=lambda _: lambda name, declared, own: ydb_column(name, declared), schema=_SCHEMA, nulls_in_key=True
    ),
    keys_alone=KeysAlone(show_columns=show_columns, whole=_WHOLE_MODES, reason=_KEY_ALONE, refused=_NO_ROW),
)
