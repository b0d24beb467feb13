"""Say that tables had no rows before their changefeed began, or that they may go on without rows that they lack:

    cdc-assets release --complete PATTERN [--undo]
    cdc-assets release TABLE --accept-incomplete [--undo]

Both are stored in the lake, and journaled for every table that they make complete, accepted, or incomplete again. A
pattern of complete tables applies to later ones, too. What is accepted is what a table lacks now, and nothing that it
is found to lack later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings
from cdc_assets.features.completeness.pipeline import mark
from cdc_assets.model.gaps import CompletePattern, complete_patterns, is_complete, pattern_of
from cdc_assets.model.progress import Gap, Life
from cdc_assets.model.tso import iso_now, tso_now
from cdc_assets.operations.named import is_called
from cdc_assets.operations.release import propose
from cdc_assets.report.tables import incomplete_tables

if TYPE_CHECKING:
    from cdc_assets.model.schema import TableId
    from cdc_assets.model.table_history import History
    from cdc_assets.pipeline.pipeline import Pipeline


def say_complete(
    pipeline: Pipeline, patterns: Sequence[str], who: str = "", run: str = "", *, dry_run: bool = False
) -> dict[str, str]:
    """Record that the tables of these patterns had no rows before; return the tables still incomplete, by name.

    With `dry_run` nothing is recorded, and the tables are those that would still be incomplete. Raises BadSettings,
    with nothing recorded, for a pattern that matches no incomplete table.
    """
    recorded = complete_patterns(pipeline.lake.decisions())
    now = iso_now()

    def statements(history: History) -> list[CompletePattern]:
        lacking = {gap.life for table in history.lives.values() for _, gap in table.gaps if isinstance(gap, Gap)}
        for pattern in patterns:
            if pattern not in recorded and not any(is_complete(life, [pattern]) for life in lacking):
                names = ", ".join(sorted(map(pattern_of, lacking))) or "no table"
                raise BadSettings(f'"{pattern}" matches no incomplete table; incomplete by first name: {names}.')
        return [CompletePattern(pattern, who, now) for pattern in patterns]

    decision_text = f"no rows before: {', '.join(patterns)}"
    return _decided(
        pipeline,
        statements,
        "complete",
        f"{decision_text}, says {who}" if who else decision_text,
        None if dry_run else run,
    )


def unsay_complete(
    pipeline: Pipeline, patterns: Sequence[str], who: str = "", run: str = "", *, dry_run: bool = False
) -> dict[str, str]:
    """Remove recorded patterns; return the tables that are incomplete then, by name. Raises BadSettings.

    With `dry_run` nothing is removed.
    """
    recorded = complete_patterns(pipeline.lake.decisions())

    def statements(_: History) -> list[CompletePattern]:
        for pattern in patterns:
            if pattern not in recorded:
                recorded_names = ", ".join(sorted(recorded)) or "none"
                raise BadSettings(f'"{pattern}" is not a pattern recorded in the lake; known are {recorded_names}.')
        return [CompletePattern(pattern) for pattern in patterns]

    decision_text = f"taken back: {', '.join(patterns)}"
    return _decided(
        pipeline,
        statements,
        _WITHDRAWN,
        f"{decision_text}, says {who}" if who else decision_text,
        None if dry_run else run,
    )


def accept_incomplete(
    pipeline: Pipeline, tables: str, who: str = "", run: str = "", *, undo: bool = False, dry_run: bool = False
) -> dict[str, str]:
    """Let incomplete tables go on without the rows that they lack, or take that back; return those that still wait.

    With `dry_run` nothing is recorded. `tables` is a present name, an identity, or a pattern of first names. Raises
    BadSettings, with nothing recorded, where it names no table that lacks rows, or with `undo` none of which that was
    accepted.
    """
    now = iso_now()
    accepted = {decision.accepted for decision in pipeline.lake.decisions().of(CompletePattern)}

    def statements(history: History) -> list[CompletePattern]:
        gaps = {table.gap for life, table in history.lives.items() if table.gap and _is_meant(tables, life, table.name)}
        due = [gap for gap in gaps if (gap.mark in accepted if undo else not gap.accepted)]
        if not due:
            requirement = "is accepted as it is" if undo else "lacks rows that nobody accepted to be missing"
            names = ", ".join(sorted(incomplete_tables(history))) or "no table"
            raise BadSettings(f"{tables}: no table of that name or pattern {requirement}; incomplete: {names}.")
        return [CompletePattern(pattern_of(gap.life), who, now, gap.mark) for gap in due]

    action, decision_text = (
        (_WITHDRAWN, "no longer accepted") if undo else ("accepted", "goes on without rows that it lacks")
    )
    return _decided(
        pipeline, statements, action, f"{decision_text}, says {who}" if who else decision_text, None if dry_run else run
    )


def _is_meant(text: str, life: Life, name: TableId | None) -> bool:
    return is_called(text, (name, life, life.source)) or is_complete(life, [text])


_WITHDRAWN = "incomplete"
"""The action of the journal for a statement that is taken back."""


def _decided(
    pipeline: Pipeline,
    statements: Callable[[History], Sequence[CompletePattern]],
    action: str,
    text: str,
    run: str | None,
) -> dict[str, str]:
    """Record statements, journal them for the tables that they change, and record that in the tables' properties.

    Returns the tables that are incomplete then. Without a `run` nothing is recorded.
    """
    listing, before = pipeline.planner.plan()
    proposal = propose(pipeline, listing, statements(before.history), withdrawn=action == _WITHDRAWN)
    after = proposal.plan
    if run is not None:
        proposal.record(pipeline)
        moment = tso_now()
        for life, table in after.history.lives.items():
            if before.history.lives[life].gaps != table.gaps:
                pipeline.journal.note(life, table.name or life.born_as, action, text, run, at=moment)
        mark(pipeline.lake, after, pipeline.lake.applied())
    return incomplete_tables(after.history)
