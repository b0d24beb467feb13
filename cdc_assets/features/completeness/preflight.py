"""Rules about tables that lack rows from before the feed."""

from __future__ import annotations

from collections.abc import Iterator

from cdc_assets.history.policies import Rules
from cdc_assets.model.findings import INCOMPLETE, Finding
from cdc_assets.model.gaps import gap_cause, is_complete
from cdc_assets.model.table_history import History
from cdc_assets.preflight.conformance import live, warning


def findings(history: History, rules: Rules) -> Iterator[Finding]:
    """Yield the tables that are incomplete, and patterns of complete ones that match none."""
    for table in live(history):
        if table.gap is not None and not table.gap.accepted:
            yield warning(INCOMPLETE, gap_cause(table.gap, table.life), table.name)
    lives = history.lives
    unmatched = [pattern for pattern in rules.complete if not any(is_complete(life, [pattern]) for life in lives)]
    if unmatched and lives:
        yield warning(
            "unmatched-complete",
            "patterns of initial: complete match no table, so they say nothing. They are matched against schema.table, "
            "as tables were called when the changefeed began, or against the identity schema.table@version. Correct "
            "them, or remove those of tables that were never there.",
            detail=", ".join(unmatched),
        )
