"""Through which TSO is everything landed? Pure.

On a broker: the greatest mark whose log ends, asked after it was seen, are landed. In an archive nothing proves that a
partition is complete but its own mark, so it is the least over the partitions of topics that tables live in, and of
those of which nothing tells what is in them. A topic that all tables have left, dropped or renamed, gets no more
marks: a partition of it is complete when the mark before that, or the DDL itself, is landed. On a broker the same holds
for topics that are gone, as what came to them last may have gone too. Neither passes a message that cannot be read and
names no table, nor a table that was given a name whose topic is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from cdc_assets import ddl
from cdc_assets.model.landed import EventKind, Landed, LandedEvent, declare_dead_command, release_command
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import ByName, TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the tables that live at a TSO, each with the version that gave it; the others with that which took
    it.
    """

    living: ByName[Tso] = field(default_factory=ByName)
    ended: ByName[Tso] = field(default_factory=ByName)

    def begin(self, name: TableId, version: Tso) -> None:
        """Let a name live from a version on."""
        self.living[name] = version
        self.ended.pop(name, None)

    def end(self, name: TableId, version: Tso) -> None:
        """Let a name end at a version, whether it was known to live or not."""
        self.living.pop(name, None)
        self.ended[name] = version


def names_at(files: Iterable[SchemaFile], at: Tso) -> Names:
    """Return the names of tables at a TSO."""
    names = Names()
    due = (file for file in sorted(files, key=lambda file: file.version) if file.version <= at)
    for version, group in groupby(due, key=lambda file: file.version):
        pairs: list[tuple[TableId, TableId]] = []
        for file in group:
            match ddl.statement(file):
                case ddl.DropDatabase():
                    for name in [table for table in names.living if table.folded.schema == file.table.folded.schema]:
                        names.end(name, version)
                case ddl.DropTableStatement():
                    names.end(file.table, version)
                case ddl.Rename(old=old):
                    pairs.append((old if old.schema else TableId(file.table.schema, old.table), file.table))
                case ddl.CreateDatabase() | ddl.AlterDatabase() | ddl.View():
                    continue
                case ddl.CreateTableStatement() | ddl.Recover():
                    names.begin(file.table, version)
                case _ if file.table not in names.living:
                    names.begin(file.table, version)
        # Tables are renamed at once. A name that a table only passes through is not one of its: another pair has it
        # from there, or, as the old architecture writes it, from the name before the statement once more.
        last = {former.folded: new for former, new in pairs}
        olds = [former.folded for former, _ in pairs]
        begun = [
            new
            for place, (former, new) in enumerate(pairs)
            if last[former.folded] is new and (new in names.living or new.folded not in olds[place + 1 :])
        ]
        passed = {new.folded for _, new in pairs if new not in names.living} - {new.folded for new in begun}
        for former, _ in pairs:
            if former.folded not in passed:
                names.end(former, version)
        for new_name in begun:
            names.begin(new_name, version)
    return names


@dataclass(frozen=True, slots=True)
class Fence:
    """The TSO, 0 where there is none yet, and what keeps it from being greater."""

    tso: Tso
    kept_by: str = ""


def find_fence(
    landed: Landed,
    files: Sequence[SchemaFile],
    topic_of: Callable[[TableId], str],
    default: str,
    *,
    proves_ends: bool,
    passes_bad: bool = False,
    by_offset: bool = False,
    rule_of_one_table: Callable[[LandedEvent], str] = lambda _: "",
) -> Fence:
    """Return the fence of what was landed. `default` is the topic of marks without tables.

    `rule_of_one_table` says why a message that cannot be read is one of a single table, "" where it may be of any.

    `passes_bad` lets it pass messages that cannot be read, as with quarantine. `by_offset` is set for protocols by
    offset, of which all that is landed counts.
    """
    newest = max(landed.marks.values(), default=0)
    fence = Fence(landed.proven if proves_ends or by_offset else newest)
    if newest > fence.tso:
        fence = Fence(fence.tso, _unfinished(landed))
    if not passes_bad:
        for bad in landed.open_bad:
            if bad.table is None and bad.position < fence.tso and not rule_of_one_table(bad):
                fence = Fence(bad.position, unreadable(bad))
    if by_offset:
        return fence
    landed_topics = {partition.topic for partition in landed.next}
    gone = landed_topics - {partition.topic for partition in landed.ends}
    while fence.tso:
        names = names_at(files, fence.tso)
        least = _absent(fence, names.living.items(), topic_of, landed_topics)
        untitled = (name for name in landed.began if name not in names.living and name not in names.ended)
        lived_in = {*map(topic_of, (*names.living, *untitled))}
        if proves_ends:
            topics, why = lived_in & gone, _gone
            ends_by_topic = {topic: at for topic, at in _left(names, topic_of, lived_in).items() if topic in gone}
        else:
            topics, why = {default, *lived_in, *(landed_topics - _spoken_of(landed, topic_of))}, _kept_by
            ends_by_topic = _left(names, topic_of, topics)
        least = _least_mark(least, landed, dict.fromkeys(topics, 0), (), why)
        least = _least_mark(least, landed, ends_by_topic, _ended_in(landed), why)
        if least.tso >= fence.tso:
            return fence
        fence = least
    return fence


