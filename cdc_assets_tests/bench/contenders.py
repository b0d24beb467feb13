"""What is timed, each in a process of its own, so that neither memory nor a warm JVM is shared.

`python -m cdc_assets_tests.bench.contenders NAME '{"argument": …}'` prints one line of JSON.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from cdc_assets.features.dumps.settings import InitialSettings, ServerAddress
from cdc_assets.features.verification.operations import VerifyOptions
from cdc_assets.features.verification.operations import verify as compared
from cdc_assets.model.dumps import DumpSplit
from cdc_assets.operations.opening import open_pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.bench.feeds import Feed
from cdc_assets_tests.bench.measuring import lap
from cdc_assets_tests.bench.rows import duck, rows_of_lake, spark_type_of, write_last_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Laps = list[dict[str, float]]
_PASSWORD = "BENCH_PASSWORD"
"""The environment variable that has the password of a server."""
CONTENDERS: dict[str, Callable[..., Any]] = {}


def _contender(function: Callable[..., Any]) -> Callable[..., Any]:
    CONTENDERS[function.__name__] = function
    return function


def _feed(given: dict[str, Any]) -> Feed:
    return Feed(Path(given["directory"]), given["protocol"], given["tables"], given["columns"])


KINDS: dict[str, dict[str, Any]] = {
    "mirror": {},
    "log": {"*.*": {"kinds": ["log"], "mirror": False}},
    "scd2": {"*.*": {"kinds": ["scd2"], "mirror": False}},
    "all three": {"*.*": ["log", "scd2"]},
}
"""The setting `history` by the tables that a source table has then."""


@contextmanager
def _spark(lake: LakeSettings) -> Iterator[SparkSession]:
    from cdc_assets.lake import spark_session

    session = spark_session(lake)
    try:
        yield session
    finally:
        session.stop()


@_contender
def ours(
    feed: dict[str, Any],
    lakes: list[str],
    dump: str = "",
    kinds: str = "mirror",
    privacy: Sequence[Mapping[str, Any]] = ({},),
) -> Laps:
    """Catch up into each of the lakes, on one Spark: from a dump of what was there before, or with masks, in turns."""
    timings, settings = [], _feed(feed).settings.with_history(KINDS[kinds])
    if dump:
        settings = settings.model_copy(update={"initial": InitialSettings.model_validate({"dump": dump})})
    turns = [ChangefeedSettings.model_validate({**settings.model_dump(), "privacy": masks}) for masks in privacy]
    with _spark(LakeSettings.from_warehouse(lakes[0])) as spark:
        for place, turn_settings in zip(lakes, cycle(turns), strict=False):
            with (
                lap() as timing,
                open_pipeline(turn_settings, LakeSettings.from_warehouse(place), None, lambda: spark) as work,
            ):
                outcome = work.apply()
            assert outcome.complete, outcome
            timings.append(dataclasses.asdict(timing.measured))
    return timings


@_contender
def duckdb(feed: dict[str, Any], target: str, times: int) -> Laps:
    """Read, last change of each key, Parquet: what one machine can do at best."""
    timings, source = [], _feed(feed)
    for _ in range(times):
        with lap() as timing:
            write_last_changes(source, Path(target))
        timings.append(dataclasses.asdict(timing.measured))
    return timings


@_contender
def plain_spark(feed: dict[str, Any], warehouse: str, times: int) -> Laps:
    """As one would write it: read.csv with a schema, a window function, MERGE into an Iceberg v3 table."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    source, lake, timings = _feed(feed), LakeSettings.from_warehouse(warehouse), []
    Path(warehouse).mkdir(parents=True, exist_ok=True)
    columns = source.schema
    heads = "op STRING, t STRING, s STRING, ts BIGINT, " + ", ".join(f"{c.name} {spark_type_of(c)}" for c in columns)
    with _spark(lake) as spark:
        name = f"{lake.name}.plain.orders"
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.name}.plain")
        for _ in range(times):
            spark.sql(f"DROP TABLE IF EXISTS {name} PURGE")
            with lap() as timing:
                listed = ", ".join(f"{c.name} {spark_type_of(c)}" for c in columns)
                spark.sql(
                    f"CREATE TABLE {name} ({listed}, ts BIGINT) USING iceberg "
                    "TBLPROPERTIES ('format-version'='3', 'write.merge.mode'='merge-on-read')"
                )
                rows = spark.read.csv(
                    [str(path) for path in source.files()], schema=heads, nullValue="\\N", quote='"', escape='"'
                )
                newest = Window.partitionBy("id").orderBy(sql.col("ts").desc())
                rows.withColumn("n", sql.row_number().over(newest)).where("n = 1").createOrReplaceTempView("newest")
                spark.sql(_merge(name, [column.name for column in columns]))
            timings.append(dataclasses.asdict(timing.measured))
    return timings


