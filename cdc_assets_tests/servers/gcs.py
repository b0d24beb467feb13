"""Google Cloud Storage of the test's own: fake-gcs-server, which checks no credentials, built by Go once."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdc_assets.jvm.jars import spark_jars
from cdc_assets_tests.postgres import free_port

__all__ = ["gcs"]

_MODULE, _PATIENCE_SECONDS = "github.com/fsouza/fake-gcs-server@v1.56.1", 240


@contextmanager
def gcs(home: Path, bucket: str) -> Iterator[str]:
    """Run a Cloud Storage with one empty bucket, its data in `home`; yield its URL.

    Skips the test where Go is missing.
    """
    program, port = _program(), free_port()
    (home / "data" / bucket).mkdir(parents=True)
    url = f"http://127.0.0.1:{port}"
    command = [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-log-level", "error"]
    command += ["-backend", "filesystem", "-filesystem-root", str(home / "data")]
    command += ["-public-host", f"127.0.0.1:{port}", "-external-url", url]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait(process, f"{url}/storage/v1/b/{bucket}", home / "log")
            yield url
        finally:
            process.kill()
            process.wait()


def _program() -> Path:
    program = spark_jars()[0].parent.parent / "go" / "fake-gcs-server"
    if not program.exists():
        if not shutil.which("go"):
            pytest.skip("Go is not there, which builds Google's emulator")
        environment = {**os.environ, "GOBIN": str(program.parent), "CGO_ENABLED": "0"}
        subprocess.run(["go", "install", _MODULE], check=True, timeout=1800, env=environment)
    return program


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(log.read_text())
