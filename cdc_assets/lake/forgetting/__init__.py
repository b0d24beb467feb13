"""What taking rows of keys out of a table is made of; `lake.forget` draws it.

rows            rows of keys in Parquet files, and what manifests show of them
searched_table  a table's files and snapshots, and which of them have rows of the keys
remake          snapshots made anew without the rows, in one transaction
stages          what windows staged that are not committed
"""
