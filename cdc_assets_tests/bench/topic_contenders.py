"""What is timed of topics, each in a process of its own."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from cdc_assets.landing.maintenance import LandingLimits, maintain_landing
from cdc_assets.landing.opening import open_feed
from cdc_assets.landing.retention import Retention, TableNeed
from cdc_assets.model.tso import wall_clock_ms
from cdc_assets.settings.config import from_flags
from cdc_assets_tests.bench.contenders import CONTENDERS, Laps, _contender
from cdc_assets_tests.bench.measuring import lap
from cdc_assets_tests.bench.topics import archive_changes, consume_all

__all__ = ["CONTENDERS", "keep_landed", "land", "landings", "look_at_topic", "topic"]

SINK = "kafka://none:9092/bench?protocol=canal-json&enable-tidb-extension=true"


@contextmanager
def _landing(lake: str, uri: str, **more: Any) -> Iterator[Any]:
    settings = from_flags(sink_uri=uri, warehouse=lake, **more)
    with open_feed(settings.changefeeds[0], settings.lake) as feed:
        assert feed.landing is not None
        yield feed.landing


@_contender
def topic(uri: str, address: str, held_in: str, count: int, lakes: list[str]) -> dict[str, Laps]:
    """Read a topic by `consume()` alone, and land it in each of the lakes; in turns."""
    laps: dict[str, Laps] = {"consume": [], "land": []}
    for lake in lakes:
        with lap() as timing:
            consume_all(address, held_in, count)
        laps["consume"].append(dataclasses.asdict(timing.measured))
        with lap() as timing, _landing(lake, uri) as landing:
            landed = landing.advance()
        assert landed.messages == count, landed
        laps["land"].append(dataclasses.asdict(timing.measured))
    return laps


@_contender
def land(uri: str, lake: str) -> dict[str, int]:
    """Land a topic once."""
    with _landing(lake, uri) as landing:
        return dataclasses.asdict(landing.advance())


@_contender
def keep_landed(uri: str, archive: str, lake: str, keep: Literal["days", "applied", "compact"]) -> dict[str, float]:
    """Land an archive, maintain its landing as if all were applied, and return what that left and took."""
    with _landing(lake, uri, archive={"uri": archive, "layout": "records"}) as landing:
        with lap() as landing_lap:
            landing.advance()
        now_ms = wall_clock_ms(max(split.high for split in landing.landed().splits))
        limits = LandingLimits(Retention.of(keep, 30), removed_days=-10_000)  # files go now, not in days
        with lap() as upkeep_lap:
            maintain_landing(landing, lambda _: TableNeed(None), now_ms, limits)
        return {
            "bytes": sum(size for _, size in landing.store.stored_files()),
            "land_cpu_seconds": landing_lap.measured.cpu_seconds,
            "maintain_cpu_seconds": upkeep_lap.measured.cpu_seconds,
        }


@_contender
def look_at_topic(uri: str, lake: str, times: int) -> dict[str, float]:
    """Land a topic, then look again and again whether it has more, as the sensor does."""
    spent = []
    with _landing(lake, uri) as landing:
        landing.advance()
        for _ in range(times):
            with lap() as timing:
                news = landing.news()
            spent.append(timing.measured)
    return {
        "behind": news.behind,
        "wall_seconds": statistics.median(cost.wall_seconds for cost in spent),
        "cpu_seconds": sum(cost.cpu_seconds for cost in spent) / times,
    }


@_contender
def landings(tables: int, count: int, directory: str) -> dict[str, Any]:
    """Land a change of each table again and again, from an archive; count what that adds to the lake."""
    root = Path(directory)
    archive, lake = root / "archive", root / "lake"
    archive.mkdir()
    landed, before, offsets = 0, set[Path](), dict[int, int]()
    with _landing(str(lake), SINK, archive={"uri": str(archive), "layout": "records"}) as landing:
        for number in range(count + 1):  # the first makes the table
            archive_changes(archive, tables, number, offsets)
            landing_counts = landing.advance()
            if number:
                landed += landing_counts.rows
            else:
                before = _files(lake)
    added = _files(lake) - before
    data = sum("/data/" in str(path) for path in added)
    return {"landed": landed, "added": {"data": data, "metadata": len(added) - data}}


def _files(lake: Path) -> set[Path]:
    return {path for path in lake.rglob("*") if path.is_file() and path.suffix in (".parquet", ".avro", ".json")}
