"""The software of processes that decode rows: a driver and its executors must have the same, or their rows may differ.

Spark sends functions by the names of their modules: an executor with another version of this package would decode with
other code, and say nothing. So what an executor is to do travels as bytes that it opens only where it runs the same.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

import pyarrow as pa

from cdc_assets.errors import SetupError

Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What Spark runs over the batches of a task."""

_SHARED = ("polars", "pyarrow")
"""Packages whose versions decide what values rows have, beside this one's own."""


@functools.lru_cache(maxsize=1)
def installation() -> Mapping[str, str]:
    """Return what this process runs, by name; of this package its very source, as a checkout's version stays."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[2]
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\n".encode() + path.read_bytes())
    python = ".".join(platform.python_version_tuple()[:2])
    return {
        "Python": python,
        "cdc-assets": f"{_version('cdc-assets')} ({digest.hexdigest()[:8]})",
        **{name: _version(name) for name in _SHARED},
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def alike(run: Batches) -> Batches:
    """Return the function that an executor calls: `run`, if it has the same software as this process.

    Otherwise it raises SetupError, which names the executor's machine and what differs.
    """
    from pyspark.cloudpickle import dumps

    work, expected = dumps(run), dict(installation())  # type: ignore[no-untyped-call]

    def checked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        refuse_other(expected)
        yield from pickle.loads(work)(batches)  # noqa: S301  # our own driver wrote it

    return checked


def refuse_other(expected: Mapping[str, str]) -> None:
    """Raise SetupError where this process runs something else than expected."""
    versions = installation()
    differing = [f"{name} {versions.get(name)} and the driver {version}" for name, version in expected.items()
                 if versions.get(name) != version]  # fmt: skip
    if differing:
        raise SetupError(
            f"the executor on {platform.node()} runs {', '.join(differing)}. Give executors exactly the same "
            "installation as the driver (spark.archives, or an image: docs/clusters.md), or let the driver decode "
            "(setting decode: driver)."
        )
