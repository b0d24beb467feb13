"""Whether a changefeed can be followed, by its settings, names and first bytes, before any row is applied.

    Listing + History + SourceOptions + sample ──conformance──▶ Findings       all but the sample is pure
    History ──conformance_holds──▶ tables that are held in the plan

A finding's severity says what happens: `stop` (nothing is applied), `hold` (its table is, or will be, held where it
matters) or `warning` (rows are applied, and a person should know).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from importlib import import_module

import pyarrow.compute as pc

from cdc_assets.ddl import soft_delete_option
from cdc_assets.errors import BucketMissing, InputError, MalformedData, StorageUnavailable
from cdc_assets.formats import Wire, decode_among, way_to_commit_ts
from cdc_assets.formats.decoded import COMMIT_TS, Content, Decoded
from cdc_assets.formats.redaction import OF_FORGOTTEN, without_quotes
from cdc_assets.history.policies import Rules
from cdc_assets.model.features import parts
from cdc_assets.model.findings import UNMATCHED, Finding, Severity
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.schema import SOFT_DELETE_COLUMNS, TableId, TableSchema, soft_delete_reason
from cdc_assets.model.setting_patterns import SettingPattern, unmatched
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.steps import HoldTable
from cdc_assets.model.table_history import History, TableHistory
from cdc_assets.model.tso import FOREVER, Tso
from cdc_assets.model.wording import with_column
from cdc_assets.preflight.files import unreadable_files
from cdc_assets.sources import Source, SourceOptions
from cdc_assets.types.collations import is_approximate, is_plain
from cdc_assets.types.zones import zone_of

"""A key of fewer bytes can be found by trying."""

SAMPLE_FILES = 20
SAMPLE_BYTES = 64 << 10
"""At most this much is read of a file, and of this many files."""

_WITHOUT_TABLE = "Exclude the table from the changefeed."


def conformance(
    listing: Listing,
    history: History,
    options: SourceOptions,
    rules: Rules,
    sample: Mapping[str, Content] | None = None,
    *,
    accept_unordered: bool = True,
    patterns: Iterable[SettingPattern] = (),
    collations_known: bool = False,
    hides: Callable[[TableHistory], bool] = lambda table: False,
) -> tuple[Finding, ...]:
    """Return the findings about a feed, the most important first. `sample` are the heads of data files by path.

    `rules` and `patterns` are those of the settings; `collations_known` says that these tell whether the source has new
    collations. `hides` says of a table whether values of its rows may not be shown.
    """
    findings = [Finding("listing", Severity.WARNING, "", sentence) for sentence in listing.warnings]
    findings += unreadable_files(listing.problems)
    if options.wire.is_unordered:
        findings.append(
            Finding(
                "commit-ts",
                Severity.WARNING if accept_unordered else Severity.STOP,
                "",
                "by the given sink URI and changefeed TOML, rows carry no commit-ts: their order is that of the "
                f"{options.wire.places}, and neither rows above the checkpoint nor rows delivered twice can be "
                f"recognised. {way_to_commit_ts(options.wire)}, or accept that with --accept-unordered (setting "
                "accept_unordered).",
            )
        )
    for check in RULES:
        findings.extend(check(history, options.wire))
    findings.extend(_without_table(history, patterns))
    for _, module in parts("preflight"):
        findings.extend(module.findings(history, rules))
    findings.extend(_text_keys(history, collations_known or options.writer != "TiCDC"))
    heads, undecodable = _decoded(listing, history, options.wire, sample or {}, hides, rules.sets_aside)
    findings.extend(undecodable)
    if options.kind in RULES_OF:
        findings.extend(import_module(RULES_OF[options.kind]).findings(listing, history, options, heads))
    return tuple(sorted(findings, key=lambda finding: finding.weight))


RULES_OF: Mapping[str, str] = {
    "storage_sink": "cdc_assets.preflight.storage_sink",
    "topics": "cdc_assets.preflight.topics",
}
"""Kind of source -> module with `findings`, its own rules."""


def conformance_holds(history: History) -> Iterator[HoldTable]:
    """Yield the tables that are held whatever their data, from the version that causes it."""
    for life, table in history.lives.items():
        for event in table.events:
            names = [c.name for c in event.after.columns if c.name.lower() in SOFT_DELETE_COLUMNS]
            sign = listed(names) if names else soft_delete_option(event.file.query)
            reserved = [c.name for c in event.after.columns if c.name[:5].lower() == "_cdc_"]
            if sign:
                yield HoldTable(life, event.at, soft_delete_reason(sign), (_WITHOUT_TABLE,))
            elif reserved:
                yield HoldTable(life, event.at, _reserved(reserved), ("Exclude the column from the changefeed.",))
            if sign or reserved:
                break


def _reserved(names: Iterable[str]) -> str:
    return (
        f"{listed(names)}: a column's name that begins with _cdc_ is reserved for the lake's own columns. Exclude the "
        "column with the changefeed's column selectors."
    )


def expired_holds(
    history: History, gone: Mapping[TableId, Tso], applied: Mapping[Life, AppliedState]
) -> Iterator[HoldTable]:
    """Yield the tables that would have to be built from rows that the source has let expire."""
    through = {name.folded: at for name, at in gone.items()}
    for life, table in history.lives.items() if through else ():
        begun = life.version if table.base is None else table.base.at
        state = applied.get(life)
        for name, since, until in table.names:
            at = min(through.get(name.folded, 0), until - 1)
            if max(since, begun) < at and (state is None or state.progress.tso < at):
                reason = (
                    f"the rows of {name} through {at} have expired in the landing, and the table does not have them. "
                    "Import it anew from a dump that is newer than that."
                )
                yield HoldTable(life, life.version if state is None else state.progress.tso + 1, reason)
                break


def nameless_holds(history: History, listing: Listing) -> Iterator[HoldTable]:
    """Yield the tables under whose former name rows of a MySQL or MariaDB came when no table had it any more.

    Then the DDL that took it away was of another table of that name. Such a row is the last one of its split, which is
    cut at the versions of its table.
    """
    if not any(file.by_server for file in listing.schema_files):
        return
    owners: dict[TableId, list[tuple[Tso, Tso, Life]]] = {}
    for life, table in (*history.lives.items(), *history.unneeded.items()):
        for name, since, until in table.names:
            owners.setdefault(name.folded, []).append((since, until, life))
    versions = {(file.root, file.version) for file in listing.schema_files}
    for file in listing.data_files:
        at = FOREVER if file.bounds is None else file.bounds[1]
        if at > listing.checkpoint or (file.root, at) in versions:
            continue
        for name, _ in history.decoding.get((file.root, file.version), ()):
            owner_lives = owners.get(name.folded, [])
            before = [(until, life) for since, until, life in owner_lives if until <= at]
            if before and not any(since <= at < until for since, until, _ in owner_lives):
                until, life = max(before)
                reason = (
                    f"a row of {name} came at {at}, when no table had that name any more: the RENAME or DROP TABLE at "
                    f"{until - 1} was of another table of that name, as of a temporary one, of which a connector sends "
                    "them too. Rebuild the table from a new snapshot of the connector."
                )
                yield HoldTable(life, max(until - 1, life.version), reason)


def versionless_holds(source: Source, wire: Wire, listing: Listing, history: History) -> Iterator[HoldTable]:
    """Yield the tables that have rows in a directory of version 0, from the first of these rows on.

    TiCDC 6.5, 7.1 and 7.5 write there after a restart in which they could not read the table's schema file. The rows
    have the columns of that file, the newest one from before them. Where it cannot be told which is their first, the
    table stops from its beginning.
    """
    paths_by_root: dict[str, list[str]] = {}
    for path in sorted(listing.problems):
        place = source.place(path)
        if place is not None and place.number and not place.version:
            paths_by_root.setdefault(place.root, []).append(path)
    for root, paths in paths_by_root.items():
        schemas = {version: tables for (other, version), tables in history.decoding.items() if other == root}
        heads = [head for path in paths if (head := stamps_of_head(source, wire, path, schemas)) is not None]
        since = min((first for first, _ in heads), default=None)
        version = max((version for version in schemas if since is None or version < since), default=0)
        names = {table.folded for table, _ in schemas.get(version, ())}
        reason = (
            f"{paths[0]} lies in a directory of version 0, into which TiCDC writes when it cannot read the table's "
            f"schema file after a restart (tiflow#10284); no schema file of that version exists"
        )
        way = (
            f"decode its files by {root}/meta/schema_{version}_*.json, the newest schema file from before its rows: "
            f"move them from {root}/0 into {root}/{version}, under numbers that are free there"
        )
        for life, table in history.lives.items():
            if not table.names_after(since or 0).isdisjoint(names):
                yield HoldTable(life, max(since or 0, life.version), f"{reason}. To go on, {way}.", (way,))


def stamps_of_head(
    source: Source, wire: Wire, path: str, schemas: Mapping[Tso, Sequence[tuple[TableId, TableSchema]]]
) -> tuple[Tso, Tso] | None:
    """Return the least and greatest commit-ts at the beginning of a file, by whichever schema it can be read.

    `schemas` are the tables that a version may have rows of, and their columns. None where nothing can be read.
    """
    try:
        head = source.head(path, SAMPLE_BYTES)
    except (FileNotFoundError, InputError):
        return None
    for version in sorted(schemas, reverse=True):
        with suppress(MalformedData):
            stamps = pc.min_max(decode_among(wire, head, path, schemas[version])[1].changes.column(COMMIT_TS)).as_py()
            return None if stamps["min"] is None else (stamps["min"], stamps["max"])
    return None


def take_sample(source: Source, tables: Iterable[Sequence[DataFile]]) -> dict[str, Content]:
    """Read the heads of a few of each table's newest files, SAMPLE_FILES in all. What cannot be read is left out."""
    newest = [sorted(files, key=lambda file: (file.version, file.date, file.number))[-2:] for files in tables]
    chosen = [files[-turn] for turn in (1, 2) for files in newest if len(files) >= turn]
    heads: dict[str, Content] = {}
    for file in chosen[:SAMPLE_FILES]:
        try:
            heads[file.path] = source.head(file.path, SAMPLE_BYTES)
        except (FileNotFoundError, InputError, BucketMissing):
            continue
        except StorageUnavailable:
            break  # the run that needs the file reports it, for its table
    return heads


