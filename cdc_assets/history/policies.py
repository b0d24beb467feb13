"""Decisions of people about DDL, ahead by kind (policies) or about a single statement (releases), and their
consequences.

schema before + file ──▶ kinds ──▶ Rules.decide ──▶ apply     evolve, as the DDL says
                                                    skip      follow: rows stay, columns are the file's
                                                    rebuild   follow, and no row is left
                                                    hold      with the ways out
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cdc_assets import ddl
from cdc_assets.ddl.kept_columns import bare, emptied, with_kept
from cdc_assets.ddl.schema import with_facts
from cdc_assets.errors import CdcError
from cdc_assets.model.progress import Life
from cdc_assets.model.releases import Release, Releases
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn, DeleteRows, DropColumn, SchemaChange
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """`way` is apply, skip, rebuild or hold; `keep` says that the lake keeps what the source drops.

    `kind` is the kind of DDL whose policy decided, `release` the person's decision that did.
    """

    way: str = "apply"
    keep: bool = False
    kind: str = ""
    release: Release | None = None

    @property
    def by_own_text(self) -> bool:
        """Return whether a person gave a text of their own for the DDL's effect."""
        return self.release is not None and bool(self.release.text)


Zones = Callable[[Life, Tso], str]
"""A table and a version -> the zone in which its TIMESTAMP texts were written then."""


