"""`dagster dev` on one machine, with what a first look needs: a home that stays, partitions, and assets of new tables.

Without DAGSTER_HOME Dagster forgets its runs when it ends. Partitions come with the sensor, which is off until someone
switches it on. Definitions have the tables that runs had seen when they were loaded.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import dagster as dg

from cdc_assets.defs.instance import stop_group
from cdc_assets.defs.names import add_keys, new_keys
from cdc_assets.errors import BadSettings, CdcError
from cdc_assets.operations.opening import begun, open_planner
from cdc_assets.operations.status import known_tables
from cdc_assets.settings.config import Settings

LOCATION = "cdc_assets.definitions"
LOOK_SECONDS = 5
READY_LOOK_SECONDS = 0.5
_RELOAD = "mutation($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) { __typename } }"


def prepare_home(home: Path) -> Path:
    """Make Dagster's home if it is not there, with the instance settings of this package; one that is there stays."""
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copy(str(files("cdc_assets.defs") / "dagster.yaml"), home / "dagster.yaml")
    return home


def add_first_partitions(settings: Settings, home: Path, say: Callable[[str], object]) -> None:
    """Add the partitions that each changefeed has now, as its sensor will; `say` is told of one that cannot be read."""
    lake = begun(settings.needed_lake())
    with dg.DagsterInstance.from_config(str(home)) as instance:
        for changefeed in settings.changefeeds:
            try:
                with open_planner(changefeed, lake) as planner:
                    _, plan = planner.plan()
                add_keys(instance, changefeed.name, new_keys(instance, changefeed.name, plan))
            except CdcError as error:
                say(f"{changefeed.name} has no partitions yet: {error}")


@contextmanager
def dagster_dev(
    settings: Settings, environment: Mapping[str, str], port: int, ready: Callable[[], object]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `dagster dev` on a settings file; definitions are loaded again when tables came. Ends with the block.

    `ready` is called once the webserver answers. Dagster's services log warnings only: what the queue and the daemons
    do is in the interface.

    Before its webserver answers nothing runs that has to be ended in order: its processes are killed, which print a
    stack trace each where they are interrupted while they load definitions.
    """
    # The command that Dagster names instead is in a package of its own, which nothing else here needs.
    quiet = ["-W", "ignore:Function `dev_command` is superseded"]
    command = [sys.executable, *quiet, "-m", "dagster", "dev", "-m", LOCATION, "-h", "127.0.0.1", "-p", str(port)]
    command += ["--log-level", "warning"]
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(settings, port, ended, ready), daemon=True)
    process = subprocess.Popen(command, env=dict(environment), start_new_session=True)
    watching.start()
    try:
        yield process
    finally:
        ended.set()
        stop_group(process, 15 if _answers(port) else 0)


def refuse_taken(port: int) -> None:
    """Raise BadSettings for a port that a server of this machine has: Dagster says so after half a minute."""
    if _answers(port):
        raise BadSettings(
            f"another program listens at port {port} of this machine, perhaps another `cdc-assets ui`. End it, or give "
            "another port with --port."
        )


def _answers(port: int) -> bool:
    """Return whether a server listens at a port of this machine."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def _watch(settings: Settings, port: int, ended: threading.Event, ready: Callable[[], object]) -> None:
    """Call `ready` once the webserver answers, and let it load the definitions again for new tables."""
    while not _answers(port):
        if ended.wait(READY_LOOK_SECONDS):
            return
    ready()
    _reload_for_tables(settings, port, ended)


def _reload_for_tables(settings: Settings, port: int, ended: threading.Event) -> None:
    """Ask the webserver to load the definitions again whenever a changefeed has other tables than before."""
    loaded = _tables(settings)
    while not ended.wait(LOOK_SECONDS):
        tables = _tables(settings)
        if tables is not None and tables != loaded and reload_definitions(port):
            loaded = tables


def _tables(settings: Settings) -> frozenset[tuple[str, str]] | None:
    """Return the changefeeds' tables; None where the lake cannot be read."""
    lake = settings.needed_lake()
    try:
        return frozenset(
            (feed.name, str(table))
            for feed in settings.changefeeds
            for table in known_tables(lake, feed.name, feed.namespace)
        )
    except CdcError:
        return None


def reload_definitions(port: int) -> bool:
    """Ask Dagster's webserver on this machine to load the definitions again; return whether it did."""
    body = json.dumps({"query": _RELOAD, "variables": {"name": LOCATION}}).encode()
    request = urllib.request.Request(  # the address is this machine's
        f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return b"WorkspaceLocationEntry" in answer.read()
    except (OSError, ValueError):
        return False
