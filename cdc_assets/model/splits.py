"""The files under a changefeed's prefix: schema files, data files, index files; and the tables of a dump."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from cdc_assets.model.dumps import DumpSplit
from cdc_assets.model.gaps import MissedMessages
from cdc_assets.model.progress import Base, Filling, Life
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.tso import Tso

if TYPE_CHECKING:
    from cdc_assets.model.offsets import OffsetRange
    from cdc_assets.model.reports import FileStats

DIGEST_MASK = (1 << 62) - 1
"""The bits of a sum of fingerprints that are kept."""


@dataclass(frozen=True, slots=True)
class SentRows:
    """The rows of a table that a connector sends: it sends the DDL of tables whose rows it leaves out, too.

    `captured` says whether its lists have the table's name, None where they are not given. `first` is the position of
    the first row that came under the name, None if none came.
    """

    captured: bool | None = None
    first: Tso | None = None

    @property
    def left_out(self) -> bool:
        """Return whether no row comes under the name, by the connector's lists."""
        return self.captured is False and self.first is None


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A parsed schema file. `root` is the directory that owns it below the prefix (`shop/orders`, or a table id).

    `table.table` is "" for a database-level file; `columns` is empty then. `query` "" with `type` 0 is not a DDL.

    Feeds without schema files have the same in other forms. `by_text` says that no columns came with the DDL: they
    follow from its text and the table before it, and `columns` is what later rows show of them, if anything.
    `whole` is the schema, from no DDL, with which a table of unknown history begins; `approximate` are sentences on
    what of it may differ in the source. `grows` says that rows describe it from then on and that no DDL
    will: an existing table gets what is new in it. `lags` says that those rows are older than others that were read
    before, so that a column that comes again in them was never gone. `behind_rows` says that rows from its version on
    may have come before it, though no DDL brought it. `commit_ts` is when the source carried the DDL
    out, 0 where that is the version. `filling` is how the rows come that a table had before it begins, or is filled
    anew, with the file. `sent` says which rows come under the name, None where all do. `unsent` are columns by which
    the database changes rows without a word in its log, each with the words of the foreign key that does so. `server`
    is the kind of server whose log the DDL is from, mysql or mariadb; "" for TiDB and others. `charset` is that of the
    table's texts where no text names one, "" where that is not told.
    """

    path: str
    root: str
    table: TableId
    version: Tso
    query: str
    type: int
    columns: tuple[Column, ...]
    checksum: int | None = None
    by_text: bool = False
    whole: TableSchema | None = None
    approximate: tuple[str, ...] = ()
    grows: bool = False
    lags: bool = False
    behind_rows: bool = False
    commit_ts: Tso = 0
    filling: Filling = field(default_factory=Filling)
    unsent: tuple[tuple[str, str], ...] = ()
    sent: SentRows | None = None
    server: str = ""
    charset: str = ""

    @property
    def by_server(self) -> bool:
        """Whether what no text has, as collations, is as a server was set up, and not as TiDB has it."""
        return bool(self.server)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file by its full name, which is its identity together with size and etag; never by its number alone.

    `root` and `version` name the schema file that decodes it. `directory` is the whole directory (partition and date
    included), `dispatcher` "" outside tables that span nodes. Sizes are bytes. `modified` is when the storage got
    it (seconds since 1970, 0 where the storage does not say), which is not part of its identity.

    `piece` is set for a file of a dump, or a part of one; `messages` for a table's rows among those of a log.
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
    piece: DumpSplit | None = None
    bounds: tuple[Tso, Tso] | None = field(default=None, compare=False)
    messages: OffsetRange | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The path of the whole file, as in messages and in the quarantine."""
        return self.path if self.piece is None else self.path.removesuffix(self.piece.suffix)

    @property
    def place(self) -> str:
        """The file, or the offsets of a partition, as sentences for people call it."""
        if self.messages is None:
            return self.name
        return f"{self.messages.partition} offsets {self.messages.start} to {self.messages.stop - 1}"

    @property
    def sequence(self) -> tuple[str, Tso, str, str, int]:
        """Equal for files whose numbers continue each other: those of one version and dispatcher, whatever the date.

        The last element is the length of the name, since numbers of another width begin anew.
        """
        return self.root, self.version, self.partition, self.dispatcher, len(self.path.rsplit("/", 1)[-1])

    @property
    def in_log(self) -> bool:
        """Whether it is a range of a log, which goes on where a sender begins anew; a file ends there."""
        return self.bounds is not None

    def may_hold(self, stats: FileStats | None, lo: Tso, hi: Tso) -> bool:
        """Return whether rows of (lo, hi] may be in the file; `stats` are its statistics, used if still current."""
        if self.bounds is not None:
            return self.bounds[1] > lo and self.bounds[0] <= hi
        if stats is None or (stats.size, stats.etag) != (self.size, self.etag):
            return True
        if stats.max_commit_ts is None or stats.max_commit_ts <= lo:
            return False
        return stats.min_commit_ts is None or stats.min_commit_ts <= hi


@dataclass(frozen=True, slots=True)
class Import:
    """A table of a dump: its rows as of one TSO, which precede all later changes of the feed.

    `root` is that of `files`, which have no version but the TSO, and `promised` is what their rows are checked
    against. `made_null` says, by stored generated column, why it is NULL in the rows. `problem` says why the table
    cannot be imported, "" if it can. It is `lost` if only its columns are known because the dump no longer exists, and
    `rowless` if no table of its dump has a file of rows.
    """

    base: Base
    schema: TableSchema
    root: str = ""
    files: tuple[DataFile, ...] = ()
    promised: TableSchema | None = None
    made_null: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    lost: bool = False
    rowless: bool = False


