"""Listing, applied state and checkpoint -> ordered steps, runs and maintenance. Pure.

held_back     what depends on a held table is held with it
imports       what is planned of tables that a dump brings
maintenance   what is due for a table's files
partitions    partition keys `schema.table@version`, both ways
plan          listing + applied state + checkpoint -> ordered steps over all tables
related       the steps that a table's steps depend on
replay        quarantined records of one table -> what is read again to take them in
run_batches   which tables have something to do, and how they are put together into runs
"""
