"""JSON messages that are alike, read side by side: those of one table have the same members in the same order.

The first message has a shape: what stands between its values, byte for byte. Every other is held against it, and has
texts, numbers, true, false or null where the first has any of them. What fits is what a parser would read; what does
not (an escape, an object where the first has a number, other members) has another shape, or is left to the parser.

    read_alike(values) -> for each shape its messages, and where each of their values is
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.json_lines import is_utf8, pieces

__all__ = ["Alike", "Path", "Shape", "find_shape", "read_alike"]

Places = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
Path = tuple[str | int, ...]
"""Where a value is: the names of members and the places in arrays that lead to it."""

_QUOTE, _BACKSLASH, _SPACE = b'"\\ '
_COMMA, _BRACE, _BRACKET, _ZERO = b",}]0"
_LAST_ASCII = 0x7F
_BEYOND, _LONGEST_BARE = 128, 40
"""How many bytes after the end of all data may be looked at, and how long a value before no quote may be."""
_LONG = 64
"""Texts between values that are longer are compared as a whole, others by words of eight bytes."""
_BLOCK_BYTES = 1 << 22
"""Messages of so many bytes are read side by side, so that a processor's caches hold what is made of them."""
_CACHED_BYTES = 1 << 16
_FEW, _MOST_SHAPES = 16, 16
"""Fewer messages of a shape are left to the parser, and so is what has none of the first shapes."""
_SCALAR = re.compile(rb'"[^"]*"|[^\s{}\[\],:"]+')
_BARE = r"^(?:null|true|false|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)$"


@dataclass(frozen=True, slots=True)
class Shape:
    """What is the same in messages: `between` stands before each value and after the last, `paths` are the values."""

    between: tuple[bytes, ...]
    paths: tuple[Path, ...]
    first: Any

    def place(self, *path: str | int) -> int | None:
        """Return the number of the value at a path, None where there is none."""
        return self.paths.index(path) if path in self.paths else None


def find_shape(message: bytes, fixed: str = "") -> Shape | None:
    """Return the shape of a message, in which the member `fixed` is the same everywhere.

    None for one that is no JSON, has an escape, or a member twice.
    """
    try:
        first = json.loads(message.decode())
    except (ValueError, RecursionError):
        return None
    if b"\\" in message or not isinstance(first, dict):
        return None
    between: list[bytes] = []
    paths: list[Path] = []
    at = begun = 0
    path: list[str | int] = []
    named = False  # an object's next text is the name of a member
    while at < len(message):
        byte = message[at : at + 1]
        if byte in b"{[":
            path.append("" if byte == b"{" else 0)
            named = byte == b"{"
        elif byte in b"}]":
            path.pop()
        elif byte == b",":
            last = path[-1]
            named = isinstance(last, str)
            path[-1] = "" if isinstance(last, str) else last + 1
        elif byte not in b": \t\r\n":
            end = _SCALAR.match(message, at).end()  # type: ignore[union-attr]  # it is JSON
            if named:
                path[-1], named = message[at + 1 : end - 1].decode(), False
            elif path[0] != fixed:
                between.append(message[begun:at])
                paths.append(tuple(path))
                begun = end
            at = end
            continue
        at += 1
    shape = Shape((*between, message[begun:]), tuple(paths), first)
    return shape if len(set(paths)) == len(paths) else None


@dataclass(frozen=True, slots=True)
class Alike:
    """Messages of one shape: `messages` are their places among all, `values` where each of their values stands.

    A text stands without its quotes, and is marked in `quoted`.
    """

    shape: Shape
    messages: Places
    data: pa.Buffer
    values: tuple[tuple[Places, Places, Marks], ...]

    def among(self, kept: Marks) -> Alike:
        """Return some of the messages."""
        if kept.all():
            return self
        values = tuple((starts[kept], ends[kept], quoted[kept]) for starts, ends, quoted in self.values)
        return Alike(self.shape, self.messages[kept], self.data, values)

    def nulls(self, number: int) -> Marks:
        """Mark the messages whose value is null."""
        starts, ends, quoted = self.values[number]
        bytes_ = np.frombuffer(self.data, np.uint8)
        null: Marks = ~quoted & (ends - starts == 4) & (bytes_[starts] == ord("n"))
        return null

    def quoted(self, number: int) -> Marks:
        """Mark the messages whose value is a text."""
        return self.values[number][2]

    def texts(self, number: int, tail: int = 0, most: int = 0) -> pa.StringArray:
        """Return values as they are written, null for null; without some last bytes, or so many first ones at most."""
        starts, ends, _ = self.values[number]
        ends = np.minimum(ends, starts + most) if most else np.maximum(ends - tail, starts)
        found, null = pieces(self.data, starts, ends, pa.string()), self.nulls(number)
        return pc.if_else(pa.array(null), pa.scalar(None, pa.string()), found) if null.any() else found


def read_alike(values: pa.BinaryArray, fixed: str = "") -> Iterator[Alike]:
    """Yield messages by their shapes (see `find_shape`); those that are in none are to be read one by one."""
    sizes = pc.binary_length(values).fill_null(0).to_numpy().astype(np.int64)
    cuts = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // _BLOCK_BYTES)) + 1
    for start, stop in pairwise([0, *cuts.tolist(), len(values)]):
        for found in _read_block(values.slice(start, stop - start), fixed):
            yield replace(found, messages=found.messages + start) if start else found


def _read_block(values: pa.BinaryArray, fixed: str) -> Iterator[Alike]:
    if len(values) < _FEW:
        return
    block = _Block(values)
    left = np.flatnonzero(block.plain)
    for _ in range(_MOST_SHAPES):
        if len(left) < _FEW:
            return
        shape = find_shape(block.message(int(left[0])), fixed)
        if shape is None:
            left = left[1:]
            continue
        found = block.of_shape(left, shape)
        mine = found.messages
        if len(mine) >= _FEW:
            yield found
        left = np.setdiff1d(left, mine if len(mine) else left[:1], assume_unique=True)


