"""Compressed files in pieces: what other writers wrote is read, and what is not whole is refused."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable

import pyarrow as pa
import pytest

from cdc_assets.errors import MalformedData
from cdc_assets.io.compression import COMPRESSIONS, decompressed
from cdc_assets_tests.snappy_frames import framed_snappy

WRITERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "snappy": framed_snappy,
    "zstd": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}
CONTENTS = os.urandom(200_000) + b"the same again; " * 100_000


def read(data: bytes, compression: str, piece: int = 70_000) -> bytes:
    return b"".join(decompressed((data[at : at + piece] for at in range(0, len(data), piece)), compression, "t.csv"))


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("contents", [b"", b"x", CONTENTS])
def test_a_compressed_file_is_read_back(compression: str, contents: bytes) -> None:
    assert read(WRITERS[compression](contents), compression) == contents


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_members_that_follow_each_other_are_one_file(compression: str) -> None:
    whole = WRITERS[compression](b"one, ") + WRITERS[compression](b"two")
    assert read(whole, compression, 3) == b"one, two"


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("left", [1, 6, 1000, -1])
def test_a_file_that_was_cut_off_is_refused(compression: str, left: int) -> None:
    with pytest.raises(MalformedData, match=r"t\.csv is not a whole"):
        read(WRITERS[compression](CONTENTS)[:left], compression)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("data", [b"", b"INSERT INTO `t` VALUES\n"])
def test_a_file_of_another_kind_is_refused(compression: str, data: bytes) -> None:
    with pytest.raises(MalformedData, match=r"t\.csv is"):
        read(data, compression)


@pytest.mark.parametrize("compression", ["gzip", "snappy"])
def test_damage_is_seen(compression: str) -> None:
    data = bytearray(WRITERS[compression](CONTENTS))
    data[150_000] ^= 1
    with pytest.raises(MalformedData, match="damaged"):
        read(bytes(data), compression)


@pytest.mark.parametrize(
    ("data", "expected"),
    [  # as cramjam 2.11 writes them: a chunk that is not compressed, and one that is
        ("ff060000734e6150705901150000ab04b51d68656c6c6f2068656c6c6f2068656c6c6f", b"hello hello hello"),
        ("ff060000734e61507059001700008188f66cf0010c64756d70fe0400fe0400fe0400ae0400", b"dump" * 60),
        ("ff060000734e61507059fe03000000000080020000ffff01050000786ee42861", b"a"),  # padding and a chunk to skip
    ],
)
def test_snappy_frames_of_other_writers_are_read(data: str, expected: bytes) -> None:
    assert read(bytes.fromhex(data), "snappy") == expected


@pytest.mark.parametrize("data", ["01050000786ee42861", "ff060000734e6150705902050000786ee42861"])
def test_snappy_without_identifier_or_with_an_unknown_chunk_is_refused(data: str) -> None:
    with pytest.raises(MalformedData):
        read(bytes.fromhex(data), "snappy")
