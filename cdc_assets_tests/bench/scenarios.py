"""The targets. Each scenario makes its feed, lets the contenders run on it, checks the rows and compares.

Every figure is for two cores and 24 GiB at scale 1; a smaller scale shows that it works, not how fast it is.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from cdc_assets.lake.state import LakeState
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.bench.contenders import KINDS
from cdc_assets_tests.bench.dumps import dump, fingerprint_of_dumped, quiet
from cdc_assets_tests.bench.feeds import Feed
from cdc_assets_tests.bench.knowing import know
from cdc_assets_tests.bench.measuring import Cost, contend, run
from cdc_assets_tests.bench.rows import (
    fingerprint_of_files,
    fingerprint_of_lake,
    fingerprint_of_rows,
    rows_of_lake,
)

__all__ = ["SCENARIOS", "Figure", "Place"]

PYTHON = [sys.executable, "-c", "from cdc_assets.cli import run_process; run_process()"]
"""The command line, as its script starts it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `limit` is what it must not pass, in its own unit; None for one that is only reported.

    `may_be_nothing` is said of a difference, a growth, or requests that need not be: any other one is above zero.
    """

    scenario: str
    what: str
    value: float
    unit: str = "s"
    limit: float | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    may_be_nothing: bool = False

    @property
    def measured(self) -> bool:
        """Return whether the number can be one: nothing takes no time, and no run asks for nothing."""
        return math.isfinite(self.value) and (self.value > 0 or self.may_be_nothing)

    @property
    def met(self) -> bool | None:
        """Return whether the target is met."""
        return None if self.limit is None else self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Place:
    """Where scenarios work, how large they are, and for how many minutes those last that measure a stretch of time."""

    directory: Path
    scale: float = 1.0
    minutes: float = 10.0

    def of(self, count: int, least: int = 1) -> int:
        """Return a count at this scale."""
        return max(least, round(count * self.scale))

    def feed(self, name: str, **shape: Any) -> Feed:
        """Return a new feed."""
        return Feed(self.at(name), **shape).create()

    def at(self, name: str) -> Path:
        """Return an empty directory."""
        path = self.directory / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path


Scenario = Callable[[Place], Iterator[Figure]]
SCENARIOS: dict[str, Scenario] = {}


def _scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__.replace("_", "-")] = function
    return function


def _best(laps: Sequence[Mapping[str, float]], key: str = "wall_seconds") -> float:
    """The quickest but for the first, which warms up."""
    return min(lap[key] for lap in laps[1:] or laps)


def _laps(laps: Sequence[Mapping[str, float]], cost: Cost) -> dict[str, Any]:
    return {
        "laps": [round(lap["wall_seconds"], 3) for lap in laps],
        "cpu_seconds": [round(lap["cpu_seconds"], 2) for lap in laps],
        **_memory(cost),
    }


def _memory(cost: Cost) -> dict[str, int]:
    return {"peak_rss_mb": cost.peak_rss_mb, "peak_pss_mb": cost.peak_pss_mb}


def _whole(cost: Cost) -> dict[str, Any]:
    return {"cpu_seconds": round(cost.cpu_seconds, 2), **_memory(cost)}


def _check(
    feed: Feed, lake: Path, tables: Sequence[int] = (0,), right: Feed | None = None, stamped: bool = True
) -> None:
    """Raise AssertionError unless the lake's tables hold the rows that DuckDB reads from the files.

    `stamped` rows have the commit-ts of the files.
    """
    settings = LakeSettings.from_warehouse(lake)
    for table in tables:
        wanted = fingerprint_of_files(right or feed, table, stamped=stamped)
        fingerprint = fingerprint_of_lake(feed, settings, table, stamped=stamped)
        assert wanted == fingerprint, f"{feed.name(table)} in {lake}: {fingerprint} rows and hash, expected {wanted}"


def _check_history(feed: Feed, lakes: Mapping[str, Path]) -> None:
    """Raise AssertionError unless every table of lakes by their KINDS has the rows of the files, as they are now."""
    tables = {"mirror": ("",), "log": ("log",), "scd2": ("scd2",), "all three": ("", "log", "scd2")}
    wanted = fingerprint_of_files(feed)
    for kinds, lake in lakes.items():
        for kind in tables[kinds]:
            fingerprint = fingerprint_of_lake(feed, LakeSettings.from_warehouse(lake), 0, kind)
            assert wanted == fingerprint, (
                f"{kind or 'mirror'} in {lake}: {fingerprint} rows and hash, expected {wanted}"
            )


def _apply(feed: Feed, lake: Path, kinds: str = "mirror", privacy: Mapping[str, Any] | None = None) -> Cost:
    """Run the command into a lake, from its process's start to its exit."""
    if not KINDS[kinds] and privacy is None:
        return run([*PYTHON, "apply", *feed.flags, "--warehouse", str(lake), "--json"])
    changefeed = {"name": feed.settings.name, "sink_uri": feed.uri, "history": KINDS[kinds], "privacy": privacy or {}}
    changefeed["changefeed_config"] = str(feed.directory / "changefeed.toml")
    settings = lake.with_suffix(".yaml")
    settings.write_text(json.dumps({"lake": {"warehouse": str(lake)}, "changefeeds": [changefeed]}))
    return run([*PYTHON, "apply", "--json"], CDC_ASSETS_CONFIG=str(settings))


