"""The spine: list, plan, run each step. Dagster and the command line both call it.

features       what features do in a run beside the steps of its plan
journal        a run's records in the ledger
missing_files  files that were there and are gone
outcome        how a run left each table: its plan, its steps, its progress, and whether it is exact
pipeline       the spine
planner        the plan of what is to be done
replay         the input decoded again, as if nothing were applied
settled        files that no window needs any more
window_pool    windows of several tables side by side
"""
