"""Findings about topics: TiCDC's options, columns that rows leave open, values that messages have lost. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from cdc_assets.ddl import CreateTableStatement, Rename, is_statement, statement
from cdc_assets.formats.decoded import Decoded
from cdc_assets.model.findings import Finding
from cdc_assets.model.schema_changes import RenameColumn
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.table_history import Dropped, History
from cdc_assets.model.wording import counted
from cdc_assets.preflight.changefeeds import TRACELESS_IN_TOPICS, left_out, left_rows, misspelt_parameters
from cdc_assets.preflight.conformance import listed, live, warning
from cdc_assets.sources.topics.topic_options import TopicOptions


def findings(
    listing: Listing, history: History, options: TopicOptions, heads: Iterable[tuple[DataFile, Decoded]]
) -> Iterator[Finding]:
    """Yield the findings from the options, the schemas and the decoded messages."""
    if options.required_acks != -1:
        yield warning(
            "required-acks",
            f"required-acks is {options.required_acks}, so a broker may lose rows that it has confirmed, and a "
            "table would be called complete without them. Set required-acks to -1, which is TiCDC's default.",
        )
    yield from misspelt_parameters(options.misspelt, "messages")
    yield from left_out(options.event_filters, TRACELESS_IN_TOPICS if options.sends_ddl else {}, "topics")
    if options.leaves_old_keys:
        yield from left_rows(history)
    for setting, sentence in options.losses:
        yield warning("connector-settings", sentence, detail=setting)
    yield from _unread(listing, history)
    yield from _without_ddl(listing, history, options)
    yield from _empty_in_snapshot(history, options)
    yield from _unsent(history)
    yield from _replaced(history)
    yield from _renamed_by_copy(history)
    yield from _inferred(listing, history, options)
    yield from _lost(heads, history)


def _unread(listing: Listing, history: History) -> Iterator[Finding]:
    """Find partitions that lost messages before they could be read, and after the newest dump was taken."""
    newest_base = max((table.base.at for table in history.lives.values() if table.base is not None), default=0)
    for missed in listing.unread:
        if missed.through > newest_base:
            yield warning(
                "expired-unread",
                "the first messages of these partitions had expired when they were first read: a table that has no "
                "later ones is not known here, and nothing says that it is missing. Bring such tables from a dump "
                "taken since, or from another snapshot or scan; or accept that there are none, or that they are not "
                "needed, which is written down: cdc-assets landing accept-loss TOPIC PARTITION FIRST LAST.",
                detail=f"{missed.lost.partition} {missed.lost.start}..{missed.lost.stop - 1}",
            )


def _without_ddl(listing: Listing, history: History, options: TopicOptions) -> Iterator[Finding]:
    """Find tables whose columns rows show, and of which no DDL comes: what then never arrives."""
    files = listing.schema_files
    with_ddl = {file.table.folded for file in files if file.query}
    names = {table.name for table in live(history)}
    sentence = (
        "no message has the DDL of these tables; what their rows show is followed: a new column is added and NULL in "
        "old rows, one that is gone stays, with its values in old rows and NULL in new ones, a renamed one counts as "
        "gone and new. TRUNCATE, DROP TABLE, RENAME TABLE, dropped partitions and values that an ALTER changed never "
        f"arrive, so such a table stays as it was: rebuild it from a new snapshot then. {_way(options)}"
    )
    for table in sorted({file.table for file in files if file.grows and file.table in names}):
        if table.folded not in with_ddl:
            yield warning("no-ddl", sentence, table)


def _empty_in_snapshot(history: History, options: TopicOptions) -> Iterator[Finding]:
    """Find tables that are complete because a snapshot has no row of them, though it may have left them out."""
    for table in () if options.snapshots.is_listed else live(history):
        if table.events[0].file.filling.is_empty_snapshot and table.gap is None:
            yield warning(
                "empty-in-snapshot",
                "the connector's snapshot has the CREATE TABLE of these tables, and no row: they were empty then, or "
                "the connector leaves them out, so that nothing of them ever comes. Give its configuration (--config), "
                "whose lists of tables say which.",
                table.name,
            )


def _unsent(history: History) -> Iterator[Finding]:
    """Find tables whose rows a foreign key changes without a word in the source's log."""
    for table in live(history):
        if table.unsent:
            yield warning(
                "unsent-cascades",
                "foreign keys of these tables change or delete rows together with those that they refer to. InnoDB "
                "does so by itself, and no binary log of MariaDB, or of MySQL before 9.6, has it: such rows stay as "
                "they were. Let what deletes or changes rows do it in these tables too, or have verify --repair bring "
                "them from the source.",
                table.name,
                "; ".join(f"{column}: {how}" for column, how in table.unsent.items()),
            )


