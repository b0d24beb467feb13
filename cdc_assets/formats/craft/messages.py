"""TiCDC's Craft: binary messages of up to a few dozen row events, laid out in columns; old architecture only.

A message mixes the rows of several tables; a DDL and a mark stand alone. Row events carry the type and the flags of
each column, but neither lengths nor members. Text is the database's bytes, not checked to be UTF-8. `frame` reads
what a message speaks of, `columns` the values.

    column group : byte kind (1 new, 2 old, 3 deleted) · uvarint n · delta-varint name terms[n]
                   · uvarint types[n], flags[n] · varint lengths[n], -1 for NULL · values

Values: integers varint, or uvarint with the flag UNSIGNED; YEAR always varint; FLOAT and DOUBLE eight bytes of a
little-endian double; BIT, ENUM and SET uvarint; all else text or bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.changes import LOST_FLOAT, Cells, Faults, Images, Reason, changes_of, unknown_column
from cdc_assets.formats.column_codes import UNSIGNED, TypedColumn, fits, infer, type_name
from cdc_assets.formats.craft.frame import (
    RESOLVED,
    ROW,
    Frames,
    Places,
    before_each,
    delta,
    ranges,
    read_frames,
    sums_before,
    sums_of,
)
from cdc_assets.formats.decoded import Decoded, Op
from cdc_assets.formats.messages import (
    Classification,
    Kind,
    MessageCodec,
    SchemaEvent,
    classified,
    classified_rows,
    in_order,
    lines_of,
    parts,
)
from cdc_assets.formats.words import Marks, pieces, signed
from cdc_assets.model.schema import Column, TableId, TableSchema

__all__ = ["classify", "decode", "schemas"]


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return the table and kind of each message (CLASSIFIED); no body of a row is read."""
    lines = []
    for start, part in parts(messages):
        frames = read_frames(part.column("value"))
        lines.append(classified(_others(frames, start)))
        rows = np.flatnonzero(frames.kind == ROW)
        if len(rows):
            schema, table = (frames.texts.take(pa.array(terms[rows])) for terms in (frames.schema, frames.table))
            lines.append(
                classified_rows(
                    frames.message[rows] + start, frames.ordinal[rows], schema, table, frames.commit_ts[rows]
                )
            )
    return in_order(lines)


def _others(frames: Frames, start: int) -> Iterable[Classification]:
    for number, reason in frames.reasons.items():
        yield Classification(start + number, Kind.BAD, reason=f"it is not a message of the protocol Craft: {reason}")
    for event in np.flatnonzero(frames.kind != ROW).tolist():
        message, commit_ts = start + int(frames.message[event]), int(frames.commit_ts[event])
        if frames.kind[event] == RESOLVED:
            yield Classification(message, Kind.RESOLVED, commit_ts=commit_ts)
            continue
        table = TableId(_term(frames, frames.schema[event]), _term(frames, frames.table[event]))
        try:
            action, query = _ddl(frames, event)
        except ValueError as error:
            yield Classification(
                message, Kind.BAD, table, commit_ts=commit_ts, reason=f"its DDL cannot be read: {error}"
            )
        else:
            yield Classification(message, Kind.DDL, table, commit_ts=commit_ts, query=query, type=action)


def _term(frames: Frames, term: int) -> str:
    return "" if term < 0 else str(frames.texts[int(term)])


def _ddl(frames: Frames, event: int) -> tuple[int, str]:
    """Return action and text of a DDL; raises ValueError."""
    start, stop = frames.body_starts[event : event + 1], frames.body_stops[event : event + 1]
    numbers, after, sound = frames.varints.sequences(start, np.array([2]), stop)
    if not sound[0] or int(numbers[1]) != stop[0] - after[0] or numbers[0] > 1 << 30:
        raise ValueError("the length of its text is not that of its body")
    return int(numbers[0]), frames.varints.data[after[0] : stop[0]].tobytes().decode("utf-8")


