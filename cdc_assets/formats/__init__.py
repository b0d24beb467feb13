"""Wire formats: bytes of one data file -> one Arrow table of changes. Runs on Spark executors: no JVM, no Dagster.

Every decoder returns the same shape, so that nothing after it knows the format. One row per row image:

    _cdc_op          int8    what happened, see Op
    _cdc_commit_ts   int64   commit-ts, which the lake's rows get; null where the format carries none
    _cdc_line        int64   number of the record in its file, from 1 (a header line counts)
    …                        the table's stored columns, in table order, in the Arrow types of `mysql_types`
    _cdc_unchanged   list    names of the columns that an image leaves as they were, null for one that has all;
                             only there where a message brings some columns only
    _cdc_position    int64   what orders the changes and cuts windows where that is not the commit-ts: the place that
                             landing gave, or that in the files; only there where it differs (see `position_column`)
    _cdc_moved       text    equal for the delete of a row and the image of the same row under its new key, which may
                             leave columns as they were under the old one; only there where a source sends both

Plugs stand in the tables below. What several of them have in common:

    dialect           delimited text: where its records end, how they are cut into fields
    changes           row images and the values of their columns -> changes, with what does not fit
    members           members of ENUM and SET by their numbers
    records           what messages hold, as columns by path, whoever read them
    json_records      JSON messages -> records: those of one shape side by side, the rest by a parser
    avro_records      Avro messages -> records: those of one schema side by side, the rest by fastavro
    simple_records    messages of the Simple protocol in its own Avro -> what its JSON says
    servers           whose connectors are read, and what others are called
    words             bytes at many places of a buffer at once
    values            values of messages by their types, column by column
    messages          change messages of a topic: what each speaks of, and the functions of a protocol
    column_codes      MySQL's numbers for column types, and TiCDC's flags
"""

from __future__ import annotations

import enum
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from cdc_assets.errors import BadSettings, CdcError, MalformedData
from cdc_assets.model.dumps import DumpOptions, DumpSplit
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.table_filter import ColumnSelectors
from cdc_assets.model.tso import Tso

if TYPE_CHECKING:
    import pyarrow as pa

    from cdc_assets.model.splits import DataFile

__all__ = [
    "COMMIT_TS",
    "CONNECTOR_MODES",
    "DUMP_FORMATS",
    "FORMATS",
    "INNER_FORMATS",
    "LINE",
    "MOVED",
    "NOT_SHOWN",
    "NOT_WRITTEN",
    "OF_FORGOTTEN",
    "OP",
    "OTHER_NAMES",
    "POSITION",
    "PROTOCOLS",
    "UNCHANGED",
    "Content",
    "Decoded",
    "DumpFormat",
    "DumpRows",
    "MessageOptions",
    "MessageProtocol",
    "Op",
    "Order",
    "ReadRange",
    "SinkWire",
    "SplitReader",
    "UniformReader",
    "Wire",
    "decode",
    "decode_among",
    "dump_format",
    "dump_rows",
    "dumped_rows",
    "extension",
    "file_expansion",
    "foreseen",
    "has_patches",
    "has_text",
    "masked_blocks",
    "position_column",
    "raw_records",
    "record_beginning",
    "record_identity",
    "record_places",
    "shape_of",
    "tells_new_rows",
    "wire_class",
    "without_quotes",
    "without_values",
]

OP = "_cdc_op"
COMMIT_TS = "_cdc_commit_ts"
POSITION = "_cdc_position"
LINE = "_cdc_line"
UNCHANGED = "_cdc_unchanged"
MOVED = "_cdc_moved"
NOT_WRITTEN = "in the schema but not in the rows: a virtual generated column, or one that a selector hides"


