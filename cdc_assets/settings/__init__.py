"""Settings: the file `changefeeds.yaml`, flags, the environment.

config          all settings of the file and of flags, with their messages; paths in the file
sections        parts of a changefeed's settings: archive, columns, cuts, extracts, history, layout, verify …
lake            the lake: one catalog and one warehouse, and the options of its type for Java and PyIceberg
stores          a storage's options for Java and PyIceberg
model           the base of all settings: frozen, with one message for all errors; values from the environment
"""
