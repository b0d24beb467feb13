"""Bytes and names from the storage: fsspec's file systems, with retries of transient failures.

    Opener               reads files below one prefix, and lists them
    directory_entries    the files of a local directory
    objects              the objects of a bucket in S3

Names are listed without those in directories that need not be looked at again. A directory of local files is left out
by not entering it. A bucket in S3 lists names, not directories: listing goes on behind such a directory, if that is
worth two requests. Which other directories stand beside it is asked for first, so that no name is passed over that is
not in one of them. Nothing depends on the order in which the server lists names.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import fsspec

from cdc_assets.errors import BadSettings, BucketMissing, InputError, StorageUnavailable
from cdc_assets.io.drivers import file_system
from cdc_assets.model.tso import parse_iso_time
from cdc_assets.model.wording import SECRET_NAME, counted

_T = TypeVar("_T")
Entry = tuple[str, int, str, float]
"""(path below the prefix, bytes, etag, seconds since 1970) of a file."""
_Attempt = Callable[[Callable[[], _T]], _T]

WORTH_NAMES = 2_000
"""The least number of consecutive names to pass over: the two requests that this takes list as many."""

PAUSES_SECONDS = (0.2, 1.0, 4.0)
"""Seconds between attempts; after the last the storage counts as unavailable."""


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

    def is_there(self) -> bool:
        """Return whether the directory of the prefix exists, or its bucket. Raises as `attempt` does."""
        place = self.prefix if self.protocol in ("file", "memory") else self.prefix.partition("/")[0]
        return self.attempt(lambda: bool(self.file_system.exists(place)))

    def read(self, path: str) -> bytes:
        """Return the bytes of a file; `path` is relative to the prefix.

        Retries transient errors. Raises InputError if the file does not exist, StorageUnavailable, BucketMissing.
        """
        return self.read_range(path)

    def read_range(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes of a file from `start` to before `end`, fewer where it ends; raises what `read` raises."""
        try:
            return self.fetch(path, start, end)
        except FileNotFoundError:
            raise self._gone(path) from None

    def fetch(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes as `read_range` does. Raises FileNotFoundError, and what `attempt` raises."""
        place = f"{self.prefix}/{path}"
        return self.attempt(lambda: bytes(self.file_system.cat_file(place, start=start, end=end)), path)

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
        listing = self.attempt(lambda: file_system.find(f"{self.prefix}/{below}".rstrip("/"), detail=True))
        start = len(self.prefix) + 1
        return (
            (name[start:], int(info.get("size") or 0), etag_of(info), modified_of(info))
            for name, info in listing.items()
        )

    def _gone(self, path: str) -> InputError:
        return InputError(
            f"{self.uri}/{path} was listed and no longer exists; expected that files stay until they are applied. "
            "Stop what removes them (file-expiration-days, lifecycle rules), and restore it.",
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
                if isinstance(error, NotADirectoryError):
                    raise BucketMissing(
                        f"{where} is no directory: it is a file, or lies below one. Name a directory.", file=where
                    ) from None
                if isinstance(error, PermissionError) or _is_refusal(error):
                    raise BucketMissing(
                        f"access to {where} is denied: {self.redacted(error)}. Give credentials in storage_options "
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
        elif isinstance(value, str) and len(value) > 3 and SECRET_NAME.search(name):
            yield value


def _is_refusal(error: Exception) -> bool:
    # Cloud drivers have no common class for a refusal: it is recognised by HTTP status and class names.
    status = next((code for name in ("status_code", "status", "code") if (code := getattr(error, name, None))), None)
    named = type(error).__name__ in (
        "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError",
        "DefaultCredentialsError", "ClientAuthenticationError", "AzureSigningError", "RefreshError",
    )  # fmt: skip
    response = getattr(error.__cause__, "response", None) or {}
    ended = response.get("Error", {}).get("Code") in ("InvalidToken", "TokenRefreshRequired", "ExpiredTokenException")
    return named or ended or status in (401, 403) or getattr(error, "operation_name", "") == "AssumeRole"


def _is_passing(error: Exception) -> bool:
    family = type(error).__module__.partition(".")[0]
    clouds = ("aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "requests", "s3fs", "urllib3")
    return isinstance(error, (OSError, TimeoutError, EOFError)) or family in clouds


# --- names ------------------------------------------------------------------------------------------------------------


def directory_entries(prefix: str, below: str = "", without: Collection[str] = ()) -> Iterator[Entry]:
    """Yield every file of a local directory that is in its directory `below` and in none of `without`."""
    # fsspec's own walk asks for every file's status twice.
    pending = [(f"{prefix}/{below}", f"{below}/")] if below else [(prefix, "")]
    while pending:
        directory, above = pending.pop()
        try:
            children = list(os.scandir(directory))
        except FileNotFoundError:
            continue
        for child in children:
            if child.is_dir():
                if f"{above}{child.name}" not in without:
                    pending.append((child.path, f"{above}{child.name}/"))
                continue
            try:
                status = child.stat()
            except FileNotFoundError:
                continue
            etag = f"{status.st_mtime_ns}-{status.st_size}"
            yield f"{above}{child.name}", status.st_size, etag, status.st_mtime


class NotPassedOver(Exception):
    """The server listed again what was to be passed over: it can only list everything."""


class objects:  # noqa: N801  # reads as the function that it is: `yield from objects(…)`
    """Iterates over the objects of a bucket in S3 below `root`, page by page: a million at once take gigabytes.

    `attempt` repeats a request that fails in passing; `without` are directories with how many names each has.
    """

    def __init__(
        self, file_system: Any, prefix: str, attempt: _Attempt[Any], below: str = "", without: Mapping[str, int] = {}
    ) -> None:
        bucket, key, _ = file_system.split_path(prefix)
        self._root = f"{key}/" if key else ""
        self._below = f"{self._root}{below}/" if below else self._root
        self._asked = {**file_system.req_kw, "Bucket": bucket}
        self._call, self._attempt = file_system.call_s3, attempt
        # Express buckets list names in no order, and cannot go on behind one.
        self._without = {} if bucket.endswith("--x-s3") else _worth(without)
        self._asked_for: set[str] = set()
        self._last: dict[str, str] = {}  # of a directory that is passed over, the last one in the same row

    def __iter__(self) -> Iterator[Entry]:
        behind: str | None = ""
        passed: set[str] = set()
        while behind is not None:
            passed.add(behind)
            behind = yield from self._pages(behind)
            if behind in passed:
                raise NotPassedOver(behind)

    def _pages(self, behind: str) -> Generator[Entry, None, str | None]:
        """Yield the entries after a name; return the name after which to go on, None at the end."""
        page: Mapping[str, Any] = {"IsTruncated": True}
        going_on: dict[str, Any] = {"StartAfter": behind} if behind else {}
        while page.get("IsTruncated"):
            page = self._page(Prefix=self._below, **going_on)
            for info in page.get("Contents", ()):
                name = info["Key"][len(self._root) :]
                if self._without and (last := self._passed_over(name)):
                    return f"{self._root}{last}/~"  # behind the names of data files and `meta`
                if name and not name.endswith("/"):  # else what stands for a directory
                    yield name, int(info["Size"]), etag_of(info), modified_of(info)
            going_on = {"ContinuationToken": page.get("NextContinuationToken")}
        return None

    def _page(self, **parameters: Any) -> Mapping[str, Any]:
        page: Mapping[str, Any] = self._attempt(lambda: self._call("list_objects_v2", **self._asked, **parameters))
        return page

    def _passed_over(self, name: str) -> str:
        """Return the last directory of a row that begins with the one of this name and is passed over, "" for none."""
        directory = name.rpartition("/")[0]
        if directory not in self._without:
            directory = directory.removesuffix("/meta")
        if directory not in self._without or name > f"{directory}/~":
            return ""
        parent = directory.rpartition("/")[0]
        if parent not in self._asked_for:
            self._asked_for.add(parent)
            self._find_rows(parent)
        return self._last.get(directory, "")

    def _find_rows(self, parent: str) -> None:
        """Find the directories of `parent` that are passed over together."""
        there = self._names_in(f"{self._root}{parent}/")
        names = [name[len(self._root) :].rstrip("/") for name in there]
        # Some servers list a directory's names together, others by the bytes of all: only where both is one order, all
        # names between two directories are in a directory between them.
        in_order = [name.rstrip("/") for name in sorted(there)] == sorted(name.rstrip("/") for name in there)
        last, count = "", 0
        for name in reversed(names):
            if name not in self._without or not in_order:
                last, count = "", 0
                continue
            last, count = last or name, count + self._without[name]
            if count >= WORTH_NAMES:
                self._last[name] = last

    def _names_in(self, directory: str) -> list[str]:
        """Return the names in a directory and the directories in it, these with a slash at the end."""
        names: list[str] = []
        page: Mapping[str, Any] = {"IsTruncated": True}
        going_on: dict[str, Any] = {}
        while page.get("IsTruncated"):
            page = self._page(Prefix=directory, Delimiter="/", **going_on)
            names += [prefix["Prefix"] for prefix in page.get("CommonPrefixes", ())]
            names += [entry["Key"] for entry in page.get("Contents", ())]
            going_on = {"ContinuationToken": page.get("NextContinuationToken")}
        return sorted(names)


def _worth(without: Mapping[str, int]) -> dict[str, int]:
    """Leave out the directories that have too few names together with those beside them."""
    counts: Counter[str] = Counter()
    for directory, count in without.items():
        counts[directory.rpartition("/")[0]] += count
    return {
        directory: count for directory, count in without.items() if counts[directory.rpartition("/")[0]] >= WORTH_NAMES
    }


def etag_of(info: Mapping[str, Any]) -> str:
    """Return the version of an object's content: the tag in fsspec's `info`, or its time and size."""
    tag = info.get("ETag") or info.get("etag") or info.get("md5Hash") or info.get("content_md5")
    if tag:
        return str(tag).strip('"')
    return f"{_moment(info)}-{info.get('size')}"


def modified_of(info: Mapping[str, Any]) -> float:
    """Return the time at which an object was written, in seconds since 1970, from fsspec's `info`; 0 for none."""
    moment = _moment(info)
    if isinstance(moment, str):
        try:
            moment = parse_iso_time(moment)
        except ValueError:
            return 0.0
    if isinstance(moment, dt.datetime):
        return (moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)).timestamp()
    return float(moment)


def _moment(info: Mapping[str, Any]) -> Any:
    """The time of the last write in a driver's `info`: seconds, a datetime or a text, "" if there is none."""
    names = ("mtime", "LastModified", "last_modified", "updated", "created")
    return next((info[name] for name in names if name in info), "")
