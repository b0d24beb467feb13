"""Kinds of feeds, a folder each. A source provides three things, and the rest of the package knows nothing else of it.

    fence           the TSO through which everything is in what it lists
    schema events   version, table, columns and DDL text
    splits          immutable pieces of input: where, how large, which table

A folder's own module `source` has `parse` (what the user gave -> options), `storage_options` and `connect`.

The rows from before the feed come from an `InitialSource`: a folder's module `initial` has `connect`.
`joined` puts it before the feed, so that one listing has both and one reader reads both.

What several of them have in common:

    changefeed_toml   TiCDC's changefeed TOML: its tables and members
    given             what the settings say of a feed besides
    replicated        which tables a changefeed replicates, by its TOML
    unchanged         settled files among those that are listed
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from cdc_assets.errors import BadSettings
from cdc_assets.formats import SplitReader, Wire
from cdc_assets.formats.decoded import Content, Decoded
from cdc_assets.model.dumps import Dump, DumpFile, DumpOptions, DumpSplit, DumpTable, Glance, RowCondition
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.schema_changes import Predicate
from cdc_assets.model.splits import Listing, Place, SettledFiles
from cdc_assets.model.tso import Tso
from cdc_assets.sources.given import FeedInputs

if TYPE_CHECKING:
    from cdc_assets.io.storage import Opener

__all__ = [
    "SCHEMES",
    "DumpReader",
    "FeedInputs",
    "Generators",
    "InitialSource",
    "KnownFiles",
    "Source",
    "SourceOptions",
    "broker_options",
    "connect",
    "connect_dump",
    "connect_server",
    "join",
    "parse_options",
    "registry_options",
    "renewed",
    "storage_options",
]

Generators = Mapping[str, Predicate | str]
"""Column that a dump leaves out -> its value over the row, or the reason why it is NULL; in table order."""

KnownFiles = Mapping[tuple[str, int, str], bytes]
"""Contents of files by (path, bytes, etag), as an earlier process has read them."""


def renewed(contents: KnownFiles, fresh: KnownFiles) -> KnownFiles:
    """Return contents with fresh ones in place of those of the same path, as an index is written all the time."""
    paths = {path for path, _, _ in fresh}
    return {**{file: data for file, data in contents.items() if file[0] not in paths}, **fresh}


class SourceOptions(Protocol):
    """Options and location of a feed: the user's settings, as a value without secrets."""

    kind: ClassVar[str]
    """The source's folder."""

    is_landed: ClassVar[bool]
    """Whether its input is landed in the lake before it is read."""

    @property
    def uri(self) -> str:
        """The feed's address without parameters and login, for messages."""

    @property
    def store(self) -> str:
        """Store of the feed: an fsspec protocol, or the name of another system."""

    @property
    def protocol(self) -> str:
        """Protocol of the changes, by TiCDC's name."""

    @property
    def writer(self) -> str:
        """Writer of the feed, in a sentence."""

    @property
    def wire(self) -> Wire:
        """Wire format of its splits."""

    @property
    def retention_days(self) -> int:
        """Days after which the feed loses input; 0 for never."""

    def captures(self, table: TableId) -> bool | None:
        """Return whether the producer's own lists of tables have a table, None where they do not say."""

    def has_inserts(self, table: TableId) -> bool:
        """Return whether a change of a row of a table means that the feed has its insert, too, and has it once.

        Not where settings leave out inserts, where updates look like inserts or change keys unseen, or where what comes
        again is taken for new.
        """


class Source(Protocol):
    """A feed that was opened for reading. Nothing is ever written to it."""

    @property
    def reader(self) -> SplitReader:
        """Reads the splits, on executors too."""

    def fence(self) -> Tso:
        """Return the TSO through which everything is listed from now on, for one small read.

        Raises MetadataMissing for a feed that has not come so far yet.
        """

    def listing(self, contents: KnownFiles | None = None, settled: Sequence[SettledFiles] = ()) -> Listing:
        """Return all that is there as of the fence. `contents` are those of schema files that need no reading.

        Files that are `settled` may be left out as long as they are what they were.
        """

    def head(self, path: str, size: int) -> Content:
        """Return the contents of a split, of a file its first bytes; raises FileNotFoundError."""

    def place(self, path: str, listing: Listing | None = None) -> Place | None:
        """Return the place that the name of a split or schema file gives, None for a foreign one.

        With a listing, only what belongs to its schema files is a name.
        """


class DumpReader(Protocol):
    """Reads the rows of a dump wherever a task runs: picklable."""

    @property
    def reconnects(self) -> int:
        """Number of connections that broke in the midst of rows in this process and were opened again."""

    def read(self, split: DumpSplit, table: DumpTable, at: Tso, generators: Generators) -> Iterator[Decoded]:
        """Yield the rows of a split, block by block, all as inserts of commit-ts `at`.

        `generators` are those that the `InitialSource` gives for the table. Raises MalformedData for rows that cannot
        be trusted, also behind rows that were yielded before.
        """

    def lines_before(self, split: DumpSplit) -> int:
        """Return the number of records of its file before a split; 0 where nothing has lines."""

    def records(self, split: DumpSplit, lines: Collection[int]) -> dict[int, bytes]:
        """Return the bytes of a split's records, by their number in it; those that are nowhere are left out."""


