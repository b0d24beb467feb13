"""The command line. Nothing heavy is imported before a command needs it, so that `--help` is instant.

Exit codes: 0 everything is applied; 1 something is held, quarantined, incomplete, not there yet or out of reach;
2 wrong usage or setup; 130 interrupted by Ctrl-C.

    cuts        tables as of a moment, and cuts of all tables listed
    help        the help of commands: groups, options that are used, examples
    demo        a recorded changefeed, played in three checkpoints and loaded by Dagster, as a first example
    landing     commands about messages of topics that wait for a decision
    metrics     the command that shows metrics for Prometheus
    operations  commands of operations
    options     options and printing that the commands share
    progress    the progress display of the command line
    proof       the command that shows where a row comes from
    query       the command that shows rows
    setup       the command that fetches jars
"""

from __future__ import annotations

import atexit
import dataclasses
import gc
import logging
import os
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

import click

from cdc_assets.cli.cuts import as_of, show_cuts
from cdc_assets.cli.help import GROUPS, HelpGroup, command
from cdc_assets.cli.landing import landing
from cdc_assets.cli.metrics import metrics
from cdc_assets.cli.operations import operation_command
from cdc_assets.cli.options import (
    DONE,
    HELD,
    WRONG,
    common_options,
    confirm,
    decode_option,
    dry_run_option,
    feed_options,
    initial_of,
    lake_and_names,
    lake_of,
    lake_options,
    named_lake,
    opened,
    run_name,
    run_options,
    settings_option,
    show_grid,
    show_json,
    show_outcome,
    show_status,
    target_of,
    yes_option,
)
from cdc_assets.cli.progress import show_log, watching
from cdc_assets.cli.proof import explain
from cdc_assets.cli.query import query, query_line
from cdc_assets.cli.setup import setup
from cdc_assets.errors import BadSettings, CdcError, SetupError
from cdc_assets.model.features import parts
from cdc_assets.model.findings import ABOUT_FILES, ABOUT_SETTINGS, Severity
from cdc_assets.model.progress import State
from cdc_assets.model.wording import counted
from cdc_assets.operations.requests import operations, pairs
from cdc_assets.report import columns

__all__ = ["commands", "main", "run_process", "show_status"]


def run_process() -> NoReturn:
    """Run the command line as a process of its own, and end it without the interpreter's teardown.

    That takes half a second of CPU, and threads of Arrow that still let go of Python's memory then abort the process of
    a command that has succeeded.
    """
    try:
        main()
    except SystemExit as ending:
        code = ending.code
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code if isinstance(code, int) else DONE)


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    debug = "--debug" in sys.argv
    # A command keeps most of its objects until it ends; repeated garbage collection took a quarter of the time.
    gc.set_threshold(100_000, 20, 50)
    if not debug:
        logging.getLogger().addFilter(_is_no_interrupt)
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what fails is raised, too
    show_log(logging.WARNING if "--json" in sys.argv else logging.INFO)
    try:
        code = commands.main(standalone_mode=False, prog_name="cdc-assets")
        sys.exit(code if isinstance(code, int) else DONE)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(WRONG)
    except (click.Abort, KeyboardInterrupt):
        click.echo(
            "Interrupted. Every table is at its last complete window; the next run continues from there. Run the same "
            "command again to finish what it began.",
            err=True,
        )
        # Threads are not waited for: one may decode a large window, or wait for Java. No commit is half done.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
    except BrokenPipeError:
        sys.exit(DONE)
    except CdcError as error:
        if debug:
            click.echo(_trace(), err=True)
        click.echo(f"cdc-assets: {error}", err=True)
        sys.exit(WRONG if isinstance(error, SetupError) else HELD)


