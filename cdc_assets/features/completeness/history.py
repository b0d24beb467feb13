"""Find tables that lack rows: those older than the feed that were not imported, and those whose messages expired
unread. Pure.

A table is complete by its CREATE, by a dump or a TRUNCATE, by a snapshot or a scan whose rows are among the feed's, or
because a person said that it had no rows before. TRUNCATE ends incompleteness, and so does DROP, since a later table of
that name is another one; but where a snapshot begins again the table is emptied to be filled anew. RENAME and RECOVER
keep it.
It begins with a RENAME from a name whose rows a connector leaves out, where they are not those of another table.
EXCHANGE PARTITION passes it on with the rows: the partitioned table has rows of both afterwards, the other one all that
were in the partition.

A table is no longer complete where a window proves that rows of it came past the feed (`MissingRows`), where a DDL is
of a tool that brings them so, or where it is decided that a DDL has another effect on rows than in the source.

Messages that were not read are no loss to a table that begins, is renamed to its name or is emptied where all that came
after is there, nor to one that had lost its name before them. A statement that tables are complete means what was gone
when the first part of the feed was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from cdc_assets import ddl
from cdc_assets.history.policies import Rules
from cdc_assets.model.gaps import MissedMessages, decided_text, is_complete, late_text, missed_text, missing_text
from cdc_assets.model.progress import Base, Filling, Gap, Lack, Life, MissingRows, Whole
from cdc_assets.model.schema import ByName, TableId
from cdc_assets.model.schema_changes import DeleteRows
from cdc_assets.model.table_history import Changed, Event, Exchanged, Held, History, Imported, Renamed, TableHistory
from cdc_assets.model.tso import FOREVER, Tso


def with_gaps(
    history: History,
    rules: Rules,
    missed: Mapping[TableId, Sequence[MissedMessages]] | None = None,
    missing: Mapping[Life, MissingRows] | None = None,
) -> History:
    """Return the history with the gaps of every life, by what people state of tables in the rules.

    `missed` are the messages of tables, by their names, that were not read. `missing` are the rows that windows proved
    to be missing.
    """
    patterns, lost, proven = rules.complete, ByName(missed or {}), dict(missing or {})
    now: dict[Life, Gap | Whole] = {}
    gaps: dict[Life, list[tuple[Tso, Gap | Whole]]] = {life: [] for life in history.lives}
    stopped: set[Life] = set()
    by_feed, shown = dict[Life, bool](), dict[Life, MissingRows]()
    ordered = sorted(
        (
            (event.at, life, event, until)
            for life, table in history.lives.items()
            for event, until in zip(table.events, [*(event.at for event in table.events[1:]), FOREVER], strict=True)
        ),
        key=lambda entry: entry[0],
    )

    def prove(until: Tso) -> None:
        """Let tables lack what windows before a version proved to be missing."""
        for life in [life for life in now.keys() & proven.keys() if proven[life].at < until]:
            lost_rows, base = proven.pop(life), history.lives[life].base
            if isinstance(_at(now[life], lost_rows.at), Gap) or (base is not None and lost_rows.at <= base.at):
                continue
            shown[life] = lost_rows
            if now[life] is not Whole.STATEMENT and not is_complete(life, patterns):
                offer = _offer(history.offered.get(life), lost_rows.at)
                now[life] = Gap(life, offer, Filling(Lack.PROVEN), missing_text(lost_rows, by_feed[life]), lost_rows.at)
                gaps[life].append((gaps[life][-1][0], now[life]))

    for version, group in groupby(ordered, key=lambda entry: entry[0]):
        if proven:
            prove(version)
        events = [(life, event, until) for _, life, event, until in group]
        partners = (event.other for _, event, _ in events if isinstance(event, Exchanged))
        before = {life: _at(now.get(life), version) for life in partners}
        for life, event, until in events:
            if life in stopped:
                continue
            if life not in now:
                by_feed[life] = event.file.filling.by is not None
                now[life] = _whole(event) or _lacking(life, event, rules, history)
            elif isinstance(event, Exchanged):
                own, partner_gap = _at(now[life], version), before[event.other]
                kept = own if isinstance(own, Gap) or not isinstance(partner_gap, Gap) else partner_gap
                now[life] = (kept if event.partitioned else partner_gap) or now[life]
            elif (isinstance(event, Renamed) and event.file.filling.lack is Lack.LEFT_OUT) or (
                ddl.unlogged_rows(event.file) and not isinstance(event, Held)
            ):
                now[life] = _lacking(life, event, rules, history)
            elif DeleteRows(None) in event.changes and _is_by_source(event):
                refilled = event.file.filling.by is not None or event.file.filling.lack is Lack.LEFT_OUT
                now[life] = _lacking(life, event, rules, history) if refilled else Whole.TRUNCATE
                shown.pop(life, None)
            elif isinstance(event, Changed) and event.otherwise and not isinstance(_at(now[life], version), Gap):
                text = decided_text(version, dropped=DeleteRows(None) in event.changes)
                offer = _offer(history.offered.get(life), version)
                now[life] = Gap(life, offer, Filling(Lack.DECIDED), text, version - 1, accepted=True)
            lost_here = () if event.name is None else lost.get(event.name, ())
            begin = _begin(now[life], event) if lost_here else None
            due = [loss for loss in lost_here if begin is not None and loss.since < until and loss.through > begin]
            if due:
                offered = history.offered.get(life)
                now[life] = _missed(life, due, offered, complete=is_complete(life, patterns)) or now[life]
            if isinstance(event, Held):
                stopped.add(life)
            gaps[life].append((version, now[life]))
    prove(FOREVER)
    lives: dict[Life, TableHistory] = {}
    for life, table in history.lives.items():
        marked = (
            (at, replace(gap, accepted=True) if isinstance(gap, Gap) and gap.mark in rules.accepted else gap)
            for at, gap in gaps[life]
        )
        lives[life] = replace(table, gaps=tuple(marked), missing=shown.get(life))
    return replace(history, lives=lives)


def begun_late(table: TableHistory, since: Tso, offered: Base | None = None) -> TableHistory:
    """Return the history of a table that the lake has from a position on, with all else that it has of its source.

    The rows from before are missing until all rows are replaced. `offered` is a dump that may have them.
    """
    replaced = [event.at for event in table.events if isinstance(event, Exchanged) and not event.partitioned]
    replaced += [event.at for event in table.events if DeleteRows(None) in event.changes and _is_by_source(event)]
    until = min((at for at in replaced if at > since), default=FOREVER)
    gap = Gap(table.life, "" if offered is None else offered.uri, Filling(Lack.LATE), late_text(since))
    return replace(table, gaps=((0, gap), *(entry for entry in table.gaps if entry[0] >= until)))


def _lacking(life: Life, event: Event, rules: Rules, history: History) -> Gap | Whole:
    """Return the gap of a table that lacks rows from before an event, unless somebody said that it had none."""
    filling, unlogged = event.file.filling, ddl.unlogged_rows(event.file)
    is_new = rules.later_tables_are_new and filling.lack is Lack.LATER
    if is_new or is_complete(life, rules.complete):
        return filling.by if filling.by is not None and filling.through is not None else Whole.STATEMENT
    if unlogged:
        filling = Filling(Lack(unlogged))
    return Gap(life, history.offered[life].uri if life in history.offered else "", filling)


def _begin(state: Gap | Whole, event: Event) -> Tso | None:
    """Return the position from which on a table must have all rows, None for one that lacks rows anyway."""
    if not isinstance(state, Gap):
        return event.at
    return None if state.filling.since is None else max(state.filling.since, event.at)


def _missed(life: Life, due: Sequence[MissedMessages], offered: Base | None, *, complete: bool) -> Gap | None:
    """Return the gap of a table whose rows may have been in messages that were not read.

    It begins behind the first of them, and is accepted only where all are: what nobody accepted is shown.
    """
    missing = sorted(missed for missed in due if missed.later or not complete)
    if not missing:
        return None
    shown = [missed for missed in missing if not missed.accepted] or missing
    offer, behind = _offer(offered, max(missed.through for missed in shown)), min(missed.since for missed in missing)
    return Gap(life, offer, Filling(Lack.EXPIRED), missed_text(shown), behind, shown[0].accepted)


def _offer(offered: Base | None, position: Tso) -> str:
    """Return the dump that has the rows through a position, "" if none is known."""
    return offered.uri if offered is not None and position <= offered.at else ""


def _whole(event: Event) -> Whole | None:
    """Return the reason why a table is complete from an event on, None where the event does not make it so."""
    if isinstance(event, Imported):
        return Whole.DUMP
    if event.file.filling.by is not None or event.file.filling.lack is Lack.LEFT_OUT or ddl.unlogged_rows(event.file):
        return None
    return _WHOLE_BY.get(type(ddl.statement(event.file)))


_WHOLE_BY: dict[type, Whole] = {ddl.CreateTableStatement: Whole.CREATE, ddl.Truncate: Whole.TRUNCATE}


def _at(state: Gap | Whole | None, version: Tso) -> Gap | Whole | None:
    """Return the completeness of a table at a version, with the rows from before it."""
    return state.filling.by if isinstance(state, Gap) and state.is_filled(version) else state


def _is_by_source(event: Event) -> bool:
    """Return whether the source deleted the rows, and not a person those of the lake alone."""
    decided = event.release is None or event.release.way == "apply" or _whole(event) is not None
    return decided and not isinstance(event, Held)
