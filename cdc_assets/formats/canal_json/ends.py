"""Both ends of messages as TiCDC writes them, of all messages of a batch at once.

A row begins with what names its table, its type and a time, and ends with its commit-ts. The first is the same in all
messages of a table, so each is held against a pattern once; the numbers have as many digits as those of our time, and
stand where they are awaited, or the message is left to be read as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.canal_json.file_records import KINDS
from cdc_assets.formats.records import bounds
from cdc_assets.formats.words import Marks, have, pieces, whole_numbers, words
from cdc_assets.model.schema import TableId

__all__ = ["Ends", "read_damaged", "read_ends"]

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_TEXT = r'"(?:[^"\\]|\\.)*"'
_LEAD = re.compile(
    rf'\{{"id":\d+,"database":(?P<schema>{_TEXT}),"table":(?P<table>{_TEXT}),"pkNames":(?:null|\[(?:{_TEXT},?)*\])'
    r',"isDdl":false,"type":"'.encode(),
    re.DOTALL,
)
"""Pattern of the start of a row, up to its type."""
_HEAD = re.compile(_LEAD.pattern + rb'(?:INSERT|UPDATE|DELETE)","es":(?P<es>\d{1,13}),', re.DOTALL)
_TAIL = re.compile(
    rb',"_tidb":\{"commitTs":(?P<commit_ts>[1-9]\d{0,17})(?:,"onlyHandleKey":(?P<part>true|false))?'
    rb'(?:,"claimCheckLocation":"(?P<claim>[^"\\]*)")?(?:,"rowkey":"[^"\\]*")?\}\}\Z'
)
"""Pattern of a row's start and end as TiCDC may write them."""
_LAST_OF_LEAD = b',"isDdl":false,"type":"'  # no text of JSON has its first two bytes
_KIND, _ES, _TS = 6, b'","es":', b',"_tidb":{"commitTs":'
_KINDS = tuple(kind.encode() + _ES for kind in KINDS)
_ES_DIGITS, _TS_DIGITS = 13, 18  # milliseconds until 2286, TSO until 2090
_BARE, _CLOSED = b"]}", b"}}"
_LEAST_BEHIND = _KIND + len(_ES) + _ES_DIGITS + 1 + len(_BARE)
_MOST_OF_TAIL = 1024
_GUESSES = 8
_WORD = 8


class Ends(NamedTuple):
    """The messages whose ends were read, by place: their tables, and the numbers of their ends as a TSO or in ms."""

    places: Numbers
    schemas: pa.Array
    tables: pa.Array
    numbers: Numbers


def read_ends(values: pa.BinaryArray, extended: bool) -> Ends:
    """Return the fields at the ends of rows: with the extension their commit-ts, else their `es`."""
    starts, ends = bounds(values)
    body = values.buffers()[2]
    held = words(np.frombuffer(body or b"", np.uint8))
    leads = _leads(values, held, starts, ends)
    kind = starts + leads + len(_LAST_OF_LEAD)
    es = kind + _KIND + len(_ES)
    after = es + _ES_DIGITS + 1
    last = ends - (len(_TS) + _TS_DIGITS + len(_CLOSED) if extended else len(_BARE))
    places = np.flatnonzero((leads >= 0) & (after <= last))
    if not len(places):
        return Ends(places, pa.nulls(0, pa.string()), pa.nulls(0, pa.string()), places)
    kind, es, after, last, stop = (positions[places] for positions in (kind, es, after, last, ends))
    numbers, fit = whole_numbers(held, es, es + _ES_DIGITS)
    fit &= _is_one_of(held, kind, _KINDS) & _is_one_of(held, after - 8, (b",",), 7)
    if extended:
        numbers, fits = whole_numbers(held, last + len(_TS), last + len(_TS) + _TS_DIGITS)
        fit &= fits & _is_one_of(held, last, (_TS,)) & _is_one_of(held, stop - 8, (_CLOSED,), 6)
    else:
        fit &= _is_one_of(held, stop - 8, (_BARE,), 6)
    schemas, tables = _names(body, starts[places], starts[places] + leads[places] + len(_LAST_OF_LEAD))
    fit &= schemas.is_valid().to_numpy(zero_copy_only=False)
    mask = pa.array(fit)
    return Ends(places[fit], schemas.filter(mask), tables.filter(mask), numbers[fit].astype(np.int64))


