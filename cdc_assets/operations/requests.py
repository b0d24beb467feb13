"""Operations that people ask for: values from which commands and jobs with their launch forms are built.

A field of a request says once how it is described, and by which option the command has it if not by its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from cdc_assets.errors import BadSettings
from cdc_assets.model.features import parts

if TYPE_CHECKING:
    from cdc_assets.model.reports import OperationReport
    from cdc_assets.model.schema import TableId
    from cdc_assets.operations.lake_pipeline import LakePipeline
    from cdc_assets.pipeline.outcome import RunHooks
    from cdc_assets.settings.config import ChangefeedSettings

REQUIRED = MISSING
"""The default of a field that has to be given."""


def option(
    description: str,
    default: Any = "",
    *,
    flag: str = "",
    metavar: str | None = None,
    choices: Sequence[str] = (),
    place: Literal["both", "command", "form"] = "both",
    argument: bool = False,
    value: type = str,
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """Return a field of a request.

    Args:
        description: Its help on the command line, and its description in the launch form.
        default: False, an empty text, an empty tuple, None, or REQUIRED.
        flag: The option of the command, where it is not the field's name.
        metavar: How the command's help names a value.
        choices: The values that the command takes.
        place: Whether the command has it, the launch form, or both.
        argument: Whether the command has it as an argument, not as an option.
        value: The type of its values.
        least: The smallest number that the command takes.
        most: The largest one.
    """
    metadata: dict[str, Any] = {
        "description": description,
        "flag": flag,
        "metavar": metavar,
        "choices": choices,
        "place": place,
    }
    metadata |= {"argument": argument, "value": value, "least": least, "most": most}
    return field(metadata=metadata, default=default)


@dataclass(frozen=True)
class Request:
    """The request to one operation."""

    def check(self) -> None:
        """Raise BadSettings where fields contradict each other."""

    def check_settings(self, settings: ChangefeedSettings) -> None:
        """Raise BadSettings where a changefeed's settings lack what the request needs; nothing is opened for that."""

    def check_done(self, parts_done: Iterable[object]) -> None:
        """Raise BadSettings where nothing was done because fields name nothing that is there."""


R = TypeVar("R", bound=Request)


@dataclass(frozen=True)
class OperationRun:
    """A run of an operation: of a command, or of a job.

    Args:
        name: The run's name, by which its commits and records are found.
        say: Called with sentences about what is done.
        consent: Called with what cannot be undone, as a question, before it is done. It raises without consent.
        who: Who runs it, for the record.
        attended: Whether a person waits for it at a terminal.
        hooks: What is called while tables are applied.
    """

    name: str
    say: Callable[[str], object]
    consent: Callable[[str], object]
    who: str = ""
    attended: bool = False
    hooks: RunHooks | None = None


@dataclass(frozen=True)
class DueWork:
    """The tables for which something is due, None for one of the lake itself, or why there is nothing to do."""

    tables: tuple[TableId | None, ...] = ()
    why_none: str = ""


@dataclass(frozen=True)
class Schedule:
    """The regular runs of an operation: the last word of its name, the section of settings that says when.

    With `checks` a tick without work is skipped.
    """

    word: str
    section: str
    description: str
    checks: bool = False


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[R]):
    """An operation that people ask for: its command, job and schedule are built from this value.

    Args:
        name: The name of the command and of the job.
        request: Its fields are the command's options and those of the launch form.
        module: The module with the functions that this value calls: `carry_out`, `report`, and where there is more to
            say or to look for `part_lines` and `due`. It is imported when the operation runs.
        summary: Its line in the list of commands.
        text: The command's help.
        examples: Command lines, without the program's name.
        job: What people read of the job, "" where there is none.
        op: The last word of the op's name.
        work: What people read of the op.
        scaffold: The config with which the launch form opens.
        concerns: How several changefeeds are refused ("A cut concerns"); "" for an operation on each of them.
        in_lake: Whether the lake has to be there.
        decodes: Whether rows are decoded into the lake.
        writes: Whether the job takes the writers' slot.
        schedule: Its regular runs, if any.
    """

    name: str
    request: type[R]
    module: str
    summary: str
    text: str
    examples: tuple[str, ...]
    job: str = ""
    op: str = "tables"
    work: str = ""
    scaffold: Mapping[str, Any] | None = None
    concerns: str = ""
    in_lake: bool = False
    decodes: bool = False
    writes: bool = True
    schedule: Schedule | None = None

    def carry_out(self, pipeline: LakePipeline, run: OperationRun, request: R) -> Iterator[Any]:
        """Do what is requested, and yield what was done part by part."""
        parts_done: Iterator[Any] = import_module(self.module).carry_out(pipeline, run, request)
        return parts_done

    def lines(self, part: Any) -> Iterator[str]:
        """Yield the lines about a part as soon as it is done, where the module has `part_lines`."""
        part_lines = getattr(import_module(self.module), "part_lines", None)
        yield from part_lines(part) if part_lines is not None else ()

    def report(self, feed: str, request: R, parts_done: Sequence[Any]) -> OperationReport:
        """Return the report on the parts that were done."""
        report: OperationReport = import_module(self.module).report(feed, request, parts_done)
        return report

    def due(self, pipeline: LakePipeline) -> DueWork:
        """Return the work of a run now."""
        work: DueWork = import_module(self.module).due(pipeline)
        return work


