"""The spine: look, plan, run each step. Dagster and the command line both call it.

completeness   incomplete tables say so for themselves, in the lake, and people say that tables are none
imports        dumps before a feed: what has to be known before their tables are planned
journal        what a run writes down in the ledger
outcome        how a run left each table, told from what it planned, what it did and what the lake says now
pipeline       the spine
planner        what is to be done
prefetch       windows that are staged before their turn
"""
