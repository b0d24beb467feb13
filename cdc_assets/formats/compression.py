"""Values that TiCDC compresses by `large-message-handle-compression`, large or not: nothing in a message says so.

snappy is the block format (not the framed one, nor Kafka's), lz4 the frame format.
"""

from __future__ import annotations

import pyarrow as pa

from cdc_assets.errors import BadSettings
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.io.compression import snappy_block

__all__ = ["unpack", "unpacked", "unpacked_array"]

_MOST_SNAPPY, _MOST_LZ4 = 64, 256
"""The greatest ratio of a value to its compressed size; a claimed size beyond it is not a compressed value."""


def unpack(value: bytes, compression: str) -> bytes:
    """Return a value as it was before compression. Raises ValueError for one that is not compressed so."""
    if compression == "none":
        return value
    try:
        return snappy_block(value, _MOST_SNAPPY * len(value)) if compression == "snappy" else _lz4(value)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise ValueError(f"it is not compressed with {compression}: {str(error)[:100]}") from None


def unpacked(values: pa.Array, options: MessageOptions) -> list[bytes | None]:
    """Return values as they were before compression; null, and what is not compressed as the option says, is None.

    Raises BadSettings for a compression that TiCDC does not have.
    """
    compression = options.large_message_handle_compression
    if compression not in ("none", "snappy", "lz4"):
        raise BadSettings(
            f'large-message-handle-compression is "{compression}"; TiCDC knows none, snappy and lz4. '
            "Give the changefeed TOML exactly as TiCDC has it."
        )
    found: list[bytes | None] = values.to_pylist()
    if compression == "none":
        return found
    return [None if value is None else _or_none(value, compression) for value in found]


def unpacked_array(values: pa.Array, options: MessageOptions) -> pa.Array:
    """Return the same as an array."""
    if options.large_message_handle_compression == "none":
        return values
    return pa.array(unpacked(values, options), pa.binary())


def _or_none(value: bytes, compression: str) -> bytes | None:
    try:
        return unpack(value, compression)
    except ValueError:
        return None


def _lz4(value: bytes) -> bytes:
    if not value.startswith(b"\x04\x22\x4d\x18"):
        raise ValueError("it does not begin with the mark of a frame")
    with pa.input_stream(pa.BufferReader(value), compression="lz4") as stream:
        found = bytes(stream.read(_MOST_LZ4 * len(value) + 1))
    if len(found) > _MOST_LZ4 * len(value):
        raise ValueError("it holds more than its bytes can")
    return found
