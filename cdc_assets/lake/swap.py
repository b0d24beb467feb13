"""Tables that are built aside and take the place of the rows they replace, in one commit each.

A rebuild has a token. Its tables are those of a changefeed `<name>~<token>`, in namespaces and a directory of their
own, so they cannot be confused with live ones and can all be removed at once. A ticket (a property of the lake's own
namespace) is written before the first of them and removed after the last: tables whose ticket is not renewed any
more belong to a dead run. The commit that swaps carries the token, which proves to a later run that it was
made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from cdc_assets.errors import RebuildRefused, TableMoved
from cdc_assets.lake.commit import CommitTarget, columns_of, overwrite, publish, refuse_moved
from cdc_assets.lake.lake_table import (
    BASE,
    BEGINS,
    CHANGEFEED,
    COLUMNS,
    FORGOTTEN_THROUGH,
    GONE,
    IDENTITY,
    KEYED_SINCE,
    MISSING,
    NAME,
    REBUILD,
    REPAIRED,
    SINCE,
    WHOLE,
    LakeTable,
)
from cdc_assets.lake.layout import known_layout, layout_of_table, set_order, write_anew
from cdc_assets.lake.names import Identifier, aside_changefeed, format_identity, format_name, location
from cdc_assets.lake.schema import given_properties
from cdc_assets.lake.spark.failures import races
from cdc_assets.lake.spark.session import StepSession, quoted
from cdc_assets.lake.staging.storage import storage
from cdc_assets.lake.tables import Lake
from cdc_assets.lake.tickets import FORGET, LakeTickets, hold_back
from cdc_assets.lake.tickets import REBUILD as REBUILDING
from cdc_assets.model.decisions import Decisions
from cdc_assets.model.layout import OWN_PROPERTIES, TableLayout
from cdc_assets.model.progress import Life, Phase, Progress
from cdc_assets.model.reports import StepResult
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.steps import CreateTable
from cdc_assets.model.tickets import Ticket
from cdc_assets.model.tso import Tso

_OF_ROWS = (*BASE, BEGINS, COLUMNS, SINCE, KEYED_SINCE, MISSING)
"""Properties of a table that go with its rows, beside its label."""


class AsideLake(Lake):
    """The tables of one rebuild. Decisions about DDL are those of the live tables."""

    def __init__(self, live: Lake, token: str) -> None:
        name = aside_changefeed(live.changefeed, token)
        super().__init__(
            live.settings,
            name,
            lambda: live.workbench.sessions.spark,
            f"{live.state.places.own.aside}{token}_{{schema}}",
            live.workbench.decode,
        )
        self._live = live

    def decisions(self) -> Decisions:
        """Return the decisions of people about the live tables."""
        return self._live.decisions()


class Rebuilds:
    """The rebuilds of one changefeed's lake."""

    def __init__(self, live: Lake) -> None:
        self.live = live
        self._state = live.state
        self._own = live.state.places.own
        self._tickets = LakeTickets(live.state, REBUILDING)
        self._revisions: dict[str, dict[Life, str]] = {}

    # --- tickets ---

    def tickets(self) -> tuple[Ticket, ...]:
        """Return the rebuilds of this changefeed that began and did not end, oldest first."""
        return self._tickets.tickets()

    def touch(self, ticket: Ticket) -> None:
        """Write a ticket, or renew it."""
        self._tickets.touch(ticket)

    def removals(self) -> tuple[Ticket, ...]:
        """Return the runs that take rows out of this changefeed's tables for good, and did not end."""
        return LakeTickets(self._state, FORGET).tickets()

    def hold_back(self, token: str, lives: Iterable[Life]) -> None:
        """Let windows of these live tables, and of no others, wait until they are swapped, or the rebuild is dead."""
        hold_back(self._state, token, lives)

    def begin(self, token: str) -> AsideLake:
        """Return the lake in which the rebuild's tables are created.

        Live tables of which rows are forgotten from here on are not replaced by them.
        """
        self._revisions[token] = {life: table.revision for life, table in self._state.tables().items()}
        return AsideLake(self.live, token)

    # --- swapping ---

    def swapped(self, life: Life, token: str) -> StepResult | None:
        """Return the result of the rebuild's commit of that table, None if it was not made yet."""
        if life not in self._state.tables():
            return None
        made = self._state.snapshot_with(life, REBUILD, token)
        if made is None:
            return None
        return StepResult(("swapped in by a run that died after it",), made.parent_id, made.snapshot_id)

    def swap(self, aside: Lake, life: Life, token: str, through: Tso = 0) -> StepResult:
        """Give the live table the rows, columns, name and label of the aside table, in one commit.

        The aside table lacks nothing through the TSO `through`, be its label lower: a live table that is no further
        keeps its progress. Raises TableMoved, with nothing done, if the live table is ahead of the aside table, or
        moves meanwhile; RebuildRefused if rows of it were forgotten since the rebuild began.
        """
        started = time.monotonic()
        rebuilt_table = aside.state.find(life)
        self.live.applied()
        if life not in self._state.tables():
            return self._create(rebuilt_table, token, started)
        with self.live.workbench.on(life) as work, self._marked(rebuilt_table, token) as mark:
            session, label = work.session, rebuilt_table.label
            if self._revisions.get(token, {}).get(life, "") != work.lake_table.revision:
                raise RebuildRefused(
                    f"rows of {life} were forgotten since this rebuild of it began, and the table that was built aside "
                    "has them. It was not swapped in. A rebuild that begins now reads these rows again, as far as the "
                    "feed has them.",
                    table=str(life),
                )
            if label.progress < work.label.progress <= Progress(through, Phase.ROWS):
                label = replace(label, progress=work.label.progress)
            if label.progress < work.label.progress or label.ddl < work.label.ddl:
                raise TableMoved(
                    f"{life} advanced to {work.label.progress.tso} while it was rebuilt through {label.progress.tso}. "
                    "Apply that to the rebuilt table too and try again.",
                    table=str(life),
                )
            source = session.load(rebuilt_table.identifier)
            rows = _rows(session, rebuilt_table)
            properties = {NAME: format_name(rebuilt_table.name), **_of_rows(source, work.target.table)}
            properties |= {
                FORGOTTEN_THROUGH: "-1",
                REPAIRED: "-1",
                WHOLE: "-1",
            }  # the feed's rows are all there again, and no others
            properties |= {GONE: json.dumps(rebuilt_table.gone)} if rebuilt_table.gone else {}
            layout, live = known_layout(session, source), work.target.table
            if columns_of(source) == columns_of(live) and layout == layout_of_table(session, live):
                statement = (
                    f"INSERT OVERWRITE {work.target.name} SELECT * FROM {session.name(rebuilt_table.identifier)}"
                )
                publish(
                    work.target,
                    label,
                    rows=lambda: overwrite(work.target, rows, statement),
                    schema=lambda transaction: _document(transaction, source),
                    properties={**{name: value or None for name, value in properties.items()}, NAME: properties[NAME]},
                    mark=mark,
                )
            else:
                summary = {**label.properties(), **mark}
                _replace(work.target, _documented(rows, source), summary, properties, layout)
            return self.live.workbench.result(work, started)

    @contextmanager
    def _marked(self, rebuilt_table: LakeTable, token: str) -> Iterator[dict[str, str]]:
        """Yield the properties of a swap beside its label; the table has all quarantined records then."""
        records = self.live.workbench.records
        with records.bringing_in(
            rebuilt_table.life, records.places_in(rebuilt_table.life, rebuilt_table.label.rows_from)
        ) as mark:
            yield {REBUILD: token, **mark}

    def close_records(self, aside: Lake, life: Life) -> None:
        """Close the quarantined records of a dropped table: those that exchanged rows with it have them now."""
        records = self.live.workbench.records
        records.close(life, records.places_in(life, aside.state.find(life).label.rows_from))

    def _create(self, rebuilt_table: LakeTable, token: str, started: float) -> StepResult:
        """Create a live table that did not exist, with its rows and its label at once."""
        life, name, state = rebuilt_table.life, rebuilt_table.name, self._state
        if name is None:
            raise RebuildRefused(
                f"{life} was dropped at the source and is not in the lake: there is nothing to rebuild."
            )
        state.places.refuse_reserved(name, life)
        home = state.places.home(name)
        self.live.workbench.free(home, CreateTable(life, life.version, name, TableSchema(())))
        state.ensure_namespace(home[0])
        with (
            races(str(life)),
            self.live.workbench.sessions.step() as session,
            self._marked(rebuilt_table, token) as mark,
        ):
            source = session.load(rebuilt_table.identifier)
            properties = {
                **OWN_PROPERTIES,
                **{name: text for name, text in given_properties(rebuilt_table.layout.properties).items() if text},
                CHANGEFEED: self.live.changefeed,
                IDENTITY: format_identity(life),
                NAME: format_name(name),
                GONE: json.dumps(rebuilt_table.gone),
                **_of_rows(source),
                "location": location(self.live.settings.root, self.live.changefeed, life),
            }
            rows = _documented(_rows(session, rebuilt_table), source)
            summary = {**rebuilt_table.label.properties(), **mark}
            layout = known_layout(session, source)
            write_anew(session, "create", session.name(home), rows, layout, properties, summary)
            set_order(session, session.load(home), layout)
            statements = (
                f"CREATE TABLE {session.name(home)} AS SELECT * FROM {session.name(rebuilt_table.identifier)}",
            )
        lake_table = state.find(life)
        return StepResult(
            statements, None, lake_table.snapshot_id, lake_table.rows or 0, seconds=time.monotonic() - started
        )

    # --- cleaning up ---

    def end(self, token: str) -> int:
        """Remove a rebuild's tables with their files, then its ticket; return how many tables there were.

        Repeated after a crash at any line, it removes the rest.
        """
        self.hold_back(token, ())
        state, name = self._state, aside_changefeed(self.live.changefeed, token)
        vends = self.live.settings.kind.vends
        tables = AsideLake(self.live, token).state.tables()
        for lake_table in tables.values():
            self._drop(lake_table.identifier) if vends else state.unregister(lake_table.identifier)
        if not vends:
            self._remove_directory(name)
        for namespace in self._namespaces(token):
            with suppress(NoSuchNamespaceError, NamespaceNotEmptyError):
                state.catalog.drop_namespace((namespace,))
        self._tickets.end(token)
        return len(tables)

    def end_stale(self, now: float | None = None) -> int:
        """Remove the tables of dead rebuilds; return how many. `now` is seconds since 1970."""
        dead = {ticket.token for ticket in self.tickets() if not ticket.runs(now)}
        tokens = {ticket.token for ticket in self.tickets()}
        return sum(self.end(token) for token in sorted(dead | (self._tokens() - tokens)))

    def _tokens(self) -> set[str]:
        """The tokens in the names of aside tables."""
        prefix = aside_changefeed(self.live.changefeed, "")
        return {name.removeprefix(prefix) for name in self._state.changefeeds() if name.startswith(prefix)}

    def _namespaces(self, token: str) -> Iterable[str]:
        prefix = f"{self._own.aside}{token}_"
        return [
            namespace[0]
            for namespace in self._state.catalog.list_namespaces()
            if len(namespace) == 1 and namespace[0].startswith(prefix)
        ]

    def _drop(self, identifier: Identifier) -> None:
        """Remove a table with its files through its catalog, which may be the only one with access."""
        with races(".".join(identifier)), self.live.workbench.sessions.step() as session:
            session.iceberg.drop(identifier)

    def _remove_directory(self, changefeed: str) -> None:
        place = location(self.live.settings.root, changefeed, None)
        system, path = storage(self.live.settings.pyiceberg_properties(), place)
        with suppress(FileNotFoundError):
            system.delete_dir(path)


