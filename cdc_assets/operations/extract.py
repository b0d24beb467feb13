"""The changes of a table between two positions: decoded again from the feed, or read from its log table.

    from the log     where it has all of them: its rows, filtered by position
    from the feed    the table's log is planned once more, as if nothing were applied; the windows that reach into the
                     range are decoded by the functions that windows use, and carried through the DDL that follows
    net              one row a key: the last image that enters, or that the key has left

Nothing of the lake is changed, and no Spark is needed. What is not covered is refused with what is.
"""

from __future__ import annotations

import base64
import glob
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from cdc_assets.decoding.kinds import keyed, kind_of, own_columns
from cdc_assets.decoding.upgrade import evolve_rows
from cdc_assets.decoding.window import decode_window, reduced, rejected
from cdc_assets.errors import BadSettings, ExtractRefused
from cdc_assets.formats import COMMIT_TS, OP, POSITION, Op
from cdc_assets.io.output import output
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.schema_changes import DeleteRows
from cdc_assets.model.steps import (
    ApplyRows,
    ChangeTable,
    CreateTable,
    DropTable,
    ExchangePartition,
    HoldTable,
    RecoverTable,
    Step,
)
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.operations.named import table_called
from cdc_assets.operations.opening import EmptyLake
from cdc_assets.pipeline.planner import Planner
from cdc_assets.types.mysql_types import arrow_type

if TYPE_CHECKING:
    from cdc_assets.model.splits import Listing
    from cdc_assets.model.table_history import TableHistory
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan

__all__ = ["CHANGE_TYPE", "FORMATS", "LEAVES", "Extract", "extract", "write_extract"]

_BATCH_ROWS = 10_000

_LOG = "log"
_SUFFIX = "__of_an_extract"
LEAVES = ["DELETE", "UPDATE_BEFORE"]
CHANGE_TYPE, PARTITIONS, PLACE = "_change_type", "_cdc_partitions", "_cdc_place"


@dataclass(frozen=True, slots=True)
class Extract:
    """The changes of a table in (since, until], by position, with the columns that the table has at `until`.

    The columns of the log follow those of the table; `net` says that there is one row a key. `source` is `log` or
    `feed`.
    """

    table: TableId
    life: Life
    since: Tso
    until: Tso
    net: bool
    source: str
    changes: pa.Table
    key: tuple[str, ...] = ()

    def description(self) -> dict[str, object]:
        """Return what it is, for programs."""
        return {
            "table": str(self.table),
            "identity": str(self.life),
            "key": list(self.key),
            "from": self.since,
            "from_time": tso_time(self.since) if self.since > 0 else "",
            "to": self.until,
            "to_time": tso_time(self.until),
            "net": self.net,
            "source": self.source,
            "rows": self.changes.num_rows,
        }


def extract(pipeline: Pipeline, table: str, since: Tso, until: Tso, *, net: bool = False) -> Extract:
    """Return the changes of a table in (since, until]; `table` is a present name or an identity.

    Raises BadSettings for a table or range that is none, ExtractRefused for a range of which something is missing,
    MalformedData for records that do not fit.
    """
    if since >= until:
        raise BadSettings(f"the range begins at {since} and ends at {until}: give an end behind the beginning.")
    if not pipeline.settings.source_options.wire.has_positions:
        raise BadSettings("the rows of this changefeed carry no commit-ts: no change has a place in time.")
    listing, present = pipeline.plan(whole=True)
    history = table_called(table, (present.feed or present.history).lives, present)
    name = history.last_name or history.life.born_as
    if until > listing.checkpoint:
        raise ExtractRefused(
            f"{name}: the feed is complete through {listing.checkpoint} ({tso_time(listing.checkpoint)}), and the "
            f"range ends at {until}. Ask for changes through there, or wait."
        )
    if (logged := _from_log(pipeline, present, history, since, until)) is not None:
        columns, found = logged
        found = _net(found, columns, name) if net else found
        return Extract(name, history.life, since, until, net, "log", found, columns.key)
    planned = _planned(pipeline, listing, history)
    log = next(one for life, one in planned.history.lives.items() if life == replace(history.life, kind=_LOG))
    steps = [step for step in planned.of(log.life) if not isinstance(step, HoldTable) or step.at <= until]
    _refuse_missing(pipeline, listing, history, steps, since, until)
    schema, pieces = None, list[pa.Table]()
    for step in steps:
        schema, pieces = _walked(pipeline, step, since, until, schema, pieces)
    if schema is None:
        raise ExtractRefused(f"{name} does not exist at {until}: it begins at {history.life.version}.")
    empty = _empty(schema, log.life.kind)
    changes = pa.concat_tables([empty, *(piece.select(empty.column_names).cast(empty.schema) for piece in pieces)])
    changes = _net(changes, schema, name) if net else changes
    return Extract(name, history.life, since, until, net, "feed", changes, schema.key)


