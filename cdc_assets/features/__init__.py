"""Features: what the project can do beside the way of a row, a folder each. The core reaches them through few seams.

    columns         columns of mirrors by settings: places, times of ingestion, marks of deleted rows
    completeness    which tables lack rows, and what people say of it
    cuts            one state of all tables of a changefeed at one position
    dumps           rows from before a feed, imported into its tables
    forgetting      rows of keys taken out of everything, and kept out
    kinds           kinds of tables: how changes are reduced and written
    masks           values that the lake must not have
    quarantine      records that do not fit, set aside
    verification    tables compared with their source

A folder has a file for each layer that the feature touches, called as that layer: `lake.py` obeys the rules of `lake/`,
`operations_keys.py` those of `operations/`. Values that cross layers stay in `model/`.
"""
