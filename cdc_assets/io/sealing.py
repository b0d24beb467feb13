"""Bytes that nobody reads without the key: what is kept of messages and records before their values are masked.

AES-256-GCM. The nonce is made of the bytes themselves (as AES-SIV makes it), so that equal bytes are sealed alike and
what is written again is the same; that two sealed values are equal is all that they show, besides their length.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from functools import lru_cache
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings
from cdc_assets.model.masks import SealKey

if TYPE_CHECKING:
    import pyarrow as pa
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MARK = b"\x00cdc-sealed\x01"
_TEXT_MARK = "sealed:"
_NONCE_BYTES = 12


@lru_cache(maxsize=8)
def _cipher(key: bytes) -> tuple[AESGCM, bytes]:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(hmac.digest(key, b"cdc-assets seal", hashlib.sha256)), hmac.digest(key, b"cdc-assets nonce", "sha256")


def seal(data: bytes, key: SealKey) -> bytes:
    """Return the bytes sealed; what is sealed already stays as it is."""
    if is_sealed(data):
        return data
    cipher, nonces = _cipher(key.key)
    nonce = hmac.digest(nonces, data, "sha256")[:_NONCE_BYTES]
    return _MARK + nonce + cipher.encrypt(nonce, data, None)


def unseal(data: bytes, key: SealKey | None) -> bytes:
    """Return sealed bytes in clear, other bytes as they are; raises BadSettings without the right key."""
    from cryptography.exceptions import InvalidTag

    if not is_sealed(data):
        return data
    if key is None:
        raise BadSettings(
            "what is kept of messages and records is sealed, and no key is given. Give privacy_key, as it was then."
        )
    start = len(_MARK) + _NONCE_BYTES
    try:
        return _cipher(key.key)[0].decrypt(data[len(_MARK) : start], data[start:], None)
    except InvalidTag:
        raise BadSettings(
            "what is kept of messages and records is sealed with another key than privacy_key has now. Give the key of "
            "then: only what is landed anew can have another one."
        ) from None


def is_sealed(data: bytes) -> bool:
    """Return whether bytes were sealed."""
    return data.startswith(_MARK)


def has_sealed(values: pa.ChunkedArray) -> bool:
    """Return whether some of many values were sealed."""
    import pyarrow.compute as pc  # what only asks for one value needs none of it

    return bool(pc.any(pc.starts_with(values, pattern=_MARK)).as_py())


def seal_text(text: str, key: SealKey) -> str:
    """Return a text sealed, as a text."""
    return text if text.startswith(_TEXT_MARK) else _TEXT_MARK + base64.b64encode(seal(text.encode(), key)).decode()


def unseal_text(text: str, key: SealKey | None) -> str:
    """Return the text that was sealed; one that never was stays as it is. Raises BadSettings without the right key."""
    if not text.startswith(_TEXT_MARK):
        return text
    return unseal(base64.b64decode(text.removeprefix(_TEXT_MARK)), key).decode()
