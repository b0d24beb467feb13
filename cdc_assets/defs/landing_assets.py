"""The assets upstream of `ddl`: the bucket, or topics and what is landed of them.

topics (external) ──▶ landing ──▶ ddl

Every run lands first, so `landing` is materialized by each run that brought something; materialized by itself it lands
what is there, without Spark.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource

from cdc_assets.defs.failures import as_failure
from cdc_assets.defs.names import feed_key, upstream_key
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.errors import MetadataMissing
from cdc_assets.model.tso import tso_time
from cdc_assets.operations.landings import applied_through
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.report.landings import LandingText, describe_landing

_STORES: Mapping[str, str] = {
    "s3": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "az": "azure", "kafka": "kafka"
}  # fmt: skip
_SYSTEMS: Mapping[str, str] = {"TiCDC": "tidb", "YDB": "ydb", "a Debezium connector": "debezium"}


def upstream_assets(source: ConfiguredFeed) -> list[dg.AssetSpec | dg.AssetsDefinition]:
    """Return the assets of what a changefeed writes to, and of the landing of its topics."""
    changefeed, options = source.changefeed, source.changefeed.source_options
    landed, protocol = options.is_landed, options.protocol
    contents = "messages of DDL, rows and marks" if landed else "schema files, data files and the checkpoint"
    systems = {_SYSTEMS[options.writer]} if options.writer in _SYSTEMS else set()
    spec = dg.AssetSpec(
        feed_key(changefeed),
        group_name=source.group,
        kinds={*systems, _STORES.get(options.store, "file"), protocol},
        owners=list(changefeed.owners),
        metadata={"dagster/uri": changefeed.uri, "protocol": protocol, "tz": changefeed.tz},
        description=f"The feed that {options.writer} writes to {changefeed.uri}: {contents}. Read only.",
    )
    return [spec, _landing_asset(source)] if landed else [spec]


def _landing_asset(source: ConfiguredFeed) -> dg.AssetsDefinition:
    name = source.changefeed.name

    @dg.asset(
        key=upstream_key(source.changefeed),
        deps=[feed_key(source.changefeed)],
        group_name=source.group,
        kinds={"iceberg"},
        owners=list(source.changefeed.owners),
        description="The messages of the topics as they came, by table, each once. Every run lands what is there "
        "before it applies it; materialized by itself this does the same and applies nothing.",
    )
    def landing(context: dg.AssetExecutionContext, s3: S3Resource) -> dg.MaterializeResult[None]:
        with source.pipeline(s3) as pipeline:
            with as_failure():
                pipeline.land()
            context.log.info(f"landed {pipeline.advanced.messages} messages of {name}")
            return dg.MaterializeResult(metadata=_metadata(source, pipeline))

    return landing


def landing_events(source: ConfiguredFeed, pipeline: Pipeline) -> Iterator[dg.AssetMaterialization]:
    """Yield the event of a landing that a run made since it was asked last; none where nothing was landed."""
    if pipeline.landing is not None and pipeline.advanced.commits:
        yield dg.AssetMaterialization(upstream_key(source.changefeed), metadata=_metadata(source, pipeline))
        pipeline.count_anew()


def _metadata(source: ConfiguredFeed, pipeline: Pipeline) -> dict[str, Any]:
    assert pipeline.landing is not None
    through = applied_through(pipeline.ledger, source.changefeed.name)
    landing_text = describe_landing(source.changefeed.name, pipeline.landing.landed(), through)
    brought = pipeline.advanced
    try:
        fence = pipeline.source.fence()
    except MetadataMissing as missing:
        return {
            **_figures(landing_text),
            "messages": brought.messages,
            "row_events": brought.rows,
            "waits": str(missing),
        }
    return {
        **_figures(landing_text),
        "messages": brought.messages,
        "row_events": brought.rows,
        "checkpoint_ts": str(fence),
        "checkpoint_time": tso_time(fence),
    }


def _figures(landing_text: LandingText) -> dict[str, Any]:
    records = [
        dg.TableRecord(
            {
                "partition": f"{partition.topic}[{partition.partition}]",
                "log ends at": partition.end,
                "landed to": partition.landed,
                "applied to": partition.applied,
                "not landed": partition.behind,
                "newest mark": partition.mark_time or "none",
            }
        )
        for partition in landing_text.partitions
    ]
    figures: dict[str, Any] = {
        "messages_behind": landing_text.behind,
        "dagster/row_count": dg.MetadataValue.int(landing_text.rows),
        "dagster/size_bytes": dg.MetadataValue.int(landing_text.row_bytes),
        "rebuild": landing_text.rebuild,
        "unreadable_messages": len(landing_text.unreadable),
    }
    if any(partition.mark for partition in landing_text.partitions):
        figures["mark_lag_seconds"] = dg.MetadataValue.float(landing_text.lag_seconds)
    if records:
        figures["offsets"] = dg.MetadataValue.table(records)
    if landing_text.unreadable:
        figures["unreadable"] = dg.MetadataValue.md(
            "\n".join(f"- {message}" for message in landing_text.unreadable[:20])
        )
    if landing_text.ignored:
        figures["ignored"] = dg.MetadataValue.json(dict(landing_text.ignored))
    return figures
