"""The JVM and Iceberg's own API in it, for what needs no Spark session: metadata read, metadata committed.

A session takes seconds to start and a query's first run seconds more; Iceberg's classes alone create a table, change
its metadata, label it or add finished data files, in the same JVM in which a session may start later.

    open_gateway     the JVM that PySpark talks to, the same for the whole process; started in a thread of its own
    IcebergCatalog   the lake's catalog in Iceberg's Java API, built from the same settings as Spark's
    has_files        whether anything was ever written to a table's directory
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from cdc_assets.jvm.jars import extra_jars, local_files_jars
from cdc_assets.lake.failures import hide
from cdc_assets.lake.names import Identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.settings.lake import LakeSettings

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_SDK_PROPERTIES = {
    "client.access-key-id": "aws.accessKeyId",
    "client.secret-access-key": "aws.secretAccessKey",
    "client.session-token": "aws.sessionToken",
}
"""The system properties in which Amazon's client for Java looks for keys first."""

_ANNOUNCED = b"WARNING: Using incubator modules: "
"""Java's warning about a module that Spark's launcher requests."""


def open_gateway(conf: Mapping[str, str]) -> Any:
    """Return the JVM as a py4j view; one is started with a session's configuration if none runs in this process.

    Settings of catalogs are left out: a JVM's settings are on its command line, which all users of a machine can read.
    Concurrent callers wait for each other. Raises RuntimeError if Java does not start.
    """
    options = [(key, value) for key, value in conf.items() if not key.startswith("spark.sql.catalog.")]
    settings = SparkConf(loadDefaults=False).setAll(options)
    with SparkContext._lock:
        if SparkContext._gateway is None:
            log.info("Java starts: some seconds")
            # PySpark launches with hooks of Python around the fork, and an interrupt that comes in one of them is lost.
            gateway = in_its_own_thread(partial(_launched, settings))
            gateway.jvm.__class__ = _JavaNames
            SparkContext._ensure_initialized(gateway=gateway)
    return SparkContext._jvm


