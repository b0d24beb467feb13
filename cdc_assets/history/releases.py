"""Decisions of a person about single DDL, and the commands that make them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

__all__ = ["WAYS", "Release", "Releases", "ways_out"]

WAYS = ("apply", "skip", "rebuild")

_SAYS = {
    "apply": "say what it did",
    "as written": "carry it out as it is written",
    "skip": "leave the rows as they are, columns follow the schema file",
    "rebuild": "drop the rows up to here, and apply what comes after",
}


@dataclass(frozen=True, slots=True)
class Release:
    """What a person decided about the DDL of one version in one life.

    `way` is apply (`text` is the DDL that says what really happened, "" the schema file's own), skip (its effect on
    existing rows is left out) or rebuild (the rows up to here are dropped). `when` is ISO text in UTC.
    """

    life: Life
    version: Tso
    way: str
    text: str = ""
    who: str = ""
    when: str = ""

    def __str__(self) -> str:
        told = f" {self.text!r}" if self.text else ""
        return f"released: {self.way}{told}"


Releases = Mapping[tuple[Life, Tso], Release]


def ways_out(name: TableId | Life, version: Tso, offered: Iterable[str], more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the commands that release a DDL, each after what it means. `offered` are keys of WAYS or `as written`."""
    command = f"cdc-assets release {shlex.quote(str(name))} {version}"
    flags = {"apply": '--apply "DDL"', "as written": "--apply", "skip": "--skip", "rebuild": "--rebuild"}
    return (*more, *(f"{_SAYS[way]}: {command} {flags[way]}" for way in offered))
