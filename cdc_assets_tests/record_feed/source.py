"""Feeds of records, by the host of their address `records://NAME`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from cdc_assets.errors import MetadataMissing
from cdc_assets.formats import UniformReader, Wire
from cdc_assets.model.schema import Column, TableId
from cdc_assets.model.splits import DataFile, Listing, Place, SchemaFile, SettledFiles
from cdc_assets.model.tso import Tso
from cdc_assets.sources import FeedInputs, KnownFiles
from cdc_assets_tests.record_feed.options import RecordOptions

__all__ = ["FEEDS", "RecordFeed", "Records", "connect", "parse", "storage_options"]


@dataclass(slots=True)
class Records:
    """What a feed holds: write to it, then publish a fence."""

    fence: Tso | None = None
    schema_files: list[SchemaFile] = field(default_factory=list)
    splits: dict[str, tuple[str, Tso, bytes]] = field(default_factory=dict)

    def ddl(self, name: str, at: Tso, query: str, kind: int, *columns: Column) -> None:
        schema, _, table = name.partition(".")
        path = f"{name}/{at}.schema"
        self.schema_files.append(SchemaFile(path, name, TableId(schema, table), at, query, kind, columns))

    def rows(self, name: str, version: Tso, *records: list[Any]) -> None:
        path = f"{name}/{version}/{len(self.splits) + 1}.records"
        self.splits[path] = (name, version, b"\n".join(json.dumps(record).encode() for record in records))


FEEDS: dict[str, Records] = {}


@dataclass(frozen=True, slots=True)
class Options:
    """Where the records are."""

    kind: ClassVar[str] = "records"
    is_landed: ClassVar[bool] = False
    uri: str
    wire: Wire
    protocol: str = "records"
    store: str = "memory"
    writer: str = "the test"
    retention_days: int = 0

    def captures(self, table: TableId) -> bool | None:
        return None

    def has_inserts(self, table: TableId) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class RecordFeed:
    """Lists and reads the records of one address."""

    options: Options

    @property
    def _records(self) -> Records:
        return FEEDS[self.options.uri]

    @property
    def reader(self) -> UniformReader:
        return UniformReader(self.options.wire, self._read)

    def _read(self, path: str) -> bytes:
        return self._records.splits[path][2]

    def fence(self) -> Tso:
        if self._records.fence is None:
            raise MetadataMissing("nothing was published yet")
        return self._records.fence

    def listing(self, known: KnownFiles | None = None, settled: Sequence[SettledFiles] = ()) -> Listing:
        splits = tuple(
            DataFile(path, root, version, f"{root}/{version}", number, len(data))
            for number, (path, (root, version, data)) in enumerate(self._records.splits.items(), 1)
        )
        return Listing(self.fence(), tuple(self._records.schema_files), splits)

    def head(self, path: str, size: int) -> bytes:
        return self._read(path)[:size]

    def place(self, path: str, listing: Listing | None = None) -> Place | None:
        if path not in self._records.splits:
            return None
        root, version, _ = self._records.splits[path]
        return Place(root, version, f"{root}/{version}")


def parse(sink_uri: str, changefeed_config: Path | None, tz: str, given: FeedInputs) -> Options:
    return Options(sink_uri.partition("?")[0], RecordOptions(tz))


def storage_options(sink_uri: str, given: FeedInputs) -> dict[str, Any]:
    return {}


def connect(options: Options, storage: Mapping[str, Any]) -> RecordFeed:
    return RecordFeed(options)
