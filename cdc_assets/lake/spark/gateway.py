"""The JVM and Iceberg's own API in it, for what needs no Spark session: metadata read, metadata committed.

A session takes seconds to start and a query's first run seconds more; a table is made, changed in metadata, labelled or
given finished data files by Iceberg's classes alone, in the same JVM that a session would start in later.

    open_gateway     the JVM that PySpark talks to, the same for the whole process
    IcebergCatalog   the lake's catalog as Iceberg's Java API has it, built from the settings that Spark's gets
"""

from __future__ import annotations

import atexit
import json
import os
import select
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from cdc_assets.jvm.jars import extra_jars
from cdc_assets.lake.failures import hide
from cdc_assets.lake.names import Identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.settings.config import LakeSettings

__all__ = ["IcebergCatalog", "open_gateway"]

_SDK_PROPERTIES = {
    "client.access-key-id": "aws.accessKeyId",
    "client.secret-access-key": "aws.secretAccessKey",
    "client.session-token": "aws.sessionToken",
}
"""Where Amazon's client for Java looks first for keys."""

_ANNOUNCED = b"WARNING: Using incubator modules: "
"""What Java says of a module that Spark's launcher asks for."""


def open_gateway(conf: Mapping[str, str]) -> Any:
    """Return the JVM as py4j shows it; one is started with a session's configuration when none runs in this process.

    Catalogs are not part of that: a JVM's settings stand on its command line, which all users of a machine can read.
    Callers wait for each other. Raises RuntimeError when Java does not start.
    """
    told = [(key, value) for key, value in conf.items() if not key.startswith("spark.sql.catalog.")]
    settings = SparkConf(loadDefaults=False).setAll(told)
    with SparkContext._lock:
        if SparkContext._gateway is None:
            SparkContext._ensure_initialized(gateway=_launched(settings))
    return SparkContext._jvm


def _launched(settings: SparkConf) -> Any:
    """Start a JVM whose standard error is passed on, but for what Java announces at every start."""
    reader, writer = os.pipe()
    says = _Says(reader)
    try:
        trains = "-XX:ArchiveClassesAtExit" in settings.get("spark.driver.extraJavaOptions", "")
        with _behind_spark(() if trains else extra_jars()):
            gateway = launch_gateway(settings, {"stderr": writer})  # type: ignore[no-untyped-call]
    finally:
        os.close(writer)
        says.pass_on()  # what a JVM says that does not start is the reason
    Thread(target=says.pass_on, args=(None,), name="cdc-assets-jvm-says", daemon=True).start()
    atexit.register(says.finish)
    return gateway


@contextmanager
def _behind_spark(jars: Sequence[Path]) -> Iterator[None]:
    """Let a JVM that starts have these jars last on its class path, where the class-data archive does not count them.

    It takes no more classes later on, and serves every lake that its process opens.
    """
    name = "SPARK_DIST_CLASSPATH"
    before = os.environ.get(name)
    os.environ[name] = os.pathsep.join([*([before] if before else []), *map(str, jars)])
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


class _Says:
    """The reading end of a JVM's standard error."""

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self._cut = b""
        self._lock = Lock()

    def pass_on(self, patience_seconds: float | None = 0) -> None:
        """Pass on what is said by now; with None for patience all that will be said."""
        while select.select([self._reader], [], [], patience_seconds)[0]:
            with self._lock:
                if not select.select([self._reader], [], [], 0)[0]:
                    continue
                said = os.read(self._reader, 65536)
                *lines, self._cut = (self._cut + said).splitlines(keepends=True) or [b""]
                if self._cut.endswith(b"\n") or not said:
                    lines, self._cut = [*lines, self._cut], b""
                for line in lines:
                    if not line.startswith(_ANNOUNCED):
                        os.write(2, line)
                if not said:
                    return

    def finish(self) -> None:
        """Pass on what is left, and wait for what another thread has read and not passed on yet."""
        self.pass_on()
        with self._lock:
            return


class IcebergCatalog:
    """Iceberg's `Catalog` of a lake. `spark` is given where a session runs whose Hadoop settings have to serve."""

    def __init__(self, jvm: Any, settings: LakeSettings, spark: SparkSession | None = None) -> None:
        self.jvm = jvm
        self._classes: dict[str, Any] = {}
        self._namespaces: dict[str, Any] = {}
        self._map_type: Any = None
        prefix = f"spark.sql.catalog.{settings.name}."
        options = {
            key[len(prefix) :]: value for key, value in settings.spark_properties().items() if key.startswith(prefix)
        }
        hadoop = _hadoop(jvm, spark)
        for key, value in options.items():
            if key.startswith("hadoop."):
                hadoop.set(key[len("hadoop.") :], value)
        hide(settings.secrets)
        if options.get("type") == "glue":
            _give_keys(jvm, options)
        self._catalog = self.java("org.apache.iceberg.CatalogUtil").buildIcebergCatalog(settings.name, options, hadoop)

    def load(self, identifier: Identifier) -> Any:
        """Return Iceberg's `Table` as it is now."""
        return self._catalog.loadTable(self.identifier(identifier))

    def builder(self, identifier: Identifier, schema: Any) -> Any:
        """Return Iceberg's `TableBuilder`."""
        return self._catalog.buildTable(self.identifier(identifier), schema)

    def drop(self, identifier: Identifier) -> None:
        """Remove a table with its files."""
        self._catalog.dropTable(self.identifier(identifier), True)

    def identifier(self, identifier: Identifier) -> Any:
        """Return Iceberg's `TableIdentifier` with a namespace of one level."""
        namespace, name = identifier
        if namespace not in self._namespaces:
            gateway = SparkContext._gateway
            assert gateway is not None
            levels = gateway.new_array(self.jvm.java.lang.String, 1)
            levels[0] = namespace
            self._namespaces[namespace] = self.java("org.apache.iceberg.catalog.Namespace").of(levels)
        return self.java("org.apache.iceberg.catalog.TableIdentifier").of(self._namespaces[namespace], name)

    def java(self, name: str) -> Any:
        """Return a Java class by its full name; each part of the name asks the JVM, so it is kept."""
        if name not in self._classes:
            self._classes[name] = reduce(getattr, name.split("."), self.jvm)
        return self._classes[name]

    def java_map(self, values: Mapping[str, str]) -> Any:
        """Return a Java map of texts in one crossing, where py4j would need one for each entry."""
        if self._map_type is None:
            self._map_type = self.jvm.java.util.HashMap().getClass()
        return self.java("org.apache.iceberg.util.JsonUtil").mapper().readValue(json.dumps(values), self._map_type)

    def close(self) -> None:
        """Give back the catalog's connections."""
        if hasattr(self._catalog, "close"):
            self._catalog.close()


def _give_keys(jvm: Any, options: Mapping[str, str]) -> None:
    """Let Amazon's client find the keys that were given: Iceberg hands them to S3 only."""
    for option, name in _SDK_PROPERTIES.items():
        if option in options:
            jvm.java.lang.System.setProperty(name, options[option])


def _hadoop(jvm: Any, spark: SparkSession | None) -> Any:
    """Return Hadoop's configuration as Spark would have it: of the session, or of Spark's own settings files."""
    if spark is not None:
        context: Any = spark.sparkContext
        return jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
    spark_jvm = jvm.org.apache.spark
    return spark_jvm.deploy.SparkHadoopUtil.get().newConfiguration(spark_jvm.SparkConf())
