"""Generated histories of which a dump has the beginning: tables, logs and states equal a small oracle from then on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import note
from hypothesis import strategies as st

from cdc_assets.ddl import created
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.dump_anywhere import FLAVOURS
from cdc_assets_tests.dump_writer import Cell, Row, write_dump
from cdc_assets_tests.folding import fold_differences
from cdc_assets_tests.generated import PICKS, STEPS, STYLES, Feed, each_case, faults, feeds, how_many
from cdc_assets_tests.histories import history
from cdc_assets_tests.pipeline.test_states_of_histories import faults as state_faults
from cdc_assets_tests.source import Source, Value, quoted
from cdc_assets_tests.writer import Publication, publications


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
    case: Mapping[str, Any],
    tomls: Mapping[str, Path],
    directory: Path,
    wrong: Callable[..., Iterable[str]],
    **given: Any,
) -> None:
    """Dump a source after some steps, and join the rest of its history, or all of it, to that."""
    steps, after, style, flavour = (case[name] for name in ("steps", "after", "style", "flavour"))
    if case["begun"]:  # a table that was dropped before is in neither
        steps = [*steps[:after], *((kind, step) for kind, step in steps[after:] if kind != "recover table")]
    before, source = (history(some, style.old_values) for some in (steps[:after], steps))
    at = before.log[-1].ts
    if source.log[-1].ts == at:
        return
    note(f"{style} {flavour}, dumped at {at}\n{source.script}")
    shutil.rmtree(directory, ignore_errors=True)
    write_source(before, at, directory, flavour)
    source.past = [(ts, tables) for ts, tables in source.past if ts >= at]
    initial = {**FLAVOURS[flavour].initial, "dump": str(directory), "start_ts": at}
    with feeds(style, tomls[style.rendering], initial=initial, **given) as (often, once):
        for publication in publications(source, style, Picks(case["raw"]), start=at if case["begun"] else 0):
            if publication.shown >= at:
                assert [*wrong(often, publication, source)] == [], publication.checkpoint
        assert [*wrong(once, publication, source)] == [], "in one go"


def wrong_rows(feed: Feed, publication: Publication, source: Source) -> list[str]:
    return faults(feed, publication, source.contents(publication.shown))


def wrong_history(feed: Feed, publication: Publication, source: Source) -> list[str]:
    return [*state_faults(feed, source, publication), *fold_differences(feed.lake)]


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


@how_many(6, 3000)
def test_a_generated_history_with_a_dump_of_its_beginning_ends_equal_to_the_source(
    count: int, tomls: Mapping[str, Path], tmp_path: Path
) -> None:
    each_case(count, lambda case: check(case, tomls, tmp_path / "dump", wrong_rows), CASES, "joined")


@how_many(4, 3000)
def test_logs_and_states_of_a_generated_history_with_a_dump_are_those_of_the_source(
    count: int, tomls: Mapping[str, Path], tmp_path: Path
) -> None:
    given: dict[str, Any] = {"history": {"*.*": ["log", "scd2"]}}
    each_case(count, lambda case: check(case, tomls, tmp_path / "dump", wrong_history, **given), CASES, "joined states")