def _merge(name: str, columns: list[str], source: str = "newest", ts: str = "ts") -> str:
    sets = ", ".join(f"t.{column} = s.{column}" for column in columns)
    return (
        f"MERGE INTO {name} t USING {source} s ON t.id = s.id WHEN MATCHED AND s.op = 'D' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets}, t.{ts} = s.ts WHEN NOT MATCHED AND s.op <> 'D' "
        f"THEN INSERT ({', '.join(columns)}, {ts}) VALUES ({', '.join(f's.{column}' for column in columns)}, s.ts)"
    )


@_contender
def steady(feed: str, keys: int, windows: list[int], lakes: list[str]) -> dict[str, Laps]:
    """Two equal lakes with a feed's rows; windows of changes into one by us, into the other by a bare MERGE of the same
    reduced rows. `lakes` are two directories, `feed` that of a feed that was kept, which grows here over its `keys`."""
    source = Feed.resumed(Path(feed))
    timings: dict[str, Laps] = {"ours": [], "merge": []}
    settings, (first, second) = source.settings, (LakeSettings.from_warehouse(place) for place in lakes)
    with _spark(first) as spark:
        for lake in (first, second):
            with open_pipeline(settings, lake, None, lambda: spark) as work:
                assert work.apply().complete
        session = spark.newSession()
        for key, value in second.spark_properties().items():
            session.conf.set(key, value)
        name = f"{second.name}.bench.{source.name(0).table}"
        for number, changes in enumerate(windows):
            before = set(source.files())
            source.append(changes, keys)
            with lap() as timing, open_pipeline(settings, first, None, lambda: spark) as work:
                assert work.apply().complete
            timings["ours"].append({"changes": changes, **dataclasses.asdict(timing.measured)})
            reduced = str(Path(lakes[1]) / f"window-{number}.parquet")
            write_last_changes(source, Path(reduced), deletes=True, files=sorted(set(source.files()) - before))
            with lap() as timing:
                session.read.parquet(reduced).createOrReplaceTempView("newest")
                session.sql(_merge(name, [column.name for column in source.schema], ts="_cdc_commit_ts"))
            timings["merge"].append({"changes": changes, **dataclasses.asdict(timing.measured)})
    source.keep()
    return timings


@_contender
def small_windows(feed: str, keys: int, changes: int, count: int, lake: str) -> Laps:
    """One small window after the other into a lake that has the rows of a feed that was kept, and which grows here;
    after each comes the upkeep of a run that lives on."""
    from cdc_assets.operations.maintenance import compact_overdue, expire_snapshots

    source, timings = Feed.resumed(Path(feed)), Laps()
    with open_pipeline(source.settings, LakeSettings.from_warehouse(lake), None) as work:
        for _ in range(count):
            source.append(changes, keys)
            with lap() as timing:
                outcome = work.apply()
                assert outcome.complete
                expire_snapshots(work, outcome.plan, int(time.time() * 1000))
                compact_overdue(work, outcome.plan, int(time.time() * 1000))
            timings.append(dataclasses.asdict(timing.measured))
    source.keep()
    return timings


