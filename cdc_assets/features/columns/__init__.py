"""Columns of mirrors by the settings `columns` and `deletes`: places, times of ingestion, marks of deleted rows.

decoding              the columns with their values, and deletes that mark rows
planning              steps of mirrors that have them
lake                  the columns in Iceberg, and rows marked by a DDL
"""