def _from_log(
    pipeline: Pipeline, present: Plan, history: TableHistory, since: Tso, until: Tso
) -> tuple[TableSchema, pa.Table] | None:
    """Return the columns and changes of the table's log, None where it lacks some or has other columns by now.

    It lacks records that are in quarantine, and one that is held where it stands has values of other settings.
    """
    life = replace(history.life, kind=_LOG)
    log, state = present.history.lives.get(life), present.applied.get(life)
    if log is None or state is None or any(_begins(step) < until for step in present.of(life)):
        return None
    held = any(isinstance(step, HoldTable) and step.at <= state.progress.tso + 1 for step in present.of(life))
    if held or pipeline.lake.quarantined_counts().get(life):
        return None
    begins = state.since if state.since is not None else life.version - 1 if history.gap is not None else 0
    if since < begins or any(event.at > until and event.changes for event in log.events):
        return None
    schema = log.schema.in_lake
    empty = _empty(schema, _LOG)
    rows = pipeline.lake.changes(life, since, until)
    leaves = pc.is_in(rows.column(CHANGE_TYPE), pa.array(LEAVES))
    rows = rows.append_column("_cdc_enters", pc.cast(pc.invert(leaves), pa.int8()))
    rows = rows.sort_by([(POSITION, "ascending"), ("_cdc_enters", "ascending")])
    return schema, rows.select(empty.column_names).cast(empty.schema)


def _begins(step: Step) -> Tso:
    return step.lo if isinstance(step, ApplyRows) else step.at - 1


def _planned(pipeline: Pipeline, listing: Listing, history: TableHistory) -> Plan:
    """Return the plan of an empty lake with a log of the table."""
    pattern = glob.escape(str(history.last_name or history.life.born_as))
    settings = pipeline.settings.with_history({pattern: {"kinds": [_LOG], "suffix": {_LOG: _SUFFIX}}})
    lake, applied = pipeline.lake, pipeline.lake.applied()
    with closing(Ledger("sqlite://")) as ledger:
        empty = Planner(
            settings, pipeline.source, EmptyLake(lake.said_complete(), lake.settings_changes()), ledger, fuse=False
        )
        empty.bases = {life: state.base for life, state in applied.items() if not life.kind}
        empty.from_nothing = True
        return empty.plan(replace(listing, gone={}), lake.releases())[1]


# --- what is there ----------------------------------------------------------------------------------------------------


