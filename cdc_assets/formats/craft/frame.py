"""The frame of Craft messages: headers, places of bodies and of column groups, dictionary; no column is looked at.

    uvarint version (= 1)
    headers      : delta-uvarint ts[N] · uvarint type[N] · delta-varint partition[N], schema term[N], table term[N]
    bodies       : N bodies, one after the other
    dictionary   : (absent if empty) uvarint count · uvarint lengths · texts
    size tables  : [header bytes, dictionary bytes] · body sizes[N] · column-group sizes of each row body;
                   each is uvarint n · delta-varint n values
    reversed uvarint, read from the last byte backward: byte length of the size tables

All messages of a batch are read together, step by step. A message that breaks a rule is marked with the first one and
is passed over from there on; every count is compared with the bytes that it would need before anything is made of it.

These are no `Records`: a message is not one record but rows of several tables, whose columns have numbers of types and
places of bytes in place of members and texts. What a row speaks of stands in the headers, apart from all columns; a
value is a varint, a double or bytes, and becomes a column of Arrow without a text between; and whether a FLOAT is whole
is seen only in the bytes that the message has behind it, of whatever row and table they are.

A varint ends at its first byte below 0x80. So all the ends of a buffer are known by one comparison, and any number of
varints that follow each other are found without walking over them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.records import bounds
from cdc_assets.formats.words import Marks, pieces, signed, varints

__all__ = [
    "DDL",
    "RESOLVED",
    "ROW",
    "Frames",
    "Varints",
    "before_each",
    "delta",
    "ranges",
    "read_frames",
    "sums_before",
    "sums_of",
]

# --- varints ----------------------------------------------------------------------------------------------------------


Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]


class Varints:
    """The varints of a buffer. What is read lies between a place and a stop, or is marked as not sound."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self.data = data
        self._ends = np.flatnonzero(data < 0x80)

    def count(self, starts: Places, stops: Places) -> Places:
        """Return the number of varints that end between places."""
        counts: Places = np.searchsorted(self._ends, stops) - np.searchsorted(self._ends, starts)
        return counts

    def sequences(self, starts: Places, counts: Places, stops: Places) -> tuple[Numbers, Places, Marks]:
        """Read `counts` varints from each start: their values one after the other, where each sequence ends, soundness.

        A sequence that is not sound has no values: it passes its stop, or holds a number beyond 64 bits.
        """
        first = np.searchsorted(self._ends, starts)
        last = first + counts - 1
        sound = (counts >= 0) & (counts <= stops - starts)
        reach = np.where(sound & (counts > 0), last, 0)
        if len(self._ends):
            reach = np.minimum(reach, len(self._ends) - 1)
            sound &= (counts <= 0) | ((last < len(self._ends)) & (self._ends[reach] < stops))
        else:
            sound &= counts <= 0
        counts = np.where(sound, counts, 0)
        index = ranges(first, counts)
        begins = self._ends[index - 1] + 1
        begins[sums_before(counts)[counts > 0]] = starts[counts > 0]
        values, _, fits = varints(self.data, begins)
        if not fits.all():
            owners = np.repeat(np.arange(len(counts)), counts)
            sound[owners[~fits]] = False
            values = values[sound[owners]]
        after = np.where(counts > 0, self._ends[reach] + 1, starts) if len(self._ends) else starts
        return values, after, sound

    def exactly(self, starts: Places, lengths: Places) -> tuple[Numbers, Marks]:
        """Read one varint from each start; sound are those that end with their length."""
        following = self._ends[np.minimum(np.searchsorted(self._ends, starts), max(len(self._ends) - 1, 0))]
        sound = (lengths > 0) & (following == starts + lengths - 1)
        values, _, fits = varints(self.data, np.where(sound, starts, self._ends[0]))
        return values, sound & fits


def delta(values: npt.NDArray[np.uint64], counts: Places) -> npt.NDArray[np.uint64]:
    """Undo differences within each of some sequences, modulo 2^64."""
    sums = np.cumsum(values, dtype=np.uint64)
    starts = sums_before(counts)
    base = np.zeros(len(counts), np.uint64)
    later = (starts > 0) & (counts > 0)
    base[later] = sums[starts[later] - 1]
    return sums - np.repeat(base, counts)


def sums_before(counts: Places) -> Places:
    """Return the sum of all counts before each."""
    sums: Places = np.cumsum(counts) - counts
    return sums


def ranges(starts: Places, counts: Places) -> Places:
    """Return start, start + 1, … for each start, one after the other."""
    total = int(counts.sum())
    places: Places = np.repeat(starts - sums_before(counts), counts) + np.arange(total, dtype=np.int64)
    return places


