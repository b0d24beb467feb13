"""The rows from before the changefeed, as an external asset with a partition for each table of a dump.

    <changefeed>/dump ──▶ <changefeed>/ddl
      └─ partitions schema.table@TSO, those of the dump alone; `ddl` and `dml` have them too once they count

A partition is logged when a tick of the sensor first finds the table in a dump, and by the run that imports its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg

from cdc_assets.defs.names import asset_key, upstream_key
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import Report
from cdc_assets.model.splits import Import, Listing
from cdc_assets.model.steps import ApplyRows, CreateTable, Step
from cdc_assets.model.tso import tso_time
from cdc_assets.model.wording import counted
from cdc_assets.planning.partitions import PartitionKey, format_partition_key
from cdc_assets.planning.plan import Plan

MAX_SEEN = 200
"""Tables of dumps that one tick reports for the first time; the daemon writes an event for each."""


def dump_partitions(changefeed: str) -> dg.DynamicPartitionsDefinition:
    """Return the partitions of a changefeed's dump; no changefeed has them as its own (see `names.keys_name`)."""
    return dg.DynamicPartitionsDefinition(name=f"cdc-dump_{changefeed}")


def upstream_of_ddl(source: ConfiguredFeed) -> list[dg.AssetDep]:
    """Return the assets upstream of `ddl`: the feed, and its dump where the settings name one.

    Most versions of a table are in no dump, so the partitions of the two are not each other's: by their names, as
    Dagster would take them, no backfill of such a version could be launched.
    """
    before = [dg.AssetDep(_dump_key(source), partition_mapping=dg.AllPartitionMapping())] if _has_dump(source) else []
    return [dg.AssetDep(upstream_key(source.changefeed)), *before]


def _dump_key(source: ConfiguredFeed) -> dg.AssetKey:
    return asset_key(source.changefeed.name, "dump")


def _has_dump(source: ConfiguredFeed) -> bool:
    return bool(source.changefeed.initial.dump) or source.changefeed.initial.source is not None


def dump_spec(source: ConfiguredFeed) -> Iterator[dg.AssetSpec]:
    """Yield the asset of the dumps, or of the server, that the changefeed is joined to; nothing where there is none."""
    changefeed = source.changefeed
    if _has_dump(source):
        yield dg.AssetSpec(
            _dump_key(source),
            group_name=source.group,
            kinds={"tidb"},
            owners=list(changefeed.owners),
            partitions_def=dump_partitions(changefeed.name),
            metadata={"tz": changefeed.initial.tz},
            description="Rows of the tables from before the changefeed: a partition for each table that a dump "
            "(or the source itself) has, with the TSO at which it was read. The same partition of `ddl` makes the "
            "table, and of `dml` imports its rows. Read only.",
        )


# --- partitions -------------------------------------------------------------------------------------------------------


def _key_of(dump_import: Import) -> PartitionKey:
    return PartitionKey(dump_import.base.table, dump_import.base.at)


@dataclass(frozen=True, slots=True)
class NewInDumps:
    """Tables of dumps that Dagster did not know: their partitions, and what there is to say of each."""

    keys: tuple[str, ...] = ()
    events: tuple[dg.AssetMaterialization, ...] = ()

    def requests(self, changefeed: str) -> list[dg.AddDynamicPartitionsRequest]:
        """Return the requests of a tick for it."""
        return [dump_partitions(changefeed).build_add_request(list(self.keys))] if self.keys else []


def seen_in_dumps(instance: dg.DagsterInstance, source: ConfiguredFeed, listing: Listing, plan: Plan) -> NewInDumps:
    """Return the tables of dumps that Dagster does not have yet, as many as one tick reports."""
    if not listing.imports:
        return NewInDumps()
    name = source.changefeed.name
    partitions = set(instance.get_dynamic_partitions(str(dump_partitions(name).name)))
    fresh = {
        key: dump_import
        for dump_import in listing.imports
        if (key := format_partition_key(_key_of(dump_import))) not in partitions
    }
    chosen = sorted(fresh.items(), key=lambda item: (item[1].base.at, item[0]))[:MAX_SEEN]
    events = [
        dg.AssetMaterialization(
            _dump_key(source),
            description=_standing(source, plan, dump_import),
            partition=key,
            metadata=_facts(dump_import),
        )
        for key, dump_import in chosen
    ]
    return NewInDumps(tuple(key for key, _ in chosen), tuple(events))


