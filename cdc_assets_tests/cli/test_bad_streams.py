"""Wrong messages of streams that describe themselves, on the command line: an exit code, a sentence each, no trace.

Each wrong message is in a topic of its own, whose table is held or goes on; another table stands beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from cdc_assets_tests.command_line import Commands
from cdc_assets_tests.pipeline.test_bad_streams import (
    CONNECTOR,
    CONNECTOR_ROWS,
    YDB,
    YDB_ROWS,
    Case,
    Sent,
    line_of,
    of_connector,
    of_ydb,
)
from cdc_assets_tests.topic_feed import archive_of


class Archive:
    """Topics of one message each that is wrong, between two good ones, and the options of commands over them."""

    def __init__(self, directory: Path, uri: str, *options: str) -> None:
        self.directory = directory
        self.lines: list[dict[str, Any]] = []
        places = ["--archive", str(directory / "archive"), "--warehouse", str(directory / "lake")]
        sink = f"kafka://127.0.0.1:9092/{uri}"
        self.options = ["--sink-uri", sink, *places, "--name", "c", "--complete", "*", *options]

    def put(self, topic: str, *sent: Sent) -> None:
        """Write messages of a topic."""
        self.lines += [line_of(topic, offset, message) for offset, message in enumerate(sent)]
        archive_of(self.lines, self.directory / "archive", "all.jsonl")


def applied(run: Commands, archive: Archive, cases: Mapping[str, Case], *more: str) -> str:
    """Apply, and see that each wrong message is named once, with its reason, and no trace; return what was printed."""
    process = run("apply", *archive.options, *more)
    printed = process.stdout + process.stderr
    assert (process.returncode, "Traceback" in printed) == (1, False)
    for topic, case in cases.items():
        joined_lines = printed.replace("\n    ", " ").splitlines()  # what a finding concerns stands below it
        lines = [line for line in joined_lines if line.startswith(("held: ", "stop: "))]
        naming = [line for line in lines if f"{topic}[0] offset 1" in line]
        assert [case.sentence in line for line in naming] == [True], printed
    return process.stdout


def states(run: Commands, archive: Archive) -> dict[str, str]:
    """Return the tables' states by their names, as the newest run left them."""
    shown = json.loads(run("status", "--warehouse", str(archive.directory / "lake"), "--json").stdout)
    return {row["table"].removeprefix("shop."): row["state"] for row in shown}


def of_wrong_records(directory: Path, wrong: Iterable[Case]) -> tuple[Archive, dict[str, Case]]:
    """Return an archive of YDB's tables t0, t1, … with a wrong record each, and of table good."""
    cases = {f"shop/t{number}/feed": case for number, case in enumerate(wrong)}
    columns = "(id Uint32 NOT NULL, v Int8, t Utf8, PRIMARY KEY (id))"
    tables = [topic.removesuffix("/feed") for topic in (*cases, "shop/good/feed")]
    (directory / "s.sql").write_text("\n".join(f"CREATE TABLE `{table}` {columns};" for table in tables))
    options = ["--schemas", str(directory / "s.sql"), "--topics", "shop/*"]
    archive = Archive(directory, "shop/good/feed?protocol=ydb-json", *options)
    for topic, case in cases.items():
        archive.put(topic, of_ydb(1), case.sent, of_ydb(3))
    archive.put("shop/good/feed", of_ydb(1), of_ydb(2))
    return archive, cases


def test_records_of_ydb_that_are_none_are_named_and_hold_their_tables_alone(run: Commands, tmp_path: Path) -> None:
    archive, cases = of_wrong_records(tmp_path, [*list(YDB.values())[::6], *list(YDB_ROWS.values())[::4]])
    applied(run, archive, cases)
    held = {f"t{number}": "held" for number in range(len(cases))}
    assert states(run, archive) == {"good": "applied", **held}


def test_records_of_ydb_that_are_none_are_set_aside_by_quarantine(run: Commands, tmp_path: Path) -> None:
    row = YDB_ROWS["a number beyond its type"]
    archive, cases = of_wrong_records(tmp_path, [YDB["cut off"], row])
    unread, not_fit = cases
    printed = applied(run, archive, {unread: cases[unread]}, "--quarantine")
    assert "held" not in printed
    listed = run("quarantine", *archive.options).stdout
    assert f"{not_fit}[0] offset 1" in listed
    assert row.sentence in listed
    assert "`cdc-assets quarantine --replay`" in listed
    lake = ("--warehouse", str(tmp_path / "lake"))
    assert run("quarantine", *lake).stdout == listed
    assert "1 record is in quarantine" in run("query", "shop.t1", *lake).stderr
    as_table = run("query", "SELECT * FROM shop.t1", *lake)
    assert (as_table.returncode, "--sql" in as_table.stderr) == (2, True)
    status = run("status", *lake)
    assert (status.returncode, "shop.t1: 1 record is in quarantine" in status.stdout) == (1, True)
    of_table = run("quarantine", *lake, "--table", "shop.t1").stdout
    assert row.sentence in of_table
    assert run("quarantine", *lake, "--table", "SHOP.T1").stdout == of_table
    unknown = run("quarantine", *lake, "--name", "default")
    assert (unknown.returncode, "no changefeed called default; known are c." in unknown.stderr) == (2, True)
    unknown = run("quarantine", *lake, "--table", "shop.none")
    assert (unknown.returncode, "no table is called shop.none; known are shop.good" in unknown.stderr) == (2, True)


def test_rows_of_a_connector_that_do_not_fit_hold_their_tables_alone(run: Commands, tmp_path: Path) -> None:
    archive, cases = Archive(tmp_path, "px?protocol=debezium-json", "--topics", "px.*"), {}
    for number, name in enumerate(("a number beyond its type", "a value that has no column")):
        topic, table = f"px.shop.t{number}", f"t{number}"
        key, value = CONNECTOR_ROWS[name].sent
        wrong = deepcopy(value)
        wrong["payload"]["source"]["table"] = table
        cases[topic] = CONNECTOR_ROWS[name]
        archive.put(topic, of_connector(1, table), (key, wrong), of_connector(3, table))
    archive.put("px.shop.good", of_connector(1, "good"), of_connector(2, "good"))
    applied(run, archive, cases)
    assert states(run, archive) == {"good": "applied", "t0": "held", "t1": "held"}


@pytest.mark.parametrize("case", ["cut off", "of TiCDC"])
def test_a_message_of_a_connector_that_names_no_table_stops_all_behind_it(
    case: str, run: Commands, tmp_path: Path
) -> None:
    archive = Archive(tmp_path, "px?protocol=debezium-json", "--topics", "px.*")
    archive.put("px.shop.orders", of_connector(1), CONNECTOR[case].sent, of_connector(3))
    archive.put("px.shop.items", of_connector(1, "items"))
    applied(run, archive, {"px.shop.orders": CONNECTOR[case]})
    way = "landing", "release", "px.shop.orders", "0", "1", "--who", "ann"
    assert run(*way, *archive.options).returncode == 0
    assert run("apply", *archive.options).returncode == 0