def sums_of(values: Places, counts: Places) -> Places:
    """Add up sequences of values that follow each other."""
    total = np.concatenate([[0], np.cumsum(values)])
    first = sums_before(counts)
    sums: Places = total[first + counts] - total[first]
    return sums


def before_each(values: Places, counts: Places) -> Places:
    """Return for each value the sum of those before it in its sequence."""
    total = np.concatenate([[0], np.cumsum(values)])
    sums: Places = total[:-1] - np.repeat(total[sums_before(counts)], counts)
    return sums


# --- frames -----------------------------------------------------------------------------------------------------------


ROW, DDL, RESOLVED = 1, 2, 3

_HEADER_NUMBERS = 5


@dataclass(frozen=True, slots=True)
class Frames:
    """The events of some messages, in order, as columns; `message` counts from 0.

    `schema` and `table` are numbers in `texts`, -1 for none; the terms of a message begin at its `first_term` there,
    `term_counts` of them. A row event has `group_counts` column groups from `first_group` on, which lie from
    `group_starts` to `group_stops`. A message that cannot be read is in `reasons` and has no events.
    """

    varints: Varints
    reasons: dict[int, str]
    message: Places
    ordinal: Places
    kind: Places
    commit_ts: Places
    schema: Places
    table: Places
    body_starts: Places
    body_stops: Places
    first_group: Places
    group_counts: Places
    group_starts: Places
    group_stops: Places
    texts: pa.StringArray
    first_term: Places
    term_counts: Places


@dataclass(slots=True)
class _Messages:
    """Bounds of messages, and which of them are sound so far; arrays keep a place for those that are not."""

    varints: Varints
    starts: Places
    stops: Places
    sound: Marks
    reasons: dict[int, str] = field(default_factory=dict)

    def require(self, holds: Marks, reason: str) -> None:
        """Give the messages for which it does not hold their reason."""
        for number in np.flatnonzero(self.sound & ~holds).tolist():
            self.reasons[number] = reason
        self.sound = self.sound & holds

    def require_each(self, holds: Marks, owners: Places, reason: str) -> None:
        """Refuse the `owners` (numbers of messages, several values each) of values for which it does not hold."""
        if not holds.all():
            is_sound = np.ones(len(self.sound), bool)
            is_sound[owners[~holds]] = False
            self.require(is_sound, reason)


def read_frames(values: pa.Array) -> Frames:
    """Read the frames of messages, given as a binary array; null is not a message."""
    starts, stops = bounds(values)
    base, end = (int(starts[0]), int(stops[-1])) if len(values) else (0, 0)
    data = np.frombuffer(values.buffers()[2], np.uint8)[base:end] if end > base else np.zeros(1, np.uint8)
    starts, stops = starts - base, stops - base
    at = _Messages(Varints(data), starts, stops, np.ones(len(values), bool))
    at.require(stops > starts, "it has no value, which every message of this protocol has")
    at.require(data[np.where(at.sound, starts, 0)] == 1, "it does not begin with 1, the version of the protocol")
    tables = _read_tables(at, *_find_tables(at))
    lengths = at.stops - at.starts
    owners = np.repeat(np.arange(len(lengths)), tables.events)
    sizes = tables.values[ranges(tables.first_body, tables.events)]
    at.require_each((sizes >= 0) & (sizes <= lengths[owners]), owners, _NO_SUM)
    header, dictionary = tables.header, tables.dictionary
    at.require((header >= 0) & (header <= lengths) & (dictionary >= 0) & (dictionary <= lengths), _NO_SUM)
    sizes = np.where(at.sound[owners], sizes, 0)
    bodies = sums_of(sizes, tables.events)
    at.require(1 + header + bodies + dictionary == tables.start - at.starts, _NO_SUM)
    header_stops = np.where(at.sound, at.starts + 1 + header, 0)
    terms = _read_dictionaries(at, header_stops + np.where(at.sound, bodies, 0), dictionary)
    body_starts = np.repeat(header_stops, tables.events) + before_each(sizes, tables.events)
    return _read_events(at, tables, terms, header_stops, body_starts, body_starts + sizes)


_NO_SUM = "the sizes of its parts do not add up to its length"


# --- size tables ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tables:
    """Size tables: `values` of all, which begin at `firsts` and have `counts`; the rest is by message.

    `head` is the number of a message's first table; the sizes of its bodies begin at `first_body` of `values`.
    """

    values: Places
    firsts: Places
    counts: Places
    start: Places
    head: Places
    number: Places
    header: Places
    dictionary: Places
    first_body: Places
    events: Places


