"""Windows of several tables side by side: while one waits for a store or for Java, others are decoded and committed.

A source table's steps stay in their order: only its next one is begun, and none beyond the next DDL of whatever table,
so that renames, exchanges and all else that concerns two tables finds them as if one step had come after the other.
Windows of one source table's tables that read the same are staged at once, and committed in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field

from cdc_assets.errors import CdcError
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import StagedWindow, StepResult
from cdc_assets.model.steps import ApplyRows, HoldTable, Step
from cdc_assets.model.window_metrics import WindowMetrics

_THREADS = ThreadPoolExecutor(4, "cdc-assets-window")
"""Number of threads that stage and commit for a process. It bounds memory and stages; each has a connection to the
JVM."""
_SIGHT = 64
"""Number of steps ahead that are searched for windows."""
_PATIENCE_SECONDS = 2.0
"""Seconds that an interrupted run waits for commits under way."""

AppliedWindow = tuple[StagedWindow, StepResult, WindowMetrics | None]
_Future = Future[AppliedWindow | None]


@dataclass
class WindowPool:
    """Carries out the windows among some `steps`, each by its place in them.

    `stage` returns as many windows as it could stage of those that are given, from the first on. `may` returns whether
    a window may be carried out in another thread beside others, `stopped` whether nothing is to be done to a table.
    """

    steps: Sequence[Step]
    stage: Callable[[Sequence[ApplyRows]], list[StagedWindow]]
    commit: Callable[[ApplyRows, StagedWindow], tuple[StepResult, WindowMetrics | None]]
    discard: Callable[[ApplyRows, StagedWindow], None]
    may: Callable[[ApplyRows], bool]
    stopped: Callable[[Life], bool]
    _begun: dict[int, _Future] = field(default_factory=dict)
    _work: list[Future[None]] = field(default_factory=list)
    _ended: bool = False

    def begin(self, number: int) -> None:
        """Begin windows from step `number` on, which is to be carried out next, unless only one table has some."""
        groups = list(self._groups(number))
        if len(groups) + len(self._begun) < 2:
            return
        for places in groups:
            self._work.append(_THREADS.submit(self._carry_out, self._note(places)))

    def take(self, number: int) -> AppliedWindow:
        """Return the result of a step's window, carrying it out now if it was not begun; raises its error."""
        applied = self._begun.pop(number).result() if number in self._begun else None
        if applied is None:
            self._carry_out(self._note(self._together(number)))
            applied = self._begun.pop(number).result()
        assert applied is not None
        return applied

    def has(self, number: int) -> bool:
        """Return whether the window of a step was carried out, or failed."""
        future = self._begun.get(number)
        return future is not None and future.done() and (future.exception() or future.result()) is not None

    def close(self, kind: type[BaseException] | None = None, *_: object) -> None:
        """Begin no more windows and no more commits, and wait for those under way: what they commit is whole.

        `kind` is that of the exception on which this is called, if any. Where a person ends the process it waits for
        seconds at most: with Spark a MERGE ends, too.
        """
        self._ended = True
        interrupted = kind is not None and not issubclass(kind, Exception)
        wait([work for work in self._work if not work.cancel()], _PATIENCE_SECONDS if interrupted else None)

    def _groups(self, number: int) -> Iterator[list[int]]:
        """Yield the windows that may be begun, by their places: those together that are read together."""
        seen: set[Life] = set()
        for place, step in enumerate(self.steps[number : number + _SIGHT], number):
            if not isinstance(step, (ApplyRows, HoldTable)):
                return
            first = step.life.source not in seen
            seen.add(step.life.source)
            begun = place in self._begun or self.stopped(step.life)
            if first and isinstance(step, ApplyRows) and not begun and self.may(step):
                yield self._together(place)

    def _together(self, number: int) -> list[int]:
        """Return the place of a window, and of those right behind it that read the same for other tables."""
        first = self._window(number)
        places = [number]
        for place, step in enumerate(self.steps[number + 1 :], number + 1):
            if not isinstance(step, ApplyRows) or not first.reads_like(step):
                break
            if not self.stopped(step.life):
                places.append(place)
        return places

    def _window(self, place: int) -> ApplyRows:
        step = self.steps[place]
        assert isinstance(step, ApplyRows)
        return step

    def _note(self, places: Sequence[int]) -> dict[int, _Future]:
        futures = {place: _Future() for place in places}
        self._begun |= futures
        return futures

    def _carry_out(self, futures: Mapping[int, _Future]) -> None:
        """Stage and commit windows; the result is None for those that were not staged with the first."""
        try:
            try:
                staged = [] if self._ended else self.stage([self._window(place) for place in futures])
            except Exception as error:  # noqa: BLE001  # raised where the window is taken
                next(iter(futures.values())).set_exception(error)
                return
            for (place, future), window in zip(futures.items(), staged, strict=False):
                if self._ended:
                    with suppress(CdcError, OSError):
                        self.discard(self._window(place), window)
                    continue
                try:
                    future.set_result((window, *self.commit(self._window(place), window)))
                except Exception as error:  # noqa: BLE001  # raised where the window is taken
                    future.set_exception(error)
        finally:
            for future in futures.values():
                if not future.done():
                    future.set_result(None)
