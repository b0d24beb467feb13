"""The commands with which a person decides about a single DDL."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

WAYS = ("apply", "skip", "rebuild")

_SAYS = {
    "apply": "say what it did",
    "as written": "carry it out as it is written",
    "skip": "leave the rows as they are, columns follow the schema file",
    "rebuild": "drop the rows up to here, and apply what comes after",
}


def ways_out(name: TableId | Life, version: Tso, offered: Iterable[str], more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the commands that release a DDL, each after its meaning. `offered` are keys of WAYS or `as written`."""
    command = f"cdc-assets release {shlex.quote(str(name))} {version}"
    flags = {"apply": '--apply "DDL"', "as written": "--apply", "skip": "--skip", "rebuild": "--rebuild"}
    return (*more, *(f"{_SAYS[way]}: {command} {flags[way]}" for way in offered))