def _replaced(history: History) -> Iterator[Finding]:
    """Find tables that began with rows alone, and that a CREATE TABLE replaced though no DROP came before it."""
    for table in history.lives.values():
        last = table.events[-1]
        is_replaced = isinstance(last, Dropped) and isinstance(statement(last.file), CreateTableStatement)
        if is_replaced and table.events[0].file.approximate and not is_statement(last.file.query, "CREATE", "OR"):
            yield warning(
                "replaced-by-create",
                "rows of these tables came before their CREATE TABLE, and no DROP came between: the rows from before "
                "it are not in the table any more. If they belong to it, bring the table anew from a dump or a "
                "snapshot; if an event filter hides the DROP, nothing is missing.",
                table.life.source,
                f"CREATE TABLE at {last.file.version}",
            )


def _renamed_by_copy(history: History) -> Iterator[Finding]:
    """Find columns that gh-ost gave another name in a copy whose rows the feed does not have."""
    for table in live(history):
        for event in table.events:
            ddl_statement = statement(event.file)
            if not isinstance(ddl_statement, Rename) or not ddl_statement.old.table.lower().endswith("_gho"):
                continue
            names = [change.new for change in event.hidden if isinstance(change, RenameColumn)]
            if names:
                yield warning(
                    "renamed-by-copy",
                    "gh-ost gave columns of these tables other names, and the feed does not have the rows that it "
                    "copied. Their values are taken as copied (--approve-renamed-columns); with "
                    "--skip-renamed-columns the source lost them. Then let verify --repair bring what it has.",
                    table.name,
                    f"{', '.join(names)} at {event.at}",
                )


def _way(options: TopicOptions) -> str:
    if options.messages.of_connector:
        return "MySQL's and MariaDB's connectors send DDL with include.schema.changes = true, PostgreSQL's none."
    if not options.messages.sends_again:
        return "A changefeed with SCHEMA_CHANGES states new columns before their first row."
    sent = "TiCDC sends DDL as simple, and with enable-tidb-extension = true as canal-json"
    unsaid = "; names, lengths and types that rows do not have come from the setting schemas (--schemas)."
    return sent + ("." if options.schemas else unsaid)


def _inferred(listing: Listing, history: History, options: TopicOptions) -> Iterator[Finding]:
    """Find tables whose columns are in no DDL: what their rows leave open about them."""
    names = {table.name for table in live(history)}
    newest = {file.table: file.approximate for file in listing.schema_files if file.approximate}
    way = "Correct their CREATE TABLE in" if options.schemas else "Name a file with their CREATE TABLE in"
    for table, doubts in newest.items():
        of_columns: dict[str, list[str]] = {}
        of_all = []
        for doubt in doubts:
            column, quoted, text = doubt.partition('": ')
            of_columns.setdefault(text, []).append(f'{column}"') if quoted else of_all.append(doubt)
        if table in names:
            unsaid = f": {'; '.join(of_all)}" if of_all else ""
            yield warning(
                "inferred-columns",
                f"no DDL states these tables, and their rows leave something of them open{unsaid}. {way} the setting "
                "schemas (--schemas).",
                table,
                "; ".join(f"{', '.join(columns)}: {text}" for text, columns in of_columns.items()),
            )


def _lost(heads: Iterable[tuple[DataFile, Decoded]], history: History) -> Iterator[Finding]:
    """Values that the messages have lost or changed, of the first rows of each table."""
    notes_by_table: dict[str, Counter[tuple[str, str]]] = {}
    for file, decoded in heads:
        tables = history.decoding.get((file.root, file.version), ())
        if tables:
            notes_by_table.setdefault(str(tables[0][0]), Counter()).update(decoded.notes)
    for table, notes in notes_by_table.items():
        for rule in sorted({rule for _, rule in notes}):
            columns = sorted(column for column, of in notes if of == rule)
            count = sum(notes[column, rule] for column in columns)
            detail = f"{listed(columns)}: {counted(count, 'value')} of a sample"
            yield warning("changed-values", f"values are not as in the source: {rule}.", table, detail)