def _absent(
    fence: Fence, names: Iterable[tuple[TableId, Tso]], topic_of: Callable[[TableId], str], landed_topics: set[str]
) -> Fence:
    """Stop below the DDL that gave a name whose topic is not there."""
    for name, version in names:
        topic = topic_of(name)
        if topic not in landed_topics and version - 1 < fence.tso:
            fence = Fence(version - 1, f"the topic {topic} of {name} is not there; expected it since {version}")
    return fence


def _left(names: Names, topic_of: Callable[[TableId], str], living: Collection[str]) -> dict[str, Tso]:
    """Return the topics in which tables lived before, each with the version at which the last one left it."""
    versions: dict[str, Tso] = {}
    for name, version in names.ended.items():
        topic = topic_of(name)
        if topic not in living:
            versions[topic] = max(version, versions.get(topic, 0))
    return versions


def _spoken_of(landed: Landed, topic_of: Callable[[TableId], str]) -> set[str]:
    """Return the topics of all that was ever spoken of: a view's has its DDL and no marks."""
    tables = {event.table for event in landed.events if event.kind is EventKind.DDL and event.table is not None}
    return {topic_of(table) for table in (*tables, *landed.began)}


def _ended_in(landed: Landed) -> set[tuple[Partition, Tso]]:
    """Return the offsets where DDL was landed, by partition: the rows of its table before it are landed there too."""
    return {(event.partition, event.position) for event in landed.events if event.kind is EventKind.DDL}


def _least_mark(
    fence: Fence,
    landed: Landed,
    topics: Mapping[str, Tso],
    ended: Collection[tuple[Partition, Tso]],
    why: Callable[[Partition, Tso], str],
) -> Fence:
    """Stop at the least mark of some topics' partitions; `why` says what that keeps the fence for.

    A topic that tables left at a version, 0 for none, needs a mark before that only, or the DDL that `ended` them.
    """
    dead = landed.dead
    for partition in sorted(landed.next):
        end = topics.get(partition.topic)
        if end is None or partition in dead or (partition, end) in ended:
            continue
        mark = landed.marks.get(partition, 0)
        if mark < fence.tso and not (end and mark >= end - 1):
            fence = Fence(mark, why(partition, mark))
    return fence


def _unfinished(landed: Landed) -> str:
    """Return the sentence on a transaction that keeps the newest mark from being proven, "" where none does."""
    return "; ".join(
        f"{partition}: a transaction wrote to it, up to offset {end - 1}, and is not at its end, so that a broker "
        "shows nothing of it yet; look at its producer if it stays open"
        for partition, end in sorted(landed.unfinished.items())
    )


def _gone(partition: Partition, mark: Tso) -> str:
    return (
        f"{partition} is not there any more, and what came to it behind its last mark {mark} is not landed; give the "
        "login the right to see it, or let a new changefeed bring its tables anew as a feed of its own; if nothing "
        f"came, `{declare_dead_command(partition)}` says so"
    )


def _kept_by(partition: Partition, mark: Tso) -> str:
    last = f"its last mark is {mark}" if mark else "it has no mark"
    return (
        f"{partition}: {last}, and in an archive nothing else proves that a partition is complete; if nothing more "
        f"comes to it, `{declare_dead_command(partition)}` says so"
    )


def unreadable(bad: LandedEvent) -> str:
    """Return the sentence on a message that cannot be read, with the commands that decide about it."""
    past, again = (release_command(bad.partition, bad.offset, again=again) for again in (False, True))
    return (
        f"{bad.place} cannot be read: {bad.reason.rstrip('.')}. When the cause is fixed, `{again}` "
        f"reads it again; `{past}` goes past it"
    )
