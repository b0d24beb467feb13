"""Tables of MariaDB with system versioning: their rows of now, where columns ROW START and ROW END are visible."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.debezium_json.columns import ConnectorSettings, field_of, settled_field
from cdc_assets.formats.debezium_json.envelope import Envelope
from cdc_assets.formats.records import Marks, bits
from cdc_assets.formats.values.connect import read_column
from cdc_assets.model.schema import ROW_END, Column, TableSchema

_NOW = r"^(2038-01-19 03:14:07|2106-02-07 06:28:15|18446744073709551615$)"
"""Values of ROW END in a current row: the last moment of TIMESTAMP, or no transaction."""

PAST_ROWS = (
    "MariaDB keeps former versions of the table's rows, in columns that no event shows: it sends a DELETE as an update "
    "and former versions as inserts, which cannot be told from others. Leave the table out by the setting tables, or "
    "let it have visible columns ROW START and ROW END at the source and bring it by a new snapshot"
)


def row_end(schema: TableSchema) -> Column | None:
    """Return the column that says until when a row was there, None for a table without system versioning."""
    return next((column for column in schema.columns if column.generated == ROW_END), None)


def without_past_rows(rows: Envelope, end: Column, settings: ConnectorSettings) -> tuple[Envelope, Envelope]:
    """Return the updates that end a row, and the other changes of rows of now; `end` is the column of their ROW END.

    MariaDB's log has a DELETE in a table with system versioning as an update of that column, and a row that was there
    before an UPDATE as an insert behind the update. Past rows go by DELETE HISTORY.
    """
    field = settled_field(rows.block.columns.get(end.name) or field_of(end, settings), end, settings)
    past = dict[str, Marks]()
    for side in ("before", "after"):
        cells = rows.column(side, end.name)
        values = read_column(cells, field, end, settings.binary, in_texts=True)
        now = bits(pc.fill_null(pc.match_substring_regex(values.array.cast(pa.string()), _NOW), False))
        past[side] = cells.given & values.sound & ~now
    ends = rows.column("op").equal("u") & ~past["before"] & past["after"] & rows.are_objects("before")
    ends &= rows.records.sound
    is_of_past = rows.records.sound & (past["before"] | past["after"])
    return rows.among(ends), rows.among(~is_of_past)
