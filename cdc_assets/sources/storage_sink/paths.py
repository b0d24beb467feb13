"""The path grammar of a storage sink, both ways: names below the prefix <-> values. Pure.

    {root}/{version}[/{partition}][/{date}]/CDC[_{dispatcher}_]{number}{ext}      rows
    {root}/{version}[/{partition}][/{date}]/meta/CDC[_{dispatcher}].index         newest file of that directory
    {root}/{version}[/{partition}][/{date}]/CDC.index                             the same, v6.5.2 and v7.0.0
    {root}/meta/schema_{version}_{checksum}.json                                  schema and DDL
    {root}/{version}/schema.json                                                  the same, v6.5.0 to v7.0.0

`root` is `{schema}/{table}`, `{schema}` for a database, or the table's id. Names are not escaped and may contain "/",
dots, or nothing but digits, so a path says its root and version only together with the schema files that exist.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from cdc_assets.model.splits import IndexFile
from cdc_assets.model.tso import Tso
from cdc_assets.sources.storage_sink.options import SinkOptions

_DATA_NAME = re.compile(r"CDC(?:_(?P<dispatcher>[^_/]+)_)?(?P<number>[0-9]+)(?P<extension>\.[a-z]+)", re.ASCII)
_INDEX_NAME = re.compile(r"CDC(?:_(?P<dispatcher>[^_/]+))?\.index")
_SCHEMA_NAME = re.compile(r"schema_(?P<version>[0-9]+)_(?P<checksum>[0-9]{10})\.json", re.ASCII)
_DATES = {
    "year": re.compile(r"[0-9]{4}", re.ASCII),
    "month": re.compile(r"[0-9]{4}-[0-9]{2}", re.ASCII),
    "day": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII),
}
_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_DEFAULTS = SinkOptions()


@dataclass(frozen=True, slots=True)
class DataPath:
    """Parts of a data file's path. `partition`, `date` and `dispatcher` are "" where it has no such level."""

    root: str
    version: Tso
    number: int = 0
    extension: str = ""
    partition: str = ""
    date: str = ""
    dispatcher: str = ""

    @property
    def directory(self) -> str:
        """The directory of the file, below the prefix."""
        return "/".join(part for part in (self.root, str(self.version), self.partition, self.date) if part)


@dataclass(frozen=True, slots=True)
class SchemaPath:
    """Parts of a schema file's name. `checksum` is None for the `schema.json` of old versions."""

    root: str
    version: Tso
    checksum: int | None = None


def format_data_path(path: DataPath, width: int = 20) -> str:
    """Return the path below the prefix; `width` is TiCDC's `file-index-digit`. Inverse of parse_data_path."""
    dispatcher = f"_{path.dispatcher}_" if path.dispatcher else ""
    return f"{path.directory}/CDC{dispatcher}{path.number:0{width}d}{path.extension}"


def parse_data_path(
    path: str, options: SinkOptions = _DEFAULTS, schema_places: Collection[tuple[str, Tso]] | None = None
) -> DataPath | None:
    """Return the parts of a data file's path, None for any other name.

    `schema_places` are the (root, version) pairs that have a schema file; a reading that is not among them is none.
    Without `schema_places` the reading that fits the options best is returned. Date and partition levels may differ
    from what the options say, because options change in the middle of a changefeed's life.
    """
    directory, _, name = path.rpartition("/")
    file = parse_data_name(name)
    where = split_directory(directory, options, schema_places) if file else None
    if file is None or where is None:
        return None
    dispatcher, number, extension = file
    return replace(where, number=number, extension=extension, dispatcher=dispatcher)


def parse_data_name(name: str) -> tuple[str, int, str] | None:
    """Return (dispatcher, number, extension) of a data file's base name, None for any other name.

    The width of the number says nothing: it can change, and numbers beyond it are longer.
    """
    match = _DATA_NAME.fullmatch(name)
    return (match["dispatcher"] or "", int(match["number"]), match["extension"]) if match else None


