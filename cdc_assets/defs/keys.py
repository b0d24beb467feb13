"""The partition keys of a changefeed in Dagster, and those that a plan adds to them."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from cdc_assets.defs.names import keys_name
from cdc_assets.planning.partitions import format_partition_key, partition_keys
from cdc_assets.planning.plan import Plan

KEYS_AT_ONCE = 10_000
"""Keys added in one statement."""


def new_keys(instance: dg.DagsterInstance, changefeed: str, plan: Plan) -> list[str]:
    """Return the keys of a plan's schema files that Dagster does not have yet, in order of version."""
    known = set(instance.get_dynamic_partitions(keys_name(changefeed)))
    return [key for key in map(format_partition_key, partition_keys(plan)) if key not in known]


def add_keys(instance: dg.DagsterInstance, changefeed: str, keys: Sequence[str]) -> None:
    """Add keys; existing ones stay."""
    for at in range(0, len(keys), KEYS_AT_ONCE):
        instance.add_dynamic_partitions(keys_name(changefeed), keys[at : at + KEYS_AT_ONCE])
