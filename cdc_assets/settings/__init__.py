"""Settings: the file `changefeeds.yaml`, flags, the environment.

config        the settings as values, with their messages
env           values that come from the environment, and one mapping over another
catalog_uri   two spellings of a JDBC catalog's address
"""