def split_directory(
    directory: str, options: SinkOptions = _DEFAULTS, schema_places: Collection[tuple[str, Tso]] | None = None
) -> DataPath | None:
    """Return root, version, partition and date of a data directory, by the rules of parse_data_path."""
    readings = [
        reading
        for reading in _readings(directory)
        if schema_places is None or (reading.root, reading.version) in schema_places
    ]
    return min(readings, key=lambda reading: _misfit(reading, options), default=None)


def _readings(directory: str) -> Iterator[DataPath]:
    parts = directory.split("/")
    for levels in range(min(3, len(parts) - 1)):
        at = len(parts) - 1 - levels
        if not _DIGITS.fullmatch(parts[at]) or (parts[at] != "0" and parts[at].startswith("0")):
            continue
        root, version, rest = "/".join(parts[:at]), int(parts[at]), parts[at + 1 :]
        if not all(parts[:at]):
            continue
        if not rest:
            yield DataPath(root, version)
        if rest and _is_date(rest[-1]) and all(map(_DIGITS.fullmatch, rest[:-1])):
            yield DataPath(root, version, partition="".join(rest[:-1]), date=rest[-1])
        if len(rest) == 1 and _DIGITS.fullmatch(rest[0]):
            yield DataPath(root, version, partition=rest[0])


def _is_date(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in _DATES.values())


def _misfit(reading: DataPath, options: SinkOptions) -> tuple[int, bool, int]:
    """Order readings: fewest contradictions to the options; a year rather than a partition's id; the later version."""
    pattern = _DATES.get(options.date_separator)
    date_fits = bool(pattern.fullmatch(reading.date)) if pattern else not reading.date
    by_id = _DIGITS.fullmatch(reading.root) is not None
    contradictions = (
        (not date_fits)
        + (bool(reading.partition) and not options.enable_partition_separator)
        + (by_id != options.use_table_id_as_path)
    )
    # The storage sink exists since 2022.
    odd_year = bool(re.fullmatch("[0-9]{4}", reading.date)) and not "2022" <= reading.date < "2100"
    odd = odd_year or (reading.date == "" and re.fullmatch("20[2-9][0-9]", reading.partition) is not None)
    return contradictions, odd, -reading.version


def format_schema_path(path: SchemaPath) -> str:
    """Return the path of a schema file below the prefix. Inverse of parse_schema_path."""
    if path.checksum is None:
        return f"{path.root}/{path.version}/schema.json"
    return f"{path.root}/meta/schema_{path.version}_{path.checksum:010d}.json"


def parse_schema_path(path: str) -> SchemaPath | None:
    """Return the parts of a schema file's path, None for any other name."""
    directory, _, name = path.rpartition("/")
    if not name.startswith("schema"):  # nearly all names are of data files
        return None
    root, _, last = directory.rpartition("/")
    if not root or "" in root.split("/"):
        return None
    if name == "schema.json" and _DIGITS.fullmatch(last):
        return SchemaPath(root, int(last))
    match = _SCHEMA_NAME.fullmatch(name)
    return SchemaPath(root, int(match["version"]), int(match["checksum"])) if match and last == "meta" else None


def format_index_path(index: IndexFile) -> str:
    """Return the path below the prefix at which current versions put a directory's index."""
    return f"{index.directory}/meta/CDC{'_' if index.dispatcher else ''}{index.dispatcher}.index"


def parse_index_path(path: str) -> IndexFile | None:
    """Return the index file of that path with the data directory that it is about, None for any other name."""
    directory, _, name = path.rpartition("/")
    match = _INDEX_NAME.fullmatch(name) if name.endswith(".index") else None
    if match is None:
        return None
    data_directory = directory.removesuffix("/meta")
    return IndexFile(path, data_directory, match["dispatcher"] or "") if split_directory(data_directory) else None
