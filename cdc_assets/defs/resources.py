"""Spark from dagster-pyspark, S3 credentials from dagster-aws, and the pipeline over both."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource
from dagster_spark.utils import flatten_dict

from cdc_assets.defs.catch_up_config import op_of
from cdc_assets.defs.names import feed_name
from cdc_assets.lake import spark_configuration
from cdc_assets.lake.lake_table import LakeTable
from cdc_assets.lake.spark.cluster import refuse_dead, watch_executors
from cdc_assets.lake.spark.gateway import open_gateway
from cdc_assets.lake.spark.session import java_needed
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.wording import counted
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.opening import open_pipeline, open_state
from cdc_assets.operations.status import known_tables
from cdc_assets.pipeline.pipeline import Watch
from cdc_assets.run_coordinator import CHANGEFEED_TAG
from cdc_assets.settings.config import ChangefeedSettings, settings_file
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.settings.model import merged


class S3Credentials(S3Resource):
    """An S3Resource used only for its settings: it creates no client, which would take a third of a second."""

    def get_object_to_set_on_execution_context(self) -> Any:
        """Return itself in place of a boto3 client."""
        return self


def read_credentials(s3: S3Resource) -> S3Resource:
    """Return the resource with its configuration processed: values of the environment in place of their names.

    `process_config_and_initialize` would leave an instance of Dagster open until the garbage collector finds it, and
    that would then close whichever instance the process has open.
    """
    with s3.process_config_and_initialize_cm() as resource:
        credentials: S3Resource = resource
    return credentials


def spark_resource() -> LazyPySparkResource:
    """Spark for a run: nothing starts before the first step that needs it, and one session serves all of a run.

    Its configuration is shown in the launch form, so it has only what differs from the lake's own configuration: that
    one has the catalog's credentials and is added when the session starts.
    """
    return LazyPySparkResource(spark_config={})


@dataclass(frozen=True, slots=True)
class ConfiguredFeed:
    """One changefeed and its lake, as configured in the code location."""

    changefeed: ChangefeedSettings
    lake: LakeSettings
    read: tuple[tuple[int, int] | None, ...] = field(init=False, compare=False)
    """The stamps of when the settings were read."""
    tables: tuple[TableId, ...] = field(init=False, compare=False)
    """The lake's tables that runs had seen by then: those have assets."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "read", self.stamps())
        object.__setattr__(self, "tables", self._known_tables())

    def _known_tables(self) -> tuple[TableId, ...]:
        return tuple(known_tables(self.lake, self.changefeed.name, self.changefeed.namespace))

    def outdated(self) -> list[str]:
        """Return the differences that are not in the definitions yet, as sentences: other settings, new tables."""
        new = len(set(self._known_tables()).difference(self.tables))
        sentences = (
            [f"{counted(new, 'new table has', 'new tables have')} no asset yet: reload definitions"] if new else []
        )
        if self.read != self.stamps():
            sentences.append("the settings changed since this sensor read them: reload the code location")
        return sentences

    def stamps(self) -> tuple[tuple[int, int] | None, ...]:
        """Return time in ns and bytes of each file that has settings, None for one that is not there."""
        registry = self.changefeed.schema_registry.get("file")
        files = (
            self.changefeed.file or settings_file(),
            self.changefeed.changefeed_config,
            self.changefeed.schemas,
            registry,
        )
        return tuple(map(_stamp, files))

    @property
    def group(self) -> str:
        """The changefeed's name in the form that Dagster accepts for groups, ops, jobs and assets."""
        return feed_name(self.changefeed.name)

    @property
    def command_options(self) -> str:
        """The options with which commands find the changefeed and its lake.

        Where no settings file describes it, these need a file first, so the job that takes a release is named, too.
        """
        file = self.changefeed.file
        if file is not None:
            return f"--settings {shlex.quote(str(file))} --changefeed {shlex.quote(self.changefeed.name)}"
        job = f"{self.group}_catch_up"
        form = {"ops": {op_of(job): {"config": {"releases": {"schema.table@version": "skip"}}}}}
        return (
            "--settings FILE, a changefeeds.yaml with the settings of this changefeed. Or launch in Dagster, for a "
            f'release, {job} with {json.dumps(form)} (beside releases "confirmed": true where rows are deleted), for a '
            f"rebuild, {self.group}_rebuild"
        )

    def job(
        self, name: str, op: dg.OpDefinition, description: str, scaffold: Mapping[str, Any] | None = None
    ) -> dg.JobDefinition:
        """Return a job of one op on this changefeed; `scaffold` is the op's config with which its form opens."""
        config: Any = None if scaffold is None else {"ops": {op.name: {"config": dict(scaffold)}}}

        @dg.job(
            name=name,
            executor_def=dg.in_process_executor,
            tags={CHANGEFEED_TAG: self.group},
            description=description,
            config=config,
        )
        def job() -> None:
            op()

        return job

    def with_credentials(self, s3: S3Resource) -> ChangefeedSettings:
        """Return the changefeed's settings with the credentials of the S3 resource."""
        settings = self.changefeed
        if settings.source_options.store != "s3":
            return settings
        client = {"region_name": s3.region_name} if s3.region_name else None
        options: dict[str, Any] = {
            "endpoint_url": s3.endpoint_url,
            "key": s3.aws_access_key_id,
            "secret": s3.aws_secret_access_key,
            "token": s3.aws_session_token,
            "profile": s3.profile_name,
            "anon": s3.use_unsigned_session or None,
            "client_kwargs": client,
        }
        set_options = {name: value for name, value in options.items() if value is not None}
        return settings.model_copy(update={"storage_options": merged(set_options, settings.storage())})

    def lake_tables(self) -> Mapping[Life, LakeTable]:
        """Return the changefeed's tables as the catalog has them now."""
        with open_state(self.lake, self.changefeed.name, self.changefeed.namespace) as state:
            return state.tables()

    @contextmanager
    def pipeline(
        self,
        s3: S3Resource,
        pyspark: LazyPySparkResource | None = None,
        watch: Watch | None = None,
        fuse: bool = True,
    ) -> Iterator[LakePipeline]:
        """Open the pipeline; Spark starts at the first step that needs it and stays for the process."""

        def session() -> Any:
            assert pyspark is not None
            with java_needed():
                flat: Any = flatten_dict(pyspark.spark_config)  # type: ignore[no-untyped-call]
                texts = {name: str(value) for name, value in flat}
                configuration = spark_configuration(self.lake, texts)
                refuse_dead(configuration["spark.master"])
                open_gateway(configuration)
                spark = LazyPySparkResource(spark_config=configuration).spark_session
                watch_executors(spark)
                return spark

        settings = self.with_credentials(s3)
        with open_pipeline(settings, self.lake, watch, session, fuse) as pipeline:
            yield pipeline


def _stamp(path: str | Path | None) -> tuple[int, int] | None:
    try:
        stat = os.stat(path) if path else None
    except OSError:
        return None
    return stat and (stat.st_mtime_ns, stat.st_size)
