"""Errors as Dagster's failures, and the reasons of failed runs from its event log; signals that end a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError

from cdc_assets.defs.names import shown
from cdc_assets.errors import CdcError, Retryable
from cdc_assets.model.schema import TableId

_TELLING = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.ENGINE_EVENT}

MAX_SIGNS = 300
"""The length to which a reason is cut in a sentence."""


@contextmanager
def as_failure() -> Iterator[None]:
    """Raise an error of this project as a failure of its run, which Dagster retries where that may help."""
    try:
        yield
    except CdcError as error:
        raise dg.Failure(str(error), allow_retries=isinstance(error, Retryable)) from None


def step_reasons(event: dg.DagsterEvent) -> list[str]:
    """Return the reasons why a step failed, in lines: for the tables that stopped, or the error that ended it."""
    failure, error = event.step_failure_data.user_failure_data, event.step_failure_data.error
    if failure is not None and failure.description:
        return failure.description.splitlines()
    return [(error.cause or error).message.strip()] if error is not None else []


def run_reasons(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    """Return the reasons why a run failed, in lines: by its steps, or by the reason why it had none."""
    records = instance.get_records_for_run(run_id, of_type=_TELLING).records
    events = [record.event_log_entry.dagster_event for record in records]
    steps, other_lines = list[str](), list[str]()
    for event in events:
        if event is None:
            continue
        if event.event_type == dg.DagsterEventType.STEP_FAILURE:
            steps += step_reasons(event)
        elif event.event_type == dg.DagsterEventType.RUN_FAILURE:
            other_lines.append(event.message or "")
        elif event.engine_event_data.error is not None:
            error = event.engine_event_data.error
            other_lines.insert(0, (error.cause or error).message.strip())
    return [line for line in steps or other_lines if line]


def short_reason(reasons: Iterable[str], tables: Iterable[TableId]) -> str:
    """Return the line about one of these tables, or the first one, cut to fit into a sentence."""
    lines, prefixes = list(reasons), tuple(f"{shown(table)}{end}" for table in tables for end in (": ", " "))
    line = next((line for line in lines if line.startswith(prefixes)), lines[0] if lines else "")
    return line if len(line) <= MAX_SIGNS else f"{line[:MAX_SIGNS]}…"


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
