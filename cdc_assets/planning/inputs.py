"""Input of a plan beside the listing and the applied state: facts, rules, and where tables begin anew."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdc_assets.history.policies import Rules
from cdc_assets.model.kinds import HistoryRule
from cdc_assets.model.progress import AppliedState, Base, Life
from cdc_assets.model.reports import FileStats
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import LateFile
from cdc_assets.model.steps import Waypoint
from cdc_assets.model.tso import Tso
from cdc_assets.planning.layout import Layouts
from cdc_assets.planning.recipe import Recipes


@dataclass(frozen=True, slots=True)
class TableRules:
    """Rules for the tables of a feed, from settings and people.

    `recipes` make their recipes, with the zone, `ddl` are the rules of their histories. `kinds` say which
    tables of the lake a table has, `layouts` how their files are laid out. `waypoints` are where features add steps.
    `fuse` lets a new table be created with the columns that later DDL gives it, and
    its rows be applied in one window across those DDL: the same end in fewer commits. Mirrors have `lake_columns`.
    """

    recipes: Recipes
    ddl: Rules = field(default_factory=Rules)
    kinds: Sequence[HistoryRule] = ()
    waypoints: Sequence[Waypoint] = ()
    fuse: bool = False
    layouts: Layouts = field(default_factory=Layouts)
    lake_columns: tuple[str, ...] = ()

    @property
    def history(self) -> Rules:
        """The rules of histories, with the zone of the recipes."""
        return replace(self.ddl, zone=self.recipes.zone)


@dataclass(frozen=True, slots=True)
class FeedFacts:
    """Facts about a feed beside its listing.

    `positions` False means that rows carry no commit-ts: they belong to the DDL before their directory's version.
    `stats` are the statistics of files from earlier readings, to skip those with nothing new; they only save work.
    `unread` has the commit-ts of a row of files that were not read yet, by path.
    `broken` names (root, version, why) of what cannot be read: tables of that name stop before that version. Tables of
    `late` rows stop where they stand. `silent`
    are the sentences about sources of earlier rows that do not answer now. `begun` is a TSO at or before which the feed
    began, if its files do not show it. `has_inserts` says whether a change of a row of that table means that the feed
    has its insert, too, and has it once.
    """

    positions: bool = True
    stats: Mapping[str, FileStats] = field(default_factory=dict)
    broken: Sequence[tuple[str, Tso, str]] = ()
    late: Sequence[LateFile] = ()
    silent: Sequence[str] = ()
    begun: Tso | None = None
    has_inserts: Callable[[TableId], bool] = lambda _: False
    unread: Mapping[str, Tso] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Beginnings of tables that differ from the feed's.

    `bases` are the new dumps that tables are to be based on, None for one that is to be based on the feed alone.
    Tables in `states` begin where another one of their source stands, as the input from before is gone. `renames` are
    the versions of the RENAMEs at which history tables begin whatever the rules say, None for one that begins with its
    source table. Of the tables that left their rule before the lake had them those in `frozen_tables` are made, all by
    default.
    """

    bases: Mapping[Life, Base | None] = field(default_factory=dict)
    states: Mapping[Life, AppliedState] = field(default_factory=dict)
    renames: Mapping[Life, Tso | None] = field(default_factory=dict)
    frozen_tables: Collection[Life] | None = None
