"""Rows of connectors that are alike, read side by side: what they speak of, and the images of a table in them.

    spoken(keys, values, shape_of)         what rows are, as classify has it, and which messages these are
    images(rows, table, schema, options)   the changes of a table in them, by groups

What is none of the plainest rows (values in values, values that are left out, a source without position) is left to be
read one by one, so that there is one place that says what is wrong with a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import Op
from cdc_assets.formats.debezium_json.envelope import Block, Message, opened
from cdc_assets.formats.debezium_json.positions import dialect, source_positions
from cdc_assets.formats.debezium_json.settings import ConnectorSettings
from cdc_assets.formats.images import Images
from cdc_assets.formats.json_records import SameShape, bits, same_shapes
from cdc_assets.formats.messages import said_of_lone_rows, source_text
from cdc_assets.model.schema import TableId, TableSchema

__all__ = ["REFUSED", "Changes", "Group", "changes", "spoken"]

Marks = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

_TROUBLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)
_OPS = ("c", "u", "d", "r")
REFUSED = ("TiCDC", "ydb", "mongodb")
"""Writers of the envelope that are no connectors of tables."""
_MS_DIGITS = 13


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one shape and connector; `message` is the first of them, `base` leads to what the envelope holds."""

    alike: SameShape
    message: Message
    base: tuple[str, ...]

    @classmethod
    def of(cls, alike: SameShape) -> Group | None:
        """Return rows of a shape, None for what is none, and for rows that do not say plainly what they are."""
        held = alike.shape.first
        wrapped = held.keys() <= {"schema", "payload"} and "payload" in held
        payload = held["payload"] if wrapped else held
        source = payload.get("source") if isinstance(payload, dict) else None
        if not isinstance(source, dict) or "ddl" in payload:
            return None
        try:
            message = opened(alike.shape.message)
        except _TROUBLE:
            return None
        found = cls(alike, message, ("payload",) if wrapped else ())
        connector = source.get("connector")
        if connector in REFUSED or not isinstance(connector, str):
            return None
        return found._plain(connector)

    def _plain(self, connector: str) -> Group | None:
        """Keep the rows that say in plain texts and numbers what they are."""
        texts = [self.place("op"), *(self.place("source", name) for name in ("connector", "name", "table"))]
        stamp, space = self.place("source", "ts_ms"), self._space
        if stamp is None or space is None or None in texts:
            return None
        alike, sound = self.alike, np.ones(len(self.alike.messages), bool)
        for place in (*texts, space):
            assert place is not None
            sound &= alike.quoted(place) & bits(pc.greater(pc.binary_length(alike.texts(place)), 0))
        ops, connectors = (alike.texts(place) for place in texts[:2] if place is not None)
        sound &= bits(pc.is_in(ops, pa.array(_OPS))) & bits(pc.equal(connectors, connector))
        stamps = alike.texts(stamp)
        sound &= ~alike.quoted(stamp) & bits(pc.ascii_is_decimal(stamps))
        sound &= bits(pc.less_equal(pc.binary_length(stamps), _MS_DIGITS))
        has_schema = space == self.place("source", "schema")
        for path in (("before",), ("after",), *(() if has_schema else (("source", "schema"),))):
            place = self.place(*path)
            if place is not None:  # null in one message, it may be something in another
                sound &= alike.nulls(place)
        return self.among(sound) if sound.any() else None

    def place(self, *path: str) -> int | None:
        """Return the number of a value in the envelope."""
        return self.alike.shape.place(*self.base, *path)

    @property
    def _space(self) -> int | None:
        """The schema of the table where the database has such, else the database."""
        source = self.message.payload["source"]
        return self.place("source", "schema" if source.get("schema") is not None else "db")

    def among(self, kept: Marks) -> Group:
        """Return some of the rows."""
        return Group(self.alike.among(kept), self.message, self.base)

    def texts(self, *path: str) -> pa.StringArray:
        """Return values that there are."""
        place = self.place(*path)
        assert place is not None
        return self.alike.texts(place)

    def tables(self) -> tuple[pa.StringArray, pa.StringArray]:
        """Return the tables' schemas and names."""
        assert self._space is not None
        return self.alike.texts(self._space), self.texts("source", "table")

    @property
    def commit_ts(self) -> Places:
        """When the changes were made."""
        found: Places = self.texts("source", "ts_ms").cast(pa.int64()).to_numpy() << 18
        return found


