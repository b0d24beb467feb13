"""Values that cross a stage. Frozen, small, picklable: they travel to Spark executors and between Dagster ops.

    splits (files, schema files) ──▶ history of each table (Life) ──▶ steps ──▶ reports
                    │                                                   ▲
                    └────────────── schema, schema_changes ─────────────┘

Imports nothing but the standard library.

    comparison        what comparing a table with its source says
    cuts              one state of all tables at a position
    decisions         what people decide, as a lake keeps it
    dumps             a dump
    encryption        the key that encrypts input as it came
    explanation       how a row of a table came to be as it is
    features          the features that the core does not know, and where their parts are
    findings          what was found of a changefeed, and how grave it is
    forecast          when a table will have caught up
    landed            what was landed of topics: rows in pieces, and events; commands that decide about them
    layout            partitions, order, properties and own columns of a table, as settings name them
    ledger_entries    what the ledger remembers, as values
    kinds             history tables beside those of the source, as settings name them
    masks             what becomes of values that the lake must not have
    names             names as TiDB gives and compares them
    offsets           places in a log: partitions of topics, their ends, ranges of offsets
    forgetting        rows that are taken out of a lake for good
    gaps              tables that lack rows, in words
    progress          how far a table is applied, its state, and the identity that it keeps through renames
    quarantine        records that were set aside because they do not fit
    recipe            what the values of a table's rows depend on, beside the input
    releases          what people decided about single DDL and changed settings
    reports           results of reading a window and of carrying out a step
    schema            tables, columns, keys and partitions, as schema files and DDL texts define them; ByName
    schema_changes    what one DDL changes
    setting_patterns  patterns of tables and columns that settings give, and what they fit
    splits            what lies under a changefeed's prefix
    steps             what is done to tables
    table_filter      TiDB's table filter: patterns of names in a changefeed's configuration
    table_history     the events of a table's life, and the names it held
    tickets           work that takes several commits, while it is under way
    tso               timestamps of TiDB's oracle, and times as texts
    window_metrics    what a committed window did to its table, and the lag of its newest change
    wording           numbers and places in sentences
"""
