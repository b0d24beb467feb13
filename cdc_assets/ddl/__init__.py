"""DDL texts and schema files -> what they mean. Pure: no I/O, no clock. sqlglot is used here only, for its tokenizer.

    SQL text ────▶ created     TableSchema of a new table by its CREATE TABLE alone
    SchemaFile ──▶ statement   which kind of DDL
               ──▶ create      the same beside its file (text: members, collations, virtual, keys, partitions)
               ──▶ evolve      TableSchema before + file -> after, SchemaChanges in an executable order
               ──▶ follow      the same by plain difference, for a DDL whose effect on rows is left out
               ──▶ kinds       which policies concern it
    Partitioning ─▶ partition_predicate ─▶ spark_sql | polars_expr

Where there is a schema file its columns are the truth; texts break ties and tell what columns cannot.
"""

from __future__ import annotations

from cdc_assets.ddl.defaults import given_defaults
from cdc_assets.ddl.evolve import evolve, follow
from cdc_assets.ddl.kinds import kinds
from cdc_assets.ddl.partitions import exchange_predicate, partition_predicate
from cdc_assets.ddl.predicate import as_told, polars_expr, spark_sql, undated, undated_rows
from cdc_assets.ddl.schema import create, created, key_of
from cdc_assets.ddl.statement import (
    Alter,
    AlterDatabase,
    CreateDatabase,
    CreateTable,
    DropDatabase,
    DropTable,
    Exchange,
    Recover,
    Rename,
    Snapshot,
    Statement,
    Truncate,
    Unknown,
    View,
    created_name,
    rename_pairs,
    statement,
)
from cdc_assets.ddl.text import Unreadable, statements
from cdc_assets.model.schema_changes import Predicate

__all__ = [
    "Alter",
    "AlterDatabase",
    "CreateDatabase",
    "CreateTable",
    "DropDatabase",
    "DropTable",
    "Exchange",
    "Predicate",
    "Recover",
    "Rename",
    "Snapshot",
    "Statement",
    "Truncate",
    "Unknown",
    "Unreadable",
    "View",
    "as_told",
    "create",
    "created",
    "created_name",
    "evolve",
    "exchange_predicate",
    "follow",
    "given_defaults",
    "key_of",
    "kinds",
    "partition_predicate",
    "polars_expr",
    "rename_pairs",
    "spark_sql",
    "statement",
    "statements",
    "undated",
    "undated_rows",
]
