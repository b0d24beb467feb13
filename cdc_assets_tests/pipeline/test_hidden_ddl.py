"""Generated histories of which a changefeed has only a part: equal to the source, or held with a reason.

An event filter hides DDL that change columns, and schema files of such DDL are lost. What no reader can know is left
out: DDL that hide what they do to rows. How often a feed is applied must not matter, and this is the rule:

- a table that is not held equals the source at the checkpoint, in one go as well as step by step;
- a held table has a reason and equals the source at the TSO that it stands at.

So both ways end equal, or both are held, or one went further and is right; neither is ever wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import note
from hypothesis import strategies as st

from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.generated import PICKS, RAW, STYLES, Feed, each_case, faults, feeds, how_many
from cdc_assets_tests.histories import KINDS, history
from cdc_assets_tests.lake_contents import contents_of
from cdc_assets_tests.pipeline.test_histories import small
from cdc_assets_tests.source import Col, Ddl, Parts, Rows, Source, Table
from cdc_assets_tests.writer import TOMLS, Publication, Style, Writer, publications

STATING = STYLES.map(lambda style: replace(style, defaults=True))
"""Where neither a DDL nor a file states a default, that of a hidden ADD COLUMN is a guess."""
COLUMN_TYPES = (5, 6, 12, 61)
"""ADD, DROP and MODIFY COLUMN, and several of them."""

KIND = st.sampled_from(
    [
        *["rows"] * 12,
        *(kind for kind in KINDS if kind not in ("set default", "swap columns")),
        *["add column", "drop column", "modify column"] * 3,
        *["recover table", "truncate", "exchange partition", "drop table"],
    ]
)
"""Columns of one type that change names, and a default of before a hidden ADD COLUMN, leave no trace."""
STEPS = st.builds(
    lambda tables, steps: [("create", raw) for raw in tables] + steps,
    st.lists(RAW, min_size=1, max_size=3),
    st.lists(st.tuples(KIND, RAW), min_size=12, max_size=40),
)


def hideable(source: Source) -> list[Tso]:
    """The DDL that a changefeed may leave out: an order of columns, or of members, leaves no trace."""
    return [
        event.ts
        for event in source.log
        if isinstance(event, Ddl)
        and len(event.notes) == 1
        and event.notes[0].type in COLUMN_TYPES
        and not (
            event.notes[0].type == 12 and (" FIRST" in event.sql or " AFTER " in event.sql or " ENUM(" in event.sql)
        )
    ]


def traced(source: Source, untold: Collection[Tso]) -> set[Tso]:
    """`untold` without changes of columns that came untold: what old rows got then leaves no trace."""
    came: set[str] = set()
    traced_positions = set()
    for event in source.log:
        if isinstance(event, Ddl) and event.ts in untold:
            changed = re.findall(r"(?:MODIFY|CHANGE|RENAME) COLUMN `(\w+)`", event.sql)
            if not came & set(changed):
                came |= set(re.findall(r"ADD COLUMN `(\w+)`", event.sql))
                traced_positions.add(event.ts)
    return traced_positions


def knowable(source: Source, ts: Tso, untold: Collection[Tso]) -> dict[TableId, list[Any]]:
    """What tables may hold at `ts`: whether the newest DDL of a table is known that no row or file followed is open."""
    contents = source.contents(ts)
    known: dict[TableId, list[Any]] = {}
    for name, held in contents.items():
        known[name] = [held]
        for event in reversed([event for event in source.log if event.ts <= ts]):
            if isinstance(event, Ddl):
                if event.ts in untold and event.notes[0].table == name:
                    known[name].append(source.contents(event.ts - 1)[name])
                elif any(other.table == name for other in event.notes):
                    break
            elif any(change.table == name for change in event.changes):
                break
    return known


def quiet_faults(feed: Feed, publication: Publication, source: Source, untold: Collection[Tso]) -> list[str]:
    """Apply a publication and say what is wrong without a reason."""
    outcome, expected = feed.apply(publication), knowable(source, publication.shown, untold)
    lives = outcome.plan.history.lives
    held = {t.life for t in outcome.tables if t.state in ("held", "failed")}
    problems = [f"{t.life} is failed: {t.reason}" for t in outcome.tables if t.state == "failed"]
    problems += [f"{t.life} is held without a reason" for t in outcome.tables if t.state == "held" and not t.reason]
    owners = {table.name: life for life, table in feed.lake.tables.items() if table.name is not None}
    excused = {name for life in held for name, _, _ in lives[life].names}
    excused |= {name for name, life in owners.items() if life in held}
    actual = feed.contents
    for name in sorted({*expected, *actual} - excused):
        if actual.get(name) not in expected.get(name, [None]):
            problems.append(f"{name} is {actual.get(name)}, expected {expected.get(name)}")
    return problems + standing_faults(feed, held, source, untold)


def standing_faults(feed: Feed, held: Collection[Life], source: Source, untold: Collection[Tso]) -> list[str]:
    """Say which held tables are not what the source was when they stopped.

    An empty one may have taken later columns with its CREATE.
    """
    problems = []
    for life in held:
        table = feed.lake.tables.get(life)
        if table is not None and table.name is not None:
            at, actual = table.progress.tso, contents_of(table.rows)
            expected = knowable(source, at, untold).get(table.name, [])
            if table.ddl > at and any(not rows for _, rows in expected):
                later = knowable(source, table.ddl, untold).get(table.name, [])
                expected = [*expected, *((columns, Counter()) for columns, _ in later)]
            if actual not in expected:
                problems.append(f"{life} stopped at {at} and is {actual}, expected {expected}")
    return problems


def applied(
    source: Source, style: Style, tomls: Mapping[str, Path], untold: Collection[Tso] = ()
) -> tuple[list[str], ...]:
    """Apply a feed after every event, and another in one go; return what is wrong or held in the end of each."""
    writer = Writer(style, lambda below: 0, hidden=untold)
    with feeds(style, tomls[style.rendering]) as (often, once):
        for event in source.log:
            writer.write(event)
            writer.flush()
            publication = Publication(event.ts, event.ts, writer.files)
            if event.ts not in untold:
                problems = faults(often, publication, source.contents(event.ts))
        return problems, faults(once, publication, source.contents(event.ts))


def insert(source: Source, name: TableId, **row: Any) -> None:
    table = source.tables[name]
    source.commit({name: {**table.rows, (row["i"],): row}})


def add_column(source: Source, col: Col) -> Tso:
    """Add a column at the end; return the DDL's TSO."""
    table = source.tables[ONE]
    rows: Rows = {handle: {**row, col.name: col.default} for handle, row in table.rows.items()}
    source.alter(table, f"ADD COLUMN {col.sql}", 5, replace(table, columns=(*table.columns, col), rows=rows))
    return source.log[-1].ts


