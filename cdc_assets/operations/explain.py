"""Explain a row: the changes of its key in the input, the DDL in between, and which of its records were quarantined.

Where the table has a log that covers the time asked for, its changes are those. Else the input is decoded again, and of
the files that may have a change of the time asked for the key's changes are kept. The ledger knows the run and the
snapshot that each file came with. Nothing is written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl
import pyarrow as pa

from cdc_assets.decoding import FILE, PLACE
from cdc_assets.decoding.keyed_rows import keys_like, of_keys, rows_of_keys
from cdc_assets.decoding.own_columns import ABSENT, CHANGE_TYPE
from cdc_assets.decoding.split import with_key
from cdc_assets.decoding.upgrade import evolve_rows
from cdc_assets.decoding.window import Window
from cdc_assets.errors import BadSettings
from cdc_assets.features.dumps.formats import lines_before
from cdc_assets.features.forgetting.planning import UnknownKeys, by_name, digests_of, forgotten_of
from cdc_assets.features.verification.operations_repair import REPAIR
from cdc_assets.features.verification.operations_rows import python_rows, value_text
from cdc_assets.formats import record_places
from cdc_assets.formats.changes import position_column
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, POSITION, UNCHANGED, Op
from cdc_assets.io.encryption import decrypt
from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.model.explanation import RowChange, RowExplanation, SetAside, TableChange
from cdc_assets.model.forgetting import ForgottenKeys, kept_out
from cdc_assets.model.ledger_entries import FileEntry
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import DeleteRows, Predicate, RenameColumn, RetypeColumn
from cdc_assets.model.steps import ApplyRows, HoldTable
from cdc_assets.model.table_history import Exchanged
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.model.wording import counted
from cdc_assets.operations.extract import changes_of_log
from cdc_assets.operations.keys import keyed_alike, keys_of, masked_keys, record_has_key
from cdc_assets.operations.named import mirrors, table_called
from cdc_assets.operations.table_rows import LEAVES, ScannedLake
from cdc_assets.pipeline.pipeline import looking_again
from cdc_assets.pipeline.replay import Reading, Replay, ReplayRequest, plan_replay
from cdc_assets.planning.recipe import masked_otherwise, masked_since
from cdc_assets.types.conversions import needs_conversion
from cdc_assets.types.key_digests import excluded_rows
from cdc_assets.types.mysql_types import arrow_type, iceberg_type, widens

if TYPE_CHECKING:
    from cdc_assets.formats import SplitReader
    from cdc_assets.model.quarantine import QuarantinedRow
    from cdc_assets.model.splits import DataFile, Listing
    from cdc_assets.model.table_history import Event, TableHistory
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan

_FOREVER = 1 << 63
_FILES = (".csv", ".json")
"""The ends of names of files, of whose records logs have the lines."""


def explain(
    pipeline: Pipeline, lake: ExplainedLake, table: str, key: Sequence[str], since: Tso = 0, until: Tso = _FOREVER
) -> RowExplanation:
    """Return the history of the row of a table with that key; changes at positions in (since, until] only.

    `key` are texts as MySQL prints them, in the order of the key; of binary columns hexadecimal digits as x'…'. Raises
    BadSettings for a table that is not known or has no key, and a key that does not fit it.
    """
    return looking_again(lambda: _explained(pipeline, lake, table, key, since, until))


def _explained(
    pipeline: Pipeline, lake: ExplainedLake, table: str, key: Sequence[str], since: Tso, until: Tso
) -> RowExplanation:
    listing, present = pipeline.planner.plan(whole=True)
    history = table_called(table, mirrors(present), present)
    life = history.life
    plain = keys_of(history.schema, [key], table)
    lake_key = masked_keys(plain, history.schema)
    schema = history.schema.in_lake
    applied = present.applied.get(life)
    through = applied.progress.tso if applied is not None else 0
    last = min(until, through)
    entries = pipeline.ledger.files(pipeline.settings.name)
    read_before = {entry.path: entry for entry in entries if entry.life == str(life.source)}
    logged, gone = _of_log(pipeline, present, history, lake_key, since, last), list[str]()
    events: Sequence[Event] = ()
    if logged is not None:
        images, forgotten_through = logged
    else:
        forgotten_through = -1
        images, gone = _of_input(pipeline, listing, present, history, lake_key, read_before, since, last)
        events = [event for event in history.events if since < event.at <= last]  # a log has what they did to rows
    forgotten = _is_kept_out(pipeline, history, lake_key)
    gone += [forgotten] if forgotten else []
    aside, unknown = _set_aside(lake, history, lake_key, plain, pipeline.planner.encryption_key)
    if unknown:
        gone.append(
            f"{counted(unknown, 'record')} of the table in quarantine cannot be looked through for the key: without "
            "the privacy_key by which they were encrypted nothing of them is known but their place"
        )
    row, is_masked_otherwise = None, False
    if applied is not None:
        is_masked_otherwise = masked_since(history, applied.ddl, applied.recipe) is None
        if is_masked_otherwise:
            gone.append("the row in the lake, as columns of it are masked otherwise now: rebuild the table")
        else:
            row = _present_row(lake, life, schema, lake_key)
            earlier = masked_otherwise(history, applied.ddl, applied.recipe)
            if row is not None and earlier:  # whenever it last changed: a patch leaves columns as they were
                row |= dict.fromkeys(sorted(earlier & row.keys()), "***")
                gone.append(
                    "what the lake has where *** stands, as earlier rows are masked otherwise: rebuild the table"
                )
    if row is not None and not images and forgotten_through >= 0:
        gone.append(
            f"the changes of the row through {forgotten_through}: it is in the table again, and the log has none of "
            "keys that were forgotten"
        )
    hidden, snapshots = forgotten and row is None, lake.labelled_snapshots(life) if applied is not None else ()
    shown = {name: "***" if hidden else value_text(value) for name, value in next(python_rows(lake_key)).items()}
    return RowExplanation(
        table=history.last_name or life.born_as,
        key=shown,
        row=None if row is None else {name: value_text(value) for name, value in row.items() if name != COMMIT_TS},
        row_is_hidden=is_masked_otherwise,
        position=None if row is None else row[COMMIT_TS],
        changes=tuple(_changes(images, events, read_before, snapshots, {record.place for record in aside})),
        events=tuple(_events(pipeline, life, history.events, since, last, until)),
        set_aside=aside,
        gone=tuple(dict.fromkeys(gone)),
    )


def _is_kept_out(pipeline: Pipeline, history: TableHistory, lake_key: pa.Table) -> str:
    """Return the sentence on a key that is forgotten and kept out, or of which that is not known; "" for any other."""
    schema, decisions = history.schema.in_lake, list[ForgottenKeys]()
    versions = [(("", history.events[-1].at), history.schema)]
    for parts in by_name(forgotten_of(kept_out(pipeline.planner.decided), history)).values():
        try:
            digests = digests_of(parts, pipeline.planner.encryption_key, history, versions)
        except UnknownKeys as problem:
            return f"whether the key is one of those that are kept out: {problem}"
        decisions += [parts[0] for digest in digests if excluded_rows(lake_key, schema, digest, 0)[0].as_py()]
    if not decisions:
        return ""
    names = ", ".join(f"{decision.until_text} by {decision.name}" for decision in decisions)
    return f"changes of the key that are left out, as it is forgotten ({names})"


class ExplainedLake(ScannedLake, Protocol):
    """A lake with rows, snapshots and quarantined records."""

    def labelled_snapshots(self, life: Life) -> Sequence[tuple[Tso, int]]:
        """Return the position and id of each snapshot that a table still has and that a step made, oldest first."""

    def quarantined(self, raw: bool = False, closed: bool = False) -> Sequence[QuarantinedRow]:
        """Return the open records, or all of them, with their bytes if requested."""


@dataclass(frozen=True, slots=True)
class _Image:
    """An image of the row: its values by column, but for those that it leaves as they were (`absent`), and its `key`.

    `columns` are those that the table had then. It `enters` or leaves; of one that is `fresh` the input does not say
    whether there was a row before. It is of the input at `path`.
    """

    position: Tso
    enters: bool
    fresh: bool
    row: Mapping[str, Any]
    columns: Collection[str]
    absent: Collection[str]
    path: str
    place: Callable[[], str]
    key: pa.Table

    def values(self, before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return its values; of a patch those that it leaves as they were are of the row before."""
        return {name: (before or {}).get(name) if name in self.absent else value for name, value in self.row.items()}


