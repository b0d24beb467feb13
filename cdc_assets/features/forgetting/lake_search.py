"""Find snapshots, data files and stages that contain rows of given keys. Uses PyIceberg, no JVM.

Data files are asked by the columns of their key, and only where the bounds in their manifest allow for one of the keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import _read_all_delete_files
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import StaticTable
from pyiceberg.types import DateType, PrimitiveType

from cdc_assets.decoding import PLACE
from cdc_assets.decoding.keyed_rows import WantedKeys
from cdc_assets.formats.decoded import OP, POSITION
from cdc_assets.lake.failures import answering
from cdc_assets.lake.names import parse_identity
from cdc_assets.lake.row_delta import field_id
from cdc_assets.lake.staging.partitions import json_value
from cdc_assets.lake.staging.stage import STAGE
from cdc_assets.lake.staging.storage import storage
from cdc_assets.lake.staging.tasks import KEYED_BY, OF
from cdc_assets.lake.table_files import StoredFile, stored_files
from cdc_assets.model.progress import Life
from cdc_assets.model.quarantine import HasKeys, RecordContent
from cdc_assets.types.collations import is_plain
from cdc_assets.types.mysql_types import arrow_type

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from cdc_assets.lake.tables import Lake

__all__ = ["RowNumbers", "SearchedTable", "stage_has_keys", "stages"]

_EPOCH = date(1970, 1, 1).toordinal()

_BOUNDED = ("int", "long", "string")
"""Iceberg's types whose bounds are compared as the values are."""

RowNumbers = npt.NDArray[np.int64]
"""Row numbers in a file, from 0."""