# --- what they speak of -----------------------------------------------------------------------------------------------


def spoken(
    keys: pa.BinaryArray, values: pa.BinaryArray, shape_of: Callable[[bytes | None, Message, str], str | None]
) -> Iterator[tuple[Places, pa.RecordBatch]]:
    """Yield rows that are alike, and what they speak of; `shape_of` a key, a message and a connector is their shape."""
    for alike in same_shapes(values, "schema"):
        whole = Group.of(alike)
        if whole is None:
            continue
        *texts, sound = source_positions(whole.alike, (*whole.base, "source"), whole.message.payload["source"])
        group = whole.among(sound)
        positions = [column.filter(pa.array(sound)) for column in texts]
        for chosen, key in _by_key(keys.take(pa.array(group.alike.messages))):
            mine = group.among(chosen)
            try:
                shape = shape_of(key, mine.message, mine.message.payload["source"]["connector"])
            except _TROUBLE:
                continue
            schemas, tables = mine.tables()
            prefix = source_text(dialect(mine.message.payload["source"]["connector"]), "")
            logs = pc.binary_join_element_wise(prefix, mine.texts("source", "name"), "")
            mask = pa.array(chosen)
            names = ("source_position", "read_at", "phase")
            more = {"source": logs, **{name: text.filter(mask) for name, text in zip(names, positions, strict=True)}}
            ts = pa.array(mine.commit_ts)
            if shape is not None:
                more["shape"] = pa.repeat(shape, len(ts))
            yield mine.alike.messages, said_of_lone_rows(mine.alike.messages, schemas, tables, ts, **more)


def _by_key(keys: pa.BinaryArray) -> Iterator[tuple[Marks, bytes | None]]:
    """Yield which keys name the same columns, with one of them."""
    null = bits(pc.is_null(keys))
    if null.any():
        yield null, None
    numbers = np.flatnonzero(~null)
    for alike in same_shapes(keys.filter(pa.array(~null)), "schema"):
        held = alike.shape.first
        if not isinstance(held.get("payload", {}), dict):  # it may be a text in one, and null in another
            continue
        chosen = np.zeros(len(keys), bool)
        chosen[numbers[alike.messages]] = True
        yield chosen, alike.shape.message


