"""Spark for the lake: how a session is built, sessions for steps, and the JVM gateway, which nothing else touches.

A label is a session setting and would leak to a neighbour thread's commits, so no two steps share a session. Sessions
are used again one after the other: each has a catalog with connections of its own, which only `close` gives back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_assets.errors import CdcError, JavaMissing, LakeUnavailable, TableMoved
from cdc_assets.jars import spark_jars
from cdc_assets.java import prepare_environment
from cdc_assets.lake.names import Identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc_assets.config import LakeSettings

__all__ = ["Sessions", "StepSession", "quoted", "races", "spark_configuration", "spark_session", "step_session"]

_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."

_MOVED = (
    "org.apache.iceberg.exceptions.ValidationException",
    "org.apache.iceberg.exceptions.CommitFailedException",
    "org.apache.iceberg.exceptions.CommitStateUnknownException",
    "org.apache.iceberg.exceptions.NoSuchTableException",
    "org.apache.spark.sql.catalyst.analysis.NoSuchTableException",
    "org.apache.spark.sql.catalyst.analysis.CannotReplaceMissingTableException",
)
"""What the loser of a race gets: a conflict, or that the table is not at its name any more."""

_OTHER_TABLE = "Table UUID does not match"
"""What Iceberg says, without a class of its own, when another table took the name of a loaded one."""

_UNANSWERED = ("java.io.", "java.net.", "java.nio.file.", "java.sql.", "org.sqlite.", "software.amazon.awssdk.core.")
"""Where the exceptions of a catalog or a warehouse come from that did not do what it was asked."""

_IN_TEXT = re.compile(r"\bjava\.(?:io|net|nio\.file)\.\w+Exception: [^\n]*")
"""What the executors' exceptions look like when they reach the driver as text."""


