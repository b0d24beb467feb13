"""Settings -> open parts. What the command line, the demo and Dagster's resources have in common.

What lists, plans or decodes is imported where it is needed: `status` does without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_assets.account import Account, Lag
from cdc_assets.describe import describe_tables, tso_time
from cdc_assets.errors import BadSettings
from cdc_assets.ledger import Ledger
from cdc_assets.model import Applied, DataFile, Life, Listing, TableId, Tso, seconds_between

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.config import ChangefeedSettings, LakeSettings
    from cdc_assets.conformance import Finding
    from cdc_assets.describe import TableText
    from cdc_assets.fidelity import ColumnFidelity
    from cdc_assets.history import History
    from cdc_assets.lake import LakeState
    from cdc_assets.model import Step
    from cdc_assets.pipeline import Pipeline
    from cdc_assets.quarantine import QuarantinedRow
    from cdc_assets.release import Release, Releases

__all__ = [
    "Inspection",
    "TableStatus",
    "begun",
    "conformance_report",
    "inspect_changefeed",
    "kept_releases",
    "known_tables",
    "lake_status",
    "open_ledger",
    "open_pipeline",
    "open_state",
    "quarantined_counts",
    "quarantined_records",
    "read_ledger",
    "row_counts",
]


@contextmanager
def open_ledger(lake: LakeSettings) -> Iterator[Ledger]:
    """Open the lake's ledger: its `ledger` setting, or `ledger.db` in a local warehouse; made when missing."""
    ledger = Ledger(ledger_url(lake))
    try:
        yield ledger
    finally:
        ledger.close()


def begun(lake: LakeSettings | None) -> LakeSettings | None:
    """Return the lake if there is one to look into: a local directory without a catalog is as good as none."""
    directory = lake.local_directory if lake is not None else None
    return lake if directory is None or (directory / "catalog.db").exists() else None


@contextmanager
def read_ledger(lake: LakeSettings) -> Iterator[Ledger]:
    """Open the ledger to read from it; nothing is made. Raises BadSettings where there is no lake."""
    if lake.ledger or lake.local_directory is None:
        with open_ledger(lake) as ledger:
            yield ledger
        return
    if not lake.local_directory.is_dir():
        raise BadSettings(
            f"{lake.local_directory} does not exist; expected the directory of a lake. Give the --warehouse of an "
            "apply, or apply a changefeed to it first."
        )
    file = lake.local_directory / "ledger.db"
    ledger = Ledger(f"sqlite:///{file}" if file.exists() else "sqlite://")
    try:
        yield ledger
    finally:
        ledger.close()


@contextmanager
def open_state(lake: LakeSettings, changefeed: str, namespace: str = "{schema}") -> Iterator[LakeState]:
    """Open what the lake holds of a changefeed, to read it without a JVM; its connections end with the block."""
    from cdc_assets.lake.state import LakeState

    state = LakeState(lake, changefeed, namespace)
    try:
        yield state
    finally:
        state.close()


def ledger_url(lake: LakeSettings) -> str:
    """Return the SQLAlchemy URL of the ledger; raises BadSettings where none can be derived."""
    if lake.ledger:
        return lake.ledger
    directory = lake.local_directory
    if directory is None:
        raise BadSettings(
            f"the warehouse {lake.warehouse} is not a local directory, so the ledger needs a place of its own. "
            "Name a database in the settings: lake: {ledger: postgresql+psycopg2://…}."
        )
    directory.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{directory}/ledger.db"


