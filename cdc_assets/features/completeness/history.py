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

from collections.abc import Iterator, Mapping, Sequence
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
    whole: Mapping[Life, Tso] | None = None,
) -> History:
    """Return the history with the gaps of every life, by what people state of tables in the rules.

    `missed` are the messages of tables, by their names, that were not read. `missing` are the rows that windows proved
    to be missing. `whole` are the positions as of which repairs made all rows of tables the source's.
    """
    play = _GapPlay(history, rules, ByName(missed or {}), dict(missing or {}), dict(whole or {}))
    play.run()
    lives: dict[Life, TableHistory] = {}
    for life, table in history.lives.items():
        marked = (
            (at, replace(gap, accepted=True) if isinstance(gap, Gap) and gap.mark in rules.accepted else gap)
            for at, gap in play.gaps[life]
        )
        lives[life] = replace(table, gaps=tuple(marked), missing=play.shown.get(life))
    return replace(history, lives=lives)


class _GapPlay:
    """Plays the events of all lives in the order of their versions.

    Afterwards `gaps` has what each life lacks from each of its versions on, and `shown` the rows that a window proved
    to be missing and that no later event brought.
    """

    def __init__(
        self,
        history: History,
        rules: Rules,
        missed: ByName[Sequence[MissedMessages]],
        proven: dict[Life, MissingRows],
        whole: dict[Life, Tso],
    ) -> None:
        self.gaps: dict[Life, list[tuple[Tso, Gap | Whole]]] = {life: [] for life in history.lives}
        self.shown: dict[Life, MissingRows] = {}
        self._history, self._rules = history, rules
        self._missed, self._proven, self._whole = missed, proven, whole
        self._repaired: dict[Life, Tso] = {}
        self._newest: dict[Life, tuple[Event, Tso]] = {}
        self._now: dict[Life, Gap | Whole] = {}
        self._held: set[Life] = set()

    def run(self) -> None:
        """Play all events; nothing changes any more for a life once a DDL holds it."""
        ordered = sorted(
            (
                (event.at, life, event, until)
                for life, table in self._history.lives.items()
                for event, until in zip(table.events, [*(event.at for event in table.events[1:]), FOREVER], strict=True)
            ),
            key=lambda entry: entry[0],
        )
        for version, group in groupby(ordered, key=lambda entry: entry[0]):
            if self._whole:
                self._end_by_repair(version)
            if self._proven:
                self._prove(version)
            events = [(life, event, until) for _, life, event, until in group]
            partners = (event.other for _, event, _ in events if isinstance(event, Exchanged))
            before = {life: _at(self._now.get(life), version) for life in partners}
            for life, event, until in events:
                if life in self._held:
                    continue
                # Most DDL change no row; they end here, without a call.
                state, lack = self._now.get(life), event.file.filling.lack
                if state is None:
                    state = _whole(event) or self._lacking(life, event)
                elif isinstance(event, Exchanged):
                    own, partner = _at(state, version), before[event.other]
                    both = own if isinstance(own, Gap) or not isinstance(partner, Gap) else partner
                    state = (both if event.partitioned else partner) or state
                elif (isinstance(event, Renamed) and lack is Lack.LEFT_OUT) or (
                    ddl.unlogged_rows(event.file) and not isinstance(event, Held)
                ):
                    state = self._lacking(life, event)
                elif DeleteRows(None) in event.changes and _is_by_source(event):
                    self.shown.pop(life, None)
                    refilled = event.file.filling.by is not None or lack is Lack.LEFT_OUT
                    state = self._lacking(life, event) if refilled else Whole.TRUNCATE
                elif isinstance(event, Changed) and event.otherwise:
                    state = self._decided(life, event, state)
                losses = () if event.name is None else self._missed.get(event.name, ())
                if losses:
                    state = self._without_missed(life, losses, _begin(state, event), until, state)
                self._now[life], self._newest[life] = state, (event, until)
                if isinstance(event, Held):
                    self._held.add(life)
                self.gaps[life].append((version, state))
        self._end_by_repair(FOREVER)
        self._prove(FOREVER)

    def _prove(self, until: Tso) -> None:
        """Let tables lack what windows before a version proved to be missing."""
        for life in [life for life in self._now.keys() & self._proven.keys() if self._proven[life].at < until]:
            lost_rows, table = self._proven.pop(life), self._history.lives[life]
            state = self._now[life]
            whole_at = max(-1 if table.base is None else table.base.at, self._repaired.get(life, -1))
            if isinstance(_at(state, lost_rows.at), Gap) or lost_rows.at <= whole_at:
                continue
            self.shown[life] = lost_rows
            if state is not Whole.STATEMENT and not is_complete(life, self._rules.complete):
                text = missing_text(lost_rows, by_connector=table.events[0].file.filling.by is not None)
                offer = _offer(self._history.offered.get(life), lost_rows.at)
                self._now[life] = Gap(life, offer, Filling(Lack.PROVEN), text, lost_rows.at)
                self.gaps[life].append((self.gaps[life][-1][0], self._now[life]))

    def _end_by_repair(self, until: Tso) -> None:
        """Let tables lack nothing from before repairs of all their rows that were as of positions before a version."""
        for life in [life for life in self._now.keys() & self._whole.keys() if self._whole[life] < until]:
            at = self._repaired[life] = self._whole.pop(life)
            event, end = self._newest[life]
            losses = () if event.name is None else self._missed.get(event.name, ())
            self._now[life] = self._without_missed(life, losses, at, end, Whole.REPAIR)
            self.gaps[life].append((event.at, self._now[life]))

    def _decided(self, life: Life, event: Event, state: Gap | Whole) -> Gap | Whole:
        """Return the state of a life whose DDL was decided to have another effect on rows than in the source."""
        if isinstance(_at(state, event.at), Gap):
            return state
        text = decided_text(event.at, dropped=DeleteRows(None) in event.changes)
        offer = _offer(self._history.offered.get(life), event.at)
        return Gap(life, offer, Filling(Lack.DECIDED), text, event.at - 1, accepted=True)

    def _lacking(self, life: Life, event: Event) -> Gap | Whole:
        """Return the gap of a life that lacks rows from before an event, unless somebody said that it had none."""
        filling, unlogged = event.file.filling, ddl.unlogged_rows(event.file)
        is_new = self._rules.later_tables_are_new and filling.lack is Lack.LATER
        if is_new or is_complete(life, self._rules.complete):
            return filling.by if filling.by is not None and filling.through is not None else Whole.STATEMENT
        if unlogged:
            filling = Filling(Lack(unlogged))
        offered = self._history.offered.get(life)
        return Gap(life, "" if offered is None else offered.uri, filling)

    def _without_missed(
        self, life: Life, losses: Sequence[MissedMessages], begin: Tso | None, until: Tso, state: Gap | Whole
    ) -> Gap | Whole:
        """Return the state of a life from an event to the next one; its rows may be in messages that were not read.

        It must have all rows from position `begin` on, and lacks some anyway with None. The gap begins behind the first
        of them, and is accepted only where all are: what nobody accepted is shown.
        """
        complete = is_complete(life, self._rules.complete)
        due = sorted(
            loss
            for loss in losses
            if begin is not None and loss.since < until and loss.through > begin and (loss.later or not complete)
        )
        if not due:
            return state
        shown = [loss for loss in due if not loss.accepted] or due
        offer = _offer(self._history.offered.get(life), max(loss.through for loss in shown))
        assert begin is not None
        behind = max(min(loss.since for loss in due), begin if state is Whole.REPAIR else 0)
        return Gap(life, offer, Filling(Lack.EXPIRED), missed_text(shown), behind, shown[0].accepted)


