"""`metadata`, which Dumpling writes last and only when the dump succeeded: the position of the dump as a TSO.

    Started dump at: 2022-06-28 17:49:54
    SHOW MASTER STATUS:
            Log: tidb-binlog
            Pos: 434217889191428107
            GTID:

    Finished dump at: 2022-06-28 17:49:57

Pos is the text of `--snapshot` where that was given: a TSO, or a time in the server's zone. A second block
of a replica or after the connections, is not the dump's position (`tidb:dumpling/export/metadata.go`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cdc_assets.errors import MalformedDump
from cdc_assets.model.tso import Tso

_BLOCK = re.compile(r"SHOW (?:MASTER|BINARY LOG) STATUS:[^\n]*\n((?:[ \t]+[^\n]*(?:\n|\Z))*)", re.IGNORECASE)
_MEMBER = re.compile(r"^[ \t]+(Log|Pos|GTID): ?(.*)$", re.MULTILINE | re.IGNORECASE)
_TIMES = re.compile(r"^(Started|Finished) dump at: (.*)$", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DumpMetadata:
    """The contents of `metadata`, as texts: times are of the machine that dumped, in an unknown zone."""

    log: str
    position: str
    started: str
    finished: str


def parse_metadata(data: bytes) -> DumpMetadata:
    """Return the first block and the times of `metadata`, "" for what is not there."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    block = _BLOCK.search(text)
    members = {name.lower(): value.strip() for name, value in _MEMBER.findall(block[1] if block else "")}
    times = {name.lower(): value.strip() for name, value in _TIMES.findall(text)}
    return DumpMetadata(
        members.get("log", ""), members.get("pos", ""), times.get("started", ""), times.get("finished", "")
    )


def snapshot_tso(metadata: DumpMetadata | None, stated: Tso | None, uri: str) -> Tso:
    """Return the TSO at which the dump was taken: that of `metadata`, or the one that a person states.

    Raises MalformedDump where neither is there, where they differ, and where the dump is not finished.
    """
    if metadata is None:
        if stated is not None:
            return stated
        raise _refused(
            uri,
            "it has no `metadata`: the dump is not finished, failed, or is an export of TiDB Cloud",
            "If it is whole, state the TSO at which it was taken",
        )
    recorded = int(metadata.position) if re.fullmatch(r"[0-9]{1,18}", metadata.position) else None
    if stated is None and not metadata.finished:
        raise _refused(uri, "its `metadata` has no `Finished dump at`", "If it is whole, state its TSO")
    if stated is not None and recorded is not None and metadata.log == _TIDB and stated != recorded:
        raise _refused(uri, f"its `metadata` has the TSO {recorded}, and {stated} is given", "Correct")
    if stated is not None:
        return stated
    if metadata.log != _TIDB:
        what = f'the log "{metadata.log}", which is not of TiDB' if metadata.log else "no position of a TiDB cluster"
        raise _refused(uri, f"its `metadata` has {what}", "If it is TiDB's, give its TSO")
    if recorded is None:
        raise _refused(
            uri,
            f'its `metadata` has the position "{metadata.position}", as Dumpling writes it when --snapshot is a time',
            "State the TSO that the source gives for that time in its zone",
        )
    return recorded


_TIDB = "tidb-binlog"


def _refused(uri: str, what: str, way: str) -> MalformedDump:
    return MalformedDump(f"{uri}: {what}. {way} as initial.at (at=TSO on the command line), or dump again.", file=uri)
