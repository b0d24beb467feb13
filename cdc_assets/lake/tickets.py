"""Tickets of a changefeed's work on its lake: properties of the lake's own namespace, one for each.

Work that must not run beside other work writes its ticket first and looks for those of the other then. So of two that
begin at once at least one sees the other.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from cdc_assets.lake.namespaces import own_properties, remove_own_properties, set_own_properties
from cdc_assets.model.tickets import Ticket

if TYPE_CHECKING:
    from cdc_assets.lake.state import LakeState

__all__ = ["FORGET", "REBUILD", "LakeTickets"]

REBUILD, FORGET = "rebuild", "forget"
"""Kinds of work."""


class LakeTickets:
    """The tickets of one changefeed for one kind of work. Starts no JVM."""

    def __init__(self, state: LakeState, work: str) -> None:
        self._catalog, self._own = state.catalog, state.places.own.main
        self._prefix = f"cdc.{work}.{state.changefeed}."

    def tickets(self) -> tuple[Ticket, ...]:
        """Return the work that began and did not end, oldest first."""
        kept = own_properties(self._catalog, self._own)
        found = [Ticket(**json.loads(text)) for name, text in kept.items() if name.startswith(self._prefix)]
        mine = (ticket for ticket in found if f"{self._prefix}{ticket.token}" in kept)
        return tuple(sorted(mine, key=lambda ticket: (ticket.begun, ticket.token)))

    def touch(self, ticket: Ticket) -> None:
        """Write a ticket, or renew it."""
        text = json.dumps(asdict(replace(ticket, alive=time.time())))
        set_own_properties(self._catalog, self._own, {f"{self._prefix}{ticket.token}": text})

    def end(self, token: str) -> None:
        """Remove a ticket; nothing happens if there is none."""
        remove_own_properties(self._catalog, self._own, {f"{self._prefix}{token}"})
