"""Find the tables that a changefeed replicates, by its TOML. Of any other table a dump has rows that nothing would ever
change.

TiCDC's defaults: every table but those of its own and TiDB's system databases (`tiflow:pkg/filter/utils.go`), and with
`force-replicate` off only tables with a PRIMARY KEY or a UNIQUE key of NOT NULL columns.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from cdc_assets.errors import BadSettings
from cdc_assets.io.storage_uri import truth
from cdc_assets.model.schema import TableId
from cdc_assets.model.table_filter import ColumnSelectors, decided, hidden_columns
from cdc_assets.sources.changefeed_toml import column_selectors, document, table

_SYSTEM = frozenset(
    ("information_schema", "performance_schema", "inspection_schema", "metrics_schema", "mysql", "sys", "tidb_cdc",
     "lightning_task_info", "workload_schema")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReplicatedTables:
    """The tables of a changefeed: by `filter.rules`, () for all. `keyless` is `force-replicate`, None if not given.

    `selectors` are (tables, columns) of which some are left out, `filtered` the tables whose events are filtered.
    """

    rules: tuple[str, ...] = ()
    case_sensitive: bool = False
    keyless: bool | None = None
    selectors: ColumnSelectors = ()
    filtered: tuple[tuple[str, ...], ...] = ()

    def names(self, name: TableId) -> bool:
        """Return whether the filter includes a table."""
        if name.schema.lower() in _SYSTEM:
            return False
        return not self.rules or decided(self.rules, (name.schema, name.table), self.case_sensitive)

    def has_column(self, name: TableId, column: str) -> bool:
        """Return whether a column is among those that are sent."""
        return not hidden_columns(self.selectors, (name.schema, name.table), [column], self.case_sensitive)

    def filters_events(self, name: TableId) -> bool:
        """Return whether some changes of a table may be left out."""
        return any(decided(tables, (name.schema, name.table), self.case_sensitive) for tables in self.filtered)


def replicated(changefeed_config: str | os.PathLike[str] | None) -> ReplicatedTables:
    """Return the tables of the changefeed with this TOML; raises BadSettings where that cannot be read.

    Rules that are in a file of TiCDC's server (`@file`) are not known here: all tables may be replicated then.
    """
    config = document(changefeed_config)
    rules = table(config, "filter").get("rules", [])
    if not isinstance(rules, list):
        raise BadSettings(f'changefeed TOML: `filter.rules` is {rules!r}; expected a list such as ["shop.*"].')
    texts = tuple(text for rule in rules if (text := str(rule).strip()) and not text.startswith("#"))
    force = config.get("force-replicate")
    return ReplicatedTables(
        () if any(text.startswith("@") for text in texts) else texts,
        truth("case-sensitive", config.get("case-sensitive", False)),
        None if force is None else truth("force-replicate", force),
        column_selectors(config),
        tuple(
            tuple(event_filter.get("matcher", ())) for event_filter in table(config, "filter").get("event-filters", ())
        ),
    )
