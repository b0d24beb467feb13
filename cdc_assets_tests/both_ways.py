"""An in-memory lake that stages each window as the real lake does, in the driver and on executors, and compares.

What is compared is what a commit takes in: the report, what the stage says of itself, and the rows of its files, those
of the quarantine among them. Executors get every file of a window as a share of its own where the kind can be shared.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle

from cdc_assets.decoding.first_images import FIRST_IMAGE
from cdc_assets.errors import CdcError
from cdc_assets.formats import SplitReader
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.lake.staging import stage
from cdc_assets.lake.staging.tasks import FirstLoad
from cdc_assets.model.reports import AlikeKeys, StagedWindow
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.steps import ApplyRows
from cdc_assets.types.mysql_types import iceberg_type
from cdc_assets_tests.memory_lake import MemoryLake

__all__ = ["BothWays", "Inside"]


class Inside:
    """The part of Spark that staging asks for, in this process: functions travel as bytes, as they do to executors."""

    sparkContext = SimpleNamespace(defaultParallelism=2)  # noqa: N815  # Spark's own name

    def range(self, start: int, end: int, step: int, partitions: int) -> _Numbers:
        return _Numbers(range(start, end, step))


@dataclass(frozen=True)
class _Numbers:
    numbers: range
    function: bytes = b""

    def mapInArrow(self, function: Any, types: str) -> _Numbers:  # noqa: N802
        return _Numbers(self.numbers, cloudpickle.dumps(function))  # type: ignore[no-untyped-call]

    def collect(self) -> list[tuple[Any, ...]]:
        rows = []
        for number in self.numbers:
            batch = pa.RecordBatch.from_arrays([pa.array([number])], names=["id"])
            for result in pickle.loads(self.function)(iter([batch])):
                rows += [tuple(row.values()) for row in result.to_pylist()]
        return rows


class BothWays(MemoryLake):
    """`different` says what differed, `windows` how many were staged in both ways. `spark` has the executors."""

    def __init__(self, spark: Any) -> None:
        super().__init__()
        self.different: list[str] = []
        self.windows = 0
        self._spark = spark

    def stage(self, step: ApplyRows, reader: SplitReader) -> StagedWindow:
        if step.files:
            self.windows += 1
            here = self._staged("driver", step, reader)
            there = self._staged("executors", step, reader)
            self.different += [
                f"{step.life} at {step.at}, {what}: {here[what]} and {there.get(what)}"
                for what in here
                if here[what] != there.get(what)
            ]
        return super().stage(step, reader)

    def _staged(self, decode: str, step: ApplyRows, reader: SplitReader) -> dict[str, Any]:
        table = self.tables.get(step.life)
        place = Path(tempfile.mkdtemp(prefix="cdc-both-"))
        landing = _landing(step.schema, place) if table is not None and not table.rows.num_rows else None
        engine = stage.Engine(lambda: self._spark, lambda: True, decode)
        try:
            with patch.object(stage, "_SMALL_BYTES", 0):
                where = stage.WindowPlace(step, str(place), {}, landing)
                staged = stage.stage(engine, [where], reader)[0]
            report: dict[str, Any] = {
                "report": replace(staged.report, seconds=0.0, alike=AlikeKeys()),  # tasks that share count others
                "rows": staged.rows,
            }
            return {**report, **(_contents(staged.path) if staged.path else {})}
        except CdcError as error:
            return {"error": (type(error), error.message, error.where)}
        finally:
            shutil.rmtree(place)


def _contents(path: str) -> dict[str, Any]:
    batch = stage.read_manifest({}, path)
    rejects = [f"{path}/{name}" for name in batch.rejects]
    ranges = batch.ranges if batch.schema_id is None else {}  # data files are taken in without asking for them
    return {
        "counts": (batch.entering, batch.leaving, ranges, batch.schema_id),
        "changes": _rows(batch.parts),
        "rejects": _rows(rejects),
    }


def _rows(files: Any) -> Counter[str]:
    return Counter(repr(_as_proof(row)) for file in files for row in pq.read_table(file).to_pylist())


def _as_proof(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without a FIRST_IMAGE that is odd: it proves nothing, like none, which a share of inserts has."""
    image = row.get(FIRST_IMAGE)
    return {**row, FIRST_IMAGE: None} if image is not None and image % 2 else row


def _landing(schema: TableSchema, place: Path) -> FirstLoad:
    """Return what a table of that schema says of itself."""
    columns = {column.name: iceberg_type(column) for column in schema.stored} | {COMMIT_TS: "long"}
    report = {
        name: (kind, number, 1000 + number if kind.startswith("list") else None)
        for number, (name, kind) in enumerate(columns.items(), 1)
    }
    return FirstLoad(f"{place}/data", 0, report)
