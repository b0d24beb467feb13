"""Azure Blob Storage of the test's own: Azurite, Azure's emulator, fetched by npm once beside the jars."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdc_assets.jvm.jars import spark_jars
from cdc_assets_tests.postgres import free_port

__all__ = ["ACCOUNT", "ACCOUNT_KEY", "CONTAINER", "azure"]

ACCOUNT, CONTAINER = "devstoreaccount1", "bucket"
ACCOUNT_KEY = base64.b64encode(b"owner-2c26b46b68ffc68ff99b453c1d304134").decode()

_PACKAGE, _PATIENCE_SECONDS = "azurite@3.35.0", 240


@contextmanager
def azure(home: Path) -> Iterator[str]:
    """Run a Blob Storage with one empty container, its data in `home`; yield the account's URL.

    Skips the test where npm is missing.
    """
    from azure.storage.blob import BlobServiceClient

    script, port = _script(), free_port()
    arguments = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--skipApiVersionCheck", "--disableTelemetry"]
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}
    home.mkdir(parents=True, exist_ok=True)
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            ["node", str(script), *arguments, "--location", str(home)], stdout=log, stderr=log, env=environment
        )
        try:
            _wait(process, home / "log")
            url = f"http://127.0.0.1:{port}/{ACCOUNT}"
            BlobServiceClient(url, credential=ACCOUNT_KEY).create_container(CONTAINER)
            yield url
        finally:
            process.terminate()
            process.wait(20)


def _script() -> Path:
    home = spark_jars()[0].parent.parent / "azurite"
    script = home / "node_modules/azurite/dist/src/blob/main.js"
    if not script.exists():
        if not shutil.which("npm"):
            pytest.skip("npm is not there, which brings Azure's emulator")
        home.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", _PACKAGE]
        subprocess.run(command, cwd=home, check=True, timeout=600)
    return script


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        output = log.read_text()
        assert process.poll() is None, output
        if "successfully listens" in output:
            return
        time.sleep(0.1)
    raise TimeoutError(log.read_text())
