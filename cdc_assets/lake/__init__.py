"""Spark and Iceberg: the only place that writes. Reads its progress back with PyIceberg, without a JVM.

tables.py    Lake: what the pipeline calls
state.py     names, labels, what the catalog holds (no JVM)
names.py     which table stands at which name (no JVM)
stage.py     files -> reduced changes as Parquet, on the executors
commit.py    guarded, labelled commits
evolve.py    tables made, changed, rewritten
session.py   Spark sessions and the JVM gateway
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_assets.lake.session import spark_configuration, spark_session
    from cdc_assets.lake.state import LakeState
    from cdc_assets.lake.tables import Lake

__all__ = ["Lake", "LakeState", "spark_configuration", "spark_session"]

_HOMES = {"Lake": "tables", "LakeState": "state", "spark_configuration": "session", "spark_session": "session"}


def __getattr__(name: str) -> Any:
    """Load what is asked for: reading progress must not import Spark."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
