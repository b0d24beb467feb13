"""Memory of this process that nothing uses."""

from __future__ import annotations

import ctypes

import pyarrow as pa


def release_unused() -> None:
    """Return to the system what allocators keep for later: Arrow's, and that of C where it can (glibc).

    Large blocks of bytes leave it in pieces, most of all where several threads had some.
    """
    pa.default_memory_pool().release_unused()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
