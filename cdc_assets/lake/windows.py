"""Windows of a table's rows: staged beside it, and committed once.

A step's label is read in its own session first, so a window that is already applied is not applied again.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import DataFrame

from cdc_assets.decoding import FILE
from cdc_assets.decoding.first_images import FIRST_IMAGE, missing_rows
from cdc_assets.decoding.keyed_rows import RecordLookup, RecordReplay, find_keys, read_replay
from cdc_assets.decoding.states import FIRST
from cdc_assets.decoding.window import rejected
from cdc_assets.errors import CdcError, TableMoved
from cdc_assets.features.columns.lake import set_lake_columns, with_missing_columns
from cdc_assets.features.kinds.decoding import kind_of, partition_column
from cdc_assets.features.kinds.lake import writer_of
from cdc_assets.formats import SplitReader
from cdc_assets.lake.commit import CommitTarget, publish
from cdc_assets.lake.compaction import EVERY, compact
from cdc_assets.lake.key_matching import key_equality, place_of
from cdc_assets.lake.label import Label
from cdc_assets.lake.lake_table import GAP, MISSING, REPAIR, REPAIRED, REPLAY, WHOLE, landing_of, read_model
from cdc_assets.lake.layout import set_order
from cdc_assets.lake.row_delta import row_delta_of
from cdc_assets.lake.schema import given_properties
from cdc_assets.lake.spark.failures import races
from cdc_assets.lake.spark.session import quoted
from cdc_assets.lake.staging import stage
from cdc_assets.lake.staging.executors import run_tasks
from cdc_assets.lake.staging.stage import Batch, read_batch
from cdc_assets.lake.staging.tasks import name_of
from cdc_assets.lake.workbench import Work, Workbench, refuse_revised
from cdc_assets.model.layout import DELETED_AT, LIVING
from cdc_assets.model.progress import MissingRows
from cdc_assets.model.reports import AlikeKeys, Report, StagedWindow, StepResult
from cdc_assets.model.steps import ApplyRows


def stage_windows(bench: Workbench, steps: Sequence[ApplyRows], reader: SplitReader) -> list[StagedWindow]:
    """Decode, check and reduce windows of one source table that read the same, large ones on the executors.

    No table is touched.
    """
    revisions = [bench.revision(step.life) for step in steps]
    if not steps[0].files:
        return [StagedWindow("", 0, Report(), run) for run in revisions]
    with bench.lent(steps[0].life), races(str(steps[0].life)):
        staged = stage.stage(bench.engine, [_place(bench, step) for step in steps], reader)
        return [dataclasses.replace(window, revision=run) for window, run in zip(staged, revisions, strict=False)]


def _place(bench: Workbench, step: ApplyRows) -> stage.WindowPlace:
    table = bench.state.last(step.life)  # what has changed since is found out when the window is committed
    kind, landing = kind_of(step), None
    if kind.APPENDS or (kind.LANDS and table.empty):
        landing = landing_of(read_model(bench.state.catalog, table.metadata_location), table.empty)
    if landing is not None and not landing.takes(step):
        landing = None
    return stage.WindowPlace(step, *bench.storage(table), landing)


def commit_window(bench: Workbench, step: ApplyRows, staged: StagedWindow) -> StepResult:
    """Write a staged window with its label in one commit, and remove the stage.

    Raises TableMoved if the table's progress is no longer `step.lo`, or rows of it were forgotten since it was planned.
    """
    started, batch, alike, passed, missing = time.monotonic(), Batch(), AlikeKeys(), 0, None
    if staged.report.failed:
        raise ValueError("a window with records that do not fit is not committed")
    bench.clean_once()
    try:
        with bench.on(step.life) as work:
            refuse_revised(work.lake_table, staged.revision)
            label = work.label.through_rows(step, staged.report.settings)
            if work.label.progress < label.progress:
                if work.label.rows_from != step.lo:
                    raise TableMoved(
                        f"{step.life} is applied to {work.label.rows_from}, and the window begins at {step.lo}: "
                        "another writer committed first. Plan again.",
                        table=str(step.life),
                    )
                if not step.life.kind:
                    _refuse_otherwise_deleted(work, step)
                    work = dataclasses.replace(work, target=set_lake_columns(work.target, step.lake_columns))
                if step.layout is not None and step.layout.sort != work.lake_table.layout.sort:
                    set_order(work.session, work.target.table, step.layout)
                io = bench.storage(work.lake_table)[1]
                if staged.rows:
                    batch = stage.read_manifest(io, staged.path)
                records = bench.records
                may_lack = staged.report.set_aside or bool(work.lake_table.revision)  # rows of it were forgotten
                if batch.unmade is not None and (may_lack or records.waits(step.life.source)):
                    batch = dataclasses.replace(batch, unmade=None)
                with records.bringing_in(step.life, records.fitting(step, io, stage.rejects_of(io, staged))) as mark:
                    texts = (
                        {}
                        if step.layout is None
                        else given_properties(step.layout.properties, work.lake_table.layout.properties)
                    )
                    alike, passed, missing = commit_stage(work.target, label, step, staged, batch, io, mark, texts)
            ends = _writes_more(step)
            result = bench.result(work, started, staged.report, 0 if ends else batch.leaving)
            before, after = work.lake_table.data_files, bench.state.last(step.life).data_files
            if (before or 0) // EVERY < (after or 0) // EVERY:
                _compact(bench, work, step)
    except TableMoved as error:
        if not error.where.get("unsettled"):
            withdraw_window(bench, step, staged)
        raise
    discard_window(bench, staged)
    entering = None if ends else batch.entering - passed
    return dataclasses.replace(result, entering=entering, alike=alike, passed_over=passed, missing=missing)


def _writes_more(step: ApplyRows) -> bool:
    """Return whether a window may write more rows than enter by it: those that end in it, or are marked."""
    return kind_of(step).ENDS or DELETED_AT in step.lake_columns


def _refuse_otherwise_deleted(work: Work, step: ApplyRows) -> None:
    """Raise TableMoved where a mirror began to mark deleted rows, or stopped, since its window was planned."""
    if work.lake_table.layout.marks_deletes != (DELETED_AT in step.lake_columns):
        raise TableMoved(
            f"{step.life} was rebuilt with another setting deletes since its window was planned. Plan again.",
            table=str(step.life),
        )


def repair_rows(
    bench: Workbench, step: ApplyRows, changes: pa.Table, repair: str, snapshot: int | None = None
) -> StepResult:
    """Write the source's rows of some keys in one commit, under the label that the table has.

    `changes` are images as decoding makes them. After a step with `whole_at` no row is known to be missing. Raises
    TableMoved if the table's progress is no longer what was read last, or it is not at `snapshot`, where one is given.
    """

    def refuse_moved(work: Work) -> None:
        if snapshot is not None and work.target.snapshot != snapshot:
            raise TableMoved(
                f"{step.life} was written to since it was compared, so nothing of it was repaired. Compare it again.",
                table=str(step.life),
            )

    whole = {} if step.whole_at is None else {**dict.fromkeys((MISSING, *GAP)), WHOLE: str(step.hi)}
    own: dict[str, str | None] = {REPAIRED: str(step.hi), **whole}
    step = dataclasses.replace(step, whole_at=None)  # its changes prove nothing
    staged = stage.stage_changes(_place(bench, step), changes)
    return _rewrite(bench, step, staged, refuse_moved, {REPAIR: repair}, own)


def replay_records(bench: Workbench, replay: RecordReplay, reader: SplitReader) -> RecordLookup:
    """Merge the changes of quarantined records' keys in one commit, and close the records that fit now.

    In a table that may have equal rows a record must not be added twice: the commit carries a token, under which the
    records are marked before. Another run looks for the commits of all their tokens, in the table as it is loaded for
    its own commit, too. Raises TableMoved if the table's progress is no longer `replay.frame.hi`, or if another run has
    replayed them.
    """
    step, records, spark = replay.frame, bench.records, bench.sessions.side().spark
    life, equal_rows = step.life, kind_of(step).EQUAL_ROWS

    def added() -> set[tuple[str, int]]:
        waiting = records.tokens(life)
        tokens = {token for some in waiting.values() for token in some}
        committed = {token for token in tokens if bench.state.snapshot_with(life, REPLAY, token) is not None}
        places = {(path, n) for path, lines in replay.targets.items() for n in lines}
        return {place for place in places if place not in waiting or waiting[place] & committed}

    if equal_rows:
        done = added()
        records.close(life, done)
        due = {path: frozenset(n for n in lines if (path, n) not in done) for path, lines in replay.targets.items()}
        replay = dataclasses.replace(replay, targets={path: lines for path, lines in due.items() if lines})
    (lookup,) = run_tasks(spark, 1, lambda _: find_keys(replay, reader))
    fitting = [(path, n) for path, lines in replay.targets.items() for n in lines if (path, n) not in lookup.bad]
    if not fitting:
        return lookup
    reads = partial(read_replay, dataclasses.replace(replay, keys=lookup.keys), reader)
    places, staged = [place for place, _ in replay.windows], StagedWindow("", 0, Report())
    if places:
        staged = stage.stage_tasks(spark, *bench.storage(bench.state.find(life)), step, reads, places)
    mark: dict[str, str] = {}

    def refuse_moved(work: Work) -> None:
        if work.label.progress.tso != step.hi:
            raise TableMoved(f"{life} advanced to {work.label.progress.tso} meanwhile. Plan again.", table=str(life))
        if mark and added():
            raise TableMoved(f"{life}: another run has replayed records meanwhile. Plan again.", table=str(life))

    try:
        if staged.report.failed:
            raise rejected(step, staged.report)
        if staged.rows and equal_rows:
            mark[REPLAY] = records.begin_replay(life, fitting)
    except BaseException:
        discard_window(bench, staged)
        raise
    _rewrite(bench, step, staged, refuse_moved, mark)
    records.close(life, fitting)
    return lookup


def _rewrite(
    bench: Workbench,
    step: ApplyRows,
    staged: StagedWindow,
    refuse_moved: Callable[[Work], None],
    mark: Mapping[str, str],
    properties: Mapping[str, str | None] = MappingProxyType({}),
) -> StepResult:
    """Write staged rows of some keys in one commit, under the label that the table has, and remove the stage.

    `refuse_moved` raises TableMoved for a table that is no longer as it was when these rows were chosen.
    """
    started = time.monotonic()
    try:
        with bench.on(step.life) as work:
            refuse_moved(work)
            if not step.life.kind:
                _refuse_otherwise_deleted(work, step)
            io = bench.storage(work.lake_table)[1]
            batch = stage.read_manifest(io, staged.path) if staged.rows else Batch()
            if staged.rows:
                commit_stage(work.target, work.label, step, staged, batch, io, mark, properties)
            elif properties:
                publish(work.target, work.label, mark=mark, properties=properties)
            return bench.result(work, started, staged.report, 0 if _writes_more(step) else batch.leaving)
    except TableMoved as error:
        if not error.where.get("unsettled"):
            withdraw_window(bench, step, staged)
        raise
    finally:
        discard_window(bench, staged)


def _compact(bench: Workbench, work: Work, step: ApplyRows) -> None:
    """Put small files together; where that fails, the window is in the table all the same, and another one tries."""
    with suppress(CdcError, pa.ArrowException, OSError, ValueError, LookupError), races(str(step.life)):
        if compact(work.target, step, bench.storage(work.lake_table)[1]):
            bench.left(work)


def withdraw_window(bench: Workbench, step: ApplyRows, staged: StagedWindow) -> None:
    """Remove a window that is not committed, and its data files unless a snapshot has them, by an earlier commit."""
    with suppress(CdcError, OSError):
        lake_table = bench.state.tables().get(step.life)
        io = bench.io_at(staged.path)
        batch = stage.read_manifest(io, staged.path) if staged.path else Batch()
        lost = lake_table is not None and not bench.state.has_mark(lake_table, STAGED, name_of(staged.path))
        if batch.files and lost:
            stage.remove_files(io, [file.location for file in batch.files])
        discard_window(bench, staged)


def discard_window(bench: Workbench, staged: StagedWindow) -> None:
    """Remove a staged window."""
    stage.discard(bench.io_at(staged.path), staged.path)


def missing_of(target: CommitTarget, changes: DataFrame, step: ApplyRows, batch: Batch) -> MissingRows | None:
    """Return the rows that staged changes need and the table, as it is before them, does not have."""
    if batch.unmade is None or target.empty:
        return batch.unmade
    schema, open_states = step.schema, partition_column(step.life.kind)
    on = [key_equality(schema.column(name), place_of(schema, name)) for name in schema.key]
    on += [f"_cdc_t.{quoted(name)} BETWEEN {low} AND {high}" for name, (low, high) in sorted(batch.ranges.items())]
    on += [f"_cdc_t.{open_states} IS NULL"] if open_states else []
    on += [f"_cdc_t.{LIVING}"] if DELETED_AT in step.lake_columns else []
    on += [f"_cdc_s.{FIRST_IMAGE} > 0"]  # else the row was deleted in the window, and what the table has is no proof
    first = f" AND {FIRST}" if FIRST in changes.columns else ""
    changes.where(f"{FIRST_IMAGE} % 2 = 0{first}").createOrReplaceTempView("needing")
    shown = ", ".join([f"abs({FIRST_IMAGE})", FILE, *(place_of(schema, name) for name in schema.key)])
    row = target.session.spark.sql(
        f"SELECT count(*), min(struct({shown})) "
        f"FROM needing _cdc_s LEFT ANTI JOIN {target.name} _cdc_t ON {' AND '.join(on)}"
    ).head()
    if row is None or not row[0]:
        return None
    image, file, *key = row[1]
    return missing_rows(step, row[0], image, file, key)


def missing_property(missing: MissingRows | None) -> Mapping[str, str]:
    """Return the property of a table of which a window proves that it lacks rows; none for any other."""
    return {} if missing is None else {MISSING: json.dumps(asdict(missing), ensure_ascii=False)}


STAGED = "cdc.stage"
"""Snapshot property: the stage whose data files a commit added as they were."""


def commit_stage(
    target: CommitTarget,
    label: Label,
    step: ApplyRows,
    staged: StagedWindow,
    batch: Batch,
    io: Mapping[str, str],
    mark: Mapping[str, str],
    more: Mapping[str, str | None] = MappingProxyType({}),
) -> tuple[AlikeKeys, int, MissingRows | None]:
    """Commit a staged window with its label and the properties of `mark` beside it, and `more` of the table.

    Returns its keys that equal those of the table by collation only, how many changes were passed over, and which rows
    the table lacks by it, which its properties say from then on.

    Raises TableMoved if the table is not the one for which the window was staged.
    """
    if batch.files and ((batch.empty and not target.empty) or target.schema_id != batch.schema_id):
        raise TableMoved(
            f"{step.life} is no longer as it was when its rows were written: another writer committed first. Plan "
            "again.",
            table=str(step.life),
        )
    alike, passed, missing = AlikeKeys(), list[int](), batch.unmade if target.empty else None
    delta = None if target.empty or not batch.parts else row_delta_of(target, step, batch, io)
    mark = {**mark, STAGED: name_of(staged.path)} if batch.files else mark
    if delta is not None:
        properties = {**_filled(step), **missing_property(delta.missing), **more}
        publish(target, label, files=batch.files, delta=delta, properties=properties, mark=mark)
        return alike, 0, delta.missing
    if batch.parts:
        spark = target.session.spark
        alike = writer_of(step).alike_keys(target, lambda: read_batch(spark, io, step, batch), step.schema)
        if batch.unmade is not None:
            missing = missing_of(target, read_batch(spark, io, step, batch), step, batch)
    rows = (lambda: passed.append(_write(target, step, batch, io))) if batch.parts else None
    properties = {**_filled(step), **missing_property(missing), **more}
    publish(target, label, rows=rows, files=batch.files, mark=mark, properties=properties)
    return alike, sum(passed), missing


def _filled(step: ApplyRows) -> Mapping[str, str | None]:
    """Return the properties of a table that go once it has its rows from the dump."""
    return dict.fromkeys(GAP) if step.is_snapshot else {}


def _write(target: CommitTarget, step: ApplyRows, batch: Batch, io: Mapping[str, str]) -> int:
    changes = read_batch(target.session.spark, io, step, batch)
    return writer_of(step).write(
        target, changes if step.life.kind else with_missing_columns(target, changes), step, batch
    )
