"""Are the states that runs have just written what they should be? A look without Spark: at these states, and at counts.

    on their keys   states do not overlap, and those that are open are the mirror's rows of the same commits
    of all          there are as many open states as the mirror has rows, by what the tables say of their files

Files of older states are not read. What compares with the mirror is asked where both tables are at the same place.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from cdc_assets.decoding.deliveries import groupable
from cdc_assets.decoding.split import with_key
from cdc_assets.decoding.states import END_TS, START_TS
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.lake.lake_table import KEYED_SINCE, LakeTable
from cdc_assets.lake.scan import TableScan
from cdc_assets.lake.state import LakeState
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.types.frames import exact

_SHOWN = 3


def state_fault(state: LakeState, life: Life, since: Tso, schema: TableSchema) -> str:
    """Return the fault of states written since a position, a sentence with the first keys; "" for none."""
    table, mirror, schema = state.find(life), state.tables().get(life.source), schema.in_lake
    scan = TableScan(state, table)
    keyed = int(state.file(table.metadata_location).properties.get(KEYED_SINCE) or -1)
    after, key = max(since, keyed), [exact(name) for name in schema.key]
    condition = f"{START_TS} > {after} OR {END_TS} > {after}"
    frame, by = with_key(_together(scan, condition, [*schema.key, START_TS, END_TS]), schema, (START_TS, END_TS))
    frame = frame.sort([*by, START_TS], nulls_last=True)
    follows = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in by)
    next_ = pl.when(follows.fill_null(False)).then(pl.col(START_TS).shift(-1))
    overlaps = (next_ < pl.col(END_TS).fill_null(next_ + 1)) | (pl.col(END_TS) <= pl.col(START_TS))
    wrong = frame.filter(overlaps.fill_null(False))
    faults = _sentence("{count:,} of its states overlap the next one of their key", wrong.select(key))
    if mirror is not None and None not in (mirror.name, table.name) and _place(mirror) == _place(table):
        rows = TableScan(state, mirror)
        faults += _differences(scan, rows, since, schema)
        open_, count = scan.count(f"{END_TS} IS NULL"), rows.count("")
        if table.since is None and open_ != count:
            faults.append(f"there are {counted(open_, 'open state')}, and {mirror.name} has {counted(count, 'row')}")
    return f"{life}: {'; '.join(faults)}. Rebuild it: cdc-assets rebuild {life}." if faults else ""


def _place(table: LakeTable) -> object:
    return table.label.progress, table.label.ddl


def _differences(scan: TableScan, mirror: TableScan, since: Tso, schema: TableSchema) -> list[str]:
    live = [(column.name, column.source_name) for column in schema.live]
    own_columns, mirror_columns = ([pair[side] for pair in (*live, (COMMIT_TS, COMMIT_TS))] for side in (0, 1))
    states = _together(scan, f"{COMMIT_TS} > {since} AND {END_TS} IS NULL", own_columns)
    rows = _together(mirror, f"{COMMIT_TS} > {since}", mirror_columns).rename_columns(own_columns)
    sides = [
        side.append_column("_cdc_count", pa.repeat(pa.scalar(sign, pa.int64()), side.num_rows))
        for side, sign in ((states, 1), (rows.cast(states.schema), -1))
    ]
    frame = pl.from_arrow(pa.concat_tables(sides))
    assert isinstance(frame, pl.DataFrame)
    by = [groupable(frame, name).alias(f"_cdc_value_{place}") for place, name in enumerate(own_columns)]
    counts = frame.group_by(by).agg(pl.col("_cdc_count").sum(), *(pl.col(exact(name)).first() for name in schema.key))
    wrong = counts.filter(pl.col("_cdc_count") != 0).select(map(exact, schema.key)).unique()
    return _sentence("the open state is not the row of the mirror, for {count:,} of the keys", wrong)


def _together(scan: TableScan, condition: str, columns: list[str]) -> pa.Table:
    types = scan.schema(columns)
    return pa.concat_tables([types.empty_table(), *(rows.cast(types) for rows in scan.where(condition, columns))])


def _sentence(text: str, keys: pl.DataFrame) -> list[str]:
    if not len(keys):
        return []
    first = keys.sort(pl.all(), nulls_last=True).head(_SHOWN).rows()
    shown = ", ".join(str(row[0] if len(row) == 1 else row) for row in first)
    return [f"{text.format(count=len(keys))} (key {shown})"]