class _Block:
    """Messages one after the other; `plain` marks those without escape or control character, which are UTF-8.

    In these a quote begins or ends a text.
    """

    def __init__(self, values: pa.BinaryArray) -> None:
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        self.begins = offsets[:-1].astype(np.int64) - first
        self.ends = offsets[1:].astype(np.int64) - first
        self.data = np.zeros(last - first + _BEYOND, np.uint8)
        if last > first:
            self.data[: last - first] = np.frombuffer(values.buffers()[2], np.uint8)[first:last]
        self.words = np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))
        self.size = last - first
        self.plain: Marks = self.ends > self.begins
        quotes, ascii_ = list[npt.NDArray[np.int32]](), True
        for at in range(0, self.size, _CACHED_BYTES):
            part = self.data[at : min(at + _CACHED_BYTES, self.size)]
            quotes.append((np.flatnonzero(part == _QUOTE) + at).astype(np.int32))
            if part.min() < _SPACE or (part == _BACKSLASH).any():
                self._refuse(np.flatnonzero((part < _SPACE) | (part == _BACKSLASH)) + at)
            ascii_ = ascii_ and part.max() <= _LAST_ASCII
        if not ascii_ and not is_utf8(self.data[: self.size]):
            self._refuse(np.flatnonzero(self.data[: self.size] > _LAST_ASCII))
        self.quotes = np.concatenate([*quotes, np.full(1, self.size, np.int32)])

    def _refuse(self, where: Places) -> None:
        self.plain[np.searchsorted(self.begins, where, side="right") - 1] = False

    def message(self, number: int) -> bytes:
        return self.data[self.begins[number] : self.ends[number]].tobytes()

    def of_shape(self, messages: Places, shape: Shape) -> Alike:
        """Go through messages side by side; return those that have the shape."""
        at = self.begins[messages]
        quote = np.searchsorted(self.quotes, at)
        values: list[tuple[Places, Places, Marks]] = []
        for between, then in pairwise(shape.between):
            fit = self._have(at, between)
            if not fit.all():
                messages, at, quote = messages[fit], at[fit], quote[fit]
                values = [(starts[fit], ends[fit], quoted[fit]) for starts, ends, quoted in values]
            at, quote = at + len(between), quote + between.count(b'"')
            starts, ends, quoted = self._value(at, quote, then)
            values.append((starts, ends, quoted))
            at, quote = ends + quoted, quote + 2 * quoted
        last = shape.between[-1]
        fit = self._have(at, last) & (at + len(last) == self.ends[messages])
        found = Alike(shape, messages, pa.py_buffer(self.data), tuple(values)).among(fit)
        return found.among(_are_scalars(found))

    def _value(self, at: Places, quote: Places, then: bytes) -> tuple[Places, Places, Marks]:
        """Return where values begin and end, and which are texts; what is none ends where no message fits.

        Without quotes a value ends before `then`, which is found by its first quote.
        """
        quoted: Marks = self.data[at] == _QUOTE
        if quoted.all():
            return at + 1, self._quote(quote + 1), quoted
        to_quote = then.find(b'"')
        bare = self._end(at) if to_quote < 0 else np.maximum(self._quote(quote) - to_quote, at)
        if not quoted.any():
            return at, bare, quoted
        return at + quoted, np.where(quoted, self._quote(quote + 1), bare), quoted

    def _end(self, at: Places) -> Places:
        """Return where values without quotes end, of which none is longer than some bytes."""
        ends, left = at + _LONGEST_BARE, np.arange(len(at))
        for length in range(_LONGEST_BARE):
            byte = self.data[at[left] + length]
            ended = (byte == _COMMA) | (byte == _BRACE) | (byte == _BRACKET)
            if ended.any():
                ends[left[ended]] = at[left[ended]] + length
                left = left[~ended]
                if not len(left):
                    break
        return ends

    def _quote(self, number: Places) -> Places:
        found: Places = self.quotes[np.minimum(number, len(self.quotes) - 1)].astype(np.int64)
        return found

    def _have(self, at: Places, text: bytes) -> Marks:
        """Mark the places where the data goes on with a text."""
        if len(text) > _LONG:
            inside = np.minimum(at + len(text), self.size)
            held = pieces(pa.py_buffer(self.data), np.minimum(at, inside), inside)
            found: Marks = pc.equal(held, pa.scalar(text, pa.binary())).to_numpy(zero_copy_only=False)
            return found
        found = np.ones(len(at), dtype=bool)
        for start in range(0, len(text), 8):
            piece = text[start : start + 8]
            held = self.words[at + start if start else at]
            if len(piece) < 8:
                held &= np.uint64((1 << 8 * len(piece)) - 1)
            found &= held == np.uint64(int.from_bytes(piece, "little"))
        return found


def _are_scalars(found: Alike) -> Marks:
    """Mark messages all of whose values without quotes are numbers, true, false or null."""
    sound, data = np.ones(len(found.messages), bool), np.frombuffer(found.data, np.uint8)
    for starts, ends, quoted in found.values:
        if quoted.all():
            continue
        texts = pieces(found.data, np.where(quoted, ends, starts), ends, pa.string())
        plain = pc.ascii_is_decimal(texts).to_numpy(zero_copy_only=False) & (
            (data[starts] != _ZERO) | (ends - starts == 1)
        )
        others = np.flatnonzero(~plain & ~quoted)
        if len(others):
            sound[others] &= pc.match_substring_regex(texts.take(pa.array(others)), _BARE).to_numpy(
                zero_copy_only=False
            )
    return sound
