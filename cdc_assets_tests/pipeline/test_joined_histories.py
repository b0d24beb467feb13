"""Generated histories of which a dump has the beginning: equal to a small oracle at every checkpoint after the dump."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cdc_assets.ddl import created
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.dump_anywhere import FLAVOURS
from cdc_assets_tests.dump_writer import Cell, Row, write_dump
from cdc_assets_tests.generated import CHECKS, PICKS, STEPS, STYLES, faults, feeds
from cdc_assets_tests.histories import history
from cdc_assets_tests.source import Source, Value, quoted
from cdc_assets_tests.writer import Style, publications


def write_source(source: Source, at: Tso, into: Path, name: str) -> None:
    """Write a dump of what a source holds now, in one of the flavours."""
    flavour = FLAVOURS[name]
    tables: dict[TableId, tuple[TableSchema, Sequence[Row]]] = {}
    texts = {}
    for table in source.tables.values():
        texts[table.name] = f"CREATE TABLE {quoted(table.name.table)} {table.definition}"
        rows = [tuple(_cell(row[column.name]) for column in table.columns) for row in table.rows.values()]
        tables[table.name] = (created(texts[table.name]), rows)
    write_dump(into, tables, at, flavour.how, flavour.kind, flavour.compression, chunk_rows=3, texts=texts)
    (into / "empty-schema-create.sql").write_bytes(b"CREATE DATABASE `empty`;\n")


def _cell(value: Value) -> Cell:
    return value if value is None or isinstance(value, bytes) else str(value)


def check(
    steps: list[tuple[str, bytes]],
    after: int,
    style: Style,
    raw: bytes,
    flavour: str,
    begun: bool,
    tomls: Mapping[str, Path],
    directory: Path,
) -> None:
    """Dump a source after some steps, and join the rest of its history, or all of it, to that."""
    if begun:  # a table that was dropped before is in neither
        steps = [*steps[:after], *((kind, step) for kind, step in steps[after:] if kind != "recover table")]
    before, source = (history(some, style.old_values) for some in (steps[:after], steps))
    at = before.log[-1].ts
    if source.log[-1].ts == at:
        return
    note(f"{style} {flavour}, dumped at {at}\n{source.script}")
    shutil.rmtree(directory, ignore_errors=True)
    write_source(before, at, directory, flavour)
    initial = {**FLAVOURS[flavour].initial, "dump": str(directory), "start_ts": at}
    with feeds(style, tomls[style.rendering], initial=initial) as (often, once):
        for publication in publications(source, style, Picks(raw), start=at if begun else 0):
            if publication.shown >= at:
                assert faults(often, publication, source.contents(publication.shown)) == [], publication.checkpoint
        assert faults(once, publication, source.contents(publication.shown)) == [], "in one go"


CASES = st.fixed_dictionaries(
    {
        "steps": STEPS,
        "after": st.integers(3, 30),
        "style": STYLES,
        "raw": PICKS,
        "flavour": st.sampled_from(sorted(FLAVOURS)),
        "begun": st.booleans(),
    }
)


@settings(CHECKS, max_examples=6, derandomize=True, database=None)
@given(case=CASES)
def test_a_generated_history_with_a_dump_of_its_beginning_ends_equal_to_the_source(
    tomls: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory, case: dict[str, Any]
) -> None:
    check(**case, tomls=tomls, directory=tmp_path_factory.getbasetemp() / "dump")


@pytest.mark.soak
@pytest.mark.timeout(0)
@settings(CHECKS, max_examples=3000)
@given(case=CASES)
def test_thousands_of_generated_histories_with_dumps_end_equal_to_the_source(
    tomls: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory, case: dict[str, Any]
) -> None:
    check(**case, tomls=tomls, directory=tmp_path_factory.getbasetemp() / "dump")
