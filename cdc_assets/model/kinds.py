"""Rules that map a source table to lake tables: the settings `history` and `tables`, by patterns of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

HISTORY_KINDS: Mapping[str, str] = {"log": "Every change of a row", "scd2": "Every state of a row"}
"""Kinds of history tables, each a module of `decoding.kinds` and a writer, and what they have."""

NOT_ASKED_FOR = (
    "the settings history and tables do not ask for it: it stays as it is, and nothing is applied to it. Ask for it "
    "again and it goes on from there, or from a newer dump where input is gone by then; or drop it from the lake."
)
"""Why nothing is applied to a table of the lake, and what a person can do."""

STATE_KINDS = frozenset({"scd2"})
"""Kinds of history tables that have a row for each row of the source, changed or not."""


@dataclass(frozen=True, slots=True)
class HistoryRule:
    """The history tables that a pattern gives its tables, beside the mirror or, where `mirror` is false, in its place.

    `track` names the columns whose change makes a new state (none: all), `track_except` those whose change makes none.
    `suffixes` end the names of history tables, by kind, where that is not `__kind`. A rule that `excludes` tables, all
    but those that fit one of the patterns `but`, counts before any other.
    """

    pattern: str
    kinds: tuple[str, ...]
    track: tuple[str, ...] = ()
    track_except: tuple[str, ...] = ()
    mirror: bool = True
    suffixes: Mapping[str, str] = field(default_factory=dict, hash=False)
    but: tuple[str, ...] = ()

    @property
    def excludes(self) -> bool:
        """Return whether tables have neither a mirror nor history tables by it."""
        return not self.mirror and not self.kinds

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of names that a person gave for it."""
        return self.but or (self.pattern,)

    @property
    def tracks_some(self) -> bool:
        """Return whether changes of some columns overwrite a state."""
        return bool(self.track or self.track_except)

    @property
    def literal(self) -> int:
        """Specificity of the pattern: the number of its characters that are no wildcard."""
        return sum(sign not in "*?" for sign in self.pattern)

    def suffix(self, kind: str) -> str:
        """Return the end of the name of a table's history table of that kind."""
        return self.suffixes.get(kind, f"__{kind}")


def excluding(include: Iterable[str], exclude: Iterable[str]) -> tuple[HistoryRule, ...]:
    """Return the rules by which tables have nothing in the lake that fit no pattern of `include`, or one of `exclude`.

    Without patterns to include all tables are included.
    """
    excluded = tuple(HistoryRule(pattern, (), mirror=False) for pattern in exclude)
    included = tuple(include)
    return (*excluded, HistoryRule("*", (), mirror=False, but=included)) if included else excluded


@dataclass(frozen=True, slots=True)
class ColumnLife:
    """A column of the lake that the source had as `source`, from `since` to before `until` (positions, None: still).

    `types` are those that its values were converted from, in order: the position of the DDL, and the type before it.
    `names` are those that the source had for it before `source`, in the same way.
    """

    column: str
    source: str
    since: Tso
    until: Tso | None = None
    types: tuple[tuple[Tso, str], ...] = ()
    names: tuple[tuple[Tso, str], ...] = ()

    def was_there(self, at: Tso) -> bool:
        """Return whether the source had the column at a position."""
        return self.since <= at < (at + 1 if self.until is None else self.until)

    def changed_after(self, at: Tso) -> bool:
        """Return whether the column came, went, or got another type or name after a position."""
        later = (self.since, self.until or 0, *(until for until, _ in (*self.types, *self.names)))
        return any(at < position for position in later)

    def name_at(self, at: Tso) -> str:
        """Return the name that the source had for it at a position."""
        return next((name for until, name in self.names if at < until), self.source)

    def former_type(self, at: Tso) -> str | None:
        """Return the type that the column had at a position, None where it is the present one."""
        return next((text for until, text in self.types if at < until), None)


def other_suffix(kind: str) -> str:
    """Return the way out for history tables whose names others have."""
    return (
        "Give history tables of this kind another end of their names in the setting history, such as "
        f"suffix: {{{kind}: __{kind}_of}}."
    )


def own_name(name: TableId, suffix: str) -> TableId:
    """Return the name of a history table of a source table."""
    return TableId(name.schema, f"{name.table}{suffix}")