def _refuse_missing(
    pipeline: Pipeline, listing: Listing, history: TableHistory, steps: Sequence[Step], since: Tso, until: Tso
) -> None:
    """Raise ExtractRefused for a range of which changes are not in the feed, or not to be told."""
    name = history.last_name or history.life.born_as
    for step in steps:
        if isinstance(step, HoldTable):
            raise ExtractRefused(f"{name} is held at {step.at}, within the range: {step.reason}")
        if isinstance(step, (ExchangePartition, RecoverTable)) and since < step.at <= until:
            raise ExtractRefused(
                f"{name}: rows came or went at {step.at} without changes of their own, by EXCHANGE PARTITION or "
                f"RECOVER. Extract the changes through {step.at - 1}, and those from {step.at} on."
            )
    gap = history.gap_at(until, until)
    begins = history.life.version if gap is not None and history.base is None else 0
    expired = max((listing.gone.get(one, 0) for one, _, _ in history.names), default=0)
    there = {file.path for step in steps if isinstance(step, ApplyRows) for file in step.files}
    entries = pipeline.ledger.files(pipeline.settings.name)
    lost = max(
        (
            entry.max_commit_ts
            for entry in entries
            if entry.life == str(history.life.source) and entry.path not in there and entry.max_commit_ts is not None
        ),
        default=0,
    )
    covered = max(begins - 1 if begins else 0, expired, lost)
    if since < covered:
        why = "expired" if expired == covered else "left the feed" if lost == covered else "are not in the feed"
        raise ExtractRefused(
            f"{name}: changes through {covered} ({tso_time(covered)}) {why}. Covered is what comes after: give a range "
            f"that begins there, or later."
        )


# --- the changes ------------------------------------------------------------------------------------------------------


def _walked(
    pipeline: Pipeline, step: Step, since: Tso, until: Tso, schema: TableSchema | None, pieces: list[pa.Table]
) -> tuple[TableSchema | None, list[pa.Table]]:
    """Return the table's columns after a step, and the changes through it with these."""
    if step.at > until and not isinstance(step, ApplyRows):
        return schema, pieces
    match step:
        case CreateTable(schema=created):
            return created, pieces
        case ChangeTable(changes=changes, schema=after):
            pieces = [evolve_rows(piece, changes, after) for piece in pieces]
            emptied = [one for one in changes if isinstance(one, DeleteRows)] if since < step.at else []
            return after, [*pieces, *(_truncated(step, after, one.partitions) for one in emptied)]
        case DropTable() if schema is not None and since < step.at:
            return schema, [*pieces, _truncated(step, schema)]
        case ApplyRows() if step.hi > since and step.lo < until:
            return step.schema, [*pieces, *_decoded(pipeline, step, since, until)]
    return schema, pieces


def _decoded(pipeline: Pipeline, step: ApplyRows, since: Tso, until: Tso) -> Iterator[pa.Table]:
    """Yield the changes of a window that are in the range."""
    stats = pipeline.ledger.file_stats(pipeline.settings.name)
    if step.schema.key and not step.is_import:  # without key only all of a window says what came twice
        step = replace(step, lo=max(step.lo, since), hi=min(step.hi, until))
        step = replace(step, files=tuple(f for f in step.files if f.may_hold(stats.get(f.path), step.lo, step.hi)))
    if not step.files:
        return
    window = reduced(step, [decode_window(step, pipeline.source.reader)])
    if window.report.failed:
        raise rejected(step, window.report)
    if window.changes.num_rows:
        rows = kind_of(step).finished(window.changes, step)
        at = rows.column(POSITION)
        rows = rows.filter(pc.and_(pc.greater(at, since), pc.less_equal(at, until)))
        empty = _empty(step.schema, step.life.kind)
        yield rows.select(empty.column_names).cast(empty.schema)


def _empty(schema: TableSchema, kind: str) -> pa.Table:
    fields = [pa.field(column.name, arrow_type(column)) for column in schema.stored]
    return pa.schema([*fields, *(pa.field(one.name, one.type) for one in own_columns(kind))]).empty_table()


def _truncated(step: Step, schema: TableSchema, partitions: Sequence[str] = ()) -> pa.Table:
    """Return the change that rows went by a DDL, in a row of its own."""
    named: Mapping[str, object] = {
        CHANGE_TYPE: "TRUNCATE",
        POSITION: step.at,
        COMMIT_TS: step.at,
        PLACE: f"DDL of version {step.at}",
        PARTITIONS: list(partitions) or None,
    }
    return pa.Table.from_pylist([dict(named)], _empty(schema, step.life.kind).schema)


