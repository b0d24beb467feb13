"""Tables that lack rows: what a person states about them, and what a person is shown."""

from __future__ import annotations

import glob
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

from cdc_assets.model.decisions import Decisions, KeptDecision
from cdc_assets.model.kinds import STATE_KINDS
from cdc_assets.model.landed import accept_loss_command
from cdc_assets.model.names import fold_name
from cdc_assets.model.offsets import OffsetRange
from cdc_assets.model.progress import Base, Gap, Lack, Life, MissingRows
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted


@dataclass(frozen=True, slots=True)
class CompletePattern(KeptDecision):
    """A person's statement that all tables matching a pattern had no rows before. `when` is ISO text in UTC.

    With `accepted`, the mark of a gap, it says that the tables lack these rows, and that they may go on without.
    """

    KEPT_AS: ClassVar[str] = "complete"

    pattern: str
    who: str = ""
    when: str = ""
    accepted: str = ""

    @property
    def subject(self) -> tuple[Any, ...]:
        """The pattern, and the gap if it is about one."""
        return self.pattern, self.accepted

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key: the time."""
        return self.when, self.pattern


def complete_patterns(decisions: Decisions) -> tuple[str, ...]:
    """Return the patterns of the tables that had no rows before the feed began, by time."""
    return tuple(decision.pattern for decision in decisions.of(CompletePattern) if not decision.accepted)


@dataclass(frozen=True, slots=True, order=True)
class MissedMessages:
    """Messages that were not read, and that may have been of a table.

    They came after position `since`, and what came of the table after position `through` is in the partition. `later`
    says that parts of the feed had been landed before: no statement of earlier can have meant these messages. `reason`
    says why they were not read, "" where they were gone when their partition was first read. `accepted` says that a
    person let the feed go on without them.
    """

    lost: OffsetRange
    through: Tso
    later: bool = False
    since: Tso = 0
    reason: str = ""
    accepted: bool = False


def missed_text(some: Sequence[MissedMessages]) -> str:
    """Return the sentence on messages that were not read, one or more, which tables may lack, and what can be done.

    It is the same for all tables that may lack them.
    """
    lost, reason = some[0].lost, some[0].reason
    if reason:
        more = f" (and {counted(len(some) - 1, 'range')} more)" if len(some) > 1 else ""
        return (
            f"{reason}{more}, and nothing shows that no change of this table was there. Bring the table anew from a "
            "dump taken since, or from another snapshot or scan by whoever sends it"
        )
    more = f", and so had those of {counted(len(some) - 1, 'more partition')}" if len(some) > 1 else ""
    alone = (
        "" if any(missed.later for missed in some) else ", or of one table: cdc-assets release --complete SCHEMA.TABLE"
    )
    return (
        f"{lost.partition} began at offset {lost.stop} when it was first read: the {counted(len(lost), 'message')} "
        f"{lost.start}..{lost.stop - 1} had expired{more}, and nothing that is left there shows that none of them was "
        "of this table. Bring its rows from a dump taken since, or from another snapshot or scan by whoever sends "
        f"them; or accept the loss, which is written down: {accept_loss_command(lost)}{alone}"
    )


def missing_text(missing: MissingRows, by_connector: bool) -> str:
    """Return the sentence on rows that a window proved to be missing, and what can be done."""
    bring = (
        "let a connector with a new topic.prefix take a snapshot of it, as a feed of its own"
        if by_connector
        else "bring it from a dump taken since (setting initial, --initial URI), with cdc-assets rebuild"
    )
    # What a changefeed writes into a bucket may have been removed there; a range of offsets names what it lacks itself.
    removed = (
        " Or a data file of the table was removed, which a warning about files names then: restore it, and rebuild the "
        "table."
        if "/CDC" in missing.place
        else ""
    )
    return (
        f"{missing.place} has changes of {counted(missing.count, 'row')} that the table does not have and that no "
        f"change before them made, the first at {missing.at} of the row {missing.key}. So rows came past the change "
        "log, as by a restore or an import into the storage engine (BR, IMPORT INTO, Lightning, IMPORT TABLESPACE, a "
        f"materialized view), and those that have not changed since are missing here.{removed} To have them all, "
        f"{bring}; or, where the source can be read as of the lake's position, with cdc-assets verify --repair"
    )


def decided_text(at: Tso, *, dropped: bool) -> str:
    """Return the sentence on a DDL of which a decision gives the table other rows, and what can be done."""
    rows = "the rows from before it were dropped" if dropped else "its effect on rows was left out"
    return (
        f"by a decision about the DDL of version {at} (cdc-assets release, or the setting policies) {rows}, so the "
        "table has other rows than the source. Bring it anew from a dump taken since, or from another snapshot"
    )


def late_text(since: Tso) -> str:
    """Return the sentence on a mirror that begins at a position, and what can be done."""
    return (
        f"it begins at {since}, where its history tables stood when the setting history asked for it: the input from "
        "before was gone, or not known to be there, so rows that did not change since are missing here. Bring them "
        "from a dump taken since (setting initial, --initial URI) or restore the input, and rebuild it"
    )


def late_rows_text(at: Tso, life: Life) -> str:
    """Return the sentence on rows that came when a table was beyond them, and what can be done."""
    return (
        f"rows of its source of {at} and later came when it was applied beyond them, and it was not built anew. Let "
        "the settings (history, tables) ask for it, if they do not, and build it anew: cdc-assets rebuild "
        f"{shlex.quote(str(life))}"
    )


@dataclass(frozen=True, slots=True)
class Deficit:
    """A reason why a table is not exactly its source at a position; `accepted` if a person let it go on so."""

    cause: Literal["rows", "hold", "records", "repair", "beginning", "correction"]
    reason: str
    accepted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCondition:
    """The facts that decide whether a lake table is exactly its source at a position.

    `gap` are the rows that it lacks, and `base` the dump that it stands on. `hold` says why nothing is applied to it up
    to the position, "" if all is. `aside` are the positions, at the earliest, of its records that wait in quarantine.
    `repaired` is the position of the newest repair, -1 for none. A history table that begins later than its source does
    so at `since`. `corrected` says what was written into the table after the snapshot that is read, though it is of
    before.
    """

    life: Life
    gap: Gap | None
    base: Base | None = None
    hold: str = ""
    aside: Sequence[Tso] = ()
    repaired: Tso = -1
    since: Tso | None = None
    corrected: str = ""

    def deficits(self, at: Tso) -> tuple[Deficit, ...]:
        """Return all reasons why the table is not exactly its source at a position; none if it is."""
        deficits = list[Deficit]()
        if self.gap is not None and self.gap.sound_through < at:
            deficits.append(Deficit("rows", gap_text(self.gap, self.life, self.base), self.gap.accepted))
        if self.hold:
            deficits.append(Deficit("hold", f"it is held: {self.hold}"))
        if count := sum(position <= at for position in self.aside):
            records = f"{counted(count, 'record')} of it {'waits' if count == 1 else 'wait'}"
            reason = f"{records} in quarantine (cdc-assets quarantine), so rows may be missing, old or left over"
            deficits.append(Deficit("records", reason))
        if at < self.repaired:
            reason = (
                f"a repair (verify --repair) gave it the source's rows as of {self.repaired}, and which of them it "
                "lacked before is not known"
            )
            deficits.append(Deficit("repair", reason))
        if self.since is not None and self.life.kind in STATE_KINDS:
            reason = f"its states begin at {self.since}: rows that did not change since then are missing"
            deficits.append(Deficit("beginning", reason, accepted=True))  # by the setting history, and a finding
        if self.corrected:
            deficits.append(Deficit("correction", self.corrected))
        return tuple(deficits)


def lacking_text(lacks: Iterable[Deficit]) -> str:
    """Return all reasons why a table is not exactly its source, in one text."""
    return "; ".join(deficit.reason.rstrip(".") for deficit in lacks)


def is_complete(life: Life, patterns: Iterable[str]) -> bool:
    """Return whether a pattern matches the name that a table had when the feed began, or its identity.

    Its present name does not count: another table may take that later.
    """
    names = [fold_name(str(life.born_as)), fold_name(str(life.source))]
    return any(fnmatchcase(name, fold_name(pattern)) for pattern in patterns for name in names)


def pattern_of(life: Life) -> str:
    """Return the pattern that matches a table's first name and no other."""
    return glob.escape(str(life.born_as))


