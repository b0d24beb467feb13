"""`make bench`: how fast files become tables, beside others that do the same with the same files in the same run.

    feeds       large changefeeds by the written format rules
    dumps       the rows of such a feed as a dump of what was there before
    knowing     a lake and a ledger that know thousands of tables and files already
    messages    change messages of topics, and how fast they become Arrow
    stores      feeds and lakes in an object store, and what is asked there
    measuring   wall, CPU and memory of a process with all that it starts
    contenders  what is timed, each in a process of its own: this project, DuckDB, plain Spark
    freshness   a feed that grows beside Dagster's daemon: how long its rows take to the tables, and what that costs
    peer        another tool on the same topic, where its jars are there
    scenarios   the targets, each with a check of the rows that came out; so do those of topics, stores, verify

`python -m cdc_assets_tests.bench [--only NAME …] [--scale S] [--minutes M] [--json PATH]`
"""
