"""Requests to operations: values from which the command's options and the job's launch form are built.

A field says once how it is described, and by which option the command has it if not by its own name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cdc_assets.errors import BadSettings


def option(
    description: str,
    default: Any = "",
    *,
    flag: str = "",
    metavar: str | None = None,
    choices: Sequence[str] = (),
    place: Literal["both", "argument", "form"] = "both",
) -> Any:
    """Return a field of a request.

    Args:
        description: Its help on the command line, and its description in the launch form.
        default: False, an empty text or an empty tuple; with None a value has to be given.
        flag: The option of the command, where it is not the field's name.
        metavar: How the command's help names a value.
        choices: The values that the command takes.
        place: Whether the command has it as an option, as an argument, or not at all.
    """
    metadata = {"description": description, "flag": flag, "metavar": metavar, "choices": choices, "place": place}
    return field(metadata=metadata) if default is None else field(default=default, metadata=metadata)


_TABLES = "[TABLE]…"

CHANGE_FORMATS = ("parquet", "jsonl", "csv")


@dataclass(frozen=True)
class Request:
    """The request to one operation."""

    def check(self) -> None:
        """Raise BadSettings where fields contradict each other."""


@dataclass(frozen=True)
class RebuildRequest(Request):
    """Tables to rebuild: some by name, or all."""

    tables: Sequence[str] = option(
        "The tables to rebuild, each by its present name `schema.table` or as `schema.table@first version`. Tables "
        "that exchanged partitions with one of them are rebuilt too.",
        (),
        metavar=_TABLES,
        place="argument",
    )
    every_table: bool = option("All tables that have a name.", False, flag="--all")
    incomplete: bool = option(
        "The incomplete tables that a dump of the setting `initial` has: from the dump, then the changefeed from its "
        "TSO on.",
        False,
    )
    confirmed: bool = option(
        "Set to true where the run asks for it: repairs of a table are lost, or its forgotten rows come back.",
        False,
        place="form",
    )

    def check(self) -> None:
        """Raise BadSettings unless exactly one of the three says which tables are meant."""
        if bool(self.tables) + self.every_table + self.incomplete != 1:
            raise BadSettings(
                "Name the tables to rebuild, or give --all (every_table), or --incomplete: expected one of the three."
            )


@dataclass(frozen=True)
class MaintenanceRequest(Request):
    """Tables to maintain; default: all, and those of the lake itself."""

    tables: Sequence[str] = option(
        "Only these tables, as `schema.table`, `schema.table@first version`, or by their names in the lake "
        "(`_cdc.quarantine`).",
        (),
        metavar=_TABLES,
        place="argument",
    )
    dry_run: bool = option("Only show what is due.", False)


@dataclass(frozen=True)
class NewCut(Request):
    """The cut to make."""

    name: str = option("Name of the cut, and tag of its snapshots; `cut-<its position>` by default.", metavar="NAME")
    require_all: bool = option("Make no cut where a table is not exactly its source.", False)


@dataclass(frozen=True)
class ChangesRequest(Request):
    """The changes to write, and where."""

    table: str = option("The table, by its present name `schema.table` or its identity.", None, place="argument")
    since: str = option(
        "Changes after this moment: a TSO, a time such as 2026-01-31T13:00:00Z, or a cut.",
        None,
        flag="--from",
        metavar="MOMENT",
    )
    until: str = option("Changes through this moment.", None, flag="--to", metavar="MOMENT")
    out: str = option("A directory, or the prefix of a bucket, without files.", None, metavar="URI")
    format: str = option("parquet, jsonl or csv.", "parquet", choices=CHANGE_FORMATS)
    net: bool = option("One row a key: its last image, or that it is gone.", False)

    def check(self) -> None:
        """Raise BadSettings for an unknown format."""
        if self.format not in CHANGE_FORMATS:
            raise BadSettings(f"{self.format} is no format; expected {', '.join(CHANGE_FORMATS)}.")


@dataclass(frozen=True)
class VerifyRequest(Request):
    """Tables to compare, and how; default: those of the setting `verify.tables`, or all."""

    tables: Sequence[str] = option(
        "Only these tables, as `schema.table` or `schema.*`.", (), metavar=_TABLES, place="argument"
    )
    quiet: bool = option("State that nothing is written into the tables while they are compared.", False)
    repair: bool = option("Write the source's rows of the keys that differ into the tables, in one commit each.", False)
    where: str = option("Compare these rows only: \"id >= 1000 AND day < '2025-06-01'\".", metavar="CONDITION")
    sample: str = option("Compare a share of the rows, chosen by their key: 1%.", metavar="SHARE")
    cut: str = option("Compare tables as they are in a cut, with the source of then.", metavar="NAME")


@dataclass(frozen=True)
class ForgetRequest(Request):
    """The table whose rows are forgotten. No field has a key: Dagster keeps and shows the config of a run."""

    table: str = option(
        "The table, by its present or a former name `schema.table`, or its identity.", None, place="argument"
    )
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
    confirmed: bool = option(
        "Set to true: what is taken out here cannot be brought back. Not asked for undo.", False, place="form"
    )

    def check_keys(self, given: int, ways: str) -> None:
        """Raise BadSettings unless keys, of which `given` sources were named, or undo or abandon are given alone."""
        alone = bool(self.undo) + self.abandon
        if given + alone != 1 or (alone and (self.until or self.decision)):
            raise BadSettings(f"Give {ways}, undo alone, or abandon alone: one of the four.")
        if self.decision and not self.until:
            raise BadSettings("decision names what keeps keys out. Give until with it.")
