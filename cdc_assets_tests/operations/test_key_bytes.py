"""Values of keys are found in records that cannot be decoded, however the feed writes them, and others are not."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from cdc_assets.formats import MessageOptions
from cdc_assets.io.sealing import seal
from cdc_assets.model.masks import SealKey
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.operations.key_bytes import KeyBytes, key_bytes
from cdc_assets.operations.keys import keys_of

UTF8 = {"collation": "utf8mb4_general_ci"}
BIN = {"collation": "utf8mb4_bin"}
LONG = "1234567890123456789012345678901234567.5"
LONG_BYTES = base64.b64encode(int(LONG.replace(".", "")).to_bytes(16, "big"))
"""A number with more digits than results of Python's decimals have, and its digits as connectors send them."""


def sought(column: Column, text: str, protocol: str = "canal-json", key: SealKey | None = None) -> KeyBytes:
    schema = TableSchema((column,), (column.name,))
    wire = MessageOptions(protocol=protocol, timezone="Asia/Tokyo")
    return key_bytes(keys_of(schema, [[text]], "shop.t"), [[text]], schema, wire, key)


@pytest.mark.parametrize(
    ("kind", "more", "text", "raw", "others"),
    [
        ("INT", {}, "7", b'{"id":"7"}', b'{"id":"77","v":"x7"}'),
        ("INT", {"zerofill": True}, "7", b"0007,x", b"0070,x"),
        ("VARCHAR", UTF8, "Ren\u00e9", b"1,RENE,2", b"1,RENEE,2"),
        ("VARCHAR", BIN, "Ren\u00e9", b'{"k":"Ren\\u00e9"}', b'{"k":"Rene"}'),
        ("VARCHAR", BIN, "\U0001f600 x", b'{"k":"\\ud83d\\ude00 x"}', b'{"k":"\\ud83d\\ude01 x"}'),
        ("VARCHAR", BIN, 'say "no"', b'1,"say ""no""",2', b'1,"say no",2'),
        ("VARCHAR", BIN, "a/b", b'{"k":"a\\/b"}', b'{"k":"a b"}'),
        ("VARBINARY", {"collation": "binary"}, "x'00ff41'", base64.b64encode(b"\0\xffA"), b"AP9C"),
        ("VARBINARY", {"collation": "binary"}, "x'00ff41'", b"00FF41", b"00ff42"),
        ("TIMESTAMP", {}, "2026-01-01 20:00:00", b"2026-01-02 05:00:00,x", b"2026-01-01 05:00:00,x"),
        ("TIMESTAMP", {}, "2026-01-01 20:00:00", b'{"k":"2026-01-01T20:00:00Z"}', b'{"k":"2026-01-01T20:00:01Z"}'),
        ("DATETIME", {"scale": 6}, "2026-01-01 20:00:00.5", b"2026-01-01 20:00:00.500000", b"2026-01-01 20:00:00,5"),
        ("DATETIME", {}, "2026-01-01 20:00:00", b'{"k":1767297600000}', b'{"k":1767297601000}'),
        ("DATE", {}, "2026-01-01", b'{"k":20454}', b'{"k":20455}'),
        ("DECIMAL", {"precision": 10, "scale": 2}, "1.5", b"1.50,x", b"11.5,x"),
        ("DECIMAL", {"precision": 10, "scale": 2}, "1.5", b'{"k":"AJY="}', b'{"k":"AJc="}'),
        ("DECIMAL", {"precision": 38, "scale": 1}, LONG, f"{LONG}0".encode(), b"1.50,1234567890123456789012345678"),
        ("DECIMAL", {"precision": 38, "scale": 1}, LONG, LONG_BYTES, b'{"k":"AJc="}'),
        ("DATETIME", {"scale": 6}, "2026-01-01 20:00:00", b'{"k":1767297600000000100}', b'{"k":1767297600000001000}'),
        ("DATETIME", {}, "1969-12-31 23:59:59", b'{"k":-1000000000}', b'{"k":-1000001000}'),
        ("ENUM", {"elems": ("a", "b"), **BIN}, "b", b'{"k":"2"}', b'{"k":"1"}'),
    ],
)  # fmt: skip
def test_a_value_is_found_as_feeds_write_it(
    kind: str, more: dict[str, Any], text: str, raw: bytes, others: bytes
) -> None:
    values = sought(Column("k", kind, is_pk=True, nullable=False, **more), text)
    assert (values.are_in(raw), values.are_in(others)) == (True, False)


def test_what_cannot_be_searched_may_have_it() -> None:
    column, key = Column("k", "INT", is_pk=True), SealKey(b"k" * 32)
    assert not sought(column, "7").may_be_in(b'{"k":8}')
    assert sought(column, "7", "avro").may_be_in(b"\0\0\0\0\1\x10")
    assert not sought(column, "7", key=key).may_be_in(seal(b"8", key))
    assert sought(column, "7").may_be_in(seal(b"8", key))
    assert not sought(column, "7").are_in(seal(b"7", key))
