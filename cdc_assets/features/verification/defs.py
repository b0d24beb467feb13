"""The job that compares tables with their source, and the check `equals_source` of each lake table."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg

from cdc_assets.defs.checks import equality_result, evaluation
from cdc_assets.defs.metadata import text_table
from cdc_assets.defs.names import lake_key
from cdc_assets.defs.operations import operation_job
from cdc_assets.defs.resources import ConfiguredFeed, OpenFeed
from cdc_assets.features.verification.operations import options_of, verify
from cdc_assets.features.verification.report import comparison_lines, summary_line
from cdc_assets.model.comparison import EQUAL, REPAIRED, TableComparison
from cdc_assets.operations.requests import VerifyRequest
from cdc_assets.operations.status import known_tables


def verify_job(source: ConfiguredFeed, job_name: str) -> dg.JobDefinition:
    """Return the job. It takes no writer's slot: it commits for a repair only, guarded.

    Spark is started for that, and for tables that executors of a cluster compare.
    """

    def verify_tables(context: dg.OpExecutionContext, request: VerifyRequest, open_feed: OpenFeed) -> Iterator[Any]:
        """Compare each table with the source as of the fence, and log its check with the rows that differ."""
        settings = source.changefeed.verify
        options = options_of(settings, request, context.run_id)
        known = set(known_tables(source.lake, source.changefeed.name, source.changefeed.namespace))
        comparisons: list[TableComparison] = []
        with open_feed() as pipeline:
            tables = request.tables or settings.tables
            for comparison in verify(pipeline, pipeline.lake, settings.server.open, options, tables):
                comparisons.append(comparison)
                context.log.info("\n".join(comparison_lines(replace(comparison, rows=()))))
                if comparison.table in known:
                    key = lake_key(source.changefeed, comparison.table)
                    result = equality_result(key, comparison, comparison.through, settings.stale_days)
                    yield evaluation(key, _with_rows(result, comparison))
        context.add_output_metadata(_figures(comparisons), output_name="result")
        if wrong := [comparison for comparison in comparisons if comparison.state not in (EQUAL, REPAIRED)]:
            text = "\n".join(line for comparison in wrong for line in comparison_lines(replace(comparison, rows=())))
            raise dg.Failure(f"{summary_line(comparisons)}\n{text}", allow_retries=False)
        yield dg.Output(None)

    description = (
        "Compares tables with the source of the changefeed's `verify` settings, row by row, as of the TSO "
        "through which they are applied. Fails where a table is different or could not be compared; writes only "
        "if `repair` is said."
    )
    return operation_job(source, f"{job_name}_tables", VerifyRequest, verify_tables, description, writes=False)


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
        "tables_equal": sum(comparison.state == EQUAL for comparison in comparisons),
        "rows_compared": sum(comparison.source_rows for comparison in comparisons),
        "rows_different": sum(
            comparison.missing + comparison.extra + comparison.differing for comparison in comparisons
        ),
    }
