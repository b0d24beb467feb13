"""Settled files among the names that are listed: counted and added up, so that a million of them take no memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cdc_assets.model.splits import DIGEST_MASK, SettledFiles, fingerprint
from cdc_assets.model.tso import Tso


class SettledTally:
    """Takes the names of settled files as they are listed, and says which directories still hold what they held."""

    def __init__(self, settled: Iterable[SettledFiles]) -> None:
        self._settled = {settled_files.directory: settled_files for settled_files in settled}
        self._found = dict.fromkeys(self._settled, (0, 0))

    def takes(self, directory: str, path: str, size: int, etag: str) -> bool:
        """Return whether a data file, as listed, is where settled ones are."""
        settled_files = self._settled.get(directory)
        if settled_files is None or not settled_files.has(path):
            return False
        count, digest = self._found[directory]
        self._found[directory] = count + 1, (digest + fingerprint(path, size, etag)) & DIGEST_MASK
        return True

    def verdict(self, checkpoint: Tso) -> tuple[list[SettledFiles], list[SettledFiles]]:
        """Return those that hold what they held, as of this look, and those that do not.

        Where nothing is left, or nothing was looked at, nothing has come: it holds what it held.
        """
        unchanged, changed = list[SettledFiles](), list[SettledFiles]()
        for directory, settled in self._settled.items():
            tally = self._found[directory]
            if tally == (settled.files, settled.digest):
                unchanged.append(replace(settled, checkpoint=checkpoint, passed_over=False))
            elif tally[0]:
                changed.append(settled)
            else:
                unchanged.append(settled if settled.passed_over else replace(settled, checkpoint=checkpoint))
        return unchanged, changed
