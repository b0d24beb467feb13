"""Settings -> open parts: the ledger, the lake's state, a pipeline.

Modules that list, plan or decode are imported where they are needed: `status` does not need them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings
from cdc_assets.ledger import Ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.lake import LakeState
    from cdc_assets.lake.tables import SparkExecutors
    from cdc_assets.operations.lake_pipeline import LakePipeline
    from cdc_assets.pipeline.pipeline import Watch
    from cdc_assets.pipeline.planner import Planner
    from cdc_assets.settings.config import ChangefeedSettings
    from cdc_assets.settings.lake import LakeSettings


@contextmanager
def open_ledger(lake: LakeSettings) -> Iterator[Ledger]:
    """Open the lake's ledger: its `ledger` setting, or `ledger.db` in a local warehouse; made by the first write."""
    with closing(Ledger(ledger_url(lake))) as ledger:
        yield ledger


def begun(lake: LakeSettings | None) -> LakeSettings | None:
    """Return the lake if it exists: one whose catalog is a file that is not there counts as none."""
    catalog = lake.catalog_file if lake is not None else None
    return lake if catalog is None or catalog.exists() else None


@contextmanager
def read_ledger(lake: LakeSettings) -> Iterator[Ledger]:
    """Open the ledger to read it. Raises BadSettings if there is no lake."""
    if not lake.ledger:
        refuse_missing(lake)
    with open_ledger(lake) as ledger:
        yield ledger


def refuse_missing(lake: LakeSettings) -> None:
    """Raise BadSettings where a lake is a local directory that is not there, or may not be read."""
    directory = lake.local_directory
    if directory is None or os.access(directory / ".", os.R_OK | os.X_OK):
        return
    if os.path.lexists(directory):
        raise BadSettings(f"{directory} is no directory that may be read; expected that of a lake. Correct its rights.")
    raise BadSettings(
        f"{directory} does not exist; expected the directory of a lake. Give the --warehouse of an apply, or apply "
        "a changefeed to it first."
    )


def refuse_empty(lake: LakeSettings) -> None:
    """Raise BadSettings where a lake is a local directory that is not there, or in which no run has begun."""
    refuse_missing(lake)
    directory = lake.local_directory
    if directory is not None and begun(lake) is None and not (lake.ledger or (directory / "ledger.db").exists()):
        raise BadSettings(
            f"there is no lake in {directory}: no catalog.db and no ledger.db. Give the --warehouse of an apply, or "
            "apply a changefeed to it first."
        )


@contextmanager
def open_state(lake: LakeSettings, changefeed: str, namespace: str = "{schema}") -> Iterator[LakeState]:
    """Open the lake's state of a changefeed, to read it without a JVM; its connections are closed with the block."""
    from cdc_assets.lake.state import LakeState

    with closing(LakeState(lake, changefeed, namespace)) as state:
        yield state


def ledger_url(lake: LakeSettings) -> str:
    """Return the SQLAlchemy URL of the ledger; raises BadSettings if none can be derived."""
    if lake.ledger:
        return lake.ledger
    directory = lake.local_directory
    if directory is None:
        raise BadSettings(
            f"the warehouse {lake.warehouse} is not a local directory, so the ledger needs a place of its own. "
            "Name a database in the settings: lake: {ledger: postgresql+psycopg2://…}."
        )
    return f"sqlite:///{directory}/ledger.db"


@contextmanager
def open_pipeline(
    settings: ChangefeedSettings,
    lake: LakeSettings,
    watch: Watch | None = None,
    spark: Callable[[], SparkSession] | None = None,
    fuse: bool = True,
    applies: bool = False,
) -> Iterator[LakePipeline]:
    """Open a changefeed and a lake. Spark starts with the first step that needs it, and is stopped if started here.

    With `applies` it is opened to apply it: into a new lake all is news, and Java starts while modules are imported. A
    lake is made by the first write, so none is left by a feed that cannot be read.
    """
    from cdc_assets.lake.failures import hide
    from cdc_assets.landing.opening import open_feed

    hide(settings.secrets)
    is_new = begun(lake) is None

    def executors() -> SparkExecutors:
        return opened.executors(f"the landing of {settings.name}")

    with ExitStack() as stack:
        feed = stack.enter_context(open_feed(settings, lake, executors))
        starts = applies and is_new and feed.landing is None and feed.source.fence() > 0
        ledger = stack.enter_context(open_ledger(lake))
        if starts:
            from cdc_assets.lake.spark.session import start_jvm_aside

            start_jvm_aside(lake)
        from cdc_assets.lake import Lake
        from cdc_assets.operations.lake_pipeline import LakePipeline
        from cdc_assets.pipeline.planner import PlanRequest

        opened = Lake(lake, settings.name, spark, settings.namespace, settings.decode)
        try:
            yield LakePipeline(settings, feed.source, opened, ledger, watch, PlanRequest(fuse), feed.landing)
        finally:
            opened.close()


@contextmanager
def open_planner(settings: ChangefeedSettings, lake: LakeSettings | None) -> Iterator[Planner]:
    """Open a changefeed to plan it; without a lake everything is planned as into an empty one."""
    from cdc_assets.pipeline.planner import EmptyLake, Planner

    if lake is not None:
        with open_pipeline(settings, lake) as pipeline:
            yield pipeline.planner
        return
    from cdc_assets.landing.opening import open_feed

    with open_feed(settings, None) as feed, closing(Ledger("sqlite://")) as ledger:
        yield Planner(settings, feed.source, EmptyLake(), ledger)
