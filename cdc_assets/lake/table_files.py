"""Files of a table: those that lie below a directory, and those that its snapshots refer to; no JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from cdc_assets.lake.failures import answering
from cdc_assets.lake.staging.storage import storage

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a warehouse: its location, and what its file system has of it."""

    location: str
    system: Any
    info: pafs.FileInfo


def stored_files(io: Mapping[str, str], directory: str) -> Iterator[StoredFile]:
    """Yield all files below a directory by their paths, whatever refers to them. `io` are PyIceberg's properties."""
    system, path = storage(io, directory)
    with answering():
        infos = system.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
    for info in sorted(infos, key=lambda info: str(info.path)):
        if info.is_file:
            yield StoredFile(f"{directory}{info.path.removeprefix(path)}", system, info)


def referenced_files(table: Table, io: Mapping[str, str]) -> set[str]:
    """Return the files that any snapshot of a table refers to, as paths of file systems; none of its metadata files."""
    locations = {file.statistics_path for file in table.metadata.statistics}
    with answering():
        for snapshot in table.metadata.snapshots:
            locations.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                locations.add(manifest.manifest_path)
                locations |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return {storage(io, location)[1] for location in locations}
