"""People's decisions about the tables of a changefeed: those about single DDL, and all that a lake keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from cdc_assets.model.cuts import CutRequest, SnapshotPin
from cdc_assets.model.forgetting import ForgottenKeys
from cdc_assets.model.gaps import CompletePattern, is_complete
from cdc_assets.model.progress import Life
from cdc_assets.model.tso import Tso


@dataclass(frozen=True, slots=True)
class Release:
    """A person's decision about the DDL of one version in one life.

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
        own_text = f" {self.text!r}" if self.text else ""
        return f"released: {self.way}{own_text}"


Releases = Mapping[tuple[Life, Tso], Release]


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """From `since` on, rows of the tables that match `pattern` are written as the settings say; before, with `before`.

    The pattern is one of first names or identities, as of complete tables. `before` has values by the name of the
    setting. `when` is ISO text in UTC.
    """

    pattern: str
    since: Tso
    before: Mapping[str, str] = field(hash=False)
    who: str = ""
    when: str = ""

    def concerns(self, life: Life) -> bool:
        """Return whether it is about a table."""
        return is_complete(life, [self.pattern])

    def __str__(self) -> str:
        former = ", ".join(f'{name} "{value}"' for name, value in sorted(self.before.items()))
        return f"before {self.since}: {former}"


KeptDecision = Release | CompletePattern | SettingsChange | CutRequest | ForgottenKeys | SnapshotPin
"""What a person decided, as a lake keeps it: one about the same replaces an earlier one."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """What people have decided about the tables of a changefeed, as of one moment.

    Attributes:
        releases: The decisions about single DDL.
        complete: Which tables had no rows before the feed began, or lack rows that people accept, by time.
        settings: From when on settings are in force, by TSO.
        kept_out: The keys whose rows are kept out, by table and name.
        cuts: The cuts that are not made yet, or are to be removed, by position.
    """

    releases: Releases = field(default_factory=dict)
    complete: tuple[CompletePattern, ...] = ()
    settings: tuple[SettingsChange, ...] = ()
    kept_out: tuple[ForgottenKeys, ...] = ()
    cuts: tuple[CutRequest, ...] = ()

    @property
    def complete_patterns(self) -> tuple[str, ...]:
        """The patterns of the tables that had no rows before the feed began, by time."""
        return tuple(decision.pattern for decision in self.complete if not decision.accepted)

    def changed(self, given: Iterable[KeptDecision], *, withdrawn: bool = False) -> Decisions:
        """Return these with other decisions, each in place of one about the same subject.

        With `withdrawn` the given ones are taken out instead.
        """
        own: list[KeptDecision] = [*self.releases.values(), *self.complete, *self.settings]
        kept = {_subject(decision): decision for decision in own}
        for decision in given:
            kept.pop(_subject(decision), None)
            kept |= {} if withdrawn else {_subject(decision): decision}
        return replace(
            self,
            releases={(it.life, it.version): it for it in kept.values() if isinstance(it, Release)},
            complete=tuple(it for it in kept.values() if isinstance(it, CompletePattern)),
            settings=tuple(it for it in kept.values() if isinstance(it, SettingsChange)),
        )


def _subject(decision: KeptDecision) -> tuple[object, ...]:
    match decision:
        case Release():
            return decision.life, decision.version
        case CompletePattern():
            return decision.pattern, decision.accepted
        case SettingsChange():
            return decision.pattern, decision.since
    raise TypeError(decision)
