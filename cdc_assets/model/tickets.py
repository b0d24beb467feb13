"""Notes of work on a lake that takes several commits: who does what, since when, and whether it still runs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cdc_assets.model.tso import tso_time

STALE_SECONDS = 900
"""Work whose ticket was not renewed for this long is dead; what runs renews it every minute."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Work that began and did not end. `plan` tells the same work from other work; times are seconds since 1970.

    `table` is the table of which rows are forgotten, `life` its identity, and `keys` how many: "" until it is known
    which one is meant. `removed` names what goes as a whole because it has these rows; a run that is killed before it
    reports may have removed it. `stopped` is said by a run that ends with work left; one that was killed says nothing.
    """

    token: str
    plan: str
    run: str
    begun: float
    alive: float
    table: str = ""
    keys: int = 0
    life: str = ""
    removed: tuple[str, ...] = ()
    stopped: bool = False

    @property
    def since(self) -> str:
        """Return the time when the work began, for a person."""
        return tso_time(int(self.begun * 1000) << 18)

    @property
    def heard(self) -> str:
        """Return the time when it was last renewed, for a person."""
        return tso_time(int(self.alive * 1000) << 18)

    def runs(self, now: float | None = None) -> bool:
        """Return whether the work goes on, as far as its ticket tells."""
        return not self.stopped and (time.time() if now is None else now) - self.alive <= STALE_SECONDS
