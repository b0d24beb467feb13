"""JSON messages -> Records: those of one shape are read side by side, the rest by a parser, into the same.

Messages of one table have the same members in the same order. The first one has a shape: what stands between its
values, byte for byte. Every other is compared with it, and has texts, numbers, true, false or null where the first has
any of them. What fits is what the parser would read; what does not (half of a surrogate pair, an object where the first
has a number, other members) has another shape, or is left to the parser.

The parser is strict: texts are UTF-8, no member appears twice in an object, NaN is none. Numbers keep their digits.

    json_records(values, fixed)  all messages, as Records; a member may be named that most of them have in common
    same_shapes(values)          only those of one shape; an object may be named that has part of another one's members
    parsed_records(values)       the same without looking for shapes; what reads a message may be given
    json_value(text)             a value of JSON that a cell holds
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.records import CellKind, Marks, Path, RecordColumn, Records, bits, bounds, explained
from cdc_assets.formats.words import BitIndex, have, is_utf8, pieces, places, whole_numbers, words

__all__ = [
    "NO_VALUE",
    "Path",
    "SameShape",
    "Shape",
    "Twice",
    "bits",
    "cast_fitting",
    "find_shape",
    "json_records",
    "json_value",
    "parsed_records",
    "print_json",
    "refuse_twice",
    "same_shapes",
    "shapes_behind",
    "value_column",
]

Places = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.uint8]
K = TypeVar("K", bound=Hashable)
Span = tuple[int, int, int, int]
"""The start and end of an object or array; the start is the number of a piece between values and an offset in it."""

_QUOTE, _BACKSLASH, _SPACE, _ZERO, _DOT, _MINUS, _COMMA = b'"\\ 0.-,'
_NINE = 9
_LAST_ASCII = 0x7F
_U = ord("u")
_ESCAPED = np.isin(np.arange(256), np.frombuffer(b'"\\/bfnrtu', np.uint8))
"""Characters that may follow a backslash."""
_HEX = np.isin(np.arange(256), np.frombuffer(b"0123456789abcdefABCDEF", np.uint8))
_HALVES = np.isin(np.arange(256), np.frombuffer(b"dD", np.uint8))
"""The first digit of halves of surrogate pairs."""
_BEYOND, _LONGEST_BARE = 128, 40
"""Bytes that may be read beyond the end of all data, and the longest value without quotes."""
_LONG = 64
"""Texts between values that are longer are compared as a whole, others by words of eight bytes."""
_BLOCK_BYTES, _BLOCK_MESSAGES, _MOST_BLOCK_BYTES = 1 << 22, 1 << 13, 1 << 25
"""Bytes and messages that are read side by side: a processor's caches should hold what is made of them, and what is
done once for each value of a shape should be little beside it."""
FEW, _MOST_SHAPES = 192, 16
"""Fewer messages of a shape are left to the parser, and so is what has none of the first shapes: what is done once for
a shape and its values takes as long as to parse some hundred messages."""
_SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\s{}\[\],:"]+')
_ESCAPE = re.compile(rb"\\.")
_BARE = r"^(?:null|true|false|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)$"
_INSIDE = -1
"""A step to what is between the braces of an object."""
_BEFORE_NAME = np.isin(np.arange(256), np.frombuffer(b"{,", np.uint8))
"""Characters that may stand before the name of a member."""
Partial = tuple[Path, Path]
"""The path of an object that has some of the members of the object at the second path, in their order."""
_DECODER, _PRINT = json.JSONDecoder(), json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Shape:
    """The common form of messages: `between` stands before each value and after the last, `paths` are the values.

    `first` is what the first that has the shape holds. `spans` are its objects and arrays. What is within the members
    `unordered` is a value that stands between braces. `optional` are values by number that not every message has, with
    the name before them as it is written, colon and all. Nothing stands between two of them: the comma goes with the
    value before it.
    """

    between: tuple[bytes, ...]
    paths: tuple[Path, ...]
    spans: Mapping[Path, Span]
    first: Any
    unordered: Sequence[str]
    sizes: Mapping[int, int]
    optional: Mapping[int, bytes]

    def place(self, *path: str | int) -> int | None:
        """Return the number of the value at a path, None where there is none."""
        return self.paths.index(path) if path in self.paths else None

    def at(self, *path: str | int) -> Any:
        """Return the value of the first message at a path, ABSENT for none."""
        value = self.first
        for step in path:
            value = _step(value, step)
        return value


def find_shape(
    message: bytes, fixed: str = "", unordered: Sequence[str] = (), size: int = 0, partial: Partial | None = None
) -> Shape | None:
    """Return the shape of a message, in which the member `fixed` and the first `size` bytes are the same everywhere.

    Members of the objects `unordered` may stand in any order. If the first object of `partial` lacks members of the
    second, which has no object or array in it, each of its members is optional. None for a message that is no JSON, or
    has a member twice.
    """
    try:
        first = _parsed(message)
    except ValueError:
        return None
    if not isinstance(first, dict):
        return None
    text = message.decode()
    own = tuple(name for name in unordered if isinstance(first.get(name), dict))
    members: Mapping[Path, Sequence[str]] = {}
    if partial is not None:
        part, whole = (reduce(_step, path, first) for path in partial)
        is_part = isinstance(part, dict) and isinstance(whole, dict) and part.keys() < whole.keys()
        if is_part and not any(isinstance(value, dict | list) for value in whole.values()):
            members = {partial[0]: tuple(whole)}
            part.clear()
            part.update(whole)  # the first message is asked which members there are, not for these values
    between, paths, spans, sizes = _walk(message, text if len(text) == len(message) else "", fixed, own, size, members)
    names = {
        paths.index((*path, name)): f"{_PRINT(name)}:".encode() for path, names in members.items() for name in names
    }
    return Shape(between, paths, spans, first, own, sizes, names)


def _walk(
    message: bytes,
    text: str,
    fixed: str,
    unordered: Sequence[str],
    size: int,
    partial: Mapping[Path, Sequence[str]],
) -> tuple[tuple[bytes, ...], tuple[Path, ...], Mapping[Path, Span], Mapping[int, int]]:
    """Return the text between the values of a message, and the places of these, of objects and of arrays.

    The values that are the insides of the members `unordered` come with their lengths. Objects at the paths `partial`
    have these members, whichever of them are in the message. `text` is the message in ASCII, else "".
    """
    between: list[bytes] = []
    paths: list[Path] = []
    spans: dict[Path, Span] = {}
    sizes: dict[int, int] = {}
    opened: list[tuple[int, int]] = []
    at = begun = 0
    path: list[str | int] = []
    named = False  # an object's next text is the name of a member
    while at < len(message):
        byte = message[at : at + 1]
        if byte in b"{[":
            if path == [fixed] and text:
                at = _DECODER.raw_decode(text, at)[1]
                continue
            opened.append((len(between), at - begun))
            if len(path) == 1 and path[0] in unordered:
                between.append(message[begun : at + 1])
                paths.append((*path, _INSIDE))
                begun = at + 1
            elif members := partial.get(tuple(path)):
                between += [message[begun : at + 1], *[b""] * (len(members) - 1)]
                paths += [(*path, name) for name in members]
                begun = len(message)  # none of what is in it counts
            path.append("" if byte == b"{" else 0)
            named = byte == b"{"
        elif byte in b"}]":
            path.pop()
            if len(path) == 1 and path[0] in unordered:
                sizes[len(between) - 1], begun = at - begun, at
            elif tuple(path) in partial:
                begun = at
            spans[tuple(path)] = (*opened.pop(), len(between), at + 1 - begun)
        elif byte == b",":
            last = path[-1]
            named = isinstance(last, str)
            path[-1] = "" if isinstance(last, str) else last + 1
        elif byte not in b": \t\r\n":
            end = _SCALAR.match(message, at).end()  # type: ignore[union-attr]  # it is JSON
            if named:
                path[-1], named = json.loads(message[at:end]), False
            elif at >= max(size, begun) and path[0] != fixed and path[0] not in unordered:
                between.append(message[begun:at])
                paths.append(tuple(path))
                begun = end
            at = end
            continue
        at += 1
    return (*between, message[begun:]), tuple(paths), spans, sizes


class SameShape(Records):
    """Messages of one shape: `values` is where each of their values stands.

    A text stands without its quotes, and is marked in `quoted`. `backslashes` are where in the data such are.
    """

    def __init__(
        self,
        shape: Shape,
        messages: Places,
        data: pa.Buffer,
        backslashes: Places,
        values: tuple[tuple[Places, Places, Marks], ...],
    ) -> None:
        super().__init__(messages)
        self.shape, self.data, self.backslashes, self.values = shape, data, backslashes, values

    def _some(self, mask: Marks) -> SameShape:
        values = tuple((starts[mask], ends[mask], quoted[mask]) for starts, ends, quoted in self.values)
        return SameShape(self.shape, self.messages[mask], self.data, self.backslashes, values)

    def members(self, *path: str | int) -> tuple[str, ...]:
        value = self.shape.at(*path)
        return tuple(value) if isinstance(value, dict) else ()

    def kinds(self, *path: str | int) -> Kinds:
        number = self.shape.place(*path)
        if self._is_unordered(path):
            return self._inside(path).kinds
        if number is None:
            return np.full(len(self), _KINDS[type(self.shape.at(*path))], np.uint8)
        starts, ends, quoted = self.values[number]
        if quoted.all():
            return np.full(len(self), CellKind.TEXT, np.uint8)
        kinds = np.where(quoted, np.uint8(CellKind.TEXT), _BARE_KINDS[np.frombuffer(self.data, np.uint8)[starts]])
        return np.where(quoted | (ends > starts), kinds, np.uint8(CellKind.ABSENT))

    def column(self, *path: str | int) -> RecordColumn:
        if self._is_unordered(path):
            return self._inside(path)
        number, kinds = self.shape.place(*path), self.kinds(*path)
        if number is not None:
            return RecordColumn(kinds, self._texts(number, kinds <= CellKind.NULL))
        first, start, last, stop = self.shape.spans.get(path, (0, 0, 0, 0))
        if first == last:  # it is the same in all of them
            return RecordColumn(kinds, pa.repeat(pa.scalar(self._common(path), pa.string()), len(self)))
        (begins, stops, quoted), (_, ends, closed) = self.values[first], self.values[last - 1]
        names = len(self.shape.optional.get(first, b"")) * (quoted | (stops > begins))
        texts = pieces(self.data, begins - quoted - names, ends + closed + stop)
        texts = pc.binary_join_element_wise(self.shape.between[first][start:], texts, b"")
        return RecordColumn(kinds, pa.array([print_json(json_value(text)) for text in texts.to_pylist()], pa.string()))

    def _is_unordered(self, path: Path) -> bool:
        return len(path) > 1 and path[0] in self.shape.unordered

    def _inside(self, path: Path) -> RecordColumn:
        """Return the cells at a path in an object whose members stand in any order: mostly what the first one has."""
        starts, ends, _ = self.values[self.shape.paths.index((path[0], _INSIDE))]
        value, objects = self.shape.at(*path), pieces(self.data, starts, ends)
        is_equal = pa.repeat(False, len(self))
        if len(path) == 2 and type(value) is str:  # no text of JSON has its own quotes in it
            is_equal = pc.match_substring(
                objects, f"{json.dumps(path[1])}:{json.dumps(value, ensure_ascii=False)}".encode()
            )
        cells = [value] * len(self)
        for place in np.flatnonzero(~bits(is_equal)).tolist():
            try:
                cells[place] = _parsed(b"{%s}" % objects[place].as_py())
            except ValueError as error:
                self.refuse(place, explained(error))
                cells[place] = ABSENT
            for step in path[1:]:
                cells[place] = _step(cells[place], step)
        return _column(cells)

    def by_members(self, *path: str | int) -> Iterator[Marks]:
        paths = [self.shape.paths[number] for number in self.shape.optional]
        present = [self.kinds(*member).astype(bool) for member in paths if member[:-1] == path]
        if not present:
            yield np.ones(len(self), bool)
            return
        for _, mask in _equal(zip(*present, strict=True)):
            yield mask

    def by_value(self, *path: str | int) -> Iterator[tuple[Marks, str | bytes | None]]:
        first, _, last, _ = self.shape.spans.get(path, (0, 0, 0, 0))
        if self.shape.place(*path) is not None or first != last:
            yield from super().by_value(*path)
        else:
            yield np.ones(len(self), bool), self._common(path)

    def _common(self, path: Path) -> str | bytes | None:
        """Return the text of what is the same in all messages."""
        value = self.shape.at(*path)
        return _TEXTS[type(value)](value)

    def lengths(self, *path: str | int) -> Places:
        value = self.shape.at(*path)
        return np.full(len(self), len(value) if isinstance(value, list) else -1)

    def are_objects(self, *path: str | int) -> Marks:
        return np.full(len(self), isinstance(self.shape.at(*path), dict))

    def whole_numbers(self, *path: str | int) -> tuple[npt.NDArray[np.uint64], Marks]:
        number = self.shape.place(*path)
        if number is None:
            common = _whole(self.shape.at(*path))
            return np.full(len(self), common or 0, np.uint64), np.full(len(self), common is not None)
        starts, ends, quoted = self.values[number]
        numbers, sound = whole_numbers(words(np.frombuffer(self.data, np.uint8)), starts, ends)
        return numbers, sound & ~quoted

    def _texts(self, number: int, null: Marks) -> pa.StringArray:
        """Return the values with a number as they are written, null for those that are."""
        starts, ends, _ = self.values[number]
        member_texts, escaped = pieces(self.data, starts, ends, pa.string()), self._escaped(number)
        if escaped.any():
            mask, bytes_ = pa.array(escaped), memoryview(self.data)
            each = (bytes(bytes_[start:end]) for start, end in zip(starts[escaped], ends[escaped], strict=True))
            texts = json.loads(b"[%s]" % b",".join(b'"%s"' % text for text in each))
            member_texts = pc.replace_with_mask(member_texts, mask, pa.array(texts, pa.string()))
        return pc.if_else(pa.array(null), pa.scalar(None, pa.string()), member_texts) if null.any() else member_texts

    def _escaped(self, number: int) -> Marks:
        """Mark the messages whose value has escapes."""
        starts, ends, _ = self.values[number]
        if not len(self.backslashes):
            return np.zeros(len(starts), bool)
        mask: Marks = np.searchsorted(self.backslashes, starts) < np.searchsorted(self.backslashes, ends)
        return mask


def same_shapes(
    values: pa.BinaryArray, fixed: str = "", unordered: Sequence[str] = (), partial: Partial | None = None
) -> Iterator[SameShape]:
    """Yield messages by their shapes (see `find_shape`); those that are in none are to be read one by one."""
    for prefix, messages, rest in _by_prefix(values, fixed) if fixed else ((b"", None, values),):
        for shape in shapes_behind(prefix, rest, fixed, unordered, partial):
            yield shape if messages is None else shape.moved(messages[shape.messages])


def shapes_behind(
    prefix: bytes,
    rests: pa.BinaryArray,
    fixed: str = "",
    unordered: Sequence[str] = (),
    partial: Partial | None = None,
) -> Iterator[SameShape]:
    """Yield messages by their shapes that all begin with a prefix, of which `rests` are what stands behind it."""
    sizes = pc.binary_length(rests).fill_null(0).to_numpy().astype(np.int64)
    size = min(max(_BLOCK_BYTES, int(sizes.mean() * _BLOCK_MESSAGES) if len(sizes) else 0), _MOST_BLOCK_BYTES)
    starts = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // size)) + 1
    for start, stop in pairwise([0, *starts.tolist(), len(rests)]):
        for shape in _read_block(rests.slice(start, stop - start), prefix, fixed, unordered, partial):
            yield shape.moved(shape.messages + start)


def _by_prefix(values: pa.BinaryArray, fixed: str) -> Iterator[tuple[bytes, Places, pa.BinaryArray]]:
    """Yield messages that begin with the same member `fixed`, with where they are and what stands behind it.

    Those that do not begin with such a member come as they are.
    """
    beginning = json.dumps({fixed: 0}, separators=(",", ":")).encode()[:-2]
    data, (starts, ends) = values.buffers()[2] or pa.py_buffer(b""), bounds(values)
    view = memoryview(data)

    def begin(messages: Places, text: bytes) -> Marks:
        are = [bytes(view[at : at + len(text)]) == text for at in starts[messages].tolist()]
        return np.array(are, bool) & (ends[messages] - starts[messages] >= len(text))

    all_ = np.arange(len(values))
    rest = all_[begin(all_, beginning)]
    other_places = np.setdiff1d(all_, rest, assume_unique=True)
    if len(other_places):
        yield b"", other_places, pieces(data, starts[other_places], ends[other_places])
    for _ in range(_MOST_SHAPES):
        if len(rest) < FEW:
            return
        message = bytes(view[starts[rest[0]] : ends[rest[0]]])
        text = message.decode() if is_utf8(message) else ""
        prefix = text[: _value_end(text, len(beginning))].encode()
        if not prefix:
            rest = rest[1:]
            continue
        fit = begin(rest, prefix)
        places, rest = rest[fit], rest[~fit]
        yield prefix, places, pieces(data, starts[places] + len(prefix), ends[places])


def _read_block(
    values: pa.BinaryArray, prefix: bytes, fixed: str, unordered: Sequence[str], partial: Partial | None
) -> Iterator[SameShape]:
    """Yield messages by their shapes, of which all begin with a prefix that `values` do not have."""
    if len(values) < FEW:
        return
    block = _Block(values)
    open_ = block.plain.copy()
    for _ in range(_MOST_SHAPES):
        messages = np.flatnonzero(open_)
        if len(messages) < FEW:
            return
        first = int(messages[0])
        open_[first] = False
        shape = find_shape(prefix + block.message(first), fixed, unordered, len(prefix), partial)
        if shape is None:
            continue
        same_shape = block.of_shape(messages, shape, len(prefix))
        open_[same_shape.messages] = False
        if len(same_shape) >= FEW:
            yield same_shape


class _Block:
    """Messages one after the other; `plain` marks those in UTF-8 without control character or half of a pair.

    In these each quote that has no backslash before it begins or ends a text.
    """

    def __init__(self, values: pa.BinaryArray) -> None:
        begins, ends = bounds(values)
        first, last = int(begins[0]), int(ends[-1])
        self.begins, self.ends = begins - first, ends - first
        buffer = memoryview(values.buffers()[2] or b"")
        if len(buffer) < last + _BEYOND:
            buffer, first, last = memoryview(b"".join((buffer[first:last], bytes(_BEYOND)))), 0, last - first
        self.view, self.size = buffer[first : last + _BEYOND], last - first
        self.data = np.frombuffer(self.view, np.uint8)
        self.words = words(self.data)
        self.plain: Marks = self.ends > self.begins
        body = self.data[: self.size]
        if body.min(initial=_SPACE) < _SPACE:
            self._refuse(np.flatnonzero(body < _SPACE))
        if body.max(initial=0) > _LAST_ASCII and not is_utf8(body):
            self._refuse(np.flatnonzero(body > _LAST_ASCII))
        self.backslashes = places(body, _BACKSLASH)
        escaped = self._escaped() if len(self.backslashes) else None
        self.quotes = BitIndex(self.data, self.size, lambda part: part == _QUOTE, escaped)

    def _escaped(self) -> Places:
        """Return the places of characters with a backslash before them; messages with other ones are not plain."""
        runs = np.flatnonzero(np.diff(self.backslashes, prepend=-2) != 1)
        lengths = np.diff(runs, append=len(self.backslashes))
        places: Places = (self.backslashes[runs] + lengths)[lengths % 2 == 1]
        sound = _ESCAPED[self.data[places]]
        coded = places[self.data[places] == _U]
        if len(coded):
            digits = self.data[coded[:, None] + np.arange(1, 5)]
            self._refuse(coded[~_HEX[digits].all(axis=1) | _HALVES[digits[:, 0]]] - 1)
        self._refuse(places[~sound] - 1)
        return places

    def _refuse(self, where: Places) -> None:
        self.plain[np.searchsorted(self.begins, where, side="right") - 1] = False

    def message(self, number: int) -> bytes:
        return self.data[self.begins[number] : self.ends[number]].tobytes()

    def of_shape(self, messages: Places, shape: Shape, prefix: int) -> SameShape:
        """Go through messages side by side; return those that have the shape, but for so many first bytes of it."""
        at = self.begins[messages]
        values: list[tuple[Places, Places, Marks]] = []
        texts = (shape.between[0][prefix:], *shape.between[1:])
        for number, (between, then) in enumerate(pairwise(texts)):
            fit = self._have(at, between)
            if not fit.all():
                messages, at = messages[fit], at[fit]
                values = [(starts[fit], ends[fit], quoted[fit]) for starts, ends, quoted in values]
            at = at + len(between)
            if number in shape.sizes:
                ends = np.minimum(at + shape.sizes[number], self.ends[messages])
                starts, quoted = at, np.zeros(len(at), bool)
            elif number in shape.optional:
                starts, ends, quoted = self._optional(at, shape.optional[number])
            else:
                starts, ends, quoted = self._value(at, then)
            values.append((starts, ends, quoted))
            at = ends + quoted
            if number in shape.optional:  # the comma before a name goes with the value before it
                at = at + ((at > starts) & (self.data[at] == _COMMA) & (self.data[at + 1] == _QUOTE))
        last = texts[-1]
        fit = self._have(at, last) & (at + len(last) == self.ends[messages])
        data = pa.py_buffer(self.data)
        return SameShape(shape, messages, data, self.backslashes, tuple(values)).among(fit)

    def _value(self, at: Places, then: bytes) -> tuple[Places, Places, Marks]:
        """Return the beginnings and ends of values, and which are texts; what is none ends where no message goes on."""
        quoted: Marks = self.data[at] == _QUOTE
        if quoted.all():
            return at + 1, self.quotes.next(at + 1), quoted
        if not quoted.any():
            return at, self._bare(at, then[0]), quoted
        ends = self.quotes.next(at + 1)
        ends[~quoted] = self._bare(at[~quoted], then[0])
        return at + quoted, ends, quoted

    def _optional(self, at: Places, name: bytes) -> tuple[Places, Places, Marks]:
        """Return the beginnings and ends of values behind a name, texts or null, and which are texts.

        A message without the name has an empty value; any other value ends where no message goes on.
        """
        has = self._have(at, name) & _BEFORE_NAME[self.data[at - 1]]
        starts = at + np.where(has, len(name), 0)
        quoted: Marks = has & (self.data[starts] == _QUOTE)
        starts += quoted
        ends = starts.copy()
        ends[quoted] = self.quotes.next(starts[quoted])
        bare = np.flatnonzero(has & ~quoted)
        ends[bare] = np.where(have(self.words, starts[bare], b"null"), starts[bare] + len(b"null"), self.size)
        return starts, ends, quoted

    def _bare(self, at: Places, then: int) -> Places:
        """Return the ends of numbers, true, false and null that a byte follows, and the end for anything else."""
        starts = at + (self.data[at] == _MINUS)
        ends = self.strange.next(starts)
        dotted = np.flatnonzero(self.data[ends] == _DOT)
        whole = ends > starts
        if len(dotted):
            digits = ends[dotted] + 1
            ends[dotted] = self.strange.next(digits)
            whole[dotted] &= ends[dotted] > digits
        zero = self.data[starts] == _ZERO
        if zero.any():
            whole &= ~zero | (ends == starts + 1) | (self.data[starts + 1] == _DOT)
        others = np.flatnonzero(~whole | (self.data[ends] != then) | (ends - at > _LONGEST_BARE))
        if len(others):
            ends[others] = self._spelled(at[others], then)
        return ends

    def _spelled(self, at: Places, then: int) -> Places:
        """Return the ends of null, true, false and numbers with exponents; for other texts the end of the data."""
        ends: Places = at.copy()
        rest = np.arange(len(at))
        for text in (b"null", b"false", b"true"):
            fit = have(self.words, at[rest], text) & (self.data[at[rest] + len(text)] == then)
            ends[rest] += np.where(fit, len(text), 0)
            rest = rest[~fit]
        if len(rest):
            stops = BitIndex(self.data, self.size, lambda part: part == then).next(at[rest])
            texts = pieces(pa.py_buffer(self.data), at[rest], stops, pa.string())
            fit = bits(pc.match_substring_regex(texts, _BARE)) & (stops - at[rest] <= _LONGEST_BARE)
            ends[rest] = np.where(fit, stops, self.size)
        return ends

    @cached_property
    def strange(self) -> BitIndex:
        """Mask of bytes that are not digits."""
        return BitIndex(self.data, self.size, lambda part: part - np.uint8(_ZERO) > _NINE)

    def _have(self, at: Places, text: bytes) -> Marks:
        if len(text) > _LONG:
            size = len(text)
            return np.array([self.view[place : place + size] == text for place in at.tolist()], bool)
        return have(self.words, at, text)


# --- all messages -----------------------------------------------------------------------------------------------------

Twice = Callable[[str, Any, Any], Any]
"""The name of a member that an object has twice, its first and its second value -> the one that counts.

