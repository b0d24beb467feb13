"""The targets of object stores, REST catalogs and clusters: what is asked, and how long it takes beside local ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from urllib.parse import urlsplit

from cdc_assets_tests.bench.feeds import VERSION
from cdc_assets_tests.bench.looks import DAY, files_of
from cdc_assets_tests.bench.measuring import contend, run
from cdc_assets_tests.bench.scenarios import PYTHON, Figure, Place, _check, _memory, _scenario, _whole
from cdc_assets_tests.bench.stores import Asked, away
from cdc_assets_tests.bench.topic_scenarios import SCENARIOS
from cdc_assets_tests.kills import named
from cdc_assets_tests.servers.spark_cluster import spark_cluster

__all__ = ["ON_SERVERS", "SCENARIOS"]

ON_SERVERS = ("requests", "far", "workers", "looks")
"""Scenarios that start an object store, a catalog or a cluster."""


@_scenario
def requests(place: Place) -> Iterator[Figure]:
    """What a feed and a lake in an object store with a REST catalog are asked, for few tables and for many."""
    for tables in (place.of(20, 2), place.of(2_000, 3)):
        feed = place.feed(f"requests-{tables}", tables=tables)
        feed.append(2, 100)
        with away(place.at(f"servers-{tables}")) as there:
            settings = there.feed(feed, "feed")
            command = [*PYTHON, "apply", "--settings", str(settings), "--json"]
            requests_by_step = dict[str, Asked]()
            for what in ("all of them new", "nothing new", "one window in each of 2"):
                if what.startswith("one"):
                    feed.append(2, 100, tables=range(2))
                    there.upload(feed.bucket, "feed")
                there.asked()
                run(command)
                requests_by_step[what] = there.asked()
            there.asked()
            run([*PYTHON, "status", "--settings", str(settings)])
            requests_by_step["status"] = there.asked()
        for what, request_counts in requests_by_step.items():
            yield Figure(
                "requests",
                f"{tables:,} tables, {what}: catalog",
                request_counts.catalog,
                "",
                notes=request_counts.notes(),
            )
            in_catalog = what == "status"  # a REST catalog sends a table's metadata along
            stored = f"{tables:,} tables, {what}: store"
            yield Figure(
                "requests", stored, request_counts.stored, "", notes=request_counts.notes(), may_be_nothing=in_catalog
            )
        more = requests_by_step["one window in each of 2"].catalog - requests_by_step["nothing new"].catalog
        yield Figure("requests", f"{tables:,} tables, a window: catalog", more / 2, "", 10)


@_scenario
def looks(place: Place) -> Iterator[Figure]:
    """A feed of very many files in an object store: the first look, one when little is new, and the day's whole one."""
    days, count = place.of(100, 6), place.of(1_000, 100)
    feed, ledger = place.feed("looks", tables=10), f"sqlite:///{place.at('ledger')}/ledger.db"
    with away(place.at("servers")) as there:
        there.upload(feed.bucket, "feed")
        there.put("feed", files_of(feed, range(days), count))
        uri = there.uri("feed", urlsplit(feed.uri).query)
        through = VERSION + days * DAY
        plain = {"uri": uri, "config": str(feed.directory / "changefeed.toml"), "ledger": ledger, "tables": 10}
        for what, learn, later in (
            ("first", True, 0),
            ("next, with nothing new", False, 0),
            ("next, with 50 new", False, 0),
            ("a day later, with 50 new", False, 25 * 3600),
        ):
            if what == "next, with 50 new":
                there.put("feed", ((path, data) for path, data in files_of(feed, [days], 5) if "CDC0" in path))
            there.put("feed", [("metadata", b'{"checkpoint-ts":%d}' % through)])
            there.asked()
            cost, figures = contend("look", **plain, through=through, learn=learn, later=later)
            feed_requests = there.asked().feed
            notes = {**figures, **feed_requests, **_memory(cost)}
            of = f"{figures['all']:,} files, {what}"
            yield Figure("looks", f"{of}: CPU", figures["cpu_seconds"], "s", notes=notes)
            yield Figure("looks", f"{of}: memory", figures["grown_mb"], "MB", notes=notes, may_be_nothing=True)
            yield Figure("looks", f"{of}: LIST", feed_requests["LIST"], "", notes=notes)


@_scenario
def far(place: Place) -> Iterator[Figure]:
    """A recorded feed of five checkpoints into an object store over a REST catalog, beside a local lake."""
    config, took = named("H_bank/csv-ts"), dict[str, float]()
    toml, query = config.path / "changefeed.toml", str(config.recorded_options["sink_uri_params"])
    with away(place.at("servers")) as there:
        remote = there.settings("bank", query, toml)
        local, lake = place.at("bucket"), place.at("lake")
        for checkpoint in config.replayable:
            there.upload(checkpoint.bucket, "bank")
            shutil.copytree(checkpoint.bucket, local, dirs_exist_ok=True)
            near = ["--sink-uri", f"file://{local}?{query}", "--config", str(toml), "--warehouse", str(lake)]
            for who, given in (("there", ["--settings", str(remote)]), ("here", near)):
                took[who] = took.get(who, 0) + run([*PYTHON, "apply", *given, "--json"]).wall_seconds
    yield Figure("far", "a recorded feed, 5 checkpoints, into a local lake", took["here"])
    yield Figure("far", "the same into an object store over REST", took["there"])
    yield Figure("far", "there to here", took["there"] / took["here"], "x", 2.5)


@_scenario
def workers(place: Place) -> Iterator[Figure]:
    """A large window into an empty table, read by two workers of one core, beside two threads of the driver."""
    feed, root, count = place.feed("workers"), place.at("lakes"), place.of(3_000_000, 200)
    feed.append(count, count, fill=count, files=16)
    size = sum(path.stat().st_size for path in feed.files())
    here = run([*PYTHON, "apply", *feed.flags, "--warehouse", str(root / "here"), "--decode", "driver"])
    with spark_cluster(place.at("cluster")) as cluster:
        flags = ["--warehouse", str(root / "there"), "--decode", "executors"]
        there = run([*PYTHON, "apply", *feed.flags, *flags], **cluster.environment)
    for lake in ("here", "there"):
        _check(feed, root / lake)
    yield Figure("workers", "by the driver", here.wall_seconds, notes={"bytes": size, **_whole(here)})
    yield Figure("workers", "by two workers of one core", there.wall_seconds, notes=_whole(there))
    yield Figure("workers", "workers to driver", there.wall_seconds / here.wall_seconds, "x", 1.3)