def _find_tables(at: _Messages) -> tuple[Places, Places]:
    """Read the last number of messages backward; return where the tables begin and end."""
    size, length = np.zeros_like(at.starts), np.zeros_like(at.starts)
    going = np.flatnonzero(at.sound)
    for byte in range(5):
        going = going[at.stops[going] - 1 - byte > at.starts[going]]
        last = at.varints.data[at.stops[going] - 1 - byte].astype(np.int64)
        size[going] |= (last & 0x7F) << (7 * byte)
        length[going[last < 0x80]] = byte + 1
        going = going[last >= 0x80]
    stop = at.stops - length
    start = stop - size
    at.require(
        (length > 0) & (size > 0) & (start > at.starts), "the size of its tables, at its end, is beyond its length"
    )
    return np.where(at.sound, start, 0), np.where(at.sound, stop, 0)


def _read_tables(at: _Messages, start: Places, stop: Places) -> _Tables:
    counts = np.where(at.varints.data[stop - 1] < 0x80, at.varints.count(start, stop), -1)
    numbers, _, sound = at.varints.sequences(start, counts, stop)
    at.require(sound, "its size tables are not numbers")
    first = sums_before(np.where(sound, counts, 0))
    message, places, counts = _walk_tables(at, numbers, first, first + np.where(at.sound, counts, 0))
    values = delta(signed(numbers[ranges(places, counts)]).view(np.uint64), counts).view(np.int64)
    number = np.bincount(message, minlength=len(start)).astype(np.int64)
    at.require(number >= 2, _NO_FIT)
    head = np.where(at.sound, sums_before(number), 0)
    values, counts = np.append(values, [0, 0]), np.append(counts, [0, 0])  # for messages that are not sound
    firsts = sums_before(counts)
    at.require((counts[head] == 2) & (number <= counts[head + 1] + 2), _NO_FIT)
    first = np.where(at.sound, firsts[head], 0)
    return _Tables(
        values=values,
        firsts=firsts,
        counts=counts,
        start=start,
        head=head,
        number=number,
        header=values[first],
        dictionary=values[first + 1],
        first_body=firsts[head + 1],
        events=np.where(at.sound, counts[head + 1], 0),
    )


_NO_FIT = "its size tables do not fit each other"


def _walk_tables(at: _Messages, numbers: Numbers, first: Places, stop: Places) -> tuple[Places, Places, Places]:
    """Find the tables in `numbers`, the n-th of all messages at a time: message, place of the first value, count.

    The first has two values, and there are at most as many behind the second as that has.
    """
    lanes, here = np.flatnonzero(first < stop), first.copy()
    most = np.full(len(first), 2, np.int64)
    tables = [(_NONE, _NONE, _NONE)]
    while len(lanes):
        n = np.minimum(numbers[here[lanes]], np.uint64(len(numbers))).astype(np.int64)
        turn = len(tables) - 1
        fits = (n <= stop[lanes] - here[lanes] - 1) & (turn < most[lanes]) & ((turn > 0) | (n == 2))
        if turn == 1:
            most[lanes] += n
        if not fits.all():
            at.require_each(fits, lanes, _NO_FIT)
            lanes, n = lanes[fits], n[fits]
        tables.append((lanes, here[lanes] + 1, n))
        here[lanes] += n + 1
        lanes = lanes[here[lanes] < stop[lanes]]
    message, places, counts = (np.concatenate(column) for column in zip(*tables, strict=True))
    order = np.argsort(message, kind="stable")
    return message[order], places[order], counts[order]


_NONE = np.zeros(0, np.int64)


# --- dictionaries -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Terms:
    texts: pa.StringArray
    first: Places
    counts: Places


def _read_dictionaries(at: _Messages, start: Places, size: Places) -> _Terms:
    reason = "its dictionary does not end where its size tables begin"
    has = at.sound & (size > 0)
    start, stop = np.where(has, start, 0), np.where(has, start + size, 0)
    lengths, after, sound = at.varints.sequences(start, has.astype(np.int64), stop)
    at.require(sound, reason)
    counts = np.zeros_like(start)
    counts[has & sound] = np.minimum(lengths, np.uint64(len(at.varints.data))).astype(np.int64)
    counts = np.where(counts <= stop - start, counts, -1)
    lengths, after, sound = at.varints.sequences(after, counts, stop)
    at.require(sound, reason)
    counts = np.where(sound, counts, 0)
    owners = np.repeat(np.arange(len(counts)), counts)
    sizes = np.minimum(lengths, np.uint64(len(at.varints.data))).astype(np.int64)
    at.require(after + sums_of(sizes, counts) == stop, reason)
    sizes = np.where(at.sound[owners], sizes, 0)
    places = np.repeat(after, counts) + before_each(sizes, counts)
    terms = pieces(pa.py_buffer(at.varints.data), places, places + sizes)
    return _Terms(_texts(at, terms, owners), sums_before(counts), counts)


