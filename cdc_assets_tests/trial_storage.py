"""A storage on trial: local files under another protocol, with every call written down and faults on demand.

storage = TrialStorage.begin()                       # forget calls and faults
feed = storage.changefeed(settings)                  # reads through it, without pauses between attempts
storage.fault = lambda verb, path: OSError("…")      # what a call meets; None lets it through
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from cdc_assets.io.storage import Opener
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.storage_sink.source import StorageSink
from cdc_assets_tests.changefeed import open_changefeed

__all__ = ["SECRET", "TrialStorage"]

SECRET = "wJalrXUtnFEMI-bPxRfiCYEXAMPLEKEY"
"""The credential that every changefeed on trial is opened with."""

Fault = Callable[[str, str], Exception | None]


class TrialStorage(LocalFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """`calls` are (verb, path below the prefix): read and list. One world for a process; tests begin it anew."""

    protocol = "trial"
    cachable = False
    calls: ClassVar[list[tuple[str, str]]] = []
    fault: ClassVar[Fault | None] = None
    prefix: ClassVar[str] = ""

    @classmethod
    def begin(cls) -> type[TrialStorage]:
        """Forget what was before."""
        cls.calls, cls.fault = [], None
        return cls

    @classmethod
    def changefeed(cls, settings: ChangefeedSettings, attempts: int = 4) -> StorageSink:
        """Open a changefeed of local files through this storage."""
        feed = open_changefeed(settings)
        cls.prefix = feed.opener.prefix
        feed.opener = Opener("trial", cls.prefix, "s3://bucket/feed", {"secret": SECRET}, (0.0,) * (attempts - 1))
        return feed

    @classmethod
    def reads(cls) -> list[str]:
        """The paths that were read, in order."""
        return [path for verb, path in cls.calls if verb == "read"]

    def __init__(self, secret: str = "", **options: Any) -> None:
        super().__init__(**options)

    def _meet(self, verb: str, path: str) -> None:
        below = str(path)[len(self.prefix) + 1 :]
        self.calls.append((verb, below))
        error = type(self).fault(verb, below) if type(self).fault is not None else None  # type: ignore[misc]
        if error is not None:
            raise error

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self._meet("read", path)
        data: bytes = super().cat_file(path, start, end, **options)
        return data

    def find(self, path: str, *args: Any, **options: Any) -> Any:
        self._meet("list", path)
        return super().find(path, *args, **options)


fsspec.register_implementation("trial", TrialStorage, clobber=True)