ONE, OTHER = TableId("one", "a"), TableId("one", "b")
PLAIN = Style("csv")


def test_columns_that_a_rename_shows_first_are_followed_before_it(tomls: Mapping[str, Path]) -> None:
    source, _ = small(Col("p", "INT"))
    hidden = add_column(source, Col("w", "INT", default=7, id=3))
    source.rename([(ONE, OTHER)])
    insert(source, OTHER, i=3, p=4, w=5)
    assert applied(source, PLAIN, tomls, {hidden}) == ([], [])


def test_rows_that_go_back_to_a_directory_of_earlier_columns_hold_their_table(tomls: Mapping[str, Path]) -> None:
    source, _ = small(Col("p", "INT"))
    add_column(source, Col("w", "INT", id=3))
    insert(source, ONE, i=3, p=4, w=5)
    table = source.tables[ONE]
    rows: Rows = {handle: {"i": row["i"], "p": row["p"]} for handle, row in table.rows.items()}
    source.alter(table, "DROP COLUMN `w`", 6, replace(table, columns=table.columns[:2], rows=rows))
    hidden = source.log[-1].ts
    insert(source, ONE, i=4, p=4)
    for problems in applied(source, PLAIN, tomls, {hidden}):
        assert "is held" in problems[0]
        assert "whose columns were not in force then" in problems[0]


def test_a_type_that_leaves_values_alone_does_not_hold_a_first_load(tomls: Mapping[str, Path]) -> None:
    source, table = small(Col("p", "VARCHAR", 20))
    wide = replace(table.columns[1], type="TEXT", size=None)
    source.alter(table, f"MODIFY COLUMN {wide.sql}", 12, replace(table, columns=(table.columns[0], wide)))
    insert(source, ONE, i=3, p="x")
    add_column(source, Col("w", "INT", default=7, id=3))
    insert(source, ONE, i=4, p="y", w=1)
    assert applied(source, PLAIN, tomls) == ([], [])


