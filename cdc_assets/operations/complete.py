"""Say that tables had no rows before their changefeed began: `cdc-assets release --complete PATTERN [--undo]`.

The pattern is stored in the lake, and applies to later tables too. It is journaled for every table that it makes
complete, or incomplete again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings
from cdc_assets.model.gaps import CompletePattern, is_complete, pattern_of
from cdc_assets.model.progress import Gap
from cdc_assets.model.times import iso_now
from cdc_assets.model.tso import tso_now
from cdc_assets.pipeline.completeness import mark
from cdc_assets.report.tables import incomplete_tables

if TYPE_CHECKING:
    from cdc_assets.model.table_history import History
    from cdc_assets.pipeline.pipeline import Pipeline


def say_complete(pipeline: Pipeline, patterns: Sequence[str], who: str = "", run: str = "") -> dict[str, str]:
    """Record that the tables of these patterns had no rows before; return the tables still incomplete, by name.

    Raises BadSettings, with nothing recorded, for a pattern that matches no incomplete table.
    """
    said = {decision.pattern for decision in pipeline.lake.said_complete()}
    now = iso_now()

    def keep(history: History) -> None:
        lacking = {gap.life for table in history.lives.values() for _, gap in table.gaps if isinstance(gap, Gap)}
        for pattern in patterns:
            if pattern not in said and not any(is_complete(life, [pattern]) for life in lacking):
                known = ", ".join(sorted(map(pattern_of, lacking))) or "no table"
                raise BadSettings(f'"{pattern}" matches no incomplete table; incomplete by first name: {known}.')
        for pattern in patterns:
            pipeline.lake.keep_decision(CompletePattern(pattern, who, now))

    return _decided(pipeline, keep, "complete", f"no rows before: {', '.join(patterns)}", who, run)


def unsay_complete(pipeline: Pipeline, patterns: Sequence[str], who: str = "", run: str = "") -> dict[str, str]:
    """Remove recorded patterns; return the tables that are incomplete then, by name. Raises BadSettings."""
    said = {decision.pattern for decision in pipeline.lake.said_complete()}

    def forget(_: History) -> None:
        for pattern in patterns:
            if pattern not in said:
                known = ", ".join(sorted(said)) or "none"
                raise BadSettings(f'"{pattern}" is not a pattern recorded in the lake; known are {known}.')
        for pattern in patterns:
            pipeline.lake.remove_decision(CompletePattern(pattern))

    return _decided(pipeline, forget, "incomplete", f"taken back: {', '.join(patterns)}", who, run)


def _decided(
    pipeline: Pipeline, decide: Callable[[History], None], action: str, what: str, who: str, run: str
) -> dict[str, str]:
    """Decide, journal it for the tables that it changes, and record it in their properties."""
    listing, before = pipeline.plan()
    decide(before.history)
    _, after = pipeline.plan(listing)
    moment, text = tso_now(), f"{what}, says {who}" if who else what
    for life, table in after.history.lives.items():
        if before.history.lives[life].gaps != table.gaps:
            name = table.name or life.born_as
            pipeline.journal.note(life, name, action, text, run, at=moment)
    mark(pipeline.lake, after)
    return incomplete_tables(after.history)
