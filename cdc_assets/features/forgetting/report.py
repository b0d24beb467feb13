"""Format the report on forgotten rows as lines of text that can be filed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from cdc_assets.io.scratch import SCRATCH
from cdc_assets.model.cuts import is_unnamed
from cdc_assets.model.forgetting import ForgetReport, SearchedFiles
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import Grid, OperationReport
from cdc_assets.model.wording import counted

NOT_SEARCHED = (
    f"what killed runs left on other machines ({SCRATCH}* in their directory for temporary files), and Spark's own "
    "files everywhere (blockmgr-* and spark-* in spark.local.dir)"
)
UNKNOWN = (
    "may have one of the keys, as none of its own could be decoded. It stays until it is replayed, or you let it go "
    "with the keys by its place"
)
NO_ROWS = (
    "of these keys were there. Where some were expected: a key is given as MySQL prints it, a TIMESTAMP in UTC, and "
    "binary values as x'…'"
)


def forget_lines(report: ForgetReport) -> Iterator[str]:
    """Yield the lines on what was removed from each table, where it was searched, and what may bring the rows back."""
    summary = f"{report.changefeed}: {counted(report.keys, 'key')} of {report.table}, {report.begun} to {report.ended}"
    yield f"{summary}, run {report.run}" if report.run else summary
    for begun in report.continued:
        yield f"  continued  a run for the same keys of {begun}: what that removed is not counted here"
    for removed in report.removed:
        rewritten = f"{counted(removed.files_rewritten, 'data file')} written anew ({removed.bytes_rewritten:,} bytes)"
        copies = counted(removed.rows, "copy of a row", "copies of rows")
        copies += f" of {removed.keys} of {counted(report.keys, 'key')}" if report.keys > 1 else ""
        expired = counted(removed.snapshots_expired, "snapshot")
        orphans = counted(removed.orphans, "file that nothing referred to", "files that nothing referred to")
        yield f"  removed   {removed.life}: {copies}; {rewritten}; {expired} expired; {orphans} removed"
    yield from (f"  removed   the cut {name}" for name in report.cuts)
    yield from (f"  removed   the record {place} of the quarantine" for place in report.records)
    if report.stages:
        yield f"  removed   {counted(report.stages, 'window')} that had been staged with the rows and not committed"
    if report.scratch:
        directories = counted(report.scratch, "directory", "directories")
        yield f"  removed   {directories} that killed runs had left in this machine's directory for temporary files"
    if report.messages:
        yield f"  emptied   {counted(report.messages, 'message')} of the landing"
    for table in report.lost:
        yield f"  with that  other rows of {table} are gone from the landing: a rebuild needs a dump from then or later"
    for place in report.searched:
        size = f"{counted(place.files, 'file')}, {place.bytes:,} bytes"
        having = f"found in {', '.join(place.having)}" if place.having else "nothing found"
        yield f"  searched  {place.place}: {size}: {having}"
    for name in report.kept_cuts:
        yield f"  kept      {kept_text(name)}: --remove-cuts"
    for record in report.unknown:
        yield f"  unknown   {record} {UNKNOWN}: --record '{record}'"
    for key in report.moved:
        yield f"  moved     a row of these keys had the key ({', '.join(key)}) as well, which is not forgotten"
    if report.kept_out:
        yield f"  kept out  {report.until}, by {report.kept_out}: what is read of the keys is left out and counted"
    if report.found_nothing:
        yield f"  no rows   {NO_ROWS}"
    yield f"  not searched  {NOT_SEARCHED}"
    yield f"  not ours  {report.feed}"
    retry_advice = "run the same command again" + (" with --remove-cuts" if report.kept_cuts else "")
    yield "complete: nothing is left" if report.complete else f"NOT complete: {retry_advice}"


def kept_text(name: str) -> str:
    """Return the sentence on cuts that keep rows of the keys, and until when: only regular cuts expire."""
    rows = "keeps rows of the keys, or values of them in its manifests,"
    if is_unnamed(name):
        return f"the cut {name} {rows} until cuts.keep newer regular cuts are made"
    return f"the cut or tag {name} {rows} until a person removes it"


def forget_json(report: ForgetReport) -> dict[str, Any]:
    """Return a report for programs."""
    removed = [{**asdict(removal), "life": str(removal.life)} for removal in report.removed]
    figures = {**asdict(report), "table": str(report.table), "removed": removed, "complete": report.complete}
    return {**figures, "found_nothing": report.found_nothing, "not_searched": NOT_SEARCHED}


def forget_figures(report: ForgetReport) -> dict[str, Any]:
    """Return a report's figures without a key: those that rows were moved from or to are counted."""
    removed = [(str(table.life), table.keys, table.rows, table.files_rewritten) for table in report.removed]
    searched = [(place.place, place.files, place.bytes, len(place.having)) for place in report.searched]
    return {
        "table": str(report.table),
        "keys": report.keys,
        "complete": report.complete,
        "begun": report.begun,
        "ended": report.ended,
        "copies_removed": report.copies,
        "files_rewritten": sum(table.files_rewritten for table in report.removed),
        "snapshots_expired": sum(table.snapshots_expired for table in report.removed),
        "records_removed": len(report.records),
        **({"unknown": [f"{place} {UNKNOWN} (records)" for place in report.unknown]} if report.unknown else {}),
        "messages_emptied": report.messages,
        "keys_moved": len(report.moved),
        "cuts_removed": list(report.cuts),
        **(
            {"cuts_kept": [f"{kept_text(name)} (remove_cuts)" for name in report.kept_cuts]} if report.kept_cuts else {}
        ),
        "tables_with_lost_messages": list(report.lost),
        **({"removed": Grid(("table", "keys with rows", "copies", "files written"), removed)} if removed else {}),
        "searched": Grid(("place", "files", "bytes", "files with rows"), searched),
        "not_searched": NOT_SEARCHED,
        "not_ours": report.feed,
        **({"no_rows": NO_ROWS} if report.found_nothing else {}),
        **({"continued": list(report.continued)} if report.continued else {}),
        **({"kept_out_by": report.kept_out, "until": report.until} if report.kept_out else {}),
    }


def found_report(searches: Mapping[Life, SearchedFiles]) -> OperationReport:
    """Return in how many files of each table rows of the keys are."""
    rows = [
        (str(life), len(search.having), search.files, search.bytes, ", ".join(search.tags))
        for life, search in searches.items()
    ]
    return OperationReport(
        [dict(zip(("table", "having", "files", "bytes", "cuts"), row, strict=True)) for row in rows],
        [
            Grid(("table", "files with rows", "files", "bytes", "cuts with rows"), rows),
            "Nothing was changed. Quarantine, stages and landed messages are searched by the run itself.",
        ],
    )
