"""The columns of printed tables, each with its meaning: the headings of these tables, and a section of their help."""

from __future__ import annotations

from collections.abc import Mapping

Columns = Mapping[str, str]
"""Heading of each column -> its meaning, in the order in which they are printed."""

_APPLIED: Columns = {
    "applied through": "TSO through which everything is in the table.",
    "its time": "That TSO as a time in UTC.",
}
_TABLE: Columns = {"table": "Name in the source.", "version": "TSO of the table's newest DDL that is applied."}

OUTCOME: Columns = {
    **_TABLE,
    "state": "applied; held: it waits for a person; failed: for a reason that may pass; dropped; frozen: the settings "
    "leave it out. An incomplete table lacks rows.",
    **_APPLIED,
    "steps": "DDL and windows of rows that this run carried out.",
    "changes": "Changes that this run wrote. A mirror gets the last change of each row in a window, a log every one.",
}

STATUS: Columns = {
    **_TABLE,
    "rows": "Rows of the table in the lake.",
    **_APPLIED,
    "behind checkpoint": "Time from there to the checkpoint that the last run saw.",
    "check": "passed; failed: the table is held or failed; loading: no run over it has ended; frozen: the settings "
    "leave it out. An incomplete table lacks rows.",
    "quarantine": "Records that did not fit and were set aside.",
}

LAG: Columns = {
    "newest change of": "The table, by its newest change that is applied.",
    "committed": "Time of the commit in the source.",
    "under way": "Time from there to the commit in the lake.",
    "until written": "Part of it until the file was in the bucket.",
    "until checkpoint": "Part of it until the checkpoint covered the change.",
    "until in the topic": "Part of it until the message was in the topic.",
    "until landed": "Part of it until the message was landed.",
    "until applied": "Rest of it, until the commit in the lake.",
}
"""Columns of changefeeds in files and in topics together: a printed table has those of one of them."""

LANDED: Columns = {
    "changefeed": "Name in the settings.",
    "topic": "Topic and partition.",
    "log ends at": "Offset of the next message of the topic.",
    "landed to": "Offset of the next message to be landed.",
    "applied to": "Offset of the next message to be applied.",
    "not landed": "Messages between both ends.",
    "newest mark": "Greatest resolved TSO that was landed.",
    "its time": "That TSO as a time in UTC.",
}
