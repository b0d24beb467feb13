"""Hive's metastore over Derby: `HiveMetastore.java`, compiled as it starts by the Janino that Spark brings along."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc_assets.jvm.jars import Jar
from cdc_assets.jvm.java import find_java, spark_home
from cdc_assets_tests.servers.rest_catalog import fetch_server_jars, printed_port

__all__ = ["JARS", "hive_metastore"]

JARS = (
    Jar(
        "org.apache.hive:hive-standalone-metastore:3.1.3",
        "779d11d856d9f41b5f78658fdf7ddf1626f03c7ae5d808582484c3744597a1f3",
    ),
    Jar(
        "org.apache.thrift:libthrift:0.9.3",
        "bca5e8cdee1e0fbf563de7d41c452385e7bed69723fa28225a9ce718a8ee3419",
    ),
    Jar(
        "com.google.guava:guava:19.0",
        "58d4cc2e05ebb012bbac568b032f75623be1cb6fb096f3c60c72a86f7f057de4",
    ),
    Jar(
        "org.apache.derby:derby:10.14.2.0",
        "2c40eb581e5221ab33c7c796979b49ce404e7e393357c58f7bcdb30a09efca72",
    ),
    Jar(
        "commons-collections:commons-collections:3.2.2",
        "eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8",
    ),
)
"""What Spark does not bring along, or brings in another version. They are fetched by the tests that need them."""


@contextmanager
def hive_metastore(home: Path, warehouse: str) -> Iterator[str]:
    """Run an empty metastore whose databases lie below `warehouse`, its files in `home`; yield its address."""
    home.mkdir(parents=True, exist_ok=True)
    jars = [*fetch_server_jars(JARS), spark_home() / "jars" / "*"]
    arguments = home / "java.args"
    arguments.write_text(f'-cp\n"{os.pathsep.join(map(str, jars))}"\n')
    command = [str(find_java() / "bin" / "java"), f"@{arguments}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += [f"-Dderby.stream.error.file={home / 'derby.log'}", "org.codehaus.janino.SimpleCompiler"]
    command += [str(Path(__file__).with_name("HiveMetastore.java")), "HiveMetastore"]
    given = {
        "metastore.warehouse.dir": warehouse,
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home / 'metastore'};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "metastore.schema.verification": "false",
        "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "metastore.task.threads.remote": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "metastore.disallow.incompatible.col.type.changes": "false",
    }
    command += [f"{key}={value}" for key, value in given.items()]
    log = home / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True)
        try:
            yield f"thrift://127.0.0.1:{printed_port(process, log)}"
        finally:
            process.kill()
            process.wait()