def operations() -> tuple[Operation[Any], ...]:
    """Return all operations, those of features among them."""
    return (REBUILD, MAINTAIN, PURGE, EXTRACT, *(module.OPERATION for _, module in parts("operations_request")))


TABLES = "[TABLE]…"
DRY_RUN = "Only show what would be done."

CHANGE_FORMATS = ("parquet", "jsonl", "csv")


@dataclass(frozen=True)
class RebuildRequest(Request):
    """Tables to rebuild: some by name, or all."""

    tables: Sequence[str] = option(
        "The tables to rebuild, each by its present name `schema.table` or as `schema.table@first version`. Tables "
        "that exchanged partitions with one of them are rebuilt too.",
        (),
        metavar=TABLES,
        argument=True,
    )
    every_table: bool = option("All tables that have a name.", False, flag="--all")
    incomplete: bool = option(
        "The incomplete tables that a dump of the setting `initial` has: from the dump, then the changefeed from its "
        "TSO on.",
        False,
    )
    dry_run: bool = option(DRY_RUN, False, place="command")
    confirmed: bool = option(
        "Set to true where the run asks for it: repairs of a table are lost, or its forgotten rows come back.",
        False,
        place="form",
    )

    def check(self) -> None:
        """Raise BadSettings unless exactly one of the three says which tables are meant."""
        if bool(self.tables) + self.every_table + self.incomplete != 1:
            raise BadSettings(
                "Name the tables to rebuild, or give --all (every_table), or --incomplete: expected one of the three."
            )


REBUILD = Operation(
    name="rebuild",
    request=RebuildRequest,
    module="cdc_assets.operations.rebuild",
    summary="Build tables anew from their whole history and swap them in.",
    text="""Rebuild each TABLE from its whole history, aside, and swap it in one commit.

    TABLE is a present name or an identity, as `plan` and `status` show them; tables that exchanged partitions are
    rebuilt together. Refused, with nothing changed, if files are missing, a table is held or records do not fit. Asks
    first where repairs would be lost or forgotten rows would come back.
    """,
    examples=("rebuild shop.orders --dry-run", "rebuild shop.orders", "rebuild --incomplete"),
    job="Builds tables aside from the changefeed's whole recorded history and swaps each in one commit: "
    "readers see the old rows or the new ones, never none. Refused, with nothing changed, if the history begins "
    "with neither CREATE TABLE nor a dump, if files of it are missing, if a table is held or if records are in "
    "quarantine. A killed run is continued by the next one. Writers may go on meanwhile, and wait where one was "
    "faster than a swap; with the tag `cdc/table` = `schema.table`, written as in the table's partitions, its "
    "partitions wait in the queue.",
    work="Build the tables aside, swap each in one commit, and remove the aside tables.",
    scaffold={"tables": []},
    concerns="A rebuild concerns",
    decodes=True,
)


@dataclass(frozen=True)
class MaintenanceRequest(Request):
    """Tables to maintain; default: all, and those of the lake itself."""

    tables: Sequence[str] = option(
        "Only these tables, as `schema.table`, `schema.table@first version`, or by their names in the lake "
        "(`_cdc.quarantine`).",
        (),
        metavar=TABLES,
        argument=True,
    )
    dry_run: bool = option("Only show what is due.", False)


