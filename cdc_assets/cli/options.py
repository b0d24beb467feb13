"""Options, exit codes and printing that the commands share. Imports click only."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import shutil
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from cdc_assets.cli.help import ChangefeedOption
from cdc_assets.errors import BadSettings
from cdc_assets.model.wording import SECRET_NAME, first_of
from cdc_assets.operations.requests import pairs

if TYPE_CHECKING:
    from cdc_assets.operations.lake_pipeline import LakePipeline
    from cdc_assets.pipeline.outcome import Outcome
    from cdc_assets.settings.config import ChangefeedSettings, Settings
    from cdc_assets.settings.lake import LakeSettings

F = TypeVar("F", bound=Callable[..., Any])

DONE, HELD, WRONG = 0, 1, 2
"""Exit codes: everything is applied; something is held, quarantined, incomplete or out of reach; wrong usage."""


@dataclasses.dataclass(frozen=True)
class CommandTarget:
    """The target of a command: its changefeeds and, if the command needs one, the lake."""

    changefeeds: tuple[ChangefeedSettings, ...]
    lake: LakeSettings | None


def refuse_empty_value(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Return the value of an option; raises BadParameter for an empty one, as of a shell's variable that is not set."""
    if value == "" and context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE:
        raise click.BadParameter("it is empty. Give a value, or leave the option out.", context, option)
    return value


