"""Which rows, needed by changes of a window, a table does not have: a join of the keys that the stage names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from pyspark.sql import DataFrame

from cdc_assets.decoding import FILE
from cdc_assets.decoding.first_images import FIRST_IMAGE, missing_rows
from cdc_assets.decoding.kinds import partition_column
from cdc_assets.decoding.states import FIRST
from cdc_assets.lake.commit import CommitTarget
from cdc_assets.lake.key_matching import key_equality, place_of
from cdc_assets.lake.lake_table import MISSING
from cdc_assets.lake.spark.session import quoted
from cdc_assets.lake.staging.stage import Batch
from cdc_assets.model.progress import MissingRows
from cdc_assets.model.steps import ApplyRows


def missing_of(target: CommitTarget, changes: DataFrame, step: ApplyRows, batch: Batch) -> MissingRows | None:
    """Return the rows that staged changes need and the table, as it is before them, does not have."""
    if batch.unmade is None or target.empty:
        return batch.unmade
    schema, open_states = step.schema, partition_column(step.life.kind)
    on = [key_equality(schema.column(name), place_of(schema, name)) for name in schema.key]
    on += [f"_cdc_t.{quoted(name)} BETWEEN {low} AND {high}" for name, (low, high) in sorted(batch.ranges.items())]
    on += [f"_cdc_t.{open_states} IS NULL"] if open_states else []
    first = f" AND {FIRST}" if FIRST in changes.columns else ""
    changes.where(f"{FIRST_IMAGE} % 2 = 0{first}").createOrReplaceTempView("needing")
    found = target.session.spark.sql(
        f"SELECT count(*), min(struct({', '.join([FIRST_IMAGE, FILE, *(place_of(schema, n) for n in schema.key)])})) "
        f"FROM needing _cdc_s LEFT ANTI JOIN {target.name} _cdc_t ON {' AND '.join(on)}"
    ).head()
    if found is None or not found[0]:
        return None
    image, file, *key = found[1]
    return missing_rows(step, found[0], image, file, key)


def missing_property(missing: MissingRows | None) -> Mapping[str, str]:
    """Return the property of a table of which a window proves that it lacks rows; none for any other."""
    return {} if missing is None else {MISSING: json.dumps(asdict(missing), ensure_ascii=False)}
