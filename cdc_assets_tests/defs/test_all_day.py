"""An hour under Dagster with default settings, small windows all the time, while its processes are killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cdc_assets_tests.bench.freshness import Load, measure_freshness

MINUTES = float(os.environ.get("CDC_ASSETS_SOAK_MINUTES", "60"))
TABLES = 20


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 2400)
def test_an_hour_of_small_windows_ends_equal_in_few_files_whatever_is_killed(tmp_path: Path) -> None:
    """Tables are compared with the feed at twenty moments and at the end."""
    load = Load(TABLES, 2_000, 2.0)
    kills = ("run", "daemon", "server", "run")
    measured = measure_freshness(tmp_path, load, MINUTES * 60, moments=20, kills=kills)
    print(measured.percentile(0.5), measured.percentile(0.99), measured.notes)
    bounds = {"data_files": 20, "delete_files": 20, "manifests": 30, "snapshots": 700}
    assert not {kind: most for kind, most in measured.most.items() if most > bounds[kind]}
    assert measured.materializations <= (MINUTES + 10) * TABLES
    assert measured.event_rows <= 4 * (MINUTES + 10) * TABLES  # a window, its check, the lake's table; checks at times
