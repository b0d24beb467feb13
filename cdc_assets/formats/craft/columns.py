"""The columns of Craft's row events: column groups -> cells, a column of all rows at a time.

    column group : byte kind (1 new, 2 old, 3 deleted) · uvarint n · delta-varint name terms[n]
                   · uvarint types[n], flags[n] · varint lengths[n], -1 for NULL · values

Values: integers varint, or uvarint with the flag UNSIGNED; YEAR always varint; FLOAT and DOUBLE eight bytes of a
little-endian double; BIT, ENUM and SET uvarint; all else text or bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.column_codes import UNSIGNED, fits, type_name
from cdc_assets.formats.craft.frame import Frames, slices
from cdc_assets.formats.craft.varints import Mask, Places, before_each, delta, ranges, signed, sums_before, sums_of
from cdc_assets.formats.images import Cells, Reason
from cdc_assets.model.schema import Column

__all__ = ["LOST_FLOAT", "NEW", "Groups", "cells", "maybe_overwritten", "names_of", "read_groups"]

NEW, OLD, DELETED = 1, 2, 3
"""Kinds of column groups: the row as it is now, as it was, and as it was when it was deleted."""

LOST_FLOAT = (
    "FLOAT became null: its upper half is the beginning of the next number, which TiCDC's Craft encoder writes over it"
)

_SIGNED, _YEAR, _FLOATS, _COUNTS = (1, 2, 3, 8, 9), (13,), (4, 5), (16, 247, 248)
_NUMBERS = (*_SIGNED, *_YEAR, *_FLOATS, *_COUNTS)
_FLOAT, _NULL = 4, 6
_FLOAT_BYTES = 8


@dataclass(frozen=True, slots=True)
class Groups:
    """Column groups of some events, and their columns (`group` is the position of a column's group).

    `sound` marks groups that can be read; the others have no columns. `length` is -1 for NULL. `name` is a number in
    the texts of the frames.
    """

    event: Places
    kind: Places
    sound: Mask
    group: Places
    name: Places
    code: Places
    flags: Places
    start: Places
    length: Places


def read_groups(frames: Frames, events: Places) -> Groups:
    """Read the heads of all column groups of some row events."""
    counts = frames.group_counts[events]
    index = ranges(frames.first_group[events], counts)
    event = np.repeat(events, counts)
    starts, stops = frames.group_starts[index], frames.group_stops[index]
    varints = frames.varints
    read, after, sound = varints.sequences(starts + 1, np.ones_like(starts), stops)
    n = np.zeros_like(starts)
    n[sound] = np.minimum(read, np.uint64(len(varints.data))).astype(np.int64)
    wanted = np.where(sound & (4 * n <= stops - after), 4 * n, -1)
    numbers, after, sound = varints.sequences(after, wanted, stops)
    n = np.where(sound, n, 0)
    base = sums_before(4 * n)
    names, codes, flags, lengths = (numbers[ranges(base + part * n, n)] for part in range(4))
    length, size = signed(lengths), np.clip(signed(lengths), 0, len(varints.data))
    sound &= after + sums_of(size, n) == stops
    group = np.repeat(np.arange(len(n)), n)
    term = delta(signed(names).view(np.uint64), n).view(np.int64)
    message = frames.message[event]
    wrong = (term < 0) | (term >= frames.term_counts[message][group]) | (length < -1)
    sound[group[wrong]] = False
    kind = varints.data[starts].astype(np.int64)
    sound &= (kind == NEW) | (kind == OLD) | (kind == DELETED)
    kept = sound[group]
    start = np.repeat(after, n) + before_each(size, n)
    return Groups(
        event=event,
        kind=kind,
        sound=sound,
        group=group[kept],
        name=(term + frames.first_term[message][group])[kept],
        code=np.minimum(codes, np.uint64(1 << 32)).astype(np.int64)[kept],
        flags=np.minimum(flags, np.uint64(1 << 32)).astype(np.int64)[kept],
        start=start[kept],
        length=length[kept],
    )


def names_of(frames: Frames, groups: Groups) -> tuple[Places, dict[str, int]]:
    """Return for each column a number of its name that is the same in all messages, and the numbers by name."""
    coded = frames.texts.dictionary_encode()
    numbers = coded.indices.to_numpy().astype(np.int64)
    return numbers[groups.name], {name: number for number, name in enumerate(coded.dictionary.to_pylist())}


def cells(frames: Frames, groups: Groups, chosen: Places, column: Column, lost: Mask) -> Cells:
    """Return the cells of one column in all groups.

    `chosen` is for each group which of `groups`' columns it is, -1 where it has none; `lost` marks columns whose value
    the encoder may have overwritten.
    """
    absent = chosen < 0
    here = np.where(absent, 0, chosen)
    if not len(groups.code):
        return Cells(pa.nulls(len(chosen), pa.string()), absent)
    code, flags = groups.code[here], groups.flags[here] & UNSIGNED
    start, length = groups.start[here], np.where(absent, -1, groups.length[here])
    kinds = _kinds(code[~absent], flags[~absent])
    found: list[tuple[Mask | None, Cells]] = []
    for one, flag in kinds or [(_NULL, 0)]:
        mask = None if len(kinds) < 2 else (code == one) & (flags == flag) & ~absent
        size = length if mask is None else np.where(mask, length, -1)
        found.append((mask, _typed(frames, one, bool(flag), start, size, column)))
    merged = found[0][1] if len(found) == 1 else _merged(found)
    gone = lost[here] & ~absent & (length >= 0)
    if gone.any():
        merged = merged._replace(
            array=pc.if_else(pa.array(gone), pa.scalar(None, merged.array.type), merged.array),
            notes={LOST_FLOAT: gone},
        )
    return merged._replace(absent=absent if absent.any() else None)


def _kinds(codes: Places, flags: Places) -> list[tuple[int, int]]:
    if len(codes) and (codes == codes[0]).all() and (flags == flags[0]).all():
        return [(int(codes[0]), int(flags[0]))]
    return sorted(set(zip(codes.tolist(), flags.tolist(), strict=True)))


def _merged(found: list[tuple[Mask | None, Cells]]) -> Cells:
    """Put together a column that is not sent as one type throughout, as texts."""
    kinds = {one.array.type for _, one in found}
    whole = pa.nulls(len(found[0][1].array), kinds.pop() if len(kinds) == 1 else pa.binary())
    faults: list[tuple[Mask, Reason]] = []
    for mask, one in found:
        array = one.array if one.array.type == whole.type else one.array.cast(pa.string()).cast(pa.binary())
        whole = pc.if_else(pa.array(mask), array, whole)
        faults += one.faults
    return Cells(whole, faults=tuple(faults))


def _typed(frames: Frames, code: int, unsigned: bool, start: Places, length: Places, column: Column) -> Cells:
    """Read values of one type; `length` is -1 where there is none."""
    here = length >= 0
    if not fits(code, column):
        name = type_name(code, 0) or f"type {code}"
        reason = f"it is sent as {name}, but the table's schema at this commit-ts has {column.type}"
        return Cells(pa.nulls(len(start), pa.string()), faults=((here, reason),))
    if code in _FLOATS:
        sound = here & (length == 8)
        places = np.where(sound, start, 0)[:, None] + np.arange(8)
        data = frames.varints.data
        raw = data[np.minimum(places, len(data) - 1)].view("<f8")[:, 0]
        return _cells(pa.array(raw.astype(np.float64), mask=~sound), here, sound)
    if code in (*_SIGNED, *_YEAR, *_COUNTS):
        numbers, sound = frames.varints.exactly(start, length)
        plain = code in _COUNTS or (unsigned and code not in _YEAR)
        return _cells(pa.array(numbers if plain else signed(numbers), mask=~sound), here, sound)
    size = np.where(here, length, 0)
    held = slices(frames.varints.data, start, size)
    kind = pa.binary() if held.nbytes < 1 << 31 else pa.large_binary()
    array = held.cast(kind)
    return Cells(array if here.all() else pc.if_else(pa.array(here), array, pa.scalar(None, kind)))


def _cells(array: pa.Array, here: Mask, sound: Mask) -> Cells:
    wrong = here & ~sound
    return Cells(array, faults=((wrong, "its bytes are not those of a number"),) if wrong.any() else ())


def maybe_overwritten(frames: Frames, groups: Groups) -> Mask:
    """Mark FLOAT columns whose upper half may be that of the number which was encoded next in their message.

    TiCDC's encoder (tiflow, craft/message_encoder.go) reserves 4 bytes for a FLOAT and writes 8; the next number that
    it encodes, of this row or a later one of the message, lies in bytes 4 to 7 then. A FLOAT whose bytes there are not
    the beginning of that number was not overwritten: its buffer ended behind it, or the writer reserves 8. Where they
    are, the two cannot be told apart. `groups` have to be all of the message, in the order of its bytes.
    """
    message = frames.message[groups.event][groups.group]
    data = frames.varints.data
    numbers = np.flatnonzero(np.isin(groups.code, _NUMBERS) & (groups.length > 0))
    floats = np.flatnonzero((groups.code[numbers[:-1]] == _FLOAT) & (message[numbers[:-1]] == message[numbers[1:]]))
    here, following = numbers[floats], numbers[floats + 1]
    equal = groups.length[here] == _FLOAT_BYTES
    for byte in range(_FLOAT_BYTES // 2):
        upper = data[np.minimum(groups.start[here] + _FLOAT_BYTES // 2 + byte, len(data) - 1)]
        begins = data[np.minimum(groups.start[following] + byte, len(data) - 1)]
        equal &= (groups.length[following] <= byte) | (upper == begins)
    marked: Mask = np.zeros(len(groups.code), bool)
    marked[here[equal]] = True
    return marked
