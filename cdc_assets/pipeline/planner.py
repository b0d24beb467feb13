"""The feed's checkpoint and listing, the lake's progress -> a plan of what is to be done. Nothing is changed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cdc_assets.errors import BadSettings
from cdc_assets.features.dumps.pipeline import earliest_row, is_doubted, refuse_dumps, silent_dumps
from cdc_assets.formats import Wire, way_to_commit_ts
from cdc_assets.io.encryption import decrypt, encrypt
from cdc_assets.ledger import Ledger
from cdc_assets.model.decisions import Decisions
from cdc_assets.model.findings import Finding, Severity
from cdc_assets.model.gaps import CompletePattern, complete_patterns
from cdc_assets.model.ledger_entries import NOTED, UNREAD
from cdc_assets.model.names import unfit_name
from cdc_assets.model.progress import AppliedState, Base, Life, Phase, Progress
from cdc_assets.model.releases import releases_of
from cdc_assets.model.reports import FileStats, has_rows
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.steps import ApplyRows, HoldTable
from cdc_assets.model.table_history import History
from cdc_assets.model.tso import Tso, wall_clock_ms
from cdc_assets.pipeline.features import hiding, run_features
from cdc_assets.pipeline.missing_files import entries_of, expired_files, is_unrecorded, missing_files
from cdc_assets.pipeline.settled import is_outdated, late_rows, recalled, seen_again, settle, with_reopened
from cdc_assets.planning.held_back import Naming, wanted_name
from cdc_assets.planning.inputs import Beginnings, FeedFacts, TableRules
from cdc_assets.planning.layout import Layouts
from cdc_assets.planning.plan import Plan, plan, renames_unnamed
from cdc_assets.planning.recipe import Recipes
from cdc_assets.preflight.conformance import (
    conformance,
    conformance_holds,
    expired_holds,
    nameless_holds,
    stamps_of_head,
    take_sample,
    versionless_holds,
)
from cdc_assets.preflight.files import (
    CHANGED_RULE,
    broken_files,
    changed_files,
    file_findings,
    rows_of_no_table,
    unread_files,
)
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources import KnownFiles, Source, renewed

if TYPE_CHECKING:
    from cdc_assets.landing.landing import Landing


class KnownLake(Protocol):
    """The part of a lake that planning needs: how far its tables are applied, and people's decisions."""

    def applied(self) -> Mapping[Life, AppliedState]:
        """Progress of every table of this changefeed, dropped ones included."""

    def decisions(self) -> Decisions:
        """Decisions of people about its tables."""

    def refused_names(self, claims: Iterable[tuple[Life, TableId]]) -> Mapping[tuple[Life, TableId], str]:
        """Return the reasons why tables cannot get these names, for each name that belongs to another changefeed."""


