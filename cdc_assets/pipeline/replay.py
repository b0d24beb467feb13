"""The input of tables decoded again, as if nothing were applied.

    plan_replay    the steps that bring the tables of an empty lake to the end of a listing
    shares         the files of a window that may have changes of a range, or of a key, some at a time
    decoded        such files read side by side, with what is picked of them
    changes        all changes of a window in a range, in the order of their positions

Everything that looks back asks this: which rows a rebuild has, where a row comes from, what changed in a range, which
messages have rows of a key. The windows are decoded by the functions with which they are applied. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.position_sort import PositionSort
from cdc_assets.decoding.split import key_ranges
from cdc_assets.decoding.window import Window, decode_window, look_beside, merge_reports, reduced, rejected
from cdc_assets.errors import CdcError
from cdc_assets.features.kinds.decoding import kind_of
from cdc_assets.formats.changes import position_column
from cdc_assets.formats.decoded import POSITION
from cdc_assets.io.scratch import scratch
from cdc_assets.ledger import Ledger
from cdc_assets.model.forgetting import ForgottenKeys
from cdc_assets.model.progress import AppliedState, Base, Life
from cdc_assets.model.reports import FileStats, KeyRange
from cdc_assets.model.splits import DataFile, Listing, in_shares
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso
from cdc_assets.pipeline.pipeline import gone_file
from cdc_assets.pipeline.planner import EmptyLake, Planner, PlanRequest
from cdc_assets.planning.inputs import Beginnings, FeedFacts
from cdc_assets.planning.plan import Plan, plan
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.types.mysql_types import arrow_type

if TYPE_CHECKING:
    from cdc_assets.pipeline.pipeline import Pipeline

_READERS = 8
"""Number of shares of files that are read side by side."""
_SHARE_FILES, _SHARE_BYTES = 200, 8 << 20
"""Files that are decoded together: checking ten rows costs as much as ten thousand."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The input of a replay, and how it is read.

    Attributes:
        listing: The input.
        bases: The dumps on which tables are based, None for one that is based on the feed alone.
        settings: The changefeed's settings, None for those of the pipeline.
        fuse: Plan as few windows as give the same rows, not one for each version of a table.
        keep_out: Leave out rows of forgotten keys, as people decided.
        hold_expired: Hold tables of which input has expired; else what is left of it is read.
        begins: Tables that are replayed from there on only, as they stood; no others are then. What holds them now is
            passed over.
        renames: The versions of the RENAMEs at which history tables begin, as in `Beginnings`.
        frozen_tables: The tables that left their rule and are planned all the same.
    """

    listing: Listing
    bases: Mapping[Life, Base | None]
    settings: ChangefeedSettings | None = None
    fuse: bool = False
    keep_out: bool = True
    hold_expired: bool = False
    begins: Mapping[Life, AppliedState] = field(default_factory=dict)
    renames: Mapping[Life, Tso | None] = field(default_factory=dict)
    frozen_tables: Collection[Life] = ()


PickedT = TypeVar("PickedT")


@dataclass(frozen=True, slots=True)
class Reading(Generic[PickedT]):
    """Files of a window, by their numbers, that are decoded together, and what `pick` keeps of the decoded window."""

    step: ApplyRows
    files: Sequence[int]
    pick: Callable[[Window], PickedT]


def plan_replay(pipeline: Pipeline, request: ReplayRequest) -> Plan:
    """Plan the input of a changefeed's tables as into an empty lake, with people's decisions."""
    decided, listing = pipeline.lake.decisions(), request.listing
    if request.begins:
        rules = pipeline.planner.rules(decided)
        recipes = replace(rules.recipes, compared=False)
        facts = FeedFacts(pipeline.settings.source_options.wire.has_positions)
        rules = replace(rules, recipes=recipes, fuse=request.fuse, waypoints=())
        return plan(listing, request.begins, rules, facts, Beginnings(frozen_tables=()))
    if not request.keep_out:
        decided = decided.without(ForgottenKeys)
    with closing(Ledger("sqlite://")) as nothing_read:
        settings = request.settings or pipeline.settings
        plan_request = PlanRequest(request.fuse, request.bases, request.renames, request.frozen_tables)
        planner = Planner(settings, pipeline.source, EmptyLake(decided), nothing_read, plan_request)
        return planner.plan(listing if request.hold_expired else replace(listing, gone={}))[1]


class Replay:
    """Windows of a changefeed's tables, decoded again."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._stats: dict[Life, Mapping[str, FileStats]] = {}

    def _stats_of(self, source: Life) -> Mapping[str, FileStats]:
        """Return the statistics of the files that were read for a table of the source, by path."""
        if source not in self._stats:
            pipeline = self._pipeline
            entries = pipeline.ledger.files_of(pipeline.settings.name, source)
            self._stats[source] = {file_stats.path: file_stats for file_stats in entries}
        return self._stats[source]

    def shares(self, step: ApplyRows, since: Tso, until: Tso, key: pa.Table | None = None) -> Iterator[Sequence[int]]:
        """Return the files of a window that may have changes at positions in (since, until], some at a time.

        With `key`, a row in the key's columns of then, files that cannot have it are left out.
        """
        stats = self._stats_of(step.life.source)
        ranges = {
            of: () if key is None else key_ranges(key, schema) for of, (_, schema) in step.reading.schemas.items()
        }
        places = (
            place
            for place, file in enumerate(step.files)
            if file.may_hold(file_stats := stats.get(file.path), since, until)
            and _may_have_key(step, file, file_stats, ranges[file.root, file.version])
        )
        return in_shares(places, lambda place: step.files[place].size, _SHARE_FILES, _SHARE_BYTES)

    def decoded(self, readings: Iterable[Reading[PickedT]]) -> Iterator[tuple[Reading[PickedT], PickedT | None, str]]:
        """Read files side by side, and yield in their order what is picked of them.

        Records that do not fit are passed over. Of files that cannot be read nothing is, but there is a sentence.
        Raises CdcError for a file that was listed and is gone.
        """
        with ThreadPoolExecutor(_READERS) as pool:
            for picked in pool.map(self._picked, list(readings)):
                yield from picked

    def _picked(self, reading: Reading[PickedT]) -> list[tuple[Reading[PickedT], PickedT | None, str]]:
        step, files = reading.step, reading.files
        try:
            window = decode_window(replace(step, sets_aside=True), self._pipeline.source.reader, files)
            return [(reading, reading.pick(window), "")]
        except (FileNotFoundError, CdcError, pa.ArrowInvalid) as error:
            if isinstance(error, CdcError) and gone_file(error):
                raise
            if len(files) == 1:
                return [(reading, None, f"{step.files[files[0]].path} cannot be read: {error}")]
            return [picked for place in files for picked in self._picked(replace(reading, files=[place]))]

    def changes(self, step: ApplyRows, since: Tso, until: Tso) -> Iterator[pa.Table]:
        """Yield the changes of a window at positions in (since, until], as its table takes them in, in their order.

        What does not fit into memory lies on disk, but for a table without key: only all of a window says what came
        twice. Raises MalformedData for records that do not fit.
        """
        reader, stats = self._pipeline.source.reader, self._stats_of(step.life.source)
        shares: Iterable[Sequence[int]] = [range(len(step.files))]
        if step.schema.key:
            if not step.is_snapshot:
                step = replace(step, lo=max(step.lo, since), hi=min(step.hi, until))
            shares = list(self.shares(step, -1 if step.is_snapshot else step.lo, step.hi))
        if not any(shares):
            return
        kind, reports = kind_of(step), [look_beside(step, stats, reader)]
        with scratch() as directory:
            sort: PositionSort | None = None
            for share in shares:
                window = decode_window(replace(step, sets_aside=False), reader, share)
                reports.append(window.report)
                if window.changes.num_rows:
                    sort = sort or PositionSort(directory, position_column(window.changes))
                    sort.add(window.changes)
            report = merge_reports(reports, 0)
            if report.failed:
                effect = "Without it the changes of the range are not known, so none are told"
                raise rejected(step, report, effect, "Ask for the changes before it, and for those after it.")
            if sort is None:
                return
            for changes in sort.ranges() if step.schema.key else [window.changes]:
                rows = kind.finished(reduced(step, [Window(changes)]).changes, step)
                at = rows.column(POSITION)
                yield rows.filter(pc.and_(pc.greater(at, since), pc.less_equal(at, until)))


def _may_have_key(step: ApplyRows, file: DataFile, stats: FileStats | None, numbers: Sequence[KeyRange]) -> bool:
    """Return whether the key of these numbers may be in a file by the ranges that are known of its key columns."""
    of_file, schema = step.reading.schemas[file.root, file.version][1], step.schema
    if stats is None or (stats.size, stats.etag) != (file.size, file.etag) or of_file.key != schema.key:
        return True
    key_ranges = {key_range.column: key_range for key_range in numbers}
    for theirs in stats.keys:
        own = key_ranges.get(theirs.column)
        if own is None or own.unit != theirs.unit or own.low in range(theirs.low, theirs.high + 1):
            continue
        if arrow_type(of_file.column(own.column)) == arrow_type(schema.column(own.column)):  # no DDL makes it another
            return False
    return True
