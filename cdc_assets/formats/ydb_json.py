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

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.changes import Cells, Faults, Images, changes_of, patch_op, shape_of, side_by_side
from cdc_assets.formats.decoded import Decoded, Op
from cdc_assets.formats.json_records import json_records, json_value
from cdc_assets.formats.messages import (
    Classification,
    KeysAlone,
    Kind,
    MessageCodec,
    SchemaEvent,
    SourceSql,
    by_nothing,
    by_row,
    classified,
    in_order,
    one_row_messages,
    position_texts,
)
from cdc_assets.formats.records import CellKind, Marks, Path, RecordColumn, Records, bits, explained
from cdc_assets.formats.values.ydb import NUMBERS, cells_of
from cdc_assets.model.schema import Column, Index, TableId, TableSchema
from cdc_assets.types.ydb_types import ydb_column

__all__ = ["classify", "decode", "schemas", "show_columns"]


CHANGES = ("update", "reset", "erase")
"""Members of which a change has one."""
_GREATEST_STEP = np.uint64(1 << 45)
"""Milliseconds since 1970 that are a TSO."""
_TROUBLE = (ValueError, KeyError, TypeError, AttributeError, IndexError)
"""Exceptions that a malformed schema record raises."""
_NO_ROW = (
    "it does not have the row after the change, as in the modes KEYS_ONLY and OLD_IMAGE, of which no table can be "
    "built. Let the changefeed have the mode UPDATES, NEW_IMAGE or NEW_AND_OLD_IMAGES"
)
_NOT_YDB = "it is not a record of a YDB changefeed: "
_NO_RECORD = (
    "it has none of the members key with update, reset or erase, resolved, tableChanges, and is no Debezium record "
    "either"
)
_NO_KEY = "the table's key is not known. Give the table to the setting `schemas` as CREATE TABLE with its PRIMARY KEY"
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
    """Return the table and kind of each message (CLASSIFIED); the topic names the table."""
    topics = pc.dictionary_encode(messages.column("topic"))
    tables = [_table_of(topic) for topic in topics.dictionary.to_pylist()]
    batches = list[pa.RecordBatch]()
    for records in json_records(messages.column("value")):
        batches += _lines(records, topics.indices.take(pa.array(records.messages)), tables)
    return in_order(batches)


def _table_of(topic: str) -> TableId:
    """A changefeed's topic is the path of its table and its own name."""
    path, _, _ = topic.strip("/").rpartition("/")
    return TableId.of_path(path or topic, _SCHEMA)


def _lines(records: Records, topics: pa.Array, tables: Sequence[TableId]) -> Iterator[pa.RecordBatch]:
    """Yield the tables and kinds of records; `topics` are the numbers of their tables."""
    members, stamps, kind = records.members(), None, Kind.ROW
    if "resolved" in members:
        kind, stamps = Kind.RESOLVED, _stamps(records, ("resolved",), ("resolved", 0), ("resolved", 1))
    elif "tableChanges" in members:
        kind = Kind.SCHEMA
        _stated(records)
        stamps = _stamps_of_change(records)
    else:
        _require_change(records)
        stamps = _stamps_of_change(records)
    messages, sound = records.messages[records.sound], pa.array(records.sound)
    of_message = dict(zip(records.messages.tolist(), topics.to_pylist(), strict=True)) if kind is Kind.SCHEMA else {}
    yield classified(
        Classification(message, Kind.BAD, tables[topics[place].as_py()], reason=_NOT_YDB + reason)
        for place, message, reason in records.refused()
    )
    positions = None if stamps is None else stamps.texts.filter(sound)
    if kind is Kind.SCHEMA:
        places = [None] * len(messages) if positions is None else positions.to_pylist()
        yield classified(
            Classification(message, kind, tables[of_message[message]], source_position=place)
            for message, place in zip(messages.tolist(), places, strict=True)
        )
    elif kind is Kind.RESOLVED and positions is not None:
        marks = zip(messages.tolist(), positions.to_pylist(), strict=True)
        yield classified(Classification(message, kind, source_position=position) for message, position in marks)
    else:
        own = topics.filter(sound)
        spaces, names = (
            pa.DictionaryArray.from_arrays(own, pa.array([getattr(table, name) for table in tables], pa.string()))
            for name in ("schema", "table")
        )
        more = {"shape": pa.repeat("row", len(messages))}
        if "payload" in members:
            is_scan = pc.equal(records.column("payload", "op").texts, "r").filter(sound)
            more["phase"] = pc.if_else(is_scan, "within", pa.scalar(None, pa.string()))
        if stamps is not None:
            more["source_position"], ts = positions, stamps.commit_ts.filter(sound)
        else:
            ms, whole = records.whole_numbers("dynamodb", "ApproximateCreationDateTime")
            ts = pa.array(ms.astype(np.int64) << 18, mask=~whole | (ms >= _GREATEST_STEP)).filter(sound)
        yield one_row_messages(messages, spaces.cast(pa.string()), names.cast(pa.string()), ts, **more)


