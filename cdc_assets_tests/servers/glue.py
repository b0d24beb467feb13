"""AWS Glue's API of the test's own: moto, which checks no signatures."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc_assets_tests.postgres import free_port

__all__ = ["glue"]

_PATIENCE_SECONDS = 240


@contextmanager
def glue(home: Path) -> Iterator[str]:
    """Run a Glue without databases; yield its endpoint."""
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=home, start_new_session=True)
        try:
            _wait(process, port, home / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5).close()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(log.read_text())