def _net(changes: pa.Table, schema: TableSchema, name: TableId) -> pa.Table:
    """Return the last change of each key since the last TRUNCATE of all rows, which is there too."""
    if not schema.key:
        raise BadSettings(f"{name} has no key, so no row can be told from another: its changes have no net.")
    words = changes.column(CHANGE_TYPE).to_pylist()
    if any(changes.column(PARTITIONS).to_pylist()):
        raise ExtractRefused(
            f"{name}: partitions were emptied within the range, and no change says which rows went. Extract without "
            "--net, or up to there and from there on."
        )
    last = max((place for place, word in enumerate(words) if word == "TRUNCATE"), default=-1)
    rows = changes.slice(last + 1)
    if any(rows.column("_cdc_absent").to_pylist()):
        raise ExtractRefused(
            f"{name}: some changes have only some of the columns, so the last one is no whole row. Leave out --net."
        )
    leaves = pc.is_in(rows.column(CHANGE_TYPE), pa.array(LEAVES))
    ops = pc.if_else(leaves, pa.scalar(int(Op.DELETE), pa.int8()), pa.scalar(int(Op.UPDATE), pa.int8()))
    numbered = rows.append_column(OP, ops).append_column("_cdc_line", pa.array(range(rows.num_rows), pa.int64()))
    numbered = numbered.append_column("_cdc_file", pa.array([0] * rows.num_rows, pa.int32()))
    kept = keyed.reduce(numbered, schema, name)[0] if rows.num_rows else numbered
    kept = kept.sort_by([(POSITION, "ascending")]).drop_columns([OP, "_cdc_line", "_cdc_file"])
    words = pc.if_else(pc.equal(kept.column(CHANGE_TYPE), "UPDATE_BEFORE"), "DELETE", kept.column(CHANGE_TYPE))
    kept = kept.set_column(kept.column_names.index(CHANGE_TYPE), CHANGE_TYPE, words)
    return pa.concat_tables([changes.slice(last, 1) if last >= 0 else changes.slice(0, 0), kept])


# --- files ------------------------------------------------------------------------------------------------------------


FORMATS = ("parquet", "jsonl", "csv")


def write_extract(found: Extract, uri: str, kind: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Write an extract as `changes.<kind>` and, after it, `extract.json`, which says what it is; return their names.

    The directory or prefix must have no file. Each file appears as a whole, and `extract.json` last: where it is
    missing, the extract was not finished. Raises BadSettings.
    """
    place = output(uri, options)
    place.refuse_filled()
    name = f"changes.{kind}"
    with tempfile.TemporaryDirectory() as directory:
        changes, about = Path(directory) / name, Path(directory) / "extract.json"
        _WRITERS[kind](found.changes, changes)
        place.put(changes, name)
        about.write_text(json.dumps({**found.description(), "file": name}, ensure_ascii=False, indent=2) + "\n")
        place.put(about, about.name)
    return (name, about.name)


def _parquet(changes: pa.Table, file: Path) -> None:
    pq.write_table(changes, file, compression="zstd")


def _jsonl(changes: pa.Table, file: Path) -> None:
    with file.open("w", encoding="utf-8") as lines:
        for batch in changes.to_batches(_BATCH_ROWS):
            for row in batch.to_pylist():
                lines.write(json.dumps({name: _plain(value) for name, value in row.items()}, ensure_ascii=False))
                lines.write("\n")


def _csv(changes: pa.Table, file: Path) -> None:
    """Write texts in quotes and NULL as nothing; lists as JSON, bytes in base64."""
    columns = []
    for column in changes.columns:
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            values = (_plain(value) for value in column.to_pylist())
            texts = (value if value is None or isinstance(value, str) else json.dumps(value) for value in values)
            columns.append(pa.chunked_array([pa.array(texts, pa.string())]))
        else:
            columns.append(column)
    csv.write_csv(pa.table(columns, changes.column_names), file)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: exact numbers and times as texts, bytes in base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, Decimal) else value


_WRITERS: Mapping[str, Callable[[pa.Table, Path], None]] = {"parquet": _parquet, "jsonl": _jsonl, "csv": _csv}
