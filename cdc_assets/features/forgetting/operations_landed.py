"""Messages of topics whose rows are to be forgotten: found in the landing by decoding it, and emptied there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.keyed_rows import keys_like, of_keys
from cdc_assets.decoding.split import read_splits
from cdc_assets.errors import ForgetRefused, TableMoved
from cdc_assets.features.forgetting.landing import forget_messages, is_filled, may_have
from cdc_assets.features.forgetting.operations_key_bytes import KeyBytes
from cdc_assets.formats import raw_records, record_places
from cdc_assets.formats.changes import position_column
from cdc_assets.formats.decoded import LINE
from cdc_assets.io.retries import retrying
from cdc_assets.landing.landing import Landing
from cdc_assets.model.forgetting import SearchedFiles
from cdc_assets.model.offsets import Partition
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.steps import ApplyRows, RowReading
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import first_of
from cdc_assets.operations.keys import keyed_alike, record_has_key
from cdc_assets.operations.landings import taken_through
from cdc_assets.pipeline.pipeline import looking_again
from cdc_assets.pipeline.replay import ReplayRequest, plan_replay
from cdc_assets.sources import Source

if TYPE_CHECKING:
    from cdc_assets.model.landed import Landed
    from cdc_assets.model.table_history import TableHistory
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan

__all__ = ["LandedRows", "SoughtKeys", "find_landed", "forget_landed", "refuse_unread", "search_landed"]

_ATTEMPTS = 4


class LandedSource(Source, Protocol):
    """A feed of what is landed."""

    def all_landed(self) -> Listing:
        """Return all that is landed, with what stands above the fence."""

    def named(self, landed: Landed) -> Landed:
        """Return the landing under the tables' own names."""


@dataclass(slots=True)
class LandedRows:
    """Landed messages that contain rows of the keys. `lost` says through which position tables have other rows there,
    too.

    `unapplied` are messages with rows that a window is still to bring in, `shared` such where these are of other
    tables, with them, and `unsearched` such of which nobody can tell whether they have rows of the keys.
    """

    tables: set[TableId] = field(default_factory=set)
    places: set[tuple[Partition, int]] = field(default_factory=set)
    lost: dict[TableId, Tso] = field(default_factory=dict)
    unapplied: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    unsearched: set[str] = field(default_factory=set)

    def refuse_unapplied(self) -> None:
        """Raise ForgetRefused where rows would be gone that a window is still to bring in."""
        if self.unapplied:
            raise ForgetRefused(
                f"nothing was forgotten: {first_of(sorted(self.unapplied), 'message')} of the landing has rows of the "
                "keys that are not applied yet, and that may be wanted. Apply the changefeed first, or keep the keys "
                "out of them, too (--until)."
            )
        if self.shared:
            raise ForgetRefused(
                f"nothing was forgotten: {first_of(sorted(self.shared), 'message')} of the landing has rows of another "
                "table beside those of the keys, which would go with them and are not applied yet. Apply the "
                "changefeed first; a table that is held has to be released before."
            )


@dataclass(frozen=True, slots=True)
class SoughtKeys:
    """The keys of each table of the source, in columns with the names that stay.

    `values` looks for them in bytes that cannot be read. Rows at positions through `until` are never brought in, and
    rows through `applied` are, by table. `places` name records and messages that cannot be decoded, and that a person
    lets go with the keys.
    """

    sources: Mapping[Life, pa.Table]
    values: KeyBytes
    applied: Mapping[Life, Tso]
    until: Tso = -1
    places: frozenset[str] = frozenset()


