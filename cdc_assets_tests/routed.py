"""Recorded topics of one row a message, sent to a topic for each table, as TiCDC routes them.

Rows go to the topic of their table, DDL to that of the name before it, and marks to every partition of the topics that
tables live in and of the default one: a topic that its table has left gets no more, until a row shows that the table is
there again, as where no message tells of its recovery.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cdc_assets import ddl
from cdc_assets.formats.messages import Kind
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.topics.fence import names_at
from cdc_assets.sources.topics.routing import Routing
from cdc_assets.sources.topics.schemas import DdlEvent, OlderTables, schema_files
from cdc_assets.sources.topics.topic_options import TopicOptions
from cdc_assets_tests.topic_feed import settings_of
from cdc_assets_tests.topics import Topic

__all__ = ["ROUTES", "routed"]

ROUTES = '[sink]\ndispatchers = [{matcher = ["*.*"], topic = "{schema}_{table}", partition = "table"}]\n'

END: Tso = 2**62


def routed(topic: Topic, directory: Path) -> tuple[list[dict[str, Any]], ChangefeedSettings]:
    """Return the lines in their new topics, with offsets of their own, and the settings that say so."""
    toml = directory / "changefeed.toml"
    toml.write_text(ROUTES)
    settings = settings_of(topic, changefeed_config=toml)
    options = settings.source_options
    assert isinstance(options, TopicOptions)
    offsets: dict[tuple[str, int], int] = {}
    lines = []
    for name, partition, line in _sent(topic, Routing(options)):
        offset = offsets.get((name, partition), 0)
        offsets[name, partition] = offset + 1
        lines.append({**line, "topic": name, "partition": partition, "offset": offset})
    return lines, settings


def _sent(topic: Topic, routing: Routing) -> Iterator[tuple[str, int, dict[str, Any]]]:
    files: list[SchemaFile] = []
    marks: dict[Tso, int] = {}
    older, ended, recovered = _older(topic), frozenset[TableId](), set[TableId]()
    for message in topic.spoken.to_pylist():
        line = topic.lines[message["message"]]
        table = TableId(message["schema"], message["table"] or "") if message["schema"] else None
        kind = message["kind"]
        if kind == Kind.RESOLVED.value:
            if marks.setdefault(message["commit_ts"], line["partition"]) == line["partition"]:
                names = names_at(files, END)
                tables = {*names.living, *older} - {*names.ended} | recovered
                living = {routing.options.topic, *map(routing.topic_of, tables)}
                for name in sorted(living):
                    yield from ((name, partition, line) for partition in range(topic.recorded["partitions"]))
        elif kind == Kind.DDL.value:
            event = DdlEvent(message["commit_ts"], table, message["query"], message["type"] or 0)
            (file,) = schema_files([event], [], OlderTables(), 0)
            files += [file] if file not in files else []
            ended = frozenset(names_at(files, END).ended)
            recovered.discard(_before(file))
            yield routing.topic_of(_before(file)), line["partition"], line
        else:
            recovered |= {table} & ended if table is not None else set()
            yield routing.options.topic if table is None else routing.topic_of(table), line["partition"], line


def _older(topic: Topic) -> set[TableId]:
    """Return the tables that have rows before any DDL speaks of them."""
    older, spoken = set[TableId](), set[TableId]()
    for message in topic.spoken.to_pylist():
        table = TableId(message["schema"], message["table"] or "") if message["schema"] else None
        if message["kind"] == Kind.DDL.value and table is not None:
            spoken.add(table)
        elif message["kind"] == Kind.ROW.value and table is not None and table not in spoken:
            older.add(table)
    return older


def _before(file: SchemaFile) -> TableId:
    """Return the name before a DDL, by which it is routed."""
    statement = ddl.statement(file)
    if isinstance(statement, ddl.Rename):
        return TableId(statement.old.schema or file.table.schema, statement.old.table)
    return file.table
