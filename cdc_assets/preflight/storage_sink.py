"""Findings about a storage sink: its options, the names of its files, the clock of its writer. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import pyarrow.compute as pc

from cdc_assets.formats.decoded import COMMIT_TS, Decoded
from cdc_assets.model.findings import Finding
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.table_history import History
from cdc_assets.model.tso import Tso, tso_moment
from cdc_assets.model.wording import counted, range_text
from cdc_assets.preflight.changefeeds import TRACELESS, left_out, left_rows, misspelt_parameters
from cdc_assets.preflight.conformance import live, warning
from cdc_assets.preflight.files import missing_numbers
from cdc_assets.sources.storage_sink.options import SinkOptions
from cdc_assets.types.zones import zone_of


def findings(
    listing: Listing, history: History, options: SinkOptions, heads: Iterable[tuple[DataFile, Decoded]]
) -> Iterator[Finding]:
    """Yield the findings from the options, the names of files and the decoded heads of data files."""
    for rule in RULES:
        yield from rule(listing, history, options)
    # Rows may be later than the day in the path of their file.
    for file, decoded in heads:
        last = pc.max(decoded.changes.column(COMMIT_TS)).as_py()
        if last is not None and file.date and _local_date(last, options.wire.timezone)[: len(file.date)] > file.date:
            yield warning(
                "zone",
                f"rows are later in the zone {options.wire.timezone} than the day in the path of their file: this is "
                "not the zone of the TiCDC server, or its clock was set back. TIMESTAMP values are read in that zone; "
                "give the server's --tz.",
                history.decoding[file.root, file.version][0][0],
                f"{file.path} has a row of {_local_date(last, options.wire.timezone)}",
            )


def _raw_updates(_: Listing, history: History, options: SinkOptions) -> Iterator[Finding]:
    if not options.output_raw_change_event:
        return
    if not options.wire.deletes_have_keys_only:
        yield warning(
            "raw-updates",
            "output-raw-change-event is on: an update that changes a key is not split, and its images are not in order "
            "within a transaction. They are applied in the right order; other readers of these files may lose rows.",
        )
        return
    yield from left_rows(history)


def _partition_separator(_: Listing, history: History, options: SinkOptions) -> Iterator[Finding]:
    if options.enable_partition_separator:
        return
    yield warning(
        "partition-separator",
        "enable-partition-separator is off: the partitions of a table write files of the same names over each other, "
        "and rows are lost for good. Set it to true in the changefeed and start it again.",
    )
    for table in live(history):
        if table.schema.partitioning is not None:
            yield warning("partition-separator", "these tables are partitioned: rows of them may be lost.", table.name)


def _expiry(_: Listing, __: History, options: SinkOptions) -> Iterator[Finding]:
    if options.file_expiration_days > 0:
        yield warning(
            "expiry",
            f"file-expiration-days = {options.file_expiration_days}: TiCDC deletes files by the date in their path, "
            "applied or not, and all files of a table whose name contains a date. Apply more often than that; deleted "
            "files can be used neither to rebuild a table nor to replay a quarantined record.",
        )


def _table_ids(_: Listing, __: History, options: SinkOptions) -> Iterator[Finding]:
    if options.use_table_id_as_path:
        yield warning(
            "table-id-paths",
            "use-table-id-as-path is on: DROP DATABASE writes no file in this layout, so its tables stay in the lake. "
            "Drop tables before their database, or drop them in the lake by hand.",
        )


def _gaps(listing: Listing, _: History, __: SinkOptions) -> Iterator[Finding]:
    for (directory, _dispatcher), ranges in sorted(missing_numbers(listing).items()):
        yield warning(
            "missing-files",
            "numbers of files are missing. Their rows are missing unless a writer skipped the numbers after a crash. "
            "Restore the files if something removed them.",
            detail=f"{directory} lacks {', '.join(map(range_text, ranges))}",
        )


def _heads(listing: Listing, _: History, __: SinkOptions) -> Iterator[Finding]:
    first: dict[tuple[str, str], int] = {(settled.directory, ""): 1 for settled in listing.settled}
    for file in listing.data_files:
        place = (file.directory, file.dispatcher)
        first[place] = min(first.get(place, file.number), file.number)
    for (directory, _dispatcher), number in sorted(first.items()):
        if number > 1:
            yield warning(
                "removed-files",
                "files are not numbered from 1: earlier ones were removed, by an expiry, a lifecycle rule or a reader. "
                "Their rows that were not applied are lost.",
                detail=f"{directory} begins with {number}",
            )


def _empty(listing: Listing, _: History, __: SinkOptions) -> Iterator[Finding]:
    count = listing.ignored.get("empty object", 0)
    if count:
        yield warning(
            "empty-files",
            "files are empty. TiCDC leaves empty files when it is interrupted, and writes their rows again; if it was "
            "not interrupted, their rows are lost. Restore the files in that case.",
            detail=counted(count, "file"),
        )


def _dates(listing: Listing, _: History, options: SinkOptions) -> Iterator[Finding]:
    forms = {"none": "", "year": r"\d{4}", "month": r"\d{4}-\d{2}", "day": r"\d{4}-\d{2}-\d{2}"}
    form = re.compile(forms.get(options.date_separator, ""))
    other = [file for file in listing.data_files if not form.fullmatch(file.date)]
    settled = [settled_files for settled_files in listing.settled if not form.fullmatch(settled_files.date)]
    if other or settled:
        count = len(other) + sum(settled_files.files for settled_files in settled)
        shown = other[0].path if other else settled[0].directory
        yield warning(
            "date-level",
            f"data files do not have the date level of date-separator = {options.date_separator}. Paths decide how "
            "files are read; give the sink URI and changefeed TOML exactly as TiCDC has them, unless the setting was "
            "changed in between.",
            detail=f"{count:,} of {counted(listing.file_count, 'data file')}, such as {shown}",
        )


def _left_out(_: Listing, __: History, options: SinkOptions) -> Iterator[Finding]:
    yield from left_out(options.event_filters, TRACELESS, "files")


def _misspelt(_: Listing, __: History, options: SinkOptions) -> Iterator[Finding]:
    yield from misspelt_parameters(options.misspelt, "files")


Rule = Callable[[Listing, History, SinkOptions], Iterable[Finding]]
RULES: tuple[Rule, ...] = (
    _misspelt, _raw_updates, _partition_separator, _expiry, _table_ids, _left_out, _gaps, _heads, _empty, _dates,
)  # fmt: skip


def _local_date(tso: Tso, zone: str) -> str:
    return tso_moment(tso).astimezone(zone_of(zone)).strftime("%Y-%m-%d")