def begun_late(table: TableHistory, since: Tso, offered: Base | None = None) -> TableHistory:
    """Return the history of a table that the lake has from a position on, with all else that it has of its source.

    The rows from before are missing until all rows are replaced. `offered` is a dump that may have them.
    """
    gap = Gap(table.life, "" if offered is None else offered.uri, Filling(Lack.LATE), late_text(since))
    return replace(table, gaps=((0, gap), *_gaps_since_emptied(table, since)))


def with_late_rows(table: TableHistory, gap: Gap | None) -> TableHistory:
    """Return the history of a table of which the lake says that it lacks late rows: a rebuild alone brings them.

    A mirror has no use for them once all rows are replaced.
    """
    if gap is None or gap.filling.lack is not Lack.LATE_ROWS:
        return table
    later = () if table.life.kind else _gaps_since_emptied(table, gap.at)
    return replace(table, gaps=((0, gap), *later))


def _gaps_since_emptied(table: TableHistory, since: Tso) -> Iterator[tuple[Tso, Gap | Whole]]:
    """Yield the gaps of a table from where all of its rows are replaced after a position."""
    replaced = [event.at for event in table.events if isinstance(event, Exchanged) and not event.partitioned]
    replaced += [event.at for event in table.events if DeleteRows(None) in event.changes and _is_by_source(event)]
    until = min((at for at in replaced if at > since), default=FOREVER)
    return (entry for entry in table.gaps if entry[0] >= until)


def _begin(state: Gap | Whole, event: Event) -> Tso | None:
    """Return the position from which on a table must have all rows, None for one that lacks rows anyway."""
    if not isinstance(state, Gap):
        return event.at
    return None if state.filling.since is None else max(state.filling.since, event.at)


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
