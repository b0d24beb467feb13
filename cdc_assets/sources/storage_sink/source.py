"""The changefeed's files: metadata, schema files, listing. Nothing is ever written below the prefix.

    StorageSink.listing() = metadata ─▶ one recursive listing ─▶ paths ─▶ schema files (cached) ─▶ Listing
    Opener.read(path)    = the bytes of one file; a small value that Spark executors get

`metadata` is read before listing: what is listed afterwards holds everything at or below its checkpoint.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from cdc_assets.errors import BadSettings, BucketMissing, MalformedSchemaFile, MetadataMissing, StorageUnavailable
from cdc_assets.formats import UniformReader, extension
from cdc_assets.io.storage import Entry, NotPassedOver, Opener
from cdc_assets.io.storage_uri import storage
from cdc_assets.model.splits import DataFile, IndexFile, Listing, Place, SchemaFile, SettledFiles
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import first_of
from cdc_assets.sources import FeedInputs, KnownFiles, renewed
from cdc_assets.sources.storage_sink.options import SinkOptions, sink_options
from cdc_assets.sources.storage_sink.paths import (
    parse_data_name,
    parse_data_path,
    parse_index_path,
    parse_schema_path,
    split_directory,
)
from cdc_assets.sources.storage_sink.schema_file import checksum_matches, parse_schema_file
from cdc_assets.sources.unchanged import SettledTally

_INDEXES_AT_ONCE = 1000
"""Most index files that one look reads; the next looks read the rest."""
_DATA_EXTENSIONS = (".csv", ".json", ".craft", ".canal", ".unknown")  # TiCDC's GetFileExtension


class StorageSink:
    """Reads one changefeed's bucket. Parsed schema files are kept, so that a second listing only opens new ones.

    `storage` are fsspec's options in clear text. The first contents of a schema file count when it loses its DDL.
    """

    def __init__(self, options: SinkOptions, storage: Mapping[str, Any]) -> None:
        protocol, prefix = options.location
        self.options = options
        self._wire = options.wire
        self._extension = extension(self._wire)
        self.opener = Opener(protocol, prefix.rstrip("/"), options.uri.rstrip("/"), storage)
        self._recalled: KnownFiles = {}
        self._fresh: dict[tuple[str, int, str], bytes] = {}
        self._parsed: dict[tuple[str, int, str], tuple[SchemaFile, bool] | MalformedSchemaFile] = {}

    @property
    def reader(self) -> UniformReader:
        """Reads data files as the options say."""
        return UniformReader(self._wire, self.opener.read)

    def fence(self) -> Tso:
        """Return the checkpoint-ts of `metadata`, through which every change is in the files.

        Read it before listing. Raises MetadataMissing when the changefeed has not reached its first checkpoint,
        BucketMissing when the sink URI names nothing, StorageUnavailable when the storage does not answer.
        """
        opener = self.opener
        for pause in (*opener.pauses[:2], None):
            try:
                data = opener.fetch("metadata")
            except FileNotFoundError:
                raise self._without_metadata() from None
            checkpoint = _checkpoint(data)
            if checkpoint is not None:
                return checkpoint
            if pause is not None:
                # Some file systems show the file while it is written anew.
                time.sleep(pause)
        raise MetadataMissing(
            f'{opener.uri}/metadata holds {data[:60]!r}; expected {{"checkpoint-ts": N}} with a TSO N below 2^63. '
            "Check that the sink URI names the changefeed's own prefix.",
            file="metadata",
        )

    def listing(self, contents: KnownFiles | None = None, settled: Sequence[SettledFiles] = ()) -> Listing:
        """Return all that lies below the prefix, as of the checkpoint that is read first.

        `contents` are those of schema and index files that an earlier process has read. Files that are `settled`, and
        are what they were, are left out; those to be passed over are not looked at.

        Costs one small read, one recursive listing, and one read for every schema or index file not seen before.
        Files that should be readable and are not are in `problems`; names that are no changefeed's are counted in
        `ignored`.
        Raises what `fence` raises, BucketMissing when names are listed that are not those below the prefix, and
        BadSettings when all data files are of another protocol.
        """
        checkpoint = self.fence()
        self._recalled = renewed({**(contents or {}), **self._recalled}, self._fresh)
        self._fresh = {}
        sorted_out, unchanged, reopened = self._sorted_out(settled, checkpoint)
        if not sorted_out.whole:  # a local one may have been replaced that very moment
            sorted_out, unchanged, reopened = self._sorted_out(settled, checkpoint)
        if not sorted_out.whole:
            uri = self.opener.uri
            raise BucketMissing(
                f"{uri}/metadata can be read, and is not among the names that the storage lists below {uri}: the "
                "others may be missing, too, so nothing is applied. Some servers store a name under another one; let "
                "the changefeed write to a prefix of letters, digits, '-', '_' and single slashes.",
                file=uri,
            )
        problems: dict[str, str] = {}
        schema_files, warnings = self._schema_files(sorted_out.schema_entries, problems)
        schema_files = _once(schema_files)
        data_files = tuple(_data_files(sorted_out.data_entries, self.options, schema_files, problems))
        problems |= sorted_out.foreign_files(self.options.protocol, self.opener.uri, bool(data_files or settled))
        lost, unwritten = self._missing_last_files(sorted_out, unchanged, schema_files)
        return Listing(
            checkpoint=checkpoint,
            schema_files=tuple(schema_files),
            data_files=data_files,
            index_files=tuple(sorted_out.index_files),
            ignored=dict(sorted_out.ignored),
            problems=problems,
            warnings=(*warnings, *_twins(schema_files)),
            published=sorted_out.published,
            fresh=self._fresh,
            lost=(*lost, *sorted_out.others),
            unwritten=unwritten,
            settled=tuple(unchanged),
            reopened=tuple(reopened),
            mixed=frozenset(sorted_out.mixed),
        )

    def _sorted_out(
        self, settled: Sequence[SettledFiles], checkpoint: Tso
    ) -> tuple[_NamesByKind, Sequence[SettledFiles], Sequence[SettledFiles]]:
        """List names; return them, and which settled files are what they were and which are not."""
        passed_over = {
            settled_files.directory: settled_files.files for settled_files in settled if settled_files.passed_over
        }
        try:
            names = _NamesByKind(self.opener.entries("", passed_over), self._extension, settled)
        except NotPassedOver:
            names = _NamesByKind(self.opener.entries(), self._extension, settled)
        unchanged, reopened = names.unchanged.verdict(checkpoint)
        for settled_files in reopened:
            names.take_again(settled_files, self.opener.entries(settled_files.directory))
        return names, unchanged, reopened

    def _missing_last_files(
        self, names: _NamesByKind, settled: Sequence[SettledFiles], schema_files: Iterable[SchemaFile]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the files that indexes name and that are missing: those that are lost, those that may be to come.

        Writers since v8.5.5 write the index after the file, older ones before it (ticdc#3785). An index is read once
        for each of its contents, by whichever process; the contents are kept with those of schema files.
        """
        fresh = [
            index_file
            for index_file in names.index_files
            if (index_file.path, index_file.size, index_file.etag) not in self._recalled
        ]
        fresh = fresh[:_INDEXES_AT_ONCE]
        workers = 1 if self.opener.protocol in ("file", "memory") else 16
        with ThreadPoolExecutor(workers) as pool:
            contents = dict(zip(fresh, pool.map(self._index_contents, fresh), strict=True))
        seen = {settled_files.directory: settled_files for settled_files in settled}
        numbered_after_writing = _writes_index_last(schema_files)
        lost, unwritten = [], []
        for index in names.index_files:
            key = (index.path, index.size, index.etag)
            data = contents[index] if index in contents else self._recalled.get(key)
            if data is None:
                continue
            name = data.decode(errors="replace").strip()
            path, file = f"{index.directory}/{name}", parse_data_name(name)
            here = names.data_entries.get(index.directory, ())
            is_settled = index.directory in seen and seen[index.directory].has(path)
            if file is None or file[2] != self._extension or is_settled or any(path == entry[0] for entry in here):
                is_missing = False
            else:  # names were listed before the index was read
                place = f"{self.opener.prefix}/{path}"
                is_missing = not self._may_exist(place)
            if is_missing and numbered_after_writing(index):
                if index in contents:
                    lost.append(path)
            elif is_missing:
                unwritten.append(path)
            if index in contents:
                self._fresh[key] = data
        return tuple(lost), tuple(unwritten)

    def _index_contents(self, index: IndexFile) -> bytes | None:
        """Return the contents of an index, None where it cannot be read; the next look tries again."""
        try:
            return self.opener.fetch(index.path)
        except (OSError, BucketMissing, StorageUnavailable):
            return None

    def _may_exist(self, place: str) -> bool:
        try:
            return self.opener.attempt(lambda: bool(self.opener.file_system.exists(place)))
        except (OSError, BucketMissing, StorageUnavailable):
            return True

    def read(self, file: DataFile) -> bytes:
        """Return the bytes of a data file. Raises what Opener.read raises."""
        return self.opener.read(file.path)

    def head(self, path: str, size: int) -> bytes:
        """Return the first bytes of a data file; raises FileNotFoundError, and what Opener.attempt raises."""
        return self.opener.fetch(path, 0, size)

    def place(self, path: str, listing: Listing | None = None) -> Place | None:
        """Return the place that the path of a schema or data file gives, None for any other name.

        With a listing, only a reading that has a schema file there counts.
        """
        schema = parse_schema_path(path)
        if schema is not None:
            return Place(schema.root, schema.version)
        schema_places = None if listing is None else {(file.root, file.version) for file in listing.schema_files}
        data = parse_data_path(path, self.options, schema_places)
        return None if data is None else Place(data.root, data.version, data.directory, data.dispatcher, data.number)

    def _without_metadata(self) -> Exception:
        opener = self.opener
        if not opener.is_there():
            return BucketMissing(
                f"{opener.uri} does not exist; expected the prefix that TiCDC writes to. "
                "Give the sink URI exactly as TiCDC has it.",
                file=opener.uri,
            )
        return MetadataMissing(
            f"{opener.uri} has no `metadata`; expected it since the changefeed's first checkpoint. "
            "Wait for that, or check that the sink URI names the changefeed's own prefix.",
            file="metadata",
        )

    def _schema_files(
        self, entries: list[tuple[str, int, str]], problems: dict[str, str]
    ) -> tuple[list[SchemaFile], list[str]]:
        """Return the parsed schema files by path, and warnings about checksums."""
        fresh = [entry for entry in entries if entry not in self._parsed]
        if fresh:
            workers = 1 if self.opener.protocol in ("file", "memory") else 16
            recalled = {path: data for (path, _, _), data in self._recalled.items()}
            with ThreadPoolExecutor(workers) as pool:
                read = pool.map(self._schema_file, fresh, (recalled.get(path) for path, _, _ in fresh))
                self._parsed = {
                    **{entry: self._parsed[entry] for entry in entries if entry in self._parsed},
                    **{entry: result for entry, result in zip(fresh, read, strict=True) if result is not None},
                }
        files, changed = [], []
        for entry in entries:
            result = self._parsed.get(entry)
            if result is None:
                problems[entry[0]] = f"{entry[0]} was listed and is gone; expected that schema files stay. List again."
            elif isinstance(result, MalformedSchemaFile):
                problems[entry[0]] = result.message
            else:
                files.append(result[0])
                if not result[1]:
                    changed.append(entry[0])
        several = "the checksum in its name is not that of its contents; it is used as it is"
        if len(changed) > 1:
            several = "the checksums in their names are not those of their contents; they are used as they are"
        return files, [f"{first_of(changed, 'schema file', 3)}: {several}."] if changed else []

    def _schema_file(
        self, entry: tuple[str, int, str], first_read: bytes | None
    ) -> tuple[SchemaFile, bool] | MalformedSchemaFile | None:
        path = entry[0]
        data = self._recalled.get(entry)
        try:
            if data is not None:
                return parse_schema_file(path, data), checksum_matches(path, data)
            data = self.opener.fetch(path)
            file, whole = parse_schema_file(path, data), len(data) == entry[1]
            if first_read is not None and not file.query:
                before = parse_schema_file(path, first_read)
                if before.columns == file.columns:
                    file, data = before, first_read  # deleted, and written anew without its DDL
            if whole:
                self._fresh[entry] = data
            return file, checksum_matches(path, data)
        except FileNotFoundError:
            return None
        except MalformedSchemaFile as error:
            return error


