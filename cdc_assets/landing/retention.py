"""Choose which landed rows are kept, and why. Pure: no I/O, no clock.

    Retention             what the settings choose
    TableNeed             what the lake still needs of the rows of one table
    reason_to_keep(…)     why the rows of a split stay, "" where they may go
    bytes_kept(…)         how many bytes of messages stay, by that reason

Rows are kept until their table has taken them, and for what looks back at them: a rebuild, a replay of records in
quarantine, `explain`, `extract`. A table that waits for one of these keeps all its rows, whatever is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cdc_assets.model.landed import Landed, LandedSplit
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

_DAY_MS = 86_400_000

NOT_APPLIED = "not applied yet"
APPLIED = "applied: the next maintenance removes what nothing needs"
AS_SET = "applied: kept as long as the setting landing says"


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of applied rows: for `days`, or with `at_once` until the next maintenance.

    With `packed` files are written once more with a stronger compression.
    """

    days: float = 30.0
    at_once: bool = False
    packed: bool = False

    @classmethod
    def of(cls, keep: Literal["days", "applied", "compact"], days: float) -> Retention:
        """Return the retention that the setting `landing` chooses."""
        return cls(days, keep == "applied", keep == "compact")


@dataclass(frozen=True, slots=True)
class TableNeed:
    """The lake's need for the rows of a table.

    `through` is the position through which they are applied, None where nobody will ask for any of them. `always` is
    why all of them stay, whatever is chosen, `not_at_once` why they stay where applied rows go at once, and
    `for_days` why they stay for the days of the retention in that case. Each is "" for no such reason.
    """

    through: Tso | None
    always: str = ""
    not_at_once: str = ""
    for_days: str = ""


Needs = Callable[[TableId], TableNeed]


def reason_to_keep(split: LandedSplit, need: TableNeed, retention: Retention, now_ms: int) -> str:
    """Return the reason why the rows of a split stay, "" where they may go."""
    if need.through is not None and split.high > need.through:
        return NOT_APPLIED
    if need.always:
        return need.always
    if retention.at_once and (need.not_at_once or not need.for_days):
        return need.not_at_once
    if split.high < int(now_ms - retention.days * _DAY_MS) << 18:
        return ""
    return need.for_days if retention.at_once else f"kept for {retention.days:g} days"


def bytes_kept(landed: Landed, needs: Needs, retention: Retention | None, now_ms: int) -> dict[str, int]:
    """Return the bytes of messages that are kept, by the reason, the most first. None is a retention not known."""
    bytes_by_reason = dict[str, int]()
    for split in landed.splits:
        need = needs(split.table)
        reason = reason_to_keep(split, need, retention or Retention(0), now_ms)
        reason = reason or (AS_SET if retention is None else APPLIED)
        bytes_by_reason[reason] = bytes_by_reason.get(reason, 0) + split.size
    return dict(sorted(bytes_by_reason.items(), key=lambda entry: (-entry[1], entry[0])))