@_contender
def scans(feed: str, lakes: dict[str, str], times: int) -> dict[str, dict[str, Laps]]:
    """All rows and columns of the same table of several lakes read by turns, by Spark and by PyIceberg."""
    source = Feed.resumed(Path(feed))
    timings: dict[str, dict[str, Laps]] = {who: {"Spark": [], "PyIceberg": []} for who in lakes}
    settings = {who: LakeSettings.from_warehouse(place) for who, place in lakes.items()}
    with _spark(next(iter(settings.values()))) as spark:
        for _ in range(times):
            for who, lake in settings.items():
                session = spark.newSession()
                for key, value in lake.spark_properties().items():
                    session.conf.set(key, value)
                with lap() as timing:
                    rows = session.table(f"{lake.name}.bench.{source.name(0).table}")
                    rows.write.format("noop").mode("overwrite").save()
                timings[who]["Spark"].append(dataclasses.asdict(timing.measured))
                with lap() as timing:
                    rows_of_lake(source, lake)
                timings[who]["PyIceberg"].append(dataclasses.asdict(timing.measured))
    return timings


@_contender
def forget(feed: dict[str, Any], lakes: list[str], keys: list[list[int]]) -> dict[str, Any]:
    """Rows of keys taken out of the first lake, a list a lap, without the proof's reading but of the last; the files
    of the second, which has the same rows, written anew by Iceberg's compaction as often.

    Says of each lap how many data files the table had and how many of these were written anew.
    """
    from cdc_assets.features.forgetting.lake import LakeForgetting
    from cdc_assets.features.forgetting.operations import forget as forget_rows
    from cdc_assets.lake.maintenance import _actions
    from cdc_assets.model.forgetting import SearchedFiles

    class Unproven(LakeForgetting):
        """Takes the rows out and reads nothing afterwards."""

        def search(self, *_: object) -> SearchedFiles:
            return SearchedFiles("", 0, 0)

        search_stages = search_records = search  # type: ignore[assignment]

    source, first, second = _feed(feed), LakeSettings.from_warehouse(lakes[0]), LakeSettings.from_warehouse(lakes[1])
    timings: dict[str, Any] = {"forget": [], "compact": [], "files": []}
    with _spark(first) as spark:
        for lake in (first, second):
            with open_pipeline(source.settings, lake, None, lambda: spark) as work:
                assert work.apply().complete
        for place in (first, second):
            with open_pipeline(source.settings, place, None, lambda: spark) as work:
                (life,) = work.lake.state.tables()
                for number, some in enumerate(keys):
                    if place is first:
                        there, texts = work.lake.state.find(life).data_files, [[str(key)] for key in some]
                        with lap() as timing:
                            report = forget_rows(work, Unproven(work.lake), str(life), texts)
                        timings["files"].append([there, report.removed[0].files_rewritten, report.removed[0].rows])
                        if number == len(keys) - 1:
                            assert forget_rows(work, LakeForgetting(work.lake), str(life), texts).complete
                    else:
                        with work.lake.workbench.sessions.step() as session, lap() as timing:
                            table = session.load(work.lake.state.find(life).identifier)
                            _actions(session).rewriteDataFiles(table).option("rewrite-all", "true").execute()
                    timings["forget" if place is first else "compact"].append(dataclasses.asdict(timing.measured))
    return timings


@_contender
def history(feed: str, keys: int, windows: list[int], lakes: dict[str, str]) -> dict[str, Laps]:
    """Windows of changes into lakes by their KINDS, which begin with the rows of a feed; see `steady`."""
    source, timings = Feed.resumed(Path(feed)), {kinds: Laps() for kinds in lakes}
    with _spark(LakeSettings.from_warehouse(next(iter(lakes.values())))) as spark:
        for number, changes in enumerate((0, *windows)):
            if number:
                source.append(changes, keys)
            for kinds, place in lakes.items():
                settings, lake = source.settings.with_history(KINDS[kinds]), LakeSettings.from_warehouse(place)
                with lap() as timing, open_pipeline(settings, lake, None, lambda: spark) as work:
                    assert work.apply().complete
                if number:
                    timings[kinds].append({"changes": changes, **dataclasses.asdict(timing.measured)})
    source.keep()
    return timings


@_contender
def windows(feed: dict[str, Any], keys: int, changes: int, count: int, lake: str, kinds: str = "mirror") -> Laps:
    """One window after the other into one table, on one Spark; maintenance comes between every hundred."""
    from cdc_assets.operations.maintenance import maintain

    source, timings = _feed(feed).create(), []
    source.append(keys, keys, fill=keys)
    place, settings = LakeSettings.from_warehouse(lake), source.settings.with_history(KINDS[kinds])
    with _spark(place) as spark, open_pipeline(settings, place, None, lambda: spark) as work:
        assert work.apply().complete
        for number in range(count):
            if number and number % 100 == 0:
                assert maintain(work, int(time.time() * 1000)).complete
            source.append(changes, keys)
            with lap() as timing:
                assert work.apply().complete
            timings.append(dataclasses.asdict(timing.measured))
    return timings


