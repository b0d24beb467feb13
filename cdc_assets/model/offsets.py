"""Places in a log: partitions of topics, their ends, and ranges of offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Partition(NamedTuple):
    """A partition of a topic; as text `orders[3]`."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Offsets of a partition: `low` is its first, `high` the one after its last *read_committed* message.

    An empty partition has `low` == `high`. In an archive `file` stands for the file with which it begins, as it is, and
    is "" for a broker. `written` is the one after the last message of any kind, asked before `high`: beyond it while a
    transaction is under way, and for a moment behind its end, as a broker shows it in one partition after the other.
    """

    low: int
    high: int
    file: str = field(default="", compare=False)
    written: int = field(default=0, compare=False)


Ends = Mapping[Partition, LogEnds]
"""The ends of all partitions, as asked in one round."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets from `start` to before `stop` of a partition; as text `orders[3] 17..42`."""

    partition: Partition
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{self.partition} {self.start}..{self.stop}"