# --- rows -------------------------------------------------------------------------------------------------------------


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table: an update is a DELETE and an INSERT of the same line.

    FLOAT values over which the encoder may have written are null, with a note. A row event that cannot be read, or that
    has a column which the schema lacks, is a Reject; its raw bytes are those of the message.
    """
    owners, ordinals = lines_of(rows)
    frames = read_frames(rows.column("value"))
    faults = Faults(path, lambda line: rows.column("value")[int(owners[line - 1])].as_py() or b"")
    events, lines = _wanted(frames, rows, owners, ordinals, table, faults)
    groups = read_groups(frames, events)
    images = _images(frames, groups, events, lines, faults)
    number, numbers = names_of(frames, groups)
    lost = _lost(frames, groups)
    _refuse_strangers(groups, number, numbers, images, schema, faults)

    def of(column: Column) -> Cells:
        places = np.flatnonzero(number == numbers.get(column.name, -1))
        chosen = np.full(len(images), -1, np.int64)
        chosen[groups.group[places]] = places
        return cells(frames, groups, chosen, column, lost)

    return changes_of(images, of, schema, options, faults)


def _wanted(
    frames: Frames, rows: pa.RecordBatch, owners: Places, ordinals: Places, table: TableId, faults: Faults
) -> tuple[Places, Places]:
    """Return the events that the batch asks for, with their lines; those that are not there are faults."""
    counts = np.bincount(frames.message, minlength=rows.num_rows).astype(np.int64)
    first = sums_before(counts)
    there = (ordinals >= 0) & (ordinals < counts[owners])
    events = np.where(there, first[owners] + ordinals, 0)
    lines = np.arange(len(owners), dtype=np.int64) + 1
    names = frames.texts.to_pylist()
    table_terms = {place for place, name in enumerate(names) if name == table.table}
    held = {place for place, name in enumerate(names) if name == table.schema}
    if len(frames.kind):
        there &= frames.kind[events] == ROW
        there &= np.isin(frames.schema[events], list(held)) & np.isin(frames.table[events], list(table_terms))
    for line in lines[~there].tolist():
        reason = frames.reasons.get(int(owners[line - 1]))
        faults.add(
            line, f"it is not a message of the protocol Craft: {reason}" if reason else f"it is not a row of {table}"
        )
    return events[there], lines[there]


def _images(frames: Frames, groups: Groups, events: Places, lines: Places, faults: Faults) -> Images:
    line_of = np.repeat(lines, frames.group_counts[events])
    is_new = groups.kind == NEW
    second = np.flatnonzero(np.diff(line_of, prepend=0) == 0)
    after = np.full(len(line_of), -1, np.int64)
    after[second] = np.where(is_new[second], -1, second - 1)
    after[second - 1] = np.where(is_new[second], second, -1)
    ops = np.where(is_new, Op.INSERT, Op.DELETE).astype(np.int8)
    images = Images(line_of, ops, frames.commit_ts[groups.event], after)
    faults.mark(~groups.sound, images, lambda _: "its column group cannot be read: a count is beyond its length")
    alike = np.zeros(len(line_of), bool)
    alike[second] = is_new[second] == is_new[second - 1]
    faults.mark(alike, images, lambda _: "it has two images that are not the new and the old one")
    return images


def _lost(frames: Frames, groups: Groups) -> Marks:
    """Mark the FLOAT columns that may be overwritten, for which all rows of their messages are looked at."""
    floats: Marks = groups.code == 4
    if not floats.any():
        return floats
    messages = np.unique(frames.message[groups.event[groups.group[floats]]])
    everything = read_groups(frames, np.flatnonzero((frames.kind == ROW) & np.isin(frames.message, messages)))
    overwritten = everything.start[maybe_overwritten(frames, everything)]
    lost: Marks = floats & np.isin(groups.start, overwritten)
    # Of a message with a row that cannot be read nothing more is known of what follows.
    torn = np.unique(frames.message[everything.event[~everything.sound]])
    return lost | (floats & np.isin(frames.message[groups.event[groups.group]], torn))


def _refuse_strangers(
    groups: Groups, number: Places, numbers: dict[str, int], images: Images, schema: TableSchema, faults: Faults
) -> None:
    own_numbers = np.array([numbers[column.name] for column in schema.stored if column.name in numbers], np.int64)
    strange = np.flatnonzero(~np.isin(number, own_numbers))
    names = {place: name for name, place in numbers.items()}
    for entry in strange.tolist():
        image = int(groups.group[entry])
        name = names[int(number[entry])]
        faults.add(int(images.lines[image]), unknown_column(schema, name), name, int(images.commit_ts[image]))
    twice = np.zeros(len(images), bool)
    order = np.lexsort((number, groups.group))
    is_same_column = (np.diff(number[order]) == 0) & (np.diff(groups.group[order]) == 0)
    twice[groups.group[order][1:][is_same_column]] = True
    faults.mark(twice, images, lambda _: "it has a column twice")


# --- columns ----------------------------------------------------------------------------------------------------------


NEW, OLD, DELETED = 1, 2, 3
"""Kinds of column groups: the row as it is now, as it was, and as it was when it was deleted."""

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
    sound: Marks
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
    number_counts = np.where(sound & (4 * n <= stops - after), 4 * n, -1)
    numbers, after, sound = varints.sequences(after, number_counts, stops)
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
    in_sound = sound[group]
    start = np.repeat(after, n) + before_each(size, n)
    return Groups(
        event=event,
        kind=kind,
        sound=sound,
        group=group[in_sound],
        name=(term + frames.first_term[message][group])[in_sound],
        code=np.minimum(codes, np.uint64(1 << 32)).astype(np.int64)[in_sound],
        flags=np.minimum(flags, np.uint64(1 << 32)).astype(np.int64)[in_sound],
        start=start[in_sound],
        length=length[in_sound],
    )


def names_of(frames: Frames, groups: Groups) -> tuple[Places, dict[str, int]]:
    """Return for each column a number of its name that is the same in all messages, and the numbers by name."""
    coded = frames.texts.dictionary_encode()
    numbers = coded.indices.to_numpy().astype(np.int64)
    return numbers[groups.name], {name: number for number, name in enumerate(coded.dictionary.to_pylist())}


def cells(frames: Frames, groups: Groups, chosen: Places, column: Column, lost: Marks) -> Cells:
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
    typed_cells: list[tuple[Marks | None, Cells]] = []
    for type_code, flag in kinds or [(_NULL, 0)]:
        mask = None if len(kinds) < 2 else (code == type_code) & (flags == flag) & ~absent
        size = length if mask is None else np.where(mask, length, -1)
        typed_cells.append((mask, _values_of_type(frames, type_code, bool(flag), start, size, column)))
    merged = typed_cells[0][1] if len(typed_cells) == 1 else _merged(typed_cells)
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


def _merged(typed_cells: list[tuple[Marks | None, Cells]]) -> Cells:
    """Put together a column that is not sent as one type throughout, as texts."""
    kinds = {cells.array.type for _, cells in typed_cells}
    whole = pa.nulls(len(typed_cells[0][1].array), kinds.pop() if len(kinds) == 1 else pa.binary())
    faults: list[tuple[Marks, Reason]] = []
    for mask, cells in typed_cells:
        array = cells.array if cells.array.type == whole.type else cells.array.cast(pa.string()).cast(pa.binary())
        whole = pc.if_else(pa.array(mask), array, whole)
        faults += cells.faults
    return Cells(whole, faults=tuple(faults))


def _values_of_type(frames: Frames, code: int, unsigned: bool, start: Places, length: Places, column: Column) -> Cells:
    """Read values of one type; `length` is -1 where there is none."""
    has_value = length >= 0
    if not fits(code, column):
        name = type_name(code, 0) or f"type {code}"
        reason = f"it is sent as {name}, but the table's schema at this commit-ts has {column.type}"
        return Cells(pa.nulls(len(start), pa.string()), faults=((has_value, reason),))
    if code in _FLOATS:
        sound = has_value & (length == 8)
        places = np.where(sound, start, 0)[:, None] + np.arange(8)
        data = frames.varints.data
        raw = data[np.minimum(places, len(data) - 1)].view("<f8")[:, 0]
        return _cells(pa.array(raw.astype(np.float64), mask=~sound), has_value, sound)
    if code in (*_SIGNED, *_YEAR, *_COUNTS):
        numbers, sound = frames.varints.exactly(start, length)
        plain = code in _COUNTS or (unsigned and code not in _YEAR)
        return _cells(pa.array(numbers if plain else signed(numbers), mask=~sound), has_value, sound)
    array = pieces(pa.py_buffer(frames.varints.data), start, start + np.where(has_value, length, 0))
    return Cells(array if has_value.all() else pc.if_else(pa.array(has_value), array, pa.scalar(None, pa.binary())))


def _cells(array: pa.Array, here: Marks, sound: Marks) -> Cells:
    wrong = here & ~sound
    return Cells(array, faults=((wrong, "its bytes are not those of a number"),) if wrong.any() else ())


def maybe_overwritten(frames: Frames, groups: Groups) -> Marks:
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
    float_events, following = numbers[floats], numbers[floats + 1]
    equal = groups.length[float_events] == _FLOAT_BYTES
    for byte in range(_FLOAT_BYTES // 2):
        upper = data[np.minimum(groups.start[float_events] + _FLOAT_BYTES // 2 + byte, len(data) - 1)]
        begins = data[np.minimum(groups.start[following] + byte, len(data) - 1)]
        equal &= (groups.length[following] <= byte) | (upper == begins)
    marked: Marks = np.zeros(len(groups.code), bool)
    marked[float_events[equal]] = True
    return marked


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the columns of tables by their rows, once for each table and shape, from the least commit-ts of it.

    Deletes show none where they have their key only.
    """
    events: dict[tuple[TableId, tuple[tuple[str, int, int], ...]], SchemaEvent] = {}
    for start, part in parts(messages):
        frames = read_frames(part.column("value"))
        groups = read_groups(frames, np.flatnonzero(frames.kind == ROW))
        showing = groups.sound & ((groups.kind == NEW) | (not options.delete_only_output_handle_key_columns))
        for group, columns in _shapes(frames, groups, np.flatnonzero(showing).tolist()):
            event = int(groups.event[group])
            table = TableId(_term(frames, frames.schema[event]), _term(frames, frames.table[event]))
            shape = (table, tuple((column.name, column.code, column.flags) for column in columns))
            version = int(frames.commit_ts[event])
            inferred = infer(columns, in_table_order=True)
            if inferred is None or (shape in events and events[shape].version <= version):
                continue
            events[shape] = SchemaEvent(start + int(frames.message[event]), table, version, inferred[0], inferred[1])
    return tuple(events.values())


