"""Wire formats: bytes of one data file -> one Arrow table of changes. Runs on Spark executors: no JVM, no Dagster.

A decoder returns `Decoded`: a table of changes whose shape does not depend on the format (see `decoded`), and what
does not fit. Values of masked columns are masked right after they are decoded, here and nowhere else.

Plugs stand in the tables below and in `protocols`. What several of them have in common:

    decoded           the columns that every decoder returns
    protocols         protocols of topics, and what is known of each
    dialect           delimited text: where its records end, how they are cut into fields
    changes           row images and the values of their columns -> changes, with what does not fit
    members           members of ENUM and SET by their numbers
    redaction         texts about rows without their values
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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar, Protocol, TypeVar

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.features.masks.formats import mask_values
from cdc_assets.formats.decoded import Content, Decoded
from cdc_assets.formats.protocols import CONNECTOR_MODES, PROTOCOLS, MessageProtocol, Order
from cdc_assets.formats.redaction import conceal_errors
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.table_filter import ColumnSelectors
from cdc_assets.model.tso import Tso

__all__ = [
    "FORMATS",
    "INNER_FORMATS",
    "MessageOptions",
    "ReadRange",
    "SinkWire",
    "SplitReader",
    "UniformReader",
    "Wire",
    "conceal_blocks",
    "decode",
    "decode_among",
    "decode_together",
    "extension",
    "file_expansion",
    "has_text",
    "raw_records",
    "record_beginning",
    "record_identity",
    "record_places",
    "tells_new_rows",
    "wire_class",
]


class Wire(Protocol):
    """The options of one wire format: how the bytes of a split were written. Frozen, small and picklable."""

    format: ClassVar[str]
    """Name of the format, a key of FORMATS."""

    @property
    def commit_ts_option(self) -> str:
        """The setting of the source that makes rows carry their commit-ts; "" if there is none."""

    @property
    def places(self) -> str:
        """The unit that orders rows without commit-ts: files, or offsets."""

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
        """Advice for the case that those names are missing, beside a CREATE TABLE in the feed."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings on which values may depend, by the names that a person gives them."""

    def having(self, settings: Mapping[str, str]) -> Wire:
        """Return a copy with these values of `settings` (name -> text); unknown names are passed over."""

    def read_by(self, column: Column) -> Mapping[str, object]:
        """Return the settings that decide a column's values, by name: equal where they give equal values."""


def tells_new_rows(wire: Wire) -> bool:
    """Return whether a row image says whether its row is new: updates differ from inserts, and repeats are known."""
    return wire.tells_inserts and not wire.is_unordered


def way_to_commit_ts(wire: Wire) -> str:
    """Return the way to let rows carry a commit-ts, as a sentence that another way may follow."""
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
        """The reason why TiCDC refuses these options; "" if it does not."""


_O = TypeVar("_O", bound="MessageOptions")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """TiCDC's options of its message protocols, by TiCDC's names and with its defaults: the Wire of landed messages.

    `timezone` is the `--tz` of its server. `registry` are the schemas of a schema registry that messages name: by
    an id, which is a number (Confluent) or a UUID (Glue), the schema's text. `connector` are the settings of a
    connector that say how its values are written and what its snapshot has, by their own names. `patch_without_row` is
    the policy of that name: apply, hold or skip, "" for what the protocol does by itself. `column_selectors` say which
    columns the changefeed writes, `case_sensitive` how their names of tables are compared. Without `old_values` an
    update has no row before it. Of a `confidential` feed nothing is said of what stands in a message.
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
    confidential: bool = field(default=False, compare=False)

    @property
    def kind(self) -> MessageProtocol:
        """The row of the table of protocols for this protocol."""
        return PROTOCOLS[self.protocol]

    @property
    def commit_ts_option(self) -> str:
        """The setting that makes messages carry a commit-ts; "" for a protocol that never does."""
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
    def landed_by(self) -> str:
        """The parameters of the sink URI that decide what a message is and which positions its rows have."""
        extension = self.kind.order is Order.EXTENSION and not self.by_offset
        return f"protocol={self.protocol}{'&enable-tidb-extension=true' if extension else ''}"

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
        """Advice on how to get the names of members: TiCDC writes them into Canal-JSON alone."""
        create_table = "give its CREATE TABLE in the setting schemas (--schemas)"
        compatible = "set content-compatible = true in the changefeed, or "
        return f"{compatible}{create_table}" if self.kind.named_by_compatible else create_table

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings on which values may depend, by name; those of a connector that are not given are ""."""
        own = {"content-compatible": str(self.content_compatible).lower()} if self.kind.named_by_compatible else {}
        modes = dict.fromkeys(CONNECTOR_MODES, "") if self.of_connector else {}
        own_modes = {name: value for name, value in self.connector if name in modes}
        return {"tz": self.timezone, **own, **modes, **own_modes}

    def having(self: _O, settings: Mapping[str, str]) -> _O:
        """Return a copy with these values of `settings` (name -> text); unknown names are passed over."""
        now = {**self.settings, **{name: settings[name] for name in self.settings.keys() & settings.keys()}}
        connector = {**dict(self.connector), **{name: value for name, value in now.items() if name in CONNECTOR_MODES}}
        return replace(
            self,
            timezone=now["tz"],
            content_compatible=now.get("content-compatible", str(self.content_compatible).lower()) == "true",
            connector=tuple(sorted((name, value) for name, value in connector.items() if value)),
        )

    def read_by(self, column: Column) -> Mapping[str, object]:
        """Return the settings that decide a column's values, as the protocol says."""
        settings: Mapping[str, object] = self.codec.read_by(column, self)
        return settings

    @property
    def codec(self) -> Any:
        """The functions of the protocol, as `messages.codec_of` gives them with their type."""
        return import_module(self.kind.module).CODEC


