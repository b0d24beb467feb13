"""Files of rows of a landing in the lake, written wherever a task runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cdc_assets.lake.row_groups import RowFiles
from cdc_assets.landing.rows import Group
from cdc_assets.landing.store import Added

__all__ = ["LandedFiles"]


@dataclass(frozen=True, slots=True)
class LandedFiles:
    """Writes files of rows, which are in no snapshot until they are committed: picklable."""

    files: RowFiles

    def write_rows(self, groups: Iterable[Group]) -> tuple[str, int]:
        """Write rows as one file, a row group each as it comes; return its location and bytes."""
        return self.files.write(group.rows for group in groups)

    def discard(self, added: Added) -> None:
        """Remove files that will not be committed."""
        self.files.remove(name for name, _ in (*added.rows, *added.events))
