"""Records of one shape, read side by side: what their change is, when it was, and columns of values.

    stamps(alike)                  when each was, as classify has it
    Rows.of(alike, schema, op)     what their changes are; None for what has to be read one by one
    Rows.cells(column)             a column of them, which is read already

Values become what the readers of `values` make of them; a record that has another value is left to these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import Op
from cdc_assets.formats.alike import Alike, bits, cast_fitting
from cdc_assets.formats.images import Cells
from cdc_assets.formats.ydb_json.values import GREATEST_FLOAT, TROUBLE, OutOfRange, reader_of
from cdc_assets.model.schema import Column, TableSchema

__all__ = ["CHANGES", "Rows", "Stamps", "is_change", "stamps"]

CHANGES = ("update", "reset", "erase")
"""Members of which a change has one."""

Marks = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.uint64]

_MEMBERS = frozenset(("key", *CHANGES, "newImage", "oldImage", "ts", "user"))
_MOST_STEP = np.uint64(10**13)
_DATE, _DATE_AS_MOMENT = 10, "T00:00:00.000000Z"
_T, _Z = b"TZ"


def is_change(alike: Alike) -> bool:
    """Return whether records of a shape are changes, and nothing of them has to be known to see that."""
    held = alike.shape.first
    return held.keys() <= _MEMBERS and "key" in held and any(name in held for name in CHANGES)


# --- when they were ---------------------------------------------------------------------------------------------------


class Stamps(NamedTuple):
    """Virtual timestamps: the records that have sound ones, their steps and numbers of transactions."""

    alike: Alike
    steps: Numbers | None
    transactions: Numbers | None


def stamps(alike: Alike) -> Stamps | None:
    """Return when records were, of those of which that can be seen; None where it is no pair."""
    if "ts" not in alike.shape.first:
        return Stamps(alike, None, None)
    places = alike.shape.place("ts", 0), alike.shape.place("ts", 1)
    if None in places or len(alike.shape.first["ts"]) != len(places):
        return None
    (steps, sound), (transactions, fits) = (alike.whole_numbers(number) for number in places if number is not None)
    sound &= fits & (steps < _MOST_STEP)
    if sound.all():
        return Stamps(alike, steps, transactions)
    return Stamps(alike.among(sound), steps[sound], transactions[sound])


# --- what they are ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """Changes of one kind: `slots` are the numbers of their columns' values, `patch` says what a column without is."""

    alike: Alike
    op: Op
    patch: bool
    slots: Mapping[str, int]
    key: frozenset[str]
    arrays: Mapping[str, pa.Array]
    steps: Numbers | None

    @classmethod
    def of(cls, alike: Alike, schema: TableSchema, upsert: Op) -> Rows | None:
        """Return records as changes of a table, None where their shape is none of its."""
        held, given = alike.shape.first, stamps(alike)
        kinds = [name for name in CHANGES if name in held]
        key = {("key", number): name for number, name in enumerate(schema.key)}
        is_key = isinstance(held.get("key"), list) and len(held["key"]) == len(key)
        if given is None or not is_change(alike) or len(kinds) != 1 or not is_key:
            return None
        alike = given.alike
        image = "" if kinds == ["erase"] else "newImage" if "newImage" in held else kinds[0]
        if image and ("oldImage" in held and image != "newImage" or not isinstance(held[image], dict)):
            return None
        wanted = {(image, name): name for name in (held[image] if image else ()) if name not in schema.key} | key
        places = {name: alike.shape.place(*path) for path, name in wanted.items()}
        if None in places.values() or not places.keys() <= {column.name for column in schema.columns}:
            return None
        op = Op.DELETE_KEY if not image else upsert if image == "update" else Op.INSERT
        slots = {name: place for name, place in places.items() if place is not None}
        sound, arrays = np.ones(len(alike.messages), bool), dict[str, pa.Array]()
        for column in schema.stored:
            if column.name in slots:
                number = slots[column.name]
                arrays[column.name], fits = _READERS.get(column.type, _each)(alike, number, column)
                sound &= fits | alike.nulls(number)
        if not sound.all():  # those that are read one by one
            alike, kept = alike.among(sound), pa.array(sound)
            arrays = {name: array.filter(kept) for name, array in arrays.items()}
            given = given._replace(steps=None if given.steps is None else given.steps[sound])
        return cls(alike, op, image == "update", slots, frozenset(schema.key), arrays, given.steps)

    @property
    def commit_ts(self) -> npt.NDArray[np.int64]:
        """When the changes were made, 0 where they do not say."""
        if self.steps is None:
            return np.zeros(len(self.alike.messages), np.int64)
        return self.steps.astype(np.int64) << 18

    def cells(self, column: Column) -> Cells:
        """Return a column."""
        count = len(self.alike.messages)
        if column.name in self.slots:
            return Cells(self.arrays[column.name], None, "raw", None, (), {}, named=True)
        same = np.ones(count, bool) if self.patch and column.name not in self.key else None
        array = pa.nulls(count, pa.binary() if column.type == "String" else pa.string())
        return Cells(array, None, "raw", None, (), {}, named=True, unchanged=same)


# --- values -----------------------------------------------------------------------------------------------------------


