"""How the data files of a dump are written, and what of them one task reads."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_assets.model.schema import TableId

__all__ = ["DumpFile", "DumpOptions", "DumpSplit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """What decides how rows are written: Dumpling's options by their names, with the defaults of its command line.

    `delimiter` is what Dumpling calls the quote. `timezone` is the zone of the sessions that read the rows, in which
    TIMESTAMP is printed. Line ends need no option: LF and CRLF are told apart.
    """

    separator: str = ","
    delimiter: str = '"'
    null_value: str = "\\N"
    header: bool = True
    escape_backslash: bool = True
    output_dialect: str = "default"
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A data file by its path below the dump's URI. `number` is its chunk number as the name has it, "" for none.

    `kind` is sql, csv or parquet; `compression` gzip, snappy, zstd or "", of the whole file. Sizes are bytes.
    """

    path: str
    table: TableId
    kind: str
    compression: str
    number: str
    size: int
    etag: str = ""


@dataclass(frozen=True, slots=True)
class DumpSplit:
    """The rows of a file that begin in its bytes [start, end); the whole file where nothing can be cut."""

    file: DumpFile
    start: int
    end: int
