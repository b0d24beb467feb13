"""Changefeeds that are topics of one table each, as YDB's: what rows say only beside others of their topic.

keys_alone   the same bytes stand for a row of which only the key was written, and for any row of a changefeed that
             sends nothing but keys. One row with columns settles it for its topic, whenever it comes
rivals       two changefeeds of a table send each change twice, and nothing says which comes later
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cdc_assets.formats.messages import KeysAlone
from cdc_assets.model.by_name import ByName
from cdc_assets.model.landed import EventKind, Landed, LandedEvent
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics.paths import LandedPath, format_root
from cdc_assets.sources.topics.schemas import OlderTables


def keys_alone(
    landed: Landed, files: Iterable[SchemaFile], older: OlderTables, rule: KeysAlone
) -> Iterator[tuple[str, str]]:
    """Yield for each partition what holds its table from its first such row on. A key may be all that a table has."""
    has_columns: ByName[bool] = ByName()
    for file in files:
        if file.whole is not None:
            more = len(file.whole.stored) > len(file.whole.key)
            has_columns[file.table] = more or has_columns.get(file.table, False)
    settled = {event.partition.topic for event in landed.events if event.kind is EventKind.COLUMNS}
    for event in landed.events:
        topic = event.partition.topic
        if event.kind is EventKind.KEY_ALONE and topic not in settled and event.table is not None:
            mode = older.changefeeds.get(topic.strip("/"), {}).get("MODE", "")
            if mode not in rule.whole and has_columns.get(event.table, True):
                yield _path(event), f"{event.place}: {rule.refused if mode else rule.reason}."


def rivals(landed: Landed) -> Iterator[tuple[str, str]]:
    """Yield for each table with rows in several topics what holds it from the first row of the second one on."""
    firsts: dict[TableId, dict[str, tuple[Tso, Partition, int]]] = {}
    for (partition, name), (position, offset) in landed.first_rows.items():
        _note(firsts, name, (position, partition, offset))
    for event in landed.events:
        if event.kind in (EventKind.COLUMNS, EventKind.KEY_ALONE) and event.table is not None:
            _note(firsts, event.table, (event.position, event.partition, event.offset))
    for table, topics in firsts.items():
        if len(topics) > 1:
            (_, first, _), (position, second, offset) = sorted(topics.values())[:2]
            path = LandedPath(format_root(table), position, "bad", *second, offset, offset)
            yield (
                str(path),
                f"{table} has rows in the topics {first.topic} and {second.topic}: two changefeeds of a table send "
                "each change twice, and which of the two comes later is not known. Let a feed with another name read "
                "one of them, with INITIAL_SCAN where rows are older than it.",
            )


def _note(
    firsts: dict[TableId, dict[str, tuple[Tso, Partition, int]]], table: TableId, row: tuple[Tso, Partition, int]
) -> None:
    topics = firsts.setdefault(table, {})
    topics[row[1].topic] = min(row, topics.get(row[1].topic, row))


def _path(event: LandedEvent) -> str:
    assert event.table is not None
    path = LandedPath(format_root(event.table), event.position, "bad", *event.partition, event.offset, event.offset)
    return str(path)
