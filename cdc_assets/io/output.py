"""Files written to a new place, in any store: each is there as a whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdc_assets.errors import BadSettings
from cdc_assets.io.storage import Opener
from cdc_assets.io.storage_uri import opener

_PART = re.compile(r"\.[0-9a-f]{32}\.part$")
"""The end of the name of a copy that is not finished."""

_ABANDONED_SECONDS = 86_400
"""A copy that is not finished after so long was left by a process that was killed."""


@dataclass(frozen=True, slots=True)
class Output:
    """A directory, or the prefix of a bucket, that gets files."""

    place: Opener

    def refuse_filled(self, but: Collection[str] = ()) -> None:
        """Raise BadSettings where there is a file already, whole or cut short, `but` for those of these names."""
        allowed = {*but, *(f".{name}.part" for name in but)}
        entries = (name for name, *_ in self.place.entries())
        try:
            there = next((name for name in entries if _PART.sub(".part", name) not in allowed), None)
        except FileNotFoundError:
            return
        if there is not None:
            raise BadSettings(
                f"{self.place.uri} has files already, such as {there}: what is written there must be all that is "
                "there. Give another place, or empty it."
            )

    def put(self, file: Path, name: str) -> None:
        """Copy a finished local file; a copy that is cut short is never there under the name.

        Two at once do not disturb each other: the later one counts. Raises BadSettings where no
        directory can be made.
        """
        target = f"{self.place.prefix}/{name}"
        if self.place.protocol == "file":
            try:
                os.makedirs(self.place.prefix, exist_ok=True)
            except OSError as error:
                raise BadSettings(
                    f"{self.place.uri} cannot be made a directory: {error.strerror}. Give a place that may be "
                    "written to."
                ) from error
            for left in Path(self.place.prefix).glob(f".{name}.*.part"):
                if left.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
                    left.unlink(missing_ok=True)
            beside = f"{self.place.prefix}/.{name}.{uuid.uuid4().hex}.part"
            shutil.copyfile(file, beside)
            os.replace(beside, target)
            return
        self.place.attempt(lambda: self.place.file_system.put_file(str(file), target))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        target = f"{self.place.prefix}/{name}"
        if self.place.protocol == "file":
            Path(target).unlink(missing_ok=True)
        elif self.place.attempt(lambda: self.place.file_system.exists(target)):
            self.place.attempt(lambda: self.place.file_system.rm_file(target))


def output(uri: str, options: Mapping[str, Any]) -> Output:
    """Return the place that a URI names; `options` are fsspec's, in clear text. Raises BadSettings."""
    return Output(opener(uri, options, "--out"))