# --- what changes are -------------------------------------------------------------------------------------------------


def _is_own(members: Sequence[str]) -> bool:
    """Return whether a record with these members is a change in YDB's own form."""
    return "dynamodb" not in members and "key" in members and any(name in members for name in CHANGES)


def _require_change(records: Records) -> None:
    """Refuse records that are no changes in any of the three forms."""
    members = records.members()
    if "dynamodb" in members:
        _require_document(records)
    elif not _is_own(members):
        op, connector = records.column("payload", "op"), records.column("payload", "source", "connector")
        records.require(bits(pc.is_in(op.texts, pa.array(["c", "u", "d", "r"]))) & op.are(CellKind.TEXT), _NO_RECORD)
        records.require(
            bits(pc.equal(connector.texts, "ydb")),
            lambda place: f'its connector is "{connector.shown(place)}", not ydb',
        )


def _require_document(records: Records) -> None:
    source, event = records.column("eventSource"), records.column("eventName")
    records.require(
        bits(pc.equal(source.texts, "ydb:document-table"))
        & bits(pc.is_in(event.texts, pa.array(["INSERT", "MODIFY", "REMOVE"]))),
        lambda place: f'it is the event "{event.shown(place)}" of {source.shown(place)}, not of a YDB document table',
    )
    records.require(records.are_objects("dynamodb", "Keys"), "it has no Keys")
    deleted = bits(pc.equal(event.texts, "REMOVE"))
    records.require(records.are_objects("dynamodb", "NewImage") | deleted, _NO_ROW)
    for path in (("dynamodb", "Keys"), ("dynamodb", "NewImage")):
        for name in records.members(*path):
            kinds = {kind: records.kinds(*path, name, kind) for kind in records.members(*path, name)}
            count = sum((cell_kinds != CellKind.ABSENT).astype(int) for cell_kinds in kinds.values())
            absent = records.kinds(*path, name) == CellKind.ABSENT
            records.require(absent | (count == 1), partial(_one_kind, kinds))


def _one_kind(kinds: Mapping[str, npt.NDArray[np.uint8]], place: int) -> str:
    named = sorted(kind for kind, cells in kinds.items() if cells[place] != CellKind.ABSENT)
    return f"an attribute's value has one kind, not {', '.join(named) or 'none'}"


class _Stamps(NamedTuple):
    """Virtual timestamps; null where records have none."""

    steps: pa.UInt64Array
    transactions: pa.UInt64Array

    @property
    def commit_ts(self) -> pa.Int64Array:
        return pc.shift_left(self.steps.cast(pa.int64()), 18)

    @property
    def texts(self) -> pa.StringArray:
        return position_texts(self.steps, self.transactions)


def _stamps_of_change(records: Records) -> _Stamps | None:
    """Return the times of records; None where their form has no place for it."""
    if "payload" in records.members():
        source = ("payload", "source")
        return _stamps(records, (*source, "step"), (*source, "step"), (*source, "txId"))
    return _stamps(records, ("ts",), ("ts", 0), ("ts", 1)) if "ts" in records.members() else None


def _stamps(records: Records, whole: Path, step: Path, transaction: Path) -> _Stamps:
    """Return virtual timestamps of which the parts are at paths; what is `whole` may be absent."""
    (steps, sound), (transactions, fits) = records.whole_numbers(*step), records.whole_numbers(*transaction)
    absent = records.kinds(*whole) == CellKind.ABSENT
    pairs = records.lengths(*whole)
    records.require(
        absent | sound & fits & ((pairs == 2) | (whole == step)),
        lambda place: f"a virtual timestamp is two numbers of 64 bits, not {records.shown(place, *whole)}",
    )
    records.require(
        absent | (steps < _GREATEST_STEP),
        lambda place: f"the step {steps[place]} of its virtual timestamp is no time in milliseconds since 1970",
    )
    right = sound & fits & (steps < _GREATEST_STEP)
    mask = None if right.all() else ~right
    return _Stamps(pa.array(steps, mask=mask), pa.array(transactions, mask=mask))


