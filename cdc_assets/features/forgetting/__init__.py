"""Rows of keys taken out of everything that the lake has, and kept out of what is applied later.

planning              steps without the rows of forgotten keys
landing               messages emptied whose rows are to be forgotten
pipeline              what runs and looks know of forgotten keys
lake                  rows of keys taken out of all snapshots and files of a table
lake_search           which snapshots, files and stages have them
operations            rows of keys taken out of everything that the lake has
operations_request    what is asked for, with its command and job
operations_landed     the same of what is landed of topics
operations_tables     which tables may have the rows, and the keys as each has them
operations_keep_out   forgotten keys that stay out of what is applied later
operations_key_bytes  values of keys in records that cannot be decoded
report                what was done to forget rows
defs                  what Dagster logs of it, without keys
"""
