"""Tables of MariaDB with system versioning whose columns ROW START and ROW END are visible: their rows of now."""

from __future__ import annotations

import pyarrow.compute as pc

from cdc_assets.formats.debezium_json.envelope import Envelope
from cdc_assets.formats.records import bits
from cdc_assets.model.schema import ROW_END, TableSchema

_NOW = r"^(2038-01-19T03:14:07|2106-02-07T06:28:15|18446744073709551615$|-1$)"
"""What ROW END has of a row that is there: the last moment of TIMESTAMP, or no transaction."""


def row_end(schema: TableSchema) -> str:
    """Return the column that says until when a row was there, "" for a table without system versioning."""
    return next((column.name for column in schema.columns if column.generated == ROW_END), "")


def without_past_rows(rows: Envelope, end: str) -> tuple[Envelope, Envelope]:
    """Return the updates that end a row, and the other changes of rows of now; `end` is the column of their ROW END.

    MariaDB's log has a DELETE in a table with system versioning as an update of that column, and a row that was there
    before an UPDATE as an insert behind the update. Past rows go by DELETE HISTORY.
    """
    past = {
        side: cells.given & ~bits(pc.fill_null(pc.match_substring_regex(cells.texts, _NOW), False))
        for side in ("before", "after")
        for cells in (rows.column(side, end),)
    }
    ends = rows.column("op").equal("u") & ~past["before"] & past["after"] & rows.are_objects("before")
    ends &= rows.records.sound
    is_of_past = rows.records.sound & (past["before"] | past["after"])
    return rows.among(ends), rows.among(~is_of_past)