class InitialSource(Protocol):
    """Contents of the tables at one TSO, opened for reading. Nothing is ever written to it."""

    @property
    def uri(self) -> str:
        """Address without parameters and login, for messages."""

    @property
    def reader(self) -> DumpReader:
        """Reads the splits, on executors too."""

    def dump(self) -> Dump:
        """Return its TSO, its tables with their schemas, and what is odd; raises InputError or SetupError."""

    def splits(self, file: DumpFile, conditions: Sequence[RowCondition] = ()) -> tuple[DumpSplit, ...]:
        """Return a file of its tables in pieces for tasks; rows that do not fulfil all conditions may be left out."""

    def generators(self, table: DumpTable) -> Generators:
        """Return the generators of columns that are not read. For planning only: imports heavy libraries."""

    def glance(self, table: DumpTable) -> Glance:
        """Return an estimate from the first rows of a table; reads a few megabytes at most."""

    def is_written(self, table: DumpTable, seconds: float) -> bool:
        """Return whether a table is known to have been written to in the last seconds."""

    def promised(self, table: DumpTable) -> TableSchema:
        """Return the table's schema as far as its rows keep it: what is not read is NULL in places."""


SCHEMES: dict[str, str] = {
    **dict.fromkeys(
        ("", "file", "local", "s3", "gcs", "gs", "azure", "azblob", "abfs", "memory"), "cdc_assets.sources.storage_sink"
    ),
    **dict.fromkeys(("kafka", "kafka+ssl"), "cdc_assets.sources.topics"),
}
"""Scheme of the sink URI -> folder of the source."""


def connect_dump(opener: Opener, options: DumpOptions, stated: Tso | None = None) -> InitialSource:
    """Open a dump's directory; `stated` is the TSO that a person states of it."""
    source: InitialSource = import_module("cdc_assets.sources.dumpling.initial").connect(opener, options, stated)
    return source


def connect_server(
    uri: str, password: str, at: Tso, patterns: Sequence[str] = (), range_bytes: int = 0
) -> InitialSource:
    """Open a server of the MySQL protocol to read the tables with these names (`shop.*`), () for all, at a TSO.

    A TSO of 0 stands for the present. With `range_bytes` its tables are asked for whenever they are wanted, and cut
    into ranges of about so many bytes. Raises BadSettings for a URI that is not that of a server.
    """
    source: InitialSource = import_module("cdc_assets.sources.mysql_protocol.initial").connect(
        uri, password, at, patterns, range_bytes
    )
    return source


def join(feed: Source, initial: Sequence[InitialSource], changefeed_config: Path | None = None) -> Source:
    """Return a feed with what was in its tables before it; its TOML says which tables it has."""
    if not initial:
        return feed
    tables = import_module("cdc_assets.sources.replicated").replicated(changefeed_config)
    joined: Source = import_module("cdc_assets.sources.joined").JoinedSource(feed, initial, tables)
    return joined


def parse_options(
    sink_uri: str, changefeed_config: Path | None, tz: str, inputs: FeedInputs | None = None
) -> SourceOptions:
    """Return the options of the feed that a sink URI and TiCDC's changefeed TOML describe; raises BadSettings.

    `inputs` are those that the settings name besides.
    """
    options: SourceOptions = _plug(sink_uri).parse(sink_uri, changefeed_config, tz, inputs or FeedInputs())
    return options


def storage_options(sink_uri: str, inputs: FeedInputs | None = None) -> dict[str, Any]:
    """Return the storage options that the URIs of a feed give, in clear text."""
    options: dict[str, Any] = _plug(sink_uri).storage_options(sink_uri, inputs or FeedInputs())
    return options


def registry_options(sink_uri: str, changefeed_config: Path | None) -> dict[str, Any]:
    """Return TiCDC's options of the schema registry of a feed of topics, as `schema_registry` takes it; {} if not."""
    options: dict[str, Any] = _plug(sink_uri).registry_options(sink_uri, changefeed_config)
    return options


def broker_options(sink_uri: str, changefeed_config: Path | None) -> dict[str, Any]:
    """Return the broker's options that a sink URI and changefeed TOML give, in clear text."""
    options: dict[str, Any] = _plug(sink_uri).broker_options(sink_uri, changefeed_config)
    return options


def connect(sink_uri: str, options: SourceOptions, storage: Mapping[str, Any]) -> Source:
    """Open the feed; `storage` says how to reach it, in clear text."""
    source: Source = _plug(sink_uri).connect(options, storage)
    return source


def _plug(sink_uri: str) -> Any:
    address, separator, _ = sink_uri.partition("?")[0].partition("://")
    scheme = address.lower() if separator else ""
    if scheme not in SCHEMES:
        raise BadSettings(
            f'sink URI scheme "{address}" is not a storage; known are {", ".join(sorted(filter(None, SCHEMES)))}. '
            "Give the sink URI of a storage changefeed."
        )
    return import_module(f"{SCHEMES[scheme]}.source")
