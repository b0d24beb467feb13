"""Messages of topics whose rows are to be forgotten: found in the landing by decoding it, and emptied there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from cdc_assets.decoding.split import of_keys, read_splits
from cdc_assets.errors import ForgetRefused, TableMoved
from cdc_assets.formats import LINE, record_places
from cdc_assets.landing.forget import forget_messages, may_have
from cdc_assets.landing.landing import Landing
from cdc_assets.model.forgetting import SearchedFiles
from cdc_assets.model.offsets import Partition
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import first_of
from cdc_assets.operations.rebuild import planned_from_nothing

if TYPE_CHECKING:
    from cdc_assets.pipeline.pipeline import Pipeline

__all__ = ["LandedRows", "find_landed", "forget_landed", "refuse_unread", "search_landed"]

_ATTEMPTS = 4


@dataclass(slots=True)
class LandedRows:
    """Where rows of keys stand in the landing. `lost` says through which position tables have other rows there, too."""

    tables: set[TableId] = field(default_factory=set)
    places: set[tuple[Partition, int]] = field(default_factory=set)
    lost: dict[TableId, Tso] = field(default_factory=dict)


def find_landed(pipeline: Pipeline, sources: Mapping[Life, pa.Table]) -> LandedRows:
    """Decode what is landed of these tables of the source, and find the messages with rows of their keys.

    Raises ForgetRefused for what cannot be decoded.
    """
    found = LandedRows()
    if pipeline.landing is None:
        return found
    listing, planned = pipeline.plan(whole=True)
    bases = {life: state.base for life, state in planned.applied.items()}
    nothing = planned_from_nothing(pipeline, replace(listing, gone={}), bases, fuse=False, forgotten=False)
    read = set[str]()
    for step in nothing.steps:
        keys = sources.get(step.life.source)
        if keys is None or not isinstance(step, ApplyRows):
            continue
        found.tables |= {name for name, _, _ in step.names}
        for place, file in enumerate(step.files):
            if file.messages is not None and file.path not in read:
                read.add(file.path)
                _find(pipeline, step, place, keys, found)
    return found


def _find(pipeline: Pipeline, step: ApplyRows, place: int, keys: pa.Table, found: LandedRows) -> None:
    file = step.files[place]
    assert file.messages is not None
    for split in read_splits(step, [place], pipeline.source.reader):
        if split.refused is not None:
            raise ForgetRefused(
                f"nothing was forgotten: {file.path} cannot be decoded ({split.refused.reason}), so it is not known "
                "which of its messages have the rows.",
                file=file.path,
            )
        changes = split.changes
        if not changes.num_rows:
            continue
        if len(split.schema.key) != keys.num_columns:
            raise ForgetRefused(
                f"nothing was forgotten: rows of {file.path} have the key ({', '.join(split.schema.key)}), so it is "
                "not known which of them are meant.",
                file=file.path,
            )
        wanted = keys.rename_columns(list(split.schema.key))
        wanted = wanted.cast(pa.schema([changes.schema.field(name) for name in split.schema.key]))
        lines = set(of_keys(changes, wanted, split.schema).column(LINE).to_pylist())
        if not lines:
            continue
        messages = record_places(split.wire, split.data, set(changes.column(LINE).to_pylist()))
        mine = {messages[line] for line in lines}
        found.places |= {(file.messages.partition, int(text.rpartition(" ")[2])) for text in mine}
        if any(text in mine and line not in lines for line, text in messages.items()):
            high = file.bounds[1] if file.bounds is not None else step.hi
            found.lost[split.table] = max(high, found.lost.get(split.table, 0))


def refuse_unread(landing: Landing, rows: LandedRows, has: Callable[[bytes], bool]) -> None:
    """Raise ForgetRefused where a message that cannot be read, and that nobody has released, may have the rows."""
    places = [event.place for event in landing.landed().open_bad if may_have(event, rows.tables, has)]
    if places:
        raise ForgetRefused(
            f"nothing was forgotten: {first_of(places, 'message')} cannot be read and may have the rows, as the bytes "
            "have the values of a key. Go past it first (cdc-assets landing), and forget the rows then."
        )


def forget_landed(landing: Landing, rows: LandedRows, has: Callable[[bytes], bool]) -> None:
    """Empty the messages that have the rows; repeated, it does what is left. Raises TableMoved in a race."""
    for _ in range(_ATTEMPTS - 1):
        try:
            forget_messages(landing, rows.places, rows.tables, rows.lost, has)
            return
        except TableMoved:
            landing.landed()
    forget_messages(landing, rows.places, rows.tables, rows.lost, has)


def search_landed(
    pipeline: Pipeline, landing: Landing, sources: Mapping[Life, pa.Table], has: Callable[[bytes], bool]
) -> SearchedFiles:
    """Decode what is landed once more, look into all events, and tell which messages have the rows.

    Of files that no state refers to, which a landing that was killed left or one writes now, the bytes are searched.
    """
    rows, files = find_landed(pipeline, sources), landing.store.stored_files()
    having = {f"{partition} offset {offset}" for partition, offset in rows.places}
    for event in landing.landed().events:
        if may_have(event, rows.tables, has):
            having.add(event.place)
    stored = landing.store.stored()
    for file in {file for file, _ in files if file.endswith(".parquet")}.difference(stored.rows, stored.events):
        parts = landing.store.read_rows(file, ("schema", "table", "key", "value")).to_pylist()
        mine = (row for row in parts if row["table"] is None or TableId(row["schema"], row["table"]) in rows.tables)
        if any(part is not None and has(part) for row in mine for part in (row["key"], row["value"])):
            having.add(f"{file}, which no landing refers to: `maintain` removes it (orphan_days)")
    return SearchedFiles("landing", len(files), sum(size for _, size in files), tuple(sorted(having)))