# --- the targets ------------------------------------------------------------------------------------------------------


@_scenario
def catch_up(place: Place) -> Iterator[Figure]:
    """One table into an empty lake: beside DuckDB and plain Spark, warm; as a process; and from Canal-JSON."""
    name, changes, keys = "catch-up", place.of(1_000_000, 100), place.of(500_000, 50)
    feed, root = place.feed("csv"), place.at("lakes")
    feed.append(changes, keys, fill=keys, files=4)
    size = sum(path.stat().st_size for path in feed.files())
    cost, our_laps = contend("ours", feed=feed.spec, lakes=[str(root / str(n)) for n in range(4)])
    _check(feed, root / "0")
    _check(feed, root / "3")
    duck_cost, duck = contend("duckdb", feed=feed.spec, target=str(root / "duck.parquet"), times=4)
    spark_cost, spark = contend("plain_spark", feed=feed.spec, warehouse=str(root / "plain"), times=4)
    ours = _best(our_laps)
    sizes = {"changes": changes, "keys": keys, "bytes": size}
    yield Figure(name, "ours, warm", ours, notes={**sizes, **_laps(our_laps, cost)})
    yield Figure(name, "DuckDB, warm", _best(duck), notes=_laps(duck, duck_cost))
    yield Figure(name, "plain Spark, warm", _best(spark), notes=_laps(spark, spark_cost))
    yield Figure(name, "ours to DuckDB", ours / _best(duck), "x", 1.5)
    yield Figure(name, "ours to plain Spark", ours / _best(spark), "x", 1)
    cold = _apply(feed, root / "cold")
    _check(feed, root / "cold")
    yield Figure(name, "ours, process start to exit", cold.wall_seconds, limit=4.5, notes=_whole(cold))
    once, _ = contend("plain_spark", feed=feed.spec, warehouse=str(root / "once"), times=1)
    yield Figure(name, "plain Spark, process start to exit", once.wall_seconds, notes=_whole(once))
    canal = place.feed("canal", protocol="canal-json")
    canal.append(changes, keys, fill=keys, files=4)
    cost, laps = contend("ours", feed=canal.spec, lakes=[str(root / f"canal-{n}") for n in range(3)])
    _check(canal, root / "canal-2", right=feed)
    size = sum(path.stat().st_size for path in canal.files())
    yield Figure(name, "ours, Canal-JSON, warm", _best(laps), notes={"bytes": size, **_laps(laps, cost)})
    yield Figure(name, "Canal-JSON to CSV", _best(laps) / ours, "x", 1.5)


