"""A staged window into its table: by MERGE, or for an empty table as the data files that were written for it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import functions as sql

from cdc_assets.errors import TableMoved
from cdc_assets.formats import COMMIT_TS, OP
from cdc_assets.lake.commit import Target, alike_keys, merge_rows, net_rows, overwrite, publish
from cdc_assets.lake.label import Label
from cdc_assets.lake.staging.stage import Batch, name_of, read_batch
from cdc_assets.model.reports import AlikeKeys, Staged
from cdc_assets.model.steps import ApplyRows

__all__ = ["STAGED", "take_in", "write_rows"]

STAGED = "cdc.stage"
"""Snapshot property: the stage whose data files a first load took in as they were."""


def take_in(
    target: Target, label: Label, step: ApplyRows, staged: Staged, batch: Batch, io: Mapping[str, str]
) -> AlikeKeys:
    """Commit a staged window with its label, and tell which of its keys met alike ones of the table.

    Raises TableMoved when the table is not what it was staged for.
    """
    if batch.schema_id is None:
        alike = AlikeKeys()
        if staged.rows and step.schema.key:
            alike = alike_keys(target, read_batch(target.session.spark, io, step, batch), step.schema)
        publish(target, label, rows=(lambda: write_rows(target, step, batch, io)) if staged.rows else None)
        return alike
    if not target.empty or target.schema_id != batch.schema_id:
        raise TableMoved(
            f"{step.life} was empty when its first rows were written, and is not what it was: another writer "
            "committed first. Plan again.",
            table=str(step.life),
        )
    files = dict(zip(batch.parts, batch.sizes, strict=True))
    publish(target, label, files=files, mark={STAGED: name_of(staged.path)})
    return AlikeKeys()


def write_rows(target: Target, step: ApplyRows, batch: Batch, io: Mapping[str, str]) -> None:
    """Write staged changes in the step's session."""
    changes = read_batch(target.session.spark, io, step, batch)
    if step.positions is not None:
        changes = changes.withColumn(COMMIT_TS, sql.lit(None).cast("bigint"))
    if not step.schema.key:
        net_rows(target, changes, step.schema, str(step.life))
    elif target.empty:
        names = [column.name for column in step.schema.stored]
        columns = [sql.col(f"c{position}").alias(name) for position, name in enumerate(names)]
        entering = changes.where(f"{OP} > 0").select(*columns, COMMIT_TS)
        overwrite(target, entering, f"INSERT OVERWRITE {target.name} SELECT … FROM changes")
    else:
        merge_rows(target, changes, step.schema, batch.ranges)