# --- the changefeed's settings ----------------------------------------------------------------------------------------


def warning(rule: str, sentence: str, table: object = "", detail: str = "") -> Finding:
    """Return a finding of severity `warning`: rows are applied."""
    return Finding(rule, Severity.WARNING, str(table), sentence, detail)


def live(history: History) -> Iterator[TableHistory]:
    """Yield the tables that have a name."""
    return (table for table in history.lives.values() if table.name is not None)


def _keys(history: History, wire: Wire) -> Iterator[Finding]:
    for table in live(history):
        if table.schema.key or not table.schema.columns:  # without columns a dump's table cannot be read at all
            continue
        if wire.deletes_have_keys_only:
            yield Finding(
                "keys",
                Severity.HOLD,
                str(table.name),
                "no key is known and the rows carry no old values: a table is held at its first update, because the "
                "changed row cannot be found. Name the columns that identify a row in the setting keys, or start the "
                "changefeed again with old values.",
            )
        else:
            yield warning(
                "keys",
                "no key is known, so rows are counted, not identified. Name the columns that identify a row in the "
                "setting keys if there are any.",
                table.name,
            )


def _without_table(history: History, patterns: Iterable[SettingPattern]) -> Iterator[Finding]:
    tables = [table for life, table in history.lives.items() if not life.kind]
    for text, alike in unmatched(patterns, tables) if tables else ():
        yield warning(
            UNMATCHED,
            "lines of the settings fit no table or column of the feed, so they do nothing. Correct them, unless such a "
            "table or column is to come.",
            detail=f"{text} (is {alike} meant?)" if alike else text,
        )


