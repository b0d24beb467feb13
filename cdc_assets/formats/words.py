"""Bytes at many places of a buffer at once, eight of them as one number.

    words(data)                      the eight bytes from each place on
    have(words, at, text)            where a text stands
    whole_numbers(words, from, to)   what digits say
    base64_numbers(texts)            what bytes in base64 say
    varints(data, at)                what varints say
    places(data, byte)               where a byte stands
    BitIndex(data, size, test)         where the next byte stands that passes a test
    pieces(data, from, to)           what stands there, as an array

A piece that is looked at may end with the data: whoever made the data appends as many bytes as are read beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "BitIndex",
    "Marks",
    "base64_numbers",
    "have",
    "is_utf8",
    "pieces",
    "places",
    "signed",
    "varints",
    "whole_numbers",
    "words",
]

Places = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
Test = Callable[[npt.NDArray[np.uint8]], Marks]

_WORD, _BITS = 8, 64
_MOST_DIGITS, _ZERO = 20, ord("0")
_LONGEST_VARINT = 10
_PART_BYTES = 1 << 17
_SEEN, _TRIED = 57, 8
"""Fewest bytes that a word of bits covers, and most such words that are examined."""
_HEAD, _TAIL = (np.uint64(number) for number in divmod((1 << 64) - 1, 10**16))
"""The greatest number of 64 bits: its first four digits, and the sixteen behind them."""


_ZEROS, _LOW, _TO_HIGH, _HIGH = (np.uint64(0x0101010101010101 * byte) for byte in (_ZERO, 0x7F, 0x80 - 10, 0x80))
_PAIRED = tuple(
    (np.uint64(mask), np.uint64(factor), np.uint64(shift))
    for mask, factor, shift in (
        (0x0F0F0F0F0F0F0F0F, 10 * 2**8 + 1, 8),
        (0x00FF00FF00FF00FF, 100 * 2**16 + 1, 16),
        (0x0000FFFF0000FFFF, 10_000 * 2**32 + 1, 32),
    )
)
"""Eight digits in a word, the first of them lowest, become four numbers of two digits, then two of four, then one."""


def words(data: npt.NDArray[np.uint8]) -> Words:
    """Return the eight bytes from each place on as a number, the first of them lowest."""
    word_view: Words = np.ndarray((max(0, len(data) - _WORD + 1),), "<u8", data, strides=(1,))
    return word_view


def have(held: Words, at: Places, text: bytes) -> Marks:
    """Mark the places where a text stands."""
    if len(text) < _WORD:
        mask = np.uint64((1 << _WORD * len(text)) - 1)
        marks: Marks = held[at] & mask == np.uint64(int.from_bytes(text, "little"))
        return marks
    last = len(text) - _WORD
    marks = held[at] == np.uint64(int.from_bytes(text[:_WORD], "little"))
    for start in (*range(_WORD, last, _WORD), *((last,) if last else ())):
        marks &= held[at + start] == np.uint64(int.from_bytes(text[start : start + _WORD], "little"))
    return marks


def pieces(data: pa.Buffer, starts: Places, ends: Places, kind: pa.DataType | None = None) -> pa.Array:
    """Return pieces of a buffer as an array of their own (default: binary).

    One that would end before it starts is empty. No piece may start behind the buffer: nothing looks at that.
    """
    offsets = np.empty(2 * len(starts) + 2, np.int32)
    offsets[0], offsets[-1] = 0, data.size
    offsets[1:-1:2], offsets[2:-1:2] = starts, np.maximum(starts, ends)
    cut = pa.Array.from_buffers(kind or pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data])
    return pc.take(cut, pa.array(np.arange(1, len(offsets) - 1, 2, dtype=np.int32)), boundscheck=False)


def is_utf8(body: bytes | npt.NDArray[np.uint8]) -> bool:
    """Return whether the bytes are UTF-8 throughout; Arrow's JSON reader does not look."""
    offsets = pa.py_buffer(np.array([0, len(body)], np.int64))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(body)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


# --- numbers ----------------------------------------------------------------------------------------------------------


def whole_numbers(held: Words, starts: Places, ends: Places) -> tuple[Words, Marks]:
    """Return the numbers that pieces are in digits alone, and which pieces are such, of at most 64 bits."""
    lengths = ends - starts
    sound: Marks = (lengths > 0) & (lengths <= _MOST_DIGITS)
    total, power = np.zeros(len(lengths), np.uint64), 1
    for done in range(0, int(min(lengths.max(initial=0), _MOST_DIGITS)), _WORD):
        size = np.clip(lengths - done, 0, _WORD)
        word = _padded(held, np.maximum(ends - done - size, 0), size)
        digits = word ^ _ZEROS
        sound &= ((digits & _LOW) + _TO_HIGH | digits) & _HIGH == 0
        for mask, factor, shift in _PAIRED:
            word = (word & mask) * factor >> shift
        if done == 2 * _WORD:
            sound &= (word < _HEAD) | (word == _HEAD) & (total <= _TAIL)
        total += word * np.uint64(power)
        power *= 10**_WORD
    return total, sound