class Op(enum.IntEnum):
    """What a row image says. The sign is its direction: negative images leave the table, positive ones enter it."""

    DELETE_KEY = -2
    """A delete of which only the key columns are known."""
    DELETE = -1
    """A deleted row, or the image before an update."""
    INSERT = 1
    """An inserted row, or the image after an update whose image before is a row of its own.

    With UNCHANGED one that makes the row where there is none, the columns left out being NULL then.
    """
    UPDATE = 2
    """The image after an update whose image before is not in the file. With UNCHANGED its row must exist."""
    PATCH = 3
    """The same with UNCHANGED, which is passed over where its row does not exist."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The changes of one file; `rejects` are records that do not fit, `tail` a last record without terminator.

    `notes` counts values changed by a rule of the type table, by (column, rule).
    """

    changes: pa.Table
    rejects: tuple[Reject, ...] = ()
    tail: Reject | None = None
    notes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    stated: frozenset[str] = frozenset()
    """Settings on which no value of these depends, since the records themselves say how they were written."""
    deliveries: pa.ChunkedArray | None = None
    """For each change of a log a number of its delivery, -1 where nothing comes twice; None of files."""


class Wire(Protocol):
    """How the bytes of a split were written: the options of one format. Frozen, small and picklable."""

    format: ClassVar[str]
    """Name of the format, a key of FORMATS."""

    @property
    def commit_ts_option(self) -> str:
        """What to set at the source so that rows carry their commit-ts, "" where nothing does."""

    @property
    def places(self) -> str:
        """What orders rows without commit-ts: files, or offsets."""

    @property
    def has_commit_ts(self) -> bool:
        """Return whether rows carry their commit-ts."""

    @property
    def has_positions(self) -> bool:
        """Return whether windows can be cut by where rows stand: by their commit-ts, or by the place that landing gave.

        Else order is known by split only.
        """

    @property
    def is_unordered(self) -> bool:
        """Return whether rows that come twice may be taken for new ones."""

    @property
    def timezone(self) -> str:
        """The zone in which TIMESTAMP texts were written."""

    @property
    def deletes_have_keys_only(self) -> bool:
        """Return whether rows of a table without key that leave cannot be found: their values are not written."""

    @property
    def tells_inserts(self) -> bool:
        """Return whether the image of a new row differs from that of a changed one."""

    @property
    def members_are_numbers(self) -> bool:
        """Return whether ENUM and SET are written as numbers, whose names must come from the schema."""

    @property
    def members_way(self) -> str:
        """What a person can do where those names are missing, beside a CREATE TABLE in the feed."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings on which values may depend, by the names that a person gives them."""

    def having(self, settings: Mapping[str, str]) -> Wire:
        """Return a copy with these values of `settings` (name -> text); unknown names are passed over."""

    def read_by(self, column: Column) -> Mapping[str, object]:
        """Return what settings make of a column's texts, by name: equal for settings that give equal values."""


def tells_new_rows(wire: Wire) -> bool:
    """Return whether a row image says whether its row is new: updates differ from inserts, and repeats are known."""
    return wire.tells_inserts and not wire.is_unordered


def way_to_commit_ts(wire: Wire) -> str:
    """Return how rows come to carry a commit-ts, as a sentence that another way may follow."""
    return (
        f"If the changefeed has {wire.commit_ts_option}, give the same here (its TOML by --config, setting "
        "changefeed_config); else start it again with that"
    )


class SinkWire(Wire, Protocol):
    """A Wire that a sink URI names: the fields are TiCDC's options, with `_` for `-`, and have its defaults."""

    toml_options: ClassVar[Mapping[str, tuple[str, ...]]]
    """TiCDC's name of an option -> the table below [sink] of the changefeed TOML that has it."""
    uri_options: ClassVar[frozenset[str]]
    """The options that TiCDC also takes from the sink URI, which wins."""

    @property
    def complaint(self) -> str:
        """What TiCDC refuses in these options, "" for nothing."""


ReadRange = Callable[[int, int], bytes]
"""(start, end) -> the bytes of a file from start to before end, fewer where the file ends."""


class DumpFormat(Protocol):
    """A kind of data file of a dump. Lines count records from the first row of a split."""

    def read(
        self,
        split: DumpSplit,
        read_range: ReadRange,
        table: TableId,
        schema: TableSchema,
        options: DumpOptions,
        at: Tso,
    ) -> Iterator[Decoded]:
        """Yield the rows of a split, block by block, as inserts of commit-ts `at`.

        Raises MalformedData for a file that cannot be trusted, also behind rows that were yielded before.
        """

    def can_cut(self, options: DumpOptions) -> bool:
        """Return whether a file that is not compressed can be read from its middle."""

    def lines_before(self, split: DumpSplit, read_range: ReadRange, options: DumpOptions) -> int:
        """Return how many records of the file stand before the split's first row; reads all that is before it."""

    def raw_records(
        self, split: DumpSplit, read_range: ReadRange, lines: Collection[int], options: DumpOptions
    ) -> dict[int, bytes]:
        """Return the split's records with these numbers, without terminator."""


