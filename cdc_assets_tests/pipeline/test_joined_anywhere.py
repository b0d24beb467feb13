"""Recorded changefeeds joined to a dump of any moment and flavour: equal to the source in the end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.ddl import Recover, statement
from cdc_assets.history.history import read_history
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.sources.dumpling.directory import DataName, parse_name
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.changefeed import option
from cdc_assets_tests.dump_anywhere import FLAVOURS, Flavour, cut_rows, dump_at, moments
from cdc_assets_tests.joined_feed import joined_settings
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.records import records
from cdc_assets_tests.replay import compare

COUNT = 6
CHOSEN = {
    ("A_all_types/csv-ts", 3),
    ("B_ddl_columns/csv-old", 2),
    ("C_ddl_tables/canal-ext", 4),
    ("D_keys/csv-ts", 3),
    ("F_names/csv-ts", 2),
}
"""(configuration, number of the moment) in every run."""
LEFT_OUT = ("Q_clock_back", "L_crash")
"""Files of these were overwritten later."""


def joins() -> Iterator[object]:
    configs = [config for case in cases() for config in case.configs if case.name not in LEFT_OUT]
    for place, config in enumerate(configs):
        options = config.options
        if not options.wire.has_commit_ts or option(options.wire, "quote", '"') != '"':
            continue
        if not config.replayable:  # its files overwrite each other
            continue
        for number in range(COUNT):
            flavour = [*FLAVOURS][(place + number) % len(FLAVOURS)]
            for cut in (False, True):
                marks = () if (str(config), number) in CHOSEN and cut == bool(number % 2) else pytest.mark.soak
                label = f"{config}-{number}-{flavour}-{'cut' if cut else 'whole'}"
                yield pytest.param(config, number, flavour, cut, id=label.replace(" ", "_"), marks=marks)


@pytest.mark.parametrize(("config", "number", "flavour", "cut"), list(joins()))
def test_the_end_is_equal_to_the_source(config: Config, number: int, flavour: str, cut: bool, tmp_path: Path) -> None:
    at, last = moments(config, COUNT)[number], config.replayable[-1]
    dump_at(config, at, tmp_path / "dump", FLAVOURS[flavour])
    shutil.copytree(last.bucket, tmp_path / "feed")
    if cut:
        cut_rows(config, tmp_path / "feed", at)
    setting: dict[str, Any] = {"start_ts": at} if cut else {}
    settings = joined_settings(config, tmp_path / "feed", tmp_path / "dump", **FLAVOURS[flavour].initial, **setting)
    lake = MemoryLake()
    outcome = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://")).apply("test")
    assert last.expected is not None
    allowed = {**quoted(tmp_path / "dump", FLAVOURS[flavour]), **(lost(config, at, tmp_path / "feed") if cut else {})}
    held = {t.name: t.reason for t in outcome.tables if t.state == "held" and t.name in allowed}
    assert held.keys() == allowed.keys()
    assert all(text in held[name] for name, text in allowed.items())
    true_holds = {f"{name} is held: {reason}" for name, reason in held.items()}
    assert set(compare(config, last.expected, lake, outcome)) == true_holds
    assert {table.name for table in outcome.tables if table.gap is not None} <= allowed.keys()


# --- what neither a dump nor a feed has -------------------------------------------------------------------------------


def quoted(dump: Path, flavour: Flavour) -> dict[TableId, str]:
    """Return the tables with a quote in their names, where only quotes mark the ends of rows in SQL."""
    if flavour.kind != "sql" or flavour.how.options.escape_backslash:
        return {}
    names = (parse_name(file.name) for file in dump.iterdir())
    tables = {name.table for name in names if isinstance(name, DataName)}
    return {name: "with which the ends of rows" for name in tables if name.table.count("'") % 2}


def lost(config: Config, at: Tso, feed: Path) -> dict[TableId, str]:
    """Return the tables that do not follow from a dump and the feed since, each with a part of the reason."""
    reasons_by_table = dict.fromkeys(restored(config, at), "its earlier life is not known")
    old, new = (repeated(config, bucket) for bucket in (config.replayable[-1].bucket, feed))
    keyless = {
        table.name
        for table in read_history(config.settings(feed).open_source().listing().schema_files).lives.values()
        if table.name is not None and not table.schema.key
    }
    return reasons_by_table | dict.fromkeys((new - old) & keyless, "a delete found no equal row to remove")


def repeated(config: Config, bucket: Path) -> set[TableId]:
    """Return the tables of files that begin with the very commit-ts at which the file before them ended.

    Without a key the same rows once more look like one large transaction there.
    """
    listing = config.settings(bucket).open_source().listing()
    names = {file.root: file.table for file in listing.schema_files}
    repeated_names, before = set(), dict[str, Tso]()
    for file in sorted(listing.data_files, key=lambda file: (file.directory, file.number)):
        known = [record.ts for record in records((bucket / file.path).read_bytes(), config.options)[1]]
        if known and known[0] == before.get(file.directory):
            repeated_names.add(names[file.root])
        if known:
            before[file.directory] = known[-1]
    return repeated_names


def restored(config: Config, at: Tso) -> set[TableId]:
    """Return the tables that were dropped when the dump was taken and came back later: they are in neither."""
    listing = config.settings().open_source().listing()
    names = set()
    for table in read_history(listing.schema_files, listing.checkpoint).lives.values():
        for before, event in pairwise(table.events):
            if before.at <= at < event.at and isinstance(statement(event.file), Recover) and table.name is not None:
                names.add(table.name)
    return names
