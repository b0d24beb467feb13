"""Windows that are staged before their turn: while the lake commits one table, the next tables' rows are decoded.

Only the next step of a table is staged, so no earlier step can change the state for which it is staged. A window that
is not used in the end, because its table was stopped or the run ended, is discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from cdc_assets.errors import CdcError
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import StagedWindow
from cdc_assets.model.steps import ApplyRows, Step

__all__ = ["Prefetch", "read_together"]

_AT_ONCE = 2
"""Limit of windows that are staged or being staged, which bounds their memory and stages."""
_SIGHT = 64
"""How many steps ahead are searched for windows."""


Staging = Future[list[StagedWindow]]


class Prefetch:
    """`stage` and `discard` are the lake's; `may` returns whether a window may be staged during a commit.

    Windows of one source table's tables that read the same are staged at once, when the first of them is.
    """

    def __init__(
        self,
        stage: Callable[[Sequence[ApplyRows]], list[StagedWindow]],
        discard: Callable[[StagedWindow], None],
        may: Callable[[ApplyRows], bool],
    ) -> None:
        self._stage = stage
        self._discard = discard
        self._may = may
        self._begun: dict[Step, tuple[Staging, int]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, steps: Sequence[Step], number: int, stopped: Callable[[Life], bool]) -> None:
        """Stage windows of other tables soon after step `number`, which is about to be carried out."""
        if self._underway() >= _AT_ONCE:
            return
        seen = {steps[number].life}
        for place, step in enumerate(steps[number + 1 : number + 1 + _SIGHT], number + 1):
            first = step.life not in seen
            seen.add(step.life)
            if not first or not isinstance(step, ApplyRows) or step in self._begun:
                continue
            if stopped(step.life) or not self._may(step):
                continue
            together = [one for one in read_together(steps, place) if not stopped(one.life)]
            if any(one.life in seen for one in together[1:]):
                continue  # they are staged with this one when it is its turn
            seen.update(one.life for one in together)
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "cdc-assets-ahead")
            self._note(together, self._pool.submit(self._stage, together))
            if self._underway() >= _AT_ONCE:
                return

    def take(self, together: Sequence[ApplyRows]) -> StagedWindow:
        """Return the first of some windows that read the same; they are staged now if that was not begun.

        Raises the error of staging them.
        """
        first = together[0]
        if first in self._begun:
            staging, place = self._begun.pop(first)
            found = staging.result()
            if place < len(found):
                return found[place]
        staged = self._stage(together)
        for place, step in enumerate(together[1 : len(staged)], 1):
            staging = Future()
            staging.set_result(staged)
            self._begun[step] = staging, place
        return staged[0]

    def drop(self, step: Step) -> None:
        """Discard a window that is not going to be committed."""
        begun = self._begun.pop(step, None)
        if begun is not None:
            self._discard_begun(*begun)

    def close(self) -> None:
        """Discard windows that were begun and not used; other steps may begin afterwards."""
        try:
            for begun in self._begun.values():
                self._discard_begun(*begun)
        finally:
            self._begun = {}
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None

    def _note(self, together: Sequence[ApplyRows], staging: Staging) -> None:
        self._begun |= {step: (staging, place) for place, step in enumerate(together)}

    def _underway(self) -> int:
        return len({id(staging) for staging, _ in self._begun.values()})

    def _discard_begun(self, staging: Staging, place: int) -> None:
        if not staging.cancel():
            with suppress(CdcError, OSError):
                for staged in staging.result()[place : place + 1]:
                    self._discard(staged)


def read_together(steps: Sequence[Step], number: int) -> list[ApplyRows]:
    """Return the window of a step, and those right behind it that read the same for other tables."""
    first = steps[number]
    assert isinstance(first, ApplyRows)
    found = [first]
    for step in steps[number + 1 :]:
        if not isinstance(step, ApplyRows) or not first.reads_like(step):
            break
        found.append(step)
    return found
