"""Is a table of states what it should be? A look at all of it, for maintenance, which reads it anyway.

    the states of a key never overlap, and none is without length
    those that are open are the rows of the mirror, where both tables are at the same label

Keys are compared value by value: two that only their collation makes equal are not looked at together.
"""

from __future__ import annotations

from cdc_assets.decoding.kinds import partition_column
from cdc_assets.decoding.states import END_TS, START_TS
from cdc_assets.formats import COMMIT_TS
from cdc_assets.lake.lake_table import KEYED_SINCE, LakeTable, parse_lives
from cdc_assets.lake.spark.session import StepSession, quoted
from cdc_assets.lake.state import LakeState
from cdc_assets.model.progress import Life

__all__ = ["state_problem"]


def state_problem(state: LakeState, session: StepSession, life: Life) -> str:
    """Return what is wrong with the states of a table, a sentence; "" if nothing is, and for tables without states."""
    if partition_column(life.kind) != END_TS:
        return ""
    table, mirror = state.find(life), state.tables().get(life.source)
    found = _overlaps(state, session, table)
    if mirror is not None and mirror.name is not None and table.name is not None and mirror.label == table.label:
        found += _differences(state, session, table, mirror)
    if not found:
        return ""
    return f"{life}: {' and '.join(found)}. Rebuild it: cdc-assets rebuild {life}."


def _overlaps(state: LakeState, session: StepSession, table: LakeTable) -> list[str]:
    since = state.file(table.metadata_location).properties.get(KEYED_SINCE, "-1")
    by = ", ".join(map(quoted, table.key or ()))
    row = session.spark.sql(
        f"SELECT count(*) FROM (SELECT {START_TS}, {END_TS}, "
        f"lead({START_TS}) OVER (PARTITION BY {by} ORDER BY {START_TS}) AS next "
        f"FROM {session.name(table.identifier)} WHERE {END_TS} IS NULL OR {END_TS} > {since}) "
        f"WHERE next < coalesce({END_TS}, next + 1) OR {END_TS} <= {START_TS}"
    ).head()
    return [f"{row[0]:,} of its states overlap the next one of their key"] if row is not None and row[0] else []


def _differences(state: LakeState, session: StepSession, table: LakeTable, mirror: LakeTable) -> list[str]:
    lives = parse_lives(state.file(table.metadata_location).properties)
    columns = [(quoted(life.column), quoted(life.source)) for life in lives if life.until is None]
    mine, theirs = (", ".join([*some, COMMIT_TS]) for some in zip(*columns, strict=True))
    present = f"SELECT {mine} FROM {session.name(table.identifier)} WHERE {END_TS} IS NULL"
    rows = f"SELECT {theirs} FROM {session.name(mirror.identifier)}"
    row = session.spark.sql(
        f"SELECT (SELECT count(*) FROM ({present} EXCEPT ALL {rows})), "
        f"(SELECT count(*) FROM ({rows} EXCEPT ALL {present}))"
    ).head()
    if row is None or not any(row):
        return []
    return [f"{row[0]:,} of its open states are no rows of {mirror.name}, of whose rows {row[1]:,} have no open state"]