class SearchedTable:
    """A table as of one metadata file, searched for rows of keys; each manifest and data file is read once.

    `io` are PyIceberg's properties. Raises FileNotFoundError where a file of a snapshot was removed meanwhile.
    """

    def __init__(self, metadata_location: str, io: Mapping[str, str], sought: WantedKeys) -> None:
        with answering():
            self.table = StaticTable.from_metadata(metadata_location, dict(io))
        self.io, self.sought = io, sought
        self._key = {name: self.table.schema().find_field(name) for name in sought.keys.column_names}
        types = {
            (field.field_id, str(field.field_type))
            for schema in self.table.schemas().values()
            for field in schema.fields
        }
        ids = [number for number, _ in types]
        self._retyped = {number for number in ids if ids.count(number) > 1}
        self._rows: dict[str, RowNumbers] = {}
        self._manifests: dict[str, tuple[dict[str, DataFile], dict[str, DataFile]]] = {}

    # --- snapshots ---

    def files_of(self, snapshot_id: int) -> dict[str, DataFile]:
        """Return the data files of a snapshot by their paths."""
        return {path: file for files, _ in self._manifests_of(snapshot_id).values() for path, file in files.items()}

    def _manifests_of(self, snapshot_id: int) -> dict[str, tuple[dict[str, DataFile], dict[str, DataFile]]]:
        snapshot = self.table.snapshot_by_id(snapshot_id)
        assert snapshot is not None
        with answering():
            manifests = [
                manifest for manifest in snapshot.manifests(self.table.io) if manifest.content == ManifestContent.DATA
            ]
            return {manifest.manifest_path: self._mentioned_in(manifest) for manifest in manifests}

    def _mentioned_in(self, manifest: ManifestFile) -> tuple[dict[str, DataFile], dict[str, DataFile]]:
        """Return the data files that a manifest has, and those that it says were removed."""
        if manifest.manifest_path not in self._manifests:
            files: dict[str, DataFile] = {}
            removed: dict[str, DataFile] = {}
            for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=False):
                if entry.data_file.content == DataFileContent.DATA:
                    is_removed = entry.status == ManifestEntryStatus.DELETED
                    (removed if is_removed else files)[entry.data_file.file_path] = entry.data_file
            self._manifests[manifest.manifest_path] = files, removed
        return self._manifests[manifest.manifest_path]

    @cached_property
    def places(self) -> dict[int, frozenset[str]]:
        """Data files that contain rows of the keys, hidden rows included, by snapshot.

        A manifest with the bounds of a removed file counts as well, if that had such rows, or may have had them.
        """
        places: dict[int, frozenset[str]] = {}
        for snapshot in self.table.metadata.snapshots:
            having = set[str]()
            for path, (files, removed) in self._manifests_of(snapshot.snapshot_id).items():
                having |= {file.file_path for file in files.values() if len(self.rows_in(file))}
                having |= {path} if any(map(self._had_rows, removed.values())) else set()
            if having:
                places[snapshot.snapshot_id] = frozenset(having)
        return places

    @property
    def holding(self) -> dict[str, RowNumbers]:
        """The data files that have rows of the keys, with the numbers of these rows."""
        return {path: self._rows[path] for places in self.places.values() for path in places if path in self._rows}

    @property
    def refs(self) -> dict[str, bool]:
        """The tags and branches whose snapshots have rows of the keys, each with whether it is a tag."""
        refs = self.table.metadata.refs.items()
        return {
            name: ref.snapshot_ref_type == "tag"
            for name, ref in refs
            if name != "main" and ref.snapshot_id in self.places
        }

    def hidden(self, snapshot_id: int, paths: Iterable[str]) -> dict[str, RowNumbers]:
        """Return the rows of data files that deletion vectors hide in a snapshot."""
        path_set = set(paths)
        with answering():
            tasks = [t for t in self.table.scan(snapshot_id=snapshot_id).plan_files() if t.file.file_path in path_set]
            deletes = _read_all_delete_files(self.table.io, tasks)
        return {
            path: np.concatenate([some.to_numpy() for some in hidden]).astype(np.int64)
            for path, hidden in deletes.items()
        }

    def partition_of(self, file: DataFile) -> str:
        """Return the values of a data file's partition, a list in JSON; "" for a table without partitions."""
        spec = self.table.specs()[file.spec_id]
        if not spec.fields:
            return ""
        kinds = [field.field_type for field in spec.partition_type(self.table.schema()).fields]
        values = [file.partition[place] for place in range(len(kinds))]
        return json.dumps(
            [
                date.fromordinal(_EPOCH + value) if isinstance(kind, DateType) and isinstance(value, int) else value
                for kind, value in zip(kinds, values, strict=True)
            ],
            default=json_value,
        )

    # --- files ---

    @property
    def roots(self) -> list[str]:
        """The directories with the table's files, none within another."""
        metadata = self.table.metadata
        write_paths = (metadata.properties.get(name) for name in ("write.data.path", "write.metadata.path"))
        roots = {root.rstrip("/") for root in (metadata.location, *write_paths) if root}
        return sorted(root for root in roots if not any(root.startswith(f"{other}/") for other in roots))

    def files(self) -> Iterator[StoredFile]:
        """Yield the files below the table's directories, whether anything refers to them or not."""
        for root in self.roots:
            yield from stored_files(self.io, root)

    def is_in(self, file: StoredFile) -> bool:
        """Return whether a file to which no snapshot refers has rows of the keys, or is a manifest of such a file."""
        with suppress(FileNotFoundError):  # upkeep, or the run that wrote it, has removed it
            if file.location.endswith(".parquet"):
                return bool(len(self._numbers(file.system, file.info.path)))
            if file.location.endswith(".avro") and not file.info.base_name.startswith("snap-"):
                manifest = ManifestFile.from_args(
                    manifest_path=file.location, manifest_length=file.info.size, content=ManifestContent.DATA,
                    partition_spec_id=0, sequence_number=0, min_sequence_number=0, added_snapshot_id=0,
                )  # fmt: skip
                with answering():
                    mentioned = self._mentioned_in(manifest)
                return any(self._had_rows(data_file) for files in mentioned for data_file in files.values())
        return False

    def rows_in(self, file: DataFile) -> RowNumbers:
        """Return the numbers of the rows of the keys in a data file."""
        path, allowed = file.file_path, True
        if path in self._rows:
            return self._rows[path]
        for name, field in self._key.items():
            low, high = ((bounds or {}).get(field.field_id) for bounds in (file.lower_bounds, file.upper_bounds))
            column, kind = self.sought.schema.column(name), field.field_type
            compared = pa.types.is_integer(arrow_type(column)) or is_plain(column.compares_by or "")
            if not isinstance(kind, PrimitiveType) or str(kind) not in _BOUNDED or field.field_id in self._retyped:
                continue
            if compared and low is not None and high is not None:  # bounds of collated texts tell nothing
                lowest, highest = from_bytes(kind, low), from_bytes(kind, high)
                allowed &= any(lowest <= value <= highest for value in self.sought.keys.column(name).to_pylist())
        self._rows[path] = self._numbers(*storage(self.io, path)) if allowed else np.empty(0, np.int64)
        return self._rows[path]

    def _had_rows(self, file: DataFile) -> bool:
        """Return whether a data file has rows of the keys, or may have had them where it is gone.

        Its manifest keeps bounds, which are values of its rows: of the key, maybe folded or padded otherwise than the
        wanted key is written, and of all other columns, an e-mail address say. A bound does not tell whose row it was.
        """
        try:
            return len(self.rows_in(file)) > 0
        except FileNotFoundError:
            return True

    def _numbers(self, system: Any, path: str) -> RowNumbers:
        numbers, start = [np.empty(0, np.int64)], 0
        for keys in self._keys_in(system, path):
            numbers.append(np.asarray(self.sought.numbers(keys), np.int64) + start)
            start += keys.num_rows
        return np.concatenate(numbers)

    def _keys_in(self, system: Any, path: str) -> Iterator[pa.Table]:
        """Yield the key's columns of each row group of a Parquet file, by the names of now.

        A column that was added after the file was written has its default in all rows.
        """
        with answering(), system.open_input_file(path) as source:
            file = pq.ParquetFile(source)
            names = {field_id(column): column.name for column in file.schema_arrow}
            key_names = {name: names[field.field_id] for name, field in self._key.items() if field.field_id in names}
            types = self.sought.keys.schema
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, list(key_names.values()))
                count = file.metadata.row_group(group).num_rows
                yield pa.table(
                    {
                        name: rows.column(key_names[name])
                        if name in key_names
                        else pa.repeat(pa.scalar(field.initial_default, types.field(name).type), count)
                        for name, field in self._key.items()
                    }
                )

    # --- what is told of the rows ---

    def keys_there(self) -> set[int]:
        """Return the keys, by their number, of which data files have rows."""
        files = ((*storage(self.io, path), numbers) for path, numbers in self.holding.items())
        return {
            number
            for system, path, numbers in files
            for number in self.sought.among(pa.concat_tables(self._keys_in(system, path)).take(numbers))
        }

    def moved(self) -> tuple[tuple[str, ...], ...]:
        """Return keys that rows had before one of the keys or after it, as a log tells: those of updates of a key."""
        if POSITION not in self.table.schema().column_names:
            return ()
        moved = set[tuple[str, ...]]()
        for location, numbers in self.holding.items():
            system, path = storage(self.io, location)
            keys = pl.from_arrow(pa.concat_tables(self._keys_in(system, path)))
            with answering(), system.open_input_file(path) as source:
                places = pl.from_arrow(pq.ParquetFile(source).read(columns=[POSITION, PLACE]))
            assert isinstance(keys, pl.DataFrame)
            assert isinstance(places, pl.DataFrame)
            rows, names = keys.hstack(places), keys.columns
            is_of_keys = pl.int_range(rows.height, eager=True).is_in(numbers.tolist())
            other_rows = rows.filter(~is_of_keys).join(rows.filter(is_of_keys), on=[POSITION, PLACE], how="semi")
            moved |= {tuple(map(str, key)) for key in other_rows.select(names).iter_rows()}
        return tuple(sorted(moved))


