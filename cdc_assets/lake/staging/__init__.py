"""A window's changes on their way: decoded and written as Parquet by tasks, taken in by one commit.

stage   a window's changes on their way
tasks   one task's part of a stage
"""
