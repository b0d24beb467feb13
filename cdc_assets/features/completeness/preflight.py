"""Rules about tables that lack rows from before the feed."""

from __future__ import annotations

from collections.abc import Iterator

from cdc_assets.history.policies import Rules
from cdc_assets.model.findings import INCOMPLETE, Finding
from cdc_assets.model.gaps import gap_cause
from cdc_assets.model.table_history import History
from cdc_assets.preflight.conformance import live, warning


def findings(history: History, rules: Rules) -> Iterator[Finding]:
    """Yield the tables that are incomplete."""
    for table in live(history):
        if table.gap is not None and not table.gap.accepted:
            yield warning(INCOMPLETE, gap_cause(table.gap, table.life), table.name)
