"""Listing, applied state and checkpoint -> ordered steps, and runs of them. Pure.

held_back       holds for what depends on a held table
inputs          what a plan is made from beside the listing and the applied state
layout          which layout a table gets, and the DDL that a layout does not bear
partitions      partition keys `schema.table@version`, both ways
plan            listing + applied state + checkpoint -> ordered steps over all tables
recipe          what of a table's recipe is another setting now than its rows were read with
run_batches     which tables have something to do, and how they are grouped into runs
"""