def _trace() -> str:
    """Return the stack trace of the present error without secrets: causes are in the words of other programs."""
    from cdc_assets.lake.failures import redacted

    return redacted(traceback.format_exc())


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Return false for the stack trace that py4j logs where Ctrl-C ends a call to the JVM."""
    return record.exc_info is None or not isinstance(record.exc_info[1], KeyboardInterrupt)


@click.group(
    cls=HelpGroup,
    groups=GROUPS,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=(
        "demo",
        "inspect --sink-uri 's3://feeds/shop?protocol=csv' --config changefeed.toml",
        "apply --sink-uri 's3://feeds/shop?protocol=csv' --config changefeed.toml --warehouse ./lake",
        "query shop.orders --warehouse ./lake",
        "status --settings changefeeds.yaml",
    ),
)
@click.version_option(package_name="cdc-assets")
def commands() -> None:
    """From a database's change feed to Iceberg tables.

    Give the sink URI and the changefeed TOML exactly as TiCDC has them, or a settings file: --settings FILE,
    CDC_ASSETS_CONFIG, or changefeeds.yaml in the working directory.
    """


# --- commands ---------------------------------------------------------------------------------------------------------


@command(
    "apply",
    "Bring the lake's tables to the changefeed's checkpoint.",
    "apply --settings changefeeds.yaml",
    "apply --sink-uri 's3://feeds/shop?protocol=csv' --config changefeed.toml --warehouse ./lake",
    "apply --settings changefeeds.yaml --changefeed shop --quarantine",
    flags="all",
    columns={"Columns": columns.OUTCOME},
)
@feed_options
@lake_options(required=True)
@click.option("--quarantine", is_flag=True, help="Set aside records that do not fit, and apply the rest.")
@decode_option
@common_options
def apply(as_json: bool, debug: bool, **arguments: Any) -> int:
    """Bring the lake's tables to the changefeed's checkpoint."""
    from cdc_assets.jvm.jars import ready_jars
    from cdc_assets.operations.opening import open_pipeline
    from cdc_assets.report.as_json import outcome_json

    target = target_of(arguments)
    lake = lake_of(target)
    ready_jars(lake.extras)
    code, tables = DONE, list[str]()
    for settings in target.changefeeds:
        with watching(as_json) as watch, open_pipeline(settings, lake, watch, applies=True) as pipeline:
            outcome = pipeline.apply(run_name())
        code = max(code, DONE if outcome.settled else HELD)
        applied = (table.name for table in outcome.tables if table.state is State.APPLIED)
        tables += [f"{settings.namespace_of(name.schema)}.{name.table}" for name in applied]
        if as_json:
            show_json(outcome_json(settings.name, outcome))
        else:
            show_outcome(outcome, run_options(settings.name if len(target.changefeeds) > 1 else ""))
    if not as_json and tables:
        click.echo(query_line(lake, arguments["settings"], tables))
    return code


@command(
    "inspect",
    "Tables, versions, DDL, files, warnings of a changefeed or dump.",
    "inspect --settings changefeeds.yaml",
    "inspect --sink-uri 's3://feeds/shop?protocol=csv' --config changefeed.toml",
    "inspect --initial s3://feeds/dump",
    flags="all",
)
@feed_options
@common_options
def inspect(as_json: bool, debug: bool, **arguments: Any) -> int:
    """Show tables, versions, DDL, files and warnings of a changefeed, or with --initial of a dump. Reads only."""
    from cdc_assets.operations.inspect import inspect_changefeed
    from cdc_assets.report.text import inspection_lines

    if arguments["initial"] and not arguments["sink_uri"]:
        return _inspect_initial(arguments, as_json)
    target = target_of(arguments)
    inspections = (inspect_changefeed(settings, target.lake) for settings in target.changefeeds)
    return _show_inspected(
        ((inspection, inspection.sound, inspection_lines(inspection)) for inspection in inspections), as_json
    )


def _inspect_initial(arguments: dict[str, Any], as_json: bool) -> int:
    from cdc_assets.features.dumps.report import dump_lines
    from cdc_assets.features.dumps.settings import InitialSettings
    from cdc_assets.operations.inspect import inspect_initial

    initial = InitialSettings(**initial_of(arguments))
    inspections = inspect_initial(initial.connect(pairs(arguments["storage"], "--storage-option")))
    return _show_inspected(
        ((inspection, inspection.sound, dump_lines(inspection)) for inspection in inspections), as_json
    )


def _show_inspected(inspected: Iterable[tuple[Any, bool, Iterable[str]]], as_json: bool) -> int:
    """Print inspections, each with whether it is sound and its lines; return the exit code."""
    code = DONE
    for inspection, sound, lines in inspected:
        code = max(code, DONE if sound else HELD)
        if as_json:
            show_json(dataclasses.asdict(inspection))
            continue
        for line in lines:
            click.echo(line)
    return code


@command(
    "plan",
    "What apply would do: each DDL with its cost and how to undo it.",
    "plan --settings changefeeds.yaml",
    flags="all",
)
@feed_options
@lake_options(required=False)
@common_options
def plan(as_json: bool, debug: bool, **arguments: Any) -> int:
    """Show what `apply` would do: each DDL with its text, its cost and how to undo it. Reads only.

    It checks settings, schemas, files and DDL, and of new tables whether the first rows can be read. Only `apply` reads
    every value; it holds a table with one that does not fit.

    A step begins with its TSO, the time of that, and the table.
    """
    from cdc_assets.operations.opening import begun, open_planner
    from cdc_assets.operations.status import row_counts, stopped_at_rows
    from cdc_assets.report.findings import grouped
    from cdc_assets.report.plan_text import describe_plan
    from cdc_assets.report.tables import incomplete_causes, incomplete_tables
    from cdc_assets.report.text import plan_lines

    target = target_of(arguments)
    code = DONE
    for settings in target.changefeeds:
        with open_planner(settings, begun(target.lake)) as planner:
            listing, planned = planner.plan()
            waiting = planner.waiting()
            checked = planner.findings(listing, planned)
            shown = {*ABOUT_SETTINGS, *ABOUT_FILES}
            findings = [note for note in checked if note.severity is not Severity.WARNING or note.rule in shown]
        lake = begun(target.lake)
        steps = describe_plan(planned, row_counts(lake, settings) if lake is not None else None)
        lacking = incomplete_tables(planned.history)
        held = stopped_at_rows(lake, settings.name, planned) if lake is not None else []
        stops = lacking or held or any(note.severity is not Severity.WARNING for note in findings)
        stops = stops or any(step.action == "hold" for step in steps)
        code = max(code, HELD if stops else DONE)
        if as_json:
            show_json(
                {
                    "changefeed": settings.name,
                    "checkpoint": listing.checkpoint,
                    "steps": [dataclasses.asdict(s) for s in steps],
                    "held": {str(state.name): state.reason for state in held},
                    "findings": [dataclasses.asdict(group) for group in grouped(findings)],
                    "incomplete": lacking,
                    "not_landed": waiting,
                }
            )
            continue
        causes = incomplete_causes(planned.history)
        incomplete = ((name, lacking[name], causes[name]) for name in lacking)
        options = run_options(settings.name if len(target.changefeeds) > 1 else "")
        for line in plan_lines(steps, listing, waiting, held, incomplete, findings, options):
            click.echo(line)
    return code


@command(
    "status",
    "Progress, rows, holds and warnings of each table; landed topics.",
    "status --settings changefeeds.yaml",
    "status --warehouse ./lake --lag",
    "status --warehouse ./lake --warnings --json",
    columns={"Columns": columns.STATUS, "Columns of --lag": columns.LAG, "Columns of topics": columns.LANDED},
)
@lake_options(required=True)
@settings_option
@click.option("--all", "dropped", is_flag=True, help="Show dropped tables too.")
@click.option("--lag", is_flag=True, help="Show by stage how long the newest change of each table was under way.")
@click.option("--landing", "landing_only", is_flag=True, help="Show only what is landed of topics, by partition.")
@click.option("--warnings", "warnings_only", is_flag=True, help="Show only the warnings; in JSON with all tables.")
@click.option("--cuts", "cuts_only", is_flag=True, help="Show only the cuts; in JSON with all their tables.")
@common_options
def status(
    as_json: bool,
    debug: bool,
    warehouse: str | None,
    settings: str | None,
    dropped: bool,
    lag: bool,
    landing_only: bool,
    warnings_only: bool,
    cuts_only: bool,
) -> int:
    """Show each table's progress, rows and holds, warnings, and what is landed of topics. Starts no Spark.

    With --settings the ends of the topics are asked now, else they are as of the newest landing.
    """
    from cdc_assets.operations.landings import landing_status
    from cdc_assets.operations.status import lake_cuts, lake_status, lake_warnings
    from cdc_assets.report.as_json import status_json

    if landing_only + warnings_only + cuts_only > 1:
        raise BadSettings("--landing, --warnings and --cuts exclude each other. Give one of them.")
    lake, loaded = named_lake(warehouse, settings)
    feeds = {feed.name: feed for feed in loaded.changefeeds} if loaded is not None else {}
    tables = lake_status(lake, fidelity=as_json)
    rows = [row for row in tables if dropped or row.unfinished or row.state is not State.DROPPED]
    if cuts_only:
        return show_cuts(lake_cuts(lake), as_json)
    landings = landing_status(lake, tables, feeds)
    warnings = {} if landing_only else lake_warnings(lake)
    if as_json and warnings_only:
        show_json({name: [dataclasses.asdict(group) for group in groups] for name, groups in warnings.items()})
    elif as_json:
        show_json([*map(dataclasses.asdict, landings)] if landing_only else [*map(status_json, rows)])
    elif warnings_only:
        show_status(None, (), warnings)
    else:
        options = run_options("NAME" if len(feeds) > 1 else "")
        show_status(None if landing_only or not rows else rows, landings, warnings, lag=lag, options=options)
        if not landing_only and any((cuts := lake_cuts(lake)).values()):
            click.echo("")
            show_cuts(cuts, as_json)
        if not rows or (landing_only and not landings):
            nothing = "The lake has no table yet. If a run was interrupted, run `cdc-assets apply` again: it goes on."
            nothing = "All tables of the lake are dropped; --all shows them." if tables else nothing
            click.echo("Nothing of topics is landed in the lake." if rows else nothing)
    held = any(row.wants_a_person or row.state is State.LOADING for row in rows)
    held |= any(landing.unreadable for landing in landings) or not (tables or landings)
    return HELD if held else DONE


@command(
    "journal",
    "Every DDL that was carried out, with statements and seconds.",
    "journal --warehouse ./lake",
)
@lake_options(required=True)
@settings_option
@common_options
def journal(as_json: bool, debug: bool, warehouse: str | None, settings: str | None) -> int:
    """Show every DDL that was carried out: text, statements, snapshots, seconds."""
    from cdc_assets.operations.opening import read_ledger

    lake, _ = named_lake(warehouse, settings)
    with read_ledger(lake) as ledger:
        entries = [entry for changefeed in ledger.journals() for entry in ledger.journal(changefeed)]
    if as_json:
        show_json([dataclasses.asdict(entry) for entry in entries])
        return DONE
    for entry in entries:
        click.echo(f"{entry.tso}  {entry.name}  {entry.action}  {entry.seconds:.2f} s  {entry.query}")
        for statement in entry.statements:
            click.echo(f"    {statement}")
    return DONE


@command(
    "files",
    "Every data file that was read: rows, positions, run, snapshot.",
    "files --warehouse ./lake",
    "files --warehouse ./lake --forget shop/orders/449…/CDC00000000000000000007.csv",
)
@lake_options(required=True)
@settings_option
@click.option(
    "--forget", "unread", multiple=True, metavar="PATH", help="Go on without a file that vanished unread or is missing."
)
@common_options
def files(as_json: bool, debug: bool, warehouse: str | None, settings: str | None, unread: tuple[str, ...]) -> int:
    """Show every data file that was read: rows, positions, run, snapshot, time."""
    from cdc_assets.operations.opening import read_ledger
    from cdc_assets.operations.status import forgo_missing
    from cdc_assets.report.text import file_texts

    lake, _ = named_lake(warehouse, settings)
    with read_ledger(lake) as ledger:
        feeds = ledger.states()
        if unread:
            recorded = {entry.path for feed in feeds for entry in ledger.files(feed)}
            noted = {path for feed in feeds for path in ledger.noted(feed)}
            for path in (path for path in unread if path not in recorded):
                if path in noted:
                    raise BadSettings(
                        f"{path} was never listed, and its writer may still write it: there is nothing to forget. The "
                        "table goes on; the warning ends once the file is there or its index names another one."
                    )
                if not any(forgo_missing(ledger, feed, path) for feed in feeds):
                    raise BadSettings(f"{path} is not known. See `cdc-assets files` for the paths.")
            for feed in feeds:
                ledger.remove_files(feed, [path for path in unread if path in recorded])
        entries = [
            text
            for feed, states in feeds.items()
            for text in file_texts(feed, ledger.files(feed), {state.life: state.name for state in states})
        ]
    if as_json:
        show_json([dataclasses.asdict(entry) for entry in entries])
        return DONE
    if unread:
        click.echo(f"Forgotten: {', '.join(unread)}. The next `cdc-assets apply` goes on without what is missing.")
        return DONE
    heads = "changefeed,path,table,rows,bytes,first position,last position,its time,run,snapshot,read at".split(",")
    show_grid(heads, [["" if cell is None else cell for cell in dataclasses.astuple(entry)] for entry in entries])
    return DONE


@command(
    "release",
    "Decide a held DDL, or that an incomplete table may go on.",
    "release shop.orders 449013045469052931 --skip --dry-run",
    "release shop.orders 449013045469052931 --apply 'ALTER TABLE orders DROP COLUMN note'",
    "release --complete 'shop.*'",
    "release --list --warehouse ./lake",
    uses=("complete", "name"),
)
@click.argument("table", required=False)
@click.argument("version", type=int, required=False)
@click.option(
    "--apply",
    "text",
    is_flag=False,
    flag_value="",
    metavar="DDL",
    help="Apply this DDL instead of the recorded one; without DDL, the recorded one as written.",
)
@click.option("--skip", is_flag=True, help="Leave rows as they are; columns follow the schema file.")
@click.option("--rebuild", is_flag=True, help="Drop the rows up to here, and apply what comes after.")
@click.option(
    "--new-settings",
    is_flag=True,
    help="Rows from VERSION (a TSO) on are written as the settings say now; those before are read as formerly.",
)
@click.option(
    "--accept-incomplete",
    is_flag=True,
    help="Let TABLE, or tables of that pattern, go on without the rows that they lack now: shown, and no failure.",
)
@click.option("--undo", is_flag=True, help="Undo a release that was not used yet.")
@dry_run_option
@yes_option
@click.option("--list", "listed", is_flag=True, help="Show every decision that was recorded; needs the lake only.")
@click.option("--who", default="", help="Who decides, for the record.")
@feed_options
@lake_options(required=True)
@common_options
def release(as_json: bool, debug: bool, listed: bool, **arguments: Any) -> int:
    """Decide the DDL of TABLE at VERSION, which is held: --apply "DDL", --skip or --rebuild. Then run apply again.

    Asks first where rows are deleted by it.

    TABLE is its present name or its identity, as `plan` and `status` show them; with --new-settings it may be a
    pattern of first names. Without them, --complete PATTERN
    records in the lake that such tables had no rows before the changefeed began.
    """
    if listed:
        return _show_releases(as_json, arguments)
    return (
        _complete(as_json, arguments)
        if arguments["complete"] or arguments["accept_incomplete"]
        else _decide(as_json, arguments)
    )


def _complete(as_json: bool, arguments: dict[str, Any]) -> int:
    from cdc_assets.features.completeness.operations import accept_incomplete, say_complete, unsay_complete

    patterns, table, undo, accepts = (arguments[name] for name in ("complete", "table", "undo", "accept_incomplete"))
    dry_run: bool = arguments["dry_run"]
    of_ddl = arguments["text"] is not None or any(
        arguments[name] for name in ("version", "skip", "rebuild", "new_settings")
    )
    if of_ddl or bool(table) != accepts or (patterns and accepts):
        raise BadSettings(
            "--complete PATTERN, or TABLE --accept-incomplete, is given alone or with --undo: it is about whole "
            "tables, not about one DDL."
        )
    with opened("A release concerns", {**arguments, "complete": ()}) as pipeline:
        who, run = arguments["who"], run_name()
        if accepts:
            incomplete = accept_incomplete(pipeline, table, who, run, undo=undo, dry_run=dry_run)
        else:
            incomplete = (unsay_complete if undo else say_complete)(pipeline, patterns, who, run, dry_run=dry_run)
    if as_json:
        show_json(
            {"accepted" if accepts else "complete": table or patterns, "undone": undo, "dry_run": dry_run}
            | {"incomplete": incomplete}
        )
    else:
        for name, sentence in incomplete.items():
            click.echo(f"{name}: {sentence}")
        would = "Would be incomplete" if dry_run else "Still incomplete"
        click.echo(f"{would}: {counted(len(incomplete), 'table')}." if incomplete else "No table is incomplete.")
    return HELD if incomplete else DONE


def _decide(as_json: bool, arguments: dict[str, Any]) -> int:
    from cdc_assets.operations.release import decide
    from cdc_assets.report.plan_text import describe_plan
    from cdc_assets.report.text import step_lines

    with opened("A release concerns", arguments) as pipeline:
        ways = [way for way in ("skip", "rebuild", "new-settings", "undo") if arguments[way.replace("-", "_")]]
        life, proposal = decide(
            pipeline, arguments["table"], arguments["version"], ways, arguments["text"], arguments["who"]
        )
        steps = describe_plan(dataclasses.replace(proposal.plan, steps=proposal.plan.of(life)))
        if not as_json:
            for line in step_lines(steps):
                click.echo(line)
        if not arguments["dry_run"]:
            if proposal.deletes_rows:
                table = proposal.plan.history.lives[life].name or life
                effect = "Until it runs, `release --undo` takes that back; deleted rows do not come back."
                confirm(f"Let the next `apply` delete rows of {table}?", arguments["yes"], effect)
            proposal.record(pipeline)
    if as_json:
        show_json({"table": str(life), "steps": [dataclasses.asdict(step) for step in steps]})
    elif arguments["dry_run"]:
        click.echo("Nothing was recorded.")
    elif any(step.action == "hold" for step in steps):
        click.echo("The table is held by this until it is decided.")
    else:
        click.echo("The next `apply` does this." if steps else "Nothing is left to do for this table.")
    return HELD if any(step.action == "hold" for step in steps) else DONE


def _show_releases(as_json: bool, arguments: dict[str, Any]) -> int:
    from cdc_assets.operations.release import RECORD, recorded
    from cdc_assets.operations.status import recorded_decisions

    lake, names = lake_and_names(arguments)
    heads = ("changefeed", *RECORD)
    rows = [(name, *row) for name in names for row in recorded(recorded_decisions(lake, name))]
    if as_json:
        show_json([dict(zip(heads, row, strict=True)) for row in rows])
    else:
        show_grid(heads, rows) if rows else click.echo("No decision was recorded yet.")
    return DONE


@command("demo", "Load a recorded changefeed with Dagster, as a first example.", "demo", "demo --topics")
@click.option("--directory", metavar="DIR", help="The demo's directory; emptied at each start. Default: .demo")
@click.option(
    "--topics", is_flag=True, help="Load messages of an archive of topics instead of files (in .demo-topics)."
)
@click.option("--debug", is_flag=True, help="Show the stack trace of an error.")
def demo(directory: str | None, topics: bool, debug: bool) -> int:
    """Play a recorded changefeed in three checkpoints and let Dagster load it."""
    from cdc_assets.cli.demo import run_demo

    return run_demo(directory or (".demo-topics" if topics else ".demo"), topics=topics)


@command("ui", "Open Dagster's web interface, with a daemon.", "ui", "ui --settings changefeeds.yaml --port 3001")
@click.option("--directory", metavar="DIR", help="A demo's directory, instead of settings.")
@settings_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=3000,
    show_default=True,
    help="Port of the web interface on this machine.",
)
@click.option("--debug", is_flag=True, help="Show the stack trace of an error.")
def ui(directory: str | None, settings: str | None, port: int, debug: bool) -> int:
    """Open Dagster's web interface, with a daemon, on your changefeeds; where there are no settings, on the demo.

    Dagster's state is kept in .dagster beside the settings file, or where DAGSTER_HOME says. Without --directory the
    demo is in .demo.
    """
    from cdc_assets.cli.demo import run_ui
    from cdc_assets.settings.config import has_settings_file, settings_file

    if directory and settings:
        raise BadSettings("--directory is a demo's, --settings a file of your own. Leave out one of the two.")
    if directory or not has_settings_file(settings):
        return run_ui(directory or ".demo", port, None)
    file = settings_file(settings)
    if settings is None:
        click.echo(f"settings: {file}", err=True)
    return run_ui(".demo", port, file)


for each in (
    apply,
    inspect,
    plan,
    status,
    journal,
    files,
    release,
    demo,
    ui,
    landing,
    explain,
    as_of,
    query,
    metrics,
    setup,
    *map(operation_command, operations()),
    *(each for _, module in parts("cli") for each in module.COMMANDS),
):
    commands.add_command(each)
