"""A recorded changefeed, played in three checkpoints and loaded by Dagster, as a first example.

The feed in `demo_feed.tar.xz` was written by TiCDC's own encoders: a bank of five tables, 1,900 transactions, columns
added and dropped, a table renamed there and back, one truncated. The balances sum to 600000.00 at every checkpoint.
`demo_topic.tar.xz` is the same history as messages of TiCDC's protocol Craft, which come into an archive.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cdc_assets.errors import BadSettings
from cdc_assets.jvm.jars import ready_jars
from cdc_assets.model.progress import State
from cdc_assets.model.wording import counted
from cdc_assets.settings.config import Settings, load
from cdc_assets.settings.lake import LakeSettings

if TYPE_CHECKING:
    from cdc_assets.defs.instance import RunWatch

NAME = "bank"
PATIENCE_SECONDS = 600
"""Seconds without any progress before the demo gives up: a busy small machine takes minutes to start Spark."""
_SETTINGS = """\
lake:
  warehouse: lake
changefeeds:
  - name: {name}
{feed}
    tz: UTC
    sensor_running: true
    sensor_interval_seconds: 2
    run_idle_seconds: 10  # the run that loads the first checkpoint goes on with the next two
    owners: ["team:bank"]
"""
_IN_FILES = """\
    sink_uri: "file://{bucket}?protocol=csv"
    changefeed_config: changefeed.toml"""
_IN_TOPICS = """\
    sink_uri: "kafka://127.0.0.1:9092/gogen?protocol=craft"  # as TiCDC has it; nobody is asked there
    archive: {{uri: "file://{bucket}", layout: records}}"""


class Demo:
    """The demo's directory: the played feed, the lake, Dagster's home and the settings file."""

    recorded = "demo_feed.tar.xz"
    feed = _IN_FILES
    unit = "new file"

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory).expanduser().resolve()
        self.bucket = self.directory / "bucket"
        self.lake = self.directory / "lake"
        self.home = self.directory / "dagster"
        self.settings_file = self.directory / "changefeeds.yaml"

    def prepare(self) -> list[dict[str, Any]]:
        """Empty the directory and unpack the feed; return the plays: a checkpoint each, with its files."""
        if self.directory.exists() and any(self.directory.iterdir()) and not self.settings_file.exists():
            raise BadSettings(
                f"{self.directory} is not empty and is not a demo's directory. Give an empty one with --directory."
            )
        shutil.rmtree(self.directory, ignore_errors=True)
        with _writing(self.directory):
            for place in (self.bucket, self.lake, self.home):
                place.mkdir(parents=True)
        self.settings_file.write_text(_SETTINGS.format(name=NAME, feed=self.feed.format(bucket=self.bucket)))
        with tarfile.open(str(files("cdc_assets.cli") / self.recorded)) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 and older have none
            archive.extractall(self.directory / "recorded")  # noqa: S202  # it is the package's own
        for config in (self.directory / "recorded").glob("*.toml"):
            shutil.copy(config, self.directory)
        shutil.copy(str(files("cdc_assets.defs") / "dagster.yaml"), self.home)
        plays: list[dict[str, Any]] = json.loads((self.directory / "recorded" / "plays.json").read_text())
        return plays

    def is_played(self) -> bool:
        """Return whether a checkpoint is there."""
        return (self.bucket / "metadata").exists()

    def play(self, play: dict[str, Any]) -> int:
        """Publish the files of one checkpoint, then the checkpoint itself, as TiCDC does; return their number."""
        for name in play["files"]:
            target = self.bucket / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.directory / "recorded" / "bucket" / name, target)
        for index in self.bucket.rglob("CDC.index"):  # recorded as it was in the end
            index.write_text(f"{max(path.name for path in index.parents[1].glob('CDC*.csv'))}\n")
        metadata = self.bucket / "metadata"
        metadata.with_suffix(".tmp").write_text(json.dumps({"checkpoint-ts": play["checkpoint_ts"]}))
        metadata.with_suffix(".tmp").replace(metadata)
        return len(play["files"])

    def environment(self) -> dict[str, str]:
        """Return the environment in which Dagster works on this demo."""
        return {
            **os.environ,
            "CDC_ASSETS_CONFIG": str(self.settings_file),
            "DAGSTER_HOME": str(self.home),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
        }


class TopicDemo(Demo):
    """A demo whose feed is an archive of Kafka topics in place of TiCDC's files."""

    recorded = "demo_topic.tar.xz"
    feed = _IN_TOPICS
    unit = "new message"

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        self.bucket = self.directory / "archive"

    def is_played(self) -> bool:
        """Return whether messages are there."""
        return any(self.bucket.glob("*.jsonl"))

    def play(self, play: dict[str, Any]) -> int:
        """Let the messages up to a checkpoint appear in a file of their own; return how many."""
        lines = (self.directory / "recorded" / "topic.jsonl").read_text().splitlines(keepends=True)
        played = sum(len(file.read_text().splitlines()) for file in self.bucket.glob("*.jsonl"))
        target = self.bucket / f"{played:06d}.jsonl"
        target.with_suffix(".tmp").write_text("".join(lines[played : play["lines"]]))
        target.with_suffix(".tmp").replace(target)
        return int(play["lines"]) - played


