"""How TiCDC's storage sink writes rows and paths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from cdc_assets.formats import Wire, tells_new_rows, wire_class
from cdc_assets.model.schema import TableId
from cdc_assets.sources.changefeed_toml import EventFilter, hides_inserts


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What decides how rows and paths are written: the sink URI's parameters and the changefeed TOML, TiCDC's defaults.

    `wire` has the options of rows, those of paths follow TiCDC's names. `uri` is the sink URI without parameters and
    login, `location` fsspec's protocol and the path of the prefix. `misspelt` are parameters of the sink URI that
    nobody knows, each with the one that it resembles.
    """

    kind: ClassVar[str] = "storage_sink"
    is_landed: ClassVar[bool] = False

    wire: Wire = field(default_factory=lambda: wire_class("csv")())
    output_raw_change_event: bool = False
    date_separator: str = "day"
    enable_partition_separator: bool = True
    use_table_id_as_path: bool = False
    file_expiration_days: int = 0
    event_filters: tuple[EventFilter, ...] = ()
    misspelt: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    uri: str = field(default="", compare=False)
    location: tuple[str, str] = field(default=("file", ""), compare=False)

    @property
    def store(self) -> str:
        """The fsspec protocol of the bucket."""
        return self.location[0]

    @property
    def protocol(self) -> str:
        """How rows are written, by TiCDC's name of it."""
        return self.wire.format

    @property
    def writer(self) -> str:
        """TiCDC: nobody else writes such files."""
        return "TiCDC"

    @property
    def retention_days(self) -> int:
        """After how many days TiCDC deletes files, 0 for never."""
        return self.file_expiration_days

    def captures(self, table: TableId) -> bool | None:
        """Return None: a changefeed has rules of a filter, and no lists of tables."""
        return None

    def has_inserts(self, table: TableId) -> bool:
        """Return whether a change of a row of a table means that the feed has its insert, too, and has it once."""
        leaves_old_keys = self.output_raw_change_event and self.wire.deletes_have_keys_only
        return tells_new_rows(self.wire) and not leaves_old_keys and not hides_inserts(self.event_filters, table)
