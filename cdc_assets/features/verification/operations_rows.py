"""Two sides of a table, each read in pieces -> the rows that are not the same. Knows no lake, no source, no clock.

    Comparison.digest()   a piece -> a digest for every part of the key: how many rows, and a sum of 128 bits over them
    Comparison.run()      both sides once; then the parts that differ once more, until rows are named

Where there are executors, they digest the pieces of a large table: the same function, and the driver adds up.

A part is a range of the first key column with a share of the keys by their hash, so both sides are divided alike
whatever the order in which they are read: a server's collation need not be known. A piece notes which ranges it has,
so that only pieces that may hold a differing row are read again. The sum does not depend on the order, and counts
equal rows as often as they stand there: a table without key is compared as a multiset. Memory holds the digests, a
block of each reader and the rows of differing parts, up to a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from cdc_assets.decoding.split import hash_probe
from cdc_assets.errors import BadSettings, SetupError, StepFailed, StorageUnavailable
from cdc_assets.formats.words import Marks
from cdc_assets.model.comparison import RowDifference, ValueDifference

if TYPE_CHECKING:
    from cdc_assets.landing.landing import Executors

_T = TypeVar("_T")

_PARTS = 1 << 16
_RANGES = 1 << 10
_ROWS_AT_ONCE = 200_000
"""Most rows of differing parts that are held in memory, of both sides."""
_ROUNDS = 8
"""Executors are given the pieces of a side in about so many jobs."""
_MOST_TASKS = 128
"""Most tasks of a job: each returns 1.5 MB, however many rows it reads."""
_MET_THERE = (
    "An executor of Spark met that. Executors need what the driver has: a way to the source, PyMySQL for a server, the "
    "files of ssl-ca, ssl-cert and ssl-key at the same paths, and all files of the lake or a dump (docs/clusters.md). "
    "Or let the driver compare: setting decode: driver."
)
_SEEDS = (0x5CD1, 0xA55E7)
_KEY_SEED = 0x3E11

Numbers = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Frame = pl.DataFrame
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """Facts about a block of rows: their number, how many of them are not compared, and `notes`.

    These count by column and rule the values that were changed while they were read into the lake's types.

    A task that is done notes how often it connected anew, in a block without rows.
    """

    rows: int
    excluded: int = 0
    notes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    reconnects: int = 0


class PieceReader(Protocol):
    """Reads pieces of a side, wherever a task runs: picklable."""

    @property
    def reconnects(self) -> int:
        """Number of connections that broke in this process and were opened again."""

    def read(self, piece: Any) -> Iterator[tuple[pa.Table, BlockFacts]]:
        """Yield the rows of a piece block by block, with the same columns and types on both sides."""


class RowPieces(Protocol):
    """One side of a table: its rows in pieces that can be read again and give the same rows then."""

    @property
    def threads(self) -> int:
        """Number of pieces that are read at once."""

    def pieces(self) -> Sequence[Any]:
        """Return all pieces."""

    def reader(self, count: int) -> PieceReader:
        """Return the reader, one of so many that read at once in processes of their own."""

    def note(self, piece: int | None, facts: BlockFacts) -> None:
        """Take what is noted of a block of a piece, by its number; None for one that is read again."""


class SourceChanged(Exception):
    """Rows that were read twice were not the same."""


@dataclass(frozen=True)
class ComparedRows:
    """The result: rows on each side, and those that differ. `losses` counts values by rule that differ by a loss only.

    Of `missing`, `extra` and `differing` rows the first are named in `rows`; `partly` says that not all parts that
    differ were read again. `unequal` are all rows that were read and differ, as (the lake's, the source's): None where
    a side has no row of the key, or no other one that is equal.
    """

    lake: int
    source: int
    missing: int = 0
    extra: int = 0
    differing: int = 0
    rows: tuple[RowDifference, ...] = ()
    unequal: Sequence[tuple[Row | None, Row | None]] = ()
    losses: Mapping[str, int] = field(default_factory=dict)
    partly: bool = False


@dataclass
class Digests:
    """Rows by part of the key: how many there are, and two sums of 64 bits over their hashes.

    `borders` cut the first column of the `key`, whose columns are numbered. `touched` are the ranges of which each
    piece has rows, by its number.
    """

    key: tuple[str, ...]
    borders: pl.Series | None
    counts: Places = field(default_factory=lambda: np.zeros(_PARTS, np.int64))
    sums: tuple[Numbers, Numbers] = field(
        default_factory=lambda: (np.zeros(_PARTS, np.uint64), np.zeros(_PARTS, np.uint64))
    )
    touched: dict[int, Marks] = field(default_factory=dict)

    def add(self, frame: Frame) -> None:
        """Add the rows of a block."""
        part, hashes = self.parts(frame), row_hashes(frame)
        self.counts += np.bincount(part, minlength=_PARTS)
        for total, hash_values in zip(self.sums, hashes, strict=True):
            np.add.at(total, part, hash_values)

    def join(self, other: Digests) -> None:
        """Add the digests of other pieces."""
        self.counts += other.counts
        for total, summand in zip(self.sums, other.sums, strict=True):
            total += summand
        self.touched |= other.touched

    @property
    def ranges(self) -> int:
        """Number of ranges into which the first key column is cut."""
        return 1 if self.borders is None else self.borders.len() + 1

    @property
    def share(self) -> int:
        """Number of parts of a range."""
        return _PARTS // self.ranges

    def parts(self, frame: Frame) -> Places:
        """Return the part of every row."""
        key = frame.select(self.key) if self.key else frame
        hashed: Places = (combined_hash(key, _KEY_SEED) >> np.uint64(32)).astype(np.int64) % self.share
        if self.borders is None:
            return hashed
        first = _sortable(frame[self.key[0]])
        ranges = pl.Series(self.borders.search_sorted(first.fill_null(self.borders[0]), side="right"))
        hashed += ranges.to_numpy().astype(np.int64) * self.share
        return hashed

    def parts_of(self, ranges: range) -> slice:
        """Return the parts of ranges that follow each other."""
        return slice(ranges.start * self.share, ranges.stop * self.share)

    def differing(self, other: Digests) -> Marks:
        """Return by part whether the two sides are not the same."""
        differ: Marks = self.counts != other.counts
        for own_sums, other_sums in zip(self.sums, other.sums, strict=True):
            differ |= own_sums != other_sums
        return differ


def row_hashes(frame: Frame) -> tuple[Numbers, Numbers]:
    """Return two hashes of 64 bits of every row."""
    first, second = _SEEDS
    return combined_hash(frame, first), combined_hash(frame, second)


def combined_hash(frame: Frame, seed: int) -> Numbers:
    """Return a hash of 64 bits of every row, another one for every seed."""
    total = np.zeros(frame.height, np.uint64)
    for place, column in enumerate(frame.iter_columns()):
        # Each column has a seed of its own, so that values that change places are another row.
        hashed = column.hash(seed + 7919 * place).to_numpy()
        total = (total ^ (total >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) + hashed
    return total


def frame_of(rows: pa.Table) -> Frame:
    """Return rows with their columns numbered: polars gives some names a meaning."""
    frame = pl.from_arrow(rows.rename_columns([str(number) for number in range(rows.num_columns)]))
    assert isinstance(frame, pl.DataFrame)
    return frame


# --- ranges -----------------------------------------------------------------------------------------------------------

_SORTED = (pl.Int32, pl.Int64, pl.Date, pl.Datetime, pl.String, pl.Decimal)


def _sortable(values: pl.Series) -> pl.Series:
    if values.dtype != pl.Decimal:
        return values
    # A BIGINT UNSIGNED is such a number; of another column all that is below zero is of one range.
    is_unsigned = values.dtype == pl.Decimal(20, 0)
    numbers: pl.Series = values.cast(pl.UInt64, strict=False) if is_unsigned else values.cast(pl.Float64)
    return numbers


def borders_of(samples: Iterable[pa.ChunkedArray]) -> pl.Series | None:
    """Return values that cut a column into ranges of about as many rows each; None for a type that has no order here.

    `samples` are values of it. Where they are few, ranges stay empty.
    """
    values: pl.Series = pl.concat(
        [_sortable(pl.Series(sample)) for sample in samples] or [pl.Series([], dtype=pl.Int64)]
    )
    values = values.drop_nulls().unique().sort()
    if not isinstance(values.dtype, (pl.Float64, pl.UInt64, *_SORTED)) or values.len() < 2:
        return None
    count = min(_RANGES, values.len()) - 1
    borders: pl.Series = values.gather([values.len() * number // (count + 1) for number in range(1, count + 1)])
    return borders


# --- both sides -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """The comparison of a table: its `columns`, and the columns of the `key` that identifies a row, () for a multiset.

    `loss_of` says for a column, the lake's value and the source's that differ, which loss makes them equal, "" for
    none; only `lossy` columns have any. `borders` cut the first column of the key. At most `shown` rows are
    named. `chosen` leaves out rows of either side that are not compared; so are those of the `equal` ranges.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    lossy: frozenset[str] = frozenset()
    loss_of: Callable[[str, Any, Any], str] = lambda column, lake, source: ""
    borders: pl.Series | None = None
    shown: int = 100
    chosen: Callable[[Frame], Frame] = lambda frame: frame
    equal: frozenset[int] = frozenset()

    def run(
        self,
        lake: RowPieces,
        source: RowPieces,
        ranges: Sequence[range] = (),
        equal: Callable[[int, int], object] = lambda piece, rows: None,
        again: Callable[[Sequence[int]], Sequence[Any]] | None = None,
        executors: Executors | None = None,
    ) -> ComparedRows:
        """Compare the rows of two sides; with `executors` they read all pieces the first time.

        Each piece of the source has all rows of the `ranges` that are at its place, where these are given: `equal` is
        called, by one thread at a time, with the numbers of those in which both sides are the same, and how many rows
        they have. `again` gives pieces of the source that have all rows of some ranges, and perhaps others. Raises
        SourceChanged where a side gives other rows the second time, and what the sides raise.
        """
        sides = [(side, side.pieces(), self.digests()) for side in (lake, source)]
        lake_digests, source_digests = (digests for _, _, digests in sides)

        def compare(piece: int) -> None:
            parts = lake_digests.parts_of(ranges[piece])
            if not lake_digests.differing(source_digests)[parts].any():
                equal(piece, int(lake_digests.counts[parts].sum()))

        for side, pieces, digests in sides:

            def join(some: Digests, side: RowPieces = side, digests: Digests = digests) -> None:
                digests.join(some)
                if ranges and side is source:
                    for number in some.touched:
                        compare(number)

            if executors is not None:
                self._digest_elsewhere(executors, side, list(enumerate(pieces)), join)
                continue
            reader = side.reader(1)

            def digest(number: int, piece: Any, side: RowPieces = side, reader: PieceReader = reader) -> Digests:
                return self.digest(reader, number, piece, partial(side.note, number))

            _each(side.threads, list(enumerate(pieces)), digest, join)
        suspects = lake_digests.differing(source_digests)
        counts = int(lake_digests.counts.sum()), int(source_digests.counts.sum())
        if not suspects.any():
            return ComparedRows(*counts)
        sizes = np.where(suspects, lake_digests.counts + source_digests.counts, 0)
        chosen = suspects & ((np.cumsum(sizes) <= _ROWS_AT_ONCE) | (np.cumsum(suspects) == 1))
        rows = RowsOfKeys(self)
        frames = [
            self._again(side, pieces, digests, chosen, again if side is source else None)
            for side, pieces, digests in sides
        ]
        rows.compare(*frames)
        return ComparedRows(
            *counts,
            **{kind: rows.counts[kind] for kind in ("missing", "extra", "differing")},
            rows=tuple(rows.named),
            unequal=rows.unequal,
            losses=dict(rows.losses),
            partly=bool((suspects & ~chosen).any()),
        )

    def digest(self, reader: PieceReader, number: int, piece: Any, note: Callable[[BlockFacts], object]) -> Digests:
        """Return the digests of a numbered piece's rows, and note what is to be noted of its blocks."""
        digests = self.digests()
        for rows, facts in reader.read(piece):
            note(facts)
            if (frame := self._compared(frame_of(rows))).height:
                digests.add(frame)
        shape = digests.ranges, digests.share
        digests.touched[number] = np.any(digests.counts[: shape[0] * shape[1]].reshape(shape), axis=1)
        return digests

    def _digest_elsewhere(
        self,
        executors: Executors,
        side: RowPieces,
        pieces: Sequence[tuple[int, Any]],
        join: Callable[[Digests], object],
    ) -> None:
        """Let executors digest numbered pieces, in a few rounds: what one has brought is not lost with the next."""
        tasks = max(1, min(side.threads, len(pieces), _MOST_TASKS))
        size = tasks * max(1, -(-len(pieces) // (tasks * _ROUNDS)))
        comparison = replace(self, loss_of=Comparison.loss_of)
        for begin in range(0, len(pieces), size):
            numbered = pieces[begin : begin + size]
            shares = [numbered[number::tasks] for number in range(min(tasks, len(numbered)))]
            work = PieceShares(comparison, side.reader(tasks), shares, hash_probe())
            try:
                results = executors.run(len(shares), work)
            except (StorageUnavailable, StepFailed, BadSettings) as error:
                raise type(error)(f"{error.message} {_MET_THERE}", **error.where) from error
            for result in results:
                if isinstance(result, MissingFile):
                    next(iter(side.reader(1).read(result.piece)), None)  # raises where it is not here either
                    raise StorageUnavailable(f"{result.text} does not exist there, and it does here. {_MET_THERE}")
                digests, noted = result
                for number, facts in noted:
                    side.note(number, facts)
                join(digests)

    def _compared(self, frame: Frame) -> Frame:
        frame = self.chosen(frame)
        if not self.equal:
            return frame
        digests = self.digests()
        return frame.filter(pl.Series(~np.isin(digests.parts(frame) // digests.share, list(self.equal))))

    def digests(self) -> Digests:
        return Digests(tuple(str(self.columns.index(name)) for name in self.key), self.borders)

    def _again(
        self,
        side: RowPieces,
        pieces: Sequence[Any],
        digests: Digests,
        chosen: Marks,
        pieces_of: Callable[[Sequence[int]], Sequence[Any]] | None,
    ) -> list[Frame]:
        """Return the rows of some parts, from the pieces that have any of their ranges."""
        ranges = np.unique(np.flatnonzero(chosen) // digests.share)
        touched = [
            (number, pieces[number]) for number in sorted(digests.touched) if digests.touched[number][ranges].any()
        ]
        if pieces_of is not None:
            touched = list(enumerate(pieces_of(ranges.tolist())))
        again, frames = self.digests(), list[Frame]()

        reader = side.reader(1)

        def read(number: int, piece: Any) -> None:
            for rows, facts in reader.read(piece):
                side.note(None, facts)
                frame = self._compared(frame_of(rows))
                if (few := frame.filter(pl.Series(chosen[again.parts(frame)]))).height:
                    frames.append(few)

        _each(side.threads, touched, read)
        for few in frames:
            again.add(few)
        if (again.differing(digests) & chosen).any():
            raise SourceChanged
        return frames


@dataclass(frozen=True, slots=True)
class MissingFile:
    """A piece whose file was not there for an executor, and what was said of it."""

    piece: Any
    text: str


@dataclass(frozen=True)
class PieceShares:
    """Digests shares of numbered pieces wherever a task runs: picklable."""

    how: Comparison
    reader: PieceReader
    shares: Sequence[Sequence[tuple[int, Any]]]
    probe: int

    def __call__(self, share: int) -> tuple[Digests, list[tuple[int | None, BlockFacts]]] | MissingFile:
        """Return the digests of a share, and what is noted of blocks by their pieces' numbers; a file that is gone.

        Raises SetupError on a machine that digests otherwise than the driver's.
        """
        if hash_probe() != self.probe:
            raise SetupError(
                "executors hash values otherwise than the driver, so their digests cannot be compared. Give all "
                "machines the same polars on the same kind of processor, or let the driver compare: setting decode: "
                "driver."
            )
        digests, noted = self.how.digests(), list[tuple[int | None, BlockFacts]]()
        before = self.reader.reconnects
        for number, piece in self.shares[share]:
            note = partial(_noted, noted, number)
            try:
                digests.join(self.how.digest(self.reader, number, piece, note))
            except FileNotFoundError as gone:  # Spark would turn it into text
                return MissingFile(piece, str(gone))
        noted.append((None, BlockFacts(0, reconnects=self.reader.reconnects - before)))
        return digests, noted


def _noted(noted: list[tuple[int | None, BlockFacts]], number: int, facts: BlockFacts) -> None:
    noted.append((number, facts))


def _each(
    threads: int,
    pieces: Sequence[tuple[int, Any]],
    work: Callable[[int, Any], _T],
    done: Callable[[_T], object] = lambda result: None,
) -> None:
    """Read numbered pieces, several at once; what came of each is taken one at a time."""
    lock = Lock()

    def run(number: int, piece: Any) -> None:
        result = work(number, piece)
        with lock:
            done(result)

    with ThreadPoolExecutor(max(1, threads)) as pool:
        try:
            for running in [pool.submit(run, *numbered) for numbered in pieces]:
                running.result()
        except BaseException:  # nobody wants what is left any more
            pool.shutdown(wait=False, cancel_futures=True)
            raise


# --- rows -------------------------------------------------------------------------------------------------------------

_COUNT, _OTHER = "count", "other"
_HASHES = ["first", "second"]


@dataclass
class RowsOfKeys:
    """Finds rows that stand on one side only, and pairs those of one key."""

    how: Comparison
    named: list[RowDifference] = field(default_factory=list)
    unequal: list[tuple[Row | None, Row | None]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)

    def compare(self, lake: Sequence[Frame], source: Sequence[Frame]) -> None:
        """Compare the rows of both sides: those that are not on both are paired by their key.

        Of a table without key only rows that a loss may have made of each other are pairs.
        """
        comparison = self.how
        names = comparison.key or tuple(name for name in comparison.columns if name not in comparison.lossy)
        places = [comparison.columns.index(name) for name in names]
        rows: dict[Row, tuple[list[Row], list[Row]]] = {}
        counted_rows = [_counted(side) for side in (lake, source)]
        for place in (0, 1):
            for row, count in _surplus(counted_rows[place], counted_rows[1 - place]):
                rows.setdefault(tuple(row[column_place] for column_place in places), ([], []))[place].extend(
                    [row] * count
                )
        for of_lake, of_source in rows.values():
            self._pair(of_lake, of_source)
        if comparison.key:
            # A row that the lake has too often beside one that is equal gets the source's row of its key.
            key_places = [self.how.columns.index(name) for name in self.how.key]
            alone = {
                tuple(lake_row[place] for place in key_places)
                for lake_row, theirs in self.unequal
                if lake_row and theirs is None
            }
            if alone:
                source_rows = (row for frame in source for row in rows_of(frame))
                there = {key: row for row in source_rows if (key := tuple(row[place] for place in key_places)) in alone}
                self.unequal = [
                    (
                        lake_row,
                        there.get(tuple(lake_row[place] for place in key_places))
                        if lake_row and theirs is None
                        else theirs,
                    )
                    for lake_row, theirs in self.unequal
                ]

    def _pair(self, lake: Sequence[Row], source: list[Row]) -> None:
        extra: list[Row] = []
        for row in lake:
            # Of several rows of a key those are a pair that have the most values in common.
            candidates = [(*self._differences(row, other), place) for place, other in enumerate(source)]
            differences, losses, place = min(
                candidates, key=lambda candidate: len(candidate[0]), default=((), (), None)
            )
            if place is None or (differences and not self.how.key):
                extra.append(row)
                continue
            source_row = source.pop(place)
            self.losses.update(losses)
            if differences:
                self._add("differing", row, differences)
                self.unequal.append((row, source_row))
        for kind, rows in (("extra", extra), ("missing", source)):
            for row, count in Counter(rows).items():
                self._add(kind, row, (), count)
                self.unequal += [(row, None) if kind == "extra" else (None, row)] * count

    def _differences(self, lake: Row, source: Row) -> tuple[tuple[ValueDifference, ...], tuple[str, ...]]:
        """Return the values in which two rows differ, and the losses that make up for others."""
        differences, losses = [], []
        for name, lake_value, source_value in zip(self.how.columns, lake, source, strict=True):
            if lake_value != source_value:
                loss = self.how.loss_of(name, lake_value, source_value) if name in self.how.lossy else ""
                if loss:
                    losses.append(f"{name}: {loss}")
                else:
                    differences.append(ValueDifference(name, value_text(lake_value), value_text(source_value)))
        return tuple(differences), tuple(losses)

    def _add(self, kind: str, row: Row, values: tuple[ValueDifference, ...], count: int = 1) -> None:
        self.counts[kind] += count
        if len(self.named) < self.how.shown:
            names = self.how.key or self.how.columns
            key = {name: value_text(row[self.how.columns.index(name)]) for name in names}
            self.named.append(RowDifference(kind, key, values, count))


def _counted(frames: Sequence[Frame]) -> Frame | None:
    """Return the rows of a side, each once with how often it stands there; None without any."""
    if not frames:
        return None
    frame = pl.concat(frames)
    hashed = frame.with_columns(*map(pl.Series, _HASHES, row_hashes(frame)))
    return hashed.group_by(_HASHES).agg(pl.first(*frame.columns), pl.len().cast(pl.Int64).alias(_COUNT))


def _surplus(side: Frame | None, other: Frame | None) -> Iterator[tuple[Row, int]]:
    """Yield the rows that stand more often on one side than on the other, with how many more there are."""
    if side is None:
        return
    if other is not None:
        side = side.join(other.select(*_HASHES, pl.col(_COUNT).alias(_OTHER)), on=_HASHES, how="left")
        side = side.with_columns(pl.col(_COUNT) - pl.col(_OTHER).fill_null(0)).filter(pl.col(_COUNT) > 0).drop(_OTHER)
    yield from zip(rows_of(side.drop(*_HASHES, _COUNT)), side[_COUNT].to_list(), strict=True)


def rows_of(frame: Frame) -> Iterator[Row]:
    """Yield rows as Python has them, arrays as tuples."""
    columns = [
        [tuple(value) if isinstance(value, list) else value for value in python_values(column)]
        for column in frame.to_arrow().columns
    ]
    return zip(*columns, strict=True)


def python_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values as Python has them; dates and times of the year 0, which Python does not know, as their texts."""
    try:
        return list(array.to_pylist())
    except OverflowError:
        return [_python_value(value) for value in array]


def _python_value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except OverflowError:
        return value.cast(pa.string()).as_py()


def python_rows(rows: pa.Table | pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield rows as dictionaries of Python values, as `python_values` makes them."""
    columns = (python_values(column) for column in rows.columns)
    return (dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True))


def value_text(value: Any) -> str | None:
    """Return a value as a person reads it: bytes in hexadecimal digits, times as ISO 8601 has them."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return str(list(value) if isinstance(value, tuple) else value)
