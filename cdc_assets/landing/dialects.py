"""Which kind of database the messages of a topic and of a table come from: of one kind, or they are mixed up.

Connectors of two databases that write to one topic say of their rows in the same words what is not the same: names,
types, places in a log. The first kind that a topic or a table had counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from cdc_assets.formats.messages import Kind, dialect_of
from cdc_assets.model.landed import Landed
from cdc_assets.model.schema import TableId

__all__ = ["Dialects"]

_MIXED = (
    "it is of a connector for {}, and what was landed of its {} before is of one for {}. Let each connector write to "
    "topics of its own, and to tables of its own, and then go past what it wrote here"
)
_OF = ("schema", "table", "source")


class Dialects:
    """The kinds of databases that are known, as of what was landed before."""

    def __init__(self, before: Landed) -> None:
        self._topics, self._tables = dict[str, str](), dict[TableId, str]()
        for event in before.events:
            self._note(event.partition.topic, event.table, dialect_of(event.source))
        for stream in before.streams:
            self._note(stream.partition.topic, stream.table, dialect_of(stream.source))

    def _note(self, topic: str, table: TableId | None, dialect: str) -> None:
        if dialect:
            self._topics.setdefault(topic, dialect)
            if table is not None and table.table:
                self._tables.setdefault(table.folded, dialect)

    def parted(self, batch: pa.RecordBatch, spoken: pa.RecordBatch) -> pa.RecordBatch:
        """Return what messages speak of, those of another kind than their topic or table as bad ones."""
        if spoken.column("source").null_count == spoken.num_rows:
            return spoken
        topics = batch.column("topic").take(spoken.column("message"))
        columns = [topics, *(spoken.column(name) for name in _OF)]
        groups = pa.table(columns, names=["topic", *_OF]).group_by(["topic", *_OF], use_threads=False).aggregate([])
        mixed = {tuple(one.values()): reason for one in groups.to_pylist() if (reason := self._reason(**one))}
        if not mixed:
            return spoken
        held = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.RecordBatch.from_pylist(list(_bad(spoken, [mixed.get(one, "") for one in held])), spoken.schema)

    def _reason(self, topic: str, schema: str | None, table: str | None, source: str | None) -> str:
        dialect, name = dialect_of(source or ""), TableId(schema or "", table or "")
        if not dialect:
            return ""
        self._note(topic, name, dialect)
        for what, known in (("topic", self._topics[topic]), ("table", self._tables.get(name.folded, dialect))):
            if known != dialect:
                return _MIXED.format(dialect, what, known)
        return ""


def _bad(spoken: pa.RecordBatch, reasons: list[str]) -> Iterator[dict[str, object]]:
    """Yield lines, those with a reason as messages that cannot be read and stand where they are."""
    for one, reason in zip(spoken.to_pylist(), reasons, strict=True):
        kind = {"kind": Kind.BAD.value, "reason": reason, "source": None, "source_position": None, "query": None}
        yield {**one, **kind} if reason else one
