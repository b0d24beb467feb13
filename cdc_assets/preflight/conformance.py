"""Can this changefeed be followed? What its settings, names and first bytes tell, before any row is applied.

    Listing + History + SinkOptions + sample ──conformance──▶ Findings       all but the sample is pure
    History ──conformance_holds──▶ tables that are held in the plan

A finding's severity says what happens: `stop` (nothing is applied), `hold` (its table is, or will be, held where it
matters) or `warning` (rows are applied, and a person should know).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow.compute as pc

from cdc_assets.errors import BucketMissing, InputError, MalformedData, StorageUnavailable
from cdc_assets.formats import COMMIT_TS, decoder
from cdc_assets.history.history import History, TableHistory
from cdc_assets.model.sink_options import SinkOptions
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.steps import HoldTable
from cdc_assets.model.tso import Tso, wall_clock_ms
from cdc_assets.model.wording import counted
from cdc_assets.sources.storage_sink.changefeed import Opener, missing_numbers
from cdc_assets.types.collations import is_approximate, is_plain

__all__ = ["SAMPLE_BYTES", "SAMPLE_FILES", "Finding", "Severity", "conformance", "conformance_holds", "take_sample"]

SAMPLE_FILES = 20
SAMPLE_BYTES = 64 << 10
"""At most this much is read of a file, and of this many files."""

SOFT_DELETE = ("_tidb_softdelete_time", "_tidb_origin_ts")
"""Columns of TiDB's soft-delete and active-active tables (`ticdc:pkg/common/event/active_active.go`)."""


class Severity(str, enum.Enum):
    """What a finding does."""

    STOP = "stop"
    HOLD = "hold"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about the changefeed. `table` is "" for all tables; the sentence tells the risk and what to do."""

    rule: str
    severity: Severity
    table: str
    sentence: str

    @property
    def text(self) -> str:
        """The sentence with the table that it is about."""
        return f"{self.table}: {self.sentence}" if self.table else self.sentence


Rule = Callable[[Listing, History, SinkOptions], Iterable[Finding]]


def conformance(
    listing: Listing,
    history: History,
    options: SinkOptions,
    sample: Mapping[str, bytes] | None = None,
    *,
    accept_unordered: bool = True,
    collations_told: bool = False,
) -> tuple[Finding, ...]:
    """Return what is to be known of a changefeed, the gravest first. `sample` holds the heads of data files by path.

    `collations_told` says that the settings tell whether the source has new collations.
    """
    found = [Finding("listing", Severity.WARNING, "", sentence) for sentence in listing.warnings]
    if not options.has_commit_ts:
        found.append(_without_commit_ts(options, accept_unordered))
    for rule in RULES:
        found.extend(rule(listing, history, options))
    found.extend(_text_keys(history, collations_told))
    found.extend(_sampled(listing, history, options, sample or {}))
    return tuple(sorted(found, key=lambda finding: list(Severity).index(finding.severity)))


def conformance_holds(history: History) -> Iterator[HoldTable]:
    """Yield the tables that are held whatever their data say, from the version on that makes them so."""
    for life, table in history.lives.items():
        for event in table.events:
            names = [c.name for c in event.after.columns if c.name.lower() in SOFT_DELETE]
            if names:
                yield HoldTable(life, event.at, _soft_delete(names), ("Leave the table out of the changefeed.",))
                break


def take_sample(opener: Opener, tables: Iterable[Sequence[DataFile]]) -> dict[str, bytes]:
    """Read the heads of a few of each table's newest files, SAMPLE_FILES in all. What cannot be read is left out."""
    newest = [sorted(files, key=lambda file: (file.version, file.date, file.number))[-2:] for files in tables]
    chosen = [files[-turn] for turn in (1, 2) for files in newest if len(files) >= turn]
    heads: dict[str, bytes] = {}
    for file in chosen[:SAMPLE_FILES]:
        place = f"{opener.prefix}/{file.path}"
        try:
            heads[file.path] = opener.attempt(
                lambda place=place: bytes(opener.file_system.cat_file(place, start=0, end=SAMPLE_BYTES)),  # type: ignore[misc]
                file.path,
            )
        except (FileNotFoundError, InputError, BucketMissing):
            continue
        except StorageUnavailable:
            break  # whoever needs the file will say so, for its table
    return heads