def _described_by(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Return an option that describes a changefeed."""
    return click.option(*names, cls=ChangefeedOption, **attributes)


_NAME_HELP = "Name of the changefeed, by which the lake knows its tables."
_NAME: Callable[[Any], Any] = _described_by("--name", default="default", show_default=True, help=_NAME_HELP)
_FEED_OPTIONS: Sequence[Callable[[Any], Any]] = (
    _described_by(
        "--sink-uri",
        metavar="URI",
        callback=refuse_empty_value,
        help="TiCDC's sink URI with its parameters, e.g. s3://bucket/prefix?protocol=csv",
    ),
    _described_by("--archive", metavar="URI", help="Location of the archived topics of a kafka:// sink URI."),
    _described_by(
        "--archive-layout",
        metavar="LAYOUT",
        default="records",
        help="Layout of the archive: aiven, confluent or records (the default).",
    ),
    _described_by(
        "--kafka",
        multiple=True,
        metavar="NAME=VALUE",
        help="Option of the Kafka client, by librdkafka's name; @VARIABLE is read from the environment.",
    ),
    _described_by(
        "--schema-registry",
        metavar="URL|FILE",
        default="",
        help="Schema registry, or a file of schemas (a path or file://…).",
    ),
    _described_by("--topics", multiple=True, metavar="PATTERN", help="Topics that the sink URI does not name."),
    _described_by(
        "--schemas",
        type=click.Path(dir_okay=False),
        help="File of CREATE TABLE statements, for tables that are older than the topics.",
    ),
    _described_by(
        "--config",
        type=click.Path(dir_okay=False),
        help="TiCDC's changefeed configuration (TOML); a connector's (JSON or properties).",
    ),
    _described_by("--tz", metavar="ZONE", help="Time zone of the TiCDC server (its --tz) (default: UTC)."),
    _NAME,
    _described_by(
        "--key",
        "keys",
        multiple=True,
        metavar="TABLE=COL[,COL]",
        help="Columns that identify a row, for a table whose files do not name a key.",
    ),
    _described_by(
        "--history",
        multiple=True,
        metavar="PATTERN=KIND[,KIND]",
        help="History tables beside the mirrors of tables: log (every change), scd2 (every state).",
    ),
    _described_by("--accept-unordered", is_flag=True, help="Apply rows without commit-ts, in the order of the files."),
    _described_by(
        "--initial",
        multiple=True,
        metavar="URI",
        help="Rows from before the changefeed: the directory of a Dumpling export, or mysql://user@host:4000.",
    ),
    _described_by(
        "--initial-option",
        "initial_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="Details of --initial: at, tz, start-ts, separator, delimiter, null-value, escape-backslash, "
        "dialect, header; for a server tables and password-env.",
    ),
    _described_by(
        "--complete",
        multiple=True,
        metavar="PATTERN",
        help="Tables that had no rows before the changefeed began, though their CREATE TABLE is not in it.",
    ),
    _described_by(
        "--new-collations/--old-collations",
        default=None,
        help="Whether the cluster was bootstrapped with new collations; without them texts compare by bytes.",
    ),
    _described_by(
        "--storage-option", "storage", multiple=True, metavar="NAME=VALUE", help="Passed to fsspec, e.g. anon=true."
    ),
)


def settings_option(command: F) -> F:
    """Add the option that names a settings file."""
    text = "Settings file (default: the one that CDC_ASSETS_CONFIG names, or changefeeds.yaml here)."
    return click.option("--settings", type=click.Path(dir_okay=False), help=text)(command)


def feed_options(command: F) -> F:
    """Add the options that name changefeeds: a settings file, or what TiCDC has."""
    return _with_feed_options(command, _FEED_OPTIONS)


def feed_options_beside_name(command: F) -> F:
    """Add the options of `feed_options` to a command whose own `--name` is that of something else."""
    named = _described_by("--feed-name", "name", default="default", show_default=True, help=_NAME_HELP)
    return _with_feed_options(command, [named if option is _NAME else option for option in _FEED_OPTIONS])


def _with_feed_options(command: F, described: Sequence[Callable[[Any], Any]]) -> F:
    for option in reversed(described):
        command = option(command)
    text = "One changefeed of the settings file (default: all)."
    return settings_option(click.option("--changefeed", metavar="NAME", help=text)(command))


def decode_option(command: F) -> F:
    """Add the option of commands that decode rows into the lake."""
    choice = click.Choice(["auto", "driver", "executors"])
    text = "Where rows are decoded: in this process, on Spark's executors, or by window size (default: auto)."
    return click.option("--decode", type=choice, help=text)(command)


def lake_options(required: bool) -> Callable[[F], F]:
    """Add the options that name the lake."""
    text = "Directory of the lake: Iceberg tables, catalog.db and ledger.db."

    def wrap(command: F) -> F:
        return click.option("--warehouse", metavar="DIR", help=text + ("" if required else " (default: an empty one)"))(
            command
        )

    return wrap


def common_options(command: F) -> F:
    """Add the options of every command."""
    command = click.option("--debug", is_flag=True, help="Show the stack trace of an error.")(command)
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def dry_run_option(command: F) -> F:
    """Add the option of commands that can say beforehand what they would do."""
    return click.option("--dry-run", is_flag=True, help="Only show what would be done.")(command)


def yes_option(command: F) -> F:
    """Add the option of commands that do what cannot be undone (see `confirm`)."""
    return click.option("--yes", is_flag=True, help="Do not ask: for scripts, which need it.")(command)


def confirm(question: str, yes: bool, effect: str = "That cannot be undone.") -> None:
    """Ask a person at a terminal whether to do what cannot be undone; `yes` is their answer given beforehand.

    `effect` says how far it can be.
    Raises BadSettings without a terminal and without `yes`, and ends the command where the answer is no.
    """
    if yes:
        return
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadSettings(f"{question} {effect} Nobody is at a terminal to be asked: give --yes.")
    if not click.confirm(f"{question} {effect}", err=True):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(HELD)


def run_name() -> str:
    """Return a name of this run, by which its commits and records are found."""
    return f"cli-{uuid.uuid4().hex[:12]}"


def target_of(arguments: dict[str, Any]) -> CommandTarget:
    """Return the changefeeds and the lake that the options name; raises BadSettings."""
    from cdc_assets.settings import config

    _refuse_unread()
    if arguments.get("sink_uri"):
        settings = config.from_flags(arguments.get("warehouse"), **_described(arguments))
        if settings.lake is not None:
            _refuse_missing_name(settings.lake)
        return CommandTarget(settings.changefeeds, settings.lake)
    settings = load_settings(arguments.get("settings"))
    chosen = (settings.changefeed(arguments["changefeed"]),) if arguments.get("changefeed") else settings.changefeeds
    if arguments.get("quarantine"):
        chosen = tuple(changefeed.model_copy(update={"quarantine": True}) for changefeed in chosen)
    if arguments.get("decode"):
        chosen = tuple(changefeed.model_copy(update={"decode": arguments["decode"]}) for changefeed in chosen)
    if arguments.get("complete"):
        chosen = tuple(changefeed.with_complete(arguments["complete"]) for changefeed in chosen)
    return CommandTarget(chosen, settings.lake_of(arguments.get("warehouse")))


def _refuse_missing_name(lake: LakeSettings) -> None:
    """Raise BadSettings where no name is given, and the lake has changefeeds, of which none has the default name.

    Its tables are not those of a changefeed `default`: that one would be held for all their names, and stay recorded.
    """
    from cdc_assets.operations.opening import read_ledger

    context = click.get_current_context()
    if context.get_parameter_source("name") is not ParameterSource.DEFAULT:
        return
    if lake.local_directory is None or not (lake.local_directory / "ledger.db").exists():
        return
    with read_ledger(lake) as ledger:
        names = sorted(ledger.states())
    if names and context.params["name"] not in names:
        option = next(param.opts[0] for param in context.command.params if param.name == "name")
        raise BadSettings(
            f"the lake has the changefeed {first_of(names, 'changefeed')}, and no name is given. Give {option}: that "
            "name to go on with it, a new one for another changefeed."
        )


def _described(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the changefeed that the options describe, by their names in a file."""
    plain_options = ("sink_uri", "tz", "accept_unordered", "new_collations", "topics", "schemas", "schema_registry")
    described = {
        **{name: arguments[name] for name in plain_options},
        "decode": arguments.get("decode"),
        "changefeed_config": arguments["config"],
        "quarantine": bool(arguments.get("quarantine")),
        "keys": {table: columns.split(",") for table, columns in pairs(arguments["keys"], "--key").items()},
        "history": {name: kinds.split(",") for name, kinds in pairs(arguments["history"], "--history").items()},
        "storage_options": pairs(arguments["storage"], "--storage-option"),
        "archive": {"uri": arguments["archive"], "layout": arguments["archive_layout"]}
        if arguments["archive"]
        else None,
        "kafka": {name: _client_value(text) for name, text in pairs(arguments["kafka"], "--kafka").items()},
        "initial": {**initial_of(arguments), "complete": arguments["complete"]},
    }
    return {"name": arguments["name"], **{name: value for name, value in described.items() if value not in (None, "")}}


def load_settings(path: str | None) -> Settings:
    """Return the settings of a file; one that no option names is named on the error stream. Raises BadSettings."""
    from cdc_assets.settings.config import has_settings_file, load, settings_file

    if not has_settings_file(path):
        spellings = {option for param in click.get_current_context().command.params for option in param.opts}
        ways = " and ".join(option for option in ("--sink-uri", "--warehouse") if option in spellings)
        raise BadSettings(
            f"no settings are given, and {settings_file()} does not exist. Give --settings FILE"
            + (f", or {ways}." if ways else ".")
        )
    loaded = load(path)
    if path is None:
        click.echo(f"settings: {settings_file()}", err=True)
    return loaded


_OF_FILES = ("settings", "changefeed")
_BESIDE_FILES = (*_OF_FILES, "complete")


def _refuse_unread() -> None:
    """Raise BadSettings for options on a changefeed beside those that describe it otherwise: they would not be read."""
    context = click.get_current_context()
    options = {param.name: "/".join((*param.opts[:1], *param.secondary_opts)) for param in context.command.params}
    of_feeds = {param.name for param in feed_options(click.command()(lambda: None)).params}
    typed_options = [name for name in of_feeds if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    described = "sink_uri" in typed_options
    unread = sorted(
        options[name] for name in typed_options if (name in _OF_FILES if described else name not in _BESIDE_FILES)
    )
    if unread and described:
        raise BadSettings(
            f"{', '.join(unread)} would not be read: --sink-uri and its options describe the one changefeed without a "
            "settings file. Leave out one of the two."
        )
    if unread:
        raise BadSettings(
            f"{', '.join(unread)} would not be read: without --sink-uri changefeeds are those of the settings file. "
            "Write the same there, choose one of them with --changefeed, or give --sink-uri."
        )


def run_options(changefeed: str = "") -> str:
    """Return the options by which this run found its changefeed and lake, as a shell takes them for another command.

    `changefeed` is its name where the settings have several. Secrets are replaced by ***. --complete is left out: it is
    a decision of its own for `release`.
    """
    context = click.get_current_context()
    names = {param.name for param in feed_options(click.command()(lambda: None)).params} - {"complete"} | {"warehouse"}
    params = {param.name or "": param for param in context.command.params if param.name in names}
    typed_options = [name for name in params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    words = [f"--changefeed {shlex.quote(changefeed)}"] if changefeed and "changefeed" not in typed_options else []
    for name in sorted(typed_options, key=lambda name: (name != "settings", name != "sink_uri")):
        value, param = context.params[name], params[name]
        if isinstance(value, bool):
            words.append((param.opts if value else param.secondary_opts)[0])
            continue
        values = value if isinstance(value, tuple) else (value,)
        safe = values if name in ("keys", "history") else [_SECRET_VALUE.sub(r"\1***", text) for text in values]
        words += [f"{param.opts[0]} {shlex.quote(text)}" for text in safe]
    if "sink_uri" not in params and typed_options == ["warehouse"]:
        words.append("with the options of `apply` that describe the changefeed (--sink-uri, --config, --name)")
    return " ".join(words)


_SECRET_VALUE = re.compile(
    rf"((?:^|[?&])[^=&?]*(?:{SECRET_NAME.pattern})[^=&?]*=)(?!@)[^&]+|(?<=://)[^/]+(?=@)", re.IGNORECASE
)
"""The value of NAME=VALUE or of a parameter of a URI by a name that stands for a secret, and the login of a URI."""


def initial_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the setting `initial` that --initial and --initial-option describe; raises BadSettings."""
    from cdc_assets.features.dumps.settings import initial_from_flags

    options = pairs(arguments.get("initial_options") or (), "--initial-option")
    return initial_from_flags(arguments.get("initial") or (), options)


def _client_value(text: str) -> Any:
    return {"env": text[1:]} if text.startswith("@") else text


def lake_of(target: CommandTarget) -> LakeSettings:
    """Return the lake of a command that needs one; raises BadSettings."""
    if target.lake is None:
        raise BadSettings("No lake is given. Name a directory with --warehouse DIR, or a lake in the settings file.")
    return target.lake


@contextmanager
def opened(purpose: str, arguments: dict[str, Any], *, is_there: bool = False) -> Iterator[LakePipeline]:
    """Open the one changefeed that a command ("A rebuild concerns") is about; with `is_there` no lake is made.

    Raises BadSettings.
    """
    from cdc_assets.operations.opening import begun, open_pipeline, refuse_missing

    target = target_of(arguments)
    lake = lake_of(target)
    if is_there:
        refuse_missing(lake)
        if begun(lake) is None:
            raise BadSettings(f"there is no lake in {lake.warehouse}. Give the --warehouse of an apply.")
    if len(target.changefeeds) != 1:
        raise BadSettings(f"{purpose} one changefeed. Name it with --changefeed NAME.")
    with open_pipeline(target.changefeeds[0], lake) as pipeline:
        yield pipeline


def named_lake(
    warehouse: str | None, settings: str | None, *, may_come: bool = False
) -> tuple[LakeSettings, Settings | None]:
    """Return the lake that one of two options names, and the settings where these are read.

    Raises BadSettings, also for a lake that is not there unless it `may_come` later.
    """
    from cdc_assets.operations.opening import refuse_empty
    from cdc_assets.settings.lake import LakeSettings

    loaded = load_settings(settings) if settings or not warehouse else None
    if loaded is None:
        lake = LakeSettings.from_warehouse(warehouse or "")
    else:
        lake = lake_of(CommandTarget(loaded.changefeeds, loaded.lake_of(warehouse)))
    if not may_come:
        refuse_empty(lake)
    return lake, loaded


def lake_and_names(arguments: dict[str, Any]) -> tuple[LakeSettings, dict[str, ChangefeedSettings | None]]:
    """Return the lake and the changefeeds to show, with their settings; of --warehouse alone all that it knows.

    Raises BadSettings.
    """
    from cdc_assets.operations.opening import read_ledger, refuse_empty
    from cdc_assets.settings.lake import LakeSettings

    if arguments.get("warehouse") and not arguments.get("settings") and not arguments.get("sink_uri"):
        lake = LakeSettings.from_warehouse(arguments["warehouse"])
        feeds: dict[str, ChangefeedSettings | None] = {arguments["changefeed"] or arguments["name"]: None}
        source = click.get_current_context().get_parameter_source("name")
        if not arguments["changefeed"] and source is ParameterSource.DEFAULT:
            with read_ledger(lake) as ledger:
                feeds = dict.fromkeys(sorted(ledger.states())) or feeds
    else:
        target = target_of(arguments)
        lake, feeds = lake_of(target), {changefeed.name: changefeed for changefeed in target.changefeeds}
    refuse_empty(lake)
    return lake, feeds


def started_as() -> str:
    """Return the words that start this program again: its name if the shell finds it by that, else its path."""
    path = sys.argv[0]
    by_name = shutil.which("cdc-assets")
    if Path(path).name != "cdc-assets" or (by_name and os.path.realpath(by_name) == os.path.realpath(path)):
        return "cdc-assets"
    return shlex.quote(path)


# --- printing ---------------------------------------------------------------------------------------------------------


def show_outcome(outcome: Outcome, options: str) -> None:
    """Print the outcome of a run for every table; `options` are those that the commands of the ways out need."""
    from cdc_assets.report.text import outcome_lines

    for line, aside in outcome_lines(outcome, options):
        click.echo(line, err=aside)


def show_status(
    rows: Iterable[Any] | None,
    landings: Iterable[Any] = (),
    warnings: Mapping[str, Sequence[Any]] | None = None,
    *,
    lag: bool = False,
    options: str = "",
) -> None:
    """Print the table of `lake_status` where there is one, then `lake_warnings`, and the `landing_status` of topics.

    Beside the table warnings are counted, without it they stand in full. With `lag` a second table has the lag of
    each table's newest change. `options` are those that the commands of the ways out need.
    """
    from cdc_assets.report.findings import beside_holds, group_lines, shortened_lines
    from cdc_assets.report.landings import landing_lines
    from cdc_assets.report.text import status_lines

    landed, shown = list(landings), list(rows or ())
    if rows is not None:
        topic_feeds = {landing.changefeed for landing in landed} if lag else None
        for line in status_lines(shown, topic_feeds, options):
            click.echo(line)
    for name, groups in (warnings or {}).items():
        reasons = {row.table: row.reason for row in shown if row.changefeed == name}
        others = beside_holds(groups, reasons)
        lines = group_lines(others) if rows is None else shortened_lines(others)
        for line in lines:
            click.echo(line if len(warnings or ()) == 1 or line.startswith(" ") else f"{name}: {line}")
    if rows is not None and landed:
        click.echo("")
    for line in landing_lines(landed):
        click.echo(line)


def show_grid(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows below their heads."""
    from cdc_assets.report.text import grid_lines

    for line in grid_lines(heads, rows):
        click.echo(line)


def show_json(value: Any) -> None:
    """Print a value for programs."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2, default=plain_text))


def plain_text(value: object) -> str:
    """Return a value as text: bytes as 0x and hexadecimal digits, in JSON as in tables."""
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
