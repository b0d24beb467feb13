"""People's decisions, kept where the tables are: properties of the lake's own namespace.

cdc.release.…   what people decided about single DDL (`history.releases`)
cdc.complete.…  which tables people said to have had no rows before the changefeed (`history.completeness`)
cdc.settings.…  from when on people said that settings are in force (`planning.value_settings`)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_assets.lake import release_properties as kept
from cdc_assets.lake.namespaces import own_properties, remove_own_properties, set_own_properties
from cdc_assets.model.gaps import Completed
from cdc_assets.model.progress import Life
from cdc_assets.model.releases import Release, Releases
from cdc_assets.model.settings_changes import SettingsChange
from cdc_assets.model.tso import Tso

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

__all__ = ["Decisions"]


@dataclass(frozen=True)
class Decisions:
    """The decisions about one changefeed. `catalog` opens the catalog on first use, `own` is the lake's namespace."""

    catalog: Callable[[], Catalog]
    changefeed: str
    own: str

    def releases(self) -> Releases:
        """Return the releases of this changefeed: one query."""
        return kept.parse_properties(own_properties(self.catalog(), self.own), self.changefeed)

    def release(self, release: Release) -> None:
        """Store a release in one update, in place of an earlier one about the same DDL."""
        catalog = self.catalog()
        old = kept.property_names(own_properties(catalog, self.own), self.changefeed, release.life, release.version)
        set_own_properties(catalog, self.own, kept.format_properties(self.changefeed, release), old)

    def unrelease(self, life: Life, version: Tso) -> None:
        """Remove a release."""
        catalog = self.catalog()
        remove_own_properties(
            catalog, self.own, kept.property_names(own_properties(catalog, self.own), self.changefeed, life, version)
        )

    def said_complete(self) -> tuple[Completed, ...]:
        """Return which tables people said to have had no rows before, by time: one query."""
        return kept.parse_complete(own_properties(self.catalog(), self.own), self.changefeed)

    def say_complete(self, one: Completed) -> None:
        """Store in one update that tables had no rows before, in place of an earlier entry of the same pattern."""
        catalog = self.catalog()
        old = kept.complete_names(own_properties(catalog, self.own), self.changefeed, one.pattern)
        set_own_properties(catalog, self.own, kept.format_complete(self.changefeed, one), old)

    def unsay_complete(self, pattern: str) -> None:
        """Remove the entry of a pattern."""
        catalog = self.catalog()
        remove_own_properties(
            catalog, self.own, kept.complete_names(own_properties(catalog, self.own), self.changefeed, pattern)
        )

    def settings_changes(self) -> tuple[SettingsChange, ...]:
        """Return from when on people said that settings are in force, by TSO: one query."""
        return kept.parse_settings_changes(own_properties(self.catalog(), self.own), self.changefeed)

    def change_settings(self, one: SettingsChange) -> None:
        """Store in one update that settings are in force from a TSO on, in place of an earlier entry of the same."""
        catalog = self.catalog()
        old = kept.settings_change_names(own_properties(catalog, self.own), self.changefeed, one.pattern, one.since)
        set_own_properties(catalog, self.own, kept.format_settings_change(self.changefeed, one), old)

    def unchange_settings(self, one: SettingsChange) -> None:
        """Remove an entry."""
        catalog = self.catalog()
        remove_own_properties(
            catalog,
            self.own,
            kept.settings_change_names(own_properties(catalog, self.own), self.changefeed, one.pattern, one.since),
        )
