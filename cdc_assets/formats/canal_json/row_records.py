"""Rows as messages or lines of files -> Records.

row_records(values)  all records
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from cdc_assets.formats.json_records import parsed_records, same_shapes
from cdc_assets.formats.records import Records

__all__ = ["CHANGED", "TYPES", "row_records"]

TYPES = ("sqlType", "mysqlType")
"""Members that repeat what the schema file says, the latter in another order in each record (a map of Go's)."""
CHANGED = (("old", 0), ("data", 0))
"""With content-compatible, `old` has the columns that an UPDATE changed, in the order of `data`."""


def row_records(values: pa.BinaryArray) -> Iterator[Records]:
    """Yield JSON objects that are rows: those of one shape, whichever columns `old` has of `data`, then all others.

    `values` are the records in UTF-8. Records that are no JSON objects are yielded as refused ones.
    """
    open_ = np.ones(len(values), bool)
    for records in same_shapes(values, unordered=TYPES, partial=CHANGED):
        open_[records.messages] = False
        yield records
    places = np.flatnonzero(open_)
    if len(places) or not len(values):
        for parsed in parsed_records(values.take(pa.array(places))):
            yield parsed.moved(places[parsed.messages])
