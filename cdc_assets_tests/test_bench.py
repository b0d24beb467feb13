"""What the bench stands on: feeds as TiCDC would write them, right rows to compare with, honest figures."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.cli import commands
from cdc_assets.ledger import Ledger
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.bench import contenders, freshness, scenarios, topic_contenders, topic_scenarios
from cdc_assets_tests.bench.__main__ import line, main, measure, unmeasured
from cdc_assets_tests.bench.feeds import Feed, _operations, _transactions
from cdc_assets_tests.bench.freshness import ON_A_DAEMON
from cdc_assets_tests.bench.measuring import Cost, lap, run
from cdc_assets_tests.bench.privacy_scenarios import ON_ICEBERG
from cdc_assets_tests.bench.proof_scenarios import ON_A_DATABASE
from cdc_assets_tests.bench.rows import fingerprint_of_files, fingerprint_of_rows
from cdc_assets_tests.bench.store_scenarios import ON_SERVERS
from cdc_assets_tests.bench.topic_scenarios import ON_A_BROKER
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.servers.counted import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHAPES = [("csv", 12), ("csv", 2), ("csv", 60), ("canal-json", 12)]
TINY = 0.0005
LAP = {"wall_seconds": 1.0, "cpu_seconds": 1.0}
LONG = ("history", "initial", "long-life")
"""Scenarios that take seconds, of which the fast suite has shorter ones."""


def grown(directory: Path, protocol: str = "csv", columns: int = 12) -> Feed:
    feed = Feed(directory, protocol, columns=columns).create()
    feed.append(60, 20, fill=20, files=3)
    feed.append(40, 30, zipf=1.2, deletes=0.3, files=2)
    return feed


# --- feeds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "columns"), SHAPES)
def test_a_generated_feed_is_applied_without_a_finding_to_what_duckdb_reads(
    tmp_path: Path, protocol: str, columns: int
) -> None:
    feed, lake = grown(tmp_path / "one", protocol, columns), MemoryLake()
    outcome = Pipeline(feed.settings, feed.settings.open_source(), lake, Ledger("sqlite://")).apply()
    assert (outcome.complete, outcome.findings, outcome.problems) == (True, (), {})
    (table,) = lake.tables.values()
    assert (table.schema.key, len(table.schema.columns)) == (("id",), columns)
    same = grown(tmp_path / "csv", "csv", columns)
    assert fingerprint_of_rows(feed, table.rows) == fingerprint_of_files(same)


def test_the_same_seed_makes_the_same_files(tmp_path: Path) -> None:
    feed, same_feed = grown(tmp_path / "one"), grown(tmp_path / "two")
    assert [path.read_bytes() for path in feed.files()] == [path.read_bytes() for path in same_feed.files()]


def test_each_append_is_above_the_checkpoint_before_it(tmp_path: Path) -> None:
    feed = Feed(tmp_path, tables=2).create()
    checkpoints = [feed.append(7, 3), feed.append(1, 3, tables=[1]), feed.append(7, 3)]
    reader = feed.settings.open_source()
    assert checkpoints == sorted(set(checkpoints))
    assert reader.fence() == checkpoints[-1]
    ((_, first), *_), _ = [[(p, p.read_text()) for p in feed.files(table)] for table in (0, 1)]
    assert max(int(record.split(",")[3]) for record in first.splitlines()) <= checkpoints[0]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1), st.lists(st.booleans(), min_size=5, max_size=5)
)
def test_rows_are_what_a_source_could_have_done(changes: list[tuple[int, bool]], there: list[bool]) -> None:
    keys = np.array([key for key, _ in changes], np.int64)
    alive = np.array(there)
    op, before = _operations(keys, alive, np.array([wanted for _, wanted in changes], bool))
    present = dict(enumerate(there))
    last: dict[int, int] = {}
    for row, key in enumerate(keys):
        assert (op[row] == 0) == (not present[key])
        assert before[row] == last.get(key, -1)
        present[key], last[key] = op[row] != 2, row
    assert list(alive) == [present[key] for key in range(5)]
    transactions = _transactions(before)
    assert len({(t, key) for t, key in zip(transactions, keys, strict=True)}) == len(keys)


# --- scenarios --------------------------------------------------------------------------------------------------------


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> dict[str, MemoryLake]:
    """Contenders run in this process; ours goes into lakes in memory, plain Spark stands still."""
    lakes: dict[str, MemoryLake] = {}
    ledgers: dict[str, Ledger] = {}

    @contextmanager
    def opened(settings: ChangefeedSettings, lake: LakeSettings, *_: object) -> Iterator[Pipeline]:
        held, ledger = (
            lakes.setdefault(lake.warehouse, MemoryLake()),
            ledgers.setdefault(lake.warehouse, Ledger("sqlite://")),
        )
        yield Pipeline(settings, settings.open_source(), held, ledger)

    def applied(feed: Feed, lake: Path, kinds: str = "mirror", privacy: Mapping[str, Any] | None = None) -> Cost:
        given = feed.settings.with_history(contenders.KINDS[kinds])
        given = ChangefeedSettings.model_validate({**given.model_dump(), "privacy": privacy or {}})
        with opened(given, LakeSettings.from_warehouse(lake)) as work:
            assert work.apply().complete
        return Cost(1.0, 1.0, 1, 1)

    def rows(feed: Feed, lake: LakeSettings, table: int = 0, kind: str = "") -> pa.Table:
        name = feed.name(table)
        return lakes[lake.warehouse].read(replace(name, table=f"{name.table}__{kind}") if kind else name)

    def held(feed: Feed, lake: LakeSettings, table: int = 0, kind: str = "", stamped: bool = True) -> tuple[int, str]:
        return fingerprint_of_rows(feed, rows(feed, lake, table, kind), kind, stamped)

    monkeypatch.setattr(contenders, "_spark", lambda lake: contextmanager(lambda: iter([None]))())
    for name in ("ours", "windows", "history"):
        monkeypatch.setitem(contenders.CONTENDERS, name, with_(contenders.CONTENDERS[name], monkeypatch, opened))
    for name, ours in (("steady", grown_twice), ("small_windows", grown_by_little)):
        monkeypatch.setitem(contenders.CONTENDERS, name, with_(ours, monkeypatch, opened))
    monkeypatch.setitem(contenders.CONTENDERS, "scans", scanned)
    monkeypatch.setitem(contenders.CONTENDERS, "plain_spark", lambda **_: [LAP])
    monkeypatch.setattr(scenarios, "contend", here)
    monkeypatch.setattr(topic_scenarios, "contend", here)
    monkeypatch.setattr(scenarios, "run", commanded)
    monkeypatch.setattr(scenarios, "_apply", applied)
    monkeypatch.setattr(scenarios, "_first_rows", lambda feed, lake: time.time())
    monkeypatch.setattr(scenarios, "fingerprint_of_lake", held)
    monkeypatch.setattr(scenarios, "rows_of_lake", rows)
    return lakes


def grown_twice(feed: str, keys: int, windows: list[int], lakes: list[str]) -> dict[str, Any]:
    """The steady state with the same lake twice, as no MERGE is at hand."""
    source = Feed.resumed(Path(feed))
    for changes in windows:
        source.append(changes, keys)
    for place in lakes:
        with vars(contenders)["open_pipeline"](source.settings, LakeSettings.from_warehouse(place)) as work:
            work.apply()
    source.keep()
    laps = [{"changes": changes, **LAP} for changes in windows]
    return {"ours": laps, "merge": laps}


def grown_by_little(feed: str, keys: int, changes: int, count: int, lake: str) -> list[dict[str, float]]:
    """Small windows one after the other, without the upkeep of Iceberg's files."""
    source = Feed.resumed(Path(feed))
    with vars(contenders)["open_pipeline"](source.settings, LakeSettings.from_warehouse(lake)) as work:
        for _ in range(count):
            source.append(changes, keys)
            assert work.apply().complete
    source.keep()
    return [LAP] * count


