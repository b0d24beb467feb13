"""Findings about the settings of a changefeed of TiCDC that concern files and topics alike. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from cdc_assets.model.findings import Finding
from cdc_assets.model.table_history import History
from cdc_assets.preflight.conformance import live, warning
from cdc_assets.sources.changefeed_toml import EventFilter

TRACELESS: Mapping[str, tuple[str, str]] = {
    "truncate table": ("TRUNCATE TABLE", "the rows stay in the lake"),
    "drop table": ("DROP TABLE", "the table stays in the lake, and a later one of its name continues it"),
    "drop schema": ("DROP DATABASE", "its tables stay in the lake"),
    "rename table": ("RENAME TABLE", "the table stays, and the rows of its new name begin another"),
    "recover table": ("RECOVER and FLASHBACK TABLE", "the restored rows are missing"),
    "drop table partition": ("DROP PARTITION", "the rows of the partition stay"),
    "truncate table partition": ("TRUNCATE PARTITION", "the rows of the partition stay"),
    "exchange table partition": ("EXCHANGE PARTITION", "the rows of both tables stay where they were"),
    "reorganize table partition": ("REORGANIZE PARTITION", "a later DDL of a partition may delete other rows"),
    "modify column": (
        "MODIFY and CHANGE COLUMN",
        "another order of columns, names that two columns exchange, and from the old architecture another order of "
        "ENUM and SET members, are not seen, so values may be read into the wrong column or member",
    ),
    "set default value": ("SET DEFAULT", "a hidden ADD COLUMN before it is taken to have had this default"),
}
"""DDL that leave no trace in files if an event filter hides them: TiCDC's name of the event -> DDL, consequence.

A hidden ADD or DROP COLUMN is seen in the columns of the next schema file.
"""
TRACELESS_IN_TOPICS: Mapping[str, tuple[str, str]] = {
    **{event: lost for event, lost in TRACELESS.items() if event != "set default value"},
    "drop column": ("DROP COLUMN", "the column stays, and is NULL in new rows"),
    "modify column": (
        "MODIFY and CHANGE COLUMN",
        "types, members of ENUM and SET, and names that two columns exchange stay as they were, so values may be read "
        "into the wrong column or member",
    ),
}
"""DDL of topics that leave no trace, as TRACELESS has those of files. A hidden ADD COLUMN is seen in later rows."""
_ALIASES = {"drop database": "drop schema"}
_OF_ALTER_TABLE = (
    "drop table partition", "truncate table partition", "exchange table partition", "reorganize table partition",
    "modify column", "drop column", "set default value",
)  # fmt: skip
_WIDER: Mapping[str, tuple[str, ...]] = {
    "all ddl": tuple({**TRACELESS, **TRACELESS_IN_TOPICS}),
    "all": tuple({**TRACELESS, **TRACELESS_IN_TOPICS}),
    "alter table": _OF_ALTER_TABLE,
    "multi schema change": ("modify column", "drop column", "set default value"),
}
_ROW_EVENTS = {"all", "all dml", "insert", "update", "delete"}
_HARMLESS = frozenset((
    "none", "none ddl", "none dml", "create database", "create schema", "alter database", "alter schema",
    "modify schema charset and collate", "create table", "create index", "drop index", "create view", "drop view",
    "add table partition", "rebuild table partition", "coalesce table partition", "split table partition",
    "alter table partitioning", "remove table partitioning", "add foreign key", "drop foreign key",
    "incompatible ddl changes", "value range decrease", "precision decrease", "rename column", "drop column",
    "set default value", "modify default value", "modify constraint", "modify columns order", "modify charset",
    "modify collation", "remove auto increment", "modify storage engine", "modify table charset and collate",
    "modify table comment", "add column", "rebase auto id", "add primary key", "drop primary key", "drop unique key",
    "add fulltext index", "create hybrid index", "rename index", "alter index visibility", "alter ttl info",
    "alter ttl remove",
))  # fmt: skip
"""The other kinds of events that TiCDC knows (`pkg/binlog-filter/filter.go`): hidden ones leave a trace, if any."""


def left_out(filters: Iterable[EventFilter], traceless: Mapping[str, tuple[str, str]], where: str) -> Iterator[Finding]:
    """Yield findings on rows and DDL of `where` that event filters leave out; `traceless` DDL leave no trace there."""
    for event_filter in filters:
        whose = (
            "[filter]"
            if event_filter.matcher is None
            else f"the event filter for {', '.join(event_filter.matcher) or 'no table'}"
        )
        named = [_ALIASES.get(event, event) for event in event_filter.events]
        events = (narrow for event in named for narrow in _WIDER.get(event, (event,)))
        hidden = dict.fromkeys(event for event in events if event in traceless)
        if event_filter.statements and not hidden:
            hidden = dict.fromkeys(traceless)
        if hidden:
            lost = "; ".join(f"{ddl}: {follows}" for ddl, follows in map(traceless.__getitem__, hidden))
            how = (
                "hides DDL by their text; if these are among them,"
                if event_filter.statements
                else "hides DDL, of which"
            )
            yield warning(
                "event-filters",
                f"{whose} {how} the {where} have no trace. {lost}. Let these DDL through and start the changefeed "
                "again, or rebuild the tables after each.",
            )
        if by := [*event_filter.rows, *(event for event in event_filter.events if event in _ROW_EVENTS)]:
            yield warning(
                "event-filters",
                f"{whose} leaves out rows ({', '.join(by)}): the lake holds the changefeed's rows, which are not all "
                "of the source's.",
            )
        known_filters = _HARMLESS | _ROW_EVENTS | {*TRACELESS, *TRACELESS_IN_TOPICS, *_WIDER}
        if unknown := [*event_filter.unknown, *(event for event in named if event not in known_filters)]:
            yield warning(
                "event-filters",
                f"{whose} has what is not known here: {', '.join(unknown)}. It may leave out rows or DDL, which the "
                "lake lacks then. Look it up in TiCDC's documentation, and compare the tables by `cdc-assets verify`.",
            )


def left_rows(history: History) -> Iterator[Finding]:
    """Yield that changed keys leave the row of before: they are not split, and have the new row alone."""
    yield warning(
        "raw-updates",
        "output-raw-change-event is on without old values: an update that changes a key which is not the clustered "
        "primary key has only the new row, and the row under the old key stays in the lake. Set "
        "output-raw-change-event = false or output-old-value = true in the changefeed and start it again.",
    )
    for table in live(history):
        text = " ".join(event.file.query for event in table.events)
        primary = {column.name for column in table.schema.columns if column.is_pk}
        if table.schema.key and (
            set(table.schema.key) != primary or re.search(r"\bNONCLUSTERED\b", text, re.IGNORECASE)
        ):
            yield warning(
                "raw-updates",
                "the key of these tables is not a clustered primary key: key-changing updates leave the old row.",
                table.name,
            )


def misspelt_parameters(misspelt: Iterable[tuple[str, str]], where: str) -> Iterator[Finding]:
    """Yield parameters of the sink URI that are called nearly as one that decides how `where` are read."""
    for name, right_name in misspelt:
        yield warning(
            "sink-parameters",
            "parameters of the sink URI that TiCDC does not know are passed over, as TiCDC does. If its sink URI has "
            f"them in another spelling, correct them: they decide how its {where} are read.",
            detail=f"{name} (like {right_name})",
        )
