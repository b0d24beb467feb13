"""Values of decoded changes, as the masks of their columns have them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_assets.formats.decoded import UNCHANGED, Decoded
from cdc_assets.formats.redaction import without_values
from cdc_assets.model.schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa


def mask_values(decoded: Decoded, schema: TableSchema) -> Decoded:
    """Return the changes of a confidential table with its masks applied, and its refused records without values."""
    import pyarrow as pa

    from cdc_assets.types.key_digests import masked_keys
    from cdc_assets.types.masks import masked_array

    changes = decoded.changes
    for column in schema.columns:
        if column.mask is None or column.name not in changes.column_names:
            continue
        place = changes.column_names.index(column.name)
        if column.in_lake is None:
            changes = _without(changes.remove_column(place), column.name)
            continue
        values = masked_array(changes.column(place), column)
        changes = changes.set_column(place, pa.field(column.name, values.type), values)
    tail = None if decoded.tail is None else replace(without_values(decoded.tail, schema), raw=decoded.tail.raw)
    rejects = tuple(
        replace(without_values(reject, schema), keys=masked_keys(reject.keys, schema)) for reject in decoded.rejects
    )
    return replace(decoded, changes=changes, rejects=rejects, tail=tail)


def _without(changes: pa.Table, name: str) -> pa.Table:
    """Leave a column out of those that a change does not have; a change that has all others is a whole row."""
    import pyarrow as pa

    if UNCHANGED not in changes.column_names:
        return changes
    place = changes.column_names.index(UNCHANGED)
    lists = [
        None if row is None else [column for column in row if column != name] for row in changes[UNCHANGED].to_pylist()
    ]
    kind = changes.schema.field(place)
    return changes.set_column(place, kind, pa.array([row or None for row in lists], kind.type))
