"""The workload that fills the JVM's class-data archive with the classes of a run: create, load and merge into tables.

python -m cdc_assets.lake.spark.training DIRECTORY JAVA_OPTION …
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from cdc_assets.formats import UniformReader
from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.jvm.jars import make_local_files
from cdc_assets.lake.spark.session import spark_session
from cdc_assets.lake.tables import Lake
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows, ChangeTable, CreateTable, RowReading
from cdc_assets.settings.lake import LakeSettings

_OPTIONS = CsvOptions(include_commit_ts=True, terminator="\n")
_COLUMNS = (
    Column("id", "BIGINT", nullable=False, is_pk=True),
    Column("amount", "DECIMAL", precision=15, scale=2),
    Column("note", "VARCHAR", precision=20),
    Column("day", "DATE"),
    Column("created", "DATETIME"),
    Column("updated", "TIMESTAMP"),
    Column("weight", "DOUBLE"),
)
_ROW = '"{op}","rows","training",{ts},{key},"1.50","a","2026-01-02","2026-01-02 03:04:05","2026-01-02 03:04:05",0.5\n'


def train(warehouse: Path, java_options: list[str]) -> None:
    """Run the workload in a JVM with these options, on a lake in `warehouse`, until it exits. Raises SetupError."""
    settings = LakeSettings.from_warehouse(warehouse)
    own = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}  # the archive knows no other jar
    spark = spark_session(settings, **own, **{"spark.driver.extraJavaOptions": " ".join(java_options)})
    make_local_files(spark._jvm)
    lake = Lake(settings, "training", lambda: spark)
    name = TableId("training", "rows")
    life, schema = Life(name, 100), TableSchema(_COLUMNS, ("id",))
    lake.run(CreateTable(life, 100, name, schema))
    data: dict[str, bytes] = {}
    lo = 99
    for number, (op, hi) in enumerate((("I", 200), ("U", 300), ("D", 400)), 1):
        path = f"rows/100/CDC{number:06d}.csv"
        lines = (_ROW.format(op=op, ts=hi - 50, key=key) for key in range(10 - number))
        data[path] = "".join(lines).encode()
        file = DataFile(path, "rows", 100, "rows/100", number, len(data[path]))
        reading = RowReading({("rows", 100): (name, schema)}, ((name, 0, 1 << 62),))
        step = ApplyRows(life, lo, hi, (file,), reading, schema, 100)
        lake.commit(step, lake.stage(step, UniformReader(_OPTIONS, data.__getitem__)))
        lo = hi
    extra = Column("extra", "INT")
    changed = TableSchema((*_COLUMNS, extra), ("id",))
    lake.run(ChangeTable(life, 500, (AddColumn(extra, None),), changed, schema))
    lake.close()
    spark.stop()
    gateway: Any = SparkContext._gateway
    process = gateway.proc
    with suppress(Exception):
        gateway.shutdown()
    process.stdin.close()  # this makes the JVM exit; it writes the archive then
    process.wait()


if __name__ == "__main__":
    train(Path(sys.argv[1], "lake"), sys.argv[2:])
