"""Bytes from the storage: fsspec's file systems, with retries of transient failures."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import fsspec

from cdc_assets.errors import BadSettings, BucketMissing, InputError, StorageUnavailable
from cdc_assets.io.drivers import file_system
from cdc_assets.io.names import Entry, directory_entries, etag_of, modified_of, objects
from cdc_assets.model.wording import counted

__all__ = ["PAUSES_SECONDS", "Opener"]

_T = TypeVar("_T")
PAUSES_SECONDS = (0.2, 1.0, 4.0)
"""Seconds between attempts; after the last the storage counts as unavailable."""

_SECRET_NAME = re.compile("key|secret|token|password|credential|sas|connection_string", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Opener:
    """Reads files below one prefix. Picklable, so that executors read the bucket themselves.

    `protocol` and `options` are fsspec's; `prefix` is the path of the prefix in it, `uri` names it in messages;
    `pauses` are the seconds between attempts, one less than there are attempts.
    """

    protocol: str
    prefix: str
    uri: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    pauses: tuple[float, ...] = field(default_factory=lambda: PAUSES_SECONDS)

    @property
    def file_system(self) -> Any:
        """The fsspec file system, one a process. Raises BadSettings when its driver is not installed."""
        if self.protocol == "file" and not self.options:
            return fsspec.filesystem("file")
        try:
            return file_system(self.protocol, self.options, self.uri)
        except (TypeError, ValueError, FileNotFoundError) as error:
            raise BadSettings(
                f"{self.uri}: the storage options are not valid: {self.redacted(error)}. Correct them."
            ) from None

    def read(self, path: str) -> bytes:
        """Return the bytes of a file; `path` is relative to the prefix.

        Retries transient errors. Raises InputError if the file does not exist, StorageUnavailable, BucketMissing.
        """
        try:
            return self.attempt(lambda: bytes(self.file_system.cat_file(f"{self.prefix}/{path}")), path)
        except FileNotFoundError:
            raise self._gone(path) from None

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from `start` to before `end`, fewer where it ends; raises what `read` raises."""
        place = f"{self.prefix}/{path}"
        try:
            return self.attempt(lambda: bytes(self.file_system.cat_file(place, start=start, end=end)), path)
        except FileNotFoundError:
            raise self._gone(path) from None

    def entries(self, below: str = "", without: Mapping[str, int] = {}) -> Iterator[Entry]:
        """Yield every file of a directory below the prefix, the whole prefix by default.

        The names in the directories of `without` may be left out; it says how many each had. Raises NotPassedOver
        where the server cannot do that and has listed names twice.
        """
        if self.protocol == "file":
            return iter(self.attempt(lambda: list(directory_entries(self.prefix, below, without))))
        file_system = self.file_system
        if self.protocol == "s3":
            return iter(objects(file_system, self.prefix, self.attempt, below, without))
        file_system.invalidate_cache()
        found = self.attempt(lambda: file_system.find(f"{self.prefix}/{below}".rstrip("/"), detail=True))
        start = len(self.prefix) + 1
        return (
            (name[start:], int(info.get("size") or 0), etag_of(info), modified_of(info)) for name, info in found.items()
        )

    def _gone(self, path: str) -> InputError:
        return InputError(
            f"{self.uri}/{path} was listed and no longer exists; expected that files stay until they are applied. "
            "Stop what removes them (file-expiration-days, lifecycle rules); restore it or rebuild the table.",
            file=path,
            gone=True,
        )

    def attempt(self, action: Callable[[], _T], path: str = "") -> _T:
        """Run an action on the storage, retrying transient failures after pauses.

        Lets FileNotFoundError through; raises BucketMissing if access is refused, StorageUnavailable after the last
        attempt.
        """
        where = f"{self.uri}/{path}" if path else self.uri
        for pause in (*self.pauses, None):
            try:
                return action()
            except (FileNotFoundError, BadSettings, StorageUnavailable):
                raise
            except Exception as error:
                if isinstance(error, (PermissionError, NotADirectoryError)) or _is_refusal(error):
                    raise BucketMissing(
                        f"{where} may not be read: {self.redacted(error)}. Give credentials in storage_options "
                        "or in the environment, and check that they may list and get objects there.",
                        file=where,
                    ) from None
                if not _is_passing(error):
                    raise
                if pause is None:
                    raise StorageUnavailable(
                        f"{where} did not answer in {counted(len(self.pauses) + 1, 'attempt')}: {self.redacted(error)}"
                        ". Try again later.",
                        file=where,
                    ) from None
                time.sleep(pause)
        raise AssertionError("unreachable")

    def redacted(self, error: Exception) -> str:
        """Return the first line of an error's text without any secret of the storage options."""
        first = str(error).strip().partition("\n")[0].rstrip(". ")
        text = f"{type(error).__name__}: {first}" if first else type(error).__name__
        for secret in _secrets(self.options):
            text = text.replace(secret, "***")
        return text


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and len(value) > 3 and _SECRET_NAME.search(name):
            yield value


def _is_refusal(error: Exception) -> bool:
    # Cloud drivers have no common class for a refusal: it is recognised by HTTP status and class names.
    status = next((found for name in ("status_code", "status", "code") if (found := getattr(error, name, None))), None)
    named = type(error).__name__ in (
        "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError",
        "DefaultCredentialsError", "ClientAuthenticationError", "AzureSigningError", "RefreshError",
    )  # fmt: skip
    return named or status in (401, 403) or getattr(error, "operation_name", "") == "AssumeRole"


def _is_passing(error: Exception) -> bool:
    family = type(error).__module__.partition(".")[0]
    clouds = ("aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "requests", "s3fs", "urllib3")
    return isinstance(error, (OSError, TimeoutError, EOFError)) or family in clouds