# --- the changefeed's settings ----------------------------------------------------------------------------------------


def _warning(rule: str, sentence: str, table: object = "") -> Finding:
    return Finding(rule, Severity.WARNING, str(table), sentence)


def _live(history: History) -> Iterator[TableHistory]:
    return (table for table in history.lives.values() if table.name is not None)


def _without_commit_ts(options: SinkOptions, accepted: bool) -> Finding:
    canal = options.protocol == "canal-json"
    option = "enable-tidb-extension=true in the sink URI" if canal else "include-commit-ts = true under [sink.csv]"
    return Finding(
        "commit-ts",
        Severity.WARNING if accepted else Severity.STOP,
        "",
        "rows carry no commit-ts: their order is that of the files, rows above the checkpoint cannot be told from "
        f"others, and rows delivered twice cannot be recognised. Start the changefeed anew with {option}; apply wants "
        "--accept-unordered for this one.",
    )


def _raw_updates(_: Listing, history: History, options: SinkOptions) -> Iterator[Finding]:
    if not options.output_raw_change_event:
        return
    if options.protocol != "csv" or options.output_old_value:
        yield _warning(
            "raw-updates",
            "output-raw-change-event is on: an update that changes a key is not split, and its images are not in order "
            "within a transaction. They are applied right, deletes first; other readers of these files may lose rows.",
        )
        return
    yield _warning(
        "raw-updates",
        "output-raw-change-event is on without old values: an update that changes a key which is not the clustered "
        "primary key tells only the new row, and the row under the old key stays in the lake. Set "
        "output-raw-change-event = false or output-old-value = true in the changefeed and start it anew.",
    )
    for table in _live(history):
        text = " ".join(event.file.query for event in table.events)
        primary = {column.name for column in table.schema.columns if column.is_pk}
        if table.schema.key and (
            set(table.schema.key) != primary or re.search(r"\bNONCLUSTERED\b", text, re.IGNORECASE)
        ):
            yield _warning(
                "raw-updates",
                "its key is not a clustered primary key: key-changing updates leave the old row",
                table.name,
            )


def _keys(_: Listing, history: History, options: SinkOptions) -> Iterator[Finding]:
    blind = (
        options.delete_only_output_handle_key_columns
        if options.protocol == "canal-json"
        else not options.output_old_value
    )
    for table in _live(history):
        if table.schema.key:
            continue
        if blind:
            yield Finding(
                "keys",
                Severity.HOLD,
                str(table.name),
                "no key is known and the rows carry no old values: the table is held at its first update, because the "
                "row that changed cannot be found. Name the columns that identify a row in the setting keys, or start "
                "the changefeed anew with old values.",
            )
        else:
            yield _warning(
                "keys",
                "no key is known, so rows are counted, not identified. Name the columns that identify a row in the "
                "setting keys if there are any.",
                table.name,
            )


def _members(_: Listing, history: History, options: SinkOptions) -> Iterator[Finding]:
    if options.protocol != "canal-json" or options.content_compatible:
        return
    for table in _live(history):
        names = [c.name for c in table.schema.columns if c.type in ("ENUM", "SET") and c.elems is None]
        if names:
            yield Finding(
                "members",
                Severity.HOLD,
                str(table.name),
                f"{_listed(names)}: Canal-JSON gives ENUM and SET as numbers, and no file tells the names of the "
                "members. The table is held at the first such value. Let the changefeed include the CREATE TABLE, set "
                "content-compatible = true in it, or use TiCDC 8.5.4 or later of the new architecture.",
            )


def _expiry(_: Listing, __: History, options: SinkOptions) -> Iterator[Finding]:
    if options.file_expiration_days > 0:
        yield _warning(
            "expiry",
            f"file-expiration-days = {options.file_expiration_days}: TiCDC deletes files by the date in their path, "
            "applied or not, and a table whose name has a date in it altogether. Apply more often than that; a table "
            "cannot be rebuilt and a quarantined record not be replayed from files that are gone.",
        )


