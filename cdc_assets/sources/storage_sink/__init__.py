"""The files that a TiCDC changefeed writes into object storage.

changefeed    metadata, schema files, listing
options       sink URI and changefeed TOML: how rows and paths are written, and where
paths         path grammar, both ways
schema_file   schema files and their checksum
"""