Content: TypeAlias = Sized
"""What is in a split, for the decoder of its wire format: the bytes of a file, or messages of a topic as they were
landed (`landed.Frame`). Its length is in bytes."""


class SplitReader(Protocol):
    """Reads splits wherever a task runs: picklable. Paths are those of the listing."""

    def read(self, path: str) -> Content:
        """Return what is in a split; raises InputError when it is gone."""

    def wire(self, path: str) -> Wire:
        """Return how a split was written."""


@runtime_checkable
class DumpRows(Protocol):
    """What a reader of splits has besides where some of them are of dumps: `piece` is set in these."""

    def rows(self, file: DataFile, table: TableId, schema: TableSchema) -> Iterator[Decoded]:
        """Yield the rows of a split block by block, as inserts of the dump's TSO; lines count from its first record.

        Rejects have the lines of the whole file. Raises MalformedData for a split that cannot be trusted, also behind
        rows that were yielded before.
        """

    def lines_before(self, file: DataFile) -> int:
        """Return how many records of the whole file stand before the split's first one."""

    def records(self, file: DataFile, lines: Collection[int]) -> dict[int, bytes]:
        """Return the split's records with these numbers, where the dump has any bytes of them."""


def dumped_rows(reader: SplitReader, file: DataFile, table: TableId, schema: TableSchema) -> Iterator[Decoded]:
    """Yield the rows of a dump's split as `DumpRows.rows` does, as the schema's masks have them."""
    yield from masked_blocks(dump_rows(reader).rows(file, table, schema), file.name, schema)


def masked_blocks(blocks: Iterable[Decoded], path: str, schema: TableSchema) -> Iterator[Decoded]:
    """Yield rows of a source that is no feed, block by block, as the schema's masks have them.

    Raises MalformedData, with nothing of what stands at `path`, where the source does.
    """
    with _concealing(path, [schema]):
        for block in blocks:
            yield _masked(block, schema)


def dump_rows(reader: SplitReader) -> DumpRows:
    """Return what reads splits of dumps."""
    if not isinstance(reader, DumpRows):
        raise TypeError(f"{type(reader).__name__} reads no dumps")
    return reader


@dataclass(frozen=True, slots=True)
class UniformReader:
    """A reader of splits that were all written in one way."""

    options: Wire
    fetch: Callable[[str], bytes]

    def read(self, path: str) -> bytes:
        """Return the bytes of a split."""
        return self.fetch(path)

    def wire(self, path: str) -> Wire:
        """Return how every split was written."""
        return self.options


FORMATS: dict[str, str] = {"csv": "cdc_assets.formats.csv", "canal-json": "cdc_assets.formats.canal_json"}
"""Name of a format, as in a sink URI -> its folder, which has the modules `options` and `decode`.

`options.OPTIONS` is its SinkWire. `decode` has `decode`, `raw_records`, `record_beginning`,
`record_identity`, EXTENSION and FILE_EXPANSION.
"""

INNER_FORMATS: Mapping[str, str] = {"landed": "cdc_assets.formats.landed"}
"""What no sink URI names, how splits are framed that a source makes itself -> module that has what `decode` has."""

DUMP_FORMATS: Mapping[str, str] = {
    "csv": "cdc_assets.formats.dump.csv",
    "sql": "cdc_assets.formats.dump.sql",
    "parquet": "cdc_assets.formats.dump.parquet",
}
"""Kind of a dump's data file -> module that is a DumpFormat."""


def dump_format(kind: str) -> DumpFormat:
    """Return what reads a kind of data file of a dump; raises BadSettings that lists the known ones."""
    if kind not in DUMP_FORMATS:
        raise BadSettings(
            f'data files of the kind "{kind}" cannot be read; known are {", ".join(sorted(DUMP_FORMATS))}.'
        )
    return cast("DumpFormat", import_module(DUMP_FORMATS[kind]))


