"""Rows of MySQL's log that share a file and a position, and which of them come again.

An event of the log has a position, and numbers its rows from 0. All events of a compressed transaction
(`binlog_transaction_compression`) are inside one event, whose position Debezium gives to each of their rows: there the
numbers begin again with each inner event, so a lower or equal number does not prove a repetition. A connector that
starts again may begin at any row of the group, and then sends all that follows it. So a repetition is told by the
digests of the group's rows, in their order.
"""

from __future__ import annotations

from cdc_assets.model.landed import StreamEnd

__all__ = [
    "add_row",
    "can_follow",
    "is_partial",
    "newest_of_key",
    "repeat_from",
    "repeat_next",
    "row_digest",
    "rows_like",
    "same_group",
]

_WIDTH = 24
"""Characters of a row's digest: 8 of its key, 15 of its contents, the letter of what it tells of."""
_KEY = 8
_MOST_ROWS = 4096
"""Most rows of a group that are kept; only compressed transactions have more."""


def row_digest(key: str, contents: str, op: str) -> str:
    """Return the digest of a row by those of its key and contents; `op` is c, u or d, "" if unknown."""
    return f"{key[:_KEY]}{contents[: _WIDTH - _KEY - 1]}{op or '-'}"


def can_follow(before: str, digest: str) -> bool:
    """Return whether a change can follow another of its key, by their digests; `before` is "" for none that is known.

    An insert follows a delete, and what updates or deletes a row follows what left one.
    """
    after, op = before[-1:], digest[-1:]
    return "-" in (after, op) or not before or (after == "d") == (op == "c")


def same_group(end: StreamEnd, place: str) -> bool:
    """Return whether a place has the file and position of a stream's end."""
    return end.newest.rpartition(".")[0] == place.rpartition(".")[0]


def is_partial(end: StreamEnd) -> bool:
    """Return whether the digests of the group's first rows are no longer kept."""
    return end.at * _WIDTH > len(end.group)


def add_row(end: StreamEnd, place: str, digest: str, run: str) -> StreamEnd:
    """Return the end of a stream behind one more row of its group."""
    return end._replace(
        newest=max(end.newest, place),
        at=end.at + 1,
        after=0,
        again_at=-1,
        again_after=-1,
        again_from=-1,
        group=(end.group + digest)[-_MOST_ROWS * _WIDTH :],
        run=run or end.run,
    )


def repeat_from(end: StreamEnd, start: int, run: str) -> StreamEnd:
    """Return the end of a stream as a replay begins with the row `start` of its group."""
    return end._replace(again_at=start + 1, again_after=0, again_from=start, run=run or end.run)


def repeat_next(end: StreamEnd, digest: str, run: str) -> StreamEnd | None:
    """Return the end of a stream behind one more row of a replay; None where the replay is over and the row is new.

    A replay that began before the group brings all of it. One that began inside may have begun with a later row than
    was assumed, where rows are equal.
    """
    if end.again_from < 0:
        return end._replace(again_at=end.again_at + 1, run=run or end.run)
    rows = _digests(end)
    first = end.at - len(rows)
    begun, repeated = end.again_from - first, rows[end.again_from - first : end.again_at - first]
    for start in range(begun, len(rows) - len(repeated)):
        behind = start + len(repeated)
        if rows[start:behind] == repeated and rows[behind] == digest:
            return end._replace(again_at=first + behind + 1, again_from=first + start, run=run or end.run)
    return None


def rows_like(end: StreamEnd, digest: str) -> list[int]:
    """Return the rows of a stream's group that have a digest, by their number in the group."""
    if digest not in end.group:
        return []
    rows = _digests(end)
    return [end.at - len(rows) + number for number, row in enumerate(rows) if row == digest]


def newest_of_key(end: StreamEnd, digest: str) -> str:
    """Return the digest of the newest row in a stream's group that has the key of a row."""
    return next((row for row in reversed(_digests(end)) if row[:_KEY] == digest[:_KEY]), "")


def _digests(end: StreamEnd) -> list[str]:
    return [end.group[start : start + _WIDTH] for start in range(0, len(end.group), _WIDTH)]
