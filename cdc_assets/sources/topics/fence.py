"""Through which TSO is everything landed? Pure.

On a broker: the greatest mark whose log ends, asked after it was seen, are landed. In an archive nothing proves that a
partition is complete but its own mark, so it is the least over the partitions of topics that tables live in. Neither
passes a message that cannot be read and names no table, nor a table that was given a name whose topic is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cdc_assets.model.landed import Landed, LandedEvent
from cdc_assets.model.landing_commands import declare_dead_command, release_command
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics.living import living_names

__all__ = ["Fence", "find_fence", "unreadable"]


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
) -> Fence:
    """Return the fence of what was landed. `default` is the topic of marks without tables.

    `passes_bad` lets it pass messages that cannot be read, as with quarantine. `by_offset` is set for protocols by
    offset, of which all that is landed counts.
    """
    fence = Fence(landed.proven if proves_ends or by_offset else max(landed.marks.values(), default=0))
    if not passes_bad:
        for bad in landed.open_bad:
            if bad.table is None and bad.position < fence.tso:
                fence = Fence(bad.position, unreadable(bad))
    if by_offset:
        return fence
    there = {partition.topic for partition in landed.next}
    while fence.tso:
        names = living_names(files, fence.tso)
        least = _absent(fence, names.items(), topic_of, there)
        if not proves_ends:
            topics = {default, *(topic_of(name) for name in names), *(topic_of(name) for name in landed.began)}
            least = _least_mark(least, landed, topics & there)
        if least.tso >= fence.tso:
            return fence
        fence = least
    return fence


def _absent(
    fence: Fence, names: Iterable[tuple[TableId, Tso]], topic_of: Callable[[TableId], str], there: set[str]
) -> Fence:
    """Stop below the DDL that gave a name whose topic is not there."""
    for name, version in names:
        topic = topic_of(name)
        if topic not in there and version - 1 < fence.tso:
            fence = Fence(version - 1, f"the topic {topic} of {name} is not there; expected it since {version}")
    return fence


def _least_mark(fence: Fence, landed: Landed, topics: set[str]) -> Fence:
    for partition in sorted(landed.next):
        if partition.topic in topics and partition not in landed.dead:
            mark = landed.marks.get(partition, 0)
            if mark < fence.tso:
                fence = Fence(mark, _kept_by(partition, mark))
    return fence


def _kept_by(partition: Partition, mark: Tso) -> str:
    last = f"its last mark is {mark}" if mark else "it has no mark"
    return (
        f"{partition}: {last}, and in an archive nothing else tells that a partition is complete; where nothing comes "
        f"to it any more, `{declare_dead_command(partition)}` says so"
    )


def unreadable(bad: LandedEvent) -> str:
    """Return the sentence on a message that cannot be read, with the commands that decide about it."""
    past, again = (release_command(bad.partition, bad.offset, again=again) for again in (False, True))
    return (
        f"{bad.place} cannot be read: {bad.reason.rstrip('.')}. `{again}` reads it once more, after what is wrong is "
        f"mended; `{past}` goes past it"
    )