# --- rows and columns -------------------------------------------------------------------------------------------------


def _rows(session: StepSession, lake_table: LakeTable) -> DataFrame:
    """Read a table as of its newest snapshot now."""
    return session.spark.read.option("versionAsOf", str(lake_table.snapshot_id)).table(
        session.name(lake_table.identifier)
    )


def _of_rows(source: Any, live: Any = None) -> dict[str, str]:
    """Return the properties of a table about its rows and columns, "" for those that only the other table has."""
    theirs, live_properties = dict(source.properties()), {} if live is None else dict(live.properties())
    return {name: theirs.get(name, "") for name in _OF_ROWS if name in theirs or name in live_properties}


def _document(transaction: Any, source: Any) -> None:
    """Give columns the documentation of those with the same names."""
    update = transaction.updateSchema()
    docs = {field.name(): field.doc() for field in source.schema().columns()}
    for field in transaction.table().schema().columns():
        if docs[field.name()] != field.doc():
            update.updateColumnDoc(field.name(), docs[field.name()])
    update.commit()


def _documented(rows: DataFrame, source: Any) -> DataFrame:
    columns = [
        sql.col(quoted(field.name())).alias(field.name(), metadata={"comment": field.doc() or ""})
        for field in source.schema().columns()
    ]
    return rows.select(*columns)


def _replace(
    target: CommitTarget,
    rows: DataFrame,
    summary: Mapping[str, str],
    properties: Mapping[str, str],
    layout: TableLayout,
) -> None:
    """Replace columns and rows. Iceberg lets it win over a concurrent commit, whose label is lost with its rows."""
    all_properties = {**properties, "location": target.table.location(), "format-version": "3"}
    target.session.statements.append(f"REPLACE TABLE {target.name} AS SELECT …")
    refuse_moved(target, target.session.load(target.identifier))
    write_anew(target.session, "replace", target.name, rows, layout, all_properties, summary)
    set_order(target.session, target.session.load(target.identifier), layout)
