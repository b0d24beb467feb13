"""Protocols of topics: the table of them, and what is known of each without reading a message."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Order(enum.Enum):
    """The value that orders the messages of a protocol."""

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
"""Other names of TiCDC's topic protocols in older sink URIs."""
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
