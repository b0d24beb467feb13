"""Operations for people, and the wiring: open, inspect, status, release, replay, rebuild, maintain, purge, verify.

as_of          tables as they were at a moment
change_files   extracts written as Parquet, JSON lines or CSV
engines        how engines connect to a lake and read a table, as text
explain        where a row comes from
extract        changes of a table between two positions
inspect        the contents of a changefeed's prefix, and whether it can be followed
keys           keys as people give them
decide_landed  what people decide about messages of topics
landings       what is landed of topics, and which landed rows are still wanted
table_rows     rows of the lake as of one snapshot, and the columns of logs
maintenance    do what is due for the lake's files
metrics        metrics of a lake as text, and in a file
lake_pipeline  the pipeline into an Iceberg lake, with what only that lake can do
moments        moments as people give them: a TSO, a time, the name of a cut
named          which table a person means
net_changes    what several changes of a key come to
opening        settings -> open parts
purge          dropped tables removed for good, with their files
query          rows of lake tables for a first look, and SQL on them
rebuild        tables rebuilt from the whole recorded history, aside, and swapped in one commit each
release        decide held DDL: `cdc-assets release TABLE VERSION --apply "DDL" | --skip | --rebuild | --undo`
requests       operations that people ask for, from which commands and jobs are built
status         the states of a lake's tables
tickets        work that is under way, told from what was killed
"""
