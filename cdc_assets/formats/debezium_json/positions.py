"""Position of a row in its source's log, by connector, as a text that sorts in the order of that log.

    mysql, mariadb   number of the binlog file, position, row of the event
    postgresql       LSN of the last commit and of the row: the log sends transactions whole, in the order of commits

A row of a snapshot stands before all others. One of an incremental snapshot has no place: it was read at any time, of
which the message says how far the log was then.
Others have none that is known, and are ordered by their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.debezium_json.envelope import Envelope
from cdc_assets.formats.messages import SNAPSHOT_DDL, position_text
from cdc_assets.formats.records import CellKind, Marks, RecordColumn, bits

__all__ = ["SourcePositions", "source_positions"]

_Parts = tuple[list[pa.StringArray], Marks]
"""The numbers of places as texts, the most significant first, and which places are such."""

_INCREMENTAL = "incremental"
_PHASES = {
    "true": "within",
    "first": "begin",
    "first_in_data_collection": "first",
    "last": "end",
    "last_in_data_collection": "last",
}
_NUMBER = r"^[0-9]{1,20}$"
_FILE = r"(?s)^(?:.*\.)?(?P<number>[0-9]{0,20})$"
_SEQUENCE = r'^\[(?:null|"?(?P<last>[0-9]{0,20})"?), ?(?:null|"?(?P<here>[0-9]{0,20})"?)\]$'
_BELOW_NONE = (
    ": its pos is below 0. MariaDB from 11.4 on leaves out of its log by what older connectors reckon that. Let the "
    "server have binlog_legacy_event_pos = ON, or take a newer connector, and let one with a new topic.prefix bring "
    "the tables"
)
_DIGITS = 20


class SourcePositions(NamedTuple):
    """Source positions of messages, null for those without one, and `ddl`, the positions of schema changes.

    `read_at` is how far the log was when a row of an incremental snapshot was read, null for others and if not told.
    `phases` are where in its table's snapshot a row stands (`phase` of CLASSIFIED), null for a row of none.
    """

    places: pa.StringArray
    ddl: pa.StringArray
    read_at: pa.StringArray
    phases: pa.StringArray


def source_positions(rows: Envelope, connector: str) -> SourcePositions:
    """Return the positions of messages of a connector; refuse those whose source does not have them as it should.

    Debezium marks the last row of a table before its first one, so a lone row is "last", or "end" where it is the last
    one of the whole snapshot; but the first one of all is "begin" even if it is alone (`setSnapshotMarker`). After a
    restart amid a snapshot for which a person had asked it marks changes as of a snapshot, too. No row of a snapshot is
    an update, a delete or a TRUNCATE; one may be an insert, by Debezium's ReadToInsertEvent. The schema changes of a
    snapshot come before its rows, though they stand at one place.
    """
    nothing = pa.scalar(None, pa.string())
    op = rows.column("op")
    is_change = pa.array(op.given & ~op.equal("r") & ~op.equal("c"))
    marks = pc.if_else(is_change, nothing, pc.utf8_lower(rows.column("source", "snapshot").texts))
    numbers = pc.index_in(marks, pa.array(list(_PHASES)))
    phases = pa.array(list(_PHASES.values())).take(numbers)
    incremental, is_snapshot = pc.equal(marks, _INCREMENTAL).fill_null(False), numbers.is_valid()
    find, none = _PLACES.get(connector), pa.nulls(len(marks), pa.string())
    if find is None:
        return SourcePositions(none, pc.if_else(is_snapshot, SNAPSHOT_DDL, none), none, phases)
    parts, sound = find(lambda name: rows.column("source", name))
    rows.records.require(
        sound | bits(incremental),
        lambda place: (
            f"its source {rows.column('source').shown(place)} does not say where it stands in the log"
            + (_BELOW_NONE if (rows.column("source", "pos").texts[place].as_py() or "").startswith("-") else "")
        ),
    )
    padded = (pc.ascii_lpad(part, _DIGITS, "0") for part in parts)
    first = pc.if_else(is_snapshot, position_text(1), position_text(2))
    positions = pc.if_else(pa.array(sound), pc.binary_join_element_wise(first, *padded, "."), nothing)
    places = pc.if_else(incremental, nothing, positions)
    ddl = pc.if_else(is_snapshot, SNAPSHOT_DDL, places)
    return SourcePositions(places, ddl, pc.if_else(incremental, positions, nothing), phases)


_Columns = Callable[[str], RecordColumn]
"""The name of a member of the source -> its cells."""


def _numbers(cells: RecordColumn, otherwise: str = "0") -> tuple[pa.StringArray, Marks]:
    """Return numbers as texts, another one where there is none, and which are such."""
    sound = ~cells.given | bits(pc.match_substring_regex(cells.texts, _NUMBER))
    return pc.fill_null(cells.texts, otherwise), sound


def _binlogs(source: _Columns) -> _Parts:
    files, at = source("file"), source("pos")
    numbers = pc.struct_field(pc.extract_regex(files.texts, _FILE), "number")
    (positions, sound), (rows, right) = _numbers(at), _numbers(source("row"))
    sound &= right & at.given & files.are(CellKind.TEXT) & bits(numbers.is_valid())
    return [numbers, positions, rows], sound


def _wals(source: _Columns) -> _Parts:
    lsn, sequence = source("lsn"), source("sequence")
    numbers, sound = _numbers(lsn)
    parts = pc.extract_regex(sequence.texts, _SEQUENCE)
    last, here = (pc.struct_field(parts, name) for name in ("last", "here"))
    last, here = (pc.if_else(pc.equal(part, ""), pa.scalar(None, pa.string()), part) for part in (last, here))
    sound &= np.where(sequence.given, sequence.are(CellKind.TEXT) & bits(parts.is_valid()), lsn.given)
    return [pc.fill_null(last, "0"), pc.coalesce(here, numbers)], sound


_PLACES: Mapping[str, Callable[[_Columns], _Parts]] = {
    "mysql": _binlogs,
    "mariadb": _binlogs,
    "postgresql": _wals,
}
