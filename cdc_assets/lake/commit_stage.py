"""A staged window into its table in one act: as a row delta, by the writer of its kind, or as files written for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType

from pyspark.sql import DataFrame

from cdc_assets.decoding import FILE
from cdc_assets.decoding.first_images import FIRST_IMAGE, missing_rows
from cdc_assets.decoding.states import FIRST
from cdc_assets.errors import TableMoved
from cdc_assets.features.kinds.decoding import partition_column
from cdc_assets.features.kinds.lake import writer_of
from cdc_assets.lake.commit import CommitTarget, publish
from cdc_assets.lake.key_matching import key_equality, place_of
from cdc_assets.lake.label import Label
from cdc_assets.lake.lake_columns import filled
from cdc_assets.lake.lake_table import GAP, MISSING
from cdc_assets.lake.row_delta import row_delta_of
from cdc_assets.lake.spark.session import quoted
from cdc_assets.lake.staging.stage import Batch, read_batch
from cdc_assets.lake.staging.tasks import name_of
from cdc_assets.model.lake_columns import DELETED_AT, LIVING
from cdc_assets.model.progress import MissingRows
from cdc_assets.model.reports import AlikeKeys, StagedWindow
from cdc_assets.model.steps import ApplyRows


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
    return dict.fromkeys(GAP) if step.is_import else {}


def _write(target: CommitTarget, step: ApplyRows, batch: Batch, io: Mapping[str, str]) -> int:
    changes = read_batch(target.session.spark, io, step, batch)
    return writer_of(step).write(target, changes if step.life.kind else filled(target, changes), step, batch)