def _texts(at: _Messages, terms: pa.BinaryArray, owners: Places) -> pa.StringArray:
    try:
        return terms.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [term.decode("utf-8", "replace") for term in terms.to_pylist()]
    is_term = pc.equal(terms, pa.array(texts, pa.string()).cast(pa.binary()))
    at.require_each(is_term.to_numpy(zero_copy_only=False), owners, "its dictionary holds a name that is not UTF-8")
    return pa.array(texts, pa.string())


# --- events -----------------------------------------------------------------------------------------------------------


def _read_events(
    at: _Messages, tables: _Tables, terms: _Terms, header_stops: Places, body_starts: Places, body_stops: Places
) -> Frames:
    """Read the headers of all events, then where the column groups of rows lie in their bodies."""
    number_counts = np.where(at.sound, tables.events * _HEADER_NUMBERS, -1)
    numbers, after, sound = at.varints.sequences(np.where(at.sound, at.starts + 1, 0), number_counts, header_stops)
    at.require(sound & (after == header_stops), "its headers do not end where its first body begins")
    base = sums_before(np.where(sound, number_counts, 0))
    events, among = np.where(at.sound, tables.events, 0), np.repeat(at.sound, tables.events)
    message = np.repeat(np.arange(len(events)), events)
    columns = [numbers[ranges(base + place * events, events)] for place in range(_HEADER_NUMBERS)]
    commit_ts, kind = delta(columns[0], events), np.minimum(columns[1], np.uint64(1 << 32)).astype(np.int64)
    schema, table = (delta(signed(column).view(np.uint64), events).view(np.int64) for column in columns[3:])
    term_counts = terms.counts[message]
    at.require_each((kind >= ROW) & (kind <= RESOLVED), message, "it has an event of a kind that is not known")
    at.require_each(commit_ts < 1 << 63, message, "it has a commit-ts that is not a TSO")
    named = (schema >= np.where(kind == RESOLVED, -1, 0)) & (table >= np.where(kind == ROW, 0, -1))
    at.require_each(
        named & (schema < term_counts) & (table < term_counts), message, "it names a term that its dictionary lacks"
    )
    ordinal = np.arange(len(message)) - np.repeat(sums_before(events), events)

    body_starts, body_stops, is_row = body_starts[among], body_stops[among], kind == ROW
    rows = np.bincount(message[is_row], minlength=len(tables.number)).astype(np.int64)
    at.require(tables.number - 2 == rows, "it has not one size table for each of its rows")
    is_row = is_row & at.sound[message]
    row_message = message[is_row]
    rank = np.arange(len(row_message)) - np.repeat(sums_before(rows * at.sound), rows * at.sound)
    sizes_of = tables.head[row_message] + 2 + rank
    counts = np.zeros_like(message)
    counts[is_row] = np.minimum(tables.counts[sizes_of], 3)
    at.require_each(~is_row | ((counts > 0) & (counts < 3)), message, "a row of it has not one or two column groups")
    owners = np.repeat(np.arange(len(message)), counts)
    sizes = tables.values[ranges(tables.firsts[sizes_of], counts[is_row])]
    bodies = body_stops - body_starts
    at.require_each((sizes >= 2) & (sizes <= bodies[owners]), message[owners], _NO_SUM)
    sizes = np.clip(sizes, 0, bodies[owners])
    starts = np.repeat(body_starts, counts) + before_each(sizes, counts)
    at.require_each(~is_row | (sums_of(sizes, counts) == bodies), message, _NO_SUM)

    alive, first_term = at.sound[message], terms.first[message]
    of_groups = np.repeat(alive, counts)
    return Frames(
        varints=at.varints,
        reasons=at.reasons,
        message=message[alive],
        ordinal=ordinal[alive],
        kind=kind[alive],
        commit_ts=commit_ts.view(np.int64)[alive],
        schema=np.where(schema < 0, -1, schema + first_term)[alive],
        table=np.where(table < 0, -1, table + first_term)[alive],
        body_starts=body_starts[alive],
        body_stops=body_stops[alive],
        first_group=sums_before(counts[alive]),
        group_counts=counts[alive],
        group_starts=starts[of_groups],
        group_stops=(starts + sizes)[of_groups],
        texts=terms.texts,
        first_term=terms.first,
        term_counts=terms.counts,
    )