def show_columns(messages: pa.RecordBatch) -> pa.Array:
    """Return true for rows that have columns beside their key, false for those of their key alone; null for any other.

    What has its key alone does not say whether only that was written, or the changefeed never has more.
    """
    shown, decided = np.zeros(len(messages), bool), np.zeros(len(messages), bool)
    for records in json_records(messages.column("value")):
        written = "update" if "update" in records.members() else "reset"
        if "key" not in records.members():
            continue
        columns = records.are_objects("newImage")
        for name in records.members(written):
            columns |= records.kinds(written, name) != CellKind.ABSENT
        shown[records.messages] = columns
        alone = "oldImage" not in records.members()
        decided[records.messages] = records.are_objects(written) & (columns | alone)
    return pa.array(shown, mask=~decided)


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the schemas that records state. A row gives one without columns, which the setting `schemas` has."""
    events, seen = list[SchemaEvent](), set[TableId]()
    stated: dict[int, TableSchema] = {}
    for records in json_records(messages.column("value")):
        if "tableChanges" in records.members() and "resolved" not in records.members():
            stated |= _stated(records)
    spoken = classify(messages, options).select(["message", "kind", "schema", "table"])
    for number, kind, space, name in zip(*(column.to_pylist() for column in spoken.columns), strict=True):
        if kind == Kind.SCHEMA:
            events.append(SchemaEvent(number, TableId(space, name), 0, stated[number], grows=True))
        elif kind == Kind.ROW and (table := TableId(space, name)) not in seen:
            seen.add(table)
            events.append(SchemaEvent(number, table, 0, TableSchema((Column("", ""),), ("",))))
    return tuple(events)


def _stated(records: Records) -> Mapping[int, TableSchema]:
    """Return the schemas that records state, by message; refuse the others."""
    table_schemas: dict[int, TableSchema] = {}
    texts = records.column("tableChanges").texts
    for place in np.flatnonzero(records.sound).tolist():
        try:
            table_schemas[int(records.messages[place])] = _schema(json_value(texts[place].as_py()))
        except _TROUBLE as error:
            records.refuse(place, explained(error))
    return table_schemas


def _schema(changes: Any) -> TableSchema:
    if not isinstance(changes, list) or len(changes) != 1:
        raise ValueError("its tableChanges is not a list of one change")
    described = changes[0]["table"]
    names = described["primaryKeyColumnNames"]
    key = (names,) if isinstance(names, str) else tuple(names)
    columns = tuple(
        ydb_column(name, column["type"] if isinstance(column, dict) else column)
        for name, column in described["columns"].items()
    )
    return TableSchema(columns, key, (Index("PRIMARY", key, unique=True, primary=True),))


# --- rows -------------------------------------------------------------------------------------------------------------


class _Changes(NamedTuple):
    """Changes of one kind: the columns of their rows. A patch leaves out what did not change."""

    records: Records
    op: Op
    columns: Mapping[str, RecordColumn]
    patch: bool = False

    def sound(self) -> _Changes:
        """Return those that are not refused."""
        sound = self.records.sound
        columns = {name: column.among(sound) for name, column in self.columns.items()}
        return self._replace(records=self.records.among(sound), columns=columns)

    def images(self, commit_ts: npt.NDArray[np.int64]) -> Images:
        """Return the images, with the commit-ts of all messages."""
        messages = self.records.messages
        return Images.alone(messages + 1, np.full(len(messages), self.op, np.int8), commit_ts[messages])

    def column(self, name: str) -> RecordColumn:
        """Return a column, absent where the changes do not have it."""
        return self.columns.get(name, RecordColumn.absent(len(self.records)))


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table; a column that a patch leaves out is unchanged, or NULL in a row that is new.

    A record that cannot be read, or that has a column which the schema lacks, is a Reject with its bytes.
    """
    shape_of(schema.stored)  # an unknown type is an error before any row is
    rows = by_row(rows)
    keys, values = rows.column("key"), rows.column("value")
    commit_ts, change_sets = np.zeros(len(values), np.int64), list[_Changes]()
    faults = Faults(path, lambda line: values[line - 1].as_py() or b"")
    for records in json_records(values):
        _require_change(records)
        stamps = _stamps_of_change(records)
        if stamps is not None:
            commit_ts[records.messages] = stamps.commit_ts.fill_null(0).to_numpy()
        for changes in _changes(records, keys, schema, patch_op(options.patch_without_row, Op.INSERT)):
            _refuse_unknown(changes, schema)
            faults.add_refused(changes.records, "it is not a row of a YDB changefeed")
            change_sets.append(changes.sound())
    patches = np.repeat([changes.patch for changes in change_sets], [len(changes.records) for changes in change_sets])

    def cells(column: Column) -> Cells:
        whole = RecordColumn.joined([changes.column(column.name) for changes in change_sets])
        return cells_of(whole, column, patches & (column.name not in schema.key))

    images = side_by_side([changes.images(commit_ts) for changes in change_sets])
    return changes_of(images, cells, schema, options, faults)


