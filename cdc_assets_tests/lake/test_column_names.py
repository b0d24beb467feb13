"""Names of columns that no lake table can have: they hold their table before Spark sees them."""

from __future__ import annotations

import pytest

from cdc_assets.errors import TableHeld
from cdc_assets.lake.schema import refuse_names
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.steps import CreateTable


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("id", "_CDC_commit_ts"), "reserved"),
        (("id", "Note", "note"), '"Note" and "note" differ only in the case of letters'),
    ],
)
def test_a_name_that_the_lake_cannot_have_holds_its_table(names: tuple[str, ...], why: str) -> None:
    schema = TableSchema(tuple(Column(name, "INT") for name in names))
    step = CreateTable(Life(TableId("public", "t"), 1), 1, TableId("public", "t"), schema)
    with pytest.raises(TableHeld, match=why):
        refuse_names(schema, step)