Raises ValueError where none does.
"""


def json_records(
    values: pa.BinaryArray, fixed: str = "", unordered: Sequence[str] = (), twice: Twice | None = None
) -> Iterator[Records]:
    """Yield all messages as records: JSON objects, by their shapes, else by their members; null is none.

    The member `fixed` is the same in most messages, as a schema is, so that it is read but once. The members
    `unordered` are objects with the same members in an order that differs from message to message: what is in them is
    read only where it is asked for, and those of the first message are taken for those of all. `twice` says what a
    member is that an object has twice, where the protocol's writers do that.
    """
    open_ = np.ones(len(values), bool)
    for records in same_shapes(values, fixed, unordered):
        open_[records.messages] = False
        yield records
    numbers = np.flatnonzero(open_)
    parse = partial(_parsed, decoder=_decoder(twice)) if twice else _parsed
    for some in parsed_records(values.take(pa.array(numbers)), _Parser(fixed, parse) if fixed else parse):
        yield some.moved(numbers[some.messages])


def parsed_records(values: pa.BinaryArray, read: Callable[[bytes], Any] | None = None) -> Iterator[ParsedRecords]:
    """Yield all messages as records that were read one by one: by a function that raises ValueError, or as JSON."""
    parsed = _all_parsed(values, read or _parsed)
    if not len(values):
        yield parsed
    for mask in parsed.by_members():
        yield parsed.among(mask)


def _all_parsed(values: pa.BinaryArray, read: Callable[[bytes], Any]) -> ParsedRecords:
    parsed, reasons = list[Any](), dict[int, str]()
    for number, value in enumerate(values.to_pylist()):
        parsed.append(ABSENT)
        try:
            if value is None:
                raise ValueError(NO_VALUE)
            record = read(value)
            if not isinstance(record, dict):
                raise ValueError("it is not an object")
            parsed[number] = record
        except ValueError as error:
            reasons[number] = explained(error)
    return ParsedRecords(np.arange(len(parsed)), parsed, reasons)


class ParsedRecords(Records):
    """Messages that were parsed one by one."""

    def __init__(self, messages: Places, values: Sequence[Any], reasons: Mapping[int, str]) -> None:
        super().__init__(messages)
        self._cells: dict[Path, Sequence[Any]] = {(): values}
        self._reasons = dict(reasons)
        self.sound[list(reasons)] = False

    def _some(self, mask: Marks) -> ParsedRecords:
        values = [value for value, chosen in zip(self._cells[()], mask.tolist(), strict=True) if chosen]
        return ParsedRecords(self.messages[mask], values, {})

    def by_members(self, *path: str | int) -> Iterator[Marks]:
        members = (frozenset(value) if type(value) is dict else frozenset() for value in self._at(path))
        for _, mask in _equal(members):
            yield mask

    def by_value(self, *path: str | int) -> Iterator[tuple[Marks, str | bytes | None]]:
        cells = self._at(path)
        values = {id(value): value for value in cells}  # many may be the same one
        texts = {number: _TEXTS[type(value)](value) for number, value in values.items()}
        for text, mask in _equal(texts[id(value)] for value in cells):
            yield mask, text

    def _at(self, path: Path) -> Sequence[Any]:
        if path not in self._cells:
            above, step = self._at(path[:-1]), path[-1]
            self._cells[path] = (
                [value.get(step, ABSENT) if type(value) is dict else ABSENT for value in above]
                if isinstance(step, str)
                else [_step(value, step) for value in above]
            )
        return self._cells[path]

    def members(self, *path: str | int) -> tuple[str, ...]:
        sets = dict.fromkeys(tuple(value) for value in self._at(path) if type(value) is dict)
        return tuple(dict.fromkeys(name for names in sets for name in names))

    def kinds(self, *path: str | int) -> Kinds:
        return _kinds(self._at(path))

    def column(self, *path: str | int) -> RecordColumn:
        return _column(self._at(path))

    def array(self, *path: str | int) -> pa.Array:
        cells = self._at(path)
        try:
            if not any(isinstance(value, dict | list) for value in cells):
                return pa.array([None if value is ABSENT else value for value in cells])
        except (pa.ArrowException, OverflowError, TypeError):  # of several types, or beyond those of Arrow
            pass
        return _column(cells).texts

    def lengths(self, *path: str | int) -> Places:
        return np.array([len(value) if isinstance(value, list) else -1 for value in self._at(path)], np.int64)

    def are_objects(self, *path: str | int) -> Marks:
        return np.array([isinstance(value, dict) for value in self._at(path)], bool)

    def whole_numbers(self, *path: str | int) -> tuple[npt.NDArray[np.uint64], Marks]:
        numbers = [_whole(value) for value in self._at(path)]
        integers = np.array([0 if number is None else number for number in numbers], np.uint64)
        return integers, np.array([number is not None for number in numbers], bool)


def _equal(keys: Iterable[K]) -> Iterator[tuple[K, Marks]]:
    """Yield keys, and masks of where each is."""
    groups: dict[K, list[int]] = {}
    for place, key in enumerate(keys):
        groups.setdefault(key, []).append(place)
    count = sum(map(len, groups.values()))
    for key, places_ in groups.items():
        mask = np.zeros(count, bool)
        mask[places_] = True
        yield key, mask


def value_column(values: Sequence[Any]) -> RecordColumn:
    """Return values of `json_value` as a column."""
    return ParsedRecords(np.arange(len(values)), values, {}).column()


# --- the parser -------------------------------------------------------------------------------------------------------


class _Absent:
    """Marker of a missing value."""


ABSENT = _Absent()
NO_VALUE = "it has no value"
_WHOLE = re.compile(r"[0-9]{1,20}")
_DEEPEST = 200


class _Number(str):
    """A number with its digits as they were written."""

    __slots__ = ()


_KINDS: Mapping[type, int] = {
    _Absent: int(CellKind.ABSENT),
    type(None): int(CellKind.NULL),
    **dict.fromkeys((str, bytes), int(CellKind.TEXT)),
    **dict.fromkeys((_Number, int, float, Decimal), int(CellKind.NUMBER)),
    bool: int(CellKind.BOOL),
    **dict.fromkeys((dict, list), int(CellKind.JSON)),
}
_PLAIN = frozenset((str, _Number, type(None)))
"""Types of values that are their own texts."""
_BARE_KINDS = np.full(256, CellKind.NUMBER, np.uint8)
_BARE_KINDS[np.frombuffer(b"tf", np.uint8)] = CellKind.BOOL
_BARE_KINDS[ord("n")] = CellKind.NULL
"""The first byte of a value without quotes -> its kind."""


def refuse_twice(name: str, first: object, second: object) -> Any:
    """Raise the ValueError of a message that has a member twice."""
    raise ValueError(f'the member "{name}" appears twice in it')


def _members(pairs: list[tuple[str, Any]], twice: Twice) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        members.clear()
        for name, value in pairs:
            members[name] = twice(name, members[name], value) if name in members else value
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _decoder(twice: Twice) -> json.JSONDecoder:
    hook = partial(_members, twice=twice)
    return json.JSONDecoder(object_pairs_hook=hook, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant)


_STRICT = _decoder(refuse_twice)


def _parsed(value: bytes, decoder: json.JSONDecoder = _STRICT) -> Any:
    try:
        document = decoder.decode(value.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _refuse_half_pairs(value, document)
    if value.count(b"[") + value.count(b"{") > _DEEPEST and _is_deep(document):
        raise ValueError("it is nested too deeply")
    return document


def _refuse_half_pairs(text: bytes, document: object) -> None:
    """Raise ValueError for JSON with half of a surrogate pair: it is escaped, and no text in UTF-8."""
    if b"\\ud" not in text and b"\\uD" not in text:
        return
    try:
        json.dumps(document, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise ValueError("a text in it has half of a surrogate pair, so it is not UTF-8") from None


class _Parser:
    """Parses messages of which many have a member `fixed` that is the same: at their beginning, or at their end."""

    def __init__(self, fixed: str, parse: Callable[[bytes], Any]) -> None:
        self._fixed, self._parse = fixed, parse
        self._known: list[tuple[bytes, bytes, Any]] = []

    def __call__(self, message: bytes) -> Any:
        for before, behind, value in self._known:
            if message.startswith(before) and message.endswith(behind):
                record = self._rest(message[len(before) : -len(behind)])
                if record:
                    own = {self._fixed: value}
                    return own | record if behind == b"}" else record | own
        record = self._parse(message)
        if isinstance(record, dict) and self._fixed in record:
            self._remember(message.decode(), record[self._fixed])
        return record

    def _rest(self, members: bytes) -> dict[str, Any]:
        """Return the other members; none for what is no message, of which the whole says why."""
        try:
            record: dict[str, Any] = self._parse(b"{%s}" % members)
        except ValueError:
            return {}
        return {} if self._fixed in record else record

    def _remember(self, text: str, value: Any) -> None:
        name = f"{json.dumps(self._fixed)}:"
        first, last = 1 + len(name), text.rfind(f",{name}") + 1 + len(name)
        if text.startswith("{" + name) and text[(stop := _value_end(text, first))] == ",":
            self._known.insert(0, (text[: stop + 1].encode(), b"}", value))
        elif last > len(name) and text[_value_end(text, last) :] == "}":
            self._known.insert(0, (b"{", text[last - first :].encode(), value))
        del self._known[_MOST_SHAPES:]


def _value_end(text: str, place: int) -> int:
    """Return the end of a value that begins at a place, 0 where none does."""
    try:
        return _DECODER.raw_decode(text, place)[1]
    except (ValueError, RecursionError):
        return 0


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [member for value in level for member in (value.values() if isinstance(value, dict) else value)]
        level = [member for member in level if isinstance(member, dict | list)]
    return bool(level)


def _whole(value: Any) -> int | None:
    """Return a whole number of at most 64 bits that is not below zero, None for anything else."""
    if type(value) is not int and not (type(value) is _Number and _WHOLE.fullmatch(value)):
        return None
    number = int(value)
    return number if 0 <= number < 1 << 64 else None


def json_value(text: str | bytes) -> Any:
    """Return the value of JSON in a cell; its numbers are texts. Raises ValueError for what is not JSON."""
    return _parsed(text.encode() if isinstance(text, str) else text)


def print_json(value: Any) -> str:
    """Print a value of JSON without blanks, its numbers by their own digits."""
    kind = type(value)
    if kind is str:
        return _PRINT(value)
    if kind is dict:
        return "{" + ",".join([f"{_PRINT(name)}:{print_json(member)}" for name, member in value.items()]) + "}"
    if kind is list:
        return f"[{','.join([print_json(element) for element in value])}]"
    return str(value) if kind is _Number else _PRINT(value)


_TEXTS: Mapping[type, Callable[[Any], str | bytes | None]] = {
    **dict.fromkeys((_Absent, type(None)), lambda value: None),
    **dict.fromkeys((str, bytes, _Number), lambda value: value),
    **dict.fromkeys((int, float), repr),
    Decimal: lambda value: format(value, "f"),
    bool: lambda value: "true" if value else "false",
    **dict.fromkeys((dict, list), print_json),
}


def _kinds(cells: Sequence[Any]) -> Kinds:
    return np.frombuffer(bytes([_KINDS[type(value)] for value in cells]), np.uint8)


def _column(cells: Sequence[Any]) -> RecordColumn:
    plain = _PLAIN.issuperset(map(type, cells))
    texts = cells if plain else [_TEXTS[type(value)](value) for value in cells]
    if any(isinstance(text, bytes) for text in texts):
        texts = [text.encode() if isinstance(text, str) else text for text in texts]
        return RecordColumn(_kinds(cells), pa.array(texts, pa.binary()))
    return RecordColumn(_kinds(cells), pa.array(texts, pa.string()))


def _step(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return value.get(step, ABSENT) if isinstance(value, dict) else ABSENT
    return value[step] if isinstance(value, list) and step < len(value) else ABSENT


# --- numbers ----------------------------------------------------------------------------------------------------------


def cast_fitting(texts: pa.StringArray, kind: pa.DataType, pattern: str) -> tuple[pa.Array, Marks | bool]:
    """Return texts as numbers, and which are such; those that do not fit the pattern are null where one is none."""
    try:
        return texts.cast(kind), True
    except pa.ArrowInvalid:
        fits = pc.match_substring_regex(texts, pattern)
        return pc.if_else(fits, texts, pa.scalar(None, pa.string())).cast(kind), bits(fits)