# --- stages -----------------------------------------------------------------------------------------------------------


def stages(lake: Lake, lives: Mapping[Life, object]) -> dict[str, tuple[Mapping[str, str], list[StoredFile]]]:
    """Return the stages, of any table, where windows of these tables are staged: by directory the files in each.

    With PyIceberg's properties for them.
    """
    tables, places = lake.state.tables(), dict[str, tuple[Mapping[str, str], list[StoredFile]]]()
    for root, io in dict(lake.workbench.storage(tables[life]) for life in lives if life in tables).items():
        for file in stored_files(io, f"{root.rstrip('/')}/{STAGE}"):
            places.setdefault(file.location.rpartition("/")[0], (io, []))[1].append(file)
    return places


def stage_has_keys(file: StoredFile, targets: Mapping[Life, WantedKeys], may_be_in: HasKeys, *, unread: bool) -> bool:
    """Return whether a file of a stage has rows of the keys of its table, or a record that may have one.

    `unread` is returned for a part of a file, which a run that was killed has left, or that one is writing now.
    """
    is_parquet = file.info.extension == "parquet"
    if not is_parquet and file.info.extension != "arrow":
        return False
    try:
        with answering(), file.system.open_input_file(file.info.path) as source:
            rows = pq.ParquetFile(source).read() if is_parquet else pa.ipc.open_file(source).read_all()
    except FileNotFoundError:  # the run at work on the stage has removed it
        return False
    except pa.ArrowInvalid:
        return unread
    properties = rows.schema.metadata or {}
    life = parse_identity(properties[OF.encode()].decode())
    if life not in targets:
        return False
    if "raw" in rows.column_names and OP not in rows.column_names:
        names = ("file", "line", "schema_version", "raw", "keys")
        records = zip(*(rows.column(name).to_pylist() for name in names), strict=True)
        return any(
            may_be_in(life, RecordContent(place, line, version, raw or b"", keys or b""))
            for place, line, version, raw, keys in records
        )
    key = {(part if is_parquet else name): name for name, part in json.loads(properties[KEYED_BY.encode()])}
    if list(key.values()) != targets[life].keys.column_names:
        return True  # another key, of before a DDL: the run that staged it is refused
    return len(targets[life].numbers(rows.select(list(key)).rename_columns(list(key.values())))) > 0
