"""The key that encrypts input as it came, before masks: landed messages, records in quarantine, schema files."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

__all__ = ["EncryptionKey", "key_fingerprint"]


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """The value of the setting `privacy_key`; `io.encryption` encrypts and decrypts with it."""

    key: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """A text that is equal for equal keys; it does not give the key away."""
        return key_fingerprint(self.key)


def key_fingerprint(key: bytes) -> str:
    """Return 16 hex digits by which keys can be compared without being known.

    >>> key_fingerprint(b"a key") == key_fingerprint(b"another key")
    False
    """
    return hmac.digest(key, b"cdc-assets: which key is it", hashlib.sha256).hex()[:16]