def parse(sink_uri: str, changefeed_config: Path | None, tz: str, inputs: FeedInputs) -> SinkOptions:
    """Return the options of a sink URI and a changefeed TOML; raises BadSettings."""
    if inputs.names:
        raise BadSettings(
            f"the setting {inputs.names[0]} is for topics, and the sink URI is of a storage. Remove it, or give the "
            "sink URI kafka://… that the changefeed has."
        )
    return sink_options(sink_uri, changefeed_config, tz)


def storage_options(sink_uri: str, inputs: FeedInputs) -> dict[str, Any]:
    """Return fsspec's options of a bucket, in clear text."""
    return storage(sink_uri)


def connect(options: SinkOptions, access: Mapping[str, Any]) -> StorageSink:
    """Open a changefeed's bucket by fsspec's options."""
    return StorageSink(options, access)


# --- from names to files ----------------------------------------------------------------------------------------------


class _NamesByKind:
    """The names below a prefix by kind, before schema files say which directory belongs to which table."""

    def __init__(self, entries: Iterable[Entry], extension: str, settled: Iterable[SettledFiles] = ()) -> None:
        self.schema_entries: list[tuple[str, int, str]] = []
        self.data_entries: dict[str, list[tuple[str, int, str, str, int, float]]] = {}
        self.published, self.whole = 0.0, False  # `metadata` is among the names
        self.index_files: list[IndexFile] = []
        self.ignored: Counter[str] = Counter()
        self.extension = extension
        self.others: list[str] = []  # data files of other protocols
        self.mixed: set[str] = set()
        self.unchanged = SettledTally(settled)
        for path, size, etag, modified in entries:
            reason = self._place(path, size, etag, modified)
            if reason:
                self.ignored[reason] += 1
                self.mixed.add(path.rpartition("/")[0].removesuffix("/meta"))
        self.schema_entries.sort()
        self.index_files.sort(key=lambda index: index.path)

    def _place(self, path: str, size: int, etag: str, modified: float) -> str:
        """Keep what belongs to a changefeed; return the reason for ignoring the rest."""
        directory, _, name = path.rpartition("/")
        file = _data_name(name, size) if directory else None
        if file is not None:  # nearly all of them
            if not self.unchanged.takes(directory, path, size, etag):
                self._keep(path, file, size, etag, modified)
            return ""
        if name.endswith(".tmp") or ".tmp." in name:
            return "unfinished upload (.tmp)"
        if path == "metadata":
            self.published, self.whole = modified, True
            return ""
        if index := parse_index_path(path):
            self.index_files.append(replace(index, size=size, etag=etag))
            return ""
        if not size:
            return "empty object"
        if parse_schema_path(path):
            self.schema_entries.append((path, size, etag))
            return ""
        return "foreign name"

    def take_again(self, settled: SettledFiles, entries: Iterable[Entry]) -> None:
        """Keep the data files of a directory that are no longer what they were when they were settled."""
        for path, size, etag, modified in entries:
            directory, _, name = path.rpartition("/")
            file = _data_name(name, size) if directory == settled.directory and settled.has(path) else None
            if file is not None:
                self._keep(path, file, size, etag, modified)

    def _keep(self, path: str, file: tuple[str, int, str], size: int, etag: str, modified: float) -> None:
        """Keep a data file, which has this (dispatcher, number, extension), or the path of one of another protocol."""
        directory, (dispatcher, number, extension) = path.rpartition("/")[0], file
        if extension == self.extension:
            self.data_entries.setdefault(directory, []).append((path, size, etag, dispatcher, number, modified))
        else:
            self.others.append(path)
            self.mixed.add(directory)

    def foreign_files(self, protocol: str, uri: str, any_data: bool) -> dict[str, str]:
        """Return problems by path: data files of other protocols. Raises BadSettings when there are no others."""
        if self.others and not any_data:
            counts = Counter(path.rpartition(".")[2] for path in self.others)
            names = ", ".join(f"{count} .{extension}" for extension, count in sorted(counts.items()))
            raise BadSettings(
                f"{uri} holds data files that protocol {protocol} does not write: {names}; expected {self.extension}. "
                "Give the sink URI and changefeed TOML exactly as TiCDC has them."
            )
        problems: dict[str, str] = {}
        for path in self.others:
            reason = (
                f"{path} is a data file that protocol {protocol} does not write; expected {self.extension}. If the "
                "protocol of the changefeed was changed, apply with the former one what it wrote, move these files "
                "away, and set the new one. A file that is moved away before it is applied holds its table until it is "
                "back, or until cdc-assets files --forget says that its rows do not matter."
            )
            problems[path] = reason
        return problems


