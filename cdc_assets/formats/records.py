"""Records: what messages hold, as columns by path. A protocol reads these, and does not know who made them.

    records.members("payload", "after")            which members objects have
    records.column("payload", "after", "id")       a column: of what kind each cell is, and its text
    records.array("payload", "after", "id")        the same in the type in which they came
    records.require(mask, reason)                  those outside the mask are refused, for the first reason
    records.sound, records.refused()               which are left, and why others are not

A record that nobody could read is refused from the beginning. All records of one value `Records` have the same members
at the top, so that what a message is can be told from these.
"""

from __future__ import annotations

import abc
import copy
import enum
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.words import Marks, base64_numbers

__all__ = ["CellKind", "Kinds", "Marks", "Path", "RecordColumn", "Records", "bits", "bounds", "explained"]

Places = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.uint8]
R = TypeVar("R", bound="Records")
_GREATEST_TSO = np.uint64(1 << 63)
Path = tuple[str | int, ...]
"""Path of a value: member names and array indexes."""


class CellKind(enum.IntEnum):
    """The type of a cell; JSON is an object or an array."""

    ABSENT = 0
    NULL = 1
    TEXT = 2
    NUMBER = 3
    BOOL = 4
    JSON = 5


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """The cells at a path. `texts` are texts as they are, numbers and true and false as they are written, objects and
    arrays as compact JSON; null for null and for what is absent. Where any cell is of bytes, all are.
    """

    kinds: Kinds
    texts: pa.StringArray

    @classmethod
    def absent(cls, count: int) -> RecordColumn:
        """Return a column that no record has."""
        return cls(np.zeros(count, np.uint8), pa.nulls(count, pa.string()))

    @classmethod
    def joined(cls, parts: Sequence[RecordColumn]) -> RecordColumn:
        """Return columns one after the other."""
        kind = pa.binary() if any(part.texts.type == pa.binary() for part in parts) else pa.string()
        texts = [part.texts if part.texts.type == kind else part.texts.cast(kind) for part in parts]
        return cls(np.concatenate([part.kinds for part in parts]), pa.concat_arrays(texts))

    def __len__(self) -> int:
        return len(self.kinds)

    def are(self, kind: CellKind) -> Marks:
        """Mark the cells of a kind."""
        mask: Marks = self.kinds == kind
        return mask

    @property
    def given(self) -> Marks:
        """Mark the cells that are neither absent nor null."""
        mask: Marks = self.kinds > CellKind.NULL
        return mask

    def only(self, mask: Marks) -> pa.StringArray:
        """Return the texts of some cells, null for the others."""
        return self.texts if mask.all() else pc.if_else(pa.array(mask), self.texts, pa.scalar(None, pa.string()))

    def without(self, mask: Marks) -> RecordColumn:
        """Return the cells, of which some are null."""
        return (
            RecordColumn(np.where(mask, np.uint8(CellKind.NULL), self.kinds), self.only(~mask)) if mask.any() else self
        )

    def are_among(self, kind: CellKind, texts: Collection[str]) -> Marks:
        """Mark the cells of a kind that are one of some texts."""
        mask = self.are(kind)
        return mask & bits(pc.is_in(self.texts, pa.array(sorted(texts), self.texts.type))) if mask.any() else mask

    def among(self, mask: Marks) -> RecordColumn:
        """Return some of the cells."""
        return self if mask.all() else RecordColumn(self.kinds[mask], self.texts.filter(pa.array(mask)))

    def else_from(self, other: RecordColumn) -> RecordColumn:
        """Return the cells, and those of another column where they are absent."""
        absent = self.are(CellKind.ABSENT)
        texts = pc.if_else(pa.array(absent), other.texts, self.texts)
        return RecordColumn(np.where(absent, other.kinds, self.kinds), texts)

    def or_given(self, other: RecordColumn) -> RecordColumn:
        """Return the cells, and those of another column where they are absent or null."""
        kinds, none = np.where(self.given, self.kinds, other.kinds), pa.array(~self.given)
        return RecordColumn(kinds, pc.if_else(none, other.texts, self.texts))

    def equal(self, text: str) -> Marks:
        """Mark the cells that are a text."""
        return self.are(CellKind.TEXT) & bits(pc.equal(self.texts, text))

    def shown(self, place: int) -> str:
        """Return a cell as a sentence about it has it, at most 100 characters; a text without quotes."""
        text = self.texts[place].as_py()
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return ("nothing" if self.kinds[place] == CellKind.ABSENT else "null") if text is None else text[:100]

    @property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        """The bytes in which the texts are."""
        return np.frombuffer(self.texts.buffers()[2] or b"", np.uint8)

    def base64_numbers(self) -> tuple[Places, Marks]:
        """Return the texts that are numbers in base64, of up to eight bytes in two's complement, and mark these."""
        data, (begins, ends) = self._bytes, bounds(self.texts)
        lengths, are_texts = ends - begins, self.are(CellKind.TEXT)
        numbers, sound = np.zeros(len(self), np.int64), np.zeros(len(self), bool)
        for length in (4, 8, 12):
            places = np.flatnonzero(are_texts & (lengths == length))
            if len(places):
                numbers[places], sound[places] = base64_numbers(data[begins[places, None] + np.arange(length)])
        return numbers, sound

    def have_byte(self, place: int, byte: bytes) -> Marks:
        """Mark the cells whose text has a byte at a place, counted from its end where that is below zero."""
        data, (begins, ends) = self._bytes, bounds(self.texts)
        at = (begins if place >= 0 else ends) + place
        mask: Marks = (at >= begins) & (at < ends)
        mask[mask] = data[at[mask]] == ord(byte)
        return mask


