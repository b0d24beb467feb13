"""What is read of a buffer at many places at once is what Python reads at each."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.formats.words import BitIndex, Words, have, pieces, places, whole_numbers, words

_BEYOND = bytes(128)
_NUMBERS = st.one_of(
    st.integers(0, 10**21).map(str),
    st.integers(-3, 3).map(lambda more: str((1 << 64) + more)),
    st.text(st.sampled_from("0123456789.-:/\u00b0"), max_size=26),
).map(str.encode)
_TEXTS = st.text(st.sampled_from("ab"), max_size=20).map(str.encode)


def laid_out(pieces: Sequence[bytes], between: bytes) -> tuple[Words, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Put pieces one after the other; return the words of all, and where each piece begins and ends."""
    ends = np.cumsum([len(between) + len(piece) for piece in pieces])
    data = b"".join(between + piece for piece in pieces) + _BEYOND
    return words(np.frombuffer(data, np.uint8)), ends - [len(piece) for piece in pieces], ends


@given(pieces=st.lists(_NUMBERS, min_size=1, max_size=20), between=st.sampled_from([b"", b",", b"7"]))
def test_digits_are_the_numbers_that_they_say_up_to_64_bits(pieces: list[bytes], between: bytes) -> None:
    numbers, sound = whole_numbers(*laid_out(pieces, between))
    whole = [re.fullmatch(rb"[0-9]{1,20}", piece) is not None and int(piece) < 1 << 64 for piece in pieces]
    assert sound.tolist() == whole
    assert numbers[sound].tolist() == [int(piece) for piece, mark in zip(pieces, whole, strict=True) if mark]


@given(pieces=st.lists(_TEXTS, min_size=1, max_size=9), text=_TEXTS)
def test_a_text_stands_where_the_data_goes_on_with_it(pieces: list[bytes], text: bytes) -> None:
    held, starts, _ = laid_out(pieces, b"")
    data = b"".join(pieces)
    assert have(held, starts, text).tolist() == [data[at : at + len(text)] == text for at in starts.tolist()]


@given(
    pieces=st.lists(st.tuples(st.sampled_from([0, 1, 3, 56, 57, 58, 64, 300, 900]), st.booleans()), max_size=8),
)
def test_the_next_place_is_the_first_one_that_is_not_left_out(pieces: list[tuple[int, bool]]) -> None:
    data = np.frombuffer(b"".join(b"a" * size + b"b" for size, _ in pieces) + _BEYOND, np.uint8)
    size = len(data) - len(_BEYOND)
    stand = places(data[:size], ord("b"))
    left_out = stand[[mark for _, mark in pieces]]
    wanted = [*sorted(set(stand.tolist()) - set(left_out.tolist())), size]
    at = np.arange(size + 1)
    marked = BitIndex(data, size, lambda part: part == ord("b"), left_out)
    assert marked.next(at).tolist() == [
        min(position for position in wanted if position >= place) for place in at.tolist()
    ]
    assert stand.tolist() == np.flatnonzero(data == ord("b")).tolist()


def test_data_of_less_than_a_word_has_no_words() -> None:
    assert len(words(np.frombuffer(b"", np.uint8))) == len(words(np.frombuffer(b"1234567", np.uint8))) == 0


def test_a_piece_that_would_end_before_it_starts_is_empty() -> None:
    data, starts, ends = pa.py_buffer(b"abcdef"), np.array([1, 5, 6]), np.array([3, 2, 6])
    assert pieces(data, starts, ends).to_pylist() == [b"bc", b"", b""]