ReadRange = Callable[[int, int], bytes]
"""(start, end) -> the bytes of a file from start to before end, fewer where the file ends."""


class SplitReader(Protocol):
    """Reads splits wherever a task runs: picklable. Paths are those of the listing."""

    def read(self, path: str) -> Content:
        """Return the contents of a split; raises InputError when it is gone."""

    def wire(self, path: str) -> Wire:
        """Return the wire format of a split."""


@dataclass(frozen=True, slots=True)
class UniformReader:
    """A reader of splits that were all written in one way."""

    options: Wire
    fetch: Callable[[str], bytes]

    def read(self, path: str) -> bytes:
        """Return the bytes of a split."""
        return self.fetch(path)

    def wire(self, path: str) -> Wire:
        """Return the wire format of every split."""
        return self.options


FORMATS: dict[str, str] = {"csv": "cdc_assets.formats.csv", "canal-json": "cdc_assets.formats.canal_json"}
"""Name of a format, as in a sink URI -> its folder, which has the modules `options` and `decode`.

`options.OPTIONS` is its SinkWire. `decode` has `decode`, `raw_records`, `record_beginning`,
`record_identity`, EXTENSION and FILE_EXPANSION.
"""

INNER_FORMATS: Mapping[str, str] = {"landed": "cdc_assets.formats.landed"}
"""Framings of splits that sources make themselves, which no sink URI names -> module with their `decode`.

Beside what that of a format has it has `record_places`, `merged` and `parted`.
"""


def wire_class(name: str) -> type[SinkWire]:
    """Return the options of a format; raises BadSettings that lists the known ones."""
    if name not in FORMATS:
        raise BadSettings(
            f'protocol "{name}" cannot be read; known are {", ".join(sorted(FORMATS))}. '
            "Give the sink URI exactly as TiCDC has it, with its protocol parameter."
        )
    options_type: type[SinkWire] = import_module(f"{FORMATS[name]}.options").OPTIONS
    return options_type


# --- messages of topics -----------------------------------------------------------------------------------------------


# --- masks ------------------------------------------------------------------------------------------------------------


# --- questions to a format --------------------------------------------------------------------------------------------


def _plug(wire: Wire) -> Any:
    return import_module(INNER_FORMATS.get(wire.format) or f"{FORMATS[wire.format]}.decode")


def decode(wire: Wire, data: Content, path: str, table: TableId, schema: TableSchema) -> Decoded:
    """Return the changes in a split by the masks of `schema`, whose columns its rows must have, and the name `table`.

    Nobody else asks a format for rows, so no value of a masked column is seen by anything but its decoder. `path` is
    for messages. Raises MalformedData where nothing of the file can be trusted: another column count than the
    schema, another table's rows, options that its bytes contradict.
    """
    decode_file: Callable[..., Decoded] = _plug(wire).decode
    if not schema.confidential:
        return decode_file(data, path, table, schema, wire)
    with conceal_errors(path, [schema]):
        return mask_values(decode_file(data, path, table, schema, wire), schema)


def conceal_blocks(blocks: Iterable[Decoded], path: str, schema: TableSchema) -> Iterator[Decoded]:
    """Yield rows of a source that is no feed, block by block, as the schema's masks have them.

    Raises MalformedData, with nothing of what stands at `path`, where the source does.
    """
    if not schema.confidential:
        yield from blocks
        return
    with conceal_errors(path, [schema]):
        for block in blocks:
            yield mask_values(block, schema)


def decode_among(
    wire: Wire, data: Content, path: str, tables: Sequence[tuple[TableId, TableSchema]]
) -> tuple[TableId, Decoded]:
    """Return whose rows a split has among tables, and its changes.

    Raises MalformedData of the first table where the split is of none of them, or has rows of several.
    """
    first: MalformedData | None = None
    schemas = [schema for _, schema in tables]
    with conceal_errors(path, schemas) if any(schema.confidential for schema in schemas) else nullcontext():
        for table, schema in tables:
            try:
                return table, decode(wire, data, path, table, schema)
            except MalformedData as error:
                first = first or error
        assert first is not None
        raise first


def decode_together(wire: Wire, splits: Sequence[Content], table: TableId, schema: TableSchema) -> list[Decoded]:
    """Return the changes of each of several splits of messages, decoded at once; [] where each has to be by itself.

    A decoding costs as much for ten rows as for a thousand. Rejects and notes are of one split. Raises what `decode`
    raises, whichever split it is about.
    """
    plug = _plug(wire)
    decoded = decode(wire, plug.merged(splits), "", table, schema)
    parts: list[Decoded] = [] if decoded.rejects or decoded.notes else plug.parted(decoded, splits)
    return parts


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
    """Return the beginning that a record, whole or cut off, has in common with its copies."""
    beginning: bytes = _plug(wire).record_beginning(raw)
    return beginning


def record_identity(wire: Wire, raw: bytes) -> object:
    """Return an identity that is equal for copies of one record, however often it is written."""
    identity: object = _plug(wire).record_identity(raw)
    return identity


def extension(wire: Wire) -> str:
    """Return the extension of this format's files, with the dot."""
    return str(_plug(wire).EXTENSION)


def file_expansion(wire: Wire) -> int:
    """Return the number of bytes of a file that become one in memory."""
    return int(_plug(wire).FILE_EXPANSION)