def _soft_delete(names: Iterable[str]) -> str:
    return (
        f"{_listed(names)}: a soft-delete or active-active table. TiCDC never writes its hard deletes, and whether a "
        "soft delete comes as a delete or as an update depends on settings that no file tells, so the lake table would "
        "keep rows that the source does not show. Leave the table out of the changefeed."
    )


def _soft_deleted(_: Listing, history: History, __: SinkOptions) -> Iterator[Finding]:
    for hold in conformance_holds(history):
        name = history.lives[hold.life].name
        yield Finding("soft-delete", Severity.HOLD, str(name or hold.life.born_as), hold.reason)


def _partition_separator(_: Listing, history: History, options: SinkOptions) -> Iterator[Finding]:
    if options.enable_partition_separator:
        return
    yield _warning(
        "partition-separator",
        "enable-partition-separator is off: the partitions of a table write files of the same names over each other, "
        "and rows are lost for good. Set it to true in the changefeed and start it anew.",
    )
    for table in _live(history):
        if table.schema.partitioning is not None:
            yield _warning("partition-separator", "it is partitioned, so rows of it may be lost", table.name)


def _table_ids(_: Listing, __: History, options: SinkOptions) -> Iterator[Finding]:
    if options.use_table_id_as_path:
        yield _warning(
            "table-id-paths",
            "use-table-id-as-path is on: DROP DATABASE leaves no file in this layout, so its tables stay in the lake. "
            "Drop tables before their database, or drop them in the lake by hand.",
        )


def _timestamp_keys(_: Listing, history: History, options: SinkOptions) -> Iterator[Finding]:
    keys = {
        str(table.name): [c.name for c in table.schema.columns if c.name in table.schema.key and c.type == "TIMESTAMP"]
        for table in _live(history)
    }
    if any(keys.values()) and (year := _last_repeated_hour(options.timezone)):
        for table, names in keys.items():
            if names:
                yield _warning(
                    "timestamp-key",
                    f"{_listed(names)}: a TIMESTAMP in the key is written in the zone {options.timezone}, in which an "
                    f"hour is repeated each time the clock is set back (last in {year}). Two rows of that hour may "
                    "have one key in the files. Run TiCDC with --tz UTC.",
                    table,
                )


def _text_keys(history: History, told: bool) -> Iterator[Finding]:
    """Keys of text: by which collation they are matched, and where that is an approximation."""
    for table in _live(history):
        keys = [c for c in table.schema.columns if c.name in table.schema.key and c.collation is not None]
        compared = [c for c in keys if not is_plain(c.compares_by or "")]
        if compared and not told:
            names = ", ".join(f'"{c.name}" by {c.compares_by}' for c in compared)
            yield _warning(
                "text-key",
                f"the key compares {names}, so texts that differ only in trailing spaces (under a _ci collation in "
                "letter case and accents too) are one key. In a cluster that was bootstrapped with "
                "new_collations_enabled_on_first_bootstrap = false (the default before TiDB 6.0, kept by upgrades) "
                "texts compare by their bytes, and such rows would be merged here. Ask SELECT variable_value FROM "
                "mysql.tidb WHERE variable_name = 'new_collation_enabled', and give the setting new_collations "
                "(--new-collations or --old-collations).",
                table.name,
            )
        doubtful = {c.name: c.compares_by or "" for c in compared if is_approximate(c.compares_by or "")}
        if doubtful:
            yield _warning(
                "approximate-key",
                f"{_listed(doubtful)}: a key under {', '.join(sorted(set(doubtful.values())))} is matched by an "
                "approximation of TiDB's weights, which agrees for letters of the Latin, Greek and Cyrillic alphabets "
                "and kana. Keys that differ only in rarer signs may be taken for one, or for two.",
                table.name,
            )


def _last_repeated_hour(name: str) -> int | None:
    """Return the last year up to 2037 in which the zone's clock is set back."""
    zone, day = ZoneInfo(name), datetime(2037, 12, 31, tzinfo=timezone.utc)
    after = day.astimezone(zone).utcoffset()
    while day.year >= 1970:
        day -= timedelta(days=1)
        before = day.astimezone(zone).utcoffset()
        if before is not None and after is not None and before > after:
            return day.year
        after = before
    return None


# --- the names of files -----------------------------------------------------------------------------------------------


