"""Recorded changefeeds applied to a lake and compared with the recorded source."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.storage_sink.source import StorageSink
from cdc_assets_tests.cases import Checkpoint, Config, differences, expected_tables
from cdc_assets_tests.changefeed import sink_options
from cdc_assets_tests.memory_lake import MemoryLake

__all__ = ["AsOf", "compare", "pipeline_of", "replay", "replayed"]


class ReadableLake(Protocol):
    """A lake whose tables a test can read."""

    def read(self, name: TableId) -> pa.Table: ...

    def names(self) -> set[TableId]: ...


class AsOf(StorageSink):
    """A bucket whose `metadata` is older than its files, as it is whenever rows are ahead of the checkpoint."""

    def __init__(self, settings: ChangefeedSettings, checkpoint: Tso) -> None:
        super().__init__(sink_options(settings), settings.storage())
        self.checkpoint = checkpoint

    def fence(self) -> Tso:
        return self.checkpoint


def replay(config: Config, checkpoint: Checkpoint, lake: Any, ledger: Ledger | None = None, **given: Any) -> Outcome:
    """Apply a bucket through a checkpoint; where no copy was recorded, the final bucket as of then."""
    return pipeline_of(config, checkpoint, lake, ledger, **given).apply("test")


def pipeline_of(
    config: Config, checkpoint: Checkpoint, lake: Any, ledger: Ledger | None = None, **given: Any
) -> Pipeline:
    """Return what applies a bucket through a checkpoint, with more settings."""
    settings = config.settings(checkpoint.bucket, **given)
    return Pipeline(settings, AsOf(settings, checkpoint.ts), lake, ledger or Ledger("sqlite://"))


_REPLAYED: dict[tuple[str, Tso, str], tuple[MemoryLake, Ledger]] = {}
"""Lakes and ledgers of the changefeeds that were replayed in this process, which nobody changes."""


def replayed(config: Config, checkpoint: Checkpoint, **given: Any) -> tuple[MemoryLake, Ledger]:
    """Return a lake in memory and a ledger with a bucket applied through a checkpoint: copies, one for each call."""
    key = str(checkpoint.bucket), checkpoint.ts, json.dumps(given, sort_keys=True)
    if key not in _REPLAYED:
        lake, ledger = MemoryLake(), Ledger("sqlite://")
        replay(config, checkpoint, lake, ledger, **given)
        _REPLAYED[key] = lake, ledger
    lake, ledger = _REPLAYED[key]
    copy = Ledger("sqlite://")
    _connection(ledger).backup(_connection(copy))
    return lake.copied(), copy


def _connection(ledger: Ledger) -> sqlite3.Connection:
    connection = ledger._database._engine.raw_connection().driver_connection
    assert isinstance(connection, sqlite3.Connection)
    return connection


def compare(config: Config, expected: Path, lake: ReadableLake, outcome: Outcome) -> list[str]:
    """Return what differs from the source, leaving out what allow.json says the files cannot give."""
    mismatches = [f"{path}: {message}" for path, message in outcome.problems.items()]
    stopped = {t.name: f"{t.name} is {t.state}: {t.reason}" for t in outcome.tables if t.state in ("held", "failed")}
    allowed = config.allow
    mismatches += [reason for name, reason in stopped.items() if name not in allowed.tables]
    tables = expected_tables(expected)
    for name, table in tables.items():
        if name in allowed.tables or name in stopped:
            continue
        if name not in lake.names():
            mismatches.append(f"{name} is not in the lake")
            continue
        skip = allowed.columns.get(name, frozenset()) | config.hidden_columns
        mismatches += differences(table, lake.read(name), skip=skip)
    return mismatches + _surplus(config, tables, lake, stopped)


def _surplus(config: Config, tables: Iterable[TableId], lake: ReadableLake, stopped: Iterable[TableId]) -> list[str]:
    surplus = lake.names() - set(tables) - set(stopped) - config.allow.tables
    if config.options.use_table_id_as_path:
        return []  # DROP DATABASE leaves no file in this layout
    return [f"{name} is in the lake and not in the source" for name in sorted(surplus)]