@_contender
def idle(feed: dict[str, Any], lake: str, times: int) -> dict[str, float]:
    """Look again and again whether there is anything new, as the sensor does; measuring takes longer than one look."""
    from cdc_assets.defs.resources import ConfiguredFeed, S3Credentials
    from cdc_assets.defs.watching import Watch

    settings, s3, spent = _feed(feed).settings, S3Credentials(), []
    watch = Watch(ConfiguredFeed(settings, LakeSettings.from_warehouse(lake)))
    looks = 100
    for _ in range(times):
        with lap() as timing:
            for _ in range(looks):
                seen = watch.look(lambda: s3)
        assert seen.checkpoint
        assert not seen.has_news
        spent.append(timing.measured)
    return {
        "wall_seconds": statistics.median(cost.wall_seconds for cost in spent) / looks,
        "cpu_seconds": sum(cost.cpu_seconds for cost in spent) / times / looks,
    }


@_contender
def planning(feed: dict[str, Any], lake: str) -> dict[str, Any]:
    """Plan, and count what is listed and opened below the bucket."""
    source = _feed(feed)
    opened: list[str] = []
    scanned: list[str] = []
    root = str(source.bucket)

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.scandir") and str(arguments[0]).startswith(root):
            (opened if event == "open" else scanned).append(str(arguments[0]))

    sys.addaudithook(heard)
    with open_pipeline(source.settings, LakeSettings.from_warehouse(lake)) as work, lap() as timing:
        listing, planned = work.planner.plan()
    return {
        **dataclasses.asdict(timing.measured),
        "files": len(listing.data_files),
        "files_planned": sum(len(getattr(step, "files", ())) for step in planned.steps),
        "steps": len(planned.steps),
        "opened": [path[len(root) + 1 :] for path in opened],
        "listed_twice": len(scanned) - len(set(scanned)),
    }


@_contender
def read_source(uri: str, table: str, times: int) -> Laps:
    """Read all rows of a server's table with the connections and the reader that comparing has, and drop them."""
    timings = []
    for _ in range(times):
        with lap() as timing:
            source = ServerAddress(uri=SecretStr(uri), password={"env": _PASSWORD}).open(0)
            (dumped_table,) = (dumped_table for dumped_table in source.dump().tables if str(dumped_table.id) == table)
            splits = [split for file in dumped_table.files for split in source.splits(file)]

            def read(split: DumpSplit) -> int:
                return sum(block.changes.num_rows for block in source.reader.read(split, dumped_table, 0, {}))  # noqa: B023

            with ThreadPoolExecutor(VerifyOptions().threads) as pool:
                rows = sum(pool.map(read, splits))
        timings.append({**dataclasses.asdict(timing.measured), "rows": rows})
    return timings


@_contender
def verify(feed: dict[str, Any], lake: str, uri: str, times: int, differing: int) -> Laps:
    """Compare a table with its source, and check how many rows differ."""
    timings, settings = [], _feed(feed).settings
    server = ServerAddress(uri=SecretStr(uri), password={"env": _PASSWORD})
    for _ in range(times):
        with open_pipeline(settings, LakeSettings.from_warehouse(lake)) as pipeline, lap() as timing:
            (comparison,) = compared(pipeline, pipeline.lake, server.open, VerifyOptions(quiet=True))
        assert (comparison.differing, comparison.missing, comparison.extra) == (differing, 0, 0), comparison
        timings.append({**dataclasses.asdict(timing.measured), "rows": comparison.source_rows})
    return timings


@_contender
def duckdb_version() -> str:
    """The version of DuckDB."""
    return duck.__version__


def main() -> None:
    """Run one contender."""
    from cdc_assets_tests.bench import looks  # whose table is this module's, and has more

    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(looks.CONTENDERS[name](**arguments)), flush=True)


if __name__ == "__main__":
    main()