def _texts(alike: Alike, number: int, column: Column) -> tuple[pa.Array, Marks]:
    return alike.texts(number), alike.quoted(number)


def _integers(low: int, high: int) -> Callable[[Alike, int, Column], tuple[pa.Array, Marks]]:
    kind = pa.uint64() if high >= 1 << 63 else pa.int64()

    def read(alike: Alike, number: int, column: Column) -> tuple[pa.Array, Marks]:
        texts, sound = alike.texts(number), ~alike.quoted(number)
        if not sound.all():
            texts = pc.if_else(pa.array(sound), texts, pa.scalar(None, pa.string()))
        found, fits = cast_fitting(texts, kind, r"^-?[0-9]{1,18}$" if low else "^[0-9]{1,18}$")
        sound &= fits
        least, most = pc.min_max(found).as_py().values()
        if least is not None and (least < low or most > high):
            sound &= bits(pc.and_(pc.greater_equal(found, low), pc.less_equal(found, high)))
        return found, sound

    return read


def _doubles(alike: Alike, number: int, column: Column) -> tuple[pa.Array, Marks]:
    texts, sound = alike.texts(number), ~alike.quoted(number)
    found, fits = cast_fitting(texts, pa.float64(), r"^-?[0-9][-+.0-9eE]*$")
    return found, sound & fits & bits(pc.is_finite(found))


def _floats(alike: Alike, number: int, column: Column) -> tuple[pa.Array, Marks]:
    """Numbers as they are written: with so few digits they are no others as doubles."""
    found, sound = _doubles(alike, number, column)
    texts = alike.texts(number)
    few = pc.less_equal(pc.binary_length(texts), 16)
    return texts, sound & bits(pc.and_(few, pc.less_equal(pc.abs(found), GREATEST_FLOAT)))


def _booleans(alike: Alike, number: int, column: Column) -> tuple[pa.Array, Marks]:
    texts = alike.texts(number)
    return texts, ~alike.quoted(number) & bits(pc.is_in(texts, pa.array(["true", "false"])))


def _decimals(alike: Alike, number: int, column: Column) -> tuple[pa.Array, Marks]:
    texts = alike.texts(number)
    return texts, alike.quoted(number) & bits(pc.match_substring_regex(texts, r"^-?[0-9]+(?:\.[0-9]+)?$"))


def _dates(alike: Alike, number: int, column: Column) -> tuple[pa.Array, Marks]:
    texts = alike.texts(number)
    is_moment = pc.and_(pc.ends_with(texts, _DATE_AS_MOMENT), pc.equal(pc.binary_length(texts), 27))
    dated = pc.and_(pc.or_(is_moment, pc.equal(pc.binary_length(texts), _DATE)), pc.string_is_ascii(texts))
    return alike.texts(number, most=_DATE), alike.quoted(number) & ~alike.escaped(number) & bits(dated)


def _instants(alike: Alike, number: int, column: Column) -> tuple[pa.Array, Marks]:
    """Moments without the Z; only where one of them is none does it matter that a blank stands for the T."""
    starts, ends, quoted = alike.values[number]
    data, texts = np.frombuffer(alike.data, np.uint8), alike.texts(number, tail=1)
    sound = (
        quoted & ~alike.escaped(number) & (ends - starts >= 20) & (data[starts + _DATE] == _T) & (data[ends - 1] == _Z)
    )
    sound &= bits(pc.string_is_ascii(texts))
    try:
        pc.if_else(pa.array(sound), texts, pa.scalar(None, pa.string())).cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        texts = pc.utf8_replace_slice(texts, _DATE, _DATE + 1, " ")
    return texts, sound


def _each(alike: Alike, number: int, column: Column) -> tuple[pa.Array, Marks]:
    """Texts and numbers one by one."""
    read = reader_of(column)
    sound, found = np.ones(len(alike.messages), bool), list[str | bytes | None]()
    quoted = alike.quoted(number).tolist()
    for place, value in enumerate(alike.texts(number).to_pylist()):
        found.append(None)
        try:
            if value is not None:
                found[place] = read(value if quoted[place] else int(value))
        except (*TROUBLE, OutOfRange):
            sound[place] = False
    return pa.array(found, pa.binary() if column.type == "String" else pa.string()), sound


def _none(alike: Alike, number: int, column: Column) -> tuple[pa.Array, Marks]:
    """Values of JSON within JSON are read one by one, but for those that are null."""
    return pa.nulls(len(alike.messages), pa.string()), alike.nulls(number)


_READERS: Mapping[str, Callable[[Alike, int, Column], tuple[pa.Array, Marks]]] = {
    **{f"Int{bits}": _integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"Uint{bits}": _integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
    "Bool": _booleans,
    "Float": _floats,
    "Double": _doubles,
    "Decimal": _decimals,
    "Date": _dates,
    **dict.fromkeys(("Datetime", "Timestamp"), _instants),
    **dict.fromkeys(("Utf8", "Uuid", "Pg", "DyNumber"), _texts),
    **dict.fromkeys(("Json", "JsonDocument", "Yson"), _none),
}
"""Type -> what reads a column, and which of its values are sound; every other one is read value by value."""
