"""Snappy's framing format as a writer makes it."""

from __future__ import annotations

import google_crc32c
import pyarrow as pa

__all__ = ["framed_snappy"]

_CHUNK_BYTES = 65536


def framed_snappy(data: bytes) -> bytes:
    codec = pa.Codec("snappy")
    chunks = [data[at : at + _CHUNK_BYTES] for at in range(0, len(data), _CHUNK_BYTES)]
    out = [b"\xff\x06\x00\x00sNaPpY"]
    for chunk in chunks:
        plain = google_crc32c.value(chunk)
        masked = ((plain >> 15 | plain << 17) + 0xA282EAD8) & 0xFFFFFFFF
        body = masked.to_bytes(4, "little") + codec.compress(chunk, asbytes=True)
        out.append(b"\x00" + len(body).to_bytes(3, "little") + body)
    return b"".join(out)