def _demo_in(directory: str | os.PathLike[str]) -> Demo:
    """Return the demo that a directory holds: that of topics where it has their archive."""
    return TopicDemo(directory) if (Path(directory).expanduser() / "archive").is_dir() else Demo(directory)


def demo_settings() -> Settings:
    """Return the settings of the demo in the working directory, prepared with its whole feed if there is none."""
    demo = _demo_in(os.environ.get("CDC_ASSETS_DEMO", ".demo"))
    _prepare_once(demo)
    return load(demo.settings_file)


def _prepare_once(demo: Demo) -> None:
    """Prepare a demo with its whole feed in one process: Dagster's processes load the code location concurrently."""
    lock = demo.directory.with_name(demo.directory.name + ".lock")
    if demo.is_played():
        return
    try:
        with _writing(demo.directory):
            lock.mkdir(parents=True)
    except FileExistsError:
        for _ in range(100):
            if demo.is_played() and not lock.exists():
                return
            time.sleep(0.2)
        raise BadSettings(f"{lock} says that another process prepares the demo. If none does, remove it.") from None
    try:
        if not demo.is_played():
            for play in demo.prepare():
                demo.play(play)
    finally:
        lock.rmdir()


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """Refuse a directory for a demo that cannot be made. Raises BadSettings, and FileExistsError as it is."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise BadSettings(
            f"the demo's directory {directory} cannot be made ({error.strerror}). Name another with --directory."
        ) from None


def _end_as_by_ctrl_c() -> None:
    """Handle SIGTERM like Ctrl-C: end this process with all that it started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def run_demo(directory: str, *, topics: bool = False) -> int:
    """Play the feed, let Dagster's daemon load each checkpoint, and print the lake's rows afterwards."""
    from cdc_assets.cli.options import show_status, started_as
    from cdc_assets.cli.query import query_line
    from cdc_assets.defs.instance import RunWatch, daemon
    from cdc_assets.model.schema import TableId
    from cdc_assets.operations.landings import landing_status
    from cdc_assets.operations.opening import open_state
    from cdc_assets.operations.status import lake_status

    _end_as_by_ctrl_c()
    ready_jars()
    demo = TopicDemo(directory) if topics else Demo(directory)
    plays = demo.prepare()
    os.environ.update(demo.environment())
    settings = load(demo.settings_file)
    lake = settings.needed_lake()
    started = time.monotonic()
    log = demo.directory / "daemon.log"
    click.echo(f"Dagster's daemon is starting; its log is {log}")
    watch = RunWatch(NAME)
    try:
        with daemon(demo.environment(), log) as process:
            for number, play in enumerate(plays):
                news = counted(demo.play(play), demo.unit)
                click.echo(f"checkpoint {number + 1} of {len(plays)}: {play['checkpoint_ts']}, {news}")
                why = _why_not_loaded(lake, play["checkpoint_ts"], watch, process, started, ended=play is plays[-1])
                if why:
                    click.echo(f"The demo stopped: {why}. See {log}", err=True)
                    return 1
    finally:
        watch.close()
    click.echo("")
    tables = lake_status(lake)
    show_status((row for row in tables if row.state is not State.DROPPED), landing_status(lake, tables))
    with open_state(lake, NAME) as state:
        accounts, savings = (state.read(TableId("bank", table)).sort_by("id") for table in ("accounts", "savings"))
    click.echo(f"\nbank.accounts, read back from the lake (5 of {accounts.num_rows} rows):")
    click.echo("  ".join(accounts.column_names))
    for row in accounts.slice(0, 5).to_pylist():
        click.echo("  ".join("NULL" if value is None else str(value) for value in row.values()))
    total = sum(accounts.column("balance").to_pylist()) + sum(savings.column("balance").to_pylist())
    click.echo(f"accounts and savings together: {total} (600000.00 at every checkpoint)")
    click.echo(f"\nThe lake: {demo.lake} (Iceberg tables; catalog {demo.lake / 'catalog.db'})")
    click.echo(f"The changefeed: {demo.bucket}")
    click.echo(query_line(lake, str(demo.settings_file), ["bank.accounts"]))
    ui = f"{started_as()} ui --directory {shlex.quote(directory)}"
    ui = "make ui" if demo.directory.name == ".demo" and Path("Makefile").exists() else ui
    click.echo(f"Took {time.monotonic() - started:.0f} s. Dagster's UI on the same instance: {ui}")
    return 0


