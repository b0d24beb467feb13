"""MariaDB's UUID, INET4 and INET6: as texts and as bytes, as MariaDB reads and prints them.

The lake keeps their texts. Bytes become an address or UUID by their number, and either of them becomes these bytes in a
binary column (MariaDB 11.4, value by value in a test).
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable, Mapping

__all__ = ["ADDRESSES", "address_bytes", "address_text"]

_MAPPED = bytes(10) + b"\xff\xff"
"""First bytes of an address of IPv6 that stands for one of IPv4."""


def address_bytes(text: str, kind: str) -> bytes:
    """Return the bytes of a UUID or address. Raises ValueError for a text that is none.

    >>> address_bytes("::ffff:1.2.3.4", "INET6").hex()
    '00000000000000000000ffff01020304'
    """
    return _READERS[kind](text)


def address_text(value: bytes | str, kind: str) -> str:
    """Return a UUID or address as MariaDB prints it, from its bytes or any of its texts.

    A text of an address of IPv4 becomes one of IPv6. Raises ValueError for what is neither.

    >>> address_text("2001:DB8:0:0::1", "INET6")
    '2001:db8::1'
    """
    if kind == "INET6" and isinstance(value, str) and ":" not in value:
        value = _MAPPED + address_bytes(value, "INET4")
    raw = value if isinstance(value, bytes) else address_bytes(value, kind)
    if kind == "UUID":
        return str(uuid.UUID(bytes=raw))
    return _inet6_text(raw) if kind == "INET6" else str(ipaddress.IPv4Address(raw))


def _uuid_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("-", ""))


_READERS: Mapping[str, Callable[[str], bytes]] = {
    "UUID": _uuid_bytes,
    "INET4": lambda text: ipaddress.IPv4Address(text).packed,
    "INET6": lambda text: ipaddress.IPv6Address(text).packed,
}
ADDRESSES = tuple(_READERS)


def _inet6_text(raw: bytes) -> str:
    """Print an address of IPv6, with its longest run of zeros as `::`, also where that is one zero alone."""
    if raw.startswith(_MAPPED) or (raw[:12] == bytes(12) and raw[12:14] != bytes(2)):
        return f"::{'ffff:' if raw.startswith(_MAPPED) else ''}{ipaddress.IPv4Address(raw[12:])}"
    words = [raw[place : place + 2].hex().lstrip("0") for place in range(0, 16, 2)]
    lengths = [next((n for n, word in enumerate(words[start:]) if word), 8 - start) for start in range(8)]
    longest = max(lengths)
    if not longest:
        return ":".join(words)
    start = lengths.index(longest)
    front, back = words[:start], words[start + longest :]
    return "::".join(":".join(word or "0" for word in part) for part in (front, back))
