"""The contents of a changefeed's prefix, and whether it can be followed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.report.dumps import DumpInspection, describe_dump
from cdc_assets.report.findings import grouped
from cdc_assets.report.landings import describe_landing
from cdc_assets.report.tables import Inspection, describe_tables

if TYPE_CHECKING:
    from cdc_assets.model.findings import Finding
    from cdc_assets.model.landed import Landed
    from cdc_assets.model.table_history import History
    from cdc_assets.settings.config import ChangefeedSettings, LakeSettings
    from cdc_assets.sources import InitialSource, Source

__all__ = ["conformance_report", "inspect_changefeed", "inspect_initial"]

_WORKERS = 8
"""The number of tables whose first rows are read in parallel."""


def inspect_changefeed(settings: ChangefeedSettings) -> Inspection:
    """List a changefeed and describe it: reads `metadata`, schema files and a little of data files, or topics."""
    listing, history, findings, landed = _looked_at(settings)
    return Inspection(
        settings.name,
        settings.uri,
        listing.checkpoint,
        tso_time(listing.checkpoint),
        tuple(describe_tables(listing, history)),
        listing.ignored,
        listing.problems,
        grouped(findings),
        () if landed is None else describe_landing(settings.name, landed, {}).partitions,
    )


def inspect_initial(initial: Sequence[InitialSource]) -> tuple[DumpInspection, ...]:
    """Describe the tables from before a changefeed; reads schemas, and the first rows of every table.

    Raises what `InitialSource.dump` raises.
    """
    found = []
    for source in initial:
        dump = source.dump()
        with ThreadPoolExecutor(_WORKERS) as pool:
            glances = dict(zip((table.id for table in dump.tables), pool.map(source.glance, dump.tables), strict=True))
        found.append(describe_dump(dump, glances))
    return tuple(found)


def conformance_report(settings: ChangefeedSettings, lake: LakeSettings | None = None) -> tuple[Finding, ...]:
    """Return the findings about a changefeed before it is applied, the most important first.

    Of topics with a `lake` this is as far as they are landed there, else all that they hold is read.

    Reads `metadata`, schema files and the heads of a few data files. What stops or holds is severity STOP or HOLD.
    """
    return _looked_at(settings, lake)[2]


def _looked_at(
    settings: ChangefeedSettings, lake: LakeSettings | None = None
) -> tuple[Listing, History, tuple[Finding, ...], Landed | None]:
    from cdc_assets.landing.opening import open_feed

    with open_feed(settings, lake) as feed:
        found = _described(settings, feed.source)
        return *found, None if feed.landing is None else feed.landing.landed()


def _described(settings: ChangefeedSettings, source: Source) -> tuple[Listing, History, tuple[Finding, ...]]:
    from cdc_assets.pipeline.imports import earliest_row, is_doubted
    from cdc_assets.planning.imports import earliest
    from cdc_assets.preflight.conformance import conformance, take_sample

    listing = source.listing()
    begun = earliest(listing, {}, settings.initial.start_ts)
    history = _history(settings, listing, begun)
    if is_doubted(history):
        row = earliest_row(source, settings.source_options.wire, listing, history)
        history = _history(settings, listing, min(begun, row or begun))
    files: dict[TableId, list[DataFile]] = {}
    for file in listing.data_files:
        for table, _ in history.decoding.get((file.root, file.version), ()):
            files.setdefault(table, []).append(file)
    sample = take_sample(source, files.values())
    accepted = settings.accept_unordered
    known, options = settings.new_collations is not None, settings.source_options
    findings = conformance(
        listing, history, options, sample, accept_unordered=accepted, collations_known=known,
        complete=settings.initial.complete, keys=settings.keys, masks=settings.masks,
    )  # fmt: skip
    return listing, history, findings


def _history(settings: ChangefeedSettings, listing: Listing, begun: Tso) -> History:
    """Return the history of a feed with its dumps, for a lake that holds nothing yet."""
    from cdc_assets.history.history import read_history

    return read_history(
        listing.schema_files,
        listing.checkpoint,
        settings.keys,
        settings.policies,
        new_collations=settings.new_collations is not False,
        zone=lambda life, version: settings.source_options.wire.timezone,
        complete=settings.initial.complete,
        imports=listing.imports,
        begun=begun,
        missed=listing.missed,
        masks=settings.masks,
    )
