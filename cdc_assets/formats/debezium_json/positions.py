"""Where a row stands in the log of its source, by connector, as a text that sorts as that log goes.

    mysql, mariadb   number of the binlog file, position, row of the event
    postgresql       LSN of the last commit and of the row: the log sends transactions whole, in the order of commits
    oracle           SCN of the commit, and of the change
    sqlserver        LSN of the commit, and of the change

A row of a snapshot stands before all others. One of an incremental snapshot has no place: it was read at any time.
Others have none that is known, and are ordered by their offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from cdc_assets.formats.messages import position_text

__all__ = ["schema_position", "source_position"]

_SNAPSHOT = frozenset(("true", "first", "last", "first_in_data_collection", "last_in_data_collection"))


def source_position(source: Mapping[str, Any]) -> str | None:
    """Return the place of a message, None where it has none; raises ValueError or KeyError for a source without it."""
    phase = str(source.get("snapshot")).lower()
    if phase == "incremental":
        return None
    find = _PLACES.get(source["connector"])
    if find is None:
        return None
    return position_text(1, *find(source)) if phase in _SNAPSHOT else position_text(2, *find(source))


def schema_position(source: Mapping[str, Any]) -> str | None:
    """Return the place of a schema change: those of a snapshot come before its rows, though they stand at one place."""
    if str(source.get("snapshot")).lower() in _SNAPSHOT:
        return position_text(0)
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
