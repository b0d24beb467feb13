"""Debezium's envelope as JSON, in the dialects of its writers.

TiCDC's:

messages    what messages speak of, the changes of a table, the schemas that rows show

That of the connectors:

connectors    what messages speak of, the changes of a table, the schemas that rows show
envelope      messages -> their payload, as records, their schema block and the columns of their keys
system_versioning  of MariaDB's tables that keep past rows: changes of the rows of now
positions     where rows stand in the log of their source
columns       columns <-> fields of messages, by a connector's settings
"""
