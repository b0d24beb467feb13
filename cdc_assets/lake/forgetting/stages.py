"""Stages of windows that are not committed, searched for rows of keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.formats import OP
from cdc_assets.lake.failures import answering
from cdc_assets.lake.names import parse_identity
from cdc_assets.lake.staging.stage import STAGE, age_of, discard
from cdc_assets.lake.staging.tasks import KEYED_BY, OF
from cdc_assets.lake.table_files import StoredFile, stored_files
from cdc_assets.model.progress import Life
from cdc_assets.model.quarantine import HasKeys, RecordContent
from cdc_assets.model.tickets import STALE_SECONDS

if TYPE_CHECKING:
    from cdc_assets.decoding.keyed_rows import WantedKeys
    from cdc_assets.lake.tables import Lake

__all__ = ["KeysOfStages", "Stage", "stages"]


@dataclass(frozen=True, slots=True)
class KeysOfStages:
    """The keys of tables of the lake; `may_be_in` looks for those of a table in a record that was set aside."""

    tables: Mapping[Life, WantedKeys]
    may_be_in: HasKeys

    def are_in(self, rows: pa.Table, *, is_parquet: bool) -> bool:
        """Return whether a file of a stage, as it was read, has rows of the keys."""
        said = rows.schema.metadata or {}
        life = parse_identity(said[OF.encode()].decode())
        if life not in self.tables:
            return False
        if "raw" in rows.column_names and OP not in rows.column_names:
            names = ("file", "line", "schema_version", "raw", "keys")
            records = zip(*(rows.column(name).to_pylist() for name in names), strict=True)
            return any(
                self.may_be_in(life, RecordContent(file, line, version, raw or b"", keys or b""))
                for file, line, version, raw, keys in records
            )
        wanted = self.tables[life]
        key = {(part if is_parquet else name): name for name, part in json.loads(said[KEYED_BY.encode()])}
        if list(key.values()) != wanted.keys.column_names:
            return True  # another key, of before a DDL: who staged it is refused
        return len(wanted.numbers(rows.select(list(key)).rename_columns(list(key.values())))) > 0


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of some table: its directory, and the files in it. `io` are PyIceberg's properties."""

    io: Mapping[str, str]
    path: str
    files: Sequence[StoredFile]

    @property
    def is_old(self) -> bool:
        """Return whether it began longer ago than a run is silent that lives."""
        return age_of(self.path) > STALE_SECONDS

    def having(self, keys: KeysOfStages, *, unread: bool) -> list[str]:
        """Return the files that have rows of the keys, and with `unread` those that cannot be read."""
        having = []
        for file in self.files:
            if file.info.extension in ("parquet", "arrow"):
                with suppress(FileNotFoundError):  # whoever is at work on the stage has removed it
                    rows, is_parquet = _rows_of(file), file.info.extension == "parquet"
                    if unread if rows is None else keys.are_in(rows, is_parquet=is_parquet):
                        having.append(file.location)
        return having

    def remove(self) -> None:
        """Remove it."""
        discard(self.io, self.path)


def _rows_of(file: StoredFile) -> pa.Table | None:
    """Read a file; None for a part of one, that a run which was killed has left, or that one is writing now."""
    try:
        with answering(), file.system.open_input_file(file.info.path) as source:
            if file.info.extension == "parquet":
                return pq.ParquetFile(source).read()
            return pa.ipc.open_file(source).read_all()
    except pa.ArrowInvalid:
        return None


def stages(lake: Lake, lives: Mapping[Life, object]) -> Iterator[Stage]:
    """Yield the stages that are there, of any table, where windows of these tables are staged."""
    tables = lake.state.tables()
    for root, io in dict(lake.workbench.storage(tables[life]) for life in lives if life in tables).items():
        by_path: dict[str, list[StoredFile]] = {}
        for file in stored_files(io, f"{root.rstrip('/')}/{STAGE}"):
            by_path.setdefault(file.location.rpartition("/")[0], []).append(file)
        yield from (Stage(io, path, files) for path, files in by_path.items())
