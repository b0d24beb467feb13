"""Settings: the file `changefeeds.yaml`, flags, the environment.

config          the settings as values, with their messages
lake            the lake: one catalog and one warehouse
cuts            which cuts are made by themselves
extracts        changes of each hour or day, for assets that depend on them
maintenance     when a table's files are maintained
model           the base of all settings: frozen, with one message for all errors
archive         the location of archived topics
initial         the tables' rows from before a changefeed
privacy         how values of columns are masked
verify          how tables are compared with their source
history         tables beside the mirrors: every change, every state
paths           paths in `changefeeds.yaml`
env             values from the environment, and merged mappings
stores          a storage's options for Java and PyIceberg
catalog_kinds   a catalog type's options for Java and PyIceberg
catalog_uri     two spellings of a JDBC catalog's address
"""
