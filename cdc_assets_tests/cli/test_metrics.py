"""Metrics: each line is one of the text format, names have units, files are replaced whole, scrapes see the lake."""

from __future__ import annotations

import importlib
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.errors import BadSettings, LakeUnavailable
from cdc_assets.model.forecast import Forecast, Pace
from cdc_assets.model.progress import State
from cdc_assets.model.schema import TableId
from cdc_assets.model.window_metrics import lag_between
from cdc_assets.operations.metrics import replace_file
from cdc_assets.report.landings import LandingText
from cdc_assets.report.metrics import METRICS, metric_lines
from cdc_assets.report.tables import PartitionText, TableStatus

command = importlib.import_module("cdc_assets.cli.metrics")  # the package has the command itself under this name

SAMPLE = re.compile(r'cdc_assets_([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (-?[0-9.e+-]+)')
"""A sample in the text format: name, labels with escaped values, number."""

UNITS = ("seconds", "rows", "records", "messages", "bytes", "stopped", "incomplete", "behind")
SECOND = 1000 << 18
ORDERS = TableId("shop", "orders")


def table(name: TableId = ORDERS, state: State = State.APPLIED, **more: object) -> TableStatus:
    facts: dict[str, Any] = {"through": 90 * SECOND, "checkpoint": 100 * SECOND, "rows": 3, **more}
    return TableStatus(name=name, version=5, state=state, life=f"{name}@5", changefeed="shop", **facts)


def samples(*tables: TableStatus, landings: tuple[LandingText, ...] = ()) -> dict[tuple[str, str], float]:
    metric_samples = {}
    for line in metric_lines(tables, landings):
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            metric_samples[match[1], match[2]] = float(match[3])
    return metric_samples


LABELS = 'changefeed="shop",table="shop.orders"'


def test_a_table_has_its_progress_lag_and_state() -> None:
    lag = lag_between(80 * SECOND, 84, 85, 90)
    behind = Forecast(Pace.FALLING_BEHIND, 10.0)
    metric_samples = samples(table(state=State.HELD, quarantined=2, stages=lag, forecast=behind, incomplete="x"))
    assert metric_samples["table_rows", LABELS] == 3
    assert metric_samples["table_applied_timestamp_seconds", LABELS] == 90
    assert metric_samples["table_behind_checkpoint_seconds", LABELS] == 10
    assert metric_samples["table_lag_seconds", f'{LABELS},stage="applied"'] == 5
    assert metric_samples["table_stopped", f'{LABELS},state="held"'] == 1
    assert metric_samples["table_stopped", f'{LABELS},state="failed"'] == 0
    alarms = ("table_quarantined_records", "table_incomplete", "table_falling_behind")
    assert [metric_samples[name, LABELS] for name in alarms] == [2, 1, 1]


def test_what_is_not_known_or_dropped_has_no_line_and_what_is_accepted_no_alarm() -> None:
    assert samples(table(state=State.DROPPED)) == {}
    metric_samples = samples(table(rows=None, incomplete="x", accepted=True))
    assert ("table_rows", LABELS) not in metric_samples
    assert metric_samples["table_incomplete", LABELS] == 0


def test_a_landing_has_what_is_not_landed_by_partition() -> None:
    partition = PartitionText("orders", 2, 50, 40, 30, 10, 0, "")
    landing = LandingText("shop", 5000, 1.5, 7, 700, (partition,), unreadable=("orders[2] offset 3: no JSON",))
    metric_samples = samples(landings=(landing,))
    assert metric_samples["landing_behind_messages", 'changefeed="shop",topic="orders",partition="2"'] == 10
    assert metric_samples["landing_timestamp_seconds", 'changefeed="shop"'] == 5
    assert metric_samples["landing_unreadable_messages", 'changefeed="shop"'] == 1


@given(st.text(min_size=1).map(lambda text: TableId("shop", text)))
def test_any_name_of_a_table_is_a_label(name: TableId) -> None:
    (labels,) = {labels for (_, labels) in samples(table(name)) if "stage" not in labels and "state" not in labels}
    text = labels.split('table="', 1)[1].removesuffix('"')
    assert re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text) == str(name)


def test_every_metric_is_described_once_and_ends_with_its_unit() -> None:
    lines = [line for line in metric_lines([table()], ()) if line.startswith("#")]
    assert len(lines) == len(set(lines))
    assert all(name.endswith(UNITS) for name in METRICS)


def test_a_file_is_replaced_whole_and_a_missing_directory_is_named(tmp_path: Path) -> None:
    place = tmp_path / "cdc.prom"
    for text in ("one\n", "two\n"):
        replace_file(place, text)
        assert place.read_text() == text
    assert list(tmp_path.iterdir()) == [place]
    with pytest.raises(BadSettings, match="cannot be written"):
        replace_file(tmp_path / "gone" / "cdc.prom", "one\n")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """An endpoint on a free port, and the texts that it answers with; without one the lake is out of reach."""
    texts = ["a 1\n"]
    servers = []
    begin = ThreadingHTTPServer.serve_forever

    def text() -> str:
        if not texts:
            raise LakeUnavailable("the catalog does not answer")
        return texts[-1]

    def serve(server: ThreadingHTTPServer) -> None:
        servers.append(server)
        ready.set()
        begin(server)

    ready = threading.Event()
    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", serve)
    thread = threading.Thread(target=command.serve, args=(text, "127.0.0.1", 0), daemon=True)
    thread.start()
    assert ready.wait(30)
    yield f"http://127.0.0.1:{servers[0].server_address[1]}", texts
    servers[0].shutdown()
    thread.join(30)


def test_a_scrape_reads_the_lake_as_it_is_then(served: tuple[str, list[str]]) -> None:
    address, texts = served
    for text in ("a 1\n", "a 2\n"):
        texts[:] = [text]
        with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
            assert answer.headers["Content-Type"] == command.CONTENT_TYPE
            assert answer.read().decode() == text
    texts.clear()
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{address}/metrics", timeout=30)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}/", timeout=30)
