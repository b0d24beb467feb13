"""`dagster dev` for a person: a home that stays, partitions at once, and assets of new tables by themselves."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_assets.defs import development
from cdc_assets.defs.development import add_first_partitions, prepare_home, refuse_taken
from cdc_assets.errors import BadSettings, CdcError
from cdc_assets.settings.config import Settings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.little_feed import FIRST, LittleFeed


def settings_of(directory: Path, feed: LittleFeed) -> Settings:
    return Settings(lake=LakeSettings.from_warehouse(directory / "lake"), changefeeds=(feed.settings(),))


def test_a_home_is_made_once_and_what_a_person_wrote_there_stays(tmp_path: Path) -> None:
    home = prepare_home(tmp_path / "project" / ".dagster")
    assert "cdc_assets.run_coordinator" in (home / "dagster.yaml").read_text()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    prepare_home(home)
    assert (home / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"


def test_partitions_are_there_before_any_sensor_ran(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("shop.orders")
    feed.publish(FIRST + 10)
    home, lines = prepare_home(tmp_path / "home"), list[str]()
    add_first_partitions(settings_of(tmp_path, feed), home, lines.append)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert instance.get_dynamic_partitions("cdc_little") == [f"shop.orders@{FIRST:020d}"]
    assert lines == []
    assert not (tmp_path / "lake").exists()


def test_a_changefeed_that_has_not_begun_is_told(tmp_path: Path) -> None:
    lines = list[str]()
    add_first_partitions(settings_of(tmp_path, LittleFeed(tmp_path)), prepare_home(tmp_path / "home"), lines.append)
    assert lines[0].startswith("little has no partitions yet: ")


@contextmanager
def webserver() -> Iterator[tuple[int, list[str]]]:
    """A server that answers as Dagster's does when its definitions are loaded again; yield port and questions."""
    names = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the library's name
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            names.append(body["variables"]["name"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"data": {"reloadRepositoryLocation": {"__typename": "WorkspaceLocationEntry"}}}')

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, names
        finally:
            server.shutdown()
            thread.join()


def test_definitions_are_loaded_again_once_for_each_change_of_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    looks = iter([["a"], ["a"], ["a", "b"], ["a", "b"], None, ["b"]])

    def known(*_: object) -> list[str]:
        try:
            table_names = next(looks)
        except StopIteration:
            ended.set()
            return ["b"]
        if table_names is None:
            raise CdcError("the lake does not answer")
        return table_names

    monkeypatch.setattr(development, "known_tables", known)
    monkeypatch.setattr(development, "LOOK_SECONDS", 0)
    with webserver() as (port, names):
        development._reload_for_tables(settings_of(tmp_path, LittleFeed(tmp_path)), port, ended)
    assert names == ["cdc_assets.definitions"] * 2


def test_a_webserver_that_is_not_there_yet_is_asked_later(tmp_path: Path) -> None:
    with webserver() as (port, _):
        pass
    assert development.reload_definitions(port) is False


def test_a_port_that_is_taken_is_refused_before_anything_starts() -> None:
    with webserver() as (port, _), pytest.raises(BadSettings, match=f"listens at port {port} .* --port"):
        refuse_taken(port)
    refuse_taken(port)


_LOADING = """\
#!/bin/sh
trap 'echo ended in order; exit 0' TERM
echo started "$@"
while :; do sleep 0.1; done
"""


@pytest.mark.parametrize("answers", [True, False])
def test_servers_that_do_not_answer_yet_are_killed_without_a_word(
    answers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Dagster's processes print a stack trace each where they are interrupted while they load definitions."""
    program = tmp_path / "python"
    program.write_text(_LOADING)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if answers:
            server.listen()
        port, printed, ready = server.getsockname()[1], "", threading.Event()
        settings = settings_of(tmp_path, LittleFeed(tmp_path))
        with development.dagster_dev(settings, {"PATH": os.environ["PATH"]}, port, ready.set):
            while "started" not in printed or (answers and not ready.wait(1)):
                printed += capfd.readouterr().out
        assert ready.is_set() == answers
    assert "--log-level warning" in printed
    assert ("ended in order" in printed + capfd.readouterr().out) == answers
