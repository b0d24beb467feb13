"""What is landed of topics, by changefeed. Reads the lake and the ledger, without a JVM."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from cdc_assets.errors import CdcError
from cdc_assets.operations.opening import read_ledger

if TYPE_CHECKING:
    from cdc_assets.ledger import Ledger
    from cdc_assets.model.offsets import Partition
    from cdc_assets.model.schema import TableId
    from cdc_assets.model.tso import Tso
    from cdc_assets.report.landings import LandingText
    from cdc_assets.report.tables import TableStatus
    from cdc_assets.settings.config import ChangefeedSettings
    from cdc_assets.settings.lake import LakeSettings


def applied_through(ledger: Ledger, changefeed: str) -> dict[TableId, Tso]:
    """Return through which TSO each table of a changefeed is applied, dropped ones included."""
    positions: dict[TableId, Tso] = {}
    for state in ledger.states().get(changefeed, ()):
        positions[state.name] = max(state.through, positions.get(state.name, 0))
    return positions


def landing_status(
    lake: LakeSettings, tables: Sequence[TableStatus], feeds: Mapping[str, ChangefeedSettings] | None = None
) -> list[LandingText]:
    """Return what is landed of every changefeed of the lake that reads topics.

    `tables` are those of the lake (`lake_status`): they tell why landed messages are kept. Of the changefeeds in
    `feeds` the ends of the log are asked now; where they cannot be, they are as of the newest landing.
    """
    from cdc_assets.lake.catalogs.catalog import LazyCatalog, names
    from cdc_assets.lake.names import OwnNamespaces

    own = OwnNamespaces(lake.namespaces).landing
    with closing(LazyCatalog(lake)) as catalog:
        landed = sorted(name for *namespace, name in names(catalog.open()) if namespace == [own])
    if not landed:  # to read a landing costs half a second of imports
        return []
    return _described(lake, landed, tables, feeds or {})


def _described(
    lake: LakeSettings, landed: list[str], tables: Sequence[TableStatus], feeds: Mapping[str, ChangefeedSettings]
) -> list[LandingText]:
    from cdc_assets.landing.iceberg import LandingTable
    from cdc_assets.landing.landing import landed_in
    from cdc_assets.landing.retention import Retention, bytes_kept
    from cdc_assets.operations.landing_needs import recorded_needs
    from cdc_assets.report.landings import describe_landing

    landings = []
    with read_ledger(lake) as ledger:
        for name in landed:
            with closing(LandingTable(lake, name)) as landing:
                known = landed_in(landing)
            settings = feeds.get(name)
            chosen = None if settings is None else Retention.of(settings.landing.keep, settings.landing.days)
            needs = recorded_needs([table for table in tables if table.changefeed == name], known)
            kept = bytes_kept(known, needs, chosen, int(time.time() * 1000))
            landings.append(describe_landing(name, known, applied_through(ledger, name), _ends_now(settings), kept))
    return landings


def _ends_now(settings: ChangefeedSettings | None) -> dict[Partition, int] | None:
    from cdc_assets.landing.opening import log_ends

    if settings is None or not settings.source_options.is_landed:
        return None
    try:
        return {partition: end.high for partition, end in log_ends(settings).items()}
    except CdcError:
        return None
