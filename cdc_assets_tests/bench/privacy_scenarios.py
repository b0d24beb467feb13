"""The targets of `forget`: rows taken out of a large table, beside a compaction of the same files."""

from __future__ import annotations

from collections.abc import Iterator

from cdc_assets_tests.bench.measuring import contend
from cdc_assets_tests.bench.proof_scenarios import SCENARIOS
from cdc_assets_tests.bench.scenarios import Figure, Place, _best, _laps, _scenario

__all__ = ["ON_ICEBERG", "SCENARIOS"]

ON_ICEBERG = ("forget",)
"""Scenarios that need tables of Iceberg, and no server."""


@_scenario
def forget(place: Place) -> Iterator[Figure]:
    """A hundred keys of five million rows, all over the table, beside its compaction; then all within few files."""
    count, root = place.of(5_000_000, 1000), place.at("lakes")
    feed = place.feed("feed")
    feed.append(count, count, fill=count, files=max(1, count // 250_000))
    spread = [[number * (count // 100) + 3 * turn for number in range(100)] for turn in range(3)]
    near = list(range(count // 2 + 10, count // 2 + 110))
    lakes = [str(root / name) for name in ("forget", "compact")]
    cost, laps = contend("forget", feed=feed.spec, lakes=lakes, keys=[*spread, near])
    assert all(rewritten <= there and 0 < rows <= 100 for there, rewritten, rows in laps["files"]), laps["files"]
    ours, theirs = _best(laps["forget"][:3]), _best(laps["compact"][:3])
    notes = {"files": laps["files"], **_laps(laps["forget"], cost)}
    yield Figure("forget", "100 keys, without the proof", ours, notes=notes)
    yield Figure("forget", "compaction of the same files", theirs, notes=_laps(laps["compact"], cost))
    yield Figure("forget", "forgetting to compaction", ours / theirs, "x", 1.3)
    there, rewritten, _ = laps["files"][-1]
    yield Figure("forget", "100 keys side by side", laps["forget"][-1]["wall_seconds"])
    yield Figure("forget", "data files written anew for these", rewritten, "", notes={"of": there})