def wire_class(name: str) -> type[SinkWire]:
    """Return the options of a format; raises BadSettings that lists the known ones."""
    if name not in FORMATS:
        raise BadSettings(
            f'protocol "{name}" cannot be read; known are {", ".join(sorted(FORMATS))}. '
            "Give the sink URI exactly as TiCDC has it, with its protocol parameter."
        )
    options_type: type[SinkWire] = import_module(f"{FORMATS[name]}.options").OPTIONS
    return options_type


def shape_of(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of changes that have these columns of a table."""
    import pyarrow as pa  # the options of formats are read where no row is

    from cdc_assets.types.mysql_types import arrow_type

    own = [pa.field(OP, pa.int8()), pa.field(COMMIT_TS, pa.int64()), pa.field(LINE, pa.int64())]
    return pa.schema([*own, *(pa.field(column.name, arrow_type(column)) for column in columns)])


def position_column(changes: pa.Table) -> str:
    """Return the name of the column that orders changes and by which windows are cut."""
    return POSITION if POSITION in changes.column_names else COMMIT_TS


def has_patches(changes: pa.Table) -> bool:
    """Return whether some changes have some columns only."""
    return UNCHANGED in changes.column_names and changes.column(UNCHANGED).null_count < changes.num_rows


# --- messages of topics -----------------------------------------------------------------------------------------------


class Order(enum.Enum):
    """What orders the messages of a protocol."""

    COMMIT_TS = "commit-ts"
    EXTENSION = "commit-ts with enable-tidb-extension, else offset"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageProtocol:
    """A protocol of messages: the module that reads it (see `messages`), and what is known of it without reading one.

    `by_connector` protocols have no changefeed TOML but a connector's configuration. Of protocols by offset
    `in_source_order` says that one writer sends all tables in the order of its log, `clocked` that positions are
    milliseconds, `bare_deletes` that a delete has no time. `text_encodings` are those of `encoding-format` in which a
    value is JSON on one line; DDL is in partition 0 alone where `ddl_in_first`. Members of ENUM and SET are numbers
    where `numbered_members`, with `named_by_compatible` unless `content-compatible` is set; without `tells_inserts` a
    new row looks like a changed one. `keys_of_deletes` and `changed_columns` name the options with which deletes have
    their key only, and rows before an update what changed. Values of `binary` messages are no text. `old_values` is
    what says whether the row before a change comes, where it may not: the table below [sink], the option, its default.
    """

    module: str
    order: Order = Order.COMMIT_TS
    by_connector: bool = False
    in_source_order: bool = False
    sends_again: bool = True
    clocked: bool = False
    bare_deletes: bool = False
    needs_keys: bool = False
    ddl_in_first: bool = False
    text_encodings: frozenset[str] = frozenset()
    numbered_members: bool = False
    tells_inserts: bool = True
    named_by_compatible: bool = False
    keys_of_deletes: tuple[str, ...] = ()
    changed_columns: tuple[str, ...] = ()
    binary: bool = False
    old_values: tuple[tuple[str, ...], str, bool] | None = None


OTHER_NAMES: Mapping[str, str] = {"default": "open-protocol", "flat-avro": "avro"}
"""What TiCDC calls protocols of topics in older sink URIs, too."""

_KEYS_OF_DELETES = ("delete-only-output-handle-key-columns",)
_CHANGED_COLUMNS = ("only-output-updated-columns",)

PROTOCOLS: Mapping[str, MessageProtocol] = {
    "avro": MessageProtocol(
        module="cdc_assets.formats.avro",
        order=Order.OFFSET,
        bare_deletes=True,
        tells_inserts=False,
        binary=True,
        old_values=(("kafka-config", "codec-config"), "avro-include-before-value", False),
    ),
    "canal-json": MessageProtocol(
        module="cdc_assets.formats.canal_json.messages",
        order=Order.EXTENSION,
        clocked=True,
        ddl_in_first=True,
        text_encodings=frozenset({"json", "avro"}),
        numbered_members=True,
        named_by_compatible=True,
        keys_of_deletes=_KEYS_OF_DELETES,
        changed_columns=(*_CHANGED_COLUMNS, "content-compatible"),
    ),
    "craft": MessageProtocol(
        module="cdc_assets.formats.craft.messages",
        numbered_members=True,
        keys_of_deletes=_KEYS_OF_DELETES,
        binary=True,
    ),
    "debezium": MessageProtocol(
        module="cdc_assets.formats.debezium_json.messages",
        order=Order.EXTENSION,
        old_values=(("debezium",), "output-old-value", True),
    ),
    "debezium-json": MessageProtocol(
        module="cdc_assets.formats.debezium_json.connectors",
        order=Order.OFFSET,
        by_connector=True,
        in_source_order=True,
    ),
    "open-protocol": MessageProtocol(
        module="cdc_assets.formats.open_protocol",
        needs_keys=True,
        numbered_members=True,
        keys_of_deletes=_KEYS_OF_DELETES,
        changed_columns=_CHANGED_COLUMNS,
        old_values=(("open",), "output-old-value", True),
    ),
    "simple": MessageProtocol(module="cdc_assets.formats.simple", text_encodings=frozenset({"json"})),
    "ydb-json": MessageProtocol(
        module="cdc_assets.formats.ydb_json", order=Order.OFFSET, sends_again=False, tells_inserts=False
    ),
}
"""Protocol of messages, as in a sink URI -> what is known of it: the table of plugs."""


CONNECTOR_MODES: Mapping[str, tuple[str, ...]] = {
    "decimal.handling.mode": ("precise", "double", "string"),
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"),
    "bigint.unsigned.handling.mode": ("long", "precise"),
    "interval.handling.mode": ("numeric", "string"),
    "time.precision.mode": (
        *("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
        "structured",
    ),
    "unavailable.value.placeholder": (),
    "event.converting.failure.handling.mode": (),
    "value.converter.replace.null.with.default": ("true", "false"),
    "replica.identity.autoset.values": (),
}
"""Setting of a connector, or of its converter, that decides how rows are written -> its values, () for any."""


_O = TypeVar("_O", bound="MessageOptions")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """TiCDC's options of its message protocols, by TiCDC's names and with its defaults: the Wire of landed messages.

    `timezone` is the `--tz` of its server. `registry` are the schemas of a schema registry that messages name: by
    an id, which is a number (Confluent) or a UUID (Glue), the schema's text. `connector` are the settings of a
    connector that say how its values are written and what its snapshot has, by their own names. `patch_without_row` is
    the policy of that name: apply, hold or skip, "" for what the protocol does by itself. `column_selectors` say which
    columns the changefeed writes, `case_sensitive` how their names of tables are compared. Without `old_values` an
    update has no row before it. Of a `masked` feed nothing is said of what stands in a message.
    """

    format: ClassVar[str] = "landed"
    places: ClassVar[str] = "offsets"

    protocol: str
    enable_tidb_extension: bool = False
    content_compatible: bool = False
    only_output_updated_columns: bool = False
    delete_only_output_handle_key_columns: bool = False
    large_message_handle_option: str = "none"
    large_message_handle_compression: str = "none"
    claim_check_raw_value: bool = False
    encoding_format: str = "json"
    timezone: str = "UTC"
    registry: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    connector: tuple[tuple[str, str], ...] = ()
    patch_without_row: str = ""
    column_selectors: ColumnSelectors = ()
    case_sensitive: bool = False
    old_values: bool = True
    masked: bool = field(default=False, compare=False)

    @property
    def kind(self) -> MessageProtocol:
        """What is known of the protocol."""
        return PROTOCOLS[self.protocol]

    @property
    def commit_ts_option(self) -> str:
        """What makes messages carry a commit-ts, "" for a protocol in which none do."""
        return "enable-tidb-extension=true in the sink URI" if self.kind.order is Order.EXTENSION else ""

    @property
    def has_commit_ts(self) -> bool:
        """Return whether the place of a row is its commit-ts."""
        return not self.by_offset

    @property
    def has_positions(self) -> bool:
        """Return that windows can be cut: rows without a commit-ts got a position at landing."""
        return True

    @property
    def deletes_have_keys_only(self) -> bool:
        """Return whether a delete has the key columns only."""
        return self.delete_only_output_handle_key_columns

    @property
    def tells_inserts(self) -> bool:
        """Return whether the image of a new row differs from that of a changed one."""
        return self.kind.tells_inserts

    @property
    def cuts_large_rows(self) -> bool:
        """Return whether of a row that is larger than a message only its key comes, which is enough for a delete."""
        return self.large_message_handle_option == "handle-key-only"

    def for_table(self: _O, schema: TableSchema) -> _O:
        """Return the options by which the rows of one table are read: its deletes may have their key only."""
        if self.cuts_large_rows and schema.key:
            return replace(self, delete_only_output_handle_key_columns=True)
        return self

    @property
    def by_offset(self) -> bool:
        """Return whether the order of messages is that of their offsets, so that landing gives rows their positions.

        Else it is that of the commit-ts, which all of them have, and marks say through which one all are there.
        """
        order = self.kind.order
        return order is Order.OFFSET or (order is Order.EXTENSION and not self.enable_tidb_extension)

    @property
    def in_source_order(self) -> bool:
        """Return whether one writer sends all tables in the order of its log: what is above a position comes after it.

        TiCDC sends each table by itself.
        """
        return self.kind.in_source_order

    @property
    def sends_by_table(self) -> bool:
        """Return whether messages by offset are TiCDC's: each table's rows come by themselves, in no order with others.

        A DDL comes after all rows before it, and before all rows after it.
        """
        return self.by_offset and not self.in_source_order and self.sends_again

    @property
    def sends_again(self) -> bool:
        """Return whether a writer may send messages again after a restart. YDB writes each change once."""
        return self.kind.sends_again

    @property
    def has_bare_deletes(self) -> bool:
        """Return whether a delete has no time, so that its offset alone says what came before it."""
        return self.kind.bare_deletes

    @property
    def of_connector(self) -> bool:
        """Return whether a connector of Kafka Connect writes the messages."""
        return self.kind.by_connector

    @property
    def is_unordered(self) -> bool:
        """Return whether what comes twice can be taken for something new: positions are milliseconds."""
        return self.by_offset and self.kind.clocked

    @property
    def needs_keys(self) -> bool:
        """Return whether keys say what a message is about; others have none that matters."""
        return self.kind.needs_keys

    @property
    def is_text(self) -> bool:
        """Return whether a value is JSON on one line, and nothing before or after it."""
        return self.large_message_handle_compression == "none" and self.encoding_format in self.kind.text_encodings

    @property
    def members_are_numbers(self) -> bool:
        """Return whether ENUM and SET are written as numbers, whose names must come from the schema."""
        return self.kind.numbered_members and not (self.kind.named_by_compatible and self.content_compatible)

    @property
    def members_way(self) -> str:
        """What brings the names of members: TiCDC writes them into Canal-JSON alone."""
        given = "give its CREATE TABLE in the setting schemas (--schemas)"
        compatible = "set content-compatible = true in the changefeed, or "
        return f"{compatible}{given}" if self.kind.named_by_compatible else given

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings on which values may depend, by name; those of a connector that are not given are ""."""
        own = {"content-compatible": str(self.content_compatible).lower()} if self.kind.named_by_compatible else {}
        modes = dict.fromkeys(CONNECTOR_MODES, "") if self.of_connector else {}
        given = {name: value for name, value in self.connector if name in modes}
        return {"tz": self.timezone, **own, **modes, **given}

    def having(self: _O, settings: Mapping[str, str]) -> _O:
        """Return a copy with these values of `settings` (name -> text); unknown names are passed over."""
        now = {**self.settings, **{name: settings[name] for name in self.settings.keys() & settings.keys()}}
        given = {**dict(self.connector), **{name: value for name, value in now.items() if name in CONNECTOR_MODES}}
        return replace(
            self,
            timezone=now["tz"],
            content_compatible=now.get("content-compatible", str(self.content_compatible).lower()) == "true",
            connector=tuple(sorted((name, value) for name, value in given.items() if value)),
        )

    def read_by(self, column: Column) -> Mapping[str, object]:
        """Return what settings make of a column's values, as the protocol says."""
        settings: Mapping[str, object] = self.codec.read_by(column, self)
        return settings

    @property
    def codec(self) -> Any:
        """The functions of the protocol, as `messages.codec_of` gives them with their type."""
        return import_module(self.kind.module).CODEC


# --- masks ------------------------------------------------------------------------------------------------------------

NOT_SHOWN = "what was found is not shown, because values of its table are masked (setting privacy)"
OF_FORGOTTEN = "what was found is not shown, because it may be of a forgotten row"
"""Why the sentence on what does not fit says no value: of a masked table, and of one with keys that are kept out."""


def _masked(decoded: Decoded, schema: TableSchema) -> Decoded:
    """Return what a decoder made of a split by the masks of its columns: values, and the records that it refused."""
    if not schema.masked:
        return decoded
    import pyarrow as pa

    from cdc_assets.types.key_digests import masked_keys
    from cdc_assets.types.masks import masked_array

    changes = decoded.changes
    for column in schema.columns:
        if column.mask is None or column.name not in changes.column_names:
            continue
        place = changes.column_names.index(column.name)
        if column.in_lake is None:
            changes = _without(changes.remove_column(place), column.name)
            continue
        values = masked_array(changes.column(place), column)
        changes = changes.set_column(place, pa.field(column.name, values.type), values)
    tail = None if decoded.tail is None else replace(without_values(decoded.tail, schema), raw=decoded.tail.raw)
    rejects = tuple(
        replace(without_values(reject, schema), keys=masked_keys(reject.keys, schema)) for reject in decoded.rejects
    )
    return replace(decoded, changes=changes, rejects=rejects, tail=tail)


def _names(schemas: Iterable[TableSchema]) -> set[str]:
    """Return what columns may be called: another name in a record may be a value that damage has made one."""
    columns = (column for schema in schemas for column in schema.columns)
    return {name for column in columns for name in (column.name, column.source_name)}


def _without(changes: pa.Table, name: str) -> pa.Table:
    """Leave a column out of those that a change does not have; a change that has all others is a whole row."""
    import pyarrow as pa

    if UNCHANGED not in changes.column_names:
        return changes
    place = changes.column_names.index(UNCHANGED)
    lists = [
        None if row is None else [column for column in row if column != name] for row in changes[UNCHANGED].to_pylist()
    ]
    kind = changes.schema.field(place)
    return changes.set_column(place, kind, pa.array([row or None for row in lists], kind.type))


def without_values(reject: Reject, schema: TableSchema, not_shown: str = NOT_SHOWN) -> Reject:
    """Return a refused record without its bytes, and without what is said of its values; `not_shown` says why."""
    name = reject.column if reject.column in _names([schema]) else ""
    column = f' of column "{name}"' if name else ""
    return replace(reject, raw=b"", column=name, reason=f"a value{column} does not fit; {not_shown}")


def without_quotes(place: str, not_shown: str) -> str:
    """Return what is said of a file that cannot be decoded, where nothing of it may be repeated."""
    return (
        f"{place} cannot be decoded; {not_shown}. Check that the settings are those with which it was written (the "
        "sink URI, the changefeed TOML, schemas), and that it is as it was written."
    )


@contextmanager
def foreseen(meaning: Callable[[str], CdcError], quoted: bool = True) -> Iterator[None]:
    """Raise an error that nobody foresaw as the one that `meaning` makes of what can be said of it.

    That is its type and text; where the text may have a value that is to be shown nowhere (not `quoted`), its type,
    what the system says of it, and the place in this package, and no error that led to it is chained. An installation
    that lacks something is raised as it is.
    """
    try:
        yield
    except (CdcError, ImportError, MemoryError):
        raise
    except Exception as error:
        if quoted:
            raise meaning(f"{type(error).__name__}: {error}") from error
        system_message = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        raise meaning(f"{type(error).__name__}{system_message}{_place_of(error)}") from None


def _place_of(error: BaseException) -> str:
    """Return where in this package an error was raised, or what it called raised it."""
    package = Path(__file__).parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if package in file.parents:
            return f" in {file.relative_to(package.parent).as_posix()}, line {frame.lineno}"
    return ""


@contextmanager
def _concealing(path: str, schemas: Sequence[TableSchema]) -> Iterator[None]:
    """Raise errors that may repeat values of masked columns as MalformedData that says their place alone."""
    if not any(schema.masked for schema in schemas):
        yield
        return
    try:
        yield
        return
    except (ImportError, MemoryError):
        raise
    except MalformedData as error:
        where = {name: error.where[name] for name in ("line", "column") if error.where.get(name)}
        if where.get("column") not in _names(schemas):
            where.pop("column", None)
        shown = "".join(f" {name} {value}" for name, value in where.items())
    except CdcError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, its text may have a value
        where, shown = {}, f" ({type(error).__name__})"
    raise MalformedData(without_quotes(f"{path}{shown}", NOT_SHOWN), path=path, **where) from None


# --- questions to a format --------------------------------------------------------------------------------------------


def _plug(wire: Wire) -> Any:
    return import_module(INNER_FORMATS.get(wire.format) or f"{FORMATS[wire.format]}.decode")


def decode(wire: Wire, data: Content, path: str, table: TableId, schema: TableSchema) -> Decoded:
    """Return the changes in a split by the masks of `schema`, whose columns its rows must have, and the name `table`.

    Nobody else asks a format for rows, so no value of a masked column is seen by anything but its decoder. `path` is
    for messages. Raises MalformedData where nothing of the file can be trusted: another column count than the
    schema, another table's rows, options that its bytes contradict.
    """
    with _concealing(path, [schema]):
        decoded: Decoded = _plug(wire).decode(data, path, table, schema, wire)
        return _masked(decoded, schema)


def decode_among(
    wire: Wire, data: Content, path: str, tables: Sequence[tuple[TableId, TableSchema]]
) -> tuple[TableId, Decoded]:
    """Return whose rows a split has among tables, and its changes.

    Raises MalformedData of the first table where the split is of none of them, or has rows of several.
    """
    first: MalformedData | None = None
    with _concealing(path, [schema for _, schema in tables]):
        for table, schema in tables:
            try:
                return table, decode(wire, data, path, table, schema)
            except MalformedData as error:
                first = first or error
        assert first is not None
        raise first


def has_text(wire: Wire) -> bool:
    """Return whether values stand in records as texts, so that they can be looked for in their bytes."""
    return not isinstance(wire, MessageOptions) or not (wire.kind.binary or wire.encoding_format != "json")


def raw_records(wire: Wire, data: Content, lines: Collection[int] | None) -> dict[int, bytes]:
    """Cut records out of a split by their lines, as `decode` counts them; those not there are left out.

    All whole records for None.
    """
    records: dict[int, bytes] = _plug(wire).raw_records(data, lines, wire)
    return records


def record_places(wire: Wire, data: Content, lines: Collection[int]) -> dict[int, str]:
    """Return the messages in which records came, by their lines: topic, partition, offset. Those of files have none."""
    places: dict[int, str] = {}
    if wire.format in INNER_FORMATS:
        places = _plug(wire).record_places(data, lines)
    return places


def commit_stamps(wire: Wire, data: Content) -> list[Tso | None]:
    """Return the commit-ts of each record of a split, also where its columns are not known.

    None stands for one that cannot be read, and for what follows the last whole record.
    """
    stamps: list[Tso | None] = _plug(wire).commit_stamps(data, wire)
    return stamps


def record_beginning(wire: Wire, raw: bytes) -> bytes:
    """Return what a record, whole or cut off, has in common with its copies from the start."""
    beginning: bytes = _plug(wire).record_beginning(raw)
    return beginning


def record_identity(wire: Wire, raw: bytes) -> object:
    """Return what is equal for copies of one record, however often it is written."""
    identity: object = _plug(wire).record_identity(raw)
    return identity


def extension(wire: Wire) -> str:
    """Return how names of this format's files end, with the dot."""
    return str(_plug(wire).EXTENSION)


def file_expansion(wire: Wire) -> int:
    """Return how many bytes of a file become one in memory."""
    return int(_plug(wire).FILE_EXPANSION)