def read_damaged(value: bytes, extended: bool) -> tuple[TableId, int, str | None, bool] | None:
    """Return the fields at the ends of a row that is no JSON between them, None where they are not those of a row.

    That is its table, its commit-ts, without the extension the least of its `es`, where the whole row lies, and whether
    it is here.
    """
    head, tail = _HEAD.match(value), _TAIL.search(value[-_MOST_OF_TAIL:])
    schema, table = (None, None) if head is None else (_name_of(head["schema"]), _name_of(head["table"]))
    if head is None or not schema or not table:
        return None
    if not extended:
        commit_ts = int(head["es"]) << 18
        return (TableId(schema, table), commit_ts, None, True) if commit_ts and value.endswith(_BARE) else None
    if tail is None:
        return None
    claim = (tail["claim"] or b"").decode("utf-8", "replace") or None
    return TableId(schema, table), int(tail["commit_ts"]), claim, tail["part"] != b"true"


def _name_of(text: bytes) -> str | None:
    """Return the name that a text of JSON is, None for none, and for half of a surrogate pair, which is no UTF-8."""
    try:
        name = str(json.loads(text))
        return name if name.encode() else None
    except ValueError:
        return None


def _leads(values: pa.BinaryArray, held: Words, starts: Numbers, ends: Numbers) -> Numbers:
    """Return the place where the end of each lead begins, by the bytes before it, -1 where there is none.

    It stands where it does in the first message that has one, or in one of the next that differ, or is searched for.
    """
    leads = np.full(len(values), -1)
    unknown = ends - starts >= len(_LAST_OF_LEAD) + _LEAST_BEHIND
    for _ in range(_GUESSES):
        places = np.flatnonzero(unknown)
        if not len(places):
            return leads
        lead = values[int(places[0])].as_py().find(_LAST_OF_LEAD)
        unknown[places[0]] = False
        places = places[ends[places] - starts[places] >= lead + len(_LAST_OF_LEAD)]
        if lead >= 0:
            matches = places[_is_one_of(held, starts[places] + lead, (_LAST_OF_LEAD,))]
            leads[matches], unknown[matches] = lead, False
    places = np.flatnonzero(unknown)
    leads[places] = pc.find_substring(values.take(pa.array(places)), _LAST_OF_LEAD).to_numpy(zero_copy_only=False)
    return leads


def _is_one_of(held: Words, at: Numbers, texts: Iterable[bytes], start: int = 0) -> Marks:
    """Return the place of the first of some texts; one of less than eight bytes from `start` of a word to its end."""
    marks = np.zeros(len(at), bool)
    for text in texts:
        if len(text) < _WORD:
            mask = ~np.uint64(0) << np.uint64(8 * start)
            marks |= held[at] & mask == np.uint64(int.from_bytes(text.rjust(_WORD, b"\0"), "little"))
        else:
            marks |= have(held, at, text)
    return marks


def _names(data: pa.Buffer, starts: Numbers, ends: Numbers) -> tuple[pa.Array, pa.Array]:
    """Return database and table that stand in leads, null in those that are none."""
    coded = pieces(data, starts, ends).dictionary_encode()
    name_pairs: list[tuple[str | None, str | None]] = []
    for lead in coded.dictionary.to_pylist():
        match = _LEAD.fullmatch(lead)
        schema, table = (None, None) if match is None else (_name_of(match["schema"]), _name_of(match["table"]))
        name_pairs.append((schema, table) if schema and table else (None, None))
    columns = (pa.array([names[place] for names in name_pairs], pa.string()) for place in (0, 1))
    schemas, tables = (column.take(coded.indices) for column in columns)
    return schemas, tables