def utc(_life: Life, _version: Tso) -> str:
    """Return the zone of a feed whose settings name none."""
    return "UTC"


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for the tables of a feed from settings and from people, beside its schema files.

    `policies` say what to do by kind of DDL, `releases` what a person decided about a single one: a release overrides
    every policy. `keys` names key columns by `schema.table` where files do not. `complete` are patterns of tables that
    had no rows before the feed began, `accepted` the marks of gaps with which tables may go on.
    `later_tables_are_new` is said of tables that first appear after a connector's snapshot. Without `new_collations`
    the source compares texts by bytes. `zone` gives the setting for zones, the `--tz` of the TiCDC server, as it was
    for a table at a version: in it TIMESTAMP and other types are converted into each other, and defaults read that a
    DDL's text alone states. With `sets_aside` windows go on without records that do not fit. `features` are the
    settings of features that change columns: `applied` of their modules does that, and knows what they say.
    """

    policies: Mapping[str, str] = field(default_factory=dict)
    releases: Releases = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    complete: Sequence[str] = ()
    accepted: Sequence[str] = ()
    later_tables_are_new: bool = False
    new_collations: bool = True
    zone: Zones = utc
    sets_aside: bool = False
    features: Mapping[str, Any] = field(default_factory=dict)

    def release(self, life: Life | None, version: Tso) -> Release | None:
        """Return the decision of a person about a DDL."""
        return self.releases.get((life, version)) if life is not None else None

    def kinds(self, file: SchemaFile, changes: Iterable[SchemaChange] = ()) -> tuple[str, ...]:
        """Return the kinds of DDL of a schema file (see `ddl.kinds`) if there are policies; else ()."""
        return ddl.kinds(file, changes) if self.policies else ()

    def decide(self, life: Life, version: Tso, kinds: Sequence[str]) -> PolicyDecision:
        """Return the decision about a DDL of these kinds: the strictest of their policies, hold before skip."""
        release = self.release(life, version)
        if release is not None:
            return PolicyDecision(release.way, release=release)
        by_policy_value = {self.policies.get(kind, "apply"): kind for kind in reversed(kinds)}
        way = next((way for way in ("hold", "skip") if way in by_policy_value), "apply")
        return PolicyDecision(way, "keep" in by_policy_value, by_policy_value.get(way, ""))


def by_policy(file: SchemaFile, kind: str) -> str:
    """Return the reason of a hold by policy."""
    text = file.query or "columns changed without DDL text"
    return f'{file.table} at {file.version}: {text}. The policy for "{kind}" is to hold it until a person decides.'


def ways_of(error: CdcError) -> tuple[str, ...]:
    """Return the ways out that an error names."""
    ways = error.where.get("ways", ())
    return tuple(ways) if isinstance(ways, (tuple, list)) else (str(ways),)


@dataclass(frozen=True, slots=True)
class SchemaEffect:
    """The effect of a schema file on a table. A non-empty `reason` holds it, `ways` says how it is released.

    With `otherwise` a decision gives the table other rows than the source has.
    """

    after: TableSchema
    changes: tuple[SchemaChange, ...] = ()
    reason: str = ""
    ways: tuple[str, ...] = ()
    release: Release | None = None
    otherwise: bool = False


def evolved(
    before: TableSchema,
    file: SchemaFile,
    collation: str | None,
    rules: Rules,
    table: tuple[Life, TableId],
    key: tuple[str, ...] | None = None,
) -> SchemaEffect:
    """Decide a schema file of a table (its life and name) and carry the decision out on its schema.

    `key` is the one in the settings.
    """
    keeps_columns = any(column.kept for column in before.columns)
    source = bare(before) if keeps_columns else before
    timezone = rules.zone(table[0], file.version)
    file, after, changes, error = _as_written(source, file, collation, timezone)
    decision, otherwise = rules.decide(table[0], file.version, rules.kinds(file, changes)), False
    try:
        if decision.way in ("skip", "rebuild"):
            written = None if error is not None else tuple(changes)
            after, changes = ddl.follow(source, file, collation, timezone, empty=decision.way == "rebuild")
            error = None
            otherwise = decision.way == "rebuild" or (written is not None and written != tuple(changes))
        if decision.way == "rebuild":
            changes = emptied(changes)
        if decision.by_own_text:
            changes = tuple(_confirmed(change) for change in changes)
        keep = decision.keep or (file.grows and rules.policies.get(_DROP) != "apply")
        if error is None and (keeps_columns or keep):
            after, changes = _keeping(before, after, changes, file, keep, key)
    except CdcError as problem:
        error = problem
    if error is None and decision.way != "hold":
        return SchemaEffect(after, tuple(changes), release=decision.release, otherwise=otherwise)
    reason = error.message if error is not None else by_policy(file, decision.kind)
    offered = ("apply" if error is not None else "as written", "skip", "rebuild")
    more = ways_of(error) if error is not None else ()
    return SchemaEffect(after, (), reason, ways_out(table[1], file.version, offered, more), decision.release)


def _as_written(
    before: TableSchema, file: SchemaFile, collation: str | None, timezone: str
) -> tuple[SchemaFile, TableSchema, Sequence[SchemaChange], CdcError | None]:
    """Return the file with its columns listed, and what it makes of a schema; with an error what is known without."""
    try:
        if file.by_text:
            file = ddl.listed(file, before, collation, timezone)
        after, changes = ddl.grown(before, file) if file.grows else ddl.evolve(before, file, collation, timezone)
    except CdcError as error:
        after = with_facts(file, before)
        return (replace(file, columns=before.columns, by_text=False) if file.by_text else file), after, (), error
    return file, after, changes, None


def _keeping(
    before: TableSchema,
    after: TableSchema,
    changes: Sequence[SchemaChange],
    file: SchemaFile,
    keep: bool,
    key: tuple[str, ...] | None,
) -> tuple[TableSchema, Sequence[SchemaChange]]:
    """Return the schema after a file, where columns stay that the source drops."""
    anew = _added_again(before, changes) if file.grows and not file.lags else ()
    rest = tuple(column for column in before.columns if column.name not in anew)
    after, changes = with_kept(replace(before, columns=rest), after, changes, file, keep, key)
    return after, (*map(DropColumn, anew), *changes)


def _added_again(before: TableSchema, changes: Sequence[SchemaChange]) -> tuple[str, ...]:
    """Return the kept columns that the source has added anew: old rows do not get their values back."""
    added = {change.column.name.lower() for change in changes if isinstance(change, AddColumn)}
    return tuple(column.name for column in before.columns if column.kept and column.name.lower() in added)


_DROP = "drop column"
"""A column that is only absent, without a DDL, stays, unless a policy drops it."""


def _confirmed(change: SchemaChange) -> SchemaChange:
    if isinstance(change, DeleteRows) and change.predicate is not None:
        return replace(change, predicate=ddl.confirm_nulls(change.predicate))
    return change


def born(
    file: SchemaFile,
    like: TableSchema | None,
    collation: str | None,
    decision: PolicyDecision,
    reason: str = "",
    timezone: str = "UTC",
) -> SchemaEffect:
    """Decide a schema file that begins a table. `reason` says why it is held anyway: its rows are not known."""
    unknown_rows = reason
    offered: tuple[str, ...] = ("apply", "skip")
    more: tuple[str, ...] = ()
    if not reason and decision.way == "hold":
        reason, offered = by_policy(file, decision.kind), ("as written",)
    try:
        schema = ddl.create(file, like, collation, timezone)
    except CdcError as error:
        schema, reason, more = with_facts(file, None), unknown_rows or error.message, ways_of(error)
    if reason and decision.way in ("skip", "rebuild") and schema.columns:
        return SchemaEffect(schema if file.by_text else ddl.create(replace(file, query="", type=0), like, collation))
    return SchemaEffect(schema, (), reason, ways_out(file.table, file.version, offered, more) if reason else ())


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
