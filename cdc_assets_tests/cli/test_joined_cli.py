"""Recorded changefeeds with a dump before them, by the command line onto a lake, at every later checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_assets.lake import LakeState
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.cases import Config, differences, expected_tables
from cdc_assets_tests.command_line import Commands
from cdc_assets_tests.joined_feed import dump_of, feed_from
from cdc_assets_tests.kills import checkpoints, named

pytestmark = pytest.mark.timeout(900)

CASES = (
    ("M_slash_names/csv-ts", 0, "csv"),
    ("C_ddl_tables/csv-ts", 1, "sql"),
    ("B_ddl_columns/canal-ext", 1, "csv"),
    ("E_partitions/csv-ts", 0, "csv"),
    ("F_names/csv-ts", 0, "csv"),
    ("D_keys/na-canal-ext", 0, "sql"),
    ("A_all_types/csv-old", 1, "csv"),
)


def wrong(config: Config, expected: Path, lake: Path) -> list[str]:
    """Return how the tables of a lake differ from the recorded contents of the source."""
    state, mismatches = LakeState(LakeSettings.from_warehouse(lake), "default"), list[str]()
    try:
        tables = {held.applied.name for held in state.tables().values() if held.applied.name is not None}
        wanted = expected_tables(expected)
        for name in (*wanted, *(tables - wanted.keys())):
            if name not in wanted or name not in tables:
                mismatches.append(f"{name} is in one of the two")
            elif name not in config.allow.tables:
                mismatches += differences(wanted[name], state.read(name), skip=config.allow.columns.get(name, ()))
    finally:
        state.close()
    return mismatches


@pytest.mark.parametrize(
    ("case", "number", "kind"),
    [pytest.param(*case, id=case[0], marks=pytest.mark.soak) for case in CASES],
)
def test_a_dump_and_its_changefeed_are_equal_to_the_source_at_every_checkpoint(
    case: str, number: int, kind: str, run: Commands, tmp_path: Path
) -> None:
    config, known = named(case), checkpoints(named(case))[number:]
    dump_of(known[0], tmp_path / "dump", kind)
    lake = tmp_path / "lake"
    for place, checkpoint in enumerate(known):
        feed = tmp_path / f"feed{place}"
        feed_from(config, checkpoint, known[0], feed, "begun")
        common = [
            *("--sink-uri", f"{feed}?{config.recorded_options['sink_uri_params']}"),
            *("--config", str(config.path / "changefeed.toml"), "--tz", config.recorded_options.get("timezone", "UTC")),
            *("--warehouse", str(lake), "--initial", str(tmp_path / "dump")),
            *("--initial-option", f"start-ts={known[0].ts}"),
        ]
        planned = run("plan", *common)
        assert planned.returncode == 0, planned.stdout + planned.stderr
        applied = run("apply", *common)
        assert applied.returncode == 0, applied.stdout + applied.stderr
        assert checkpoint.expected is not None
        assert wrong(config, checkpoint.expected, lake) == [], checkpoint.note
    status = run("status", "--warehouse", str(lake))
    assert (status.returncode, "incomplete" in status.stdout) == (0, False), status.stdout
    again = run("rebuild", "--all", *common)
    assert again.returncode == 0, again.stdout + again.stderr
    assert known[-1].expected is not None
    assert wrong(config, known[-1].expected, lake) == []
