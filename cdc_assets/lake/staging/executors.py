"""Work on Spark's executors: numbers of tasks out, what each returns back."""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from cdc_assets.errors import BadSettings, CdcError, SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")


def run_tasks(spark: SparkSession, count: int, work: Callable[[int], _T]) -> list[_T]:
    """Do tasks 0 … count-1 on the executors, and return what they return; raises the error of one of them.

    A task may be done more than once, at the same time too: what counts is the one whose result came.
    """
    if not count:
        return []
    rows = spark.range(0, count, 1, count).mapInArrow(_results(work), "result binary").collect()
    results: list[Any] = [pickle.loads(bytes(row[0])) for row in rows]  # noqa: S301  # our own executors wrote them
    for result in results:
        if isinstance(result, CdcError):
            raise result
    return results


def _results(work: Callable[[int], object]) -> Batches:
    """Return the function that an executor runs: it gets numbers of tasks and yields a pickled result for each."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result: object
                try:
                    result = work(number)
                except CdcError as error:  # Spark would turn it into text
                    result = error
                yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(result)], pa.binary())], names=["result"])

    return alike(run)


def refuse_unshared(file: str) -> None:
    """Raise BadSettings for a file that an executor wrote to a directory of its own machine."""
    if file.startswith("/") and not os.path.exists(file):
        raise BadSettings(
            f"an executor on another machine wrote {file}, which is not here: executors need a warehouse that "
            "all machines share, in an object store (docs/lakes.md). Nothing was applied."
        )


Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function that Spark runs over the batches of a task."""

_SHARED = ("polars", "pyarrow")
"""Packages whose versions decide what values rows have, beside this one's own."""


@functools.lru_cache(maxsize=1)
def installation() -> Mapping[str, str]:
    """Return the versions that this process runs, by name; of this package its source: a checkout's version stays."""
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
