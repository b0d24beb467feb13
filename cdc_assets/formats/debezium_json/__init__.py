"""Debezium's envelope as JSON, in the dialects of its writers.

TiCDC's:

messages    what messages speak of, the changes of a table, the schemas that rows show

That of the connectors:

connectors  what messages speak of, the changes of a table, the schemas that rows show
uniform     rows that are alike, side by side: what they speak of, the changes of a table
arrays      a column of such rows -> cells
envelope    a message -> its payload, and the schema block where it has one
positions   where a row stands in the log of its source
columns     columns <-> fields of messages
readings    values of fields -> texts as the type table reads them
settings    a connector's settings
"""
