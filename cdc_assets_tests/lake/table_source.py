"""A table for tests of the lake: its source writes CSV rows, and carries steps into a lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc_assets.formats import Wire
from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.lake import Lake
from cdc_assets.model.kinds import HistoryRule
from cdc_assets.model.progress import Life, Phase, Progress
from cdc_assets.model.reports import StepResult
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import (
    Predicate,
    SchemaChange,
)
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows, ChangeTable, CreateTable, RowReading

OPTIONS = CsvOptions(include_commit_ts=True, terminator="\n")

ORDERS = TableId("shop", "orders")

ID = Column("id", "BIGINT", nullable=False, is_pk=True)

NOTE = Column("note", "VARCHAR", precision=20)

SCHEMA = TableSchema((ID, NOTE), ("id",))


@dataclass(frozen=True)
class Files:
    """Data files by path, read as OPTIONS say."""

    files: Mapping[str, bytes]

    def read(self, path: str) -> bytes:
        return self.files[path]

    def wire(self, path: str) -> Wire:
        return OPTIONS


class Source:
    """One table's source: writes its CSV rows as (op, commit-ts, values…) and carries steps into a lake.

    With a `rule` into its history table, which has the name of its own then.
    """

    def __init__(
        self,
        lake: Lake,
        name: TableId = ORDERS,
        schema: TableSchema = SCHEMA,
        at: int = 100,
        create: bool = True,
        rule: HistoryRule | None = None,
    ) -> None:
        self.lake = lake
        self.rule = rule
        self.life = Life(name, at, rule.kinds[0] if rule is not None else "")
        self.schema = schema
        self.progress = Progress(at, Phase.DDL)
        self.name = name
        self.birth = CreateTable(self.life, at, name, schema)
        if create:
            lake.run(self.birth)

    def window(self, hi: int, *files: list[tuple[Any, ...]]) -> tuple[ApplyRows, Files]:
        """Build the step that applies the rows of some files through `hi`, and the files."""
        applied = self.lake.state.find(self.life).applied
        lo = applied.progress.through
        root, version = "r", self.life.version
        data = {
            f"r/{version}/CDC{number:06d}.csv": "".join(self._line(row) for row in rows).encode()
            for number, rows in enumerate(files, 1)
        }
        listed = tuple(
            DataFile(path, root, version, f"r/{version}", number, len(raw))
            for number, (path, raw) in enumerate(data.items(), 1)
        )
        names = ((self.name, 0, 1 << 62),)
        decoding = {(root, version): (self.name, self.schema)}
        step = ApplyRows(
            self.life, lo, hi, listed, RowReading(decoding, names), self.schema, version, history=self.rule
        )
        return step, Files(data)

    def _line(self, row: tuple[Any, ...]) -> str:
        op, ts, *values = row
        texts = [
            "\\N" if v is None else str(v) if isinstance(v, int) else '"' + v.replace('"', '""') + '"' for v in values
        ]
        named = ['"' + text.replace('"', '""') + '"' for text in (op, self.name.table, self.name.schema)]
        return ",".join([*named, str(ts), *texts]) + "\n"

    def apply(self, hi: int, *files: list[tuple[Any, ...]]) -> StepResult:
        step, opener = self.window(hi, *files)
        return self.lake.commit(step, self.lake.stage(step, opener))

    def change(self, at: int, schema: TableSchema, *changes: SchemaChange) -> StepResult:
        result = self.lake.run(ChangeTable(self.life, at, changes, schema, self.schema))
        self.schema = schema
        return result

    def rows(self) -> list[tuple[Any, ...]]:
        """The lake's rows without the commit-ts, sorted."""
        table = self.lake.read(self.name).drop_columns(["_cdc_commit_ts"])
        return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)

    def columns(self) -> list[str]:
        return list(self.lake.read(self.name).column_names)


def id_below(bound: int) -> Predicate:
    return Predicate(
        "<", (Predicate("column", value="id", type="int"), Predicate("literal", value=str(bound), type="int"))
    )