MAINTAIN = Operation(
    name="maintain",
    request=MaintenanceRequest,
    module="cdc_assets.operations.maintenance",
    summary="Compact files, expire snapshots, remove orphans: what is due.",
    text="""Compact files, rewrite manifests, expire snapshots, remove orphan files: what is due and nothing else.

    Default: all tables. When something is due, and what is kept, is in the settings (maintenance).
    """,
    examples=("maintain --dry-run", "maintain shop.orders"),
    job="Compacts small files and deleted rows, rewrites manifests, expires snapshots and removes orphan "
    "files, if that is due by the changefeed's `maintenance` settings. Progress is kept, and so are snapshots that "
    "an open partition exchange reads. In a race with a writer one of the two wins, and the other retries.",
    work="Compact, rewrite manifests, expire snapshots, remove orphan files, as far as due, table by table.",
    schedule=Schedule(
        "maintenance",
        "maintenance",
        "Requests a run of maintenance if something is due; checking that takes no Spark.",
        checks=True,
    ),
)


@dataclass(frozen=True)
class PurgeRequest(Request):
    """Dropped tables to remove: some by name, or all."""

    tables: Sequence[str] = option("The dropped tables to remove.", (), metavar=TABLES, argument=True)
    every_table: bool = option("All dropped tables.", False, flag="--all")
    days: float | None = option("Only tables dropped at least N days ago.", None, metavar="N", value=float, least=0)
    dry_run: bool = option(DRY_RUN, False)
    confirmed: bool = option("Set to true: purged tables cannot be recovered.", False, place="form")

    def check(self) -> None:
        """Raise BadSettings unless tables are named, or all are meant."""
        if bool(self.tables) == self.every_table:
            raise BadSettings("Name the dropped tables to remove, or give --all.")


PURGE = Operation(
    name="purge",
    request=PurgeRequest,
    module="cdc_assets.operations.purge",
    summary="Remove dropped tables and their files for good.",
    text="""Remove each dropped TABLE and its files for good: RECOVER TABLE cannot bring it back afterwards.

    TABLE is a former name or an identity. A table that a planned step still needs is kept.
    """,
    examples=("purge --all --days 30 --dry-run", "purge shop.orders --yes"),
    concerns="A purge concerns",
)


@dataclass(frozen=True)
class ChangesRequest(Request):
    """The changes to write, and where."""

    table: str = option("The table, by its present name `schema.table` or its identity.", REQUIRED, argument=True)
    since: str = option(
        "Changes after this moment: a TSO, a time such as 2026-01-31T13:00:00Z, or a cut.",
        REQUIRED,
        flag="--from",
        metavar="MOMENT",
    )
    until: str = option("Changes through this moment.", REQUIRED, flag="--to", metavar="MOMENT")
    out: str = option("A directory, or the prefix of a bucket, without files.", REQUIRED, metavar="URI")
    format: str = option("parquet, jsonl or csv.", "parquet", choices=CHANGE_FORMATS)
    net: bool = option("One row a key: its last image, or that it is gone.", False)
    out_options: Sequence[str] = option(
        "Passed to fsspec for --out.", (), flag="--out-option", metavar="NAME=VALUE", place="command"
    )

    def check(self) -> None:
        """Raise BadSettings for an unknown format."""
        if self.format not in CHANGE_FORMATS:
            raise BadSettings(f"{self.format} is no format; expected {', '.join(CHANGE_FORMATS)}.")


EXTRACT = Operation(
    name="extract",
    request=ChangesRequest,
    module="cdc_assets.operations.change_files",
    summary="Write the changes of a table between two moments to a file.",
    text="""Write the changes of TABLE after one moment and up to another: from its log, or decoded again from the feed.

    TABLE is a present name or an identity. Nothing of the lake or the feed is changed; no Spark is started.
    """,
    examples=("extract shop.orders --from 2026-03-30T00:00:00Z --to 2026-03-31T00:00:00Z --out ./changes",),
    job="Writes the changes of a table after one moment and through another, each once or net, to a "
    "directory or bucket without files. Reads only. Refused where changes of the range are gone.",
    op="changes",
    work="Decode the changes of the range again, and write them as one file.",
    concerns="An extract concerns",
    writes=False,
)


def pairs(texts: Iterable[str], name: str) -> dict[str, str]:
    """Return the pairs of a repeated option NAME=VALUE; raises BadSettings."""
    options: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise BadSettings(f'{name} "{text}" is not of the form NAME=VALUE.')
        options[key] = value
    return options