def in_its_own_thread(call: Callable[[], _T]) -> _T:
    """Make a call outside the main thread; return its result or raise its error.

    Signals are the main thread's, which only waits then, and Ctrl-C ends that: the call is given up.
    """
    answer: Future[_T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001  # raised by `result`
            answer.set_exception(error)

    Thread(target=run, name="cdc-assets-spark", daemon=True).start()
    return answer.result()


class _MemberOnce:
    """Asks Java once what a name is, ours and PySpark's: for one that is no class it looks through hundreds of jars."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)  # type: ignore[misc]
        if type(member) is JavaPackage:
            member.__class__ = _JavaNamesBelow
        elif type(member) is JavaClass:
            member.__class__ = _JavaClass
        setattr(self, name, member)
        return member


class _JavaNames(_MemberOnce, JVMView):  # type: ignore[misc]
    """The names that need no package before them, and the outermost packages."""


class _JavaNamesBelow(_MemberOnce, JavaPackage):  # type: ignore[misc]
    """The classes and packages of a package."""


class _JavaClass(JavaClass):  # type: ignore[misc]
    """A class: py4j asks Java at each use whether a name is a static method of it."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if type(member) is JavaMember:  # a field may have another value later
            setattr(self, name, member)
        return member


def _launched(settings: SparkConf) -> Any:
    """Start a JVM and pass its standard error on, except for the lines that Java prints at every start."""
    reader, writer = os.pipe()
    errors = _StandardError(reader)
    try:
        trains = "-XX:ArchiveClassesAtExit" in settings.get("spark.driver.extraJavaOptions", "")
        with _behind_spark(() if trains else (*local_files_jars(), *extra_jars())):
            gateway = launch_gateway(settings, {"stderr": writer})  # type: ignore[no-untyped-call]
    finally:
        os.close(writer)
        errors.pass_on()  # the output of a JVM that does not start has the reason
    Thread(target=errors.pass_on, args=(None,), name="cdc-assets-jvm-stderr", daemon=True).start()
    atexit.register(errors.finish)
    return gateway


@contextmanager
def _behind_spark(jars: Sequence[Path]) -> Iterator[None]:
    """Put these jars last on the class path of a JVM that starts, where the class-data archive does not check them.

    It cannot load more jars later, and serves every lake that its process opens.
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


class _StandardError:
    """The reading end of a JVM's standard error."""

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self._cut = b""
        self._lock = Lock()

    def pass_on(self, patience_seconds: float | None = 0) -> None:
        """Pass on the output so far; with None for patience all of it until the process ends."""
        while select.select([self._reader], [], [], patience_seconds)[0]:
            with self._lock:
                if not select.select([self._reader], [], [], 0)[0]:
                    continue
                chunk = os.read(self._reader, 65536)
                *lines, self._cut = (self._cut + chunk).splitlines(keepends=True) or [b""]
                if self._cut.endswith(b"\n") or not chunk:
                    lines, self._cut = [*lines, self._cut], b""
                for line in lines:
                    if not line.startswith(_ANNOUNCED):
                        os.write(2, line)
                if not chunk:
                    return

    def finish(self) -> None:
        """Pass on the rest, and wait for output that another thread has read and not passed on yet."""
        self.pass_on()
        with self._lock:
            return


class IcebergCatalog:
    """Iceberg's `Catalog` of a lake. `spark` is a running session whose Hadoop settings are to be used."""

    def __init__(self, jvm: Any, settings: LakeSettings, spark: SparkSession | None = None) -> None:
        self.jvm = jvm
        self._namespaces: dict[str, Any] = {}
        self._mapper = self.java("org.apache.iceberg.util.JsonUtil").mapper()
        self._map_type: Any = None
        self._begin: Any = None
        prefix = f"spark.sql.catalog.{settings.name}."
        options = {
            key[len(prefix) :]: value for key, value in settings.spark_properties().items() if key.startswith(prefix)
        }
        # Hadoop's configuration is as in Spark: of the session, or of Spark's own settings files.
        if spark is not None:
            context: Any = spark.sparkContext
            hadoop = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
        else:
            spark_jvm = jvm.org.apache.spark
            hadoop = spark_jvm.deploy.SparkHadoopUtil.get().newConfiguration(spark_jvm.SparkConf())
        for key, value in options.items():
            if key.startswith("hadoop."):
                hadoop.set(key[len("hadoop.") :], value)
        hide(settings.secrets)
        if options.get("type") == "glue":
            # Iceberg passes the configured keys to S3 only, so Amazon's client gets them here.
            for option, name in _SDK_PROPERTIES.items():
                if option in options:
                    jvm.java.lang.System.setProperty(name, options[option])
        self._catalog = self.java("org.apache.iceberg.CatalogUtil").buildIcebergCatalog(settings.name, options, hadoop)

    def load(self, identifier: Identifier) -> Any:
        """Return Iceberg's `Table` as it is now."""
        return self._catalog.loadTable(self.identifier(identifier))

    def builder(self, identifier: Identifier, schema: Any) -> Any:
        """Return Iceberg's `TableBuilder`."""
        return self._catalog.buildTable(self.identifier(identifier), schema)

    def transaction(self, table: Any) -> Any:
        """Return Iceberg's `Transaction` on a table's state as it was loaded.

        `newTransaction` asks the catalog for a newer one, and the commit does so again. The constructor is not public.
        """
        if self._begin is None:
            kind = self.jvm.java.lang.Class.forName(
                "org.apache.iceberg.BaseTransaction", True, table.getClass().getClassLoader()
            )
            (begin,) = (
                constructor for constructor in kind.getDeclaredConstructors() if constructor.getParameterCount() == 4
            )
            begin.setAccessible(True)
            (simple,) = (
                constant for constant in begin.getParameterTypes()[2].getEnumConstants() if constant.name() == "SIMPLE"
            )
            self._begin = begin, simple
        (begin, simple), operations, gateway = self._begin, table.operations(), SparkContext._gateway
        assert gateway is not None
        arguments = gateway.new_array(self.jvm.java.lang.Object, 4)
        for place, value in enumerate((table.name(), operations, simple, operations.current())):
            arguments[place] = value
        return begin.newInstance(arguments)

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
        """Return a Java class by its full name."""
        return reduce(getattr, name.split("."), self.jvm)

    def java_map(self, values: Mapping[str, str]) -> Any:
        """Return a Java map of texts in one call, where py4j would need one for each entry."""
        if self._map_type is None:
            self._map_type = self.jvm.java.util.HashMap().getClass()
        return self._mapper.readValue(json.dumps(values), self._map_type)

    def texts_of(self, java_map: Any) -> dict[str, str]:
        """Return a Java map of texts in one call, the inverse of `java_map`."""
        texts: dict[str, str] = json.loads(self._mapper.writeValueAsString(java_map))
        return texts

    def json_node(self, value: object) -> Any:
        """Return a value as the tree of JSON from which Iceberg's parsers read."""
        return self._mapper.readTree(json.dumps(value))

    def close(self) -> None:
        """Close the catalog's connections."""
        if hasattr(self._catalog, "close"):
            self._catalog.close()


def has_files(io: Any, place: str) -> bool:
    """Return whether files may be in the directory of metadata of a table at `place`, as its `FileIO` lists them."""
    if place.startswith("/"):
        return os.path.isdir(f"{place}/metadata")
    try:
        return bool(io.listPrefix(f"{place}/metadata/").iterator().hasNext())
    except Py4JError:  # not every store lists what is below a name
        return True