_Found = tuple[tuple[Tso, bool, str, int], _Image]
"""An image behind what orders it."""


def _of_input(
    pipeline: Pipeline,
    listing: Listing,
    present: Plan,
    history: TableHistory,
    lake_key: pa.Table,
    read_before: Mapping[str, FileEntry],
    since: Tso,
    last: Tso,
) -> tuple[list[_Image], list[str]]:
    """Return the images of the key in the input that is there, in their order, and sentences on what is not."""
    life = history.life
    bases = {base_life: state.base for base_life, state in present.applied.items()}
    replay, steps = Replay(pipeline), plan_replay(pipeline, ReplayRequest(listing, bases)).of(life)
    windows = [step for step in steps if isinstance(step, ApplyRows)]
    expired = max((listing.gone.get(name, 0) for name, _, _ in history.names), default=0)
    # What is landed is cut into other pieces from one time to another, and tells itself what has expired.
    stats_by_path = {} if pipeline.settings.source_options.is_landed else read_before
    gone = list(_gone(life, windows, expired, stats_by_path))
    gone += [f"from {step.at} on nothing is read: {step.reason}" for step in steps if isinstance(step, HoldTable)]
    key_images = list[_Found]()
    conversion: _KeyConversion | None = None
    for earlier in (*_conversions(history), None):
        # Which row became this one shows at the DDL, also where only changes before that are asked for.
        through = last if conversion is None else max(last, conversion.at)
        readings = list[Reading[pa.Table]]()
        for step in windows:
            if step.ddl < (0 if earlier is None else earlier.at) or (conversion and step.ddl >= conversion.at):
                continue
            key = _key_then(history, step, lake_key)
            if key is None:
                of_then = ", ".join(step.schema.key)
                gone.append(f"before {step.hi} the key was ({of_then}): changes of then are not looked for")
            elif step.lo <= through:
                pick = partial(_of_key, step, key, conversion)
                shares = replay.shares(step, since, through, None if conversion else key)
                readings += [Reading(step, files, pick) for files in shares]
        era = list[_Found]()
        for reading, rows, problem in replay.decoded(readings):
            if rows is None:
                gone.append(problem)
            else:
                images = _images(
                    reading.step, rows, _names_then(history, reading.step, lake_key), pipeline.source.reader
                )
                era += [ordered_image for ordered_image in images if since < ordered_image[1].position <= through]
        era.sort(key=lambda ordered_image: ordered_image[0])
        if conversion is not None:
            era = conversion.row_of(era)
            if not era:
                break
        key_images = era + key_images
        if earlier is not None:
            names = [_name_then(history, name, earlier.at) for name in lake_key.column_names]
            key = lake_key if conversion is None else era[-1][1].key
            conversion = _KeyConversion(earlier, key.rename_columns(names))
    return [image for _, image in key_images if image.position <= last], gone


