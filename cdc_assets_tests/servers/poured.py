"""Very many small files into the object store: through its filer, without a signature for each.

Each connection sends many requests ahead of their answers: thousands of files a second, where S3's own way takes
hundreds.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from cdc_assets_tests.servers.counted import read_body, read_head
from cdc_assets_tests.servers.object_store import BUCKET, ObjectStore

__all__ = ["pour"]

_AHEAD = 64
_SIDE_BY_SIDE = 4


def pour(store: ObjectStore, files: Iterable[tuple[str, bytes]]) -> int:
    """Write files, each a path inside the bucket and its bytes; return how many.

    Raises AssertionError if one is refused.
    """
    left = iter(files)
    batches = iter(lambda: list(islice(left, 100 * _AHEAD)), [])
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        return sum(sum(pool.map(lambda batch: _written(store.filer, batch), some)) for some in _groups(batches))


def _groups(batches: Iterator[list[tuple[str, bytes]]]) -> Iterator[list[list[tuple[str, bytes]]]]:
    """Yield as many batches at a time as are written side by side: what is not written yet is not held."""
    return iter(lambda: list(islice(batches, _SIDE_BY_SIDE)), [])


def _written(filer: tuple[str, int], files: list[tuple[str, bytes]]) -> int:
    with socket.create_connection(filer) as there, there.makefile("rb") as answers:
        for first in range(0, len(files), _AHEAD):
            some = files[first : first + _AHEAD]
            there.sendall(b"".join(_request(path, data) for path, data in some))
            for path, _ in some:
                head = read_head(answers)
                answer = b"".join(read_body(answers, head))
                assert b" 201 " in b"".join(head[:1]), f"{path}: {head[:1]} {answer[:300]!r}"
    return len(files)


def _request(path: str, data: bytes) -> bytes:
    head = f"PUT /buckets/{BUCKET}/{path} HTTP/1.1\r\nHost: filer\r\nContent-Length: {len(data)}\r\n"
    return f"{head}Content-Type: text/plain\r\n\r\n".encode() + data
