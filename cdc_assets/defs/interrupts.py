"""Signals that end a run of Dagster, kept where the exception that Dagster raises for one is lost.

Python ignores an exception that is raised while it deletes an object, such as an engine of SQLAlchemy that is garbage:
a signal that comes in that moment has no effect, and the run that a person ended goes on.
"""

import signal
import threading
from types import FrameType
from typing import Any

from dagster._core.errors import DagsterExecutionInterruptedError


class Interrupts:
    """Whether the run was interrupted (SIGINT, SIGTERM), whatever became of the exception."""

    def __init__(self) -> None:
        self.came = False
        self._handler: Any = None

    def listen(self) -> None:
        """Take note of signals before Dagster's handler, which it sets anew whenever an op goes on after a yield."""
        former: Any = signal.getsignal(signal.SIGINT)
        if former is self._handler or not callable(former) or threading.current_thread() != threading.main_thread():
            return

        def handle(number: int, frame: FrameType | None) -> None:
            self.came = True
            former(number, frame)

        self._handler = handle
        signal.signal(signal.SIGINT, handle)
        signal.signal(signal.SIGTERM, handle)

    def raise_lost(self) -> None:
        """Raise again what was lost."""
        if self.came:
            raise DagsterExecutionInterruptedError
