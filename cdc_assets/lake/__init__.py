"""Iceberg tables: the only place that writes. Reads its progress back with PyIceberg, without a JVM.

tables               Lake: what the pipeline calls
workbench            what steps share: the warehouse, sessions, a table with its label, results of steps
steps                tables created, renamed, dropped, exchanged
windows              rows staged and committed; those of repairs and of records that fit after a fix, too
state                contents of the catalog (no JVM)
lake_table           a table by its metadata file, with its label (no JVM)
scan                 rows of a table as of one snapshot (no JVM)
namespaces           the catalog's namespaces, and decisions as properties of the lake's own one (no JVM)
table_renames        tables brought to the names that they should have (no JVM)
names                which table has which name (no JVM)
failures             errors of catalogs and stores, each as a sentence (no JVM)
label                progress as snapshot properties (no JVM)
metadata_file        the few members of a table's metadata that matter here (no JVM)
table_files          files below a table's directories, and those that its snapshots refer to (no JVM)
growing              tables of the lake itself that only grow (no JVM)
row_groups           their files, written and read wherever a task runs (no JVM)
staging/             files -> reduced changes as Parquet, on the executors
printed_rows         which rows without key are equal where the source prints values in several ways
key_matching         conditions by which rows and staged changes are of one key
row_delta            a small one without Spark: places of its keys, deletion vectors, a data file
compaction           small files put together without Spark, by whoever writes the table
commit               guarded, labelled commits
layout               partitions, sort orders and properties in Iceberg's words
schema               tables created, changed, rewritten; names that no column can have
swap                 tables built aside and swapped in one commit
tickets              work that must not run beside other work, as properties of the lake's own namespace (no JVM)
chores               what is due for a table's files (no JVM)
recent_states        whether states that runs have just written are what they should be, without Spark (no JVM)
maintenance          files and snapshots kept in shape
catalogs/            the catalog, without a JVM
spark/               Spark sessions and the JVM gateway
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_assets.lake.spark.session import spark_configuration, spark_session
    from cdc_assets.lake.state import LakeState
    from cdc_assets.lake.tables import Lake

__all__ = ["Lake", "LakeState", "spark_configuration", "spark_session"]

_HOMES = {
    "Lake": "tables",
    "LakeState": "state",
    "spark_configuration": "spark.session",
    "spark_session": "spark.session",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for: reading progress must not import Spark."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