def _of_log(
    pipeline: Pipeline, present: Plan, history: TableHistory, lake_key: pa.Table, since: Tso, last: Tso
) -> tuple[list[_Image], Tso] | None:
    """Return the images of the key in the table's log, in their order; None where it does not have all of them.

    With them, through which position it has none of forgotten keys, -1 where it has all.
    """
    schema, numbers = history.schema.in_lake, _numbers(lake_key)

    def mine(rows: pa.Table) -> pa.Table:
        return rows.take(rows_of_keys(_typed(rows, lake_key), lake_key, schema))

    covered = changes_of_log(pipeline, present, history, since, last, mine, numbers)
    if covered is None:
        return None
    names = [column.name for column in covered.schema.stored]
    images = []
    for row in (row for rows in covered.pieces() for row in python_rows(rows)):
        at, place = row[POSITION], row[PLACE] or ""
        column_names = {column.name for column in history.schema_at(at).in_lake.stored}
        values = {name: row[name] for name in names}
        columns_then = [name for name in names if _name_then(history, name, at) in column_names]
        enters = row[CHANGE_TYPE] not in LEAVES
        fresh, path = row[CHANGE_TYPE] == "UPDATE_AFTER", place.rpartition(":")[0]
        shown = f"{path} line {place.rpartition(':')[2]}" if path.endswith(_FILES) else place
        images.append(
            _Image(at, enters, fresh, values, columns_then, row[ABSENT] or (), path, partial(str, shown), lake_key)
        )
    return images, covered.forgotten_through