def _facts(dump_import: Import) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "dagster/uri": dump_import.base.uri,
        "tso": str(dump_import.base.at),
        "time": tso_time(dump_import.base.at),
        "files": len({file.name for file in dump_import.files}),
        "file_bytes": sum(file.size for file in dump_import.files),
    }
    if dump_import.problem:
        facts["problem"] = dump_import.problem
    if dump_import.made_null:
        facts["NULL in the rows"] = dg.MetadataValue.json(dict(dump_import.made_null))
    return facts


def _standing(source: ConfiguredFeed, plan: Plan, dump_import: Import) -> str:
    """Return the sentence on a dump's table by the plan that saw it first."""
    if dump_import.problem:
        return f"It cannot be imported: {dump_import.problem}"
    if dump_import in plan.history.waiting:
        return f"It waits until the changefeed is complete through its TSO; it is through {plan.checkpoint}."
    for life, table in plan.history.lives.items():
        if table.base == dump_import.base:
            return "It is imported." if _is_in(plan, life) else "It is imported before all changes of the changefeed."
        if plan.history.offered.get(life) == dump_import.base:
            if table.gap is None:
                return f"{life} is in the lake without it, and lacks no rows."
            return (
                f"{life} is in the lake without its rows. To bring them, launch {source.group}_rebuild with "
                f'tables: ["{life}"], or with incomplete: true for every table like it.'
            )
    return "It is not used: a newer dump has the table, or another table has its name by now."


def _is_in(plan: Plan, life: Life) -> bool:
    state = plan.applied.get(life)
    return state is not None and state.base is not None


# --- what was imported ------------------------------------------------------------------------------------------------


def log_imported(
    context: Any, source: ConfiguredFeed, plan: Plan, step: Step, report: Report | None = None, rows: int = 0
) -> None:
    """Log the partition of a table whose rows a step brought from a dump; nothing for any other step.

    A table that was empty then has no such window: its creation brings all there is.
    """
    brought = plan.history.lives[step.life].brought
    begins = isinstance(step, CreateTable) and step.base is not None and not step.has_rows and step.begun is None
    if brought is None or not (begins or (isinstance(step, ApplyRows) and step.is_snapshot)):
        return
    metadata: dict[str, Any] = {"rows": dg.MetadataValue.int(rows)}
    if report is not None and not begins:
        metadata |= {"records": dg.MetadataValue.int(report.rows), "doubled_rows": dg.MetadataValue.int(report.doubled)}
        counts = {f"{column}: {rule}": count for (column, rule), count in report.notes.items()}
        metadata["fidelity"] = dg.MetadataValue.json(counts)
    description = f"imported: {counted(rows, 'row')}" if rows else "imported: it had no rows"
    _log(context, source, brought, description, metadata)


def log_rebuilt(context: Any, source: ConfiguredFeed, plan: Plan, life: Life) -> PartitionKey | None:
    """Log the partition of a table that a rebuild let begin with a dump and return it; None for any other table."""
    brought = plan.history.lives[life].brought if life in plan.history.lives else None
    if brought is None:
        return None
    _log(context, source, brought, f"{life} was built anew from it, and swapped in", {})
    return _key_of(brought)


def _log(context: Any, source: ConfiguredFeed, brought: Import, description: str, metadata: dict[str, Any]) -> None:
    name, key = source.changefeed.name, format_partition_key(_key_of(brought))
    context.instance.add_dynamic_partitions(str(dump_partitions(name).name), [key])
    context.log_event(
        dg.AssetMaterialization(
            _dump_key(source), description=description, partition=key, metadata={**_facts(brought), **metadata}
        )
    )


def base_metadata(plan: Plan, life: Life, key: PartitionKey) -> dict[str, Any]:
    """Return the dump from which a partition of `ddl` or `dml` takes its table, None for any other partition."""
    base = plan.history.lives[life].base
    if base is None or key != PartitionKey(base.table, base.at):
        return {}
    return {"dump": base.uri, "dump_tso": str(base.at)}
