"""Tickets of a changefeed's work on its lake: properties of the lake's own namespace, one for each.

Work that must not run beside other work writes its ticket first and looks for those of the other then. So of two that
begin at once at least one sees the other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from cdc_assets.lake.namespaces import own_properties, remove_own_properties, set_own_properties
from cdc_assets.model.tickets import Ticket

if TYPE_CHECKING:
    from cdc_assets.lake.state import LakeState
    from cdc_assets.model.progress import Life

REBUILD, FORGET, WAIT = "rebuild", "forget", "wait"
"""Kinds of work, and tables that wait for it: the token of such a one begins with that of the work."""


class LakeTickets:
    """The tickets of one changefeed for one kind of work. Starts no JVM."""

    def __init__(self, state: LakeState, work: str) -> None:
        self._catalog, self._own = state.lazy_catalog, state.places.own.main
        self._prefix = f"cdc.{work}.{state.changefeed}."

    def tickets(self) -> tuple[Ticket, ...]:
        """Return the work that began and did not end, oldest first."""
        return self.among(own_properties(self._catalog.open(), self._own))

    def among(self, properties: Mapping[str, str]) -> tuple[Ticket, ...]:
        """Return the open tickets among properties that were read before, oldest first."""
        written = [json.loads(text) for name, text in properties.items() if name.startswith(self._prefix)]
        tickets = [Ticket(**{**values, "removed": tuple(values["removed"])}) for values in written]
        open_tickets = (ticket for ticket in tickets if f"{self._prefix}{ticket.token}" in properties)
        return tuple(sorted(open_tickets, key=lambda ticket: (ticket.begun, ticket.token)))

    def touch(self, ticket: Ticket) -> None:
        """Write a ticket, or renew it."""
        text = json.dumps(asdict(replace(ticket, alive=time.time())))
        set_own_properties(self._catalog.make(), self._own, {f"{self._prefix}{ticket.token}": text})

    def end(self, token: str) -> None:
        """Remove a ticket; nothing happens if there is none."""
        remove_own_properties(self._catalog.open(), self._own, {f"{self._prefix}{token}"})


def hold_back(state: LakeState, token: str, lives: Iterable[Life]) -> None:
    """Let the windows of these tables, and of no others, wait until the work with that token has ended or is dead."""
    waits, now = LakeTickets(state, WAIT), time.time()
    lives_by_token = {f"{token}-{number}": str(life) for number, life in enumerate(lives)}
    for ticket in waits.tickets():
        if ticket.token.partition("-")[0] == token and ticket.token not in lives_by_token:
            waits.end(ticket.token)
    for name, life in lives_by_token.items():
        waits.touch(Ticket(name, "", "", now, now, life=life))


def held_back(state: LakeState) -> frozenset[str]:
    """Return the tables, as texts, whose windows wait for work that runs."""
    properties = own_properties(state.catalog, state.places.own.main)
    waiting = LakeTickets(state, WAIT).among(properties)
    if not waiting:
        return frozenset()
    work = (ticket for kind in (REBUILD, FORGET) for ticket in LakeTickets(state, kind).among(properties))
    running = {ticket.token for ticket in work if ticket.runs()}
    return frozenset(ticket.life for ticket in waiting if ticket.token.partition("-")[0] in running)
