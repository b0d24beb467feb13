"""Messages of a landing emptied, whose rows are to be forgotten: what says where they stood stays, what they said goes.

A landed message keeps its offset, its position and the number of its row events, so that splits remain what was written
down of them, and records the lines that they are quarantined by; it has neither key nor value any more. Files are
written anew in one commit, events with them; what only earlier states of the landing have is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.landing.files import LANDED, REPEAT, NewFiles, RowGroup, digest_of, event_rows, size_of, splits_of
from cdc_assets.landing.landing import Landing
from cdc_assets.model.landed import EventKind, LandedEvent, LandedSplit
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

Place = tuple[Partition, int]


def forget_messages(
    landing: Landing,
    places: Collection[Place],
    tables: Collection[TableId],
    lost: Mapping[TableId, Tso],
    has: Callable[[bytes], bool],
) -> int:
    """Empty messages wherever they stand, and return how many row groups were written anew.

    Messages of `tables` that had come before, and are not read any more, go as a whole. `lost` says through which
    position tables lose other rows than those to be forgotten: a rebuild is refused there, as where rows expired. Of
    messages that cannot be read those are emptied that `may_have` them. Raises TableMoved where messages are landed
    meanwhile.
    """
    landed, store = landing.landed(), landing.store
    stored, chosen = store.stored(), set[str]()
    for split in landed.splits:
        if any(partition == split.partition and split.first <= offset <= split.last for partition, offset in places):
            chosen.add(split.file)
    chosen |= {file for file in stored.rows if _repeats(store.read_rows(file, _NAMED), tables)}
    splits = sorted(
        (split for split in landed.splits if split.file in chosen),
        key=lambda chosen_split: (chosen_split.table, chosen_split.partition, chosen_split.first),
    )
    before = [store.fetch(split.file, split.group) for split in splits]
    groups = [_emptied(rows, places) for rows in before]
    lost = {**lost, **_of_others(splits, before, groups, tables)}
    events = tuple(_without(event) if may_have(event, tables, has) else event for event in landed.events)
    if not chosen and events == landed.events:
        store.drop_past()
        return 0
    expired = {table: max(high, landed.expired.get(table, 0)) for table, high in lost.items()}
    state = replace(landed, expired={**landed.expired, **expired})
    written = store.write_rows(groups) if groups else None
    moved = [] if written is None else splits_of(groups, written[0])
    stays = [split for split in landed.splits if split.file not in chosen]
    rows = event_rows(events, state, [*stays, *moved])
    added = NewFiles(() if written is None else (written,), (store.write_events(rows),))
    store.replace(added, [*stored.events, *chosen], digest_of(landed.next) if landed.next else "")
    store.drop_past()
    return len(groups)


def _of_others(
    splits: Sequence[LandedSplit],
    before: Sequence[pa.Table],
    groups: Sequence[RowGroup],
    tables: Collection[TableId],
) -> dict[TableId, Tso]:
    """Return the other tables whose rows were in messages that were emptied, and through which position."""
    positions: dict[TableId, Tso] = {}
    for split, rows, group in zip(splits, before, groups, strict=True):
        emptied = rows.filter(pc.and_not(is_filled(rows), is_filled(group.rows)))
        if split.table not in tables and emptied.num_rows:
            through = pc.max(emptied.column("last_position")).as_py()
            positions[split.table] = max(split.high if through is None else through, positions.get(split.table, 0))
    return positions


def is_filled(rows: pa.Table) -> pa.ChunkedArray:
    """Return the messages that are not empty."""
    return pc.or_(rows.column("key").is_valid(), rows.column("value").is_valid())


_NAMED = ("kind", "schema", "table")


def _repeats(rows: pa.Table, tables: Collection[TableId]) -> bool:
    """Return whether rows of these tables are among those that had come before."""
    repeats = rows.filter(pc.equal(rows.column("kind"), REPEAT)).group_by(["schema", "table"]).aggregate([])
    return any(TableId(row["schema"], row["table"]) in tables for row in repeats.to_pylist())


def _emptied(rows: pa.Table, places: Collection[Place]) -> RowGroup:
    """Return a row group with nothing in its messages of these places."""
    named = zip(*(rows.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    gone = pa.array([(Partition(topic, number), offset) in places for topic, number, offset in named], pa.bool_())
    for name in ("key", "value", "headers"):
        field = LANDED.field(name)
        values = pc.if_else(gone, pa.scalar(None, field.type), rows.column(name).cast(field.type))
        rows = rows.set_column(rows.column_names.index(name), field, values)
    return RowGroup(rows, int(size_of(rows).sum()))


def may_have(event: LandedEvent, tables: Collection[TableId], has: Callable[[bytes], bool]) -> bool:
    """Return whether an event is a message that cannot be read, of one of these tables or of none, with such bytes.

    Other events have no rows: what they say of tables is read again with each look.
    """
    if event.kind is not EventKind.BAD or not (event.table is None or event.table in tables):
        return False
    return any(part is not None and has(part) for part in (event.key, event.value))


def _without(event: LandedEvent) -> LandedEvent:
    return replace(event, key=None, value=None, reason="its bytes were forgotten")
