"""The operation `cut`: what is asked for, and its command and job."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_assets.errors import BadSettings
from cdc_assets.operations.requests import Operation, Request, option


@dataclass(frozen=True)
class NewCut(Request):
    """The cut to make, or to remove."""

    name: str = option("Name of the cut, and tag of its snapshots; `cut-<its position>` by default.", metavar="NAME")
    require_all: bool = option("Make no cut where a table is not exactly its source.", False)
    who: str = option("Who makes it, for the record.", place="command")
    remove: str = option("Remove a cut, so that its snapshots may expire.", metavar="NAME", place="command")

    def check(self) -> None:
        """Raise BadSettings where a cut is made and another removed."""
        if self.remove and (self.name or self.require_all):
            raise BadSettings("--remove is given alone: --name and --require-all are about a cut that is made.")


OPERATION = Operation(
    name="cut",
    request=NewCut,
    module="cdc_assets.features.cuts.operations",
    summary="Keep one state of all tables at one position, by a name.",
    text="""Make a cut: one state of all tables at one position, which any engine reads by its name.

    Tables are applied as far as there first. Those that are not exactly their source are absent from it, each with the
    reason, and the exit code is 1. `cdc-assets status --cuts` lists the cuts.
    """,
    examples=("cut --name month-end", "cut --require-all", "cut --remove month-end"),
    job="Makes a cut: one state of all tables at one position, which any engine reads by its name. Tables "
    "are applied as far as there first. One that is not exactly its source (held, incomplete, with records in "
    "quarantine) is absent, with the reason; with `require_all` no cut is made then.",
    work="Bring all tables to one position, tag their snapshots, and list them.",
    concerns="A cut concerns",
    decodes=True,
)
