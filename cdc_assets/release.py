"""Decisions of a person about DDL that is held: kept in the lake, because they decide; and the ways out that name them.

    held DDL ──▶ ways ──▶ `cdc-assets release TABLE VERSION --apply "DDL" | --skip | --rebuild`
                                     │
             lake (namespace properties of `_cdc`) ──▶ read_history, plan        (pure: a mapping goes in)

A release belongs to one DDL of one life and stays with it: the life's history is read with it for ever after.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote

from cdc_assets.errors import BadSettings
from cdc_assets.model import ApplyRows, HoldTable, Life, TableId, Tso

if TYPE_CHECKING:
    from cdc_assets.ledger import TableState
    from cdc_assets.pipeline import Pipeline
    from cdc_assets.plan import Plan

__all__ = [
    "WAYS",
    "Release",
    "Releases",
    "decide",
    "format_properties",
    "parse_properties",
    "property_names",
    "release",
    "undo",
    "ways_out",
]

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


# --- in the lake ------------------------------------------------------------------------------------------------------

_PREFIX = "cdc.release."
_PIECE = 900
"""Catalogs keep at most 1000 characters of a property in one row, and 255 of its name."""


def format_properties(changefeed: str, release: Release) -> dict[str, str]:
    """Return the namespace properties that hold a release; the inverse of `parse_properties`."""
    said = {
        "changefeed": changefeed,
        "schema": release.life.born_as.schema,
        "table": release.life.born_as.table,
        "born": release.life.version,
        "version": release.version,
        "way": release.way,
        "text": release.text,
        "who": release.who,
        "when": release.when,
    }
    text = json.dumps(said)
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    key = _key(changefeed, release.life, release.version)
    return {f"{key}#{number}": piece for number, piece in enumerate(pieces, 1)}


def parse_properties(properties: Mapping[str, str], changefeed: str) -> dict[tuple[Life, Tso], Release]:
    """Return the releases of a changefeed among a namespace's properties."""
    pieces: dict[str, dict[int, str]] = {}
    for name, piece in properties.items():
        key, _, number = name.rpartition("#")
        if key.startswith(_PREFIX + _encoded(changefeed) + "."):
            pieces.setdefault(key, {})[int(number)] = piece
    found = (json.loads("".join(parts[n] for n in sorted(parts))) for parts in pieces.values())
    releases = (_release(said) for said in found if said["changefeed"] == changefeed)
    return {(one.life, one.version): one for one in releases}


def property_names(properties: Iterable[str], changefeed: str, life: Life, version: Tso) -> set[str]:
    """Return the names under which a release is held now."""
    key = _key(changefeed, life, version)
    return {name for name in properties if name.rpartition("#")[0] == key}


def _release(said: Mapping[str, object]) -> Release:
    life = Life(TableId(str(said["schema"]), str(said["table"])), int(str(said["born"])))
    told = {name: str(said.get(name, "")) for name in ("way", "text", "who", "when")}
    return Release(life, int(str(said["version"])), **told)