@_scenario
def masked(place: Place) -> Iterator[Figure]:
    """A first load with two hashed columns, a number and a text, in turns with the same without."""
    name, changes, keys = "masked", place.of(1_000_000, 100), place.of(500_000, 50)
    feed, root = place.feed("csv"), place.at("lakes")
    feed.append(changes, keys, fill=keys, files=4)
    key, turns = "a key of this bench", ("plain", "hashed")
    os.environ["CDC_ASSETS_BENCH_KEY"] = key
    hashed = {"hash": {"key": {"env": "CDC_ASSETS_BENCH_KEY"}}}
    lakes = [str(root / f"{what}-{n}") for n in range(6) for what in turns]
    masks = [{}, {"*.*.customer": hashed, "*.*.note": hashed}]
    cost, every = contend("ours", feed=feed.spec, lakes=lakes, privacy=masks)
    laps = {what: every[turn :: len(turns)] for turn, what in enumerate(turns)}
    for what in turns:
        yield Figure(name, f"{what}, warm", _best(laps[what]), notes=_laps(laps[what], cost))
    plain, made = (rows_of_lake(feed, LakeSettings.from_warehouse(root / f"{what}-5")) for what in turns)
    for column, family in (("customer", "integer"), ("note", "text")):
        wanted = (f"{family}\0{value}".encode() for value in plain.column(column).drop_null().to_pylist())
        hashes = sorted(hmac.digest(key.encode(), value, "sha256").hex() for value in wanted)
        assert hashes == sorted(made.column(column).drop_null().to_pylist()), f"{column} is not hashed"
    yield Figure(name, "hashed to plain, warm", _best(laps["hashed"]) / _best(laps["plain"]), "x", 1.25)
    more = _best(laps["hashed"], "cpu_seconds") - _best(laps["plain"], "cpu_seconds")
    yield Figure(name, "more CPU for the hashes", more, may_be_nothing=True)
    whole: dict[str, list[Cost]] = {what: [] for what in turns}
    for n in range(4):
        for what, privacy in zip(turns, masks, strict=True):
            whole[what].append(_apply(feed, root / f"command-{what}-{n}", privacy=privacy))
    best = {what: min(whole[what], key=lambda cost: cost.wall_seconds) for what in turns}
    for what in turns:
        yield Figure(name, f"{what}, process start to exit", best[what].wall_seconds, notes=_whole(best[what]))
    ratio = best["hashed"].wall_seconds / best["plain"].wall_seconds
    yield Figure(name, "hashed to plain, process start to exit", ratio, "x", 1.25)


@_scenario
def initial(place: Place) -> Iterator[Figure]:
    """What was there before, from a dump, beside a first load of the same rows from a changefeed's files."""
    name, root, count = "initial", place.at("lakes"), place.of(1_000_000, 100)
    feed = place.feed("feed")
    feed.append(count, count, fill=count, files=4)
    cost, laps = contend("ours", feed=feed.spec, lakes=[str(root / f"feed-{n}") for n in range(4)])
    _check(feed, root / "feed-3")
    first = _best(laps)
    yield Figure(name, f"{count:,} rows from a changefeed's CSV, warm", first, notes=_laps(laps, cost))
    for kind, limit in (("csv", 1.2), ("sql", 3.0)):
        cost, laps = _import(place, feed, kind, 4)
        yield Figure(name, f"the same from a dump, {kind.upper()}, warm", _best(laps), notes=_laps(laps, cost))
        yield Figure(name, f"a dump, {kind.upper()}, to the changefeed", _best(laps) / first, "x", limit)
    large = place.feed("large")
    large.append(4 * count, 4 * count, fill=4 * count, files=16)
    for kind in ("csv", "sql"):
        costs = [_import(place, source_feed, kind, 1)[0] for source_feed in (feed, large)]
        more = costs[1].peak_pss_mb / max(1, costs[0].peak_pss_mb)
        notes = {**_memory(costs[1]), "peak_pss_mb_of_a_quarter": costs[0].peak_pss_mb}
        yield Figure(name, f"four times the dump, {kind.upper()}, peak memory", more, "x", 1.25, notes=notes)


