"""Findings about a changefeed: one cause each, and the table, columns or files that it concerns."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(str, enum.Enum):
    """The effect of a finding."""

    STOP = "stop"
    HOLD = "hold"
    WARNING = "warning"


INCOMPLETE = "incomplete"
"""The rule about tables that existed before the feed: a run's outcome reports it for each of them."""

UNMATCHED = "unmatched"
"""The rule about patterns and names of the settings that no table or column of the feed has."""

RULES = (
    "older-copy", "unreadable", "commit-ts", "decoding", "soft-delete", "mask", UNMATCHED, "short-key", "members",
    "files-vanished", "files-missing", "missing-files", "removed-files", "empty-files", "partition-separator",
    "listing", "required-acks", "connector-settings", "sink-parameters", "zone", "date-level", "event-filters",
    "raw-updates", "no-ddl", INCOMPLETE, "missing-rows", "expired-unread", "empty-in-snapshot",
    "unsent-cascades", "replaced-by-create", "renamed-by-copy", "undecided-rows", "rows-run-again", "joint-files",
    "doubled-rows", "patches-passed-over", "alike-keys", "timestamp-key", "text-key", "history-off",
    "history-since", "layout", "keys",
    "approximate-key", "changed-values", "inferred-columns", "table-id-paths", "expiry",
    "files-changed", "cut",
)  # fmt: skip
"""All rules, the most important first: what stops a feed, lost rows, wrong rows, approximations, the rest."""

ABOUT_SETTINGS = frozenset((UNMATCHED, "layout"))
"""Rules about settings that do not do what they ask for: a plan shows them before anything is applied."""

ABOUT_FILES = ("files-missing", "files-changed", "files-vanished")
"""Rules about files that are not as they were, or not all there."""

SEEN_IN_ROWS = frozenset(
    ("zone", "undecided-rows", "rows-run-again", "joint-files", "doubled-rows", "patches-passed-over", "alike-keys",
     "changed-values")
)  # fmt: skip
"""Rules about rows as they are read: a later run does not read them again, so what they found stays true."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: its cause, and what it concerns.

    The cause is `rule` with `sentence`, which says the risk and what to do in the same words wherever it is found.
    `table` is "" where it concerns the whole feed. `detail` is what differs: columns, a count, a file.
    """

    rule: str
    severity: Severity
    table: str
    sentence: str
    detail: str = ""

    @property
    def weight(self) -> tuple[int, int]:
        """The order in which findings are shown: by severity, then by rule."""
        return list(Severity).index(self.severity), RULES.index(self.rule)

    @property
    def identity(self) -> tuple[str, str, str]:
        """Identity of the finding across runs: everything but the detail."""
        return self.rule, self.table, self.sentence

    @property
    def text(self) -> str:
        """The sentence with what it concerns."""
        sentence = f"{self.sentence} ({self.detail})" if self.detail else self.sentence
        return f"{self.table}: {sentence}" if self.table else sentence
