"""Every name in Dagster, derived in one place.

    changefeed ──▶ feed_name       prefix of the names of its jobs, sensors, ops and assets; also its group
    table      ──▶ lake_key        a part of an asset key may have any character but `/`, by which Dagster joins them
    check      ──▶ check_output    an output of an op

For groups, jobs, ops, inputs and outputs Dagster accepts letters, digits and `_`; when it derives such a name from an
asset key it turns `-` and `.` into `_`, so that two names may collide. Any other name is replaced here by one that ends
in a digest of the original: different names stay different, in letter case too, and do not depend on other names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import dagster as dg

from cdc_assets.model.schema import TableId
from cdc_assets.planning.partitions import format_partition_key, partition_keys
from cdc_assets.planning.plan import Plan
from cdc_assets.settings.config import ChangefeedSettings

_PLAIN = re.compile(r"[A-Za-z0-9_]+")
_DIGESTED = re.compile(r".*_[0-9a-f]{12}")


def feed_name(changefeed: str) -> str:
    """Return a changefeed's name in groups, jobs, ops and asset keys: itself if it is `[A-Za-z0-9_]+`."""
    plain = _PLAIN.fullmatch(changefeed) and not _DIGESTED.fullmatch(changefeed)
    return changefeed if plain else _identifier(changefeed, changefeed)


def keys_name(changefeed: str) -> str:
    """Return the name of a changefeed's partitions definition in Dagster."""
    return f"cdc_{changefeed}"


def asset_key(changefeed: str, asset: str) -> dg.AssetKey:
    """Return the key of a changefeed's `bucket`, `topics`, `landing`, `dump`, `ddl` or `dml`."""
    return dg.AssetKey([feed_name(changefeed), asset])


def feed_key(changefeed: ChangefeedSettings) -> dg.AssetKey:
    """Return the key of what TiCDC writes to: a bucket, or topics."""
    return asset_key(changefeed.name, "topics" if changefeed.source_options.is_landed else "bucket")


def upstream_key(changefeed: ChangefeedSettings) -> dg.AssetKey:
    """Return the key of what a changefeed's tables are read from: its bucket, or what was landed of its topics."""
    return asset_key(changefeed.name, "landing") if changefeed.source_options.is_landed else feed_key(changefeed)


def lake_key(changefeed: ChangefeedSettings, table: TableId) -> dg.AssetKey:
    """Return the key of a lake table: its namespace and name, unique in a lake."""
    parts = changefeed.namespace_of(table.schema), table.table
    return dg.AssetKey(["lake", *(part.replace("%", "%25").replace("/", "%2F") for part in parts)])


def changes_key(changefeed: ChangefeedSettings, table: TableId) -> dg.AssetKey:
    """Return the key of the changes of a table by hours or days (setting `extracts`)."""
    return dg.AssetKey(["changes", *lake_key(changefeed, table).path[1:]])


def check_output(key: dg.AssetKey, check: str = "") -> str:
    """Return the name of an op's output for a check of an asset; without a check, of the op's input for the asset."""
    return _identifier("_".join([*key.path, check]), "\0".join([*key.path, check]))


def shown(table: TableId) -> str:
    """Return a table's name as a unique label: quoted only if a name has a dot or a backtick."""
    if not any(sign in part for part in (table.schema, table.table) for sign in ".`"):
        return str(table)
    return ".".join(f"`{part.replace('`', '``')}`" for part in (table.schema, table.table) if part)


def _identifier(text: str, meant: str) -> str:
    """Return `text` with characters that Dagster accepts and a digest of `meant`, which makes it unique."""
    digest = hashlib.sha256(meant.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{re.sub('[^A-Za-z0-9_]', '_', text)}_{digest}"


KEYS_AT_ONCE = 10_000
"""Keys added in one statement."""


def new_keys(instance: dg.DagsterInstance, changefeed: str, plan: Plan) -> list[str]:
    """Return the keys of a plan's schema files that Dagster does not have yet, in order of version."""
    present_keys = set(instance.get_dynamic_partitions(keys_name(changefeed)))
    return [key for key in map(format_partition_key, partition_keys(plan)) if key not in present_keys]


def add_keys(instance: dg.DagsterInstance, changefeed: str, keys: Sequence[str]) -> None:
    """Add keys; existing ones stay."""
    for at in range(0, len(keys), KEYS_AT_ONCE):
        instance.add_dynamic_partitions(keys_name(changefeed), keys[at : at + KEYS_AT_ONCE])
