"""A schema registry with Confluent's API that is not ours: franz-go's, behind TLS, built from the Go module proxy."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["SchemaRegistry", "schema_registry"]

_SOURCE = Path(__file__).parent / "registry"
_BUILD_SECONDS = 600


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry that runs: where, and the certificate that its own is signed by."""

    url: str
    certificate: Path


@contextmanager
def schema_registry(home: Path, authorization: str = "") -> Iterator[SchemaRegistry]:
    """Run a registry in a directory; with `authorization` it wants that header."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go toolchain to build the registry with")
    shutil.copytree(_SOURCE, home / "source")
    command = [go, "build", "-o", str(home / "registry"), "."]
    subprocess.run(command, cwd=home / "source", check=True, timeout=_BUILD_SECONDS, capture_output=True)
    given = [str(home / "registry"), str(home / "ca.pem"), *([authorization] if authorization else [])]
    with subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield SchemaRegistry(process.stdout.readline().strip(), home / "ca.pem")
        finally:
            process.stdin.close()
            process.wait()
