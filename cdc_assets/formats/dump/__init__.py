"""Data files of dumps: a split of a file -> its rows as changes, block by block. Runs on Spark executors.

    csv       Dumpling's CSV in every dialect
    sql       its INSERT statements
    parquet   Parquet of Dumpling and TiDB Cloud
    blocks    bytes of a split, whole records at a time
    dialect   how Dumpling writes CSV: its options as bytes, and what they promise
    rows      records -> columns of texts, as a file has them -> rows in the lake's types

Every reader yields `Decoded`: all rows are inserts, and all have the dump's TSO as commit-ts. `_cdc_line` counts
records from the first row of the split; `lines_before` says what to add for the line in the file. A file that cannot be
trusted raises MalformedData, also behind rows that were yielded before: nothing may be committed until a split is read
through.
"""
