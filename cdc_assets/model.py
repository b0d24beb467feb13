"""Values that cross a stage. Frozen, small, picklable: they travel to Spark executors and between Dagster ops.

    Changefeed files ──▶ Listing ──▶ history of each table (Life) ──▶ Steps ──▶ lake
                          │                                            ▲
                          └── SchemaFile + SQL text ──▶ TableSchema ───┘

Imports nothing but the standard library.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "AddColumn",
    "Column",
    "DataFile",
    "DeleteRows",
    "DropColumn",
    "Evolution",
    "Index",
    "IndexFile",
    "Listing",
    "MoveColumns",
    "Partition",
    "Partitioning",
    "Phase",
    "Predicate",
    "Progress",
    "Rekey",
    "RenameColumn",
    "RetypeColumn",
    "SchemaChange",
    "SchemaFile",
    "SetDefault",
    "SinkOptions",
    "TableId",
    "TableSchema",
    "Tso",
    "seconds_between",
    "wall_clock_ms",
]

Tso = int
"""A TiDB timestamp: milliseconds since 1970 in the upper 46 bits, a logical counter in the lower 18."""


def wall_clock_ms(tso: Tso) -> int:
    """Return the wall-clock part of a TSO as milliseconds since 1970, UTC."""
    return tso >> 18


def seconds_between(since: Tso, until: Tso) -> float:
    """Return the wall-clock time between two TSO in seconds; 0 where `until` is the earlier one or `since` is 0.

    0 is the progress of a table of which nothing is applied.
    """
    return max(0, wall_clock_ms(until) - wall_clock_ms(since)) / 1000 if since else 0.0


# --- names and schemas ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A source table's name as TiDB spells it. An empty `table` stands for the database itself."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.table else self.schema


@dataclass(frozen=True, slots=True)
class Column:
    """One entry of `TableColumns`, with what only the DDL text tells (`elems` in old files, `collation`, `virtual`).

    `type` is upper case without ` UNSIGNED`. `precision` is also the length of character and binary types; `scale` the
    fraction digits of DECIMAL and of time types. `default` is the JSON value of `ColumnDefault`, None when absent.
    `kept` is the version at which the source dropped a column that the lake keeps, 0 for one that the source has.
    `comment` is for readers; a column with another one is the same column. `generated` is the SQL expression of a
    generated column, virtual or stored, "" for any other and where no text told it.
    """

    name: str
    type: str
    unsigned: bool = False
    precision: int | None = None
    scale: int | None = None
    nullable: bool = True
    is_pk: bool = False
    default: object = None
    id: int | None = None
    elems: tuple[str, ...] | None = None
    collation: str | None = None
    virtual: bool = False
    kept: Tso = 0
    comment: str = field(default="", compare=False)
    generated: str = field(default="", compare=False)
    zerofill: bool = field(default=False, compare=False)

    def decodes_like(self, other: Column) -> bool:
        """Tell whether values of both columns are written and read in the same way."""
        return _decoding(self) == _decoding(other)


def _decoding(column: Column) -> tuple[object, ...]:
    return (
        column.name,
        column.type,
        column.unsigned,
        column.precision if column.type in ("DECIMAL", "BIT", "TINYINT") else None,
        column.scale or 0,
        column.virtual,
    )


@dataclass(frozen=True, slots=True)
class Index:
    """An index of the table as its DDL text gives it; `prefix` marks one that covers only the head of a column."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    primary: bool = False
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: `bound` is the SQL text of LESS THAN (None is MAXVALUE) or the texts of IN."""

    name: str
    less_than: tuple[str | None, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How a table is partitioned: RANGE, RANGE COLUMNS, LIST, LIST COLUMNS, HASH or KEY, from its DDL text."""

    kind: str
    expressions: tuple[str, ...]
    partitions: tuple[Partition, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Columns in table order, with the facts that only DDL texts tell.

    `key` names the columns that identify a row; () means that none is known and the table is a multiset. `clustered`
    tells whether TiDB stores rows by their primary key, None where no text told it.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()
    partitioning: Partitioning | None = None
    collation: str | None = None
    comment: str = field(default="", compare=False)
    clustered: bool | None = field(default=None, compare=False)

    def column(self, name: str) -> Column:
        """Return the column of that name; raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns of the lake table: all but virtual generated ones."""
        return tuple(column for column in self.columns if not column.virtual)

    def decodes_like(self, other: TableSchema) -> bool:
        """Tell whether a row of one can be decoded as a row of the other: same columns, in whatever order."""
        mine, theirs = ([_decoding(c) for c in schema.columns if not c.kept] for schema in (self, other))
        return sorted(mine, key=repr) == sorted(theirs, key=repr)


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A parsed schema file. `root` is the directory that owns it below the prefix (`shop/orders`, or a table id).

    `table.table` is "" for a database-level file; `columns` is empty then. `query` "" with `type` 0 is no DDL.
    """

    path: str
    root: str
    table: TableId
    version: Tso
    query: str
    type: int
    columns: tuple[Column, ...]
    checksum: int | None = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file by its full name, which is its identity together with size and etag; never by its number alone.

    `root` and `version` name the schema file that decodes it. `directory` is the whole directory (partition and date
    included), `dispatcher` "" outside tables that span nodes. Sizes are bytes. `modified` is when the storage got
    it (seconds since 1970, 0 where the storage does not tell), which is no part of its identity.
    """

    path: str
    root: str
    version: Tso
    directory: str
    number: int
    size: int
    etag: str = ""
    partition: str = ""
    date: str = ""
    dispatcher: str = ""
    modified: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class IndexFile:
    """`CDC.index` of a directory; what it names is a hint only and is read on demand."""

    path: str
    directory: str
    dispatcher: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies under the prefix. `checkpoint` was read before listing, so all at or below it is here.

    `ignored` counts names that are no changefeed's by reason; `problems` holds files that should be readable and are
    not, keyed by path, with the sentence for the user; `warnings` are sentences about what is read all the same.
    `published` is when `metadata`, as listed, was written (seconds since 1970, 0 where the storage does not tell).
    """

    checkpoint: Tso
    schema_files: tuple[SchemaFile, ...]
    data_files: tuple[DataFile, ...]
    index_files: tuple[IndexFile, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    published: float = field(default=0.0, compare=False)


# --- how the changefeed writes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What decides how rows and paths are written: the sink URI's parameters and the changefeed TOML, TiCDC's defaults.

    Field names follow TiCDC's option names. `timezone` is the `--tz` of the TiCDC server.
    """

    protocol: str = "csv"
    terminator: str = "\r\n"
    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    include_commit_ts: bool = False
    binary_encoding_method: str = "base64"
    output_old_value: bool = False
    output_is_update: bool = True
    output_handle_key: bool = False
    output_field_header: bool = False
    enable_tidb_extension: bool = False
    content_compatible: bool = False
    only_output_updated_columns: bool = False
    delete_only_output_handle_key_columns: bool = False
    output_raw_change_event: bool = False
    date_separator: str = "day"
    enable_partition_separator: bool = True
    use_table_id_as_path: bool = False
    file_expiration_days: int = 0
    column_selectors: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    timezone: str = "UTC"

    @property
    def has_commit_ts(self) -> bool:
        """Tell whether rows carry their commit-ts, without which order and duplicates are known by file only."""
        return self.enable_tidb_extension if self.protocol == "canal-json" else self.include_commit_ts


# --- changes to a table's schema --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Old rows read `default` (in the column's text form, None for NULL); `approximate` says how it was guessed."""

    column: Column
    default: object = None
    approximate: str = ""


@dataclass(frozen=True, slots=True)
class DropColumn:
    """The column and its values go; a later column of the same name starts anew."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """The column keeps its field, so old rows keep their values. A DDL's renames happen at once (names may swap)."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class RetypeColumn:
    """Values are converted by MySQL's rules; in place when the lake type only widens, else by rewriting the table."""

    old: Column
    new: Column


@dataclass(frozen=True, slots=True)
class MoveColumns:
    """The columns stand in this order afterwards (names after renames, lake columns only)."""

    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetDefault:
    """A fact for later rows and documentation; existing rows do not change."""

    name: str
    default: object


@dataclass(frozen=True, slots=True)
class Rekey:
    """Rows are matched by these columns from here on."""

    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A node of a condition on lake rows, which `ddl.spark_sql` and `ddl.polars_expr` render with the same meaning.

    `op` is `column` (`value` is its name) or `literal` (`value` its text), with `type` int, unsigned, date, datetime,
    instant, string or binary; or an operator or function over `args`. `nullable` tells whether NULL can come out of a
    value or into a comparison. A condition is never NULL: comparisons with NULL are false.
    """

    op: str
    args: tuple[Predicate, ...] = ()
    value: str = ""
    type: str = ""
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Rows for which `predicate` holds go without row events; None means all of them (TRUNCATE)."""

    predicate: Predicate | None


SchemaChange = AddColumn | DropColumn | RenameColumn | RetypeColumn | MoveColumns | SetDefault | Rekey | DeleteRows


# --- progress ---------------------------------------------------------------------------------------------------------


class Phase(enum.IntEnum):
    """(V, DDL) comes before the rows at V, and those before (V, ROWS)."""

    DDL = 0
    ROWS = 1


@dataclass(frozen=True, slots=True, order=True)
class Progress:
    """How far a table is applied: through the DDL of `tso`, or through all rows at or below it."""

    tso: Tso
    phase: Phase


@dataclass(frozen=True, slots=True)
class Applied:
    """What the lake holds of a life: read from the label of its newest labelled snapshot.

    `ddl` is the version of the newest schema file that was taken into account: a DDL file at exactly the applied TSO
    that came late is still due. `name` is the name the table should have, None once it is dropped.
    """

    progress: Progress
    ddl: Tso
    name: TableId | None
    hold: str = ""
    positions: Mapping[str, int] = field(default_factory=dict)
    """Without commit-ts: the highest file number taken in, by number sequence."""


# --- steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Life:
    """A table from its birth to its drop, whatever it is called meanwhile: its first name and first version."""

    born_as: TableId
    version: Tso

    def __str__(self) -> str:
        return f"{self.born_as}@{self.version}"


@dataclass(frozen=True, slots=True)
class CreateTable:
    """An empty table under `name`; `takes` are the versions of later DDL whose columns it has from the start."""

    life: Life
    at: Tso
    name: TableId
    schema: TableSchema
    takes: tuple[Tso, ...] = ()

    @property
    def ddl(self) -> Tso:
        """The newest schema version that the table has."""
        return max((self.at, *self.takes))


@dataclass(frozen=True, slots=True)
class ChangeTable:
    """All changes of one DDL, in one commit. `schema` is the schema afterwards."""

    life: Life
    at: Tso
    changes: tuple[SchemaChange, ...]
    schema: TableSchema
    before: TableSchema


@dataclass(frozen=True, slots=True)
class RenameTable:
    """The life is called `to` from here on. Renames of one DDL share `at` and happen at once (names may swap)."""

    life: Life
    at: Tso
    to: TableId


@dataclass(frozen=True, slots=True)
class DropTable:
    """The table leaves its name; it is kept aside, so that RECOVER can bring it back."""

    life: Life
    at: Tso


@dataclass(frozen=True, slots=True)
class RecoverTable:
    """A dropped table comes back under `to`."""

    life: Life
    at: Tso
    to: TableId


@dataclass(frozen=True, slots=True)
class ExchangePartition:
    """The rows of `life` that satisfy `predicate` and all rows of `other` change places.

    Two steps of one plan name the same exchange, one for each life; each reads both inputs as of before `at`.
    """

    life: Life
    other: Life
    at: Tso
    predicate: Predicate
    partitioned: bool
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class Evolution:
    """A DDL that the table has taken ahead of its rows: those with commit-ts < `at` go through `changes`."""

    at: Tso
    changes: tuple[SchemaChange, ...]
    before: TableSchema
    after: TableSchema


@dataclass(frozen=True, slots=True)
class ApplyRows:
    """The rows of `files` with lo < commit-ts <= hi. `schemas` decodes them, by (root, version) of the file.

    `names` are the (name, from, to) in which rows under that name belong to this life: from <= commit-ts < to.
    `ddl` is the newest schema version that this window takes along.
    """

    life: Life
    lo: Tso
    hi: Tso
    files: tuple[DataFile, ...]
    schemas: Mapping[tuple[str, Tso], tuple[TableId, TableSchema]]
    schema: TableSchema
    ddl: Tso
    names: tuple[tuple[TableId, Tso, Tso], ...]
    positions: Mapping[str, int] | None = None
    """Set where rows carry no commit-ts: all rows of `files` are taken, in file order, and this is the new position."""
    evolutions: tuple[Evolution, ...] = ()
    """DDL inside the window, in order; `schema` is the last one's."""

    @property
    def at(self) -> Tso:
        """The TSO at which this step's effect is complete."""
        return self.hi


@dataclass(frozen=True, slots=True)
class HoldTable:
    """Nothing from `at` on is applied to this life. `ways` says how a person can let it go on.

    `releasable` is set for a DDL of this life, which a person can decide (`release`).
    """

    life: Life
    at: Tso
    reason: str
    ways: tuple[str, ...] = ()
    releasable: bool = False


Step = CreateTable | ChangeTable | RenameTable | DropTable | RecoverTable | ExchangePartition | ApplyRows | HoldTable


# --- what a decoding pass found ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that was not applied: where, why, and its raw bytes. `line` counts records from 1, header included."""

    path: str
    line: int
    reason: str
    raw: bytes = b""
    column: str = ""
    commit_ts: Tso | None = None


@dataclass(frozen=True, slots=True)
class FileStats:
    """What reading one file told: rows are records, commit-ts bounds are None for a file without any.

    `notes` counts values changed by a rule of the type table, by (column, rule).
    """

    path: str
    size: int
    etag: str
    rows: int
    min_commit_ts: Tso | None
    max_commit_ts: Tso | None
    notes: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of decoding and checking a window.

    `rejects` holds the first cases only, `reject_count` all, `quarantined` those kept aside. `notes` counts values
    changed by a rule of the type table, keyed by (column, rule): zero dates turned null, ambiguous hours, …
    `newest` is the highest commit-ts of a change that belongs to the window, with the first file that has it; None
    where there is no change, or rows carry no commit-ts. `joints` are files of a table without key that begin with the
    very commit-ts, of this window, at which the file before them ended: a transaction cut in two, or told again.
    """

    rows: int = 0
    reject_count: int = 0
    rejects: tuple[Reject, ...] = ()
    notes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    files: tuple[FileStats, ...] = ()
    seconds: float = 0.0
    quarantined: int = 0
    newest: tuple[Tso, str] | None = None
    joints: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Tell whether the window must not be written."""
        return self.reject_count > self.quarantined


@dataclass(frozen=True, slots=True)
class Staged:
    """A decoded window as Parquet in the lake's stage, ready for one commit. `rows` counts reduced changes."""

    path: str
    rows: int
    report: Report


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did, for the journal: statements run, snapshot before and after, row counts, seconds.

    `rows_before` and `rows_after` are the table's rows by the summaries of those snapshots; None where a summary does
    not tell, or another writer has committed since. `entering` are the rows that the window had to bring, None where
    that is not known.
    """

    statements: tuple[str, ...] = ()
    snapshot_before: int | None = None
    snapshot_after: int | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    seconds: float = 0.0
    report: Report | None = None
    rows_before: int | None = None
    rows_after: int | None = None
    entering: int | None = None