def _why_not_loaded(
    lake: LakeSettings,
    checkpoint: int,
    watch: RunWatch,
    process: subprocess.Popen[bytes],
    started: float,
    *,
    ended: bool,
) -> str:
    """Wait until every table is applied to the checkpoint and, if `ended`, no run is in progress.

    Returns "" then, and why that does not come: a run failed, a table is held, the daemon ended, or no table moved for
    PATIENCE_SECONDS.
    """
    from cdc_assets.operations.status import lake_status

    end, before = time.monotonic() + PATIENCE_SECONDS, list[tuple[str, int]]()
    while time.monotonic() < end and process.poll() is None:
        for line in watch.news():
            click.echo(f"  {time.monotonic() - started:5.1f} s  {line}; {watch.partitions()} partitions")
        rows = lake_status(lake)
        if (now := [(row.table, row.through) for row in rows]) != before:
            end, before = time.monotonic() + PATIENCE_SECONDS, now
        if watch.failed:
            return "a run failed"
        if rows and (watch.idle or not ended) and all(row.checkpoint == checkpoint for row in rows):
            click.echo(f"  {time.monotonic() - started:5.1f} s  loaded")
            return "; ".join(f"{row.table} is {row.state}: {row.reason}" for row in rows if row.state.stopped)
        time.sleep(0.5)
    if process.poll() is not None:
        return f"Dagster's daemon ended with exit code {process.poll()}"
    return f"no table moved for {PATIENCE_SECONDS // 60} minutes"


def run_ui(directory: str, port: int, file: Path | None) -> int:
    """Run `dagster dev` on the demo, or on a settings file with Dagster's home beside it, until Ctrl-C."""
    from cdc_assets.cli.options import started_as

    _end_as_by_ctrl_c()
    try:
        if file is not None:
            home = Path(os.environ.get("DAGSTER_HOME") or file.parent / ".dagster").resolve()
            variables = {"CDC_ASSETS_CONFIG": str(file), "DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "yes"}
            environment = {**os.environ, **variables}
        else:
            demo = _demo_in(directory)
            click.echo(f"The demo in {demo.directory} is shown. Your own feeds: {started_as()} ui --settings FILE")
            _prepare_once(demo)
            file, home, environment = demo.settings_file, demo.home, demo.environment()
        settings = load(file)
        ready_jars(settings.needed_lake().extras)
        click.echo(f"Dagster starts, in half a minute or more. Its runs and partitions are in {home}. Ctrl-C ends it.")
        from cdc_assets.defs.development import add_first_partitions, dagster_dev, prepare_home, refuse_taken

        refuse_taken(port)
        add_first_partitions(settings, prepare_home(home), partial(click.echo, err=True))
        ready = partial(click.echo, f"Dagster is ready: http://127.0.0.1:{port}")
        with dagster_dev(settings, environment, port, ready) as process:
            return process.wait()
    except KeyboardInterrupt:
        click.echo("Dagster has ended; its runs and partitions stay.", err=True)
        return 0
