"""A person's statement that a changefeed was written with other settings before a TSO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_assets.model.gaps import is_complete
from cdc_assets.model.progress import Life
from cdc_assets.model.tso import Tso


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
