"""Listing, applied state and checkpoint -> ordered steps, and runs of them. Pure.

cuts            where a cut is made, and which tables are not there
forgotten       steps without the rows of forgotten keys
held_back       holds for what depends on a held table
imports         plans for tables of a dump
inputs          what a plan is made from beside the listing and the applied state
kinds           histories of the history tables that stand beside those of the source
lake_columns    steps of mirrors with the columns that the settings ask for
layout          which layout a table gets, and the DDL that a layout does not bear
masking         what steps do to columns whose values are masked
partitions      partition keys `schema.table@version`, both ways
plan            listing + applied state + checkpoint -> ordered steps over all tables
recipe          what of a table's recipe is another setting now than its rows were read with
run_batches     which tables have something to do, and how they are grouped into runs
"""
