"""Extracts in Dagster: a job with a range as its config, and the range of a time window.

extract_job    the changes of a table after one moment and through another, written to a directory or bucket
window_range   the range of positions of a time window, for `operations.extract`
"""

from datetime import datetime
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource
from pydantic import Field

from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.errors import BadSettings, ExtractRefused, MalformedData
from cdc_assets.model.tso import Tso, last_tso
from cdc_assets.operations.change_files import FORMATS, write_extract
from cdc_assets.operations.extract import extract
from cdc_assets.operations.moments import parse_moment
from cdc_assets.run_coordinator import CHANGEFEED_TAG

__all__ = ["ExtractConfig", "extract_job", "window_range"]


class ExtractConfig(dg.Config):
    """Which changes are written where."""

    table: str = Field(description="The table, by its present name `schema.table` or its identity.")
    since: str = Field(description="Changes after this moment: a TSO, a time such as 2026-01-31T13:00:00Z, or a cut.")
    until: str = Field(description="Changes through this moment.")
    out: str = Field(description="A directory, or the prefix of a bucket, without files.")
    format: str = Field(default="parquet", description="parquet, jsonl or csv.")
    net: bool = Field(default=False, description="One row a key: its last image, or that it is gone.")


def window_range(start: datetime, end: datetime) -> tuple[Tso, Tso]:
    """Return the range of positions of a time window: after the first, and through the second.

    The range of a window begins where that of the window before it ends.
    """
    since, until = (last_tso(int(moment.timestamp() * 1000)) for moment in (start, end))
    return since, until


def extract_job(source: ConfiguredFeed, job_name: str) -> dg.JobDefinition:
    """Return the job; it reads only, and needs no Spark."""

    @dg.op(name=f"{job_name}_changes", out=dg.Out(dg.Nothing))
    def extract_changes(context: dg.OpExecutionContext, config: ExtractConfig, s3: S3Resource) -> None:
        """Decode the changes of the range again, and write them as one file."""
        if config.format not in FORMATS:
            raise dg.Failure(f"{config.format} is no format; expected {', '.join(FORMATS)}.", allow_retries=False)
        try:
            with source.pipeline(s3) as pipeline:
                cuts = {one.name: one.at for one in pipeline.lake.cuts()}
                moments = (parse_moment(text, cuts) for text in (config.since, config.until))
                found = extract(pipeline, config.table, *moments, net=config.net)
                count = write_extract(found, config.out, config.format, {})
        except (BadSettings, ExtractRefused, MalformedData) as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        figures: dict[str, Any] = {**found.description(), "rows": count, "out": config.out}
        context.add_output_metadata({name: _shown(value) for name, value in figures.items()})

    @dg.job(
        name=job_name,
        executor_def=dg.in_process_executor,
        tags={CHANGEFEED_TAG: source.group},
        description="Writes the changes of a table after one moment and through another, each once or net, to a "
        "directory or bucket without files. Reads only. Refused where changes of the range are gone.",
    )
    def job() -> None:
        extract_changes()

    return job


def _shown(value: object) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and value > 1 << 53 else value
