"""The cuts of a changefeed: `_cdc_cuts.<changefeed>`, a table of the lake itself that lists them, and tags; no JVM but
for tags.

A cut exists once its rows are in that table: one for each table, in one file, by one append. Its tags are there before
that. A cut that is removed is withdrawn first, so that whoever comes next removes what a killed run left.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from cdc_assets.errors import TableMoved
from cdc_assets.lake.growing import GrowingTable
from cdc_assets.lake.names import format_identity, location, parse_identity
from cdc_assets.lake.spark.session import quoted
from cdc_assets.lake.state import LakeState
from cdc_assets.model.cuts import Cut, CutRequest, CutTable, TagTable, cut_requests
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import StepResult
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso, iso_now, iso_time, parse_iso_time, tso_moment

if TYPE_CHECKING:
    from cdc_assets.lake.workbench import Workbench

_PART = "cut"
_COLUMNS = pa.schema(
    [
        pa.field(_PART, pa.string(), nullable=False),
        ("position", pa.int64()),
        ("position_time", pa.timestamp("us", "UTC")),
        ("made_at", pa.timestamp("us", "UTC")),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("identity", pa.string()),
        ("snapshot_id", pa.int64()),
        ("applied_ts", pa.int64()),
        ("left_out", pa.string()),
        ("lacks", pa.string()),
    ]
)

_files: dict[str, Cut] = {}
"""Cuts that were read, by file: a file never changes."""


class IcebergCuts:
    """The cuts of one changefeed. Only what makes and removes them needs the `bench`."""

    def __init__(self, state: LakeState, bench: Workbench | None = None) -> None:
        self.state, self._bench = state, bench
        settings = state.settings
        place = location(settings.root, f"{state.changefeed}~cuts", None)  # no changefeed can be called so
        identifier = (state.places.own.of("cuts"), state.changefeed)
        self.table = GrowingTable(settings, identifier, _COLUMNS, _PART, "cdc.cuts.", place, state.lazy_catalog)

    # --- what there is ---

    def cuts(self) -> tuple[Cut, ...]:
        """Return the cuts that exist, by position. Starts no JVM."""
        look = self.table.look()
        files = [] if look is None else [named[0] for named in look.files.values()]
        for file in files:
            if file not in _files:
                rows = self.table.read(file)
                # A cut without any table has a row that names none.
                records = rows.to_pylist()
                first = records[0]
                tables = tuple(
                    CutTable(
                        parse_identity(row["identity"]),
                        TableId(row["schema"], row["table"]),
                        row["snapshot_id"],
                        row["applied_ts"],
                        row["left_out"] or "",
                        row["lacks"] or "",
                    )
                    for row in records
                    if row["identity"] is not None
                )
                _files[file] = Cut(first[_PART], first["position"], iso_time(first["made_at"]), tables)
        return tuple(sorted((_files[file] for file in files), key=lambda cut: (cut.at, cut.name)))

    def tagged(self, name: str) -> dict[Life, tuple[int, Tso]]:
        """Return the snapshots with the tag of a cut, each with how far it is applied. Starts no JVM."""
        tables = self.state.tables()
        return {
            life: (table.tags[name], self.state.label_of(table, table.tags[name]).progress.tso)
            for life, table in tables.items()
            if name in table.tags
        }

    # --- making and removing ---

    def make_cut(self, request: CutRequest, tables: Sequence[CutTable]) -> Cut | None:
        """Let a cut exist whose tables have their tags; None where it was withdrawn meanwhile.

        Those that are absent lose them. Repeated, it does nothing. A crash in between leaves the request, by which the
        next run does the rest.
        """
        assert self._bench is not None
        cut = Cut(request.name, request.at, iso_now(), tuple(tables))
        for life in self.tagged(cut.name).keys() - {table.life for table in cut.taken}:
            self._bench.untag(life, cut.name)
        if not self._has(cut.name):
            file = self.table.write(cut.name, [_rows(cut)])
            try:
                self.table.append([file], {}, lambda _: not self._has(cut.name))
            except TableMoved as error:
                if not error.where.get("unsettled"):
                    self.table.remove([file])
                if not self._has(cut.name):
                    raise
        lives = {table.life for table in cut.tables if table.snapshot_id is not None}
        still = {cut_request.name: cut_request for cut_request in cut_requests(self.state.decisions.read())}.get(
            cut.name
        )
        if (still is not None and still.withdrawn) or not lives <= self.tagged(cut.name).keys():
            self._unlist(cut.name)
            return None
        self.state.decisions.remove(request)
        return next((listed_cut for listed_cut in self.cuts() if listed_cut.name == cut.name), None)

    def remove_cut(self, request: CutRequest) -> None:
        """Remove a cut, made or half made: from the list, then its tags. Repeated after a crash, it does the rest."""
        assert self._bench is not None
        self.state.decisions.keep(replace(request, withdrawn=True))
        self._unlist(request.name)
        for life, table in self.state.tables().items():
            if request.name in table.tags:
                self._bench.untag(life, request.name)
        self._unlist(request.name)  # a run may have made it in between
        self.state.decisions.remove(request)

    def sweep_cuts(self, before_ms: int) -> None:
        """Expire older snapshots of the list, and remove older files that none refers to. Starts no JVM."""
        if self.table.look() is not None:
            self.table.expire(before_ms)
            self.table.remove_unreferenced(before_ms)

    def _has(self, name: str) -> bool:
        look = self.table.look()
        return look is not None and name in look.files

    def _unlist(self, name: str) -> None:
        for _ in range(3):
            look = self.table.look()
            files = look.files.get(name, ()) if look is not None else ()
            if not files:
                return
            with suppress(TableMoved):
                self.table.replace([], files, {}, lambda _: True)
        raise TableMoved(f"{'.'.join(self.table.identifier)}: others commit all the time. Try again.")


PART = IcebergCuts


def carry_out(bench: Workbench, step: TagTable, started: float) -> StepResult:
    """Tag the snapshot with which the table stands at a cut, unless it is tagged already."""
    if step.tag not in {
        request.name for request in cut_requests(bench.state.decisions.read()) if not request.withdrawn
    }:
        raise TableMoved(f"{step.life}: the cut {step.tag} is no longer to be made. Plan again.", table=str(step.life))
    with bench.on(step.life) as work:
        if step.tag not in work.lake_table.tags:
            if work.label.progress.tso > step.at:
                raise TableMoved(
                    f"{step.life} is already applied to {work.label.progress.tso}, past the cut at {step.at}. Plan "
                    "again.",
                    table=str(step.life),
                )
            work.session.statements.append(
                f"ALTER TABLE {work.target.name} CREATE TAG {quoted(step.tag)} AS OF VERSION {work.target.snapshot}"
            )
            work.target.table.manageSnapshots().createTag(step.tag, work.target.snapshot).commit()
        return bench.result(work, started)


def _rows(cut: Cut) -> pa.Table:
    shared = {
        _PART: cut.name,
        "position": cut.at,
        "position_time": tso_moment(cut.at),
        "made_at": parse_iso_time(cut.made),
    }
    rows = [
        {
            **shared,
            "schema": table.name.schema,
            "table": table.name.table,
            "identity": format_identity(table.life),
            "snapshot_id": table.snapshot_id,
            "applied_ts": table.applied_ts,
            "left_out": table.why_not,
            "lacks": table.lacks,
        }
        for table in cut.tables
    ]
    return pa.Table.from_pylist(rows or [shared], _COLUMNS)
