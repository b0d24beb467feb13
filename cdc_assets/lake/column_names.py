"""Names of columns that no lake table can have."""

from __future__ import annotations

from cdc_assets.errors import TableHeld
from cdc_assets.features.kinds.decoding import own_columns
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.steps import ChangeTable, CreateTable


def refuse_names(schema: TableSchema, step: CreateTable | ChangeTable) -> None:
    """Raise TableHeld for a column with a name of the lake's own, or with that of another one but for its case."""
    names, own = dict[str, str](), {column.name.lower() for column in own_columns(step.life.kind)}
    for column in schema.stored:
        folded = column.name.lower()
        other = names.setdefault(folded, column.name)
        reason = ""
        if other != column.name:
            reason = (
                f'the columns "{other}" and "{column.name}" differ only in the case of letters, and the lake '
                "does not distinguish such names. Leave one of them out at the source (column.exclude.list), or give "
                "it another name there."
            )
        elif folded.startswith("_cdc_") or folded in own:
            reason = (
                f'the column name "{column.name}" is reserved for the lake\'s own columns. '
                "Exclude the column with the changefeed's column selectors."
            )
        if reason:
            raise TableHeld(f"{step.life}: {reason}", table=str(step.life), column=column.name)