def scanned(lakes: dict[str, str], times: int, **_: object) -> dict[str, Any]:
    return {who: {by: [LAP] * times for by in ("Spark", "PyIceberg")} for who in lakes}


def with_(contender: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, opened: object) -> Callable[..., Any]:
    def patched(**arguments: Any) -> Any:
        with monkeypatch.context() as inside:
            inside.setattr(contenders, "open_pipeline", opened)
            return contender(**arguments)

    return patched


def here(name: str, **arguments: Any) -> tuple[Cost, Any]:
    measured = topic_contenders.CONTENDERS[name](**json.loads(json.dumps(arguments)))
    return Cost(1.0, 1.0, 1, 1), json.loads(json.dumps(measured))


def commanded(command: list[str]) -> Cost:
    result = CliRunner().invoke(commands, command[len(scenarios.PYTHON) :], standalone_mode=False)
    assert result.exception is None, result.exception
    assert not result.return_value, result.output
    return Cost(1.0, 1.0, 1, 1, result.stdout)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.soak] * (name in LONG))
        for name in sorted(
            {*scenarios.SCENARIOS} - {*ON_A_BROKER, *ON_A_DAEMON, *ON_A_DATABASE, *ON_ICEBERG, *ON_SERVERS}
        )
    ],
)
def test_a_scenario_compares_and_checks(name: str, tmp_path: Path, without_spark: dict[str, MemoryLake]) -> None:
    figures = list(scenarios.SCENARIOS[name](scenarios.Place(tmp_path, TINY)))
    assert any(figure.limit is not None for figure in figures) or name == "known-tables"
    assert all(figure.scenario == name and figure.value >= 0 or figure.unit == "s" for figure in figures)