@dataclass(frozen=True, slots=True)
class IndexFile:
    """`CDC.index` of a directory, which names the newest data file of its dispatcher there."""

    path: str
    directory: str
    dispatcher: str = ""
    size: int = field(default=0, compare=False)
    etag: str = field(default="", compare=False)


def fingerprint(path: str, size: int, etag: str) -> int:
    """Return a 62-bit fingerprint of a file; the sum of several does not depend on their order."""
    return int.from_bytes(hashlib.blake2b(f"{path}|{size}|{etag}".encode(), digest_size=8).digest(), "big") >> 2


@dataclass(frozen=True, slots=True)
class SettledFiles:
    """The data files of a directory that no window needs any more: their rows are applied to all tables of theirs.

    They are those whose paths are at or before `last`, of number `number`; of a `closed` directory, whose `date` has
    passed, they are all, and `last` is "". `files` counts them, `digest` adds up their fingerprints below 2^62, and
    their commit-ts are in [`since`, `through`]. `checkpoint` and `seen_at` (seconds since 1970) are of the newest look
    at the names themselves. One that is `passed_over` need not be looked at now.
    """

    directory: str
    root: str
    version: Tso
    date: str
    last: str
    number: int
    files: int
    digest: int
    since: Tso
    through: Tso
    checkpoint: Tso
    seen_at: float
    passed_over: bool = field(default=False, compare=False)

    @property
    def closed(self) -> bool:
        """Return whether no more files are expected in the directory."""
        return not self.last

    def has(self, path: str) -> bool:
        """Return whether a data file of the directory is one of them by its path."""
        return not self.last or path <= self.last


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a split or schema file by its name: its owner, and its number in its directory and dispatcher."""

    root: str
    version: Tso
    directory: str = ""
    dispatcher: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class LateFile:
    """Rows that came too late, at position `at` and later: the sentence for the user, and whose they are.

    Those of a file are of `lives`, of all kinds, also of those that can still take them: a file is late no more once it
    is read. Others are of any table that has the name `table` from there on.
    """

    reason: str
    at: Tso
    lives: frozenset[Life] = frozenset()
    table: TableId | None = None

    def concern(self, life: Life, names: Collection[TableId]) -> bool:
        """Return whether the rows are of a table, which has these names, folded, from position `at` on."""
        return life in self.lives if self.table is None else self.table.folded in names


@dataclass(frozen=True, slots=True)
class Listing:
    """All files under the prefix. `checkpoint` was read before listing, so everything at or below it is included.

    `ignored` counts names that are not a changefeed's, by reason; `problems` holds files that should be readable and
    are not, keyed by path, with the sentence for the user; `warnings` are sentences about what is read all the same.
    `published` is when `metadata`, as listed, was written (seconds since 1970, 0 where the storage does not say).
    `fresh` are contents of schema and index files, by (path, bytes, etag), that had to be read for this listing.
    `imports` are the tables of dumps, `lost_dumps` the dumps that cannot be read, by URI with the error.
    `late` are rows that were not there when their tables were applied beyond them, keyed by path: these tables stop,
    and a rebuild brings the rows. Of tables in `gone`, rows through that position are no
    longer kept by a source that keeps them for some time only; tables in `missed` may have had rows in messages that
    were gone before they could be read, which are all in `unread`.
    `settled` stand for files that are not in `data_files`; `reopened` were settled and are not what they were, so that
    their files are there again. The directories in `mixed` have names that are neither data nor index files; None is of
    a source of which nothing is settled.

    Files in `lost` were written and cannot be read: an index names them and they are missing, which is told once, when
    the index is read, or they are of another protocol. Those in `unwritten` are named by an index, too, and may be
    still to come, or were never written.
    """

    checkpoint: Tso
    schema_files: tuple[SchemaFile, ...]
    data_files: tuple[DataFile, ...]
    index_files: tuple[IndexFile, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    published: float = field(default=0.0, compare=False)
    fresh: Mapping[tuple[str, int, str], bytes] = field(default_factory=dict, compare=False, repr=False)
    lost: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()
    imports: tuple[Import, ...] = ()
    lost_dumps: Mapping[str, Exception] = field(default_factory=dict, compare=False)
    gone: Mapping[TableId, Tso] = field(default_factory=dict)
    missed: Mapping[TableId, tuple[MissedMessages, ...]] = field(default_factory=dict)
    unread: tuple[MissedMessages, ...] = ()
    late: Mapping[str, LateFile] = field(default_factory=dict)
    settled: tuple[SettledFiles, ...] = ()
    reopened: tuple[SettledFiles, ...] = ()
    mixed: frozenset[str] | None = None

    @property
    def file_count(self) -> int:
        """Number of data files, settled ones included."""
        return len(self.data_files) + sum(settled.files for settled in self.settled)


_T = TypeVar("_T")


def in_shares(items: Iterable[_T], size_of: Callable[[_T], int], most: int, most_bytes: int) -> Iterator[list[_T]]:
    """Yield items some at a time: at most so many, and no more once they have so many bytes."""
    share, size = list[_T](), 0
    for item in items:
        share.append(item)
        size += size_of(item)
        del item  # who takes the share may let go of it before the next one is read
        if len(share) == most or size >= most_bytes:
            yield share
            share, size = [], 0
    if share:
        yield share