def _shapes(frames: Frames, groups: Groups, some: Iterable[int]) -> Iterable[tuple[int, tuple[TypedColumn, ...]]]:
    """Yield of some groups for each table and set of columns one, that of the least commit-ts, with its columns."""
    names = frames.texts.to_pylist()
    stops = np.searchsorted(groups.group, np.arange(len(groups.event)), side="right").tolist()
    starts = np.searchsorted(groups.group, np.arange(len(groups.event)), side="left").tolist()
    best: dict[tuple[object, ...], int] = {}
    for group in some:
        event = groups.event[group]
        group_lines = slice(starts[group], stops[group])
        shape = (
            names[frames.schema[event]],
            names[frames.table[event]],
            *(names[term] for term in groups.name[group_lines].tolist()),
            groups.code[group_lines].tobytes(),
            groups.flags[group_lines].tobytes(),
        )
        held = best.setdefault(shape, group)
        if frames.commit_ts[groups.event[held]] > frames.commit_ts[event]:
            best[shape] = group
    for group in best.values():
        yield group, tuple(_typed(frames, groups, names, place) for place in range(starts[group], stops[group]))


def _typed(frames: Frames, groups: Groups, names: list[str], place: int) -> TypedColumn:
    start, length = int(groups.start[place]), int(groups.length[place])
    text = frames.varints.data[start : start + max(length, 0)].tobytes().decode("utf-8", "replace")
    texts = (text,) if length >= 0 and groups.code[place] in (7, 11, 12, 246) else ()
    return TypedColumn(names[int(groups.name[place])], int(groups.code[place]), int(groups.flags[place]), texts)


CODEC = MessageCodec(classify=classify, decode=decode, schemas=schemas)