# --- the changes of a table -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows of one kind of change: `sides` are the images in each, the one after it first.

    A side is where its columns' values are, and may be a patch. `moved` is for each what the halves of a changed key
    have in common.
    """

    alike: SameShape
    sides: tuple[Mapping[str, int], ...]
    ops: tuple[Op, ...]
    block: Block
    commit_ts: Places
    moved: pa.StringArray | None

    @property
    def images(self) -> Images:
        """What the changes are, without their values."""
        count = len(self.alike.messages)
        after = [np.full(count, -1) if place == 0 else np.arange(count) for place in range(len(self.sides))]
        return Images(
            np.tile(self.alike.messages + 1, len(self.sides)),
            np.repeat(np.array(self.ops, np.int8), count),
            np.tile(self.commit_ts, len(self.sides)),
            np.concatenate(after),
            self.moved,
        )


def changes(
    rows: pa.RecordBatch, table: TableId, schema: TableSchema, settings: ConnectorSettings, patch: Op
) -> Iterator[Changes]:
    """Yield the changes of a table in rows that are alike; `patch` is the kind of an update without the row before."""
    twice = _are_twice(rows.column("key"))
    for alike in same_shapes(rows.column("value"), "schema"):
        group = Group.of(alike)
        if group is None:
            continue
        spaces, tables = group.tables()
        mine = bits(pc.and_(pc.equal(spaces, table.schema), pc.equal(tables, table.table)))
        ops = group.texts("op")
        for op in pc.unique(ops).to_pylist():
            chosen = mine & bits(pc.equal(ops, op))
            if op == "r":
                chosen &= ~twice[group.alike.messages]
            if chosen.any():
                yield from _of_op(op, group.among(chosen), schema, settings, patch)


def _are_twice(keys: pa.BinaryArray) -> Marks:
    """Mark the messages whose key others have too."""
    coded = pc.dictionary_encode(keys)
    numbers = coded.indices.fill_null(len(coded.dictionary)).to_numpy()
    counts = np.bincount(numbers, minlength=len(coded.dictionary) + 1)
    counts[-1] = 1  # no key is none that others have
    found: Marks = counts[numbers] > 1
    return found


def _of_op(op: str, group: Group, schema: TableSchema, settings: ConnectorSettings, patch: Op) -> Iterator[Changes]:
    sides = {name: _side(group, name, schema) for name in ("before", "after")}
    wanted = {"d": ("before",), "u": ("after", "before"), "c": ("after",), "r": ("after",)}[op]
    held = group.message.payload
    if op == "u" and held.get("before") is None:
        wanted = ("after",)
        kinds: tuple[Op, ...] = (patch,)
        if not schema.key:
            return
    else:
        kinds = {"d": (Op.DELETE,), "u": (Op.INSERT, Op.DELETE)}.get(op, (Op.INSERT,))
    found = [sides[name] for name in wanted]
    slots = tuple(one for one in found if one is not None)
    if len(slots) == len(wanted) and (op == "d") == (held.get("after") is None):
        yield from _kinds_of(op, group.among(_are_whole(group, slots, settings)), slots, kinds, schema)


def _kinds_of(
    op: str, group: Group, slots: tuple[Mapping[str, int], ...], kinds: tuple[Op, ...], schema: TableSchema
) -> Iterator[Changes]:
    """Yield changes by their kind: of deletes some have the row and others its key only."""
    source, block = group.message.payload["source"], group.message.block
    moved = None
    if op == "d" and source["connector"] == "postgresql" and schema.key:
        lsn = group.place("source", "lsn")
        if lsn is None or not slots[0].keys() >= set(schema.key):
            return
        sound = ~group.alike.quoted(lsn) & bits(pc.ascii_is_decimal(group.alike.texts(lsn)))
        for name in schema.key:
            sound &= ~group.alike.nulls(slots[0][name])
        group = group.among(sound)
        moved = group.alike.texts(lsn)
    count = len(group.alike.messages)
    if not count:
        return
    if op != "d" or not schema.key:
        yield Changes(group.alike, slots, kinds, block, group.commit_ts, None)
        return
    bare = np.ones(count, bool)
    for name, place in slots[0].items():
        if name not in schema.key:
            bare &= group.alike.nulls(place)
    for kept, kind in ((bare, Op.DELETE_KEY), (~bare, Op.DELETE)):
        if kept.any():
            some = group.among(kept)
            own = None if moved is None else moved.filter(pa.array(kept))
            yield Changes(some.alike, slots, (kind,), block, some.commit_ts, own)


def _side(group: Group, name: str, schema: TableSchema) -> Mapping[str, int] | None:
    """Return where the values of a row are; None where there is no row, or one that is to be read by itself."""
    row = group.message.payload.get(name)
    if not isinstance(row, dict) or not row:
        return None
    slots = {column: group.place(name, column) for column in row}
    known = {column.name for column in schema.columns}
    whole = bool(group.message.block) or group.message.payload["source"]["connector"] not in ("mysql", "mariadb")
    if None in slots.values() or not slots.keys() <= known:
        return None
    if not whole and not {column.name for column in schema.stored} <= slots.keys():
        return None
    return {column: place for column, place in slots.items() if place is not None}


def _are_whole(group: Group, slots: Sequence[Mapping[str, int]], settings: ConnectorSettings) -> Marks:
    """Mark the rows in which no value only stands for one that did not change."""
    sound = np.ones(len(group.alike.messages), bool)
    for side in slots:
        for place in side.values():
            if group.alike.quoted(place).any():
                sound &= ~bits(pc.is_in(group.alike.texts(place), pa.array(sorted(settings.stand_ins))))
    return sound
