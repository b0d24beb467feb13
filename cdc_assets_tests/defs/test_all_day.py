"""An hour under Dagster with default settings, small windows all the time, while much goes wrong beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cdc_assets_tests.bench.feeds import Feed
from cdc_assets_tests.bench.freshness import Load, measure_freshness

MINUTES = float(os.environ.get("CDC_ASSETS_SOAK_MINUTES", "60"))
RATE = int(os.environ.get("CDC_ASSETS_SOAK_RATE", "2000"))
"""Changes a second that are written: fewer where a machine has other work beside it."""
TABLES = 20


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 2400)
def test_an_hour_of_small_windows_ends_equal_in_few_files_whatever_comes_between(tmp_path: Path) -> None:
    """Tables are compared with the feed at twenty moments and at the end; a rebuild comes in beside it all."""
    load = Load(TABLES, RATE, 2.0)
    rebuild = f"rebuild {Feed(tmp_path, tables=TABLES).name(0)}"
    disturbances = ("run", "daemon", rebuild, "server", "catalog", "everything", "run")
    measured = measure_freshness(tmp_path, load, MINUTES * 60, moments=20, disturbances=disturbances)
    print(measured.percentile(0.5), measured.percentile(0.99), measured.notes, measured.ended)
    assert measured.ended["fresh_rebuild", "SUCCESS"] == 1
    bounds = {"data_files": 20, "delete_files": 20, "manifests": 30, "snapshots": 700}
    assert not {kind: most for kind, most in measured.most.items() if most > bounds[kind]}
    assert measured.materializations <= (MINUTES + 10) * TABLES
    assert measured.event_rows <= 4 * (MINUTES + 10) * TABLES  # a window, its check, the lake's table; checks at times
