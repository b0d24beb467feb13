"""Format a landing for a person: offsets by partition, waiting messages, how far back a rebuild can go. Pure.

broker ──landed──▶ landing table ──applied──▶ tables
  end              next offset                first offset that some table has not applied
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cdc_assets.io.encryption import is_encrypted
from cdc_assets.model.landed import NOT_SHOWN, EventKind, Landed, declare_dead_command, release_command
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import ByName, TableId
from cdc_assets.model.tso import Tso, tso_time, wall_clock_ms
from cdc_assets.model.wording import counted, first_of, seconds_text
from cdc_assets.report.columns import LANDED
from cdc_assets.report.tables import PartitionText
from cdc_assets.report.text import grid_lines

_SHOWN_BYTES = 400
"""Most bytes of a message that are shown."""
_SHOWN_PARTITIONS = 5


@dataclass(frozen=True, slots=True)
class DecisionText:
    """A person's decision about messages: a place, `who` and `when` (ISO 8601, UTC)."""

    changefeed: str
    place: str
    what: str
    who: str
    when: str


@dataclass(frozen=True, slots=True)
class UnreadText:
    """A message that holds its table, or the feed: its key and value as Python's bytes or None, and the ways out."""

    changefeed: str
    place: str
    table: str
    reason: str
    key: str
    value: str
    ways: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LandingText:
    """The landing of a changefeed. `end` of partitions is as of the newest landing, unless `is_current`: as of now.

    `lag_seconds` is the time from the greatest mark to the landing that brought it. `rows` and `row_bytes` are of
    messages that are kept. `expired` names tables whose first rows are not kept any more, each with the TSO from which
    they are: those cannot be built anew out of the landing. `unreadable` are the messages that are not messages of the
    protocol and that nobody has released. `waits` says which partition's barrier messages wait for, "" for none.
    `left_out` counts decisions by which messages are left out: those that cannot be read, or are lost. `kept` says of
    how many of the bytes why they are kept.
    """

    changefeed: str
    landed_ms: int
    lag_seconds: float
    rows: int
    row_bytes: int
    partitions: tuple[PartitionText, ...]
    expired: Mapping[str, Tso] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    is_current: bool = False
    waits: str = ""
    left_out: int = 0
    kept: Mapping[str, int] = field(default_factory=dict)

    @property
    def behind(self) -> int:
        """Number of messages that are not landed."""
        return sum(partition.behind for partition in self.partitions)

    @property
    def rebuild(self) -> str:
        """Describe how far back tables can be built anew."""
        if not self.expired:
            return "every table can be built anew from its first landed message"
        expired = ", ".join(f"{name} (its rows before {tso_time(at)} expired)" for name, at in self.expired.items())
        return f"cannot be built anew out of the landing: {expired}"


def describe_landing(
    changefeed: str,
    landed: Landed,
    through: Mapping[TableId, Tso],
    ends: Mapping[Partition, int] | None = None,
    bytes_by_reason: Mapping[str, int] | None = None,
) -> LandingText:
    """Return the landing as values for a person.

    `through` is the TSO through which each table is applied, dropped ones included. `ends` are the log's ends now,
    `bytes_by_reason` the bytes of messages by the reason for which they are kept.
    """
    applied = _applied(landed, through)
    log_ends = landed.ends if ends is None else ends
    partitions = []
    for partition in sorted({*landed.next, *log_ends}):
        at = landed.next.get(partition, 0)
        end = max(log_ends.get(partition, at), at)
        mark = landed.marks.get(partition, 0)
        partitions.append(
            PartitionText(
                *partition, end, at, applied.get(partition, at), end - at, mark, tso_time(mark) if mark else ""
            )
        )
    newest = max(landed.marks.values(), default=0)
    return LandingText(
        changefeed,
        landed.landed_ms,
        max(0.0, (landed.landed_ms - wall_clock_ms(newest)) / 1000) if newest else 0.0,
        sum(split.rows for split in landed.splits),
        sum(split.size for split in landed.splits),
        tuple(partitions),
        _expired(landed),
        tuple(f"{bad.place}: {bad.reason}" for bad in (*landed.open_bad, *landed.open_late)),
        landed.ignored,
        ends is not None,
        _waits(
            landed,
            {
                Partition(partition_text.topic, partition_text.partition): partition_text.behind
                for partition_text in partitions
            },
        ),
        sum(decision.kind in (EventKind.RELEASED, EventKind.LOST) for decision in landed.decisions),
        bytes_by_reason or {},
    )


def describe_decisions(changefeed: str, landed: Landed) -> list[DecisionText]:
    """Return the decisions of people about messages of a changefeed."""
    return [
        DecisionText(
            changefeed,
            str(decision.partition)
            if decision.kind is not EventKind.RELEASED
            else f"{decision.partition} offset {decision.offset}",
            decision.what,
            decision.who,
            decision.when,
        )
        for decision in landed.decisions
    ]


def describe_unread(changefeed: str, landed: Landed) -> list[UnreadText]:
    """Return the messages that hold something, each with the ways out."""
    bad = [
        (
            event,
            (
                f"read it once more: {release_command(event.partition, event.offset, again=True)}",
                f"go past it: {release_command(event.partition, event.offset)}",
            ),
        )
        for event in landed.open_bad
    ]
    late = [
        (event, (f"build the table with it: cdc-assets rebuild {shlex.quote(str(event.table))}",))
        for event in landed.open_late
    ]
    return [
        UnreadText(
            changefeed, event.place, "" if event.table is None else str(event.table), reason, _shown(event.key, reason),
            _shown(event.value, reason), ways,
        )
        for event, ways in (*bad, *late)
        for reason in [NOT_SHOWN if is_encrypted(event.value or b"") else event.reason]
    ]  # fmt: skip