def find_landed(pipeline: Pipeline, sought: SoughtKeys) -> LandedRows:
    """Decode what is landed of these tables of the source, and find the messages with rows of their keys.

    That is all that is landed, with what is held, and what stands above the fence. Raises ForgetRefused for what cannot
    be decoded.
    """
    landed = LandedRows()
    if pipeline.landing is None:
        return landed
    planned = pipeline.planner.plan(whole=True)[1]
    source = cast("LandedSource", pipeline.source)
    listing = source.all_landed()
    bases = {life: state.base for life, state in planned.applied.items()}
    nothing = plan_replay(pipeline, ReplayRequest(listing, bases, keep_out=False))
    lives = nothing.sources
    named = {life: lives[life].names for life in sought.sources if life in lives}
    landed.tables |= {name for names in named.values() for name, _, _ in names}
    _refuse_columnless(source.named(pipeline.landing.landed()), listing, landed.tables)
    reading = [step for step in nothing.steps if isinstance(step, ApplyRows) and step.life.source in named]
    read = {file.path for step in reading for file in step.files}
    reading += _passed_over(nothing, [file for file in listing.data_files if file.path not in read], named)
    seen = set[tuple[Life, str]]()
    for step in reading:
        for place, file in enumerate(step.files):
            if file.messages is not None and (step.life.source, file.path) not in seen:
                seen.add((step.life.source, file.path))
                _find(pipeline, step, place, lives[step.life.source], sought, landed)
    if landed.places:
        _note_others(pipeline.landing, source.named(pipeline.landing.landed()), planned, landed)
    return landed