def _encoded(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E")


def _key(changefeed: str, life: Life, version: Tso) -> str:
    name = f"{_encoded(life.born_as.schema)}.{_encoded(life.born_as.table)}"
    if len(name) > 120:
        name = f"{name[:80]}~{sha256(name.encode()).hexdigest()[:32]}"
    return f"{_PREFIX}{_encoded(changefeed)}.{name}@{life.version}.{version}"


# --- deciding ---------------------------------------------------------------------------------------------------------


def release(pipeline: Pipeline, table: str, version: Tso, way: str, text: str = "", who: str = "") -> Plan:
    """Decide a held DDL, and return the plan that follows. `table` is a present name or an identity (`s.t@version`).

    A second release of the same DDL takes the place of the first as long as that was not used. Raises BadSettings, with
    nothing kept, for a DDL that is not held, and for a release with which it would still be held.
    """
    if way not in WAYS:
        raise BadSettings(f'"{way}" is no way to release a table; known are {", ".join(WAYS)}.')
    if text and way != "apply":
        raise BadSettings(f"a DDL text belongs to the way apply; {way} takes none. Give one or the other.")
    listing, planned = pipeline.look()
    releases = pipeline.lake.releases()
    known = {key for key in releases if key[1] == version and _is_called(table, key[0], planned)}
    _, before = pipeline.look(listing, {key: one for key, one in releases.items() if key not in known})
    life = _held_life(pipeline, before, table, version)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    one = Release(life, version, way, text.strip(), who, now)
    _, after = pipeline.look(listing, {**releases, (life, version): one})
    still = [step for step in after.of(life) if isinstance(step, HoldTable) and step.releasable and step.at == version]
    if still:
        raise BadSettings(
            f"with {way} the DDL of version {version} would still be held: {still[0].reason} Nothing was kept.",
            ways=still[0].ways,
        )
    pipeline.lake.release(one)
    return after


def decide(
    pipeline: Pipeline, table: str | None, version: Tso | None, flags: Sequence[str], text: str | None, who: str = ""
) -> tuple[Life, Plan]:
    """Release or undo as the command line says it: `text` is that of --apply, `flags` are the others that were given.

    Returns the table and the plan that follows. Raises BadSettings for what says nothing or two things at once.
    """
    if table is None or version is None:
        raise BadSettings("name the table and the version, as `cdc-assets plan` and the ways out of a hold show them.")
    ways = (*flags, *(() if text is None else ("apply",)))
    if len(ways) != 1:
        raise BadSettings('give one of --apply "DDL", --skip, --rebuild and --undo.')
    if ways == ("undo",):
        planned = undo(pipeline, table, version)
    else:
        planned = release(pipeline, table, version, ways[0], text or "", who)
    return _decided(pipeline, planned, table, version), planned


def _decided(pipeline: Pipeline, planned: Plan, table: str, version: Tso) -> Life:
    """The table that is concerned: another than was held where the DDL says that rows came from elsewhere."""
    lives = [life for life, held in planned.history.lives.items() if any(event.at == version for event in held.events)]
    named = [life for life in lives if _is_called(table, life, planned)] or lives
    return named[0]


def undo(pipeline: Pipeline, table: str, version: Tso) -> Plan:
    """Take back a release that was not used yet, and return the plan that follows. Raises BadSettings."""
    listing, planned = pipeline.look()
    releases = pipeline.lake.releases()
    known = [one for key, one in releases.items() if key[1] == version and _is_called(table, key[0], planned)]
    if len(known) != 1:
        raise BadSettings(_not_one(table, version, "release", [one.life for one in known]))
    if _used(pipeline, planned, known[0]):
        raise BadSettings(
            f"the release of {known[0].life} at version {version} ({known[0].way}) was used: the lake table is past "
            "that DDL, and its history is read with the release. It cannot be taken back."
        )
    pipeline.lake.unrelease(known[0].life, version)
    return pipeline.look(listing)[1]


def _used(pipeline: Pipeline, planned: Plan, one: Release) -> bool:
    applied = pipeline.lake.applied()
    decided = {life for life, table in planned.history.lives.items() for event in table.events if event.release == one}
    return any(life in applied and applied[life].ddl >= one.version for life in (*decided, one.life))


def _is_called(table: str, life: Life, planned: Plan) -> bool:
    history = planned.history.lives.get(life)
    names = {life.born_as} | ({name for name, _, _ in history.names} if history is not None else set())
    return table in {str(life), *map(str, names)}


def _held_life(pipeline: Pipeline, planned: Plan, table: str, version: Tso) -> Life:
    lives = [life for life in planned.history.lives if _is_called(table, life, planned)]
    if not lives:
        known = ", ".join(sorted({str(held.name) for held in planned.history.lives.values() if held.name is not None}))
        raise BadSettings(f"no table is called {table}; known are {known or 'none'}. Give a name or an identity.")
    held = [life for life in lives if _is_held(pipeline, planned, life, version)]
    if len(held) != 1:
        raise BadSettings(
            _why_not(pipeline, planned, table, version, lives)
            if not held
            else _not_one(table, version, "held DDL", held)
        )
    return held[0]


def _is_held(pipeline: Pipeline, planned: Plan, life: Life, version: Tso) -> bool:
    """Tell whether a DDL is held in the plan, or was refused by the lake when it was to be carried out."""
    steps = planned.of(life)
    if any(isinstance(step, HoldTable) and step.releasable and step.at == version for step in steps):
        return True
    refused = steps and steps[0].at == version and not isinstance(steps[0], (ApplyRows, HoldTable))
    return bool(refused) and _ran(pipeline, life) is not None


def _ran(pipeline: Pipeline, life: Life) -> TableState | None:
    """What the last run wrote down of a table that it left held or failed."""
    states = pipeline.ledger.states().get(pipeline.settings.name, ())
    return next((s for s in states if s.life == str(life) and s.state in ("held", "failed")), None)


def _why_not(pipeline: Pipeline, planned: Plan, table: str, version: Tso, lives: Sequence[Life]) -> str:
    """Say what a table waits for that a release does not decide."""
    holds = [step for life in lives for step in planned.of(life) if isinstance(step, HoldTable)]
    for hold in holds:
        if hold.releasable:
            return (
                f"{table} is not held at version {version}; it is held at {hold.at}: {hold.reason} Give that version."
            )
        told = "; ".join(hold.ways)
        return (
            f"{table} is held at version {hold.at}, but not by a DDL of its own that a release could decide: "
            f"{hold.reason}{f' Ways out: {told}' if told else ''}"
        )
    for state in filter(None, (_ran(pipeline, life) for life in lives)):
        return (
            f"{table} is {state.state} by its rows, not by a DDL, so there is nothing to release: {state.reason} "
            "Correct the settings (keys, how the changefeed writes) or the files, or let apply keep such records aside "
            "with --quarantine."
        )
    return f"{table} is not held at version {version}: its DDL was carried out or is carried out by the next run."


def _not_one(table: str, version: Tso, what: str, lives: Sequence[Life]) -> str:
    if not lives:
        return f"{table} has no {what} at version {version}. `cdc-assets release --list` shows what was released."
    return f"{table} stands for several tables at version {version}: {', '.join(map(str, lives))}. Give one of these."
