"""Tables read straight from the source over the MySQL protocol, as they were at one TSO.

initial   a server, opened for reading
address   `mysql://user@host:4000/database?ssl-mode=…`
session   a connection that reads at the TSO, and what goes wrong with one
cursor    rows as they are asked for
ranges    a table cut by its key, for tasks
rows      the rows of a range as changes

TiDB reads at a TSO where the session has `tidb_snapshot`: rows and schemas are as they were then, and nothing can be
written. Any other server has no such thing, so its tables have to be quiet. Values come in the text protocol, every one
as the bytes that the server prints.
"""
