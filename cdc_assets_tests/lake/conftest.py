"""What tests of row deltas share."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_assets.lake import row_delta, windows
from cdc_assets.lake.commit import RowDelta


class Deltas:
    """Counts the windows that were row deltas."""

    def __init__(self) -> None:
        self.made: list[bool] = []

    def __call__(self, *given: Any) -> RowDelta | None:
        delta = row_delta.row_delta_of(*given)
        self.made.append(delta is not None)
        return delta


@pytest.fixture
def deltas(monkeypatch: pytest.MonkeyPatch) -> Deltas:
    counted = Deltas()
    monkeypatch.setattr(windows, "row_delta_of", counted)
    return counted
