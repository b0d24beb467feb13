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

__all__ = ["Prefetch"]

_AT_ONCE = 2
"""Limit of windows that are staged or being staged, which bounds their memory and stages."""
_SIGHT = 64
"""How many steps ahead are searched for windows."""


class Prefetch:
    """`stage` and `discard` are the lake's; `may` returns whether a window may be staged during a commit."""

    def __init__(
        self,
        stage: Callable[[ApplyRows], StagedWindow],
        discard: Callable[[StagedWindow], None],
        may: Callable[[ApplyRows], bool],
    ) -> None:
        self._stage = stage
        self._discard = discard
        self._may = may
        self._begun: dict[Step, Future[StagedWindow]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, steps: Sequence[Step], number: int, stopped: Callable[[Life], bool]) -> None:
        """Stage windows of other tables soon after step `number`, which is about to be carried out."""
        if len(self._begun) >= _AT_ONCE:
            return
        seen = {steps[number].life}
        for step in steps[number + 1 : number + 1 + _SIGHT]:
            first = step.life not in seen
            seen.add(step.life)
            if not first or not isinstance(step, ApplyRows) or step in self._begun:
                continue
            if stopped(step.life) or not self._may(step):
                continue
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "cdc-assets-ahead")
            self._begun[step] = self._pool.submit(self._stage, step)
            if len(self._begun) >= _AT_ONCE:
                return

    def take(self, step: ApplyRows) -> StagedWindow:
        """Return a staged window, staging it now if it was not begun; raises the error of staging it."""
        begun = self._begun.pop(step, None)
        return self._stage(step) if begun is None else begun.result()

    def drop(self, step: Step) -> None:
        """Discard a window that is not going to be committed."""
        begun = self._begun.pop(step, None)
        if begun is not None and not begun.cancel():
            with suppress(CdcError, OSError):
                self._discard(begun.result())

    def close(self) -> None:
        """Discard windows that were begun and not used; other steps may begin afterwards."""
        try:
            for begun in self._begun.values():
                if not begun.cancel():
                    with suppress(CdcError, OSError):
                        self._discard(begun.result())
        finally:
            self._begun = {}
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None