@dataclass(frozen=True)
class EmptyLake:
    """A lake without tables, to inspect a feed or to plan as if nothing was applied, with people's decisions."""

    decided: Decisions = field(default_factory=Decisions)

    def applied(self) -> Mapping[Life, AppliedState]:
        """Nothing."""
        return {}

    def decisions(self) -> Decisions:
        """People's decisions."""
        return self.decided

    def refused_names(self, claims: Iterable[tuple[Life, TableId]]) -> Mapping[tuple[Life, TableId], str]:
        """No refused names."""
        return {}


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Options for planning tables, beside the feed and the lake.

    Attributes:
        fuse: A new table is created with its later columns; else each version of a table is a step of its own.
        bases: The dumps on which tables are based that are built anew from all input; None where tables go on from
            where they stand. Rows that came too late for the tables of the lake are not late for those built anew.
        renames: The versions of the RENAMEs at which history tables begin, as in `Beginnings`.
        frozen_tables: The tables that left their rule and are built anew all the same.
    """

    fuse: bool = True
    bases: Mapping[Life, Base | None] | None = None
    renames: Mapping[Life, Tso | None] = field(default_factory=dict)
    frozen_tables: Collection[Life] = ()

    @property
    def anew(self) -> bool:
        """Whether tables are built anew."""
        return self.bases is not None


AS_IT_STANDS = PlanRequest()
"""Tables go on from where they stand."""


def refuse_unordered(wire: Wire, *, accepted: bool) -> None:
    """Refuse rows without commit-ts, unless the user accepts that order and duplicates are not guaranteed.

    Raises BadSettings.
    """
    if not wire.is_unordered or accepted:
        return
    raise BadSettings(
        "by the given sink URI and changefeed TOML, rows carry no commit-ts: their order is that of the "
        f"{wire.places}, and rows delivered twice cannot be recognised. {way_to_commit_ts(wire)}, or accept that with "
        "--accept-unordered (setting accept_unordered)."
    )


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Pause cyclic garbage collection while planning: with 100,000 files it scanned the kept objects repeatedly."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _unfit(table: TableId) -> str:
    """Return the sentence on a name that no lake can have, "" for any other."""
    for kind, name in (("database", table.schema), ("table", table.table)):
        if reason := unfit_name(name):
            return (
                f"the name of its {kind} is {name!r}, which no table of the lake can have: {reason}. Give it another "
                "name at the source, or leave the table out of the feed."
            )
    return ""


class Planner:
    """Plans one changefeed into one lake, as `request` says.

    `landing` is where topics are landed before they are read, None for a feed that is files. `reader` reads the splits
    of the newest listing, `published` is when its `metadata` was written, `stats` are the statistics of files that
    earlier windows read, those of this run included, and `decided` is what people had decided for the newest plan.
    """

    def __init__(
        self,
        settings: ChangefeedSettings,
        source: Source,
        lake: KnownLake,
        ledger: Ledger,
        request: PlanRequest = AS_IT_STANDS,
        landing: Landing | None = None,
    ) -> None:
        self.settings = settings
        self.masks = settings.masks  # refused before anything is read where a key is missing
        self.encryption_key = self.masks.encryption_key
        self.source = source
        self.lake = lake
        self.ledger = ledger
        self.request = request
        self.features = run_features(anew=request.anew)
        self.landing = landing
        self.reader = source.reader
        self.published = 0.0
        self.decided = Decisions()
        self.stats: dict[str, FileStats] = {}
        self._heads: dict[DataFile, Tso | None] = {}
        self._known: KnownFiles = {}
        self._unrecorded: dict[tuple[str, int, str], bytes] = {}  # schema files that were read here for the first time

    @_collecting_later()
    def plan(
        self,
        listing: Listing | None = None,
        decided: Decisions | None = None,
        on_news: Callable[[], object] = lambda: None,
        whole: bool = False,
    ) -> tuple[Listing, Plan]:
        """Read the checkpoint, list, read progress, plan. Nothing is changed. `decided` stands in for the lake's.

        `on_news` is called before planning if a file is new; `whole` lists settled files, too. Raises BadSettings for
        rows without commit-ts that are not accepted, and MetadataMissing.
        """
        listing = self._listed(whole) if listing is None else listing  # files of another protocol are refused first
        refuse_unordered(self.settings.source_options.wire, accepted=self.settings.accept_unordered)
        planned = self._planned(listing, decided, on_news)
        # Another run may have brought tables forward since the checkpoint was read: then a newer one is there.
        if is_outdated(listing, planned) or any(_went_back(planned)):
            listing = self._listed(whole=True)
            planned = self._planned(listing, decided, on_news)
        wire = self.settings.source_options.wire
        noted = partial(self.ledger.noted, self.settings.name)
        recorded = partial(self.ledger.file_stats, self.settings.name)
        seen = (self.source, wire, listing, planned, self.stats)
        late = {} if self.request.anew else dict(late_rows(*seen, noted, recorded))
        if late:
            listing = replace(listing, late={**listing.late, **late})
            planned = self._planned(listing, decided, on_news)
        unknown = self.rows_of_no_table(listing, planned)
        # Schema files are recorded once a plan could be made: none for wrong settings. They may have defaults and
        # members of masked columns: they are encrypted then, or not recorded at all.
        fresh, self._unrecorded = self._unrecorded, {}
        key = self.encryption_key
        if fresh and (not self.masks or key is not None):
            stored = fresh if key is None else {file: encrypt(data, key) for file, data in fresh.items()}
            self.ledger.record_schema_files(self.settings.name, stored)
        return replace(listing, problems={**listing.problems, **unknown}) if unknown else listing, planned

    def rows_of_no_table(self, listing: Listing, planned: Plan) -> dict[str, str]:
        """Return files with rows of no table, by what is known of files by now, with a sentence for the user."""
        wire, history = self.settings.source_options.wire, planned.feed or planned.history

        def newest_row(file: DataFile, ended: Tso) -> Tso | None:
            if file.bounds is not None:
                return file.bounds[1]
            if (entry := self._read(file)) is not None:
                return entry.max_commit_ts
            # What was written before has no row from after it.
            return self._head(file, history) if file.modified * 1000 >= wall_clock_ms(ended) else None

        return dict(rows_of_no_table(listing, history, newest_row if wire.has_commit_ts else lambda *_: None))

    def note_late(self, life: Life, files: Iterable[DataFile], run: str) -> list[str]:
        """Note files that have rows from before the window that read them first; return their paths.

        The next plan says whether these rows are in the table (see `late_rows`). A file is noted once. Where the ledger
        knows of no other file of the table, it may be a new one, and says nothing.
        """
        name = self.settings.name
        read, noted = self.ledger.file_stats(name), self.ledger.noted(name)
        late = [
            file.path
            for file in files
            if not (self.request.anew or has_rows(read.get(file.path)) or file.path in noted)
            and any(path.startswith(f"{file.root}/") for path in read)
        ]
        for path in late:
            self.ledger.record_unread(name, life, path, run, NOTED)
        return late

    def _read(self, file: DataFile) -> FileStats | None:
        """Return the entry of a file that was read, None for one that was not, or has changed since."""
        file_stats = self.stats.get(file.path)
        return (
            file_stats
            if file_stats is not None and (file_stats.size, file_stats.etag) == (file.size, file.etag)
            else None
        )

    def _head(self, file: DataFile, history: History) -> Tso | None:
        """Return the newest commit-ts at the beginning of a file, None where it cannot be read."""
        if file not in self._heads:
            columns = {file.version: history.decoding[file.root, file.version]}
            head = stamps_of_head(self.source, self.settings.source_options.wire, file.path, columns)
            self._heads[file] = None if head is None else head[1]
        return self._heads[file]

    def _unread(self, listing: Listing, planned: Plan) -> dict[str, Tso]:
        """Return the newest commit-ts at the beginning of files that no run has read, by path: of held tables alone.

        Such a row may show of which table a rename was that does not say it. Of each name the newest file is looked at.
        """
        held, history = {step.life for step in planned.steps if isinstance(step, HoldTable)}, planned.history
        if not held or not self.settings.source_options.wire.has_commit_ts or not renames_unnamed(listing):
            return {}
        names = {name.folded for life in held if life in history.lives for name, _, _ in history.lives[life].names}
        newest = dict[str, DataFile]()
        for file in sorted(listing.data_files, key=lambda file: (file.version, file.date, file.number)):
            owners = {table.folded for table, _ in history.decoding.get((file.root, file.version), ())}
            if file.bounds is None and owners & names and self._read(file) is None:
                newest[file.root] = file
        return {file.path: at for file in newest.values() if (at := self._head(file, history)) is not None}

    def _planned(self, listing: Listing, decided: Decisions | None, on_news: Callable[[], object]) -> Plan:
        listing = replace(listing, late={}) if self.request.anew and listing.late else listing
        self.stats = self.ledger.file_stats(self.settings.name, listing.settled)
        if any(file.path not in self.stats for file in listing.data_files):
            on_news()
        applied, wire = self.lake.applied(), self.settings.source_options.wire
        refuse_dumps(listing, wire, applied)
        self.decided = self.lake.decisions() if decided is None else decided
        rules = self.rules(self.decided)
        facts = FeedFacts(
            wire.has_positions,
            self.stats,
            [
                *broken_files(self.source, listing),
                *unread_files(self.source, listing, self.ledger.unread(self.settings.name)),
            ],
            tuple(listing.late.values()),
            silent_dumps(listing),
            self._start,
            self.settings.source_options.has_inserts,
        )
        frozen_tables = self.request.frozen_tables if self.request.anew else None
        beginnings = Beginnings(self.request.bases or {}, renames=self.request.renames, frozen_tables=frozen_tables)

        begins: dict[Life, AppliedState] = {}

        def holds(history: History) -> tuple[HoldTable, ...]:
            expired = expired_holds(history, listing.gone, {**begins, **applied})
            versionless = versionless_holds(self.source, wire, listing, history)
            return (*conformance_holds(history), *expired, *nameless_holds(history, listing), *versionless)

        planned = plan(listing, applied, rules, facts, beginnings, holds)
        if unread := self._unread(listing, planned):
            facts = replace(facts, unread=unread)
            planned = plan(listing, applied, rules, facts, beginnings, holds)
        if is_doubted(planned.history):
            row = earliest_row(self.source, wire, listing, planned.history)
            facts = replace(facts, begun=min((ts for ts in (row, self._start) if ts), default=None))
            planned = plan(listing, applied, rules, facts, beginnings, holds)
        begins |= self._begins(listing, planned)
        if begins:
            beginnings = replace(beginnings, states=begins)
            planned = plan(listing, applied, rules, facts, beginnings, holds)
        claims = {(step.life, wanted_name(step)): step.at for step in planned.steps if isinstance(step, Naming)}
        unfit = {claim: reason for claim in claims if (reason := _unfit(claim[1]))}
        refused = {**self.lake.refused_names(claims.keys() - unfit.keys()), **unfit}
        if refused:
            refusing = [HoldTable(claim[0], claims[claim], reason) for claim, reason in refused.items()]
            planned = plan(listing, applied, rules, facts, beginnings, lambda history: (*holds(history), *refusing))
        return planned

    def _begins(self, listing: Listing, planned: Plan) -> dict[Life, AppliedState]:
        """Return the tables that were switched on when input from before was gone, and the states in which they begin.

        Those are of the table of the same source, mirror or not, that is applied farthest. One that was only made says
        nothing of the input.
        """
        applied, name = planned.applied, self.settings.name
        standing = dict[Life, AppliedState]()

        def reach(item: tuple[Life, AppliedState]) -> tuple[bool, Progress, bool]:
            return not item[1].is_unread, item[1].progress, not item[0].kind

        for life, state in sorted(applied.items(), key=reach):
            if not state.awaits_rows:
                standing[life.source] = state
        lives = planned.history.lives
        fresh = [life for life in lives if life not in applied and life.source in standing]
        if not fresh or planned.feed is None or self.request.anew:
            return {}
        entries, paths = self.ledger.files(name), {path for path, _, _ in self.ledger.schema_files(name)}
        expired = {hold.life for hold in expired_holds(planned.history, listing.gone, applied)}
        feed, options = planned.feed, self.settings.source_options
        repaired = {life.source for life, state in applied.items() if state.repaired > -1}

        def is_gone(life: Life) -> bool:
            table, own = lives[life], entries_of(self.source, feed, life.source, entries)
            return (
                life.source in repaired  # by rows that are not in the feed
                or life in expired
                or (table.brought is not None and table.brought.lost)
                or bool(expired_files(table, listing.checkpoint, options.retention_days))
                or (not options.is_landed and is_unrecorded(table, standing[life.source], own))
                or any(missing_files(self.source, listing, feed, (life.source,), entries, paths))
            )

        return {life: standing[life.source] for life in fresh if is_gone(life)}

    def _listed(self, whole: bool = False) -> Listing:
        """List the feed, without settled files unless it is to be whole."""
        name, now = self.settings.name, time.time()
        self._known = self._known or self._kept_schema_files()
        late = not self.request.anew and self.settings.source_options.wire.has_positions
        settled = recalled(self.ledger.settled.read(name), now) if late else ()
        listing = self.source.listing(self._known, () if whole else settled)
        if whole:
            listing = with_reopened(listing, settled)
        self.ledger.settled.keep(name, seen_again(settled, listing, now))
        self.published, self.reader = listing.published, self.source.reader
        missing = dict[str, int]()
        if listing.lost or listing.unwritten:
            unread = {entry.path for entry in self.ledger.unread(name)}
            missing |= {path: UNREAD for path in listing.lost if path not in unread}
            noted = {*self.ledger.noted(name), *unread}
            missing |= {path: NOTED for path in listing.unwritten if path not in noted}
        recorded = self.ledger.file_stats(name) if missing else {}
        for path, rows in missing.items():
            place = self.source.place(path, listing)
            if place is not None and path not in recorded:  # else its rows are known, and whether they are applied
                schema, _, table = place.root.partition("/")
                self.ledger.record_unread(name, Life(TableId(schema, table), place.version), path, "", rows)
        self._unrecorded |= listing.fresh
        self._known = renewed(self._known, listing.fresh)
        return listing

    def _kept_schema_files(self) -> KnownFiles:
        """Return recorded schema files; those that another key encrypted are read from the feed again."""
        schema_files: dict[tuple[str, int, str], bytes] = {}
        for file, data in self.ledger.schema_files(self.settings.name).items():
            with suppress(BadSettings):
                schema_files[file] = decrypt(data, self.encryption_key)
        return schema_files

    def recipes(self, decided: Decisions) -> Recipes:
        """Return the recipes by which the tables are read now, by people's decisions."""
        return Recipes.decided(self.settings.source_options.wire, decided, self.masks)

    def rules(self, decided: Decisions) -> TableRules:
        """Return the rules for the tables by the settings and people's decisions."""
        settings, wire = self.settings, self.settings.source_options.wire
        complete = (*settings.initial.complete, *complete_patterns(decided))
        accepted = tuple(decision.accepted for decision in decided.of(CompletePattern) if decision.accepted)
        ddl = replace(settings.rules, releases=releases_of(decided), complete=complete, accepted=accepted)
        points = [point for feature in self.features for point in feature.waypoints(decided, wire)]
        recipes, layouts, lake_columns = self.recipes(decided), Layouts(settings.layouts), settings.columns.names
        return TableRules(recipes, ddl, settings.history_rules, points, self.request.fuse, layouts, lake_columns)

    @property
    def _start(self) -> Tso | None:
        """The feed's start-ts as given in the settings."""
        return self.settings.initial.start_ts

    def waiting(self) -> int:
        """Return the number of messages of topics that are not landed, so that a plan has none of them; 0 for files."""
        return 0 if self.landing is None else self.landing.behind()

    def settle(self, listing: Listing, planned: Plan) -> None:
        """Record which files no window needs any more; what is known of files is read from the ledger again then."""
        name, ledger = self.settings.name, self.ledger
        vanished = [entry.path for entry in ledger.unread(name)]
        ledger.settled.keep(name, settle(listing, planned, self.stats, time.time(), vanished))
        self.stats = {}

    def findings(self, listing: Listing, planned: Plan, sampled: bool = True) -> tuple[Finding, ...]:
        """Check the changefeed itself. Data is read only for tables whose first rows are to be applied."""
        begun = {life for life, state in planned.applied.items() if state.progress.phase is Phase.ROWS}
        new = {s.life: s for s in planned.steps if sampled and isinstance(s, ApplyRows) and s.life not in begun}
        sample = take_sample(self.source, [step.files for step in new.values() if not step.is_snapshot])
        # Without commit-ts plan() has already refused unless that was accepted.
        feed_findings = conformance(
            listing,
            planned.feed or planned.history,
            self.settings.source_options,
            self.settings.rules,
            sample,
            patterns=self.settings.patterns,
            collations_known=self.settings.new_collations is not None,
            hides=hiding(self.decided),
        )
        lives = planned.history.lives  # a kind that is switched off stands still
        applied = {life: state for life, state in planned.applied.items() if not life.kind or life in lives}
        files = file_findings(self.source, listing, self.ledger.files(self.settings.name, listing.settled), applied)
        asked_for = {life.source for life in lives}
        names: dict[bool, set[str]] = {True: set(), False: set()}
        for life, table in planned.sources.items():
            names[life in asked_for].add(str(table.last_name or life.born_as))
        excluded = names[False] - names[True]
        # The other rules about files know more of missing ones.
        of_feed = [note for note in feed_findings if note.rule != "missing-files" and note.table not in excluded]
        layouts = Layouts(self.settings.layouts)
        return (*of_feed, *_went_back(planned), *layouts.findings(planned.history, planned.applied), *files)

    def reread(self, listing: Listing, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Return the findings about changed files that are settled, because the files were read again since."""
        changed = [finding for finding in findings if finding.rule == CHANGED_RULE]
        entries = self.ledger.files(self.settings.name, listing.settled) if changed else ()
        still = set(changed_files(listing, entries))
        return tuple(finding for finding in changed if finding not in still)


def _went_back(planned: Plan) -> Iterator[Finding]:
    """Yield the findings about tables of the lake that the feed does not reach or does not have any more."""
    for life, state in planned.applied.items():
        gone = state.name is not None and life.source not in planned.sources
        if not gone and life not in planned.behind:
            continue
        sentence = (
            "tables of the lake are not in the changefeed any more, so nothing is applied to them. Was it emptied, or "
            "is this another one? Restore it, or give this one a name of its own."
            if gone
            else "tables are applied above the checkpoint of the changefeed, so nothing is applied to them. Is this an "
            "older copy of the changefeed?"
        )
        detail = f"through {state.progress.tso}, checkpoint {planned.checkpoint}"
        yield Finding("older-copy", Severity.STOP, str(state.name or life), sentence, detail)