@pytest.mark.soak
@pytest.mark.parametrize("name", [*ON_A_BROKER, *ON_A_DATABASE, *ON_ICEBERG, *ON_SERVERS])
def test_a_scenario_on_servers_and_on_spark_has_its_targets(name: str, tmp_path: Path) -> None:
    figures = list(scenarios.SCENARIOS[name](scenarios.Place(tmp_path, TINY)))
    assert any(figure.limit is not None for figure in figures)


def test_a_bare_merge_of_the_reduced_rows_makes_the_same_table(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contenders, "_spark", lambda lake: contextmanager(lambda: iter([spark]))())
    (tmp_path / "feed").mkdir()
    feed, lakes = Feed(tmp_path / "feed").create(), [tmp_path / "ours", tmp_path / "merge"]
    feed.append(50, 50, fill=50)
    feed.keep()
    measured = contenders.steady(feed=str(feed.directory), keys=50, windows=[30], lakes=[str(lake) for lake in lakes])
    assert [lap["changes"] for lap in (*measured["ours"], *measured["merge"])] == [30, 30]
    for lake in lakes:
        scenarios._check(feed, lake)


def test_wrong_rows_give_no_figure(tmp_path: Path, without_spark: dict[str, MemoryLake]) -> None:
    feed, lake = grown(tmp_path / "feed"), tmp_path / "lake"
    scenarios._apply(feed, lake)
    scenarios._check(feed, lake)
    (table,) = without_spark[str(lake)].tables.values()
    table.rows = table.rows.slice(1)
    with pytest.raises(AssertionError, match="expected"):
        scenarios._check(feed, lake)


# --- counting ---------------------------------------------------------------------------------------------------------


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def test_requests_are_counted_by_kind_and_bytes_pass_as_they_are() -> None:
    body = b"GET /no?list-type=2 HTTP/1.1\r\n\r\n" * 9_000
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with counted(f"http://127.0.0.1:{server.server_port}") as way:
            client = HTTPConnection(way.endpoint.removeprefix("http://"))
            for method, path, sent in (("PUT", "/b/feed/x", body), ("GET", "/b?list-type=2&prefix=lake", None)):
                client.request(method, path, sent)
                assert client.getresponse().read() == (sent or b"")
            client.request("GET", "/b/lake/y")
            client.getresponse().read()
            client.close()
            assert way.kinds() == {"PUT": 1, "LIST": 1, "GET": 1}
            assert way.kinds(1, "lake") == {"LIST": 1, "GET": 1}
        server.shutdown()


