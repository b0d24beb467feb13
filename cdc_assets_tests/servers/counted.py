"""A way to an HTTP server that counts what is asked on it, by kind: bytes pass as they are, so signatures still fit.

It can lose answers: the server does what it was asked, and the connection ends instead of saying so.
"""

from __future__ import annotations

import re
import socket
import socketserver
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedIOBase
from threading import Event, Lock, Thread
from urllib.parse import urlsplit

__all__ = ["Counted", "counted", "kind_of", "read_body", "read_head"]

_PIECE = 1 << 16


@dataclass
class Counted:
    """The address that leads to the server, and what was asked on it: (kind, path with its query) of each request."""

    endpoint: str
    requests: list[tuple[str, str]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def kinds(self, since: int = 0, within: str = "") -> Counter[str]:
        """Return how many of each kind came after the first `since`, of those that have `within` in their path."""
        return Counter(kind for kind, path in self.requests[since:] if within in path)


def kind_of(method: str, path: str) -> str:
    """Return what a request to an S3 store is: LIST, or its method."""
    return "LIST" if method == "GET" and re.search(r"[?&](?:list-type|prefix|delimiter)=", path) else method


@contextmanager
def counted(endpoint: str, lost: Callable[[list[bytes]], bool] = lambda _: False) -> Iterator[Counted]:
    """Listen at an address of its own and pass on to `endpoint`, an http URL without path.

    `lost` is asked with the lines of a request's head whether the answer to it is lost.
    """
    target = urlsplit(endpoint)

    class Passed(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((str(target.hostname), int(target.port or 80))) as there, suppress(OSError):
                losing = Event()
                back = Thread(target=_answers, args=(there, self.connection, losing), daemon=True)
                back.start()
                while request := read_head(self.rfile):
                    method, path, *_ = request[0].decode("latin-1").split()
                    with seen.lock:
                        seen.requests.append((kind_of(method, path), path))
                    if lost(request):
                        losing.set()
                    there.sendall(b"".join(request))
                    for piece in read_body(self.rfile, request):
                        there.sendall(piece)
                there.shutdown(socket.SHUT_WR)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        request_queue_size = 128  # Iceberg's and Python's clients open many connections at once

    with Server(("127.0.0.1", 0), Passed) as server:
        server.daemon_threads = True
        seen = Counted(f"http://127.0.0.1:{server.server_address[1]}")
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield seen
        finally:
            server.shutdown()


def _answers(there: socket.socket, here: socket.socket, losing: Event) -> None:
    with suppress(OSError):
        while piece := there.recv(_PIECE):
            if losing.is_set():
                here.shutdown(socket.SHUT_RDWR)
                return
            here.sendall(piece)
        here.shutdown(socket.SHUT_WR)


def read_head(source: BufferedIOBase) -> list[bytes]:
    """Return the lines of a message's head with the empty one at its end, none where the other side has gone."""
    lines = [source.readline()]
    while lines[-1] not in (b"\r\n", b""):
        lines.append(source.readline())
    return lines if len(lines) > 1 else []


def read_body(source: BufferedIOBase, head: list[bytes]) -> Iterator[bytes]:
    """Yield the bytes that follow a head."""
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in head[1:])}
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        size = 1
        while size:
            line = source.readline()
            if not line:
                return
            size = int(line.partition(b";")[0], 16)
            yield line
            yield source.read(size) + source.readline()
        return
    left = int(headers.get(b"content-length", b"0"))
    while left:
        piece = source.read(min(_PIECE, left))
        if not piece:
            return
        left -= len(piece)
        yield piece