def _members(history: History, wire: Wire) -> Iterator[Finding]:
    if not wire.members_are_numbers:
        return
    for table in live(history):
        names = [c.name for c in table.schema.columns if c.type in ("ENUM", "SET") and c.elems is None]
        if names:
            yield Finding(
                "members",
                Severity.HOLD,
                str(table.name),
                "the rows give ENUM and SET as numbers, and nothing says the names of the members. A table is held at "
                f"the first such value. Let the changefeed include the CREATE TABLE, or {wire.members_way}.",
                listed(names),
            )


def _soft_deleted(history: History, _: Wire) -> Iterator[Finding]:
    for hold in conformance_holds(history):
        if hold.ways == (_WITHOUT_TABLE,):
            name = history.lives[hold.life].name
            yield Finding("soft-delete", Severity.HOLD, str(name or hold.life.born_as), hold.reason)


def _timestamp_keys(history: History, wire: Wire) -> Iterator[Finding]:
    keys = {
        str(table.name): [c.name for c in table.schema.columns if c.name in table.schema.key and c.type == "TIMESTAMP"]
        for table in live(history)
    }
    if any(keys.values()) and (year := _last_repeated_hour(wire.timezone)):
        for table, names in keys.items():
            if names:
                yield warning(
                    "timestamp-key",
                    f"a TIMESTAMP in the key is written in the zone {wire.timezone}, in which an hour is repeated each "
                    f"time the clock is set back (last in {year}). Two rows of that hour may have one key in the "
                    "files. Run TiCDC with --tz UTC.",
                    table,
                    listed(names),
                )


