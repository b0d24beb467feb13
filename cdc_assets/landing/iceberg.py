"""The landing in the lake: `_cdc_landing.<changefeed>`, an append-only Iceberg table of its own.

snapshot   cdc.landing.next (digest of all next offsets)  cdc.landing.changed (the offsets that a landing brought)
           cdc.landing.id (the table's own id)  cdc.landing.version (of columns and events)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from cdc_assets.errors import BadSettings
from cdc_assets.lake.growing import GrowingTable
from cdc_assets.lake.names import OwnNamespaces, location
from cdc_assets.lake.row_groups import WrittenFile
from cdc_assets.landing.files import (
    LANDED,
    PART,
    LandedFiles,
    LandedGroups,
    NewFiles,
    RowGroup,
    TableFiles,
    decrypted_rows,
    encrypted_rows,
)
from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.settings.lake import LakeSettings

_PREFIX = "cdc.landing."
_NEXT, _CHANGED, _ID = f"{_PREFIX}next", f"{_PREFIX}changed", f"{_PREFIX}id"
_VERSION = f"{_PREFIX}version"
_WRITTEN = "1"
"""The version that is written, and the only one that is read."""


class LandingTable:
    """A changefeed's landing table, which is a LandingStore. With an `encryption_key` it has no message in clear text.

    Without one events are read as they stand, so that how far it is can be told without any key.
    """

    def __init__(self, settings: LakeSettings, changefeed: str, encryption_key: EncryptionKey | None = None) -> None:
        self.encryption_key = encryption_key
        root = str(settings.local_directory or settings.warehouse)
        place = location(root, f"{changefeed}~landing", None)  # no changefeed can be called so
        self.table = GrowingTable(
            settings, (OwnNamespaces(settings.namespaces).landing, changefeed), LANDED, PART, _PREFIX, place
        )

    def stored(self) -> TableFiles:
        """Return the state of the landing now; a state that is known costs one question to the catalog.

        Raises BadSettings for a landing that was written by a version of this software with other columns or events.
        """
        grown = self.table.look()
        if grown is None:
            return TableFiles()
        if grown.properties and grown.properties.get(_VERSION) != _WRITTEN:
            name, version = ".".join(self.table.identifier), grown.properties.get(_VERSION, "0")
            raise BadSettings(
                f"the landing {name} is of version {version}, and this software reads version {_WRITTEN}. Use the "
                "software that wrote it, or give the changefeed another name and another namespace, and land its "
                "topics anew."
            )
        files = grown.files
        return TableFiles(
            grown.identity, files.get("events", ()), files.get("rows", ()), grown.properties.get(_NEXT, ""), grown.at_ms
        )

    def read_events(self, files: Sequence[str]) -> pa.Table:
        """Return the events of files, in the order of the files."""
        events = pa.concat_tables([LANDED.empty_table(), *(self.table.read(file).cast(LANDED) for file in files)])
        return events if self.encryption_key is None else decrypted_rows(events, self.encryption_key)

    @property
    def fetch(self) -> Callable[[str, int], pa.Table]:
        """Reads a row group of a file, on executors too."""
        return LandedGroups(self.table.fetch, self.encryption_key)

    def write_rows(self, groups: Iterable[RowGroup], *, packed: bool = False) -> tuple[str, int]:
        """Write rows as one file, a row group each as it comes; return its location and bytes."""
        return self.elsewhere().write_rows(groups, packed=packed)

    def elsewhere(self) -> LandedFiles:
        """Return the writer of files of rows wherever a task runs."""
        return LandedFiles(self.table.files("rows"), self.encryption_key)

    def write_events(self, events: pa.Table) -> tuple[str, int]:
        """Write events as one file; return its location and bytes."""
        return self.table.write("events", [encrypted_rows(events, self.encryption_key)])

    def commit(self, added: NewFiles, before: str, digest: str, changed: str) -> None:
        """Add files in one commit; a compaction that comes between does no harm. Raises TableMoved."""
        grown = self.table.look()
        summary = {
            _VERSION: _WRITTEN,
            _NEXT: digest,
            _CHANGED: changed,
            _ID: grown.identity if grown is not None else "",
        }

        def still(newest: Mapping[str, str]) -> bool:
            return newest.get(_NEXT, "") == before

        self.table.append(_written(added), summary, still)

    def replace(self, added: NewFiles, old: Sequence[str], digest: str) -> None:
        """Put files in place of others in one commit. Raises TableMoved where something was landed meanwhile."""
        grown = self.table.look()
        summary = {_VERSION: _WRITTEN, _NEXT: digest, _CHANGED: "", _ID: grown.identity if grown is not None else ""}
        self.table.replace(_written(added), old, summary, lambda newest: newest.get(_NEXT, "") == digest)

    def sweep(self, before_ms: int) -> int:
        """Expire older snapshots, and remove older files that no snapshot refers to; return how many."""
        self.table.expire(before_ms)
        return self.table.remove_unreferenced(before_ms)

    def read_rows(self, file: str, columns: Sequence[str]) -> pa.Table:
        """Return columns of a file that say what its rows are, not what their messages say."""
        return self.table.read(file, columns)

    def drop_past(self) -> None:
        """Remove the files that only earlier states have, and these states."""
        self.table.drop_past()

    def stored_files(self) -> Sequence[tuple[str, int]]:
        """Return all files that are there, whatever refers to them, each with its bytes."""
        return list(self.table.stored_files())

    def discard(self, added: NewFiles) -> None:
        """Remove files that will not be committed."""
        self.table.remove(_written(added))

    def close(self) -> None:
        """Close the catalog's connections."""
        self.table.close()


def _written(added: NewFiles) -> list[WrittenFile]:
    return [WrittenFile(name, size) for name, size in (*added.rows, *added.events)]
