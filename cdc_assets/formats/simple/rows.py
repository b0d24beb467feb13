"""Rows of the Simple protocol -> images and cells, from JSON and from Avro alike.

TIMESTAMP has its zone beside it, binary types are base64 in JSON and bytes in Avro, ENUM is the member's number, SET
the sum of 2^position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import Op
from cdc_assets.formats.images import Cells, Faults, Images, side_by_side
from cdc_assets.formats.records import CellKind, RecordColumn, Records, bits
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.mysql_types import Binary

__all__ = ["KINDS", "RowSides", "read_rows"]

KINDS = ("INSERT", "UPDATE", "DELETE")

_SIDES = {"INSERT": (True, False), "UPDATE": (True, True), "DELETE": (False, True)}
"""What a row event has of `data` and `old`."""
_PARTS = ("location", "value")
_UNSIGNED = 1 << 64
_GREATEST_TS = np.uint64(1 << 63)

Marks = npt.NDArray[np.bool_]


class RowSides(NamedTuple):
    """Images of rows, and the records and the members where their columns are, in the same order."""

    images: Images
    sides: tuple[tuple[Records, str], ...]
    binary: Binary

    def cells(self, column: Column) -> Cells:
        """Return a column."""
        paths = [(column.name, part) for part in _PARTS] if column.type == "TIMESTAMP" else [(column.name,)]
        whole = [RecordColumn.joined([records.column(side, *path) for records, side in self.sides]) for path in paths]
        kinds = np.concatenate([records.kinds(side, column.name) for records, side in self.sides])
        absent = kinds == CellKind.ABSENT
        zones = whole[0].texts if len(whole) > 1 else None
        array = whole[-1].texts
        if column.type in ("BIT", "SET") or column.unsigned:  # Avro's long has a sign
            below = whole[-1].are(CellKind.NUMBER) & bits(pc.starts_with(array, "-"))
            numbers = [str(int(text) % _UNSIGNED) for text in array.filter(pa.array(below)).to_pylist()]
            array = pc.replace_with_mask(array, pa.array(below), pa.array(numbers, array.type))
        return Cells(array, absent if absent.any() else None, self.binary, zones)


def read_rows(
    parts: Iterable[Records], table: TableId, schema: TableSchema, faults: Faults, binary: Binary
) -> RowSides:
    """Return the images in records, whose messages are their lines from 0; `binary` says how bytes are written."""
    images, sides = list[Images](), list[tuple[Records, str]]()
    for records in parts:
        commit_ts, data, old = _require_rows(records, table)
        for side in ("data", "old"):
            _require_columns(records, side, schema, faults)
        for _, message, reason in records.refused():
            faults.add(message + 1, f"it is not a row of the protocol Simple: {reason}")
        sound = records.sound
        rows, (data, old) = records.among(sound), (data[sound], old[sound])
        images.append(_images(rows.messages + 1, commit_ts[sound], data, old))
        sides += [(rows.among(data), "data"), (rows.among(old), "old")]
    return RowSides(side_by_side(images), tuple(sides), binary)


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
            sound = kinds == CellKind.ABSENT
        for place in np.flatnonzero(records.sound & ~sound).tolist():
            what = f"has the value {records.shown(place, side, name)[:80]}, which is not of its type"
            what = what if column is not None else "is not in the table's schema at this commit-ts"
            faults.add(int(records.messages[place]) + 1, f'column "{name}" {what}', name)
            records.refuse(place, what)


def _images(lines: npt.NDArray[np.int64], commit_ts: npt.NDArray[np.int64], data: Marks, old: Marks) -> Images:
    """Images after come first, then images before; each in the order of the lines."""
    after, before = np.flatnonzero(data), np.flatnonzero(old)
    position = np.cumsum(data) - 1
    pair = np.where(data[before], position[before], -1)
    return Images(
        np.concatenate([lines[after], lines[before]]),
        np.repeat(np.array([Op.INSERT, Op.DELETE], np.int8), [len(after), len(before)]),
        np.concatenate([commit_ts[after], commit_ts[before]]),
        np.concatenate([np.full(len(after), -1, np.int64), pair]),
    )
