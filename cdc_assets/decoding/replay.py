"""Records that did not fit, read again after a fix. Runs on Spark executors.

    open rows ──▶ files read again from their window to the applied TSO ──▶ keys of those rows ──▶ one commit

A replay takes all changes of the keys from the record's window on and reduces them together, so that an old record
cannot undo newer ones. A table without key gets the difference that the records make instead. Until it is replayed, the
lake's row of such a key may be one that the source no longer has, or be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import FILE
from cdc_assets.decoding.keyed_rows import of_keys
from cdc_assets.decoding.kinds import kind_of
from cdc_assets.decoding.upgrade import evolve_rows
from cdc_assets.decoding.window import Window, decode_window, reduced, rejected
from cdc_assets.errors import TableHeld
from cdc_assets.formats import LINE, OP, Op, SplitReader, dump_rows
from cdc_assets.model.schema_changes import DeleteRows, Rekey
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows, ChangeTable

__all__ = [
    "MAX_KEYS",
    "RecordLookup",
    "Replay",
    "carried",
    "find_keys",
    "read_replay",
    "replay_tasks",
]

MAX_KEYS = 100_000
"""With more keys than this a replay merges all that it reads, which is as correct and costs no more."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What is read again: windows and changes of a table from `frame.lo` to `frame.hi`, which it is applied through.

    `frame` has the table's present schema and no files. `targets` are the lines of quarantined records by file. `keys`
    are those to be merged, None for all; `whole` says that the files no longer are what they were, so that lines do not
    give the keys. `alone` says that no others may be merged, because rows of some were forgotten.
    """

    frame: ApplyRows
    steps: tuple[ApplyRows | ChangeTable, ...]
    targets: Mapping[str, frozenset[int]]
    whole: bool = False
    keys: pa.Table | None = None
    alone: bool = False

    @property
    def windows(self) -> tuple[tuple[int, ApplyRows], ...]:
        """The windows with their places in `steps`."""
        return tuple((place, step) for place, step in enumerate(self.steps) if isinstance(step, ApplyRows))


@dataclass(frozen=True, slots=True)
class RecordLookup:
    """What the files now say of quarantined records: the keys of those that fit, and (file, line) of those that do not.

    `keys` is None where all keys of the range are to be merged.
    """

    keys: pa.Table | None
    bad: frozenset[tuple[str, int]] = frozenset()


def find_keys(replay: Replay, reader: SplitReader) -> RecordLookup:
    """Read the quarantined records' files again.

    Raises MalformedData for a file that cannot be trusted at all, and TableHeld where all keys would have to be merged
    and rows of some were forgotten.
    """
    bad: set[tuple[str, int]] = set()
    seen: set[tuple[str, int]] = set()
    keys: list[pa.Table] = []
    for place, step in replay.windows:
        share = [position for position, file in enumerate(step.files) if file.name in replay.targets]
        window = decode_window(step, reader, share, quarantine=True)
        _refuse_failed(step, window)
        bad.update((r.path, r.line) for r in window.rejects if r.line in replay.targets[r.path])
        changes = window.changes.filter(_targets(window.changes, step, replay.targets, reader))
        before = {position: _lines_before(step.files[position], reader) for position in share}
        places = zip(changes.column(FILE).to_pylist(), changes.column(LINE).to_pylist(), strict=True)
        seen.update((step.files[position].name, line + before[position]) for position, line in places)
        if not kind_of(replay.frame).EQUAL_ROWS:
            keys.append(_to_present(changes, replay, place).select(list(replay.frame.schema.key)))
    lost = any((path, line) not in seen | bad for path, lines in replay.targets.items() for line in lines)
    if keys and not (replay.whole or lost or sum(table.num_rows for table in keys) > MAX_KEYS):
        return RecordLookup(pa.concat_tables(keys), frozenset(bad))
    if keys and replay.alone:
        life = replay.frame.life
        raise TableHeld(
            f"{life}: rows of it were forgotten after these records had been set aside, and their lines no longer say "
            "which keys they have, or these are too many: all that was read since would be merged, forgotten rows, "
            f"too. Keep the forgotten keys out (cdc-assets forget {life.source} KEY… --until forever), then rebuild it "
            f"(cdc-assets rebuild {life}).",
            table=str(life),
        )
    return RecordLookup(None, frozenset(bad))


def replay_tasks(replay: Replay) -> list[tuple[int, list[int]]]:
    """Cut a replay into tasks for `read_replay`: a place in `steps` and positions of that window's files."""
    return [(place, list(range(len(step.files)))) for place, step in replay.windows]


