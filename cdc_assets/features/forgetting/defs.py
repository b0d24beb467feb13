"""The job that forgets rows of a table, by keys that its config does not have.

Dagster keeps a run's config in plain text for as long as it keeps the run, and shows it to whoever sees the run: keys
come from a file, or from an environment variable of the process that runs the job. No event of it has a key.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from cdc_assets.defs.metadata import lake_table
from cdc_assets.defs.names import lake_key
from cdc_assets.defs.operations import operation_job
from cdc_assets.defs.resources import ConfiguredFeed, OpenFeed
from cdc_assets.errors import BadSettings
from cdc_assets.features.forgetting.operations import abandon as end_abandoned
from cdc_assets.features.forgetting.operations import forget
from cdc_assets.features.forgetting.operations_keep_out import let_in, parse_until
from cdc_assets.features.forgetting.report import NO_ROWS, NOT_SEARCHED, UNKNOWN, kept_text
from cdc_assets.io.storage_uri import opener
from cdc_assets.model.forgetting import ForgetReport
from cdc_assets.model.progress import Life
from cdc_assets.operations.keys import parse_keys
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.requests import ForgetRequest


def forget_job(source: ConfiguredFeed, job_name: str) -> dg.JobDefinition:
    """Return the job; it takes the writers' slot (pool `spark`)."""

    def forget_rows(context: dg.OpExecutionContext, request: ForgetRequest, open_feed: OpenFeed) -> Iterator[Any]:
        """Take the rows out of everything that the lake has of them, prove that they are gone, and log the report."""
        request.check_keys(bool(request.keys_file) + bool(request.keys_variable), "keys_file, keys_variable")
        if not (request.confirmed or request.undo):
            raise BadSettings("Forgetting rows cannot be undone. Set confirmed to true, and launch the job again.")
        with open_feed() as pipeline:
            if request.undo:
                decision = let_in(pipeline, request.table, request.undo, context.run_id)
                yield dg.Output(None, metadata={"let_in": len(decision.digests), "table": str(decision.table)})
                return
            from cdc_assets.features.forgetting.lake import (
                LakeForgetting,  # PyIceberg's readers, which no code location needs
            )

            lake = LakeForgetting(pipeline.lake)
            if request.abandon:
                left = end_abandoned(pipeline, lake, request.table, context.run_id)
                yield dg.Output(None, metadata={"abandoned": len(left), "keys": sum(run.keys for run in left)})
                return
            keys = _keys(request, pipeline.settings.storage())
            through = parse_until(pipeline, request.until) if request.until else None
            report = forget(
                pipeline, lake, request.table, keys, context.run_id, context.log.info, through, request.decision,
                request.records, remove_cuts=request.remove_cuts,
            )  # fmt: skip
            yield from _changed(source, pipeline, {table.life for table in report.removed if table.rows})
        metadata = _figures(report)
        yield dg.AssetObservation(
            lake_key(source.changefeed, report.table), description="rows were forgotten", metadata=metadata
        )
        if not report.complete:
            raise dg.Failure("Rows are left, see the report. Launch the same job again.", metadata, allow_retries=True)
        yield dg.Output(None, metadata=metadata)

    description = (
        "Takes the rows of some keys out of a table, its history tables, quarantine, snapshots, cuts and landing, "
        "proves that they are gone, and keeps the keys out from then on if `until` is said. Keys come from a file or "
        "an environment variable: a run's config is kept, and shown."
    )
    return operation_job(source, f"{job_name}_rows", ForgetRequest, forget_rows, description)


def _keys(request: ForgetRequest, options: dict[str, Any]) -> Sequence[Sequence[str]]:
    """Return the keys, read where the job runs. Raises BadSettings where there are none."""
    if request.keys_variable:
        if request.keys_variable not in os.environ:
            raise BadSettings(
                f"The environment variable {request.keys_variable} is not set where the job runs. Set it."
            )
        return parse_keys(os.environ[request.keys_variable], request.keys_variable)
    directory, _, name = request.keys_file.rpartition("/")
    if not directory:
        raise BadSettings(f"keys_file is {request.keys_file!r}; expected a URI such as s3://bucket/keys.csv.")
    try:
        content = opener(directory, options, "keys_file").fetch(name)
    except FileNotFoundError:
        raise BadSettings(f"keys_file is {request.keys_file!r}, and there is no such file. Write it there.") from None
    return parse_keys(content, request.keys_file)


def _changed(
    source: ConfiguredFeed, pipeline: LakePipeline, lives: Collection[Life]
) -> Iterator[dg.AssetMaterialization]:
    """Yield the events of tables from which rows went: how many they have now, among others."""
    if lives:
        plan, tables = pipeline.planner.plan()[1], source.lake_tables()
        for life in sorted(plan.history.lives.keys() & tables.keys() & set(lives)):
            yield from lake_table(source, pipeline, plan, tables[life], 0)


def _figures(report: ForgetReport) -> dict[str, Any]:
    """Return a report without a key: those that rows were moved from or to are counted."""
    removed: list[Mapping[str, str | int]] = [
        {
            "table": str(table.life),
            "keys with rows": table.keys,
            "copies": table.rows,
            "files written": table.files_rewritten,
        }
        for table in report.removed
    ]
    searched: list[Mapping[str, str | int]] = [
        {"place": search.place, "files": search.files, "bytes": search.bytes, "files with rows": len(search.having)}
        for search in report.searched
    ]
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
        **({"removed": _grid(removed)} if removed else {}),
        "searched": _grid(searched),
        "not_searched": NOT_SEARCHED,
        "not_ours": report.feed,
        **({"no_rows": NO_ROWS} if report.found_nothing else {}),
        **({"continued": list(report.continued)} if report.continued else {}),
        **({"kept_out_by": report.kept_out, "until": report.until} if report.kept_out else {}),
    }


def _grid(rows: Sequence[Mapping[str, str | int]]) -> dg.TableMetadataValue:
    """Return rows as a table, its first column of texts and the others of numbers."""
    first, *others = rows[0]
    columns = [dg.TableColumn(first, "string"), *(dg.TableColumn(name, "int") for name in others)]
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows], schema=dg.TableSchema(columns=columns))
