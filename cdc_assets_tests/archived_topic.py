"""A recorded topic that comes into an archive line by line, and the lake that it is applied to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_assets.lake.state import LakeState
from cdc_assets.operations.opening import open_pipeline
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.cases import differences, expected_tables
from cdc_assets_tests.topic_feed import UNSPOKEN, archive_of, settings_of
from cdc_assets_tests.topics import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["REFUSED", "ArchivedTopic", "stopped"]

REFUSED = {"cols.conv"}
"""Its recorded source refused a MODIFY that the messages have all the same: by their text -100 becomes unsigned."""


class ArchivedTopic:
    """`write` lets lines appear, `apply` lands and applies them, `differences` compares the lake with the source."""

    def __init__(self, topic: Topic, directory: Path, spark: Callable[[], SparkSession] | None = None, **given: Any):
        self.topic = topic
        self.archive = directory / "archive"
        self.archive.mkdir(parents=True, exist_ok=True)
        archive = {"uri": str(self.archive), "layout": "records"}
        self.settings: ChangefeedSettings = settings_of(topic, **{"archive": archive, **given})
        self.lake = LakeSettings.from_warehouse(directory / "lake")
        self.spark = spark
        self.written = 0

    def write(self, until: int | None = None) -> None:
        """Let the next lines appear, in a file of their own."""
        lines = self.topic.lines[self.written : until]
        archive_of(lines, self.archive, f"{self.written:06d}.jsonl.gz")
        self.written += len(lines)

    def land(self) -> None:
        """Land what is there, and apply nothing."""
        with open_pipeline(self.settings, self.lake) as pipeline:
            pipeline.land()

    def apply(self) -> Outcome:
        """Land and apply what is there."""
        with open_pipeline(self.settings, self.lake, spark=self.spark) as pipeline:
            return pipeline.apply("test")

    def differences(self, expected: Path | None = None) -> list[str]:
        """Compare what PyIceberg reads with the source, at its end or as a directory of expected contents has it."""
        tables = self.topic.case.expected() if expected is None else expected_tables(expected)
        state = LakeState(self.lake, self.settings.name)
        mismatches = []
        for name, table in tables.items():
            if str(name) in UNSPOKEN.get(str(self.topic), ()):
                continue
            if name not in self.topic.allowed.tables and str(name) not in REFUSED:
                skip = self.topic.lost(table) | self.topic.allowed.columns.get(name, frozenset())
                mismatches += differences(table, state.read(name), skip=skip)
        state.close()
        return mismatches


def stopped(outcome: Outcome) -> Sequence[str]:
    """Return the tables that a run left held or failed, with the reasons."""
    return [f"{t.life}: {t.reason}" for t in outcome.tables if t.state.stopped and str(t.life.born_as) not in REFUSED]
