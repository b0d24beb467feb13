"""Spark for the lake: how a session is built, sessions for steps, and the JVM gateway, which nothing else uses.

A label is a session setting and would leak into another thread's commits, so no two steps share a session at a time.
Sessions are reused one after the other: each has a catalog with connections of its own, which only `close` closes.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import RLock, Thread
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from cdc_assets.errors import BadSettings, CdcError, JavaMissing
from cdc_assets.jvm.class_data import class_data_options
from cdc_assets.jvm.jars import LOCAL_FILES, local_files_jars, needed_jars, ready_jars, spark_jars
from cdc_assets.jvm.java import prepare_environment, spark_conf, spark_default
from cdc_assets.lake.names import Identifier
from cdc_assets.lake.spark.cluster import is_local, refuse_connect, refuse_dead, spark_master, watch_executors
from cdc_assets.lake.spark.failures import races
from cdc_assets.lake.spark.gateway import IcebergCatalog, in_its_own_thread, open_gateway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc_assets.settings.lake import LakeSettings

log = logging.getLogger(__name__)

_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."


def spark_configuration(settings: LakeSettings, overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return Spark's configuration for the lake, with defaults for a local session; `overrides` come before them.

    `CDC_ASSETS_SPARK_MASTER` and `CDC_ASSETS_DRIVER_MEMORY` change the two that depend on the machine. Raises
    SetupError if the jars were never fetched, or for Spark Connect.
    """
    ready_jars(settings.extras)
    jars, more = ([str(path) for path in paths] for paths in (spark_jars(), needed_jars(settings.extras)))
    overrides = overrides or {}
    master = overrides.get("spark.master") or spark_master()
    refuse_connect({"spark.master": master, **overrides})
    driver_memory = os.environ.get("CDC_ASSETS_DRIVER_MEMORY", "1536m")
    if re.fullmatch("[1-9][0-9]*[kmgtKMGT]?", driver_memory) is None:
        raise BadSettings(
            f"CDC_ASSETS_DRIVER_MEMORY is {driver_memory!r}; expected a size such as 1536m or 4g. Correct it."
        )
    return {
        "spark.master": master,
        "spark.app.name": "cdc-assets",
        "spark.driver.memory": driver_memory,
        **(_inside() if is_local(master) else _reached(jars, more)),
        # On the driver's own class path they are part of the class-data archive, and no session copies them.
        "spark.driver.extraClassPath": os.pathsep.join([*jars, *spark_default("spark.driver.extraClassPath")]),
        "spark.driver.extraJavaOptions": " ".join(
            [*spark_default("spark.driver.extraJavaOptions"), *class_data_options(), *_log_options()]
        ),
        "spark.redaction.regex": "(?i)secret|password|token|access[.-]?key|credential|connection[.-]string|uri",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        **settings.spark_properties(),
        **overrides,
    }


def _inside() -> dict[str, str]:
    """Return the settings of a local session: where its driver listens, and how it writes local files."""
    files = {"spark.hadoop.fs.file.impl": LOCAL_FILES} if local_files_jars() else {}
    return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **files}


def _reached(jars: Sequence[str], more: Sequence[str]) -> dict[str, str]:
    """Return the settings that give executors on other machines the jars; Spark finds the address of the driver."""
    sent = [*spark_default("spark.jars"), *jars, *more]
    return {"spark.jars": ",".join(sent)}


@contextmanager
def java_needed() -> Iterator[None]:
    """Find the Java with which a block starts a JVM. Raises JavaMissing, also if the JVM exits at once, SetupError."""
    prepare_environment()
    try:
        yield
    except RuntimeError as error:
        raise JavaMissing(f"Spark's Java did not start ({error}). Check JAVA_HOME; Java 17 or 21 is needed.") from error


def start_jvm(settings: LakeSettings) -> Any:
    """Return the JVM of this process, started if there is none. Raises JavaMissing, SetupError.

    A concurrent caller waits for the start.
    """
    with java_needed():
        jvm = open_gateway(spark_configuration(settings))
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setRootLevel(log4j.Level.toLevel(_log_level()))
    return jvm


