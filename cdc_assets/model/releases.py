"""People's decisions about single DDL, and about the position from which settings are in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from cdc_assets.model.decisions import Decisions, KeptDecision
from cdc_assets.model.gaps import is_complete
from cdc_assets.model.progress import Life
from cdc_assets.model.tso import Tso


@dataclass(frozen=True, slots=True)
class Release(KeptDecision):
    """A person's decision about the DDL of one version in one life.

    `way` is apply (`text` is the DDL that says what really happened, "" the schema file's own), skip (its effect on
    existing rows is left out) or rebuild (the rows up to here are dropped). `when` is ISO text in UTC.
    """

    KEPT_AS: ClassVar[str] = "release"

    life: Life
    version: Tso
    way: str
    text: str = ""
    who: str = ""
    when: str = ""

    @property
    def subject(self) -> tuple[Any, ...]:
        """The DDL: a table and a version."""
        return self.life, self.version

    def __str__(self) -> str:
        own_text = f" {self.text!r}" if self.text else ""
        return f"released: {self.way}{own_text}"


Releases = Mapping[tuple[Life, Tso], Release]


@dataclass(frozen=True, slots=True)
class SettingsChange(KeptDecision):
    """From `since` on, rows of the tables that match `pattern` are written as the settings say; before, with `before`.

    The pattern is one of first names or identities, as of complete tables. `before` has values by the name of the
    setting. `when` is ISO text in UTC.
    """

    KEPT_AS: ClassVar[str] = "settings"

    pattern: str
    since: Tso
    before: Mapping[str, str] = field(hash=False)
    who: str = ""
    when: str = ""

    @property
    def subject(self) -> tuple[Any, ...]:
        """The scope of the change: where the settings change, and for which tables."""
        return self.since, self.pattern

    def concerns(self, life: Life) -> bool:
        """Return whether it is about a table."""
        return is_complete(life, [self.pattern])

    def __str__(self) -> str:
        former = ", ".join(f'{name} "{value}"' for name, value in sorted(self.before.items()))
        return f"before {self.since}: {former}"


def releases_of(decisions: Decisions) -> Releases:
    """Return the decisions about single DDL, by table and version."""
    return {(release.life, release.version): release for release in decisions.of(Release)}
