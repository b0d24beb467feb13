"""How the messages of a topic were written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["CONNECTOR_PROTOCOLS", "MessageOptions"]

_BY_OFFSET = frozenset({"avro", "debezium-json", "ydb-json"})
_BY_EXTENSION = frozenset({"canal-json", "debezium"})
"""Protocols by offset always, and those of TiCDC that send marks with `enable-tidb-extension` only."""
_IN_SOURCE_ORDER = frozenset({"debezium-json"})
"""Protocols by offset of which one writer sends all tables in the order of its log."""
_ONCE = frozenset({"ydb-json"})
CONNECTOR_PROTOCOLS = frozenset({"debezium-json"})
"""Protocols of connectors of Kafka Connect, which have no changefeed TOML but a configuration of their own."""
_CLOCKED = frozenset({"canal-json"})
_BARE_DELETES = frozenset({"avro"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """TiCDC's options of its message protocols, by TiCDC's names and with its defaults.

    `timezone` is the `--tz` of its server. `registry` are the schemas of a schema registry that messages name: by
    an id, which is a number (Confluent) or a UUID (Glue), the schema's text. `connector` are the settings of a
    connector that say how its values are written, by their own names.
    """

    protocol: str
    enable_tidb_extension: bool = False
    content_compatible: bool = False
    only_output_updated_columns: bool = False
    delete_only_output_handle_key_columns: bool = False
    large_message_handle_compression: str = "none"
    claim_check_raw_value: bool = False
    encoding_format: str = "json"
    timezone: str = "UTC"
    registry: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    connector: tuple[tuple[str, str], ...] = ()

    @property
    def by_offset(self) -> bool:
        """Return whether the order of messages is that of their offsets, so that landing gives rows their positions.

        Else it is that of the commit-ts, which all of them have, and marks say through which one all are there.
        """
        return self.protocol in _BY_OFFSET or (self.protocol in _BY_EXTENSION and not self.enable_tidb_extension)

    @property
    def in_source_order(self) -> bool:
        """Return whether one writer sends all tables in the order of its log: what is above a position comes after it.

        TiCDC sends each table by itself.
        """
        return self.protocol in _IN_SOURCE_ORDER

    @property
    def sends_by_table(self) -> bool:
        """Return whether messages by offset are TiCDC's: each table's rows come by themselves, in no order with others.

        A DDL comes after all rows before it, and before all rows after it.
        """
        return self.by_offset and not self.in_source_order and self.sends_again

    @property
    def sends_again(self) -> bool:
        """Return whether a writer may send messages again after a restart. YDB writes each change once."""
        return self.protocol not in _ONCE

    @property
    def has_bare_deletes(self) -> bool:
        """Return whether a delete tells no time, so that its offset alone says what came before it."""
        return self.protocol in _BARE_DELETES

    @property
    def of_connector(self) -> bool:
        """Return whether a connector of Kafka Connect writes the messages."""
        return self.protocol in CONNECTOR_PROTOCOLS

    @property
    def is_unordered(self) -> bool:
        """Return whether what comes twice can be taken for something new: positions are milliseconds."""
        return self.by_offset and self.protocol in _CLOCKED

    @property
    def needs_keys(self) -> bool:
        """Return whether keys say what a message is about; others have none that matters."""
        return self.protocol == "open-protocol"

    @property
    def is_text(self) -> bool:
        """Return whether a value is JSON on one line, and nothing before or after it."""
        plain = self.large_message_handle_compression == "none"
        return plain and (
            self.protocol == "canal-json" or (self.protocol == "simple" and self.encoding_format == "json")
        )
