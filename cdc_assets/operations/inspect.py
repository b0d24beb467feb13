"""The contents of a changefeed's prefix, and whether it can be followed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_assets.errors import CdcError
from cdc_assets.features.dumps.report import DumpInspection, describe_dump
from cdc_assets.model.decisions import Decisions
from cdc_assets.model.masks import Mask
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.report.findings import grouped
from cdc_assets.report.landings import describe_landing
from cdc_assets.report.tables import Inspection, TableText, describe_tables

if TYPE_CHECKING:
    from cdc_assets.formats.decoded import Content
    from cdc_assets.model.findings import Finding
    from cdc_assets.model.landed import Landed
    from cdc_assets.model.table_history import History
    from cdc_assets.settings.config import ChangefeedSettings
    from cdc_assets.settings.lake import LakeSettings
    from cdc_assets.sources import InitialSource, Source

_WORKERS = 8
"""The number of tables whose first rows are read in parallel."""


def inspect_changefeed(settings: ChangefeedSettings, lake: LakeSettings | None = None) -> Inspection:
    """List a changefeed and describe it: reads `metadata`, schema files and a little of data files, or topics.

    Of a `lake` it reads what people decided, so that nothing is shown of rows whose values are hidden by that.
    """
    tables, listing, findings, landed = _looked_at(settings, None, _decided(settings, lake))
    return Inspection(
        settings.name,
        settings.uri,
        listing.checkpoint,
        tso_time(listing.checkpoint),
        tables,
        listing.ignored,
        listing.problems,
        grouped(findings),
        () if landed is None else describe_landing(settings.name, landed, {}).partitions,
    )


def inspect_initial(initial: Sequence[InitialSource]) -> tuple[DumpInspection, ...]:
    """Describe the tables from before a changefeed; reads schemas, and the first rows of every table.

    Raises what `InitialSource.dump` raises.
    """
    inspections = []
    for source in initial:
        dump = source.dump()
        with ThreadPoolExecutor(_WORKERS) as pool:
            glances = dict(zip((table.id for table in dump.tables), pool.map(source.glance, dump.tables), strict=True))
        inspections.append(describe_dump(dump, glances))
    return tuple(inspections)


def conformance_report(settings: ChangefeedSettings, lake: LakeSettings | None = None) -> tuple[Finding, ...]:
    """Return the findings about a changefeed before it is applied, the most important first.

    Of topics with a `lake` this is as far as they are landed there, else all that they hold is read.

    Reads `metadata`, schema files and the heads of a few data files. What stops or holds is severity STOP or HOLD.
    """
    return _looked_at(settings, lake, _decided(settings, lake))[2]


def _decided(settings: ChangefeedSettings, lake: LakeSettings | None) -> Decisions | None:
    """Return the decisions of people, None where nobody can tell; without `privacy_key` they hide no values."""
    if settings.privacy_key is None:
        return Decisions()
    if lake is None:
        return None
    if lake.local_directory is not None and not lake.local_directory.exists():
        return Decisions()
    from cdc_assets.operations.opening import open_state

    with suppress(CdcError), open_state(lake, settings.name, settings.namespace) as state:
        return state.decisions.read()
    return None


def _looked_at(
    settings: ChangefeedSettings, lake: LakeSettings | None, decided: Decisions | None
) -> tuple[tuple[TableText, ...], Listing, tuple[Finding, ...], Landed | None]:
    from cdc_assets.features.dumps.pipeline import earliest_row, is_doubted
    from cdc_assets.features.dumps.planning import earliest
    from cdc_assets.landing.opening import open_feed
    from cdc_assets.pipeline.features import hiding
    from cdc_assets.preflight.conformance import conformance, take_sample

    with open_feed(settings, lake) as feed:
        listing = feed.source.listing()
        begun = earliest(listing, {}, settings.initial.start_ts)
        history = _history(settings, listing, begun)
        if is_doubted(history):
            row = earliest_row(feed.source, settings.source_options.wire, listing, history)
            history = _history(settings, listing, min(begun, row or begun))
        files: dict[TableId, list[DataFile]] = {}
        for file in listing.data_files:
            for table, _ in history.decoding.get((file.root, file.version), ()):
                files.setdefault(table, []).append(file)
        sample = take_sample(feed.source, files.values())
        findings = conformance(
            listing,
            history,
            settings.source_options,
            settings.rules,
            sample,
            accept_unordered=settings.accept_unordered,
            patterns=settings.patterns,
            collations_known=settings.new_collations is not None,
            hides=hiding(decided),
        )
        tables = describe_tables(listing, history)
        if settings.masks:
            counts = _masked_values(feed.source, listing, history, sample)
            tables = [_with_counts(text, counts.get(text.table, {})) for text in tables]
        return tuple(tables), listing, findings, None if feed.landing is None else feed.landing.landed()


def _masked_values(
    source: Source, listing: Listing, history: History, sample: Mapping[str, Content]
) -> dict[str, Counter[str]]:
    """Return the number of values of each masked column in the sample, by table; what cannot be read of it has none."""
    from cdc_assets.formats import decode_among

    shown = {table: str(table.name or table.names[-1][0]) for table in history.lives.values()}
    names = {name.folded: newest for table, newest in shown.items() for name, _, _ in table.names}
    table_counts: dict[str, Counter[str]] = {}
    for table, newest in shown.items():
        columns = (column.name for column in table.schema.columns if column.mask is not None)
        table_counts.setdefault(newest, Counter()).update(dict.fromkeys(columns, 0))
    for file in (data_file for data_file in listing.data_files if data_file.path in sample):
        tables = [(name, _counted(schema)) for name, schema in history.decoding.get((file.root, file.version), ())]
        masked = {column.name for _, schema in tables for column in schema.columns if column.mask is not None}
        if not masked:
            continue
        try:
            owner, decoded = decode_among(source.reader.wire(file.path), sample[file.path], file.path, tables)
        except CdcError:
            continue
        counts = table_counts.setdefault(names.get(owner.folded, str(owner)), Counter())
        for name in masked.intersection(decoded.changes.column_names):
            counts[name] += decoded.changes.num_rows - decoded.changes.column(name).null_count
    return table_counts


def _counted(schema: TableSchema) -> TableSchema:
    """Return a schema whose masks leave of each value that it is there."""
    presence_mask = Mask("constant", "*")
    return replace(
        schema, columns=tuple(c if c.mask is None else replace(c, mask=presence_mask) for c in schema.columns)
    )


def _with_counts(table: TableText, counts: Mapping[str, int]) -> TableText:
    rows = (
        replace(row, notes={**row.notes, "values of the sample": counts[row.column]}) if row.column in counts else row
        for row in table.fidelity
    )
    return replace(table, fidelity=tuple(rows))


def _history(settings: ChangefeedSettings, listing: Listing, begun: Tso) -> History:
    """Return the history of a feed with its dumps, for a lake that holds nothing yet."""
    from cdc_assets.history.history import read_history

    return read_history(
        listing.schema_files,
        listing.checkpoint,
        settings.rules,
        imports=listing.imports,
        begun=begun,
        missed=listing.missed,
    )
