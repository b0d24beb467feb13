"""Work on Spark's executors: numbers of tasks out, what each returns back."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from cdc_assets.errors import BadSettings, CdcError
from cdc_assets.lake.staging.installation import Batches, alike

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
