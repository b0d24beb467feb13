"""Row images and the values of their columns -> the changes that all formats decode to, with what does not fit.

Images           what is known of each image but its columns
Faults           the row events that are not applied, and why
ChangeBuilder    takes the columns of images one by one, and makes their changes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.decoded import COMMIT_TS, LINE, MOVED, NOT_WRITTEN, OP, POSITION, UNCHANGED, Decoded, Op
from cdc_assets.formats.members import named
from cdc_assets.formats.records import CellKind, Path, RecordColumn, Records, bits
from cdc_assets.formats.words import Marks
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import SOFT_DELETE_COLUMNS, Column, TableSchema, soft_delete_reason
from cdc_assets.model.tso import Tso
from cdc_assets.types.key_digests import encoded_keys
from cdc_assets.types.mysql_types import arrow_type, finish, misfit, values, wire_type
from cdc_assets.types.mysql_values import LOSSY, Binary, Values, changed_in_key

__all__ = [
    "LOST_FLOAT",
    "NULL_OR_TEXT",
    "SIX_DIGITS",
    "Cells",
    "ChangeBuilder",
    "Faults",
    "Images",
    "Reason",
    "RowSides",
    "apart_from_null",
    "changes_of",
    "of_unknown_column",
    "patch_op",
    "row_images",
    "side_by_side",
    "unknown_column",
]

LOST_FLOAT = (
    "FLOAT became null: its upper half is the beginning of the next number, which TiCDC's Craft encoder writes over it"
)
NULL_OR_TEXT = "NULL, or a text printed like the NULL marker because nothing is quoted"
SIX_DIGITS = "FLOAT of which a dump has six digits, as it is 1e15 or more, or less than 1e-15"

Rows = npt.NDArray[np.int64]
Reason = str | Callable[[int], str]
"""Why images are not applied, or why the image at a place is not."""
_NONE: Mapping[str, pa.BooleanArray] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Images:
    """Row images as columns. `after` is the position of the image after it for one before an update, else -1.

    An insert and an image after an update are Op.INSERT, a delete and an image before an update Op.DELETE. The
    commit-ts is -1 where a row has none. `moved` is the column MOVED, None where no image has it.
    """

    lines: Rows
    ops: npt.NDArray[np.int8]
    commit_ts: Rows
    after: Rows
    moved: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.lines)

    @classmethod
    def alone(cls, lines: Rows, ops: npt.NDArray[np.int8], commit_ts: Rows) -> Images:
        """Return images of which none says what was before another."""
        return cls(lines, ops, commit_ts, np.full(len(lines), -1))

    @classmethod
    def inserted(cls, lines: Rows, at: Tso) -> Images:
        """Return rows that are there at a TSO."""
        return cls.alone(lines, np.full(len(lines), Op.INSERT, np.int8), np.full(len(lines), at))


def side_by_side(parts: Sequence[Images]) -> Images:
    """Put images of several kinds one after the other."""
    starts = np.cumsum([0, *map(len, parts)])
    after = [
        np.where(images.after < 0, -1, images.after + start) for images, start in zip(parts, starts[:-1], strict=True)
    ]
    moved = [pa.nulls(len(part), pa.string()) if part.moved is None else part.moved for part in parts]
    return Images(
        np.concatenate([part.lines for part in parts]),
        np.concatenate([part.ops for part in parts]),
        np.concatenate([part.commit_ts for part in parts]),
        np.concatenate(after),
        pa.concat_arrays(moved) if any(part.moved is not None for part in parts) else None,
    )


@dataclass
class Faults:
    """Row events that are not applied, by line; the first reason counts. `raw` gives the bytes of a line.

    `commit_ts` are those of all lines as far as they are known, 0 for others.
    """

    path: str
    raw: Callable[[int], bytes]
    commit_ts: Rows | None = None
    rejects: dict[int, Reject] = field(default_factory=dict)

    @classmethod
    def of_file(cls, path: str, numbered: Callable[[], Iterable[tuple[int, bytes]]]) -> Faults:
        """Return the faults of a file, whose records and their lines are asked for only where there are some."""
        raws = cache(lambda: {line: raw for line, raw in numbered() if line in faults.rejects})
        faults = cls(path, lambda line: raws().get(line, b""))
        return faults

    def add(self, line: int, reason: str, column: str = "", commit_ts: int | None = None) -> None:
        """Note why the row event of a line is not applied, unless a reason is known already."""
        if line not in self.rejects:
            if commit_ts is None and self.commit_ts is not None:
                commit_ts = int(self.commit_ts[line - 1]) or None
            self.rejects[line] = Reject(self.path, line, reason, b"", column, commit_ts)

    def add_refused(self, records: Records, what: str) -> None:
        """Refuse messages, given by their numbers from 0, whose records could not be read as `what`."""
        for _, message, reason in records.refused():
            self.add(message + 1, f"{what}: {reason}")

    def mark(self, mask: Marks | pa.BooleanArray, images: Images, reason: Reason, column: str = "") -> None:
        """Refuse the row images of a mask; `reason` is a text, or makes one of the number of an image."""
        places = np.flatnonzero(mask) if isinstance(mask, np.ndarray) else pc.indices_nonzero(mask).to_numpy()
        for image in places.tolist():
            reason_text = reason if isinstance(reason, str) else reason(image)
            self.add(int(images.lines[image]), reason_text, column, max(int(images.commit_ts[image]), 0) or None)

    def mark_sent(
        self, mask: Marks | pa.BooleanArray, images: Images, sent: pa.Array, reason: str, column: str = ""
    ) -> None:
        """Refuse the row images of a mask, for `reason` after the value that was `sent` for each image."""
        self.mark(mask, images, lambda image: f'"{_shown(sent[image])}" {reason}', column)

    def refuse(self, records: Records, mask: Marks, column: str, reason: str, shown: Path | None = None) -> None:
        """Refuse records, whose messages are lines from 0, for a column; the last `{}` in the reason is a cell's value.

        Names of columns stand in the reason as they are, with any braces.
        """
        head, _, tail = reason.rpartition("{}")
        for place in np.flatnonzero(records.sound & mask).tolist():
            reason_text = reason if shown is None else f"{head}{records.shown(place, *shown)[:80]}{tail}"
            self.add(int(records.messages[place]) + 1, reason_text, column)
            records.refuse(place, reason_text)

    def in_order(self) -> tuple[Reject, ...]:
        """Return them by line, with their bytes."""
        return tuple(replace(self.rejects[line], raw=self.raw(line)) for line in sorted(self.rejects))


class ChangeBuilder:
    """The changes of images of a table, column by column. Values that do not fit become faults."""

    def __init__(self, images: Images, schema: TableSchema, faults: Faults) -> None:
        self._images, self._schema, self._faults = images, schema, faults
        self._arrays = dict[str, pa.Array]()
        self._without_key = np.zeros(len(images), bool)
        self._notes = list[tuple[str, str, pa.BooleanArray]]()
        self._unread = dict[int, tuple[str, str]]()

    def add(
        self,
        column: Column,
        values: Values,
        sent: pa.Array,
        notes: Mapping[str, pa.BooleanArray] = _NONE,
        describe: Callable[[str, Column], str] = misfit,
    ) -> None:
        """Take the values of a column; `sent` is what they were, of which `describe` says that it does not fit.

        `notes` mark values that a rule of the format changed. No such rule, and no lossy one of the type table, may
        change a value of the key.
        """
        self._arrays[column.name] = values.array
        if column.name in self._schema.exact:
            lossy = {rule: values.notes[rule] for rule in sorted(LOSSY & values.notes.keys())}
            for rule, mask in (*lossy.items(), *notes.items()):
                self.doubt_key(mask)
                self._faults.mark_sent(mask, self._images, sent, changed_in_key(rule), column.name)
        if values.bad is not None:
            if column.name in self._schema.exact:
                self.doubt_key(values.bad)
            null = f"NULL is not {column.type}"

            def reason(image: int) -> str:
                return describe(_shown(sent[image]), column) if sent[image].is_valid else null

            self.mark(values.bad, reason, column.name)
        if not column.nullable and sent.null_count and self._schema.key and column.name not in self._schema.exact:
            is_before = (self._images.after >= 0) & (self._images.ops < 0)
            self.mark(bits(sent.is_null()) & is_before, f"NULL is not {column.type} NOT NULL", column.name)
        self._notes += [(column.name, rule, mask) for rule, mask in (*values.notes.items(), *notes.items())]

    def mark(self, mask: Marks | pa.BooleanArray, reason: Reason, column: str) -> None:
        """Note images whose value of a column cannot be read.

        Of an image before an update nothing but the key is needed where a table has one: it is left out where the key
        stays what it is. Any other is a fault.
        """
        marked, images = mask if isinstance(mask, np.ndarray) else bits(mask.fill_null(False)), self._images
        if self._schema.key and column not in self._schema.exact:
            is_before = (images.after >= 0) & (images.ops < 0)
            for image in np.flatnonzero(marked & is_before).tolist():
                self._unread.setdefault(image, (reason if isinstance(reason, str) else reason(image), column))
            marked = marked & ~is_before
        self._faults.mark(marked, images, reason, column)

    def _left_out(self) -> Rows:
        """Return the images before an update that cannot be read and are not needed; others become faults."""
        places = np.array(sorted(self._unread), np.int64)
        images, moved = self._images, np.zeros(len(places), bool)
        for name in self._schema.key if len(places) else ():
            now, before = (self._arrays[name].take(pa.array(some)) for some in (images.after[places], places))
            moved |= ~bits(pc.equal(now, before).fill_null(False))
        for image in places[moved].tolist():
            reason, column = self._unread[image]
            self._faults.add(int(images.lines[image]), reason, column, max(int(images.commit_ts[image]), 0) or None)
        return places[~moved]

    def doubt_key(self, mask: Marks | pa.BooleanArray) -> None:
        """Note images of which a value of the key cannot be read, so that nobody can tell whose they are."""
        self._without_key |= mask if isinstance(mask, np.ndarray) else bits(mask)

    def _note_keys(self) -> None:
        """Give the faults the keys of their rows, where all of these could be read."""
        key = self._schema.key
        if not key or not self._arrays.keys() >= set(key):
            return
        keys = pa.table({name: self._arrays[name] for name in key})
        for line, fault in self._faults.rejects.items():
            of_line = np.flatnonzero(self._images.lines == line)
            if len(of_line) and not self._without_key[of_line].any():
                self._faults.rejects[line] = replace(fault, keys=encoded_keys(keys.take(pa.array(of_line)), key))

    def changes(self, more: Mapping[str, pa.Array] = _NONE) -> tuple[pa.Table, Counter[tuple[str, str]]]:
        """Return the changes without the faults, by line, the image before an update first, and count notes of them.

        `more` are columns that stand behind the table's own.
        """
        images, none, left_out = self._images, self._images.commit_ts < 0, self._left_out()
        shape = shape_of(column for column in self._schema.columns if column.name in self._arrays)
        stamps = pa.array(images.commit_ts, mask=none if none.any() else None)
        ops = images.ops.copy()
        ops[images.after[left_out]] = Op.UPDATE
        own = [pa.array(ops), stamps, pa.array(images.lines)]
        changes = pa.Table.from_arrays([*own, *(self._arrays[name] for name in shape.names[len(own) :])], schema=shape)
        for name, array in more.items():
            changes = changes.append_column(pa.field(name, array.type), array)
        order = np.arange(len(images))
        if not (np.diff(images.lines) > 0).all():
            order = np.lexsort((images.ops > 0, images.lines))
        if len(left_out):
            order = order[~np.isin(order, left_out)]
        if self._faults.rejects:
            self._note_keys()
            order = order[~np.isin(images.lines[order], list(self._faults.rejects))]
        notes = Counter[tuple[str, str]]()
        if len(order) < len(images):
            places = pa.array(order)
            self._notes = [(column, rule, mask.take(places)) for column, rule, mask in self._notes]
        for column, rule, mask in self._notes:
            notes.update({(column, rule): mask.true_count} if mask.true_count else {})
        if len(order) < len(images) or (np.diff(order) < 0).any():
            changes = changes.take(pa.array(order))
        return changes, notes


def _shown(value: pa.Scalar) -> str:
    python_value = value.as_py()
    return python_value.decode("utf-8", "replace") if isinstance(python_value, bytes) else str(python_value)


def apart_from_null(
    texts: pa.Array, column: Column, schema: TableSchema, null_text: bytes | None
) -> tuple[pa.Array, Mapping[str, pa.BooleanArray]]:
    """Return texts apart from NULL, of which a text may look like the marker where nothing is quoted, and a note on it.

    It is the text where NULL cannot be. `null_text` is that text, None for no such one.
    """
    may_be_text = pa.types.is_string(texts.type) or pa.types.is_binary(texts.type)
    if null_text is None or not texts.null_count or not may_be_text:
        return texts, _NONE
    if not column.nullable or column.name in schema.exact:
        return texts.fill_null(pa.scalar(null_text, pa.binary()).cast(texts.type)), _NONE
    return texts, {NULL_OR_TEXT: texts.is_null()}


# --- images of messages -----------------------------------------------------------------------------------------------


class Cells(NamedTuple):
    """A column of all images: texts, bytes, numbers; null is NULL, and what the other members mark.

    `absent` marks images without the column, None for none, `unchanged` those after an update in which it keeps
    its value. `binary` says how binary types stand in a text, `zones` in
    which zone each TIMESTAMP is printed (None: that of the options). `faults` are masks of values that cannot be read,
    with the reason; `notes` masks of values that a rule of the protocol changed. `named` says that ENUM and SET are the
    names of members, not their numbers.
    """

    array: pa.Array
    absent: Marks | None = None
    binary: Binary = "raw"
    zones: pa.Array | None = None
    faults: tuple[tuple[Marks, Reason], ...] = ()
    notes: Mapping[str, Marks] = MappingProxyType({})
    named: bool = False
    unchanged: Marks | None = None


def row_images(lines: Rows, commit_ts: Rows, after: Marks, before: Marks) -> Images:
    """Return the images of rows of which these masks say what they have: all that come after first, then all before."""
    new, old = np.flatnonzero(after), np.flatnonzero(before)
    place = np.cumsum(after) - 1
    pair = np.where(after[old], place[old], -1)
    return Images(
        np.concatenate([lines[new], lines[old]]),
        np.repeat(np.array([Op.INSERT, Op.DELETE], np.int8), [len(new), len(old)]),
        np.concatenate([commit_ts[new], commit_ts[old]]),
        np.concatenate([np.full(len(new), -1, np.int64), pair]),
    )


class RowSides:
    """Images of rows, and in the same order the records and the paths at which the columns of each are."""

    def __init__(self) -> None:
        self._images = list[Images]()
        self.sides = list[tuple[Records, Path]]()

    def add(self, records: Records, commit_ts: Rows, after: Path, before: Path, updates: Marks | bool = False) -> None:
        """Add the images of records that are not refused, whose messages are lines from 0: what is at two paths.

        `updates` marks the records that are updates: the image before one of these is unknown where it has none.
        """
        rows = records.among(records.sound)
        new, old = (rows.kinds(*path) > CellKind.NULL for path in (after, before))
        images = row_images(rows.messages + 1, commit_ts[records.sound], new, old)
        alone = np.broadcast_to(updates, len(records))[records.sound] & ~old
        images.ops[: int(new.sum())][alone[new]] = Op.UPDATE
        self.take(images, (rows.among(new), after), (rows.among(old), before))

    def take(self, images: Images, *sides: tuple[Records, Path]) -> None:
        """Add images, and where the columns of each are."""
        self._images.append(images)
        self.sides += sides

    @property
    def images(self) -> Images:
        """All images, one after the other."""
        return side_by_side(self._images)

    def absent(self, *path: str | int) -> Marks | None:
        """Mark the images without a cell at a path within that of their image, None for none."""
        kinds = np.concatenate([records.kinds(*base, *path) for records, base in self.sides])
        absent: Marks = kinds == CellKind.ABSENT
        return absent if absent.any() else None

    def column(self, *path: str | int) -> RecordColumn:
        """Return the cells at a path within that of their image."""
        return RecordColumn.joined([records.column(*base, *path) for records, base in self.sides])

    def whole_numbers(self, *path: str | int) -> npt.NDArray[np.uint64]:
        """Return the cells that are whole numbers of at most 64 bits and not below zero, 0 for others."""
        parts = [records.whole_numbers(*base, *path) for records, base in self.sides]
        return np.concatenate([np.where(whole, numbers, np.uint64(0)) for numbers, whole in parts])


def of_unknown_column(records: Records, name: str, side: Path, after: Path | None, schema: TableSchema) -> Marks:
    """Mark the records with a column at a side that rows of the table cannot have, unless nothing of it is needed.

    No virtual column is needed, and of a table with a key no column of an image before that the image `after` it has
    not. A column that column selectors leave out stands without a value in rows of some versions of TiCDC; a value in
    an image that counts proves that the selectors are not those of the changefeed.
    """
    own = next((column for column in schema.columns if column.name == name), None)
    if own is not None and (own.selected or after is not None):
        return np.zeros(len(records), bool)
    cells = records.column(*side, name)
    if own is not None:
        inner = records.kinds(*side, name, "v")  # the Open Protocol has a column's value there
        is_empty = cells.are_among(CellKind.TEXT, [""]) | (cells.are(CellKind.JSON) & (inner == CellKind.NULL))
        has_value: Marks = (cells.kinds > CellKind.NULL) & ~is_empty
        return has_value
    has_value = cells.kinds != CellKind.ABSENT
    if after is not None and schema.key and has_value.any():
        has_value &= (records.kinds(*after) <= CellKind.NULL) | (records.kinds(*after, name) != CellKind.ABSENT)
    return has_value


def unknown_column(schema: TableSchema, name: str, place: str = "the table's schema at this commit-ts") -> str:
    """Return the reason why a row with a column is refused: the schema at a place lacks it, or a selector hides it."""
    if any(column.name == name and not column.selected for column in schema.columns):
        return (
            f'column "{name}" has a value, although column-selectors in the changefeed TOML leave it out. '
            "Give the TOML that TiCDC runs the changefeed with"
        )
    reason = f'column "{name}" is not in {place}'
    return soft_delete_reason(reason) if name.lower() in SOFT_DELETE_COLUMNS else reason


def changes_of(
    images: Images, cells: Callable[[Column], Cells], schema: TableSchema, options: MessageOptions, faults: Faults
) -> Decoded:
    """Return the changes of a table: by line, the image before an update first. `cells` is asked for stored columns."""
    key, images = schema.exact, replace(images, ops=images.ops.copy())
    by_name = {column.name: cells(column) for column in schema.stored}
    visible = [column for column in schema.stored if not _hidden(by_name[column.name], images, options)]
    if not any(column.name in key for column in visible) and key or not visible:
        visible = list(schema.stored)  # the images are of another table: every one of them is a reject
    builder = ChangeBuilder(images, schema, faults)
    for column in visible:
        whole = _completed(by_name[column.name], column, column.name in key, images, options, faults)
        for mask, reason in whole.faults:
            builder.mark(mask, reason, column.name)
            if column.name in key:
                builder.doubt_key(mask)
        own = {rule: pa.array(mask) for rule, mask in whole.notes.items()}
        builder.add(column, _values(whole, column, options), whole.array, own, _misfit)
    patches = _unchanged({column.name: by_name[column.name] for column in visible}, key, images, faults)
    more = {UNCHANGED: patches, MOVED: images.moved}
    changes, notes = builder.changes({name: array for name, array in more.items() if array is not None})
    notes.update((column.name, NOT_WRITTEN) for column in schema.stored if column not in visible)
    return Decoded(changes, faults.in_order(), None, notes)


# --- what did not change ---------------------------------------------------------------------------------------------


def patch_op(policy: str, own: Op) -> Op:
    """Return the treatment of a patch whose row is not there: by a policy, else by the protocol."""
    return {"apply": Op.INSERT, "hold": Op.UPDATE, "skip": Op.PATCH}.get(policy, own)


def _unchanged(by_name: Mapping[str, Cells], key: frozenset[str], images: Images, faults: Faults) -> pa.Array | None:
    """Return by image which columns it leaves as they were, None where no image does."""
    unsent = {
        name: cells.unchanged & (images.ops > 0) for name, cells in by_name.items() if cells.unchanged is not None
    }
    unsent = {name: mask for name, mask in unsent.items() if mask.any()}
    if not unsent:
        return None
    for name, mask in unsent.items():
        if not key or name in key:
            reason = "it leaves out a column of the key" if key else "it leaves out columns, and its table has no key"
            faults.mark(mask, images, reason, name)
    marks = np.packbits(np.stack(list(unsent.values()), axis=1), axis=1)
    kind = pa.binary(marks.shape[1])
    coded = pa.Array.from_buffers(kind, len(images), [None, pa.py_buffer(marks)]).dictionary_encode()
    _, first = np.unique(coded.indices.to_numpy(), return_index=True)
    lists = [[name for name, mask in unsent.items() if mask[image]] or None for image in first.tolist()]
    return pa.array(lists, pa.list_(pa.string())).take(coded.indices)


# --- what is missing --------------------------------------------------------------------------------------------------


def _hidden(cells: Cells, images: Images, options: MessageOptions) -> bool:
    """Return whether no image has the column; deletes that have their key only do not count."""
    if cells.absent is None or not len(images) or not cells.absent.all():
        return False
    return not (options.delete_only_output_handle_key_columns and bool((images.ops < 0).all()))


def _advice(written_part: str, option_names: Iterable[str]) -> str:
    """Return the advice on images that lack a column, by the options of the protocol that make it so."""
    options = " or ".join(f"{option} = true" for option in option_names)
    return f": if the changefeed writes only {written_part}, give {options} as it has it" if options else ""


def _completed(
    cells: Cells,
    column: Column,
    in_key: bool,
    images: Images,
    options: MessageOptions,
    faults: Faults,
) -> Cells:
    """Fill what a partial image leaves out; images that lack the column for no known reason are faults.

    Deletes that have their key only become DELETE_KEY.
    """
    if cells.absent is None or not cells.absent.any():
        return cells
    lacking, array = cells.absent, cells.array
    if not in_key:
        lacking = lacking & (images.ops != Op.DELETE_KEY)
    before = lacking & (images.after >= 0)
    partial = options.only_output_updated_columns or options.content_compatible
    if before.any() and partial:
        place = np.where(before, images.after, np.arange(len(images)))
        array, lacking = array.take(pa.array(place)), lacking[place]
        cells = cells._replace(
            zones=None if cells.zones is None else cells.zones.take(pa.array(place)),
            faults=tuple((mask[place], _at(place, reason)) for mask, reason in cells.faults),
            notes={rule: mask[place] for rule, mask in cells.notes.items()},
        )
    deletes = lacking & (images.ops < 0) & (images.after < 0)
    if not in_key and options.delete_only_output_handle_key_columns:
        images.ops[deletes] = Op.DELETE_KEY
        lacking = lacking & ~deletes

    def reason(image: int) -> str:
        lacks = f'it lacks the column "{column.name}"'
        if deletes[image] and not in_key:
            return lacks + _advice("the key of deleted rows", options.kind.keys_of_deletes)
        if before[image] and not partial:
            return lacks + _advice("the columns that changed", options.kind.changed_columns)
        return lacks

    faults.mark(lacking, images, reason, column.name)
    return cells._replace(array=array, absent=None)


def _at(place: Rows, reason: Reason) -> Reason:
    """Return the reason for images whose values are those at these places."""
    return reason if isinstance(reason, str) else lambda image: reason(int(place[image]))


# --- values -----------------------------------------------------------------------------------------------------------


def _values(cells: Cells, column: Column, options: MessageOptions) -> Values:
    array = cells.array
    if pa.types.is_floating(array.type):
        return finish(array.cast(wire_type(column), safe=False), column)
    if pa.types.is_decimal(array.type):
        return _decimals(array, column)
    if pa.types.is_integer(array.type):
        if column.type in ("ENUM", "SET"):
            return _names(array, column)
        return _numbers(array, column)
    if column.type in ("ENUM", "SET") and not cells.named:
        return _names(array, column)
    if cells.zones is None or column.type != "TIMESTAMP":
        return values(array, column, timezone=options.timezone, binary=cells.binary)
    return _by_zone(array, column, cells.zones, options.timezone)


def _numbers(array: pa.Array, column: Column) -> Values:
    try:
        if column.type == "BIT":
            return finish(array.cast(pa.uint64()), column)
        return Values(array.cast(arrow_type(column)))
    except pa.ArrowInvalid:
        return values(array.cast(pa.string()), column)


def _decimals(array: pa.Array, column: Column) -> Values:
    try:
        return finish(array.cast(wire_type(column)), column)
    except pa.ArrowInvalid:
        texts = [None if number is None else format(number, "f") for number in array.to_pylist()]
        return values(pa.array(texts, pa.string()), column)


def _names(array: pa.Array, column: Column) -> Values:
    numbers = array.cast(pa.string())
    names = named(numbers, column.type, column.elems)
    wrong = pc.and_(pc.is_null(names), pc.is_valid(numbers))
    return Values(names, wrong if wrong.true_count else None)


def _by_zone(array: pa.Array, column: Column, zones: pa.Array, otherwise: str) -> Values:
    names = zones.unique().drop_null().to_pylist()
    if len(names) < 2:
        return values(array, column, timezone=names[0] if names else otherwise)
    moments = pa.nulls(len(array), arrow_type(column))
    bad, notes = np.zeros(len(array), bool), dict[str, Marks]()
    for zone in names:
        in_zone = pc.equal(zones, zone).fill_null(False)
        part = values(pc.if_else(in_zone, array, pa.scalar(None, array.type)), column, timezone=zone)
        moments = pc.if_else(in_zone, part.array, moments)
        bad |= bits(part.bad) if part.bad is not None else False
        for rule, mask in part.notes.items():
            notes[rule] = notes.get(rule, np.zeros(len(array), bool)) | bits(mask)
    marks = {rule: pa.array(mask) for rule, mask in notes.items()}
    return Values(moments, pa.array(bad) if bad.any() else None, marks)


def _misfit(text: str, column: Column) -> str:
    if column.type not in ("ENUM", "SET"):
        return misfit(text, column)
    if column.elems:
        return f'"{text}" is not a number for members of {column.type}, which has {len(column.elems)}'
    return (
        f'"{text}" stands for members of {column.type} whose names are not known: messages give numbers, and no CREATE '
        "TABLE that was seen gives the names. Give the table's CREATE TABLE in the setting `schemas`."
    )


def shape_of(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of changes that have these columns of a table."""
    own = [pa.field(OP, pa.int8()), pa.field(COMMIT_TS, pa.int64()), pa.field(LINE, pa.int64())]
    return pa.schema([*own, *(pa.field(column.name, arrow_type(column)) for column in columns)])


def position_column(changes: pa.Table) -> str:
    """Return the name of the column that orders changes and by which windows are cut."""
    return POSITION if POSITION in changes.column_names else COMMIT_TS


def has_patches(changes: pa.Table) -> bool:
    """Return whether some changes have some columns only."""
    return UNCHANGED in changes.column_names and changes.column(UNCHANGED).null_count < changes.num_rows