def start_jvm_aside(settings: LakeSettings) -> None:
    """Start the JVM in the background; the `start_jvm` that needs it raises the error if that fails."""

    def run() -> None:
        with suppress(CdcError):
            start_jvm(settings)

    Thread(target=run, name="cdc-assets-jvm", daemon=True).start()


def _log_options() -> list[str]:
    """Return the options for our settings of Spark's log; none if the installation has its own."""
    log_settings = Path(__file__).with_name("log4j2.properties")
    return (
        []
        if spark_conf(log_settings.name).exists() or " " in str(log_settings)
        else [f"-Dlog4j2.configurationFile={log_settings.as_uri()}"]
    )


def _log_level() -> str:
    return os.environ.get("CDC_ASSETS_SPARK_LOG", "OFF")


def spark_session(settings: LakeSettings, **conf: str) -> SparkSession:
    """Return the process's Spark session, started if there is none.

    `conf` changes `spark_configuration`: pass `**{"spark.master": "…"}`. Raises JavaMissing, SetupError.
    """
    with java_needed():
        builder, configuration = SparkSession.builder, spark_configuration(settings, conf)
        refuse_dead(configuration["spark.master"])
        open_gateway(configuration)
        for key, value in configuration.items():
            builder = builder.config(key, value)
        if SparkContext._active_spark_context is None:
            log.info("Spark starts: some seconds")
        spark = builder.getOrCreate()
    watch_executors(spark)
    spark.sparkContext.setLogLevel(_log_level())
    return spark


def quoted(*names: str) -> str:
    """Return a Spark SQL name of one or more parts, safe for any characters."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


class StepSession:
    """A session for one step at a time. `statements` collects what was run, for the journal.

    Iceberg's own API is available at once; a Spark session is opened when the step first needs one.
    """

    def __init__(self, catalog: str, iceberg: IcebergCatalog, opened: Callable[[], SparkSession]) -> None:
        self.catalog = catalog
        self.iceberg = iceberg
        self.statements: list[str] = []
        self._open = opened
        self._spark: SparkSession | None = None
        self._set: set[str] = set()

    @property
    def spark(self) -> SparkSession:
        """The step's own Spark session."""
        if self._spark is None:
            self._spark = self._open()
        return self._spark

    def sql(self, statement: str) -> DataFrame:
        """Run a statement and record it."""
        self.statements.append(statement)
        return self.spark.sql(statement)

    def label(self, properties: Mapping[str, str]) -> None:
        """Put these properties on every snapshot that its later statements commit."""
        for key, value in properties.items():
            self.set(_SNAPSHOT_PROPERTY + key, value)

    def set(self, key: str, value: str) -> None:
        """Change a setting until `reset`."""
        self._set.add(key)
        self.spark.conf.set(key, value)

    def reset(self) -> None:
        """Clear labels, settings and statements of the step before."""
        while self._set:
            self.spark.conf.unset(self._set.pop())
        self.statements = []

    def close(self) -> None:
        """Close the connections of the Spark session's catalog; it cannot be used afterwards."""
        if self._spark is None:
            return
        jvm = self.jvm
        # Spark3Util makes a catalog from the settings of the *active* session.
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(self._spark._jsparkSession)
        spark3 = jvm.org.apache.iceberg.spark.Spark3Util
        catalog = spark3.loadIcebergCatalog(self._spark._jsparkSession, self.catalog)
        if hasattr(catalog, "close"):
            catalog.close()

    def name(self, identifier: Identifier) -> str:
        """Return the table's name in Spark SQL."""
        return quoted(self.catalog, *identifier)

    @property
    def jvm(self) -> Any:
        """The JVM as a py4j view."""
        return self.iceberg.jvm

    def load(self, identifier: Identifier) -> Any:
        """Return Iceberg's `Table` as it is now."""
        return self.iceberg.load(identifier)

    def find(self, identifier: Identifier) -> Any | None:
        """Return Iceberg's `Table` as it is now, None if nothing can be loaded from that name."""
        try:
            return self.iceberg.load(identifier)
        except Py4JJavaError:
            return None