@contextmanager
def open_pipeline(
    settings: ChangefeedSettings,
    lake: LakeSettings | None,
    watch: Callable[[Step, int, int], None] | None = None,
    spark: Callable[[], SparkSession] | None = None,
    fuse: bool = True,
) -> Iterator[Pipeline]:
    """Open a changefeed and a lake. Spark starts when the first step needs it, and is stopped if it was started here.

    Without a lake everything is planned as into an empty one.
    """
    from cdc_assets.changefeed import Changefeed
    from cdc_assets.pipeline import Pipeline

    feed = Changefeed(settings)
    if lake is None:
        yield Pipeline(settings, feed, _Nothing(), Ledger("sqlite://"), watch, fuse)  # type: ignore[arg-type]
        return
    from cdc_assets.lake import Lake

    with open_ledger(lake) as ledger:
        opened = Lake(lake, settings.name, spark, settings.namespace)
        try:
            yield Pipeline(settings, feed, opened, ledger, watch, fuse)
        finally:
            opened.close()


class _Nothing:
    """The lake of somebody who only looks."""

    def applied(self) -> Mapping[Life, Applied]:
        return {}

    def releases(self) -> Releases:
        return {}


@dataclass(frozen=True, slots=True)
class Inspection:
    """What lies under a changefeed's prefix, for a person."""

    changefeed: str
    uri: str
    checkpoint: Tso
    checkpoint_time: str
    tables: tuple[TableText, ...]
    ignored: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The findings as sentences."""
        return tuple(finding.text for finding in self.findings)


def inspect_changefeed(settings: ChangefeedSettings) -> Inspection:
    """List a changefeed and describe it; reads `metadata`, schema files and the heads of a few data files."""
    listing, history, findings = _looked_at(settings)
    return Inspection(
        settings.name,
        settings.uri,
        listing.checkpoint,
        tso_time(listing.checkpoint),
        tuple(describe_tables(listing, history)),
        listing.ignored,
        listing.problems,
        findings,
    )


def conformance_report(settings: ChangefeedSettings) -> tuple[Finding, ...]:
    """Return what is to be known of a changefeed before it is applied, the gravest first.

    Reads `metadata`, schema files and the heads of a few data files. What stops or holds is severity STOP or HOLD.
    """
    return _looked_at(settings)[2]


def _looked_at(settings: ChangefeedSettings) -> tuple[Listing, History, tuple[Finding, ...]]:
    from cdc_assets.changefeed import Changefeed
    from cdc_assets.conformance import conformance, take_sample
    from cdc_assets.history import read_history

    feed, options = Changefeed(settings), settings.sink_options
    listing = feed.listing()
    history = read_history(listing.schema_files, listing.checkpoint, settings.keys, settings.policies)
    files: dict[TableId, list[DataFile]] = {}
    for file in listing.data_files:
        known = history.decoding.get((file.root, file.version))
        if known is not None:
            files.setdefault(known[0], []).append(file)
    sample = take_sample(feed.opener, files.values())
    accepted = settings.accept_unordered
    return listing, history, conformance(listing, history, options, sample, accept_unordered=accepted)


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table of the lake. `lag_seconds` is the time from `through` to the newest checkpoint that was seen.

    `rows` is None for a table that is not there. `check` is passed, failed or `` before anything was applied.
    `quarantined` counts records that wait in quarantine; `fidelity` is empty before a run has looked at the table.
    `stages` is how long the newest applied change was under way, None before one was applied or where rows carry no
    commit-ts; `miscounted` says which window's rows did not add up.
    """

    changefeed: str
    table: str
    version: Tso
    rows: int | None
    through: Tso
    through_time: str
    checkpoint: Tso
    lag_seconds: float
    state: str
    check: str
    reason: str = ""
    ways: tuple[str, ...] = ()
    quarantined: int = 0
    fidelity: tuple[ColumnFidelity, ...] = ()
    stages: Lag | None = None
    miscounted: str = ""


