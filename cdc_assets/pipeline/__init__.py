"""The spine: look, plan, run each step. Dagster and the command line both call it."""
