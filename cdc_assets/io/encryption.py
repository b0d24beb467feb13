"""Bytes that nobody reads without the key: what is kept of messages and records before their values are masked.

AES-256-GCM. The nonce is made of the bytes themselves (as AES-SIV makes it), so that equal bytes are encrypted alike
and what is written again is the same; that two encrypted values are equal is all that they show, besides their length.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from functools import lru_cache
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings
from cdc_assets.model.encryption import EncryptionKey

if TYPE_CHECKING:
    import pyarrow as pa
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MARK = b"\x00cdc-encrypted\x01"
_TEXT_MARK = "encrypted:"
_NONCE_BYTES = 12


@lru_cache(maxsize=8)
def _cipher(key: bytes) -> tuple[AESGCM, bytes]:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(hmac.digest(key, b"cdc-assets encryption", hashlib.sha256)), hmac.digest(
        key, b"cdc-assets nonce", "sha256"
    )


def encrypt(data: bytes, key: EncryptionKey) -> bytes:
    """Return the bytes encrypted; what is encrypted already stays as it is."""
    if is_encrypted(data):
        return data
    cipher, nonces = _cipher(key.key)
    nonce = hmac.digest(nonces, data, "sha256")[:_NONCE_BYTES]
    return _MARK + nonce + cipher.encrypt(nonce, data, None)


def decrypt(data: bytes, key: EncryptionKey | None) -> bytes:
    """Return encrypted bytes in clear, other bytes as they are; raises BadSettings without the right key."""
    from cryptography.exceptions import InvalidTag

    if not is_encrypted(data):
        return data
    if key is None:
        raise BadSettings(
            "what is kept of messages and records is encrypted, and no key is given. Give privacy_key, as it was then."
        )
    start = len(_MARK) + _NONCE_BYTES
    try:
        return _cipher(key.key)[0].decrypt(data[len(_MARK) : start], data[start:], None)
    except InvalidTag:
        raise BadSettings(
            "what is kept of messages and records is encrypted with another key than privacy_key has now. Give the key "
            "of then: only what is landed anew can have another one."
        ) from None


def is_encrypted(data: bytes) -> bool:
    """Return whether bytes were encrypted."""
    return data.startswith(_MARK)


def has_encrypted(values: pa.ChunkedArray) -> bool:
    """Return whether some of many values were encrypted."""
    import pyarrow.compute as pc  # what only asks for one value needs none of it

    return bool(pc.any(pc.starts_with(values, pattern=_MARK)).as_py())


def encrypt_text(text: str, key: EncryptionKey) -> str:
    """Return a text encrypted, as a text."""
    return text if text.startswith(_TEXT_MARK) else _TEXT_MARK + base64.b64encode(encrypt(text.encode(), key)).decode()


def decrypt_text(text: str, key: EncryptionKey | None) -> str:
    """Return an encrypted text in clear, other text as it is; raises BadSettings without the right key."""
    if not text.startswith(_TEXT_MARK):
        return text
    return decrypt(base64.b64decode(text.removeprefix(_TEXT_MARK)), key).decode()
