"""Names of the columns that mirrors have by the setting `columns`, by its switches, in the order of the lake."""

from __future__ import annotations

PLACE = "_cdc_place"
"""text: file and line, or topic, partition and offset; logs have it, too."""
INGESTED_AT = "_cdc_ingested_at"
"""timestamp: when the window of the row's last change was staged."""
LAKE_COLUMNS = {"place": PLACE, "ingested_at": INGESTED_AT}
