"""Rows of the Simple protocol -> images and cells, from JSON and from Avro alike.

TIMESTAMP has its zone beside it, binary types are base64 in JSON and bytes in Avro, ENUM is the member's number, SET
the sum of 2^position.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.images import Cells, Faults, Images, RowSides, row_images
from cdc_assets.formats.records import CellKind, Marks, Path, Records, bits
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.mysql_types import Binary

__all__ = ["KINDS", "cells_of", "read_rows"]

KINDS = ("INSERT", "UPDATE", "DELETE")

_SIDES = {"INSERT": (True, False), "UPDATE": (True, True), "DELETE": (False, True)}
"""What a row event has of `data` and `old`."""
_PARTS = ("location", "value")
_UNSIGNED = 1 << 64
_GREATEST_TS = np.uint64(1 << 63)


def read_rows(parts: Iterable[Records], table: TableId, schema: TableSchema, faults: Faults) -> RowSides:
    """Return the images in records, whose messages are their lines from 0."""
    images, sides = list[Images](), list[tuple[Records, Path]]()
    for records in parts:
        commit_ts, data, old = _require_rows(records, table)
        for side in ("data", "old"):
            _require_columns(records, side, schema, faults)
        for _, message, reason in records.refused():
            faults.add(message + 1, f"it is not a row of the protocol Simple: {reason}")
        sound = records.sound
        rows, (data, old) = records.among(sound), (data[sound], old[sound])
        images.append(row_images(rows.messages + 1, commit_ts[sound], data, old))
        sides += [(rows.among(data), ("data",)), (rows.among(old), ("old",))]
    return RowSides.of(images, sides)


def _require_rows(records: Records, table: TableId) -> tuple[npt.NDArray[np.int64], Marks, Marks]:
    """Refuse what is no row of a table; return commit-ts, and which records have `data` and `old`."""
    spaces, names, kinds = (records.column(name) for name in ("database", "table", "type"))
    records.require(
        bits(pc.and_(pc.equal(spaces.texts, table.schema), pc.equal(names.texts, table.table)))
        & spaces.are(CellKind.TEXT)
        & names.are(CellKind.TEXT),
        lambda place: f"it is a row of {spaces.shown(place)}.{names.shown(place)}, not of {table}",
    )
    data, old = (records.kinds(side) > CellKind.NULL for side in ("data", "old"))
    fit = np.zeros(len(records), bool)
    for kind, (has_data, has_old) in _SIDES.items():
        fit |= bits(pc.equal(kinds.texts, kind)) & (data == has_data) & (old == has_old)
    records.require(fit, lambda place: f"its type is {kinds.shown(place)}, and data and old do not fit that")
    for side, there in (("data", data), ("old", old)):
        records.require(~there | records.are_objects(side), f"its {side} is no row")
    commit_ts, whole = records.whole_numbers("commitTs")
    whole &= commit_ts < _GREATEST_TS
    records.require(whole, lambda place: f"its commitTs {records.shown(place, 'commitTs')} is not a TSO")
    return commit_ts.astype(np.int64), data, old


def _require_columns(records: Records, side: str, schema: TableSchema, faults: Faults) -> None:
    """Refuse rows with columns that the table lacks, or with values that no column of their type has."""
    columns = {column.name: column for column in schema.stored}
    for name in records.members(side):
        kinds, column = records.kinds(side, name), columns.get(name)
        sound = kinds <= CellKind.NULL
        if column is not None and column.type == "TIMESTAMP":
            zones, times = (records.kinds(side, name, part) for part in _PARTS)
            sound |= (zones == times) & ((times == CellKind.TEXT) | (times == CellKind.NULL))
        elif column is not None:
            sound |= (kinds == CellKind.TEXT) | (kinds == CellKind.NUMBER)
        else:
            reason = f'column "{name}" is not in the table\'s schema at this commit-ts'
            faults.refuse(records, kinds != CellKind.ABSENT, name, reason)
            continue
        reason = f'column "{name}" has the value {{}}, which is not of its type'
        faults.refuse(records, ~sound, name, reason, (side, name))


def cells_of(sides: RowSides, column: Column, binary: Binary) -> Cells:
    """Return a column; `binary` says how bytes are written."""
    parts = [(column.name, part) for part in _PARTS] if column.type == "TIMESTAMP" else [(column.name,)]
    whole = [sides.column(*path) for path in parts]
    zones = whole[0].texts if len(whole) > 1 else None
    array = whole[-1].texts
    if column.type in ("BIT", "SET") or column.unsigned:  # Avro's long has a sign
        below = whole[-1].are(CellKind.NUMBER) & bits(pc.starts_with(array, "-"))
        numbers = [str(int(text) % _UNSIGNED) for text in array.filter(pa.array(below)).to_pylist()]
        array = pc.replace_with_mask(array, pa.array(below), pa.array(numbers, array.type))
    return Cells(array, sides.absent(column.name), binary, zones)