def _data_name(name: str, size: int) -> tuple[str, int, str] | None:
    """Return (dispatcher, number, extension) of a data file of any protocol, None for other and unfinished files."""
    file = parse_data_name(name)
    return file if file is not None and file[2] in _DATA_EXTENSIONS and size and ".tmp." not in name else None


def _writes_index_last(schema_files: Iterable[SchemaFile]) -> Callable[[IndexFile], bool]:
    """Return whether the writer of an index wrote the file that it names before: those of the new architecture do.

    Only they write members of ENUM and SET into schema files (all are theirs from that version on), name files by
    dispatchers, and directories by table ids. v8.5.4 has the members and writes the index first: of it, a file that is
    still to come is missing until it is there.
    """
    since = min((f.version for f in schema_files if any(c.elems is not None for c in f.columns)), default=None)

    def answer(index: IndexFile) -> bool:
        where = split_directory(index.directory)
        by_version = where is not None and since is not None and where.version >= since
        return bool(index.dispatcher) or by_version or (where is not None and "/" not in where.root)

    return answer


def _data_files(
    entries: Mapping[str, list[tuple[str, int, str, str, int, float]]],
    options: SinkOptions,
    schema_files: Iterable[SchemaFile],
    problems: dict[str, str],
) -> Iterator[DataFile]:
    """Yield data files by path, each with the schema file that decodes it; those without go to the problems."""
    schema_places = {(file.root, file.version) for file in schema_files if file.table.table}
    broken = {
        (schema.root, schema.version): path for path in problems if (schema := parse_schema_path(path)) is not None
    }
    for directory in sorted(entries):
        where = split_directory(directory, options, schema_places)
        if where is None:
            problems.update(
                (path, _no_schema_file(path, directory, options, broken)) for path, *_ in entries[directory]
            )
            continue
        for path, size, etag, dispatcher, number, modified in sorted(entries[directory]):
            yield DataFile(
                path=path,
                root=where.root,
                version=where.version,
                directory=directory,
                number=number,
                size=size,
                etag=etag,
                partition=where.partition,
                date=where.date,
                dispatcher=dispatcher,
                modified=modified,
            )