def known_tables(lake: LakeSettings, changefeed: str, namespace: str = "{schema}") -> list[TableId]:
    """Return the tables of a changefeed that runs have seen and that are not dropped; none where no run was yet.

    A table that waits for a name which belongs to another changefeed of the lake is none of them.
    """
    directory = lake.local_directory
    if not lake.ledger and (directory is None or not (directory / "ledger.db").exists()):
        return []
    with read_ledger(lake) as ledger:
        states = ledger.states()
    mine = {state.name: state for state in states.get(changefeed, ()) if state.state != "dropped"}
    theirs = {
        state.name: other
        for other in sorted(states.keys() - {changefeed}, reverse=True)
        for state in states[other]
        if state.state != "dropped"
    }
    disputed = [name for name, state in mine.items() if name in theirs and state.through < state.checkpoint]
    if disputed:
        with open_state(lake, changefeed, namespace) as held:
            owners = {name: held.owner(name) for name in disputed}
        lost = {name for name in disputed if (theirs[name] if owners[name] is None else owners[name]) != changefeed}
        mine = {name: state for name, state in mine.items() if name not in lost}
    return sorted(mine)


def quarantined_records(lake: LakeSettings, changefeed: str, *, replayed: bool = False) -> tuple[QuarantinedRow, ...]:
    """Return the records of a changefeed that wait in quarantine, or all that ever were there, with their bytes.

    Reads the lake only, without a JVM.
    """
    from cdc_assets.lake import quarantine

    with open_state(lake, changefeed) as state:
        return quarantine.read(state, raw=True, replayed=replayed)


def kept_releases(lake: LakeSettings, changefeed: str) -> tuple[Release, ...]:
    """Return what people decided about single DDL of a changefeed, by time. Reads the lake only, without a JVM."""
    with open_state(lake, changefeed) as state:
        return tuple(sorted(state.releases().values(), key=lambda one: (one.when, one.version)))


def row_counts(lake: LakeSettings, settings: ChangefeedSettings) -> dict[str, int | None]:
    """Return how many rows each table of a changefeed has, by the text of its life; from metadata, without a JVM."""
    with open_state(lake, settings.name, settings.namespace) as state:
        return state.row_counts()


def quarantined_counts(state: LakeState) -> dict[str, int]:
    """Return how many records of each table wait in quarantine, by the text of its life."""
    from cdc_assets.lake.names import OWN

    if not any(namespace == OWN for (namespace, _), _ in state.entries()):
        return {}  # nothing was ever kept, and asking further would bring decoders along
    from cdc_assets.lake import quarantine

    return {str(life): count for life, count in quarantine.counts(state).items()}


def lake_status(lake: LakeSettings, only: str = "", fidelity: bool = False) -> list[TableStatus]:
    """Return every table that a run has looked at, by changefeed and name. Reads metadata only, without a JVM.

    With `only`, a changefeed's name, those of other changefeeds are left out and not looked at. The columns'
    fidelity is there where asked for.
    """
    with read_ledger(lake) as ledger:
        states = {name: tables for name, tables in ledger.states().items() if only in ("", name)}
        accounts = {changefeed: ledger.accounts(changefeed) for changefeed in states}
        kept = {changefeed: ledger.fidelities(changefeed) if fidelity else {} for changefeed in states}
    rows: list[TableStatus] = []
    for changefeed, tables in states.items():
        windows = accounts.get(changefeed, {})
        with open_state(lake, changefeed) as state:
            counts, waiting = state.row_counts(), quarantined_counts(state)
        rows += [
            TableStatus(
                changefeed,
                str(table.name),
                table.version,
                counts.get(table.life),
                table.through,
                tso_time(table.through) if table.through else "",
                table.checkpoint,
                seconds_between(table.through, table.checkpoint),
                table.state,
                "failed" if table.state in ("held", "failed") else "passed",
                table.reason,
                table.ways,
                waiting.get(table.life, 0),
                kept[changefeed].get(table.life, ()),
                *_accounted(windows.get(table.life, ())),
            )
            for table in tables
        ]
    return rows


def _accounted(windows: Sequence[Account]) -> tuple[Lag | None, str]:
    """The stages of the newest change, and the first window that does not add up."""
    newest = windows[-1].lag if windows else None
    return newest, next((one.mismatch for one in windows if one.mismatch), "")
