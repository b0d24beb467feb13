"""DDL texts and schema files -> what they mean. Pure: no I/O, no clock. sqlglot is used here only, for its tokenizer.

    SQL text ────▶ created     TableSchema of a new table by its CREATE TABLE alone
             ────▶ altered     TableSchema before + text -> after, by the text alone
    SchemaFile ──▶ statement   which kind of DDL
               ──▶ create      the same beside its file (text: members, collations, virtual, keys, partitions)
               ──▶ evolve      TableSchema before + file -> after, SchemaChanges in an executable order
               ──▶ follow      the same by plain difference, for a DDL whose effect on rows is skipped
               ──▶ kinds       which policies concern it
    Partitioning ─▶ partition_predicate ─▶ spark_sql | polars_expr

Where there is a schema file its columns are the truth; texts break ties and add what columns cannot express.

    alter          ALTER TABLE (and CREATE/DROP INDEX) as a list of specs, in the order of the text
    altered        a known schema + the text of a DDL, or columns that rows describe -> the schema afterwards
    cascades       foreign keys by which a database changes rows that its log does not have
    clauses        clauses of CREATE and ALTER TABLE: column and index definitions, table options, partitions
    copied         whether rows copied into an altered table are those that the ALTER makes
    columns        a column's definition and its default as text -> the `Column` that TiCDC's schema file has
    described      tables as the setting `schemas` has them in PostgreSQL's words or YDB's
    evolve         old schema + schema file -> new schema and the changes that lead there; signs of missing DDL
    expression     partition expressions -> `Predicate` nodes over lake columns, constants folded
    kept_columns   columns that the lake keeps although the source dropped them
    kinds          which kinds of DDL a schema file is, in the words of the policies; several for a multi-schema change
    partitions     partition definitions -> the condition on rows that a partition holds
    predicate      a row predicate -> Spark SQL, and -> a polars expression, which select the same rows
    schema         a CREATE TABLE text -> TableSchema, alone or beside its schema file
    statement      what a schema file's DDL is
    text           SQL text -> tokens, and a cursor over them
"""

from __future__ import annotations

from cdc_assets.ddl.alter import stray_words
from cdc_assets.ddl.altered import Unfollowed, altered, defaults_by_text, grown, listed
from cdc_assets.ddl.cascades import cascades
from cdc_assets.ddl.clauses import charset_of, default_collation
from cdc_assets.ddl.copied import copy_doubt, same_definition
from cdc_assets.ddl.described import changefeed_options, described_tables
from cdc_assets.ddl.evolve import evolve, follow
from cdc_assets.ddl.kinds import kinds
from cdc_assets.ddl.partitions import exchange_predicate, partition_predicate
from cdc_assets.ddl.predicate import confirm_nulls, polars_expr, spark_sql, undated, undated_rows
from cdc_assets.ddl.schema import create, created, key_of
from cdc_assets.ddl.statement import (
    Alter,
    AlterDatabase,
    CreateDatabase,
    CreateTableStatement,
    DropDatabase,
    DropTableStatement,
    Exchange,
    Recover,
    Rename,
    SchemaSnapshot,
    Statement,
    Truncate,
    Unknown,
    View,
    alter_without_rename,
    created_name,
    database_of,
    emptied,
    given_up,
    rename_pairs,
    soft_delete_option,
    statement,
    table_by_text,
    tables_by_text,
    unlogged_rows,
)
from cdc_assets.ddl.text import (
    Unreadable,
    as_restored,
    concealed,
    creates_if_absent,
    first_words,
    is_statement,
    names_in,
    quote,
    statements,
)
from cdc_assets.model.schema_changes import Predicate

__all__ = [
    "Alter",
    "AlterDatabase",
    "CreateDatabase",
    "CreateTableStatement",
    "DropDatabase",
    "DropTableStatement",
    "Exchange",
    "Predicate",
    "Recover",
    "Rename",
    "SchemaSnapshot",
    "Statement",
    "Truncate",
    "Unfollowed",
    "Unknown",
    "Unreadable",
    "View",
    "alter_without_rename",
    "altered",
    "as_restored",
    "cascades",
    "changefeed_options",
    "charset_of",
    "concealed",
    "confirm_nulls",
    "copy_doubt",
    "create",
    "created",
    "created_name",
    "creates_if_absent",
    "database_of",
    "default_collation",
    "defaults_by_text",
    "described_tables",
    "emptied",
    "evolve",
    "exchange_predicate",
    "first_words",
    "follow",
    "given_up",
    "grown",
    "is_statement",
    "key_of",
    "kinds",
    "listed",
    "names_in",
    "partition_predicate",
    "polars_expr",
    "quote",
    "rename_pairs",
    "same_definition",
    "soft_delete_option",
    "spark_sql",
    "statement",
    "statements",
    "stray_words",
    "table_by_text",
    "tables_by_text",
    "undated",
    "undated_rows",
    "unlogged_rows",
]