def _name_then(history: TableHistory, name: str, at: Tso) -> str:
    """Return the name at a position of a column by its present name, if it was there."""
    for event in reversed(history.events):
        if event.at > at:
            renames = {change.new: change.old for change in event.changes if isinstance(change, RenameColumn)}
            name = renames.get(name, name)
    return name


def _conversions(history: TableHistory) -> Iterator[Event]:
    """Yield the DDL that may have made other values of keys, the newest first."""
    for event in reversed(history.events):
        retyped = [
            change
            for change in event.changes
            if isinstance(change, RetypeColumn) and change.new.name in event.after.key
        ]
        if any(change.new.mask is None and not _keeps_values(change.old, change.new) for change in retyped):
            yield event


def _keeps_values(old: Column, new: Column) -> bool:
    return widens(old, new) and not needs_conversion(old, new)


@dataclass(frozen=True, slots=True)
class _KeyConversion:
    """A DDL that made other values of keys: rows from before it are known by the `key` that they became."""

    event: Event
    key: pa.Table

    @property
    def at(self) -> Tso:
        """The position of the DDL."""
        return self.event.at

    def rows_of(self, changes: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return the changes of keys, in columns of these names, that the DDL makes to this one."""
        after, old = self.event.after.in_lake, {name: name for name in self.key.column_names}
        key_changes = tuple(
            change
            for change in self.event.changes
            if isinstance(change, (RenameColumn, RetypeColumn)) and _new_name(change) in self.key.column_names
        )
        old |= {change.new: change.old for change in key_changes if isinstance(change, RenameColumn)}
        rows = changes.select(names).rename_columns([old[name] for name in self.key.column_names])
        # A row that was gone by then may have a value that the DDL would have refused.
        nobody = pa.repeat(pa.scalar(False), rows.num_rows)
        shape = replace(
            after, columns=tuple(column for column in after.columns if column.name in self.key.column_names)
        )
        became = evolve_rows(rows, key_changes, shape, nobody)
        key_then = self.key.select(became.column_names).cast(became.schema)
        return changes.take(rows_of_keys(became, key_then, after))

    def row_of(self, images: Sequence[_Found]) -> list[_Found]:
        """Return the images of the row that became this one: that stood then, or else had this very key."""
        (exact,) = self._compared(self.key)
        keys = self._compared(*(image.key for _, image in images))
        stands = {key: image.enters for key, (_, image) in zip(keys, images, strict=True)}
        chosen = {key for key, enters in stands.items() if enters} or {exact}
        return [ordered_image for key, ordered_image in zip(keys, images, strict=True) if key in chosen]

    def _compared(self, *keys: pa.Table) -> list[tuple[Any, ...]]:
        """Return keys in the form in which they compared before the DDL."""
        if not keys:
            return []
        retyped = [change for change in self.event.changes if isinstance(change, RetypeColumn)]
        old = {
            change.new.name: replace(old_column, name=change.new.name)
            for change in retyped
            if (old_column := change.old.in_lake)
        }
        after = self.event.after.in_lake
        before = replace(after, columns=tuple(old.get(column.name, column) for column in after.columns))
        named = [key.rename_columns(self.key.column_names) for key in keys]
        frame, by = with_key(pa.concat_tables(named, promote_options="permissive"), before, ())
        return frame.select(by).rows()


def _new_name(change: RenameColumn | RetypeColumn) -> str:
    return change.new.name if isinstance(change, RetypeColumn) else change.new


def _names_then(history: TableHistory, step: ApplyRows, lake_key: pa.Table) -> list[str]:
    """Return the names of the key's columns in a window."""
    return [_name_then(history, name, step.ddl) for name in lake_key.column_names]


def _key_then(history: TableHistory, step: ApplyRows, lake_key: pa.Table) -> pa.Table | None:
    """Return the key by the columns of a window, None where rows were of another key then."""
    names = _names_then(history, step, lake_key)
    return lake_key.rename_columns(names) if set(names) == set(step.schema.key) else None


def _of_key(step: ApplyRows, key: pa.Table, conversion: _KeyConversion | None, window: Window) -> pa.Table:
    """Return the changes of a key, or with a conversion those of all keys that it made to the one that it has."""
    changes = window.changes
    if conversion is not None:
        return conversion.rows_of(changes, key.column_names)
    return of_keys(changes, keys_like(key.select(step.schema.key), changes, step.schema), step.schema)


# --- changes ----------------------------------------------------------------------------------------------------------


def _images(step: ApplyRows, rows: pa.Table, key: Sequence[str], reader: SplitReader) -> Iterator[_Found]:
    """Yield the images that changes of a window are, whose key has these columns, each behind what orders it."""
    column, names, keys = position_column(rows), [column.name for column in step.schema.stored], rows.select(key)
    for number, row in enumerate(python_rows(rows)):
        file = step.files[row[FILE]]
        image = _Image(
            row[column],
            row[OP] > 0,
            row[OP] == Op.UPDATE,
            {name: row.get(name) for name in names},
            names,
            row.get(UNCHANGED) or (),
            file.path,
            partial(_place, file, row[LINE], reader),
            keys.slice(number, 1),
        )
        yield (row[column], row[OP] > 0, file.path, row[LINE]), image


def _changes(
    key_images: Sequence[_Image],
    events: Sequence[Event],
    read_before: Mapping[str, FileEntry],
    snapshots: Sequence[tuple[Tso, int]],
    aside: Collection[str],
) -> Iterator[RowChange]:
    """Yield the changes: images of one position together, each with what it changed. What came twice is one change.

    Between them the row is what `events` make of it, one of which may remove it. `snapshots` are those of the table by
    position: the first at or beyond a change brought it, and its window began where the one before stood, but for
    records that were set `aside`, by place. The run is that by which the file was read last, if it made this snapshot.
    """
    row: dict[str, Any] | None = None
    remaining_events = list(events)
    for position in [*dict.fromkeys(image.position for image in key_images), _FOREVER]:
        while remaining_events and remaining_events[0].at <= position:
            event = remaining_events.pop(0)
            if row is not None and _removes(event, row):
                changed, place = _changed(row, None, row), f"DDL of version {event.at}"
                yield RowChange(event.at, tso_time(event.at), "delete", changed, place, 0, 0, "", None)
                row = None
            row = None if row is None else _after(event, row)
        if position == _FOREVER:
            return
        images = [image for image in key_images if image.position == position]
        leaving = next((image for image in images if not image.enters), None)
        entering = next((image for image in reversed(images) if image.enters), None)
        before = row if row is not None or leaving is None else leaving.values(None)
        if entering is not None and leaving is None and row is None and entering.fresh:
            kind = "update"
        else:
            kind = "delete" if entering is None else "insert" if before is None else "update"
        row = None if entering is None else entering.values(before)
        image = entering or leaving
        assert image is not None
        entry, place = read_before.get(image.path), image.place()
        made = bisect_left(snapshots, position, key=lambda snapshot: snapshot[0])
        is_there = 0 < made < len(snapshots) and place not in aside  # what stood before the oldest one is not known
        (lo, _), (hi, snapshot_id) = snapshots[made - 1 : made + 1] if is_there else ((0, 0), (0, None))
        yield RowChange(
            position,
            tso_time(position),
            kind,
            _changed(before, row, image.columns),
            place,
            lo,
            hi,
            entry.run if entry is not None and entry.snapshot == snapshot_id else "",
            snapshot_id,
            former_known=kind != "update" or before is not None,
        )


def _removes(event: Event, row: Mapping[str, Any]) -> bool:
    """Return whether a DDL removes a row, as TRUNCATE and DROP PARTITION do."""
    deletes = [change for change in event.changes if isinstance(change, DeleteRows)]
    return any(delete.predicate is None or _fulfils(event, row, delete.predicate) for delete in deletes)


def _fulfils(event: Event, row: Mapping[str, Any], predicate: Predicate) -> bool:
    from cdc_assets.ddl import polars_expr

    frame = pl.from_arrow(_table_of(event, row))
    assert isinstance(frame, pl.DataFrame)
    return bool(frame.select(polars_expr(predicate).fill_null(False)).item())


def _after(event: Event, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a row as it reads after a DDL, None where that is not known: the row was exchanged for another one."""
    if isinstance(event, Exchanged):
        return None if not event.partitioned or _fulfils(event, row, event.predicate) else dict(row)
    changes = (*event.hidden, *event.changes)
    if not changes:
        return dict(row)
    return next(python_rows(evolve_rows(_table_of(event, row), changes, event.after.in_lake)))


def _table_of(event: Event, row: Mapping[str, Any]) -> pa.Table:
    columns = [column for column in event.before.in_lake.stored if column.name in row]
    return pa.table({column.name: _array_of(row[column.name], arrow_type(column)) for column in columns})


def _array_of(value: Any, kind: pa.DataType) -> pa.Array:
    """Return a value of `python_rows` as Arrow has it."""
    if isinstance(value, str) and pa.types.is_temporal(kind):
        return pa.array([value]).cast(kind)
    return pa.array([value], kind)


def _changed(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, names: Iterable[str]
) -> dict[str, tuple[str | None, str | None]]:
    """Return the values before and after by column, of those `names` in which they are not the same."""
    return {
        name: (value_text((before or {}).get(name)), value_text((after or {}).get(name)))
        for name in names
        if before is None or after is None or before.get(name) != after.get(name)
    }


def _place(file: DataFile, line: int, reader: SplitReader) -> str:
    """Return the place of a record: its file and line, or its topic, partition and offset."""
    if file.messages is not None:
        named = record_places(reader.wire(file.path), reader.read(file.path), [line])
        return named.get(line, file.path)
    return f"{file.name} line {line + lines_before(reader, file)}"


# --- beside the changes -----------------------------------------------------------------------------------------------


def _gone(
    life: Life, windows: Sequence[ApplyRows], expired: Tso, read_before: Mapping[str, FileEntry]
) -> Iterator[str]:
    """Yield sentences on input that was read for the table and is not there any more."""
    window_paths = {file.path for step in windows for file in step.files}
    lost = [entry for entry in read_before.values() if entry.path not in window_paths and entry.rows > 0]
    if lost:
        least = min((entry.min_commit_ts for entry in lost if entry.min_commit_ts is not None), default=None)
        most = max((entry.max_commit_ts for entry in lost if entry.max_commit_ts is not None), default=None)
        range_text = f", with positions from {least} to {most}" if least is not None else ""
        files = counted(len(lost), "file")
        yield f"of what was read for {life}, {files} left the input, {lost[0].path} first{range_text}"
    if expired:
        yield f"rows of the landing through {expired} have expired"


def _present_row(lake: ExplainedLake, life: Life, schema: TableSchema, lake_key: pa.Table) -> dict[str, Any] | None:
    scan = lake.scan(life)
    equal = {
        name: value
        for name, value in _numbers(lake_key).items()
        if scan.columns.get(name) == iceberg_type(schema.column(name))
    }
    names = [column.name for column in schema.stored if column.name in scan.columns]
    for piece in scan.pieces(equal):
        for rows in scan.read_file(piece, list(schema.key), equal):
            if not len(rows_of_keys(_typed(rows, lake_key), lake_key, schema)):
                continue
            for whole in scan.read_file(piece, [*names, COMMIT_TS], equal):
                numbers = rows_of_keys(_typed(whole, lake_key), lake_key, schema)
                if len(numbers):
                    return next(python_rows(whole.take(numbers)))
    return None


def _numbers(lake_key: pa.Table) -> dict[str, object]:
    """Return the numbers of a key by column, for which readers may look: no collation says what equals them."""
    (row,) = python_rows(lake_key)
    return {name: value for name, value in row.items() if isinstance(value, (int, Decimal))}


def _typed(rows: pa.Table, lake_key: pa.Table) -> pa.Table:
    return rows.select(lake_key.column_names).cast(lake_key.schema)


def _events(
    pipeline: Pipeline, life: Life, events: Sequence[Any], since: Tso, last: Tso, until: Tso
) -> Iterator[TableChange]:
    """Yield the DDL of positions in (since, last], and repairs that were made by `until`."""
    journal = {entry.tso: entry for entry in pipeline.ledger.journal(pipeline.settings.name) if entry.life == str(life)}
    for at, done in journal.items():
        if done.action == REPAIR and since < at <= until:
            yield TableChange(at, tso_time(at), REPAIR, done.query, done.run, done.snapshot_after)
    for event in events:
        if since < event.at <= last:
            entry = journal.get(event.at)
            yield TableChange(
                event.at,
                tso_time(event.at),
                event.action,
                event.file.query,
                "" if entry is None else entry.run,
                None if entry is None else entry.snapshot_after,
            )


def _set_aside(
    lake: ExplainedLake, table: TableHistory, lake_key: pa.Table, plain: pa.Table, key: EncryptionKey | None
) -> tuple[tuple[SetAside, ...], int]:
    """Return the records in quarantine of the key, and how many cannot be looked through.

    They are known by their keys as decoded; where a record has none, by its bytes, which have the texts of the key.
    """
    records, unknown, names = list[SetAside](), 0, table.origins_at(table.events[-1].at)
    texts = [text for text in map(value_text, next(python_rows(plain)).values()) if text is not None]
    keys = lake_key.rename_columns([names.get(name, name) for name in lake_key.column_names])
    for row in lake.quarantined(raw=True, closed=True):
        if row.life != table.life:
            continue
        schema = keyed_alike(table.schema_at(row.schema_version).in_lake, keys, table, row.schema_version)
        is_of_key = None if schema is None else record_has_key(row.keys, schema, keys, key)
        if is_of_key is None:
            try:
                raw = decrypt(row.raw, key)
            except BadSettings:
                raw = b""
            unknown += not raw
            is_of_key = bool(raw) and all(text.encode() in raw for text in texts)
        if is_of_key:
            records.append(SetAside(f"{row.file} line {row.line}", row.reason, row.state))
    return tuple(records), unknown
