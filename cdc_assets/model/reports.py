"""Results of reading a window and of carrying out a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_assets.model.progress import MissingRows
from cdc_assets.model.tso import Tso


@dataclass(frozen=True, slots=True)
class AlikeKeys:
    """Number of keys that met an existing key that is equal by collation only, with one example."""

    count: int = 0
    example: str = ""

    @classmethod
    def such_as(cls, count: int, values: Iterable[object]) -> AlikeKeys:
        """Return this many keys, with these values as the example."""
        shown = (str(value) if isinstance(value, int) else f'"{value}"' for value in values)
        return cls(count, ", ".join(shown))

    def __add__(self, other: AlikeKeys) -> AlikeKeys:
        """Return both together, with the first example."""
        return AlikeKeys(self.count + other.count, self.example or other.example)


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that was not applied: where, why, and its raw bytes. `line` counts records from 1, header included.

    `place` is the message of a topic that the record came in, "" for one of a file. `keys` are those of its rows as
    they were decoded (`types.record_keys`), b"" where they were not, or the table has none.
    """

    path: str
    line: int
    reason: str
    raw: bytes = b""
    column: str = ""
    commit_ts: Tso | None = None
    place: str = ""
    keys: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The whole numbers within which the values of a key column lie, [low, high], in a `unit` of the column's type.

    Numbers with a fraction are rounded down, times are counted from 1970.
    """

    column: str
    unit: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class FileStats:
    """Statistics of one file that was read: rows are records, commit-ts bounds are None for a file without any.

    `notes` counts values changed by a rule of the type table, by (column, rule). `keys` are the ranges of those key
    columns that have one.
    """

    path: str
    size: int
    etag: str
    rows: int
    min_commit_ts: Tso | None
    max_commit_ts: Tso | None
    notes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    keys: tuple[KeyRange, ...] = ()


def has_rows(read: FileStats | None) -> bool:
    """Return whether rows of a file were read: not of one that is unknown, was empty, or was let go by a person."""
    return read is not None and read.rows > 0


@dataclass(frozen=True, slots=True)
class Report:
    """The result of decoding and checking a window.

    `rejects` holds the first cases only, `reject_count` counts all, `set_aside` those set aside. `notes` counts
    values changed by a rule of the type table, by (column, rule): zero dates turned null, ambiguous hours, …
    `newest` is the highest commit-ts of a change that belongs to the window, with the first file that has it; None
    where there is no change, or rows carry no commit-ts. `joints` are files of a table without key that begin with the
    very commit-ts, of this window, at which the file before them ended: a split transaction, or one delivered again.
    `undecided` counts rows of a table without key that two dispatchers both have, where it is unknown whether they are
    two rows or one that was delivered twice. `run_again` counts rows of a table without key that
    stand twice in one transaction of a partition, one run behind the other. `alike` are keys of this window that are
    equal by collation. `doubled` counts rows of a dump that repeat another row's key. `passed_over` counts changes that
    leave columns out and whose row is not there, where a policy skips them. `settings` are the names of those with
    which values were read. `excluded` counts records of forgotten keys that were left out.
    """

    rows: int = 0
    reject_count: int = 0
    rejects: tuple[Reject, ...] = ()
    notes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    files: tuple[FileStats, ...] = ()
    seconds: float = 0.0
    set_aside: int = 0
    newest: tuple[Tso, str] | None = None
    joints: tuple[str, ...] = ()
    undecided: int = 0
    run_again: int = 0
    alike: AlikeKeys = AlikeKeys()
    doubled: int = 0
    passed_over: int = 0
    excluded: int = 0
    settings: frozenset[str] = frozenset()

    @property
    def failed(self) -> bool:
        """Return whether the window must not be written."""
        return self.reject_count > self.set_aside


@dataclass(frozen=True, slots=True)
class StagedWindow:
    """A decoded window as Parquet in the lake's stage, ready for one commit. `rows` counts reduced changes.

    `revision` is the run that had taken rows out of its table last when it was planned, "" for none.
    """

    path: str
    rows: int
    report: Report
    revision: str = ""


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step, for the journal: statements run, snapshot before and after, row counts, seconds.

    `rows_before` and `rows_after` are the table's rows by the summaries of those snapshots; None where a summary lacks
    them, or another writer has committed since. `entering` are the rows that the window had to write, None where that
    is unknown. `alike` are keys of the window that are equal to those of the table by collation only. `passed_over` is
    as in a report: what the table's rows showed. `missing` are rows that the table should have had before the window.
    """

    statements: tuple[str, ...] = ()
    snapshot_before: int | None = None
    snapshot_after: int | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    seconds: float = 0.0
    report: Report | None = None
    rows_before: int | None = None
    rows_after: int | None = None
    entering: int | None = None
    alike: AlikeKeys = AlikeKeys()
    passed_over: int = 0
    missing: MissingRows | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows below their heads, as people are shown them."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class OperationReport:
    """The report of an operation that was carried out.

    Args:
        document: What programs read, as JSON; a list of an operation on each of several changefeeds.
        lines: What a command prints: sentences and tables, and sentences that go to the error stream.
        figures: What a job shows: numbers, texts and tables by name.
        complete: Whether a command exits with 0.
        failure: Why a job fails, "" where it does not.
        repeatable: Whether another run of the job may help.
    """

    document: Any
    lines: Sequence[str | Grid | Aside] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True
    failure: str = ""
    repeatable: bool = False


class Aside(str):
    """A sentence for the error stream."""

    __slots__ = ()
