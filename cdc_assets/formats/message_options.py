"""How the messages of a topic were written."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["MessageOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """TiCDC's options of its message protocols, by TiCDC's names and with its defaults.

    `timezone` is the `--tz` of its server. `registry` are the schemas of a schema registry that messages name: an id,
    which is a number (Confluent) or a UUID (Glue), and the schema's text.
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
    registry: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def needs_keys(self) -> bool:
        """Tell whether keys say what a message is about; others have none that matters."""
        return self.protocol == "open-protocol"

    @property
    def is_text(self) -> bool:
        """Tell whether a value is JSON on one line, and nothing before or after it."""
        plain = self.large_message_handle_compression == "none"
        return plain and (
            self.protocol == "canal-json" or (self.protocol == "simple" and self.encoding_format == "json")
        )
