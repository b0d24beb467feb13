"""Images and the values of their columns -> changes: what is the same for every format."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.changes import Cells, Faults, Images, changes_of
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.types.mysql_values import ZERO_DATE

SCHEMA = TableSchema((Column("id", "INT", nullable=False, is_pk=True), Column("d", "DATE")), ("id",))
VALUES = {"id": pa.array(["1", "2", "x"]), "d": pa.array(["0000-00-00", "2026-03-01", "0000-00-00"])}


def test_notes_count_values_of_changes_and_none_of_rows_that_are_refused() -> None:
    faults = Faults("landed", lambda line: b"raw of %d" % line)
    images = Images.alone(np.array([1, 2, 3]), np.ones(3, np.int8), np.array([5, -1, 7]))
    options = MessageOptions(protocol="simple")
    decoded_rows = changes_of(images, lambda column: Cells(VALUES[column.name]), SCHEMA, options, faults)
    assert decoded_rows.changes.column("id").to_pylist() == [1, 2]
    assert decoded_rows.changes.column(COMMIT_TS).to_pylist() == [5, None]
    assert decoded_rows.notes == {("d", ZERO_DATE): 1}
    assert [(reject.line, reject.raw, reject.reason, reject.commit_ts) for reject in decoded_rows.rejects] == [
        (3, b"raw of 3", '"x" is not INT', 7)
    ]
