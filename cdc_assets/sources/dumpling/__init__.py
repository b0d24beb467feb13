"""A dump: the schemas and rows of tables as they were at one TSO, as Dumpling or TiDB Cloud exports them.

initial     a dump's directory, opened for reading
directory   what lies in the dump's directory: tables, their files, what is odd
splits      files cut for tasks, and the rows of a split
generated   stored generated columns, which a dump leaves out
"""