def _text_keys(history: History, collations_known: bool) -> Iterator[Finding]:
    """Find keys of text: the collation by which they are matched, and where that is an approximation."""
    for table in live(history):
        keys = [c for c in table.schema.columns if c.name in table.schema.key and c.collation is not None]
        compared = [c for c in keys if not is_plain(c.compares_by or "")]
        if compared and not collations_known:
            yield warning(
                "text-key",
                "keys are compared by their collation, so texts that differ only in trailing spaces (under a _ci "
                "collation in letter case and accents too) are one key. In a cluster that was bootstrapped with "
                "new_collations_enabled_on_first_bootstrap = false (the default before TiDB 6.0, kept by upgrades) "
                "texts compare by their bytes, and such rows would be merged here. Ask SELECT variable_value FROM "
                "mysql.tidb WHERE variable_name = 'new_collation_enabled', and give the setting new_collations "
                "(--new-collations or --old-collations).",
                table.name,
                ", ".join(f'"{c.name}" by {c.compares_by}' for c in compared),
            )
        doubtful = {c.name: c.compares_by or "" for c in compared if is_approximate(c.compares_by or "")}
        if doubtful:
            yield warning(
                "approximate-key",
                "keys are matched by an approximation of their collations, which agrees for letters of the Latin, "
                "Greek and Cyrillic alphabets and kana. Keys that differ only in rarer characters may be taken for "
                "one, or for two.",
                table.name,
                ", ".join(f'"{name}" by {collation}' for name, collation in doubtful.items()),
            )


def _last_repeated_hour(name: str) -> int | None:
    """Return the last year up to 2037 in which the zone's clock is set back."""
    clock, day = zone_of(name), datetime(2037, 12, 31, tzinfo=timezone.utc)
    after = day.astimezone(clock).utcoffset()
    while day.year >= 1970:
        day -= timedelta(days=1)
        before = day.astimezone(clock).utcoffset()
        if before is not None and after is not None and before > after:
            return day.year
        after = before
    return None


def listed(names: Iterable[str]) -> str:
    """Return names in quotes."""
    return ", ".join(f'"{name}"' for name in names)


def _decoded(
    listing: Listing,
    history: History,
    wire: Wire,
    sample: Mapping[str, Content],
    hides: Callable[[TableHistory], bool],
    sets_aside: bool,
) -> tuple[list[tuple[DataFile, Decoded]], list[Finding]]:
    """Decode the heads by the options, so that a contradiction is reported before it holds a table.

    Nothing is repeated of a table that hides values: what does not fit may be one of them.
    """
    does_not_fit = (
        "records do not fit their columns, and are set aside."
        if sets_aside
        else "records do not fit their columns: a table is held at the first of them, unless quarantine is on."
    )
    private = {name.folded for table in history.lives.values() if hides(table) for name, _, _ in table.names}
    heads, undecodable = [], []
    for file in listing.data_files:
        tables = history.decoding.get((file.root, file.version))
        if file.path in sample and tables:
            is_private = bool(private.intersection(name.folded for name, _ in tables))
            try:
                owner, decoded = decode_among(wire, sample[file.path], file.path, tables)
            except MalformedData as error:
                undecodable.append(
                    _undecodable(str(tables[0][0]), file, _unquoted(error, file) if is_private else error)
                )
                continue
            heads.append((file, decoded))
            for reject in decoded.rejects[:1]:
                place = reject.place or f"{file.place} line {reject.line}"
                text = f"{with_column(place, reject.column, reject.reason)}: {reject.reason}"
                severity = Severity.WARNING if sets_aside else Severity.HOLD
                detail = without_quotes(place, OF_FORGOTTEN) if is_private else text
                undecodable.append(Finding("decoding", severity, str(owner), does_not_fit, detail))
    return heads, undecodable


def _unquoted(error: MalformedData, file: DataFile) -> MalformedData:
    line = f" line {error.where['line']}" if error.where.get("line") else ""
    return MalformedData(without_quotes(f"{file.path}{line}", OF_FORGOTTEN), path=file.path)


def _undecodable(table: str, file: DataFile, error: MalformedData) -> Finding:
    """Return the finding about records that do not fit: in the same words for every table, else with their place."""
    begins = f'column "{error.where.get("column")}" '
    if error.message.startswith(begins):
        sentence = f"a column {error.message.removeprefix(begins)}"
        return Finding("decoding", Severity.HOLD, table, sentence, begins.removeprefix("column ").strip())
    detail = error.message.replace(file.name, file.place)
    return Finding("decoding", Severity.HOLD, table, "the first rows cannot be decoded.", detail)


Rule = Callable[[History, Wire], Iterable[Finding]]
RULES: tuple[Rule, ...] = (_soft_deleted, _keys, _members, _timestamp_keys)
