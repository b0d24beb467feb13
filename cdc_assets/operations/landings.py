"""Landed messages of topics, and the lake's need for them.

landing_needs   what maintenance goes by
recorded_needs  what is shown of that, as far as the status of tables tells
taken_through   through which position the tables of a name have taken its rows
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from cdc_assets.errors import CdcError
from cdc_assets.landing.retention import Needs, TableNeed
from cdc_assets.model.features import hooks
from cdc_assets.model.offsets import Partition
from cdc_assets.model.progress import AppliedState, Life, Phase, source_of
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import HoldTable
from cdc_assets.model.tso import Tso
from cdc_assets.operations.opening import read_ledger

if TYPE_CHECKING:
    from cdc_assets.landing.landing import Landing
    from cdc_assets.ledger import Ledger
    from cdc_assets.model.landed import Landed
    from cdc_assets.model.table_history import TableHistory
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan
    from cdc_assets.report.landings import LandingText
    from cdc_assets.report.tables import TableStatus
    from cdc_assets.settings.config import ChangefeedSettings
    from cdc_assets.settings.lake import LakeSettings

HELD = "its table is held"
SET_ASIDE = "its table has records in quarantine"
UNDECIDED = "a message of its table waits for a decision"
INCOMPLETE = "its table is incomplete"
UNNAMED = "a message that cannot be read names no table"
WITHOUT_KEY = "its table has no key, and a connector may send its rows again"
REBUILDING = "a rebuild is running"


def landing_needs(pipeline: Pipeline, landing: Landing, planned: Plan, *, rebuilding: bool = False) -> Needs:
    """Return the positions of landed rows of a table that are needed, by the name under which they were landed.

    The ledger only adds tables that a run has found to be held.
    """
    landed = landing.landed()
    needs = _wanted(pipeline, planned)
    open_events = (*landed.open_bad, *landed.open_late)
    undecided = {event.table.folded for event in open_events if event.table is not None}
    unnamed = any(event.table is None for event in open_events)
    resends = landing.options.by_offset
    behind = landing.names_behind()

    @functools.cache
    def need(written: TableId) -> TableNeed:
        names = tuple(behind(written))
        tables = [table for name in names for table in _named(planned, name)]
        return TableNeed(
            min((taken_through(name, planned, planned.applied) for name in names), default=0),
            REBUILDING
            if rebuilding
            else UNDECIDED
            if any(name.folded in undecided for name in names)
            else next((needs[table.life.source] for table in tables if table.life.source in needs), ""),
            UNNAMED
            if unnamed
            else INCOMPLETE
            if any(table.gap is not None and not table.gap.accepted for table in tables)
            else "",
            WITHOUT_KEY if resends and any(not table.schema.key for table in tables) else "",
        )

    return need


def recorded_needs(states: Sequence[TableStatus], landed: Landed) -> Needs:
    """Return the landed rows that are needed as far as the status of tables tells, without a plan.

    A name that no table has now counts as far as the least table is applied.
    """
    undecided = {event.table.folded for event in (*landed.open_bad, *landed.open_late) if event.table is not None}
    by_name: dict[str, list[TableStatus]] = {}
    for state in states:
        by_name.setdefault(state.table.lower(), []).append(state)

    @functools.cache
    def need(written: TableId) -> TableNeed:
        lives = by_name.get(str(written).lower(), [])
        alarms = {name for state in lives for name, count in state.alarms.items() if count}
        needs = {
            UNDECIDED: written.folded in undecided,
            HELD: any(state.state.stopped for state in lives),
            SET_ASIDE: "quarantined_records" in alarms,
        }
        through = min((state.through for state in lives or states), default=0)
        lacks = INCOMPLETE if "incomplete" in alarms else ""
        return TableNeed(through, next((reason for reason, stays in needs.items() if stays), ""), lacks)

    return need


def _wanted(pipeline: Pipeline, planned: Plan) -> Mapping[Life, str]:
    """Return the tables of the source of which all rows stay, each with the reason.

    A table that exchanged rows with such a one is among them: a rebuild of one reads both.
    """
    stopped = {
        source_of(state.life)
        for state in pipeline.ledger.states().get(pipeline.settings.name, ())
        if state.state.stopped
    }
    needs = {life.source: HELD for life in planned.history.lives if str(life.source) in stopped}
    needs |= {step.life.source: HELD for step in planned.steps if isinstance(step, HoldTable)}
    for _, read_again in hooks("operations", "read_again"):
        needs = {**dict.fromkeys(read_again(pipeline), SET_ASIDE), **needs}
    partners = dict[Life, set[Life]]()
    for life, table in planned.history.lives.items():
        for _, other in table.exchanges:
            partners.setdefault(life.source, set()).add(other.source)
            partners.setdefault(other.source, set()).add(life.source)
    around = list(needs)
    while around:
        life = around.pop()
        for partner in partners.get(life, ()):
            if partner not in needs:
                needs[partner] = needs[life]
                around.append(partner)
    return needs


def _named(planned: Plan, table: TableId) -> list[TableHistory]:
    """Return the tables that ever had a name."""
    lives = planned.history.lives.values()
    return [life_named for life_named in lives if any(name.folded == table.folded for name, _, _ in life_named.names)]


def taken_through(table: TableId, planned: Plan, applied: Mapping[Life, AppliedState]) -> Tso:
    """Return through which position all tables that had a name have taken its rows.

    Rows above the checkpoint may be of a table of that name that nothing is known of yet. A table that the settings
    leave out takes none. Where a table stands at a DDL, rows at that very position may still be to come.
    """
    positions: list[Tso] = []
    feed = planned.feed or planned.history
    for life, held in planned.history.lives.items():
        for name, _, until in held.names:
            if name.folded == table.folded:
                state = applied.get(life)
                progress = None if state is None else state.progress
                if progress is None:
                    positions.append(0)
                elif progress.tso < until:
                    positions.append(progress.tso - (progress.phase is not Phase.ROWS))
    is_known = any(name.folded == table.folded for held in feed.lives.values() for name, _, _ in held.names)
    return min(positions, default=planned.checkpoint if is_known else 0)


def applied_through(ledger: Ledger, changefeed: str) -> dict[TableId, Tso]:
    """Return through which TSO each table of a changefeed is applied, dropped ones included."""
    positions: dict[TableId, Tso] = {}
    for state in ledger.states().get(changefeed, ()):
        positions[state.name] = max(state.through, positions.get(state.name, 0))
    return positions


def landing_status(
    lake: LakeSettings, tables: Sequence[TableStatus], feeds: Mapping[str, ChangefeedSettings] | None = None
) -> list[LandingText]:
    """Return the landing of every changefeed of the lake that reads topics.

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
    from cdc_assets.landing.iceberg import LandingTable
    from cdc_assets.landing.landing import landed_in
    from cdc_assets.landing.retention import Retention, bytes_kept
    from cdc_assets.report.landings import describe_landing

    landings = []
    with read_ledger(lake) as ledger:
        for name in landed:
            with closing(LandingTable(lake, name)) as landing:
                landed_state = landed_in(landing)
            settings = (feeds or {}).get(name)
            chosen = None if settings is None else Retention.of(settings.landing.keep, settings.landing.days)
            needs = recorded_needs([table for table in tables if table.changefeed == name], landed_state)
            kept_bytes = bytes_kept(landed_state, needs, chosen, int(time.time() * 1000))
            landings.append(
                describe_landing(name, landed_state, applied_through(ledger, name), _ends_now(settings), kept_bytes)
            )
    return landings


def _ends_now(settings: ChangefeedSettings | None) -> dict[Partition, int] | None:
    from cdc_assets.landing.opening import log_ends

    if settings is None or not settings.source_options.is_landed:
        return None
    try:
        return {partition: end.high for partition, end in log_ends(settings).items()}
    except CdcError:
        return None
