"""Numbers that are not TSOs: those of 2^63 and above come to nobody's database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake

TOO_LARGE = (2**63, 2**64 - 1, 2**64, 10**30)


def applied(settings: ChangefeedSettings) -> dict[str, tuple[str, str]]:
    outcome: Outcome = Pipeline(settings, settings.open_source(), MemoryLake(), Ledger("sqlite://")).apply("test")
    return {str(table.name): (table.state, table.reason) for table in outcome.tables}


@pytest.mark.parametrize("ts", TOO_LARGE)
@pytest.mark.parametrize("quarantine", [False, True])
def test_a_row_with_a_commit_ts_that_is_none_holds_its_table_alone(tmp_path: Path, ts: int, quarantine: bool) -> None:
    feed = LittleFeed(tmp_path)
    for name in ("s.t", "s.u"):
        feed.create(name)
        feed.rows(name, FIRST, [("I", FIRST + 1, 1, "a"), ("I", ts if name == "s.t" else FIRST + 2, 2, "b")])
    feed.publish(FIRST + 9)
    states = applied(feed.settings("little", quarantine=quarantine))
    assert states["s.u"] == ("applied", "")
    assert states["s.t"][0] == ("applied" if quarantine else "held")
    assert quarantine or f'"{ts}" is not a commit-ts' in states["s.t"][1]


@pytest.mark.parametrize("ts", TOO_LARGE)
def test_a_message_with_a_commit_ts_that_is_none_holds_its_table_alone(tmp_path: Path, ts: int) -> None:
    feed = LittleFeed(tmp_path)
    feed.toml.write_text('[sink]\nprotocol = "canal-json"\n')
    for name in ("s.t", "s.u"):
        feed.create(name)
        table = name[-1]
        message = {
            "database": "s", "table": table, "type": "INSERT", "isDdl": False, "sqlType": {"id": 4, "v": 12},
            "mysqlType": {"id": "int", "v": "varchar"}, "old": None, "data": [{"id": "1", "v": "a"}], "pkNames": ["id"],
        }  # fmt: skip
        stamps = (FIRST + 1, ts if table == "t" else FIRST + 2)
        lines = [json.dumps({**message, "_tidb": {"commitTs": stamp}}) + "\r\n" for stamp in stamps]
        directory = feed.bucket / "s" / table / str(FIRST)
        directory.mkdir(parents=True)
        (directory / f"CDC{1:020d}.json").write_text("".join(lines), newline="")
    feed.publish(FIRST + 9)
    uri = f"file://{feed.bucket}?protocol=canal-json&enable-tidb-extension=true"
    states = applied(feed.settings("little", sink_uri=uri))
    assert states["s.u"] == ("applied", "")
    assert states["s.t"][0] == "held"
    assert str(ts) in states["s.t"][1]


@pytest.mark.parametrize("version", TOO_LARGE)
def test_a_schema_file_of_such_a_version_is_above_every_checkpoint(tmp_path: Path, version: int) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("s.u")
    feed.create("s.t", version)
    feed.rows("s.t", version, [("I", FIRST + 2, 1, "a")])
    feed.publish(FIRST + 9)
    assert applied(feed.settings())["s.u"] == ("applied", "")
