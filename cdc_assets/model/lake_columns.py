"""Names of the columns that mirrors have by the setting `columns`, by its switches, in the order of the lake."""

from __future__ import annotations

PLACE, INGESTED_AT = "_cdc_place", "_cdc_ingested_at"
LAKE_COLUMNS = {"place": PLACE, "ingested_at": INGESTED_AT}
