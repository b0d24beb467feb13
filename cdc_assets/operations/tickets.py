"""Tickets of work that is under way: renewed while it runs, so that other runs can tell it from what was killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Event, Lock, Thread
from typing import Any, Protocol

from cdc_assets.model.tickets import Ticket

_BEAT_SECONDS = 60
_writing = Lock()
"""Held while a ticket is read and written: the thread that renews it would undo what is noted meanwhile."""


class Tickets(Protocol):
    """The record of one kind of work: a ticket for each that began, renewed while it runs."""

    def tickets(self) -> Sequence[Ticket]:
        """The work that began and did not end."""

    def touch(self, ticket: Ticket) -> None:
        """Write a ticket, or renew it."""

    def end(self, token: str) -> object:
        """Remove a ticket."""


def is_open(tickets: Tickets, ticket: Ticket) -> bool:
    """Return whether work is open: several runs may share its ticket, and the first to finish ends it."""
    return any(open_ticket.token == ticket.token for open_ticket in tickets.tickets())


def note(tickets: Tickets, token: str, **values: Any) -> None:
    """Write an open ticket anew, with some other values; one that another run has ended stays ended."""
    with _writing:
        for ticket in tickets.tickets():
            if ticket.token == token:
                tickets.touch(replace(ticket, **values))


@contextmanager
def kept_alive(tickets: Tickets, ticket: Ticket) -> Iterator[None]:
    """Renew the ticket, with what was noted in it, while the run lives."""
    over = Event()

    def beat() -> None:
        while not over.wait(_BEAT_SECONDS):
            with suppress(Exception):  # the next beat renews it, or it becomes stale
                note(tickets, ticket.token)

    thread = Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
