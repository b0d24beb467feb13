"""Rows from before the feed: dumps, and their import into tables.

history               tables of a dump
formats               rows of dumps, and which module reads a kind of data file
planning              plans for tables of a dump
pipeline              dumps before a feed: checks before their tables are planned
settings              the tables' rows from before a changefeed
report                contents of a dump, for a person
defs                  what was in the tables before the changefeed: an asset upstream of `ddl`
"""
