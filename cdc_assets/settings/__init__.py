"""Settings: the file `changefeeds.yaml`, flags, the environment.

config        the settings as values, with their messages
maintenance   when a table's files are tidied
model         what all of them have in common: frozen, with one message for all that is wrong
archive       where archived topics lie
initial       what was in the tables before a changefeed began
paths         paths in `changefeeds.yaml`
env           values that come from the environment, and one mapping over another
catalog_uri   two spellings of a JDBC catalog's address
"""