def _changes(records: Records, keys: pa.BinaryArray, schema: TableSchema, upsert: Op) -> Iterator[_Changes]:
    """Yield changes by their kind; `keys` are the keys of all messages."""
    records.require(bool(schema.key), _NO_KEY)
    if "dynamodb" in records.members():
        yield from _changes_of_documents(records, schema)
    elif _is_own(records.members()):
        yield from _own_changes(records, schema, upsert)
    else:
        yield from _flavoured_changes(records, keys, schema)


def _own_changes(records: Records, schema: TableSchema, upsert: Op) -> Iterator[_Changes]:
    kind, *other_names = (name for name in CHANGES if name in records.members())
    records.require(not other_names, f"it has {kind} and {' and '.join(other_names)}, of which a change has one")
    expected = ", ".join(schema.key)
    records.require(
        records.lengths("key") == len(schema.key),
        lambda place: f"its key is {records.shown(place, 'key')}, and the table's ({expected})",
    )
    if kind == "erase":
        yield _Changes(records, Op.DELETE_KEY, _key_of(records, schema))
        return
    with_image = records.kinds("newImage") > CellKind.NULL
    for some, image in (records.among(with_image), "newImage"), (records.among(~with_image), kind):
        if not len(some):
            continue
        some.require(image == "newImage" or "oldImage" not in some.members(), _NO_ROW)
        some.require(some.are_objects(image), f"its {image} is no object of columns")
        columns, key = {name: some.column(image, name) for name in some.members(image)}, _key_of(some, schema)
        for name in key.keys() & columns.keys():
            _require_equal(some, name, columns[name], key[name], "its key")
        patch = image == "update"
        yield _Changes(some, upsert if patch else Op.INSERT, columns | key, patch)


def _key_of(records: Records, schema: TableSchema) -> dict[str, RecordColumn]:
    return {name: records.column("key", place) for place, name in enumerate(schema.key)}


def _refuse_unknown(changes: _Changes, schema: TableSchema) -> None:
    names = {column.name for column in schema.columns}
    for name in changes.columns.keys() - names:
        changes.records.require(
            changes.columns[name].are(CellKind.ABSENT),
            f'column "{name}" is not in the table\'s schema; expected {", ".join(sorted(names))}. Give the table as it '
            "is now in the setting `schemas`, or let the changefeed state it (SCHEMACHANGES)",
        )


# --- Debezium's flavour -----------------------------------------------------------------------------------------------


def _flavoured_changes(records: Records, keys: pa.BinaryArray, schema: TableSchema) -> Iterator[_Changes]:
    """The columns of the key stand in the message's key, in the row, or in both."""
    deletes = bits(pc.equal(records.column("payload", "op").texts, "d"))
    for some, image in (records.among(deletes), "before"), (records.among(~deletes), "after"):
        some.require(some.are_objects("payload", image) | (image == "before"), _NO_ROW)
        for rows, named in _by_key(some, keys.take(pa.array(some.messages)), schema):
            columns = {name: rows.column("payload", image, name) for name in rows.members("payload", image)}
            key = {name: _key_column(rows, name, columns.get(name), named.get(name)) for name in schema.key}
            yield _Changes(rows, Op.INSERT, columns | key) if image == "after" else _Changes(rows, Op.DELETE_KEY, key)


def _by_key(
    records: Records, keys: pa.BinaryArray, schema: TableSchema
) -> Iterator[tuple[Records, Mapping[str, RecordColumn]]]:
    """Yield records with the columns in the keys of their messages."""
    is_missing = bits(keys.is_null())
    if is_missing.any() or not len(is_missing):
        yield records.among(is_missing), {}
    numbers = np.flatnonzero(~is_missing)
    for group in json_records(keys.filter(pa.array(~is_missing))) if len(numbers) else ():
        chosen = np.zeros(len(records), bool)
        chosen[numbers[group.messages]] = True
        named = _named_key(group, schema)
        rows = records.among(chosen)
        for place, _, reason in group.refused():
            rows.refuse(place, f"the key of its message cannot be read: {reason}")
        yield rows, named