def _padded(held: Words, at: Places, size: Places) -> Words:
    """Return so many bytes of each word, the last of them highest, with the digit 0 before them."""
    more = ((_WORD - size) * _WORD).astype(np.uint64)
    padded_words: Words = held[at] << more | _ZEROS >> np.uint64(_BITS) - more
    return padded_words


_DIGITS = np.full(256, -1, np.int64)
_DIGITS[[*b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"]] = range(64)
_PAD = ord("=")


def base64_numbers(texts: npt.NDArray[np.uint8]) -> tuple[Places, Marks]:
    """Read numbers in base64, each a row of as many characters, the most significant byte first; mark what is one."""
    pads = (texts[:, -1] == _PAD).astype(np.int64) * (1 + (texts[:, -2] == _PAD))
    digits = _DIGITS[texts]
    for place in (1, 2):
        digits[pads >= place, -place] = 0
    sound: Marks = (digits >= 0).all(axis=1) & (texts.shape[1] // 4 * 3 - pads <= _WORD)
    last = ((digits[:, -4] << 6 | digits[:, -3]) << 6 | digits[:, -2]) << 6 | digits[:, -1]
    numbers = np.zeros(len(texts), np.int64)
    for place in range(texts.shape[1] - 4):
        numbers = numbers << 6 | digits[:, place]
    numbers = numbers << 8 * (3 - pads) | last >> 8 * pads
    unused = np.where(sound, _BITS - 8 * (texts.shape[1] // 4 * 3 - pads), 0)
    return numbers << unused >> unused, sound


def varints(data: npt.NDArray[np.uint8], at: Places) -> tuple[Words, Places, Marks]:
    """Return the numbers, seven bits a byte, that begin at places, their sizes, and which are of at most 64 bits.

    Each ends at its first byte below 0x80, or is no such number by its tenth one.
    """
    first = data[at]
    numbers, sizes = (first & 0x7F).astype(np.uint64), np.ones(len(at), np.int64)
    sound: Marks = np.ones(len(at), bool)
    longer = np.flatnonzero(first >= 0x80)
    for byte in range(1, _LONGEST_VARINT):
        if not len(longer):
            break
        more = data[at[longer] + byte]
        numbers[longer] |= (more & 0x7F).astype(np.uint64) << np.uint64(7 * byte)
        sizes[longer] += 1
        if byte == _LONGEST_VARINT - 1:
            sound[longer[more > 1]] = False
        longer = longer[more >= 0x80]
    return numbers, sizes, sound


def signed(values: Words) -> Places:
    """Undo zig-zag: 0, 1, 2, 3 are 0, -1, 1, -2."""
    numbers: Places = (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)
    return numbers


# --- where bytes stand ------------------------------------------------------------------------------------------------


def places(data: npt.NDArray[np.uint8], byte: int) -> Places:
    """Return all places of a byte."""
    parts = (np.flatnonzero(part == byte) + at for at, part in _parts(data))
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _parts(data: npt.NDArray[np.uint8]) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
    """Yield pieces of the data with their beginnings: what is made of one stays in memory that is at hand."""
    for at in range(0, len(data), _PART_BYTES):
        yield at, data[at : at + _PART_BYTES]


class BitIndex:
    """An index of the bytes that pass a test; after a number of exceptions it covers each position."""

    def __init__(self, data: npt.NDArray[np.uint8], size: int, test: Test, but: Places | None = None) -> None:
        bits = np.concatenate([np.packbits(test(part), bitorder="little") for _, part in _parts(data)])
        if but is not None:
            left_out = np.zeros(len(data), bool)
            left_out[but] = True
            bits &= ~np.packbits(left_out, bitorder="little")
        bits[size // 8] |= 0xFF << size % 8 & 0xFF
        bits[size // 8 + 1 :] = 0xFF
        self._bits, self._size, self._words = bits, size, words(bits)

    def next(self, at: Places) -> Places:
        """Return the place of the next word, at these places or after them."""
        places, near = self._near(at)
        for step in range(1, _TRIED):
            far = np.flatnonzero(~near)
            if not len(far):
                return places
            places[far], near[far] = self._near(np.minimum(at[far] + step * _SEEN, self._size))
        far = np.flatnonzero(~near)
        if len(far):
            places[far] = self._all[np.minimum(np.searchsorted(self._all, at[far]), len(self._all) - 1)]
        return places

    def _near(self, at: Places) -> tuple[Places, Marks]:
        """Return the place of the next word if it is among some bytes, and where that is so."""
        word = self._words[at >> 3] >> (at & 7).astype(np.uint64)
        lowest = (word & ~word + np.uint64(1)).astype(np.float64)  # a power of two, of which the exponent is read
        return at + ((lowest.view(np.int64) >> 52) - 1023), word != 0

    @cached_property
    def _all(self) -> Places:
        return np.flatnonzero(np.unpackbits(self._bits, count=self._size + 1, bitorder="little"))