def waiting_text(complete_by: str) -> str:
    """Return the sentence on a table that stopped before what completes it: a `Whole`, as text."""
    return f"incomplete until it goes on where it stopped: what completes it ({complete_by}) comes after that."


def gap_text(gap: Gap, life: Life, base: Base | None = None) -> str:
    """Return the sentence on an incomplete table: what is missing, why, and what a person can do.

    One that is based on a dump (`base`) lacks rows of its own only until they are imported.
    """
    if base is not None and gap.life == life and not gap.reason:
        return (
            f"incomplete: its rows as of {base.at}, which are in {base.uri}, are not imported yet, and the table "
            "stays empty until they are. Apply it; if something stops it, the reason is shown too."
        )
    pattern = pattern_of(gap.life)
    names = json.dumps(pattern, ensure_ascii=False), shlex.quote(pattern), shlex.quote(str(gap.life))
    return _sentence(
        gap, "it", "" if gap.life == life else str(gap.life.born_as), "", *names, f", of version {gap.since},"
    )


def gap_cause(gap: Gap, life: Life, base: Base | None = None) -> str:
    """Return the sentence of `gap_text` in words that name no table, so that tables of one cause are shown together."""
    if base is not None and gap.life == life and not gap.reason:
        return (
            f"incomplete: rows as of {base.at}, which are in {base.uri}, are not imported yet, and these tables stay "
            "empty until they are. Apply them; if something stops one, the reason is shown too."
        )
    giver = "" if gap.life == life else "another table"
    return _sentence(gap, "each of these tables", giver, " for each", '"NAME"', "NAME", "NAME")