def _named_key(keys: Records, schema: TableSchema) -> Mapping[str, RecordColumn]:
    """Return the columns in messages' keys; YDB's own API does not show them as such."""
    is_wrapped = "payload" in keys.members() and {*keys.members()} <= {"schema", "payload"}
    if "payload" in schema.key:
        is_wrapped = is_wrapped and bool(keys.are_objects("payload").all())
    base = ("payload",) if is_wrapped else ()
    keys.require(
        keys.are_objects(*base) & ~_have_more(keys, base, schema.key),
        lambda place: f"it is {keys.shown(place, *base)}, and the table's has the columns {', '.join(schema.key)}",
    )
    return {name: keys.column(*base, name) for name in keys.members(*base)}


def _have_more(records: Records, path: Path, names: Sequence[str]) -> Marks:
    """Mark the records with an object at a path that has other members than some."""
    mask = np.zeros(len(records), bool)
    for name in records.members(*path):
        mask |= (name not in names) & (records.kinds(*path, name) != CellKind.ABSENT)
    return mask


def _key_column(records: Records, name: str, own: RecordColumn | None, named: RecordColumn | None) -> RecordColumn:
    """Return a column of the key. One that is NULL is written as null, so one that neither has is not known."""
    absent = RecordColumn.absent(len(records))
    own, named = own or absent, named or absent
    there, also = ~own.are(CellKind.ABSENT), ~named.are(CellKind.ABSENT)
    records.require(there | also, f'neither it nor the key of its message has the column "{name}" of the key')
    _require_equal(records, name, own, named.else_from(own), "the key of its message")
    return own.else_from(named)


def _require_equal(records: Records, name: str, own: RecordColumn, named: RecordColumn, where: str) -> None:
    """Refuse records whose row has another value in a column of the key than their key."""
    equal = (own.given == named.given) & (bits(pc.equal(own.texts, named.texts)) | ~own.given)
    records.require(
        own.are(CellKind.ABSENT) | equal,
        lambda place: f'its column "{name}" is {own.shown(place)}, and {named.shown(place)} in {where}',
    )


# --- document tables --------------------------------------------------------------------------------------------------


def _changes_of_documents(records: Records, schema: TableSchema) -> Iterator[_Changes]:
    """Values say their kinds; columns that are NULL are left out, those of the key too."""
    records.require(
        ~_have_more(records, ("dynamodb", "Keys"), schema.key),
        lambda place: (
            f"its key is {records.shown(place, 'dynamodb', 'Keys')}, and the table's has the columns "
            f"{', '.join(schema.key)}"
        ),
    )
    types = {column.name: column.type for column in schema.columns}
    deletes = bits(pc.equal(records.column("eventName").texts, "REMOVE"))
    for some, image in (records.among(deletes), "Keys"), (records.among(~deletes), "NewImage"):
        row, key = (
            {name: _attribute(some, (*path, name), types.get(name, "")) for name in some.members(*path)}
            for path in (("dynamodb", image), ("dynamodb", "Keys"))
        )
        key = {name: key.get(name, RecordColumn.absent(len(some))) for name in schema.key}
        for name in key.keys() & row.keys():
            _require_equal(some, name, row[name], key[name], "its key")
        yield _Changes(some, Op.DELETE_KEY if image == "Keys" else Op.INSERT, row | key)


def _attribute(records: Records, path: Path, type_: str) -> RecordColumn:
    """Return a column whose values say of what kind they are, as a column of these."""
    column = records.column(*path)
    for kind in records.members(*path):
        own = records.column(*path, kind)
        if kind == "N":  # a number, printed as text
            is_number = own.are(CellKind.TEXT) & (type_ in NUMBERS)
            own = RecordColumn(np.where(is_number, np.uint8(CellKind.NUMBER), own.kinds), own.texts)
        elif kind == "NULL":
            own = RecordColumn(np.minimum(own.kinds, np.uint8(CellKind.NULL)), pa.nulls(len(own), pa.string()))
        elif kind not in ("S", "B", "BOOL"):
            continue
        column = own.else_from(column)
    return column


CODEC = MessageCodec(
    classify=classify,
    decode=decode,
    schemas=schemas,
    source_sql=SourceSql(
        types=lambda _: lambda name, declared, own: ydb_column(name, declared), schema=_SCHEMA, nulls_in_key=True
    ),
    keys_alone=KeysAlone(show_columns=show_columns, whole=_WHOLE_MODES, reason=_KEY_ALONE, refused=_NO_ROW),
    read_by=by_nothing,
)
