"""A dump: its tables as of one TSO, the format of their files, and the part of them that one task reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.tso import Tso

DUMP_ZONE = "initial.tz"
"""The setting on which TIMESTAMP values of a dump depend, but for those that its files have as instants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """Options that decide how rows are written: Dumpling's, by their names, with the defaults of its command line.

    `delimiter` is what Dumpling calls the quote. `timezone` is the zone of the sessions that read the rows, in which
    TIMESTAMP is printed. Line ends need no option: LF and CRLF are both recognised.
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

    Rows that are read from a server have a name and an estimated size too. `query` selects those of their table,
    `condition` these, `order` says in which order; they contain key values, so they are shown nowhere. `ordered_by` is
    the column that comes first in the order, "" for none.
    """

    path: str
    table: TableId
    kind: str
    compression: str
    number: str
    size: int
    etag: str = ""
    query: str = field(default="", repr=False)
    condition: str = field(default="", repr=False)
    order: str = field(default="", repr=False)
    ordered_by: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A condition on a column's value: `operator` is =, <, <=, > or >=, and `value` a number or a time as printed.

    With %, the value modulo `value` is `remainder`.
    """

    column: str
    operator: str
    value: str
    remainder: int = 0


@dataclass(frozen=True, slots=True)
class DumpSplit:
    """The rows of a file that begin in its bytes [start, end); the whole file if it cannot be split."""

    file: DumpFile
    start: int
    end: int

    @property
    def suffix(self) -> str:
        """The suffix that names this part of the file after its path: `[0:100]`, "" for the whole file."""
        return "" if (self.start, self.end) == (0, self.file.size) else f"[{self.start}:{self.end}]"


@dataclass(frozen=True, slots=True)
class Glance:
    """An estimate from the first rows of a table: about how many there are in all, None if that is unknown.

    `problem` says why rows cannot be read or do not fit; "" for none.
    """

    rows: int | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DumpTable:
    """A table of a dump with its schema; one without files was empty.

    `query` is the text that gave the schema, `collation` the default of its database where that is known, `timezone`
    the zone in which the text prints defaults of TIMESTAMP.
    """

    id: TableId
    schema: TableSchema
    files: tuple[DumpFile, ...]
    query: str
    collation: str | None = None
    timezone: str | None = None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Dump:
    """The contents of a dump's directory. `at` is the TSO at which every table of it was read.

    `problems` says, by table, why it cannot be read; `warnings` are sentences about what is read all the same;
    `ignored` counts files without rows, by reason. Views and sequences have no rows and are left out. It is `rowless`
    if no table has a file of rows: all were empty, or only their schemas were dumped. It is of the `present` if what is
    read are the tables as they are now, and not as of the TSO. `identity` tells it from those of other
    servers, directories and files, as far as anything does.
    """

    uri: str
    at: Tso
    tables: tuple[DumpTable, ...]
    problems: Mapping[TableId, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[TableId, ...] = ()
    started: str = ""
    finished: str = ""
    rowless: bool = False
    present: bool = False
    identity: str = ""