def _sentence(
    gap: Gap, own: str, giver: str, each: str, quoted: str, pattern: str, identity: str, version: str = ""
) -> str:
    """`giver` is the table from which the rows came, "" for the table's own, which `own` names."""
    accept = ""
    if gap.accepted and gap.filling.lack is not Lack.DECIDED:
        accept = " A person let it go on without them."
    elif gap.filling.lack in _PAST_THE_LOG:
        accept = f" Or let it go on without them: cdc-assets release {pattern} --accept-incomplete."
    whose = f"{giver}, from which rows came by EXCHANGE PARTITION," if giver else own
    if gap.reason:
        of = f"of {whose.removesuffix(',')}: " if giver else ""
        offered = f" Its rows are in {gap.offer}: cdc-assets rebuild {identity}." if gap.offer else ""
        word = "inexact" if gap.filling.lack is Lack.DECIDED else "incomplete"  # it may have too many rows
        return f"{word}: {of}{gap.reason}.{offered}{accept}"
    why, bring = _REASONS[gap.filling.lack]
    why = why.replace("{version}", version).replace("{name}", str(gap.life.born_as) if version else "another name")
    offered = f"They are in {gap.offer}: cdc-assets rebuild {identity}." if gap.offer else bring
    return (
        f"incomplete: {whose} {why}, so the rows that it had then are missing here; what changed since is applied. "
        f"{offered} If it had none, or they are not needed, say so{each}: {quoted} in the changefeed's setting "
        f"initial: {{complete: [...]}}, --complete {pattern}, or, to keep it in the lake, cdc-assets release "
        f"--complete {pattern}.{accept}"
    )


_PAST_THE_LOG = (Lack.PROVEN, Lack.RESTORED, Lack.INGESTED)
"""Lacks of rows that came past the change log."""
_FROM_DUMP = "Bring them from a dump, or straight from the source: setting initial, --initial URI."
_FROM_CONNECTOR = "Let a connector with a new topic.prefix take a snapshot of it, as a feed of its own."
_MAY_HAVE = "may have existed before its connector's messages began"

_REASONS: Mapping[Lack, tuple[str, str]] = {
    Lack.FILES: (
        "existed before its changefeed began (its first schema file{version} has no CREATE TABLE)",
        _FROM_DUMP,
    ),
    Lack.TOPICS: ("existed before its changefeed began (the topics have no CREATE TABLE of it)", _FROM_DUMP),
    Lack.SNAPSHOT: (
        f"{_MAY_HAVE} (no snapshot in the topics has rows of it)",
        f"{_FROM_CONNECTOR} If the database was empty when the connector took its snapshot, give the connector's "
        "configuration (--config).",
    ),
    Lack.LATER: (
        "first appeared after its connector's snapshot had ended, which has no row of it: it is new, or was renamed, "
        "attached or added to the connector, which no message tells apart",
        "If tables that appear later are new here, as those of an application that grows, one line says so of all of "
        "them: initial: {later_tables: new}. Otherwise let a connector with a new topic.prefix take a snapshot of it, "
        "as a feed of its own.",
    ),
    Lack.RUNNING: (
        "existed before its connector's messages began (its snapshot is in the topics, but not through its last row)",
        "Run again when the connector is through with it; if it has gone on without, let a connector with a new "
        "topic.prefix take a snapshot of the table, as a feed of its own.",
    ),
    Lack.BEGINNING: (
        "existed before its connector's messages began (its snapshot is in the topics without its first row)",
        _FROM_CONNECTOR,
    ),
    Lack.CREATED: (
        f"{_MAY_HAVE} (the snapshot has its CREATE TABLE, and no row; the last row of all tables, with which a "
        "snapshot ends, is not in the topics)",
        "Run again when the connector is through with its snapshot; if it takes none of rows, as with snapshot.mode "
        "no_data, let one with a new topic.prefix take it, as a feed of its own.",
    ),
    Lack.SETTINGS: (
        "existed before its connector's messages began (by the connector's snapshot.mode, "
        "snapshot.select.statement.overrides or lists of tables, not all of its rows are sent)",
        _FROM_CONNECTOR,
    ),
    Lack.LEFT_OUT: (
        "got its name by a RENAME TABLE from {name}, of which the feed may lack rows (the connector's "
        "table.include.list or table.exclude.list leaves it out, or none came)",
        "Let a connector that captures both names, with a new topic.prefix, take a snapshot, as a feed of its own; "
        "where it captures both already, give its configuration (--config).",
    ),
    Lack.RESTORED: (
        "was made by BR (its DDL{version} has the type 60, which only BR uses), which brings rows past the change log",
        _FROM_DUMP,
    ),
    Lack.INGESTED: (
        "was filled by an import into the storage engine, past the change log (IMPORT, or the rows with which a "
        "materialized view begins)",
        _FROM_DUMP,
    ),
    Lack.SCAN: (
        "may have existed before its changefeed began (no record says that it is of an initial scan, and neither the "
        "sink URI nor the setting schemas says that there is one)",
        "Add a changefeed WITH (INITIAL_SCAN = TRUE), as a feed of its own; if this one has it, add initial_scan=true "
        "to the sink URI, or its statement to the setting schemas.",
    ),
}
"""Why rows from before a feed are missing, and how they can come."""
