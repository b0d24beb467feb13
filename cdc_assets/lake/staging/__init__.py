"""Staging of a window's changes: decoded and written as Parquet by tasks, applied by one commit.

executors      work on Spark's executors, whose software must be the driver's
stage          staging of a window's changes
storage        the file systems of a warehouse
tasks          one task's part of a stage
partitions     rows in the order and the partitions of their table
"""