def _no_schema_file(path: str, directory: str, options: SinkOptions, broken: Mapping[tuple[str, Tso], str]) -> str:
    unread = split_directory(directory, options, broken)
    if unread is not None:
        schema_path = broken[unread.root, unread.version]
        return (
            f"{path} cannot be decoded: its schema file {schema_path} cannot be read. Restore that file. "
            f"If it is lost, write it anew: {_BY_HAND}."
        )
    guess = split_directory(directory, options)
    if guess is None:
        return (
            f"{path} looks like a data file, but no version is in its path; expected "
            "{schema}/{table}/{version}/…/CDC{number}. Move it away, or restore the directory that it came from."
        )
    if not guess.version:
        return f"{path} lies in a directory of version 0, of which no schema file exists."
    return (
        f"{path} has no schema file of its version; expected {guess.root}/meta/schema_{guess.version}_*.json. "
        "Restore that file, or check that the sink URI names the changefeed's own prefix. If it is lost, write "
        f"{guess.root}/meta/schema_{guess.version}_0000000000.json: {_BY_HAND}."
    )


_BY_HAND = (
    "a copy of another schema file of the table with the TableVersion, TableColumns, TableColumnsTotal and Query (the "
    "text of the DDL) of this version, and Type 0"
)


def _once(schema_files: Sequence[SchemaFile]) -> list[SchemaFile]:
    """Leave out the second of two files that say the same of one version, or the one that lost its DDL.

    The writer looks for a schema file by its checksum, and writes it anew when it does not find it.
    """
    first: dict[tuple[object, ...], SchemaFile] = {}
    for file in sorted(schema_files, key=lambda file: not file.query):
        identity = (file.root, file.version, file.table, repr(file.columns))  # a default may be any JSON
        if (identity, file.query) not in first and (file.query or (identity, "any") not in first):
            first[identity, file.query] = first[identity, "any"] = file
    first_paths = {file.path for file in first.values()}
    return [file for file in schema_files if file.path in first_paths]


def _twins(schema_files: Iterable[SchemaFile]) -> Iterator[str]:
    seen: dict[tuple[str, Tso, object], SchemaFile] = {}
    for file in schema_files:
        other = seen.setdefault((file.root, file.version, file.table), file)
        if other.checksum != file.checksum and other.columns != file.columns:
            yield (
                f"{other.path} and {file.path} describe one version of {file.table} with different columns; "
                "expected one schema file a version. Remove the one that TiCDC did not write."
            )


def _checkpoint(data: bytes) -> Tso | None:
    try:
        checkpoint = json.loads(data)["checkpoint-ts"]
    except (ValueError, KeyError, TypeError):
        return None
    sound = isinstance(checkpoint, int) and not isinstance(checkpoint, bool) and 0 <= checkpoint < 1 << 63
    return checkpoint if sound else None