def spark_configuration(settings: LakeSettings) -> dict[str, str]:
    """Return Spark's configuration for the lake, with defaults for a local session.

    `CDC_ASSETS_SPARK_MASTER` and `CDC_ASSETS_DRIVER_MEMORY` change the two that depend on the machine. Raises
    SetupError when the jars were never fetched.
    """
    return {
        "spark.master": os.environ.get("CDC_ASSETS_SPARK_MASTER", "local[2]"),
        "spark.app.name": "cdc-assets",
        "spark.driver.memory": os.environ.get("CDC_ASSETS_DRIVER_MEMORY", "2g"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.jars": ",".join(str(path) for path in spark_jars()),
        **settings.spark_properties(),
    }


def spark_session(settings: LakeSettings, **conf: str) -> SparkSession:
    """Return the process's Spark session, started when there is none.

    `conf` changes `spark_configuration`: pass `**{"spark.master": "…"}`. Raises JavaMissing, SetupError.
    """
    prepare_environment()
    builder = SparkSession.builder
    for key, value in {**spark_configuration(settings), **conf}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except RuntimeError as error:
        raise JavaMissing(f"Spark's Java did not start ({error}). Check JAVA_HOME; Java 17 or 21 is needed.") from error
    spark.sparkContext.setLogLevel(os.environ.get("CDC_ASSETS_SPARK_LOG", "OFF"))
    return spark


def quoted(*names: str) -> str:
    """Return a Spark SQL name of one or more parts, safe for any characters."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


@dataclass
class StepSession:
    """A Spark session for one step at a time. `statements` collects what was run, for the journal."""

    spark: SparkSession
    catalog: str
    statements: list[str] = field(default_factory=list)
    _set: set[str] = field(default_factory=set)

    def sql(self, statement: str) -> DataFrame:
        """Run a statement and note it down."""
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
        """Forget labels, settings and statements of the step before."""
        while self._set:
            self.spark.conf.unset(self._set.pop())
        self.statements = []

    def close(self) -> None:
        """Give back the catalog's connections; the session is of no use afterwards."""
        catalog = self.java_catalog()
        if hasattr(catalog, "close"):
            catalog.close()

    def name(self, identifier: Identifier) -> str:
        """Return the table's name in Spark SQL."""
        return quoted(self.catalog, *identifier)

    @property
    def jvm(self) -> Any:
        """The JVM as py4j shows it."""
        return self.spark._jvm

    def load(self, identifier: Identifier) -> Any:
        """Return Iceberg's `Table` as it is now."""
        return self._spark3().loadIcebergTable(self.spark._jsparkSession, self.name(identifier))

    def java_catalog(self) -> Any:
        """Return Iceberg's `Catalog`."""
        return self._spark3().loadIcebergCatalog(self.spark._jsparkSession, self.catalog)

    def _spark3(self) -> Any:
        """Return Iceberg's way into Spark, which makes a catalog from the settings of the *active* session."""
        self.jvm.org.apache.spark.sql.SparkSession.setActiveSession(self.spark._jsparkSession)
        return self.jvm.org.apache.iceberg.spark.Spark3Util

    def java_identifier(self, identifier: Identifier) -> Any:
        """Return Iceberg's `TableIdentifier` with a namespace of one level."""
        gateway = self.spark.sparkContext._gateway
        assert gateway is not None
        levels = gateway.new_array(self.jvm.java.lang.String, 1)
        levels[0] = identifier[0]
        iceberg = self.jvm.org.apache.iceberg.catalog
        return iceberg.TableIdentifier.of(iceberg.Namespace.of(levels), identifier[1])


def step_session(spark: SparkSession, settings: LakeSettings) -> StepSession:
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
    return StepSession(session, settings.name)


class Sessions:
    """The sessions of one lake on one Spark, which is started when it is first needed, or given by `spark`."""

    def __init__(self, settings: LakeSettings, spark: Callable[[], SparkSession] | None = None) -> None:
        self._settings = settings
        self._given = spark
        self._spark: SparkSession | None = None
        self._idle: list[StepSession] = []
        self._side: StepSession | None = None

    @property
    def spark(self) -> SparkSession:
        """The Spark session that all others belong to."""
        if self._spark is None:
            self._spark = self._given() if self._given is not None else spark_session(self._settings)
        return self._spark

    @contextmanager
    def step(self) -> Iterator[StepSession]:
        """Lend a session to one step."""
        session = self._idle.pop() if self._idle else step_session(self.spark, self._settings)
        try:
            yield session
        finally:
            session.reset()
            self._idle.append(session)

    def side(self) -> StepSession:
        """Return the session for what is no step: staging, and tables of the lake itself."""
        if self._side is None:
            self._side = step_session(self.spark, self._settings)
        self._side.reset()
        return self._side

    def close(self) -> None:
        """Close the catalogs, and stop Spark if it was started here."""
        for session in (*self._idle, *([self._side] if self._side is not None else [])):
            with suppress(Exception):
                session.close()
        self._idle, self._side = [], None
        if self._given is None and self._spark is not None:
            self._spark.stop()
        self._spark = None


@contextmanager
def races(table: str) -> Iterator[None]:
    """Turn exceptions about lost races into TableMoved, about a catalog or storage that fails into LakeUnavailable.

    Nothing is known then but that the table stands at the old state or at the new one: its progress tells.
    """
    try:
        yield
    except CdcError:
        raise
    except OSError as error:
        raise _failed(table, str(error)) from error
    except (Py4JError, PySparkException) as error:
        classes = list(_java_causes(error))
        known = [name for name, _ in classes]
        message = classes[-1][1] if classes else str(error)
        if any(name in _MOVED for name in known) or _OTHER_TABLE in message:
            raise TableMoved(
                f"{table}: another writer committed first ({message}). Read the progress again and plan again.",
                table=table,
            ) from error
        told = _IN_TEXT.search(str(error))
        if told is not None or any(name.startswith(_UNANSWERED) for name in known):
            raise _failed(table, told[0] if told is not None else message) from error
        raise


def _failed(table: str, reason: str) -> LakeUnavailable:
    return LakeUnavailable(
        f"{table}: the lake's catalog or storage failed ({reason}). The table stands as it was before this step, or "
        "after it; nothing is half done. Correct that and try again.",
        table=table,
    )


def _java_causes(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield (class, message) of the Java exception and of its causes, outermost first."""
    cause = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    while cause is not None and not isinstance(cause, BaseException):
        yield cause.getClass().getName(), str(cause.getMessage())
        cause = cause.getCause()
