"""Operations for people, and the wiring: open, inspect, status, release, replay, rebuild, maintain, purge, verify.

as_of          tables as they were at a moment
change_files   extracts written as Parquet, JSON lines or CSV
comparison     two sides of a table compared row by row
complete       say that tables had no rows before their changefeed began
cuts           one state of all tables at a position: made, listed, removed
decide_landed  what people decide about messages of topics
engines        how engines connect to a lake and read a table, as text
key_ranges     a large table in ranges of its key, of which those that were equal are not compared again at a newer TSO
explain        where a row comes from
extract        changes of a table between two positions
forget         rows of keys taken out of everything that the lake has
forget_tables  which tables may have the rows, and the keys as each has them
forget_landed  the same of what is landed of topics
inspect        the contents of a changefeed's prefix, and whether it can be followed
keep_out       forgotten keys that stay out of what is applied later
key_bytes      values of keys in records that cannot be decoded
keys           keys as people give them
lake_pipeline  the pipeline into an Iceberg lake, with what only that lake can do
lake_rows      rows of the lake as of one snapshot
landing_needs  which landed rows are still wanted, and why
landings       what is landed of topics
log_rows       the columns of a log, by the names of the lake and of the source
losses         which loss makes a value of the lake equal to that of its source
maintenance    do what is due for the lake's files
metrics        metrics of a lake as text, and in a file
moments        moments as people give them: a TSO, a time, the name of a cut
named          which table a person means
net_changes    what several changes of a key come to
opening        settings -> open parts
proposal       decisions before they are recorded, with the plan that would follow
purge          dropped tables removed for good, with their files
query          rows of lake tables for a first look, and SQL on them
rebuild        tables rebuilt from the whole recorded history, aside, and swapped in one commit each
release        decide held DDL: `cdc-assets release TABLE VERSION --apply "DDL" | --skip | --rebuild | --undo`
repair         the source's rows written into tables that differ from it
replay         quarantined records applied after a fix
requests       what people ask of an operation, for its command and its job
row_choice     which rows of a table are compared
row_readers    rows of both sides of a compared table, wherever they are read
status         the states of a lake's tables
tickets        work that is under way, told from what was killed
verify         tables of the lake compared with their source
"""
