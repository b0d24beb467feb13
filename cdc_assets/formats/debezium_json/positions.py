"""Where a row stands in the log of its source, by connector, as a text that sorts as that log goes.

    mysql, mariadb   number of the binlog file, position, row of the event
    postgresql       LSN of the last commit and of the row: the log sends transactions whole, in the order of commits
    oracle           SCN of the commit, and of the change
    sqlserver        LSN of the commit, and of the change

A row of a snapshot stands before all others. One of an incremental snapshot has no place: it was read at any time, of
which the message says how far the log was then.
Others have none that is known, and are ordered by their offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.json_records import Path, SameShape
from cdc_assets.formats.messages import SNAPSHOT_DDL, position_text

__all__ = [
    "SourcePositions",
    "dialect",
    "read_position",
    "schema_position",
    "snapshot_phase",
    "source_position",
    "source_positions",
]

Marks = npt.NDArray[np.bool_]

_INCREMENTAL = "incremental"
_PHASES = {
    "true": "within",
    "first": "first",
    "first_in_data_collection": "first",
    "last": "end",
    "last_in_data_collection": "last",
}
_SNAPSHOT = frozenset(_PHASES)


def dialect(connector: str) -> str:
    """Return the kind of database that a connector is for: MariaDB's and MySQL's write alike."""
    return "mysql" if connector == "mariadb" else connector


def source_position(source: Mapping[str, Any]) -> str | None:
    """Return the place of a message, None where it has none; raises ValueError or KeyError for a source without it."""
    phase = str(source.get("snapshot")).lower()
    find = _PLACES.get(source["connector"])
    if find is None or phase == _INCREMENTAL:
        return None
    return position_text(1 if phase in _SNAPSHOT else 2, *find(source))


def read_position(source: Mapping[str, Any]) -> str | None:
    """Return how far the log was when a row of an incremental snapshot was read, None for others and if not told."""
    find = _PLACES.get(source["connector"])
    if find is None or str(source.get("snapshot")).lower() != _INCREMENTAL:
        return None
    try:
        return position_text(2, *find(source))
    except _TROUBLE:
        return None


def snapshot_phase(source: Mapping[str, Any]) -> str | None:
    """Return where in its table's snapshot a row stands (`phase` of SPOKEN), None for a row of none.

    Debezium marks the last row of a table before its first one, so a lone row is "last", or "end" where it is the last
    one of the whole snapshot (`SnapshotRecord`).
    """
    return _PHASES.get(str(source.get("snapshot")).lower())


def schema_position(source: Mapping[str, Any]) -> str | None:
    """Return the place of a schema change: those of a snapshot come before its rows, though they stand at one place."""
    if str(source.get("snapshot")).lower() in _SNAPSHOT:
        return SNAPSHOT_DDL
    return source_position(source)


def _binlog(source: Mapping[str, Any]) -> tuple[int, ...]:
    number = str(source["file"]).rpartition(".")[2]
    return int(number) if number else 0, int(source["pos"]), int(source.get("row") or 0)


def _wal(source: Mapping[str, Any]) -> tuple[int, ...]:
    sequence = source.get("sequence")
    if sequence is None:
        return 0, int(source["lsn"])
    last, here = json.loads(sequence)
    return int(last or 0), int(here or source["lsn"] or 0)


def _scn(source: Mapping[str, Any]) -> tuple[int, ...]:
    return int(source.get("commit_scn") or source["scn"]), int(source["scn"] or 0)


def _lsn(source: Mapping[str, Any]) -> tuple[int, ...]:
    """`00000027:00000758:0005`, the commit's and the change's."""
    parts = [one for name in ("commit_lsn", "change_lsn") for one in str(source.get(name) or "0:0:0").split(":")]
    return (*(int(part, 16) for part in parts), int(source.get("event_serial_no") or 0))


_PLACES: Mapping[str, Callable[[Mapping[str, Any]], tuple[int, ...]]] = {
    "mysql": _binlog,
    "mariadb": _binlog,
    "postgresql": _wal,
    "oracle": _scn,
    "sqlserver": _lsn,
}


# --- side by side -----------------------------------------------------------------------------------------------------

_NUMBER = r"^[0-9]{1,20}$"
_FILE = r"(?s)^(?:.*\.)?(?P<number>[0-9]{1,20})$"
_SEQUENCE = r'^\[(?:null|\\"(?P<last>[0-9]{1,20})\\"),(?:null|\\"(?P<here>[0-9]{1,20})\\")\]$'
_TROUBLE = (ValueError, KeyError, TypeError, AttributeError)


class SourcePositions(NamedTuple):
    """Of messages side by side: their places, how far the log was (`read_position`), their phase; which are right."""

    places: pa.StringArray
    read_at: pa.StringArray
    phases: pa.StringArray
    sound: Marks


def source_positions(alike: SameShape, at: Path, source: Mapping[str, Any]) -> SourcePositions:
    """Return the positions of messages of one shape and connector, whose source is at a path.

    Those that are not right are to be found one by one.
    """
    none = pa.nulls(len(alike.messages), pa.string())
    slots = {name: place for name in source if (place := alike.shape.place(*at, name)) is not None}
    connector, count = source["connector"], len(alike.messages)
    if slots.keys() != source.keys():
        return SourcePositions(none, none, none, np.zeros(count, bool))
    read = _SIDE_BY_SIDE.get(connector)
    if read is None:
        return _each(alike, slots)
    phases = pc.utf8_lower(alike.texts(slots["snapshot"])) if "snapshot" in slots else none
    no_place = pc.equal(phases, _INCREMENTAL).fill_null(False)
    first = pc.if_else(pc.is_in(phases, pa.array(sorted(_SNAPSHOT))), position_text(1), position_text(2))
    parts, sound = read(alike, slots)
    padded = (pc.ascii_lpad(part, 20, "0") for part in parts)
    found, nothing = pc.binary_join_element_wise(first, *padded, "."), pa.scalar(None, pa.string())
    numbers = pc.index_in(phases, pa.array(list(_PHASES)))
    return SourcePositions(
        pc.if_else(no_place, nothing, found),
        pc.if_else(no_place, found, nothing),
        pa.array(list(_PHASES.values())).take(numbers),
        sound,
    )


def _each(alike: SameShape, slots: Mapping[str, int]) -> SourcePositions:
    columns = [alike.values_of(place) for place in slots.values()]
    found, reads, sound = list[str | None](), list[str | None](), np.ones(len(alike.messages), bool)
    phases = list[str | None]()
    for place, values in enumerate(zip(*columns, strict=True)):
        source = dict(zip(slots, values, strict=True))
        found.append(None)
        reads.append(read_position(source))
        phases.append(snapshot_phase(source))
        try:
            found[place] = source_position(source)
        except _TROUBLE:
            sound[place] = False
    return SourcePositions(
        pa.array(found, pa.string()), pa.array(reads, pa.string()), pa.array(phases, pa.string()), sound
    )


_Parts = tuple[list[pa.StringArray], Marks]


def _are(texts: pa.StringArray, pattern: str) -> Marks:
    found: Marks = pc.match_substring_regex(texts, pattern).fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _number(alike: SameShape, place: int | None) -> tuple[pa.StringArray, Marks]:
    """Return numbers as texts, 0 for none."""
    if place is None:
        return pa.array(["0"] * len(alike.messages)), np.ones(len(alike.messages), bool)
    texts = pc.fill_null(alike.texts(place), "0")
    return texts, ~alike.quoted(place) & _are(texts, _NUMBER)


def _binlogs(alike: SameShape, slots: Mapping[str, int]) -> _Parts:
    none = np.zeros(len(alike.messages), bool)
    if "file" not in slots or "pos" not in slots:
        return [], none
    files = alike.texts(slots["file"])
    numbers = pc.struct_field(pc.extract_regex(files, _FILE), "number")
    (positions, sound), (rows, right) = _number(alike, slots["pos"]), _number(alike, slots.get("row"))
    sound &= right & alike.quoted(slots["file"]) & _are(files, _FILE) & ~alike.nulls(slots["pos"])
    return [numbers, positions, rows], sound


def _wals(alike: SameShape, slots: Mapping[str, int]) -> _Parts:
    lsn, sound = _number(alike, slots.get("lsn"))
    zero = pa.array(["0"] * len(alike.messages))
    if "sequence" not in slots:
        return [zero, lsn], sound & ("lsn" in slots) & ~alike.nulls(slots.get("lsn", 0))
    place = slots["sequence"]
    without = pa.array(alike.nulls(place))
    texts = alike.written(place)
    parts = pc.extract_regex(texts, _SEQUENCE)
    last, here = (pc.struct_field(parts, name) for name in ("last", "here"))
    last, here = (pc.if_else(pc.equal(one, ""), pa.scalar(None, pa.string()), one) for one in (last, here))
    sound &= (alike.quoted(place) & _are(texts, _SEQUENCE)) | alike.nulls(place)
    if "lsn" not in slots:
        return [], np.zeros(len(zero), bool)
    sound &= ~(alike.nulls(place) & alike.nulls(slots["lsn"]))
    return [pc.coalesce(pc.if_else(without, zero, last), zero), pc.coalesce(pc.if_else(without, lsn, here), lsn)], sound


_SIDE_BY_SIDE: Mapping[str, Callable[[SameShape, Mapping[str, int]], _Parts]] = {
    "mysql": _binlogs,
    "mariadb": _binlogs,
    "postgresql": _wals,
}
