"""Rows that do not fit are left out with their reason; rules of the type table are counted: for every row format.

A batch whose values are all as they should be needs none of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import COMMIT_TS, LINE
from cdc_assets.model.schema import Column
from cdc_assets.types.mysql_types import LOSSY, Values, changed_in_key, misfit

__all__ = [
    "LOST_FLOAT",
    "NULL_OR_TEXT",
    "SIX_DIGITS",
    "BatchChanges",
    "Fault",
    "Mask",
    "checked_values",
    "drop_misfits",
]

LOST_FLOAT = (
    "FLOAT became null: its upper half is the beginning of the next number, which TiCDC's Craft encoder writes over it"
)
NULL_OR_TEXT = "NULL, or a text printed like the NULL marker because nothing is quoted"
SIX_DIGITS = "FLOAT of which a dump has six digits, as it is 1e15 or more, or less than 1e-15"

Mask = tuple[str, str, pa.BooleanArray]
"""(column, rule of the type table, the rows whose value it changed)."""


class Fault(NamedTuple):
    """Rows (mask) that do not fit, with the texts to show; `say` empty means that the text does not fit the column."""

    mask: pa.BooleanArray
    texts: pa.Array
    column: Column | None
    say: str = ""


class BatchChanges(NamedTuple):
    """The changes of one batch; `faults` are (line, reason, column, commit-ts)."""

    changes: pa.RecordBatch
    faults: Sequence[tuple[int, str, str, int | None]] = ()
    notes: Mapping[tuple[str, str], int] = MappingProxyType({})


def _reason(fault: Fault, row: int) -> str:
    """Return the sentence for one row of a fault."""
    value = fault.texts[row].as_py()
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    if fault.say or fault.column is None:
        return f'"{text}" {fault.say}'
    return f"NULL is not {fault.column.type}" if value is None else misfit(text, fault.column)


def checked_values(
    found: Values, texts: pa.Array, column: Column, in_key: bool, faults: list[Fault], masks: list[Mask]
) -> pa.Array:
    """Return the values of a column and add what is wrong with them: no value of a key is changed by a lossy rule."""
    if in_key:
        lossy = sorted(LOSSY & found.notes.keys())
        faults += [Fault(found.notes[rule], texts, column, changed_in_key(rule)) for rule in lossy]
        found = found.for_key()
    if found.bad is not None:
        faults.append(Fault(found.bad, texts, column))
    masks += [(column.name, rule, mask) for rule, mask in found.notes.items()]
    return found.array


def drop_misfits(batch: pa.RecordBatch, faults: list[Fault], masks: list[Mask]) -> BatchChanges:
    """Leave out the rows with faults; the first fault of a row is its reason."""
    lines, stamps = batch.column(LINE), batch.column(COMMIT_TS)
    found = []
    if faults:
        wrong = faults[0].mask
        for fault in faults[1:]:
            wrong = pc.or_(wrong, fault.mask)
        for row in pc.indices_nonzero(wrong).to_pylist():
            fault = next(one for one in faults if one.mask[row].as_py())
            line, stamp = lines[row].as_py(), stamps[row].as_py()
            found.append((line, _reason(fault, row), fault.column.name if fault.column else "", stamp))
        kept = pc.invert(wrong)
        batch = batch.filter(kept)
        masks = [(column, rule, pc.and_(mask, kept)) for column, rule, mask in masks]
    notes = Counter({(column, rule): mask.true_count for column, rule, mask in masks if mask.true_count})
    return BatchChanges(batch, found, notes)
