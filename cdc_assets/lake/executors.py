"""Spark's executors, for work beside steps: which work is worth them, and doing it there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cdc_assets.lake.spark.failures import races
from cdc_assets.lake.staging.executors import run_tasks
from cdc_assets.lake.staging.stage import Engine

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SparkExecutors:
    """The executors of a lake's Spark, which starts when they are first needed. `what` names the work in errors.

    With `only_elsewhere` executors of this machine do nothing, unless `decode` asks for them.
    """

    engine: Engine
    what: str
    only_elsewhere: bool = False

    def worth(self, size: int) -> bool:
        """Return whether so many bytes are read there and not here, by the rule of windows."""
        if not self.engine.is_large(size):
            return False
        return not self.only_elsewhere or self.engine.decode == "executors" or not self.engine.local()

    @property
    def cores(self) -> int:
        """How many tasks run at the same time."""
        with races(self.what):
            return int(self.engine.spark().sparkContext.defaultParallelism)

    def run(self, count: int, work: Callable[[int], _T]) -> list[_T]:
        """Do tasks 0 … count-1, and return what they return; raises the error of one of them."""
        with races(self.what):
            return run_tasks(self.engine.spark(), count, work)