@pytest.mark.parametrize("clause", ["MODIFY COLUMN `w` INT DEFAULT 9", "ALTER COLUMN `w` SET DEFAULT 9"])
def test_a_change_of_a_column_that_came_without_a_ddl_holds_its_table(tomls: Mapping[str, Path], clause: str) -> None:
    source, _ = small(Col("p", "INT"))
    hidden = add_column(source, Col("w", "INT", nullable=False, default=7, id=3))
    table = source.tables[ONE]
    changed = replace(table.columns[2], nullable=clause.startswith("MODIFY"), default=9)
    source.alter(table, clause, 12, replace(table, columns=(*table.columns[:2], changed)))
    insert(source, ONE, i=3, p=4, w=5)
    for problems in applied(source, PLAIN, tomls, {hidden}):
        assert "is held" in problems[0]
        assert "the DDL that added it is not in the changefeed" in problems[0]


def partitioned() -> tuple[Source, Table]:
    """`one.a` of two partitions with the rows 1 and 12, and an empty `one.b` with the same columns."""
    source = Source()
    source.create_database("one")
    columns = (Col("i", "INT", nullable=False, id=1), Col("p", "INT", id=2))
    parts = Parts("RANGE", "i", (("r0", source.number(), (10,)), ("r1", source.number(), (100,))))
    table = Table(ONE, source.number(), columns, ("i",), True, parts=parts, numbered=2)
    source.create(table)
    source.create(replace(table, name=OTHER, id=source.number(), parts=None, rows={}))
    source.commit({ONE: {(1,): {"i": 1, "p": 5}, (12,): {"i": 12, "p": 6}}})
    return source, table


def test_columns_that_an_exchange_shows_first_are_followed_before_it(tomls: Mapping[str, Path]) -> None:
    source, _ = partitioned()
    hidden = []
    for name in (ONE, OTHER):
        table = source.tables[name]
        rows: Rows = {handle: {**row, "w": 7} for handle, row in table.rows.items()}
        columns = (*table.columns, Col("w", "INT", default=7, id=3))
        source.alter(table, "ADD COLUMN `w` INT DEFAULT 7", 5, replace(table, columns=columns, rows=rows))
        hidden.append(source.log[-1].ts)
    source.exchange(source.tables[ONE], 0, source.tables[OTHER])
    insert(source, OTHER, i=2, p=4, w=5)
    assert applied(source, PLAIN, tomls, hidden) == ([], [])


@pytest.mark.parametrize("rendering", TOMLS)
def test_rows_from_before_the_first_schema_file_of_a_table_are_its_own(
    tomls: Mapping[str, Path], rendering: str
) -> None:
    source, _ = small(Col("p", "INT"))
    created, moved = source.log[1].ts, source.log[3].ts
    writer = Writer(Style(rendering), lambda below: 0, hidden={created})
    for event in source.log[:2]:
        writer.write(event)
    writer.start = moved  # what comes first is written by a part that began later
    for event in source.log[2:]:
        writer.write(event)
    writer.flush()
    with feeds(writer.style, tomls[rendering]) as (feed, _):
        assert faults(feed, Publication(moved, moved, writer.files), source.contents(moved)) == []


def check_partial(case: Mapping[str, Any], tomls: Mapping[str, Path]) -> None:
    """Apply a history of which some is hidden checkpoint by checkpoint, and in one go."""
    style, picks = case["style"], Picks(case["picked"])
    source = history(case["steps"], style.old_values)
    fates = {ts: picks(5) for ts in hideable(source)}
    untold = traced(source, {ts for ts, fate in fates.items() if fate < 3})
    hidden = {ts for ts in untold if fates[ts] < 2}
    lost = untold - hidden
    note(f"{style}\nhidden {sorted(hidden)}, lost {sorted(lost)}\n{source.script}")
    with feeds(style, tomls[style.rendering]) as (often, once):
        for publication in publications(source, style, Picks(case["raw"]), hidden, lost):
            assert quiet_faults(often, publication, source, untold) == [], publication.checkpoint
        assert quiet_faults(once, publication, source, untold) == [], "in one go"


CASES = st.fixed_dictionaries(
    {"steps": STEPS, "style": STATING, "raw": PICKS, "picked": st.binary(min_size=20, max_size=20)}
)


@how_many(6, 5000)
def test_a_history_of_which_some_is_hidden_is_right_or_held(tomls: Mapping[str, Path], count: int) -> None:
    each_case(count, lambda case: check_partial(case, tomls), CASES, "hidden")
