"""Findings about a storage sink: its options, the names of its files, the clock of its writer. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow.compute as pc

from cdc_assets.formats import COMMIT_TS, Decoded
from cdc_assets.model.findings import Finding
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.table_history import History
from cdc_assets.model.tso import Tso, tso_moment
from cdc_assets.model.wording import counted, range_text
from cdc_assets.preflight.conformance import live, warning
from cdc_assets.preflight.files import missing_numbers
from cdc_assets.sources.storage_sink.sink_options import SinkOptions
from cdc_assets.types.zones import zone_of


def findings(
    listing: Listing, history: History, options: SinkOptions, heads: Iterable[tuple[DataFile, Decoded]]
) -> Iterator[Finding]:
    """Yield the findings from the options, the names of files and the decoded heads of data files."""
    for rule in RULES:
        yield from rule(listing, history, options)
    yield from _clock(heads, history, options)


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
    yield warning(
        "raw-updates",
        "output-raw-change-event is on without old values: an update that changes a key which is not the clustered "
        "primary key has only the new row, and the row under the old key stays in the lake. Set "
        "output-raw-change-event = false or output-old-value = true in the changefeed and start it again.",
    )
    for table in live(history):
        text = " ".join(event.file.query for event in table.events)
        primary = {column.name for column in table.schema.columns if column.is_pk}
        if table.schema.key and (
            set(table.schema.key) != primary or re.search(r"\bNONCLUSTERED\b", text, re.IGNORECASE)
        ):
            yield warning(
                "raw-updates",
                "the key of these tables is not a clustered primary key: key-changing updates leave the old row.",
                table.name,
            )


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


_TRACELESS: Mapping[str, tuple[str, str]] = {
    "truncate table": ("TRUNCATE TABLE", "the rows stay in the lake"),
    "drop table": ("DROP TABLE", "the table stays in the lake, and a later one of its name continues it"),
    "drop schema": ("DROP DATABASE", "its tables stay in the lake"),
    "rename table": ("RENAME TABLE", "the table stays, and the rows of its new name begin another"),
    "recover table": ("RECOVER and FLASHBACK TABLE", "the restored rows are missing"),
    "drop table partition": ("DROP PARTITION", "the rows of the partition stay"),
    "truncate table partition": ("TRUNCATE PARTITION", "the rows of the partition stay"),
    "exchange table partition": ("EXCHANGE PARTITION", "the rows of both tables stay where they were"),
    "reorganize table partition": ("REORGANIZE PARTITION", "a later DDL of a partition may delete other rows"),
    "modify column": (
        "MODIFY and CHANGE COLUMN",
        "another order of columns, names that two columns exchange, and from the old architecture another order of "
        "ENUM and SET members, are not seen, so values may be read into the wrong column or member",
    ),
    "set default value": ("SET DEFAULT", "a hidden ADD COLUMN before it is taken to have had this default"),
}
"""DDL that leave no trace in files if an event filter hides them: TiCDC's name of the event -> DDL, consequence.

A hidden ADD or DROP COLUMN is seen in the columns of the next schema file.
"""
_ALIASES = {"drop database": "drop schema"}
_OF_ALTER_TABLE = (
    "drop table partition", "truncate table partition", "exchange table partition", "reorganize table partition",
    "modify column", "set default value",
)  # fmt: skip
_WIDER: Mapping[str, tuple[str, ...]] = {
    "all ddl": tuple(_TRACELESS),
    "alter table": _OF_ALTER_TABLE,
    "multi schema change": ("modify column", "set default value"),
}
_ROW_EVENTS = {"all dml", "insert", "update", "delete"}


def _event_filters(_: Listing, __: History, options: SinkOptions) -> Iterator[Finding]:
    for one in options.event_filters:
        whose = f"the event filter for {', '.join(one.matcher) or 'no table'}"
        named = [_ALIASES.get(event, event) for event in one.events]
        events = (narrow for event in named for narrow in _WIDER.get(event, (event,)))
        hidden = dict.fromkeys(event for event in events if event in _TRACELESS)
        if one.statements and not hidden:
            hidden = dict.fromkeys(_TRACELESS)
        if hidden:
            lost = "; ".join(f"{ddl}: {follows}" for ddl, follows in map(_TRACELESS.__getitem__, hidden))
            how = "hides DDL by their text; if these are among them," if one.statements else "hides DDL, of which"
            yield warning(
                "event-filters",
                f"{whose} {how} the files have no trace. {lost}. Let these DDL through and start the changefeed "
                "again, or rebuild the tables after each.",
            )
        if one.expressions or _ROW_EVENTS & set(one.events):
            yield warning(
                "event-filters",
                f"{whose} leaves out rows: the lake holds the changefeed's rows, which are not all of the source's.",
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
    settled = [one for one in listing.settled if not form.fullmatch(one.date)]
    if other or settled:
        count = len(other) + sum(one.files for one in settled)
        shown = other[0].path if other else settled[0].directory
        yield warning(
            "date-level",
            f"data files do not have the date level of date-separator = {options.date_separator}. Paths decide how "
            "files are read; give the sink URI and changefeed TOML exactly as TiCDC has them, unless the setting was "
            "changed in between.",
            detail=f"{count:,} of {counted(listing.file_count, 'data file')}, such as {shown}",
        )


Rule = Callable[[Listing, History, SinkOptions], Iterable[Finding]]


def _misspelt(_: Listing, __: History, options: SinkOptions) -> Iterator[Finding]:
    for name, known in options.misspelt:
        yield warning(
            "sink-parameters",
            "parameters of the sink URI that TiCDC does not know are passed over, as TiCDC does. If its sink URI has "
            "them in another spelling, correct them: they decide how its files are read.",
            detail=f"{name} (like {known})",
        )


RULES: tuple[Rule, ...] = (
    _misspelt, _raw_updates, _partition_separator, _expiry, _table_ids, _event_filters, _gaps, _heads, _empty, _dates,
)  # fmt: skip


def _clock(heads: Iterable[tuple[DataFile, Decoded]], history: History, options: SinkOptions) -> Iterator[Finding]:
    """Find rows that are later than the day in the path of their file."""
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


def _local_date(tso: Tso, zone: str) -> str:
    return tso_moment(tso).astimezone(zone_of(zone)).strftime("%Y-%m-%d")
