"""The check `equals_source` of each lake table that is compared with its source."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import dagster as dg

from cdc_assets.defs.checks import equality_result, evaluation
from cdc_assets.defs.metadata import text_table
from cdc_assets.defs.names import lake_key
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.features.verification.report import comparison_lines
from cdc_assets.model.comparison import TableComparison
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.status import known_tables


def job_events(
    context: dg.OpExecutionContext,
    source: ConfiguredFeed,
    pipeline: LakePipeline,
    carry_out: Callable[[], Iterator[TableComparison]],
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the check of each table of the lake that was compared, with the rows that differ."""
    tables = set(known_tables(source.lake, source.changefeed.name, source.changefeed.namespace))
    for comparison in carry_out():
        context.log.info("\n".join(comparison_lines(replace(comparison, rows=()))))
        if comparison.table in tables:
            key = lake_key(source.changefeed, comparison.table)
            result = equality_result(key, comparison, comparison.through, source.changefeed.verify.stale_days)
            yield evaluation(key, _with_rows(result, comparison))


JOB_EVENTS = {"verify": job_events}

_COLUMNS = ("row", "key", "column", "lake", "source")


def _with_rows(result: dg.AssetCheckResult, comparison: TableComparison) -> dg.AssetCheckResult:
    """Return the result with the first rows that differ as a table."""
    rows = [
        (row.kind, str(dict(row.key)), *values)
        for row in comparison.rows
        for values in ([(v.column, str(v.lake), str(v.source)) for v in row.values] or [("", "", "")])
    ]
    return result._replace(metadata={**result.metadata, "rows": text_table(_COLUMNS, rows)}) if rows else result