# --- measuring --------------------------------------------------------------------------------------------------------


def test_a_process_costs_what_it_and_its_children_cost() -> None:
    spin = "import time\nwhile time.process_time() < 0.5: pass"
    cost = run([sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"])
    if Path("/proc/self/stat").exists():
        assert cost.cpu_seconds >= 0.3
        assert cost.peak_rss_mb >= cost.peak_pss_mb > 0


def test_a_process_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="out of paper"):
        run([sys.executable, "-c", "import sys; print('out of paper', file=sys.stderr); sys.exit(1)"])


def test_a_lap_counts_this_process() -> None:
    with lap() as timing:
        deadline = time.process_time() + 0.2
        while time.process_time() < deadline:
            pass
    assert timing.measured.cpu_seconds >= 0.15


def test_a_missed_target_is_said_so() -> None:
    figure = scenarios.Figure("start", "--help", 0.4, limit=0.3)
    assert figure.met is False
    assert "at most 0.3" in line(figure)
    assert "NOT met" in line(figure)


@pytest.mark.parametrize(("value", "may_be_nothing"), [(0, False), (-1, False), (float("nan"), True)])
def test_a_figure_that_cannot_be_one_ends_the_bench_with_what_it_was(
    value: float, may_be_nothing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = [scenarios.Figure("a", "growth", 0, may_be_nothing=True), scenarios.Figure("a", "requests", 1)]
    wrong = scenarios.Figure("a", "requests of none", value, may_be_nothing=may_be_nothing)
    assert unmeasured([*right, wrong]) == [f"a: requests of none came out as {value:g}"]
    monkeypatch.setitem(scenarios.SCENARIOS, "a", lambda place: iter([*right, wrong]))
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "a", "--json", str(tmp_path / "all.json")])
    with pytest.raises(SystemExit, match="requests of none"):
        main()
    assert len(json.loads((tmp_path / "all.json").read_text())["figures"]) == 3


def test_the_peak_of_memory_is_reported_over_all_scenarios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = [
        scenarios.Figure("a", "ours", 1, notes={"peak_pss_mb": 700}),
        scenarios.Figure("a", "DuckDB, warm", 1, notes={"peak_pss_mb": 5000}),
    ]
    monkeypatch.setitem(scenarios.SCENARIOS, "a", lambda place: iter(figures))
    *_, memory = measure(["a"], scenarios.Place(tmp_path))
    assert (memory.scenario, memory.value, memory.met) == ("memory", 700, True)
    assert "MB" in capsys.readouterr().out


# --- freshness --------------------------------------------------------------------------------------------------------


def test_what_is_written_beside_a_daemon_is_logged_with_its_checkpoints(tmp_path: Path) -> None:
    freshness.write(str(tmp_path), tables=2, changes=3, keys=5, every=0.01, seconds=0.05)
    feed, log = Feed(tmp_path, tables=2), freshness.published(tmp_path)
    assert len(log) == 5
    assert [through for _, through in log] == sorted({through for _, through in log})
    assert feed.settings.open_source().fence() == log[-1][1]
    assert fingerprint_of_files(feed, 1, through=log[0][1])[0] == 5


def test_a_table_waits_for_a_checkpoint_until_it_is_seen_applied_through_it_or_beyond() -> None:
    commits = freshness.Commits(
        LakeSettings.from_warehouse("nowhere"), {"a": [(10.0, 5), (14.0, 9)], "b": [(11.0, 7), (30.0, 8)]}
    )
    assert commits.through() == 8
    assert commits.waits([(8.0, 5), (9.0, 7), (12.0, 8)]) == [2.0, 5.0, 2.0, 3.0, 2.0, 18.0]
    assert commits.waits([(12.0, 9)]) == [2.0, float("inf")]
