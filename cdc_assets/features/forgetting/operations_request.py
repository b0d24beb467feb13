"""The operation `forget`: what is asked for, and its command and job.

Dagster keeps a run's config in plain text for as long as it keeps the run, and shows it to whoever sees the run: the
launch form has no keys. They come from a file, or from an environment variable of the process that runs the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc_assets.errors import BadSettings
from cdc_assets.operations.requests import DRY_RUN, REQUIRED, Operation, Request, option


@dataclass(frozen=True)
class ForgetRequest(Request):
    """Keys whose rows are forgotten, or let in again."""

    table: str = option(
        "The table, by its present or a former name `schema.table`, or its identity.", REQUIRED, argument=True
    )
    key: Sequence[str] = option("The values of a key.", (), metavar="[KEY]…", argument=True, place="command")
    keys_file: str = option(
        "URI of a file of keys, read with the changefeed's storage options: CSV without heading, a key in each line. "
        "Remove it afterwards.",
        place="form",
    )
    keys_variable: str = option(
        "Environment variable of the run's process with keys, as a file has them.", place="form"
    )
    until: str = option(
        "Keep the keys out of what is applied from now on, at positions through a TSO, time or cut, or `forever`.",
        metavar="TIME",
    )
    decision: str = option("Name of what keeps them out, for undo and more keys.", metavar="NAME")
    undo: str = option("Let keys in again that the decision of this name keeps out.", metavar="NAME")
    abandon: bool = option("End runs that were killed with keys that nobody has any more: rows may be left.", False)
    remove_cuts: bool = option(
        "Remove the cuts, and other tags, that have rows of the keys. Without it they keep them, and the report names "
        "them.",
        False,
    )
    records: Sequence[str] = option(
        "Let a record go with the keys that cannot be decoded and may have them: its file and line, or its message.",
        (),
        flag="--record",
        metavar="PLACE",
    )
    keys: str | None = option(
        "File of keys: CSV without heading, a key in each line.", None, value=Path, place="command"
    )
    dry_run: bool = option(DRY_RUN, False, place="command")
    confirmed: bool = option(
        "Set to true: what is taken out here cannot be brought back. Not asked for undo.", False, place="form"
    )

    def check(self) -> None:
        """Raise BadSettings unless keys come from one place, or undo or abandon are given alone."""
        of_command, of_form = bool(self.key) + (self.keys is not None), bool(self.keys_file) + bool(self.keys_variable)
        alone = bool(self.undo) + self.abandon
        if of_command + of_form + alone != 1 or (alone and (self.until or self.decision)):
            ways = "the values of a key behind TABLE or a file of keys with --keys (in a job: keys_file, keys_variable)"
            raise BadSettings(f"Give {ways}, undo alone, or abandon alone: one of the four.")
        if self.decision and not self.until:
            raise BadSettings("decision names what keeps keys out. Give until with it.")
        if self.dry_run and alone:
            raise BadSettings("--dry-run shows where rows of keys are. Give it with a key or with --keys.")


OPERATION = Operation(
    name="forget",
    request=ForgetRequest,
    module="cdc_assets.features.forgetting.operations",
    summary="Take rows out of everything that the lake has, with proof.",
    text="""Take the row of TABLE with this KEY out of everything that the lake has, and prove that it is gone.

    KEY are its values in the order of the key, as MySQL prints them; x'…' for binary ones,
    TIMESTAMP in UTC. Files that have it are replaced, and snapshots expire, of history tables, too; cuts stay unless
    you let them go (--remove-cuts). Refused while input that has it is not applied, unless it is kept out by --until.
    """,
    examples=(
        "forget shop.users 4711 --dry-run",
        "forget shop.users 4711 --until forever",
        "forget shop.users --keys keys.csv --yes",
    ),
    job="Takes the rows of some keys out of a table, its history tables, quarantine, snapshots, cuts and landing, "
    "proves that they are gone, and keeps the keys out from then on if `until` is said. Keys come from a file or "
    "an environment variable: a run's config is kept, and shown.",
    op="rows",
    work="Take the rows out of everything that the lake has of them, prove that they are gone, and log the report.",
    concerns="A row is of",
    in_lake=True,
)
