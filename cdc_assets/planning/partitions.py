"""Partition keys `schema.table@version`, both ways.

The version has 20 digits, so that the order of keys is the order of versions: asset backfills create runs in key
order. Everything but letters, digits, `_` and `-` is percent-encoded, because Dagster's range grammar uses other signs.
A database-level schema file is the partition `schema@version`.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from cdc_assets.errors import BadSettings
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.planning.plan import Plan


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """One schema file: the DDL of `version`, then the rows up to the next version."""

    table: TableId
    version: Tso


def format_partition_key(key: PartitionKey) -> str:
    """Return the text of a key; the inverse of parse_partition_key."""
    return f"{format_table(key.table)}@{key.version:020d}"


def format_table(table: TableId) -> str:
    """Return the prefix of a table's partition keys, also the value of the run tag `cdc/table`."""
    names = (table.schema, table.table) if table.table else (table.schema,)
    return ".".join(_encoded(name) for name in names)


def parse_partition_key(text: str) -> PartitionKey:
    """Parse a key; raises BadSettings for any other text."""
    name, sign, version = text.rpartition("@")
    parts = [unquote(part) for part in name.split(".")]
    if not sign or not version.isdigit() or len(parts) > 2 or not all(parts):
        raise BadSettings(
            f'"{text}" is not a partition of a changefeed; expected schema.table@version with a version of 20 digits, '
            "as the sensor adds them."
        )
    return PartitionKey(TableId(parts[0], parts[1] if len(parts) == 2 else ""), int(version))


def _encoded(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")


def partition_keys(plan: Plan) -> tuple[PartitionKey, ...]:
    """Return the partitions of every schema file at or below the checkpoint, in order of version."""
    keys = {PartitionKey(event.file.table, event.at) for t in plan.history.lives.values() for event in t.events}
    keys |= {PartitionKey(file.table, file.version) for file in plan.history.other_files}
    return tuple(sorted(keys, key=lambda key: (key.version, key.table)))


def life_of(plan: Plan, key: PartitionKey) -> tuple[Life, ...]:
    """Return the lives that a partition's DDL is about: one, for database-level DDL those it drops, for a view none."""
    return tuple(
        life
        for life, table in plan.history.lives.items()
        if any(event.at == key.version and event.file.table == key.table for event in table.events)
    )


def limit_of(plan: Plan, life: Life, version: Tso) -> Tso:
    """Return the TSO at which the rows of a version end: at the life's next version, or the checkpoint."""
    later = [event.at for event in plan.history.lives[life].events if event.at > version]
    return min([*(at - 1 for at in later), plan.checkpoint])
