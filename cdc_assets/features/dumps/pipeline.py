"""Dumps before a feed: checks before their tables are planned."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow.compute as pc

from cdc_assets.errors import BadSettings, MalformedData, Retryable
from cdc_assets.formats import Wire, decode_among, way_to_commit_ts
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.table_history import Held, History
from cdc_assets.model.tso import Tso
from cdc_assets.preflight.conformance import SAMPLE_FILES, take_sample
from cdc_assets.sources import Source


def refuse_dumps(listing: Listing, wire: Wire, applied: Mapping[Life, AppliedState]) -> None:
    """Refuse dumps that cannot be joined before the feed.

    Raises BadSettings if the feed's rows carry no commit-ts, and the error of a dump that cannot be read. A dump that
    tables are already based on is no longer needed, and for one that does not answer now its tables wait.
    """
    if listing.imports and not wire.has_commit_ts:
        raise BadSettings(
            "the rows of this changefeed carry no commit-ts, so it is not known which of them are already in the dump. "
            + (
                f"{way_to_commit_ts(wire)}, or omit initial."
                if wire.commit_ts_option
                else "Omit initial: the snapshot or scan of such a feed brings the rows from before it."
            )
        )
    used = {state.base.uri for state in applied.values() if state.base is not None}
    for uri, error in listing.lost_dumps.items():
        if uri not in used and not isinstance(error, Retryable):
            raise error


def silent_dumps(listing: Listing) -> tuple[str, ...]:
    """Return the sentences on dumps that do not answer and may tomorrow."""
    return tuple(str(error) for error in listing.lost_dumps.values() if isinstance(error, Retryable))


def is_doubted(history: History) -> bool:
    """Return whether a table is held because it is not known when the feed began."""
    firsts = (table.events[0] for table in history.lives.values() if table.brought is not None)
    return any(isinstance(first, Held) for first in firsts)


def earliest_row(source: Source, wire: Wire, listing: Listing, history: History) -> Tso | None:
    """Return the lowest commit-ts at the beginning of the feed's first files: it began before that."""
    first: dict[str, DataFile] = {}
    for file in sorted(listing.data_files, key=lambda file: (file.version, file.date, file.number)):
        if (file.root, file.version) in history.decoding:
            first.setdefault(file.root, file)
    chosen = sorted(first.values(), key=lambda file: file.version)[:SAMPLE_FILES]
    commit_timestamps: list[Tso] = []
    for path, head in take_sample(source, [[file] for file in chosen]).items():
        file = next(file for file in chosen if file.path == path)
        try:
            changes = decode_among(wire, head, path, history.decoding[file.root, file.version])[1].changes
        except MalformedData:
            continue
        least = pc.min(changes.column(COMMIT_TS)).as_py()
        commit_timestamps += [] if least is None else [least]
    return min(commit_timestamps, default=None)