def _note_others(landing: Landing, stored: Landed, planned: Plan, landed: LandedRows) -> None:
    """Note which of the messages have rows of other tables that are not applied to them."""
    for split in stored.splits:
        through = taken_through(split.table, planned, planned.applied)
        span = range(split.first, split.last + 1)
        offsets = [offset for partition, offset in landed.places if partition == split.partition and offset in span]
        if offsets and split.table not in landed.tables and split.high > through:
            rows = landing.store.fetch(split.file, split.group)
            later = pc.greater(rows.column("last_position"), through).fill_null(True)
            rows = rows.filter(pc.and_(is_filled(rows), later))
            named = zip(*(rows.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
            places = {(Partition(topic, number), offset) for topic, number, offset in named} & landed.places
            landed.shared |= {f"{partition} offset {offset} ({split.table})" for partition, offset in places}


Names = Sequence[tuple[TableId, Tso, Tso]]


def _passed_over(planned: Plan, files: Sequence[DataFile], named: Mapping[Life, Names]) -> Iterator[ApplyRows]:
    """Yield windows of files that no step takes: of what is held, and of rows that are in a dump."""
    for file in files:
        where = file.root, file.version
        versions = planned.history.decoding.get(where, ())
        for name, schema in versions:
            siblings = {where: tuple(pair for pair in versions if pair[0] != name)}
            for life, names in named.items():
                if any(other_name.folded == name.folded for other_name, _, _ in names):
                    reading = RowReading({where: (name, schema)}, tuple(names), siblings=siblings)
                    yield ApplyRows(life, 0, planned.checkpoint, (file,), reading, schema, 0)


def _refuse_columnless(landed: Landed, listing: Listing, tables: Collection[TableId]) -> None:
    """Raise ForgetRefused for rows of these tables of which nothing says which columns they have."""
    since: dict[tuple[Partition, int], Tso] = {}
    for file in listing.data_files:
        if file.messages is not None:
            place = file.messages.partition, file.messages.start
            since[place] = min(file.version, since.get(place, file.version))
    for split in landed.splits:
        if split.table in tables and split.low <= since.get((split.partition, split.first), split.high):
            raise ForgetRefused(
                f"nothing was forgotten: rows of {split.table} in {split.partition} from offset {split.first} on are "
                "landed, and nothing says which columns they have, so it is not known which of them are meant. Give "
                "its CREATE TABLE in the setting `schemas`."
            )


def _find(
    pipeline: Pipeline, step: ApplyRows, place: int, table: TableHistory, sought: SoughtKeys, landed: LandedRows
) -> None:
    """Decode a file of messages, and note those that have rows of the keys, or may have."""
    file, source = step.files[place], step.life.source
    keys, through = sought.sources[source], sought.applied.get(source, -1)
    assert file.messages is not None
    for split in read_splits(step, [place], pipeline.source.reader):
        if split.refused is not None:
            raise ForgetRefused(
                f"nothing was forgotten: {file.path} cannot be decoded ({split.refused.reason}), so it is not known "
                "which of its messages have the rows.",
                file=file.path,
            )
        schema = keyed_alike(split.schema, keys, table, file.version)
        if split.changes.num_rows and schema is None:
            raise ForgetRefused(
                f"nothing was forgotten: rows of {file.path} have the key ({', '.join(split.schema.key)}), so it is "
                "not known which of them are meant.",
                file=file.path,
            )
        split = split if schema is None else replace(split, schema=schema)
        changes, partition = split.changes, file.messages.partition
        matches = (
            of_keys(changes, keys_like(keys, changes, split.schema), split.schema) if changes.num_rows else changes
        )
        rejects = {reject.line: reject for reject in split.decoded.rejects}
        raw = raw_records(split.wire, split.data, rejects.keys())
        raw |= {line: reject.raw for line, reject in rejects.items() if reject.raw}
        verdicts = {
            line: record_has_key(rejects[line].keys, split.schema.in_lake, keys, sought.values.encryption_key)
            for line in raw
        }
        unknown = {line for line, data in raw.items() if verdicts[line] is None and sought.values.may_be_in(data)}
        if not (matches.num_rows or any(verdicts.values()) or unknown):
            continue
        positions, wanted_positions = _positions(changes), _positions(matches)
        messages = record_places(split.wire, split.data, {*(line for line, _ in positions), *rejects})
        rejected = {
            line: rejects[line]
            for line, is_known in verdicts.items()
            if is_known or (line in unknown and messages[line] in sought.places)
        }
        lines = {line for line, _ in wanted_positions}.union(rejected)
        landed.unsearched |= {messages[line] for line in unknown - lines}
        ahead = {line for line, position in wanted_positions if position > max(through, sought.until)}
        ahead |= {
            line
            for line, line_reject in rejected.items()
            if line_reject.commit_ts is None or line_reject.commit_ts > through
        }
        landed.unapplied |= {messages[line] for line in ahead}
        chosen = {messages[line] for line in lines}
        landed.places |= {(partition, int(text.rpartition(" ")[2])) for text in chosen}
        images, of_wanted = (Counter(line for line, _ in some) for some in (positions, wanted_positions))
        # A change of a key is a row of two keys, and other rows may stand in the message beside it.
        shared = {text for line, text in messages.items() if text in chosen and images[line] > of_wanted[line]}
        for line, position in positions:
            if messages[line] in shared:
                landed.lost[split.table] = max(position, landed.lost.get(split.table, 0))
                landed.unapplied |= {messages[line]} if position > through else set()


def _positions(changes: pa.Table) -> list[tuple[int, Tso]]:
    """Return each row's line and position."""
    if not changes.num_rows:
        return []
    columns = (changes.column(name).to_pylist() for name in (LINE, position_column(changes)))
    return list(zip(*columns, strict=True))


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
    forget_once = partial(forget_messages, landing, rows.places, rows.tables, rows.lost, has)

    def forget_anew() -> None:
        landing.landed()
        looking_again(forget_once)

    retrying(forget_anew, _ATTEMPTS, TableMoved)


def search_landed(pipeline: Pipeline, landing: Landing, sought: SoughtKeys) -> SearchedFiles:
    """Decode what is landed once more, look into all events, and tell which messages have the rows.

    Of files that no state refers to, which a landing that was killed left or one writes now, the bytes are searched.
    """
    rows, files, has = find_landed(pipeline, sought), landing.store.stored_files(), sought.values.may_be_in
    having = {f"{partition} offset {offset}" for partition, offset in rows.places}
    having |= {f"{place}, which cannot be read" for place in rows.unsearched}
    for event in landing.landed().events:
        if may_have(event, rows.tables, has):
            having.add(event.place)
    stored = landing.store.stored()
    for file in {file for file, _ in files if file.endswith(".parquet")}.difference(stored.rows, stored.events):
        parts = landing.store.read_rows(file, ("schema", "table", "key", "value")).to_pylist()
        own = (row for row in parts if row["table"] is None or TableId(row["schema"], row["table"]) in rows.tables)
        if any(part is not None and has(part) for row in own for part in (row["key"], row["value"])):
            having.add(f"{file}, which no landing refers to: `maintain` removes it (orphan_days)")
    return SearchedFiles("landing", len(files), sum(size for _, size in files), tuple(sorted(having)))
