"""The targets of `verify`: a table of the lake beside the same rows in a database, to reading these alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cdc_assets_tests.bench.dumps import dump
from cdc_assets_tests.bench.feeds import create_table
from cdc_assets_tests.bench.measuring import contend
from cdc_assets_tests.bench.scenarios import Figure, Place, _apply, _best, _laps, _memory, _scenario
from cdc_assets_tests.bench.store_scenarios import SCENARIOS
from cdc_assets_tests.mariadb import PASSWORD, running_server

__all__ = ["ON_A_DATABASE", "SCENARIOS"]

ON_A_DATABASE = ("verify",)
"""Scenarios that start a MariaDB."""


@contextmanager
def _password() -> Iterator[None]:
    """Let the processes that are started know the server's password."""
    os.environ["BENCH_PASSWORD"] = PASSWORD
    try:
        yield
    finally:
        del os.environ["BENCH_PASSWORD"]


@_scenario
def verify(place: Place) -> Iterator[Figure]:
    """Five million rows compared with their source, equal and with ten that differ, beside reading the source alone."""
    count, lake = place.of(5_000_000, 100), place.at("lakes") / "lake"
    feed = place.feed("feed")
    feed.append(count, count, fill=count, files=max(1, count // 250_000))
    _apply(feed, lake)
    name = feed.name(0)
    with running_server() as server, _password():
        server.run(f"CREATE DATABASE {name.schema}", f"USE {name.schema}")
        server.run(create_table(name, feed.schema).replace(f"`{name.table}`", f"{name.schema}.{name.table}", 1))
        for path in sorted(dump(feed, place.at("dump")).glob("*.csv")):
            server.run(
                "SET @@session.time_zone = '+00:00', @@session.unique_checks = 0",
                f"LOAD DATA INFILE '{path}' INTO TABLE {name.schema}.{name.table} CHARACTER SET utf8mb4 "
                "FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' LINES TERMINATED BY '\\r\\n' IGNORE 1 LINES",
            )
        given = {"feed": feed.spec, "lake": str(lake), "uri": server.uri}
        alone_cost, alone = contend("read_source", uri=server.uri, table=str(name), times=2)
        cost, laps = contend("verify", **given, times=2, differing=0)
        wrong = ", ".join(str(count * number // 10) for number in range(10))
        server.run(f"UPDATE {name.schema}.{name.table} SET amount = amount + 1 WHERE id IN ({wrong})")
        found_cost, differing_laps = contend("verify", **given, times=2, differing=10)
    read, equal, different = (_best(contender_laps) for contender_laps in (alone, laps, differing_laps))
    notes = {"cpu_to_cpu": round(_best(laps, "cpu_seconds") / _best(alone, "cpu_seconds"), 3)}
    more = {"cpu_to_cpu": round(_best(differing_laps, "cpu_seconds") / _best(alone, "cpu_seconds"), 3)}
    yield Figure("verify", f"{count:,} rows read from the source alone", read, notes=_laps(alone, alone_cost))
    yield Figure("verify", f"{count:,} equal rows compared", equal, notes=_laps(laps, cost))
    yield Figure("verify", "comparing equal rows to reading alone", equal / read, "x", 1.3, notes)
    yield Figure(
        "verify", f"ten of {count:,} rows found that differ", different, notes=_laps(differing_laps, found_cost)
    )
    yield Figure("verify", "finding ten rows to reading alone", different / read, "x", 1.5, more)
    pss = cost.peak_pss_mb / max(1, alone_cost.peak_pss_mb)
    yield Figure("verify", "peak memory to that of reading alone", pss, "x", notes=_memory(cost))