def step_spark(spark: SparkSession, settings: LakeSettings) -> SparkSession:
    """Return a new session on the same Spark, with the lake's catalog."""
    session = spark.newSession()
    for key, value in settings.spark_properties().items():
        session.conf.set(key, value)
    session.conf.set(f"spark.sql.catalog.{settings.name}.cache-enabled", "false")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.ansi.enabled", "true")
    # A table or column called ${env:SECRET} is a name, not a variable.
    session.conf.set("spark.sql.variable.substitute", "false")
    session.conf.set("spark.sql.parquet.inferTimestampNTZ.enabled", "true")
    return session


class Sessions:
    """The sessions of one lake in one JVM; Spark is started when it is first needed, or given by `spark`.

    `prepare` is called before the JVM opens the lake's catalog, and raises what speaks against that.
    """

    def __init__(
        self,
        settings: LakeSettings,
        spark: Callable[[], SparkSession] | None = None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._prepare = prepare
        self._settings = settings
        self._given = spark
        self._spark: SparkSession | None = None
        self._iceberg: IcebergCatalog | None = None
        self._idle: list[StepSession] = []
        self._side: StepSession | None = None
        self._lock = RLock()

    @property
    def spark(self) -> SparkSession:
        """The Spark session that all others belong to."""
        with self._lock:
            if self._spark is None:
                # In the main thread PySpark sets a handler of SIGINT that calls the JVM while that thread waits for
                # another call's answer; py4j then reports that call as failed, and the interrupt is lost.
                self._spark = in_its_own_thread(self._given or partial(spark_session, self._settings))
                refuse_connect({}, self._spark)
            return self._spark

    @property
    def local(self) -> bool:
        """Return whether executors would be threads of the driver's own machine."""
        return is_local(spark_master() if self._given is None else str(self.spark.sparkContext.master))

    def warm(self) -> None:
        """Start the JVM in the background, unless Spark is given; returns at once.

        Raises BadSettings for Spark Connect, LakeUnavailable for a dead master: each table would wait for it anew;
        SetupError where jars are missing.
        """
        if self._iceberg is None:
            ready_jars(self._settings.extras)
        if self._given is None and self._iceberg is None:
            refuse_connect({"spark.master": spark_master()})
            refuse_dead(spark_master())
            start_jvm_aside(self._settings)

    @property
    def iceberg(self) -> IcebergCatalog:
        """The lake's catalog in the JVM. Raises JavaMissing, SetupError."""
        with self._lock:
            if self._iceberg is None:
                self._prepare()
                session = self.spark if self._given is not None else None
                jvm = session._jvm if session is not None else start_jvm(self._settings)
                with races("the lake's catalog"):
                    self._iceberg = IcebergCatalog(jvm, self._settings, session)
            return self._iceberg

    @contextmanager
    def step(self) -> Iterator[StepSession]:
        """Lend a session to one step."""
        try:
            session = self._idle.pop()  # several threads may come at once
        except IndexError:
            session = self._session()
        try:
            yield session
        finally:
            session.reset()
            self._idle.append(session)

    def _session(self) -> StepSession:
        return StepSession(self._settings.name, self.iceberg, lambda: step_spark(self.spark, self._settings))

    def side(self) -> StepSession:
        """Return the session for work outside steps: staging, and tables of the lake itself."""
        if self._side is None:
            self._side = self._session()
        self._side.reset()
        return self._side

    def close(self) -> None:
        """Close the catalogs, and stop Spark if it was started here."""
        for session in (*self._idle, *([self._side] if self._side is not None else [])):
            with suppress(Exception):
                session.close()
        self._idle, self._side = [], None
        if self._iceberg is not None:
            with suppress(Exception):
                self._iceberg.close()
        if self._given is None and self._spark is not None:
            self._spark.stop()
        self._spark = self._iceberg = None
