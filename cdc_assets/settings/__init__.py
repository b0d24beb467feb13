"""Settings: the file `changefeeds.yaml`, flags, the environment.

config          the settings as values, with their messages
lake            the lake: one catalog and one warehouse
maintenance     when a table's files are tidied
model           what all of them have in common: frozen, with one message for all that is wrong
archive         where archived topics lie
initial         what was in the tables before a changefeed began
paths           paths in `changefeeds.yaml`
env             values that come from the environment, and one mapping over another
stores          how Java and PyIceberg are told to reach a storage
catalog_kinds   how they are told to reach a type of catalog
catalog_uri     two spellings of a JDBC catalog's address
"""
