"""Windows that are staged before their turn: each once, none left behind, and again after the end of a run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cdc_assets.model.progress import Life
from cdc_assets.model.reports import Report, StagedWindow
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.steps import ApplyRows, Step
from cdc_assets.pipeline.prefetch import Prefetch


class Stage:
    """A lake's stage that notes what it is asked for."""

    def __init__(self) -> None:
        self.staged: list[str] = []
        self.discarded: list[str] = []
        self.ahead = Prefetch(self.stage_all, lambda staged: self.discarded.append(staged.path), lambda step: True)

    def stage_all(self, steps: Sequence[ApplyRows]) -> list[StagedWindow]:
        return [self.stage(step) for step in steps]

    def stage(self, step: ApplyRows) -> StagedWindow:
        self.staged.append(str(step.life))
        return StagedWindow(str(step.life), 0, Report())

    def run(self, steps: Sequence[Step], taken: int) -> None:
        """Take the first windows of a run as the pipeline does, and end the run there."""
        try:
            for number, step in enumerate(steps[:taken]):
                self.ahead.begin(steps, number, lambda life: False)
                assert isinstance(step, ApplyRows)
                assert self.ahead.take((step,)).path == str(step.life)
        finally:
            self.ahead.close()


def windows(count: int) -> list[Step]:
    lives = [Life(TableId("s", f"t{number}"), 1) for number in range(count)]
    return [ApplyRows(life, 1, 9, (), {}, TableSchema(()), 1, ()) for life in lives]


@pytest.mark.parametrize("taken", [1, 3, 5])
def test_what_was_begun_is_taken_or_discarded_in_every_run(taken: int) -> None:
    stage, steps = Stage(), windows(5)
    for _ in range(3):
        stage.staged.clear()
        stage.discarded.clear()
        stage.run(steps, taken)
        lives = [str(step.life) for step in steps]
        assert len(stage.staged) == len(set(stage.staged))
        assert sorted([*lives[:taken], *stage.discarded]) == sorted(stage.staged)