def _import(place: Place, feed: Feed, kind: str, times: int) -> tuple[Cost, Any]:
    """Load a feed's rows from a dump of them, so many times in one process, and check the last."""
    where = f"{kind}-{feed.directory.name}-{times}"
    lakes = [place.at(where) / str(number) for number in range(times)]
    written, after = dump(feed, place.at("dump"), kind), quiet(feed, place.at("after"))
    cost_and_laps = contend("ours", feed=after.spec, lakes=[str(lake) for lake in lakes], dump=str(written))
    wanted = fingerprint_of_dumped(feed)
    held = fingerprint_of_lake(feed, LakeSettings.from_warehouse(lakes[-1]))
    assert wanted == held, f"{where}: {held} rows and hash, expected {wanted}"
    return cost_and_laps


@_scenario
def steady(place: Place) -> Iterator[Figure]:
    """Windows of random changes into a large table, beside a bare MERGE of the same reduced rows."""
    feed, root = place.feed("steady"), place.at("lakes")
    few, many, rows = place.of(1_000, 10), place.of(100_000, 20), place.of(5_000_000, 100)
    lakes = [str(root / "ours"), str(root / "merge")]
    feed.append(rows, rows, fill=rows, files=max(1, rows // 250_000))
    feed.keep()
    # The JVM's compiler is at work on the first of them.
    windows = [many, few] * 5
    cost, measured = contend("steady", feed=str(feed.directory), keys=rows, windows=windows, lakes=lakes)
    _check(feed, root / "ours")
    _check(feed, root / "merge")
    for changes, most in ((many, 1.3), (few, 0.6)):
        laps = {who: [lap for lap in measured[who] if lap["changes"] == changes] for who in ("ours", "merge")}
        ours, bare = _best(laps["ours"]), _best(laps["merge"])
        yield Figure("steady", f"ours, {changes:,} changes", ours, notes=_laps(laps["ours"], cost))
        yield Figure("steady", f"bare MERGE, {changes:,} changes", bare, notes=_laps(laps["merge"], cost))
        yield Figure("steady", f"ours to bare MERGE, {changes:,} changes", ours / bare, "x", most)
    yield from _scans(place, feed, rows, lakes[0], str(root / "fresh"))


def _scans(place: Place, feed: Feed, rows: int, lake: str, fresh: str) -> Iterator[Figure]:
    """Yield how much slower a table is read after hundreds of small windows than one of the same rows, just loaded.

    PyIceberg has no target: of a file with hidden rows it copies those that are left, however few are hidden.
    """
    count, changes = place.of(600, 20), place.of(200, 5)
    kept = str(feed.directory)
    cost, laps = contend("small_windows", feed=kept, keys=rows, changes=changes, count=count, lake=lake)
    last = laps[-len(laps) // 4 :]
    what = f"{count} windows of {changes} changes"
    yield Figure("steady", f"{what}, one of the last", _best(last), notes={"windows": count, **_laps(last, cost)})
    _apply(feed, Path(fresh))
    for lake_path in (lake, fresh):
        _check(feed, Path(lake_path))
    cost, read = contend("scans", feed=kept, lakes={"after": lake, "fresh": fresh}, times=5)
    for by, limit in (("Spark", 1.3), ("PyIceberg", None)):
        for who in ("after", "fresh"):
            what = f"a scan by {by}, {'after them' if who == 'after' else 'freshly loaded'}"
            yield Figure("steady", what, _best(read[who][by]), notes=_laps(read[who][by], cost))
        more = _best(read["after"][by], "cpu_seconds") / _best(read["fresh"][by], "cpu_seconds")
        yield Figure("steady", f"a scan by {by} after them to freshly loaded, CPU", more, "x", limit)


@_scenario
def history(place: Place) -> Iterator[Figure]:
    """Tables of changes and of states beside the mirror: into an empty lake, and windows into a large table."""
    name, changes, keys = "history", place.of(1_000_000, 100), place.of(500_000, 50)
    feed, root, first = place.feed("empty"), place.at("empty-lakes"), dict[str, Sequence[Mapping[str, float]]]()
    feed.append(changes, keys, fill=keys, files=4)
    for kinds in ("mirror", "all three"):
        lakes = [str(root / f"{kinds}-{number}") for number in range(4)]
        cost, first[kinds] = contend("ours", feed=feed.spec, lakes=lakes, kinds=kinds)
        _check_history(feed, {kinds: Path(lakes[-1])})
        what = f"{kinds}, {changes:,} changes into an empty lake, warm"
        yield Figure(name, what, _best(first[kinds]), notes=_laps(first[kinds], cost))
    yield from _times(name, "all three to the mirror, empty lake", first["all three"], first["mirror"], 2)
    feed, rows, changes = place.feed("large"), place.of(5_000_000, 100), place.of(100_000, 20)
    feed.append(rows, rows, fill=rows, files=max(1, rows // 250_000))
    feed.keep()
    root = place.at("lakes")
    where = {kinds: root / kinds for kinds in ("mirror", "log", "scd2", "all three")}
    into = {kinds: str(lake) for kinds, lake in where.items()}
    cost, laps = contend("history", feed=str(feed.directory), keys=rows, windows=[changes] * 5, lakes=into)
    feed = Feed.resumed(feed.directory)
    feed.append(changes, rows)
    runs = {kinds: _apply(feed, lake, kinds) for kinds, lake in where.items()}
    _check_history(feed, where)
    for kinds, laps_of_kind in laps.items():
        yield Figure(name, f"{kinds}, {changes:,} changes, warm", _best(laps_of_kind), notes=_laps(laps_of_kind, cost))
        notes = _whole(runs[kinds])
        yield Figure(name, f"{kinds}, process start to exit", runs[kinds].wall_seconds, notes=notes)
    for kinds, limit in (("scd2", 1.3), ("log", 0.6), ("all three", 2.0)):
        yield from _times(name, f"{kinds} to the mirror, {changes:,} changes", laps[kinds], laps["mirror"], limit)
        times = runs[kinds].cpu_seconds / runs["mirror"].cpu_seconds
        yield Figure(name, f"{kinds} to the mirror, processes, CPU", times, "x")


def _times(
    name: str, what: str, laps: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]], limit: float
) -> Iterator[Figure]:
    """Yield how many times another's laps mine are, and the same of their CPU, which other work disturbs less."""
    for key, unit in (("wall_seconds", ""), ("cpu_seconds", ", CPU")):
        yield Figure(name, f"{what}{unit}", _best(laps, key) / _best(other, key), "x", limit)


@_scenario
def history_long(place: Place) -> Iterator[Figure]:
    """A thousand windows into one table of states, with maintenance every hundred."""
    yield from _long_life(place, "history-long", "scd2", 1.3)


@_scenario
def extract(place: Place) -> Iterator[Figure]:
    """The changes of a great range as one file, from the feed and from the log, beside a quarter of them."""
    name, peaks = "extract", dict[str, list[int]]()
    for changes in (place.of(1_250_000, 25), place.of(5_000_000, 100)):
        feed, lake = place.feed(f"feed-{changes}"), place.at("lakes") / str(changes)
        through = feed.append(changes, changes // 2, fill=changes // 2, files=max(1, changes // 250_000))
        for source in ("feed", "log"):
            if source == "log":
                _apply(feed, lake, "log")
            out = place.at(f"from-{source}-{changes}")
            span = ["--from", "1", "--to", str(through), "--history", "*.*=log"]
            command = [*PYTHON, "extract", str(feed.name(0)), *feed.flags, "--warehouse", str(lake), *span]
            cost = run([*command, "--out", str(out), "--json"])
            _check_extract(feed, out / "changes.parquet", changes)
            shown = json.loads(cost.output)
            notes = {"from": shown["source"], **_whole(cost)}
            yield Figure(name, f"{changes:,} changes from the {source} to a file", cost.wall_seconds, notes=notes)
            peaks.setdefault(source, []).append(cost.peak_pss_mb)
    for source, (quarter, whole) in peaks.items():
        notes = {"peak_pss_mb": whole, "peak_pss_mb_of_a_quarter": quarter}
        what = f"four times the changes from the {source}, peak memory"
        yield Figure(name, what, whole / max(1, quarter), "x", 1.5, notes=notes)


def _check_extract(feed: Feed, file: Path, changes: int) -> None:
    """Raise AssertionError unless an extract has so many changes in their order, which lead to the rows of a feed."""
    rows = pq.read_table(file)
    positions = rows.column("_cdc_position").to_numpy()
    assert len(positions) == changes, f"{file}: {len(positions)} changes, expected {changes}"
    assert (positions[1:] >= positions[:-1]).all(), f"{file}: changes are not in their order"
    wanted, fingerprint = fingerprint_of_files(feed), fingerprint_of_rows(feed, rows, "log")
    assert wanted == fingerprint, f"{file}: {fingerprint} rows and hash, expected {wanted}"


@_scenario
def idle(place: Place) -> Iterator[Figure]:
    """Nothing new: a look as the sensor takes it, and `apply` as a command."""
    feed = place.feed("idle", tables=place.of(2_000, 3))
    feed.append(2, 100)
    lake = place.at("lake")
    know(feed, lake)
    cost, measured = contend("idle", feed=feed.spec, lake=str(lake), times=20)
    notes = {"tables": feed.tables, "cpu_seconds": round(measured["cpu_seconds"], 4), **_memory(cost)}
    yield Figure("idle", "a look without news, in a process", measured["wall_seconds"], limit=0.05, notes=notes)
    cost = _apply(feed, lake)
    yield Figure("idle", "empty apply, process start to exit", cost.wall_seconds, notes=_whole(cost))


@_scenario
def many_tables(place: Place) -> Iterator[Figure]:
    """Many tables in one run, from nothing."""
    feed = place.feed("many", tables=place.of(200, 3))
    changes, lake = place.of(5_000, 20), place.at("lake")
    feed.append(changes, max(10, changes // 2), zipf=0.8)
    cost = _apply(feed, lake)
    _check(feed, lake, range(feed.tables))
    notes = {"tables": feed.tables, "changes": changes, **_whole(cost)}
    yield Figure(
        "many-tables", f"{feed.tables} tables, process start to exit", cost.wall_seconds, limit=45, notes=notes
    )


@_scenario
def known_tables(place: Place) -> Iterator[Figure]:
    """Many tables are known, few have changed: the time should be that of the few."""
    known, few = place.of(2_000, 6), place.of(20, 2)
    took = {}
    for count in (known, few):
        feed, lake = place.feed(f"known-{count}", tables=count), place.at(f"lake-{count}")
        know(feed, lake)
        feed.append(place.of(5_000, 20), 2_000, tables=range(few))
        took[count] = _apply(feed, lake)
        _check(feed, lake, range(few))
        what = f"{few} of {count} tables changed, process start to exit"
        limit = 5 if count == known else None
        yield Figure("known-tables", what, took[count].wall_seconds, limit=limit, notes=_whole(took[count]))
    more = took[known].cpu_seconds - took[few].cpu_seconds
    yield Figure("known-tables", f"more CPU for {known - few} tables that did not change", more, may_be_nothing=True)


@_scenario
def growth(place: Place) -> Iterator[Figure]:
    """Ten times the changes."""
    laps, costs = {}, {}
    for factor in (1, 10):
        changes = place.of(500_000 * factor, 50 * factor)
        feed, root = place.feed(f"feed-{factor}"), place.at(f"lakes-{factor}")
        feed.append(changes, changes // 2, fill=changes // 2, files=2 * factor)
        costs[factor], laps[factor] = contend("ours", feed=feed.spec, lakes=[str(root / str(n)) for n in range(3)])
        _check(feed, root / "2")
        notes = {"changes": changes, **_laps(laps[factor], costs[factor])}
        yield Figure("growth", f"{changes:,} changes, warm", _best(laps[factor]), notes=notes)
    yield Figure("growth", "ten times the changes cost", _best(laps[10]) / _best(laps[1]), "x", 10.5)
    more = costs[10].peak_pss_mb / max(1, costs[1].peak_pss_mb)
    yield Figure("growth", "ten times the changes, peak memory", more, "x", notes=_memory(costs[10]))


@_scenario
def long_life(place: Place) -> Iterator[Figure]:
    """A thousand windows into one table, with maintenance every hundred."""
    yield from _long_life(place, "long-life", "mirror", 1.2)


def _long_life(place: Place, name: str, kinds: str, limit: float) -> Iterator[Figure]:
    feed, lake = Feed(place.at("long")), place.at("lake")
    count, keys, changes = place.of(1_000, 20), place.of(100_000, 100), place.of(1_000, 10)
    cost, laps = contend(
        "windows", feed=feed.spec, keys=keys, changes=changes, count=count, lake=str(lake), kinds=kinds
    )
    _check_history(Feed(feed.directory), {kinds: lake})
    first, last = laps[5:15], laps[-10:]
    wall, cpu = (
        [statistics.median(lap[key] for lap in part) for part in (first, last)]
        for key in ("wall_seconds", "cpu_seconds")
    )
    notes = {"windows": count, "cpu_seconds": cpu, **_memory(cost)}
    yield Figure(name, "about the 10th window", wall[0])
    yield Figure(name, f"about the {count:,}th window", wall[1], notes=notes)
    yield Figure(name, "the last to the 10th", wall[1] / wall[0], "x", limit)
    yield Figure(name, "the last to the 10th, CPU", cpu[1] / cpu[0], "x", limit)


@_scenario
def planning(place: Place) -> Iterator[Figure]:
    """A bucket of many files with few new ones: each key listed once, nothing old opened."""
    tables, new = place.of(100, 2), place.of(50, 1)
    feed, lake = place.feed("planning", tables=tables), place.at("lake")
    feed.append(2_000, 1_000, files=1_000)
    know(feed, lake)
    feed.append(4, 1_000, tables=range(new))
    cost, measured = contend("planning", feed=feed.spec, lake=str(lake))
    assert measured["files_planned"] == new == measured["steps"], measured
    assert measured["listed_twice"] == 0, measured
    indexes = [name for name in measured["opened"] if name.endswith("/CDC.index")]
    assert len(indexes) <= new, measured["opened"]  # only of directories that have another newest file
    assert [name for name in measured["opened"] if name not in indexes] == ["metadata"], measured["opened"]
    notes = {"files": measured["files"], "new": new, "cpu_seconds": measured["cpu_seconds"], **_memory(cost)}
    yield Figure(
        "planning",
        f"{measured['files']:,} files, {new} new: list and plan",
        measured["wall_seconds"],
        limit=2,
        notes=notes,
    )
    cost = run([*PYTHON, "plan", *feed.flags, "--warehouse", str(lake), "--json"])
    yield Figure("planning", "the same as a command, process start to exit", cost.wall_seconds, notes=_whole(cost))


@_scenario
def start(place: Place) -> Iterator[Figure]:
    """How long a person waits."""
    helped = min((run([*PYTHON, "--help"]) for _ in range(5)), key=lambda cost: cost.wall_seconds)
    yield Figure("start", "--help", helped.wall_seconds, limit=0.3, notes=_whole(helped))
    for tables in (place.of(20, 2), place.of(2_000, 3)):
        feed, lake = place.feed(f"status-{tables}", tables=tables), place.at(f"lake-{tables}")
        know(feed, lake)
        command = [*PYTHON, "status", "--warehouse", str(lake)]
        best = min((run(command) for _ in range(3)), key=lambda cost: cost.wall_seconds)
        assert best.output.count("bench.t") == tables, best.output[:500]
        yield Figure("start", f"status of {tables:,} tables", best.wall_seconds, limit=1.5, notes=_whole(best))
    feed, lake = place.feed("small"), place.at("small-lake")
    feed.append(1_000, 500, fill=500)
    begun = time.time()
    cost = _apply(feed, lake)
    _check(feed, lake)
    waited = _first_rows(feed, lake) - begun
    yield Figure("start", "first commit of rows after process start", waited, limit=6, notes=_whole(cost))
    yield Figure("start", "small feed, process start to exit", cost.wall_seconds)


def _first_rows(feed: Feed, lake: Path) -> float:
    """Return when the first snapshot with rows was committed, in seconds since 1970."""
    state = LakeState(LakeSettings.from_warehouse(lake), feed.settings.name)
    held = state.named(feed.name(0))
    file = state.file(held.metadata_location)
    state.close()
    return min(snapshot.made_ms / 1000 for snapshot in file.snapshots.values() if snapshot.number("added-records"))
