"""Record in a table's properties which rows it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from cdc_assets.errors import TableMoved
from cdc_assets.lake.lake_table import GAP, format_gap
from cdc_assets.lake.state import LakeState
from cdc_assets.lake.workbench import Workbench
from cdc_assets.model.progress import Gap, Life


class GapProperties:
    """The marks of the incomplete tables of one changefeed."""

    def __init__(self, state: LakeState, bench: Workbench) -> None:
        self._state, self._bench = state, bench

    def mark_incomplete(self, gaps: Mapping[Life, Gap | None]) -> None:
        """Record which rows tables lack (None: none), except for a table that another writer moves."""
        lake_tables = self._state.tables()
        for life, gap in gaps.items():
            if life in lake_tables and lake_tables[life].gap != gap:
                with suppress(TableMoved), self._bench.on(life) as work:
                    update, recorded = work.target.table.updateProperties(), work.target.table.properties()
                    properties = format_gap(gap)
                    for name in GAP:
                        if name in properties:
                            update.set(name, properties[name])
                        elif name in dict(recorded):
                            update.remove(name)
                    update.commit()


PART = GapProperties
