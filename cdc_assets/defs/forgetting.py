"""The job that forgets rows of a table, by keys that its config does not have.

Dagster keeps a run's config in plain text for as long as it keeps the run, and shows it to whoever sees the run: keys
come from a file, or from an environment variable of the process that runs the job. No event of it has a key.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from cdc_assets.defs.failures import as_failure
from cdc_assets.defs.metadata import lake_table
from cdc_assets.defs.names import lake_key
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.errors import BadSettings
from cdc_assets.io.storage_uri import opener
from cdc_assets.model.forgetting import ForgetReport
from cdc_assets.model.progress import Life
from cdc_assets.operations.forget import ForgettingLake, forget
from cdc_assets.operations.forget import abandon as end_abandoned
from cdc_assets.operations.keep_out import let_in, parse_until
from cdc_assets.operations.keys import parse_keys
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.report.forgetting import NO_ROWS, NOT_SEARCHED, UNKNOWN, kept_text


class ForgetConfig(dg.Config):
    """Whose rows are forgotten: keys come from a file or an environment variable, never from here."""

    table: str = Field(description="The table, by its present or a former name `schema.table`, or its identity.")
    keys_file: str = Field(
        default="",
        description="URI of a file of keys, read with the changefeed's storage options: CSV without heading, a key in "
        "each line. Remove it afterwards.",
    )
    keys_variable: str = Field(
        default="", description="Environment variable of the run's process with keys, as a file has them."
    )
    until: str = Field(
        default="",
        description="Keep the keys out of what is applied from now on, at positions through a TSO, time or cut, or "
        "`forever`.",
    )
    decision: str = Field(default="", description="Name of what keeps them out, for undo and more keys.")
    undo: str = Field(default="", description="Let keys in again that the decision of this name keeps out.")
    abandon: bool = Field(
        default=False,
        description="End runs that were killed with keys that nobody has any more: rows of them may be left.",
    )

    remove_cuts: bool = Field(
        default=False,
        description="Remove the cuts, and other tags, that have rows of the keys. Without it these keep them, and the "
        "report names them.",
    )
    confirmed: bool = Field(
        default=False, description="Set to true: what is taken out here cannot be brought back. Not asked for undo."
    )
    records: list[str] = Field(
        default=[],
        description="Places of records and messages that cannot be decoded and may have the keys: they go with them.",
    )

    def check(self) -> None:
        """Raise BadSettings unless exactly one of the four says which keys are meant, and it is confirmed."""
        if bool(self.keys_file) + bool(self.keys_variable) + bool(self.undo) + self.abandon != 1:
            raise BadSettings("Give keys_file, keys_variable, undo or abandon: one of the four.")
        alone = self.undo or self.abandon
        if alone and (self.until or self.decision) or (self.decision and not self.until):
            raise BadSettings("decision names what until makes. Give both, until alone, or undo or abandon alone.")
        if not (self.confirmed or self.undo):
            raise BadSettings("Forgetting rows cannot be undone. Set confirmed to true, and launch the job again.")


def forget_job(source: ConfiguredFeed, job_name: str) -> dg.JobDefinition:
    """Return the job; it takes the writers' slot (pool `spark`)."""

    @dg.op(name=f"{job_name}_rows", out=dg.Out(dg.Nothing), pool="spark")
    def forget_rows(
        context: dg.OpExecutionContext, config: ForgetConfig, pyspark: LazyPySparkResource, s3: S3Resource
    ) -> None:
        """Take the rows out of everything that the lake has of them, prove that they are gone, and log the report."""
        with as_failure():
            config.check()
            with source.pipeline(s3, pyspark) as pipeline:
                if config.undo:
                    decision = let_in(pipeline, config.table, config.undo, context.run_id)
                    context.add_output_metadata({"let_in": len(decision.digests), "table": str(decision.table)})
                    return
                if config.abandon:
                    left = end_abandoned(pipeline, _lake_of(pipeline), config.table, context.run_id)
                    context.add_output_metadata(
                        {"abandoned": len(left), "keys": sum(abandoned_run.keys for abandoned_run in left)}
                    )
                    return
                report = _forgotten(context, config, pipeline, _keys(config, source.with_credentials(s3).storage()))
                for event in _changed(source, pipeline, {table.life for table in report.removed if table.rows}):
                    context.log_event(event)
        metadata = _figures(report)
        context.add_output_metadata(metadata)
        context.log_event(
            dg.AssetObservation(
                lake_key(source.changefeed, report.table), description="rows were forgotten", metadata=metadata
            )
        )
        if not report.complete:
            raise dg.Failure("Rows are left, see the report. Launch the same job again.", metadata, allow_retries=True)

    description = (
        "Takes the rows of some keys out of a table, its history tables, quarantine, snapshots, cuts and landing, "
        "proves that they are gone, and keeps the keys out from then on if `until` is said. Keys come from a file or "
        "an environment variable: a run's config is kept, and shown."
    )
    return source.job(job_name, forget_rows, description)


def _keys(config: ForgetConfig, options: dict[str, Any]) -> Sequence[Sequence[str]]:
    """Return the keys, read where the job runs. Raises BadSettings where there are none."""
    if config.keys_variable:
        if config.keys_variable not in os.environ:
            raise BadSettings(f"The environment variable {config.keys_variable} is not set where the job runs. Set it.")
        return parse_keys(os.environ[config.keys_variable], config.keys_variable)
    directory, _, name = config.keys_file.rpartition("/")
    if not directory:
        raise BadSettings(f"keys_file is {config.keys_file!r}; expected a URI such as s3://bucket/keys.csv.")
    try:
        content = opener(directory, options, "keys_file").fetch(name)
    except FileNotFoundError:
        raise BadSettings(f"keys_file is {config.keys_file!r}, and there is no such file. Write it there.") from None
    return parse_keys(content, config.keys_file)


def _forgotten(
    context: dg.OpExecutionContext, config: ForgetConfig, pipeline: LakePipeline, keys: Sequence[Sequence[str]]
) -> ForgetReport:
    until = parse_until(pipeline, config.until) if config.until else None
    lake, say = _lake_of(pipeline), context.log.info
    return forget(
        pipeline, lake, config.table, keys, context.run_id, say, until, config.decision, config.records,
        remove_cuts=config.remove_cuts,
    )  # fmt: skip


def _changed(
    source: ConfiguredFeed, pipeline: LakePipeline, lives: Collection[Life]
) -> Iterator[dg.AssetMaterialization]:
    """Yield the events of tables from which rows went: how many they have now, among others."""
    if lives:
        plan, tables = pipeline.planner.plan()[1], source.lake_tables()
        for life in sorted(plan.history.lives.keys() & tables.keys() & set(lives)):
            yield from lake_table(source, pipeline, plan, tables[life], 0)


def _lake_of(pipeline: LakePipeline) -> ForgettingLake:
    from cdc_assets.lake.forget import LakeForgetting  # it loads PyIceberg's readers, which no code location needs

    return LakeForgetting(pipeline.lake)


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
