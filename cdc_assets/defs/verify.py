"""The job that compares tables with their source, its schedule, and the check `equals_source` of each lake table."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource
from pydantic import Field

from cdc_assets.defs.checks import equality_result, evaluation
from cdc_assets.defs.failures import as_failure, known_cron
from cdc_assets.defs.metadata import text_table
from cdc_assets.defs.names import lake_key
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.model.comparison import EQUAL, REPAIRED, TableComparison
from cdc_assets.operations.row_choice import parse_choice
from cdc_assets.operations.status import known_tables
from cdc_assets.operations.verify import options_of, verify
from cdc_assets.report.comparison import comparison_lines, summary_line


class VerifyConfig(dg.Config):
    """Which tables are compared, and how; default: those of the setting `verify.tables`, or all."""

    tables: list[str] = Field(default_factory=list, description="Only these tables, as `schema.table` or `schema.*`.")
    quiet: bool = Field(default=False, description="State that nothing is written into them while they are compared.")
    repair: bool = Field(default=False, description="Write the source's rows of the keys that differ into the tables.")
    where: str = Field(default="", description="Compare these rows only: `id >= 1000 AND day < '2025-06-01'`.")
    sample: str = Field(default="", description="Compare a share of the rows only, chosen by their key: `1%`.")
    cut: str = Field(default="", description="Compare the tables as they are in a cut of this name.")
    resume: bool = Field(default=False, description="Go on after an interruption: pass over what was equal.")


def verify_job(source: ConfiguredFeed, job_name: str) -> dg.JobDefinition:
    """Return the job. It takes no writer's slot: it commits for a repair only, guarded.

    Spark is started for that, and for tables that executors of a cluster compare.
    """

    @dg.op(name=f"{job_name}_tables", out=dg.Out(dg.Nothing))
    def verify_tables(context: dg.OpExecutionContext, config: VerifyConfig, s3: S3Resource) -> Iterator[Any]:
        """Compare each table with the source as of the fence, and log its check with the rows that differ."""
        settings = source.changefeed.verify
        options = replace(options_of(settings), quiet=config.quiet or settings.quiet, repair=config.repair)
        choice = parse_choice(config.where, config.sample or settings.sample, secrets.randbelow(1 << 30))
        options = replace(options, choice=choice, run=context.run_id, resume=config.resume, cut=config.cut)
        known = set(known_tables(source.lake, source.changefeed.name, source.changefeed.namespace))
        comparisons: list[TableComparison] = []
        with as_failure():
            server = settings.server
            with source.pipeline(s3) as pipeline:
                tables = config.tables or settings.tables
                for one in verify(pipeline, pipeline.lake, server.open, options, tables):
                    comparisons.append(one)
                    context.log.info("\n".join(comparison_lines(replace(one, rows=()))))
                    if one.table in known:
                        key = lake_key(source.changefeed, one.table)
                        result = equality_result(key, one, one.through, settings.stale_days)
                        yield evaluation(key, _with_rows(result, one))
        context.add_output_metadata(_figures(comparisons), output_name="result")
        if wrong := [one for one in comparisons if one.state not in (EQUAL, REPAIRED)]:
            text = "\n".join(line for comparison in wrong for line in comparison_lines(replace(comparison, rows=())))
            raise dg.Failure(f"{summary_line(comparisons)}\n{text}", allow_retries=False)
        yield dg.Output(None)

    description = (
        "Compares tables with the source of the changefeed's `verify` settings, row by row, as of the TSO "
        "through which they are applied. Fails where a table is different or could not be compared; writes only "
        "if `repair` is said."
    )
    return source.job(job_name, verify_tables, description)


def verify_schedule(source: ConfiguredFeed, job: dg.JobDefinition, name: str) -> dg.ScheduleDefinition:
    """Return the schedule of the changefeed's verify settings; it is stopped unless they say `running`.

    Raises BadSettings for a cron expression that Dagster does not know.
    """
    settings = source.changefeed.verify
    status = dg.DefaultScheduleStatus.RUNNING if settings.running else dg.DefaultScheduleStatus.STOPPED
    with known_cron(source.changefeed.name, "verify.cron", settings.cron, "47 5 * * 6"):
        return dg.ScheduleDefinition(
            name=name,
            job=job,
            cron_schedule=settings.cron,
            default_status=status,
            description="Compares the tables with their source.",
        )


_COLUMNS = ("row", "key", "column", "lake", "source")


def _with_rows(result: dg.AssetCheckResult, comparison: TableComparison) -> dg.AssetCheckResult:
    """Return the result with the first rows that differ as a table."""
    rows = [
        (row.kind, str(dict(row.key)), *values)
        for row in comparison.rows
        for values in ([(v.column, str(v.lake), str(v.source)) for v in row.values] or [("", "", "")])
    ]
    return result._replace(metadata={**result.metadata, "rows": text_table(_COLUMNS, rows)}) if rows else result


def _figures(comparisons: Sequence[TableComparison]) -> dict[str, Any]:
    return {
        "tables_compared": len(comparisons),
        "tables_equal": sum(one.state == EQUAL for one in comparisons),
        "rows_compared": sum(one.source_rows for one in comparisons),
        "rows_different": sum(one.missing + one.extra + one.differing for one in comparisons),
    }
