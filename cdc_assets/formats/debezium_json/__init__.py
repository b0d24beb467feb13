"""Debezium's envelope as JSON, in the dialects of its writers.

TiCDC's:

messages    what messages speak of, the changes of a table, the schemas that rows show

That of the connectors:

connectors    what messages speak of, the changes of a table, the schemas that rows show
envelope      messages -> their payload, as records, and the schema block where they have one
message_keys  the columns of messages' keys, which rows may lack
system_versioning  of MariaDB's tables that keep past rows: changes of the rows of now
positions     where rows stand in the log of their source
columns       columns <-> fields of messages, by a connector's settings
"""
