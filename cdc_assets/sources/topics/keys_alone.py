"""Rows that have their key alone, of topics that may never have more.

The same bytes stand for a row of which only the key was written, and for any row of a changefeed that sends nothing but
keys. One row with columns settles it for its topic, whenever it comes: what was landed before it is read then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cdc_assets.formats.message_codecs import KeysAlone
from cdc_assets.model.by_name import ByName
from cdc_assets.model.landed import EventKind, Landed, LandedEvent
from cdc_assets.model.splits import SchemaFile
from cdc_assets.sources.topics.paths import LandedPath, format_root
from cdc_assets.sources.topics.schemas import OlderTables

__all__ = ["keys_alone"]


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
            mode = older.modes.get(topic.strip("/"), "")
            if mode not in rule.whole and has_columns.get(event.table, True):
                yield _path(event), f"{event.place}: {rule.refused if mode else rule.reason}."


def _path(event: LandedEvent) -> str:
    assert event.table is not None
    path = LandedPath(format_root(event.table), event.position, "bad", *event.partition, event.offset, event.offset)
    return str(path)
