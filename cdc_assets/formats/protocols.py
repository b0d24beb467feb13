"""Protocols of topics: what a message of each says, and the options that decide how it was written."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.table_filter import ColumnSelectors

if TYPE_CHECKING:
    pass


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