def _gaps(listing: Listing, _: History, __: SinkOptions) -> Iterator[Finding]:
    gaps = missing_numbers(listing)
    if gaps:
        (directory, _dispatcher), ranges = min(gaps.items())
        shown = f"{ranges[0][0]}" if len(ranges[0]) == 1 else f"{ranges[0][0]} to {ranges[0][-1]}"
        yield _warning(
            "missing-files",
            f"{directory} lacks the file number {shown}"
            + (
                f", and {counted(len(gaps) - 1, 'more directory lacks', 'more directories lack')} some"
                if len(gaps) > 1
                else ""
            )
            + ". Their rows are missing unless a writer skipped the numbers after a crash. Restore the files if "
            "something removed them.",
        )


def _heads(listing: Listing, _: History, __: SinkOptions) -> Iterator[Finding]:
    first: dict[tuple[str, str], int] = {}
    for file in listing.data_files:
        place = (file.directory, file.dispatcher)
        first[place] = min(first.get(place, file.number), file.number)
    late = sorted(place for place, number in first.items() if number > 1)
    if late:
        yield _warning(
            "removed-files",
            f"{late[0][0]} begins with the file number {first[late[0]]}"
            + (
                f", and {counted(len(late) - 1, 'more directory begins', 'more directories begin')} above 1"
                if len(late) > 1
                else ""
            )
            + ": earlier files were removed, by an expiry, a lifecycle rule or a reader. What they held and was not "
            "applied is lost.",
        )


def _empty(listing: Listing, _: History, __: SinkOptions) -> Iterator[Finding]:
    count = listing.ignored.get("empty object", 0)
    if count:
        yield _warning(
            "empty-files",
            f"{counted(count, 'file is', 'files are')} empty. TiCDC leaves such behind when it is interrupted, "
            "and writes their rows again; where it was not, their rows are lost. Restore the files in that case.",
        )


def _dates(listing: Listing, _: History, options: SinkOptions) -> Iterator[Finding]:
    forms = {"none": "", "year": r"\d{4}", "month": r"\d{4}-\d{2}", "day": r"\d{4}-\d{2}-\d{2}"}
    form = re.compile(forms.get(options.date_separator, ""))
    other = [file for file in listing.data_files if not form.fullmatch(file.date)]
    if other:
        yield _warning(
            "date-level",
            f"{len(other):,} of {counted(len(listing.data_files), 'data file')}, such as {other[0].path}, "
            f"{'does' if len(other) == 1 else 'do'} not have the date level of "
            f"date-separator = {options.date_separator}. Paths decide how files are read; give the sink URI and "
            "changefeed TOML exactly as TiCDC has them, unless the setting was changed in between.",
        )


RULES: tuple[Rule, ...] = (
    _soft_deleted, _keys, _members, _raw_updates, _partition_separator, _expiry, _table_ids, _timestamp_keys, _gaps,
    _heads, _empty, _dates,
)  # fmt: skip


# --- the first bytes --------------------------------------------------------------------------------------------------


def _sampled(
    listing: Listing, history: History, options: SinkOptions, sample: Mapping[str, bytes]
) -> Iterator[Finding]:
    """Read the heads as the options say; what contradicts them is told before it holds a table."""
    clocks: list[str] = []
    for file in listing.data_files:
        known = history.decoding.get((file.root, file.version))
        if file.path not in sample or known is None:
            continue
        try:
            decoded = decoder(options.protocol)(sample[file.path], file.path, *known, options)
        except MalformedData as error:
            yield Finding("decoding", Severity.HOLD, str(known[0]), error.message)
            continue
        last = pc.max(decoded.changes.column(COMMIT_TS)).as_py()
        if last is not None and file.date and _local_date(last, options.timezone)[: len(file.date)] > file.date:
            clocks.append(f"{file.path} has a row of {_local_date(last, options.timezone)}")
    if clocks:
        yield _warning(
            "zone",
            f"{clocks[0]} in the zone {options.timezone}, which is later than the day it was written: this is not the "
            "zone of the TiCDC server, or its clock was set back. TIMESTAMP values are read in that zone; give the "
            "server's --tz.",
        )


def _local_date(tso: Tso, zone: str) -> str:
    moment = datetime.fromtimestamp(wall_clock_ms(tso) / 1000, timezone.utc)
    return moment.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
