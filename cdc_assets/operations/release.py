"""Decide held DDL: `cdc-assets release TABLE VERSION --apply "DDL" | --skip | --rebuild | --undo`.

A release belongs to one DDL of one life and stays with it: the life's history is always read with it. So does what a
person says of changed settings, `cdc-assets release TABLE TSO --new-settings`: rows before that TSO are always read
with the former ones.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdc_assets import ddl
from cdc_assets.errors import BadSettings
from cdc_assets.history.policies import WAYS
from cdc_assets.model.decisions import Decisions, KeptDecision
from cdc_assets.model.gaps import CompletePattern, is_complete
from cdc_assets.model.progress import Life
from cdc_assets.model.releases import Release, SettingsChange, releases_of
from cdc_assets.model.schema_changes import DeleteRows
from cdc_assets.model.steps import ApplyRows, ChangeTable, HoldTable
from cdc_assets.model.tso import Tso, iso_now
from cdc_assets.operations.named import is_called, not_in_plan

if TYPE_CHECKING:
    from cdc_assets.model.ledger_entries import TableState
    from cdc_assets.model.splits import Listing
    from cdc_assets.model.table_history import TableHistory
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan

NEW_SETTINGS = "new-settings"
"""The way of a release that is about settings, not about a DDL."""


def release(pipeline: Pipeline, table: str, version: Tso, way: str, text: str = "", who: str = "") -> Plan:
    """Decide a held DDL, and return the plan that follows. Raises BadSettings as `propose_release` does."""
    return propose_release(pipeline, table, version, way, text, who).record(pipeline)


def propose_release(pipeline: Pipeline, table: str, version: Tso, way: str, text: str = "", who: str = "") -> Proposal:
    """Return the decision of a held DDL, not recorded. `table` is a present name or an identity (`s.t@version`).

    A second release of the same DDL replaces the first as long as that was not used. Raises BadSettings for a DDL that
    is not held, and for a release with which it would still be held.
    """
    if way == NEW_SETTINGS and not text:
        return _change_settings(pipeline, table, version, who)
    if way not in WAYS:
        ways = ", ".join((*WAYS, NEW_SETTINGS))
        raise BadSettings(f'"{way}" is not a way to release a table; known are {ways}.')
    if text and way != "apply":
        raise BadSettings(f"a DDL text belongs to the way apply; {way} takes none. Give one or the other.")
    listing, planned = pipeline.planner.plan()
    decided = pipeline.lake.decisions()
    releases = releases_of(decided)
    release_keys = {key for key in releases if key[1] == version and _was_called(table, key[0], planned)}
    _, before = pipeline.planner.plan(listing, decided.changed((releases[key] for key in release_keys), withdrawn=True))
    lives = [life for life in before.history.lives if _was_called(table, life, before)]
    if not lives:
        raise not_in_plan(table, before, before.history.lives.values())
    held = list(dict.fromkeys(life.source for life in lives if _is_held(pipeline, before, life, version)))
    if len(held) != 1:
        raise BadSettings(
            _why_not(pipeline, before, table, version, lives)
            if not held
            else _not_one(table, version, "held DDL", held)
        )
    life = held[0]
    _refuse_doubtful(text, before.history.lives[life])
    proposal = propose(pipeline, listing, [Release(life, version, way, text.strip(), who, iso_now())])
    steps = [step for step in proposal.plan.steps if step.life.source == life and step.at == version]
    still = [step for step in steps if isinstance(step, HoldTable) and step.releasable]
    if still:
        raise BadSettings(
            f"with {way} the DDL of version {version} would still be held: {still[0].reason} Nothing was recorded.",
            ways=still[0].ways,
        )
    return proposal


def _refuse_doubtful(text: str, table: TableHistory) -> None:
    """Refuse a person's DDL that is another table's, or has words in a column that would be passed over silently."""
    if not ddl.is_statement(text, "ALTER", "TABLE"):
        return
    own_names = {name.folded for name, _, _ in table.names}
    named = ddl.tables_by_text(text, table.life.born_as.schema)
    if named and own_names.isdisjoint(name.folded for name in named):
        raise BadSettings(f"the text alters {named[0]}, not {table.last_name or table.life}. Nothing was recorded.")
    if strays := ddl.stray_words(text):
        raise BadSettings(f'"{strays[0]}" means nothing in a column\'s definition. Correct it, or leave it out.')


def decide(
    pipeline: Pipeline, table: str | None, version: Tso | None, flags: Sequence[str], text: str | None, who: str = ""
) -> tuple[Life, Proposal]:
    """Return a release or its undoing by the command line's options, not recorded, and the table that it concerns.

    `text` is that of --apply, `flags` are the other given ones. Raises BadSettings unless exactly one decision is
    given.
    """
    if table is None or version is None:
        raise BadSettings("name the table and the version, as `cdc-assets plan` and the ways out of a hold show them.")
    ways = (*flags, *(() if text is None else ("apply",)))
    if len(ways) != 1:
        raise BadSettings('give one of --apply "DDL", --skip, --rebuild, --new-settings and --undo.')
    if ways == ("undo",):
        proposal = _propose_undo(pipeline, table, version)
    else:
        proposal = propose_release(pipeline, table, version, ways[0], text or "", who)
    # The table concerned is another than the held one if the DDL says that rows came from another table.
    every = proposal.plan.history.lives
    lives = [life for life, held in every.items() if any(event.at == version for event in held.events)]
    named = [life for life in lives if _was_called(table, life, proposal.plan)] or lives
    return next(iter((*named, *(life for life in every if _is_meant(table, life, proposal.plan))))), proposal


RECORD = ("table", "version", "way", "text", "who", "when")
"""Columns that `recorded` gives for a decision."""


def recorded(decisions: Decisions) -> list[tuple[object, ...]]:
    """Return the decisions of people by `release`: a row each on single DDL, incomplete tables, changed settings."""
    released = sorted(decisions.of(Release), key=lambda release: (release.when, release.version))
    rows: list[tuple[object, ...]] = [
        (str(decision.life), decision.version, decision.way, decision.text, decision.who, decision.when)
        for decision in released
    ]
    rows += [
        (
            decision.pattern,
            "",
            "accept-incomplete" if decision.accepted else "complete",
            decision.accepted,
            decision.who,
            decision.when,
        )
        for decision in decisions.of(CompletePattern)
    ]
    rows += [
        (decision.pattern, decision.since, "new-settings", str(decision), decision.who, decision.when)
        for decision in decisions.of(SettingsChange)
    ]
    return rows


def undo(pipeline: Pipeline, table: str, version: Tso) -> Plan:
    """Undo a release that was not used yet, and return the plan that follows. Raises BadSettings."""
    return _propose_undo(pipeline, table, version).record(pipeline)


def _propose_undo(pipeline: Pipeline, table: str, version: Tso) -> Proposal:
    listing, planned = pipeline.planner.plan()
    decided = pipeline.lake.decisions()
    released = releases_of(decided).items()
    matches = [release for key, release in released if key[1] == version and _was_called(table, key[0], planned)]
    changes = [settings_change for settings_change in decided.of(SettingsChange) if settings_change.since == version]
    patterns = {_pattern(table, planned), *(glob.escape(str(life)) for life in _meant(table, planned))}
    matching_changes = [settings_change for settings_change in changes if settings_change.pattern in patterns]
    if matching_changes and not matches:
        return propose(pipeline, listing, matching_changes[:1], withdrawn=True)
    if len(matches) != 1:
        raise BadSettings(_not_one(table, version, "release", [decision.life for decision in matches]))
    release = matches[0]
    applied = pipeline.lake.applied()
    affected = {
        life for life, table in planned.history.lives.items() for event in table.events if event.release == release
    }
    if any(life in applied and applied[life].ddl >= release.version for life in (*affected, release.life)):
        raise BadSettings(
            f"the release of {release.life} at version {version} ({release.way}) was used: the lake table is past "
            "that DDL, and its history is read with the release. It cannot be undone."
        )
    return propose(pipeline, listing, matches, withdrawn=True)


def _change_settings(pipeline: Pipeline, table: str, since: Tso, who: str) -> Proposal:
    """Propose that rows of a table, or of those of a pattern, are written with the present settings from a TSO on.

    Those before it are read with the settings of the tables' labels. Raises BadSettings where these are the same.
    """
    listing, planned = pipeline.planner.plan()
    pattern, recipes = _pattern(table, planned), pipeline.planner.recipes(pipeline.lake.decisions())
    remaining_changes = (change for change in recipes.changes if (change.pattern, change.since) != (pattern, since))
    recipes, before = replace(recipes, changes=tuple(remaining_changes)), dict[str, str]()
    for life in _meant(table, planned):
        state = planned.applied.get(life)
        differences = {} if state is None else recipes.difference(planned.history.lives[life], state)
        for name, difference in differences.items():
            if not difference.from_here_on:
                raise BadSettings(
                    f'{life} was read with {name} "{difference.then}", and now has "{difference.now}": no rows are '
                    "written otherwise "
                    f"for that, so it cannot be in force from a TSO on. Set it as it was, or rebuild the table."
                )
            if before.setdefault(name, difference.then) != difference.then:
                raise BadSettings(
                    f'of the tables that match {table} some were read with {name} "{before[name]}" and some with '
                    f'"{difference.then}". Release those of each by themselves.'
                )
    if not before:
        raise BadSettings(
            f"{table} was read with the settings of now, as far as its values depend on any: there is nothing to "
            "release. Change the settings first."
        )
    return propose(pipeline, listing, [SettingsChange(pattern, since, before, who, iso_now())])


def _meant(table: str, planned: Plan) -> list[Life]:
    """Return the tables with a present name, an identity, or with first names that match a pattern.

    What is decided of a table is decided of its history tables too: these count where there is no mirror.
    """
    lives = [life for life in planned.history.lives if _is_meant(table, life, planned)]
    return [life for life in lives if not life.kind] or lives


def _is_meant(table: str, life: Life, planned: Plan) -> bool:
    return is_called(table, (planned.history.lives[life].name, life)) or is_complete(life, [table])


def _pattern(table: str, planned: Plan) -> str:
    """Return the pattern of what a person names: of one table its identity, which stays when it is renamed."""
    meant = _meant(table, planned)
    if not meant:
        raise not_in_plan(table, planned, planned.history.lives.values())
    return glob.escape(str(meant[0].source)) if len(meant) == 1 and not glob.has_magic(table) else table


def _was_called(table: str, life: Life, planned: Plan) -> bool:
    history = planned.history.lives.get(life)
    names = () if history is None else tuple(name for name, _, _ in history.names)
    return is_called(table, (life, life.born_as, *names))


def _is_held(pipeline: Pipeline, planned: Plan, life: Life, version: Tso) -> bool:
    """Return whether a DDL is held in the plan, or was refused by the lake when it was carried out."""
    steps = planned.of(life)
    if any(isinstance(step, HoldTable) and step.releasable and step.at == version for step in steps):
        return True
    refused = steps and steps[0].at == version and not isinstance(steps[0], (ApplyRows, HoldTable))
    return bool(refused) and _ran(pipeline, life) is not None


def _ran(pipeline: Pipeline, life: Life) -> TableState | None:
    """The recorded state of a table that the last run left held or failed."""
    states = pipeline.ledger.states().get(pipeline.settings.name, ())
    return next((s for s in states if s.life == str(life) and s.state.stopped), None)


def _why_not(pipeline: Pipeline, planned: Plan, table: str, version: Tso, lives: Sequence[Life]) -> str:
    """Return the sentence on what a table waits for, if a release cannot decide it."""
    holds = [step for life in lives for step in planned.of(life) if isinstance(step, HoldTable)]
    for hold in holds:
        if hold.releasable:
            return (
                f"{table} is not held at version {version}; it is held at {hold.at}: {hold.reason} Give that version."
            )
        ways = "; ".join(hold.ways)
        return (
            f"{table} is held at version {hold.at}, but not by a DDL of its own that a release could decide: "
            f"{hold.reason}{f' Ways out: {ways}' if ways else ''}"
        )
    for state in filter(None, (_ran(pipeline, life) for life in lives)):
        return (
            f"{table} is {state.state} by its rows, not by a DDL, so there is nothing to release: {state.reason} "
            "Correct the settings (keys, how the changefeed writes) or the files, or let apply set such records aside "
            "with --quarantine."
        )
    return f"{table} is not held at version {version}: its DDL was carried out or is carried out by the next run."


def _not_one(table: str, version: Tso, what: str, lives: Sequence[Life]) -> str:
    if not lives:
        return f"{table} has no {what} at version {version}. `cdc-assets release --list` shows what was released."
    return (
        f"{table} is the name of several tables at version {version}: {', '.join(map(str, lives))}. Give one of these."
    )


@dataclass(frozen=True, slots=True)
class Proposal:
    """Decisions that are not recorded yet, and the plan that follows from them.

    Attributes:
        decisions: The decisions to record, or with `withdrawn` those to take back.
        plan: The plan with them.
    """

    decisions: tuple[KeptDecision, ...]
    plan: Plan
    withdrawn: bool = False

    def record(self, pipeline: Pipeline) -> Plan:
        """Record the decisions in the lake, and return the plan that follows."""
        for decision in self.decisions:
            (pipeline.lake.remove_decision if self.withdrawn else pipeline.lake.keep_decision)(decision)
        lives = {decision.life for decision in self.decisions if isinstance(decision, Release)}
        pipeline.journal.decided(self.plan, lives)
        return self.plan

    @property
    def deletes_rows(self) -> bool:
        """Return whether a DDL that these decisions release deletes rows."""
        released = {(decision.life, decision.version) for decision in self.decisions if isinstance(decision, Release)}
        return not self.withdrawn and any(
            isinstance(step, ChangeTable) and any(isinstance(change, DeleteRows) for change in step.changes)
            for step in self.plan.steps
            if (step.life.source, step.at) in released
        )


def propose(
    pipeline: Pipeline, listing: Listing, decisions: Iterable[KeptDecision], *, withdrawn: bool = False
) -> Proposal:
    """Return decisions, or with `withdrawn` the end of them, with the plan that would follow. Nothing is recorded."""
    new_decisions = tuple(decisions)
    decided = pipeline.lake.decisions().changed(new_decisions, withdrawn=withdrawn)
    return Proposal(new_decisions, pipeline.planner.plan(listing, decided)[1], withdrawn)
