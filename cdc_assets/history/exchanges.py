"""EXCHANGE PARTITION: one DDL, two lives that exchange rows. Both get an event, and one decision applies to both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdc_assets import ddl
from cdc_assets.ddl.kept_columns import bare
from cdc_assets.errors import CdcError
from cdc_assets.features.dumps.history import unknown_values
from cdc_assets.history.lives import MISSING_DDL, Lives, unchanged
from cdc_assets.history.policies import PolicyDecision, SchemaEffect, by_policy
from cdc_assets.history.releases import ways_out
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.schema_changes import DeleteRows
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.table_history import Changed, Event, Exchanged, Held, TableHistory


def exchange(
    lives: Lives, file: SchemaFile, statement: ddl.Exchange, files: Sequence[SchemaFile]
) -> tuple[SchemaFile, ...]:
    """Add the event to both tables. Return the second table's files of the version, which belong to the event.

    They have no DDL text, and are not events themselves if both tables are known.
    """
    (name, *others) = _partners(lives, file, statement, files)
    table, other = lives.holder(file.table), lives.holder(name)
    if others and table is not None and lives.rules.release(table.life, file.version) is None:
        names = (name, *others)
        why = f"{file.query}: it names no database, and may exchange rows with any of {', '.join(map(str, names))}."
        whole = f"give it with a database as the DDL, as in {file.query.rstrip('; ')} with {name} for the second table"
        ways = ways_out(table.name or file.table, file.version, ("apply", "skip"), (whole,))
        for doubtful in filter(None, map(lives.holder, (file.table, *names))):
            lives.add(doubtful.life, Held(*unchanged(doubtful, file), why, ways))
        return ()
    companions = tuple(
        companion for companion in files if companion.table.folded == name.folded and not companion.query
    )
    sides = [(table, other, file), (other, table, (*companions, replace(file, table=name))[0])]
    effects = {history.life: lives.hidden(history, own) for history, _, own in sides if history is not None}
    reason, predicate = "", None
    if table is None or other is None:
        missing = file.table if table is None else name
        reason = f"{file.query}: {missing} is not in the feed, so the exchanged rows are not known."
    else:
        reason, predicate = _exchangeable(file, statement, effects[table.life], effects[other.life])
        unknown = next(filter(None, (unknown_values(history, predicate) for history in (table, other))), "")
        reason, predicate = (f"{file.query}: {unknown}", None) if unknown else (reason, predicate)
    decision = _decision(lives, file, [history for history in (table, other) if history is not None])
    predicate = ddl.confirm_nulls(predicate) if predicate is not None and decision.by_own_text else predicate
    for history, partner_history, own in sides:
        if history is not None:
            partner = None if partner_history is None else partner_history.life
            rows = None
            if partner_history is not None and predicate is not None:
                rows = (partner_history.life, predicate, own is file, partner_history.made_null)
            event = _event(file, history, effects[history.life], (reason, decision), partner, rows)
            lives.add(history.life, event)
            if isinstance(event, Exchanged) and event.made_null:
                lives.tables[history.life] = replace(lives.tables[history.life], mixed=True)
    return companions if other is not None else ()


def _partners(
    lives: Lives, file: SchemaFile, statement: ddl.Exchange, files: Sequence[SchemaFile]
) -> tuple[TableId, ...]:
    """Return the table that exchanges rows with that of a file: several, if nothing tells which of them is meant.

    A text that names no database means that of the session, which was not recorded. TiCDC writes a second file of the
    version for the table that is meant.
    """
    if statement.other.schema:
        return (statement.other,)
    near, table = TableId(file.table.schema, statement.other.table), lives.holder(file.table)
    second = [other.table for other in files if not other.query and other.table.folded.table == near.folded.table]
    if len(second) == 1:
        return (second[0],)
    named = [name for name in lives.holders if name.folded.table == near.folded.table and name != file.table]
    alike = [
        name for name in named if table is None or table.schema.decodes_like(lives.tables[lives.holders[name]].schema)
    ]
    return tuple(alike) or (near,)


def _decision(lives: Lives, file: SchemaFile, tables: Sequence[TableHistory]) -> PolicyDecision:
    """One release decides both tables of an exchange."""
    decisions = [lives.rules.decide(table.life, file.version, lives.rules.kinds(file)) for table in tables]
    return next((d for d in decisions if d.release is not None), decisions[0] if decisions else PolicyDecision())


def _exchangeable(
    file: SchemaFile, statement: ddl.Exchange, table: SchemaEffect, other: SchemaEffect
) -> tuple[str, ddl.Predicate | None]:
    """Return why two tables cannot exchange rows, or the condition for those of the partition."""
    schema = table.after
    if table.reason or other.reason:
        return f"{file.query}: {MISSING_DDL} {table.reason or other.reason}", None
    if schema.partitioning is None:
        return f"{file.query}: the partitions of {file.table} are not known, its CREATE TABLE is not in the feed.", None
    if bare(schema) != schema or bare(other.after) != other.after:
        return f"{file.query}: one of the tables keeps a dropped column, so their columns differ.", None
    if not schema.decodes_like(other.after):
        return f"{file.query}: the two tables differ in their columns, so a DDL of one is not in the changefeed.", None
    try:
        rows = ddl.exchange_predicate(schema.partitioning, statement.partition, schema, by_server=file.by_server)
        return "", rows
    except CdcError as error:
        return f"{file.query}: {error.message}", None


def _event(
    file: SchemaFile,
    table: TableHistory,
    effect: SchemaEffect,
    decided: tuple[str, PolicyDecision],
    other: Life | None,
    rows: tuple[Life, ddl.Predicate, bool, Mapping[str, str]] | None,
) -> Event:
    """The event of one of the tables; `found` are changes of its columns without a DDL."""
    reason, decision = decided
    after, hidden = (table.schema, ()) if effect.reason else (effect.after, effect.changes)
    common = (file, table.schema, after, table.name)
    release = decision.release
    if decision.way in ("skip", "rebuild"):
        changes = (DeleteRows(None),) if decision.way == "rebuild" else ()
        return Changed(*common, changes, other, release=release, hidden=hidden)
    if rows is not None and not reason and decision.way == "apply":
        return Exchanged(*common, *rows, release=release, hidden=hidden)
    offered = ("apply" if reason else "as written", "skip", "rebuild")
    ways = ways_out(table.name or table.life, file.version, offered)
    why = reason or by_policy(file, decision.kind)
    return Held(*common, why, ways, other, release=release, hidden=hidden)
