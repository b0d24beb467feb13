"""Contents of a dump, for a person: its tables, and what is unusual in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cdc_assets.model.dumps import Dump, Glance
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.report.text import grid_lines


@dataclass(frozen=True, slots=True)
class DumpedTable:
    """A table of a dump. `rows` is an estimate, None if there is none; `problem` says why it cannot be imported."""

    table: str
    key: tuple[str, ...]
    columns: int
    files: int
    file_bytes: int
    rows: int | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DumpInspection:
    """The contents of a dump, or of a server at a TSO; `left_out` are views and sequences."""

    uri: str
    at: Tso
    at_time: str
    started: str
    finished: str
    tables: tuple[DumpedTable, ...]
    warnings: tuple[str, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Return whether every table can be imported."""
        return not any(table.problem for table in self.tables)


def describe_dump(dump: Dump, glances: Mapping[TableId, Glance]) -> DumpInspection:
    """Return a dump as values for a person; `glances` are the estimates of its tables."""
    tables = [
        DumpedTable(
            str(table.id),
            table.schema.key,
            len(table.schema.columns),
            len(table.files),
            table.size,
            glances[table.id].rows,
            glances[table.id].problem,
        )
        for table in dump.tables
    ]
    tables += [DumpedTable(str(table), (), 0, 0, 0, None, f"{problem}.") for table, problem in dump.problems.items()]
    return DumpInspection(
        dump.uri,
        dump.at,
        tso_time(dump.at),
        dump.started,
        dump.finished,
        tuple(sorted(tables, key=lambda dumped_table: dumped_table.table)),
        dump.warnings,
        dump.ignored,
        tuple(map(str, dump.left_out)),
    )


def dump_lines(inspection: DumpInspection) -> Iterator[str]:
    """Yield the contents of a dump as lines of text."""
    taken = f", dumped from {inspection.started} to {inspection.finished}" if inspection.finished else ""
    yield f"{inspection.uri}: tables as of TSO {inspection.at} ({inspection.at_time}){taken}"
    heads = ("table", "key", "columns", "files", "bytes", "rows, about")
    rows = [
        (
            table.table,
            ", ".join(table.key) or "none",
            table.columns or "?",
            table.files,
            f"{table.file_bytes:,}",
            "?" if table.rows is None else f"{table.rows:,}",
        )
        for table in inspection.tables
    ]
    yield from grid_lines(heads, rows)
    yield from (f"  {name}: left out, it has no rows of its own" for name in inspection.left_out)
    yield from (f"ignored {count}: {reason}" for reason, count in sorted(inspection.ignored.items()))
    yield from (f"WARNING: {text}" for text in inspection.warnings)
    yield from (f"problem: {table.table}: {table.problem}" for table in inspection.tables if table.problem)