class Records(abc.ABC):
    """Records with the same members at the top; `messages` are their places among all that were read."""

    messages: Places

    def __init__(self, messages: Places) -> None:
        self.messages = messages
        self.sound: Marks = np.ones(len(messages), bool)
        self._reasons = dict[int, str]()
        self._shown = dict[Path, RecordColumn]()

    def __len__(self) -> int:
        return len(self.messages)

    @abc.abstractmethod
    def members(self, *path: str | int) -> tuple[str, ...]:
        """Return the names of the members that objects at a path have: all that any of them has."""

    @abc.abstractmethod
    def kinds(self, *path: str | int) -> Kinds:
        """Return of what kind each cell at a path is."""

    @abc.abstractmethod
    def column(self, *path: str | int) -> RecordColumn:
        """Return the cells at a path."""

    def array(self, *path: str | int) -> pa.Array:
        """Return the cells at a path as they came: numbers as such where they are not digits, null where absent."""
        return self.column(*path).texts

    def shown(self, place: int, *path: str | int) -> str:
        """Return a cell as a sentence about it has it."""
        if path not in self._shown:
            self._shown[path] = self.column(*path)
        return self._shown[path].shown(place)

    @abc.abstractmethod
    def lengths(self, *path: str | int) -> Places:
        """Return the numbers of elements of the arrays at a path, -1 for what is none."""

    @abc.abstractmethod
    def are_objects(self, *path: str | int) -> Marks:
        """Mark the objects at a path."""

    @abc.abstractmethod
    def whole_numbers(self, *path: str | int) -> tuple[npt.NDArray[np.uint64], Marks]:
        """Return the cells at a path that are whole numbers of at most 64 bits and not below zero, and mark these."""

    def tsos(self, *path: str | int) -> tuple[Places, Marks]:
        """Return the cells at a path that are TSOs, whole numbers below 2^63, 0 for others, and mark these."""
        numbers, sound = self.whole_numbers(*path)
        sound = sound & (numbers < _GREATEST_TSO)
        return np.where(sound, numbers, np.uint64(0)).astype(np.int64), sound

    @abc.abstractmethod
    def by_members(self, *path: str | int) -> Iterator[Marks]:
        """Yield masks of the records whose objects at a path have the same members; what is none has none."""

    def by_value(self, *path: str | int) -> Iterator[tuple[Marks, str | bytes | None]]:
        """Yield masks of the records whose cells at a path are equal, with their text."""
        coded = self.column(*path).texts.dictionary_encode()
        numbers = coded.indices.fill_null(len(coded.dictionary)).to_numpy()
        for number, text in enumerate([*coded.dictionary.to_pylist(), None]):
            mask: Marks = numbers == number
            if mask.any():
                yield mask, text

    @abc.abstractmethod
    def _some(self: R, mask: Marks) -> R:
        """Return some of the records as if nothing was wrong with them."""

    def among(self: R, mask: Marks) -> R:
        """Return some of the records, with what is wrong with them."""
        if mask.all():
            return self
        records = self._some(mask)
        records.sound = self.sound[mask]
        places = np.cumsum(mask) - 1
        records._reasons = {int(places[place]): reason for place, reason in self._reasons.items() if mask[place]}
        return records

    def moved(self: R, messages: Places) -> R:
        """Return them with other places among all."""
        records = copy.copy(self)
        records.messages, records.sound, records._reasons = messages, self.sound.copy(), dict(self._reasons)
        return records

    def require(self, mask: Marks | bool, reason: str | Callable[[int], str]) -> None:
        """Refuse the records outside a mask, for a reason or for one by the record's place here; the first counts."""
        broken = self.sound & ~np.broadcast_to(mask, len(self))
        if not broken.any():
            return
        for place in np.flatnonzero(broken).tolist():
            self._reasons[place] = reason if isinstance(reason, str) else reason(place)
        self.sound = self.sound & ~broken

    def refuse(self, place: int, reason: str) -> None:
        """Refuse the record at a place here."""
        if self.sound[place]:
            self.sound[place] = False
            self._reasons[place] = reason

    def refused(self) -> Iterator[tuple[int, int, str]]:
        """Yield the places here and the messages of the records that are refused, and why."""
        for place, reason in sorted(self._reasons.items()):
            yield place, int(self.messages[place]), reason


def bounds(values: pa.Array) -> tuple[Places, Places]:
    """Return the beginning and end of each value of a binary or string array in the buffer of its bytes."""
    if not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    places = offsets.astype(np.int64)
    return places[:-1], places[1:]


def bits(mask: pa.Array) -> Marks:
    """Return a mask of Arrow's; null is no."""
    marks: Marks = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return marks


def explained(error: Exception) -> str:
    """Return the sentence for an error that a message's bytes raised, at most 300 characters."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error}"
    if isinstance(error, KeyError):
        return f"it lacks {error.args[0]!r}"[:300]
    if not isinstance(error, ValueError):
        return "a value in it is of another kind than it should be"
    return "a number in it has too many digits" if "set_int_max_str_digits" in str(error) else str(error)[:300]
