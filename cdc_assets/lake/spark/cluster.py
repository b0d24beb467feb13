"""Spark on other machines: further options of its driver, and errors for a cluster that gives no executors.

is_local, refuse_connect   what kind of Spark an address names
refuse_dead                what is no master, and one that does not answer: Spark would try for minutes
watch_executors            jobs that wait for executors which never register: Spark would wait for ever
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

from cdc_assets.errors import BadSettings, LakeUnavailable
from cdc_assets.io.drivers import refuse_silent
from cdc_assets.jvm.java import spark_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_SECONDS = 60.0
"""Seconds that a job may wait for its first executor before a message appears."""

_CONNECT_SECONDS = 5.0
_MASTER = re.compile(r"local(-cluster)?(\[[^\]]*\])?|yarn|k8s://.+|spark://[^/,]+:\d+(,[^/,]+:\d+)*")
_CONNECT = "Spark Connect"

log = logging.getLogger(__name__)


def spark_master() -> str:
    """Return the Spark master that sessions started here get."""
    return os.environ.get("CDC_ASSETS_SPARK_MASTER", "local[2]")


def is_local(master: str) -> bool:
    """Return whether executors are threads of the driver."""
    return master == "local" or master.startswith("local[")


def refuse_connect(conf: Mapping[str, str], session: SparkSession | None = None) -> None:
    """Raise BadSettings where Spark would be one of Spark Connect, whose client has no JVM to commit in."""
    places = {
        "SPARK_REMOTE": os.environ.get("SPARK_REMOTE", ""),
        "SPARK_CONNECT_MODE_ENABLED": os.environ.get("SPARK_CONNECT_MODE_ENABLED", ""),
        "spark.remote": conf.get("spark.remote", ""),
        "spark.api.mode": conf.get("spark.api.mode", "classic").replace("classic", ""),
        "spark.master": conf.get("spark.master", "") if conf.get("spark.master", "").startswith("sc:") else "",
    }
    setting = next((f"{name}={value}" for name, value in places.items() if value), "")
    if not setting and session is not None and ".connect." in type(session).__module__:
        setting = "the session that was given"
    if setting:
        raise BadSettings(
            f"Spark is reached through {_CONNECT} ({setting}), and Iceberg's commits are made in the driver's own JVM, "
            "which a client of it does not have. Let CDC_ASSETS_SPARK_MASTER name a master (local[8], "
            "spark://host:7077, yarn, k8s://…) and remove the setting for Spark Connect."
        )


def refuse_dead(master: str) -> None:
    """Raise LakeUnavailable for a master that does not answer: a standalone one, or that of Kubernetes.

    Raises BadSettings for an address that is no master's, and for YARN without its settings.
    """
    if _MASTER.fullmatch(master) is None:
        raise BadSettings(
            f"CDC_ASSETS_SPARK_MASTER (or spark.master) is {master!r}; expected local[8], spark://HOST:PORT, several "
            "with commas between, yarn or k8s://https://HOST:PORT. Correct it."
        )
    named = {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & set(os.environ)
    if master == "yarn" and not named and not spark_conf("spark-env.sh").exists():
        raise BadSettings(
            "the Spark master is yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR says where the cluster's settings "
            "are. Set one to the directory of yarn-site.xml."
        )
    if master.startswith("k8s://"):
        address = master.removeprefix("k8s://")
        url = address if "://" in address else f"https://{address}"
        refuse_silent(url, lambda place, silence: _dead(master, str(silence)))
        return
    places = re.findall(r"([^/,]+):(\d+)", master.removeprefix("spark://")) if master.startswith("spark://") else []
    reason = ""
    for host, port in places:
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        except OSError as error:
            reason = str(error)
        else:
            return
    if places:
        raise _dead(master, reason)


def _dead(master: str, reason: str) -> LakeUnavailable:
    return LakeUnavailable(
        f"no Spark master answers at {master} ({reason}). Look at CDC_ASSETS_SPARK_MASTER (or spark.master), and "
        "whether that master runs and is reached from here; then try again."
    )


def watch_executors(spark: SparkSession) -> None:
    """Warn once, from the background, when jobs wait for executors that never register."""
    context: Any = spark.sparkContext
    if not is_local(context.master):
        Thread(target=_watch, args=(context,), name="cdc-assets-executors", daemon=True).start()


def _watch(context: Any) -> None:
    waiting_since: float | None = None
    with suppress(Exception):  # the session was stopped, or its JVM has gone
        jvm = context._jsc.sc()
        while jvm.getExecutorMemoryStatus().size() <= 1:  # the driver is one
            if not jvm.statusTracker().getActiveJobIds():
                waiting_since = None
            elif waiting_since is None:
                waiting_since = time.monotonic()
            elif time.monotonic() - waiting_since >= PATIENCE_SECONDS:
                log.warning(
                    "Spark's master %s has given no executor for %d seconds, and the run waits for one. Look at its "
                    "page: are there workers, do they have a free core and %s of memory, and do they reach the driver "
                    "at %s:%s (spark.driver.host)?",
                    context.master,
                    PATIENCE_SECONDS,
                    context.getConf().get("spark.executor.memory", "1g"),
                    context.getConf().get("spark.driver.host"),
                    context.getConf().get("spark.driver.port"),
                )
                return
            time.sleep(0.5)
