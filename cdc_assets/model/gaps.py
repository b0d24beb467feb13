"""Tables that lack rows: what a person states about them, and what a person is shown."""

from __future__ import annotations

import glob
import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cdc_assets.model.names import fold_name
from cdc_assets.model.progress import Base, Gap, Life

__all__ = ["Completed", "gap_text", "is_complete", "pattern_of"]


@dataclass(frozen=True, slots=True)
class Completed:
    """A person's statement that all tables matching a pattern had no rows before. `when` is ISO text in UTC."""

    pattern: str
    who: str = ""
    when: str = ""


def is_complete(life: Life, patterns: Iterable[str]) -> bool:
    """Return whether a pattern matches the name that a table had when the feed began, or its identity.

    Its present name does not count: another table may take that later.
    """
    names = [fold_name(str(life.born_as)), fold_name(str(life))]
    return any(fnmatchcase(name, fold_name(pattern)) for pattern in patterns for name in names)


def pattern_of(life: Life) -> str:
    """Return the pattern that matches a table's first name and no other."""
    return glob.escape(str(life.born_as))


def gap_text(gap: Gap, life: Life, base: Base | None = None) -> str:
    """Return the sentence on an incomplete table: what is missing, why, and what a person can do.

    One that is based on a dump (`base`) lacks rows of its own only until they are imported.
    """
    if base is not None and gap.life == life:
        return (
            f"incomplete: its rows as of {base.at}, which are in {base.uri}, are not imported yet, and the table "
            "stays empty until they are. Apply it; if something stops it, the reason is shown too."
        )
    pattern = pattern_of(gap.life)
    quoted = shlex.quote(pattern)
    whose = "it" if gap.life == life else f"{gap.life.born_as}, from which rows came by EXCHANGE PARTITION,"
    bring = "Bring them from a dump, or straight from the source: setting initial, --initial URI. "
    offered = f"They are in {gap.offer}: cdc-assets rebuild {shlex.quote(str(gap.life))}. " if gap.offer else bring
    return (
        f"incomplete: {whose} existed before its changefeed began (its first schema file, of version {gap.since}, has "
        f"no CREATE TABLE), so the rows that it had then are missing here; what changed since is applied. {offered}If "
        "it had "
        f"none, or they are not needed, say so: {json.dumps(pattern, ensure_ascii=False)} in the changefeed's setting "
        f"initial: {{complete: [...]}}, --complete {quoted}, or, to keep it in the lake, cdc-assets release --complete "
        f"{quoted}."
    )