def read_replay(replay: Replay, reader: SplitReader, task: tuple[int, Sequence[int]]) -> Window:
    """Return one task's share of the changes to be merged, reduced, with the columns of the present schema.

    Records that still do not fit are left out. The report fails for a file that cannot be trusted at all.
    """
    place, share = task
    step = replay.steps[place]
    assert isinstance(step, ApplyRows)
    found = decode_window(step, reader, share, quarantine=True)
    window, kind = reduced(step, [replace(found, rejects=())]), kind_of(replay.frame)

    def others() -> pa.Table:
        left = found.changes.filter(pc.invert(_targets(found.changes, step, replay.targets, reader)))
        return reduced(step, [Window(left)]).changes

    changes = _to_present(kind.replayed(window.changes, others, step.schema), replay, place)
    offset = sum(len(earlier.files) for earlier_place, earlier in replay.windows if earlier_place < place)
    files = pc.add(changes.column(FILE), pa.scalar(offset, pa.int32()))
    changes = changes.set_column(changes.schema.get_field_index(FILE), pa.field(FILE, pa.int32()), files)
    if replay.keys is not None:
        changes = of_keys(changes, replay.keys, replay.frame.schema)
    return replace(window, changes=changes)


def _refuse_failed(step: ApplyRows, window: Window) -> None:
    if window.report.failed:
        raise rejected(step, window.report)


def _lines_before(file: DataFile, reader: SplitReader) -> int:
    """How much less the lines of a split are than those of its file."""
    return dump_rows(reader).lines_before(file) if file.piece else 0


def _targets(
    changes: pa.Table, step: ApplyRows, targets: Mapping[str, Collection[int]], reader: SplitReader
) -> pa.Array:
    """Mark the rows of quarantined records."""
    mask = pa.repeat(pa.scalar(False), changes.num_rows)
    for position, file in enumerate(step.files):
        if file.name in targets:
            before = _lines_before(file, reader)
            lines = pa.array(sorted(line - before for line in targets[file.name]), pa.int64())
            here = pc.equal(changes.column(FILE), pa.scalar(position, pa.int32()))
            mask = pc.or_(mask, pc.and_(here, pc.is_in(changes.column(LINE), lines)))
    return mask


def _to_present(changes: pa.Table, replay: Replay, place: int) -> pa.Table:
    """Carry changes of a window over all that was done to the table's columns after it."""
    for step in replay.steps[place + 1 :]:
        if isinstance(step, ChangeTable):
            changes = carried(changes, step)
    names = [name for name in changes.column_names if name.startswith("_cdc_")]
    return changes.select([*names, *(column.name for column in replay.frame.schema.stored)])


def carried(changes: pa.Table, step: ChangeTable) -> pa.Table:
    """Return row changes from before a DDL as it leaves them: a row that it deletes becomes a delete of its key."""
    columns = []
    for change in step.changes:
        if isinstance(change, DeleteRows):
            changes = changes if step.life.kind else _deleted(changes, change)
        elif not isinstance(change, Rekey):
            columns.append(change)
    return evolve_rows(changes, columns, step.schema)


def _deleted(changes: pa.Table, change: DeleteRows) -> pa.Table:
    from cdc_assets.ddl import polars_expr, undated, undated_rows

    gone = pa.repeat(pa.scalar(True), changes.num_rows)
    if change.predicate is not None:
        frame = pl.from_arrow(changes)
        assert isinstance(frame, pl.DataFrame)
        missing = undated(change.predicate)
        if missing is not None and not frame.filter(polars_expr(missing)).is_empty():
            raise undated_rows("quarantined records", change.predicate)
        chosen = frame.select(polars_expr(change.predicate).fill_null(value=False).alias("gone"))
        gone = chosen.get_column("gone").to_arrow()
    ops = pc.if_else(gone, pa.scalar(int(Op.DELETE), pa.int8()), changes.column(OP))
    return changes.set_column(changes.schema.get_field_index(OP), pa.field(OP, pa.int8()), ops)