def _shown(data: bytes | None, reason: str) -> str:
    """Return bytes as text, those of a long message cut, and of one with values that are masked only how many."""
    if data is not None and reason == NOT_SHOWN:
        return counted(len(data), "byte")
    if data is None or len(data) <= _SHOWN_BYTES:
        return repr(data)
    return f"{data[:_SHOWN_BYTES]!r}… ({counted(len(data), 'byte')})"


def _applied(landed: Landed, through: Mapping[TableId, Tso]) -> dict[Partition, int]:
    """Return the first offset of each partition that a table may not have applied, where there is one.

    A range of which a part is applied counts from its beginning, since only its rows could tell more.

    A name that no table has any more was another's before, or was dropped: it counts as far as the least table is.
    """
    positions: ByName[Tso] = ByName()
    for name, at in through.items():
        positions[name] = max(at, positions.get(name, 0))
    least = min(through.values(), default=0)
    offsets: dict[Partition, int] = {}
    for split in landed.splits:
        if split.high > positions.get(split.table, least):
            offsets[split.partition] = min(split.first, offsets.get(split.partition, split.first))
    return offsets


def _waits(landed: Landed, behind: Mapping[Partition, int]) -> str:
    """Name the partitions whose barrier is the least in topics that have them, if some got nothing more these alone.

    One without a barrier behind what is landed of it has the least of all, if not one in what is not landed.

    TiCDC's, which have streams, hold nothing up.
    """
    starts = landed.starts
    empty = [
        partition
        for partition in starts
        if landed.next.get(partition) == starts[partition].offset and not behind.get(partition)
    ]
    living = [partition for partition in landed.ends if partition not in landed.dead and partition not in empty]
    with_barriers = {partition.topic for partition in landed.barriers}
    waiting = [partition for partition in living if partition.topic in with_barriers]
    if landed.streams or not waiting or not (landed.ahead or any(behind.get(partition) for partition in waiting)):
        return ""
    open_ends = [partition for partition in waiting if not landed.barriers.get(partition) and behind.get(partition)]
    named_partitions = [partition for partition in waiting if partition not in open_ends]
    least = min((landed.barriers.get(partition, "") for partition in named_partitions), default="")
    last = sorted(
        [*open_ends, *(partition for partition in named_partitions if landed.barriers.get(partition, "") == least)]
    )
    last = [partition for partition in last if not behind.get(partition)] or last
    names = first_of([str(partition) for partition in last], "partition", _SHOWN_PARTITIONS)
    more = ", also what is landed of it, which is more than a landing holds" if landed.ahead else ""
    return (
        f"what stands beyond the newest barrier of {names} waits for {'its' if len(last) == 1 else 'their'} next one"
        f"{more}; where nothing comes to one any more, `{declare_dead_command(last[0])}` says so"
    )


def _expired(landed: Landed) -> dict[str, Tso]:
    needs: dict[TableId, Tso] = {}
    for split in landed.splits:
        needs[split.table] = min(split.low, needs.get(split.table, split.low))
    newest = max(landed.marks.values(), default=0)
    return {
        str(table): needs.get(table, newest)
        for table, began in sorted(landed.began.items())
        if needs.get(table, newest + 1) > began
    }


def landing_lines(landings: Iterable[LandingText]) -> Iterator[str]:
    """Yield the landings of changefeeds as lines of text."""
    all_landings = list(landings)
    rows = [
        (
            landing.changefeed,
            f"{part.topic}[{part.partition}]",
            part.end,
            part.landed,
            part.applied,
            f"{part.behind:,}",
            part.mark or "none",
            part.mark_time,
        )
        for landing in all_landings
        for part in landing.partitions
    ]
    if rows:
        yield from grid_lines(tuple(LANDED), rows)
    for landing in all_landings:
        when = tso_time(landing.landed_ms << 18) if landing.landed_ms else "never"
        moment = "now" if landing.is_current else "then"
        marked = f"its newest mark was {seconds_text(landing.lag_seconds)} old"
        mark = marked if any(part.mark for part in landing.partitions) else "no mark is landed"
        yield (
            f"{landing.changefeed}: newest landing {when}, {counted(landing.behind, 'message')} behind the log's ends "
            f"as of {moment}, {mark}; "
            f"{counted(landing.rows, 'row event')} kept ({counted(landing.row_bytes, 'byte')}); {landing.rebuild}"
        )
        if landing.kept:
            reasons = "; ".join(f"{counted(size, 'byte')} {reason}" for reason, size in landing.kept.items())
            yield f"{landing.changefeed}: landed messages are kept: {reasons}"
        if landing.waits:
            yield f"{landing.changefeed}: {landing.waits}"
        if landing.left_out:
            some = counted(landing.left_out, "decision leaves", "decisions leave")
            yield f"{landing.changefeed}: {some} messages out on purpose: see `cdc-assets landing list`"
        for bad in landing.unreadable[:5]:
            yield f"{landing.changefeed}: holds: {bad}"
        if len(landing.unreadable) > 5:
            yield f"{landing.changefeed}: and {len(landing.unreadable) - 5} more that hold"
        if landing.unreadable:
            yield f"{landing.changefeed}: `cdc-assets landing list` shows them with their bytes and the ways out"
