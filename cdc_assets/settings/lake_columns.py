"""The setting `columns`: which columns mirrors have beside those of the source."""

from __future__ import annotations

from pydantic import Field

from cdc_assets.model.lake_columns import LAKE_COLUMNS
from cdc_assets.settings.model import Model


class ColumnSettings(Model):
    """Columns that mirrors have beside those of the source, as of the row's last change."""

    inside = "columns"

    place: bool = Field(
        default=False,
        description=(
            "`_cdc_place`: where the row's last change stands in the input: file and line, or topic, partition and "
            "offset; in a large file of a dump the part by its bytes, and the line in it. NULL where a repair wrote "
            "the row."
        ),
    )
    ingested_at: bool = Field(
        default=False, description="`_cdc_ingested_at`: when the window with the row's last change was read."
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns in the lake."""
        return tuple(name for switch, name in LAKE_COLUMNS.items() if getattr(self, switch))
