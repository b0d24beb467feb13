"""Names of the columns that mirrors have by the settings `columns` and `deletes`."""

from __future__ import annotations

PLACE = "_cdc_place"
"""text: file and line, or topic, partition and offset; logs have it, too."""
INGESTED_AT = "_cdc_ingested_at"
"""timestamp: when the window of the row's last change was staged."""
LAKE_COLUMNS = {"place": PLACE, "ingested_at": INGESTED_AT}
"""The columns of the setting `columns`, by its switches, in the order of the lake."""
DELETED_AT = "_cdc_deleted_at"
"""timestamp: when the source deleted the row, NULL for one that lives; mirrors that mark deleted rows have it."""
LIVING = f"{DELETED_AT} IS NULL"
"""The condition by which engines read the source's rows of a mirror that marks deleted ones."""
