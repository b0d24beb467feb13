"""The file systems of a warehouse, as PyIceberg would use them; PyIceberg itself is loaded for a remote one only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.fs as pafs


def make_directory(system: Any, path: str) -> None:
    """Create a local directory. A store has none: creating one there needs access to the bucket itself."""
    if isinstance(system, pafs.LocalFileSystem):
        system.create_dir(path, recursive=True)


def storage(io: Mapping[str, str], location: str) -> tuple[Any, str]:
    """Return the Arrow file system that PyIceberg would use for a location, and the path in it."""
    if location.startswith("/"):
        return pafs.LocalFileSystem(), location
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, host, path = PyArrowFileIO.parse_location(location, dict(io))
    if "@" in host:  # Azure's container and account, of which a path has the container
        path = host.partition("@")[0] + path.removeprefix(host)
    return PyArrowFileIO(dict(io)).fs_by_scheme(scheme, host), path
